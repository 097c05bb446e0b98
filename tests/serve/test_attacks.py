"""Attacks on a server over HTTP, on this machine: others are still answered, and nothing leaks.

Counts are small; with PATHE_TORTURE=1, as in `make torture`, they are large.
"""

from __future__ import annotations

import json
import os
import random
import re
import socket
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

pytest.importorskip("fastapi")

from support.server import in_thread, memory, running

from pathe.core.errors import PatheError
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.serve.app import build_app
from pathe.serve.client import Client
from pathe.serve.graphs import ServedGraph, Source
from pathe.serve.run import open_files
from pathe.serve.server import Limits

pytestmark = pytest.mark.torture
TORTURE = os.environ.get("PATHE_TORTURE") == "1"
EUROPE = Path(__file__).parents[2] / "examples" / "europe.csv"
FACTS = [(f"n{i}", "r", f"n{i + 1}") for i in range(9)]
HEAD = b"Host: 127.0.0.1\r\nContent-Type: application/json\r\nConnection: close\r\n"
SCORE = b"POST /api/v1/graphs/tiny/score HTTP/1.1\r\n" + HEAD
TOKEN = "a token of some length"
SEED = 5


def tiny(facts=FACTS, **options):
    graph = ServedGraph(Source("tiny", KnowledgeGraph.from_triples(facts)), "cpu")
    return build_app([graph], **options)


@pytest.fixture(scope="module")
def port():
    with in_thread(tiny()) as port:
        yield port


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=20)


def received(connection: socket.socket) -> bytes:
    """Returns what comes until the server closes the connection."""
    found = b""
    with suppress(ConnectionError):
        while got := connection.recv(1 << 16):
            found += got
    return found


def sent(port: int, data: bytes) -> bytes:
    """Sends a request; returns what comes until the server closes the connection."""
    with connect(port) as own:
        with suppress(ConnectionError):
            own.sendall(data)
        return received(own)


def is_up(port: int) -> bool:
    data = b"GET /api/v1/health HTTP/1.1\r\n" + HEAD + b"\r\n"
    return b'{"status":"ok"}' in sent(port, data)


def post(port: int, body: bytes, head: bytes = SCORE) -> tuple[int, dict]:
    """Posts a body; returns status and JSON."""
    length = b"Content-Length: %d\r\n\r\n" % len(body)
    answer = sent(port, head + length + body)
    return int(answer.split()[1]), json.loads(answer.partition(b"\r\n\r\n")[2])


def check_sentence(status: int, found: dict) -> None:
    assert 400 <= status < 500, found
    assert len(found["detail"].split()) > 2
    assert "Traceback" not in found["detail"]


# slow clients, many clients


@pytest.mark.slow
def test_slow_clients_are_closed_and_keep_nobody_waiting(tally):
    n, arrival = 500 if TORTURE else 20, 2.0
    starts = {
        "head": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ",
        "body": SCORE + b"Content-Length: 100\r\n\r\n",
        "nothing": b"",
    }
    with in_thread(tiny(limits=Limits(arrival=arrival))) as port, ExitStack() as stack:
        slow = {kind: [stack.enter_context(connect(port)) for _ in range(n)] for kind in starts}
        for kind, start in starts.items():
            for own in slow[kind]:
                own.sendall(start)
        for _ in range(6):  # a byte now and then, for longer than a request may take
            time.sleep(arrival / 4)
            assert is_up(port)
            for own in slow["head"] + slow["body"]:
                with suppress(ConnectionError):
                    own.sendall(b"x")
        failures = []
        for kind, connections in slow.items():
            for own in connections:
                answer = received(own)
                if not (answer == b"" if kind == "nothing" else b"longer than 2 seconds" in answer):
                    failures.append(f"{kind}: {answer!r}")
    tally("attack: slow clients", 3 * n, failures)


