"""One file -> three dictionary-encoded Arrow columns, read by the reader of its suffix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pathe.core.errors import DataError
from pathe.data.columns import RDF, READABLE, ReadOptions, ReadReport, split_suffix
from pathe.data.delimited import locate_line, read_text
from pathe.data.neo4j import header_fields, read_relationships
from pathe.data.parquet import read_parquet
from pathe.data.rdf import read_rdf

__all__ = ["ReadOptions", "ReadReport", "locate_row", "read_columns", "split_suffix"]


def read_columns(
    path: Path | str, options: ReadOptions | None = None, report: ReadReport | None = None
) -> Any:
    """Returns a pa.Table of head, relation and tail, each dictionary<int32, large_string>.

    Rows are in file order. `report` is updated with what was read and skipped.
    """
    path, options = Path(path), options or ReadOptions()
    report = ReadReport() if report is None else report
    if not path.is_file():
        raise DataError(f"{path}: expected a file, found {'a folder' if path.is_dir() else 'none'}")
    _, suffix, compression = split_suffix(path)
    skipped, literals, labels = report.skipped, report.literals, len(report.labels)
    match suffix:
        case ".parquet" if not compression:
            options.reject(("header", "delimiter", "language"), f"{path} is Parquet")
            table = read_parquet(path, options, report)
        case "" | ".parquet":
            known = f"Known suffixes: {READABLE}."
            raise DataError(f"{path}: can't tell its format from the name. {known}")
        case _ if suffix in RDF:
            options.reject(("columns", "header", "delimiter"), f"{path} is RDF")
            table = read_rdf(path, suffix, options, report)
        case _:
            options.reject(("language",), f"{path} is text")
            if fields := header_fields(path, options):
                table = read_relationships(path, fields, options, report)
            else:
                table = read_text(path, options, report)
    if table.num_rows == 0:
        why = "expected at least one."
        if skipped := report.skipped - skipped:
            lines = f"{skipped:,} bad line{'s' * (skipped > 1)} skipped"
            why = f"{lines}. Correct the file; the first is {report.first_skipped}"
        if literals := report.literals - literals:
            why = f"{literals:,} had literals, which are left out; expected links of two entities."
        elif len(report.labels) > labels:
            why = "it has only labels; expected links of two entities."
        raise DataError(f"{path}: contains no triples; {why}")
    report.rows += table.num_rows
    return table


def locate_row(path: Path, options: ReadOptions, row: int) -> str:
    """Returns `, line 7` or `, row 7` for a row (from 0) of a file read without skipping."""
    _, suffix, _ = split_suffix(path)
    if suffix in RDF:
        return ""
    return f", row {row + 1}" if suffix == ".parquet" else locate_line(path, options, row)
