"""PathE: knowledge-graph embeddings without an entity table."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str
    from pathe.core.errors import PatheError as PatheError
    from pathe.data.knowledge_graph import KnowledgeGraph as KnowledgeGraph
    from pathe.data.schema import coverage as coverage
    from pathe.evaluation.ranking import evaluate as evaluate
    from pathe.graph.adjacency import Graph as Graph
    from pathe.graph.adjacency import build_graph as build_graph
    from pathe.graph.paths import mine_paths as mine_paths
    from pathe.graph.paths import sample_paths as sample_paths
    from pathe.model.artifact import load_model as load  # noqa: F401
    from pathe.model.artifact import save_model as save  # noqa: F401
    from pathe.model.hub import pull_model as pull  # noqa: F401
    from pathe.model.hub import push_model as push  # noqa: F401
    from pathe.predict.predictor import Predictor as Predictor
    from pathe.training.defaults import recommend as recommend
    from pathe.training.train import train as train

# Idle OpenMP threads spin before they sleep. On busy cores the default made training many times
# slower; a short spin costs nothing on idle ones.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")

# The public names and where they are; loaded on first use, so that `pathe --help` needs no torch.
_DOOR = {
    "Graph": "graph.adjacency.Graph",
    "KnowledgeGraph": "data.knowledge_graph.KnowledgeGraph",
    "PatheError": "core.errors.PatheError",
    "Predictor": "predict.predictor.Predictor",
    "build_graph": "graph.adjacency.build_graph",
    "coverage": "data.schema.coverage",
    "evaluate": "evaluation.ranking.evaluate",
    "load": "model.artifact.load_model",
    "mine_paths": "graph.paths.mine_paths",
    "pull": "model.hub.pull_model",
    "push": "model.hub.push_model",
    "recommend": "training.defaults.recommend",
    "sample_paths": "graph.paths.sample_paths",
    "save": "model.artifact.save_model",
    "train": "training.train.train",
}
__all__ = list(_DOOR)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name not in _DOOR:
        raise AttributeError(f"module 'pathe' has no attribute {name!r}; it has {', '.join(_DOOR)}")
    module, _, attribute = _DOOR[name].rpartition(".")
    return getattr(importlib.import_module(f"pathe.{module}"), attribute)


def __dir__() -> list[str]:
    return [*_DOOR, "__version__"]


def _version() -> str:
    """Returns the installed version; looking it up takes longer than all else here."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("pathe")
    except PackageNotFoundError:  # a checkout on the path, not installed
        return "0+unknown"
