"""Columns of names -> ids: vocabularies, sorted unique triples, splits, and writing them."""

from __future__ import annotations

import lzma
import operator
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from pathe.answers import writable
from pathe.columns import (
    COMPRESSIONS,
    ROLES,
    check_fractions,
    id_array,
    known_header,
    numbers,
    text_array,
    writable_suffix,
)
from pathe.errors import DataError, UnknownNameError, nearest
from pathe.files import replacing

Kind = Literal["entity", "relation"]

_CHUNK = 1 << 18  # rows written at a time
_CANDIDATES = 1000  # names of each sort compared for "closest"


class Vocabulary:
    """Immutable names of one kind, sorted by their UTF-8 bytes; a name's id is its place."""

    __slots__ = ("_names", "kind")
    _names: Any
    kind: Kind

    def __init__(self, names: Iterable[str] | Any, kind: Kind = "entity") -> None:
        if isinstance(names, pa.ChunkedArray):
            array = names.cast(pa.large_string()).combine_chunks()
        elif isinstance(names, pa.Array):
            array = names.cast(pa.large_string())
        else:
            array = text_array(list(names))
        # Strictly rising means sorted and unique: a saved vocabulary needs no second sort.
        if len(array) and not pc.all(pc.greater(array[1:], array[:-1]), min_count=0).as_py():
            array = array.unique()
            array = array.take(pc.sort_indices(array))
        object.__setattr__(self, "_names", array)
        object.__setattr__(self, "kind", kind)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a Vocabulary can't be changed")

    def __reduce__(self) -> tuple[Any, ...]:
        return Vocabulary, (self._names, self.kind)

    @property
    def array(self) -> Any:
        """The names as one pa.LargeStringArray."""
        return self._names

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, i: int) -> str:
        if not 0 <= (i := operator.index(i)) < len(self):
            raise IndexError(f"expected a {self.kind} id from 0 to {len(self) - 1}, got {i}")
        return str(self._names[i].as_py())

    def __iter__(self) -> Iterator[str]:
        return (str(name.as_py()) for name in self._names)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._find(name)[1]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vocabulary):
            return NotImplemented
        return self.kind == other.kind and bool(self._names.equals(other._names))

    def __hash__(self) -> int:
        return hash((self.kind, len(self)))

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} names, kind={self.kind!r})"

    def names(self, ids: Tensor | Sequence[int]) -> list[str]:
        """The names of the ids, in their order."""
        wanted = id_array(np.asarray(torch.as_tensor(ids).cpu()))
        taken: list[str] = self._names.take(wanted).to_pylist()
        return taken

    def id(self, name: str) -> int:
        """The id of a name; UnknownNameError with the closest names otherwise."""
        if not isinstance(name, str):
            raise UnknownNameError(f"A name is text; got {name!r} for the {self.kind}.")
        i, found = self._find(name)
        if not found:
            raise UnknownNameError(f"unknown {self.kind} {name!r}.{self._nearest(name)}")
        return i

    def ids(self, names: Any, missing: Literal["raise", "mark"] = "raise") -> Tensor:
        """int64 ids of an iterable or Arrow array of names; -1 marks an unknown one if asked."""
        if not isinstance(names, pa.Array):
            names = [names] if isinstance(names, str) else list(names)
            if bad := [name for name in names if not isinstance(name, str) or not writable(name)]:
                self.id(bad[0])
            names = text_array(names)
        array = names.cast(pa.large_string())
        if len(array) < len(self) // 1000:
            # Searching a few names beats hashing the whole vocabulary.
            places = [self._find(n) for n in array.to_pylist()]
            ids = np.array([i if found else -1 for i, found in places], np.int64)
        else:
            found = pc.index_in(array, value_set=self._names)
            there = numbers(found.is_valid().cast(pa.uint8()), np.uint8)
            ids = np.where(there, numbers(found, np.int32), -1).astype(np.int64)
        if missing == "raise" and (ids < 0).any():
            self.id(array[int((ids < 0).argmax())].as_py())
        return torch.from_numpy(ids)

    def buffers(self) -> tuple[bytes, Any]:
        """Name ends (int64) and all names' bytes: equal names, equal buffers."""
        _, offsets, data = self._names.buffers()
        start, n = self._names.offset, len(self)
        ends = np.frombuffer(offsets, np.int64, count=n + 1, offset=8 * start) if n else np.zeros(1)
        first, last = int(ends[0]), int(ends[-1])
        return (ends - first).astype(np.int64).tobytes(), memoryview(data or b"")[first:last]

    def _find(self, name: str) -> tuple[int, bool]:
        """Where the name is or would be. Code points sort as UTF-8 bytes do."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self._names[middle].as_py() < name:
                low = middle + 1
            else:
                high = middle
        return low, low < len(self) and self._names[low].as_py() == name

    def _nearest(self, name: str) -> str:
        """Closest names among a bounded set: neighbours in the order, and shared parts."""
        name = name[:200].encode(errors="replace").decode()
        low = max(0, self._find(name)[0] - _CANDIDATES)
        around = self._names[low : low + 2 * _CANDIDATES]
        close = dict.fromkeys(around.to_pylist())
        half = (len(name) + 1) // 2
        if len(self) > 2 * _CANDIDATES and half >= 2:
            for part in {name, name[:half], name[-half:]}:
                hits = pc.match_substring(self._names, part, ignore_case=True)
                close.update(dict.fromkeys(self._names.filter(hits)[:_CANDIDATES].to_pylist()))
        return nearest(name, close)


def encode(table: Any, entities: Vocabulary, relations: Vocabulary) -> Tensor:
    """Rows of dictionary columns -> int32 (n, 3) in row order; -1 marks an unknown name."""
    triples = np.empty((table.num_rows, 3), np.int32)
    for k, (role, vocabulary) in enumerate(
        zip(ROLES, (entities, relations, entities), strict=True)
    ):
        column = table.column(role).combine_chunks()
        if isinstance(column, pa.ChunkedArray):  # older pyarrow gives one chunk, not an array
            column = column.chunk(0)
        ids = vocabulary.ids(column.dictionary, missing="mark").numpy().astype(np.int32)
        triples[:, k] = ids[numbers(column.indices.cast(pa.int32()), np.int32)]
    return torch.from_numpy(triples)


def unique_triples(triples: Tensor) -> tuple[Tensor, int]:
    """int (n, 3) -> (int32 (m, 3) in lexicographic order without repeats, n - m)."""
    rows = triples.numpy()
    if not len(rows):
        return torch.empty((0, 3), dtype=torch.int32), 0
    n_entities = int(max(rows[:, 0].max(), rows[:, 2].max())) + 1
    n_relations = int(rows[:, 1].max()) + 1
    if n_entities * n_relations * n_entities < 2**63:
        # One sort of one number a triple is several times faster than sorting rows.
        keys = rows[:, 0].astype(np.int64)
        keys *= n_relations
        keys += rows[:, 1]
        keys *= n_entities
        keys += rows[:, 2]
        keys.sort()
        keys = keys[_differs(keys)]
        unique = np.empty((len(keys), 3), np.int32)
        unique[:, 2] = keys % n_entities
        keys //= n_entities
        unique[:, 1] = keys % n_relations
        unique[:, 0] = keys // n_relations
    else:
        rows = rows[np.lexsort((rows[:, 2], rows[:, 1], rows[:, 0]))]
        keep = _differs(rows[:, 0]) | _differs(rows[:, 1]) | _differs(rows[:, 2])
        unique = rows[keep].astype(np.int32)
    return torch.from_numpy(unique), len(triples) - len(unique)


def _differs(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """(n,) -> mask of values that differ from the one before; the first always does."""
    return np.concatenate(([True], values[1:] != values[:-1]))


def split_triples(
    triples: Tensor,
    fractions: Sequence[float],
    seed: int,
    keep_entities_in_train: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    """(n, 3) -> train, valid, test, each in the given order; every relation stays in train.

    Unless told otherwise every entity stays too; valid and test shrink alike when they must.
    """
    check_fractions(fractions)
    if seed < 0:
        raise DataError(f"--cut-seed: expected 0 or more, got {seed}")
    rows, n = triples.numpy(), len(triples)
    order = np.random.default_rng(seed).permutation(n)
    free = np.ones(n, np.bool_)
    free[_first_rows(rows[order, 1])] = False
    if keep_entities_in_train:
        # Heads and tails interleaved, so that an entity's first triple counts in either role.
        free[_first_rows(rows[order][:, [0, 2]].reshape(-1)) // 2] = False
    movable = order[free]
    n_valid, n_test = (round(f * n) for f in fractions[1:])
    if n_valid + n_test > len(movable):
        n_valid = round(len(movable) * n_valid / (n_valid + n_test))
        n_test = len(movable) - n_valid
    where = np.zeros(n, np.int8)
    where[movable[:n_valid]] = 1
    where[movable[n_valid : n_valid + n_test]] = 2
    train, valid, test = (triples[torch.from_numpy(where == k)] for k in range(3))
    return train, valid, test


def _first_rows(values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """(n,) ids -> the place of each id's first occurrence."""
    if not len(values):
        return np.zeros(0, np.int64)
    first = np.full(int(values.max()) + 1, -1, np.int64)
    first[values[::-1]] = np.arange(len(values) - 1, -1, -1)  # the last assignment stands
    return first[first >= 0]


