"""Measures frontiers: agreement with exact scores, and time and memory on graphs with hubs.

Writes frontier.json (agreement on benchmarks) and frontier_synthetic.json (graphs with hubs); with
`--device cuda` frontier_gpu.json and frontier_synthetic_gpu.json. Work is counted, not timed: edges
that messages pass and rows that are updated, per hop and query.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from types import SimpleNamespace
from typing import Any

import torch
from measure import DATA, peak_bytes, reset_peak, resident_bytes, synthetic_triples, write_results
from torch import Tensor

from pathe.core.randomness import keyed
from pathe.core.types import SIDES, Side
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.evaluation.ranking import sampled
from pathe.graph.adjacency import build_graph
from pathe.graph.held_out import HeldOut
from pathe.graph.prepared import PreparedGraph
from pathe.model.artifact import load_model
from pathe.model.foundation import FoundationModel, view
from pathe.model.frontier import MOST, Frontier, keep_best
from pathe.model.ranks import rank
from pathe.model.scorer import GraphScorer
from pathe.training.mix import MixGraph, sampled_link_step
from pathe.training.pretraining import step_loss

SEED, RELATIONS, AT_ONCE = 0, 200, 8
GRAPHS = {  # test triples sampled, and sizes of frontiers
    "fb15k-237": (1000, 2000, 3000),
    "wn18rr": (1000, 2000, 4096),
    "codex-m": (1000, 2000, 4096),
    "scale/yago3-10-quarter": (1000, 2000, 4096),
}


def load(device: str) -> FoundationModel:
    """Returns the shipped model."""
    model = load_model().model
    assert isinstance(model, FoundationModel)
    return model.to(device).eval()


def agreement(name: str, sizes: tuple[int, ...], n: int, device: str) -> list[dict[str, Any]]:
    """Compares frontiers with exact scores on a sample of test triples, both sides."""
    kg = KnowledgeGraph.read(DATA / name, every_relation=True)
    prepared = PreparedGraph(kg, device)
    scorer = GraphScorer(load(device), prepared, frontier=0)
    triples_M3 = sampled(prepared.with_seen_relations(prepared.triples("test", "seen")), n)
    found: dict[int, list[Tensor]] = {}
    for side in SIDES:
        for ids_B3 in triples_M3.split(AT_ONCE):
            for most, row_BF in _compared(scorer, ids_B3, side, sizes).items():
                found.setdefault(most, []).append(row_BF)
    exact_MF = torch.cat(found[0]).mean(0).tolist()
    lines = []
    for most in sizes:
        mrr, overlap, edges, rows, seconds = torch.cat(found[most]).mean(0).tolist()
        less = exact_MF[2] / max(edges, 1), exact_MF[3] / max(rows, 1)
        bar = name == "fb15k-237" and min(less) >= 5
        lines.append(
            {
                "measure": f"{name}, frontier of {most:,}",
                "ours": f"MRR {mrr:.4f}, {overlap:.2f} of the top 10",
                "peer": f"exact: MRR {exact_MF[0]:.4f}",
                "ratio": f"{less[0]:.1f}x fewer edges, {less[1]:.1f}x fewer rows",
                "bar": "MRR within .003 at 5x less work" if bar else "none",
                "met": not bar or abs(mrr - exact_MF[0]) <= 0.003,
                "graph": name,
                "fingerprint": kg.fingerprint(),
                "frontier": most,
                "triples": len(triples_M3),
                "mrr": mrr,
                "exact_mrr": exact_MF[0],
                "top_10_overlap": overlap,
                "edges": edges,
                "exact_edges": exact_MF[2],
                "rows": rows,
                "exact_rows": exact_MF[3],
                "cpu_seconds": seconds,
                "exact_cpu_seconds": exact_MF[4],
            }
        )
    return lines


@torch.no_grad()
def _compared(
    scorer: GraphScorer, ids_B3: Tensor, side: Side, sizes: tuple[int, ...]
) -> dict[int, Tensor]:
    """Returns (B, 5): reciprocal rank, top-10 overlap, edges, rows and CPU seconds, by size."""
    prepared, column = scorer.prepared, 2 if side == "tail" else 0
    sources_B, true_B = ids_B3[:, 2 - column], ids_B3[:, column]
    kinds_B = ids_B3[:, 1] + (side == "head") * prepared.n_relations
    known, found, best_BK = prepared.known().find(ids_B3, side), {}, None
    given, edges, keep_M = scorer.kinds(kinds_B), prepared.edges, scorer.graph.keep_M
    hops = len(scorer.model.bridge.rounds)
    for most in (0, *sizes):
        start = time.process_time()
        part = Frontier(most) if most else None
        scores_BE = scorer.model.link_scores(edges, scorer.graph, given, sources_B, frontier=part)
        seconds = (time.process_time() - start) / len(ids_B3)
        top_BK = scores_BE.topk(10).indices
        best_BK = top_BK if best_BK is None else best_BK
        overlap_B = (best_BK[:, :, None] == top_BK[:, None]).any(2).sum(1).double()
        n_edges, n_rows = float(len(edges.relations_M)), float(prepared.n_entities)
        if most:
            context_BE = scorer.model.link_contexts.links(
                scorer.graph.contexts, given.vectors_QKD, given.kinds_Q, given.rows_B, sources_B
            )
            kept = keep_best(edges, keep_M, sources_B, hops, most, context_BE)
            n_edges = len(kept.edges.relations_M) / len(ids_B3)
            n_rows = len(kept.queries_A) / len(ids_B3)
        reciprocal_B = 1 / rank(scores_BE, true_B, known).realistic_B
        rest = [torch.full_like(reciprocal_B, x) for x in (n_edges, n_rows, seconds)]
        found[most] = torch.stack([reciprocal_B, overlap_B, *rest], 1).cpu()
    return found


def synthetic(n_entities: int, device: str) -> PreparedGraph:
    """Returns a graph of four triples per entity whose degrees follow a power law."""
    triples = synthetic_triples(n_entities, 4 * n_entities, RELATIONS, SEED)
    graph = build_graph(triples, n_entities, RELATIONS)
    kg: Any = SimpleNamespace(name="synthetic", train=triples)
    return PreparedGraph(kg, device, graph=graph)


def queries(n_entities: int, device: str) -> dict[str, Any]:
    """Measures zero-shot queries on a synthetic graph: seconds, CPU seconds and memory of each."""
    prepared = synthetic(n_entities, device)
    scorer = GraphScorer(load(device), prepared, frontier=MOST)
    ids_N = keyed(SEED, torch.arange(12)).abs()
    rows = []
    before = resident_bytes()
    for i, number in enumerate(ids_N.tolist()):
        entity, relation = (torch.tensor([number % n], device=device) for n in (n_entities, 20))
        reset_peak()
        clocks = time.perf_counter(), time.process_time()
        scorer.links(entity, relation, "tail").topk(10).values.tolist()
        spent = time.perf_counter() - clocks[0], time.process_time() - clocks[1]
        if i >= 2:  # the first ones compile kernels
            rows.append((*spent, peak_bytes() - before))
    wall, cpu, memory = torch.tensor(rows, dtype=torch.float64).unbind(1)
    large = n_entities >= 5_000_000
    return {
        "measure": f"a query, {n_entities:,} entities, {prepared.graph.n_triples:,} triples",
        "ours": f"{wall.median():.2f} s, {cpu.median():.2f} CPU s, {memory.max() / 2**30:.2f} GiB",
        "peer": f"largest hub: {int(prepared.edges.offsets_E1.diff().max()):,} edges",
        "ratio": "", "bar": "1 s, 2 GiB" if large else "none",
        "met": not large or bool(wall.median() <= 1 and memory.max() <= 2 << 30),
        "entities": n_entities, "triples": prepared.graph.n_triples, "frontier": MOST,
        "median_seconds": float(wall.median()), "median_cpu_seconds": float(cpu.median()),
        "peak_bytes": int(memory.max()), "load_average": list(os.getloadavg()),
    }  # fmt: skip


def training(n_entities: int, device: str) -> dict[str, Any]:
    """Measures a training step of 64 triples on a synthetic graph, with what it sees of it."""
    prepared, model = synthetic(n_entities, device), load(device).train()
    edges, triples_M3 = prepared.edges, prepared.train_M3
    graph = MixGraph(
        "synthetic", 0, edges, prepared.arrivals, triples_M3, prepared.pairs,
        prepared.known("train"),
    )  # fmt: skip
    optimizer, times = torch.optim.AdamW(model.parameters(), lr=1e-4), []
    for i in range(6):
        ids_B = keyed(SEED, i, torch.arange(64, device=device)).remainder(len(triples_M3))
        start = time.perf_counter()
        seen = view(graph.index, edges.keep(HeldOut(ids_B)))
        step = sampled_link_step(graph, seen, triples_M3[ids_B], MOST, i)
        loss = step_loss(model, graph, step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert float(loss) == float(loss)  # also waits for the GPU
        times.append(time.perf_counter() - start)
    seconds = sorted(times[2:])[len(times[2:]) // 2]
    return {
        "measure": f"a training step of 64 triples, {n_entities:,} entities, {device}",
        "ours": f"{seconds:.2f} s", "peer": "", "ratio": "",
        "bar": "0.3 s on an H200" if device == "cuda" else "none",
        "met": device != "cuda" or seconds <= 0.3, "seconds": seconds, "entities": n_entities,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--triples", type=int, default=100, help="test triples per graph")
    parser.add_argument("--entities", type=int, nargs="*", default=[50_000, 500_000, 5_000_000])
    parser.add_argument("--graphs", nargs="*", default=list(GRAPHS))
    parser.add_argument("--training", type=int, default=0, help="entities of the training graph")
    args = parser.parse_args()
    command = {"command": " ".join(["python", "benchmarks/frontier.py", *sys.argv[1:]])}
    ending = "" if args.device == "cpu" else "_gpu"
    failed = False
    lines = [agreement(name, GRAPHS[name], args.triples, args.device) for name in args.graphs]
    failed |= _write(f"frontier{ending}", [command | line for part in lines for line in part])
    rows = [queries(n, args.device) for n in args.entities]
    if args.training:
        rows.append(training(args.training, args.device))
    failed |= _write(f"frontier_synthetic{ending}", [command | row for row in rows])
    raise SystemExit(failed)


def _write(name: str, rows: list[dict[str, Any]]) -> bool:
    """Writes results, if there are any; returns whether a bar was missed."""
    try:
        if rows:
            write_results(name, rows, SEED)
    except SystemExit:
        return True
    return False


if __name__ == "__main__":
    main()
