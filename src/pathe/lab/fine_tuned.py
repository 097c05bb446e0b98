"""The table of fine-tuned models, beside the same model without fine-tuning and other methods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from pathe.lab import zero_shot
from pathe.lab.experiments import Result, judged
from pathe.model.artifact import SHIPPED, model_digest

SHARE = " In brackets: how many rows of the mean."
KEYS = ("mrr", "hits_at_10")
MARKS = {  # of figures that another run would change, and what they mean
    "°": "Started from an earlier version of the pre-trained model.",
    "†": "The fine-tuned weights weren't averaged with the original ones, as they are now.",
}


def page(summaries: list[Result], without_training: dict[str, Any] | None) -> Iterator[str]:
    """Yields the table of the results page, a line each; nothing without fine-tuned models."""
    found = {s["title"]: s for s in summaries if s["table"] == "tuned"}
    if not found:
        return
    about, before = zero_shot.listed(), (without_training or {}).get("graphs", {})
    listed = {entry["title"]: (name, entry) for name, entry in about["graphs"].items()}
    yield "\n## Fine-tuned link prediction\n"
    yield (
        "The pre-trained model, fine-tuned on the training graph: MRR / Hits@10 on all test "
        "triples, with ties at their mean rank. FB, WN and NELL v1 to v4 are GraIL pairs: their "
        "test triples are those of the inference graph, whose entities training never saw. "
        "Other methods: ULTRA, fine-tuned (on GraIL pairs in its own protocol: valid and test "
        "triples together, ties broken pessimistically; CoDEx-M as pre-trained), and KnowFormer, "
        f"trained on the one graph.{_legend(list(found.values()))}\n"
    )
    columns = (
        "without fine-tuning",
        "fine-tuned",
        "other methods",
        "seeds",
        "training",
        "file",
    )
    yield f"|  | {' | '.join(columns)} |"
    yield "|" + "---|" * (len(columns) + 1)
    for title in sorted(found, key=list(listed).index):
        name, entry = listed[title]
        yield f"| {title} | {' | '.join(_cells(found[title], entry, before.get(name)))} |"
    pairs = of_pairs(summaries)
    if pairs and all(listed[summary["title"]][0] in before for summary in pairs):
        titles = [summary["title"] for summary in pairs]
        cells = [
            zero_shot.pair(_average([before[listed[title][0]]["links"] for title in titles])),
            zero_shot.pair(mean_of(pairs)) + _marked(pairs),
        ]
        published = [dict(zip(KEYS, listed[t][1]["ultra_tuned"], strict=True)) for t in titles]
        cells.append(f"ULTRA {zero_shot.pair(_average(published))}")
        yield f"| **{about['mean_of']}, mean** | {' | '.join(cells)} |  |  |  |"
    yield ""


def _cells(summary: Result, entry: dict[str, Any], before: dict[str, Any] | None) -> list[str]:
    return [
        zero_shot.pair(before["links"]) if before else "-",
        zero_shot.pair(_means(summary)) + _marked([summary]),
        _published(entry),
        str(len(summary["seeds"])),
        f"{summary['train_seconds']:.0f} s",
        f"[json](../results/{summary['name']}.json)",
    ]


def of_pairs(summaries: list[Result]) -> list[Result]:
    """Returns the results of all GraIL pairs, in order; none if one is missing."""
    found = {s["title"]: s for s in summaries if s["table"] == "tuned"}
    titles = [e["title"] for e in zero_shot.listed()["graphs"].values() if e.get("mean")]
    return [found[title] for title in titles] if set(titles) <= set(found) else []


def mean_of(pairs: list[Result]) -> dict[str, float]:
    """Returns the mean of the metrics over graphs."""
    return _average([_means(summary) for summary in pairs])


def _marks(summary: Result) -> set[str]:
    """Returns the marks of a result."""
    older = bool(summary.get("start")) and summary["start"] != model_digest(SHIPPED)
    averaged = all(run.get("averaged") for run in summary["runs"])
    return {mark for mark, holds in zip(MARKS, (older, not averaged), strict=True) if holds}


def _marked(summaries: list[Result]) -> str:
    """Returns the marks of a result or a mean, with a count where they hold for some rows only."""
    counts, n = Counter(mark for one in summaries for mark in _marks(one)), len(summaries)
    return "".join(
        f" {mark}" + (f" ({counts[mark]} of {n})" if counts[mark] < n else "")
        for mark in MARKS
        if counts[mark]
    )


def _legend(summaries: list[Result]) -> str:
    """Returns what the marks that are used mean."""
    used = set[str]().union(*map(_marks, summaries))
    words = "".join(f" {mark} {words}" for mark, words in MARKS.items() if mark in used)
    return words + (SHARE if "(" in _marked(of_pairs(summaries)) else "")


def _published(entry: dict[str, Any]) -> str:
    if "knowformer" in entry:
        return f"KnowFormer {zero_shot.published(entry['knowformer'])}"
    return f"ULTRA {zero_shot.published(entry.get('ultra_tuned') or entry['ultra'])}"


def _means(summary: Result) -> dict[str, float]:
    return {key: judged(summary)[key]["mean"] for key in KEYS}


def _average(each: list[dict[str, float]]) -> dict[str, float]:
    return {key: sum(one[key] for one in each) / len(each) for key in KEYS}
