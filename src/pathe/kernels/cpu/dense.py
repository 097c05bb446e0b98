"""Numba kernels of `model.dense`: hops of queries that reach most entities.

The states of all entities lie one after the other, so an edge's source needs no lookup, and a
query's states stay in the cache of one core for all hops. Edges of one relation into one entity are
a run: their states are summed first, then multiplied once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import njit, prange, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array
from torch import Tensor

from pathe.kernels.cpu.rows import arrays

_FAST = {"contract", "reassoc", "nsz", "arcp"}
LANES = 8  # floats per register of AVX2, which has 16 of them
STEP = 4 * LANES  # columns per pass over an entity's edges: four sums, four totals
ROWS, COLUMNS = 6, 2 * LANES  # of a block of a matrix product: twelve totals
_VECTOR = ir.VectorType(ir.FloatType(), LANES)


class _Code:
    """What the intrinsics need to read and write rows of float32 arrays."""

    def __init__(self, context: Any, builder: Any, signature: Any, given: Any) -> None:
        self.context, self.builder, self.kinds, self.given = context, builder, signature.args, given
        self.word = context.get_value_type(types.intp)

    def array(self, i: int) -> Any:
        make = make_array(self.kinds[i])  # type: ignore[no-untyped-call]
        return make(self.context, self.builder, self.given[i])

    def plus(self, value: Any, number: int) -> Any:
        return self.builder.add(value, ir.Constant(self.word, number))

    def place(self, array: Any, row: Any, column: Any) -> Any:
        width = cgutils.unpack_tuple(self.builder, array.shape)[1]  # type: ignore[no-untyped-call]
        at = self.builder.add(self.builder.mul(row, width), column)
        return self.builder.gep(array.data, [at])

    def vector(self, place: Any) -> Any:
        return self.builder.bitcast(place, _VECTOR.as_pointer())

    def load(self, place: Any) -> Any:
        return self.builder.load(self.vector(place), align=4)

    def number(self, array: Any, i: Any) -> Any:
        value = self.builder.load(self.builder.gep(array.data, [i]))
        return self.builder.sext(value, self.word)

    def zeros(self, n: int) -> list[Any]:
        """Returns n registers, set to zero."""
        new = cgutils.alloca_once
        found = [new(self.builder, _VECTOR) for _ in range(n)]  # type: ignore[no-untyped-call]
        for register in found:
            self.clear(register)
        return found

    def clear(self, register: Any) -> None:
        self.builder.store(ir.Constant(_VECTOR, None), register)

    def add(self, register: Any, value: Any, factor: Any | None = None) -> None:
        """Adds value, or value * factor, to a register."""
        if factor is not None:
            value = self.builder.fmul(value, factor, flags=("contract",))
        total = self.builder.fadd(self.builder.load(register), value, flags=("contract",))
        self.builder.store(total, register)


@intrinsic
def _sum_runs(
    typing: Any, out: Any, row: Any, x: Any, weights: Any, sources: Any, starts: Any, kinds: Any,
    first: Any, last: Any, at: Any, to: Any,
) -> Any:  # fmt: skip
    """Sets STEP columns of out[row], from `to`: the sum over runs of weights[kind] * sum of x.

    The columns of x and of the weights are those from `at`.
    """

    def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        own = _Code(context, builder, signature, given)
        out, x, weights, sources, starts, kinds = (own.array(i) for i in (0, 2, 3, 4, 5, 6))
        row, (first, last, at, to) = given[1], given[7:]
        columns = [own.plus(at, i) for i in range(0, STEP, LANES)]
        totals, sums = own.zeros(len(columns)), own.zeros(len(columns))
        with cgutils.for_range(builder, last, start=first) as runs:
            for total in sums:
                own.clear(total)
            start, stop = (
                own.number(starts, runs.index),
                own.number(starts, own.plus(runs.index, 1)),
            )
            with cgutils.for_range(builder, stop, start=start) as slots:
                source = own.number(sources, slots.index)
                for total, column in zip(sums, columns, strict=True):
                    own.add(total, own.load(own.place(x, source, column)))
            kind = own.number(kinds, runs.index)
            for total, part, column in zip(totals, sums, columns, strict=True):
                own.add(total, builder.load(part), own.load(own.place(weights, kind, column)))
        for i, total in enumerate(totals):
            place = own.vector(own.place(out, row, own.plus(to, LANES * i)))
            builder.store(builder.load(total), place, align=4)
        return context.get_dummy_value()

    whole = (types.intp,) * 4
    given = out, types.intp, x, weights, sources, starts, kinds, *whole
    return types.void(*given), code


@intrinsic
def _multiply(typing: Any, out: Any, at: Any, x: Any, row: Any, panel: Any, size: Any) -> Any:
    """Sets COLUMNS columns of out, from `at`: ROWS rows of x, from `row`, times a panel.

    `size` columns of x count; the panel has a row for each.
    """

    def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        own = _Code(context, builder, signature, given)
        out, x, panel = (own.array(i) for i in (0, 2, 4))
        at, row, size = given[1], given[3], given[5]
        zero = ir.Constant(own.word, 0)
        totals = own.zeros(2 * ROWS)
        rows = [own.place(x, own.plus(row, r), zero) for r in range(ROWS)]
        with cgutils.for_range(builder, size) as loop:
            factors = [
                own.load(own.place(panel, loop.index, ir.Constant(own.word, c)))
                for c in range(0, COLUMNS, LANES)
            ]
            for r in range(ROWS):
                value = builder.load(builder.gep(rows[r], [loop.index]))
                first = builder.insert_element(
                    ir.Constant(_VECTOR, ir.Undefined), value, ir.Constant(ir.IntType(32), 0)
                )
                same = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
                each = builder.shuffle_vector(first, ir.Constant(_VECTOR, ir.Undefined), same)
                for c, factor in enumerate(factors):
                    own.add(totals[2 * r + c], each, factor)
        for r in range(ROWS):
            for c in range(2):
                place = own.place(out, ir.Constant(own.word, r), own.plus(at, c * LANES))
                total = builder.load(totals[2 * r + c])
                builder.store(total, own.vector(place), align=4)
        return context.get_dummy_value()

    return types.void(out, types.intp, x, types.intp, panel, types.intp), code


@njit(nogil=True, cache=True)
def _list_runs(
    offsets: Any, neighbours: Any, relations: Any, keep: Any, sources: Any, starts: Any,
    kinds: Any, firsts: Any,
) -> tuple[int, int]:  # fmt: skip
    n_slots, n_runs = 0, 0
    for v in range(len(offsets) - 1):
        before = -1
        firsts[v] = n_runs
        for slot in range(offsets[v], offsets[v + 1]):
            if keep[slot]:
                if relations[slot] != before:
                    before = relations[slot]
                    starts[n_runs], kinds[n_runs] = n_slots, before
                    n_runs += 1
                sources[n_slots] = neighbours[slot]
                n_slots += 1
    firsts[len(offsets) - 1], starts[n_runs] = n_runs, n_slots
    return n_slots, n_runs


@njit(nogil=True, cache=True)
def _mark(v: int, sources: Any, starts: Any, firsts: Any, marked: Any) -> None:
    """Marks an entity's neighbours."""
    for slot in range(starts[firsts[v]], starts[firsts[v + 1]]):
        marked[sources[slot]] = True


