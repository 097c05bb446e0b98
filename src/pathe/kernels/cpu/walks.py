"""Numba kernel of `graph.walks.walk`: the same draws and walks, one pass per walk."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

from pathe.core.randomness import GOLDEN, MIX_1, MIX_2

_GOLDEN, _MIX_1, _MIX_2 = (np.uint64(c % (1 << 64)) for c in (GOLDEN, MIX_1, MIX_2))
_1, _27, _30, _31, _32 = (np.uint64(n) for n in (1, 27, 30, 31, 32))


@njit(inline="always")
def _below(state: Any, counter: Any, n: Any) -> Any:
    """Computes `randomness.below(draw(state, counter), n)` for one walk."""
    x = np.uint64(state) + (np.uint64(counter) + _1) * _GOLDEN
    x = (x ^ (x >> _30)) * _MIX_1
    x = (x ^ (x >> _27)) * _MIX_2
    x = x ^ (x >> _31)
    return np.int64(((x >> _32) * np.uint64(n)) >> _32)


@njit(inline="always")
def _allowed(
    slot: int, neighbours: Any, triples: Any, held: Any, path: Any, focus: int, step: int, hop: int
) -> bool:
    """Whether the edge is not held out and leads to an entity not yet on the path."""
    if held.size > 0 and held[triples[slot]]:
        return False
    entity = neighbours[slot]
    for back in range(hop + 1):  # noqa: SIM110 (Numba has no generator expressions)
        if path[focus + step * 2 * back] == entity:
            return False
    return True


@njit(inline="always")
def _choose(
    first: Any, degree: Any, state: Any, hop: Any, n_tries: Any,
    neighbours: Any, triples: Any, held: Any, path: Any, focus: Any, step: Any,
) -> Any:  # fmt: skip
    """Draws an allowed slot uniformly, or returns -1: a few tries, then a count of all."""
    base = hop * (n_tries + 1)
    for attempt in range(n_tries):
        slot = first + _below(state, base + attempt, degree)
        if _allowed(slot, neighbours, triples, held, path, focus, step, hop):
            return slot
    n_left = 0
    for slot in range(first, first + degree):
        if _allowed(slot, neighbours, triples, held, path, focus, step, hop):
            n_left += 1
    if n_left > 0:
        pick = _below(state, base + n_tries, n_left)
        for slot in range(first, first + degree):
            if _allowed(slot, neighbours, triples, held, path, focus, step, hop):
                if pick == 0:
                    return slot
                pick -= 1
    return -1


@njit(parallel=True, nogil=True, cache=True)
def _walk(
    offsets: Any, neighbours: Any, relations: Any, triples: Any, held: Any,
    wanted: Any, states: Any, max_hops: int, n_tries: int,
    tokens: Any, focus: int, step: int, hops: Any,
) -> None:  # fmt: skip
    for row in prange(wanted.shape[0]):
        if not wanted[row]:
            continue
        path = tokens[row]
        done = 0
        for hop in range(max_hops):
            here = path[focus + step * 2 * hop]
            first = offsets[here]
            degree = offsets[here + 1] - first
            if degree == 0:
                break
            slot = _choose(
                first, degree, states[row], hop, n_tries,
                neighbours, triples, held, path, focus, step,
            )  # fmt: skip
            if slot < 0:
                break
            path[focus + step * (2 * hop + 1)] = relations[slot]
            path[focus + step * (2 * hop + 2)] = neighbours[slot]
            done = hop + 1
        hops[row] = done


def walk(
    offsets: Tensor, neighbours: Tensor, relations: Tensor, triples: Tensor, held: Tensor | None,
    wanted: Tensor, states: Tensor, max_hops: int, n_tries: int,
    tokens: Tensor, focus: int, step: int, hops: Tensor,
) -> None:  # fmt: skip
    """Fills the wanted rows of `tokens` outwards from the focus column, in place."""
    held = torch.zeros(0, dtype=torch.bool) if held is None else held
    _walk(
        offsets.numpy(), neighbours.numpy(), relations.numpy(), triples.numpy(), held.numpy(),
        wanted.numpy(), states.numpy(), max_hops, n_tries,
        tokens.numpy(), focus, step, hops.numpy(),
    )  # fmt: skip
