"""Bridges: what the paths between two entities say, for every answer to a question at once.

From the entity that a question names, a small state spreads along all edges, hop by hop, in the
light of what is asked. Where it arrives is evidence for that entity as an answer; where no path
leads there is none. No entity has parameters, so unseen ones are answers like any other.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pathe.propagation import Edges, Reach, propagate, reach


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

    def forward(self, x_AD: Tensor, start_AD: Tensor, arrived_AD: Tensor) -> Tensor:
        """The states after this hop; what is nothing stays nothing."""
        size_A1 = arrived_AD.square().mean(-1, keepdim=True).add(1e-12).sqrt()
        arrived_AD = arrived_AD * (size_A1.log1p() / size_A1) + start_AD
        return x_AD + F.relu(self.take(torch.cat([x_AD, arrived_AD], -1)))


class Bridge(nn.Module):
    """Scores of all entities as answers to (entity, kind): r for tails, r + R for heads."""

    def __init__(self, n_relations: int, dim: int = 32, n_hops: int = 4, hidden: int = 64) -> None:
        super().__init__()
        self.n_relations, self.dim = n_relations, dim
        self.asked = nn.Embedding(2 * n_relations, dim)
        self.relations = nn.Parameter(torch.randn(2 * n_relations, dim))
        self.rounds = nn.ModuleList(Round(2 * n_relations, dim) for _ in range(n_hops))
        self.first = nn.Linear(dim, hidden, bias=False)
        self.of_asked = nn.Linear(dim, hidden)
        self.second = nn.Linear(hidden, 1, bias=False)

    def states(
        self, edges: Edges, keep_M: Tensor, sources_B: Tensor, kinds_B: Tensor
    ) -> tuple[Reach, Tensor]:
        """What has arrived at every (question, entity) that is reached, a row each."""
        asked_BD = self.asked(kinds_B)
        reached = reach(edges, sources_B, len(self.rounds), keep_M)
        x_AD = asked_BD
        for hop, size in zip(self.rounds, reached.sizes[1:], strict=True):
            assert isinstance(hop, Round)
            weights_BRD = hop.weights(asked_BD, self.relations)
            arrived_AD = propagate(x_AD, weights_BRD, edges, keep_M, reached, size)
            x_AD = F.pad(x_AD, (0, 0, 0, size - len(x_AD)))
            x_AD = hop(x_AD, F.pad(asked_BD, (0, 0, 0, size - len(asked_BD))), arrived_AD)
        return reached, x_AD

    def forward(self, edges: Edges, keep_M: Tensor, sources_B: Tensor, kinds_B: Tensor) -> Tensor:
        """(B, E): scores; 0 where no path leads."""
        reached, x_AD = self.states(edges, keep_M, sources_B, kinds_B)
        asked_BH = self.of_asked(self.asked(kinds_B))
        asked_AH = F.embedding(reached.questions_A.long(), asked_BH)
        found_AH = F.relu(self.first(x_AD) + asked_AH) - F.relu(asked_AH)
        scores_A = self.second(found_AH).squeeze(-1)
        b, n = reached.row_BE.shape
        places_A = reached.questions_A.long() * n + reached.entities_A
        scores_BE: Tensor = scores_A.new_zeros(b * n).index_put((places_A,), scores_A).view(b, n)
        return scores_BE
