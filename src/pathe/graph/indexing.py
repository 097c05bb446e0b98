"""Sorted triples on disk -> all arrays of a prepared graph on disk, in bounded memory.

Arrays that are sorted by entity are made range by range. Each equals what the functions for a graph
in memory make of the whole: `build_graph`, `both_ways`, `arrivals` and `KnownTriples`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from pathe.core.files import replacing
from pathe.core.types import Part, Progress
from pathe.data.array_files import (
    Append,
    array_writer,
    mapped,
    writable_map,
    write_array,
)
from pathe.data.external_sort import (
    ROWS,
    Keys,
    Rows,
    append_rows,
    choose_pivots,
    in_buckets,
    sampled,
)
from pathe.data.split_files import SPLITS
from pathe.graph.adjacency import Adjacency, merge, owners, sort_order
from pathe.graph.edges import chunk_places
from pathe.graph.known import COLUMNS, NO_KEY, STRIDE

Array = npt.NDArray[Any]


class Place(NamedTuple):
    """A folder of arrays, a folder for temporary files, and the size of the graph."""

    folder: Path
    work: Path
    n_entities: int
    n_relations: int

    def get(self, name: str) -> Array:
        """Opens an array as a memory map."""
        return mapped(self.folder / f"{name}.npy")

    def path(self, name: str) -> Path:
        return self.folder / f"{name}.npy"


def index_outgoing(place: Place, progress: Progress) -> None:
    """Writes the outgoing adjacency, which is the training triples themselves."""
    train = place.get("train")
    columns = {"relations_M": 1, "neighbours_M": 2}
    for name, k in columns.items():
        with array_writer(place.path(f"outgoing.{name}"), np.int32) as append:
            for chunk in _chunks(train, progress):
                append(chunk[:, k])
    with array_writer(place.path("outgoing.triples_M"), np.int32) as append:
        for start in range(0, len(train), ROWS):
            append(np.arange(start, min(start + ROWS, len(train))))
    heads = (chunk[:, 0] for chunk in _chunks(train, progress))
    _write_offsets(place.path("outgoing.offsets_E1"), heads, place.n_entities)


def index_incoming(place: Place, progress: Progress) -> None:
    """Writes the incoming adjacency of each split; only that of train is kept in the end."""
    for split in SPLITS:
        name = "incoming" if split == "train" else f"{split}_incoming"
        folder = place.folder if split == "train" else place.work
        _sort_by_tail(place, split, folder / name, progress)


def _sort_by_tail(place: Place, split: str, stem: Path, progress: Progress) -> None:
    """Writes the triples of a split sorted by (tail, relation, head), as an adjacency."""
    triples, n = place.get(split), place.n_relations

    def key(rows: Rows) -> Keys:
        return rows[:, 0].astype(np.int64) * n + rows[:, 1]

    def turned() -> Iterator[Rows]:
        start = 0
        for rows in _chunks(triples, progress):
            ids = np.arange(start, start + len(rows), dtype=np.int32)
            yield np.stack([rows[:, 2], rows[:, 1], rows[:, 0], ids], 1)
            start += len(rows)

    keys = [sampled(key(rows)) for rows in turned()]
    pivots = choose_pivots(np.concatenate([*keys, np.zeros(0, np.int64)]), len(triples))

    def path(name: str) -> Path:
        return stem.with_name(f"{stem.name}.{name}.npy")

    columns = {"relations_M": 1, "neighbours_M": 2, "triples_M": 3}
    with ExitStack() as stack:
        writers = {
            k: stack.enter_context(array_writer(path(c), np.int32)) for c, k in columns.items()
        }

        def tails() -> Iterator[Array]:
            for rows in in_buckets(turned(), key, pivots, place.work / "buckets"):
                keys = torch.from_numpy(key(rows))
                first = int(keys.min())
                order = sort_order(keys - first, int(keys.max()) - first + 1).numpy()
                for k, append in writers.items():
                    append(rows[order, k])
                yield rows[order, 0]

        _write_offsets(path("offsets_E1"), tails(), place.n_entities)


def _write_offsets(path: Path, sorted_owners: Iterator[Array], n_entities: int) -> None:
    """Writes the offsets of entities' rows, given the owners of all rows in order."""
    with replacing(path) as aside:
        offsets: Any = writable_map(aside, np.int64, (n_entities + 1,))
        for chunk in sorted_owners:
            first, counts = int(chunk[0]), np.bincount(chunk - chunk[0])
            offsets[first + 1 : first + 1 + len(counts)] += counts
        total = 0
        for start in range(0, n_entities + 1, ROWS):
            block = offsets[start : start + ROWS]
            np.cumsum(block, out=block)
            block += total
            total = int(block[-1])
        offsets.flush()
        del offsets


