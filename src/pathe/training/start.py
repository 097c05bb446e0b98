"""Builds the learner of a run: a new model, the pre-trained one, or another one to start from."""

from __future__ import annotations

from torch import Tensor

from pathe.core.config import Config
from pathe.core.errors import ConfigError
from pathe.graph.prepared import PreparedGraph
from pathe.model.artifact import Artifact, load_model
from pathe.model.builder import build_foundation, build_model
from pathe.training.graph_learner import GraphLearner
from pathe.training.learner import Learner
from pathe.training.vector_learner import PathELearner

SIZES = (
    "dim", "heads", "layers", "feedforward", "aggregator", "aggregator_layers", "projector_layers",
    "neighbour_contexts", "bridge", "bridge_dim", "bridge_hops", "relation_layers",
)  # settings that a model to start from fixes  # fmt: skip
TABLE = "encoder.table"  # the weight that belongs to a set of relations


def build_learner(
    config: Config, prepared: PreparedGraph, start: Artifact | None = None
) -> Learner:
    """Builds the learner of a new model, of the pre-trained one, or of a model to start from."""
    match config.init:
        case "none":
            start = None
        case "pretrained":
            start = load_model()
            if config.relation_vectors == "table":
                raise ConfigError("init=pretrained needs relation_vectors=graph, or both.")
        case "model":
            if start is None:
                raise ConfigError("init=model needs a model to start from: --from MODEL.")
    if start is not None:
        return _started(config, prepared, start)
    if config.relation_vectors != "table":
        return GraphLearner(build_foundation(config, prepared.n_relations), config, prepared)
    return PathELearner(build_model(config, prepared.n_relations), config, prepared)


def _started(config: Config, prepared: PreparedGraph, start: Artifact) -> Learner:
    """Builds the learner of a model with the weights of another one."""
    theirs, from_table = start.config, start.config.relation_vectors == "table"
    sizes = list(SIZES) if from_table else ["bridge_dim", "relation_layers"]
    if config.relation_vectors == "graph" or from_table:
        sizes.append("relation_vectors")  # a table of relations can be added, not removed
    for key in sizes:
        if getattr(config, key) != (its := getattr(theirs, key)):
            whose = "the pre-trained model" if config.init == "pretrained" else "the model"
            raise ConfigError(
                f"init={config.init} needs {key}={its}, as {whose} has it; got "
                f"{getattr(config, key)}."
            )
    if config.bridge_hops < theirs.bridge_hops:
        raise ConfigError(
            f"init={config.init} needs bridge_hops={theirs.bridge_hops} or more; got "
            f"{config.bridge_hops}."
        )
    if from_table:
        if theirs.task not in (config.task, "multi"):
            raise ConfigError(f"The model was trained for task {theirs.task}, not {config.task}.")
        if prepared.kg.relations != start.relations:
            raise ConfigError("The graph needs the relations of the model: align it first.")
        built = build_model(config, prepared.n_relations)
        kept = {k: v for k, v in start.model.state_dict().items() if k in built.state_dict()}
        built.load_state_dict(kept)
        return PathELearner(built, config, prepared)
    model = build_foundation(config, prepared.n_relations)
    weights = start.model.state_dict()
    if (table := weights.pop(TABLE, None)) is not None:
        assert start.relations is not None
        weights[TABLE] = _rows_of(table, list(start.relations), list(prepared.kg.relations))
    weights = _with_more_hops(weights, theirs.bridge_hops, config.bridge_hops)
    model.load_state_dict(model.state_dict() | weights)
    return GraphLearner(model, config, prepared)


def _with_more_hops(weights: dict[str, Tensor], n_theirs: int, n_ours: int) -> dict[str, Tensor]:
    """Returns weights for more hops: the new ones start as copies of the last."""
    last = f"bridge.rounds.{n_theirs - 1}."
    more = {
        f"bridge.rounds.{hop}.{key.removeprefix(last)}": weight
        for key, weight in weights.items()
        if key.startswith(last)
        for hop in range(n_theirs, n_ours)
    }
    return weights | more


def _rows_of(table_KD: Tensor, theirs: list[str], ours: list[str]) -> Tensor:
    """Returns a table of relations, both ways, for other relations; new ones have zeros."""
    rows = {name: i for i, name in enumerate(theirs)}
    found_2RD = table_KD.new_zeros(2, len(ours), table_KD.shape[1])
    for i, name in enumerate(ours):
        if name in rows:
            found_2RD[:, i] = table_KD.view(2, len(theirs), -1)[:, rows[name]]
    return found_2RD.flatten(0, 1)
