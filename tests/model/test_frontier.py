"""The frontier against a search written as loops; scores with a frontier against exact ones."""

from __future__ import annotations

import pytest
import torch
from support.graphs import DEVICES, sorted_triples, toy
from support.kernels import kernels_off
from support.models import BRIDGE, any_graph_artifact, artifact_of

from pathe.core.types import PARTS
from pathe.graph.adjacency import build_graph
from pathe.graph.edges import both_ways
from pathe.graph.held_out import HeldOut
from pathe.graph.prepared import PreparedGraph
from pathe.model import context_head, frontier, scorer
from pathe.model.builder import build_scorer
from pathe.model.foundation import view
from pathe.model.frontier import (
    EDGES,
    PASSED,
    WHOLE,
    Frontier,
    Spread,
    completed,
    frontier_between,
    frontier_of,
    frontier_size,
    select_entities,
    select_reachable,
    spread_mass,
    spread_mass_plain,
    subgraph_of,
)
from pathe.model.propagation import between
from pathe.model.scorer import GraphScorer, VectorScorer
from pathe.predict.connections import connections

HOPS = 3


def example(n_entities=60, n=150, hub=False, device="cpu"):
    """A random graph with some triples held out; entity 0 may be a hub."""
    made = torch.Generator().manual_seed(n)
    triples = torch.randint(n_entities - 2, (n, 3), generator=made)
    triples[:, 1] %= 3
    if hub:
        triples[::2, 2] = 0
    triples = sorted_triples(triples.tolist())
    edges = both_ways(build_graph(triples, n_entities, 3)).to(device)
    held_out = HeldOut(ids_B=torch.arange(len(triples), device=device)[1::5])
    sources = torch.tensor([3, 0, 3, n_entities - 1, 7], device=device)
    return edges, edges.keep(held_out), sources


def in_reach(edges, keep, source: int) -> set[int]:
    """All entities within HOPS kept edges."""
    found = {source}
    for _ in range(HOPS):
        for owner, neighbour, kept in zip(
            edges.owners_M.tolist(), edges.neighbours_M.tolist(), keep.tolist(), strict=True
        ):
            if kept and neighbour in found and owner not in found:
                found |= {-1 - owner}
        found = {v if v >= 0 else -1 - v for v in found}
    return found


def by_hand(edges, keep, source: int, most: int) -> dict[int, int]:
    """Mass at all entities found from one source, an edge at a time."""
    near: dict[int, list[int]] = {}
    rows = zip(edges.owners_M.tolist(), edges.neighbours_M.tolist(), keep.tolist(), strict=True)
    for owner, neighbour, kept in rows:
        if kept:
            near.setdefault(owner, []).append(neighbour)
    budget = EDGES * most
    while True:
        total, active, whole = {source: WHOLE}, {source: WHOLE}, True
        for _ in range(HOPS):
            shares = {
                u: mass * PASSED[0] // PASSED[1] // max(len(near.get(u, ())), 1)
                for u, mass in active.items()
            }
            new: dict[int, int] = {}
            spent = 0
            for u in sorted(active, key=lambda u: (-shares[u], u)):
                if spent >= budget:
                    whole = False
                    break
                spent += len(near.get(u, ()))
                for v in near.get(u, ()):
                    new[v] = new.get(v, 0) + shares[u]
            for v, mass in new.items():
                total[v] = total.get(v, 0) + mass
            best = sorted(new, key=lambda v: (-new[v], v))[:most]
            active = {v: new[v] for v in best}
        if whole or len(total) >= most:
            return total
        budget *= 4


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("n_entities", "n", "most", "hub"),
    [(60, 150, 1, True), (60, 150, 7, True), (60, 600, 20, False), (900, 2000, 2, True)],
)
def test_the_search_finds_what_loops_find(device, n_entities, n, most, hub):
    """Also if it finds hundreds of entities, many times more than it keeps."""
    edges, keep, sources = example(n_entities, n, hub=hub, device=device)
    for how in (spread_mass, spread_mass_plain):
        queries, entities, mass = how(edges, keep, sources, Spread.within(HOPS, most))
        found: list[dict[int, int]] = [{} for _ in sources]
        for b, v, m in zip(queries.tolist(), entities.tolist(), mass.tolist(), strict=True):
            found[b][v] = m
        assert found == [by_hand(edges, keep, source, most) for source in sources.tolist()]
        codes = queries * edges.n_entities + entities
        assert (codes.diff() > 0).all()


