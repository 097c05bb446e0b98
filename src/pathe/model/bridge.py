"""Bridges: message passing that scores all paths between a query's entity and every candidate.

A small state is propagated from the query's entity along all edges, hop by hop, conditioned on the
query. The final state at an entity gives its score as an answer; without a path the score is zero.
Entities have no parameters, so unseen ones are candidates like any other.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pathe.graph.edges import Edges
from pathe.model.propagation import Reach, between, propagate, reach
from pathe.model.states import answer_scores, evidence, update


class Round(nn.Module):
    """One hop of message passing: weights of messages, and the update of states."""

    def __init__(self, n_kinds: int, dim: int) -> None:
        super().__init__()
        self.relations = nn.Parameter(torch.randn(n_kinds, dim))
        self.asked, self.carried = nn.Linear(dim, dim), nn.Linear(dim, dim, bias=False)
        self.mixed = nn.Linear(dim, dim, bias=False)
        self.take = nn.Linear(2 * dim, dim, bias=False)

    def weights(self, asked_BD: Tensor, relations_RD: Tensor) -> Tensor:
        """Returns (B, 2 R, D): the factors of messages, per query and relation of the edge."""
        mixed = F.relu(self.asked(asked_BD)[:, None] + self.carried(relations_RD))
        weights: Tensor = self.relations + self.mixed(mixed)
        return weights

    def forward(self, x_AD: Tensor, arrived_OD: Tensor) -> Tensor:
        """Returns the states after this hop. Zero states stay zero."""
        return update(x_AD, arrived_OD, self.take.weight)


@dataclass(frozen=True)
class Trace:
    """A record of one hop: states before it, weights per relation, summed messages."""

    x_AD: Tensor
    weights_BRD: Tensor
    arrived_AD: Tensor


class Evidence(nn.Module):
    """An MLP that scores states, given the query; a zero state scores zero."""

    def __init__(self, dim: int, n_scores: int) -> None:
        super().__init__()
        self.first, self.asked = nn.Linear(dim, 2 * dim, bias=False), nn.Linear(dim, 2 * dim)
        self.second = nn.Linear(2 * dim, n_scores, bias=False)

    def forward(self, x_AD: Tensor, asked_BD: Tensor, queries_A: Tensor) -> Tensor:
        """Returns (A, n_scores) scores; queries_A is the query of each state."""
        asked_AH = F.embedding(queries_A.long(), self.asked(asked_BD))
        return evidence(x_AD, asked_AH, self.first.weight, self.second.weight)

    def answers(self, x_AD: Tensor, asked_BD: Tensor, reached: Reach) -> Tensor:
        """Returns (B, E) scores of every entity, 0 where no state arrived."""
        layers = self.first.weight, self.second.weight
        return answer_scores(x_AD, self.asked(asked_BD), *layers, reached)


class Bridge(nn.Module):
    """Scores all entities as answers to (entity, kind) queries: kind r for tails, r + R for heads.

    Also scores all relations between pairs of entities, if it has a relation head.
    """

    def __init__(
        self, n_relations: int, dim: int, n_hops: int, *, link: bool = True, relation: bool = False
    ) -> None:
        super().__init__()
        kinds = 2 * n_relations
        self.asked = nn.Embedding(kinds + relation, dim)  # the last one: relation queries
        self.relations = nn.Parameter(torch.randn(kinds, dim))
        self.rounds = nn.ModuleList(Round(kinds, dim) for _ in range(n_hops))
        self.link_head = Evidence(dim, 1) if link else None
        self.relation_head = Evidence(dim, n_relations) if relation else None

    def reach(
        self, edges: Edges, keep_M: Tensor, sources_B: Tensor, targets_B: Tensor | None = None
    ) -> Reach:
        """Finds the entities that queries reach; with targets, only those on paths to them."""
        if targets_B is None:
            return reach(edges, sources_B, len(self.rounds), keep_M)
        return between(edges, sources_B, targets_B, len(self.rounds), keep_M)

    def states(
        self,
        edges: Edges,
        keep_M: Tensor,
        sources_B: Tensor,
        kinds_B: Tensor,
        targets_B: Tensor | None = None,
        reached: Reach | None = None,
        traces: list[Trace] | None = None,
    ) -> tuple[Reach, Tensor]:
        """Returns the reached rows of (query, entity) and their final states.

        With targets, computes only rows on paths to them. `reached` may be passed in, and `traces`
        collects a record per hop.
        """
        asked_BD = self.asked(kinds_B)
        if reached is None:
            reached = self.reach(edges, keep_M, sources_B, targets_B)
        x_AD = asked_BD
        for hop, size in zip(self.rounds, reached.sizes[1:], strict=True):
            assert isinstance(hop, Round)
            weights_BRD = hop.weights(asked_BD, self.relations)
            arrived_AD = propagate(x_AD, weights_BRD, edges, keep_M, reached, size)
            if traces is not None:
                traces.append(Trace(x_AD, weights_BRD, arrived_AD))
            x_AD = hop(x_AD, arrived_AD)
        return reached, x_AD

    def links(
        self,
        edges: Edges,
        keep_M: Tensor,
        sources_B: Tensor,
        kinds_B: Tensor,
        reached: Reach | None = None,
    ) -> Tensor:
        """Returns (B, E) scores of all entities as answers, 0 without a path."""
        assert self.link_head is not None
        reached, x_AD = self.states(edges, keep_M, sources_B, kinds_B, reached=reached)
        return self.link_head.answers(x_AD, self.asked(kinds_B), reached)

    def pairs(
        self,
        edges: Edges,
        keep_M: Tensor,
        heads_B: Tensor,
        tails_B: Tensor,
        reached: Reach | None = None,
    ) -> Tensor:
        """Returns (B, R) scores of all relations between heads and tails, 0 without a path."""
        assert self.relation_head is not None
        kinds_B = torch.full_like(heads_B, len(self.relations))
        reached, x_AD = self.states(edges, keep_M, heads_B, kinds_B, tails_B, reached)
        rows_B = reached.row_BE.gather(1, tails_B[:, None])[:, 0].long()
        x_BD = x_AD[rows_B.clamp(min=0)] * (rows_B >= 0)[:, None]
        rows = torch.arange(len(heads_B), device=heads_B.device)
        scores_BR: Tensor = self.relation_head(x_BD, self.asked(kinds_B), rows)
        return scores_BR
