"""Settings -> parts. Config stops here: what is built takes plain numbers."""

from __future__ import annotations

import torch

from pathe.config import Config
from pathe.encoding import Describer, describer
from pathe.errors import ConfigError
from pathe.graph import Graph
from pathe.model import PathE, published_count
from pathe.paths import N_POSITIONS
from pathe.randomness import keyed

BATCHES, STEP, VALIDATION, MINING, TEST = range(1, 6)  # what a seed is for


def derived_seed(seed: int, *purpose: int) -> int:
    """A seed of its own for each purpose."""
    return int(keyed(seed, *purpose))


def build_model(config: Config, n_relations: int) -> PathE:
    """A model as the settings say, its first weights drawn from the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        return PathE(
            n_relations,
            dim=config.dim,
            projector_layers=config.projector_layers,
            log_counts=config.contexts == "log1p",
            context_dropout=config.context_dropout,
            refine=config.refine,
            turned=config.path_form == "mixed",
            n_heads=config.heads,
            n_layers=config.layers,
            feedforward=config.feedforward,
            dropout=config.dropout,
            aggregator=config.aggregator,
            aggregator_layers=config.aggregator_layers,
            bridge_dim=config.bridge_dim if config.bridge == "paths" else 0,
            bridge_hops=config.bridge_hops,
            link=config.task != "relation",
            relation=config.task != "link",
        )


def build_describer(
    config: Config, graph: Graph, n_paths: int, *, hold_out: bool = False
) -> Describer:
    """How the settings describe the graph's entities, with n_paths paths each."""
    counts_twice = config.positions == "signed"  # there and back
    counts_twice |= config.path_form == "joined" and config.positions == "absolute"
    per_hop = 4 if counts_twice else 2
    if per_hop * config.max_hops + 1 > N_POSITIONS:
        raise ConfigError(
            f"max_hops {config.max_hops} needs {per_hop * config.max_hops + 1} positions; the "
            f"model has {N_POSITIONS}. Use at most {(N_POSITIONS - 1) // per_hop}."
        )
    return describer(
        graph,
        n_paths=n_paths,
        max_hops=config.max_hops,
        form=config.path_form,
        positions=config.positions,
        n_mined=max(config.n_mined, n_paths) if config.path_source == "mined" else 0,
        seed=derived_seed(config.seed, MINING),
        hold_out=hold_out,
        bridges=config.bridge == "paths",
        refine=config.refine,
    )


def paper_count(config: Config, n_relations: int) -> int | None:
    """Parameters as the paper counts them; None for parts that it doesn't count."""
    if (
        config.bridge != "none"
        or config.refine
        or config.path_form == "mixed"
        or config.projector_layers != 1
        or config.aggregator not in ("mean", "transformer")
    ):
        return None
    layers = config.aggregator_layers if config.aggregator == "transformer" else 0
    return published_count(n_relations, config.dim, config.feedforward, config.layers, layers)