@pytest.mark.parametrize("hub", [False, True])
def test_a_small_budget_grows_until_enough_is_found(hub, monkeypatch):
    """A budget of one edge per hop finds as many as are wanted, or all in reach."""
    monkeypatch.setattr(frontier, "EDGES", 1)
    edges, keep, sources = example(hub=hub)
    for most in (2, 30, 60):
        parts = edges, keep, sources, Spread.within(HOPS, most)
        found = spread_mass(*parts)
        within = torch.tensor([len(in_reach(edges, keep, source)) for source in sources.tolist()])
        assert (torch.bincount(found[0], minlength=5) >= within.clamp(max=most)).all()
        for one, other in zip(found, spread_mass_plain(*parts), strict=True):
            assert torch.equal(one, other)


def test_of_equal_masses_the_smaller_ids_are_kept():
    star = sorted_triples([(0, 0, i) for i in range(1, 9)])
    edges = both_ways(build_graph(star, 9, 1))
    source = torch.tensor([0])
    kept = frontier_of(edges, edges.keep(), source, 2, Frontier(4))
    assert sorted(kept.entities_A.tolist()) == [0, 1, 2, 3]
    # contexts decide instead, where they differ
    context = torch.arange(9.0)[None]
    kept = frontier_of(edges, edges.keep(), source, 2, Frontier(4, context_BE=context))
    assert sorted(kept.entities_A.tolist()) == [0, 6, 7, 8]


@pytest.mark.parametrize("device", DEVICES)
def test_entities_without_a_path_give_way_to_those_between(device):
    """Contexts choose 2 and 3 of a chain, which nothing kept leads to; 1 and 2 are near."""
    chain = sorted_triples([(i, 0, i + 1) for i in range(8)])
    edges = both_ways(build_graph(chain, 9, 1)).to(device)
    source, context = torch.tensor([0], device=device), torch.arange(9.0, device=device)[None]
    kept = frontier_of(edges, edges.keep(), source, HOPS, Frontier(3, context_BE=context))
    assert sorted(kept.entities_A.tolist()) == [0, 1, 2]
    kept = frontier_of(edges, edges.keep(), source, HOPS, Frontier(4, context_BE=context))
    assert sorted(kept.entities_A.tolist()) == [0, 1, 2, 3]


def test_one_entity_is_the_query_itself():
    edges, keep, sources = example(hub=True)
    kept = frontier_of(edges, keep, sources, HOPS, Frontier(1, context_BE=torch.randn(5, 60)))
    assert kept.entities_A.tolist() == sources.tolist()
    assert not len(kept.edges.relations_M) or (kept.edges.owners_M == kept.edges.neighbours_M).all()


def test_kept_rows_have_the_edges_between_them():
    edges, keep, sources = example(n=300, hub=True)
    queries, entities, mass = spread_mass(edges, keep, sources, Spread.within(HOPS, 12))
    rows = select_entities((queries, entities, mass), sources, Frontier(12))
    queries, entities = queries[rows], entities[rows]
    kept = subgraph_of(edges, keep, sources, queries, entities, HOPS)
    with kernels_off():
        plain = subgraph_of(edges, keep, sources, queries, entities, HOPS)
    for one, other in zip(kept.tensors(), plain.tensors(), strict=True):
        assert torch.equal(one, other)
    found = set()
    names = [(b, v) for b, v in zip(kept.queries_A.tolist(), kept.entities_A.tolist(), strict=True)]
    for owner, source, kind, slot in zip(
        kept.edges.owners_M.tolist(), kept.edges.neighbours_M.tolist(),
        kept.edges.relations_M.tolist(), kept.edges.triples_M.tolist(), strict=True,
    ):  # fmt: skip
        assert names[owner][0] == names[source][0] == kind % 5
        assert int(edges.relations_M[slot]) == kind // 5
        found.add((names[owner], names[source], slot))
    rows = set(names)
    expected = {
        ((b, v), (b, int(edges.neighbours_M[slot])), slot)
        for b, v in names
        for slot in range(int(edges.offsets_E1[v]), int(edges.offsets_E1[v + 1]))
        if keep[slot] and (b, int(edges.neighbours_M[slot])) in rows
    }
    assert found == expected


def test_a_frontier_of_all_entities_keeps_the_reached_ones():
    edges, keep, sources = example()
    kept = frontier_of(edges, keep, sources, HOPS, Frontier(60))
    for b, source in enumerate(sources.tolist()):
        own = kept.entities_A[kept.queries_A == b].tolist()
        assert sorted(own) == sorted(in_reach(edges, keep, source))