def write_triples(
    path: Path | str, triples: Tensor, entities: Vocabulary, relations: Vocabulary
) -> None:
    """Write names as .tsv, .txt or .csv (also compressed) or .parquet: whole or not at all."""
    path = Path(path)
    check_writable(path, triples, entities, relations)
    with replacing(path) as aside:
        write_rows(aside, path, triples, entities, relations)


def check_writable(
    path: Path, triples: Tensor, entities: Vocabulary, relations: Vocabulary
) -> None:
    """Refuse a format that isn't written, and names that the file couldn't give back."""
    suffix, _ = writable_suffix(path)
    pattern = "^$" if suffix in (".csv", ".parquet") else r"^$|[\t\r\n]"
    for vocabulary, used in ((entities, triples[:, [0, 2]]), (relations, triples[:, 1])):
        odd = pc.match_substring_regex(vocabulary.array, pattern)
        odd = np.flatnonzero(odd.to_numpy(zero_copy_only=False))
        odd = odd[np.isin(odd, used.numpy())]
        if len(odd):
            name = vocabulary[odd[0]]
            problem = "holds a tab or a line end, which this format can't hold. Write .csv or "
            raise DataError(
                f"{path}: the {vocabulary.kind} {name!r} "
                f"{problem + '.parquet instead.' if name else 'is empty; names may not be.'}"
            )


