from __future__ import annotations

import random
from unittest import mock

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.graphs import sorted_triples, triple_lists

from pathe.graph import growth
from pathe.graph.adjacency import build_graph
from pathe.graph.growth import extend_graph, holds


@settings(max_examples=80, deadline=None)
@given(triple_lists(), st.integers(0, 10**6), st.sampled_from([3, 300]))
def test_extending_equals_building_from_all(given_graph, seed, few):
    rows, n_entities, n_relations = given_graph
    chance = random.Random(seed)
    old = [row for row in rows if chance.random() < 0.6]
    n_old = max((max(h, t) for h, _, t in old), default=-1) + 1
    graph = build_graph(sorted_triples(old), n_old, n_relations)
    new = sorted_triples(row for row in rows if row not in old)
    with mock.patch.object(growth, "FEW", few):  # one by one, or all at once
        grown = extend_graph(graph, new, n_entities)
    whole = build_graph(sorted_triples(rows), n_entities, n_relations)
    assert (grown.n_entities, grown.n_relations) == (n_entities, n_relations)
    for part in ("outgoing", "incoming", "out_contexts", "in_contexts"):
        ours, theirs = getattr(grown, part), getattr(whole, part)
        for name in ours.__dataclass_fields__:
            assert torch.equal(getattr(ours, name), getattr(theirs, name)), (part, name)
            assert getattr(ours, name).dtype == getattr(theirs, name).dtype


@settings(max_examples=30, deadline=None)
@given(triple_lists())
def test_a_graph_holds_its_triples_and_no_others(given_graph):
    rows, n_entities, n_relations = given_graph
    graph = build_graph(sorted_triples(rows), n_entities, n_relations)
    every = [(h, r, t) for h in range(n_entities) for r in range(n_relations)
             for t in range(n_entities)]  # fmt: skip
    asked = torch.tensor(every)
    assert holds(graph, asked).tolist() == [row in set(rows) for row in every]
    beyond = torch.tensor([[n_entities, 0, 0], [0, 0, n_entities]])
    assert not holds(graph, beyond).any()
    assert holds(graph, asked[:50]).tolist() == [row in set(rows) for row in every[:50]]
