"""Small graphs for the tests, and the devices to try them on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from pathe.data.columns import ReadReport
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.data.vocabulary import Vocabulary
from pathe.graph.adjacency import Graph, build_graph
from pathe.graph.prepared import PreparedGraph

no_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
DEVICES = ["cpu", pytest.param("cuda", marks=no_gpu)]


def sorted_triples(rows: Iterable[Sequence[int]]) -> Tensor:
    return torch.tensor(sorted(set(map(tuple, rows))), dtype=torch.int32).view(-1, 3)


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
    return sorted(set(map(tuple, rows))), n_entities, n_relations


def kg_of(
    train: str, valid: str = "", test: str = "", inference: KnowledgeGraph | None = None
) -> KnowledgeGraph:
    """A graph from text such as `a r b; b r c`."""
    splits = [[row.split() for row in text.split(";") if row] for text in (train, valid, test)]
    rows = [row for split in splits for row in split]
    entities = Vocabulary([e for h, _, t in rows for e in (h, t)])
    relations = Vocabulary([r for _, r, _ in rows], "relation")
    tensors = [
        sorted_triples([(entities.id(h), relations.id(r), entities.id(t)) for h, r, t in split])
        for split in splits
    ]
    report = ReadReport(duplicates=4, literals=3, skipped=2, unknown_relations=1)
    return KnowledgeGraph("tiny", entities, relations, *tensors, report, inference)


def knowledge_graph(
    train: Iterable[Sequence[int]],
    valid: Iterable[Sequence[int]] = (),
    test: Iterable[Sequence[int]] = (),
) -> KnowledgeGraph:
    """A graph of entities e00, e01, ... and relations r0, r1, ..."""
    splits = [sorted_triples(rows) for rows in (train, valid, test)]
    everything = torch.cat(splits)
    n_entities = int(everything[:, [0, 2]].max()) + 1
    return KnowledgeGraph(
        "toy",
        Vocabulary([f"e{i:04}" for i in range(n_entities)]),
        Vocabulary([f"r{i}" for i in range(int(everything[:, 1].max()) + 1)], kind="relation"),
        *splits,
        ReadReport(),
    )


def graph_of_ids(
    train: Iterable[Sequence[int]],
    test: Iterable[Sequence[int]],
    n_entities: int,
    n_relations: int,
    valid: Iterable[Sequence[int]] = (),
) -> KnowledgeGraph:
    """A graph with entities and relations that may be in no triple."""
    return KnowledgeGraph(
        "random",
        Vocabulary([f"e{i:02}" for i in range(n_entities)]),
        Vocabulary([f"r{i}" for i in range(n_relations)], "relation"),
        *(sorted_triples(rows) for rows in (train, valid, test)),
        ReadReport(),
    )


def prepared_of(rows: Iterable[Sequence[int]], n_entities: int, n_relations: int) -> PreparedGraph:
    """The graph of these training triples, ready for a model."""
    return PreparedGraph(graph_of_ids(rows, (), n_entities, n_relations))


def toy() -> KnowledgeGraph:
    """60 entities in a ring with three relations that follow from each other; 20 % held out."""
    rows = [(i, 0, (i + 1) % 60) for i in range(60)]
    rows += [((i + 1) % 60, 1, i) for i in range(60)]
    rows += [(i, 2, (i + 2) % 60) for i in range(60)]
    valid, test = rows[3::10], rows[7::10]
    return knowledge_graph([r for r in rows if r not in valid + test], valid, test)
