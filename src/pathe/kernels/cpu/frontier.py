"""Numba kernels of `model.frontier`: how mass spreads, and the edges between entities.

Queries are independent, so each runs in one thread, and holds no more than it finds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numba
import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

from pathe.kernels.cpu.rows import arrays

# numbers of an entity that was found: mass that it passes on, gets and got in all; this hop's mark
NOW, NEW, TOTAL, MARK = range(4)


class Graph(NamedTuple):
    """The slots of a graph's edges, by owner, as arrays."""

    offsets: Any
    neighbours: Any
    keep: Any


def _graph(edges: Any, keep_M: Tensor) -> Graph:
    return Graph(*arrays(edges.offsets_E1, edges.neighbours_M, keep_M))


def _for_each(run: Callable[..., Any], *queries: Iterable[Any]) -> list[Any]:
    """Runs a function for each query, in as many threads as Numba has."""
    with ThreadPoolExecutor(numba.get_num_threads()) as threads:
        return list(threads.map(run, *queries))


@njit(nogil=True, cache=True)
def _slot(table: Any, ids: Any, v: int) -> int:
    """Returns the slot of an entity in a hash table, or the empty one where it belongs.

    A slot holds the entity's row in `ids` plus one; an empty one holds 0.
    """
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
        table[_slot(table, new_ids, new_ids[row])] = row + 1
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
def _order(active: Any, ids: Any, work: Any, offsets: Any, left_out: Any, spread: Any) -> Any:
    """Returns shares and degrees of active rows, and their order: the largest share first.

    `left_out` are the slots that aren't kept, ascending.
    """
    shares, degrees = np.zeros(len(active), np.int64), np.zeros(len(active), np.int64)
    for i in range(len(active)):
        first, last = offsets[ids[active[i]]], offsets[ids[active[i]] + 1]
        n_left_out = np.searchsorted(left_out, last) - np.searchsorted(left_out, first)
        degrees[i] = last - first - n_left_out
        if degrees[i]:
            passed = work[active[i], NOW] * spread.passed // spread.of
            shares[i] = passed // degrees[i]
    return shares, degrees, np.argsort(-shares, kind="mergesort")


@njit(nogil=True, cache=True)
def _spread(source: int, graph: Graph, left_out: Any, spread: Any, budget: int) -> Any:
    """Returns the entities that get mass within a budget, their mass, and if all in reach do."""
    size = 64
    while size < budget:
        size *= 2
    table, ids = np.zeros(2 * size, np.int32), np.empty(size, np.int32)
    work = np.zeros((size, 4), np.int64)
    ids[0], n_found, whole = source, 1, True
    table[_slot(table, ids, source)] = 1
    work[0, NOW] = work[0, TOTAL] = spread.mass
    active = np.zeros(1, np.int64)
    for hop in range(1, spread.n_hops + 1):
        shares, degrees, order = _order(active, ids, work, graph.offsets, left_out, spread)
        rows, n_rows, spent = np.empty(min(degrees.sum(), len(graph.offsets)), np.int64), 0, 0
        for i in order:
            if spent >= budget:
                whole = False
                break
            spent += degrees[i]
            u = ids[active[i]]
            table, ids, work = _grown(table, ids, work, n_found, degrees[i])
            for slot in range(graph.offsets[u], graph.offsets[u + 1]):
                if graph.keep[slot]:
                    at = _slot(table, ids, graph.neighbours[slot])
                    if not table[at]:
                        ids[n_found] = graph.neighbours[slot]
                        n_found += 1
                        table[at] = n_found
                    row = table[at] - 1
                    if work[row, MARK] != hop:
                        work[row, MARK] = hop
                        rows[n_rows] = row
                        n_rows += 1
                    work[row, NEW] += shares[i]
        active = _best(rows[:n_rows], ids, work, spread.most)
        for row in active:
            work[row, NOW] = work[row, NEW]
        for row in rows[:n_rows]:
            work[row, TOTAL] += work[row, NEW]
            work[row, NEW] = 0
    return ids[:n_found], work[:n_found, TOTAL], whole


@njit(nogil=True, cache=True)
def _spread_enough(source: int, graph: Graph, left_out: Any, spread: Any) -> Any:
    """Returns the entities that a query finds, ascending, and their mass.

    The budget grows until these are `most` entities, or all in reach.
    """
    budget = spread.budget
    ids, mass, whole = _spread(source, graph, left_out, spread, budget)
    while not whole and len(ids) < spread.most:
        budget *= 4
        ids, mass, whole = _spread(source, graph, left_out, spread, budget)
    order = np.argsort(ids)
    return ids[order].astype(np.int64), mass[order]


