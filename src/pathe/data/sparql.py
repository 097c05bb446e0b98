"""A SPARQL endpoint -> three Arrow columns, streamed from the response."""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import Message
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from pathe.core.errors import DataError
from pathe.core.extras import require
from pathe.data.columns import SPARQL, ReadOptions, ReadReport, collect_rows
from pathe.data.rdf import blank_namer, named_rows

TIMEOUT_S = 120  # for each wait for the endpoint
_AGENT = "pathe (knowledge graph completion; Python urllib)"
_ACCEPT = (
    "application/n-triples, text/turtle;q=0.9, application/rdf+xml;q=0.8, "
    "application/sparql-results+json;q=0.7, application/sparql-results+xml;q=0.6"
)
_ALL = "CONSTRUCT { ?s ?p ?o } WHERE { %s }"
_COUNT = "SELECT (COUNT(*) AS ?n) WHERE { %s }"


class Endpoint(NamedTuple):
    """Where to send queries, the pattern of all triples wanted, and the default graph's IRI."""

    url: str
    pattern: str = "?s ?p ?o"
    graph: str = ""


def read_sparql(data: str, options: ReadOptions, report: ReadReport) -> Any:
    """Returns a table of the triples at `sparql:URL`, or `sparql:URL#GRAPH` for a named graph.

    With a query in the options, its triples or rows; otherwise all triples. A graph is the default
    graph of the query.
    """
    options.reject(("columns", "header", "delimiter"), f"{data} is a SPARQL endpoint")
    ox = require("pyoxigraph", "rdf", f"{data}: reading from a SPARQL endpoint")
    endpoint = _endpoint(ox, data)
    query = _ALL % endpoint.pattern
    if options.sparql_query is not None:
        query = _read_query(options.sparql_query, data)
        endpoint = endpoint._replace(graph=data.partition("#")[2])
        report.prefixes += re.findall(r"(?i)\bPREFIX\s+([\w.-]*)\s*:\s*<(\w[^>\s]*)>", query)
    n_read, n_literals = 0, report.literals

    def counted() -> Iterator[tuple[Any, Any, Any]]:
        nonlocal n_read
        for n_read, triple in enumerate(_triples(ox, endpoint, query, report), 1):  # noqa: B007
            yield triple

    namer = blank_namer("sparql", by_line=True)
    table = collect_rows(named_rows(ox, counted(), namer, options, report))
    if not table.num_rows:
        literals = report.literals - n_literals
        why = f"the {n_read:,} that it sent have literals" if literals else "it sent none"
        raise DataError(f"{data}: no triples that link two entities; {why}.")
    report.rows += table.num_rows
    if options.sparql_query is None:
        _note_limit(ox, endpoint, n_read, report)
    return table


def _endpoint(ox: Any, data: str) -> Endpoint:
    """Splits `sparql:URL#GRAPH`; raises DataError for what isn't an endpoint's address."""
    url, _, graph = data.removeprefix(SPARQL).partition("#")
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and url.isascii()
    except ValueError:
        good = False
    if not good or re.search(r"\s", url):
        example = "sparql:https://example.org/query, or with #GRAPH for a named graph"
        raise DataError(f"{data}: expected the http or https address of an endpoint: {example}.")
    if parts.username is not None or parts.password is not None:
        raise DataError("Leave user and password out of the address: they aren't supported here.")
    if not graph:
        return Endpoint(url)
    try:
        return Endpoint(url, f"GRAPH {ox.NamedNode(graph)} {{ ?s ?p ?o }}")
    except ValueError as error:
        raise DataError(f"{data}: expected an IRI of a graph after #: {error}.") from None


def _read_query(path: Path, data: str) -> str:
    try:
        query = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: the query for {data} can't be read: {why}") from None
    if not re.search(r"(?i)\b(CONSTRUCT|SELECT|DESCRIBE)\b", query):
        raise DataError(f"{path}: expected a CONSTRUCT query, or a SELECT of three variables.")
    return query


def _triples(
    ox: Any, endpoint: Endpoint, query: str, report: ReadReport
) -> Iterator[tuple[Any, Any, Any]]:
    """Yields the terms of the triples in an endpoint's answer, or of its rows."""
    with _answer(endpoint, query) as (kind, response):
        if format_ := ox.RdfFormat.from_media_type(kind):
            quads = ox.parse(response, format=format_)
            yield from ((quad.subject, quad.predicate, quad.object) for quad in quads)
            report.prefixes += sorted(quads.prefixes.items())
        elif format_ := ox.QueryResultsFormat.from_media_type(kind):
            yield from _rows(ox, endpoint, ox.parse_query_results(response, format=format_))
        else:
            start = response.read(80).decode(errors="replace")
            raise DataError(
                f"{endpoint.url}: expected RDF or SPARQL results, got {kind}: {start!r}. Is this "
                "the address for queries, often .../sparql or .../query?"
            )


