"""Builds models, featurizers and scorers from a Config; the parts themselves take plain values."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from pathe.core.config import PATHS, Config
from pathe.core.errors import ConfigError
from pathe.core.hardware import check_room
from pathe.core.randomness import keyed
from pathe.graph.held_out import HeldOut
from pathe.graph.paths import N_POSITIONS, mine_paths
from pathe.graph.prepared import PreparedGraph
from pathe.model.aggregators import (
    Aggregator,
    JointAggregator,
    LSTMAggregator,
    MeanAggregator,
    TransformerAggregator,
)
from pathe.model.bridge import TableBridge
from pathe.model.encoder import PathEncoder
from pathe.model.featurizer import Featurizer
from pathe.model.foundation import FoundationModel
from pathe.model.heads import LinkHead, RelationHead
from pathe.model.pathe import PathE, on_device, published_count
from pathe.model.projector import NodeProjector
from pathe.model.scorer import GraphScorer, Scorer, VectorScorer

BATCHES, STEP, VALIDATION, MINING, TEST = range(1, 6)  # purposes of derived seeds


def derived_seed(seed: int, *purpose: int) -> int:
    """Returns an independent seed per purpose."""
    return int(keyed(seed, *purpose))


def build_model(config: Config, n_relations: int) -> PathE:
    """Builds a model for given relations, with initial weights drawn from the config's seed."""
    link, relation = config.task != "relation", config.task != "link"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        # the order matters for reproducibility: each part draws its weights
        return PathE(
            NodeProjector(
                n_relations,
                config.dim,
                layers=config.projector_layers,
                log_counts=config.context_counts == "log1p",
                dropout=config.context_dropout,
                neighbours=config.neighbour_contexts,
            ),
            nn.Embedding(n_relations, config.dim),
            PathEncoder(
                config.dim, config.heads, config.layers, config.feedforward, config.dropout
            ),
            build_aggregator(config),
            LinkHead(n_relations, config.dim) if link else None,
            RelationHead(n_relations, config.dim) if relation else None,
            TableBridge(
                n_relations, config.bridge_dim, config.bridge_hops, link=link, relation=relation
            )
            if config.bridge == "paths"
            else None,
        )


def build_foundation(config: Config, n_relations: int = 0) -> FoundationModel:
    """Builds a model for any graph, or one with a table of relations besides.

    Initial weights are drawn from the config's seed; the table starts as zeros.
    """
    n_kinds = 2 * n_relations if config.relation_vectors == "both" else 0
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        size = config.bridge_dim, config.bridge_hops, config.relation_layers
        return FoundationModel(*size, config.pair_hops, n_kinds)


def build(config: Config, n_relations: int) -> PathE | FoundationModel:
    """Builds a model of either kind."""
    return (build_model if config.relation_vectors == "table" else build_foundation)(
        config, n_relations
    )


class _Undrawn(TorchFunctionMode):
    """Skips initialization, which imports torch's compiler on the device "meta" (0.8 s)."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.__name__.endswith("_") and not func.__name__.endswith("__"):  # in place
            return args[0] if args else kwargs["tensor"]
        return (torch.empty if func is torch.randn else func)(*args, **(kwargs or {}))


def weight_shapes(config: Config, n_relations: int) -> dict[str, torch.Size]:
    """Returns the shapes of a model's weights, which take no memory here."""
    with torch.device("meta"), _Undrawn():
        weights = build(config, n_relations).state_dict()
    return {name: weight.shape for name, weight in weights.items()}


def build_aggregator(config: Config) -> Aggregator:
    """Builds the config's aggregator."""
    size = config.dim, config.aggregator_layers, config.dropout
    match config.aggregator:
        case "mean":
            return MeanAggregator()
        case "lstm":
            return LSTMAggregator(config.dim)
        case "transformer":
            return TransformerAggregator(*size)
        case "transformer-joint":
            return JointAggregator(*size)


