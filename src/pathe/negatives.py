"""Filtered corruptions: entities that make a training triple false as far as training knows."""

from __future__ import annotations

import torch
from torch import Tensor

from pathe.known import KnownTriples, Side
from pathe.randomness import below, draw, keyed

NEGATIVES = 0x6E6567  # keeps these draws apart from those of walks under the same seed
ROUNDS = 8  # draws at most for each negative; what is still true then is masked


def corrupt(
    known: KnownTriples,
    triples_B3: Tensor,
    side: Side,
    pool_C: Tensor,
    n_negatives: int,
    *,
    seed: int | Tensor,
) -> tuple[Tensor, Tensor]:
    """(negatives_BN, mask_BN): n entities of the pool in place of each triple's head or tail.

    Uniform over the pool less the known answers; drawn anew where a draw was one, and masked
    (False) in the rare case that ROUNDS draws all were.
    """
    n = len(triples_B3)
    rows_B = torch.arange(n, device=triples_B3.device)
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
    """n entities of the pool that serve a whole batch (with repeats, as draws are)."""
    numbers_N = torch.arange(n_negatives, device=pool_C.device)
    states_N = keyed(seed, NEGATIVES, numbers_N, int(side == "head"))
    return pool_C[below(draw(states_N, 0), len(pool_C))].long()


def is_known(known: KnownTriples, triples_B3: Tensor, side: Side, entities: Tensor) -> Tensor:
    """Whether each entity (N, or B x N) is a known answer on that side of each triple."""
    lists, keys_B = known.answers(triples_B3, side)
    return lists.listed(keys_B, entities)