def test_a_sample_stands_for_the_entities_that_are_not_kept():
    """Messages from entities that aren't kept, an edge at a time."""
    edges, keep, sources = example(n=400, hub=True)
    chosen = select_reachable(edges, keep, sources, HOPS, Frontier(20, sample=0.1))
    kept = completed(edges, keep, sources, chosen, HOPS)
    codes = (chosen[0] * edges.n_entities + chosen[1])[chosen[2]].tolist()
    assert torch.bincount(chosen[0]).tolist() == [20, 20, 20, 1, 20]
    assert torch.bincount(chosen[0][chosen[2]], minlength=5).tolist() == [2, 2, 2, 0, 2]
    names = list(zip(kept.queries_A.tolist(), kept.entities_A.tolist(), strict=True))
    made = torch.Generator().manual_seed(0)
    weights = torch.randn(kept.edges.relations_M.max() + 1, 4, generator=made)
    for hop in range(1, HOPS + 1):
        x = torch.randn(kept.sizes[hop - 1], 4, generator=made)
        samples: dict[int | str, list[int]] = {}  # by relation, and of a query
        for sender, kind in zip(
            kept.edges.neighbours_M.tolist(), kept.edges.relations_M.tolist(), strict=True
        ):
            b, v = names[sender]
            if b * edges.n_entities + v in codes and used(edges, keep, names, kind):
                samples.setdefault(kind, []).append(sender)
                samples.setdefault(f"query {b}", []).append(sender)
        expected = torch.zeros(kept.sizes[hop], 4)
        for row in range(kept.sizes[hop] if hop >= 2 else 0):
            b, v = names[row]
            for slot in range(int(edges.offsets_E1[v]), int(edges.offsets_E1[v + 1])):
                kind = int(edges.relations_M[slot]) * len(sources) + b
                if not keep[slot] or (b, int(edges.neighbours_M[slot])) in names:
                    continue
                own, every = samples.get(kind, []), samples.get(f"query {b}", [])
                live = [s for s in own if s < len(x)] or [s for s in every if s < len(x)]
                if not live:
                    continue
                group = own or every
                share = sum(s < len(x) for s in group) / len(group)
                share = 1 if row < kept.sizes[hop - 2] else share
                expected[row] += share * x[live].mean(0) * weights[kind]
        assert hop < 2 or expected.abs().sum() > 0
        found = kept.with_unkept(torch.zeros_like(expected), x, weights, hop)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def used(edges, keep, names, kind: int) -> bool:
    """Whether an entity that isn't kept sends a message along a relation of one of the queries."""
    queries = max(b for b, _ in names) + 1
    b, relation = kind % queries, kind // queries
    return any(
        (b, v) in names and (b, u) not in names and kept
        for v, u, k, kept in zip(
            edges.owners_M.tolist(), edges.neighbours_M.tolist(),
            edges.relations_M.tolist(), keep.tolist(), strict=True,
        )
        if k == relation
    )  # fmt: skip


def test_between_two_entities_are_those_on_paths():
    edges, keep, sources = example(n=80)
    targets = sources.flip(0)
    kept = frontier_between(edges, keep, sources, targets, HOPS, 60)
    exact = between(edges, sources, targets, HOPS, keep)
    rows = [{*zip(r.queries_A.tolist(), r.entities_A.tolist(), strict=True)} for r in (kept, exact)]
    assert rows[0] <= rows[1]
    for b, (source, target) in enumerate(zip(sources.tolist(), targets.tolist(), strict=True)):
        assert ((b, target) in rows[0]) == (target in in_reach(edges, keep, source))


KINDS = ("any graph", "table", "vectors")


def scorers(kg, *sizes, device="cpu", kind="any graph"):
    """Scorers of one model with frontiers of these sizes."""
    match kind:
        case "any graph":
            artifact = any_graph_artifact()
        case "table":
            artifact = artifact_of(kg, **BRIDGE)
        case "vectors":
            artifact = artifact_of(kg)
    prepared = PreparedGraph(kg, device)
    return [build_scorer(artifact.model, artifact.config, prepared, frontier=k) for k in sizes]


@pytest.fixture
def always(monkeypatch):
    """A frontier of all entities is used, too, instead of the exact way."""
    for kind in (GraphScorer, VectorScorer):
        monkeypatch.setattr(kind, "_frontier_size", lambda self, wanted: wanted)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("part", PARTS)
