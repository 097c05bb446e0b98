"""Reading, walking and scaling, against peers in the same run: `make bench`."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from measure import (
    DATA,
    best_time,
    console,
    in_own_process,
    peak_bytes,
    reset_peak,
    resident_bytes,
    row,
    synthetic_text,
    synthetic_triples,
    write_results,
)

from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.graph import walks
from pathe.graph.adjacency import Graph, build_graph
from pathe.graph.paths import sample_paths
from pathe.graph.walks import sample_walks

SEED = 0
MIB, GIB = 1 << 20, 1 << 30


def reading() -> list[dict[str, Any]]:
    from pykeen.triples import TriplesFactory

    path = DATA / "fb15k-237" / "train.txt.gz"
    kg = KnowledgeGraph.read(path)
    ours = best_time(lambda: KnowledgeGraph.read(path), 5)
    peer = best_time(lambda: TriplesFactory.from_path(path), 3)
    return [
        row(
            "FB15k-237 train text to ids",
            f"{ours * 1e3:.0f} ms",
            f"PyKEEN {peer * 1e3:.0f} ms",
            f"{peer / ours:.1f}x",
            "5x",
            peer / ours >= 5,
            ours_s=ours,
            peer_s=peer,
            fingerprint=kg.fingerprint(),
        )
    ]


def walking(name: str) -> list[dict[str, Any]]:
    import igraph

    kg = KnowledgeGraph.read(DATA / name / "train.txt.gz")
    graph = build_graph(kg.train, kg.n_entities, kg.n_relations)
    starts = torch.randint(
        kg.n_entities, (2_000_000,), generator=torch.Generator().manual_seed(SEED)
    )
    sample_walks(graph.outgoing, starts[:100], 10, seed=SEED)

    def rate(hops: int, repeats: int = 3) -> float:
        run = partial(sample_walks, graph.outgoing, starts, hops, seed=SEED)
        return len(starts) / best_time(run, repeats)

    rates = {hops: rate(hops) for hops in (5, 10)}
    compiled = vars(walks)["kernel"]
    vars(walks)["kernel"] = lambda *wanted: None
    plain = rate(10, repeats=1)
    vars(walks)["kernel"] = compiled
    theirs = igraph.Graph(n=kg.n_entities, edges=kg.train[:, [0, 2]].tolist(), directed=True)
    relations = kg.train[:, 1].tolist()

    def igraph_rate(seconds: float, with_relations: bool) -> float:
        """Returns loop-free walks per second; with relations, as paths need them, or without."""
        kept, begin = 0, time.perf_counter()
        for start in starts.tolist():
            kind = "both" if with_relations else "vertices"
            walk = theirs.random_walk(start, 10, mode="out", stuck="return", return_type=kind)
            visited = walk["vertices"] if with_relations else walk
            if len(set(visited)) == len(visited):
                kept += 1
                if with_relations:
                    [relations[edge] for edge in walk["edges"]]
            if time.perf_counter() - begin > seconds:
                break
        return kept / (time.perf_counter() - begin)

    peer, entities_alone = igraph_rate(10, True), igraph_rate(5, False)
    ratio = rates[10] / peer
    rows = [
        row(
            f"{name} loop-free walks per second, up to 10 hops",
            f"{rates[10] / 1e6:.2f} M",
            f"igraph, loops rejected: {peer:,.0f} ({entities_alone:,.0f} without relations)",
            f"{ratio:,.0f}x",
            "300x",
            ratio >= 300,
            ours_per_s=rates[10],
            peer_per_s=peer,
            peer_without_relations_per_s=entities_alone,
            fingerprint=kg.fingerprint(),
        ),
        row(
            f"{name} the compiled kernel against the tensor one, 10 hops",
            f"{rates[10] / 1e6:.2f} M",
            f"{plain / 1e6:.2f} M",
            f"{rates[10] / plain:.1f}x",
            "2x",
            rates[10] >= 2 * plain,
            ours_per_s=rates[10],
            tensors_per_s=plain,
        ),
    ]
    if name == "fb15k-237":
        rows.append(
            row(
                f"{name} loop-free walks per second, up to 5 hops",
                f"{rates[5] / 1e6:.2f} M",
                "-",
                "-",
                "2 M",
                rates[5] >= 2e6,
                ours_per_s=rates[5],
            )
        )
    return rows


def sampler_memory() -> list[dict[str, Any]]:
    found = in_own_process(__file__, "sampler-memory")
    ratio = found["extra_bytes"] / found["csr_bytes"]
    return [
        row(
            "sampler's memory beyond its output, 2.1 M triples",
            f"{found['extra_bytes'] / MIB:.0f} MiB",
            f"CSR {found['csr_bytes'] / MIB:.0f} MiB",
            f"{ratio:.2f}x",
            "under 3x",
            ratio < 3,
            **found,
        )
    ]


def measure_sampler_memory() -> dict[str, Any]:
    """Measures in a second process: memory freed after reading would hide what the sampler uses."""
    with tempfile.TemporaryDirectory() as folder:
        return in_own_process(__file__, "sampler-memory-of", _saved_triples(Path(folder)))


def _saved_triples(folder: Path) -> str:
    kg = KnowledgeGraph.read(DATA / "scale" / "r25kg.tsv.gz")
    torch.save((kg.train, kg.n_entities, kg.n_relations, kg.fingerprint()), folder / "triples.pt")
    return str(folder / "triples.pt")


def measure_sampler_memory_of(path: str) -> dict[str, Any]:
    triples, n_entities, n_relations, fingerprint = torch.load(path, weights_only=True)
    graph = build_graph(triples, n_entities, n_relations)
    entities = torch.arange(n_entities)
    sample_walks(graph.outgoing, entities[:10], 10, seed=SEED)
    before = resident_bytes()
    reset_peak()
    paths = sample_paths(graph, entities, 4, 10, seed=SEED)
    return {
        "csr_bytes": graph.outgoing.n_bytes + graph.incoming.n_bytes,
        "output_bytes": paths.n_bytes,
        "extra_bytes": max(peak_bytes() - before - paths.n_bytes, 0),
        "fingerprint": fingerprint,
    }


def loading() -> list[dict[str, Any]]:
    quarter, whole = (in_own_process(__file__, "load", size) for size in ("0.25", "1"))
    per_id = whole["extra_bytes"] / (3 * whole["n_triples"])
    ratio = whole["extra_bytes"] / quarter["extra_bytes"]
    return [
        row(
            "peak memory of reading 20 M lines of text (5 M names)",
            f"{whole['extra_bytes'] / GIB:.2f} GiB in {whole['seconds']:.0f} s",
            f"a quarter: {quarter['extra_bytes'] / GIB:.2f} GiB in {quarter['seconds']:.0f} s",
            f"{ratio:.2f}x",
            "60 bytes per id",
            per_id < 60,
            bytes_per_id=per_id,
            whole=whole,
            quarter=quarter,
        )
    ]


def measure_load(size: float) -> dict[str, Any]:
    triples = synthetic_triples(int(5e6 * size), int(20.1e6 * size), 800, SEED)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "triples.tsv"
        synthetic_text(path, triples)
        n_triples = len(triples)
        del triples
        before = resident_bytes()
        reset_peak()
        begin = time.perf_counter()
        kg = KnowledgeGraph.read(path)
        seconds = time.perf_counter() - begin
    assert len(kg.train) == n_triples
    return {
        "n_triples": n_triples,
        "n_entities": kg.n_entities,
        "seconds": seconds,
        "extra_bytes": peak_bytes() - before,
    }


def scaling() -> list[dict[str, Any]]:
    quarter, whole = (in_own_process(__file__, "scale", size) for size in ("0.25", "1"))
    rows = [
        row(
            "peak memory, 5 M entities, 20 M triples, 800 relations: CSR + contexts + 4 paths each",
            f"{whole['peak_bytes'] / GIB:.2f} GiB",
            f"a quarter: {quarter['peak_bytes'] / GIB:.2f} GiB",
            f"{whole['peak_bytes'] / quarter['peak_bytes']:.2f}x",
            "8 GiB",
            whole["peak_bytes"] < 8 * GIB,
            whole=whole,
            quarter=quarter,
        )
    ]
    for part in ("graph_s", "paths_s"):
        ratio = whole[part] / quarter[part]
        rows.append(
            row(
                f"time against a quarter of it: {part[:-2]}",
                f"{whole[part]:.1f} s",
                f"{quarter[part]:.1f} s",
                f"{ratio:.2f}x",
                "linear is 4x, quadratic 16x: under 8x",
                ratio < 8,
            )
        )
    return rows


def measure_scale(size: float) -> dict[str, Any]:
    n_entities, n_relations = int(5e6 * size), 800
    triples = synthetic_triples(n_entities, int(20.1e6 * size), n_relations, SEED)
    small = build_graph(triples[:1000], n_entities, n_relations)
    sample_paths(small, torch.arange(2), 1, 5, seed=SEED, form="single")  # compile
    del small
    reset_peak()
    entities = torch.arange(n_entities)
    graph: Graph = build_graph(triples, n_entities, n_relations)
    paths = sample_paths(graph, entities, 4, 5, seed=SEED, form="single")
    peak = peak_bytes()
    return {
        "n_entities": n_entities,
        "n_triples": len(triples),
        "graph_s": best_time(partial(build_graph, triples, n_entities, n_relations), 2),
        "paths_s": best_time(
            partial(sample_paths, graph, entities, 4, 5, seed=SEED, form="single"), 2
        ),
        "graph_bytes": graph.n_bytes,
        "paths_bytes": paths.n_bytes,
        "peak_bytes": peak,
    }


def main() -> None:
    match sys.argv[1:]:
        case ["sampler-memory"]:
            print(json.dumps(measure_sampler_memory()))
        case ["sampler-memory-of", path]:
            print(json.dumps(measure_sampler_memory_of(path)))
        case ["load", size]:
            print(json.dumps(measure_load(float(size))))
        case ["scale", size]:
            print(json.dumps(measure_scale(float(size))))
        case _:
            rows: list[dict[str, Any]] = []
            stages = [(loading, "reading 20 M lines"), (scaling, "synthetic graph")]
            if Path(DATA).is_dir():
                stages = [
                    (reading, "reading against PyKEEN"),
                    (lambda: walking("fb15k-237"), "walks against igraph, FB15k-237"),
                    (lambda: walking("wn18rr"), "walks against igraph, WN18RR"),
                    (sampler_memory, "memory of the sampler"),
                    *stages,
                ]
            else:
                console.print(f"no benchmark data at {DATA}: set PATHE_DATA; scaling only")
            for stage, title in stages:
                with console.status(f"{title} ..."):
                    rows += stage()
            write_results("foundation", rows, SEED)


if __name__ == "__main__":
    main()
