"""The table of fine-tuned models."""

from __future__ import annotations

import pytest

from pathe.lab import zero_shot
from pathe.lab.experiments import judged
from pathe.lab.fine_tuned import MARKS, SHARE, page
from pathe.lab.results_page import tables
from pathe.model.artifact import SHIPPED, model_digest

PAIRS = [e["title"] for e in zero_shot.listed()["graphs"].values() if e.get("mean")]


def spread(mrr: float, hits: float) -> dict[str, dict[str, float]]:
    return {"mrr": {"mean": mrr, "std": 0.0}, "hits_at_10": {"mean": hits, "std": 0.0}}


def summary(title: str, **changed):
    return {
        "name": f"{title}-tuned", "title": title, "table": "tuned", "seeds": [0], "bars": {},
        "config": {}, "paper": {}, "train_seconds": 20.4, "metrics": spread(0.9, 0.9),
        "all_metrics": {}, "inference": {}, "runs": [{"averaged": {"share": 0.5}}],
    } | changed  # fmt: skip


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")[1:-1]]


def test_models_are_judged_on_all_test_triples_and_on_unseen_entities_of_pairs():
    assert judged(summary("CoDEx-S")) == spread(0.9, 0.9)
    every = summary("WN18RR", all_metrics=spread(0.6, 0.7))
    assert judged(every) == spread(0.6, 0.7)
    unseen = {"full": spread(0.5, 0.8), "sampled:50": spread(0.1, 0.1)}
    assert judged(summary("FB v1", inference=unseen)) == spread(0.5, 0.8)


def test_each_row_shows_the_model_before_and_after():
    shown = summary("CoDEx-S", bars={"mrr": 0.95})
    pair = summary("FB v1", inference={"full": spread(0.5, 0.8)})
    text = tables([shown, pair])
    rows = [
        cells(line) for line in text.splitlines() if line.startswith(("| FB v1 |", "| CoDEx-S |"))
    ]
    assert [row[0] for row in rows] == ["FB v1", "CoDEx-S"]  # in the order of the other table
    assert rows[0][1:4] == ["-", ".500 / .800", "ULTRA .509 / .670"]
    assert rows[1][1:4] == ["-", ".900 / .900", "ULTRA .490 / .686"]
    assert rows[1][4:] == ["1", "20 s", "[json](../results/CoDEx-S-tuned.json)"]
    assert "| CoDEx-S, fine-tuned link prediction: MRR | .950 | .900 | **missed** |" in text


@pytest.mark.parametrize("n", [11, 12])
def test_the_mean_is_that_of_all_twelve_pairs(n):
    graphs = {
        name: {"links": {"mrr": 0.5, "hits_at_10": 0.6}} for name in zero_shot.listed()["graphs"]
    }
    each = [
        summary(title, inference={"full": spread(0.6 + i / 100, 0.7)})
        for i, title in enumerate(PAIRS[:n])
    ]
    last = [cells(line) for line in page(each, {"graphs": graphs}) if line.startswith("| **")]
    if n < 12:
        assert not last
    else:
        assert last[0][1:4] == [".500 / .600", ".655 / .700", "ULTRA .566 / .724"]


def test_marks_are_those_of_each_row_and_the_mean_counts_them():
    each = [summary(title, inference={"full": spread(0.6, 0.7)}) for title in PAIRS]
    each[0] |= {"start": "another model"}
    each[1] |= {"start": model_digest(SHIPPED), "runs": [{"averaged": {}}, {"mrr": 0.6}]}
    graphs = {
        name: {"links": {"mrr": 0.5, "hits_at_10": 0.6}} for name in zero_shot.listed()["graphs"]
    }
    lines = list(page(each, {"graphs": graphs}))
    rows = {row[0]: row[2] for row in map(cells, lines) if len(row) > 2}
    assert rows["FB v1"] == ".600 / .700 °"
    assert rows["FB v2"] == ".600 / .700 †"
    assert rows["FB v3"] == ".600 / .700"
    assert rows["**12 GraIL graphs, mean**"] == ".600 / .700 ° (1 of 12) † (1 of 12)"
    assert all(words in lines[1] for words in MARKS.values())
    assert SHARE in lines[1]
    assert not any(words in "".join(page(each[2:3], None)) for words in (*MARKS.values(), SHARE))
    alike = [one | {"start": "another model"} for one in each]
    assert any(".600 / .700 ° † (1 of 12) |" in line for line in page(alike, {"graphs": graphs}))


def test_nothing_is_shown_without_fine_tuned_models():
    assert "Fine-tuned" not in tables([])
