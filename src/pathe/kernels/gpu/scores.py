"""Triton kernels of `model.scores`: the link head without a (B, C, D) tensor in memory."""

from __future__ import annotations

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

SPLITS = 8  # parts of a long sum, to occupy the whole GPU; added up in a fixed order


@triton.jit
def _relu_dot(
    q, c, w, out, n_queries, n_candidates, D: tl.constexpr, BQ: tl.constexpr, BC: tl.constexpr
):
    """Computes out[b, c] = sum_d w[d] relu(q[d, b] + c[d, c])."""
    b = (tl.program_id(1) * BQ + tl.arange(0, BQ))[:, None].to(tl.int64)
    j = (tl.program_id(0) * BC + tl.arange(0, BC))[None, :].to(tl.int64)
    total = tl.zeros([BQ, BC], tl.float32)
    for d in range(D):
        query = tl.load(q + tl.cast(d, tl.int64) * n_queries + b, mask=b < n_queries, other=0.0)
        candidate = tl.load(
            c + tl.cast(d, tl.int64) * n_candidates + j, mask=j < n_candidates, other=0.0
        )
        total += tl.load(w + d) * tl.maximum(query + candidate, 0.0, tl.PropagateNan.ALL)
    place = out + b * n_candidates + j
    tl.store(place, total, mask=(b < n_queries) & (j < n_candidates))


@triton.jit
def _open_sum(x, y, grad, out, n_x, n_y, per_split, D: tl.constexpr, BX: tl.constexpr):
    """Computes out[split, x, d] = sum over the split's y of grad[y, x] where x[d] + y[d] > 0."""
    i = (tl.program_id(0) * BX + tl.arange(0, BX))[:, None].to(tl.int64)
    d = tl.arange(0, D)[None, :]
    mine = tl.load(x + i * D + d, mask=i < n_x, other=0.0)
    total = tl.zeros([BX, D], tl.float32)
    first = tl.program_id(1) * per_split
    for row in range(first, tl.minimum(first + per_split, n_y)):
        other = tl.load(y + tl.cast(row, tl.int64) * D + d)
        g = tl.load(grad + tl.cast(row, tl.int64) * n_x + i, mask=i < n_x, other=0.0)
        total += tl.where(mine + other > 0, g, 0.0)
    place = out + (tl.program_id(1) * n_x + i).to(tl.int64) * D + d
    tl.store(place, total, mask=i < n_x)


def relu_dot(query_BD: Tensor, candidates_CD: Tensor, weight_D: Tensor) -> Tensor:
    """Returns (B, C) sums over d of weight relu(query + candidate)."""
    b, c = len(query_BD), len(candidates_CD)
    out_BC = torch.empty(b, c, device=query_BD.device)
    _relu_dot[(triton.cdiv(c, 128), triton.cdiv(b, 128))](
        query_BD.t().contiguous(), candidates_CD.t().contiguous(), weight_D.contiguous(), out_BC,
        b, c, D=query_BD.shape[1], BQ=128, BC=128, num_warps=4,
    )  # fmt: skip
    return out_BC


def open_sums(query_BD: Tensor, candidates_CD: Tensor, grad_BC: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the gradients that pass the relu, summed per query and per candidate."""
    return (
        _sum_over(query_BD, candidates_CD, grad_BC.t().contiguous()),
        _sum_over(candidates_CD, query_BD, grad_BC.contiguous()),
    )


def _sum_over(x_XD: Tensor, y_YD: Tensor, grad_YX: Tensor) -> Tensor:
    size = x_XD.shape[1]
    fill = (0, triton.next_power_of_2(size) - size)  # zeros don't pass the relu
    x_XD, y_YD = F.pad(x_XD, fill), F.pad(y_YD, fill)
    (n_x, dim), n_y = x_XD.shape, len(y_YD)
    per_split = triton.cdiv(n_y, SPLITS)
    out_SXD = torch.empty(SPLITS, n_x, dim, device=x_XD.device)
    _open_sum[(triton.cdiv(n_x, 16), SPLITS)](
        x_XD.contiguous(), y_YD.contiguous(), grad_YX, out_SXD,
        n_x, n_y, per_split, D=dim, BX=16, num_warps=8,
    )  # fmt: skip
    return out_SXD.sum(0)[:, :size]
