"""A SPARQL endpoint as data: a real store, and servers that fail in every way."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from support.commands import pathe, refused

import pathe.data.sparql as pathe_sparql
from pathe.core.errors import DataError
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.data.readers import ReadOptions

STORE = shutil.which("oxigraph", path=str(Path(sys.executable).parent))
EX = "http://example.org/"
GRAPH = f"{EX}graphs#people"
TURTLE = """
@prefix : <http://example.org/> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
:vienna :capitalOf :austria ; rdfs:label "Vienna"@en , "Wien"@de .
:graz :cityIn :austria ; :population 300000 .
:東京 :capitalOf <http://example.org/japan?q=1&r=a%20b> .
_:b :knows :vienna .
"""
PEOPLE = "@prefix : <http://example.org/> . :anna :knows :ben . :ben :knows :cy ."


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def load(url: str, turtle: str, graph: str) -> None:
    data = turtle.encode()
    request = Request(f"{url}/store?{graph}", data, {"Content-Type": "text/turtle"}, method="PUT")
    with urlopen(request, timeout=10) as response:
        assert response.status in (201, 204)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An Oxigraph server with a default graph and a named one."""
    if STORE is None:
        pytest.skip("needs the oxigraph package of the dev extra")
    port = free_port()
    command = [STORE, "serve", "--location", str(tmp_path_factory.mktemp("store"))]
    server = subprocess.Popen(
        [*command, "--bind", f"127.0.0.1:{port}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(200):
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        load(url, TURTLE, "default")
        load(url, PEOPLE, f"graph={GRAPH.replace('#', '%23')}")
        yield url
    finally:
        server.terminate()
        server.wait(10)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "x.ttl"
    path.write_text(TURTLE.replace("_:b", "<http://example.org/b>"), encoding="utf-8")
    return path


def named(kg: KnowledgeGraph) -> set[tuple[str, str, str]]:
    """The graph's triples, with one name for blank nodes, whose ids are the store's."""
    names = [f"{EX}b" if name.startswith("_:") else name for name in kg.entities]
    return {(names[h], kg.relations[r], names[t]) for h, r, t in kg.train.tolist()}


def test_a_store_and_its_file_are_the_same_graph(store: str, file: Path) -> None:
    kg, expected = KnowledgeGraph.read(f"sparql:{store}/query"), KnowledgeGraph.read(file)
    assert named(kg) == named(expected)
    assert (kg.report.rows, kg.report.literals, kg.report.notes) == (4, 1, [])
    assert kg.names.label(f"{EX}vienna") == "Vienna"
    assert kg.entities.exact("Vienna") == f"{EX}vienna"
    assert kg.name.startswith("127.0.0.1-")
    german = ReadOptions(language="de", prefixes=(("ex", EX),))
    kg = KnowledgeGraph.read(f"sparql:{store}/query", options=german)
    assert kg.entities.exact("Wien") == kg.entities.exact("ex:vienna")


def test_a_named_graph(store: str) -> None:
    kg = KnowledgeGraph.read(f"sparql:{store}/query#{GRAPH}")
    assert list(kg.entities) == [f"{EX}anna", f"{EX}ben", f"{EX}cy"]
    with pytest.raises(DataError, match="no triples that link two entities; it sent none"):
        KnowledgeGraph.read(f"sparql:{store}/query#{EX}nothing")
    with pytest.raises(DataError, match="expected an IRI of a graph"):
        KnowledgeGraph.read(f"sparql:{store}/query#> }} INJECTED {{")


@pytest.mark.parametrize(
    "query",
    [
        "# select the capitals\nPREFIX ex: <http://example.org/>\n"
        "CONSTRUCT { ?a ex:capitalOf ?b } WHERE { ?a ex:capitalOf ?b }",
        "PREFIX ex: <http://example.org/> SELECT ?a ?p ?b { ?a ?p ?b FILTER(?p = ex:capitalOf) }",
    ],
)
def test_a_query(store: str, tmp_path: Path, query: str) -> None:
    (tmp_path / "q.rq").write_text(query)
    options = ReadOptions(sparql_query=tmp_path / "q.rq")
    kg = KnowledgeGraph.read(f"sparql:{store}/query", options=options)
    assert list(kg.relations) == [f"{EX}capitalOf"]
    assert len(kg.train) == 2
    assert kg.names.show(f"{EX}vienna") == "ex:vienna"  # by the query's own prefix


def test_a_query_on_a_named_graph(store: str, tmp_path: Path) -> None:
    (tmp_path / "q.rq").write_text("CONSTRUCT WHERE { ?s ?p ?o }")
    options = ReadOptions(sparql_query=tmp_path / "q.rq")
    kg = KnowledgeGraph.read(f"sparql:{store}/query#{GRAPH}", options=options)
    assert list(kg.entities) == [f"{EX}anna", f"{EX}ben", f"{EX}cy"]


def test_queries_that_are_no_graph(store: str, tmp_path: Path) -> None:
    for query, message in {
        "SELECT ?a { ?a ?b ?c }": r"SELECT of three variables, head, relation and tail; got \?a",
        "SELECT ?c ?b ?a { ?a ?b ?c FILTER(isLiteral(?c)) }": "expected rows of an entity, a rel",
        "SELECT ?a ?b ?x { ?a ?b ?c }": "got .*, nothing",
        "CONSTRUCT { nonsense": "answered 400 .* Check the query",
        "DELETE WHERE { ?s ?p ?o }": "expected a CONSTRUCT query",
        "CONSTRUCT { ?a ?b ?c } { ?a ?b ?c FILTER(isLiteral(?c)) }": "no triples",
    }.items():
        (tmp_path / "q.rq").write_text(query)
        options = ReadOptions(sparql_query=tmp_path / "q.rq")
        with pytest.raises(DataError, match=message):
            KnowledgeGraph.read(f"sparql:{store}/query", options=options)
    options = ReadOptions(sparql_query=tmp_path / "absent.rq")
    with pytest.raises(DataError, match=r"absent.rq: the query for sparql:.* can't be read"):
        KnowledgeGraph.read(f"sparql:{store}/query", options=options)


def test_the_wrong_address(store: str) -> None:
    with pytest.raises(DataError, match="answered 404"):
        KnowledgeGraph.read(f"sparql:{store}/nowhere")
    with pytest.raises(DataError, match="can't be reached"):
        KnowledgeGraph.read(f"sparql:http://127.0.0.1:{free_port()}/query")
    for bad in ("file:///etc/passwd", "ftp://x/y", "localhost:7878", "", "http://", "http://a b"):
        with pytest.raises(DataError, match="expected the http or https address"):
            KnowledgeGraph.read(f"sparql:{bad}")
    with pytest.raises(DataError, match="Leave user and password out") as caught:
        KnowledgeGraph.read("sparql:http://me:secret@localhost/query")
    assert "secret" not in str(caught.value)


def test_the_command_line(store: str, tmp_path: Path) -> None:
    done = pathe(
        "convert", f"sparql:{store}/query", tmp_path / "x.ttl", "--prefix", f"ex={EX}", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "1 label read" in done.stderr
    assert "1 triple with a literal left out" in done.stderr
    assert "ex:graz ex:cityIn ex:austria .\n" in (tmp_path / "x.ttl").read_text()
    done = pathe("analyze", f"sparql:{store}/query#{GRAPH}", "--json")
    assert '"entities": 3' in done.stdout
    message = refused("analyze", tmp_path / "x.ttl", "--sparql-query", "q.rq")
    assert "is no SPARQL endpoint: --sparql-query doesn't apply" in message


@contextmanager
def server(status: int, headers: dict[str, str], body: bytes, wait: float = 0) -> Iterator[str]:
    """A server that gives the same answer to every query."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            agents.append(self.headers["User-Agent"])
            time.sleep(wait)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    agents: list[str] = []
    with HTTPServer(("127.0.0.1", 0), Handler) as web:
        thread = threading.Thread(target=web.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"sparql:http://127.0.0.1:{web.server_port}/sparql"
        finally:
            web.shutdown()
            thread.join()
    assert all(agent.startswith("pathe") for agent in agents)


TRIPLES = f"<{EX}a> <{EX}r> <{EX}b> .\n".encode()


@pytest.mark.parametrize(
    ("status", "headers", "body", "message"),
    [
        (200, {"Content-Type": "text/html"}, b"<html>", "expected RDF or SPARQL results, got text"),
        (200, {}, b"hello", "expected RDF or SPARQL results|can't read"),
        (500, {}, b"out of\nmemory", "answered 500 .*'out of memory'"),
        (401, {}, b"", "needs a password"),
        (302, {"Location": "http://x.org/q"}, b"", "has moved. .*: sparql:http://x.org/q"),
        (200, {"Content-Type": "application/n-triples"}, b"<a> oops", "can't read the endpoint"),
        (
            200,
            {"Content-Type": "application/n-triples", "Content-Length": "1000"},
            TRIPLES,
            "stopped in mid-answer",
        ),
        (
            200,
            {"Content-Type": "application/n-triples", "Transfer-Encoding": "chunked"},
            b"%x\r\n%s\r\n" % (len(TRIPLES), TRIPLES),
            "stopped in mid-answer",
        ),
    ],
)
def test_endpoints_that_fail(
    status: int, headers: dict[str, str], body: bytes, message: str
) -> None:
    with server(status, headers, body) as data, pytest.raises(DataError, match=message):
        KnowledgeGraph.read(data)


def test_an_endpoint_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pathe_sparql, "TIMEOUT_S", 0.1)
    slow = server(200, {"Content-Type": "application/n-triples"}, TRIPLES, wait=0.5)
    with slow as data, pytest.raises(DataError, match=r"no answer within 0.1 seconds"):
        KnowledgeGraph.read(data)


def test_an_endpoint_that_sends_only_a_part(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # As public endpoints do that send at most 10,000 rows.
    monkeypatch.setattr(pathe_sparql, "_ALL", "CONSTRUCT { ?s ?p ?o } WHERE { %s } LIMIT 5")
    kg = KnowledgeGraph.read(f"sparql:{store}/query")
    assert "sent 5 of 7 triples; it may limit its answers" in kg.report.notes[0]


def test_an_endpoint_that_cannot_count() -> None:
    with server(200, {"Content-Type": "application/n-triples"}, TRIPLES) as data:
        assert "can't tell whether all triples" in KnowledgeGraph.read(data).report.notes[0]
