"""Triton kernels of `model.packed`: one program per path and head."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

Groups = list[tuple[Tensor, int]]  # (paths, greatest length among them)


@triton.jit
def _tile(start, rows, last, h, H: tl.constexpr, S: tl.constexpr, BS: tl.constexpr):
    """Returns the offsets of a path's rows for one head, and which of them are not padding."""
    s = tl.arange(0, BS)
    place = ((start + rows).to(tl.int64) * H + h)[:, None] * S + s
    return place, ((start + rows) < last)[:, None] & (s < S)


@triton.jit
def _weights(q, k, n_keys, scale, BK: tl.constexpr):
    """Returns the softmax of all queries' scores over the keys, without padding."""
    scores = tl.dot(q, tl.trans(k)) * scale
    scores = tl.where((tl.arange(0, BK) < n_keys)[None, :], scores, float("-inf"))
    scores = tl.exp(scores - tl.max(scores, 1)[:, None])
    return scores / tl.sum(scores, 1)[:, None]


@triton.jit
def _kept(seed, dropout, BQ: tl.constexpr, BK: tl.constexpr):
    """Returns the dropout factors of the weights, reproducible by seed."""
    at = tl.arange(0, BQ)[:, None] * BK + tl.arange(0, BK)[None, :]
    return tl.where(tl.rand(seed, at) >= dropout, 1 / (1 - dropout), 0.0)


@triton.jit(do_not_specialize=["seed"])
def _read(
    query, key, value, out, paths, asking, offsets, scale, dropout, seed,
    H: tl.constexpr, S: tl.constexpr, BQ: tl.constexpr, BK: tl.constexpr, BS: tl.constexpr,
    DROPS: tl.constexpr,
):  # fmt: skip
    h = tl.program_id(1)
    n = tl.load(paths + tl.program_id(0))
    q_first, q_last = tl.load(asking + n), tl.load(asking + n + 1)
    k_first, k_last = tl.load(offsets + n), tl.load(offsets + n + 1)
    q_at, q_real = _tile(q_first, tl.arange(0, BQ), q_last, h, H, S, BS)
    k_at, k_real = _tile(k_first, tl.arange(0, BK), k_last, h, H, S, BS)
    q = tl.load(query + q_at, mask=q_real, other=0.0)
    k = tl.load(key + k_at, mask=k_real, other=0.0)
    weights = _weights(q, k, k_last - k_first, scale, BK)
    if DROPS:
        weights *= _kept(seed + n * H + h, dropout, BQ, BK)
    v = tl.load(value + k_at, mask=k_real, other=0.0)
    tl.store(out + q_at, tl.dot(weights.to(v.dtype), v), mask=q_real)


@triton.jit(do_not_specialize=["seed"])
def _read_backward(
    grad, query, key, value, grad_query, grad_key, grad_value, paths, asking, offsets,
    scale, dropout, seed,
    H: tl.constexpr, S: tl.constexpr, BQ: tl.constexpr, BK: tl.constexpr, BS: tl.constexpr,
    DROPS: tl.constexpr,
):  # fmt: skip
    h = tl.program_id(1)
    n = tl.load(paths + tl.program_id(0))
    q_first, q_last = tl.load(asking + n), tl.load(asking + n + 1)
    k_first, k_last = tl.load(offsets + n), tl.load(offsets + n + 1)
    q_at, q_real = _tile(q_first, tl.arange(0, BQ), q_last, h, H, S, BS)
    k_at, k_real = _tile(k_first, tl.arange(0, BK), k_last, h, H, S, BS)
    q = tl.load(query + q_at, mask=q_real, other=0.0)
    g = tl.load(grad + q_at, mask=q_real, other=0.0)  # padding has gradient 0 here and below
    k = tl.load(key + k_at, mask=k_real, other=0.0)
    v = tl.load(value + k_at, mask=k_real, other=0.0)
    weights = _weights(q, k, k_last - k_first, scale, BK)
    grad_weights = tl.dot(g, tl.trans(v))
    if DROPS:
        kept = _kept(seed + n * H + h, dropout, BQ, BK)
        tl.store(grad_value + k_at, tl.dot(tl.trans((weights * kept).to(g.dtype)), g), mask=k_real)
        grad_weights *= kept
    else:
        tl.store(grad_value + k_at, tl.dot(tl.trans(weights.to(g.dtype)), g), mask=k_real)
    grad_scores = weights * (grad_weights - tl.sum(weights * grad_weights, 1)[:, None]) * scale
    grad_scores = grad_scores.to(q.dtype)
    tl.store(grad_query + q_at, tl.dot(grad_scores, k), mask=q_real)
    tl.store(grad_key + k_at, tl.dot(tl.trans(grad_scores), q), mask=k_real)


def _blocks(query_QHS: Tensor, n_paths: int, longest: int) -> dict[str, int]:
    """Returns block sizes: powers of two, at least 16, the least for tensor cores."""
    n_heads, size = query_QHS.shape[1:]
    keys = max(triton.next_power_of_2(longest), 16)
    single = len(query_QHS) == n_paths  # one query per path
    return {
        "H": n_heads, "S": size, "BS": max(triton.next_power_of_2(size), 16),
        "BQ": 16 if single else keys, "BK": keys,
        "num_warps": 1 if single or keys <= 16 else 2 if keys <= 32 else 4,
    }  # fmt: skip


def read(
    query_QHS: Tensor, key_MHS: Tensor, value_MHS: Tensor, asking_N1: Tensor, offsets_N1: Tensor,
    groups: Groups, dropout: float, seed: int,
) -> Tensor:  # fmt: skip
    """Returns what each query reads from its path's values."""
    out_QHS = torch.empty_like(query_QHS)
    for paths_G, longest in groups:
        grid: Any = (len(paths_G), query_QHS.shape[1])
        _read[grid](
            query_QHS, key_MHS, value_MHS, out_QHS, paths_G, asking_N1, offsets_N1,
            query_QHS.shape[-1] ** -0.5, dropout, seed, DROPS=dropout > 0,
            **_blocks(query_QHS, len(offsets_N1) - 1, longest),
        )  # fmt: skip
    return out_QHS


def read_backward(
    grad_QHS: Tensor, query_QHS: Tensor, key_MHS: Tensor, value_MHS: Tensor, asking_N1: Tensor,
    offsets_N1: Tensor, groups: Groups, dropout: float, seed: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Returns the gradients of query, key and value; deterministic (no atomic sums)."""
    grads = torch.empty_like(query_QHS), torch.empty_like(key_MHS), torch.empty_like(value_MHS)
    for paths_G, longest in groups:
        grid: Any = (len(paths_G), query_QHS.shape[1])
        _read_backward[grid](
            grad_QHS, query_QHS, key_MHS, value_MHS, *grads, paths_G, asking_N1,
            offsets_N1, query_QHS.shape[-1] ** -0.5, dropout, seed, DROPS=dropout > 0,
            **_blocks(query_QHS, len(offsets_N1) - 1, longest),
        )  # fmt: skip
    return grads
