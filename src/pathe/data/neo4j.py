"""Neo4j -> three Arrow columns: files of `neo4j-admin database import`, or a server.

An entity is a node's id, and its property `name`, `title` or `label` is its label. Node labels
become triples such as `42  :LABEL  :Person`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc

from pathe.core.errors import DataError
from pathe.core.extras import require
from pathe.core.types import PARTS
from pathe.data.columns import (
    ReadOptions,
    ReadReport,
    collect,
    collect_rows,
    split_suffix,
    text_array,
)
from pathe.data.delimited import read_text, text_rows

LABEL = ":LABEL"  # the relation from a node to its labels
TIMEOUT_S = 20
_NAMES = ("name", "title", "label")  # properties that name a node, the first that it has
_FIELD = re.compile(r"(.*):(ID|START_ID|END_ID|TYPE|LABEL)(?:\(([^)]*)\))?(?:\{.*\})?")
_RELATIONSHIPS = (
    "MATCH (a)-[r]->(b) RETURN elementId(a) AS head, type(r) AS relation, elementId(b) AS tail"
)
_NODES = (
    "MATCH (n) RETURN elementId(n) AS id, coalesce(n.name, n.title, n.label) AS name, "
    "labels(n) AS labels"
)
Node = tuple[str, str, list[str]]  # id, name, labels


class Field(NamedTuple):
    """A special field of a header: its text, its column, and the id space in parentheses."""

    text: str
    column: int
    space: str


def header_fields(path: Path, options: ReadOptions) -> dict[str, Field]:
    """Returns the special fields of a file's header by kind, such as ID or START_ID."""
    found: dict[str, Field] = {}
    if split_suffix(path)[1] != ".csv" or options.columns or options.header is False:
        return found
    try:
        _, row = next(text_rows(path, options), (0, list[str]()))
    except DataError:  # no header of Neo4j's; the reader for text says what is wrong
        return found
    for column, text in enumerate(row):
        if field := _FIELD.fullmatch(text):
            found.setdefault(field[2], Field(text, column, field[3] or ""))
    return found if {"START_ID", "END_ID"} <= set(found) or "ID" in found else {}


def read_relationships(
    path: Path, fields: dict[str, Field], options: ReadOptions, report: ReadReport
) -> Any:
    """Returns a table of a file with `:START_ID`, `:TYPE` and `:END_ID`."""
    if missing := [f":{kind}" for kind in ("START_ID", "TYPE", "END_ID") if kind not in fields]:
        hint = "Give the folder, or the file of relationships." if "ID" in fields else "Add it."
        raise DataError(f"{path}: expected :START_ID, :TYPE and :END_ID; no {missing[0]}. {hint}")
    start, kind, end = (fields[name] for name in ("START_ID", "TYPE", "END_ID"))
    table = read_text(
        path, replace(options, columns=(start.text, kind.text, end.text), header=True), report
    )
    columns = []
    for part, space in zip(PARTS, (start.space, "", end.space), strict=True):
        column = table.column(part).chunk(0)
        names = column.dictionary
        if space:
            names = text_array([_in_space(name, space) for name in names.to_pylist()])
        columns.append(pa.DictionaryArray.from_arrays(column.indices, names))
    return pa.table(columns, names=PARTS)


def read_neo4j_folder(folder: Path, options: ReadOptions, report: ReadReport) -> Any:
    """Returns a table of a folder's files of nodes and relationships; None if it has none."""
    files = [path for path in sorted(folder.iterdir()) if path.is_file()]
    headers = {path: fields for path in files if (fields := header_fields(path, options))}
    linked = {path: fields for path, fields in headers.items() if "START_ID" in fields}
    if not linked:
        return None
    tables = [read_relationships(path, fields, options, report) for path, fields in linked.items()]
    for path, fields in headers.items():
        if path not in linked:
            nodes = _file_nodes(path, fields, options, report)
            tables.append(collect_rows(_label_rows(nodes, report)))
    table = collect([table.column(part).chunk(0) for part in PARTS] for table in tables)
    _note_labels(table, report)
    return table


