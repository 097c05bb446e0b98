"""The CPU twin of `states`: rows stay in the cache from beginning to end.

Sums over rows go by parts of a fixed number, so that they don't depend on the number of threads.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

from pathe.twins import ONE_AT_A_TIME

PARTS = 16  # of the rows, or of a question's entities
ROWS = 8192  # of a product
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
def _taken(x: Any, a: Any, share: Any, take: Any, out: Any) -> None:
    """What a row takes in, before the bend; take is (2 D, D) here."""
    size = a.shape[0]
    out[:] = 0.0
    for d in range(x.shape[0]):
        if x[d] != 0.0:
            _add(out, take[d], x[d])
    for d in range(size):
        if a[d] != 0.0:
            _add(out, take[size + d], a[d] * share)


@njit(parallel=True, nogil=True, cache=True, fastmath=_FAST)
def _settle_backward(
    x: Any, arrived: Any, take: Any, grad: Any, back: Any, grad_x: Any, grad_a: Any, sums: Any
) -> None:
    """`back` is take as it is: (D, 2 D)."""
    n, size = arrived.shape
    for p in prange(PARTS):
        taken, moved = np.empty(size, x.dtype), np.empty(2 * size, x.dtype)
        for i in range(n * p // PARTS, n * (p + 1) // PARTS):
            before, a = x[i] if i < len(x) else x[0, :0], arrived[i]
            root = _size(a)
            share = x.dtype.type(math.log1p(root) / root)
            _taken(before, a, share, take, taken)
            moved[:] = 0.0
            for o in range(size):
                if taken[o] > 0.0 and grad[i, o] != 0.0:
                    _add(moved, back[o], grad[i, o])
                    _add(sums[p, o, : len(before)], before, grad[i, o])
                    _add(sums[p, o, size:], a, grad[i, o] * share)
            along = x.dtype.type(0.0)
            for d in range(size):
                along += moved[size + d] * a[d]
            bent = along * (1.0 / (1.0 + root) - share) / (root * root * size)
            for d in range(size):
                grad_a[i, d] = moved[size + d] * share + a[d] * bent
            for d in range(len(before)):
                grad_x[i, d] = grad[i, d] + moved[d]


@njit(nogil=True, cache=True, fastmath=_FAST)
def _hidden(x: Any, asked: Any, first: Any, out: Any) -> None:
    """A row's hidden numbers before the bend; first is (D, H) here."""
    out[:] = asked
    for d in range(x.shape[0]):
        if x[d] != 0.0:
            _add(out, first[d], x[d])


@njit(parallel=True, nogil=True, cache=True, fastmath=_FAST)
def _answer_scores(x: Any, asked: Any, first: Any, second: Any, row: Any, out: Any) -> None:
    n_questions, n = row.shape
    for p in prange(n_questions * PARTS):
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
    """`back` is first as it is: (H, D)."""
    n_questions, n = row.shape
    for p in prange(n_questions):
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


def settle(x_AD: Tensor, arrived_OD: Tensor, take_DK: Tensor) -> Tensor:
    """The states after a hop: matrix products of a few rows at a time, which stay in a cache."""
    (n, d), from_x, from_a = arrived_OD.shape, *(part.T for part in take_DK.chunk(2, 1))
    out_OD = arrived_OD.new_empty(n, d)
    for first in range(0, n, ROWS):
        out_ND, a_ND = out_OD[first : first + ROWS], arrived_OD[first : first + ROWS]
        x_ND = x_AD[first : first + ROWS]  # rows beyond A were nothing before
        size_N1 = a_ND.square().mean(-1, keepdim=True).add_(1e-12).sqrt_()
        torch.mm(a_ND * (size_N1.log1p() / size_N1), from_a, out=out_ND)
        out_ND[: len(x_ND)].addmm_(x_ND, from_x)
        out_ND.relu_()[: len(x_ND)].add_(x_ND)
    return out_OD


def settle_backward(
    x_AD: Tensor, arrived_OD: Tensor, take_DK: Tensor, grad_OD: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of states, of what arrived and of the weights."""
    found = x_AD.new_empty(x_AD.shape), arrived_OD.new_empty(arrived_OD.shape)
    sums = x_AD.new_zeros(PARTS, *take_DK.shape)
    parts = x_AD, arrived_OD, take_DK.T.contiguous(), grad_OD, take_DK, *found, sums
    with ONE_AT_A_TIME:
        _settle_backward(*_arrays(*parts))
    return *found, sums.sum(0)


def answer_scores(
    x_AD: Tensor, asked_BH: Tensor, first_HD: Tensor, second_1H: Tensor, reached: Any
) -> Tensor:
    """What states say for each entity as an answer."""
    out_BE = x_AD.new_empty(reached.row_BE.shape)
    parts = x_AD, asked_BH, first_HD.T.contiguous(), second_1H, reached.row_BE, out_BE
    with ONE_AT_A_TIME:
        _answer_scores(*_arrays(*parts))
    return out_BE


def answer_scores_backward(
    x_AD: Tensor, asked_BH: Tensor, first_HD: Tensor, second_1H: Tensor, reached: Any,
    grad_BE: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of states, of what is asked and of both layers."""
    b, h = asked_BH.shape
    grad_x, asked = torch.zeros_like(x_AD), x_AD.new_zeros(b, h)
    first, second = x_AD.new_zeros(b, *first_HD.shape), x_AD.new_zeros(b, h)
    parts = x_AD, asked_BH, first_HD.T.contiguous(), second_1H, reached.row_BE, grad_BE, first_HD
    with ONE_AT_A_TIME:
        _answer_scores_backward(*_arrays(*parts, grad_x, asked, first, second))
    return grad_x, asked, first.sum(0), second.sum(0)[None]


def _arrays(*tensors: Tensor) -> list[Any]:
    return [tensor.detach().numpy() for tensor in tensors]