@njit(nogil=True, cache=True)
def _count_near(v: int, n_hops: int, sources: Any, starts: Any, firsts: Any) -> int:
    """Counts the entities within some hops."""
    n = len(firsts) - 1
    near, done = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
    near[v] = True
    for _ in range(n_hops):
        if 2 * near.sum() > n:  # enough to know
            break
        for u in np.flatnonzero(near & ~done):
            _mark(int(u), sources, starts, firsts, near)
            done[u] = True
    return int(near.sum())


@njit(nogil=True, cache=True, fastmath=_FAST)
def _rescale(sums: Any) -> None:
    """Rescales summed messages to the logarithm of their norm."""
    total = np.float32(0)
    for value in sums:
        total += value * value
    size = np.sqrt(total / np.float32(len(sums)) + np.float32(1e-12))
    share = np.float32(np.log1p(size) / size)
    for d in range(len(sums)):
        sums[d] *= share


@njit(nogil=True, cache=True, fastmath=_FAST)
def _hop(
    row: int, x: Any, new: Any, weights: Any, take: Any, sources: Any, starts: Any, kinds: Any,
    firsts: Any, both: Any, room: Any,
) -> None:  # fmt: skip
    """Computes the states of ROWS entities after a hop, from those of all before it."""
    dim = x.shape[1]
    for r in range(ROWS):
        v = min(row + r, len(firsts) - 2)  # rows beyond the last entity: computed, never read
        both[r, :dim] = x[row + r]
        for at in range(0, dim, STEP):
            _sum_runs(
                both, r, x, weights, sources, starts, kinds, firsts[v], firsts[v + 1], at, dim + at
            )  # type: ignore[call-arg]
        _rescale(both[r, dim:])
    for panel in range(len(take)):
        _multiply(room, panel * COLUMNS, both, 0, take[panel], 2 * dim)  # type: ignore[call-arg]
    zero = np.float32(0)
    for r in range(ROWS):
        before, change, after = x[row + r], room[r], new[row + r]
        for d in range(dim):
            after[d] = before[d] + max(change[d], zero)


