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


def test_obvious_gaps_come_first_with_probabilities_to_act_on(made, p):
    """They follow from others; where somebody lives, and what their job is, from nothing."""
    found = p.missing(100)
    n = len(made.gaps)
    first = found[:n]
    assert len(set(map(fact, first)) & set(made.gaps)) >= 0.75 * n
    assert sum(row.probability for row in first) >= 0.45 * n
    assert all(row.probability < 0.3 for row in found if row.relation in ("lives in", "job"))
    assert all(row.probability < 0.5 for row in found if fact(row) not in made.gaps)


@pytest.mark.slow
def test_gaps_are_more_probable_than_planted_wrong_facts(made, p):
    gaps, wrong = p.classify(made.gaps), p.classify(made.wrong)
    assert all(row.true for row in gaps)
    assert all(row.known for row in wrong)
    assert max(row.probability for row in wrong) < min(row.probability for row in gaps)
    n = len(made.facts)
    suspicious = [fact(row) for row in p.check(n // 5)]
    assert set(made.wrong) <= set(suspicious)


def test_even_a_handful_of_facts_can_be_judged():
    p = Predictor(kg_of("a in x; b in x; c in y; d in y; a of x; c of y"))
    [right, wrong] = p.classify([("b", "in", "x"), ("b", "in", "y")])
    assert right.probability > wrong.probability
    assert all(row.probability < 0.9 for row in p.missing(50))
