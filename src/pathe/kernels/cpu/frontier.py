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
# numbers of an entity that was found: mass that it passes on, gets and got in all; this hop's mark
NOW, NEW, TOTAL, MARK = range(4)


@njit(nogil=True, cache=True)
def _place(table: Any, ids: Any, v: int) -> int:
    """Returns an entity's place in a hash table, which holds rows of `ids` + 1; 0 if it's new."""
    last = len(table) - 1
    at = (v * 2654435761 >> 8) & last
    while table[at] and ids[table[at] - 1] != v:
        at = (at + 1) & last
    return at


@njit(nogil=True, cache=True)
def _grown(table: Any, ids: Any, work: Any, n_found: int, n_more: int) -> Any:
    """Returns a larger table and rows if there is no room for more entities."""
    size = len(ids)
    if n_found + n_more <= size:
        return table, ids, work
    while size < n_found + n_more:
        size *= 2
    new_ids, new_work = np.empty(size, ids.dtype), np.zeros((size, 4), np.int64)
    new_ids[:n_found], new_work[:n_found] = ids[:n_found], work[:n_found]
    table = np.zeros(2 * size, table.dtype)
    for row in range(n_found):
        table[_place(table, new_ids, new_ids[row])] = row + 1
    return table, new_ids, new_work


@njit(nogil=True, cache=True)
def _by_id(rows: Any, ids: Any) -> Any:
    """Returns rows by rising entity."""
    return rows[np.argsort(ids[rows])]


@njit(nogil=True, cache=True)
def _best(rows: Any, ids: Any, work: Any, most: int) -> Any:
    """Returns the rows with the most new mass, by entity; ties go to the smaller ones."""
    n = len(rows)
    if n <= most:
        return _by_id(rows, ids)
    own = np.empty(n, np.int64)
    for i in range(n):
        own[i] = work[rows[i], NEW]
    limit = np.partition(own, n - most)[n - most]
    found, level = np.empty(most, rows.dtype), np.empty(n, rows.dtype)
    n_found = n_level = 0
    for i in range(n):
        if own[i] > limit:
            found[n_found] = rows[i]
            n_found += 1
        elif own[i] == limit:
            level[n_level] = rows[i]
            n_level += 1
    found[n_found:] = _by_id(level[:n_level], ids)[: most - n_found]
    return _by_id(found, ids)


@njit(nogil=True, cache=True)
def _order(active: Any, ids: Any, work: Any, offsets: Any, keep: Any, numbers: Any) -> Any:
    """Returns shares and degrees of active rows, and their order: the largest share first."""
    shares, degrees = np.zeros(len(active), np.int64), np.zeros(len(active), np.int64)
    for i in range(len(active)):
        u = ids[active[i]]
        for slot in range(offsets[u], offsets[u + 1]):
            degrees[i] += keep[slot]
        if degrees[i]:
            shares[i] = work[active[i], NOW] * numbers[0] // numbers[1] // degrees[i]
    return shares, degrees, np.argsort(-shares, kind="mergesort")


@njit(nogil=True, cache=True)
def _search(
    source: int, offsets: Any, neighbours: Any, keep: Any, n_hops: int, most: int, budget: int,
    numbers: Any,
) -> Any:  # fmt: skip
    """Returns the entities that get mass within a budget, their mass, and if all in reach do."""
    size = 64
    while size < budget:
        size *= 2
    table, ids = np.zeros(2 * size, np.int32), np.empty(size, np.int32)
    work = np.zeros((size, 4), np.int64)
    ids[0], n_found, whole = source, 1, True
    table[_place(table, ids, source)] = 1
    work[0, NOW] = work[0, TOTAL] = numbers[3]
    active = np.zeros(1, np.int64)
    for hop in range(1, n_hops + 1):
        shares, degrees, order = _order(active, ids, work, offsets, keep, numbers)
        rows, n_rows, spent = np.empty(min(degrees.sum(), len(offsets)), np.int64), 0, 0
        for i in order:
            if spent >= budget:
                whole = False
                break
            spent += degrees[i]
            u = ids[active[i]]
            table, ids, work = _grown(table, ids, work, n_found, degrees[i])
            for slot in range(offsets[u], offsets[u + 1]):
                if keep[slot]:
                    at = _place(table, ids, neighbours[slot])
                    if not table[at]:
                        ids[n_found] = neighbours[slot]
                        n_found += 1
                        table[at] = n_found
                    row = table[at] - 1
                    if work[row, MARK] != hop:
                        work[row, MARK] = hop
                        rows[n_rows] = row
                        n_rows += 1
                    work[row, NEW] += shares[i]
        active = _best(rows[:n_rows], ids, work, most)
        for row in active:
            work[row, NOW] = work[row, NEW]
        for row in rows[:n_rows]:
            work[row, TOTAL] += work[row, NEW]
            work[row, NEW] = 0
    return ids[:n_found], work[:n_found, TOTAL], whole


@njit(parallel=True, nogil=True, cache=True)
def _search_all(
    sources: Any, offsets: Any, neighbours: Any, keep: Any, n_hops: int, most: int, numbers: Any,
    found: Any, mass: Any, counts: Any,
) -> None:  # fmt: skip
    for b in prange(len(sources)):
        budget = numbers[2] * most
        while True:
            ids, total, whole = _search(
                sources[b], offsets, neighbours, keep, n_hops, most, budget, numbers
            )
            if whole or len(ids) >= most:
                break
            budget *= 4
        codes = np.empty(len(ids), np.int64)
        for i in range(len(ids)):
            codes[i] = np.int64(ids[i]) << 32 | i
        codes = np.sort(codes)
        for i in range(len(codes)):
            found[b, i] = codes[i] >> 32
            mass[b, i] = total[codes[i] & 0xFFFFFFFF]
        counts[b] = len(ids)


