"""Triton kernel of `graph.known.Lists.close`, which needs no GPU synchronisation."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

BLOCK = 128


@triton.jit
def _close(open_, starts, sizes, codes, width, stride, BLOCK: tl.constexpr):
    """Sets one row's flags of listed values to False."""
    row = tl.program_id(0).to(tl.int64)
    start, size = tl.load(starts + row), tl.load(sizes + row)
    for first in range(0, size, BLOCK):
        k = first + tl.arange(0, BLOCK)
        value = tl.load(codes + start + k, mask=k < size, other=0) % stride
        tl.store(open_ + row * width + value, False, mask=k < size)


def close(
    open_BV: Tensor, starts_B: Tensor, sizes_B: Tensor, codes_V1: Tensor, stride: int
) -> None:
    """Sets the flags of listed values to False, in place."""
    b, width = open_BV.shape
    _close[(b,)](open_BV, starts_B, sizes_B, codes_V1, width, stride, BLOCK=BLOCK)
