"""A model without a table of entities or of relations: the same weights work on any graph."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pathe.core.tensors import Tensors
from pathe.graph.edges import Edges
from pathe.graph.relation_graph import Arrivals, relation_graph
from pathe.model.bridge import EncodedBridge
from pathe.model.context_head import ContextHead, EntityContexts, entity_contexts
from pathe.model.propagation import Reach
from pathe.model.relation_encoder import RelationEncoder

BRIDGED = 16  # relations per pair that bridges score


@dataclass(frozen=True)
class GraphView(Tensors):
    """What the model sees of a graph: its kept edges, and what is computed from them alone."""

    keep_M: Tensor
    meetings: Tensor  # the relation graph
    contexts: EntityContexts


def view(index: Arrivals, keep_M: Tensor) -> GraphView:
    """Returns a graph as seen along kept edges only."""
    return GraphView(keep_M, relation_graph(index, keep_M), entity_contexts(index, keep_M))


class FoundationModel(nn.Module):
    """Relation vectors from the relation graph, bridges that use them, and context heads.

    A score is the sum of the bridges' and the contexts' score.
    """

    def __init__(self, dim: int, n_hops: int, n_layers: int) -> None:
        super().__init__()
        self.encoder = RelationEncoder(dim, n_layers)
        self.bridge = EncodedBridge(dim, n_hops)
        self.link_contexts, self.relation_contexts = ContextHead(dim, dim), ContextHead(dim, dim)

    def links(
        self, edges: Edges, graph: GraphView, sources_B: Tensor, kinds_B: Tensor,
        reached: Reach | None = None,
    ) -> Tensor:  # fmt: skip
        """Returns (B, E) scores of all entities as answers to (source, kind) queries."""
        if kinds_B.is_cuda:  # finding the distinct kinds would synchronise
            kinds_Q, rows_B = kinds_B, torch.arange(len(kinds_B), device=kinds_B.device)
        else:
            kinds_Q, rows_B = kinds_B.unique(return_inverse=True)
        vectors_QKD = self.encoder(graph.meetings, kinds_Q)
        return self.link_scores(edges, graph, vectors_QKD, kinds_Q, rows_B, sources_B, reached)

    def link_scores(
        self, edges: Edges, graph: GraphView, vectors_QKD: Tensor, kinds_Q: Tensor, rows_B: Tensor,
        sources_B: Tensor, reached: Reach | None = None,
    ) -> Tensor:  # fmt: skip
        """Computes `links` from relation vectors; rows_B is the row of each query's kind."""
        head, parts = self.link_contexts, (graph.contexts, vectors_QKD, kinds_Q)
        query_BH = head.queries(*parts, rows_B, sources_B)
        found_BE = head.score(query_BH, head.candidates(*parts), rows_B)
        return found_BE + self.bridge.links(
            edges,
            graph.keep_M,
            sources_B,
            kinds_Q[rows_B],
            reached,
            lambda _: (vectors_QKD, rows_B),
        )

    def relation_scores(
        self, edges: Edges, graph: GraphView, vectors_RKD: Tensor, heads_B: Tensor, tails_B: Tensor,
        true_B: Tensor | None = None, reached: Reach | None = None,
    ) -> Tensor:  # fmt: skip
        """Returns (B, R) scores of all relations between heads and tails.

        Contexts score all of them, bridges the best BRIDGED and, in training, the true one.
        """
        scores_BR = self.relation_contexts.pairs(graph.contexts, vectors_RKD, heads_B, tails_B)
        first_BR = scores_BR.detach()
        if true_B is not None:
            first_BR = first_BR.scatter(1, true_B[:, None], float("inf"))
        kinds_BC = first_BR.topk(min(BRIDGED, scores_BR.shape[1]), dim=1).indices
        found_BC = self.bridge.relations(
            edges, graph.keep_M, heads_B, tails_B, kinds_BC, lambda kinds: (vectors_RKD, kinds),
            reached,
        )  # fmt: skip
        return scores_BR.scatter_add(1, kinds_BC, found_BC)