def build_featurizer(config: Config, prepared: PreparedGraph, n_paths: int) -> Featurizer:
    """Builds the featurizer of a graph's entities, with n_paths paths per entity."""
    if not 1 <= n_paths <= PATHS:
        raise ConfigError(f"n_paths must be at least 1 and at most {PATHS:,}; got {n_paths}.")
    both_sides = config.path_form == "joined" and config.positions == "absolute"
    per_hop = 4 if both_sides else 2
    if per_hop * config.max_hops + 1 > N_POSITIONS:
        raise ConfigError(
            f"max_hops {config.max_hops} needs {per_hop * config.max_hops + 1} positions; the "
            f"model has {N_POSITIONS}. Use at most {(N_POSITIONS - 1) // per_hop}."
        )
    store = None
    if config.path_source == "mined":
        n_mined, seed = max(config.n_mined, n_paths), derived_seed(config.seed, MINING)
        graph, width = (
            prepared.graph,
            (4 if config.path_form == "joined" else 2) * config.max_hops + 1,
        )
        check_room(
            12 * graph.n_entities * n_mined * width,
            f"Mining {n_mined:,} paths for each of {graph.n_entities:,} entities",
            "Lower n_mined, n_paths or max_hops, or set path_source=fresh.",
        )
        store = mine_paths(graph, n_mined, config.max_hops, seed=seed, form=config.path_form)
    return Featurizer(
        prepared,
        n_paths,
        config.max_hops,
        config.path_form,
        config.positions,
        store,
        config.neighbour_contexts,
    )


def build_scorer(
    model: PathE | FoundationModel,
    config: Config,
    prepared: PreparedGraph,
    *,
    n_paths: int | None = None,
    seed: int | None = None,
    frontier: int | None = None,
) -> Scorer:
    """Builds the scorer of a model on a graph, by default with evaluation's paths and seed.

    `frontier` is the number of entities per query that bridges pass messages between; 0: all. Only
    models that work on any graph have one by default, on large graphs.
    """
    seed = derived_seed(config.seed, TEST) if seed is None else seed
    model = on_device(model, prepared.device).eval()
    if isinstance(model, FoundationModel):
        return GraphScorer(model, prepared, seed, frontier=frontier)
    featurizer = build_featurizer(config, prepared, n_paths or config.eval_paths)
    return VectorScorer(model, featurizer, seed, frontier)


def replace_graph(
    scorer: Scorer, config: Config, prepared: PreparedGraph, changed_U: Tensor
) -> None:
    """Replaces a scorer's graph; some entities have gained or lost facts, and some may be new."""
    match scorer:
        case GraphScorer():
            scorer.take(prepared)
        case VectorScorer():
            featurizer = build_featurizer(config, prepared, scorer.featurizer.n_paths)
            scorer.vectors.take(featurizer, changed_U)


def scorer_without(scorer: Scorer, config: Config, triples_N3: Tensor) -> Scorer:
    """Returns a scorer of the same graph without some triples' edges; they are still known."""
    match scorer:
        case GraphScorer():
            held_out = HeldOut(scorer.prepared.ids(triples_N3))
            return scorer.without(held_out)
        case VectorScorer():
            smaller = scorer.prepared.without(triples_N3)
            featurizer = build_featurizer(config, smaller, scorer.featurizer.n_paths)
            return VectorScorer(scorer.model, featurizer, scorer.seed, scorer.frontier)
    raise TypeError(f"an unknown scorer: {type(scorer)}")


def paper_count(config: Config, n_relations: int) -> int | None:
    """Counts parameters as the paper does; None for settings that the paper doesn't have."""
    if (
        config.bridge != "none"
        or config.relation_vectors != "table"
        or config.neighbour_contexts
        or config.projector_layers != 1
        or config.aggregator not in ("mean", "transformer")
    ):
        return None
    layers = config.aggregator_layers if config.aggregator == "transformer" else 0
    return published_count(n_relations, config.dim, config.feedforward, config.layers, layers)
