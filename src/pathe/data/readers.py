"""One file -> three dictionary-encoded Arrow columns, read by the reader of its suffix."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from pathe.core.errors import DataError
from pathe.core.types import PARTS
from pathe.data.columns import (
    RDF,
    READABLE,
    TEXT,
    ReadOptions,
    ReadReport,
    collect,
    split_suffix,
)
from pathe.data.delimited import locate_line, read_text, text_batches
from pathe.data.neo4j import header_fields, read_relationships
from pathe.data.parquet import parquet_batches
from pathe.data.rdf import rdf_batches
from pathe.data.room import Room

__all__ = [
    "ReadOptions",
    "ReadReport",
    "locate_row",
    "read_batches",
    "read_columns",
    "split_suffix",
]


def read_columns(
    path: Path | str, options: ReadOptions | None = None, report: ReadReport | None = None
) -> Any:
    """Returns a pa.Table of head, relation and tail, each dictionary<int32, large_string>.

    Rows are in file order. `report` is updated with what was read and skipped.
    """
    path, options = Path(path), options or ReadOptions()
    report = ReadReport() if report is None else report
    suffix, before = _check_file(path, options), replace(report)
    if suffix in TEXT and not header_fields(path, options):
        table = read_text(path, options, report)
    else:
        table = collect(_batches(path, suffix, options, report), Room(path))
    if table.num_rows == 0:
        _fail_empty(path, before, report)
    report.rows += table.num_rows
    return table


def read_batches(path: Path, options: ReadOptions, report: ReadReport) -> Iterator[list[Any]]:
    """Yields what `read_columns` returns in batches of three dictionary columns.

    `report` is complete at the end. First rows that may be headers aren't looked for.
    """
    suffix, before = _check_file(path, options), replace(report)
    for columns in _batches(path, suffix, options, report):
        report.rows += len(columns[0])
        yield columns
    if report.rows == before.rows:
        _fail_empty(path, before, report)


def _batches(
    path: Path, suffix: str, options: ReadOptions, report: ReadReport
) -> Iterator[list[Any]]:
    """Returns the batches of the reader for this suffix."""
    if suffix == ".parquet":
        return parquet_batches(path, options, report)
    if suffix in RDF:
        return rdf_batches(path, suffix, options, report)
    if fields := header_fields(path, options):
        table = read_relationships(path, fields, options, report)
        return iter([[table.column(part).chunk(0) for part in PARTS]])
    return text_batches(path, options, report)


def _check_file(path: Path, options: ReadOptions) -> str:
    """Returns the suffix of a file; raises DataError if it or an option doesn't fit."""
    if not path.is_file():
        raise DataError(f"{path}: expected a file, found {'a folder' if path.is_dir() else 'none'}")
    _, suffix, compression = split_suffix(path)
    match suffix:
        case ".parquet" if not compression:
            options.reject(("header", "delimiter", "language"), f"{path} is Parquet")
        case "" | ".parquet":
            known = f"Known suffixes: {READABLE}."
            raise DataError(f"{path}: can't tell its format from the name. {known}")
        case _ if suffix in RDF:
            options.reject(("columns", "header", "delimiter"), f"{path} is RDF")
        case _:
            options.reject(("language",), f"{path} is text")
    return suffix


def _fail_empty(path: Path, before: ReadReport, report: ReadReport) -> None:
    """Raises DataError: the file has no triples; says what it has instead."""
    why = "expected at least one."
    if skipped := report.skipped - before.skipped:
        lines = f"{skipped:,} bad line{'s' * (skipped > 1)} skipped"
        why = f"{lines}. Correct the file; the first is {report.first_skipped}"
    if literals := report.literals - before.literals:
        why = f"{literals:,} had literals, which are left out; expected links of two entities."
    elif quoted := report.quoted - before.quoted:
        why = f"{quoted:,} are about other triples (RDF-star), which are left out."
    elif report.n_labels > before.n_labels:
        why = "it has only labels; expected links of two entities."
    raise DataError(f"{path}: contains no triples; {why}")


def locate_row(path: Path, options: ReadOptions, row: int) -> str:
    """Returns `, line 7` or `, row 7` for a row (from 0) of a file read without skipping."""
    _, suffix, _ = split_suffix(path)
    if suffix in RDF:
        return ""
    return f", row {row + 1}" if suffix == ".parquet" else locate_line(path, options, row)
