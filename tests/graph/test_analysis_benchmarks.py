"""The statistics of the benchmark graphs are the paper's."""

from __future__ import annotations

from typing import Any

import pytest
from support.places import DATA

from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.graph.analysis import analyze


def read(name: str) -> dict[str, Any]:
    if not (DATA / name).is_dir():
        pytest.skip("needs the benchmark data")
    return analyze(KnowledgeGraph.read(DATA / name))


def test_fb15k237_as_in_the_paper() -> None:
    result = read("fb15k-237")
    counts = result["counts"]
    assert (counts["entities"], counts["entities_in_train"], counts["relations"]) == (
        14_541, 14_505, 237,
    )  # fmt: skip
    assert counts["triples"] == {"train": 272_115, "valid": 17_535, "test": 20_466}
    assert counts["seen"] == {"valid": 17_526, "test": 20_438}
    assert result["degree"]["mean"] == pytest.approx(37.5, abs=0.05)
    top = result["relations"]["top"]
    assert [r["triples"] for r in top] == [
        15_989, 12_893, 12_157, 10_945, 9_494, 9_465, 8_423, 7_268, 6_277, 5_880, 5_673,
    ]  # fmt: skip
    assert [round(100 * r["share"], 1) for r in top] == [
        5.9, 4.7, 4.5, 4.0, 3.5, 3.5, 3.1, 2.7, 2.3, 2.2, 2.1,
    ]  # fmt: skip
    assert round(result["contexts"][0]["distinct"], 2) == 0.92
    assert result["leakage"]["test"] == {"linked_same": 0, "linked_reverse": 0, "leaked": 0}
    assert result["reach"]["visited"] == pytest.approx(0.27, abs=0.02)
    assert result["verdict"]["grade"] == "well suited"


def test_wn18rr_as_in_the_paper() -> None:
    result = read("wn18rr")
    counts = result["counts"]
    assert (counts["entities"], counts["entities_in_train"], counts["relations"]) == (
        40_943, 40_559, 11,
    )  # fmt: skip
    assert counts["triples"] == {"train": 86_835, "valid": 3_034, "test": 3_134}
    assert counts["seen"] == {"valid": 2_824, "test": 2_924}
    assert round(result["degree"]["mean"], 2) == 4.28
    assert [(r["triples"], round(100 * r["share"], 1)) for r in result["relations"]["top"]] == [
        (34_796, 40.1), (29_715, 34.2), (7_402, 8.5), (4_816, 5.5), (3_116, 3.6), (2_921, 3.4),
        (1_299, 1.5), (1_138, 1.3), (923, 1.1), (629, 0.7), (80, 0.1),
    ]  # fmt: skip
    assert round(result["relations"]["top_two_share"], 2) == 0.74
    rounds = result["contexts"]
    assert round(rounds[0]["distinct"], 2) == 0.08
    assert [round(r["alone"], 2) for r in rounds] == [0.05, 0.63, 0.77, 0.78]
    assert [rule["relations"] for rule in result["leakage"]["symmetric"]] == [
        ["_derivationally_related_form"], ["_verb_group"], ["_similar_to"],
    ]  # fmt: skip
    assert result["leakage"]["test"]["leaked"] == pytest.approx(0.336, abs=0.001)
    assert result["reach"]["visited"] == pytest.approx(0.61, abs=0.02)
    assert result["verdict"]["grade"] == "poorly suited"


def test_grail_pair() -> None:
    result = read("inductive/fb237_v1")
    assert result["inference"]["shared_entities"] == 0
    assert result["inference"]["unseen_relations"] == 0
    assert result["inference"]["triples"]["train"] == 1_993
