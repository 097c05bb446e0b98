"""Numba kernel of `graph.known.Lists.listed`: a binary search within each row's own list."""

from __future__ import annotations

from typing import Any

import torch
from numba import njit, prange
from torch import Tensor


@njit(parallel=True, nogil=True, cache=True)
def _listed(starts: Any, sizes: Any, codes: Any, n_values: int, values: Any, out: Any) -> None:
    for b in prange(out.shape[0]):
        if sizes[b] == 0:
            continue
        row = values[b % values.shape[0]]
        base = codes[starts[b]] // n_values * n_values
        for n in range(out.shape[1]):
            wanted = base + row[n]
            low, high = starts[b], starts[b] + sizes[b]
            while low < high:
                middle = (low + high) // 2
                if codes[middle] < wanted:
                    low = middle + 1
                else:
                    high = middle
            out[b, n] = low < starts[b] + sizes[b] and codes[low] == wanted


def listed(
    starts_B: Tensor, sizes_B: Tensor, codes_V1: Tensor, n_values: int, values_BN: Tensor
) -> Tensor:
    """Whether values (1 x N, shared by all rows, or B x N) are in each row's list, as (B, N)."""
    out_BN = torch.zeros(len(starts_B), values_BN.shape[1], dtype=torch.bool)
    _listed(
        starts_B.numpy(), sizes_B.numpy(), codes_V1.numpy(), n_values,
        values_BN.contiguous().numpy(), out_BN.numpy(),
    )  # fmt: skip
    return out_BN
