from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.graphs import graph_of, triple_lists

from pathe.graph.held_out import HeldOut
from pathe.graph.paths import Paths, mine_paths, path_steps, sample_paths


def check_path(paths: Paths, u: int, k: int, entity: int, edges: set, form: str) -> None:
    tokens, mask = paths.tokens_UKT[u, k], paths.mask_UKT[u, k]
    assert int(tokens[paths.focus]) == entity
    assert mask[paths.focus]
    columns = mask.nonzero().squeeze(1).tolist()
    assert columns == list(range(columns[0], columns[-1] + 1))  # real tokens are contiguous
    assert (tokens[~mask] == 0).all()
    steps = path_steps(paths, u, k)
    assert all(step in edges for step in steps)
    assert all(a[2] == b[0] for a, b in pairwise(steps))  # reads along the edges
    before, after = (paths.focus - columns[0]) // 2, (columns[-1] - paths.focus) // 2
    if form != "joined":
        assert before == 0
    halves = [
        tokens[paths.focus - 2 * before : paths.focus + 1 : 2],
        tokens[paths.focus :: 2][: after + 1],
    ]
    for half in halves:
        assert len(set(half.tolist())) == len(half)


@settings(max_examples=60, deadline=None)
@given(triple_lists(), st.integers(1, 4), st.sampled_from(["joined", "single"]), st.booleans())
def test_paths_are_real_and_centred_on_their_focus(data, max_hops, form, leave_out):
    rows, n_entities, n_relations = data
    graph = graph_of(rows, n_entities, n_relations)
    held_out = HeldOut(ids_B=torch.arange(0, len(rows), 2)) if leave_out else None
    edges = set(rows[1::2] if leave_out else rows)
    entities = torch.arange(n_entities)
    paths = sample_paths(graph, entities, 3, max_hops, seed=1, form=form, held_out=held_out)
    touched = {e for h, _, t in edges if h != t for e in (h, t)}
    for entity in range(n_entities):
        for k in range(3):
            check_path(paths, entity, k, entity, edges, form)
            if entity in touched:  # whoever has an edge gets a path of at least one
                assert paths.mask_UKT[entity, k].sum() >= 3


def test_paths_of_an_entity_do_not_depend_on_the_batch():
    graph = graph_of([(i, j % 3, (i * j + 1) % 40) for i in range(40) for j in range(1, 7)])
    everyone = sample_paths(graph, torch.arange(40), 6, 4, seed=9)
    some = torch.tensor([33, 2, 2])
    alone = sample_paths(graph, some, 6, 4, seed=9)
    assert torch.equal(alone.tokens_UKT, everyone.tokens_UKT[some])
    later = sample_paths(graph, some, 4, 4, seed=9, first_path=2)
    assert torch.equal(later.tokens_UKT, everyone.tokens_UKT[some, 2:])


def test_single_walks_take_both_directions_evenly():
    graph = graph_of([(0, 0, 1), (1, 0, 2)])
    paths = sample_paths(graph, torch.tensor([1]), 4000, 3, seed=0, form="single")
    assert abs(float(paths.incoming_UK.float().mean()) - 0.5) < 0.05
    ends = sample_paths(graph, torch.tensor([0, 2]), 50, 3, seed=0, form="single")
    assert not ends.incoming_UK[0].any()  # only outgoing edges
    assert ends.incoming_UK[1].all()
    assert (ends.mask_UKT.sum(-1) == 5).all()


def example_path() -> Paths:
    """The paper's example: ten entities in a row, the fifth one the focus."""
    graph = graph_of([(i, 0, i + 1) for i in range(9)])
    return sample_paths(graph, torch.tensor([4]), 1, 6, seed=0)


