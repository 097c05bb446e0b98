"""The table of fine-tuned models, beside the same model without fine-tuning and other methods."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pathe.lab import zero_shot
from pathe.lab.experiments import Result, judged
from pathe.model.artifact import SHIPPED, model_digest

KEYS = ("mrr", "hits_at_10")
OLDER = "°"  # marks figures of models that started from other weights than those of the package


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
        "trained on the one graph. All were trained before fine-tuned weights were averaged with "
        "the original ones."
        + (
            f" {OLDER} Started from an earlier version of the pre-trained model.\n"
            if any(_is_older(one) for one in found.values())
            else "\n"
        )
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
    averaged = [title for title, (_, entry) in listed.items() if entry.get("mean")]
    if all(title in found and listed[title][0] in before for title in averaged):
        pairs = [
            [before[listed[title][0]]["links"] for title in averaged],
            [_means(found[title]) for title in averaged],
        ]
        cells = [zero_shot.pair(_average(each)) for each in pairs]
        cells[1] += f" {OLDER}" if any(_is_older(found[title]) for title in averaged) else ""
        published = [dict(zip(KEYS, listed[t][1]["ultra_tuned"], strict=True)) for t in averaged]
        cells.append(f"ULTRA {zero_shot.pair(_average(published))}")
        yield f"| **{about['mean_of']}, mean** | {' | '.join(cells)} |  |  |  |"
    yield ""


def _cells(summary: Result, entry: dict[str, Any], before: dict[str, Any] | None) -> list[str]:
    return [
        zero_shot.pair(before["links"]) if before else "-",
        zero_shot.pair(_means(summary)) + (f" {OLDER}" if _is_older(summary) else ""),
        _published(entry),
        str(len(summary["seeds"])),
        f"{summary['train_seconds']:.0f} s",
        f"[json](../results/{summary['name']}.json)",
    ]


def _is_older(summary: Result) -> bool:
    return bool(summary.get("start")) and summary["start"] != model_digest(SHIPPED)


def _published(entry: dict[str, Any]) -> str:
    if "knowformer" in entry:
        return f"KnowFormer {zero_shot.published(entry['knowformer'])}"
    return f"ULTRA {zero_shot.published(entry.get('ultra_tuned') or entry['ultra'])}"


def _means(summary: Result) -> dict[str, float]:
    return {key: judged(summary)[key]["mean"] for key in KEYS}


def _average(each: list[dict[str, float]]) -> dict[str, float]:
    return {key: sum(one[key] for one in each) / len(each) for key in KEYS}
