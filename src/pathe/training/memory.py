"""Estimates a step's memory and rejects settings that won't fit."""

from __future__ import annotations

from pathe.core.config import Config
from pathe.core.errors import ConfigError
from pathe.core.hardware import check_room, free_memory, pick_device
from pathe.graph.paths import N_POSITIONS
from pathe.graph.prepared import PreparedGraph
from pathe.graph.relation_graph import DENSE, N_MEETINGS
from pathe.model.builder import weight_shapes
from pathe.model.foundation import BRIDGED
from pathe.training.costs import MOST_HOPS, reached_entities
from pathe.training.mix import PAIRS


def check_memory(config: Config, prepared: PreparedGraph) -> None:
    """Raises a ConfigError if a training step on a graph won't fit in free memory."""
    check_weights(config, prepared.n_relations)
    if config.relation_vectors == "table":
        check_fits(config, prepared.n_entities, len(prepared.kg.train))
        return
    n_bytes, free = graph_step_bytes(config, prepared), free_memory(pick_device(config.accelerator))
    if n_bytes > free:
        raise ConfigError(
            f"A training step would take about {n_bytes / 2**30:.1f} GiB; {free / 2**30:.1f} GiB "
            f"are free. Lower batch_size ({config.batch_size})"
            + (", or set task=link." if config.task != "link" else ".")
        )


def check_weights(config: Config, n_relations: int) -> None:
    """Raises a ConfigError if a model with its gradients and Adam's state won't fit."""
    n_weights = sum(shape.numel() for shape in weight_shapes(config, n_relations).values())
    widths = "dim, feedforward" if config.relation_vectors == "table" else "bridge_dim"
    check_room(
        4 * 4 * n_weights,
        f"Training a model of {n_weights:,} parameters",
        f"Lower {widths} or the number of layers.",
        pick_device(config.accelerator),
    )


def graph_step_bytes(config: Config, prepared: PreparedGraph) -> float:
    """Estimates the bytes of a step of a model whose relation vectors come from the graph."""
    n_entities, n_kinds = prepared.n_entities, 2 * prepared.n_relations
    queries = 2 * min(config.batch_size, len(prepared.kg.train))
    rows, _ = reached_entities(prepared)[min(config.bridge_hops, MOST_HOPS)]
    states = queries * rows * config.bridge_dim * (2 * config.bridge_hops + 4)
    if config.task != "link":  # rows of all entities, for the best relations of each pair
        pairs = max(min(config.batch_size, len(prepared.kg.train)) // PAIRS, 1)
        pair_rows = pairs * min(BRIDGED, prepared.n_relations) * n_entities
        states += pair_rows * config.bridge_dim * (2 * config.pair_hops + 4)
    encoded = min(queries, n_kinds) if config.task == "link" else prepared.n_relations
    is_dense = n_kinds * n_kinds * N_MEETINGS <= DENSE
    per_layer = encoded * n_kinds * config.bridge_dim * (6 if is_dense else 6 + N_MEETINGS)
    if is_dense:
        per_layer += config.bridge_dim * n_kinds * n_kinds
    return 4 * (states + config.relation_layers * per_layer + 4 * queries * n_entities)


def check_fits(config: Config, n_entities: int, n_triples: int) -> None:
    """Raises a ConfigError if a training step won't fit in free memory."""
    batch = min(config.batch_size, n_triples)
    n_encoded = 2 * batch
    if config.task != "relation":
        n_encoded += {
            "each": 2 * batch * config.negatives,
            "shared": 2 * config.negatives,
            "all": n_entities,
        }[config.negative_sampling]
    n_paths = min(n_encoded, n_entities) * config.n_paths
    width = (4 if config.path_form == "joined" else 2) * config.max_hops + 1
    n_pairs = batch  # scored pairs of query and candidate
    if config.task != "relation":
        n_answers = n_entities if config.negative_sampling == "all" else config.negatives
        n_pairs += 2 * batch * n_answers
    per_path = 16 * config.dim + 3 * config.feedforward + 4 * config.heads * width
    if config.positions != "focused":
        per_path += 4 * config.heads * N_POSITIONS
    if config.aggregator != "mean":
        per_path += 24 * config.dim * config.aggregator_layers
    if config.layers > 1:  # layers before the last keep all tokens' vectors
        inner = 14 * config.dim + 3 * config.feedforward + 3 * config.heads * width
        per_path += width * (4 * config.dim + (config.layers - 1) * inner)
    per_pair = 6.0  # scores and their gradients
    if config.pairwise:  # each pair is aggregated separately
        per_pair += 2 * (config.n_paths + 1) * 24 * config.dim * config.aggregator_layers
    elif config.negative_sampling == "each":
        per_pair += 3 * config.dim
    n_bytes = 4 * (n_paths * per_path + n_pairs * per_pair)
    for_bridges = 0.0
    if config.bridge == "paths":  # states of reached entities, estimated from the mean degree
        reached = min(n_entities, (1 + 2 * n_triples / n_entities) ** config.bridge_hops)
        queries = 2 * batch * (1 - config.bridge_dropout)
        for_bridges = 4 * queries * reached * config.bridge_dim * (2 * config.bridge_hops + 4)
        for_bridges += 16 * 2 * batch * n_entities  # rows by entity, scores and their gradients
    n_bytes += for_bridges
    device = pick_device(config.accelerator)
    free = free_memory(device)
    if n_bytes > free:
        raise ConfigError(
            f"A training step would encode up to {n_paths:,} paths of {width} tokens and take "
            f"about {n_bytes / 2**30:.1f} GiB; {free / 2**30:.1f} GiB are free. Lower batch_size "
            f"({config.batch_size}), n_paths ({config.n_paths}), max_hops ({config.max_hops}) or "
            "negatives, or set negative_sampling=shared."
            + (" Bridges take most of it: lower batch_size." if for_bridges > n_bytes / 2 else "")
        )
