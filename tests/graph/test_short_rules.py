"""How surely facts follow from one or two others: counts by hand."""

from __future__ import annotations

import pytest
import torch

from pathe.graph.short_rules import SUPPORT, UNSURE, ShortRules

BORN, IN, NATION = 0, 1, 2
PEOPLE, CITY, LAND = range(8), (10, 11), (20, 21)


def rules(extra=()):
    """Of eight people, the first four are born in city 10, the others in 11; two lack a nation."""
    facts = [(p, BORN, CITY[p // 4]) for p in PEOPLE]
    facts += [(c, IN, n) for c, n in zip(CITY, LAND, strict=True)]
    facts += [(p, NATION, LAND[p // 4]) for p in PEOPLE if p not in (0, 4)]
    return ShortRules(torch.tensor([*facts, *extra]), 3)


def test_the_share_of_the_pairs_that_a_pattern_connects():
    found = rules()
    assert found.confidence(0, NATION, LAND[0]) == pytest.approx(6 / (8 + UNSURE))
    assert found.confidence(1, NATION, LAND[0]) == pytest.approx(5 / (7 + UNSURE))  # not itself
    assert found.confidence(0, NATION, LAND[1]) == 0
    assert found.confidence(0, BORN, CITY[1]) == 0


def test_a_pattern_needs_support():
    facts = [(p, BORN, 10 + p) for p in range(SUPPORT)]
    facts += [(10 + p, NATION, p) for p in range(SUPPORT)]
    found = ShortRules(torch.tensor([*facts, (9, BORN, 19)]), 3)
    assert found.confidence(19, NATION, 9) == pytest.approx(SUPPORT / (SUPPORT + 1 + UNSURE))
    assert found.confidence(10, NATION, 0) == 0  # without itself, too few


def test_other_answers_that_follow_are_rivals():
    found = rules()
    sure = found.confidence(0, NATION, LAND[0])
    assert found.rival(0, NATION, LAND[1], "tail") == pytest.approx(sure)
    assert found.rival(0, NATION, LAND[0], "tail") == 0
    assert found.rival(9, NATION, LAND[0], "tail") == 0
    wrong = rules([(0, NATION, LAND[1])])  # a wrong fact is no evidence for its rival
    assert wrong.rival(0, NATION, LAND[1], "tail") == pytest.approx(6 / (8 + UNSURE))
    assert found.rival(0, NATION, LAND[1], "head") > 0.5  # as if each land had one national
