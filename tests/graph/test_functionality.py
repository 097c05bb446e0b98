"""Functional relations, by hand-computed counts."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from support.films import films
from support.graphs import graph_of, triple_lists

from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.graph.adjacency import build_graph
from pathe.graph.functionality import QUERIES, functionality
from pathe.graph.prepared import prepare

# relation 0: every head has tail 9; relation 1: heads 0 to 9 have one tail each, but 0 has two;
# relation 2: four heads, one tail each: too few; relation 3: none
GRAPH = graph_of(
    [(h, 0, 9) for h in range(6)] + [(h, 1, h) for h in range(10)] + [(0, 1, 5)]
    + [(h, 2, h) for h in range(QUERIES - 1)],
    n_relations=4,
)  # fmt: skip


def test_counts_by_hand():
    found = functionality(GRAPH)
    tails, heads = found["tail"], found["head"]
    assert tails.queries_R.tolist() == [6, 10, 4, 0]
    assert tails.mean_R.tolist() == pytest.approx([1, 1.1, 1, 0])
    assert tails.single_R.tolist() == pytest.approx([1, 0.9, 1, 0])
    assert tails.functional_R.tolist() == [True, True, False, False]
    assert heads.queries_R.tolist() == [1, 10, 4, 0]
    assert heads.mean_R.tolist() == pytest.approx([6, 1.1, 1, 0])
    assert heads.functional_R.tolist() == [False, True, False, False]


def test_overrides_win():
    found = functionality(GRAPH, {(0, "tail"): False, (3, "head"): True})
    assert found["tail"].functional_R.tolist() == [False, True, False, False]
    assert found["head"].functional_R.tolist() == [False, True, False, True]


@settings(deadline=None)
@given(triple_lists())
def test_the_mean_times_the_queries_is_the_number_of_triples(drawn):
    rows, n_entities, n_relations = drawn
    triples = torch.tensor(rows, dtype=torch.int32).view(-1, 3)
    for found in functionality(build_graph(triples, n_entities, n_relations)).values():
        n = torch.bincount(triples[:, 1], minlength=n_relations)
        torch.testing.assert_close(found.mean_R * found.queries_R, n.float())
        assert bool(((found.single_R >= 0) & (found.single_R <= 1)).all())


def test_films_have_the_relations_that_one_expects():
    graph = films()
    kg = KnowledgeGraph.from_triples(graph.triples)
    found = prepare(kg).functionality
    names = list(kg.relations)
    functional = {s: {n for i, n in enumerate(names) if found[s].functional_R[i]} for s in found}
    assert {"born_in", "nationality", "country", "language", "capital_of"} <= functional["tail"]
    assert not {"acted_in", "works_with"} & functional["tail"]
    assert {"capital_of", "seat_of_government", "spouse_of"} <= functional["head"]
    assert not {"born_in", "nationality", "located_in", "genre"} & functional["head"]
