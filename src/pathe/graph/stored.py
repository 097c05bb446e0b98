"""The parts of a prepared graph in a folder: their names there, and opening them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

from torch import Tensor

from pathe.core.tensors import Tensors
from pathe.core.types import Part
from pathe.data.prepared_folder import PreparedFolder
from pathe.graph.adjacency import Adjacency, Contexts, Graph
from pathe.graph.edges import Chunks, Edges
from pathe.graph.known import COLUMNS, Lists
from pathe.graph.relation_graph import Arrivals

Record = TypeVar("Record", bound=Tensors)


def stored_graph(folder: PreparedFolder) -> Graph:
    """Returns the adjacency and contexts of the training triples."""
    return Graph(
        len(folder.entities),
        len(folder.relations),
        _record(Adjacency, folder, "outgoing"),
        _record(Adjacency, folder, "incoming"),
        _record(Contexts, folder, "out_contexts"),
        _record(Contexts, folder, "in_contexts"),
    )


def stored_edges(folder: PreparedFolder) -> Edges:
    """Returns the edges in both directions."""
    by_relation = _record(Chunks, folder, "by_relation", size=folder.about["chunk_size"])
    n_relations = len(folder.relations)
    return _record(Edges, folder, "edges", n_relations=n_relations, by_relation=by_relation)


def stored_arrivals(folder: PreparedFolder) -> Arrivals:
    """Returns which kinds of edges arrive at each entity."""
    n_kinds, n_entities = 2 * len(folder.relations), len(folder.entities)
    return _record(Arrivals, folder, "arrivals", n_kinds=n_kinds, n_entities=n_entities)


def stored_known(folder: PreparedFolder) -> dict[Part, Lists]:
    """Returns the known answers of all splits, by the part of a triple that is asked for."""
    return {part: _record(Lists, folder, f"known_{part}") for part in COLUMNS}


def _record(kind: type[Record], folder: PreparedFolder, name: str, **given: Any) -> Record:
    """Returns a record whose tensors are in files NAME.FIELD."""
    found: dict[str, Tensor] = {
        f.name: folder.tensor(f"{name}.{f.name}")
        for f in fields(kind)  # type: ignore[arg-type]
        if f.name not in given
    }
    return kind(**found, **given)
