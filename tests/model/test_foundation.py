"""The model for any graph: names mean nothing, held-out edges are gone, batches change nothing."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from support.graphs import DEVICES, sorted_triples
from torch import Tensor, nn

from pathe.graph.adjacency import build_graph
from pathe.graph.edges import Edges, both_ways
from pathe.graph.held_out import HeldOut
from pathe.graph.relation_graph import arrivals
from pathe.model import foundation
from pathe.model.bridge import EncodedRound, QueryVectors
from pathe.model.foundation import FoundationModel, GraphView, view
from pathe.model.propagation import between, reach

N, R, K = 16, 4, 8
CLOSE = {"atol": 2e-5, "rtol": 2e-4}
SOURCES, KINDS = torch.tensor([1, 5, 1, 15, 9, 1]), torch.tensor([0, 6, 0, 3, 2, 7])
HEADS, TAILS = torch.tensor([1, 5, 15, 9, 4]), torch.tensor([2, 5, 3, 15, 1])


def some_rows(n=34) -> list[list[int]]:
    """Random triples with a self-loop; entity 15 has none, and relation 3 has one."""
    made = torch.Generator().manual_seed(n)
    rows = (torch.rand(n, 3, generator=made) * torch.tensor([N - 1, R - 1, N - 1])).long().tolist()
    return sorted_triples([*rows, (5, 1, 5), (2, 3, 8)]).tolist()


def seen(rows, n_entities=N, n_relations=R, held_out=(), device="cpu") -> tuple[Edges, GraphView]:
    """The edges of triples, and the view of them without the held-out ones (by their rows)."""
    edges = both_ways(build_graph(sorted_triples(rows), n_entities, n_relations)).to(device)
    ids = torch.tensor(held_out, dtype=torch.long, device=device)
    return edges, view(arrivals(edges), edges.keep(HeldOut(ids_B=ids)))


def some_model(n_hops=4, dim=8) -> FoundationModel:
    torch.manual_seed(0)
    model = FoundationModel(dim, n_hops, 2)
    for p in model.bridge.parameters():  # so that paths matter as much as contexts
        if p.dim() == 2:
            nn.init.normal_(p, std=0.6)
    return model


def all_kinds(model: FoundationModel, edges: Edges, graph: GraphView, heads, tails) -> Tensor:
    """(B, 2 R) scores of relations and of inverse relations between pairs."""
    kinds = torch.arange(2 * edges.n_relations)
    given = model.encoder(graph.meetings, kinds)
    parts = graph.keep_M, heads, tails, kinds.expand(len(heads), -1)
    paths = model.bridge.relations(edges, *parts, lambda own: QueryVectors(kinds, given, own))
    return model.relation_contexts.pairs(graph.contexts, given, kinds, heads, tails) + paths


def path_state(model, rows, n_relations, vectors_KD, kind, source, n_hops) -> Tensor:
    """(E, D) states of one query, edge by edge."""
    x = torch.zeros(N, model.bridge.dim)
    x[source] = model.bridge.asked(vectors_KD[kind])
    for hop in list(model.bridge.rounds)[:n_hops]:
        assert isinstance(hop, EncodedRound)
        weights, arrived = hop.weights(vectors_KD), torch.zeros_like(x)
        for h, r, t in rows:
            arrived[t] += x[h] * weights[r]
            arrived[h] += x[t] * weights[r + n_relations]
        size = (arrived.square().mean(-1, keepdim=True) + 1e-12).sqrt()
        x = x + F.relu(hop.take(torch.cat([x, arrived * (size.log1p() / size)], -1)))
    return x


@torch.no_grad()
def test_scores_are_those_of_contexts_and_of_paths_edge_by_edge():
    """A relation of a pair is asked for along up to three edges, an entity along all hops."""
    rows, model = some_rows(), some_model()
    out = list(range(1, len(rows), 4))
    edges, graph = seen(rows, held_out=out)
    left = [row for i, row in enumerate(rows) if i not in out]
    vectors, every = model.encoder(graph.meetings, torch.arange(K)), torch.arange(K)

    def paths(head, kind: int, source: int, n_hops: int) -> Tensor:
        x = path_state(model, left, R, vectors[kind], kind, source, n_hops)
        asked = model.bridge.asked(vectors[kind, kind])
        return head(x, asked[None], torch.zeros(N))[:, 0]

    links, contexts = model.links(edges, graph, SOURCES, KINDS), model.link_contexts
    candidates = contexts.candidates(graph.contexts, vectors, every)
    for b, (source, kind) in enumerate(zip(SOURCES.tolist(), KINDS.tolist(), strict=True)):
        query = contexts.queries(graph.contexts, vectors, every, KINDS[b : b + 1], SOURCES[b, None])
        expected = contexts.score(query, candidates, KINDS[b : b + 1])[0]
        along = paths(model.bridge.link_head, kind, source, 4)
        assert along.abs().max() > 0.1
        torch.testing.assert_close(links[b], expected + along, **CLOSE)
    found = model.relations(edges, graph, HEADS, TAILS)
    given = vectors[:R], torch.arange(R), HEADS, TAILS
    expected = model.relation_contexts.pairs(graph.contexts, *given)
    for b, (head, tail) in enumerate(zip(HEADS.tolist(), TAILS.tolist(), strict=True)):
        for r in range(R):
            expected[b, r] += paths(model.bridge.relation_head, r, head, 3)[tail]
    torch.testing.assert_close(found, expected, **CLOSE)


@torch.no_grad()
def test_held_out_edges_might_never_have_been_there():
    rows, model = some_rows(), some_model()
    out = list(range(0, len(rows), 3))
    found = []
    for edges, graph in (seen(rows, held_out=out), seen([r for r in rows if rows.index(r) % 3])):
        pairs = model.relations(edges, graph, HEADS, TAILS)
        found.append((model.links(edges, graph, SOURCES, KINDS), pairs))
    torch.testing.assert_close(found[0], found[1], **CLOSE)
    edges, graph = seen(rows)
    assert not torch.allclose(model.links(edges, graph, SOURCES, KINDS), found[0][0], **CLOSE)


@torch.no_grad()
@pytest.mark.parametrize("flipped", [(), (0,), (1, 3)])
def test_names_and_directions_of_relations_mean_nothing(flipped):
    """Entities and relations get new ids; flipped relations swap their kind with the inverse."""
    made, rows, model = torch.Generator().manual_seed(5), some_rows(), some_model()
    entity, relation = torch.randperm(N, generator=made), torch.randperm(R, generator=made)
    renamed = []
    for h, r, t in rows:
        h, t = (t, h) if r in flipped else (h, t)
        renamed.append((int(entity[h]), int(relation[r]), int(entity[t])))
    forward = torch.tensor([relation[r] + R * (r in flipped) for r in range(R)])
    kind = torch.cat([forward, (forward + R) % K])  # the new kind of each kind
    before, after = seen(rows), seen(renamed)
    links = model.links(*before, SOURCES, KINDS)
    found = model.links(*after, entity[SOURCES], kind[KINDS])
    torch.testing.assert_close(found[:, entity], links, **CLOSE)
    assert not torch.allclose(found, links, **CLOSE)
    scores = all_kinds(model, *before, HEADS, TAILS)
    found = all_kinds(model, *after, entity[HEADS], entity[TAILS])
    torch.testing.assert_close(found[:, kind], scores, **CLOSE)
    torch.testing.assert_close(model.relations(*before, HEADS, TAILS), scores[:, :R], **CLOSE)


@pytest.mark.parametrize("device", DEVICES)
def test_a_batch_scores_as_its_queries_one_by_one(device):
    rows, model = some_rows(), some_model(dim=16).to(device)
    edges, graph = seen(rows, held_out=[0, 7, 11], device=device)
    sources, kinds, heads, tails = (x.to(device) for x in (SOURCES, KINDS, HEADS, TAILS))
    with torch.no_grad():
        links = model.links(edges, graph, sources, kinds)
        pairs = model.relations(edges, graph, heads, tails)
        assert links.shape == (6, N)
        assert pairs.shape == (5, R)
        for b in range(6):
            one = model.links(edges, graph, sources[b : b + 1], kinds[b : b + 1])
            torch.testing.assert_close(one[0], links[b], **CLOSE)
        for b in range(5):
            one = model.relations(edges, graph, heads[b : b + 1], tails[b : b + 1])
            torch.testing.assert_close(one[0], pairs[b], **CLOSE)


@pytest.mark.parametrize("device", DEVICES)
def test_rows_of_unreached_entities_change_nothing(device):
    """Scores and gradients with exact rows and with padded ones."""
    rows, model = some_rows(20), some_model(dim=16).to(device)
    edges, graph = seen(rows, held_out=[1, 3, 8], device=device)
    sources, kinds, heads, tails = (x.to(device) for x in (SOURCES, KINDS, HEADS, TAILS))

    def run(how, *ends, reached) -> list[Tensor]:
        model.zero_grad()
        scores = how(edges, graph, *ends, reached=reached)
        scores.sin().sum().backward()
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        return [scores.detach(), *(grad.clone() for grad in grads)]

    exact = reach(edges, sources, 4, graph.keep_M)
    room = tuple(size + 3 * i for i, size in enumerate(exact.sizes))
    assert exact.sizes[-1] < len(sources) * N
    expected = run(model.links, sources, kinds, reached=None)
    for other in (exact, exact.padded(room)):
        for one, two in zip(run(model.links, sources, kinds, reached=other), expected, strict=True):
            torch.testing.assert_close(one, two, atol=2e-4, rtol=1e-3)
    expected = run(model.relations, heads, tails, reached=None)
    exact = between(edges, heads, tails, 3, graph.keep_M)
    room = tuple(size + 3 * i for i, size in enumerate(exact.sizes))
    for other in (exact, exact.padded(room)):
        for one, two in zip(
            run(model.relations, heads, tails, reached=other), expected, strict=True
        ):
            torch.testing.assert_close(one, two, atol=2e-4, rtol=1e-3)


@torch.no_grad()
def test_bridges_score_the_best_relations_and_the_true_one(monkeypatch):
    model, (edges, graph) = some_model(), seen(some_rows())
    full = model.relations(edges, graph, HEADS, TAILS)
    vectors = model.encoder(graph.meetings, torch.arange(R))
    parts = vectors, torch.arange(R), HEADS, TAILS
    contexts = model.relation_contexts.pairs(graph.contexts, *parts)
    assert (full - contexts)[:3].abs().sum() > 0.1
    monkeypatch.setattr(foundation, "BRIDGED", 2)
    monkeypatch.setattr(foundation, "VECTORS", K)  # contexts one relation at a time
    best, worst = contexts.sort(1, descending=True).indices[:, :2], contexts.argmin(1)
    for true, chosen in ((None, best), (worst, torch.stack([best[:, 0], worst], 1))):
        bridged = torch.zeros(5, R, dtype=torch.bool).scatter(1, chosen, True)
        found = model.relations(edges, graph, HEADS, TAILS, true)
        torch.testing.assert_close(found, torch.where(bridged, full, contexts), **CLOSE)


@torch.no_grad()
def test_the_same_weights_work_on_any_graph():
    """More relations, fewer entities; one triple; no edges left at all."""
    model = some_model()
    everything = [(h, r, t) for h, t in pairwise([0, 3, 1, 2, 0, 4, 4]) for r in range(0, 20, 3)]
    for edges, graph in (
        seen(everything, 5, 20),
        seen([(0, 0, 1)], 2, 1),
        seen([(0, 0, 1)], 2, 1, held_out=[0]),
        seen([(1, 0, 1)], 3, 1),
    ):
        n, r = edges.n_entities, edges.n_relations
        kinds = torch.arange(2 * r)
        found = model.links(edges, graph, kinds % n, kinds)
        assert found.shape == (2 * r, n)
        assert found.isfinite().all()
        found = model.relations(edges, graph, torch.arange(n), torch.arange(n).flip(0))
        assert found.shape == (n, r)
        assert found.isfinite().all()


def test_gradients_are_those_of_plain_double_precision():
    """Compiled functions in single precision against plain ones, and these against differences."""
    rows, model = some_rows(), some_model(n_hops=3)
    edges, graph = seen(rows, held_out=[2, 9, 20])

    def loss(model: FoundationModel, graph: GraphView) -> Tensor:
        links = model.links(edges, graph, SOURCES, KINDS)
        return links.sin().mean() + model.relations(edges, graph, HEADS, TAILS).cos().mean()

    loss(model, graph).backward()
    single = [p.grad for p in model.parameters()]
    assert all(grad is not None and grad.any() for grad in single)  # every parameter is used
    model = model.double()
    precise = graph.map(lambda x: x.double() if x.is_floating_point() else x)
    model.zero_grad()
    loss(model, precise).backward()
    for one, p in zip(single, model.parameters(), strict=True):
        torch.testing.assert_close(one.double(), p.grad, atol=1e-4, rtol=1e-3)
    made, step = torch.Generator().manual_seed(0), 1e-6
    ways = [torch.randn(p.shape, generator=made, dtype=p.dtype) for p in model.parameters()]
    slope = sum((p.grad * way).sum() for p, way in zip(model.parameters(), ways, strict=True))
    ends = []
    with torch.no_grad():
        for sign in (1, -2):
            for p, way in zip(model.parameters(), ways, strict=True):
                p += sign * step * way
            ends.append(loss(model, precise))
    torch.testing.assert_close((ends[0] - ends[1]) / (2 * step), slope, atol=1e-5, rtol=1e-4)
