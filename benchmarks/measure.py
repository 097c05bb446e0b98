"""Shared by all benchmarks: times, peak memory, provenance, a table and a JSON file."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from pyarrow import csv as pacsv
from rich.console import Console
from rich.table import Table
from torch import Tensor

from pathe.core.hardware import commit

HERE = Path(__file__).parent
DATA = Path(os.environ.get("PATHE_DATA", HERE.parents[1] / "shared" / "data"))
console = Console(stderr=True, highlight=False)


def best_time(run: Callable[[], Any], repeats: int = 3) -> float:
    """Returns the shortest of some runs in seconds: the one least disturbed by other work."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def predict_seconds(arguments: list[str], n_answers: int) -> float:
    """Returns the seconds of a whole `pathe predict` process, the best of five."""
    command = [sys.executable, "-m", "pathe", "predict", *arguments, "--json"]

    def run() -> None:
        said = subprocess.run(command, check=True, capture_output=True, text=True)
        assert len(json.loads(said.stdout)) == n_answers

    return best_time(run, 5)


def reset_peak() -> None:
    """Resets the process's peak memory (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")


def peak_bytes() -> int:
    """Returns the peak resident memory since the last reset."""
    return _status("VmHWM")


def resident_bytes() -> int:
    """Returns the resident memory after giving freed memory back to the system."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    return _status("VmRSS")


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no {field} in /proc/self/status")


def in_own_process(script: str, *args: str) -> dict[str, Any]:
    """Runs `python script args` and returns the JSON on its last line: clean memory figures."""
    found = subprocess.run(
        [sys.executable, script, *args], check=True, stdout=subprocess.PIPE, text=True
    )
    result: dict[str, Any] = json.loads(found.stdout.splitlines()[-1])
    return result


def row(
    measure: str, ours: str, peer: str, ratio: str, bar: str, met: bool, **raw: Any
) -> dict[str, Any]:
    """Returns a line of the table, and the numbers behind it."""
    told = {"measure": measure, "ours": ours, "peer": peer, "ratio": ratio, "bar": bar, "met": met}
    return told | raw


def provenance(seed: int, command: str = "make bench") -> dict[str, Any]:
    """Returns where a figure comes from: command, commit, machine, versions."""
    return {
        "command": command,
        "commit": commit(),
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "seed": seed,
        "machine": {
            "cpu": _cpu(),
            "cores": os.cpu_count(),
            "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
            "system": platform.system(),
        },
        "versions": {"python": platform.python_version()} | _versions(),
    }


def _versions() -> dict[str, str]:
    found = {}
    for name in ("torch", "numpy", "pyarrow", "numba", "triton", "lightning", "pykeen", "igraph"):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    names = [
        line.split(":")[1].strip()
        for line in (info.read_text().splitlines() if info.exists() else [])
        if line.startswith("model name")
    ]
    return names[0] if names else platform.processor()


def write_results(
    name: str, rows: list[dict[str, Any]], seed: int, command: str = "make bench"
) -> None:
    """Writes benchmarks/NAME.json, prints a table; exits with code 1 if a bar is missed."""
    path = HERE / f"{name}.json"
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps({**provenance(seed, command), "results": rows}, indent=2) + "\n")
    partial.replace(path)
    table = Table("measure", "ours", "peer or size", "ratio", "bar", "", title=name)
    for row in rows:
        met = "[green]met[/]" if row["met"] else "[red]missed[/]"
        table.add_row(row["measure"], row["ours"], row["peer"], row["ratio"], row["bar"], met)
    console.print(table)
    console.print(f"written to {path.name}")
    if not all(row["met"] for row in rows):
        raise SystemExit(1)


def synthetic_text(path: Path, triples: Tensor) -> None:
    """Writes triples with made-up names as TSV, a block at a time."""
    for block in triples.split(1_000_000):
        names = [
            pc.binary_join_element_wise(prefix, pa.array(column.numpy()).cast(pa.string()), "")
            for prefix, column in zip(
                ("entity/", "relation/", "entity/"), block.unbind(1), strict=True
            )
        ]
        with path.open("ab") as file:
            pacsv.write_csv(
                pa.table(names, names=["h", "r", "t"]),
                file,
                pacsv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none"),
            )


def synthetic_triples(n_entities: int, n_triples: int, n_relations: int, seed: int) -> Tensor:
    """Returns sorted unique int32 triples of a graph with skewed degrees and relations."""
    random = np.random.default_rng(seed)

    def skewed(n: int, power: float) -> Any:
        return (n * random.random(n_triples) ** power).astype(np.int64)

    shuffle = random.permutation(n_entities)  # a hub as head need not be one as tail
    heads, tails = skewed(n_entities, 2.0), shuffle[skewed(n_entities, 3.0)]
    codes = np.unique((heads * n_relations + skewed(n_relations, 3.0)) * n_entities + tails)
    triples = np.empty((len(codes), 3), dtype=np.int32)
    triples[:, 2] = codes % n_entities
    codes //= n_entities
    triples[:, 1], triples[:, 0] = codes % n_relations, codes // n_relations
    return torch.from_numpy(triples)