@pytest.mark.slow
def test_clients_that_dont_read_are_closed(tally):
    names = [f"{i} " + "x" * 1500 for i in range(400)]
    app = tiny([(name, "r", "hub") for name in names], limits=Limits(arrival=1.0))
    ask = b"GET /api/v1/graphs/tiny/entity?name=hub&limit=400 HTTP/1.1\r\n" + HEAD + b"\r\n"
    with in_thread(app) as port, ExitStack() as stack:
        deaf = [stack.enter_context(connect(port)) for _ in range(20 if TORTURE else 4)]
        for own in deaf:
            own.sendall(ask * 20)  # more than fits into buffers between the two
        time.sleep(3)
        assert is_up(port)
        answered = [received(own).count(b"HTTP/1.1 200") for own in deaf]
    tally(
        "attack: clients that don't read", len(deaf), [f"{n} answers" for n in answered if n > 19]
    )


@pytest.mark.slow
def test_open_connections_keep_nobody_waiting(tally):
    n = 10_000 if TORTURE else 500
    n = min(n, open_files(n + 200) - 200)
    with running("--data", EUROPE) as (url, process), ExitStack() as stack:
        port, before = int(url.rsplit(":", 1)[1]), memory(process.pid)
        opened = [stack.enter_context(connect(port)) for _ in range(n)]
        for own in opened[::2]:
            own.sendall(b"GET / HTTP/1.1\r\nHost: ")
        assert is_up(port)
        assert Client(url).tails("Italy", "borders", k=1)
        assert memory(process.pid) - before < 100 + n // 50  # MiB
    tally("attack: open connections", n, [])


def test_work_for_a_client_that_has_left_ends(monkeypatch):
    started, ended = threading.Event(), threading.Event()

    def endless(graph, p, of, k, least, progress):
        started.set()
        try:
            while True:
                progress(0, 1)
                time.sleep(0.01)
        finally:
            ended.set()

    monkeypatch.setattr("pathe.serve.views.missing", endless)
    ask = b"GET /api/v1/graphs/tiny/%s HTTP/1.1\r\n" + HEAD + b"\r\n"
    with in_thread(tiny()) as port:
        with connect(port) as own:
            own.sendall(ask % b"missing")
            assert started.wait(10)
        assert ended.wait(10)
        assert b" 200 " in sent(port, ask % b"rules?k=1")  # in the same lane


def test_of_too_many_connections_the_idle_ones_are_closed():
    with in_thread(tiny(limits=Limits(connections=20))) as port, ExitStack() as stack:
        opened = [stack.enter_context(connect(port)) for _ in range(100)]
        assert is_up(port)
        assert all(received(own) == b"" for own in opened[:80])


# bodies


def test_any_depth_of_nesting_gets_a_sentence(port, tally):
    depths = [1, 10, 100, 500, *range(800, 1001, 5), 2000, 10_000, 100_000, 500_000]
    tried = 0
    for depth in depths if TORTURE else [*depths[::4], 100_000]:
        for start, end in (("[", "]"), ('{"triples":', "}")):
            if len(start) * depth < 1 << 20:
                whole = start * depth + "1" + end * depth
                for text in (whole, start * depth, '{"triples": ' + whole + "}"):
                    if len(text) < 1 << 20:
                        check_sentence(*post(port, text.encode()))
                        tried += 1
    assert is_up(port)
    tally("attack: nested bodies", tried, [])


ODD = [
    b"\xff\xfe", b"\x00", b'{"triples": "\xe9"}', b"\xef\xbb\xbf{}", b'{"triples": NaN}',
    '{"triples": "é"}'.encode("utf-16"), '{"triples": []}'.encode("utf-32"),
    b'{"triples": [{"head": "\\ud800", "relation": "r", "tail": "n1"}]}',
    b'{"triples": ' + b"9" * 5000 + b"}", b'{"triples": 1e999}', b"-" * 1000,
    b'{"triples": [' + b"{}," * 100_000 + b"{}]}", b'{"' + b"x" * 500_000 + b'": 1}',
    b'{"triples": [{"head": "' + b"x" * 500_000 + b'", "relation": "r", "tail": "n1"}]}',
]  # fmt: skip


