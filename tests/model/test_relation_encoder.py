"""Relation vectors: however the relation graph is stored, and whatever relations are called."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from support.graphs import DEVICES, sorted_triples
from torch import Tensor

from pathe.graph.adjacency import build_graph
from pathe.graph.edges import both_ways
from pathe.graph.relation_graph import N_MEETINGS, arrivals, relation_graph
from pathe.model import relation_encoder
from pathe.model.relation_encoder import KindVectors, RelationEncoder

N_KINDS = 8


def meetings() -> Tensor:
    """A relation graph of 8 kinds; one relation has no edges, another an end of its own."""
    made = torch.Generator().manual_seed(3)
    rows = (torch.rand(40, 3, generator=made) * torch.tensor([12, 2, 12])).long().tolist()
    graph = build_graph(sorted_triples([*rows, (12, 2, 13), (13, 2, 14)]), 15, 4)
    edges = both_ways(graph)
    return relation_graph(arrivals(edges), edges.keep())


def encoder(n_layers=3, seed=0) -> RelationEncoder:
    torch.manual_seed(seed)
    made = RelationEncoder(6, n_layers)
    for layer in made.layers:  # as after training: a fresh norm would hide its parameters
        torch.nn.init.normal_(layer.norm.weight, 1, 0.3)
        torch.nn.init.normal_(layer.norm.bias, 0, 0.3)
    return made


def plain(model: RelationEncoder, graph: Tensor, kind: int) -> Tensor:
    """One query, kind by kind and meeting by meeting."""
    x = torch.zeros(N_KINDS, len(model.start))
    x[kind] = model.start
    blocks = graph.view(N_MEETINGS, N_KINDS, N_KINDS)
    for layer in model.layers:
        after = []
        for a in range(N_KINDS):
            arrived = torch.zeros_like(model.start)
            for t in range(N_MEETINGS):
                for b in range(N_KINDS):
                    arrived = arrived + layer.meetings[t] * blocks[t, a, b] * x[b]
            after.append(x[a] + F.relu(layer.norm(layer.linear(torch.cat([x[a], arrived])))))
        x = torch.stack(after)
    return x


def with_gradients(model: RelationEncoder, graph: Tensor, kinds: Tensor) -> list[Tensor]:
    model.zero_grad()
    found = model(graph, kinds)
    (found * torch.arange(found.numel(), device=found.device).cos().view_as(found)).sum().backward()
    return [found.detach(), *(p.grad.clone() for p in model.parameters())]


def test_a_vector_is_the_sum_over_meetings_and_kinds():
    model, graph, kinds = encoder(n_layers=2), meetings(), torch.tensor([5, 0, 5, 3])
    with torch.no_grad():
        found = model(graph, kinds)
        assert found.shape == (4, N_KINDS, 6)
        for row, kind in zip(found, kinds.tolist(), strict=True):
            torch.testing.assert_close(row, plain(model, graph, kind), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("device", DEVICES)
def test_dense_and_sparse_relation_graphs_give_the_same(device):
    model, graph = encoder().to(device), meetings().to(device)
    kinds = torch.tensor([1, 6, 2, 7, 1], device=device)
    dense = with_gradients(model, graph, kinds)
    sparse = with_gradients(model, graph.to_sparse(), kinds)
    for one, other in zip(dense, sparse, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)
    for p in model.parameters():
        assert p.grad.abs().max() > 1e-6  # everything learns
    with torch.no_grad():
        found = model(graph.to_sparse(), kinds)
        torch.testing.assert_close(found, model(graph, kinds), atol=1e-4, rtol=1e-4)


def test_renamed_relations_have_the_same_vectors():
    model, graph, kinds = encoder().double(), meetings().double(), torch.arange(N_KINDS)
    new = torch.randperm(N_KINDS, generator=torch.Generator().manual_seed(1))  # of each kind
    old = new.argsort()
    renamed = graph.view(N_MEETINGS, N_KINDS, N_KINDS)[:, old][:, :, old].reshape(-1, N_KINDS)
    with torch.no_grad():
        before, after = model(graph, kinds), model(renamed, new[kinds])
        assert not torch.allclose(before, before[:, old])
        torch.testing.assert_close(after[:, new], before, atol=1e-12, rtol=1e-12)


def test_vectors_of_a_graph_are_computed_once(monkeypatch):
    """In groups of two kinds, of which two are kept."""
    model, graph = encoder(), meetings()
    asked: list[list[int]] = []
    model.register_forward_pre_hook(lambda _, given: asked.append(given[1].tolist()))
    with torch.no_grad():
        expected = model(graph, torch.arange(N_KINDS))
    asked.clear()
    monkeypatch.setattr(relation_encoder, "GROUP", 2)
    monkeypatch.setattr(relation_encoder, "CACHE", 4 * N_KINDS * 6 * 4)
    vectors = KindVectors(model, graph)
    for kinds, computed in (
        ([5, 0, 5], [[0, 1], [4, 5]]),
        ([0, 1], []),
        ([5, 7, 0], [[6, 7]]),
        ([1, 6, 4, 6, 0], [[0, 1]]),  # the oldest have made room
        ([6, 1, 7, 0], []),
        ([4], [[4, 5]]),
    ):
        kinds_Q, vectors_QKD, rows_B = vectors(torch.tensor(kinds))
        assert kinds_Q[rows_B].tolist() == kinds
        torch.testing.assert_close(vectors_QKD[rows_B], expected[kinds], atol=1e-5, rtol=1e-4)
        assert asked == computed
        assert not vectors_QKD.requires_grad
        asked.clear()


@pytest.mark.parametrize("sparse", [False, True])
def test_vectors_do_not_depend_on_what_else_is_asked(sparse):
    """Bit for bit, or a query's score would depend on those before it."""
    torch.manual_seed(3)
    n_kinds = 70
    graph = torch.rand(N_MEETINGS * n_kinds, n_kinds)
    graph = (graph * (graph > 0.7)).to_sparse() if sparse else graph
    model = RelationEncoder(16, 2)
    together, alone = (KindVectors(model, graph) for _ in range(2))
    whole = together(torch.arange(n_kinds)).vectors_QKD
    for kind in [40, 3, 69, 17, 18, 0]:
        assert torch.equal(alone(torch.tensor([kind])).vectors_QKD[0], whole[kind])
