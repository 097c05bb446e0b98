"""Settings that suit a graph and a machine: what `pathe train` takes where nothing else is said.

Bridges are worth the time they take, so they are taken wherever they fit into a budget: for half
of the training questions, or for as many as can be. docs/results.md has what each part brings.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from pathe.analysis import linked_pairs, wants_pairs_held_out
from pathe.config import Config, configure
from pathe.datasets import KnowledgeGraph
from pathe.errors import ConfigError
from pathe.graph import build_graph
from pathe.machine import pick_device
from pathe.propagation import both_ways, reach
from pathe.training import check_fits

BUDGET = 900  # seconds of a training that bridges may take; as many for encoding all entities
LEAST = 0.05  # of the questions: from bridges for fewer there is too little to learn
MOST_HOPS = 5  # of bridges, where it takes as many to get anywhere
EPOCHS = ((20_000, 16), (200_000, 12), (math.inf, 6))  # with bridges; for fewer triples than that
LEAST_STEPS = 500  # of a training
SAMPLE = 64  # questions that are looked at to know what all reach
# Nanoseconds of training: for each (question, entity) that a hop reaches, for each edge into it,
# for each path that is read. On a CPU, of one core.
COST = {
    "cuda": {"row": 1.0, "edge": 0.1, "path": 50},
    "cpu": {"row": 1400, "edge": 80, "path": 2e4},
}
ALL = {"negative_sampling": "all"}
Settings = Mapping[str, Any]
Reached = list[tuple[float, float]]


def recommend(kg: KnowledgeGraph, settings: Settings | None = None) -> tuple[Config, str]:
    """Settings for a graph on this machine, and what they are in words; those given are kept."""
    settings = dict(settings or {})
    configure(settings=settings)  # says what is wrong with them
    bridge, why = settings.get("bridge"), ""
    reached = _reached(kg)
    for recipe in _recipes(kg, bridge, reached):
        try:
            config = configure(settings={**recipe, **settings})
            check_fits(config, kg.n_entities, len(kg.train))
        except ConfigError:
            continue  # too much memory, or nothing that goes with what is given
        if config.negative_sampling == "all" and _all_seconds(kg, config) > BUDGET:
            continue
        if config.bridge == "none":
            return config, f"vectors{why}"
        seconds = _bridge_seconds(kg, config, reached)
        share = (1 - config.bridge_dropout) * min(BUDGET / seconds, 1)
        if bridge is None and share < LEAST:
            why = f"; bridges would take {_words(seconds)} here (--set bridge=paths)"
            continue
        if bridge is None and "bridge_dropout" not in settings:
            config = configure(config, {"bridge_dropout": round(1 - share, 2)})
        hops = config.bridge_hops
        return config, f"vectors and bridges of {hops} hops (--set bridge=none is faster)"
    return configure(settings=settings), "the defaults"


def _recipes(kg: KnowledgeGraph, bridge: str | None, reached: Reached) -> Iterator[Settings]:
    """The best first: with bridges or without, against all entities or some."""
    n = len(kg.train)
    if bridge != "none":  # small batches, few epochs, a rate that falls to nothing
        far = sum(rows < kg.n_entities / 2 for rows, _ in reached)  # hops before half is reached
        hops, batch = min(max(far, 3), MOST_HOPS), min(256, _power(n / 64))
        epochs = next(epochs for most, epochs in EPOCHS if n < most)
        recipe = {
            "bridge": "paths", "bridge_hops": hops, "bridge_dropout": 0.5, "schedule": "cosine",
            "path_form": "joined" if hops == MOST_HOPS else "single",
            "batch_size": batch, "max_epochs": max(epochs, -(-LEAST_STEPS * batch // max(n, 1))),
            "learning_rate": 0.004, "test_paths": 32,
        }  # fmt: skip
        pairs = {"hold_out_pairs": True} if wants_pairs_held_out(linked_pairs(kg)) else {}
        yield {**recipe, **pairs, **ALL}
        yield {**recipe, **pairs}
        yield recipe
    if bridge != "paths":  # large batches, but some steps an epoch on a small graph, too
        yield {**ALL, "batch_size": min(4096, _power(n / 64)), "learning_rate": 0.002,
               "max_epochs": 40, "patience": 5, "test_paths": 32}  # fmt: skip
        yield {"batch_size": min(1024, _power(n / 64))}


def _reached(kg: KnowledgeGraph) -> Reached:
    """For each number of hops: how many entities a question reaches, and the edges into them."""
    edges = both_ways(build_graph(kg.train, kg.n_entities, kg.n_relations))
    ends_M = kg.train[:, [0, 2]].long().flatten()
    made = torch.Generator().manual_seed(0)
    sources_B = ends_M[torch.randint(len(ends_M), (SAMPLE,), generator=made)]
    found = reach(edges, sources_B, MOST_HOPS, edges.without())
    edges_A = edges.offsets_E1.diff()[found.entities_A.long()].cumsum(0)
    return [(n / SAMPLE, int(edges_A[n - 1]) / SAMPLE) for n in found.sizes]


def _bridge_seconds(kg: KnowledgeGraph, config: Config, reached: Reached) -> float:
    """About how long bridges take in a training, validation included."""
    hops = [reached[min(hop, MOST_HOPS)] for hop in range(1, config.bridge_hops + 1)]
    sides = {"link": 2, "relation": 1, "multi": 3}[config.task]
    questions = sides * (len(kg.train) * (1 - config.bridge_dropout) + len(kg.valid) / 3)
    work = config.max_epochs * questions * config.bridge_dim / 32
    rows, edges = (work * sum(part) for part in zip(*hops, strict=True))
    return _seconds(config, row=rows, edge=edges)


def _all_seconds(kg: KnowledgeGraph, config: Config) -> float:
    """About how long it takes to encode every entity in every step."""
    if config.task == "relation":
        return 0.0
    steps = config.max_epochs * -(-len(kg.train) // config.batch_size)
    paths = kg.n_entities * config.n_paths * (2 if config.path_form == "joined" else 1)
    return _seconds(config, path=steps * paths)


def _seconds(config: Config, **work: float) -> float:
    device = pick_device(config.accelerator).type
    cores = torch.get_num_threads() if device == "cpu" else 1
    return sum(n * COST[device][kind] for kind, n in work.items()) / cores / 1e9


def _words(seconds: float) -> str:
    return f"{seconds / 3600:.0f} hours" if seconds > 7200 else f"{seconds / 60:.0f} minutes"


def _power(x: float) -> int:
    """The power of two next to a number, and at least 8."""
    return int(max(2 ** round(math.log2(max(x, 1))), 8))