@pytest.mark.parametrize("body", ODD, ids=range(len(ODD)))
def test_odd_bodies_get_a_sentence(port, body, tally):
    check_sentence(*post(port, body))
    tally("attack: odd bodies", 1, [])


def test_sizes_are_checked_however_they_are_told(port):
    chunk = b"10000\r\n" + b" " * (1 << 16) + b"\r\n"
    chunked = SCORE + b"Transfer-Encoding: chunked\r\n"
    for head in (chunked, chunked + b"Content-Length: 5\r\n"):
        assert b" 413 " in sent(port, head + b"\r\n" + chunk * 40 + b"0\r\n\r\n")
    assert b" 413 " in sent(port, SCORE + b"Content-Length: 99999999\r\n\r\n")
    for length in (b"-1", b"1e3", b"9" * 5000, b"\xd9\xa3", b"5, 6", b""):
        assert b" 400 " in sent(port, SCORE + b"Content-Length: " + length + b"\r\n\r\n{}")
    assert is_up(port)


def test_many_large_bodies_are_refused_before_they_fill_the_memory():
    with in_thread(tiny(limits=Limits(bodies=3000))) as port, ExitStack() as stack:
        for _ in range(3):
            own = stack.enter_context(connect(port))
            own.sendall(SCORE + b"Content-Length: 1000\r\n\r\n{")
        deadline = time.monotonic() + 20
        while (found := post(port, b"{}"))[0] != 429:
            assert time.monotonic() < deadline
        assert "Too many large requests" in found[1]["detail"]
        assert is_up(port)
        stack.close()
        while post(port, b"{}")[0] == 429:
            assert time.monotonic() < deadline


# heads and paths

INJECTED = "x\r\nInjected: yes\r\n\r\n<script>"


def test_no_header_comes_from_a_request(port):
    paths = [
        "/api/v1/graphs/tiny/entity?name=%s", "/api/v1/graphs/%s", "/api/v1/graphs/%s/rules",
        "/%s", "/static/%s", "/api/v1/graphs/tiny/predict?head=n1&relation=r&format=csv&overlay=%s",
        "/api/v1/graphs/tiny/entities?q=%s", "/api/v1/graphs/tiny/overlays/%s",
    ]  # fmt: skip
    coded = "".join(f"%{byte:02x}" for byte in INJECTED.encode())
    for path in paths:
        answer = sent(port, f"GET {path % coded} HTTP/1.1\r\n".encode() + HEAD + b"\r\n")
        head = answer.partition(b"\r\n\r\n")[0].lower()
        assert head.startswith(b"http/1.1 ")
        assert b"injected" not in head
        assert b"nosniff" in head
    for name in (b"Host", b"Authorization", b"Origin", b"X-Forwarded-Host"):
        data = b"GET /api/v1/health HTTP/1.1\r\n" + name + b": a\rInjected: yes\r\n" + HEAD
        assert b"injected" not in sent(port, data + b"\r\n").partition(b"\r\n\r\n")[0].lower()


UP = ["..", "%2e%2e", "..%2f", "%2e%2e%2f", "..%5c", "..\\", "%252e%252e", "....//", "%c0%ae%c0%ae",
      "%00", ".%00.", "%uff0e", "．．", "~"]  # fmt: skip


def test_no_path_leaves_the_folder_of_the_page(port, tally):
    tried, failures = 0, []
    ends = ["app.py", "etc/passwd", "proc/self/environ", ""]
    for up in UP:
        for n in range(1, 9) if TORTURE else (1, 7):
            for end in ends:
                for start in ("/static/", "/static//", "//", "/api/v1/graphs/", "/"):
                    path = start + f"{up}/" * n + end
                    answer = sent(port, f"GET {path} HTTP/1.1\r\n".encode() + HEAD + b"\r\n")
                    tried += 1
                    leaks = any(own in answer for own in (b"root:", b"def build_app", b"PATH="))
                    if leaks or not re.match(rb"HTTP/1.1 (4\d\d|307) ", answer):
                        failures.append(f"{path}: {answer[:200]!r}")
    tally("attack: paths", tried, failures)


