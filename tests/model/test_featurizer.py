from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from support.graphs import prepared_of, triple_lists

from pathe.graph.held_out import HeldOut
from pathe.graph.paths import mine_paths
from pathe.model.featurizer import Featurizer
from pathe.model.projector import Bag, NodeProjector

SETTINGS = {"n_paths": 2, "max_hops": 3, "form": "single", "positions": "focused"}


def dense(bag: Bag, n_relations: int) -> torch.Tensor:
    sizes = bag.offsets_V1.diff()
    rows = torch.arange(len(sizes)).repeat_interleave(sizes)
    table = torch.zeros(len(sizes), n_relations)
    return table.index_put_((rows, bag.relations_P), bag.counts_P, accumulate=True)


@settings(max_examples=40, deadline=None)
@given(triple_lists(), st.data())
def test_held_out_triples_vanish_from_contexts_and_paths(data, more):
    """The description without some triples is the one of the graph that never had them."""
    rows, n_entities, n_relations = data
    if not rows:
        return
    ids = torch.tensor(sorted(more.draw(st.sets(st.integers(0, len(rows) - 1), min_size=1))))
    rest = [row for i, row in enumerate(rows) if i not in ids.tolist()]
    entities = torch.arange(n_entities)
    whole = Featurizer(prepared_of(rows, n_entities, n_relations), **SETTINGS)
    less = Featurizer(prepared_of(rest, n_entities, n_relations), **SETTINGS)
    without = less.batch(entities, 5)
    mask = torch.zeros(len(rows), dtype=torch.bool).index_fill_(0, ids, True)
    for held_out in (HeldOut(ids_B=ids), HeldOut(mask_M=mask)):
        batch = whole.batch(entities, 5, held_out)
        for ours, theirs in zip(batch.contexts[:2], without.contexts[:2], strict=True):
            assert torch.equal(dense(ours, n_relations), dense(theirs, n_relations))
    edges = set(rest)
    paths = whole.paths(entities, 5, HeldOut(ids_B=ids))
    for u in range(n_entities):
        for tokens, mask, incoming in zip(
            paths.tokens_UKT[u], paths.mask_UKT[u], paths.incoming_UK[u], strict=True
        ):
            real = tokens[mask].tolist()
            for i in range(0, len(real) - 2, 2):
                h, r, t = real[i : i + 3]
                assert ((t, r, h) if incoming else (h, r, t)) in edges


def mean_of_neighbours(rows, x, entity, after):
    near = [x[t if after else h] for h, _, t in rows if (h if after else t) == entity]
    return torch.stack(near).mean(0) if near else torch.zeros_like(x[0])


@settings(max_examples=40, deadline=None)
@given(triple_lists(), st.data())
def test_refined_entities_take_in_the_mean_of_their_neighbours(data, more):
    """Of all entities or of some, with triples held out or never there, it is the same."""
    rows, n_entities, n_relations = data
    if not rows:
        return
    ids = torch.tensor(sorted(more.draw(st.sets(st.integers(0, len(rows) - 1)))), dtype=torch.long)
    rest = [row for i, row in enumerate(rows) if i not in ids.tolist()]
    some = torch.tensor(sorted(more.draw(st.sets(st.integers(0, n_entities - 1), min_size=1))))
    torch.manual_seed(0)
    how = {"layers": 1, "log_counts": True, "dropout": 0.0}
    refined = NodeProjector(n_relations, 6, **how, neighbours=True)
    plain = NodeProjector(n_relations, 6, **how, neighbours=False)
    plain.load_state_dict(refined.state_dict(), strict=False)
    fewer = Featurizer(prepared_of(rest, n_entities, n_relations), **SETTINGS)
    with torch.no_grad():
        x = plain(*fewer.contexts(None))
        sides = [
            torch.stack([mean_of_neighbours(rest, x, e, after) for e in range(n_entities)])
            for after in (False, True)
        ]
        expected = x + F.leaky_relu(refined.refine(torch.cat([x, *sides], -1)))
        prepared = prepared_of(rows, n_entities, n_relations)
        whole = Featurizer(prepared, **SETTINGS, neighbour_contexts=True)
        mask = torch.zeros(len(rows), dtype=torch.bool).index_fill_(0, ids, True)
        for held_out in (HeldOut(ids_B=ids), HeldOut(mask_M=mask)):
            torch.testing.assert_close(refined(*whole.contexts(None, held_out)), expected)
            torch.testing.assert_close(refined(*whole.contexts(some, held_out)), expected[some])
        later = replace(fewer, neighbour_contexts=True)
        torch.testing.assert_close(refined(*later.contexts(some)), expected[some])


def test_a_small_batch_projects_only_the_entities_on_its_paths():
    """The table of a few entities' paths is theirs alone, and gives the same tokens."""
    rows = [(i, 0, i + 1) for i in range(500)]
    how = Featurizer(prepared_of(rows, 501, 1), **SETTINGS)
    few = how.batch(torch.tensor([3, 400]), 0)
    n_nodes = len(few.contexts[1].offsets_V1) - 1
    assert n_nodes < 20
    assert int(few.tokens_UKT.max()) <= n_nodes  # one relation, right behind the nodes
    assert dense(few.contexts[1], 1).sum() <= n_nodes


def test_mined_paths_serve_more_asked_than_there_are():
    prepared = prepared_of([(0, 0, 1)], 2, 1)
    store = mine_paths(prepared.graph, 3, 3, seed=0, form="single")
    how = Featurizer(prepared, **{**SETTINGS, "n_paths": 9}, store=store)
    assert how.batch(torch.tensor([0, 1]), 0).tokens_UKT.shape[:2] == (2, 9)
