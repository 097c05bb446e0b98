"""PathE: knowledge-graph embeddings without an entity table."""

from __future__ import annotations

import importlib
import os
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathe.artifact import load_model as load
    from pathe.artifact import save_model as save
    from pathe.datasets import KnowledgeGraph as KnowledgeGraph
    from pathe.errors import PatheError as PatheError
    from pathe.evaluation import evaluate as evaluate
    from pathe.graph import Graph as Graph
    from pathe.graph import build_graph as build_graph
    from pathe.hub import pull_model as pull
    from pathe.hub import push_model as push
    from pathe.paths import mine_paths as mine_paths
    from pathe.paths import sample_paths as sample_paths
    from pathe.predict import Predictor as Predictor
    from pathe.recipes import recommend as recommend
    from pathe.runs import train as train
    from pathe.schema import coverage as coverage

# Idle OpenMP threads spin before they sleep. Where other work wants the cores, too, their default
# made training many times slower; a short spin costs nothing where none does.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")

try:
    __version__ = version("pathe")
except PackageNotFoundError:  # a checkout on the path, not installed
    __version__ = "0+unknown"

# The front door: public name -> where it is. Loaded on first use, so `pathe --help` needs no torch.
_DOOR = {
    "Graph": "graph.Graph",
    "KnowledgeGraph": "datasets.KnowledgeGraph",
    "PatheError": "errors.PatheError",
    "Predictor": "predict.Predictor",
    "build_graph": "graph.build_graph",
    "coverage": "schema.coverage",
    "evaluate": "evaluation.evaluate",
    "load": "artifact.load_model",
    "mine_paths": "paths.mine_paths",
    "pull": "hub.pull_model",
    "push": "hub.push_model",
    "recommend": "recipes.recommend",
    "sample_paths": "paths.sample_paths",
    "save": "artifact.save_model",
    "train": "runs.train",
}
__all__ = [
    "Graph",
    "KnowledgeGraph",
    "PatheError",
    "Predictor",
    "build_graph",
    "coverage",
    "evaluate",
    "load",
    "mine_paths",
    "pull",
    "push",
    "recommend",
    "sample_paths",
    "save",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _DOOR:
        raise AttributeError(f"module 'pathe' has no attribute {name!r}; it has {', '.join(_DOOR)}")
    module, attribute = _DOOR[name].split(".")
    return getattr(importlib.import_module(f"pathe.{module}"), attribute)


def __dir__() -> list[str]:
    return [*_DOOR, "__version__"]
