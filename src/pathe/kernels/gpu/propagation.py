"""Triton kernels of `model.propagation`: one program gathers the edges of one row.

Rows of one query are adjacent, so their states stay in the cache. There are no atomic sums, so
results are deterministic. Inputs are float32 or bfloat16, sums float32. Sizes that change between
steps are not specialised, to avoid recompilation.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

QUERIES = 4  # per program of `_chunk_sums`


@triton.jit(do_not_specialize=["n_rows"])
def _propagate(
    x, weights, row, queries, entities, offsets, neighbours, relations, keep, out,
    n_rows, n_entities, n_kinds, D: tl.constexpr, BD: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    a = tl.program_id(0).to(tl.int64)
    b = tl.load(queries + a).to(tl.int64)
    v = tl.load(entities + a)
    first = tl.load(offsets + v, mask=v >= 0, other=0)
    last = tl.load(offsets + v + 1, mask=v >= 0, other=0)
    slot = first + tl.arange(0, CHUNK)
    left = last - first
    d = tl.arange(0, BD)
    total = tl.zeros([BD], tl.float32)
    while left > 0:
        live = slot < last
        live = live & (tl.load(keep + slot, mask=live, other=0) != 0)
        n = tl.load(neighbours + slot, mask=live, other=0)
        source = tl.load(row + b * n_entities + n, mask=live, other=-1)
        live = live & (source >= 0) & (source < n_rows)
        kind = tl.load(relations + slot, mask=live, other=0)
        real = live[:, None] & (d < D)[None, :]
        state = tl.load(x + source.to(tl.int64)[:, None] * D + d, mask=real, other=0.0)
        weight = tl.load(weights + (b * n_kinds + kind)[:, None] * D + d, mask=real, other=0.0)
        total += tl.sum(state.to(tl.float32) * weight.to(tl.float32), 0)
        slot += CHUNK
        left -= CHUNK
    tl.store(out + a * D + d, total, mask=d < D)


@triton.jit
def _mark(places, offsets, neighbours, keep, found, n_entities, CHUNK: tl.constexpr):
    place = tl.load(places + tl.program_id(0))
    v = place % n_entities
    last = tl.load(offsets + v + 1)
    slot = tl.load(offsets + v) + tl.arange(0, CHUNK)
    left = last - tl.load(offsets + v)
    while left > 0:
        live = slot < last
        live = live & (tl.load(keep + slot, mask=live, other=0) != 0)
        n = tl.load(neighbours + slot, mask=live, other=0)
        tl.store(found + (place - v) + n, tl.full([CHUNK], 1, tl.uint8), mask=live)
        slot += CHUNK
        left -= CHUNK


@triton.jit(do_not_specialize=["n_rows", "n_grads", "n_queries"])
def _chunk_sums(
    x, grad, row, owners, neighbours, order, starts, keep, out,
    n_rows, n_grads, n_entities, n_chunks, n_queries,
    D: tl.constexpr, BD: tl.constexpr, CHUNK: tl.constexpr, QUERIES: tl.constexpr,
):  # fmt: skip
    """Sums state * gradient over a chunk of one relation's slots, for QUERIES queries."""
    c = tl.program_id(0)
    at = tl.load(starts + c) + tl.arange(0, CHUNK)
    here = at < tl.load(starts + c + 1)
    slot = tl.load(order + at, mask=here, other=0)
    here = here & (tl.load(keep + slot, mask=here, other=0) != 0)
    n = tl.load(neighbours + slot, mask=here, other=0)
    v = tl.load(owners + slot, mask=here, other=0)
    d = tl.arange(0, BD)
    for i in range(QUERIES):
        b = (tl.program_id(1) * QUERIES + i).to(tl.int64)
        if b < n_queries:
            source = tl.load(row + b * n_entities + n, mask=here, other=-1)
            target = tl.load(row + b * n_entities + v, mask=here, other=-1)
            live = (source >= 0) & (source < n_rows) & (target >= 0) & (target < n_grads)
            real = live[:, None] & (d < D)[None, :]
            state = tl.load(x + source.to(tl.int64)[:, None] * D + d, mask=real, other=0.0)
            g = tl.load(grad + target.to(tl.int64)[:, None] * D + d, mask=real, other=0.0)
            total = tl.sum(state.to(tl.float32) * g.to(tl.float32), 0)
            tl.store(out + (b * n_chunks + c) * D + d, total, mask=d < D)


