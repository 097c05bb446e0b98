"""A graph made ready for a model: built once, and grown as if it had been built larger."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.graphs import graph_of_ids, knowledge_graph, toy, triple_lists

from pathe.core.errors import ConfigError
from pathe.core.tensors import Tensors
from pathe.core.types import PARTS
from pathe.graph import prepared as prepared_module
from pathe.graph.prepared import PreparedGraph, prepare


def equal(ours: Tensors, theirs: Tensors) -> bool:
    pairs = zip(ours.tensors(), theirs.tensors(), strict=True)
    return all(a.dtype == b.dtype and torch.equal(a, b) for a, b in pairs)


def check_equal(ours: PreparedGraph, theirs: PreparedGraph) -> None:
    assert (ours.n_entities, ours.n_relations) == (theirs.n_entities, theirs.n_relations)
    for part in ("graph", "edges", "slots", "pairs"):
        assert equal(getattr(ours, part), getattr(theirs, part)), part
    assert torch.equal(ours.seen_E, theirs.seen_E)
    assert torch.equal(ours.train_M3, theirs.train_M3)
    for splits in ((), ("train",)):
        for part in PARTS:
            assert equal(ours.known(*splits).lists(part), theirs.known(*splits).lists(part))


@settings(max_examples=40, deadline=None)
@given(triple_lists(), st.integers(0, 10**6), st.sets(st.sampled_from(PARTS)))
def test_a_graph_that_grew_equals_one_built_larger(data, seed, used):
    """Whatever of it was used before, and whatever of the new was known before."""
    rows, n_entities, n_relations = data
    chance = random.Random(seed)
    old, new = ([row for row in rows if chance.random() < share] for share in (0.6, 0.7))
    n_old = max((max(h, t) for h, _, t in old), default=0) + 1
    before = PreparedGraph(graph_of_ids(old, (), n_old, n_relations))
    for part in used:
        before.known().lists(part)
    whole = before.train_M3.clone()
    more = torch.tensor(new, dtype=torch.int64).view(-1, 3)
    grown, added = before.add(more, n_entities)
    assert set(map(tuple, added.tolist())) == set(new) - set(old)
    larger = PreparedGraph(graph_of_ids({*old, *new}, (), n_entities, n_relations))
    check_equal(grown, larger)
    assert torch.equal(before.train_M3, whole)  # and the smaller one is as it was
    again, none = grown.add(more, n_entities)
    assert not len(none)
    check_equal(again, larger)


def test_parts_are_built_once():
    prepared = PreparedGraph(toy())
    for part in ("edges", "slots", "pairs", "seen_E", "train_M3"):
        assert getattr(prepared, part) is getattr(prepared, part)
    assert prepared.known() is prepared.known("train", "valid", "test")
    assert prepared.known("train") is prepared.known("train")
    assert prepared.known("train") is not prepared.known()


def test_a_prepared_graph_is_not_built_again(monkeypatch):
    prepared = prepare(toy())
    monkeypatch.setattr(prepared_module, "build_graph", None)
    assert prepare(prepared) is prepared
    assert prepare(prepared, "cpu") is prepared
    moved = prepare(prepared, "meta")
    assert moved.device.type == "meta"
    assert moved.kg is prepared.kg
    assert prepared.device.type == "cpu"


def test_known_triples_are_those_of_the_splits():
    kg = toy()
    prepared = PreparedGraph(kg)
    assert prepared.known("train").contains(kg.train).all()
    assert not prepared.known("train").contains(kg.test).any()
    assert prepared.known().contains(torch.cat([kg.train, kg.valid, kg.test])).all()


def test_test_triples_are_seen_or_unseen_by_their_entities():
    kg = knowledge_graph([(0, 0, 1), (2, 0, 1)], [(0, 0, 5)], [(1, 0, 2), (0, 0, 3), (4, 0, 3)])
    prepared = PreparedGraph(kg)
    assert prepared.seen_E.tolist() == [True] * 3 + [False] * 3
    assert prepared.triples("test", "seen").tolist() == [[1, 0, 2]]
    assert prepared.triples("test", "unseen").tolist() == [[0, 0, 3], [4, 0, 3]]
    assert prepared.triples("test").tolist() == kg.test.tolist()
    assert prepared.triples("valid", "seen").tolist() == []
    with pytest.raises(ConfigError, match="seen, unseen or all; got 'some'"):
        prepared.triples("test", "some")