def write_rows(
    file: Path, path: Path, triples: Tensor, entities: Vocabulary, relations: Vocabulary
) -> None:
    """Write to `file` in the format of the name `path`, which has been checked."""
    suffix, compression = writable_suffix(path)
    chunks = (_named_rows(chunk, entities, relations) for chunk in triples.split(_CHUNK))
    if suffix == ".parquet":
        _write_parquet(file, chunks)
    elif compression == ".xz":
        with lzma.open(file, "wb") as sink:
            _write_text(sink, chunks, suffix)
    else:
        kind = COMPRESSIONS.get(compression)
        with pa.output_stream(str(file), compression=kind) as sink:
            _write_text(sink, chunks, suffix)


def _named_rows(triples: Tensor, entities: Vocabulary, relations: Vocabulary) -> Any:
    """(n, 3) ids -> a pa.RecordBatch of names."""
    columns = zip(triples.T.numpy(), (entities, relations, entities), strict=True)
    return pa.record_batch([v.array.take(pa.array(ids)) for ids, v in columns], names=list(ROLES))


def _write_parquet(path: Path, chunks: Iterable[Any]) -> None:
    import pyarrow.parquet as pq

    schema = pa.schema([(role, pa.large_string()) for role in ROLES])
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for chunk in chunks:
            writer.write_batch(chunk)


def _write_text(sink: Any, chunks: Iterable[Any], suffix: str) -> None:
    """Tab-separated rows as they are; CSV with every name quoted, under a header."""
    quoted, first = suffix == ".csv", True
    quote, end, comma, nothing = (
        pa.scalar(s, pa.large_string()) for s in ('"', "\n", "," if quoted else "\t", "")
    )
    if quoted:
        sink.write(b"head,relation,tail\n")
    for chunk in chunks:
        columns = chunk.columns
        if first and not quoted and len(chunk):
            row = [column[0].as_py() for column in columns]
            if known_header(row):
                sink.write(b"head\trelation\ttail\n")  # else the row would pass for a header
            elif row[0].startswith("\ufeff"):
                sink.write("\ufeff".encode())  # a reader takes one mark off
        first = False
        if quoted:
            doubled = [pc.replace_substring(column, '"', '""') for column in columns]
            columns = [pc.binary_join_element_wise(quote, c, quote, nothing) for c in doubled]
        columns[2] = pc.binary_join_element_wise(columns[2], end, nothing)
        lines = pc.binary_join_element_wise(*columns, comma)
        for part in lines.chunks if isinstance(lines, pa.ChunkedArray) else [lines]:
            # The lines lie one after another in the array's own buffer.
            ends = np.frombuffer(part.buffers()[1], np.int64, len(part) + 1, 8 * part.offset)
            sink.write(memoryview(part.buffers()[2])[ends[0] : ends[-1]])
