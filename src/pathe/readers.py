"""One file -> three dictionary-encoded Arrow columns: delimited text, Parquet or RDF."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from pathe.columns import (
    BATCH,
    BROKEN,
    COMPRESSIONS,
    KNOWN_SUFFIXES,
    RDF,
    ROLES,
    SKIP_HINT,
    BadRowError,
    ReadOptions,
    ReadReport,
    collect,
    known_header,
    named_positions,
    open_stream,
    split_suffix,
    unreadable,
)
from pathe.delimited import locate_line, read_text
from pathe.errors import DataError

__all__ = ["ReadOptions", "ReadReport", "locate_row", "read_columns", "split_suffix"]


def read_columns(
    path: Path | str, options: ReadOptions | None = None, report: ReadReport | None = None
) -> Any:
    """A pa.Table of head, relation, tail: dictionary<int32, large_string>, in file order."""
    path, options = Path(path), options or ReadOptions()
    report = ReadReport() if report is None else report
    if not path.is_file():
        raise DataError(f"{path}: expected a file, found {'a folder' if path.is_dir() else 'none'}")
    _, suffix, compression = split_suffix(path)
    if not suffix or (suffix == ".parquet" and compression):
        raise DataError(
            f"{path}: can't tell its format from the name. Known suffixes: "
            f"{', '.join(KNOWN_SUFFIXES)}; all but .parquet also with {', '.join(COMPRESSIONS)}."
        )
    if suffix == ".parquet":
        read = _read_parquet
        options.refuse(("header", "delimiter"), f"{path} is Parquet")
    elif suffix in RDF:
        read = _read_rdf
        options.refuse(("columns", "header", "delimiter"), f"{path} is RDF")
    else:
        read = read_text
    skipped, literals = report.skipped, report.literals
    table = read(path, options, report)
    if table.num_rows == 0:
        why = "expected at least one."
        if skipped := report.skipped - skipped:
            lines = f"{skipped:,} bad line{'s' * (skipped > 1)} skipped"
            why = f"{lines}. Put the file right; the first is {report.first_skipped}"
        if literals := report.literals - literals:
            why = f"{literals:,} had literals, which are left out; expected links of two entities."
        raise DataError(f"{path}: no triples in it; {why}")
    report.rows += table.num_rows
    return table


def locate_row(path: Path, options: ReadOptions, row: int) -> str:
    """`, line 7` or `, row 7` for the row numbered from 0 of a file read without skipping."""
    _, suffix, _ = split_suffix(path)
    if suffix == ".parquet":
        return f", row {row + 1}"
    if suffix in RDF:
        return ""
    return locate_line(path, options, row)


def _read_parquet(path: Path, options: ReadOptions, report: ReadReport) -> Any:
    import pyarrow.parquet as pq

    def skip(row: int, count: int) -> None:
        report.skipped += count
        report.first_skipped = report.first_skipped or f"{path}, row {row + 1}: a name is missing"

    try:
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            picks = _parquet_picks(path, options, names)
            types = [file.schema_arrow.field(i).type for i in picks]
            for role, kind in zip(ROLES, types, strict=True):
                value = kind.value_type if pa.types.is_dictionary(kind) else kind
                text = pa.types.is_string(value) or pa.types.is_large_string(value)
                if not (text or pa.types.is_binary(value) or pa.types.is_integer(value)):
                    raise DataError(
                        f"{path}: expected text or integers as {role}, column is {kind}"
                    )
            rows = file.iter_batches(BATCH, columns=[names[i] for i in picks])
            batches = ([_plain(b.column(names[i])) for i in picks] for b in rows)
            return collect(batches, skip if options.on_error == "skip" else None)
    except BadRowError as error:
        raise DataError(
            f"{path}, row {error.args[0] + 1}: expected three names in UTF-8, one is null, empty "
            f"or undecodable. {SKIP_HINT}"
        ) from error
    except BROKEN as error:
        raise unreadable(path, error, " as Parquet") from error


def _plain(column: Any) -> Any:
    """The column as strings; a null becomes the empty name, which is refused further on."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_integer(column.type):
        column = column.cast(pa.large_string())
    return column.cast(pa.large_binary()).fill_null(b"")


def _parquet_picks(path: Path, options: ReadOptions, names: list[str]) -> tuple[int, ...]:
    wanted = options.columns
    if wanted is None:
        known = known_header(names)
        if known is None and len(names) != 3:
            raise DataError(
                f"{path}: expected columns head, relation and tail or exactly 3, got {names}. "
                "Name them with --columns."
            )
        return known or (0, 1, 2)
    if all(w.isdecimal() and w not in names for w in wanted):
        picks = tuple(int(w) - 1 for w in wanted)
        if len(set(picks)) == 3 and min(picks) >= 0 and max(picks) < len(names):
            return picks
    return named_positions(path, wanted, names)


def _read_rdf(path: Path, options: ReadOptions, report: ReadReport) -> Any:
    try:
        return collect(_rdf_batches(path, options, report), None)
    except BROKEN as error:
        raise unreadable(path, error) from error


def _rdf_batches(path: Path, options: ReadOptions, report: ReadReport) -> Iterator[list[Any]]:
    """Three string arrays a batch; literals are left out and counted."""
    try:
        import pyoxigraph as ox
    except ImportError as error:
        raise DataError(f"{path}: RDF needs pyoxigraph; run `pip install pyoxigraph`.") from error
    _, suffix, _ = split_suffix(path)
    by_line = suffix in (".nt", ".nq")
    stem = path.name.split(".")[0]
    anonymous: dict[str, str] = {}

    def name(node: Any) -> str:
        if isinstance(node, ox.NamedNode):
            return str(node.value)
        # The parser gives unlabelled nodes random ids, 128 bits in hex without leading zeros:
        # number them, so that runs agree.
        if not by_line and re.fullmatch("[0-9a-f]{25,32}", node.value):
            return anonymous.setdefault(node.value, f"_:{stem}-{len(anonymous)}")
        return f"_:{node.value}"

    quads = iter(ox.parse(open_stream(path), format=getattr(ox.RdfFormat, RDF[suffix])))
    rows: tuple[list[str], ...] = ([], [], [])
    while True:
        try:
            quad = next(quads, None)
        except SyntaxError as error:
            where = f"{path}, line {error.lineno}" if error.lineno else f"{path}"
            message = f"{where}: not {RDF[suffix].replace('_', '-')}: {error.msg}."
            if by_line and options.on_error == "skip":
                report.skipped += 1
                report.first_skipped = report.first_skipped or message
                continue
            how = SKIP_HINT if by_line else "Put it right: lines of this format can't be skipped."
            raise DataError(f"{message} {how}") from error
        if quad is not None:
            if not isinstance(quad.object, ox.NamedNode | ox.BlankNode):
                report.literals += 1
                continue
            for column, node in zip(rows, (quad.subject, quad.predicate, quad.object), strict=True):
                column.append(name(node))
        if rows[0] and (quad is None or len(rows[0]) == BATCH):
            yield [pa.array(column, pa.large_string()) for column in rows]
            rows = ([], [], [])
        if quad is None:
            return
