"""`pathe prepare` on graphs of 20M and 100M triples: time, memory and disk, `make bench-scale`.

Without arguments, all cases run; `python benchmarks/prepare.py 20M-parquet` runs one and keeps the
figures of the others. The largest case needs about 60 GB of disk in PATHE_SCRATCH (default: the
system's folder for temporary files).
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from measure import HERE, console, row, write_results

from pathe.core.hardware import commit

SEED = 0
MIB, GIB = 1 << 20, 1 << 30
PART = 2_000_000  # triples per file
LIMIT = 2 * GIB  # of a process's private memory (RLIMIT_DATA); libraries take about half of it
OPEN_BAR = 1.0  # seconds
COMMAND = "make bench-scale"


class Case(NamedTuple):
    """A synthetic graph with hubs, as files of one format."""

    n_triples: int
    n_entities: int
    n_relations: int
    suffix: str


CASES = {
    "20M-parquet": Case(20_000_000, 5_000_000, 500, ".parquet"),
    "20M-ntriples": Case(20_000_000, 5_000_000, 500, ".nt"),
    "100M-parquet": Case(100_000_000, 20_000_000, 1000, ".parquet"),
    "100M-ntriples": Case(100_000_000, 20_000_000, 1000, ".nt"),
}


def write_parts(folder: Path, case: Case) -> None:
    """Writes the part files of a graph that aren't there yet; names are IRIs."""
    folder.mkdir(parents=True, exist_ok=True)
    n_parts = -(-case.n_triples // PART)
    for i in range(n_parts):
        path = folder / f"part-{i:05}{case.suffix}"
        if path.exists():
            continue
        random = np.random.default_rng([SEED, i])
        n = min(PART, case.n_triples - i * PART)
        # a hub as head isn't one as tail: tails are spread by a multiplication
        heads = (case.n_entities * random.random(n) ** 2).astype(np.int64)
        tails = (case.n_entities * random.random(n) ** 3).astype(np.int64) * 7_919
        relations = (case.n_relations * random.random(n) ** 3).astype(np.int64)
        columns = [_iris("entity/Q", heads), _iris("property/P", relations)]
        columns.append(_iris("entity/Q", tails % case.n_entities))
        aside = folder.with_name("part")
        if case.suffix == ".parquet":
            table = pa.table(columns, names=["subject", "predicate", "object"])
            pq.write_table(table, aside, compression="zstd")
        else:
            marks = [_text(mark) for mark in ("<", "> <", "> .\n", "")]
            middle = pc.binary_join_element_wise(*columns, marks[1])
            lines = pc.binary_join_element_wise(marks[0], middle, marks[2], marks[3])
            with aside.open("wb") as file:
                for k in range(0, n, 100_000):
                    file.write("".join(lines[k : k + 100_000].to_pylist()).encode())
        aside.rename(path)


def _iris(start: str, ids: np.ndarray) -> Any:
    numbers = pa.array(ids).cast(pa.large_string())
    start = f"http://example.org/{start}"
    return pc.binary_join_element_wise(_text(start), numbers, _text(""))


def _text(mark: str) -> Any:
    return pa.scalar(mark, pa.large_string())


def prepare(data: Path, out: Path) -> dict[str, Any]:
    """Runs `pathe prepare` under a memory limit; returns seconds and peaks of memory.

    Seconds of the processor count too: on a machine with other work, they say more.
    """

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))

    command = [sys.executable, "-m", "pathe", "prepare", str(data), str(out)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start, peaks = time.perf_counter(), {"RssAnon": 0, "VmHWM": 0}
    with subprocess.Popen(command, preexec_fn=limit) as process:
        while process.poll() is None:
            for name, peak in peaks.items():
                peaks[name] = max(peak, status(process.pid, name))
            time.sleep(0.5)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed with code {process.returncode}")
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    found = {"seconds": seconds, "cpu_seconds": cpu}
    return found | {"private": peaks["RssAnon"], "resident": peaks["VmHWM"]}


def status(pid: int | str, name: str) -> int:
    """Returns a figure of a process in bytes; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(name)), 0)


OPEN = """
import json, sys, time
from pathlib import Path
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.graph.prepared import PreparedGraph

def used(name):
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))

