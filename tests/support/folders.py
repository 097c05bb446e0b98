"""Folders of triples for the tests, and what was read from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pathe.core.errors import DataError
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.data.readers import ReadOptions

SKIP = ReadOptions(on_error="skip")
Row = tuple[str, str, str]
TRAIN: list[Row] = [("b", "r", "a"), ("a", "r", "b"), ("a", "s", "c"), ("c", "s", "a")]
VALID: list[Row] = [("b", "r", "c")]
TEST: list[Row] = [("c", "r", "new")]

UNSEEN: dict[str, list[Row]] = {
    "train": TRAIN,
    "valid": [*VALID, ("only", "r", "here")],
    "test": [*TEST, ("a", "unheard", "b")],
}


def tsv(rows: list[Row]) -> str:
    return "".join("\t".join(row) + "\n" for row in rows)


def folder_of(path: Path, suffix: str = ".txt", **splits: list[Row]) -> Path:
    path.mkdir()
    for split, rows in (splits or {"train": TRAIN, "valid": VALID, "test": TEST}).items():
        (path / f"{split}{suffix}").write_text(tsv(rows))
    return path


def rows_of(graph: KnowledgeGraph, split: str) -> set[Row]:
    return {
        (graph.entities[h], graph.relations[r], graph.entities[t])
        for h, r, t in getattr(graph, split).tolist()
    }


def refused(data: Any, **options: Any) -> str:
    with pytest.raises(DataError) as caught:
        KnowledgeGraph.read(data, **options)
    return str(caught.value)


def openke(path: Path, **changes: str) -> Path:
    path.mkdir()
    files = {
        "entity2id": "4\nb c\t1\na\t0\nnew\t2\nunused\t3\n",
        "relation2id": "2\nr\t0\ns\t1\n",
        "train2id": "3\n0 1 0\n1\t0\t1\n1 0 1 \n",
        "valid2id": "1\r\n0 1 1\r\n",
        "test2id": "1\n2 0 0",
        **changes,
    }
    for name, text in files.items():
        (path / f"{name}.txt").write_text(text, newline="")
    return path
