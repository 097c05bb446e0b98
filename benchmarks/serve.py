"""`pathe serve` under load: `python benchmarks/serve.py [start|page|load|kills|table]`

- start: from the command on examples/europe.csv until the page is served, three times.
- page: UMLS in Debian's Chromium, from the address until the page can be used, three times.
- load: CoDEx-S with the pre-trained model, 32 clients on this machine that each wait for an answer
  before they ask again. First every test query once, so that no answer is cached; then queries
  drawn at random from these. The baseline is a loop over `Predictor`, one query at a time.
- kills: facts are added with --writable while the server is killed, a hundred times. How many facts
  that were acknowledged are lost?
- table: measures nothing.

Writes serve.json, and from it the table of docs/decisions/0014-serving.md; what isn't measured
again stays as it is. `load_average` is that of the last minute before each task, in which the
machine should have had nothing else to do; a task that has just ended counts, too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from measure import DATA, HERE, console, provenance

from pathe.core.errors import PatheError
from pathe.serve.client import Client

OUT = HERE / "serve.json"
DECISION = HERE.parent / "docs" / "decisions" / "0014-serving.md"
EUROPE = HERE.parent / "examples" / "europe.csv"
CLIENTS, SEED = 32, 7


@contextmanager
def serving(*options: str | Path) -> Iterator[tuple[str, int, subprocess.Popen[str]]]:
    """Starts a server on a free port of this machine; yields its host and port."""
    command = [sys.executable, "-m", "pathe", "serve", "--port", "0", *map(str, options)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if found := re.search(r"serving on http://([\d.]+):(\d+)", line):
                break
        threading.Thread(target=process.stderr.read, daemon=True).start()
        try:
            yield found[1], int(found[2]), process  # type: ignore[index]
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(20)


def memory(pid: int) -> int:
    """Returns the resident memory of a process in MiB."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+)", text)[0]) >> 10


