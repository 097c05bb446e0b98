"""Triton kernels of `model.states`: each row is read once, each program has its own partial sums.

The backward pass recomputes activations instead of storing them. There are no atomic sums, so
results are deterministic.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS = 64  # per block
LARGE = {"ROWS": 128, "num_warps": 8}  # blocks of `update_backward`, with Hopper's shared memory
PROGRAMS = 264  # that share the rows for sums over all rows
PARTS = 8  # programs that share the rows of one query


@triton.jit
def _relu(x):
    """Computes a relu that keeps NaN, so that training notices it."""
    return tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _size(a, D: tl.constexpr):
    """Returns the RMS size of each row and log1p(size) / size, accurate near 0."""
    size = tl.sqrt(tl.sum(a * a, 1) / D + 1e-12)
    more = 1.0 + size
    return size, tl.where(more == 1.0, 1.0, tl.log(more) / tl.where(more == 1.0, 1.0, more - 1.0))


@triton.jit(do_not_specialize=["n_before", "n_rows"])
def _update(x, arrived, take, out, n_before, n_rows, D: tl.constexpr, ROWS: tl.constexpr):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    d, o = tl.arange(0, D), tl.arange(0, D)
    at = rows[:, None] * D + d
    live = (rows < n_rows)[:, None]
    x_d = tl.load(x + at, mask=(rows < n_before)[:, None], other=0.0)
    a_d = tl.load(arrived + at, mask=live, other=0.0)
    _, share = _size(a_d, D)
    from_x = tl.load(take + o[None, :] * 2 * D + d[:, None])
    from_a = tl.load(take + o[None, :] * 2 * D + D + d[:, None])
    linear = tl.dot(x_d, from_x, input_precision="tf32x3")
    linear += tl.dot(a_d * share[:, None], from_a, input_precision="tf32x3")
    tl.store(out + at, x_d + _relu(linear), mask=live)


@triton.jit(do_not_specialize=["n_before", "n_rows", "n_programs"])
def _update_backward(
    x, arrived, take, grad, grad_x, grad_a, sums, n_before, n_rows, n_programs,
    D: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    d, o = tl.arange(0, D), tl.arange(0, D)
    from_x = tl.load(take + o[None, :] * 2 * D + d[:, None])
    from_a = tl.load(take + o[None, :] * 2 * D + D + d[:, None])
    to_x = tl.load(take + o[:, None] * 2 * D + d[None, :])
    to_a = tl.load(take + o[:, None] * 2 * D + D + d[None, :])
    sum_x = tl.zeros([D, D], tl.float32)
    sum_a = tl.zeros([D, D], tl.float32)
    block = tl.program_id(0).to(tl.int64)
    while block * ROWS < n_rows:
        rows = block * ROWS + tl.arange(0, ROWS)
        at = rows[:, None] * D + d
        live, before = (rows < n_rows)[:, None], (rows < n_before)[:, None]
        x_d = tl.load(x + at, mask=before, other=0.0)
        a_d = tl.load(arrived + at, mask=live, other=0.0)
        g_o = tl.load(grad + at, mask=live, other=0.0)
        size, share = _size(a_d, D)
        y_d = a_d * share[:, None]
        linear = tl.dot(x_d, from_x, input_precision="tf32x3")  # its signs are the forward pass's
        linear += tl.dot(y_d, from_a, input_precision="tf32x3")
        g_linear = tl.where(linear > 0.0, g_o, 0.0)
        g_y = tl.dot(g_linear, to_a, input_precision="tf32")
        radial = tl.sum(g_y * a_d, 1) * (1.0 / (1.0 + size) - share) / (size * size * D)
        tl.store(grad_a + at, g_y * share[:, None] + a_d * radial[:, None], mask=live)
        g_x = g_o + tl.dot(g_linear, to_x, input_precision="tf32")
        tl.store(grad_x + at, g_x, mask=before)
        sum_x += tl.dot(tl.trans(g_linear), x_d, input_precision="tf32")
        sum_a += tl.dot(tl.trans(g_linear), y_d, input_precision="tf32")
        block += n_programs
    out = sums + tl.program_id(0) * 2 * D * D + o[:, None] * 2 * D + d[None, :]
    tl.store(out, sum_x)
    tl.store(out + D, sum_a)


@triton.jit
def _answer_scores(
    x, asked, first, second, entities, order, starts, out, n_entities,
    D: tl.constexpr, H: tl.constexpr, ROWS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(1).to(tl.int64)
    d, h = tl.arange(0, D), tl.arange(0, H)
    first_dh = tl.load(first + h[None, :] * D + d[:, None])
    asked_h, second_h = tl.load(asked + b * H + h)[None, :], tl.load(second + h)[None, :]
    start, end = tl.load(starts + b) + tl.program_id(0) * ROWS, tl.load(starts + b + 1)
    while start < end:
        i = start + tl.arange(0, ROWS)
        live = i < end
        rows = tl.load(order + i, mask=live, other=0).to(tl.int64)
        e = tl.load(entities + rows, mask=live, other=0)
        x_d = tl.load(x + rows[:, None] * D + d, mask=live[:, None], other=0.0)
        hidden = tl.dot(x_d, first_dh, input_precision="tf32x3") + asked_h
        scores = tl.sum((_relu(hidden) - _relu(asked_h)) * second_h, 1)
        tl.store(out + b * n_entities + e, scores, mask=live)
        start += ROWS * PARTS


@triton.jit
def _answer_scores_backward(
    x, asked, first, second, entities, order, starts, grad, grad_x, sum_first, sum_second,
    sum_asked, n_entities,
    D: tl.constexpr, H: tl.constexpr, ROWS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(1).to(tl.int64)
    d, h = tl.arange(0, D), tl.arange(0, H)
    first_dh = tl.load(first + h[None, :] * D + d[:, None])
    first_hd = tl.load(first + h[:, None] * D + d[None, :])
    asked_h, second_h = tl.load(asked + b * H + h)[None, :], tl.load(second + h)[None, :]
    g_first = tl.zeros([H, D], tl.float32)
    g_second = tl.zeros([H], tl.float32)
    g_asked = tl.zeros([H], tl.float32)
    start, end = tl.load(starts + b) + tl.program_id(0) * ROWS, tl.load(starts + b + 1)
    while start < end:
        i = start + tl.arange(0, ROWS)
        live = i < end
        rows = tl.load(order + i, mask=live, other=0).to(tl.int64)
        e = tl.load(entities + rows, mask=live, other=0)
        g = tl.load(grad + b * n_entities + e, mask=live, other=0.0)[:, None]
        at = rows[:, None] * D + d
        x_d = tl.load(x + at, mask=live[:, None], other=0.0)
        hidden = tl.dot(x_d, first_dh, input_precision="tf32x3") + asked_h
        g_hidden = tl.where(hidden > 0.0, g * second_h, 0.0)
        g_x = tl.dot(g_hidden, first_hd, input_precision="tf32")
        tl.store(grad_x + at, g_x, mask=live[:, None])
        g_first += tl.dot(tl.trans(g_hidden), x_d, input_precision="tf32")
        g_second += tl.sum(g * (_relu(hidden) - _relu(asked_h)), 0)
        g_asked += tl.sum(g_hidden - tl.where(asked_h > 0.0, g * second_h, 0.0), 0)
        start += ROWS * PARTS
    part = b * PARTS + tl.program_id(0)
    tl.store(sum_first + part * H * D + h[:, None] * D + d[None, :], g_first)
    tl.store(sum_second + part * H + h, g_second)
    tl.store(sum_asked + part * H + h, g_asked)


def update(x_AD: Tensor, arrived_OD: Tensor, take_DK: Tensor) -> Tensor:
    """Returns the states after a hop."""
    out_OD = arrived_OD.new_empty(arrived_OD.shape)
    n, d = arrived_OD.shape
    if n:
        sizes = {"n_before": len(x_AD), "n_rows": n, "D": d, "ROWS": ROWS}
        _update[(triton.cdiv(n, ROWS),)](x_AD, arrived_OD, take_DK, out_OD, **sizes)
    return out_OD


def update_backward(
    x_AD: Tensor, arrived_OD: Tensor, take_DK: Tensor, grad_OD: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the gradients of states, messages and weights."""
    n, d = arrived_OD.shape
    n_programs = PROGRAMS  # for any number of rows, so that padding rows don't change the sums
    grad_x, grad_a = x_AD.new_empty(x_AD.shape), arrived_OD.new_empty(arrived_OD.shape)
    sums = x_AD.new_empty(n_programs, d, 2 * d)
    is_large = torch.cuda.get_device_capability(x_AD.device) >= (9, 0)
    _update_backward[(n_programs,)](
        x_AD, arrived_OD, take_DK, grad_OD, grad_x, grad_a, sums, len(x_AD), n, n_programs,
        D=d, **(LARGE if is_large else {"ROWS": ROWS}),
    )  # fmt: skip
    return grad_x, grad_a, sums.sum(0)