def index_contexts(place: Place, progress: Progress) -> None:
    """Writes the relation counts of entities, in both directions."""
    for adjacency, contexts in (("outgoing", "out_contexts"), ("incoming", "in_contexts")):
        offsets = place.get(f"{adjacency}.offsets_E1")
        relations = place.get(f"{adjacency}.relations_M")
        with (
            array_writer(place.path(f"{contexts}.offsets_E1"), np.int64) as add_offsets,
            array_writer(place.path(f"{contexts}.relations_P"), np.int32) as add_relations,
            array_writer(place.path(f"{contexts}.counts_P"), np.int32) as add_counts,
        ):
            add_offsets(np.zeros(1, np.int64))
            total = 0
            for first, last in _ranges([offsets], progress):
                slots = slice(offsets[first], offsets[last])
                own = owners(_tensor(offsets[first : last + 1])).numpy()
                starts = np.flatnonzero(_new_groups(own, relations[slots]))
                add_relations(relations[slots][starts])
                add_counts(np.diff(starts, append=len(own)))
                ends = np.cumsum(np.bincount(own[starts], minlength=last - first)) + total
                add_offsets(ends)
                total = int(ends[-1])


def index_edges(place: Place, progress: Progress) -> None:
    """Writes the edges in both directions and the index of arrivals, sorted by entity.

    Where the two slots of each triple are goes to temporary files, for `index_slots`.
    """
    sides = [_Side(place, name) for name in ("incoming", "outgoing")]
    # each with its first number of a range
    fields = {"owners_M": np.int32, "neighbours_M": np.int32, "relations_M": np.int32}
    arrivals = ("starts_E", "entities_P", "kinds_P", "entry_M", "kinds_M", "pair_M", "by_pair_M")
    in_slots = place.work / "in_slots"
    in_slots.mkdir(exist_ok=True)
    for old in in_slots.iterdir():
        old.unlink()
    with ExitStack() as stack:
        add: dict[str, Append] = {
            name: stack.enter_context(array_writer(place.path(f"edges.{name}"), kind))
            for name, kind in (fields | {"triples_M": np.int64, "offsets_E1": np.int64}).items()
        }
        for name in arrivals:
            path = place.path(f"arrivals.{name}")
            add[f"arrivals.{name}"] = stack.enter_context(array_writer(path, np.int64))
        slots_path = place.work / "out_slots.npy"
        add["out_slots"] = stack.enter_context(array_writer(slots_path, np.int64))
        add["offsets_E1"](np.zeros(1, np.int64))
        base = _Base()
        for first, last in _ranges([side.offsets for side in sides], progress):
            incoming, outgoing = (side.part(first, last) for side in sides)
            edges = merge(incoming, outgoing, place.n_relations)
            own = owners(edges.offsets_E1).numpy().astype(np.int64) + first
            triples, kinds = edges.triples_M.numpy(), edges.relations_M.numpy()
            add["owners_M"](own)
            add["neighbours_M"](edges.neighbours_M.numpy())
            add["relations_M"](kinds)
            add["triples_M"](triples)
            add["offsets_E1"](edges.offsets_E1[1:].numpy() + base.slots)
            _split_slots(place, triples, kinds, base.slots, add["out_slots"])
            sources = edges.neighbours_M.numpy()
            base = _add_arrivals(place, add, (own, kinds, sources), (first, last), base)


class _Base(NamedTuple):
    """The numbers of slots, entries and pairs before a range of entities."""

    slots: int = 0
    entries: int = 0
    pairs: int = 0


class _Side:
    """An adjacency on disk."""

    def __init__(self, place: Place, name: str) -> None:
        self.offsets = place.get(f"{name}.offsets_E1")
        names = ("neighbours_M", "relations_M", "triples_M")
        self.columns = [place.get(f"{name}.{column}") for column in names]

    def part(self, first: int, last: int) -> Adjacency:
        """Returns the adjacency of a range of entities."""
        slots = slice(self.offsets[first], self.offsets[last])
        offsets = _tensor(self.offsets[first : last + 1] - self.offsets[first])
        return Adjacency(offsets, *(_tensor(column[slots]) for column in self.columns))


