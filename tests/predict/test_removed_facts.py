"""Facts removed from a graph in use, and facts judged without their own edges."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.graphs import knowledge_graph, toy
from support.models import any_graph_predictor, predictor

from pathe.core.errors import DataError
from pathe.core.types import PARTS
from pathe.graph.prepared import prepare
from pathe.model.builder import build_scorer, scorer_without

MAKERS = [predictor, any_graph_predictor]


def named(kg, ids):
    return [(kg.entities[h], kg.relations[r], kg.entities[t]) for h, r, t in ids.tolist()]


def smaller(kg, rows):
    """The graph read without some training triples, with the same vocabularies."""
    kept = [row for i, row in enumerate(kg.train.tolist()) if i not in rows]
    made = knowledge_graph(kept, kg.valid.tolist(), kg.test.tolist())
    return replace(made, entities=kg.entities, relations=kg.relations)


@pytest.mark.parametrize("make", MAKERS)
def test_removing_gives_what_a_smaller_graph_gives(make):
    kg, rows = toy(), [3, 50, 51, 130]
    p, fresh = make(kg), make(smaller(kg, rows))
    p.warm()
    assert p.remove([*named(kg, kg.train[rows]), *named(kg, kg.train[rows[:1]])]) == 4
    pairs = [(p.prepared.graph, fresh.prepared.graph)]
    pairs += [
        (p.prepared.known().lists(part), fresh.prepared.known().lists(part)) for part in PARTS
    ]
    for one, other in pairs:
        for a, b in zip(one.tensors(), other.tensors(), strict=True):
            assert torch.equal(a, b)
    p.refresh()
    head, relation, tail = named(kg, kg.train[rows[:1]])[0]
    ours, theirs = p.tails(head, relation, 60), fresh.tails(head, relation, 60)
    assert tail in [a.name for a in ours]
    assert [a.name for a in ours] == [a.name for a in theirs]
    assert [a.score for a in ours] == pytest.approx([a.score for a in theirs], abs=1e-5)
    assert np.allclose(p.embed(), fresh.embed(), atol=1e-6)


@pytest.mark.parametrize("make", MAKERS)
def test_what_is_added_again_was_never_gone(make):
    kg = toy()
    p, facts = make(kg), named(kg, kg.train[[5, 9]])
    before = p.tails(facts[0][0], facts[0][1], 60)
    p.remove(facts)
    assert p.tails(facts[0][0], facts[0][1], 60) != before
    assert p.add(facts) == 2
    p.refresh()
    assert p.tails(facts[0][0], facts[0][1], 60) == before
    p.add([("new", "r0", "e0003")])
    p.remove([("new", "r0", "e0003")])
    assert "new" in p.entity_names  # an entity stays
    assert not p.prepared.known().contains(p._ids([("new", "r0", "e0003")])).any()


def test_a_fact_that_is_not_there_is_an_error_and_nothing_is_removed():
    kg = toy()
    p, fact = predictor(kg), named(kg, kg.train[:1])[0]
    n = p.prepared.graph.n_triples
    absent = (fact[0], fact[1], next(a.name for a in p.tails(fact[0], fact[1], 1)))
    with pytest.raises(DataError, match="the graph doesn't have it"):
        p.remove([fact, absent])
    assert p.prepared.graph.n_triples == n
    assert p.remove([]) == 0


def test_a_known_validation_triple_can_be_forgotten():
    kg = toy()
    p, fact = predictor(kg), named(kg, kg.valid[:1])[0]
    assert fact[2] in p.known_answers((fact[0], fact[1], None))
    assert p.remove([fact]) == 1
    assert fact[2] not in p.known_answers((fact[0], fact[1], None))


@pytest.mark.parametrize("make", MAKERS)
def test_a_scorer_without_triples_scores_as_on_the_smaller_graph(make):
    kg, rows = toy(), [0, 7, 120]
    p = make(kg)
    p.warm()
    triples_N3 = kg.train[rows].long()
    ours = scorer_without(p.scorer, p.artifact.config, triples_N3)
    ours.refresh()
    config, seed = p.artifact.config, p.scorer.seed
    theirs = build_scorer(p.artifact.model, config, prepare(smaller(kg, rows)), seed=seed)
    for side, column in (("tail", 0), ("head", 2)):
        query = triples_N3[:, column], triples_N3[:, 1], side
        assert torch.allclose(ours.links(*query), theirs.links(*query), atol=1e-5)
    assert ours.prepared.known().contains(triples_N3).all()  # only their edges are left out
    full = build_scorer(p.artifact.model, config, prepare(kg), seed=seed)
    query = triples_N3[:, 0], triples_N3[:, 1], "tail"
    assert torch.allclose(p.scorer.links(*query), full.links(*query), atol=1e-5)
