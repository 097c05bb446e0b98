"""Held-out triples mean the same as ids and as a mask."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.graphs import graph_of, triple_lists

from pathe.graph.edges import both_ways
from pathe.graph.held_out import HeldOut, context_slots
from pathe.graph.paths import sample_paths
from pathe.graph.walks import sample_walks


@st.composite
def held_out_of_graphs(draw: st.DrawFn):
    """A graph, and the same triples held out as ids and as a mask."""
    rows, n_entities, n_relations = draw(triple_lists())
    graph = graph_of(rows, n_entities, n_relations)
    ids = draw(st.sets(st.integers(0, len(rows) - 1)) if rows else st.just(set()))
    ids_B = torch.tensor(sorted(ids), dtype=torch.long)
    mask_M = torch.zeros(len(rows), dtype=torch.bool).index_fill_(0, ids_B, True)
    return graph, HeldOut(ids_B=ids_B), HeldOut(mask_M=mask_M)


@settings(max_examples=40, deadline=None)
@given(held_out_of_graphs())
def test_ids_and_masks_are_turned_into_each_other(given_graph):
    graph, as_ids, as_mask = given_graph
    assert torch.equal(as_ids.mask(graph.n_triples), as_mask.mask(graph.n_triples))
    assert torch.equal(as_ids.ids(), as_mask.ids())


@settings(max_examples=40, deadline=None)
@given(held_out_of_graphs(), st.integers(1, 4), st.integers())
def test_walks_and_paths_are_the_same(given_graph, max_hops, seed):
    graph, *both = given_graph
    everyone = torch.arange(graph.n_entities).repeat(3)
    walks = [
        sample_walks(graph.outgoing, everyone, max_hops, seed=seed, held_out=held_out)
        for held_out in both
    ]
    assert torch.equal(walks[0].tokens_NT, walks[1].tokens_NT)
    for form in ("joined", "single"):
        paths = [
            sample_paths(graph, everyone, 2, max_hops, seed=seed, form=form, held_out=held_out)
            for held_out in both
        ]
        assert torch.equal(paths[0].tokens_UKT, paths[1].tokens_UKT)
        assert torch.equal(paths[0].mask_UKT, paths[1].mask_UKT)


@settings(max_examples=40, deadline=None)
@given(held_out_of_graphs())
def test_edges_and_context_slots_are_the_same(given_graph):
    graph, *both = given_graph
    edges, slots = both_ways(graph), context_slots(graph)
    by_ids, by_mask = (edges.keep(held_out) for held_out in both)
    assert torch.equal(by_ids, by_mask)
    left = set(edges.triples_M[by_ids].tolist())
    assert left == set(range(graph.n_triples)) - set(both[0].ids().tolist())
    for ours, theirs, contexts in zip(
        slots.of(both[0]), slots.of(both[1]), (graph.in_contexts, graph.out_contexts), strict=True
    ):
        gone = [
            torch.zeros(len(contexts.counts_P)).index_add_(0, side.entries, side.times)
            for side in (ours, theirs)
        ]
        assert torch.equal(*gone)
        places = [
            torch.zeros(graph.n_triples).index_add_(0, side.slots, side.times)
            for side in (ours, theirs)
        ]
        assert torch.equal(*places)


def test_nothing_held_out_keeps_every_edge():
    edges = both_ways(graph_of([(0, 0, 1), (1, 0, 2)]))
    assert edges.keep().tolist() == edges.keep(HeldOut(ids_B=torch.zeros(0).long())).tolist()
    assert edges.keep().all()


def test_it_is_ids_or_a_mask_that_fits():
    ids, mask = torch.tensor([1]), torch.tensor([False, True])
    for wrong in ({}, {"ids_B": ids, "mask_M": mask}):
        with pytest.raises(ValueError, match="as ids or as a mask"):
            HeldOut(**wrong)
    with pytest.raises(ValueError, match="expected a mask of 3, got"):
        HeldOut(mask_M=mask).mask(3)


def test_context_slots_point_at_the_entry_that_counts_each_triple():
    rows = [(0, 0, 1), (0, 0, 2), (0, 1, 1), (2, 0, 1)]
    graph = graph_of(rows)
    slots = context_slots(graph)
    for i, (_, r, _) in enumerate(sorted(rows)):
        assert graph.out_contexts.relations_P[slots.outgoing_M[i]] == r
        assert graph.in_contexts.relations_P[slots.incoming_M[i]] == r
    for side, places in ((graph.outgoing, slots.out_places_M), (graph.incoming, slots.in_places_M)):
        assert side.triples_M[places].tolist() == [0, 1, 2, 3]
    assert torch.equal(torch.bincount(slots.outgoing_M).int(), graph.out_contexts.counts_P)
    assert torch.equal(torch.bincount(slots.incoming_M).int(), graph.in_contexts.counts_P)
