"""The GPU twin of `known.Lists.close` in Triton: no wait for the number of answers."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

BLOCK = 128


@triton.jit
def _close(open_, starts, sizes, codes, n_values, BLOCK: tl.constexpr):
    """One row: False at each of its listed values."""
    row = tl.program_id(0).to(tl.int64)
    start, size = tl.load(starts + row), tl.load(sizes + row)
    for first in range(0, size, BLOCK):
        k = first + tl.arange(0, BLOCK)
        value = tl.load(codes + start + k, mask=k < size, other=0) % n_values
        tl.store(open_ + row * n_values + value, False, mask=k < size)


def close(
    open_BV: Tensor, starts_B: Tensor, sizes_B: Tensor, codes_V1: Tensor, n_values: int
) -> None:
    _close[(len(open_BV),)](open_BV, starts_B, sizes_B, codes_V1, n_values, BLOCK=BLOCK)
