"""The relation graph against a table computed by hand and against products of dense matrices."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.graphs import DEVICES, sorted_triples, triple_lists
from torch import Tensor

from pathe.graph import relation_graph as module
from pathe.graph.adjacency import build_graph
from pathe.graph.edges import both_ways
from pathe.graph.held_out import HeldOut
from pathe.graph.relation_graph import (
    N_MEETINGS,
    arrivals,
    count_meetings,
    meetings_without,
    relation_graph,
)

# Triples (0, r, 1), (0, s, 1), (1, r, 2), (2, r, 2); kinds r, s and their inverses r', s'.
# They arrive at r {1, 2}, s {1}, r' {0, 1, 2}, s' {0}, and leave from where the inverse arrives.
# Edges into 1 from 0: r, s; into 0 from 1: r', s'; into 2 from 1: r; into 1 from 2: r';
# into 2 from 2: r, r'.
BY_HAND = [
    # met or not: both arrive, b leaves, a leaves, both leave
    "1/3 1/3 1/3 0 | 1/3 1/3 1/3 0 | 1/4 1/4 1/4 1/4 | 0 0 1/2 1/2",
    "1/3 0 1/3 1/3 | 1/3 0 1/3 1/3 | 1/4 1/4 1/4 1/4 | 1/2 1/2 0 0",
    "1/4 1/4 1/4 1/4 | 0 0 1/2 1/2 | 1/3 1/3 1/3 0 | 1/3 1/3 1/3 0",
    "1/4 1/4 1/4 1/4 | 1/2 1/2 0 0 | 1/3 0 1/3 1/3 | 1/3 0 1/3 1/3",
    # shared entities; both arrive: 2 1 2 0 | 1 1 1 0 | 2 1 3 1 | 0 0 1 1
    "2/5 1/5 2/5 0 | 1/3 1/3 1/3 0 | 2/7 1/7 3/7 1/7 | 0 0 1/2 1/2",
    "2/5 0 2/5 1/5 | 1/3 0 1/3 1/3 | 3/7 1/7 2/7 1/7 | 1/2 1/2 0 0",
    "2/7 1/7 3/7 1/7 | 0 0 1/2 1/2 | 2/5 1/5 2/5 0 | 1/3 1/3 1/3 0",
    "3/7 1/7 2/7 1/7 | 1/2 1/2 0 0 | 2/5 0 2/5 1/5 | 1/3 0 1/3 1/3",
    # share of b's entities; both arrive: 1 1 2/3 0 | 1/2 1 1/3 0 | 1 1 1 1 | 0 0 1/3 1
    "3/8 3/8 1/4 0 | 3/11 6/11 2/11 0 | 1/4 1/4 1/4 1/4 | 0 0 1/4 3/4",
    "1/4 0 3/8 3/8 | 2/11 0 3/11 6/11 | 1/4 1/4 1/4 1/4 | 1/4 3/4 0 0",
    "1/4 1/4 1/4 1/4 | 0 0 1/4 3/4 | 3/8 3/8 1/4 0 | 3/11 6/11 2/11 0",
    "1/4 1/4 1/4 1/4 | 1/4 3/4 0 0 | 1/4 0 3/8 3/8 | 2/11 0 3/11 6/11",
    # edges between the same two entities: share of a's, of b's
    "1 1/3 1/3 0 | 1 1 0 0 | 1/3 0 1 1/3 | 0 0 1 1",
    "1 1 1/3 0 | 1/3 1 0 0 | 1/3 0 1 1 | 0 0 1/3 1",
]


def meetings(rows, n_entities, n_relations, held_out=None, device="cpu") -> Tensor:
    """The relation graph of triples, without the held-out ones (by their rows)."""
    edges = both_ways(build_graph(sorted_triples(rows), n_entities, n_relations)).to(device)
    keep = edges.keep(None if held_out is None else HeldOut(ids_B=held_out.to(device)))
    return relation_graph(arrivals(edges), keep).cpu()


def oracle(rows, n_entities, n_relations) -> Tensor:
    """The same from incidence matrices: entities x kinds, and ordered pairs of entities x kinds."""
    n, k = n_entities, 2 * n_relations
    arrives, leaves = torch.zeros(2, n, k).double()
    joins = torch.zeros(n, n, k).double()
    for h, r, t in rows:
        for source, target, kind in ((h, t, r), (t, h, r + n_relations)):
            arrives[target, kind] = leaves[source, kind] = joins[source, target, kind] = 1
    sides = [(a, b) for a in (arrives, leaves) for b in (arrives, leaves)]
    shared = [a.t() @ b for a, b in sides]
    shares = [c / b.sum(0).clamp(min=1) for c, (_, b) in zip(shared, sides, strict=True)]
    blocks = [(c > 0).double() for c in shared] + shared + shares
    blocks = [c / c.sum(1, keepdim=True).clamp(min=1e-9) for c in blocks]
    joins = joins.flatten(0, 1)
    together, edges = joins.t() @ joins, joins.sum(0).clamp(min=1)
    return torch.cat([*blocks, together / edges[:, None], together / edges]).float()


def some_graph(n=150, n_entities=20, n_relations=5):
    """Random triples with self-loops, parallel edges and inverse pairs; relation 4 has none."""
    made = torch.Generator().manual_seed(n)
    highest = torch.tensor([n_entities, n_relations - 1, n_entities])
    rows = (torch.rand(n, 3, generator=made) * highest).long().tolist()
    rows += [(t, (r + 1) % 4, h) for h, r, t in rows[::5]] + [(h, 0, h) for h, _, _ in rows[::9]]
    return sorted_triples(rows).tolist(), n_entities, n_relations


def test_a_table_computed_by_hand():
    found = meetings([(0, 0, 1), (0, 1, 1), (1, 0, 2), (2, 0, 2)], 4, 2)
    rows = [row.split() for block in BY_HAND for row in block.split("|")]
    expected = torch.tensor([[float(Fraction(value)) for value in row] for row in rows])
    assert expected.shape == (N_MEETINGS * 4, 4)
    torch.testing.assert_close(found, expected)


@settings(max_examples=60, deadline=None)
@given(triple_lists(), st.integers(0, 2**31))
def test_equals_products_of_incidence_matrices_of_the_kept_edges(graph, seed):
    rows, *sizes = graph
    gone = torch.rand(len(rows), generator=torch.Generator().manual_seed(seed)) < seed % 3 / 4
    left = [row for row, out in zip(rows, gone.tolist(), strict=True) if not out]
    found = meetings(rows, *sizes, gone.nonzero().squeeze(1))
    torch.testing.assert_close(found, oracle(left, *sizes))
    assert torch.equal(found, meetings(left, *sizes))  # as if the others had never been there


@pytest.mark.parametrize("device", DEVICES)
def test_ways_to_count_and_to_store_give_the_same(monkeypatch, device):
    graph = some_graph()
    held_out = torch.arange(len(graph[0]))[::4]
    usual = meetings(*graph, held_out, device)
    left = [row for i, row in enumerate(graph[0]) if i % 4]
    torch.testing.assert_close(usual, oracle(left, *graph[1:]))
    assert not usual.is_sparse
    some = {"AT_ONCE": 60}, {"AT_ONCE": 1}, {"COUNTED": 0}, {"AT_ONCE": 60, "COUNTED": 0}
    for changes in (*some, {"BLOCK": 7}, {"BLOCK": 1, "COUNTED": 0}):
        with monkeypatch.context() as patch:
            for name, value in changes.items():
                patch.setattr(module, name, value)
            assert torch.equal(meetings(*graph, held_out, device), usual), changes
    monkeypatch.setattr(module, "DENSE", usual.numel() - 1)
    found = meetings(*graph, held_out, device)
    assert found.is_sparse
    assert found._nnz() == (usual > 0).sum()
    assert torch.equal(found.to_dense(), usual)


def test_pairs_are_listed_in_blocks_of_about_the_size_asked(monkeypatch):
    """No block exceeds it by more than one entity's pairs, and all entries are listed once."""
    sizes = torch.tensor([3, 1, 7, 2, 2, 2, 5, 1, 1, 4])
    monkeypatch.setattr(module, "AT_ONCE", 20)
    blocks = list(module._blocks(sizes))
    assert torch.equal(torch.cat([part for _, _, part in blocks]), sizes)
    assert len(blocks) > 2
    at = 0
    for first, last, part in blocks:
        assert (first, last) == (at, at + int(part.sum()))
        assert int(part[1:].square().sum()) < 20
        at = last


