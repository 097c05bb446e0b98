"""Training with bridges: no query sees its own edges, whatever it is trained with."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from support.graphs import toy
from support.models import BRIDGE
from support.runs import learner, train

from pathe.evaluation.ranking import evaluate
from pathe.graph.adjacency import build_graph
from pathe.graph.edges import both_ways
from pathe.graph.held_out import HeldOut
from pathe.model.artifact import load_model
from pathe.training.bridge_queries import Capacity, random_share


@pytest.mark.parametrize("task", ["link", "relation", "multi"])
@pytest.mark.parametrize("sampling", ["each", "shared", "all"])
def test_every_task_and_sampling_trains_with_bridges(tmp_path, task, sampling):
    more = BRIDGE | {"task": task, "negative_sampling": sampling, "hold_out_batch": True,
                     "max_epochs": 2}  # fmt: skip
    result = train(toy(), tmp_path / "run", **more)
    assert 0 < result["mrr"] <= 1
    assert result["parameters_as_published"] is None
    again = evaluate(load_model(tmp_path / "run"), toy())
    assert again["mrr"] == pytest.approx(result["mrr"], abs=1e-6)


@pytest.mark.parametrize("pairs", [False, True])
def test_a_step_does_not_see_the_edges_it_is_about(pairs):
    """Scores and gradients are those of a graph without the batch's edges (or its pairs')."""
    kg = toy()
    more = BRIDGE | {"negative_sampling": "all", "hold_out_batch": True, "hold_out_pairs": pairs,
                     "dropout": 0.0, "context_dropout": 0.0}  # fmt: skip
    whole = learner(kg, **more)
    ids = torch.tensor([1, 4, 9])
    held = set(whole._held_out(ids).ids().tolist())
    ends = {frozenset(row) for row in kg.train[ids][:, [0, 2]].tolist()}
    expected = {i for i, row in enumerate(kg.train[:, [0, 2]].tolist()) if frozenset(row) in ends}
    assert held == (expected if pairs else set(ids.tolist()))
    kept = [i for i in range(len(kg.train)) if i not in held]
    less = both_ways(build_graph(kg.train[kept], kg.n_entities, kg.n_relations))
    h, r, t = kg.train[ids].long().unbind(1)
    ours, _ = whole._bridges(whole.step(ids, 0))
    for side, fixed, kind in (("tail", h, r), ("head", t, r + kg.n_relations)):
        theirs = whole.model.bridge.links(less, less.keep(), fixed, kind)
        torch.testing.assert_close(ours[side], theirs)


def test_queries_that_do_without_bridges_have_node_scores():
    kg = toy()
    made = learner(kg, **BRIDGE | {"bridge_dropout": 0.5, "negative_sampling": "all"})
    triples, edges = kg.train[:40].long(), made.prepared.edges
    torch.manual_seed(3)
    found, _ = made._bridges(made.step(torch.arange(40), 0))
    keep, n_bare = edges.keep(HeldOut(ids_B=torch.arange(40))), 0
    for side, column, more in (("tail", 0, 0), ("head", 2, kg.n_relations)):
        bare = ~found[side].any(1)
        n_bare += int(bare.sum())
        full = made.model.bridge.links(edges, keep, triples[:, column], triples[:, 1] + more)
        torch.testing.assert_close(found[side][~bare], full[~bare])
    assert n_bare == 40


@pytest.mark.parametrize("task", ["link", "relation"])
def test_no_query_bridges_itself_even_where_its_edges_describe(task):
    """With mined paths the batch's edges stay in contexts and paths, never among the bridges."""
    kg = toy()
    made = learner(kg, **BRIDGE | {"task": task, "hold_out_batch": False})
    ids, seen = torch.tensor([1, 4, 9]), []
    name = "links" if task == "link" else "pairs"
    real = getattr(made.model.bridge, name)
    setattr(made.model.bridge, name, lambda *parts: seen.append(parts[1]) or real(*parts))
    made.loss(ids, torch.tensor(5))
    [keep] = seen
    assert set(made.prepared.edges.triples_M[~keep].tolist()) == {1, 4, 9}


