"""Filtered negative sampling: replaces heads or tails such that no known triple results."""

from __future__ import annotations

import torch
from torch import Tensor

from pathe.core.randomness import below, draw, keyed
from pathe.core.types import Side
from pathe.graph.known import KnownTriples

NEGATIVES = 0x6E6567  # a key: makes these draws independent of the walks' under the same seed
ROUNDS = 8  # draws per negative at most; one that is still a known triple is masked


def corrupt(
    known: KnownTriples,
    triples_B3: Tensor,
    side: Side,
    pool_C: Tensor,
    n_negatives: int,
    *,
    seed: int | Tensor,
    rows_B: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Draws n entities from the pool for each triple's head or tail.

    Draws depend on the triples' rows, which are their places here unless given.

    Returns (negatives_BN, mask_BN). Draws are uniform over the pool without the known answers: a
    known answer is drawn again, up to ROUNDS times, and finally masked (False).
    """
    if rows_B is None:
        rows_B = torch.arange(len(triples_B3), device=triples_B3.device)
    cells_BN = torch.arange(n_negatives, device=triples_B3.device)
    states_BN = keyed(seed, NEGATIVES, rows_B[:, None], cells_BN, int(side == "head"))
    negatives_BN = pool_C[below(draw(states_BN, 0), len(pool_C))].long()
    true_BN = is_known(known, triples_B3, side, negatives_BN)
    for turn in range(1, ROUNDS):
        fresh_BN = pool_C[below(draw(states_BN, turn), len(pool_C))].long()
        negatives_BN = torch.where(true_BN, fresh_BN, negatives_BN)
        true_BN = is_known(known, triples_B3, side, negatives_BN)
        if not true_BN.is_cuda and not true_BN.any():
            break
    return negatives_BN, ~true_BN


def shared(pool_C: Tensor, n_negatives: int, side: Side, *, seed: int | Tensor) -> Tensor:
    """Draws n entities from the pool with replacement, as negatives shared by a batch."""
    numbers_N = torch.arange(n_negatives, device=pool_C.device)
    states_N = keyed(seed, NEGATIVES, numbers_N, int(side == "head"))
    return pool_C[below(draw(states_N, 0), len(pool_C))].long()


def is_known(known: KnownTriples, triples_B3: Tensor, side: Side, entities: Tensor) -> Tensor:
    """Whether entities (N, or B x N) are known answers on one side of each triple."""
    lists, keys_B = known.answers(triples_B3, side)
    return lists.listed(keys_B, entities)