@pytest.mark.parametrize("sparse", [False, True])
def test_the_smallest_graphs(monkeypatch, sparse):
    """One triple: its kind and the inverse share no end. A self-loop: they share all ends."""
    if sparse:
        monkeypatch.setattr(module, "DENSE", 0)
    same, other, every = torch.eye(2), torch.eye(2).flip(0), torch.full((2, 2), 0.5)
    found = meetings([(0, 0, 1)], 2, 1)
    assert found.is_sparse is sparse
    expected = torch.cat([*[same, other, other, same] * 3, same, same])
    assert torch.equal(found.to_dense() if sparse else found, expected)
    found = meetings([(1, 0, 1)], 3, 1)
    expected = torch.cat([*[every] * 12, *[torch.ones(2, 2)] * 2])
    assert torch.equal(found.to_dense() if sparse else found, expected)
    for nothing in (meetings([], 2, 1), meetings([(0, 0, 1)], 2, 1, torch.tensor([0]))):
        assert nothing.shape == (N_MEETINGS * 2, 2)
        assert not (nothing.to_dense() if sparse else nothing).any()


@pytest.mark.parametrize(
    ("most", "expected"), [(99, 7), (64, 7), (63, 6), (15, 6), (14, 2), (5, 2), (4, 2), (0, 2)]
)
def test_the_largest_group_that_fits(monkeypatch, most, expected):
    """Groups of 1, 1, 2, 3 and 7 kinds have 1, 2, 6, 15 and 64 pairs together."""
    monkeypatch.setattr(module, "MOST", most)
    monkeypatch.setattr(module, "SMALL", 2)
    assert module._largest(torch.bincount(torch.tensor([3, 1, 7, 1, 2]))) == expected
    assert module._largest(torch.zeros(5, dtype=torch.long)) == 2