@njit(nogil=True, cache=True, fastmath={"contract", "reassoc"})
def _score(row: int, x: Any, asked: Any, first: Any, second: Any, room: Any, out: Any) -> None:
    """Scores ROWS entities by their states."""
    for panel in range(len(first)):
        _multiply(room, panel * COLUMNS, x, row, first[panel], first.shape[1])  # type: ignore[call-arg]
    zero = np.float32(0)
    for r in range(min(ROWS, len(out) - row)):
        hidden, total = room[r], zero
        for h in range(len(asked)):
            # the difference first, or a zero state would not score exactly zero
            total += (max(hidden[h] + asked[h], zero) - max(asked[h], zero)) * second[h]
        out[row + r] = total


@njit(nogil=True, cache=True)
def _begin(x: Any, source: int, state: Any, sources: Any, starts: Any, firsts: Any) -> Any:
    """Sets the states before the first hop; returns which entities have one after it."""
    x[:] = np.float32(0)
    x[0, source] = state
    reached = np.zeros(x.shape[1], np.bool_)
    reached[source] = True
    _mark(source, sources, starts, firsts, reached)
    return reached


@njit(parallel=True, nogil=True, cache=True)
def _each(
    rooms: Any, begin: Any, asked: Any, at: Any, weights: Any, takes: Any, first: Any, second: Any,
    sources: Any, starts: Any, kinds: Any, firsts: Any, out: Any,
) -> None:  # fmt: skip
    """Scores queries, one per core at a time."""
    n = out.shape[1]
    for worker in prange(len(rooms)):
        x = rooms[worker]
        both = np.empty((ROWS, 2 * x.shape[2]), np.float32)
        room = np.empty((ROWS, max(COLUMNS * len(first), x.shape[2])), np.float32)
        for b in range(worker, len(out), len(rooms)):
            reached = _begin(x, at[b], begin[b], sources, starts, firsts)
            for hop in range(len(weights)):
                old, new = x[hop % 2], x[1 - hop % 2]
                for row in range(0, n, ROWS):
                    if hop or reached[row : row + ROWS].any():
                        _hop(row, old, new, weights[hop, b], takes[hop], sources, starts, kinds,
                             firsts, both, room)  # fmt: skip
            for row in range(0, n, ROWS):
                _score(row, x[len(weights) % 2], asked[b], first, second, room, out[b])