def private():
    return used("Private_Dirty") + used("Private_Clean")

before, dirty, start = private(), used("Private_Dirty"), time.perf_counter()
kg = KnowledgeGraph.read(sys.argv[1])
prepared = PreparedGraph(kg)
parts = [prepared.graph, prepared.edges, prepared.arrivals, prepared.known().lists("tail")]
seconds = time.perf_counter() - start
sums = [int(t.view(-1)[::64].sum()) for part in parts for t in part.tensors()]
print(json.dumps({"seconds": seconds, "private": private() - before, "shared": used("Shared"),
                  "dirty": used("Private_Dirty") - dirty}), flush=True)
sys.stdin.read()
"""


def open_twice(folder: Path) -> list[dict[str, Any]]:
    """Opens a folder in two processes at once that read a value of nearly every page.

    Pages of files that only one of them has in memory are private, too; dirty ones are its own.
    """
    command = [sys.executable, "-c", OPEN, str(folder)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    found, processes = [], []
    for _ in range(2):
        processes.append(subprocess.Popen(command, **pipes))  # type: ignore[call-overload]
        found.append(json.loads(processes[-1].stdout.readline()))
    for process in processes:
        process.communicate("")
    return found


def measure(name: str, case: Case) -> list[dict[str, Any]]:
    """Returns the rows of one case."""
    scratch = Path(os.environ.get("PATHE_SCRATCH", tempfile.gettempdir())) / f"pathe-{name}"
    console.print(f"{name}: writing part files")
    write_parts(scratch / "data", case)
    shutil.rmtree(scratch / "prepared", ignore_errors=True)
    built = prepare(scratch / "data", scratch / "prepared")
    about = json.loads((scratch / "prepared" / "prepared.json").read_text())
    opened = open_twice(scratch / "prepared")
    read = sum(path.stat().st_size for path in (scratch / "data").iterdir())
    shutil.rmtree(scratch)
    disk = sum(file["bytes"] for file in about["files"].values())
    second = opened[1]
    common = case._asdict() | {"case": name, "commit": commit()}
    common["load"] = os.getloadavg()[2]  # over 15 minutes: above 1 if others used the machine
    common["fingerprint"] = about["fingerprint"]
    return [
        row(
            f"prepare {name}",
            f"{built['seconds']:.0f} s, {built['private'] / GIB:.2f} GiB",
            f"{read / 1e9:.1f} GB of files, {disk / 1e9:.1f} GB prepared",
            f"{built['cpu_seconds']:.0f} s of one core",
            f"limit {LIMIT / GIB:.0f} GiB",
            True,  # the process would have failed
            **built, **common, limit=LIMIT, bytes_read=read, bytes_on_disk=disk,
            triples=about["splits"]["train"], entities=about["n_entities"],
        ),
        row(
            f"open {name}",
            f"{second['seconds']:.2f} s",
            f"second process: {second['dirty'] / MIB:.0f} MiB own, "
            f"{second['shared'] / GIB:.2f} GiB shared",
            "",
            f"{OPEN_BAR:.0f} s",
            max(one["seconds"] for one in opened) < OPEN_BAR,
            first=opened[0], second=second, **common,
        ),
    ]  # fmt: skip


def main() -> None:
    wanted = sys.argv[1:] or list(CASES)
    path = HERE / "prepare.json"
    old = json.loads(path.read_text())["results"] if path.exists() else []
    rows = {(one["case"], one["measure"]): one for one in old}
    for name in wanted:
        new = measure(name, CASES[name])
        rows |= {(one["case"], one["measure"]): one for one in new}
    order = list(CASES)
    ordered = sorted(rows.values(), key=lambda one: order.index(one["case"]))
    write_results("prepare", ordered, SEED, COMMAND)


if __name__ == "__main__":
    main()
