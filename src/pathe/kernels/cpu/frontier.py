"""Numba kernels of `model.frontier`: the search for near entities, and the edges between them."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

from pathe.kernels.cpu.rows import arrays

AT_ONCE = 1 << 24  # (query, entity) places that are held at once


@njit(nogil=True, cache=True)
def _best(ids: Any, values: Any, most: int) -> Any:
    """Returns the ids with the largest values, ascending; ties go to the smaller ids."""
    n = len(ids)
    if n <= most:
        return np.sort(ids)
    own = np.empty(n, np.int64)
    for i in range(n):
        own[i] = values[ids[i]]
    limit = np.partition(own, n - most)[n - most]
    found, level = np.empty(most, ids.dtype), np.empty(n, ids.dtype)
    n_found = n_level = 0
    for i in range(n):
        if own[i] > limit:
            found[n_found] = ids[i]
            n_found += 1
        elif own[i] == limit:
            level[n_level] = ids[i]
            n_level += 1
    found[n_found:] = np.sort(level[:n_level])[: most - n_found]
    return np.sort(found)


@njit(nogil=True, cache=True)
def _order(active: Any, now: Any, offsets: Any, keep: Any, numbers: Any) -> Any:
    """Returns shares and degrees of active entities, and their order: the largest share first."""
    shares, degrees = np.zeros(len(active), np.int64), np.zeros(len(active), np.int64)
    for i in range(len(active)):
        u = active[i]
        for slot in range(offsets[u], offsets[u + 1]):
            degrees[i] += keep[slot]
        if degrees[i]:
            shares[i] = now[u] * numbers[0] // numbers[1] // degrees[i]
    return shares, degrees, np.argsort(-shares, kind="mergesort")


@njit(nogil=True, cache=True)
def _hop(
    active: Any, now: Any, new: Any, state: Any, offsets: Any, neighbours: Any, keep: Any,
    budget: int, numbers: Any, ids: Any,
) -> Any:  # fmt: skip
    """Passes mass along the edges of active entities; returns how many got some, and if all did."""
    shares, degrees, order = _order(active, now, offsets, keep, numbers)
    n_new, spent = 0, 0
    for i in order:
        if spent >= budget:
            return n_new, False
        spent += degrees[i]
        for slot in range(offsets[active[i]], offsets[active[i] + 1]):
            if keep[slot]:
                v = neighbours[slot]
                if not state[v] & 2:
                    state[v] |= 2
                    ids[n_new] = v
                    n_new += 1
                new[v] += shares[i]
    return n_new, True


@njit(nogil=True, cache=True)
def _search(
    source: int, offsets: Any, neighbours: Any, keep: Any, n_hops: int, most: int, numbers: Any,
    now: Any, new: Any, total: Any, state: Any, ids: Any, found: Any,
) -> int:  # fmt: skip
    """Fills `found` with all entities that get mass within a budget; returns their number."""
    budget = numbers[2] * most
    while True:
        active = np.full(1, source, found.dtype)
        now[source] = total[source] = numbers[3]
        state[source], found[0], n_found, whole = 1, source, 1, True
        for _ in range(n_hops):
            n_new, all_edges = _hop(
                active, now, new, state, offsets, neighbours, keep, budget, numbers, ids
            )
            whole &= all_edges
            now[active] = 0
            active = _best(ids[:n_new], new, most)
            now[active] = new[active]
            for v in ids[:n_new]:
                total[v] += new[v]
                if not state[v] & 1:
                    found[n_found] = v
                    n_found += 1
                new[v], state[v] = 0, 1
        now[active] = 0
        if whole or n_found >= most:
            return n_found
        for v in found[:n_found]:
            total[v], state[v] = 0, 0
        budget *= 4


@njit(parallel=True, nogil=True, cache=True)
def _search_all(
    sources: Any, offsets: Any, neighbours: Any, keep: Any, n_hops: int, most: int, numbers: Any,
    works: Any, states: Any, lists: Any, found: Any, mass: Any, counts: Any,
) -> None:  # fmt: skip
    n_threads = len(states)
    for thread in prange(n_threads):
        now, new, total = works[thread, 0], works[thread, 1], works[thread, 2]
        state = states[thread]
        for b in range(thread, len(sources), n_threads):
            n = _search(
                sources[b], offsets, neighbours, keep, n_hops, most, numbers,
                now, new, total, state, lists[thread], found[b],
            )  # fmt: skip
            own = np.sort(found[b, :n])
            found[b, :n], counts[b] = own, n
            for i in range(n):
                mass[b, i] = total[own[i]]
                total[own[i]], state[own[i]] = 0, 0


def search(
    edges: Any, keep_M: Tensor, sources_B: Tensor, n_hops: int, most: int, numbers: tuple[int, ...]
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns (query, entity, mass) of the entities that queries find, sorted by the first two."""
    n, n_threads = edges.n_entities, min(numba.get_num_threads(), max(len(sources_B), 1))
    graph = arrays(edges.offsets_E1, edges.neighbours_M, keep_M)
    works = np.zeros((n_threads, 3, n), np.int64)
    states, lists = np.zeros((n_threads, n), np.uint8), np.empty((n_threads, n), np.int32)
    parts = []
    for first in range(0, len(sources_B), size := max(AT_ONCE // max(n, 1), n_threads)):
        sources_F = sources_B[first : first + size]
        b = len(sources_F)
        found, mass = np.empty((b, n), np.int32), np.empty((b, n), np.int64)
        counts = np.zeros(b, np.int64)
        _search_all(  # type: ignore[call-arg]
            sources_F.numpy(), *graph, n_hops, most, np.array(numbers, np.int64), works, states,
            lists, found, mass, counts,
        )  # fmt: skip
        for i, count in enumerate(counts.tolist()):
            entities = torch.from_numpy(found[i, :count].astype(np.int64))
            parts.append((first + i, entities, torch.from_numpy(mass[i, :count].copy())))
    if not parts:
        return sources_B, sources_B, sources_B
    queries = [torch.full_like(entities, query) for query, entities, _ in parts]
    entities_F, mass_F = (torch.cat(list(own)) for own in list(zip(*parts, strict=True))[1:])
    return torch.cat(queries), entities_F, mass_F


@njit(parallel=True, nogil=True, cache=True)
def _count(
    entities: Any, starts: Any, offsets: Any, neighbours: Any, keep: Any, rows: Any, degrees: Any
) -> None:
    n_threads = len(rows)
    for thread in prange(n_threads):
        row = rows[thread]
        for b in range(thread, len(starts) - 1, n_threads):
            own = entities[starts[b] : starts[b + 1]]
            row[own] = 1
            for i in range(len(own)):
                for slot in range(offsets[own[i]], offsets[own[i] + 1]):
                    degrees[starts[b] + i] += keep[slot] & (row[neighbours[slot]] > 0)
            row[own] = 0


@njit(parallel=True, nogil=True, cache=True)
def _fill(
    entities: Any, starts: Any, offsets: Any, neighbours: Any, keep: Any, rows: Any, firsts: Any,
    sources: Any, slots: Any,
) -> None:  # fmt: skip
    n_threads = len(rows)
    for thread in prange(n_threads):
        row = rows[thread]
        for b in range(thread, len(starts) - 1, n_threads):
            own = entities[starts[b] : starts[b + 1]]
            for i in range(len(own)):
                row[own[i]] = starts[b] + i + 1
            for i in range(len(own)):
                at = firsts[starts[b] + i]
                for slot in range(offsets[own[i]], offsets[own[i] + 1]):
                    source = row[neighbours[slot]]
                    if keep[slot] and source > 0:
                        sources[at], slots[at] = source - 1, slot
                        at += 1
            row[own] = 0


def induced(
    edges: Any, keep_M: Tensor, entities_A: Tensor, starts_B1: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the edges between entities of the same query: degrees, source rows and slots."""
    n_threads = min(numba.get_num_threads(), max(len(starts_B1) - 1, 1))
    rows = np.zeros((n_threads, edges.n_entities), np.int32)
    graph = arrays(edges.offsets_E1, edges.neighbours_M, keep_M)
    own = arrays(entities_A, starts_B1)
    degrees_A = torch.zeros_like(entities_A)
    _count(*own, *graph, rows, degrees_A.numpy())  # type: ignore[call-arg]
    firsts_A, n = degrees_A.cumsum(0) - degrees_A, int(degrees_A.sum())
    sources_N, slots_N = torch.empty(n, dtype=torch.long), torch.empty(n, dtype=torch.long)
    _fill(*own, *graph, rows, *arrays(firsts_A, sources_N, slots_N))  # type: ignore[call-arg]
    return degrees_A, sources_N, slots_N
