"""OpenKE folders: entity2id, relation2id and train2id, valid2id, test2id -> columns."""

from __future__ import annotations

import operator
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pathe.core.errors import DataError
from pathe.core.types import whole_number
from pathe.data.columns import ReadOptions, ReadReport, coded_table, open_stream, reading
from pathe.data.delimited import physical_lines
from pathe.data.room import Room

FILES = ("entity2id", "relation2id", "train2id", "valid2id", "test2id")


def read_openke(files: dict[str, Path], options: ReadOptions, report: ReadReport) -> dict[str, Any]:
    """Reads paths keyed by the names in FILES; returns tables by split, without unused names."""
    entities, relations = (_read_names(files[name]) for name in FILES[:2])
    tables = {}
    for name in FILES[2:]:
        rows = _read_ids(files[name], len(entities), len(relations), options, report)
        report.rows += len(rows)
        columns = zip(rows[:, [0, 2, 1]].T, (entities, relations, entities), strict=True)
        tables[name.removesuffix("2id")] = coded_table(columns)
    return tables


def _read_names(path: Path) -> Any:
    """Reads lines of name, tab, id; returns the names in the order of their ids."""
    names: dict[int, str] = {}
    count = 0
    for line, text in _counted(path):
        if not line:
            count = whole_number(text) or 0
            continue
        name, _, number = text.rpartition(b"\t" if b"\t" in text else b" ")
        i = whole_number(number.strip())
        if not name or i is None or i >= count:
            raise DataError(
                f"{path}, line {line}: expected a name, a tab and an id from 0 to {count - 1}, "
                f"got {text[:80]!r}"
            )
        if i in names:
            raise DataError(f"{path}, line {line}: the id {i} already belongs to {names[i]!r}.")
        try:
            names[i] = name.decode()
        except UnicodeDecodeError as error:
            raise DataError(f"{path}, line {line}: expected UTF-8 text, got {name!r}") from error
    ordered = pa.array([names[i] for i in range(count)], pa.large_string())
    if len(ordered.unique()) < count:
        twice = ordered.value_counts().sort(order="descending", by="counts")[0]["values"]
        raise DataError(f"{path}: the name {twice.as_py()!r} has more than one id")
    return ordered


def _read_ids(
    path: Path, n_entities: int, n_relations: int, options: ReadOptions, report: ReadReport
) -> Any:
    """Reads lines of head, tail and relation ids; returns int32 (n, 3) in that order."""
    limits = (n_entities, n_entities, n_relations)
    ids = array("i")
    for line, text in _counted(path):
        if not line:
            continue
        parts = text.split()
        numbers = [n for part in parts if (n := whole_number(part)) is not None]
        if len(parts) == len(numbers) == 3 and all(map(operator.lt, numbers, limits)):
            ids.extend(numbers)
            continue
        report.skip(
            f"{path}, line {line}: expected head, tail and relation ids below {n_entities}, "
            f"{n_entities} and {n_relations}, got {text[:80]!r}.",
            options,
        )
    if not ids:
        raise DataError(f"{path}: contains no triples; expected at least one.")
    return np.frombuffer(ids, np.int32).reshape(-1, 3)


def _counted(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yields (0, the count), then (line number, line); DataError if the count is wrong."""
    count, found = -1, 0
    with reading(path), open_stream(path) as stream:
        for line, text in enumerate(physical_lines(stream, Room(path)), 1):
            text = text.rstrip(b"\r\n")
            if line == 1:
                if (given := whole_number(text.strip())) is None:
                    raise DataError(f"{path}, line 1: expected a count, got {text[:80]!r}")
                count = given
                yield 0, text.strip()
            elif text.strip():
                found += 1
                yield line, text
    if count != found:
        first = "it is empty" if count < 0 else f"line 1 says {count}"
        raise DataError(f"{path}: expected a count and as many lines; {first}, {found} follow.")
