"""Triton kernels of `model.attention`, which read the keys and values of tokens in place."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 32  # paths per program of one warp, so each lane loads what it stored itself
PIECE = 1024  # occurrences of a token that one program sums: some tokens occur everywhere


@triton.jit
def _read(
    query, keys, values, tokens, bias, keep, out, weights,
    n_paths, n_tokens, H: tl.constexpr, S: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Computes one head of BLOCK paths: scores, softmax, weighted sum of values."""
    h = tl.program_id(1)
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = n < n_paths
    row = n.to(tl.int64)
    s = tl.arange(0, S)
    q = tl.load(query + (row * H + h)[:, None] * S + s, mask=live[:, None], other=0.0).to(
        tl.float32
    )
    at = (row * H + h) * n_tokens
    top = tl.full([BLOCK], float("-inf"), tl.float32)
    for t in range(n_tokens):
        token = tl.load(tokens + row * n_tokens + t, mask=live, other=-1)
        real = token >= 0
        place = (token.to(tl.int64) * H + h)[:, None] * S + s
        key = tl.load(keys + place, mask=real[:, None], other=0.0).to(tl.float32)
        score = tl.sum(q * key, 1) + tl.load(bias + at + t, mask=real, other=0.0)
        score = tl.where(real, score, float("-inf"))
        tl.store(weights + at + t, score, mask=live)
        top = tl.maximum(top, score)
    tl.debug_barrier()  # another thread may load what this one stored
    total = tl.zeros([BLOCK], tl.float32)
    for t in range(n_tokens):
        total += tl.exp(tl.load(weights + at + t, mask=live, other=float("-inf")) - top)
    tl.debug_barrier()
    read = tl.zeros([BLOCK, S], tl.float32)
    for t in range(n_tokens):
        token = tl.load(tokens + row * n_tokens + t, mask=live, other=-1)
        real = token >= 0
        share = tl.exp(tl.load(weights + at + t, mask=live, other=float("-inf")) - top) / total
        tl.store(weights + at + t, share, mask=live)
        share = share * tl.load(keep + at + t, mask=real, other=0.0)
        place = (token.to(tl.int64) * H + h)[:, None] * S + s
        read += share[:, None] * tl.load(values + place, mask=real[:, None], other=0.0).to(
            tl.float32
        )
    tl.store(out + (row * H + h)[:, None] * S + s, read, mask=live[:, None])


