"""Subgraphs: connected, induced, of the size asked; varied relations keep the pairs of entities."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from support.graphs import graph_of, sorted_triples
from torch import Tensor

from pathe.graph import subgraphs
from pathe.graph.adjacency import Graph
from pathe.graph.subgraphs import sample_subgraph, vary_relations

Row = tuple[int, int, int]


def ring(n: int, first: int = 0) -> list[Row]:
    """A ring with a chord and a self-loop here and there."""
    rows = [(i, 0, (i + 1) % n) for i in range(n)] + [(i, 1, (i + 5) % n) for i in range(0, n, 7)]
    rows += [(i, 2, i) for i in range(0, n, 3)]
    return [(h + first, r, t + first) for h, r, t in rows]


def entities(triples: Tensor) -> set[int]:
    return set(triples[:, [0, 2]].flatten().tolist())


def n_parts(triples: Tensor) -> int:
    """The number of connected components."""
    part = {e: e for e in entities(triples)}
    for _ in part:
        for h, _, t in triples.tolist():
            part[h] = part[t] = min(part[h], part[t])
    return len(set(part.values()))


def check_induced(graph: Graph, found: Tensor) -> None:
    """All triples of the graph among the entities of the subgraph, in order, and no others."""
    inside = entities(found)
    expected = [row for row in graph.triples_M3.tolist() if {row[0], row[2]} <= inside]
    assert found.tolist() == expected


@pytest.mark.parametrize("wanted", [1, 2, 10, 59])
def test_a_subgraph_is_connected_and_has_all_triples_among_its_entities(wanted):
    graph = graph_of(ring(60, first=3), 70)  # some entities have no edges
    found = [sample_subgraph(graph, wanted, seed) for seed in range(8)]
    for triples in found:
        check_induced(graph, triples)
        if wanted > 1:
            assert len(entities(triples)) == wanted
            assert n_parts(triples) == 1
    again = [sample_subgraph(graph, wanted, seed) for seed in range(8)]
    assert all(map(torch.equal, found, again))
    assert len({tuple(map(tuple, triples.tolist())) for triples in found}) >= min(wanted, 4)


def test_where_the_graph_is_smaller_all_of_it_is_taken():
    for rows in (ring(20), [(0, 0, 0)], [(0, 0, 1), (2, 0, 3), (5, 1, 5)]):
        graph = graph_of(rows, 30)
        everything = len(entities(graph.triples_M3))
        for n in (everything, 1000):
            assert torch.equal(sample_subgraph(graph, n, 1), graph.triples_M3)


def test_where_a_neighbourhood_ends_early_another_one_begins():
    graph = graph_of([(2 * i, 0, 2 * i + 1) for i in range(20)])
    for seed in range(5):
        found = sample_subgraph(graph, 10, seed)
        assert len(found) == 5
        assert len(entities(found)) == 10


@pytest.mark.parametrize("outgoing", [True, False])
def test_few_neighbours_of_a_hub_are_followed(monkeypatch, outgoing):
    """A hub with 40 arms of 30 entities: from one arm, a subgraph enters only three others."""
    monkeypatch.setattr(subgraphs, "NEIGHBOURS", 3)
    arms = [[0, *range(1 + 30 * arm, 31 + 30 * arm)] for arm in range(40)]
    pairs = [pair for arm in arms for pair in pairwise(arm)]
    graph = graph_of([(h, 0, t) if outgoing else (t, 0, h) for h, t in pairs])
    entered = []
    for seed in range(40):
        found = sample_subgraph(graph, 60, seed)
        check_induced(graph, found)
        assert len(entities(found)) == 60
        entered.append(sum(0 in (h, t) for h, _, t in found.tolist()))
    assert max(entered) in (3, 4)


def facts(n_relations: int, n_each: int) -> Tensor:
    """Triples of different pairs of entities, so that a pair tells the triple."""
    return sorted_triples(
        [(i, r, 500 + r * n_each + i) for r in range(n_relations) for i in range(n_each)]
    )


def test_varied_relations_connect_the_same_pairs():
    given = sorted_triples([row for row in ring(30) if row[1] < 2])
    pairs = {frozenset((h, t)) for h, _, t in given.tolist()}
    kept, several = given.clone(), set()
    for seed in range(60):
        found = vary_relations(given, seed)
        assert len(found)
        assert found.dtype == torch.int64
        assert {frozenset((h, t)) for h, _, t in found.tolist()} <= pairs
        assert torch.equal(found, vary_relations(given, seed))
        several.add(tuple(map(tuple, found.tolist())))
    assert torch.equal(given, kept)
    assert len(several) > 30


@pytest.mark.parametrize("relation", [0, 3])
def test_a_varied_graph_is_never_empty(relation):
    given = sorted_triples([(4, relation, 7)])
    found = [vary_relations(given, seed) for seed in range(200)]
    assert all(len(triples) for triples in found)
    ends = {tuple(row) for triples in found for row in triples[:, [0, 2]].tolist()}
    assert ends == {(4, 7), (7, 4)}


def test_relations_are_flipped_as_a_whole_and_changed_as_often_as_said():
    n, each, seeds = 40, 8, 30
    given = facts(n, each)
    relation_of = {frozenset((h, t)): r for h, r, t in given.tolist()}
    flipped, missing, split, renamed, copied, turned = [], [], [], [], [], []
    for seed in range(seeds):
        own: dict[int, list[Row]] = {r: [] for r in range(n)}
        copies: dict[int, list[Row]] = {r: [] for r in range(n)}
        for h, r, t in vary_relations(given, seed).tolist():
            (own if r < 2 * n else copies)[relation_of[frozenset((h, t))]].append((h, r, t))
        for relation in range(n):
            directions = {h < t for h, _, t in own[relation]}
            assert len(directions) < 2, "a part of a relation was flipped"
            assert len(own[relation]) in (0, each)
            missing.append(not own[relation])
            flipped += [not forward for forward in directions]
            names = {r % n for _, r, _ in own[relation]}
            assert len(names) < 2
            renamed += [name != relation for name in names]
            split += [len({r for _, r, _ in own[relation]}) == 2] if names else []
            assert {r for _, r, _ in copies[relation]} <= {relation + 2 * n}
            back = {h < t for h, _, t in copies[relation]}
            assert len(back) < 2
            assert len(copies[relation]) <= each
            copied.append(bool(copies[relation]))
            turned += [back != directions] if back and directions else []
    for found, share in (
        (flipped, 0.5), (missing, 0.1), (split, 0.15), (renamed, 0.1), (copied, 0.2), (turned, 0.7),
    ):  # fmt: skip
        assert abs(sum(found) / len(found) - share) < 0.07