def test_where_kinds_are_many_nothing_meets_at_hubs(monkeypatch):
    """Entity 0 has all 12 relations; the others are as if it had none."""
    rows = [(0, r, r + 1) for r in range(12)] + [(1, 3, 2), (2, 3, 3)]
    usual = meetings(rows, 20, 12)
    monkeypatch.setattr(module, "DENSE", 0)
    assert torch.equal(meetings(rows, 20, 12).to_dense(), usual)
    monkeypatch.setattr(module, "MOST", 100)
    monkeypatch.setattr(module, "SMALL", 4)
    found = meetings(rows, 20, 12).to_dense().view(N_MEETINGS, 24, 24)
    assert found[0, 12, 13] == 0 < usual.view(N_MEETINGS, 24, 24)[0, 12, 13]
    assert found[0, 15, 0] > 0  # at entity 1
    assert torch.equal(found[-2:], usual.view(N_MEETINGS, 24, 24)[-2:])  # of pairs, as before


def test_a_hub_of_thousands_of_relations_takes_little_memory():
    rows = [(0, r, 1 + r % 100) for r in range(2000)]
    found = meetings(rows, 101, 2000)
    assert found.is_sparse
    assert 0 < found._nnz() <= N_MEETINGS * module.MOST


def subtracted(rows, n_entities, n_relations, held_out):
    """Meetings without held-out triples: counted anew, and subtracted from those of the whole."""
    edges = both_ways(build_graph(sorted_triples(rows), n_entities, n_relations))
    index, every = arrivals(edges), edges.keep()
    slots = edges.slots_N2[held_out].flatten()
    left = count_meetings(index, edges.keep(HeldOut(ids_B=held_out)))
    return left, meetings_without(count_meetings(index, every), index, index.counts(every), slots)


def check_same(one, other):
    for expected, found in zip(one.tensors(), other.tensors(), strict=True):
        assert expected.dtype == found.dtype
        assert torch.equal(expected, found)


@settings(max_examples=100, deadline=None)
@given(triple_lists(), st.integers(0, 2**31), st.sampled_from([{}, {"COUNTED": 0}, {"BLOCK": 3}]))
def test_held_out_triples_are_subtracted_from_the_whole(graph, seed, changes):
    """Any of them, also all: the counts are those of the graph without them."""
    rows, *sizes = graph
    gone = torch.rand(len(rows), generator=torch.Generator().manual_seed(seed)) < seed % 5 / 4
    with pytest.MonkeyPatch.context() as patch:
        for name, value in changes.items():
            patch.setattr(module, name, value)
        check_same(*subtracted(rows, *sizes, gone.nonzero().squeeze(1)))


def test_hubs_that_lose_edges(monkeypatch):
    """Two hubs are ignored; one may lose a few edges, or so many that it counts from then on."""
    monkeypatch.setattr(module, "DENSE", 0)
    monkeypatch.setattr(module, "MOST", 100)
    monkeypatch.setattr(module, "SMALL", 4)
    small, large = [(0, r, r + 1) for r in range(12)], [(20, r, r + 1) for r in range(15)]
    rows = sorted_triples([*small, *large, (1, 3, 2), (2, 3, 3)]).tolist()
    at_large = [i for i, row in enumerate(rows) if row[0] == 20]
    for held_out in ([], at_large[:1], at_large[3:], [rows.index([1, 3, 2]), at_large[0]]):
        check_same(*subtracted(rows, 21, 15, torch.tensor(held_out, dtype=torch.long)))
    left, found = subtracted(rows, 21, 15, torch.arange(11))  # of the smaller: the limit rises
    assert found is None
    assert len(left.codes_S)