def _rows(ox: Any, endpoint: Endpoint, found: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yields the terms of each row of a SELECT; raises DataError if they aren't triples."""
    variables = getattr(found, "variables", ())  # an ASK has none
    if len(variables) != 3:
        names = ", ".join(f"?{variable.value}" for variable in variables) or "none"
        wanted = "expected a SELECT of three variables, head, relation and tail"
        raise DataError(f"{endpoint.url}: {wanted}; got {names}.")
    for head, relation, tail in found:
        linked = isinstance(head, ox.NamedNode | ox.BlankNode) and isinstance(
            relation, ox.NamedNode
        )
        if not linked or tail is None:
            terms = ", ".join("nothing" if x is None else str(x) for x in (head, relation, tail))
            wanted = "expected rows of an entity, a relation and an entity"
            raise DataError(f"{endpoint.url}: {wanted}; got {terms}.")
        yield head, relation, tail


class _NoRedirect(HTTPRedirectHandler):
    """Refuses redirects, which would lose the query."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> None:
        return None


@contextmanager
def _answer(endpoint: Endpoint, query: str) -> Iterator[tuple[str, Any]]:
    """Yields the content type and the stream of an answer; its errors become DataError."""
    form = {"query": query} | ({"default-graph-uri": endpoint.graph} if endpoint.graph else {})
    request = Request(endpoint.url, urlencode(form).encode(), method="POST")
    request.add_header("Content-Type", "application/x-www-form-urlencoded")
    request.add_header("Accept", _ACCEPT)
    request.add_header("User-Agent", _AGENT)
    url = endpoint.url
    try:
        with build_opener(_NoRedirect).open(request, timeout=TIMEOUT_S) as response:
            yield response.headers.get_content_type(), response
            if response.length:  # reading in blocks doesn't notice this
                raise http.client.IncompleteRead(b"", response.length)
    except HTTPError as error:
        raise DataError(f"{url}: {_refusal(error)}") from None
    except TimeoutError:
        raise DataError(_slow(url)) from None
    except (URLError, http.client.HTTPException, OSError) as error:
        reason = getattr(error, "reason", None) or error
        if isinstance(reason, TimeoutError):
            raise DataError(_slow(url)) from None
        what = "can't be reached" if isinstance(error, URLError) else "stopped in mid-answer"
        raise DataError(f"{url}: the endpoint {what} ({reason}). Check address and network.") from (
            error
        )
    except SyntaxError as error:
        raise DataError(f"{url}: can't read the endpoint's answer: {error.msg}.") from error


def _refusal(error: HTTPError) -> str:
    """Says why an endpoint refused a query."""
    headers: Message = error.headers
    if 300 <= error.code < 400 and (place := headers.get("Location")):
        return f"the endpoint has moved. Give its new address: {SPARQL}{place}"
    said = " ".join(error.read(2000).decode(errors="replace").split())[:200]
    hints = {
        400: "Check the query.",
        401: "It needs a password, which isn't supported: export the data to a file.",
        403: "It needs permission: export the data to a file.",
        404: "Is this the address for queries, often .../sparql or .../query?",
        429: "Too many queries: try again later.",
    }
    hint = hints.get(error.code, "Try again later, or ask for less by --sparql-query FILE.")
    return f"the endpoint answered {error.code} {error.reason}: {said!r}. {hint}"


def _slow(url: str) -> str:
    wait = f"no answer within {TIMEOUT_S} seconds"
    return f"{url}: {wait}. Ask for less by --sparql-query FILE, or export the data to a file."


def _note_limit(ox: Any, endpoint: Endpoint, n_read: int, report: ReadReport) -> None:
    """Adds a note if the endpoint says that it has more triples than it sent."""
    try:
        with _answer(endpoint, _COUNT % endpoint.pattern) as (kind, response):
            format_ = ox.QueryResultsFormat.from_media_type(kind)
            [[count]] = ox.parse_query_results(response, format=format_)
            total = int(count.value)
    except (DataError, ValueError, TypeError):
        report.notes.append(f"{endpoint.url}: can't tell whether all triples were sent")
        return
    if total > n_read:
        report.notes.append(
            f"{endpoint.url}: sent {n_read:,} of {total:,} triples; it may limit its answers. "
            "Ask for parts by --sparql-query FILE, or export the data to a file."
        )
