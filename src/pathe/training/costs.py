"""Estimates how long training takes on a graph and this machine."""

from __future__ import annotations

import torch

from pathe.core.config import Config
from pathe.core.hardware import pick_device
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.graph.prepared import PreparedGraph
from pathe.model.propagation import reach
from pathe.training.batches import n_steps

MOST_HOPS = 5  # of bridges, if fewer hops reach too few entities
SAMPLE, SAMPLED_ROWS = 64, 1 << 24  # queries sampled to estimate what they reach
# Nanoseconds of training per step, per (query, entity) row and hop, per edge into a row, per path,
# and per multiplication in the encoder of relations; on a CPU, per core.
COST = {
    "cuda": {"step": 5e6, "row": 1.0, "edge": 0.1, "path": 50, "multiply": 3e-4},
    "cpu": {"step": 2e7, "row": 1400, "edge": 80, "path": 2e4, "multiply": 0.3},
}
MOST_MET = 1500  # kinds that a kind of edge meets, at most: larger relation graphs are sparse
Reached = list[tuple[float, float]]


def reached_entities(prepared: PreparedGraph) -> Reached:
    """Estimates, per number of hops, the entities that a query reaches and the edges into them."""
    kg, edges = prepared.kg, prepared.edges
    ends_M = kg.train[:, [0, 2]].long().flatten()
    b = min(max(SAMPLED_ROWS // kg.n_entities, 1), SAMPLE)
    generator = torch.Generator().manual_seed(0)
    sources_B = ends_M[torch.randint(len(ends_M), (b,), generator=generator)]
    found = reach(edges, sources_B, MOST_HOPS, edges.keep())
    edges_A = edges.offsets_E1.diff()[found.entities_A.long()].cumsum(0)
    return [(n / b, int(edges_A[n - 1]) / b) for n in found.sizes]


def bridge_seconds(
    kg: KnowledgeGraph, config: Config, reached: Reached, share: float
) -> float:  # fmt: skip
    """Estimates how long bridges take in training and validation, for a share of the queries."""
    hops = [reached[min(hop, MOST_HOPS)] for hop in range(1, config.bridge_hops + 1)]
    rows, edges = (sum(part) for part in zip(*hops, strict=True))
    sides = {"link": 2, "relation": 1, "multi": 3}[config.task]
    work = config.max_epochs * sides * config.bridge_dim / 32
    valid, train = work * len(kg.valid) / 3, work * len(kg.train) * share
    steps, multiplies = steps_of(kg, config) * (share > 0), 0.0
    if config.relation_vectors != "table":
        n_kinds = 2 * kg.n_relations
        encoded = min(2 * config.batch_size, n_kinds) if config.task == "link" else kg.n_relations
        met = n_kinds * min(n_kinds, MOST_MET)
        multiplies = steps * config.relation_layers * config.bridge_dim * encoded * met
    rows, edges = (valid + train) * rows, (valid + train) * edges
    return seconds_of(config, row=rows, edge=edges, step=steps, multiply=multiplies)


def steps_of(kg: KnowledgeGraph, config: Config) -> int:
    return config.max_epochs * n_steps(config, len(kg.train))


def seconds_of(config: Config, **work: float) -> float:
    device = pick_device(config.accelerator).type
    cores = torch.get_num_threads() if device == "cpu" else 1
    return sum(n * COST[device][kind] for kind, n in work.items()) / cores / 1e9


def minutes_words(minutes: float) -> str:
    if minutes < 1:
        return f"{60 * minutes:.3g} seconds"
    return "a minute" if minutes == 1 else f"{minutes:.3g} minutes"


def in_words(seconds: float) -> str:
    if seconds > 7200:
        return f"{seconds / 3600:.0f} hours"
    if seconds < 50:
        return f"{max(10 * round(seconds / 10), 10)} seconds"
    minutes = max(round(seconds / 60), 1)
    return "a minute" if minutes == 1 else f"{minutes} minutes"
