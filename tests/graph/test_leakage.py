"""Planted leakage is measured and told; a clean split is not accused."""

from __future__ import annotations

import pytest
from support.commands import pathe
from support.folders import folder_of
from support.graphs import knowledge_graph

from pathe.graph.analysis import analyze
from pathe.graph.leakage import leakage, warnings_of
from pathe.graph.prepared import PreparedGraph

TRAIN = [(i, 0, (i * 7 + 3) % 50) for i in range(50)] + [
    (i, 1, (i * 3 + 1) % 50) for i in range(50)
]
TEST = [(i, 0, 50 + i) for i in range(0, 40, 2)]
VALID = [(i, 0, 50 + i) for i in range(1, 41, 4)]
CLEAN = {"valid_in_train": 0, "test_in_train": 0, "test_in_valid": 0, "copied": 0, "inverted": 0}
PLANTED = {
    "all test triples in train": (TRAIN + TEST, VALID, {"test_in_train": 20}),
    "some valid triples in train": (TRAIN + VALID[:3], VALID, {"valid_in_train": 3}),
    "test within valid": (TRAIN, VALID + TEST, {"test_in_valid": 20}),
    "copies": (TRAIN + [(h, 2, t) for h, _, t in TEST], VALID, {"copied": 1.0}),
    "copies of a part": (TRAIN + [(h, 2, t) for h, _, t in TEST[:10]], VALID, {"copied": 0.5}),
    "inverses": (TRAIN + [(t, 2, h) for h, _, t in TEST], VALID, {"inverted": 1.0}),
    "inverses of a part": (TRAIN + [(t, 2, h) for h, _, t in TEST[:5]], VALID, {"inverted": 0.25}),
}


@pytest.mark.parametrize("planted", PLANTED.values(), ids=PLANTED)
def test_planted_leakage_is_measured_and_reported(planted):
    train, valid, wanted = planted
    kg = knowledge_graph(train, valid, TEST)
    assert leakage(PreparedGraph(kg)) == CLEAN | wanted
    [said] = warnings_of(PreparedGraph(kg))
    assert said.startswith("LEAKAGE: ")
    result = analyze(kg)
    assert result["verdict"]["sentences"][0] == said
    if "test_in_train" in wanted:
        assert result["leakage"]["test"]["leaked"] == 1
        assert "20 of the 20 test triples (100.0%) are also in train" in said


def test_clean_splits_are_not_accused():
    for kg in (
        knowledge_graph(TRAIN, VALID, TEST),
        knowledge_graph(TRAIN),
        knowledge_graph(TRAIN, VALID),
    ):
        assert warnings_of(PreparedGraph(kg)) == []
    assert leakage(PreparedGraph(knowledge_graph(TRAIN, VALID, TEST))) == CLEAN
    assert leakage(PreparedGraph(knowledge_graph(TRAIN)))["copied"] is None


def test_inverse_relations_of_a_random_split_are_reported():
    forward = [(i, 0, 50 + i) for i in range(50)]
    back = [(t, 1, h) for h, _, t in forward]
    test = forward[::5] + back[1::5]
    found = leakage(
        PreparedGraph(knowledge_graph([r for r in forward + back if r not in test], (), test))
    )
    assert (found["copied"], found["inverted"]) == (0, 1)


def test_train_evaluate_and_analyze_warn(tmp_path):
    rows = [(f"e{h}", f"r{r}", f"e{t}") for h, r, t in TRAIN + TEST]
    held = [(f"e{h}", f"r{r}", f"e{t}") for h, r, t in TEST]
    folder_of(tmp_path / "data", train=rows, valid=rows[:5], test=held)
    small = (
        "--set",
        "dim=8",
        "--set",
        "max_epochs=1",
        "--set",
        "n_paths=1",
        "--set",
        "bridge=none",
    )
    done = pathe("train", "data", "--out", "run", "--task", "link", *small, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("warning: LEAKAGE") == 2
    assert "20 of the 20 test triples (100.0%) are also in train" in done.stderr
    found = pathe("evaluate", "run", "--data", "data", "--json", cwd=tmp_path)
    assert found.stderr.count("warning: LEAKAGE") == 2
    assert "LEAKAGE: 20 of the 20 test" in pathe("analyze", "data", cwd=tmp_path).stdout
