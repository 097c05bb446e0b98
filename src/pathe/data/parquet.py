"""Parquet files -> three Arrow columns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from pathe.core.errors import DataError
from pathe.core.types import PARTS, whole_number
from pathe.data.columns import (
    ReadOptions,
    ReadReport,
    checked,
    known_header,
    left_out_note,
    positions,
    reading,
)


def parquet_batches(path: Path, options: ReadOptions, report: ReadReport) -> Iterator[list[Any]]:
    """Yields the file's triples as batches of three dictionary columns."""
    import pyarrow.parquet as pq

    def skip(row: int, count: int) -> None:
        problem = "expected three names in UTF-8; one is null, empty or can't be decoded."
        report.skip(f"{path}, row {row + 1}: {problem}", options, count)

    with reading(path, lambda: " as Parquet"), pq.ParquetFile(path) as file:
        schema = file.schema_arrow
        if len(set(schema.names)) < len(schema.names):
            raise DataError(f"{path}: expected columns of different names; got {schema.names}.")
        picks = _pick_columns(path, options, schema.names)
        if options.columns is None and len(schema.names) > 3:
            report.notes.append(left_out_note(path, schema.names, picks))
        for role, i in zip(PARTS, picks, strict=True):
            _check_type(path, role, schema.field(i).type)
        names = [schema.names[i] for i in picks]
        rows = file.iter_batches(columns=names)
        batches = ([_as_binary(batch.column(name)) for name in names] for batch in rows)
        yield from checked(batches, skip)


def _pick_columns(path: Path, options: ReadOptions, names: list[str]) -> tuple[int, ...]:
    """Returns the positions of head, relation and tail among the file's columns."""
    wanted = options.columns
    if wanted is None:
        known = known_header(names)
        if known is None and len(names) != 3:
            raise DataError(
                f"{path}: expected columns head, relation and tail, or exactly 3 columns; got "
                f"{names}. Name them with --columns."
            )
        return known or (0, 1, 2)
    numbered = [n for w in wanted if w not in names and (n := whole_number(w)) is not None]
    if len(numbered) == 3:
        picks = tuple(n - 1 for n in numbered)
        if len(set(picks)) == 3 and min(picks) >= 0 and max(picks) < len(names):
            return picks
    return positions(path, wanted, names)


def _check_type(path: Path, role: str, kind: Any) -> None:
    """Raises DataError unless the column's type can be read as names."""
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    text = pa.types.is_string(value) or pa.types.is_large_string(value)
    if not (text or pa.types.is_binary(value) or pa.types.is_integer(value)):
        raise DataError(f"{path}: expected text or integers as {role}; the column is {kind}.")


def _as_binary(column: Any) -> Any:
    """Returns the column's names as bytes; nulls become empty names, which `collect` rejects."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_integer(column.type):
        column = column.cast(pa.large_string())
    return column.cast(pa.large_binary()).fill_null(b"")
