"""What a predictor knows: the graph that describes entities, and all triples known to hold."""

from __future__ import annotations

import torch
from torch import Tensor

from pathe.datasets import KnowledgeGraph
from pathe.graph import Graph, build_graph, extend_graph, holds
from pathe.triples import unique_triples


def graphs_of(
    kg: KnowledgeGraph, n_relations: int, device: torch.device | str
) -> tuple[Graph, Graph]:
    """The training graph, and that of all splits: the same one if there is but one split."""
    graph = build_graph(kg.train, kg.n_entities, n_relations).to(device)
    if not len(kg.valid) and not len(kg.test):
        return graph, graph
    everything, _ = unique_triples(torch.cat([kg.train, kg.valid, kg.test]))
    return graph, build_graph(everything, kg.n_entities, n_relations).to(device)


def grow(
    graph: Graph, known: Graph, triples_N3: Tensor, n_entities: int
) -> tuple[Graph, Graph, Tensor]:
    """Both with the triples that they lack, and those that the first lacked."""
    triples_N3 = unique_triples(triples_N3)[0].to(graph.device)
    new_N3 = triples_N3[~holds(graph, triples_N3)]
    larger = extend_graph(graph, new_N3, n_entities)
    if known is graph:
        return larger, larger, new_N3
    unknown_N3 = triples_N3[~holds(known, triples_N3)]
    return larger, extend_graph(known, unknown_N3, n_entities), new_N3