def answer_scores(
    x_AD: Tensor, asked_BH: Tensor, first_HD: Tensor, second_1H: Tensor, reached: Any
) -> Tensor:
    """Returns (B, E) scores of each entity as an answer, from its state."""
    b, n = reached.shape
    out_BE = x_AD.new_zeros(b, n)
    if b and n:
        rows = reached.entities_A, reached.order_A, reached.starts_B1
        sizes = {"D": x_AD.shape[1], "H": asked_BH.shape[1], "ROWS": ROWS, "PARTS": PARTS}
        parts = x_AD, asked_BH, first_HD, second_1H, *rows, out_BE, n
        _answer_scores[(PARTS, b)](*parts, **sizes)
    return out_BE


def answer_scores_backward(
    x_AD: Tensor, asked_BH: Tensor, first_HD: Tensor, second_1H: Tensor, reached: Any,
    grad_BE: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Returns the gradients of states, of the query's part and of both layers."""
    (b, n), d, h = reached.shape, x_AD.shape[1], asked_BH.shape[1]
    grad_x = torch.zeros_like(x_AD)
    first, second = x_AD.new_empty(b, PARTS, h, d), x_AD.new_empty(b, PARTS, h)
    asked = x_AD.new_empty(b, PARTS, h)
    if b and n:
        rows = reached.entities_A, reached.order_A, reached.starts_B1
        _answer_scores_backward[(PARTS, b)](
            x_AD, asked_BH, first_HD, second_1H, *rows, grad_BE, grad_x, first, second, asked, n,
            D=d, H=h, ROWS=ROWS, PARTS=PARTS,
        )  # fmt: skip
    return grad_x, asked.sum(1), first.sum((0, 1)), second.sum((0, 1))[None]
