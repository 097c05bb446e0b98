"""Small graphs for the tests."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor

from pathe.graph import Graph, build_graph


def sorted_triples(rows: list[tuple[int, int, int]]) -> Tensor:
    return torch.tensor(sorted(set(rows)), dtype=torch.int32).view(-1, 3)


def graph_of(
    rows: list[tuple[int, int, int]], n_entities: int | None = None, n_relations: int | None = None
) -> Graph:
    triples = sorted_triples(rows)
    n_entities = n_entities or int(triples[:, [0, 2]].max()) + 1
    return build_graph(triples, n_entities, n_relations or int(triples[:, 1].max()) + 1)


@st.composite
def triple_lists(draw: st.DrawFn) -> tuple[list[tuple[int, int, int]], int, int]:
    """(triples, n_entities, n_relations), with self-loops, parallel edges and isolated entities."""
    n_entities = draw(st.integers(1, 12))
    n_relations = draw(st.integers(1, 4))
    entity, relation = st.integers(0, n_entities - 1), st.integers(0, n_relations - 1)
    rows = draw(st.lists(st.tuples(entity, relation, entity), max_size=60))
    return sorted(set(rows)), n_entities, n_relations
