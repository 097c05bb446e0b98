"""Measures jobs on Ray with one and two workers, and calculates what larger clusters would need.

The workers run on this machine. Efficiency is the time of one worker divided by twice the time of
two, the shortest of some runs each, without starting Ray and without opening the graph.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from measure import console, row, synthetic_text, synthetic_triples, write_results

from pathe.cluster.graphs import source_of
from pathe.cluster.job import Compute, Job, run_job, shards_of
from pathe.cluster.nodes import connected, on_cluster, read_cluster
from pathe.cluster.plan import Figures, Graph, Machines, plan
from pathe.cluster.work import embed_job, rank_job
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.graph.prepared import prepare
from pathe.model.artifact import load_model
from pathe.model.builder import build_scorer
from pathe.predict.predictor import Predictor

SEED = 0
COMMAND = "make bench-scale"
ENTITIES, TRIPLES, RELATIONS = 20_000, 100_000, 50
QUERIES, PER_SHARD = 96, 4
EMPTY_SHARDS = 500
RUNS = 2
BAR = 0.8
QUERIES_PLANNED = 1_000_000
SIZES = {
    "20M triples": Graph(5_000_000, 20_000_000),
    "100M triples": Graph(20_000_000, 100_000_000),
    "Wikidata, 1.5 G triples": Graph(110_000_000, 1_500_000_000),
}


@dataclass(frozen=True)
class Nothing:
    """Work that takes no time: what is left is the driver's."""

    def open(self) -> Compute:
        return lambda first, stop: pa.table({"row": list(range(first, stop))})


def graph_folder(place: Path) -> Path:
    """Writes and prepares a synthetic graph with hubs."""
    synthetic_text(place / "graph.tsv", synthetic_triples(ENTITIES, TRIPLES, RELATIONS, SEED))
    command = [sys.executable, "-m", "pathe", "prepare", str(place / "graph.tsv")]
    subprocess.run([*command, str(place / "graph")], check=True, capture_output=True)
    return place / "graph"


def jobs_of(folder: Path) -> dict[str, Job]:
    """Returns the jobs to time: exact ranks, vectors, and nothing."""
    kg, artifact = KnowledgeGraph.read(folder, every_relation=True), load_model()
    prepared = prepare(kg)
    scorer = build_scorer(artifact.model, artifact.config, prepared)
    triples_M3 = prepared.train_M3[:: len(prepared.train_M3) // QUERIES][:QUERIES]
    source = source_of(prepared, artifact=artifact)
    ranks = rank_job(source, scorer, triples_M3, ("tail",))
    vectors = embed_job(source_of(Predictor(artifact, kg)))
    return {
        "ranks": replace(ranks, shards=shards_of(QUERIES, PER_SHARD)),
        "vectors": replace(vectors, shards=shards_of(kg.n_entities, 500)),
        "nothing": Job("nothing", Nothing(), shards_of(EMPTY_SHARDS, 1), {}),
    }


def measure(folder: Path, workers: int) -> dict[str, Any]:
    """Runs the jobs on a cluster of this machine; returns the shortest times."""
    jobs, where = jobs_of(folder), read_cluster(f"local:{workers}")
    lines = Path("/proc/self/status").read_text().splitlines()
    private = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))
    begin = time.perf_counter()
    with connected(where):
        found: dict[str, Any] = {"start": time.perf_counter() - begin, "private": private}
        for name, job in jobs.items():
            times, own = [], []
            for _ in range(RUNS + 1):  # the first opens the graph
                with tempfile.TemporaryDirectory() as place:
                    begin = time.perf_counter()
                    run_job(job, Path(place) / "parts", on_cluster(where))
                    times.append(time.perf_counter() - begin)
                    manifest = json.loads((Path(place) / "parts" / "manifest.json").read_text())
                own.append(sum(part["seconds"] for part in manifest["parts"]))
            found[name] = min(times[1:])
            found[f"{name}_in_workers"] = min(own[1:])
    return found


def in_own_process(folder: Path, workers: int) -> dict[str, Any]:
    """Measures in a new process, as Ray and torch keep state."""
    command = [sys.executable, __file__, str(folder), str(workers)]
    env = os.environ | {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    made = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=env)
    found: dict[str, Any] = json.loads(made.stdout.splitlines()[-1])
    return found


def planned(figures: Figures) -> list[dict[str, Any]]:
    """Returns the calculated table: three graphs on 10 and 100 machines."""
    return [
        {"graph": name, **asdict(size)} | plan(figures, size, Machines(count), QUERIES_PLANNED)
        for name, size in SIZES.items()
        for count in (10, 100)
    ]


def main() -> None:
    if len(sys.argv) == 3:
        print(json.dumps(measure(Path(sys.argv[1]), int(sys.argv[2]))))
        return
    with tempfile.TemporaryDirectory() as place:
        folder = graph_folder(Path(place))
        about = json.loads((folder / "prepared.json").read_text())
        found = {workers: in_own_process(folder, workers) for workers in (1, 2)}
    one, two = found[1], found[2]
    n_triples = about["splits"]["train"]
    bytes_on_disk = sum(file["bytes"] for file in about["files"].values())
    efficiency = one["ranks"] / two["ranks"] / 2
    figures = Figures(
        query_edge_seconds=one["ranks_in_workers"] / QUERIES / (2 * n_triples),
        embed_edge_seconds=2 * one["vectors_in_workers"] / (2 * n_triples),
        shard_seconds=one["nothing"] / EMPTY_SHARDS,
        efficiency=min(efficiency, 1.0),
        bytes_per_triple=bytes_on_disk / n_triples,
        worker_bytes=one["private"],
    )
    load = os.getloadavg()[1]
    common = {"load": load, "fingerprint": about["fingerprint"], "graph": {
        "entities": ENTITIES, "triples": n_triples, "relations": RELATIONS}}  # fmt: skip
    idle = load < (os.cpu_count() or 1) + 1.0  # others used no cores
    rows = [
        row(
            "exact ranks, 2 workers", f"{efficiency:.2f} efficiency",
            f"{one['ranks']:.1f} s with 1, {two['ranks']:.1f} s with 2", f"load {load:.1f}",
            f"{BAR} where cores allow", efficiency >= BAR or not idle,
            one=one, two=two, cores_allowed=idle, **common,
        ),
        row(
            "driver per shard", f"{1000 * figures.shard_seconds:.1f} ms",
            f"{EMPTY_SHARDS} shards without work", "", "", True, figures=asdict(figures), **common,
        ),
        row(
            "starting Ray", f"{one['start']:.1f} s", "1 worker", "", "", True, **common,
        ),
        row(
            "plan", "calculated", "10 and 100 machines", "", "", True,
            calculated=True, queries=QUERIES_PLANNED, machine=asdict(Machines(1)),
            plans=planned(figures), **common,
        ),
    ]  # fmt: skip
    console.print(f"load {load:.1f}")
    write_results("cluster", rows, SEED, COMMAND)


if __name__ == "__main__":
    main()