def search(
    edges: Any, keep_M: Tensor, sources_B: Tensor, n_hops: int, most: int, numbers: tuple[int, ...]
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns (query, entity, mass) of the entities that queries find, sorted by the first two.

    What a search holds grows with the entities that it finds, not with the graph.
    """
    n, parts = edges.n_entities, []
    graph = arrays(edges.offsets_E1, edges.neighbours_M, keep_M)
    size = max(AT_ONCE // max(n, 1), numba.get_num_threads())
    for first in range(0, len(sources_B), size):
        sources_F = sources_B[first : first + size]
        b = len(sources_F)
        found, mass = np.empty((b, n), np.int32), np.empty((b, n), np.int64)
        counts = np.zeros(b, np.int64)
        _search_all(  # type: ignore[call-arg]
            sources_F.numpy(), *graph, n_hops, most, np.array(numbers, np.int64), found, mass,
            counts,
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
def _top(starts: Any, values: Any, most: int, chosen: Any) -> None:
    for b in prange(len(starts) - 1):
        own = values[starts[b] : starts[b + 1]]
        n, first = len(own), starts[b]
        if n <= most:
            chosen[first : first + n] = True
            continue
        limit = np.partition(own, n - most)[n - most]
        left = most
        for i in range(n):
            left -= own[i] > limit
        for i in range(n):
            if own[i] > limit:
                chosen[first + i] = True
            elif own[i] == limit and left > 0:
                chosen[first + i] = True
                left -= 1


def top(queries_A: Tensor, values_A: Tensor, most: int) -> Tensor:
    """Returns the rows of each query's `most` largest values, ascending; queries rise."""
    chosen_A = torch.zeros(len(queries_A), dtype=torch.bool)
    if most > 0 and len(queries_A):
        counts_B = torch.bincount(queries_A)
        starts_B1 = torch.cat([counts_B.new_zeros(1), counts_B.cumsum(0)])
        _top(*arrays(starts_B1, values_A), most, chosen_A.numpy())  # type: ignore[call-arg]
    return chosen_A.nonzero().squeeze(1)


@njit(nogil=True, cache=True)
def _mark(bits: Any, own: Any) -> None:
    """Sets the bits of entities: one bit each, so that the marks of a large graph stay in cache."""
    for v in own:
        bits[v >> 3] |= 1 << (v & 7)


@njit(parallel=True, nogil=True, cache=True)
def _count(
    entities: Any, starts: Any, offsets: Any, neighbours: Any, keep: Any, marks: Any, degrees: Any
) -> None:
    n_threads = len(marks)
    for thread in prange(n_threads):
        bits = marks[thread]
        for b in range(thread, len(starts) - 1, n_threads):
            own = entities[starts[b] : starts[b + 1]]
            _mark(bits, own)
            for i in range(len(own)):
                for slot in range(offsets[own[i]], offsets[own[i] + 1]):
                    v = neighbours[slot]
                    degrees[starts[b] + i] += (bits[v >> 3] >> (v & 7)) & keep[slot]
            for v in own:
                bits[v >> 3] = 0


@njit(parallel=True, nogil=True, cache=True)
def _fill(
    entities: Any, starts: Any, offsets: Any, neighbours: Any, keep: Any, marks: Any, firsts: Any,
    sources: Any, slots: Any,
) -> None:  # fmt: skip
    n_threads = len(marks)
    for thread in prange(n_threads):
        bits = marks[thread]
        for b in range(thread, len(starts) - 1, n_threads):
            own = entities[starts[b] : starts[b + 1]]
            _mark(bits, own)
            for i in range(len(own)):
                at = firsts[starts[b] + i]
                for slot in range(offsets[own[i]], offsets[own[i] + 1]):
                    v = neighbours[slot]
                    if (bits[v >> 3] >> (v & 7)) & 1 and keep[slot]:
                        sources[at] = starts[b] + np.searchsorted(own, v)
                        slots[at] = slot
                        at += 1
            for v in own:
                bits[v >> 3] = 0


def induced(
    edges: Any, keep_M: Tensor, entities_A: Tensor, starts_B1: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the edges between entities of the same query: degrees, source rows and slots.

    Entities rise within a query.
    """
    n_threads = min(numba.get_num_threads(), max(len(starts_B1) - 1, 1))
    marks = np.zeros((n_threads, edges.n_entities // 8 + 1), np.uint8)
    graph = arrays(edges.offsets_E1, edges.neighbours_M, keep_M)
    own = arrays(entities_A, starts_B1)
    degrees_A = torch.zeros_like(entities_A)
    _count(*own, *graph, marks, degrees_A.numpy())  # type: ignore[call-arg]
    firsts_A, n = degrees_A.cumsum(0) - degrees_A, int(degrees_A.sum())
    sources_N, slots_N = torch.empty(n, dtype=torch.long), torch.empty(n, dtype=torch.long)
    _fill(*own, *graph, marks, *arrays(firsts_A, sources_N, slots_N))  # type: ignore[call-arg]
    return degrees_A, sources_N, slots_N
