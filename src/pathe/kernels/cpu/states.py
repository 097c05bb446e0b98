"""Numba kernels of `model.states`: each row stays in the cache until it is done.

Sums over rows have a fixed number of parts, so results don't depend on the number of threads.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

from pathe.kernels.cpu.rows import arrays

PARTS = 16  # parts of the rows, or of a query's entities
ROWS = 8192  # rows per matrix product
_FAST = {"contract", "reassoc", "nsz", "arcp"}


@njit(nogil=True, cache=True, fastmath=_FAST)
def _add(out: Any, row: Any, times: Any) -> None:
    for i in range(out.shape[0]):
        out[i] += times * row[i]


@njit(nogil=True, cache=True, fastmath=_FAST)
def _size(a: Any) -> Any:
    total = a.dtype.type(0.0)
    for i in range(a.shape[0]):
        total += a[i] * a[i]
    return math.sqrt(total / a.shape[0] + 1e-12)


@njit(nogil=True, cache=True, fastmath=_FAST)
def _linear(x: Any, a: Any, share: Any, take: Any, out: Any) -> None:
    """Computes a row's update before the relu; take is transposed: (2 D, D)."""
    size = a.shape[0]
    out[:] = 0.0
    for d in range(x.shape[0]):
        if x[d] != 0.0:
            _add(out, take[d], x[d])
    for d in range(size):
        if a[d] != 0.0:
            _add(out, take[size + d], a[d] * share)


