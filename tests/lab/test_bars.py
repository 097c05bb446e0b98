"""The bars of the results page: each is met or missed as the files say."""

from __future__ import annotations

import json

import pytest
from support.places import ROOT

from pathe.lab import bars, zero_shot
from pathe.lab.experiments import judged
from pathe.lab.results_page import read_results, read_zero_shot

SUMMARIES = read_results(ROOT / "results")
ZERO_SHOT = read_zero_shot(ROOT / "results")


def rows(summaries=(), without_training=None, speed=()) -> dict[str, list[str]]:
    """The cells of each row by its title."""
    lines = list(bars.page(list(summaries), without_training, speed))[4:-1]
    return {row[1]: row[2:5] for row in ([c.strip() for c in line.split("|")] for line in lines)}


def mean(values) -> float:
    values = list(values)
    return sum(values) / len(values)


def test_bars_of_the_zero_shot_model_are_those_of_the_issue():
    found, graphs = rows(without_training=ZERO_SHOT), ZERO_SHOT["graphs"]
    averaged = [n for n, e in zero_shot.listed()["graphs"].items() if e.get("mean")]
    links = mean(graphs[name]["links"]["mrr"] for name in averaged)
    hits = mean(graphs[name]["relation_prediction"]["hits_at_1"] for name in averaged)
    expected = {
        "zero-shot links, 12 GraIL graphs: MRR": (0.6, links),
        "zero-shot relations, 12 GraIL graphs: Hits@1": (0.8, hits),
        "zero-shot links, NL-25: MRR": (0.4, graphs["zero-shot/nl-25"]["links"]["mrr"]),
        "zero-shot links, NL-100: MRR": (0.49, graphs["zero-shot/nl-100"]["links"]["mrr"]),
        "zero-shot links, FB-25: MRR": (0.4, graphs["zero-shot/fb-25"]["links"]["mrr"]),
        "zero-shot links, ILPC small: MRR": (0.305, graphs["zero-shot/ilpc-small"]["links"]["mrr"]),
        "zero-shot links, CoDEx-S: MRR": (0.48, graphs["codex-s"]["links"]["mrr"]),
        "zero-shot links, CoDEx-S: Hits@10": (0.68, graphs["codex-s"]["links"]["hits_at_10"]),
    }
    for title, (bar, value) in expected.items():
        verdict = "met" if value >= bar else "**missed**"
        assert found.pop(title)[::2] == [zero_shot.short(bar), verdict]
    seconds = found.pop("seconds to rank FB15k-237's test triples on an H200")
    assert seconds[0] == "5"
    assert float(seconds[1]) == pytest.approx(graphs["fb15k-237"]["seconds"], rel=0.05)
    size = f"{ZERO_SHOT['parameters']:,}"
    assert found == {"parameters of the pre-trained model": ["250,000", size, "met"]}


def test_the_mean_of_fine_tuned_pairs_has_its_bar():
    pairs = [s for s in SUMMARIES if s["table"] == "tuned" and "_v" in s["name"]]
    value = mean(judged(s)["mrr"]["mean"] for s in pairs)
    verdict = "met" if value >= 0.62 else "**missed**"
    found = rows(SUMMARIES)["fine-tuned links, 12 GraIL graphs: MRR"]
    assert found == [".620", zero_shot.short(value), verdict]
    assert "fine-tuned links, 12 GraIL graphs: MRR" not in rows(pairs[1:])


def test_times_keep_the_verdicts_of_the_benchmark():
    speed = bars.read_speed(ROOT / "results")
    assert speed == json.loads((ROOT / bars.SPEED).read_text())["results"]
    missed = speed[0] | {"measure": "slow", "met": False}
    found = rows(speed=[*speed, missed])
    assert found[speed[0]["measure"]] == [speed[0]["bar"], speed[0]["ours"], "met"]
    assert found["slow"][2] == "**missed**"


def test_their_number_is_counted():
    speed = bars.read_speed(ROOT / "results")
    about = next(line for line in bars.page([], None, speed) if "were met" in line)
    assert f" {len(speed)} of {len(speed)} were met." in about
    assert not list(bars.page([], None))
