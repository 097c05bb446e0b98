"""Prepared folders for the tests, made in tiny pieces so that every boundary is crossed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from pathe.core.tensors import Tensors
from pathe.core.types import Progress
from pathe.data import external_sort, part_runs
from pathe.data.columns import ReadOptions
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.graph import indexing
from pathe.graph.preparation import Request, prepare_folder
from pathe.graph.prepared import PreparedGraph


@contextmanager
def tiny_pieces(rows: int = 5, names: int = 3) -> Iterator[None]:
    """Reads, sorts and indexes a few rows at a time."""
    with ExitStack() as stack:
        for module, values in (
            (external_sort, {"ROWS": rows, "NAMES": names, "_SAMPLE": 2}),
            (indexing, {"ROWS": rows}),
            (part_runs, {"CHUNK": rows - 1, "NAMES": names, "LABELS": 2}),
        ):
            stack.enter_context(mock.patch.multiple(module, **values))
        yield


@contextmanager
def quietly(title: str) -> Iterator[Progress]:
    """Shows nothing; checks that progress is a part of the whole."""

    def check(done: int, total: int) -> None:
        assert 0 <= done <= total, title

    yield check


def prepare_data(
    data: Path | str, out: Path, show: Any = quietly, **options: Any
) -> dict[str, Any]:
    """Prepares a folder as the command does; returns its manifest."""
    fractions = options.pop("split", None)
    return prepare_folder(Request(str(data), ReadOptions(**options), fractions), out, show)


def write_parts(folder: Path, seed: int, held_out: bool) -> Path:
    """Writes part files of a random graph with hubs, loops, parallel edges and repeated rows."""
    draw = random.Random(seed)
    n = draw.randint(3, 40)
    places = [f"e{i}" for i in range(n // 2)] + [f"é\U0001f600 {i}" for i in range(n)]
    relations = [f"r {i}" for i in range(draw.randint(1, 4))]

    def rows(count: int) -> list[str]:
        ends = [places[int(len(places) * draw.random() ** 3)] for _ in range(2 * count)]
        pairs = zip(ends[::2], ends[1::2], strict=True)
        return [f"{h}\t{draw.choice(relations)}\t{t}\n" for h, t in pairs]

    splits = {"train": 3, "valid": 1, "test": 2} if held_out else {"": 3}
    for split, n_parts in splits.items():
        own = folder / split
        own.mkdir(parents=True, exist_ok=True)
        for i in range(n_parts):
            lines = rows(draw.randint(1, 30))
            if split != "valid" and split != "test":
                lines += [f"{places[0]}\t{relation}\t{places[0]}\n" for relation in relations]
            (own / f"part-{i:05}.tsv").write_text("".join(lines), encoding="utf-8")
    return folder


def assert_same_tensors(one: Tensors, other: Tensors) -> None:
    for own, theirs in zip(one.tensors(), other.tensors(), strict=True):
        assert own.dtype == theirs.dtype
        assert torch.equal(own, theirs)


def assert_same_graph(one: KnowledgeGraph, other: KnowledgeGraph) -> None:
    """Checks names, triples, the report and everything that is computed from the graph."""
    assert one.name == other.name
    assert one.entities == other.entities
    assert one.relations == other.relations
    for split, triples in one.splits.items():
        assert torch.equal(triples, other.splits[split])
        assert triples.dtype == other.splits[split].dtype
    assert one.fingerprint() == other.fingerprint()
    assert one.report == other.report
    ours, theirs = PreparedGraph(one), PreparedGraph(other)
    assert_same_tensors(ours.graph, theirs.graph)
    assert_same_tensors(ours.edges, theirs.edges)
    assert_same_tensors(ours.arrivals, theirs.arrivals)
    assert ours.arrivals.n_kinds == theirs.arrivals.n_kinds
    assert ours.edges.by_relation.size == theirs.edges.by_relation.size
    for splits in ((), ("train",), ("train", "valid")):
        for part in ("head", "relation", "tail"):
            assert_same_tensors(ours.known(*splits).lists(part), theirs.known(*splits).lists(part))
    assert torch.equal(ours.seen_R, theirs.seen_R)
    assert torch.equal(ours.train_M3, theirs.train_M3)