@njit(parallel=True, nogil=True, cache=True, fastmath=_FAST)
def _update_backward(
    x: Any, arrived: Any, take: Any, grad: Any, back: Any, grad_x: Any, grad_a: Any, sums: Any
) -> None:
    """Fills the gradients; take is transposed, (2 D, D), and back is not, (D, 2 D)."""
    n, size = arrived.shape
    for p in prange(PARTS):
        linear, grad_in = np.empty(size, x.dtype), np.empty(2 * size, x.dtype)
        for i in range(n * p // PARTS, n * (p + 1) // PARTS):
            before, a = x[i] if i < len(x) else x[0, :0], arrived[i]
            root = _size(a)
            share = x.dtype.type(math.log1p(root) / root)
            _linear(before, a, share, take, linear)
            grad_in[:] = 0.0
            for o in range(size):
                if linear[o] > 0.0 and grad[i, o] != 0.0:
                    _add(grad_in, back[o], grad[i, o])
                    _add(sums[p, o, : len(before)], before, grad[i, o])
                    _add(sums[p, o, size:], a, grad[i, o] * share)
            dot = x.dtype.type(0.0)
            for d in range(size):
                dot += grad_in[size + d] * a[d]
            radial = dot * (1.0 / (1.0 + root) - share) / (root * root * size)
            for d in range(size):
                grad_a[i, d] = grad_in[size + d] * share + a[d] * radial
            for d in range(len(before)):
                grad_x[i, d] = grad[i, d] + grad_in[d]


@njit(nogil=True, cache=True, fastmath=_FAST)
def _hidden(x: Any, asked: Any, first: Any, out: Any) -> None:
    """Computes a row's hidden layer before the relu; first is transposed: (D, H)."""
    out[:] = asked
    for d in range(x.shape[0]):
        if x[d] != 0.0:
            _add(out, first[d], x[d])


@njit(parallel=True, nogil=True, cache=True, fastmath=_FAST)
def _answer_scores(x: Any, asked: Any, first: Any, second: Any, row: Any, out: Any) -> None:
    n_queries, n = row.shape
    for p in prange(n_queries * PARTS):
        b, part = p // PARTS, p % PARTS
        hidden = np.empty(asked.shape[1], x.dtype)
        for e in range(n * part // PARTS, n * (part + 1) // PARTS):
            score = x.dtype.type(0.0)
            if row[b, e] >= 0:
                _hidden(x[row[b, e]], asked[b], first, hidden)
                for h in range(len(hidden)):
                    score += second[0, h] * (max(hidden[h], 0.0) - max(asked[b, h], 0.0))
            out[b, e] = score


@njit(parallel=True, nogil=True, cache=True, fastmath=_FAST)
def _answer_scores_backward(
    x: Any, asked: Any, first: Any, second: Any, row: Any, grad: Any, back: Any, grad_x: Any,
    sum_asked: Any, sum_first: Any, sum_second: Any,
) -> None:  # fmt: skip
    """Fills the gradients; first is transposed, (D, H), and back is not, (H, D)."""
    n_queries, n = row.shape
    for p in prange(n_queries):
        hidden = np.empty(asked.shape[1], x.dtype)
        for e in range(n):
            at = row[p, e]
            if at < 0:
                continue
            grad_x[at] = 0.0
            g = grad[p, e]
            if g == 0.0:
                continue
            _hidden(x[at], asked[p], first, hidden)
            for h in range(len(hidden)):
                sum_second[p, h] += g * (max(hidden[h], 0.0) - max(asked[p, h], 0.0))
                if asked[p, h] > 0.0:
                    sum_asked[p, h] -= g * second[0, h]
                if hidden[h] > 0.0:
                    sum_asked[p, h] += g * second[0, h]
                    _add(grad_x[at], back[h], g * second[0, h])
                    _add(sum_first[p, h], x[at], g * second[0, h])


def update(x_AD: Tensor, arrived_OD: Tensor, take_DK: Tensor) -> Tensor:
    """Returns the states after a hop, by matrix products of rows that fit the cache."""
    (n, d), from_x, from_a = arrived_OD.shape, *(part.T for part in take_DK.chunk(2, 1))
    out_OD = arrived_OD.new_empty(n, d)
    for first in range(0, n, ROWS):
        out_ND, a_ND = out_OD[first : first + ROWS], arrived_OD[first : first + ROWS]
        x_ND = x_AD[first : first + ROWS]  # rows beyond A were zero
        size_N1 = a_ND.square().mean(-1, keepdim=True).add_(1e-12).sqrt_()
        torch.mm(a_ND * (size_N1.log1p() / size_N1), from_a, out=out_ND)
        out_ND[: len(x_ND)].addmm_(x_ND, from_x)
        out_ND.relu_()[: len(x_ND)].add_(x_ND)
    return out_OD


def update_backward(
    x_AD: Tensor, arrived_OD: Tensor, take_DK: Tensor, grad_OD: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the gradients of states, messages and weights."""
    found = x_AD.new_empty(x_AD.shape), arrived_OD.new_empty(arrived_OD.shape)
    sums = x_AD.new_zeros(PARTS, *take_DK.shape)
    parts = x_AD, arrived_OD, take_DK.T.contiguous(), grad_OD, take_DK, *found, sums
    _update_backward(*arrays(*parts))
    return *found, sums.sum(0)


def answer_scores(
    x_AD: Tensor, asked_BH: Tensor, first_HD: Tensor, second_1H: Tensor, reached: Any
) -> Tensor:
    """Returns (B, E) scores of each entity as an answer, from its state."""
    out_BE = x_AD.new_empty(reached.row_BE.shape)
    parts = x_AD, asked_BH, first_HD.T.contiguous(), second_1H, reached.row_BE, out_BE
    _answer_scores(*arrays(*parts))
    return out_BE


def answer_scores_backward(
    x_AD: Tensor, asked_BH: Tensor, first_HD: Tensor, second_1H: Tensor, reached: Any,
    grad_BE: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Returns the gradients of states, of the query's part and of both layers."""
    b, h = asked_BH.shape
    grad_x, asked = torch.zeros_like(x_AD), x_AD.new_zeros(b, h)
    first, second = x_AD.new_zeros(b, *first_HD.shape), x_AD.new_zeros(b, h)
    parts = x_AD, asked_BH, first_HD.T.contiguous(), second_1H, reached.row_BE, grad_BE, first_HD
    _answer_scores_backward(*arrays(*parts, grad_x, asked, first, second))
    return grad_x, asked, first.sum(0), second.sum(0)[None]
