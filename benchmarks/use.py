"""Using a model: cold start, queries, new facts, bulk, missing triples: `make bench`."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from measure import (
    DATA,
    console,
    in_own_process,
    peak_bytes,
    predict_seconds,
    reset_peak,
    row,
    write_results,
)

from pathe.core.config import Config
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.model.artifact import Artifact, save_model
from pathe.model.builder import build_model
from pathe.predict.predictor import Predictor

SEED = 0
QUERIES = 10_000
MIB = 1 << 20


def untrained(kg: KnowledgeGraph) -> Artifact:
    """Returns a model of the default settings; its weights don't matter to its speed."""
    config = Config()
    return Artifact(build_model(config, kg.n_relations), config, kg.relations)


def cold_seconds(data: str, kg: KnowledgeGraph, folder: Path) -> float:
    """Returns the seconds of a whole `pathe predict` process, the best of five."""
    head, relation, _ = kg.test[0].tolist()
    asked = ["--head", kg.entities[head], "--relation", kg.relations[relation]]
    return predict_seconds([str(folder), "--data", data, *asked], n_answers=10)


def queries(kg: KnowledgeGraph, n: int) -> list[Any]:
    """Returns queries for the head and the tail of test triples in turn."""
    rows = kg.test[torch.arange(n) % len(kg.test)].tolist()
    return [
        (kg.entities[h], kg.relations[r], None)
        if i % 2
        else (None, kg.relations[r], kg.entities[t])
        for i, (h, r, t) in enumerate(rows)
    ]


def median(times: list[float]) -> float:
    return sorted(times)[len(times) // 2]


def warm_seconds(p: Predictor, kg: KnowledgeGraph) -> float:
    """Returns the seconds of one query to a warm predictor, the median of 200."""
    times = []
    for query in queries(kg, 200):
        begin = time.perf_counter()
        next(p.answer([query]))
        times.append(time.perf_counter() - begin)
    return median(times)


def add_seconds(p: Predictor, kg: KnowledgeGraph) -> float:
    """Returns the seconds of adding an entity with five facts and the first query about it.

    The median of 20.
    """
    times = []
    for i in range(20):
        rows = kg.train[torch.arange(5) * 997 + i * 5003].tolist()
        facts = [(f"new entity {i}", kg.relations[r], kg.entities[t]) for _, r, t in rows]
        begin = time.perf_counter()
        p.add(facts)
        p.tails(f"new entity {i}", facts[0][1])
        times.append(time.perf_counter() - begin)
    return median(times)


def missing_memory(data: str, share: float) -> dict[str, float]:
    """Returns peak memory and time of `missing` over part of the relations, in this process."""
    kg = KnowledgeGraph.read(data)
    p = Predictor(untrained(kg), kg)
    p.warm()
    p.tails(kg.entities[0], kg.relations[0])
    names = list(kg.relations)[: max(int(share * kg.n_relations), 1)]
    list(p.missing(1000, relations=names[:1]))
    reset_peak()
    before, begin = peak_bytes(), time.perf_counter()
    found = list(p.missing(1000, relations=names))
    assert len(found) == 1000
    return {"bytes": peak_bytes() - before, "seconds": time.perf_counter() - begin}


def main() -> None:
    torch.manual_seed(SEED)
    data = str(DATA / "fb15k-237")
    kg = KnowledgeGraph.read(data)
    rows = []
    with tempfile.TemporaryDirectory() as place:
        save_model(Path(place) / "model", untrained(kg))
        cold = cold_seconds(data, kg, Path(place) / "model")
    rows.append(
        row(
            "FB15k-237: a process that loads a model, answers one query and ends",
            f"{cold:.2f} s", "", "", "4 s", cold < 4, seconds=cold,
        )
    )  # fmt: skip
    p = Predictor(untrained(kg), kg)
    p.warm()
    warm = warm_seconds(p, kg)
    rows.append(
        row("a query after that", f"{1000 * warm:.1f} ms", "", "", "20 ms", warm < 0.02,
            seconds=warm)
    )  # fmt: skip
    asked = queries(kg, QUERIES)
    begin = time.perf_counter()
    n = sum(len(found) > 0 for found in p.answer(asked))
    rate = n / (time.perf_counter() - begin)
    rows.append(
        row(f"{QUERIES:,} queries at once, 10 answers each", f"{rate:,.0f}/s", "", "",
            "1,000/s", rate >= 1000, per_second=rate)
    )  # fmt: skip
    added = add_seconds(p, kg)
    rows.append(
        row("a new entity with five facts, and a query about it", f"{1000 * added:.1f} ms", "",
            "", "50 ms", added < 0.05, seconds=added)
    )  # fmt: skip
    part, whole = (in_own_process(__file__, "missing", data, str(s)) for s in (0.25, 1.0))
    bound = 256 * MIB
    rows.append(
        row(
            "missing: memory of the 1,000 best over all relations",
            f"{whole['bytes'] / MIB:.0f} MiB, {whole['seconds']:.0f} s",
            f"a quarter of them: {part['bytes'] / MIB:.0f} MiB", "",
            f"{bound / MIB:.0f} MiB", whole["bytes"] < bound, whole=whole, quarter=part,
        )
    )  # fmt: skip
    write_results("use", rows, SEED)


if __name__ == "__main__":
    if sys.argv[1:2] == ["missing"]:
        print(json.dumps(missing_memory(sys.argv[2], float(sys.argv[3]))))
    else:
        console.print("using a model ...")
        main()