def test_scores_are_exact_if_all_entities_are_kept(part, device, kind, always):
    kg = toy()
    exact, kept = scorers(kg, 0, kg.n_entities, device=device, kind=kind)
    assert (exact.frontier, kept.frontier) == (0, 0 if kind == "vectors" else kg.n_entities)
    triples = exact.prepared.triples("test")
    close = {"atol": 1e-5, "rtol": 1e-4}
    torch.testing.assert_close(kept.scores(triples, part), exact.scores(triples, part), **close)
    known = exact.prepared.known()
    ranks = [found.rank(triples, part, known).realistic_B for found in (exact, kept)]
    assert torch.equal(*ranks)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("most", [1, 4, 20, 1000])
def test_a_triple_has_the_score_of_its_query(part, most, kind, always):
    kg = toy()
    [found] = scorers(kg, most, kind=kind)
    triple = found.prepared.triples("test")[0]
    place = int(triple[PARTS.index(part)])
    expected = float(found.scores(triple[None], part)[0, place])
    assert found.triple(triple, part).without() == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("kind", KINDS[:2])
def test_explanations_name_the_same_paths_as_exact_ones(kind, always):
    kg = toy()
    triple = PreparedGraph(kg).triples("test")[0]
    paths = []
    for found in scorers(kg, 0, kg.n_entities, kind=kind):
        score = found.bridge_score(triple, "tail")
        paths.append([path.triples for path in connections(score, 5)])
        if first := connections(score, 1):
            without = score.without(first[0].triples)
            assert without != pytest.approx(score.without(), abs=1e-9)
    assert paths[0] == paths[1]


def test_few_kept_entities_leave_the_others_their_context_score():
    kg = toy()
    [found] = scorers(kg, 2)
    triples = found.prepared.triples("test")[:1]
    scores = found.scores(triples, "tail")
    contexts = found._context_scores(triples[0], "tail")
    assert int((scores[0] - contexts).abs().gt(1e-6).sum()) <= 2


def test_few_kept_entities_leave_the_others_their_score_of_vectors():
    kg = toy()
    [found] = scorers(kg, 2, kind="table")
    triples = found.prepared.triples("test")[:1]
    scores = found.scores(triples, "tail")
    alone = found._vector_scores(triples[:, 0], triples[:, 1], "tail")
    assert 0 < int((scores - alone).abs().gt(1e-6).sum()) <= 2


def test_only_models_for_any_graph_have_a_frontier_by_default(monkeypatch):
    monkeypatch.setattr(frontier, "LARGE", 1)
    monkeypatch.setattr(frontier, "MOST", 3)
    for kind, most in (("any graph", 3), ("table", 0), ("vectors", 0)):
        [found] = scorers(toy(), None, kind=kind)
        assert found.frontier == most


@pytest.mark.parametrize("kind", KINDS[:2])
def test_two_runs_are_equal_and_chunks_change_nothing(monkeypatch, kind, always):
    kg = toy()
    [found] = scorers(kg, 5, kind=kind)
    triples = found.prepared.triples("test")
    before = found.scores(triples, "tail")
    assert torch.equal(before, found.scores(triples, "tail"))
    monkeypatch.setattr(scorer, "FRONTIER_ROWS", 5)
    monkeypatch.setitem(context_head.AT_ONCE, "cpu", 64)
    torch.testing.assert_close(found.scores(triples, "tail"), before, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_are_those_of_exact_message_passing(device):
    """With all entities kept, and with some of them scored."""
    kg = toy()
    artifact, prepared = any_graph_artifact(), PreparedGraph(kg, device)
    model, edges = artifact.model.to(device).train(False), prepared.edges
    seen = view(prepared.arrivals, edges.keep())
    triples = prepared.triples("test")
    some = torch.tensor([1, 3, 4], device=device)

    def gradients(part):
        model.zero_grad()
        scores = model.links(edges, seen, triples[:, 0], triples[:, 1], frontier=part)
        scores = scores if part is not None and part.candidates_C is not None else scores[:, some]
        scores.square().sum().backward()
        return scores.detach(), [p.grad.clone() for p in model.parameters() if p.grad is not None]

    expected, grads = gradients(None)
    for part in (Frontier(kg.n_entities), Frontier(kg.n_entities, some)):
        found, others = gradients(part)
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-3)
        for one, other in zip(others, grads, strict=True):
            torch.testing.assert_close(one, other, atol=1e-3, rtol=1e-2)


def test_large_graphs_have_a_frontier_and_small_ones_do_not():
    assert frontier_size(None, 272_115, 14_541) == 0
    assert frontier_size(None, 20_000_000, 5_000_000) == frontier.MOST
    for wanted in (None, 1_000, 0):
        assert frontier_size(wanted, 20_000_000, 1_000) == 0  # all of them are fewer
    assert frontier_size(7, 272_115, 14_541) == 7