@njit(parallel=True, nogil=True, cache=True)
def _one(
    x: Any, n_tasks: int, begin: Any, asked: Any, at: int, weights: Any, takes: Any, first: Any,
    second: Any, sources: Any, starts: Any, kinds: Any, firsts: Any, out: Any,
) -> None:  # fmt: skip
    """Scores one query on all cores."""
    n, dim = len(out), x.shape[2]
    wide = max(COLUMNS * len(first), dim)
    reached = _begin(x, at, begin, sources, starts, firsts)
    for hop in range(len(weights)):
        for task in prange(n_tasks):  # in turn, as the first entities may have most edges
            both, room = np.empty((ROWS, 2 * dim), np.float32), np.empty((ROWS, wide), np.float32)
            for row in range(task * ROWS, n, n_tasks * ROWS):
                if hop or reached[row : row + ROWS].any():
                    _hop(row, x[hop % 2], x[1 - hop % 2], weights[hop], takes[hop], sources, starts,
                         kinds, firsts, both, room)  # fmt: skip
    for task in prange(n_tasks):
        room = np.empty((ROWS, wide), np.float32)
        for row in range(task * ROWS, n, n_tasks * ROWS):
            _score(row, x[len(weights) % 2], asked, first, second, room, out)


def runs(edges: Any, keep_M: Tensor) -> tuple[Any, ...]:
    """Returns kept edges as runs: sources, where runs start, their kinds, each entity's first."""
    n = len(keep_M)
    sources, kinds = np.empty((2, n), np.int32)
    starts, firsts = np.empty(n + 1, np.int32), np.empty(edges.n_entities + 1, np.int64)
    given = arrays(edges.offsets_E1, edges.neighbours_M, edges.relations_M, keep_M)
    given += [sources, starts, kinds, firsts]
    n_slots, n_runs = _list_runs(*given)
    return sources[:n_slots], starts[: n_runs + 1], kinds[:n_runs], firsts


def near(of_runs: tuple[Any, ...], sources_B: Tensor, n_hops: int) -> int:
    """Counts the entities within some hops, summed over queries; stops at half of them."""
    sources, starts, _, firsts = of_runs
    parts: list[Any] = [n_hops, sources, starts, firsts]
    return sum(_count_near(v, *parts) for v in sources_B.tolist())


def answer_scores(
    of_runs: tuple[Any, ...], sources_B: Tensor, begin_BD: Tensor, weights: Sequence[Tensor],
    takes: Sequence[Tensor], evidence: tuple[Tensor, Tensor, Tensor],
) -> Tensor:  # fmt: skip
    """Returns (B, E) scores of each entity as an answer, from its state after all hops."""
    asked_BH, first_HD, second_1H = evidence
    b, n, dim = len(sources_B), len(of_runs[3]) - 1, begin_BD.shape[1]
    out_BE, padded = begin_BD.new_empty(b, n), -(-n // ROWS) * ROWS
    begin, asked, at = arrays(*(part.contiguous() for part in (begin_BD, asked_BH, sources_B)))
    by_hop, panels = np.stack(arrays(*weights)), np.stack([_panels(take) for take in takes])
    layers = [panels, _panels(first_HD), *arrays(second_1H[0].contiguous()), *of_runs]
    workers = numba.get_num_threads()
    rooms, parts = np.empty((min(workers, b), 2, padded, dim), np.float32), list[Any]()
    if b == 1:
        parts += [rooms[0], workers, begin[0], asked[0], at[0], by_hop[:, 0], *layers]
        _one(*parts, *arrays(out_BE[0]))
    else:
        parts += [rooms, begin, asked, at, by_hop, *layers]
        _each(*parts, *arrays(out_BE))
    return out_BE


def _panels(weight_NK: Tensor) -> Any:
    """Returns the transposed matrix in panels of COLUMNS columns: (N / COLUMNS, K, COLUMNS)."""
    n, k = weight_NK.shape
    panels = weight_NK.detach().numpy().reshape(n // COLUMNS, COLUMNS, k)
    return np.ascontiguousarray(panels.transpose(0, 2, 1))