def _split_slots(place: Place, triples: Array, kinds: Array, base: int, add_out: Append) -> None:
    """Writes where triples' edges are: outgoing ones are in order, the others go to files by id."""
    out = kinds >= place.n_relations
    slots = np.arange(base, base + len(kinds))
    add_out(slots[out])
    ids, slots = triples[~out].astype(np.int64), slots[~out]
    order = np.argsort(ids // ROWS, kind="stable")
    numbers = ids[order] // ROWS
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    rows = np.stack([ids[order], slots[order]], 1)
    for start, end in zip(starts, np.append(starts[1:], len(rows)), strict=False):
        append_rows(place.work / "in_slots" / f"{numbers[start]:06}", rows[start:end])


def _add_arrivals(
    place: Place,
    add: dict[str, Append],
    slots: tuple[Array, Array, Array],
    entities: tuple[int, int],
    base: _Base,
) -> _Base:
    """Writes the arrivals of a range of entities, given its slots' owners, kinds and sources."""
    own, kinds, sources = slots
    n = len(own)
    new = _new_groups(own, kinds)
    starts = np.flatnonzero(new)
    sizes = np.bincount(own[starts] - entities[0], minlength=entities[1] - entities[0])
    add["arrivals.starts_E"](np.cumsum(sizes) - sizes + base.entries)
    add["arrivals.entities_P"](own[starts])
    add["arrivals.kinds_P"](kinds[starts])
    add["arrivals.entry_M"](np.cumsum(new) - 1 + base.entries)
    add["arrivals.kinds_M"](kinds)
    codes = (own - entities[0]) * place.n_entities + sources
    order = sort_order(_tensor(codes), (entities[1] - entities[0]) * place.n_entities).numpy()
    new_pairs = _new_groups(codes[order])
    pairs = np.empty(n, np.int64)
    pairs[order] = np.cumsum(new_pairs) - 1
    add["arrivals.pair_M"](pairs + base.pairs)
    add["arrivals.by_pair_M"](order + base.slots)
    return _Base(base.slots + n, base.entries + len(starts), base.pairs + int(new_pairs.sum()))


def index_slots(place: Place, progress: Progress) -> None:
    """Writes the two slots of each triple among the edges in both directions."""
    out_slots = mapped(place.work / "out_slots.npy")
    with array_writer(place.path("edges.slots_N2"), np.int64, 2) as append:
        for number, start in enumerate(range(0, len(out_slots), ROWS)):
            progress(start, len(out_slots))
            own = np.array(out_slots[start : start + ROWS])
            rows = np.fromfile(place.work / "in_slots" / f"{number:06}", np.int64).reshape(-1, 2)
            found = np.empty((len(own), 2), np.int64)
            found[:, 0] = own
            found[rows[:, 0] - start, 1] = rows[:, 1]
            append(np.sort(found, axis=1))


def index_relations(place: Place, progress: Progress) -> None:
    """Writes the slots of edges sorted by relation, in chunks."""
    relations, n_kinds = place.get("edges.relations_M"), 2 * place.n_relations
    sizes = np.zeros(n_kinds, np.int64)
    for chunk in _chunks(relations, progress):
        sizes += np.bincount(chunk, minlength=n_kinds)
    starts, offsets = chunk_places(_tensor(sizes))
    write_array(place.path("by_relation.starts_C1"), starts.numpy())
    write_array(place.path("by_relation.offsets_R1"), offsets.numpy())
    ends, start = np.cumsum(sizes) - sizes, 0  # where the next slot of each kind goes
    small = np.uint16 if n_kinds < 1 << 16 else np.int32  # short numbers are sorted faster
    with replacing(place.path("by_relation.order_M")) as aside:
        order_M: Any = writable_map(aside, np.int32, (len(relations),))
        for chunk in _chunks(relations, progress):
            order = np.argsort(chunk.astype(small), kind="stable")
            counts = np.bincount(chunk, minlength=n_kinds)
            within = np.arange(len(chunk)) - np.repeat(np.cumsum(counts) - counts, counts)
            order_M[np.repeat(ends, counts) + within] = order + start
            ends, start = ends + counts, start + len(chunk)
        order_M.flush()
        del order_M


def index_known(place: Place, progress: Progress) -> None:
    """Writes the known answers of all splits, for each part of a triple."""
    sizes = {"head": place.n_entities, "relation": place.n_relations, "tail": place.n_entities}
    columns = ("head", "relation", "tail")
    for part, (one, two, three) in COLUMNS.items():
        second, third = sizes[columns[two]], sizes[columns[three]]
        read = _rows_by_tail if one == 2 else _rows_by_head
        _write_lists(place, part, (second, third), read(place, part, progress))


Slice = tuple[int, int, list[Array]]  # a range of first ids; first ids, second ids and values


def _write_lists(
    place: Place, part: Part, bounds: tuple[int, int], slices: Iterator[Slice]
) -> None:
    """Writes sorted lists of values by key, from slices of rising keys."""
    groups = n_codes = 0
    with (
        array_writer(place.path(f"known_{part}.keys_G"), np.int64) as add_keys,
        array_writer(place.path(f"known_{part}.offsets_G1"), np.int64) as add_offsets,
        array_writer(place.path(f"known_{part}.codes_V1"), np.int64) as add_codes,
    ):
        add_offsets(np.zeros(1, np.int64))
        for base, last, columns in slices:
            one, two, three = _sorted_unique(columns, base, last, bounds)
            new = _new_groups(one, two)
            starts = np.flatnonzero(new)
            group = np.cumsum(new) - 1 + groups
            add_keys(one[starts] * STRIDE + two[starts])
            add_codes(group * STRIDE + three)
            add_offsets(np.append(starts[1:], len(one))[: len(starts)] + n_codes)
            groups, n_codes = groups + len(starts), n_codes + len(one)
        add_keys(np.array([NO_KEY]))
        add_codes(np.array([NO_KEY]))
        add_offsets(np.array([n_codes]))


def _sorted_unique(
    columns: list[Array], base: int, last: int, bounds: tuple[int, int]
) -> tuple[Array, Array, Array]:
    """Returns rows sorted by their three columns, each once, as int64."""
    one, two, three = (column.astype(np.int64) for column in columns)
    if (last - base) * bounds[0] * bounds[1] < 1 << 63:  # one number per row is sorted faster
        keys = ((one - base) * bounds[0] + two) * bounds[1] + three
        keys.sort()
        keys = keys[_new_groups(keys)]
        keys, three = np.divmod(keys, bounds[1])
        one, two = np.divmod(keys, bounds[0])
        return one + base, two, three
    order = np.lexsort((three, two, one))
    one, two, three = one[order], two[order], three[order]
    new = _new_groups(one, two, three)
    return one[new], two[new], three[new]


def _rows_by_head(place: Place, part: Part, progress: Progress) -> Iterator[Slice]:
    """Yields the triples of all splits by ranges of heads, as the columns of a part's lists."""
    splits = [place.get(split) for split in SPLITS]
    offsets, order = place.get("outgoing.offsets_E1"), list(COLUMNS[part])
    for first, last in _ranges([offsets], progress):
        rows = [split[_first_row(split, first) : _first_row(split, last)] for split in splits]
        yield first, last, list(np.concatenate(rows).T[order])


def _first_row(triples: Array, head: int) -> int:
    """Returns the first row whose head is at least this one."""
    return bisect_left(range(len(triples)), head, key=lambda i: triples[i, 0])


def _rows_by_tail(place: Place, part: Part, progress: Progress) -> Iterator[Slice]:
    """Yields the triples of all splits by ranges of tails: tails, relations and heads."""
    work = Place(place.work, place.work, place.n_entities, place.n_relations)
    sides = [_Side(place, "incoming"), _Side(work, "valid_incoming"), _Side(work, "test_incoming")]
    for first, last in _ranges([sides[0].offsets], progress):
        parts = [side.part(first, last) for side in sides]
        tails = np.concatenate([owners(part.offsets_E1).numpy() for part in parts]) + first
        relations = np.concatenate([part.relations_M.numpy() for part in parts])
        heads = np.concatenate([part.neighbours_M.numpy() for part in parts])
        yield first, last, [tails, relations, heads]


def _new_groups(*columns: Array) -> npt.NDArray[np.bool_]:
    """Returns a mask of rows that differ from the one before; the first always does."""
    new = np.ones(len(columns[0]), np.bool_)
    if len(new):
        new[1:] = False
        for column in columns:
            new[1:] |= column[1:] != column[:-1]
    return new


def _chunks(array: Array, progress: Progress) -> Iterator[Array]:
    """Yields the rows of a memory map in copies of bounded size."""
    for start in range(0, len(array), ROWS):
        progress(start, len(array))
        yield np.array(array[start : start + ROWS])


def _ranges(offsets: list[Array], progress: Progress) -> Iterator[tuple[int, int]]:
    """Yields ranges of entities that own at most ROWS slots together, or are a single hub."""
    n_entities = len(offsets[0]) - 1
    total = sum(int(own[-1]) for own in offsets)

    def before(entity: int) -> int:
        return sum(int(own[entity]) for own in offsets)

    first = 0
    while first < n_entities:
        progress(before(first), total)
        most = before(first) + ROWS
        last = bisect_left(range(n_entities + 1), most + 1, lo=first, key=before) - 1
        last = min(max(last, first + 1), first + ROWS)
        yield first, last
        first = last


def _tensor(values: Array) -> torch.Tensor:
    """Returns a tensor with a copy of the values."""
    return torch.from_numpy(np.array(values))


Index = Callable[[Place, Progress], None]
PHASES: dict[str, Index] = {
    "outgoing edges": index_outgoing,
    "incoming edges": index_incoming,
    "contexts": index_contexts,
    "edges in both directions": index_edges,
    "edges of triples": index_slots,
    "edges of relations": index_relations,
    "known triples": index_known,
}