@triton.jit
def _read_backward(
    keys, values, tokens, keep, weights, grad_read, grad_weights, grad_query, grad_score,
    n_paths, n_tokens, H: tl.constexpr, S: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Computes gradients of scores and query; `_by_piece` does those of keys and values."""
    h = tl.program_id(1)
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = n < n_paths
    row = n.to(tl.int64)
    s = tl.arange(0, S)
    mine = (row * H + h)[:, None] * S + s
    g = tl.load(grad_read + mine, mask=live[:, None], other=0.0)
    at = (row * H + h) * n_tokens
    dot = tl.zeros([BLOCK], tl.float32)
    for t in range(n_tokens):
        token = tl.load(tokens + row * n_tokens + t, mask=live, other=-1)
        real = token >= 0
        place = (token.to(tl.int64) * H + h)[:, None] * S + s
        value = tl.load(values + place, mask=real[:, None], other=0.0).to(tl.float32)
        grad = tl.sum(g * value, 1) * tl.load(keep + at + t, mask=real, other=0.0)
        grad += tl.load(grad_weights + at + t, mask=real, other=0.0)
        tl.store(grad_score + at + t, grad, mask=live)
        dot += grad * tl.load(weights + at + t, mask=real, other=0.0)
    tl.debug_barrier()
    total = tl.zeros([BLOCK, S], tl.float32)
    for t in range(n_tokens):
        token = tl.load(tokens + row * n_tokens + t, mask=live, other=-1)
        real = token >= 0
        place = (token.to(tl.int64) * H + h)[:, None] * S + s
        share = tl.load(weights + at + t, mask=real, other=0.0)
        grad = share * (tl.load(grad_score + at + t, mask=live, other=0.0) - dot)
        tl.store(grad_score + at + t, grad, mask=live)
        key = tl.load(keys + place, mask=real[:, None], other=0.0).to(tl.float32)
        total += grad[:, None] * key
    tl.store(grad_query + mine, total, mask=live[:, None])


@triton.jit
def _by_piece(
    query, grad_read, weights, keep, grad_score, order, offsets, owners, pieces, sums,
    n_rows, n_tokens, H: tl.constexpr, S: tl.constexpr, PIECE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Sums the key and value gradients of one token over a piece of its occurrences."""
    p, h = tl.program_id(0).to(tl.int64), tl.program_id(1)
    v = tl.load(owners + p)
    real = v < n_rows
    first = tl.load(offsets + v, mask=real, other=0)
    first += (p - tl.load(pieces + v, mask=real, other=0)) * PIECE
    last = tl.minimum(tl.load(offsets + v + 1, mask=real, other=0), first + PIECE)
    s = tl.arange(0, S)
    key = tl.zeros([S], tl.float32)
    value = tl.zeros([S], tl.float32)
    for start in range(first, last, BLOCK):
        i = start + tl.arange(0, BLOCK)
        live = i < last
        place = tl.load(order + i, mask=live, other=0)
        n, t = place // n_tokens, place % n_tokens
        at = (n * H + h) * n_tokens + t
        mine = (n * H + h)[:, None] * S + s
        score = tl.load(grad_score + at, mask=live, other=0.0)
        q = tl.load(query + mine, mask=live[:, None], other=0.0).to(tl.float32)
        key += tl.sum(score[:, None] * q, 0)
        kept = tl.load(weights + at, mask=live, other=0.0) * tl.load(
            keep + at, mask=live, other=0.0
        )
        value += tl.sum(kept[:, None] * tl.load(grad_read + mine, mask=live[:, None], other=0.0), 0)
    out = sums + (p * H + h) * 2 * S + s
    tl.store(out, key)
    tl.store(out + S, value)


@triton.jit
def _add_pieces(sums, pieces, grad_keys, grad_values, H: tl.constexpr, S: tl.constexpr):
    """Adds up a token's pieces in a fixed order."""
    v, h = tl.program_id(0).to(tl.int64), tl.program_id(1)
    p, last = tl.load(pieces + v), tl.load(pieces + v + 1)
    s = tl.arange(0, S)
    key = tl.zeros([S], tl.float32)
    value = tl.zeros([S], tl.float32)
    while p < last:
        key += tl.load(sums + (p * H + h) * 2 * S + s)
        value += tl.load(sums + (p * H + h) * 2 * S + S + s)
        p += 1
    tl.store(grad_keys + (v * H + h) * S + s, key)
    tl.store(grad_values + (v * H + h) * S + s, value)


def _wide(*tensors: Tensor) -> list[Tensor]:
    """Pads head widths with zeros to a power of two, as Triton's blocks require."""
    size = tensors[0].shape[-1]
    return [F.pad(x, (0, triton.next_power_of_2(size) - size)).contiguous() for x in tensors]


def read(
    query_NHS: Tensor, keys_VHS: Tensor, values_VHS: Tensor, tokens_NT: Tensor,
    bias_NHT: Tensor, keep_NHT: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Returns (read_NHS, weights_NHT), the weights before dropout by `keep`."""
    size = query_NHS.shape[-1]
    query_NHS, keys_VHS, values_VHS = _wide(query_NHS, keys_VHS, values_VHS)
    n, h, s = query_NHS.shape
    t = tokens_NT.shape[1]
    read_NHS = torch.empty(n, h, s, device=query_NHS.device)
    weights_NHT = torch.empty(n, h, t, device=query_NHS.device)
    grid: Any = (triton.cdiv(n, BLOCK), h)
    _read[grid](
        query_NHS, keys_VHS, values_VHS, tokens_NT, bias_NHT, keep_NHT, read_NHS, weights_NHT,
        n, t, H=h, S=s, BLOCK=BLOCK, num_warps=1,
    )  # fmt: skip
    return read_NHS[..., :size], weights_NHT


def read_backward(
    query_NHS: Tensor, keys_VHS: Tensor, values_VHS: Tensor, tokens_NT: Tensor, keep_NHT: Tensor,
    weights_NHT: Tensor, grad_read_NHS: Tensor, grad_weights_NHT: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Returns the gradients of query, keys, values and bias; deterministic (no atomic sums)."""
    size = query_NHS.shape[-1]
    rows = (query_NHS, keys_VHS, values_VHS, grad_read_NHS)
    query_NHS, keys_VHS, values_VHS, grad_read_NHS = _wide(*rows)
    n, h, s = query_NHS.shape
    t, v = tokens_NT.shape[1], len(keys_VHS)
    grad_query_NHS = torch.empty(n, h, s, device=query_NHS.device)
    grad_score_NHT = torch.empty(n, h, t, device=query_NHS.device)
    grid: Any = (triton.cdiv(n, BLOCK), h)
    _read_backward[grid](
        keys_VHS, values_VHS, tokens_NT, keep_NHT, weights_NHT, grad_read_NHS, grad_weights_NHT,
        grad_query_NHS, grad_score_NHT, n, t, H=h, S=s, BLOCK=BLOCK, num_warps=1,
    )  # fmt: skip
    sorted_L, order_L = tokens_NT.flatten().sort()
    rows_V1 = torch.arange(v + 1, device=order_L.device, dtype=sorted_L.dtype)
    offsets_V1 = torch.searchsorted(sorted_L, rows_V1)
    n_pieces_V = (offsets_V1.diff() + PIECE - 1) // PIECE
    pieces_V1 = F.pad(n_pieces_V.cumsum(0), (1, 0))
    most = v + len(order_L) // PIECE  # an upper bound: the exact number needs a synchronisation
    numbers_P = torch.arange(most, device=order_L.device)
    owners_P = torch.searchsorted(pieces_V1[1:], numbers_P, right=True)
    sums = torch.empty(most, h, 2, s, device=query_NHS.device)
    by_piece: Any = (most, h)
    _by_piece[by_piece](
        query_NHS, grad_read_NHS, weights_NHT, keep_NHT, grad_score_NHT, order_L, offsets_V1,
        owners_P, pieces_V1, sums, v, t, H=h, S=s, PIECE=PIECE, BLOCK=BLOCK,
    )  # fmt: skip
    grad_keys_VHS, grad_values_VHS = torch.empty(2, v, h, s, device=query_NHS.device)
    by_token: Any = (v, h)
    _add_pieces[by_token](sums, pieces_V1, grad_keys_VHS, grad_values_VHS, H=h, S=s, num_warps=1)
    grad_keys_VHS, grad_values_VHS = grad_keys_VHS[..., :size], grad_values_VHS[..., :size]
    return grad_query_NHS[..., :size], grad_keys_VHS, grad_values_VHS, grad_score_NHT
