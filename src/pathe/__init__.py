"""PathE: knowledge-graph embeddings without an entity table."""

from __future__ import annotations

import importlib
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathe.datasets import KnowledgeGraph as KnowledgeGraph
    from pathe.errors import PatheError as PatheError
    from pathe.graph import Graph as Graph
    from pathe.graph import build_graph as build_graph
    from pathe.paths import mine_paths as mine_paths
    from pathe.paths import sample_paths as sample_paths

try:
    __version__ = version("pathe")
except PackageNotFoundError:  # a checkout on the path, not installed
    __version__ = "0+unknown"

# The front door: public name -> module. Loaded on first use, so `pathe --help` needs no torch.
_DOOR = {
    "Graph": "graph",
    "KnowledgeGraph": "datasets",
    "PatheError": "errors",
    "build_graph": "graph",
    "mine_paths": "paths",
    "sample_paths": "paths",
}
__all__ = [*_DOOR]


def __getattr__(name: str) -> Any:
    if name not in _DOOR:
        raise AttributeError(f"module 'pathe' has no attribute {name!r}; it has {', '.join(_DOOR)}")
    return getattr(importlib.import_module(f"pathe.{_DOOR[name]}"), name)


def __dir__() -> list[str]:
    return [*_DOOR, "__version__"]
