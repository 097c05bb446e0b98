from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.graphs import graph_of, triple_lists
from support.kernels import kernels_off

from pathe.graph.held_out import HeldOut
from pathe.graph.walks import sample_walks


@settings(max_examples=100, deadline=None)
@given(triple_lists(), st.integers(1, 6), st.integers(), st.data())
def test_walks_follow_real_edges_without_repeats_to_a_dead_end(data, max_hops, seed, more):
    rows, n_entities, n_relations = data
    graph = graph_of(rows, n_entities, n_relations)
    left_out = more.draw(st.sets(st.integers(0, len(rows) - 1)) if rows else st.just(set()))
    ids = torch.tensor(sorted(left_out), dtype=torch.long)
    mask = torch.zeros(len(rows), dtype=torch.bool).index_fill_(0, ids, True)
    held_out = more.draw(st.sampled_from([HeldOut(ids_B=ids), HeldOut(mask_M=mask)]))
    edges = {row for i, row in enumerate(rows) if i not in left_out}
    starts = torch.arange(n_entities).repeat(5)
    for adjacency, way in ((graph.outgoing, 1), (graph.incoming, -1)):
        found = sample_walks(adjacency, starts, max_hops, seed=seed, held_out=held_out)
        for start, tokens, hops in zip(
            starts.tolist(), found.tokens_NT.tolist(), found.hops_N.tolist(), strict=True
        ):
            real = tokens[: 2 * hops + 1]
            assert tokens[2 * hops + 1 :] == [-1] * (2 * max_hops - 2 * hops)
            entities, relations = real[::2], real[1::2]
            assert entities[0] == start
            assert len(set(entities)) == len(entities)
            for (a, b), r in zip(pairwise(entities), relations, strict=True):
                assert ((a, r, b) if way == 1 else (b, r, a)) in edges
            if hops < max_hops:  # it stopped only because nothing was left to walk to
                last = entities[-1]
                ends = {t if way == 1 else h for h, _, t in edges if (h, t)[way < 0] == last}
                assert ends <= set(entities)


def test_chunks_do_not_change_walks_and_seeds_do():
    graph = graph_of([(i, i % 3, (i * j + 1) % 50) for i in range(50) for j in range(1, 9)])
    starts, keys = torch.arange(50).repeat(20), torch.arange(1000)
    whole = sample_walks(graph.outgoing, starts, 5, seed=3, keys_N=keys).tokens_NT
    parts = [
        sample_walks(graph.outgoing, s, 5, seed=3, keys_N=k).tokens_NT
        for s, k in zip(starts.split(37), keys.split(37), strict=True)
    ]
    assert torch.equal(whole, torch.cat(parts))
    other = sample_walks(graph.outgoing, starts, 5, seed=4, keys_N=keys).tokens_NT
    assert (whole != other).any(1).float().mean() > 0.9


@pytest.mark.parametrize("compiled", [True, False])
def test_steps_are_uniform_over_allowed_edges_even_when_most_are_closed(compiled):
    # 200 parallel edges lead back to the start, three lead on: draws alone would nearly all fail
    n_back = 200
    rows = [(0, 0, 1), *((1, r, 0) for r in range(n_back)), (1, 0, 2), (1, 1, 2), (1, 0, 3)]
    graph = graph_of(rows)
    with nullcontext() if compiled else kernels_off():
        found = sample_walks(graph.outgoing, torch.zeros(9000, dtype=torch.long), 2, seed=0)
    assert (found.hops_N == 2).all()
    ends = Counter(found.tokens_NT[:, 4].tolist())
    assert ends.keys() == {2, 3}
    assert (
        abs(ends[2] - 6000) < 300
    )  # two of the three open edges lead to 2: 6.7 standard deviations


def test_an_entity_without_edges_stays_where_it_is():
    graph = graph_of([(0, 0, 1)], n_entities=3)
    found = sample_walks(graph.outgoing, torch.tensor([2, 1]), 4, seed=0)
    assert found.hops_N.tolist() == [0, 0]
    assert found.tokens_NT[:, 0].tolist() == [2, 1]


def test_no_starts_no_walks():
    graph = graph_of([(0, 0, 1)])
    assert sample_walks(graph.outgoing, torch.zeros(0).long(), 4, seed=0).tokens_NT.shape == (0, 9)


def test_hops_are_independent_draws():
    # every entity of layer i has edges to the same four of layer i + 1
    rows = [(4 * i + a, 0, 4 * (i + 1) + b) for i in range(2) for a in range(4) for b in range(4)]
    found = sample_walks(graph_of(rows).outgoing, torch.zeros(16_000, dtype=torch.long), 2, seed=0)
    first, second = found.tokens_NT[:, 2] - 4, found.tokens_NT[:, 4] - 8
    joint = torch.bincount(first * 4 + second, minlength=16)
    assert (joint - 1000).abs().max() < 200  # 6.5 standard deviations


@pytest.mark.parametrize("start", [-1, 3, 10**8])
def test_an_unknown_start_entity_is_refused(start):
    graph = graph_of([(0, 0, 1), (1, 0, 2)])
    with pytest.raises(IndexError, match="0 to 2"):
        sample_walks(graph.outgoing, torch.tensor([start]), 2, seed=0)


def test_a_held_out_mask_of_the_wrong_length_is_refused():
    graph = graph_of([(0, 0, 1), (1, 0, 2)])
    held_out = HeldOut(mask_M=torch.ones(3).bool())
    with pytest.raises(ValueError, match="a mask of 2, got"):
        sample_walks(graph.outgoing, torch.tensor([0]), 2, seed=0, held_out=held_out)


def test_int32_keys_walk_as_int64_ones_do():
    graph = graph_of([(i, 0, (i * j + 1) % 50) for i in range(50) for j in range(1, 9)])
    starts, keys = torch.arange(50), torch.arange(50) + 7
    for kind in (torch.int32, torch.int16):
        narrow = sample_walks(graph.outgoing, starts, 4, seed=1, keys_N=keys.to(kind))
        wide = sample_walks(graph.outgoing, starts, 4, seed=1, keys_N=keys)
        assert torch.equal(narrow.tokens_NT, wide.tokens_NT)
