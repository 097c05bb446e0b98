"""`pathe serve` as a process: the client, the docs' curl commands, kills, bad options."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest
from support.commands import refused
from support.server import in_thread, kill_while_adding, running

pytest.importorskip("fastapi")

from pathe.core.errors import PatheError, UnknownNameError
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.serve.app import build_app
from pathe.serve.client import Client
from pathe.serve.graphs import ServedGraph, Source
from pathe.serve.routes import api
from pathe.serve.run import listening

ROOT = Path(__file__).parents[2]
EUROPE = ROOT / "examples" / "europe.csv"
FACT = ("Paris", "capital of", "France")


@pytest.fixture(scope="module")
def url():
    with running("--data", EUROPE) as (url, _):
        yield url


def test_the_client_gets_what_the_predictor_gives(url):
    client = Client(url)
    assert client.graph == "europe"
    assert client.about()["triples"] == 917
    assert client.search("pariss", 1)[0]["name"] == "Paris"
    assert FACT in client.facts("Paris")
    found = client.tails("Paris", "capital of", k=3, known=True)
    assert found[0].name == "France"
    assert found[0].known
    assert found.complete == ["France"]
    assert client.heads("capital of", "France", known=True)[0].name == "Paris"
    assert client.relations("Paris", "France", k=2, known=True)[0].name in ("capital of", "city in")
    assert [len(one) for one in client.answer([("Paris", "lies on", None)] * 2, k=3)] == [3, 3]
    assert client.score([FACT])[0].rank == 1
    assert client.classify([FACT])[0].known
    why = client.explain(*FACT)
    without = client.score_without(FACT, patterns=[why["patterns"][0]["relations"]])
    assert without["score"] < without["score_before"]
    assert client.missing(2, relation="borders")[0].relation == "borders"
    assert client.suspicious(2, entity="Paris")[0].rank == 1
    assert len(client.similar("Paris", 4)) == 4
    assert client.rules("capital of", 2)[0].relation == "capital of"
    other = client.what_if(remove=[FACT])
    assert FACT not in other.facts("Paris")
    assert FACT in client.facts("Paris")
    with pytest.raises(UnknownNameError, match="Closest: 'Paris'"):
        client.tails("Pariss", "capital of")
    with pytest.raises(PatheError, match="read-only"):
        client.change(add=[FACT])


def test_the_client_gets_all_facts_of_an_entity(tmp_path):
    path = tmp_path / "hub.tsv"
    path.write_text("".join(f"{i}\tr\thub\nhub\ts\t{i}\n" for i in range(1200)))
    with in_thread(
        build_app([ServedGraph(Source("hub", KnowledgeGraph.read(path)), "cpu")])
    ) as own:
        client = Client(f"http://127.0.0.1:{own}")
        found = client.facts("hub")
        assert len(found) == len(set(found)) == 2400
        assert client.facts("hub", 2100) == found[:2100]
        assert client.facts("hub", 7) == found[:7]
        assert len(client.facts("7")) == 2


def test_no_server():
    with pytest.raises(PatheError, match="no answer"):
        Client("http://127.0.0.1:9", timeout=1)


@pytest.mark.parametrize("answer", [
    b"", b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{", b"hello\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
], ids=["nothing", "a part", "not HTTP", "not JSON"])  # fmt: skip
def test_half_an_answer_is_none(answer):
    with socket.create_server(("127.0.0.1", 0)) as own:

        def serve() -> None:
            connection, _ = own.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(PatheError, match="no answer"):
            Client(f"http://127.0.0.1:{own.getsockname()[1]}", timeout=10)
        thread.join(10)


COMMANDS = re.findall(
    r"^curl (?:.*\\\n)*.*", (ROOT / "docs" / "serve.md").read_text(), re.MULTILINE
)


def test_every_call_has_a_curl_command_in_the_docs():
    shown = set()
    for command in COMMANDS:
        [path] = re.findall(r"8080(/[\w/]*)", command)
        path = path.replace("/europe", "/{graph}").replace("/ID", "/{overlay}")
        has_body = " -d " in command and " -G " not in command
        shown.add(("POST" if has_body else "GET", path))
    routes = {(method, route.path) for route in api.routes for method in route.methods}
    assert shown == routes | {("GET", "/metrics")}


@pytest.mark.slow
def test_the_curl_commands_of_the_docs(url, tmp_path):
    overlay = "ID"
    for command in COMMANDS:
        command = re.sub(r"(overlay=|overlays/)ID", rf"\g<1>{overlay}", command)
        words = shlex.split(command.replace("\\\n", " ").replace("http://127.0.0.1:8080", url))
        done = subprocess.run(
            [*words, "-s", "-w", "%{http_code}"], capture_output=True, text=True, cwd=tmp_path
        )
        assert done.returncode == 0, command
        wanted = "400" if "/facts" in command else "200"  # the graph is read-only here
        assert done.stdout.endswith(wanted), (command, done.stdout)
        if "/overlays " in command:
            overlay = json.loads(done.stdout.removesuffix("200"))["overlay"]


@pytest.mark.slow
def test_several_graphs_from_a_file(tmp_path):
    listed = tmp_path / "graphs.yaml"
    (tmp_path / "films.csv").symlink_to(ROOT / "examples" / "films.csv")
    types = ROOT / "examples" / "films-types.csv"
    listed.write_text(
        f"graphs:\n  films: {{data: films.csv, types: {types}}}\n  europe: {{data: {EUROPE}}}\n"
    )
    with running("--graphs", listed) as (url, _):
        with pytest.raises(PatheError, match="name one of films, europe"):
            Client(url)
        client = Client(url, "films")
        assert client.search("Par", 1, type="City")[0]["types"] == ["City"]


def test_bad_options_are_refused(tmp_path):
    assert "Give the graph" in refused("serve")
    listed = tmp_path / "graphs.yaml"
    assert "no such file" in refused("serve", "--graphs", listed)
    for text, words in {
        "x": "expected `graphs:`", "graphs: {a: {}}": "expected data", "graphs: [": "invalid YAML",
        "graphs: {a: {data: x, what: y}}": "expected data", "graphs: &a [*a]": "aliases",
        "graphs: 2026-13-45": "invalid YAML",
        "graphs: {a/b: {data: x}}": "without a slash", "graphs: {'': {data: x}}": "without a slash",
        "graphs: {..: {data: x}}": "without a slash", "graphs: {1: {data: x}}": "in quotes",
    }.items():  # fmt: skip
        listed.write_text(text)
        assert words in refused("serve", "--graphs", listed)
    assert "leave out" in refused("serve", "--graphs", listed, "--data", EUROPE)
    assert "can't be written" in refused(
        "serve", "--data", EUROPE, "--writable", tmp_path / "no" / "x", "--device", "cpu"
    )


def test_a_port_in_use(url):
    port = url.rsplit(":", 1)[1]
    said = refused("serve", "--data", EUROPE, "--port", port, "--device", "cpu")
    assert "can't listen" in said


@pytest.mark.slow
def test_no_acknowledged_fact_is_lost(tmp_path):
    journal, done = tmp_path / "changes.jsonl", []
    for number in range(3):
        done += kill_while_adding(EUROPE, journal, number)
    assert done
    with running("--data", EUROPE, "--writable", journal, PATHE_TOKEN="t") as (url, _):
        facts = Client(url, token="t").facts("France")
    there = {head for head, relation, _ in facts if relation == "borders"}
    assert set(done) <= there


def test_answers_are_sent_at_once():
    async def delay() -> int:
        delays = asyncio.get_running_loop().create_future()

        class Own(asyncio.Protocol):
            def connection_made(self, transport):
                own = transport.get_extra_info("socket")
                delays.set_result(own.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

        listener = listening("127.0.0.1", 0)
        server = await asyncio.get_running_loop().create_server(Own, sock=listener)
        _, writer = await asyncio.open_connection(*listener.getsockname())
        found = await delays
        writer.close()
        server.close()
        return found

    assert asyncio.run(delay()), "Nagle's algorithm would hold back each answer for 40 ms"


def test_a_start_takes_seconds_and_ends_cleanly():
    start = time.perf_counter()
    with running("--data", EUROPE) as (url, process):
        assert Client(url).about()["name"] == "europe"
    assert process.returncode == 128 + signal.SIGTERM  # after uvicorn has shut down
    assert time.perf_counter() - start < 60  # the machine may be busy; `make bench` has the figure
