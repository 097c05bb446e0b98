"""OpenKE's folders of ids."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.folders import SKIP, folder_of, openke, refused, rows_of

from pathe.data.knowledge_graph import KnowledgeGraph


def test_openke(tmp_path: Path) -> None:
    graph = KnowledgeGraph.read(openke(tmp_path / "kg"))
    assert rows_of(graph, "train") == {("a", "r", "b c"), ("b c", "s", "a")}
    assert rows_of(graph, "valid") == {("a", "s", "b c")}
    assert rows_of(graph, "test") == {("new", "r", "a")}
    assert list(graph.entities) == ["a", "b c", "new"]
    assert (graph.report.rows, graph.report.duplicates) == (5, 1)
    splits = {s: sorted(rows_of(graph, s)) for s in ("train", "valid", "test")}
    plain = KnowledgeGraph.read(folder_of(tmp_path / "plain", **splits))
    assert plain.fingerprint() == graph.fingerprint()


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("train2id", "3\n0 1 0\n", "line 1 says 3, 1 follow"),
        ("train2id", "2\n0 1 0\n0 1\n", "line 3: expected head, tail and relation ids"),
        ("train2id", "2\n0 1 0\n0 1 2\n", "line 3: expected head, tail and relation ids below 4"),
        ("train2id", "2\n0 1 0\n0 -1 1\n", "line 3"),
        ("train2id", "0 1 0\n", "line 1: expected a count"),
        ("valid2id", "0\n", "no triples"),
        ("valid2id", "", "it is empty"),
        ("entity2id", "3\na\t0\nb\t1\nc\t3\n", "line 4: expected a name, a tab and an id"),
        ("entity2id", "3\na\t0\nb\t1\nc\t1\n", "line 4: the id 1 already belongs to 'b'"),
        ("entity2id", "3\na\t0\nb\t1\na\t2\n", "the name 'a' has more than one id"),
        ("relation2id", "2\nr\t0\n", "line 1 says 2"),
        ("relation2id", "1\nr\t0\n", "train2id.txt, line 3"),
    ],
)
def test_bad_openke(tmp_path: Path, file: str, text: str, words: str) -> None:
    message = refused(openke(tmp_path / "kg", **{file: text}))
    assert words in message
    assert file in message or words.startswith("train2id")


def test_openke_self_loops(tmp_path: Path) -> None:
    graph = KnowledgeGraph.read(openke(tmp_path / "kg", test2id="1\n0 0 1\n"))
    assert rows_of(graph, "test") == {("a", "s", "a")}


def test_openke_has_one_file_of_each_kind(tmp_path: Path) -> None:
    folder = openke(tmp_path / "kg")
    (folder / "train2id.tsv").write_text("1\n0 0 0\n")
    assert "expected one train2id file, found train2id.tsv and train2id.txt" in refused(folder)


def test_openke_skips_and_misses(tmp_path: Path) -> None:
    folder = openke(tmp_path / "kg", train2id="3\n0 1 0\n9 9 9\n1 0 1\n")
    graph = KnowledgeGraph.read(folder, options=SKIP)
    assert (len(graph.train), graph.report.skipped) == (2, 1)
    assert "train2id.txt, line 3" in graph.report.first_skipped
    (folder / "valid2id.txt").unlink()
    assert "valid2id.txt" in refused(folder)
    folder = openke(tmp_path / "unknown", train2id="1\n0 1 0\n")
    assert "valid2id.txt, line 2: the relation 's'" in refused(folder)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("entity2id", "{}\na\t0\n", "line 1: expected a count"),
        ("entity2id", "4\nb c\t{}\na\t0\nnew\t2\nunused\t3\n", "line 2: expected a name"),
        ("train2id", "3\n0 {} 0\n1\t0\t1\n1 0 1\n", "line 2: expected head, tail and relation"),
    ],
)
def test_numbers_of_thousands_of_digits_are_refused(tmp_path, name, text, said):
    assert said in refused(openke(tmp_path / "x", **{name: text.format("9" * 5000)}))
