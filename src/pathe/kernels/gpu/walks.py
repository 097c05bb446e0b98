"""Triton kernel of `graph.walks.walk`: the same draws and walks, one launch for all hops."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from pathe.core.randomness import GOLDEN, MIX_1, MIX_2

_GOLDEN, _MIX_1, _MIX_2 = tl.constexpr(GOLDEN), tl.constexpr(MIX_1), tl.constexpr(MIX_2)
BLOCK = 128  # walks per program


@triton.jit
def _below(state, counter, n):
    """Computes `randomness.below(draw(state, counter), n)`."""
    x = state + (counter + 1).to(tl.int64) * _GOLDEN
    x = (x ^ (x.to(tl.uint64, bitcast=True) >> 30).to(tl.int64, bitcast=True)) * _MIX_1
    x = (x ^ (x.to(tl.uint64, bitcast=True) >> 27).to(tl.int64, bitcast=True)) * _MIX_2
    x = x ^ (x.to(tl.uint64, bitcast=True) >> 31).to(tl.int64, bitcast=True)
    high = (x.to(tl.uint64, bitcast=True) >> 32).to(tl.int64, bitcast=True)
    return (high * n) >> 32


@triton.jit
def _allowed(slot, wanted, neighbours, triples, held, here, step, hop, HAS_HELD: tl.constexpr):
    """Whether each edge is not held out and leads to an entity not yet on its path."""
    entity = tl.load(neighbours + slot, mask=wanted, other=-1)
    fine = wanted
    for back in range(hop + 1):
        fine = fine & (tl.load(here - step * 2 * back, mask=fine, other=-2) != entity)
    if HAS_HELD:
        triple = tl.load(triples + slot, mask=fine, other=0)
        fine = fine & (tl.load(held + triple, mask=fine, other=1) == 0)
    return fine


@triton.jit
def _walk(
    offsets, neighbours, relations, triples, held, chosen, states, tokens, hops,
    n_rows, width, focus, step, max_hops, n_tries,
    HAS_HELD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mine = tl.load(chosen + row, mask=row < n_rows, other=0) != 0
    live = mine
    state = tl.load(states + row, mask=live, other=0)
    start = tokens + row * width + focus
    done = tl.zeros([BLOCK], tl.int32)
    for hop in range(max_hops):
        here = start + step * 2 * hop
        entity = tl.load(here, mask=live, other=0).to(tl.int64)
        first = tl.load(offsets + entity, mask=live, other=0)
        degree = tl.load(offsets + entity + 1, mask=live, other=0) - first
        live = live & (degree > 0)
        slot = tl.full([BLOCK], -1, tl.int64)
        for attempt in range(n_tries):
            wanted = live & (slot < 0)
            drawn = first + _below(state, hop * (n_tries + 1) + attempt, degree)
            fine = _allowed(drawn, wanted, neighbours, triples, held, here, step, hop, HAS_HELD)
            slot = tl.where(fine, drawn, slot)
        stuck = live & (slot < 0)
        longest = tl.max(tl.where(stuck, degree, 0), 0)
        n_left = tl.zeros([BLOCK], tl.int64)
        for k in range(longest):
            wanted = stuck & (k < degree)
            fine = _allowed(first + k, wanted, neighbours, triples, held, here, step, hop, HAS_HELD)
            n_left += fine.to(tl.int64)
        pick = _below(state, hop * (n_tries + 1) + n_tries, n_left)
        for k in range(longest):
            wanted = stuck & (k < degree) & (slot < 0) & (n_left > 0)
            fine = _allowed(first + k, wanted, neighbours, triples, held, here, step, hop, HAS_HELD)
            slot = tl.where(fine & (pick == 0), first + k, slot)
            pick -= fine.to(tl.int64)
        live = live & (slot >= 0)
        relation = tl.load(relations + slot, mask=live, other=0)
        neighbour = tl.load(neighbours + slot, mask=live, other=0)
        tl.store(here + step, relation, mask=live)
        tl.store(here + 2 * step, neighbour, mask=live)
        done += live.to(tl.int32)
        tl.debug_barrier()  # other threads may read these tokens in the next hop
    tl.store(hops + row, done, mask=mine)


def walk(
    offsets: Tensor, neighbours: Tensor, relations: Tensor, triples: Tensor, held: Tensor | None,
    wanted: Tensor, states: Tensor, max_hops: int, n_tries: int,
    tokens: Tensor, focus: int, step: int, hops: Tensor,
) -> None:  # fmt: skip
    """Fills the wanted rows of `tokens` outwards from the focus column, in place."""
    if not len(wanted):
        return
    grid: Any = (triton.cdiv(len(wanted), BLOCK),)
    _walk[grid](
        offsets, neighbours, relations, triples, triples if held is None else held,
        wanted, states, tokens, hops,
        len(wanted), tokens.shape[1], focus, step, max_hops, n_tries,
        HAS_HELD=held is not None, BLOCK=BLOCK,
    )  # fmt: skip
