"""Loop-free random walks, vectorised and seeded, on any device.

Each hop is drawn uniformly from the edges to entities not yet on the walk; a walk ends at
`max_hops`, or when there is no such edge. Rejection sampling from all edges nearly always succeeds
within N_TRIES draws; otherwise the allowed edges are listed and one is drawn. Both are uniform over
the allowed edges. Every draw is a hash of (state, hop, attempt), so walks are the same for any
chunk size, device or kernel.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pathe.core.randomness import below, draw, keyed
from pathe.core.tensors import expand
from pathe.graph.adjacency import Adjacency
from pathe.graph.held_out import HeldOut
from pathe.kernels.dispatch import kernel

N_TRIES = 4
CHUNK, GPU_CHUNK = 1 << 16, 1 << 22  # walks per chunk: limits temporary memory
EXACT = 1 << 20  # edges per chunk when the allowed edges are listed


@dataclass(frozen=True)
class Walks:
    """Rows of entity, relation, entity, ... from the start, padded with -1; and their lengths."""

    tokens_NT: Tensor
    hops_N: Tensor


def sample_walks(
    adjacency: Adjacency,
    starts_N: Tensor,
    max_hops: int,
    *,
    seed: int,
    keys_N: Tensor | None = None,
    held_out: HeldOut | None = None,
) -> Walks:
    """Samples one walk per start; equal seed, key and start give equal walks.

    The keys default to row numbers. Walks don't use held-out triples.
    """
    n = len(starts_N)
    tokens_NT = starts_N.new_full((n, 2 * max_hops + 1), -1, dtype=torch.int32)
    tokens_NT[:, 0] = starts_N
    hops_N = starts_N.new_zeros(n, dtype=torch.int32)
    keys_N = torch.arange(n, device=starts_N.device) if keys_N is None else keys_N
    held_out_M = held_out.mask(len(adjacency.triples_M)) if held_out else None
    walk(adjacency, tokens_NT, hops_N, keyed(seed, keys_N), max_hops, held_out_M=held_out_M)
    return Walks(tokens_NT, hops_N)


def walk(
    adjacency: Adjacency,
    tokens_NT: Tensor,
    hops_N: Tensor,
    states_N: Tensor,
    max_hops: int,
    *,
    focus: int = 0,
    step: int = 1,
    wanted_N: Tensor | None = None,
    held_out_M: Tensor | None = None,
) -> None:
    """Fills `tokens_NT` in place from the focus column outwards: rightwards, or left if step is -1.

    The focus column has the starts; `wanted_N` selects the rows to fill (default: all), and
    `held_out_M` marks training triples that walks must not use.
    """
    if tokens_NT.device != adjacency.offsets_E1.device:
        raise ValueError(
            f"walks and graph must be on the same device, got {tokens_NT.device} and "
            f"{adjacency.offsets_E1.device}"
        )
    if wanted_N is None:
        wanted_N = torch.ones_like(hops_N, dtype=torch.bool)
    if tokens_NT.device.type == "cpu":
        starts = tokens_NT[:, focus]
        if len(starts) and not 0 <= int(starts.min()) <= int(starts.max()) < adjacency.n_entities:
            raise IndexError(f"walks must start at entities 0 to {adjacency.n_entities - 1}")
    compiled = kernel("walks.walk", tokens_NT.device.type)
    if compiled is None:
        rows = wanted_N.nonzero().squeeze(1)
        _walk_tensors(
            adjacency, tokens_NT, hops_N, states_N, max_hops, focus, step, rows, held_out_M
        )
        return
    compiled(
        adjacency.offsets_E1, adjacency.neighbours_M, adjacency.relations_M, adjacency.triples_M,
        held_out_M, wanted_N, states_N, max_hops, N_TRIES, tokens_NT, focus, step, hops_N,
    )  # fmt: skip


def _walk_tensors(
    adjacency: Adjacency, tokens_NT: Tensor, hops_N: Tensor, states_N: Tensor, max_hops: int,
    focus: int, step: int, rows: Tensor, held_out_M: Tensor | None,
) -> None:  # fmt: skip
    for chunk in rows.split(CHUNK if rows.device.type == "cpu" else GPU_CHUNK):
        active = chunk
        for hop in range(max_hops):
            seen = [tokens_NT[:, focus + step * 2 * back] for back in range(hop + 1)]
            slots = _next_slots(adjacency, active, seen, states_N, hop, held_out_M)
            moved = slots >= 0
            active, slots = active[moved], slots[moved]
            tokens_NT[active, focus + step * (2 * hop + 1)] = adjacency.relations_M[slots]
            tokens_NT[active, focus + step * (2 * hop + 2)] = adjacency.neighbours_M[slots]
            hops_N[active] = hop + 1


def _next_slots(
    adjacency: Adjacency, rows_A: Tensor, seen: list[Tensor], states_N: Tensor, hop: int,
    held_out_M: Tensor | None,
) -> Tensor:  # fmt: skip
    """Returns each walk's next slot, or -1 at a dead end; seen[-1] is the current entity."""
    here_A = seen[-1][rows_A].long()
    first_A = adjacency.offsets_E1[here_A]
    degree_A = adjacency.offsets_E1[here_A + 1] - first_A
    slots_A = torch.full_like(first_A, -1)
    open_ = degree_A.nonzero().squeeze(1)  # positions in A still without a slot
    for attempt in range(N_TRIES):
        rows = rows_A[open_]
        bits = draw(states_N[rows], hop * (N_TRIES + 1) + attempt)
        slots = first_A[open_] + below(bits, degree_A[open_])
        fine = _allowed(adjacency, slots, rows, seen, held_out_M)
        slots_A[open_[fine]] = slots[fine]
        open_ = open_[~fine]
        if not len(open_):
            return slots_A
    for part in _bounded_parts(open_, degree_A[open_]):
        rows = rows_A[part]
        owner, slots = expand(first_A[part], degree_A[part])
        fine = _allowed(adjacency, slots, rows[owner], seen, held_out_M)
        owner, slots = owner[fine], slots[fine]
        left = torch.bincount(owner, minlength=len(part))
        pick = below(draw(states_N[rows], hop * (N_TRIES + 1) + N_TRIES), left)
        some = left > 0
        slots_A[part[some]] = slots[(left.cumsum(0) - left + pick)[some]]
    return slots_A


def _allowed(
    adjacency: Adjacency, slots: Tensor, rows: Tensor, seen: list[Tensor], held_out_M: Tensor | None
) -> Tensor:
    entities = adjacency.neighbours_M[slots]
    fine = torch.ones_like(entities, dtype=torch.bool)
    for column in seen:
        fine &= column[rows] != entities
    return fine if held_out_M is None else fine & ~held_out_M[adjacency.triples_M[slots]]


def _bounded_parts(positions: Tensor, sizes: Tensor) -> list[Tensor]:
    """Splits positions into parts with sizes of about EXACT in total (one hub may exceed it)."""
    if not len(positions):
        return []
    part = sizes.cumsum(0) // EXACT
    return list(positions.split(part.unique_consecutive(return_counts=True)[1].tolist()))
