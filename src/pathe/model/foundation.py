"""A model without entity or relation embeddings, so the same weights work on any graph."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pathe.core.tensors import Tensors
from pathe.graph.edges import Edges
from pathe.graph.held_out import HeldOut
from pathe.graph.relation_graph import (
    Arrivals,
    count_meetings,
    meetings_without,
    relation_graph,
    relation_matrix,
)
from pathe.model.bridge import EncodedBridge, QueryVectors, RelationVectors
from pathe.model.context_head import (
    ContextHead,
    EntityContexts,
    HeldOutContexts,
    contexts_without,
    entity_contexts,
)
from pathe.model.frontier import Frontier, frontier_of
from pathe.model.propagation import Kept, Reach
from pathe.model.relation_encoder import RelationEncoder

BRIDGED = 16  # relations per pair that bridges score
VECTORS = 1 << 20  # relation vectors that are used at once


@dataclass(frozen=True)
class GraphView(Tensors):
    """What the model sees of a graph: its kept edges, and what is computed from them alone."""

    keep_M: Tensor
    meetings: Tensor  # the relation graph
    contexts: EntityContexts | HeldOutContexts


def view(index: Arrivals, keep_M: Tensor) -> GraphView:
    """Returns a graph as seen along kept edges only."""
    return GraphView(keep_M, relation_graph(index, keep_M), entity_contexts(index, keep_M))


class Views:
    """What the model sees of one graph without a few of its triples.

    The whole graph is counted once, and what triples change is subtracted: a view takes a mask of
    the edges and time for the entities of these triples, however large the graph is.
    """

    def __init__(self, edges: Edges, index: Arrivals) -> None:
        keep_M = edges.keep()
        self.edges, self.index = edges, index
        self.counts_P, self.meetings = index.counts(keep_M), count_meetings(index, keep_M)

    def without(self, ids_B: Tensor) -> GraphView:
        """Returns the graph as seen without the edges of some triples."""
        keep_M = self.edges.keep(HeldOut(ids_B))
        slots_H = self.edges.slots_N2[ids_B.unique()].flatten()
        left = meetings_without(self.meetings, self.index, self.counts_P, slots_H)
        left = left or count_meetings(self.index, keep_M)
        contexts = contexts_without(self.index, self.counts_P, slots_H)
        return GraphView(keep_M, relation_matrix(left), contexts)


class FoundationModel(nn.Module):
    """Relation vectors from the relation graph, bridges that use them, and context heads.

    A score is the sum of the bridges' and the contexts' score.
    """

    def __init__(
        self, dim: int, n_hops: int, n_layers: int, pair_hops: int = 3, n_kinds: int = 0
    ) -> None:
        super().__init__()
        self.encoder = RelationEncoder(dim, n_layers, n_kinds)
        self.bridge = EncodedBridge(dim, n_hops, pair_hops)
        self.link_contexts, self.relation_contexts = ContextHead(dim, dim), ContextHead(dim, dim)

    def links(
        self, edges: Edges, graph: GraphView, sources_B: Tensor, kinds_B: Tensor,
        reached: Reach | Kept | None = None, distinct: tuple[Tensor, Tensor] | None = None,
        frontier: Frontier | None = None,
    ) -> Tensor:  # fmt: skip
        """Returns (B, E) scores of all entities as answers to (source, kind) queries.

        `distinct` has the distinct kinds and each query's row among them, if these are known;
        finding them synchronises with a GPU.
        """
        kinds_Q, rows_B = distinct or kinds_B.unique(return_inverse=True)
        given = QueryVectors(kinds_Q, self.encoder(graph.meetings, kinds_Q), rows_B)
        return self.link_scores(edges, graph, given, sources_B, reached, frontier)

    def relations(
        self, edges: Edges, graph: GraphView, heads_B: Tensor, tails_B: Tensor,
        true_B: Tensor | None = None, reached: Reach | Kept | None = None,
    ) -> Tensor:  # fmt: skip
        """Returns (B, R) scores of all relations between heads and tails."""
        kinds_R = torch.arange(edges.n_relations, device=heads_B.device)
        vectors_RKD = self.encoder(graph.meetings, kinds_R)

        def vectors(kinds_B: Tensor) -> QueryVectors:
            return QueryVectors(kinds_R, vectors_RKD, kinds_B)

        return self.relation_scores(edges, graph, vectors, heads_B, tails_B, true_B, reached)

    def link_scores(
        self, edges: Edges, graph: GraphView, given: QueryVectors, sources_B: Tensor,
        reached: Reach | Kept | None = None, frontier: Frontier | None = None,
    ) -> Tensor:  # fmt: skip
        """Computes `links` from relation vectors.

        With a `frontier`, bridges pass messages between some entities per query; the others have
        the score of their context alone. If it has candidates, scores are theirs, (B, C).
        """
        kinds_Q, vectors_QKD, rows_B = given
        candidates_C = frontier.candidates_C if frontier else None
        found_BC = self.link_contexts.links(
            graph.contexts, vectors_QKD, kinds_Q, rows_B, sources_B, candidates_C
        )
        if reached is None and frontier:
            if candidates_C is None:
                frontier = frontier._replace(context_BE=found_BC.detach())
            n_hops = len(self.bridge.rounds)
            reached = frontier_of(edges, graph.keep_M, sources_B, n_hops, frontier)
            if candidates_C is not None:
                reached = reached.among(candidates_C)
        return found_BC + self.bridge.links(
            edges, graph.keep_M, sources_B, kinds_Q[rows_B], reached, lambda _: given
        )

    def relation_scores(
        self, edges: Edges, graph: GraphView, vectors: RelationVectors, heads_B: Tensor,
        tails_B: Tensor, true_B: Tensor | None = None, reached: Reach | Kept | None = None,
    ) -> Tensor:  # fmt: skip
        """Computes `relations` from relation vectors.

        Contexts score all relations; bridges score the best BRIDGED and, in training, the true one.
        """
        scores_BR = self.relation_context_scores(graph, vectors, heads_B, tails_B)
        kinds_BC = bridged_relations(scores_BR.detach(), true_B)
        found_BC = self.bridge.relations(
            edges, graph.keep_M, heads_B, tails_B, kinds_BC, vectors, reached
        )
        return scores_BR.scatter_add(1, kinds_BC, found_BC)

    def relation_context_scores(
        self, graph: GraphView, vectors: RelationVectors, heads_B: Tensor, tails_B: Tensor
    ) -> Tensor:
        """Returns (B, R) scores of all relations by the contexts of heads and tails."""
        k = graph.contexts.n_kinds
        found = []
        for kinds_F in torch.arange(k // 2, device=heads_B.device).split(max(VECTORS // k, 1)):
            _, vectors_QKD, rows_F = vectors(kinds_F)
            parts = graph.contexts, vectors_QKD[rows_F], kinds_F, heads_B, tails_B
            found.append(self.relation_contexts.pairs(*parts))
        return torch.cat(found, 1)


def bridged_relations(scores_BR: Tensor, true_B: Tensor | None = None) -> Tensor:
    """Returns (B, C): the relations with the best scores, and the true ones."""
    if true_B is not None:
        scores_BR = scores_BR.scatter(1, true_B[:, None], float("inf"))
    return scores_BR.topk(min(BRIDGED, scores_BR.shape[1]), dim=1).indices
