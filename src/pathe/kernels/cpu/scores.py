"""Numba kernels of `model.scores` and of ranking: tiles of candidates stay in the L1 cache."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

TILE = 128  # candidates per tile, which takes 32 KiB at 64 dimensions
GROUP = 32  # queries that share a cached tile
# Only fused multiply-adds are allowed, so that equal candidates get equal scores.
_FUSED = {"contract"}


def tiles(candidates_CD: Tensor) -> Tensor:
    """Returns the candidates as tiles (n, D, TILE), the last one padded with zeros."""
    n = -(-len(candidates_CD) // TILE)
    padded = candidates_CD.new_zeros(n * TILE, candidates_CD.shape[1])
    padded[: len(candidates_CD)] = candidates_CD
    return padded.view(n, TILE, -1).transpose(1, 2).contiguous()


@njit(inline="always", fastmath=_FUSED)
def _score_tile(query: Any, tile: Any, weight: Any, out: Any) -> None:
    """Computes out[j] = sum_d weight[d] relu(query[d] + tile[d, j]), four dimensions at a time."""
    zero = np.float32(0)
    out[:] = zero
    dim = query.shape[0]
    whole = dim - dim % 4
    for d in range(0, whole, 4):
        q0, q1, q2, q3 = query[d], query[d + 1], query[d + 2], query[d + 3]
        w0, w1, w2, w3 = weight[d], weight[d + 1], weight[d + 2], weight[d + 3]
        for j in range(TILE):
            x0, x1 = q0 + tile[d, j], q1 + tile[d + 1, j]
            x2, x3 = q2 + tile[d + 2, j], q3 + tile[d + 3, j]
            # `0 if 0 > x else x` is a relu that keeps NaN
            total = out[j] + w0 * (zero if zero > x0 else x0)
            total = total + w1 * (zero if zero > x1 else x1)
            total = total + w2 * (zero if zero > x2 else x2)
            out[j] = total + w3 * (zero if zero > x3 else x3)
    for d in range(whole, dim):
        for j in range(TILE):
            x = query[d] + tile[d, j]
            out[j] = out[j] + weight[d] * (zero if zero > x else x)


@njit(parallel=True, nogil=True, cache=True, fastmath=_FUSED)
def _relu_dot(queries: Any, tiled: Any, weight: Any, out: Any) -> None:
    n_queries, n_candidates = out.shape
    for group in prange((n_queries + GROUP - 1) // GROUP):
        row = np.empty(TILE, np.float32)
        for i in range(tiled.shape[0]):
            first = i * TILE
            last = min(first + TILE, n_candidates)
            for b in range(group * GROUP, min((group + 1) * GROUP, n_queries)):
                _score_tile(queries[b], tiled[i], weight, row)
                out[b, first:last] = row[: last - first]


@njit(parallel=True, nogil=True, cache=True)
def _open_sum(x: Any, y: Any, grad: Any, out: Any) -> None:
    """Computes out[i, d] = sum of grad[i, j] over the j with x[i, d] + y[j, d] > 0."""
    zero = np.float32(0)
    for i in prange(x.shape[0]):
        mine, total = x[i], out[i]
        whole = y.shape[0] - y.shape[0] % 4
        for j in range(0, whole, 4):
            y0, y1, y2, y3 = y[j], y[j + 1], y[j + 2], y[j + 3]
            g0, g1, g2, g3 = grad[i, j], grad[i, j + 1], grad[i, j + 2], grad[i, j + 3]
            for d in range(mine.shape[0]):
                a = (g0 if mine[d] + y0[d] > zero else zero) + (
                    g1 if mine[d] + y1[d] > zero else zero
                )
                b = (g2 if mine[d] + y2[d] > zero else zero) + (
                    g3 if mine[d] + y3[d] > zero else zero
                )
                total[d] += a + b
        for j in range(whole, y.shape[0]):
            for d in range(mine.shape[0]):
                total[d] += grad[i, j] if mine[d] + y[j, d] > zero else zero


@njit(parallel=True, nogil=True, cache=True, fastmath=_FUSED)
def _rank(
    queries: Any, tiled: Any, weight: Any, n_candidates: int, true: Any,
    starts: Any, sizes: Any, codes: Any, n_values: int, better: Any, equal: Any, others: Any,
) -> None:  # fmt: skip
    """Counts better and equal candidates per query, without those in its list."""
    n_queries, dim = queries.shape
    for group in prange((n_queries + GROUP - 1) // GROUP):
        begin, end = group * GROUP, min((group + 1) * GROUP, n_queries)
        row = np.empty(TILE, np.float32)
        own = np.empty(GROUP, np.float32)
        at = np.empty(GROUP, np.int64)
        listed = np.zeros(GROUP, np.bool_)
        picked = np.zeros((dim, TILE), np.float32)  # true answers as a tile: same rounding
        for b in range(begin, end):
            for d in range(dim):
                picked[d, b - begin] = tiled[true[b] // TILE, d, true[b] % TILE]
        for b in range(begin, end):
            _score_tile(queries[b], picked, weight, row)
            own[b - begin] = row[b - begin]
            at[b - begin] = starts[b]
        for i in range(tiled.shape[0]):
            first = i * TILE
            last = min(first + TILE, n_candidates)
            for b in range(begin, end):
                _score_tile(queries[b], tiled[i], weight, row)
                mine = own[b - begin]
                above, tied = np.int32(0), np.int32(0)
                for j in range(last - first):
                    above += not row[j] <= mine  # NaN counts as better
                    tied += row[j] == mine
                k = at[b - begin]
                stop = starts[b] + sizes[b]
                while k < stop and codes[k] % n_values < last:  # sorted by candidate
                    candidate = codes[k] % n_values
                    listed[b - begin] |= candidate == true[b]
                    score = row[candidate - first]
                    above -= not score <= mine
                    tied -= score == mine
                    k += 1
                at[b - begin] = k
                better[b] += above
                equal[b] += tied
        for b in range(begin, end):
            if not listed[b - begin]:  # the true answer doesn't compete with itself
                better[b] -= not own[b - begin] <= own[b - begin]
                equal[b] -= own[b - begin] == own[b - begin]
            others[b] = n_candidates - sizes[b] - (not listed[b - begin])


def relu_dot(query_BD: Tensor, candidates_CD: Tensor, weight_D: Tensor) -> Tensor:
    """Returns (B, C) sums over d of weight relu(query + candidate)."""
    out_BC = torch.empty(len(query_BD), len(candidates_CD))
    _relu_dot(_array(query_BD), _array(tiles(candidates_CD)), _array(weight_D), out_BC.numpy())
    return out_BC


def open_sums(query_BD: Tensor, candidates_CD: Tensor, grad_BC: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the gradients that pass the relu, summed per query and per candidate."""
    open_BD, open_CD = torch.zeros_like(query_BD), torch.zeros_like(candidates_CD)
    query, candidates = _array(query_BD), _array(candidates_CD)
    _open_sum(query, candidates, _array(grad_BC), open_BD.numpy())
    _open_sum(candidates, query, _array(grad_BC.t()), open_CD.numpy())
    return open_BD, open_CD


def rank(
    query_BD: Tensor, tiled: Tensor, weight_D: Tensor, n_candidates: int, true_B: Tensor,
    starts_B: Tensor, sizes_B: Tensor, codes_V: Tensor, n_values: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Counts candidates with better and equal scores than the true one, and all that compete.

    Candidates in a query's list (sorted codes, modulo n_values) don't compete.
    """
    better_B, equal_B, others_B = torch.zeros(3, len(query_BD), dtype=torch.int64)
    _rank(
        _array(query_BD), _array(tiled), _array(weight_D), n_candidates, _array(true_B),
        _array(starts_B), _array(sizes_B), _array(codes_V), n_values,
        better_B.numpy(), equal_B.numpy(), others_B.numpy(),
    )  # fmt: skip
    return better_B, equal_B, others_B


def _array(tensor: Tensor) -> Any:
    return tensor.detach().contiguous().numpy()
