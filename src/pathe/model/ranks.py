"""Turns scores into ranks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True)
class Ranks:
    """Ranks of true answers from 1, before all ties (optimistic) and after them (pessimistic)."""

    optimistic_B: Tensor
    pessimistic_B: Tensor
    candidates_B: Tensor  # candidates ranked, including the true one

    @cached_property
    def realistic_B(self) -> Tensor:
        """The mean of both: the expected rank if ties are ordered randomly."""
        return (self.optimistic_B + self.pessimistic_B).double() / 2

    def __len__(self) -> int:
        return len(self.optimistic_B)

    def __getitem__(self, rows: Tensor) -> Ranks:
        return Ranks(self.optimistic_B[rows], self.pessimistic_B[rows], self.candidates_B[rows])


def join(ranks: list[Ranks]) -> Ranks:
    """Concatenates ranks."""
    return Ranks(
        torch.cat([r.optimistic_B for r in ranks]),
        torch.cat([r.pessimistic_B for r in ranks]),
        torch.cat([r.candidates_B for r in ranks]),
    )


def rank(scores_BC: Tensor, true_B: Tensor, excluded: tuple[Tensor, Tensor] | None = None) -> Ranks:
    """Ranks column true_B of each row; `excluded` (row, column) pairs don't compete.

    The true column may be excluded too; it is ranked all the same.
    """
    own_B1 = scores_BC.gather(1, true_B[:, None])
    open_BC = torch.ones_like(scores_BC, dtype=torch.bool)
    if excluded is not None:
        open_BC[excluded] = False
    open_BC.scatter_(1, true_B[:, None], False)
    # NaN never helps: a true answer with NaN ranks last, other candidates with NaN rank first
    better_BC = ~(scores_BC <= own_B1)
    return Ranks(
        1 + (better_BC & open_BC).sum(1),
        1 + ((better_BC | (scores_BC == own_B1)) & open_BC).sum(1),
        1 + open_BC.sum(1),
    )
