"""Columns of names -> ids; sorting, splitting and writing triples."""

from __future__ import annotations

import lzma
from collections.abc import Iterable, Sequence
from itertools import starmap
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from pathe.core.errors import DataError
from pathe.core.files import replacing
from pathe.core.types import PARTS
from pathe.data.columns import (
    COMPRESSIONS,
    WRITABLE_RDF,
    check_fractions,
    known_header,
    numbers,
    writable_suffix,
)
from pathe.data.iris import rdf_lines
from pathe.data.vocabulary import Vocabulary

_CHUNK = 1 << 18  # rows written at a time


def encode(table: Any, entities: Vocabulary, relations: Vocabulary) -> Tensor:
    """Returns the ids of dictionary columns, int32 (n, 3) in row order; -1 for unknown names."""
    triples = np.empty((table.num_rows, 3), np.int32)
    for k, vocabulary in enumerate((entities, relations, entities)):
        column = table.column(PARTS[k]).combine_chunks()
        if isinstance(column, pa.ChunkedArray):  # older pyarrow gives one chunk, not an array
            column = column.chunk(0)
        ids = vocabulary.ids(column.dictionary, missing="mark").numpy().astype(np.int32)
        triples[:, k] = ids[numbers(column.indices.cast(pa.int32()), np.int32)]
    return torch.from_numpy(triples)


def unique_triples(triples: Tensor) -> tuple[Tensor, int]:
    """Sorts triples (n, 3) and drops repeats; returns int32 (m, 3) and n - m."""
    rows = triples.numpy()
    if not len(rows):
        return torch.empty((0, 3), dtype=torch.int32), 0
    n_entities = int(max(rows[:, 0].max(), rows[:, 2].max())) + 1
    n_relations = int(rows[:, 1].max()) + 1
    if n_entities * n_relations * n_entities < 2**63:
        # Sorting one number per triple is several times faster than sorting rows.
        keys = rows[:, 0].astype(np.int64) * n_relations + rows[:, 1]
        keys = keys * n_entities + rows[:, 2]
        keys.sort()
        keys = keys[_differs(keys)]
        unique = np.empty((len(keys), 3), np.int32)
        keys, unique[:, 2] = np.divmod(keys, n_entities)
        unique[:, 0], unique[:, 1] = np.divmod(keys, n_relations)
    else:
        rows = rows[np.lexsort((rows[:, 2], rows[:, 1], rows[:, 0]))]
        keep = _differs(rows[:, 0]) | _differs(rows[:, 1]) | _differs(rows[:, 2])
        unique = rows[keep].astype(np.int32)
    return torch.from_numpy(unique), len(triples) - len(unique)


