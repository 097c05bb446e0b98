"""Bridges: what paths between a pair of entities add to its score."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from support.graphs import DEVICES, knowledge_graph, toy

from pathe.graph.adjacency import build_graph
from pathe.graph.edges import both_ways
from pathe.graph.held_out import HeldOut
from pathe.model.bridge import Round, TableBridge
from pathe.model.dense import dense_scores


def by_hand(bridge: TableBridge, triples, n_entities, n_relations, source, kind):
    """States of all entities for one query, edge by edge."""
    asked = bridge.asked.weight[kind]
    x = torch.zeros(n_entities, len(asked))
    x[source] = asked
    for hop in bridge.rounds:
        assert isinstance(hop, Round)
        weights = hop.weights(asked[None], bridge.relations)[0]
        arrived = torch.zeros_like(x)
        for h, r, t in triples.tolist():
            arrived[t] += x[h] * weights[r]
            arrived[h] += x[t] * weights[r + n_relations]
        size = (arrived.square().mean(-1, keepdim=True) + 1e-12).sqrt()
        taken = arrived * (size.log1p() / size)
        x = x + F.relu(hop.take(torch.cat([x, taken], -1)))
    return x


@pytest.mark.parametrize("device", DEVICES)
def test_scores_are_those_of_states_carried_edge_by_edge(device):
    kg = toy()
    torch.manual_seed(0)
    bridge = TableBridge(kg.n_relations, 6, 3, link=True, relation=True)
    edges = both_ways(build_graph(kg.train, kg.n_entities, kg.n_relations)).to(device)
    sources, kinds = torch.tensor([2, 7, 2]), torch.tensor([0, kg.n_relations + 1, 1])
    moved = bridge.to(device)
    with torch.no_grad():
        links = moved.links(edges, edges.keep(), sources.to(device), kinds.to(device)).cpu()
        pairs = moved.pairs(edges, edges.keep(), sources.to(device), kinds.to(device)).cpu()
        bridge = bridge.to("cpu")
        parts = kg.train, kg.n_entities, kg.n_relations
        for row in range(3):
            x = by_hand(bridge, *parts, sources[row], kinds[row])
            asked, same = bridge.asked.weight[kinds[row]][None], torch.zeros(len(x))
            torch.testing.assert_close(links[row], bridge.link_head(x, asked, same)[:, 0])
            x = by_hand(bridge, *parts, sources[row], 2 * kg.n_relations)
            asked = bridge.asked.weight[-1:]
            expected = bridge.relation_head(x[kinds[row]][None], asked, same[:1])[0]
            torch.testing.assert_close(pairs[row], expected)


def test_where_no_path_leads_nothing_is_added():
    kg = knowledge_graph([(0, 0, 1), (1, 0, 2), (2, 0, 3), (4, 0, 5)])
    bridge = TableBridge(1, 4, 2)
    edges = both_ways(build_graph(kg.train, kg.n_entities, 1))
    with torch.no_grad():
        [scores] = bridge.links(edges, edges.keep(), torch.tensor([0]), torch.tensor([0]))
    assert scores.nonzero()[:, 0].tolist() == [0, 1, 2]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_room_for_more_rows_changes_nothing(device, dtype):
    """Scores and gradients, of answers and of relations, with rows of nothing after each hop."""
    kg = toy()
    graph = build_graph(kg.train, kg.n_entities, kg.n_relations).to(device)
    edges = both_ways(graph)
    keep = edges.keep(HeldOut(ids_B=torch.arange(0, len(kg.train), 3, device=device)))
    torch.manual_seed(0)
    bridge = TableBridge(kg.n_relations, 16, 3, relation=True).to(device, dtype)
    heads, relations, tails = kg.train[:20].long().to(device).unbind(1)
    for how, others, ends in ((bridge.links, relations, ()), (bridge.pairs, tails, (tails,))):
        exact = bridge.reach(edges, keep, heads, *ends)
        room = (exact.sizes[0], *(n + 7 * (i + 1) for i, n in enumerate(exact.sizes[1:])))
        found = []
        for reached in (exact, exact.padded(room)):
            bridge.zero_grad()
            scores = how(edges, keep, heads, others, reached)
            weigh = torch.randn(scores.shape, generator=torch.Generator().manual_seed(1))
            (scores * weigh.to(scores)).sum().backward()
            grads = [p.grad for p in bridge.parameters() if p.grad is not None]
            found.append([scores.detach(), *grads])
        for one, other in zip(*found, strict=True):
            torch.testing.assert_close(one, other)


def test_few_reached_entities_are_listed_and_most_are_not():
    """A chain's ends reach little in half of the hops; the middle of a star reaches everything."""
    bridge = TableBridge(1, 32, 4).requires_grad_(False)
    chain = [(i, 0, i + 1) for i in range(20)]
    star = [(0, 0, i) for i in range(1, 20)]
    for facts, is_dense in ((chain, False), (star, True)):
        kg = knowledge_graph(facts)
        edges = both_ways(build_graph(kg.train, kg.n_entities, 1))
        parts = edges, edges.keep(), torch.tensor([0])
        given = bridge.condition(torch.tensor([0]), None)
        takes = [hop.take.weight for hop in bridge.rounds]
        more = given.asked_BD, given.weights, takes, bridge.link_head.layers(given.asked_BD)
        with torch.no_grad():
            assert (dense_scores(*parts, *more) is not None) == is_dense
        assert dense_scores(*parts, *more) is None, "gradients need the rows"
