"""Reads files of queries; writes files of rows and of vectors."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

from pathe.core.errors import ConfigError, DataError
from pathe.core.files import check_place, replacing
from pathe.core.types import PARTS, Fact, Query
from pathe.data.columns import WRITABLE_RDF, known_header
from pathe.data.delimited import small_table
from pathe.data.iris import rdf_lines
from pathe.data.names import Names

ROW_FORMATS = (".tsv", ".csv", ".json", ".jsonl", ".parquet")
TRIPLE_FORMATS = (*ROW_FORMATS, *WRITABLE_RDF)  # for rows with head, relation and tail
OBJECT_FORMATS = (".json", ".jsonl")  # for results that are no table
VECTOR_FORMATS = (".parquet", ".npy", ".tsv", ".vec")
OPEN = ("", "?")  # marks the part of a query to predict
NAME_HEADERS = ("entity", "name", "label", "id", "head")
CHUNK = 1 << 14
Vectors = npt.NDArray[np.float32]
Columns = dict[str, type]
Write = Callable[[Sequence[dict[str, Any]]], None]


def read_queries(path: Path) -> list[tuple[int, Query]]:
    """Returns (line number, query) for each row of a .tsv, .txt or .csv file.

    `?` or an empty cell marks the part to predict.
    """
    found = []
    for number, cells in _threes(path, "queries", ", with ? for the one to predict"):
        names = [None if cell in OPEN else cell for cell in cells]
        if names.count(None) != 1:
            problem = f"expected one ?, for the part to predict; got {names.count(None)}"
            raise DataError(f"{path}, line {number}: {problem}.")
        found.append((number, (names[0], names[1], names[2])))
    return found


def read_facts(path: Path) -> list[tuple[int, Fact]]:
    """Returns (line number, fact) for each row of a .tsv, .txt or .csv file."""
    found = []
    for number, (head, relation, tail) in _threes(path, "triples"):
        if not (head and relation and tail) or "?" in (head, relation, tail):
            raise DataError(f"{path}, line {number}: expected head, relation and tail, all named.")
        found.append((number, (head, relation, tail)))
    return found


def _threes(path: Path, what: str, also: str = "") -> Iterator[tuple[int, list[str]]]:
    """Yields (line number, cells) of the rows of a file with three columns, without its header."""
    empty = True
    for number, cells in small_table(path, f"the {what}"):
        if number == 1 and len(cells) == 3 and known_header(cells):
            continue
        if len(cells) != 3:
            raise DataError(
                f"{path}, line {number}: expected head, relation and tail{also}; "
                f"got {len(cells)} column{'s' * (len(cells) > 1)}."
            )
        empty = False
        yield number, cells
    if empty:
        raise DataError(f"{path}: no {what} in it.")


def read_names(path: Path, known: Container[str] = ()) -> list[tuple[int, str]]:
    """Returns (line number, name) for the first column of a .tsv, .txt or .csv file.

    A first line such as `entity` or `name` is a header, unless it is one of the known names.
    """
    found = [(number, cells[0]) for number, cells in small_table(path, "the names")]
    if found and found[0][1].lower() in NAME_HEADERS and found[0][1] not in known:
        del found[0]
    if not found:
        raise DataError(f"{path}: no names in it.")
    return found


def read_types(path: Path) -> dict[str, list[str]]:
    """Returns the types of each entity in a .tsv, .txt or .csv file of entity and type."""
    types: dict[str, list[str]] = {}
    for number, cells in small_table(path, "the types"):
        if number == 1 and cells[0].lower() in NAME_HEADERS:
            continue
        if len(cells) != 2 or not all(cells):
            raise DataError(
                f"{path}, line {number}: expected two columns, entity and type; got {len(cells)}."
            )
        types.setdefault(cells[0], []).append(cells[1])
    if not types:
        raise DataError(f"{path}: no types in it.")
    return types


def check_file(path: Path, formats: Sequence[str]) -> None:
    """Raises an error if a file of one of these formats can't be written here."""
    if path.suffix.lower() not in formats:
        raise ConfigError(f"{path}: expected a name that ends in {', '.join(formats)}.")
    check_place(path)


@contextmanager
def row_writer(path: Path, columns: Columns, names: Names | None = None) -> Iterator[Write]:
    """Yields a function that writes rows; the file appears once all are written.

    N-Triples and Turtle hold only the triple of each row; `names` has the prefixes.
    """
    check_file(path, TRIPLE_FORMATS)
    suffix = path.suffix.lower()
    with replacing(path) as aside:
        if suffix == ".parquet":
            with _parquet(aside, columns) as write:
                yield write
            return
        if suffix == ".json":
            rows: list[dict[str, Any]] = []
            yield rows.extend
            aside.write_text(json_text(rows), encoding="utf-8")
            return
        with aside.open("w", encoding="utf-8", newline="") as file:
            if suffix in WRITABLE_RDF:
                yield _rdf_writer(file, suffix, columns, names or Names())
            else:
                yield text_writer(file, suffix, columns)


def _rdf_writer(file: TextIO, suffix: str, columns: Columns, names: Names) -> Write:
    """Returns a function that writes each row's triple; writes the prefixes."""
    if not set(PARTS) <= set(columns):
        raise ConfigError(f"{suffix} is for triples; these rows have {', '.join(columns)}.")
    start, line = rdf_lines(suffix, names)
    file.write(start)
    return lambda rows: file.writelines(line(*(row[part] for part in PARTS)) for row in rows)


