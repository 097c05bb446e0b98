"""Measures frontiers: agreement with exact scores, and time and memory on graphs with hubs.

Writes frontier.json (agreement on benchmarks) and frontier_synthetic.json (graphs with hubs); with
`--device cuda` frontier_gpu.json and frontier_synthetic_gpu.json. Work is counted, not timed: edges
that messages pass and states that are updated, in all hops of a query. Each part is written when it
is done and keeps the figures of the others; parts measured at the same commit aren't repeated. The
tables of docs/scale.md are written, too.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import frontier_tables
import torch
from measure import (
    DATA,
    HERE,
    console,
    in_own_process,
    peak_bytes,
    reset_peak,
    resident_bytes,
    synthetic_triples,
    write_results,
)
from torch import Tensor

from pathe.core.hardware import commit
from pathe.core.randomness import keyed
from pathe.core.tensors import expand
from pathe.core.types import SIDES, Side
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.evaluation.ranking import sampled
from pathe.graph.adjacency import build_graph
from pathe.graph.edges import Edges, both_ways
from pathe.graph.held_out import HeldOut
from pathe.graph.prepared import PreparedGraph
from pathe.graph.relation_graph import arrivals
from pathe.model.artifact import load_model
from pathe.model.foundation import FoundationModel, Views, view
from pathe.model.frontier import MOST, Frontier, frontier_of
from pathe.model.propagation import Unkept
from pathe.model.ranks import rank
from pathe.model.scorer import GraphScorer
from pathe.training.mix import MixGraph, sampled_link_step
from pathe.training.pretraining import step_loss

SEED, RELATIONS, AT_ONCE = 0, 200, 8
ASKED = 5  # queries that are also answered exactly on a large graph
SECONDS, BYTES = 1.0, 2 << 30  # of a query on the largest graph
LARGEST = 5_000_000  # entities
Line = dict[str, Any]
Work = tuple[float, float]  # edges and rows
BAR = 2600  # entities with which FB15k-237 takes a fifth of the work
GRAPHS = {  # sizes of frontiers
    "fb15k-237": (1000, 2000, BAR),
    "codex-m": (1000, 2000, 4096),
    "wn18rr": (1000, 2000, 4096),
    "scale/yago3-10-quarter": (1000, 2000, 4096),
}


def load(device: str) -> FoundationModel:
    """Returns the shipped model."""
    model = load_model().model
    assert isinstance(model, FoundationModel)
    return model.to(device).eval()


def agreement(name: str, sizes: tuple[int, ...], n: int, device: str) -> list[Line]:
    """Compares frontiers with exact scores on a sample of test triples, both sides."""
    kg = KnowledgeGraph.read(DATA / name, every_relation=True)
    prepared = PreparedGraph(kg, device)
    scorer = GraphScorer(load(device), prepared, frontier=0)
    triples_M3 = sampled(prepared.with_seen_relations(prepared.triples("test", "seen")), n)
    found: dict[int, list[Tensor]] = {}
    for side in SIDES:
        for ids_B3 in triples_M3.split(AT_ONCE):
            for most, row_BF in compared(scorer, ids_B3, side, sizes).items():
                found.setdefault(most, []).append(row_BF)
    exact_NF = torch.cat(found[0]).double()
    exact_F, lines = exact_NF.mean(0).tolist(), []
    for most in sizes:
        found_NF = torch.cat(found[most]).double()
        mrr, overlap, edges, rows, seconds = found_NF.mean(0).tolist()
        changes_N = found_NF[:, 0] - exact_NF[:, 0]
        less = exact_F[2] / max(edges, 1), exact_F[3] / max(rows, 1)
        bar = name == "fb15k-237" and most == BAR
        lines.append(
            {
                "measure": f"{name}, frontier of {most:,}",
                "ours": f"MRR {mrr:.4f}, {overlap:.2f} of the top 10",
                "peer": f"exact: MRR {exact_F[0]:.4f}",
                "ratio": f"{less[0]:.1f}x fewer edges, {less[1]:.1f}x fewer rows",
                "bar": "MRR within .003 at 5x less work" if bar else "none",
                "met": not bar or (abs(mrr - exact_F[0]) <= 0.003 and min(less) >= 5),
                "graph": name,
                "fingerprint": kg.fingerprint(),
                "frontier": most,
                "triples": len(triples_M3),
                "of_triples": len(prepared.triples("test", "seen")),
                "mrr": mrr,
                "exact_mrr": exact_F[0],
                "standard_error": float(changes_N.std() / len(changes_N) ** 0.5),
                "top_10_overlap": overlap,
                "edges": edges,
                "exact_edges": exact_F[2],
                "rows": rows,
                "exact_rows": exact_F[3],
                "cpu_seconds": seconds,
                "exact_cpu_seconds": exact_F[4],
            }
        )
    return lines


@torch.no_grad()
def compared(
    scorer: GraphScorer, ids_B3: Tensor, side: Side, sizes: tuple[int, ...]
) -> dict[int, Tensor]:
    """Returns (B, 5): reciprocal rank, top-10 overlap, edges, rows and CPU seconds, by size."""
    prepared, column = scorer.prepared, 2 if side == "tail" else 0
    sources_B, true_B = ids_B3[:, 2 - column], ids_B3[:, column]
    kinds_B = ids_B3[:, 1] + (side == "head") * prepared.n_relations
    known, found, best_BK = prepared.known().find(ids_B3, side), {}, None
    for most in (0, *sizes):
        scores_BE, seconds, work = answered(scorer, sources_B, kinds_B, most)
        top_BK = scores_BE.topk(10).indices
        best_BK = top_BK if best_BK is None else best_BK
        overlap_B = (best_BK[:, :, None] == top_BK[:, None]).any(2).sum(1).double()
        reciprocal_B = 1 / rank(scores_BE, true_B, known).realistic_B
        rest = [torch.full_like(reciprocal_B, x / len(ids_B3)) for x in (*work, seconds)]
        found[most] = torch.stack([reciprocal_B, overlap_B, *rest], 1).cpu()
    return found


@torch.no_grad()
def answered(
    scorer: GraphScorer, sources_B: Tensor, kinds_B: Tensor, most: int
) -> tuple[Tensor, float, Work]:
    """Returns scores with a frontier (0: exact), CPU seconds, and the work: edges and rows."""
    model, edges, graph = scorer.model, scorer.prepared.edges, scorer.graph
    given, hops = scorer.kinds(kinds_B), len(scorer.model.bridge.rounds)
    if not most:
        start = time.process_time()
        scores_BE = model.link_scores(edges, graph, given, sources_B)
        seconds = time.process_time() - start
        return scores_BE, seconds, work(*in_reach(edges, graph.keep_M, sources_B, hops))
    kinds_Q, vectors_QKD, rows_B = given
    parts = graph.contexts, vectors_QKD, kinds_Q, rows_B, sources_B
    context_BE = model.link_contexts.links(*parts)  # `link_scores` computes it, too
    start = time.process_time()
    frontier = Frontier(most, context_BE=context_BE)
    kept = frontier_of(edges, graph.keep_M, sources_B, hops, frontier)
    scores_BE = model.link_scores(edges, graph, given, sources_B, kept)
    seconds = time.process_time() - start
    degrees_A = torch.bincount(kept.edges.neighbours_M, minlength=len(kept.entities_A))
    return scores_BE, seconds, work(kept.sizes, degrees_A, kept.unkept)


def in_reach(
    edges: Edges, keep_M: Tensor, sources_B: Tensor, hops: int
) -> tuple[tuple[int, ...], Tensor]:
    """Returns how many entities queries reach in up to each number of hops, and their degrees."""
    n, degrees_E = edges.n_entities, edges.offsets_E1.diff()
    places_F = torch.arange(len(sources_B), device=sources_B.device) * n + sources_B
    new_N = torch.ones(len(sources_B) * n, dtype=torch.bool, device=sources_B.device)
    new_N[places_F] = False
    kept_E = torch.bincount(edges.owners_M[keep_M], minlength=n)
    sizes, parts = [len(places_F)], [kept_E[sources_B]]
    for _ in range(hops):
        starts_F, degrees_F = (part[places_F % n] for part in (edges.offsets_E1, degrees_E))
        rows_N, slots_N = expand(starts_F, degrees_F)
        rows_N, slots_N = rows_N[keep_M[slots_N]], slots_N[keep_M[slots_N]]
        next_N = (places_F // n * n)[rows_N] + edges.neighbours_M[slots_N]
        found_N = torch.zeros_like(new_N).index_fill(0, next_N, True) & new_N
        places_F = found_N.nonzero().squeeze(1)
        new_N &= ~found_N
        sizes.append(sizes[-1] + len(places_F))
        parts.append(kept_E[places_F % n])
    return tuple(sizes), torch.cat(parts)


def work(sizes: tuple[int, ...], degrees_A: Tensor, unkept: Unkept | None = None) -> Work:
    """Returns the edges that messages pass, and the states that are updated, in all hops.

    A row passes messages along its edges from the hop after the one that first reached it. Edges
    from entities that aren't kept count once per relation, and so do those that means are made of.
    """
    hops = len(sizes) - 1
    counts = torch.tensor((0, *sizes), device=degrees_A.device).diff()
    hops_A = torch.arange(hops + 1, device=degrees_A.device).repeat_interleave(counts)
    edges = float(((hops - hops_A) * degrees_A).sum())
    if unkept is not None:
        edges += float((hops + 1 - hops_A[unkept.rows_U].clamp(min=2)).sum())
        edges += float((hops - hops_A[unkept.from_L].clamp(min=1)).sum())
    return edges, float(sum(sizes[1:]))


def synthetic(n_entities: int, device: str) -> PreparedGraph:
    """Returns a graph of four triples per entity whose degrees follow a power law."""
    triples = synthetic_triples(n_entities, 4 * n_entities, RELATIONS, SEED)
    graph = build_graph(triples, n_entities, RELATIONS)
    edges = both_ways(graph)
    index = arrivals(edges)
    kg: Any = SimpleNamespace(name="synthetic", train=triples)
    prepared = PreparedGraph(kg, device, graph=graph)
    prepared.__dict__ |= {"edges": edges.to(device), "arrivals": index.to(device)}  # made already
    return prepared


def queries(n_entities: int, device: str) -> Line:
    """Measures zero-shot queries on a synthetic graph: seconds, CPU seconds and memory beyond it.

    The first query also counts what all queries share. Memory is the peak beyond the graph and the
    model, so it includes what is shared.
    """
    prepared, model = synthetic(n_entities, device), load(device)
    size = prepared.graph.n_bytes + prepared.edges.n_bytes + prepared.arrivals.n_bytes
    links(model, synthetic(100_000, device), 0, 500)  # compiles kernels
    before, rows = _held(device), []
    _reset(device)
    clocks = time.perf_counter(), time.process_time()
    scorer = links(model, prepared, 0, MOST)
    first = time.perf_counter() - clocks[0], time.process_time() - clocks[1]
    first_peak = _peak(device) - before
    for entity, relation in drawn(n_entities, 12, device):
        scorer.links(entity, relation, "tail")  # the relation's vectors are shared by its queries
        _held(device)
        _reset(device)
        clocks = time.perf_counter(), time.process_time()
        scorer.links(entity, relation, "tail").topk(10).values.tolist()
        spent = time.perf_counter() - clocks[0], time.process_time() - clocks[1]
        rows.append((*spent, _peak(device) - before))
    wall, cpu, memory = torch.tensor(rows, dtype=torch.float64).unbind(1)
    large = n_entities >= LARGEST
    peak = max(int(memory.max()), first_peak)
    return {
        "measure": f"a query, {n_entities:,} entities, {prepared.graph.n_triples:,} triples",
        "ours": f"{wall.median():.2f} s, {cpu.median():.2f} CPU s, {peak / 2**30:.2f} GiB",
        "peer": f"largest hub: {int(prepared.edges.offsets_E1.diff().max()):,} edges",
        "ratio": f"first query: {first[0]:.1f} s, {first[1]:.1f} CPU s",
        "bar": "1 s, 2 GiB" if large else "none",
        "met": not large or bool(wall.median() <= SECONDS and peak <= BYTES),
        "entities": n_entities, "triples": prepared.graph.n_triples, "frontier": MOST,
        "graph_bytes": size, "median_seconds": float(wall.median()),
        "worst_seconds": float(wall.max()), "median_cpu_seconds": float(cpu.median()),
        "first_seconds": first[0], "first_cpu_seconds": first[1],
        "peak_bytes": int(memory.max()), "first_peak_bytes": first_peak,
        "threads": torch.get_num_threads(), "load_average": list(os.getloadavg()),
    }  # fmt: skip


def near_exact(n_entities: int, device: str) -> Line:
    """Compares answers with exact ones on a synthetic graph: the first ten, work and memory."""
    prepared, model, found = synthetic(n_entities, device), load(device), []
    scorer = links(model, prepared, 0, MOST)
    before = _held(device)
    _reset(device)
    for entity_1, relation_1 in drawn(n_entities, ASKED, device):
        tops, times, done = [], [], list[float]()
        for most in (MOST, 0):
            scores_1E, seconds, spent = answered(scorer, entity_1, relation_1, most)
            tops.append({*scores_1E[0].topk(10).indices.tolist()})
            times.append(seconds)
            done += spent
        found.append((float(len(tops[0] & tops[1])), *times, *done))
    overlap, ours, exact, *done = torch.tensor(found, dtype=torch.float64).mean(0).tolist()
    return {
        "measure": f"{ASKED} queries against exact answers, {n_entities:,} entities",
        "ours": f"{overlap:.1f} of the top 10, {ours:.2f} CPU s",
        "peer": f"exact: {exact:.1f} CPU s",
        "ratio": f"{done[2] / done[0]:.0f}x fewer edges, {done[3] / done[1]:.0f}x fewer rows",
        "bar": "none", "met": True, "entities": n_entities, "triples": prepared.graph.n_triples,
        "frontier": MOST, "queries": ASKED, "top_10_overlap": overlap, "cpu_seconds": ours,
        "exact_cpu_seconds": exact, "edges": done[0], "rows": done[1], "exact_edges": done[2],
        "exact_rows": done[3], "exact_peak_bytes": _peak(device) - before,
        "threads": torch.get_num_threads(), "load_average": list(os.getloadavg()),
    }  # fmt: skip


def drawn(n_entities: int, n: int, device: str) -> list[tuple[Tensor, Tensor]]:
    """Returns queries about random entities: the entity and the relation of each."""
    numbers = keyed(SEED, torch.arange(n)).abs().tolist()
    return [
        (torch.tensor([i % n_entities], device=device), torch.tensor([i % 20], device=device))
        for i in numbers
    ]


def _held(device: str) -> int:
    """Returns the memory in use: of the GPU, or of the process."""
    return torch.cuda.memory_allocated() if device == "cuda" else resident_bytes()


def _reset(device: str) -> None:
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    else:
        reset_peak()


def _peak(device: str) -> int:
    return torch.cuda.max_memory_allocated() if device == "cuda" else peak_bytes()


def links(model: FoundationModel, prepared: PreparedGraph, entity: int, most: int) -> GraphScorer:
    """Asks one query and returns the scorer that answered it."""
    scorer = GraphScorer(model, prepared, frontier=most)
    ids = torch.tensor([entity], device=prepared.device)
    scorer.links(ids, torch.zeros_like(ids), "tail").topk(10).values.tolist()
    return scorer


def growth(rows: list[Line]) -> list[Line]:
    """Compares the processor time of queries on graphs of different sizes."""
    rows = sorted((row for row in rows if "median_cpu_seconds" in row), key=_entities)
    lines = []
    for small, large in pairwise(rows):
        larger = large["triples"] / small["triples"]
        longer = large["median_cpu_seconds"] / small["median_cpu_seconds"]
        lines.append(
            {
                "measure": f"growth of a query, {small['entities']:,} to {large['entities']:,}",
                "ours": f"{longer:.1f}x the CPU seconds",
                "peer": f"{larger:.1f}x the triples", "ratio": "",
                "bar": "less than linear", "met": longer < larger,
                "entities": large["entities"], "from_entities": small["entities"],
                "triples_ratio": larger, "cpu_seconds_ratio": longer, "command": large["command"],
                "commit": large["commit"],
            }
        )  # fmt: skip
    return lines


def _entities(row: Line) -> int:
    return int(row["entities"])


def training(n_entities: int, device: str) -> Line:
    """Measures a training step of 64 triples on a synthetic graph, with what it sees of it."""
    prepared, model = synthetic(n_entities, device), load(device).train()
    edges, triples_M3, spent = prepared.edges, prepared.train_M3, []
    known = prepared.known("train")
    for side in SIDES:
        known.lists(side)
    graph = MixGraph(
        "synthetic", 0, edges, prepared.arrivals, triples_M3, prepared.pairs, known
    )  # fmt: skip
    optimizer, views = torch.optim.AdamW(model.parameters(), lr=1e-4), Views(edges, graph.index)
    start = time.process_time()
    view(graph.index, edges.keep(HeldOut(torch.arange(64, device=device))))
    _waited(device)
    anew = time.process_time() - start
    for i in range(8):
        ids_B = keyed(SEED, i, torch.arange(64, device=device)).remainder(len(triples_M3))
        clocks = [(_waited(device), time.process_time())]
        seen = views.without(ids_B)
        clocks.append((_waited(device), time.process_time()))
        step = sampled_link_step(graph, seen, triples_M3[ids_B], MOST, i)
        if device == "cuda":  # on a CPU, message passing takes minutes
            optimizer.zero_grad()
            loss = step_loss(model, graph, step)
            loss.backward()
            optimizer.step()
            assert bool(loss.isfinite())
        clocks.append((_waited(device), time.process_time()))
        spent.append(torch.tensor(clocks, dtype=torch.float64).diff(dim=0))
    # the first steps compile kernels
    (view_wall, view_cpu), (rest_wall, rest_cpu) = torch.stack(spent[2:]).median(0).values.tolist()
    seconds, whole = view_wall + rest_wall, device == "cuda"
    return {
        "measure": f"{'a' if whole else 'inputs of a'} training step of 64 triples, "
        f"{n_entities:,} entities, {device}",
        "ours": f"{seconds:.2f} s, {view_cpu:.3f} CPU s for what the step sees",
        "peer": f"counted anew: {anew:.2f} CPU s", "ratio": f"{view_cpu + rest_cpu:.2f} CPU s",
        "view_anew_cpu_seconds": anew,
        "bar": "0.3 s on an H200" if device == "cuda" else "none",
        "met": device != "cuda" or seconds <= 0.3, "seconds": seconds, "view_seconds": view_wall,
        "cpu_seconds": view_cpu + rest_cpu, "view_cpu_seconds": view_cpu, "entities": n_entities,
        "triples": prepared.graph.n_triples, "frontier": MOST,
        "load_average": list(os.getloadavg()),
    }  # fmt: skip


def _waited(device: str) -> float:
    """Returns the time when the device has done what was asked so far."""
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--triples", type=int, default=500, help="test triples per graph")
    parser.add_argument("--sizes", type=int, nargs="*", help="of frontiers; default: several")
    parser.add_argument("--entities", type=int, nargs="*", default=[50_000, 500_000, LARGEST])
    parser.add_argument(
        "--exact",
        type=int,
        nargs="*",
        default=[50_000],
        help="sizes in entities; LARGEST needs 16 GB",
    )
    parser.add_argument("--graphs", nargs="*", default=list(GRAPHS))
    parser.add_argument("--training", type=int, nargs="*", default=[], help="sizes in entities")
    parser.add_argument("--only", nargs=2, help=argparse.SUPPRESS)  # one part, as JSON
    args = parser.parse_args()
    if args.only:
        part = {"query": queries, "exact": near_exact, "training": training}[args.only[0]]
        print(json.dumps(part(int(args.only[1]), args.device)))
        return
    ending = "" if args.device == "cpu" else "_gpu"
    store = Store(f"frontier{ending}")
    for name in args.graphs:
        if (DATA / name).exists():
            parts = name, tuple(args.sizes or GRAPHS[name]), args.triples, args.device
            store.take({"graph": name}, {"sample": args.triples}, partial(agreement, *parts))
        else:
            console.print(f"{name}: no data in {DATA.name}; set PATHE_DATA")
    failed, store = store.write(), Store(f"frontier_synthetic{ending}")

    def alone(part: str, n_entities: int) -> list[Line]:
        return [in_own_process(__file__, "--device", args.device, "--only", part, str(n_entities))]

    for n in args.entities:
        store.take({"part": "query", "entities": n}, {}, partial(alone, "query", n))
    for n in args.exact:
        store.take({"part": "exact", "entities": n}, {}, partial(alone, "exact", n))
    for n in args.training:
        store.take({"part": "training", "entities": n}, {}, partial(alone, "training", n))
    queried = [row for row in store.rows if row["part"] == "query"]
    store.rows = [row for row in store.rows if row["part"] != "growth"]
    store.rows += [row | {"part": "growth"} for row in growth(queried)]
    failed |= store.write()
    if args.device == "cpu":
        frontier_tables.write()
    raise SystemExit(failed)


class Store:
    """The results in a file, which are written after each part."""

    def __init__(self, name: str) -> None:
        self.name, path = name, HERE / f"{name}.json"
        self.rows: list[Line] = json.loads(path.read_text())["results"] if path.exists() else []

    def take(self, about: Line, how: Line, measured: Callable[[], list[Line]]) -> None:
        """Measures a part, unless it was measured in the same way at the same commit."""

        def among(wanted: Line) -> list[bool]:
            return [all(row.get(k) == v for k, v in wanted.items()) for row in self.rows]

        if any(among(about | how | {"commit": commit()})):
            return
        command = " ".join(["python", "benchmarks/frontier.py", *sys.argv[1:]])
        common = about | how | {"commit": commit(), "command": command}
        new = [row | common for row in measured()]
        kept = [row for row, old in zip(self.rows, among(about), strict=True) if not old]
        self.rows = kept + new
        self.write()

    def write(self) -> bool:
        """Writes all results, if there are any; returns whether a bar was missed."""
        try:
            if self.rows:
                write_results(self.name, self.rows, SEED, "make bench-scale")
        except SystemExit:
            return True
        return False


if __name__ == "__main__":
    main()
