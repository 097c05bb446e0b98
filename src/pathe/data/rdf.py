"""RDF in any syntax that pyoxigraph parses -> three Arrow columns, prefixes and labels."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from pathe.core.errors import ConfigError, DataError
from pathe.core.extras import require
from pathe.data.columns import (
    RDF,
    ReadOptions,
    ReadReport,
    checked,
    open_stream,
    reading,
    row_batches,
)
from pathe.data.iris import check_base, from_iri
from pathe.data.names import BASE
from pathe.data.ntriples import ntriples_batches, too_long
from pathe.data.xml_bounds import BoundedXml

_BY_LINE = (".nt", ".nq")  # one statement per line, so a bad line can be skipped
_LABELS = {
    "http://www.w3.org/2004/02/skos/core#prefLabel": 0,
    "http://www.w3.org/2000/01/rdf-schema#label": 1,
    "http://www.w3.org/2004/02/skos/core#altLabel": 2,
}  # relations to labels, the preferred one first;
_ALTERNATIVE = 2  # labels from here on are accepted in queries, but not shown
Order = Callable[[str | None], int]


def rdf_batches(
    path: Path, suffix: str, options: ReadOptions, report: ReadReport
) -> Iterator[list[Any]]:
    """Yields the file's triples as dictionary columns; keeps prefixes and labels in the report.

    Other literals are left out and counted.
    """
    ox = require("pyoxigraph", "rdf", f"{path}: reading RDF")
    if suffix == ".nt" and not (options.base_iri or BASE).startswith("http"):
        parse = partial(_ntriples_rows, ox, path, options, report)
        yield from ntriples_batches(path, parse)
        return
    namer = blank_namer(path.name.split(".")[0], suffix in _BY_LINE)
    with reading(path):
        stream = open_stream(path)
        if RDF[suffix] == "RDF_XML":
            stream = BoundedXml(stream, path)
        quads = ox.parse(stream, format=getattr(ox.RdfFormat, RDF[suffix]))
        good = _checked(quads, path, suffix, options, report)
        rows = ((quad.subject, quad.predicate, quad.object) for quad in good)
        yield from checked(row_batches(named_rows(ox, rows, namer, options, report)))
        report.prefixes += sorted(quads.prefixes.items())


def _ntriples_rows(
    ox: Any,
    path: Path,
    options: ReadOptions,
    report: ReadReport,
    lines: bytes,
    number: Callable[[int], int],
) -> Iterator[list[Any]]:
    """Yields batches of the names in some lines of N-Triples."""
    quads = ox.parse(lines, format=ox.RdfFormat.N_TRIPLES)
    good = _checked(quads, path, ".nt", options, report, number)
    rows = ((quad.subject, quad.predicate, quad.object) for quad in good)
    return row_batches(named_rows(ox, rows, blank_namer("", True), options, report))


def named_rows(
    ox: Any,
    triples: Iterable[tuple[Any, Any, Any]],
    namer: Callable[[str], str],
    options: ReadOptions,
    report: ReadReport,
) -> Iterator[list[str]]:
    """Yields the names of each triple of pyoxigraph's terms; labels go to the report."""
    base, order = check_base(options.base_iri or BASE), language_order(options.language)

    def name(node: Any) -> str:
        if isinstance(node, ox.NamedNode):
            return from_iri(node.value, base)
        return namer(node.value)

    for head, relation, tail in triples:
        if isinstance(head, ox.Triple) or isinstance(tail, ox.Triple):
            report.quoted += 1
        elif isinstance(tail, ox.NamedNode | ox.BlankNode):
            yield [name(head), name(relation), name(tail)]
        elif relation.value in _LABELS and isinstance(tail, ox.Literal):
            rank = order(tail.language), _LABELS[relation.value]
            report.add_label(name(head), rank, tail.value, shown=rank[1] < _ALTERNATIVE)
        else:
            report.literals += 1


def language_order(wanted: str | None) -> Order:
    """Returns a function from a language tag to its place: those wanted, untagged, others.

    `en` also matches `en-GB`, which comes after `en` itself.
    """
    tags = [tag.strip().lower() for tag in ("en" if wanted is None else wanted).split(",")]
    if not all(re.fullmatch("[a-z]{1,8}(-[a-z0-9]{1,8})*", tag) for tag in tags):
        raise ConfigError(
            f"--language: expected language tags such as en or de,en; got {wanted!r}."
        )

    def order(tag: str | None) -> int:
        tag = (tag or "").lower()
        for i, own in enumerate(tags):
            if tag == own or tag.startswith(f"{own}-"):
                return 2 * i + (tag != own)
        return 2 * len(tags) + bool(tag)

    return order


def _checked(
    quads: Iterator[Any],
    path: Path,
    suffix: str,
    options: ReadOptions,
    report: ReadReport,
    number: Callable[[int], int] = int,
) -> Iterator[Any]:
    """Yields the parser's quads; syntax errors raise DataError or are skipped.

    `number` is a function from the parser's number of a line to that in the file.
    """
    while True:
        try:
            quad = next(quads, None)
        except MemoryError as error:
            if "buffer maximal size" in str(error):
                raise too_long(path) from None
            raise
        except SyntaxError as error:
            where = f"{path}, line {number(error.lineno)}" if error.lineno else f"{path}"
            said = re.sub(r"(?<=at line )\d+", lambda found: str(number(int(found[0]))), error.msg)
            message = f"{where}: not {RDF[suffix].replace('_', '-')}: {said}."
            if suffix not in _BY_LINE:
                hint = "Correct it: lines of this format can't be skipped."
                raise DataError(f"{message} {hint}") from error
            report.skip(message, options)
            continue
        if quad is None:
            return
        yield quad


def blank_namer(stem: str, by_line: bool) -> Callable[[str], str]:
    """Returns a function from a blank node's id to its name."""
    anonymous: dict[str, str] = {}

    def name(node: str) -> str:
        # The parser gives unlabelled nodes random ids, 128 bits in hex without leading zeros:
        # number them, so that runs agree.
        if not by_line and re.fullmatch("[0-9a-f]{25,32}", node):
            return anonymous.setdefault(node, f"_:{stem}-{len(anonymous)}")
        return f"_:{node}"

    return name