def _file_nodes(
    path: Path, fields: dict[str, Field], options: ReadOptions, report: ReadReport
) -> Iterator[Node]:
    """Yields the nodes of a file with `:ID`."""
    rows = text_rows(path, options)
    _, header = next(rows)
    names = [text.partition(":")[0].lower() for text in header]
    shown = [names.index(name) for name in _NAMES if name in names]
    own = fields["ID"]
    for line, row in rows:
        if len(row) != len(header) or not row[own.column]:
            what = f"expected {len(header)} columns and an id, got {row[:5]}"
            report.skip(f"{path}, line {line}: {what}.", options)
            continue
        labels = row[fields["LABEL"].column].split(";") if "LABEL" in fields else []
        name = next((row[i] for i in shown if row[i]), "")
        yield _in_space(row[own.column], own.space), name, labels


def _in_space(name: str, space: str) -> str:
    """Returns an id's name: ids of different spaces may be equal."""
    return f"{space}/{name}" if space else name


def _label_rows(nodes: Iterable[Node], report: ReadReport) -> Iterator[list[str]]:
    """Yields a triple per node label; keeps the nodes' names as labels in the report."""
    for node, name, labels in nodes:
        report.add_label(node, 0, name)
        yield from ([node, LABEL, f":{label}"] for label in labels if label)


def _note_labels(table: Any, report: ReadReport) -> None:
    if n := pc.sum(pc.equal(table.column("relation").cast(pa.large_string()), LABEL)).as_py():
        report.notes.append(f"{n:,} node labels read as triples with the relation {LABEL}")


def read_bolt(data: str, options: ReadOptions, report: ReadReport) -> Any:
    """Returns a table of all relationships and node labels at `bolt://HOST:PORT/DATABASE`.

    User and password come from NEO4J_USERNAME and NEO4J_PASSWORD.
    """
    options.reject(("columns", "header", "delimiter"), f"{data} is a Neo4j server")
    with _session(data) as session:

        def rows() -> Iterator[list[str]]:
            for record in session.run(_RELATIONSHIPS):
                yield [record["head"], record["relation"], record["tail"]]
            yield from _label_rows(map(_record_node, session.run(_NODES)), report)

        table = collect_rows(rows())
    if not table.num_rows:
        raise DataError(f"{data}: contains no relationships; expected at least one.")
    report.rows += table.num_rows
    _note_labels(table, report)
    return table


def _record_node(record: Any) -> Node:
    name = record["name"]
    return record["id"], "" if name is None else str(name), list(record["labels"])


@contextmanager
def _session(data: str) -> Iterator[Any]:
    """Opens a session that reads; the driver's errors become DataError."""
    neo4j = require("neo4j", "neo4j", f"{data}: reading from a Neo4j server")
    from neo4j.exceptions import AuthError, ConfigurationError, DriverError, Neo4jError

    parts = urlsplit(data)
    if "@" in parts.netloc:
        raise DataError(
            "Leave user and password out of the address: set NEO4J_USERNAME and NEO4J_PASSWORD."
        )
    if not parts.hostname:
        raise DataError(f"{data}: expected the address of a server, as bolt://localhost:7687.")
    address = f"{parts.scheme}://{parts.netloc}"
    password = os.environ.get("NEO4J_PASSWORD")
    user = os.environ.get("NEO4J_USERNAME", "neo4j")
    try:
        with (
            neo4j.GraphDatabase.driver(
                address,
                auth=None if password is None else (user, password),
                connection_timeout=TIMEOUT_S,
            ) as driver,
            driver.session(
                database=parts.path.strip("/") or None, default_access_mode=neo4j.READ_ACCESS
            ) as session,
        ):
            yield session
    except AuthError as error:
        hint = "Set NEO4J_USERNAME and NEO4J_PASSWORD."
        raise DataError(f"{address}: user or password not accepted. {hint}") from error
    except (DriverError, Neo4jError, ConfigurationError, OSError, ValueError) as error:
        why = " ".join(str(error).split())[:300]
        raise DataError(f"{address}: can't read from the server ({why}).") from error
