from __future__ import annotations

import random
from collections import Counter
from unittest import mock

import pytest
import torch
from graphs import graph_of, sorted_triples, triple_lists
from hypothesis import given, settings
from hypothesis import strategies as st

from pathe import graph as graphs
from pathe.graph import (
    build_graph,
    expand,
    extend_graph,
    holds,
    known_answers,
    owners,
    sort_order,
)


@settings(max_examples=80, deadline=None)
@given(triple_lists())
def test_adjacency_and_contexts_hold_exactly_the_triples(data):
    rows, n_entities, n_relations = data
    graph = graph_of(rows, n_entities, n_relations)
    assert graph.n_triples == len(rows)
    for adjacency, contexts, own, other in (
        (graph.outgoing, graph.out_contexts, 0, 2),
        (graph.incoming, graph.in_contexts, 2, 0),
    ):
        slots = list(
            zip(
                owners(adjacency.offsets_E1).tolist(),
                adjacency.relations_M.tolist(),
                adjacency.neighbours_M.tolist(),
                strict=True,
            )
        )
        assert slots == sorted((row[own], row[1], row[other]) for row in rows)
        for (entity, relation, neighbour), triple in zip(
            slots, adjacency.triples_M.tolist(), strict=True
        ):
            expected = [0, relation, 0]
            expected[own], expected[other] = entity, neighbour
            assert list(rows[triple]) == expected
        counted = Counter((row[own], row[1]) for row in rows)
        stored = zip(
            owners(contexts.offsets_E1).tolist(),
            contexts.relations_P.tolist(),
            contexts.counts_P.tolist(),
            strict=True,
        )
        assert {(e, r): c for e, r, c in stored} == counted


def test_sort_order_is_stable_on_both_branches():
    keys = torch.tensor([3, 1, 3, 0, 1])
    for bound in (4, 1 << 62):
        assert sort_order(keys, bound).tolist() == [3, 1, 4, 0, 2]


def test_expand_lists_every_slot_of_every_row():
    rows, slots = expand(torch.tensor([5, 0, 9]), torch.tensor([2, 0, 3]))
    assert rows.tolist() == [0, 0, 2, 2, 2]
    assert slots.tolist() == [5, 6, 9, 10, 11]


def test_a_graph_moves_and_counts_its_bytes():
    graph = graph_of([(0, 0, 1), (1, 1, 2)])
    assert graph.to("cpu").n_bytes == graph.n_bytes
    assert graph.outgoing.n_bytes == 4 * 8 + 3 * 2 * 4
    meta = graph.to("meta")
    assert meta.outgoing.neighbours_M.device.type == meta.in_contexts.counts_P.device.type == "meta"


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([[1, 0, 2], [0, 0, 1]], "sorted"),
        ([[0, 0, 1], [0, 0, 1]], "unique"),
        ([[0, 0, 3]], "range"),
        ([[0, 1, 1]], "range"),
        ([[0, 0, -1]], "range"),
    ],
)
def test_triples_that_would_corrupt_the_graph_are_refused(rows, words):
    with pytest.raises(ValueError, match=words):
        build_graph(torch.tensor(rows), 3, 1)


@settings(max_examples=80, deadline=None)
@given(triple_lists(), st.integers(0, 10**6), st.sampled_from([3, 300]))
def test_extending_equals_building_from_all(given_graph, seed, few):
    rows, n_entities, n_relations = given_graph
    chance = random.Random(seed)
    old = [row for row in rows if chance.random() < 0.6]
    n_old = max((max(h, t) for h, _, t in old), default=-1) + 1
    graph = build_graph(sorted_triples(old), n_old, n_relations)
    new = sorted_triples(row for row in rows if row not in old)
    with mock.patch.object(graphs, "FEW", few):  # one by one, or all at once
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
def test_known_answers_are_those_in_the_list(given_graph):
    rows, n_entities, n_relations = given_graph
    graph = build_graph(sorted_triples(rows), n_entities, n_relations)
    every = [(h, r, t) for h in range(n_entities) for r in range(n_relations)
             for t in range(n_entities)]  # fmt: skip
    asked = torch.tensor(every)
    assert holds(graph, asked).tolist() == [row in set(rows) for row in every]
    beyond = torch.tensor([[n_entities, 0, 0], [0, 0, n_entities]])
    assert not holds(graph, beyond).any()
    assert holds(graph, asked[:50]).tolist() == [row in set(rows) for row in every[:50]]
    for place, part in enumerate(("head", "relation", "tail")):
        found = {(i, a) for i, a in zip(*known_answers(graph, asked, part), strict=True)}
        found = {(int(i), int(a)) for i, a in found}
        expected = {
            (i, row[place])
            for i, ask in enumerate(every)
            for row in rows
            if all(row[k] == ask[k] for k in range(3) if k != place)
        }
        assert found == expected
