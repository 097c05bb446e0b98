"""Scores -> ranks -> metrics. Knows no model and no graph."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

HITS = (1, 3, 5, 10)


@dataclass(frozen=True)
class Ranks:
    """Ranks of true answers from 1: above its ties (optimistic), below them (pessimistic)."""

    optimistic_B: Tensor
    pessimistic_B: Tensor
    candidates_B: Tensor  # answers ranked, the true one counted

    @property
    def realistic_B(self) -> Tensor:
        """Mean of both: what a random order of ties gives on average."""
        return (self.optimistic_B + self.pessimistic_B).double() / 2

    def __getitem__(self, rows: Tensor) -> Ranks:
        return Ranks(self.optimistic_B[rows], self.pessimistic_B[rows], self.candidates_B[rows])


def join(ranks: list[Ranks]) -> Ranks:
    """One after the other."""
    return Ranks(
        torch.cat([r.optimistic_B for r in ranks]),
        torch.cat([r.pessimistic_B for r in ranks]),
        torch.cat([r.candidates_B for r in ranks]),
    )


def rank(scores_BC: Tensor, true_B: Tensor, excluded: tuple[Tensor, Tensor] | None = None) -> Ranks:
    """Ranks column true_B of each row; `excluded` (row, column) pairs don't compete.

    The true column may be among the excluded: it keeps its own score.
    """
    own_B1 = scores_BC.gather(1, true_B[:, None])
    open_BC = torch.ones_like(scores_BC, dtype=torch.bool)
    if excluded is not None:
        open_BC[excluded] = False
    open_BC.scatter_(1, true_B[:, None], False)
    # A score that is no number never helps: a true one is beaten by all, a rival wins.
    better_BC = ~(scores_BC <= own_B1)
    return Ranks(
        1 + (better_BC & open_BC).sum(1),
        1 + ((better_BC | (scores_BC == own_B1)) & open_BC).sum(1),
        1 + open_BC.sum(1),
    )


def metrics(ranks: Ranks) -> dict[str, float]:
    """MRR, hits, mean rank and its chance-adjusted forms, from realistic ranks."""
    realistic = ranks.realistic_B
    if not len(realistic):
        return {"count": 0}
    mean = float(realistic.mean())
    chance = float((ranks.candidates_B.double() + 1).mean()) / 2
    return {
        "mrr": float((1 / realistic).mean()),
        **{f"hits_at_{k}": float((realistic <= k).double().mean()) for k in HITS},
        "mean_rank": mean,
        "adjusted_mean_rank": mean / chance,
        "adjusted_mean_rank_index": 1 - (mean - 1) / (chance - 1) if chance > 1 else 0.0,
        "count": len(realistic),
    }
