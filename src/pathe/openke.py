"""OpenKE folders: entity2id, relation2id and train2id, valid2id, test2id -> columns."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pathe.columns import (
    BROKEN,
    ROLES,
    SKIP_HINT,
    ReadOptions,
    ReadReport,
    open_stream,
    unreadable,
    used_names,
)
from pathe.delimited import physical_lines
from pathe.errors import DataError

FILES = ("entity2id", "relation2id", "train2id", "valid2id", "test2id")


def read_openke(files: dict[str, Path], options: ReadOptions, report: ReadReport) -> dict[str, Any]:
    """Paths by the names in FILES -> tables by split; names no triple uses are left out."""
    entities, relations = (_read_names(files[name]) for name in FILES[:2])
    tables = {}
    for name in FILES[2:]:
        rows = _read_ids(files[name], len(entities), len(relations), options, report)
        report.rows += len(rows)
        columns = zip(rows.T, (entities, entities, relations), strict=True)
        head, tail, relation = (
            used_names(pa.DictionaryArray.from_arrays(pa.array(ids), names))
            for ids, names in columns
        )
        tables[name.removesuffix("2id")] = pa.table([head, relation, tail], names=list(ROLES))
    return tables


def _read_names(path: Path) -> Any:
    """Lines of name, tab, id -> names in the order of their ids."""
    names: dict[int, str] = {}
    count = 0
    for line, text in _counted(path):
        if not line:
            count = int(text)
            continue
        name, _, number = text.rpartition(b"\t" if b"\t" in text else b" ")
        if not name or not number.strip().isdigit() or not 0 <= (i := int(number)) < count:
            raise DataError(
                f"{path}, line {line}: expected a name, a tab and an id from 0 to {count - 1}, "
                f"got {text[:80]!r}"
            )
        if i in names:
            raise DataError(f"{path}, line {line}: the id {i} was given to {names[i]!r} before")
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
    """Lines of head, tail, relation ids -> int32 (n, 3) in that order."""
    limits = (n_entities, n_entities, n_relations)
    ids = array("i")
    for line, text in _counted(path):
        if not line:
            continue
        parts = text.split()
        good = len(parts) == 3 and all(
            p.isdigit() and int(p) < n for p, n in zip(parts, limits, strict=True)
        )
        if good:
            ids.extend(map(int, parts))
            continue
        message = (
            f"{path}, line {line}: expected head, tail and relation ids below {n_entities}, "
            f"{n_entities} and {n_relations}, got {text[:80]!r}."
        )
        if options.on_error == "raise":
            raise DataError(f"{message} {SKIP_HINT}")
        report.skipped += 1
        report.first_skipped = report.first_skipped or message
    if not ids:
        raise DataError(f"{path}: no triples in it; expected at least one.")
    return np.frombuffer(ids, np.int32).reshape(-1, 3)


def _counted(path: Path) -> Iterator[tuple[int, bytes]]:
    """(0, the count), then (line number, line); DataError when the count isn't theirs."""
    count, found = -1, 0
    try:
        with open_stream(path) as stream:
            for line, text in enumerate(physical_lines(stream), 1):
                text = text.rstrip(b"\r\n")
                if line == 1:
                    if not text.strip().isdigit():
                        raise DataError(f"{path}, line 1: expected a count, got {text[:80]!r}")
                    count = int(text)
                    yield 0, text
                elif text.strip():
                    found += 1
                    yield line, text
    except BROKEN as error:
        raise unreadable(path, error) from error
    if count != found:
        first = "it is empty" if count < 0 else f"line 1 says {count}"
        raise DataError(f"{path}: expected a count and as many lines; {first}, {found} follow")
