"""Default settings for a graph and a machine: what `pathe train` uses by default.

Enables bridges if they fit a 20-minute budget, on a subset of the training queries if necessary.
docs/decisions/0008-default-settings.md says why.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from pathe.core.config import Config, configure, current_names
from pathe.core.errors import ConfigError
from pathe.core.hardware import pick_device
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.graph.analysis import linked_pairs, wants_pairs_held_out
from pathe.graph.prepared import PreparedGraph, prepare
from pathe.model.artifact import load_model
from pathe.model.propagation import reach
from pathe.training.memory import check_fits

BUDGET = 1200  # seconds of training for bridges, and as many for encoding
VECTORS = 1800  # seconds for encoding all entities without bridges
LEAST = 0.05  # least share of queries with bridges; below it, bridges are off
MOST_HOPS = 5  # of bridges, if fewer hops reach too few entities
# With bridges: (triples below, epochs)
LARGE = 200_000
EPOCHS = ((20_000, 16), (LARGE, 12), (math.inf, 6))
RELATION_EPOCHS = ((20_000, 16), (LARGE, 4), (math.inf, 3))
STEPS, MOST_EPOCHS = 500, 100  # least number of steps, most epochs
EPOCH = 30  # seconds of an epoch of fine-tuning, at most
SAMPLE, SAMPLED_ROWS = 64, 1 << 24  # queries sampled to estimate what they reach
# Nanoseconds of training per step, per (query, entity) row and hop, per edge into a row, per path;
# on a CPU, per core.
COST = {
    "cuda": {"step": 5e6, "row": 1.0, "edge": 0.1, "path": 50},
    "cpu": {"step": 2e7, "row": 1400, "edge": 80, "path": 2e4},
}
ALL = {"negative_sampling": "all"}
Settings = Mapping[str, Any]
Reached = list[tuple[float, float]]


def recommend(
    kg: KnowledgeGraph | PreparedGraph, settings: Settings | None = None
) -> tuple[Config, str]:
    """Returns settings for a graph on this machine, and a description; keeps given settings."""
    prepared = prepare(kg)
    kg, settings = prepared.kg, current_names(settings or {})
    given = configure(settings=settings)  # raises an error for invalid settings
    pick_device(given.accelerator)
    if given.init == "pretrained":
        return _fine_tuning(prepared, settings)
    why = ""
    if settings.get("bridge") != "none":
        reached = _reached(prepared)
        for recipe in _bridges(kg, given, reached):
            config = _fitting(kg, recipe, settings)
            if config is None:
                why = "; bridges need more memory than this machine has"
                continue
            if _too_long(kg, config, settings, BUDGET):
                continue
            share, seconds = _share(kg, config, settings, reached)
            if share:
                config = configure(config, {"bridge_dropout": round(1 - share, 2)})
                return config, _words(config, share, seconds)
            why = f"; bridges would take {_time(seconds)} here (--set bridge=paths)"
    if settings.get("bridge") != "paths":
        for recipe in _vectors(kg, given):
            config = _fitting(kg, recipe, settings)
            if config is not None and not _too_long(kg, config, settings, VECTORS):
                return config, f"vectors{why}"
    return given, "the plain defaults, as nothing else fits in memory or time"


def _fine_tuning(prepared: PreparedGraph, settings: Settings) -> tuple[Config, str]:
    """Returns settings to fine-tune the pre-trained model: short epochs, until validation falls."""
    kg, n, model = prepared.kg, len(prepared.kg.train), load_model().config
    keys = "relation_vectors", "bridge", "bridge_dim", "bridge_hops", "relation_layers"
    recipe = {key: getattr(model, key) for key in keys} | {
        "batch_size": min(64, _power(n / 32)), "learning_rate": 5e-4, "max_epochs": 20,
        "patience": 4, "schedule": "cosine",
    }  # fmt: skip
    if wants_pairs_held_out(linked_pairs(kg)):
        recipe["hold_out_pairs"] = True
    config = configure(settings={**recipe, **settings})
    if "epoch_triples" not in settings:
        reached = _reached(prepared)
        per_triple = _bridge_seconds(kg, config, reached, 1.0) / config.max_epochs / n
        wanted = max(int(EPOCH / per_triple), 16 * config.batch_size)
        config = configure(config, {"epoch_triples": 0 if wanted >= n else wanted})
    triples = min(config.epoch_triples, n) or n
    share = triples / n
    seconds = _bridge_seconds(kg, config, _reached(prepared), share)
    part = "" if share == 1 else f" of {triples:,} triples"
    return config, (
        f"the pre-trained model, fine-tuned for up to {config.max_epochs} epochs{part}, at most "
        f"about {_time(seconds)} (--set init=none trains a new model)"
    )


def _bridges(kg: KnowledgeGraph, given: Config, reached: Reached) -> Iterator[Settings]:
    """Yields settings with bridges, best first: small batches, few epochs, a cosine schedule."""
    n, relation = len(kg.train), given.task == "relation"
    far = sum(rows < kg.n_entities / 2 for rows, _ in reached)  # hops to reach half the entities
    least = 4 if n >= LARGE and not relation else 3  # even if fewer reach all entities
    hops = min(max(far, least), MOST_HOPS)
    batch = min(512 if relation else 256, _power(n / 64))
    by_size = RELATION_EPOCHS if relation else EPOCHS
    epochs = max(next(epochs for most, epochs in by_size if n < most), -(-STEPS * batch // n))
    epochs = max(min(epochs, MOST_EPOCHS), given.validate_every)
    recipe = {
        "bridge": "paths", "bridge_hops": hops, "batch_size": batch, "max_epochs": epochs,
        "patience": max(10, epochs // 2), "learning_rate": 0.004, "schedule": "cosine",
        "bridge_dropout": 0.0 if relation or hops == MOST_HOPS else 0.5,
        "path_form": "joined" if hops == MOST_HOPS and not relation else "single",
        "test_paths": 32,
    }  # fmt: skip
    if given.hold_out_batch and wants_pairs_held_out(linked_pairs(kg)):
        recipe["hold_out_pairs"] = True
    if not given.pairwise:
        yield recipe | ALL
    yield recipe


def _vectors(kg: KnowledgeGraph, given: Config) -> Iterator[Settings]:
    """Yields settings without bridges, best first: large batches, smaller on small graphs."""
    n = len(kg.train)
    if not given.pairwise and given.task != "relation":
        yield ALL | {
            "neighbour_contexts": True, "batch_size": min(4096, _power(n / 64)),
            "learning_rate": 0.002, "max_epochs": max(40, given.validate_every), "patience": 5,
            "test_paths": 32,
        }  # fmt: skip
    yield {"batch_size": min(1024, _power(n / 64))}


def _fitting(kg: KnowledgeGraph, recipe: Settings, settings: Settings) -> Config | None:
    """Returns the recipe with the given settings and a batch size that fits in memory, or None."""
    config = configure(settings={**recipe, **settings})
    while True:
        try:
            check_fits(config, kg.n_entities, len(kg.train))
        except ConfigError:
            if "batch_size" in settings or config.batch_size <= 8:
                return None
            config = configure(config, {"batch_size": config.batch_size // 2})
        else:
            return config


def _reached(prepared: PreparedGraph) -> Reached:
    """Estimates, per number of hops, the entities that a query reaches and the edges into them."""
    kg, edges = prepared.kg, prepared.edges
    ends_M = kg.train[:, [0, 2]].long().flatten()
    b = min(max(SAMPLED_ROWS // kg.n_entities, 1), SAMPLE)
    generator = torch.Generator().manual_seed(0)
    sources_B = ends_M[torch.randint(len(ends_M), (b,), generator=generator)]
    found = reach(edges, sources_B, MOST_HOPS, edges.keep())
    edges_A = edges.offsets_E1.diff()[found.entities_A.long()].cumsum(0)
    return [(n / b, int(edges_A[n - 1]) / b) for n in found.sizes]


def _share(
    kg: KnowledgeGraph, config: Config, settings: Settings, reached: Reached
) -> tuple[float, float]:
    """Returns the share of queries that use bridges (0: none), and the seconds they take."""
    share = 1 - config.bridge_dropout
    whole, valid = (_bridge_seconds(kg, config, reached, share) for share in (1.0, 0.0))
    seconds = valid + share * (whole - valid)
    if seconds > BUDGET and "bridge" not in settings and "bridge_dropout" not in settings:
        fits = (BUDGET - valid) / (whole - valid)
        return (fits, BUDGET) if fits >= LEAST else (0.0, seconds)
    return share, seconds


def _bridge_seconds(
    kg: KnowledgeGraph, config: Config, reached: Reached, share: float
) -> float:  # fmt: skip
    """Estimates how long bridges take in training and validation, for a share of the queries."""
    hops = [reached[min(hop, MOST_HOPS)] for hop in range(1, config.bridge_hops + 1)]
    rows, edges = (sum(part) for part in zip(*hops, strict=True))
    sides = {"link": 2, "relation": 1, "multi": 3}[config.task]
    work = config.max_epochs * sides * config.bridge_dim / 32
    valid, train = work * len(kg.valid) / 3, work * len(kg.train) * share
    steps = _steps(kg, config) * (share > 0)
    return _seconds(config, row=(valid + train) * rows, edge=(valid + train) * edges, step=steps)


def _too_long(kg: KnowledgeGraph, config: Config, settings: Settings, budget: float) -> bool:
    """Whether encoding all entities in every step takes too long; False if set by the user."""
    asked = "negative_sampling" in settings
    if asked or config.task == "relation" or config.negative_sampling != "all":
        return False
    paths = kg.n_entities * config.n_paths * (2 if config.path_form == "joined" else 1)
    return _seconds(config, path=_steps(kg, config) * paths) > budget


def _steps(kg: KnowledgeGraph, config: Config) -> int:
    return config.max_epochs * -(-len(kg.train) // config.batch_size)


def _seconds(config: Config, **work: float) -> float:
    device = pick_device(config.accelerator).type
    cores = torch.get_num_threads() if device == "cpu" else 1
    return sum(n * COST[device][kind] for kind, n in work.items()) / cores / 1e9


def _words(config: Config, share: float, seconds: float) -> str:
    """Describes the settings, and how long bridges take if it is over a minute."""
    subset = "" if share >= 0.5 else f" for {share:.0%} of the queries"
    saving = f" saves about {_time(seconds)}" if seconds > 60 else " is faster"
    return f"vectors and bridges of {config.bridge_hops} hops{subset} (--set bridge=none{saving})"


def _time(seconds: float) -> str:
    return (
        f"{seconds / 3600:.0f} hours" if seconds > 7200 else f"{max(seconds / 60, 1):.0f} minutes"
    )


def _power(x: float) -> int:
    """Returns the closest power of two, at least 8."""
    return int(max(2 ** round(math.log2(max(x, 1))), 8))
