"""Numba kernel of `graph.relation_graph`: counts the groups that two kinds share."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

from pathe.kernels.cpu.rows import arrays


@njit(parallel=True, nogil=True, cache=True)
def _pairs(kinds: Any, starts: Any, counts: Any) -> None:
    n_threads, n_groups = len(counts), len(starts) - 1
    for thread in prange(n_threads):
        own = counts[thread]
        for group in range(thread, n_groups, n_threads):
            for i in range(starts[group], starts[group + 1]):
                row = own[kinds[i]]
                for j in range(starts[group], starts[group + 1]):
                    row[kinds[j]] += 1


def pairs(kinds_N: Tensor, sizes_G: Tensor, n_kinds: int) -> Tensor:
    """Returns (K, K): in how many groups two kinds occur together."""
    starts = torch.cat([sizes_G.new_zeros(1), sizes_G.cumsum(0)])
    n_threads = numba.get_num_threads()
    counts = np.zeros((n_threads, n_kinds, n_kinds), np.int64)
    _pairs(*arrays(kinds_N, starts), counts)  # type: ignore[call-arg]
    return torch.from_numpy(counts.sum(0))