def spread_mass(
    edges: Any, keep_M: Tensor, sources_B: Tensor, spread: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns (query, entity, mass) of the entities that queries find, sorted by the first two."""
    if not len(sources_B):
        return sources_B, sources_B, sources_B
    graph, keep = _graph(edges, keep_M), keep_M.numpy()
    left_out = np.empty(0, np.int64) if keep.all() else np.flatnonzero(~keep)
    found = _for_each(
        lambda source: _spread_enough(source, graph, left_out, spread), sources_B.tolist()
    )
    entities_F, mass_F = (_joined(list(parts)) for parts in zip(*found, strict=True))
    sizes_B = torch.tensor([len(ids) for ids, _ in found])
    return torch.arange(len(found)).repeat_interleave(sizes_B), entities_F, mass_F


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
def _marks(own: Any, graph: Graph) -> Any:
    """Marks entities with one bit each, so that the marks of a large graph stay in cache."""
    bits = np.zeros(len(graph.offsets) // 8 + 1, np.uint8)
    for v in own:
        bits[v >> 3] |= 1 << (v & 7)
    return bits


@njit(nogil=True, cache=True)
def _edges_between(own: Any, graph: Graph) -> Any:
    """Returns the edges between one query's entities: degrees, source rows and slots.

    They are counted, then listed.
    """
    bits = _marks(own, graph)
    degrees, n = np.zeros(len(own), np.int64), 0
    sources = slots = np.empty(0, np.int64)
    for listing in (False, True):
        if listing:
            sources, slots = np.empty(n, np.int64), np.empty(n, np.int64)
        n = 0
        for i in range(len(own)):
            first = n
            for slot in range(graph.offsets[own[i]], graph.offsets[own[i] + 1]):
                v = graph.neighbours[slot]
                found = (bits[v >> 3] >> (v & 7)) & graph.keep[slot]
                if listing and found:
                    sources[n], slots[n] = np.searchsorted(own, v), slot
                n += found
            degrees[i] = n - first
    return degrees, sources, slots


def edges_between(
    edges: Any, keep_M: Tensor, entities_A: Tensor, starts_B1: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the edges between entities of the same query: degrees, source rows and slots.

    Entities rise within a query.
    """
    if len(starts_B1) < 2:
        return entities_A, entities_A, entities_A
    graph, starts = _graph(edges, keep_M), starts_B1.tolist()
    own = np.split(entities_A.numpy(), starts[1:-1])
    parts = _for_each(lambda entities: _edges_between(entities, graph), own)
    sources = [sources + first for (_, sources, _), first in zip(parts, starts, strict=False)]
    degrees, slots = ([part[i] for part in parts] for i in (0, 2))
    return _joined(degrees), _joined(sources), _joined(slots)


@njit(nogil=True, cache=True)
def _unkept(own: Any, graph: Graph, relations: Any, n_relations: int) -> Any:
    """Counts the edges from other entities to a query's own: rows, relations, counts."""
    bits, n_room = _marks(own, graph), 0
    for u in own:
        n_room += min(graph.offsets[u + 1] - graph.offsets[u], n_relations)
    rows, found = np.empty(n_room, np.int64), np.empty(n_room, np.int64)
    sums = np.empty(n_room, np.int64)
    counts, n = np.zeros(n_relations, np.int64), 0
    for i in range(len(own)):
        first = n
        for slot in range(graph.offsets[own[i]], graph.offsets[own[i] + 1]):
            v = graph.neighbours[slot]
            if graph.keep[slot] and not (bits[v >> 3] >> (v & 7)) & 1:
                if not counts[relations[slot]]:
                    found[n] = relations[slot]
                    n += 1
                counts[relations[slot]] += 1
        found[first:n].sort()
        for j in range(first, n):
            rows[j], sums[j] = i, counts[found[j]]
            counts[found[j]] = 0
    return rows[:n], found[:n], sums[:n]


def unkept(
    edges: Any, keep_M: Tensor, entities_A: Tensor, starts_B1: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Counts the edges from other entities to each query's own: rows, relations, counts."""
    if len(starts_B1) < 2:
        return entities_A, entities_A, entities_A
    graph, starts, relations = _graph(edges, keep_M), starts_B1.tolist(), edges.relations_M.numpy()
    own = np.split(entities_A.numpy(), starts[1:-1])
    parts = _for_each(lambda one: _unkept(one, graph, relations, 2 * edges.n_relations), own)
    rows = [rows + first for (rows, *_), first in zip(parts, starts, strict=False)]
    found, counts = ([part[i] for part in parts] for i in (1, 2))
    return _joined(rows), _joined(found), _joined(counts)


def _joined(parts: list[Any]) -> Tensor:
    return torch.from_numpy(np.concatenate(parts))
