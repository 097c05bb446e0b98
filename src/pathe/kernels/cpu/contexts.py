"""Numba kernel of `model.context_head`: scores of all entities without a vector for each."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, prange
from torch import Tensor

from pathe.kernels.cpu.rows import arrays

_FAST = {"contract", "reassoc", "nsz", "arcp"}
BLOCK = 4096  # entities per task


@njit(parallel=True, nogil=True, cache=True, fastmath=_FAST)
def _scores(
    starts: Any, kinds: Any, shares: Any, sums: Any, degrees: Any, given: Any, counts: Any,
    kind: int, queries: Any, second: Any, out: Any,
) -> None:  # fmt: skip
    n, width = len(sums), given.shape[1]
    for block in prange((n + BLOCK - 1) // BLOCK):
        own = np.empty(width, np.float32)
        for e in range(block * BLOCK, min((block + 1) * BLOCK, n)):
            for h in range(width):
                own[h] = counts[1, h] * degrees[e]
            for p in range(starts[e], starts[e + 1] if e + 1 < n else len(kinds)):
                share, row = shares[p], given[kinds[p]]
                for h in range(width):
                    own[h] += share * row[h]
                if kinds[p] == kind:
                    for h in range(width):
                        own[h] += share * sums[e] * counts[0, h]
            for b in range(len(queries)):
                total = np.float32(0.0)
                for h in range(width):
                    total += max(own[h] + queries[b, h], np.float32(0.0)) * second[h]
                out[b, e] = total


def scores(
    contexts: Any, given_KH: Tensor, counts_H2: Tensor, kind: int, query_BH: Tensor,
    second_H: Tensor,
) -> Tensor:  # fmt: skip
    """Returns (B, E) scores of all entities as answers to queries of one kind."""
    out_BE = query_BH.new_empty(len(query_BH), len(contexts.sums_E))
    counts_2H = counts_H2.detach().T.contiguous()
    _scores(  # type: ignore[call-arg]
        *arrays(contexts.starts_E, contexts.kinds_P, contexts.shares_P, contexts.sums_E),
        *arrays(contexts.degrees_E, given_KH.contiguous(), counts_2H),
        kind,
        *arrays(query_BH.contiguous(), second_H.contiguous(), out_BE),
    )
    return out_BE