def processor_seconds(pid: int) -> float:
    """Returns the processor time that a process has taken."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")


async def ask(host: str, port: int, paths: Iterator[str], until: float) -> list[tuple[float, int]]:
    """Asks one query after the other on one connection; returns seconds and status of each."""
    reader, writer = await asyncio.open_connection(host, port)
    found = []
    for path in paths:
        if time.perf_counter() > until:
            break
        start = time.perf_counter()
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(re.findall(r"content-length: (\d+)", head)[0])
        await reader.readexactly(length)
        found.append((time.perf_counter() - start, int(head.split()[1])))
    writer.close()
    return found


async def clients(host: str, port: int, paths: Iterator[str], seconds: float) -> dict[str, Any]:
    start = time.perf_counter()
    each = await asyncio.gather(*(ask(host, port, paths, start + seconds) for _ in range(CLIENTS)))
    whole = time.perf_counter() - start
    times = sorted(t for one in each for t, _ in one)
    return {
        "queries": len(times),
        "seconds": whole,
        "queries_per_second": len(times) / whole,
        "median_ms": 1000 * statistics.median(times),
        "p95_ms": 1000 * times[int(0.95 * len(times))],
        "p99_ms": 1000 * times[int(0.99 * len(times))],
        "errors": sum(status != 200 for one in each for _, status in one),
    }


def load(seconds: float) -> dict[str, Any]:
    import pathe

    p = pathe.Predictor(DATA / "codex-s", device="cpu")
    kg = p.prepared.kg
    queries = {(kg.entities[h], kg.relations[r], None) for h, r, _ in kg.test.tolist()}
    more = {(None, kg.relations[r], kg.entities[t]) for _, r, t in kg.test.tolist()}
    asked = [*sorted(queries), *sorted(more, key=str)]
    draw = random.Random(SEED)
    draw.shuffle(asked)
    for query in asked[:5]:
        list(p.answer([query]))
    start = time.perf_counter()
    for query in asked[5:205]:
        list(p.answer([query]))
    one_by_one = 200 / (time.perf_counter() - start)
    paths = [path(query) for query in asked]
    with serving("--data", DATA / "codex-s", "--device", "cpu") as (host, port, process):
        asyncio.run(clients(host, port, iter(paths[:64]), 60))
        endless = (draw.choice(paths) for _ in iter(int, 1))
        found, sizes = [], []
        for asked_for, most in ((iter(paths[64:]), 600), (endless, seconds)):
            sizes.append(memory(process.pid))
            taken = processor_seconds(process.pid)
            found.append(asyncio.run(clients(host, port, asked_for, most)))
            taken = processor_seconds(process.pid) - taken
            found[-1]["processor_ms_per_query"] = 1000 * taken / found[-1]["queries"]
        before, after = sizes[1], memory(process.pid)
    return {
        "clients": CLIENTS,
        "fingerprint": kg.fingerprint(),
        "distinct_queries": len(asked),
        "one_by_one_queries_per_second": one_by_one,
        "each_once": found[0],
        "drawn_at_random": found[1],
        "memory_mib": {"before": before, "after": after},
    }


def path(query: tuple[str | None, str | None, str | None]) -> str:
    head, relation, tail = query
    given = {"head": head, "relation": relation, "tail": tail}
    text = urllib.parse.urlencode({key: value for key, value in given.items() if value})
    return f"/api/v1/graphs/codex-s/predict?{text}"


def start(seconds: float) -> dict[str, Any]:
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        with serving("--data", EUROPE, "--device", "cpu") as (host, port, _):
            asyncio.run(ask(host, port, iter(["/"]), begin + 60))
            times.append(time.perf_counter() - begin)
    return {"seconds_to_page": times}


def visit(browser: Any, url: str) -> tuple[float, int]:
    """Opens a page with nothing cached; returns seconds until it can be used, and its bytes."""
    context, received = browser.new_context(), list[int]()
    tab = context.new_page()
    tab.on("response", lambda response: received.append(len(response.body())))
    begin = time.perf_counter()
    tab.goto(url, wait_until="commit")
    tab.get_by_role("combobox", name="Search entities").click()
    tab.locator("main h1").wait_for()
    found = time.perf_counter() - begin
    tab.wait_for_load_state("networkidle")
    context.close()
    return found, sum(received)


def page(seconds: float) -> dict[str, Any]:
    from playwright.sync_api import sync_playwright

    options = {"executable_path": "/usr/bin/chromium", "args": ["--no-sandbox"]}
    times, sizes = [], []
    with serving("--data", "umls", "--device", "cpu") as (host, port, _), sync_playwright() as own:
        browser = own.chromium.launch(**options)  # type: ignore[arg-type]
        for _ in range(3):
            seconds_to, size = visit(browser, f"http://{host}:{port}/")
            times.append(seconds_to)
            sizes.append(size)
        browser.close()
    return {"graph": "umls", "seconds_to_interactive": times, "bytes_of_first_view": max(sizes)}


def kills(seconds: float, n: int = 100) -> dict[str, Any]:
    os.environ["PATHE_TOKEN"] = "token"
    done, draw = [], random.Random(SEED)
    with tempfile.TemporaryDirectory() as folder:
        options = ("--data", EUROPE, "--device", "cpu", "--writable", Path(folder) / "journal")
        for number in range(n):
            with serving(*options) as (host, port, process):
                client = Client(f"http://{host}:{port}", token="token", timeout=10)
                killer = threading.Timer(draw.uniform(0.02, 0.3), process.kill)
                killer.start()
                try:
                    for i in range(10_000):
                        fact = (f"New {number}-{i}", "borders", "France")
                        client.change(add=[fact])
                        done.append(fact[0])
                except (PatheError, ConnectionError, OSError):
                    pass
                killer.join()
            console.print(f"{number + 1}/{n} kills, {len(done)} facts acknowledged")
        lines = (Path(folder) / "journal").read_bytes().splitlines(keepends=True)
        there = set()
        for line in lines:
            if line.endswith(b"\n"):
                there |= {fact[0] for fact in json.loads(line)["add"]}
        with serving(*options) as (host, port, _):
            client = Client(f"http://{host}:{port}", token="token")
            last = client.search(done[-1], 1)[0]["name"] == done[-1]
    return {
        "kills": n, "acknowledged": len(done), "lost": len(set(done) - there),
        "last_one_is_served": last,
    }  # fmt: skip


TASKS = {"start": start, "page": page, "load": load, "kills": kills}


def table(results: dict[str, Any]) -> str:
    """Returns the figures as a table in Markdown, with the bar that each should reach."""
    rows = [("what", "bar", "measured"), ("---",) * 3]
    if about := results.get("start"):
        times = about["seconds_to_page"]
        rows.append(("from the command to the page, europe.csv", "under 6 s", spread(times)))
    if about := results.get("page"):
        size = f"{about['bytes_of_first_view'] / 1e3:.0f} KB"
        rows.append(
            ("page of UMLS can be used", "under 1 s", spread(about["seconds_to_interactive"]))
        )
        rows.append(("bytes of the first view", "under 200 KB", size))
    if about := results.get("load"):
        rows += load_rows(about)
    if about := results.get("kills"):
        said = f"{about['lost']:,} of {about['acknowledged']:,}"
        rows.append((f"acknowledged facts lost in {about['kills']} kills", "0", said))
    tasks = [task for task in TASKS if task in results]
    loads = ", ".join(f"{results[task]['load_average']:.1f}" for task in tasks)
    rows.append((f"load average before: {', '.join(tasks)}", "", loads))
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def load_rows(about: dict[str, Any]) -> list[tuple[str, str, str]]:
    alone, clients = about["one_by_one_queries_per_second"], about["clients"]
    rows = []
    for key, what in (
        ("each_once", "each query once, nothing kept"),
        ("drawn_at_random", "queries drawn at random, most of them kept"),
    ):
        found = about[key]
        rate, what = (
            found["queries_per_second"],
            f"{clients} clients for {found['seconds']:.0f} s, {what}",
        )
        rows += [
            (what, "at least 100 per second", f"{rate:,.0f} per second"),
            ("its 95th percentile", "under 500 ms", f"{found['p95_ms']:.0f} ms"),
            ("its errors", "0", f"{found['errors']:,} of {found['queries']:,}"),
            (f"compared to a loop ({alone:.0f} per second)", "at least 3x", f"{rate / alone:.1f}x"),
        ]
    memory = about["memory_mib"]
    said = f"{memory['before']} and {memory['after']} MiB"
    return [*rows, ("memory before and after the last", "equal", said)]


def spread(times: list[float]) -> str:
    return f"{min(times):.1f} to {max(times):.1f} s"


def write_table(results: dict[str, Any]) -> None:
    text = DECISION.read_text()
    old = re.search(r"\| what \|.*?(?=\n\n|\Z)", text, re.DOTALL)
    assert old
    DECISION.write_text(text.replace(old[0].strip(), table(results).strip()))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tasks", nargs="*", choices=[*TASKS, "table", []], default=list(TASKS))
    parser.add_argument("--seconds", type=float, default=300, help="of queries drawn at random")
    args = parser.parse_args()
    results = json.loads(OUT.read_text()) if OUT.exists() else {}
    for task in (task for task in args.tasks if task in TASKS):
        busy = os.getloadavg()[0]
        figures = TASKS[task](args.seconds) | {"load_average": busy}
        about = provenance(SEED) | {"command": f"python benchmarks/serve.py {task}"}
        results[task] = figures | about
        OUT.write_text(json.dumps(results, indent=1) + "\n")
        console.print(task, figures)
    write_table(results)


if __name__ == "__main__":
    main()