def test_a_step_about_relations_sees_neither_its_edges_nor_bridges_everywhere():
    kg = toy()
    more = {"task": "relation", "bridge_dropout": 0.5, "hold_out_batch": True}
    made = learner(kg, **BRIDGE | more)
    ids = torch.arange(40)
    triples = kg.train[:40].long()
    torch.manual_seed(3)
    _, found = made._bridges(made.step(ids, 0))
    kept = kg.train[40:]
    edges = both_ways(build_graph(kept, kg.n_entities, kg.n_relations))
    full = made.model.bridge.pairs(edges, edges.keep(), triples[:, 0], triples[:, 2])
    bare = ~found.any(1)
    assert (bare & full.any(1)).any()
    assert not bare.all()
    torch.testing.assert_close(found[~bare], full[~bare])


@pytest.mark.parametrize("sampling", ["each", "shared", "all"])
def test_a_loss_adds_each_answer_its_own_bridges(sampling, monkeypatch):
    """Planted: 100 e + 1 at tail e, 100 e + 2 at head e."""
    kg = toy()
    made = learner(kg, **BRIDGE | {"negative_sampling": sampling, "negatives": kg.n_entities})
    ids, seen = torch.tensor([1, 4, 9]), []
    monkeypatch.setattr(
        "pathe.training.vector_learner.link_loss",
        lambda name, right, wrong, mask, **more: seen.append((right, wrong)) or right.sum(),
    )
    planted = (100.0 * torch.arange(kg.n_entities)).expand(3, -1)
    for there in (0.0, 1.0):
        sides = {"tail": there * (planted + 1), "head": there * (planted + 2)}
        monkeypatch.setattr(made, "_bridges", lambda *_, sides=sides: (sides, 0.0))
        torch.manual_seed(0)
        made.loss(ids, torch.tensor(5))
    picks = {c.side: c.entities for c in made._candidates(kg.train[ids].long(), torch.tensor(5))}
    for i, (side, column) in enumerate((("tail", 2), ("head", 0))):
        right, wrong = (after - before for before, after in zip(seen[i], seen[2 + i], strict=True))
        torch.testing.assert_close(right, 100.0 * kg.train[ids, column] + 1 + i, atol=0.1, rtol=0)
        expected = (100.0 * picks[side] + 1 + i).expand_as(wrong)
        torch.testing.assert_close(wrong, expected, atol=0.1, rtol=0)


def test_a_share_of_the_queries_is_always_as_many():
    for n, share, expected in ((10, 0.5, 5), (10, 1.0, 10), (7, 0.05, 1), (9, 0.3, 3)):
        rows = random_share(n, share, torch.device("cpu"))
        assert len(rows) == len(set(rows.tolist())) == expected
        assert rows.tolist() == sorted(rows.tolist())
    many = torch.stack([torch.bincount(random_share(8, 0.25, torch.device("cpu")), minlength=8)
                        for _ in range(4000)]).sum(0)  # fmt: skip
    assert (many - 1000).abs().max() < 150  # 5.5 standard deviations


def test_capacity_grows_by_what_did_not_fit():
    capacity = Capacity(110)
    assert not capacity.fits((4, 40, 80))
    capacity.grow((4, 40, 80))
    assert capacity.sizes == (4, 50, 100)
    assert capacity.fits((4, 50, 100))
    assert not capacity.fits((4, 51, 60))
    capacity.grow((4, 60, 70))
    assert capacity.sizes == (4, 75, 100)  # what did fit has no more than before
    capacity.grow((4, 60, 101))
    assert capacity.sizes == (4, 75, 110)


def test_validation_and_test_triples_are_no_edges():
    kg = toy()
    edges = learner(kg, **BRIDGE).prepared.edges
    fewer = learner(replace(kg, valid=kg.valid[:0], test=kg.test[:0]), **BRIDGE).prepared.edges
    assert len(edges.relations_M) == 2 * len(kg.train)
    for key in ("offsets_E1", "neighbours_M", "relations_M", "owners_M"):
        assert torch.equal(getattr(edges, key), getattr(fewer, key))
