"""Default settings for a graph and a machine: what `pathe train` uses by default.

Fine-tunes the pre-trained model if that fits a 20-minute budget; on small graphs, other models are
tried as well. docs/decisions/0008-default-settings.md says why.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pathe.core.config import Config, configure, current_names
from pathe.core.errors import ConfigError
from pathe.core.hardware import pick_device
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.graph.analysis import linked_pairs, wants_pairs_held_out
from pathe.graph.prepared import PreparedGraph, prepare
from pathe.model.artifact import Artifact, load_model
from pathe.training.costs import (
    MOST_HOPS,
    Reached,
    bridge_seconds,
    in_words,
    reached_entities,
    seconds_of,
    steps_of,
)
from pathe.training.memory import check_memory

BUDGET = 1200  # seconds of training for bridges, and as many for encoding
VECTORS = 1800  # seconds for encoding all entities without bridges
LEAST = 0.05  # least share of queries with bridges; below it, bridges are off
# With bridges: (triples below, epochs)
LARGE = 200_000
EPOCHS = ((20_000, 16), (LARGE, 12), (math.inf, 6))
RELATION_EPOCHS = ((20_000, 16), (LARGE, 4), (math.inf, 3))
STEPS, MOST_EPOCHS = 500, 100  # least number of steps, most epochs
# Fine-tuning
EPOCH = 30  # seconds of an epoch, at most,
LEAST_STEPS = 8  # but no fewer steps than this
LEAST_BATCH = 8  # within a time limit, batches are halved down to this for that many steps
FEW_EPOCHS, MOST_TUNED = 5, 20  # epochs
LEAST_VALID, MOST_VALID = 30, 2000  # validation triples
MANY = 500  # relations; with more, only link prediction is fine-tuned by default
TRIES = 600  # seconds for which several models are tried
TUNED, TABLE, NEW = "fine-tuned", "fine-tuned with a relation table", "new"
CONTINUED = "continued"
OWN = {
    "minutes", "epoch_triples", "valid_triples", "test_triples", "seed", "accelerator", "devices",
}  # settings of a run that one which starts from its model doesn't take over  # fmt: skip
TUNABLE = {
    "task", "init", "relation_vectors", "link_weight", "hold_out_pairs", "batch_size",
    "accumulate_batches", "learning_rate", "schedule", "gradient_clip", "max_epochs",
    "epoch_triples", "minutes", "patience", "min_delta", "valid_triples", "validate_every", "seed",
    "test_triples", "accelerator", "devices", "cuda_graphs",
}  # settings that fine-tuning uses  # fmt: skip
ALL = {"negative_sampling": "all"}
Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Plan:
    """What to train on a graph: configurations by name, most promising first, and a description.

    If there are several, train all and keep the one with the best validation score.
    """

    candidates: dict[str, Config]
    description: str

    @property
    def first(self) -> Config:
        return next(iter(self.candidates.values()))


def recommend(
    kg: KnowledgeGraph | PreparedGraph, settings: Settings | None = None
) -> tuple[Config, str]:
    """Returns one configuration for a graph on this machine, and a description.

    Given settings are kept.
    """
    found = plan(kg, settings, several=False)
    return found.first, found.description


def plan(
    kg: KnowledgeGraph | PreparedGraph, settings: Settings | None = None, *, several: bool = True
) -> Plan:
    """Returns what to train on a graph on this machine; keeps given settings.

    Fine-tunes the pre-trained model unless `init` or a setting that it has no use for is given. On
    small graphs, a fine-tuned model with a relation table and a new model are tried as well, unless
    `several` is False.
    """
    prepared, settings = prepare(kg), current_names(settings or {})
    given = configure(settings=settings)  # raises an error for invalid settings
    pick_device(given.accelerator)
    why = _why_new(given, settings)
    if why is not None:
        config, words, _ = _new_model(prepared, settings)
        return Plan({NEW: config}, words + why)
    tuned = _fine_tuning(prepared, settings)
    if isinstance(tuned, str):
        config, words, _ = _new_model(prepared, settings)
        return Plan({NEW: config}, f"{words}; trains a new model because fine-tuning {tuned}")
    config, _ = tuned
    n_valid = len(prepared.triples("valid", "seen"))
    several = several and not {"init", "relation_vectors"} & settings.keys()
    if several and n_valid >= LEAST_VALID and (tries := _candidates(prepared, settings, tuned)):
        return tries
    return Plan({TUNED: config}, _tuning_words(config))


def _why_new(given: Config, settings: Settings) -> str | None:
    """Returns why a new model is to be trained; None if the pre-trained one is fine-tuned."""
    if "init" in settings:
        return "" if given.init == "none" else None
    if given.relation_vectors == "table" and "relation_vectors" in settings:
        return ""
    if other := [key for key in settings if key not in TUNABLE]:
        return f"; trains a new model because {other[0]} is set"
    if given.devices > 1:
        return "; trains a new model because fine-tuning uses a single device"
    return None


def _candidates(
    prepared: PreparedGraph, settings: Settings, tuned: tuple[Config, float]
) -> Plan | None:
    """Returns a plan to try several models, or None if that takes too long."""
    config, seconds = tuned
    new, _, new_seconds = _new_model(prepared, {"init": "none", "task": config.task, **settings})
    new_seconds *= 2  # that is for bridges alone
    total = 2 * seconds + new_seconds
    if total > (60 * config.minutes or TRIES):
        return None
    with_table = configure(config, {"relation_vectors": "both"})
    found = {TUNED: config, TABLE: with_table, NEW: new}
    if config.minutes:  # shared out by what each is estimated to take
        shares = [seconds / total, seconds / total, new_seconds / total]
        found = {
            name: configure(one, {"minutes": config.minutes * share})
            for (name, one), share in zip(found.items(), shares, strict=True)
        }
    return Plan(found, (
        "trains three models and keeps the one with the best validation score: the pre-trained "
        "model, fine-tuned; the same with a relation table; and a new model (--set init=pretrained "
        "or init=none trains only one)"
    ))  # fmt: skip


def _fine_tuning(
    prepared: PreparedGraph, settings: Settings, start: Config | None = None
) -> tuple[Config, float] | str:
    """Returns settings to fine-tune a model, and an estimate of the seconds that it takes at most.

    `start` has the model's settings; by default, it is the pre-trained model.

    Epochs are short, so that training ends soon after validation stops improving. If it doesn't fit
    in memory, or a few short epochs take too long, returns why not, unless it is asked for.
    """
    kg, n = prepared.kg, len(prepared.kg.train)
    model = load_model().config if start is None else start
    keys = "relation_vectors", "bridge", "bridge_dim", "bridge_hops", "relation_layers"
    able = "multi" if 1 < kg.n_relations <= MANY else "link"
    recipe = {key: getattr(model, key) for key in keys} | {
        "init": "pretrained" if start is None else "model",
        "task": able if start is None or able == "link" else model.task,
        "batch_size": min(64, _power(n / 32)), "learning_rate": 5e-4,
        "max_epochs": max(MOST_TUNED, configure(settings=settings).validate_every), "patience": 4,
        "schedule": "cosine",
    }  # fmt: skip
    if wants_pairs_held_out(linked_pairs(kg)):
        recipe["hold_out_pairs"] = True
    config = _fitting(prepared, recipe, settings)
    if config is None:
        if "init" in settings or start is not None:
            check_memory(configure(settings={**recipe, **settings}), prepared)  # raises an error
        return "needs more memory than this machine has"
    budget = 60 * config.minutes or BUDGET
    one = configure(config, {"max_epochs": 1, "validate_every": 1, "epoch_triples": 0})
    per_triple = bridge_seconds(kg, one, reached_entities(prepared), 1.0)
    per_triple /= n + len(kg.valid) / 3
    while "batch_size" not in settings and config.minutes and config.batch_size > LEAST_BATCH:
        if LEAST_STEPS * config.batch_size * per_triple <= budget:
            break
        config = configure(config, {"batch_size": config.batch_size // 2})
    most = EPOCH if budget >= MOST_TUNED * EPOCH else budget / MOST_TUNED
    triples = min(max(int(most / per_triple), LEAST_STEPS * config.batch_size), n)
    valid = min(max(int(3 * most / per_triple), LEAST_VALID), MOST_VALID)
    epoch = per_triple * (triples + min(valid, len(kg.valid)) / 3)
    asked = "init" in settings or "minutes" in settings or start is not None
    if epoch * FEW_EPOCHS > budget and not asked:
        return "would take too long"
    fewest = max(1 if "minutes" in settings else FEW_EPOCHS, config.validate_every)
    chosen = {
        "epoch_triples": 0 if triples == n else triples,
        "valid_triples": valid,
        "max_epochs": min(max(int(budget / epoch), fewest), recipe["max_epochs"]),
    }
    config = configure(config, {k: v for k, v in chosen.items() if k not in settings})
    triples = min(config.epoch_triples, n) or n
    epoch = per_triple * (triples + min(config.valid_triples or n, len(kg.valid)) / 3)
    seconds = epoch * config.max_epochs
    return config, min(seconds, 60 * config.minutes or seconds)


def plan_from(kg: KnowledgeGraph | PreparedGraph, start: Artifact, settings: Settings) -> Plan:
    """Returns what to train on a graph, starting from a model; keeps given settings."""
    prepared, settings = prepare(kg), current_names(settings)
    if settings.get("init", "model") != "model":
        raise ConfigError(f"init={settings['init']} and a model to start from exclude each other.")
    if start.config.relation_vectors != "table":
        tuned = _fine_tuning(prepared, settings, start.config)
        assert not isinstance(tuned, str)
        return Plan({CONTINUED: tuned[0]}, _tuning_words(tuned[0], "the given model"))
    own = {key: value for key, value in start.config.as_dict().items() if key not in OWN}
    rate = start.config.learning_rate / 4  # a gentle start: its weights are good
    recipe = own | {"init": "model", "learning_rate": rate}
    config = _fitting(prepared, recipe, settings) or configure(settings={**recipe, **settings})
    epochs = f"up to {config.max_epochs} epoch{'s' * (config.max_epochs > 1)}"
    return Plan({CONTINUED: config}, f"the given model, trained further, {epochs}")


def _tuning_words(config: Config, model: str = "the pre-trained model") -> str:
    part = f" of {config.epoch_triples:,} triples" if config.epoch_triples else ""
    table = " with a relation table" if config.relation_vectors == "both" else ""
    tasks = {"multi": "links and relations", "link": "links", "relation": "relations"}
    epochs = f"{config.max_epochs} epoch{'s' * (config.max_epochs > 1)}{part}"
    return f"{model}, fine-tuned{table} for {tasks[config.task]}, up to {epochs}" + (
        " (--set init=none trains a new model)" if config.init == "pretrained" else ""
    )


def _new_model(prepared: PreparedGraph, settings: Settings) -> tuple[Config, str, float]:
    """Returns settings for a new model, a description, and an estimate of the seconds it takes."""
    kg, given = prepared.kg, configure(settings=settings)
    budget, why = 60 * given.minutes or BUDGET, ""
    if settings.get("bridge") != "none":
        reached = reached_entities(prepared)
        for recipe in _bridges(kg, given, reached):
            config = _fitting(prepared, recipe, settings)
            if config is None:
                why = "; bridges need more memory than this machine has"
                continue
            if _too_long(kg, config, settings, budget):
                continue
            share, seconds = _share(kg, config, settings, reached, budget)
            if share:
                config = configure(config, {"bridge_dropout": round(1 - share, 2)})
                return config, _words(config, share), seconds
            why = f"; bridges would take about {in_words(seconds)} here (--set bridge=paths)"
    if settings.get("bridge") != "paths":
        for recipe in _vectors(kg, given):
            config = _fitting(prepared, recipe, settings)
            if config is not None and not _too_long(
                kg, config, settings, 60 * given.minutes or VECTORS
            ):
                return config, f"vectors{why}", VECTORS
    return given, "the plain defaults, as nothing else fits in memory or time", VECTORS


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


def _fitting(prepared: PreparedGraph, recipe: Settings, settings: Settings) -> Config | None:
    """Returns the recipe with the given settings and a batch size that fits in memory, or None."""
    config = configure(settings={**recipe, **settings})
    while True:
        try:
            check_memory(config, prepared)
        except ConfigError:
            if "batch_size" in settings or config.batch_size <= 8:
                return None
            config = configure(config, {"batch_size": config.batch_size // 2})
        else:
            return config


def _share(
    kg: KnowledgeGraph, config: Config, settings: Settings, reached: Reached, budget: float
) -> tuple[float, float]:
    """Returns the share of queries that use bridges (0: none), and the seconds they take."""
    share = 1 - config.bridge_dropout
    whole, valid = (bridge_seconds(kg, config, reached, share) for share in (1.0, 0.0))
    seconds = valid + share * (whole - valid)
    if seconds > budget and "bridge" not in settings and "bridge_dropout" not in settings:
        fits = (budget - valid) / (whole - valid)
        return (fits, budget) if fits >= LEAST else (0.0, seconds)
    return share, seconds


def _too_long(kg: KnowledgeGraph, config: Config, settings: Settings, budget: float) -> bool:
    """Whether encoding all entities in every step takes too long; False if set by the user."""
    asked = "negative_sampling" in settings
    if asked or config.task == "relation" or config.negative_sampling != "all":
        return False
    paths = kg.n_entities * config.n_paths * (2 if config.path_form == "joined" else 1)
    return seconds_of(config, path=steps_of(kg, config) * paths) > budget


def _words(config: Config, share: float) -> str:
    """Describes the settings."""
    subset = "" if share >= 0.5 else f" for {share:.0%} of the queries"
    return f"vectors and bridges of {config.bridge_hops} hops{subset}"


def _power(x: float) -> int:
    """Returns the closest power of two, at least 8."""
    return int(max(2 ** round(math.log2(max(x, 1))), 8))