def _differs(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Returns a mask of values that differ from the one before; the first always does."""
    return np.concatenate(([True], values[1:] != values[:-1]))


def split_triples(
    triples: Tensor, fractions: Sequence[float], seed: int, keep_entities_in_train: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """Splits (n, 3) into train, valid and test, each in the given order.

    Train keeps a triple of every relation, and of every entity unless told otherwise; valid and
    test shrink in proportion if necessary.
    """
    check_fractions(fractions)
    if seed < 0:
        raise DataError(f"--cut-seed: expected 0 or more, got {seed}")
    rows, n = triples.numpy(), len(triples)
    order = np.random.default_rng(seed).permutation(n)
    free = np.ones(n, np.bool_)
    free[_first_rows(rows[order, 1])] = False
    if keep_entities_in_train:
        # Heads and tails are interleaved: an entity's first triple counts in either role.
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
    """Returns the position of each id's first occurrence."""
    if not len(values):
        return np.zeros(0, np.int64)
    first = np.full(int(values.max()) + 1, -1, np.int64)
    first[values[::-1]] = np.arange(len(values) - 1, -1, -1)  # the last assignment wins
    return first[first >= 0]


def write_triples(
    path: Path | str, triples: Tensor, entities: Vocabulary, relations: Vocabulary
) -> None:
    """Writes names as text, N-Triples or Turtle (also compressed) or Parquet, all or nothing."""
    path = Path(path)
    check_writable(path, triples, entities, relations)
    with replacing(path) as aside:
        write_rows(aside, path, triples, entities, relations)


def check_writable(
    path: Path, triples: Tensor, entities: Vocabulary, relations: Vocabulary
) -> None:
    """Raises DataError for a format that can't be written, or can't hold one of the names."""
    suffix, _ = writable_suffix(path)
    pattern = r"^$|[\t\r\n]" if suffix in (".tsv", ".txt") else "^$"
    for vocabulary, used in ((entities, triples[:, [0, 2]]), (relations, triples[:, 1])):
        odd = pc.match_substring_regex(vocabulary.array, pattern)
        odd = np.flatnonzero(odd.to_numpy(zero_copy_only=False))
        odd = odd[np.isin(odd, used.numpy())]
        if len(odd):
            name, problem = vocabulary[odd[0]], "is empty. Give it a name."
            if name:
                problem = "contains a tab or a line end, which this format doesn't allow. "
                problem += "Write .csv or .parquet instead."
            raise DataError(f"{path}: the {vocabulary.kind} {name!r} {problem}")


def write_rows(
    file: Path, path: Path, triples: Tensor, entities: Vocabulary, relations: Vocabulary
) -> None:
    """Writes to `file` in the format that the name `path` asks for, which has been checked."""
    suffix, compression = writable_suffix(path)
    names = [v.array for v in (entities, relations, entities)]
    chunks = (
        [array.take(pa.array(ids)) for array, ids in zip(names, chunk.T.numpy(), strict=True)]
        for chunk in triples.split(_CHUNK)
    )
    if suffix == ".parquet":
        import pyarrow.parquet as pq

        schema = pa.schema([(part, pa.large_string()) for part in PARTS])
        with pq.ParquetWriter(file, schema, compression="zstd") as writer:
            for chunk in chunks:
                writer.write_batch(pa.record_batch(chunk, schema=schema))
        return
    kind = COMPRESSIONS.get(compression)
    with lzma.open(file, "wb") if kind == "xz" else pa.output_stream(file, kind) as sink:
        if suffix in WRITABLE_RDF:
            start, line = rdf_lines(suffix, entities.spellings)
            sink.write(start.encode())
            for chunk in chunks:
                rows = zip(*(column.to_pylist() for column in chunk), strict=True)
                sink.write("".join(starmap(line, rows)).encode())
        else:
            _write_text(sink, chunks, suffix == ".csv")


def _write_text(sink: Any, chunks: Iterable[Any], quoted: bool) -> None:
    """Writes tab-separated rows without quotes, or CSV with a header and all names quoted."""
    marks = ('"', "\n", "," if quoted else "\t", "")
    quote, end, comma, nothing = (pa.scalar(mark, pa.large_string()) for mark in marks)
    if quoted:
        sink.write(b"head,relation,tail\n")
    for i, columns in enumerate(chunks):
        if i == 0 and not quoted and len(columns[0]):
            row = [column[0].as_py() for column in columns]
            if known_header(row):
                sink.write(b"head\trelation\ttail\n")  # or the row would be read as a header
            elif row[0].startswith("\ufeff"):
                sink.write("\ufeff".encode())  # readers drop the first byte-order mark
        if quoted:
            doubled = [pc.replace_substring(column, '"', '""') for column in columns]
            columns = [pc.binary_join_element_wise(quote, c, quote, nothing) for c in doubled]
        columns[2] = pc.binary_join_element_wise(columns[2], end, nothing)
        lines = pc.binary_join_element_wise(*columns, comma)
        for part in lines.chunks if isinstance(lines, pa.ChunkedArray) else [lines]:
            # The array's buffer holds the lines one after another.
            ends = np.frombuffer(part.buffers()[1], np.int64, len(part) + 1, 8 * part.offset)
            sink.write(memoryview(part.buffers()[2])[ends[0] : ends[-1]])
