"""RDF in any syntax that pyoxigraph parses -> three Arrow columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pathe.core.errors import DataError
from pathe.core.extras import require
from pathe.data.columns import RDF, ReadOptions, ReadReport, collect_rows, open_stream, reading

_BY_LINE = (".nt", ".nq")  # one statement per line, so a bad line can be skipped


def read_rdf(path: Path, suffix: str, options: ReadOptions, report: ReadReport) -> Any:
    """Returns a table of the file's triples; literals are left out and counted."""
    with reading(path):
        return collect_rows(_rows(path, suffix, options, report))


def _rows(path: Path, suffix: str, options: ReadOptions, report: ReadReport) -> Iterator[list[str]]:
    """Yields the names of each triple."""
    ox = require("pyoxigraph", "rdf", f"{path}: reading RDF")
    name, entity = _namer(path, suffix in _BY_LINE), (ox.NamedNode, ox.BlankNode)
    for quad in _quads(ox, path, suffix, options, report):
        if not isinstance(quad.object, entity):
            report.literals += 1
            continue
        nodes = (quad.subject, quad.predicate, quad.object)
        yield [n.value if isinstance(n, ox.NamedNode) else name(n.value) for n in nodes]


def _quads(
    ox: Any, path: Path, suffix: str, options: ReadOptions, report: ReadReport
) -> Iterator[Any]:
    """Yields the parser's quads; syntax errors raise DataError or are skipped."""
    quads = iter(ox.parse(open_stream(path), format=getattr(ox.RdfFormat, RDF[suffix])))
    while True:
        try:
            quad = next(quads, None)
        except SyntaxError as error:
            where = f"{path}, line {error.lineno}" if error.lineno else f"{path}"
            message = f"{where}: not {RDF[suffix].replace('_', '-')}: {error.msg}."
            if suffix not in _BY_LINE:
                hint = "Correct it: lines of this format can't be skipped."
                raise DataError(f"{message} {hint}") from error
            report.skip(message, options)
            continue
        if quad is None:
            return
        yield quad


def _namer(path: Path, by_line: bool) -> Callable[[str], str]:
    """Returns a function from a blank node's id to its name."""
    stem = path.name.split(".")[0]
    anonymous: dict[str, str] = {}

    def name(node: str) -> str:
        # The parser gives unlabelled nodes random ids, 128 bits in hex without leading zeros:
        # number them, so that runs agree.
        if not by_line and re.fullmatch("[0-9a-f]{25,32}", node):
            return anonymous.setdefault(node, f"_:{stem}-{len(anonymous)}")
        return f"_:{node}"

    return name
