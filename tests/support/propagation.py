"""Small examples of message passing for the tests."""

from __future__ import annotations

import torch
from support.graphs import sorted_triples

from pathe.graph.adjacency import build_graph
from pathe.graph.edges import both_ways
from pathe.graph.held_out import HeldOut
from pathe.model.propagation import reach


def example(n_entities=30, n_relations=3, n=120, device="cpu", dim=6, hops=2):
    """Edges with some triples held out, what five queries reach, and states of the first hop."""
    made = torch.Generator().manual_seed(n)
    highest = torch.tensor([n_entities - 2, n_relations, n_entities - 2])  # two have no edges
    triples = sorted_triples((torch.rand(n, 3, generator=made) * highest).long().tolist())
    edges = both_ways(build_graph(triples, n_entities, n_relations)).to(device)
    keep = edges.keep(HeldOut(ids_B=torch.arange(len(triples), device=device)[1::4]))
    reached = reach(edges, torch.tensor([3, 0, 3, n_entities - 1, 7], device=device), hops, keep)
    x = torch.randn(reached.sizes[1], dim, generator=made).to(device)
    weights = torch.randn(5, 2 * n_relations, dim, generator=made).to(device)
    return triples, edges, keep, reached, x, weights