def json_text(value: Any) -> str:
    """Returns a value as indented JSON."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def columns_of(record: type) -> Columns:
    """Returns the fields of a dataclass as columns; lists and other records become JSON text."""
    plain = {"str": str, "int": int, "float": float, "bool": bool}
    kinds = {f.name: str(f.type).removesuffix(" | None") for f in fields(record)}
    return {name: plain.get(kind, str) for name, kind in kinds.items()}


def _cell(value: Any) -> Any:
    """Returns what a cell of a table holds: lists and records as JSON."""
    if isinstance(value, list | tuple | dict):
        return json.dumps(value, ensure_ascii=False)
    return "" if value is None else value


def text_writer(file: TextIO, suffix: str, columns: Columns) -> Write:
    """Returns a function that writes rows as .jsonl, .csv or .tsv; writes the header."""
    if suffix == ".jsonl":
        encode = json.JSONEncoder(ensure_ascii=False).encode
        return lambda rows: file.writelines(f"{encode(row)}\n" for row in rows)
    if suffix == ".csv":
        table = csv.writer(file, lineterminator="\n")
        table.writerow(columns)
        return lambda rows: table.writerows([_cell(row[c]) for c in columns] for row in rows)
    file.write("\t".join(columns) + "\n")

    def write(rows: Sequence[dict[str, Any]]) -> None:
        for row in rows:
            cells = [str(_cell(row[c])) for c in columns]
            if any(mark in cell for cell in cells for mark in "\t\n\r"):
                raise DataError(
                    f"The names {cells[:3]!r} contain a tab or a line end, which .tsv doesn't "
                    "allow. Write .jsonl, .csv or .parquet."
                )
            file.write("\t".join(cells) + "\n")

    return write


def arrow_schema(columns: Columns) -> Any:
    """Returns the schema of a Parquet file with these columns."""
    import pyarrow as pa

    kinds = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    return pa.schema([(name, kinds[kind]) for name, kind in columns.items()])


@contextmanager
def _parquet(path: Path, columns: Columns) -> Iterator[Write]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = arrow_schema(columns)
    kept: list[dict[str, Any]] = []

    def write(rows: Sequence[dict[str, Any]], at_least: int = CHUNK) -> None:
        kept.extend({c: _cell(row[c]) if kind is str else row[c] for c, kind in columns.items()}
                    for row in rows)  # fmt: skip
        while len(kept) >= at_least:  # whole chunks, however many rows come at a time
            writer.write_table(pa.Table.from_pylist(kept[:CHUNK], schema))
            del kept[:CHUNK]

    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        yield write
        write([], at_least=1)


def write_vectors(path: Path, names: Sequence[str], vectors_ED: Vectors) -> list[Path]:
    """Writes .parquet, .npy (and the names as .txt), .tsv or word2vec's .vec; returns the paths."""
    check_file(path, VECTOR_FORMATS)
    suffix, beside = path.suffix.lower(), path.with_suffix(".names.txt")
    if suffix == ".vec":  # word2vec's text format can't hold a space in a name
        names = [name.replace(" ", "_") for name in names]
    if suffix != ".parquet":
        _check_names(path, names)
    with replacing(path) as aside:
        if suffix == ".parquet":
            _write_parquet(aside, names, vectors_ED)
        elif suffix == ".npy":
            with replacing(beside) as aside_names, aside.open("wb") as file:
                np.save(file, vectors_ED)
                aside_names.write_text("".join(f"{n}\n" for n in names), encoding="utf-8")
        else:
            with aside.open("w", encoding="utf-8") as lines:
                if suffix == ".vec":
                    lines.write(f"{len(names)} {vectors_ED.shape[1]}\n")
                mark = " " if suffix == ".vec" else "\t"
                for name, row in zip(names, vectors_ED, strict=True):
                    lines.write(mark.join([name, *(f"{x:.7g}" for x in row.tolist())]) + "\n")
    return [path, beside] if suffix == ".npy" else [path]


def _check_names(path: Path, names: Sequence[str]) -> None:
    """Raises DataError for a name that the file's format can't hold."""
    suffix = path.suffix.lower()
    marks = "\n\r" if suffix == ".npy" else "\t\n\r"
    if odd := next((name for name in names if any(mark in name for mark in marks)), None):
        raise DataError(
            f"{path}: the entity {odd!r} contains a tab or a line end, which this format doesn't "
            "allow. Write .parquet instead."
        )
    if suffix == ".vec" and len(set(names)) < len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise DataError(
            f"{path}: two entities would be called {twice!r}, as word2vec's format allows no "
            "spaces in names. Write .parquet or .tsv instead."
        )


def _write_parquet(path: Path, names: Sequence[str], vectors_ED: Vectors) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    flat = pa.array(np.ascontiguousarray(vectors_ED).reshape(-1))
    vectors = pa.FixedSizeListArray.from_arrays(flat, vectors_ED.shape[1])
    table = pa.table({"entity": pa.array(list(names), pa.string()), "vector": vectors})
    pq.write_table(table, path, compression="zstd", row_group_size=CHUNK)
