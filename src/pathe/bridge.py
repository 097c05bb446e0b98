"""Bridges: what the paths between two entities say, for every answer to a question at once.

From the entity that a question names, a small state spreads along all edges, hop by hop, in the
light of what is asked. Where it arrives is evidence for that entity as an answer; where no path
leads there is none. No entity has parameters, so unseen ones are answers like any other.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pathe.propagation import Edges, Reach, between, propagate, reach
from pathe.states import answer_scores, evidence, settle


class Round(nn.Module):
    """One hop: edges carry states on, entities take in what arrives."""

    def __init__(self, n_kinds: int, dim: int) -> None:
        super().__init__()
        self.relations = nn.Parameter(torch.randn(n_kinds, dim))
        self.asked, self.carried = nn.Linear(dim, dim), nn.Linear(dim, dim, bias=False)
        self.mixed = nn.Linear(dim, dim, bias=False)
        self.take = nn.Linear(2 * dim, dim, bias=False)

    def weights(self, asked_BD: Tensor, relations_RD: Tensor) -> Tensor:
        """(B, 2 R, D): what each relation does to a state, given what is asked."""
        mixed = F.relu(self.asked(asked_BD)[:, None] + self.carried(relations_RD))
        weights: Tensor = self.relations + self.mixed(mixed)
        return weights

    def forward(self, x_AD: Tensor, arrived_OD: Tensor) -> Tensor:
        """The states after this hop; what is nothing stays nothing."""
        return settle(x_AD, arrived_OD, self.take.weight)


@dataclass(frozen=True)
class Trace:
    """What a hop did: states before it, weights of the relations, what arrived."""

    x_AD: Tensor
    weights_BRD: Tensor
    arrived_AD: Tensor


class Evidence(nn.Module):
    """States -> scores, in the light of what is asked; nothing scores nothing."""

    def __init__(self, dim: int, n_scores: int) -> None:
        super().__init__()
        self.first, self.asked = nn.Linear(dim, 2 * dim, bias=False), nn.Linear(dim, 2 * dim)
        self.second = nn.Linear(2 * dim, n_scores, bias=False)

    def forward(self, x_AD: Tensor, asked_BD: Tensor, questions_A: Tensor) -> Tensor:
        """(A, n_scores) of rows that belong to questions."""
        asked_AH = F.embedding(questions_A.long(), self.asked(asked_BD))
        return evidence(x_AD, asked_AH, self.first.weight, self.second.weight)

    def answers(self, x_AD: Tensor, asked_BD: Tensor, reached: Reach) -> Tensor:
        """(B, E): the one score of every entity, 0 where nothing arrived."""
        layers = self.first.weight, self.second.weight
        return answer_scores(x_AD, self.asked(asked_BD), *layers, reached)


class Bridge(nn.Module):
    """Scores of all entities as answers to (entity, kind): r for tails, r + R for heads."""

    def __init__(
        self, n_relations: int, dim: int, n_hops: int, *, link: bool = True, relation: bool = False
    ) -> None:
        super().__init__()
        kinds = 2 * n_relations
        self.asked = nn.Embedding(kinds + relation, dim)  # the last one asks for the relation
        self.relations = nn.Parameter(torch.randn(kinds, dim))
        self.rounds = nn.ModuleList(Round(kinds, dim) for _ in range(n_hops))
        self.link_head = Evidence(dim, 1) if link else None
        self.relation_head = Evidence(dim, n_relations) if relation else None

    def reach(
        self, edges: Edges, keep_M: Tensor, sources_B: Tensor, targets_B: Tensor | None = None
    ) -> Reach:
        """What questions reach in all hops; with targets, of that what lies between."""
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
        """What has arrived at every (question, entity) that is reached, a row each.

        With targets, only what may arrive there is looked at; what is `reached` may be given. Each
        hop leaves its trace in the list, if there is one.
        """
        asked_BD = self.asked(kinds_B)
        if reached is None:
            reached = self.reach(edges, keep_M, sources_B, targets_B)
        x_AD = asked_BD
        for hop, size in zip(self.rounds, reached.sizes[1:], strict=True):
            assert isinstance(hop, Round)
            weights_BRD = hop.weights(asked_BD, self.relations)
            if edges.each != 1:
                weights_BRD = weights_BRD * edges.each
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
        """(B, E): scores of all entities as answers; 0 where no path leads."""
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
        """(B, R): scores of all relations between heads and tails; 0 where no path leads."""
        assert self.relation_head is not None
        kinds_B = torch.full_like(heads_B, len(self.relations))
        reached, x_AD = self.states(edges, keep_M, heads_B, kinds_B, tails_B, reached)
        rows_B = reached.row_BE.gather(1, tails_B[:, None])[:, 0].long()
        x_BD = x_AD[rows_B.clamp(min=0)] * (rows_B >= 0)[:, None]
        rows = torch.arange(len(heads_B), device=heads_B.device)
        scores_BR: Tensor = self.relation_head(x_BD, self.asked(kinds_B), rows)
        return scores_BR
