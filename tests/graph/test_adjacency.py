from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from support.graphs import graph_of, triple_lists

from pathe.graph.adjacency import build_graph, owners, sort_order


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
