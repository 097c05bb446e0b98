"""Files of questions in; files of rows and of vectors out, written a chunk at a time."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

from pathe.columns import known_header
from pathe.delimited import small_table
from pathe.errors import ConfigError, DataError
from pathe.files import check_place, replacing

ROW_FORMATS = (".tsv", ".csv", ".jsonl", ".parquet")
VECTOR_FORMATS = (".parquet", ".npy", ".tsv", ".vec")
OPEN = ("", "?")  # what stands in a question for the part that is asked
CHUNK = 1 << 14
Vectors = npt.NDArray[np.float32]
Columns = dict[str, type]
Write = Callable[[Sequence[dict[str, Any]]], None]


def read_questions(path: Path) -> list[tuple[int, tuple[str | None, str | None, str | None]]]:
    """(line number, head, relation, tail) of a .tsv, .txt or .csv file; `?` or nothing is asked."""
    found = []
    for number, cells in small_table(path, "questions"):
        if number == 1 and len(cells) == 3 and known_header(cells):
            continue
        if len(cells) != 3:
            raise DataError(
                f"{path}, line {number}: expected head, relation and tail, with ? for what is "
                f"asked; got {len(cells)} column{'s' * (len(cells) > 1)}."
            )
        names = [None if cell in OPEN else cell for cell in cells]
        if names.count(None) != 1:
            raise DataError(
                f"{path}, line {number}: expected one ?, for what is asked; got "
                f"{names.count(None)}."
            )
        found.append((number, (names[0], names[1], names[2])))
    if not found:
        raise DataError(f"{path}: no questions in it.")
    return found


def check_rows_file(path: Path) -> None:
    """Refuse a file of rows that couldn't be written, before the work that it is for."""
    _check(path, ROW_FORMATS)


def check_vectors_file(path: Path) -> None:
    """Refuse a file of vectors that couldn't be written, before the work that it is for."""
    _check(path, VECTOR_FORMATS)


def _check(path: Path, formats: tuple[str, ...]) -> None:
    if path.suffix.lower() not in formats:
        raise ConfigError(f"{path}: expected a name that ends in {', '.join(formats)}.")
    check_place(path)


@contextmanager
def row_writer(path: Path, columns: Columns) -> Iterator[Write]:
    """Gives a function that writes rows, as many as come; the file appears whole at the end."""
    check_rows_file(path)
    suffix = path.suffix.lower()
    with replacing(path) as aside:
        if suffix == ".parquet":
            with _parquet(aside, columns) as write:
                yield write
            return
        with aside.open("w", encoding="utf-8", newline="") as file:
            yield text_writer(file, suffix, columns)


def text_writer(file: TextIO, suffix: str, columns: Columns) -> Write:
    """A function that writes rows to an open file as .jsonl, .csv or .tsv, under a header."""
    if suffix == ".jsonl":
        return lambda rows: file.writelines(
            json.dumps(row, ensure_ascii=False) + "\n" for row in rows
        )
    if suffix == ".csv":
        table = csv.writer(file, lineterminator="\n")
        table.writerow(columns)
        return lambda rows: table.writerows([row[c] for c in columns] for row in rows)
    file.write("\t".join(columns) + "\n")

    def write(rows: Sequence[dict[str, Any]]) -> None:
        for row in rows:
            cells = [str(row[c]) for c in columns]
            if any(mark in cell for cell in cells for mark in "\t\n\r"):
                raise DataError(
                    f"The names {cells[:3]!r} hold a tab or a line end, which tab-separated rows "
                    "can't hold. Write .jsonl, .csv or .parquet."
                )
            file.write("\t".join(cells) + "\n")

    return write


@contextmanager
def _parquet(path: Path, columns: Columns) -> Iterator[Write]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    schema = pa.schema([(name, kinds[kind]) for name, kind in columns.items()])
    kept: list[dict[str, Any]] = []

    def write(rows: Sequence[dict[str, Any]], at_least: int = CHUNK) -> None:
        kept.extend(rows)
        if len(kept) >= at_least:
            writer.write_table(pa.Table.from_pylist(kept, schema))
            kept.clear()

    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        yield write
        write([], at_least=1)


def write_vectors(path: Path, names: Sequence[str], vectors_ED: Vectors) -> list[Path]:
    """Names and vectors as .parquet, .npy (names in a .txt beside it), .tsv or word2vec's .vec.

    Gives what was written.
    """
    check_vectors_file(path)
    chunks = (
        (names[i : i + CHUNK], vectors_ED[i : i + CHUNK]) for i in range(0, len(names), CHUNK)
    )
    match path.suffix.lower():
        case ".parquet":
            with replacing(path) as aside:
                _write_parquet(aside, chunks, vectors_ED.shape[1])
        case ".npy":
            beside = path.with_suffix(".names.txt")
            _refuse(path, names, ("\n", "\r"))
            with replacing(path) as aside, replacing(beside) as aside_names:
                with aside.open("wb") as file:
                    np.save(file, vectors_ED)
                aside_names.write_text("".join(f"{n}\n" for n in names), encoding="utf-8")
            return [path, beside]
        case ".tsv":
            _refuse(path, names, ("\t", "\n", "\r"))
            with replacing(path) as aside, aside.open("w", encoding="utf-8") as file:
                _write_lines(file, chunks, "\t")
        case ".vec":  # word2vec's text format has no way to write a space in a name
            plain = [name.replace(" ", "_") for name in names]
            _refuse(path, plain, ("\t", "\n", "\r"))
            if len(set(plain)) < len(plain):
                twice = Counter(plain).most_common(1)[0][0]
                raise DataError(
                    f"{path}: two entities would be called {twice!r}, as word2vec's format has no "
                    "spaces in names. Write .parquet or .tsv instead."
                )
            chunks = (
                (plain[i : i + CHUNK], vectors_ED[i : i + CHUNK])
                for i in range(0, len(plain), CHUNK)
            )
            with replacing(path) as aside, aside.open("w", encoding="utf-8") as file:
                file.write(f"{len(plain)} {vectors_ED.shape[1]}\n")
                _write_lines(file, chunks, " ")
    return [path]


def _write_lines(file: Any, chunks: Iterable[tuple[Sequence[str], Vectors]], mark: str) -> None:
    for names, rows in chunks:
        for name, row in zip(names, rows.tolist(), strict=True):
            file.write(mark.join([name, *(f"{value:.7g}" for value in row)]) + "\n")


def _write_parquet(path: Path, chunks: Iterable[tuple[Sequence[str], Vectors]], dim: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kind = pa.list_(pa.float32(), dim)
    schema = pa.schema([("entity", pa.string()), ("vector", kind)])
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for names, rows in chunks:
            flat = pa.array(np.ascontiguousarray(rows).reshape(-1))
            vectors = pa.FixedSizeListArray.from_arrays(flat, dim)
            table = pa.table([pa.array(list(names), pa.string()), vectors], schema=schema)
            writer.write_table(table)


def _refuse(path: Path, names: Iterable[str], marks: tuple[str, ...]) -> None:
    for name in names:
        if any(mark in name for mark in marks):
            raise DataError(
                f"{path}: the entity {name!r} holds a tab or a line end, which this format can't "
                "hold. Write .parquet instead."
            )
