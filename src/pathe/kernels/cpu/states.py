"""CPU versions of `model.states`: matrix products of blocks of rows that stay in the cache."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

ROWS = 8192  # per block


def update(x_AD: Tensor, arrived_OD: Tensor, take_DK: Tensor) -> Tensor:
    """Returns the states after a hop."""
    from_x, from_a = (part.T for part in take_DK.chunk(2, 1))
    out_OD = arrived_OD.new_empty(arrived_OD.shape)
    for rows in _blocks(len(arrived_OD)):
        out_ND, a_ND = out_OD[rows], arrived_OD[rows]
        x_ND = x_AD[rows]  # rows beyond A were zero
        _, share_N1 = _size(a_ND)
        torch.mm(a_ND * share_N1, from_a, out=out_ND)
        out_ND[: len(x_ND)].addmm_(x_ND, from_x)
        out_ND.relu_()[: len(x_ND)].add_(x_ND)
    return out_OD


def update_backward(
    x_AD: Tensor, arrived_OD: Tensor, take_DK: Tensor, grad_OD: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the gradients of states, messages and weights; recomputes the activations."""
    (n, d), (from_x, from_a) = arrived_OD.shape, take_DK.chunk(2, 1)
    grad_x, grad_a, sums = (
        torch.empty_like(x_AD),
        torch.empty_like(arrived_OD),
        take_DK.new_zeros(d, 2 * d),
    )
    for rows in _blocks(n):
        a_ND, g_ND, x_ND = arrived_OD[rows], grad_OD[rows], x_AD[rows]
        m = len(x_ND)
        size_N1, share_N1 = _size(a_ND)
        y_ND = a_ND * share_N1
        linear_ND = y_ND @ from_a.T
        linear_ND[:m].addmm_(x_ND, from_x.T)
        open_ND = g_ND * (linear_ND > 0)
        g_y = open_ND @ from_a
        radial_N1 = (g_y * a_ND).sum(1, keepdim=True)
        radial_N1 *= (1 / (1 + size_N1) - share_N1) / (size_N1.square() * d)
        grad_a[rows] = g_y.mul_(share_N1).addcmul_(a_ND, radial_N1)
        sums[:, d:].addmm_(open_ND.T, y_ND)
        if m:
            grad_x[rows] = torch.addmm(g_ND[:m], open_ND[:m], from_x)
            sums[:, :d].addmm_(open_ND[:m].T, x_ND)
    return grad_x, grad_a, sums


def answer_scores(
    x_AD: Tensor, asked_BH: Tensor, first_HD: Tensor, second_1H: Tensor, reached: Any
) -> Tensor:
    """Returns (B, E) scores of each entity as an answer, from its state."""
    b, n = reached.shape
    out_N = x_AD.new_zeros(b * n + 1)  # the last one is for padding rows
    before_BH, first_DH = asked_BH.relu(), first_HD.T.contiguous()
    for rows in _blocks(len(x_AD)):
        queries_N, places_N = _places(reached, rows)
        hidden_NH = torch.addmm(asked_BH[queries_N], x_AD[rows], first_DH).relu_()
        # not after the product, or a zero state would not score exactly zero
        hidden_NH -= before_BH[queries_N]
        out_N[places_N] = torch.mv(hidden_NH, second_1H[0])
    return out_N[:-1].view(b, n)


def answer_scores_backward(
    x_AD: Tensor, asked_BH: Tensor, first_HD: Tensor, second_1H: Tensor, reached: Any,
    grad_BE: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Returns the gradients of states, of the query's part and of both layers."""
    grad_x, asked, first = (
        torch.empty_like(x_AD),
        torch.zeros_like(asked_BH),
        torch.zeros_like(first_HD),
    )
    second_H, given_B = torch.zeros_like(second_1H[0]), asked_BH.new_zeros(len(asked_BH))
    first_DH, grads_N = (
        first_HD.T.contiguous(),
        torch.cat([grad_BE.flatten(), grad_BE.new_zeros(1)]),
    )
    for rows in _blocks(len(x_AD)):
        queries_N, places_N = _places(reached, rows)
        g_N = grads_N[places_N]
        hidden_NH = torch.addmm(asked_BH[queries_N], x_AD[rows], first_DH)
        open_NH = (hidden_NH > 0) * (g_N[:, None] * second_1H)
        torch.mm(open_NH, first_HD, out=grad_x[rows])
        first.addmm_(open_NH.T, x_AD[rows])
        second_H += torch.mv(hidden_NH.relu_().T, g_N)
        asked.index_add_(0, queries_N, open_NH)
        given_B.index_add_(0, queries_N, g_N)
    second_H -= given_B @ asked_BH.relu()
    asked -= given_B[:, None] * ((asked_BH > 0) * second_1H)
    return grad_x, asked, first, second_H[None]


def _blocks(n: int) -> Iterator[slice]:
    """Yields slices of at most ROWS rows."""
    for first in range(0, n, ROWS):
        yield slice(first, first + ROWS)


def _size(a_ND: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the RMS size of each row, and log1p(size) / size."""
    size_N1 = a_ND.square().mean(-1, keepdim=True).add_(1e-12).sqrt_()
    return size_N1, size_N1.log1p() / size_N1


def _places(reached: Any, rows: slice) -> tuple[Tensor, Tensor]:
    """Returns the query of each row, and its place in (B, E) scores; the end for padding rows."""
    queries_N, entities_N = reached.queries_A[rows].long(), reached.entities_A[rows].long()
    b, n = reached.shape
    return queries_N, torch.where(entities_N >= 0, queries_N * n + entities_N, b * n)
