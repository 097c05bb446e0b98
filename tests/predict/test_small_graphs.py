"""Small graphs have few facts to learn from; what was learned from other graphs makes up for it."""

from __future__ import annotations

import pytest
from support.graphs import kg_of
from support.small import small

from pathe import Predictor
from pathe.data.knowledge_graph import KnowledgeGraph

SIZES = [(12, 6), (22, 8), (40, 10)]


@pytest.fixture(scope="module", params=SIZES, ids=["70 facts", "115 facts", "190 facts"])
def made(request):
    return small(*request.param)


@pytest.fixture(scope="module")
def p(made):
    return Predictor(KnowledgeGraph.from_triples(made.facts))


def fact(row):
    return row.head, row.relation, row.tail


def test_obvious_gaps_come_first_with_a_probability_to_act_on(made, p):
    found = p.missing(100)
    chance = {fact(row): row.probability for row in found}
    first = [fact(row) for row in found[: len(made.gaps)]]
    assert len(set(first) & set(made.gaps)) >= 0.6 * len(made.gaps)
    gaps = [chance.get(gap, 0.0) for gap in made.gaps]
    assert sorted(gaps)[len(gaps) // 2] >= 0.5
    sure = [row for row in found if row.probability >= 0.5]
    assert sum(fact(row) in made.gaps for row in sure) >= 0.7 * len(sure)


def test_guesses_get_no_high_probability(made, p):
    """Where somebody lives, and what their job is, follows from nothing."""
    found = p.missing(100)
    assert all(row.probability < 0.5 for row in found if row.relation in ("lives in", "job"))


def test_gaps_are_judged_true_and_wrong_facts_less_probable(made, p):
    gaps = p.classify(made.gaps)
    assert sum(row.true for row in gaps) >= 0.8 * len(gaps)
    wrong = p.classify(made.wrong)
    assert all(row.known for row in wrong)
    assert max(row.probability for row in wrong) < 0.5
    assert min(row.probability for row in gaps if row.true) >= 0.5
    suspicious = [fact(row) for row in p.check(6)]
    assert set(suspicious) & set(made.wrong)


def test_even_a_handful_of_facts_can_be_judged():
    p = Predictor(kg_of("a in x; b in x; c in y; d in y; a of x; c of y"))
    [right, wrong] = p.classify([("b", "in", "x"), ("b", "in", "y")])
    assert right.probability > wrong.probability
    assert all(row.probability < 0.9 for row in p.missing(50))