def test_positions_of_the_papers_example():
    paths = example_path()
    for seen in (paths, paths.trim()):
        tokens, mask = seen.tokens_UKT[0, 0], seen.mask_UKT[0, 0]
        assert tokens[mask][::2].tolist() == list(range(10))
        # entities stand at every other token: position p of the paper is token position 2p - 1
        focused = seen.positions("focused")[mask][::2]
        assert ((focused + 1) // 2).tolist() == [5, 4, 3, 2, 1, 2, 3, 4, 5, 6]
        assert seen.positions("absolute")[0, 0][mask].tolist() == list(range(1, 20))
    assert paths.trim().tokens_UKT.shape[-1] == 19
    assert paths.trim().focus == 8


def test_trim_of_lonely_entities_leaves_the_focus():
    graph = graph_of([(0, 0, 1)], n_entities=3)
    trimmed = sample_paths(graph, torch.tensor([2]), 2, 5, seed=0).trim()
    assert trimmed.tokens_UKT.tolist() == [[[2], [2]]]


@pytest.mark.parametrize("form", ["joined", "single"])
def test_a_mined_store_holds_unique_real_paths(form):
    rows = sorted({(i, j % 2, (i * j + 1) % 15) for i in range(15) for j in range(1, 4)})
    graph = graph_of(rows, n_entities=16)  # entity 15 has no edges
    store = mine_paths(graph, 6, 3, seed=0, form=form)
    counts = store.offsets_E1.diff()
    assert counts.min() == 1
    assert counts[15] == 1
    assert counts.max() == 6
    drawn = store.draw(torch.arange(16), 6, seed=1)
    for u in range(16):
        for k in range(6):
            check_path(drawn, u, k, u, set(rows), form)
        distinct = {
            (tuple(t), bool(i))
            for t, i in zip(drawn.tokens_UKT[u].tolist(), drawn.incoming_UK[u], strict=True)
        }
        assert len(distinct) == counts[u]  # none repeated before all were used
    assert torch.equal(store.tokens_PT, mine_paths(graph, 6, 3, seed=0, form=form).tokens_PT)
    part = mine_paths(graph, 6, 3, seed=0, form=form, entities_E=torch.tensor([3]))
    assert torch.equal(part.tokens_PT, store.tokens_PT[store.offsets_E1[3] : store.offsets_E1[4]])


def test_mining_in_chunks_changes_nothing(monkeypatch):
    graph = graph_of([(i, j % 2, (i * j + 1) % 30) for i in range(30) for j in range(1, 5)])
    whole = mine_paths(graph, 5, 4, seed=2)
    monkeypatch.setattr("pathe.graph.paths.MINE_CHUNK", 12)
    assert torch.equal(whole.tokens_PT, mine_paths(graph, 5, 4, seed=2).tokens_PT)


def test_mining_finds_every_path_where_there_are_few():
    graph = graph_of([(0, 0, 1), (0, 1, 1), (0, 0, 2)])
    store = mine_paths(graph, 20, 3, seed=0, form="single")
    assert store.offsets_E1.diff().tolist() == [3, 2, 1]


def test_the_two_halves_of_a_path_are_independent():
    rows = [(e, 0, 4) for e in range(4)] + [(4, 0, e) for e in range(5, 9)]
    tokens = sample_paths(graph_of(rows), torch.tensor([4]), 16_000, 1, seed=0).tokens_UKT[0]
    joint = torch.bincount(tokens[:, 0] * 4 + tokens[:, 4] - 5, minlength=16)
    assert (joint - 1000).abs().max() < 200  # 6.5 standard deviations


def test_seeds_change_mined_and_sampled_paths():
    graph = graph_of([(i, j % 2, (i * j + 1) % 40) for i in range(40) for j in range(1, 8)])
    store = mine_paths(graph, 10, 4, seed=0)
    assert not torch.equal(store.tokens_PT, mine_paths(graph, 10, 4, seed=1).tokens_PT)
    everyone = torch.arange(40)
    first, second = (store.draw(everyone, 2, seed=s).tokens_UKT for s in (0, 1))
    assert (first != second).flatten(1).any(1).float().mean() > 0.5
    assert torch.equal(first[[7]], store.draw(torch.tensor([7]), 2, seed=0).tokens_UKT)


def test_misspelt_choices_are_refused():
    graph = graph_of([(0, 0, 1)])
    with pytest.raises(ValueError, match="joned"):
        sample_paths(graph, torch.tensor([0]), 1, 2, seed=0, form="joned")
    with pytest.raises(ValueError, match="relative"):
        example_path().positions("relative")
    with pytest.raises(ValueError, match="n_paths"):
        mine_paths(graph, 0, 2, seed=0)