@triton.jit
def _relation_sums(
    sums, offsets, out, n_chunks, n_kinds, D: tl.constexpr, BD: tl.constexpr
):  # fmt: skip
    """Adds up the chunks of a relation in a fixed order."""
    r, b = tl.program_id(0), tl.program_id(1).to(tl.int64)
    c, last = tl.load(offsets + r), tl.load(offsets + r + 1)
    d = tl.arange(0, BD)
    total = tl.zeros([BD], tl.float32)
    while c < last:
        total += tl.load(sums + (b * n_chunks + c) * D + d, mask=d < D, other=0.0)
        c += 1
    tl.store(out + (b * n_kinds + r) * D + d, total, mask=d < D)


def propagate(
    x_AD: Tensor, weights_BRD: Tensor, edges: Any, keep_M: Tensor, reached: Any, n_out: int
) -> Tensor:
    """Returns the messages summed at each of the first n_out rows."""
    d = x_AD.shape[1]
    out_OD = x_AD.new_empty(n_out, d, dtype=torch.float32)
    n_entities = reached.row_BE.shape[1]
    dense = len(edges.relations_M) > 16 * n_entities
    chunk = 64 // x_AD.element_size() if dense else 8  # fastest on an H200
    if n_out:
        _propagate[(n_out,)](
            x_AD, weights_BRD, reached.row_BE, reached.queries_A, reached.entities_A,
            edges.offsets_E1, edges.neighbours_M, edges.relations_M, keep_M, out_OD,
            len(x_AD), n_entities, weights_BRD.shape[1],
            D=d, BD=triton.next_power_of_2(d), CHUNK=chunk, num_warps=1,
        )  # fmt: skip
    return out_OD


def mark(places_F: Tensor, edges: Any, keep_M: Tensor, n_entities: int, found_N: Tensor) -> None:
    """Sets `found_N` at all places that kept edges lead to from `places_F`."""
    if len(places_F):
        parts = places_F, edges.offsets_E1, edges.neighbours_M, keep_M, found_N.view(torch.uint8)
        _mark[(len(places_F),)](*parts, n_entities, CHUNK=32, num_warps=1)


def propagate_weights(
    x_AD: Tensor, grad_OD: Tensor, edges: Any, keep_M: Tensor, reached: Any
) -> Tensor:
    """Returns the gradient of the weights, from that of the summed messages."""
    (b, n_entities), d = reached.row_BE.shape, x_AD.shape[1]
    chunks, n_kinds, wide = edges.by_relation, 2 * edges.n_relations, triton.next_power_of_2(d)
    n_chunks = len(chunks.starts_C1) - 1
    sums_BCD, out_BRD = (x_AD.new_empty(b, n, d, dtype=torch.float32) for n in (n_chunks, n_kinds))
    if n_chunks:
        _chunk_sums[(n_chunks, triton.cdiv(b, QUERIES))](
            x_AD, grad_OD, reached.row_BE, edges.owners_M, edges.neighbours_M, chunks.order_M,
            chunks.starts_C1, keep_M, sums_BCD, len(x_AD), len(grad_OD), n_entities, n_chunks, b,
            D=d, BD=wide, CHUNK=chunks.size, QUERIES=QUERIES, num_warps=4,
        )  # fmt: skip
    _relation_sums[(n_kinds, b)](
        sums_BCD, chunks.offsets_R1, out_BRD, n_chunks, n_kinds, D=d, BD=wide, num_warps=1
    )
    return out_BRD