def test_any_bytes(port, capfd, tally):
    draw, valid = random.Random(SEED), SCORE + b"Content-Length: 2\r\n\r\n{}"
    n, failures = 10_000 if TORTURE else 300, []
    for number in range(n):
        data = bytearray(valid if number % 4 else draw.randbytes(draw.randrange(300)))
        for _ in range(draw.randrange(1, 6)):
            at = draw.randrange(len(data) + 1)
            new = draw.choice([b"\r\n", b"\0", b" ", b":", draw.randbytes(3), bytes(data[at:])])
            data[at : at + draw.randrange(4)] = new
        with connect(port) as own, suppress(ConnectionError):
            own.sendall(data)
            own.shutdown(socket.SHUT_WR)  # some of these wait for more
            answer = received(own)
        if answer and not re.match(rb"HTTP/1.1 ([234]\d\d|50[1-9]) ", answer):
            failures.append(f"{data!r}: {answer!r}")
    assert is_up(port)
    said = capfd.readouterr()
    assert "Traceback" not in said.out + said.err
    tally("attack: any bytes", n, failures)


# tokens


def test_no_guess_is_let_in(tally):
    n = 20_000 if TORTURE else 500
    draw, letters = random.Random(SEED), [chr(i) for i in range(32, 127)]
    with in_thread(tiny(token=TOKEN)) as port, connect(port) as own:

        def status(given: str) -> int:
            head = f"GET /api/v1/graphs HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {given}"
            own.sendall(head.encode() + b"\r\n\r\n")
            answer = b""
            while b"\r\n\r\n" not in answer:
                answer += own.recv(1 << 16)
            length = int(re.findall(rb"content-length: (\d+)", answer)[0])
            while len(answer.partition(b"\r\n\r\n")[2]) < length:
                answer += own.recv(1 << 16)
            return int(answer.split()[1])

        near = [TOKEN[:i] for i in range(len(TOKEN))] + [TOKEN + c for c in letters]
        near += [TOKEN.upper(), f'"{TOKEN}"', f"{TOKEN},{TOKEN}", TOKEN[::-1], f"{TOKEN} {TOKEN}"]
        near += [TOKEN[:i] + draw.choice(letters) + TOKEN[i + 1 :] for i in range(len(TOKEN))]
        near += ["".join(draw.choices(letters, k=draw.randrange(30))) for _ in range(n)]
        guesses = [f"Bearer {guess}" for guess in near if guess.strip() != TOKEN]
        guesses += [TOKEN, f"Basic {TOKEN}", f"bearer{TOKEN}", f"Token {TOKEN}"]
        failures = [given for given in guesses if status(given) != 401]
        assert status(f"Bearer {TOKEN}") == 200
    tally("attack: tokens", len(guesses), failures)


# writers


def write(url: str, name: str, acknowledged: list[str]) -> None:
    """Adds facts until the server is gone."""
    client = Client(url, token="t", timeout=10)
    with suppress(PatheError, OSError):
        for i in range(10_000):
            client.change(add=[(f"{name}-{i}", "borders", "France")])
            acknowledged.append(f"{name}-{i}")


@pytest.mark.slow
def test_writers_at_once_lose_nothing_that_was_acknowledged_when_killed(tmp_path, tally):
    journal, acknowledged = tmp_path / "journal", list[str]()
    options, kills = ("--data", EUROPE, "--writable", journal), 20 if TORTURE else 2
    for number in range(kills):
        with running(*options, PATHE_TOKEN="t") as (url, process):
            writers = [
                threading.Thread(target=write, args=(url, f"new {number}-{i}", acknowledged))
                for i in range(8)
            ]
            for writer in writers:
                writer.start()
            time.sleep(1 + 0.1 * number)
            process.kill()
            for writer in writers:
                writer.join(20)
    assert len(acknowledged) > 10
    with running(*options, PATHE_TOKEN="t") as (url, _):
        there = {head for head, _, _ in Client(url, token="t").facts("France")}
    lost = [name for name in acknowledged if name not in there]
    tally("kill: the server's writers", kills, lost, facts=len(acknowledged))
