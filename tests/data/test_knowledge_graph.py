"""Files, folders and names -> knowledge graphs."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.folders import SKIP, TEST, TRAIN, VALID, Row, folder_of, openke, refused, rows_of, tsv
from support.places import DATA, needs_data

from pathe.core.errors import DataError, PatheError
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.data.readers import ReadOptions


def test_folder(tmp_path: Path) -> None:
    graph = KnowledgeGraph.read(folder_of(tmp_path / "toy"))
    assert (graph.name, graph.n_entities, graph.n_relations) == ("toy", 4, 2)
    assert list(graph.entities) == ["a", "b", "c", "new"]
    assert graph.train.tolist() == [[0, 0, 1], [0, 1, 2], [1, 0, 0], [2, 1, 0]]
    assert rows_of(graph, "valid") == set(VALID)
    assert rows_of(graph, "test") == set(TEST)
    assert graph.train.dtype == torch.int32
    assert graph.report.rows == 6
    assert graph.inference is None


@pytest.mark.parametrize("name", ["dev", "validation", "VALID"])
def test_other_names_of_valid(tmp_path: Path, name: str) -> None:
    folder = folder_of(tmp_path / "toy", **{"train": TRAIN, name: VALID, "test": TEST})
    assert rows_of(KnowledgeGraph.read(folder), "valid") == set(VALID)


def test_duplicates_are_counted(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "toy", train=TRAIN * 3, valid=VALID, test=TEST * 2)
    graph = KnowledgeGraph.read(folder)
    assert graph.report.duplicates == 2 * len(TRAIN) + len(TEST)
    assert len(graph.train) == len(TRAIN)


def test_fingerprint_depends_on_content_alone(tmp_path: Path) -> None:
    graph = KnowledgeGraph.read(folder_of(tmp_path / "toy"))
    expected = graph.fingerprint()
    assert len(expected) == 16
    shuffled = folder_of(
        tmp_path / "other", ".tsv", train=TRAIN[::-1] + TRAIN, valid=VALID, test=TEST
    )
    assert KnowledgeGraph.read(shuffled).fingerprint() == expected
    for suffix in (".txt.gz", ".csv", ".parquet"):
        graph.save(tmp_path / suffix, suffix)
        assert KnowledgeGraph.read(tmp_path / suffix).fingerprint() == expected
    changed = [
        {"train": TRAIN[:-1], "valid": VALID, "test": TEST},
        {"train": TRAIN, "valid": TEST, "test": VALID},
        {"train": TRAIN, "valid": VALID, "test": [("c", "r", "newer")]},
    ]
    for i, splits in enumerate(changed):
        other = KnowledgeGraph.read(folder_of(tmp_path / f"changed{i}", **splits))
        assert other.fingerprint() != expected


names = st.text(min_size=1, max_size=4)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(names, names, names), min_size=1, max_size=10), st.randoms())
def test_row_order_never_matters(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], rng: random.Random
) -> None:
    folder = tmp_path_factory.mktemp("order")
    graphs = []
    for i in range(2):
        path = folder / f"{i}.csv"
        quoted = [["".join(('"', name.replace('"', '""'), '"')) for name in row] for row in rows]
        path.write_text(
            "".join(",".join(row) + "\n" for row in quoted), encoding="utf-8", newline=""
        )
        options = ReadOptions(header=False)
        graphs.append(KnowledgeGraph.read(path, split=(0.6, 0.2, 0.2), seed=1, options=options))
        rng.shuffle(rows)
    assert graphs[0].fingerprint() == graphs[1].fingerprint()
    assert rows_of(graphs[0], "train") | rows_of(graphs[0], "valid") | rows_of(
        graphs[0], "test"
    ) == set(rows)


def test_one_file(tmp_path: Path) -> None:
    path = tmp_path / "toy.v2.tsv"
    path.write_text(tsv(TRAIN + VALID))
    graph = KnowledgeGraph.read(path)
    assert graph.name == "toy.v2"
    assert rows_of(graph, "train") == {*TRAIN, *VALID}
    assert graph.valid.shape == graph.test.shape == (0, 3)
    parts = KnowledgeGraph.read(path, split=(0.6, 0.2, 0.2), seed=3)
    assert len(parts.train) + len(parts.valid) + len(parts.test) == 5
    assert parts.entities == graph.entities
    same = KnowledgeGraph.read(str(path), split=(0.6, 0.2, 0.2), seed=3)
    assert same.fingerprint() == parts.fingerprint()
    assert "sum to 1" in refused(path, split=(0.5, 0.1, 0.1))
    for wrong in ("0.8,0.1,0.1", 0.8, ("0.8", "0.1", "0.1")):
        assert "expected a tuple of floats" in refused(path, split=wrong)


def test_allow_unseen_reaches_the_split(tmp_path: Path) -> None:
    path = tmp_path / "x.tsv"
    path.write_text(tsv([(f"a{i}", "r", f"b{i}") for i in range(10)]))
    assert len(KnowledgeGraph.read(path, split=(0.8, 0.1, 0.1)).train) == 10
    assert len(KnowledgeGraph.read(path, split=(0.8, 0.1, 0.1), allow_unseen=True).train) == 8


def test_split_with_folders(tmp_path: Path) -> None:
    message = refused(folder_of(tmp_path / "toy"), split=(0.8, 0.1, 0.1))
    assert "its own splits" in message
    assert "its own splits" in refused(openke(tmp_path / "ids"), split=(0.8, 0.1, 0.1))
    (tmp_path / "empty").mkdir()
    assert "no train file" in refused(tmp_path / "empty", split=(0.8, 0.1, 0.1))
    only_train = folder_of(tmp_path / "one", train=TRAIN)
    assert len(KnowledgeGraph.read(only_train, split=(1.0, 0.0, 0.0)).train) == len(TRAIN)


def test_missing_splits(tmp_path: Path) -> None:
    message = refused(folder_of(tmp_path / "toy", train=TRAIN, test=TEST))
    assert "no valid file" in message
    assert str(tmp_path / "toy" / "train.txt") in message
    assert "--split" in message
    assert "no valid and no test" in refused(folder_of(tmp_path / "one", train=TRAIN))


def test_empty_and_ambiguous_splits(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "toy", train=TRAIN, valid=[], test=TEST)
    assert f"{folder / 'valid.txt'}: contains no triples" in refused(folder)
    (folder / "train.tsv").write_text(tsv(TRAIN))
    assert "train.tsv and train.txt" in refused(folder)


def test_folders_of_no_known_kind(tmp_path: Path) -> None:
    message = refused(tmp_path)
    assert "found nothing" in message
    (tmp_path / "notes.md").touch()
    message = refused(tmp_path)
    assert "notes.md" in message
    assert "train, valid and test" in message
    assert "entity2id.txt" in message


def test_unknown_relations(tmp_path: Path) -> None:
    bad = [*TEST, ("only", "zzz", "here"), ("a", "zzz", "b")]
    folder = folder_of(tmp_path / "toy", train=TRAIN, valid=VALID, test=bad)
    message = refused(folder)
    assert f"{folder / 'test.txt'}, line 2: the relation 'zzz'" in message
    graph = KnowledgeGraph.read(folder, options=SKIP)
    assert graph.report.unknown_relations == 2
    assert rows_of(graph, "test") == set(TEST)
    assert "only" not in graph.entities
    assert len(graph.train) == len(TRAIN)
    none = folder_of(tmp_path / "none", train=TRAIN, valid=VALID, test=bad[1:])
    assert "no triple in it has" in refused(none, options=SKIP)


def test_every_relation_is_kept_for_a_model_that_may_know_it(tmp_path: Path) -> None:
    extra = [*TEST, ("a", "zzz", "b")]
    folder = folder_of(tmp_path / "toy", train=TRAIN, valid=VALID, test=extra)
    graph = KnowledgeGraph.read(folder, every_relation=True)
    assert list(graph.relations) == ["r", "s", "zzz"]
    assert rows_of(graph, "test") == set(extra)


def test_bad_lines_pass_through(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "toy")
    with (folder / "valid.txt").open("a") as file:
        file.write("a\tr\n")
    assert f"{folder / 'valid.txt'}, line 2" in refused(folder)
    assert KnowledgeGraph.read(folder, options=SKIP).report.skipped == 1


# GraIL pairs


def test_grail_pairs(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "x_v1")
    unseen: dict[str, list[Row]] = {
        "train": [("u", "s", "v"), ("v", "s", "w")],
        "valid": [("u", "s", "w")],
        "test": [("w", "r", "u")],
    }
    sibling = folder_of(tmp_path / "x_v1_ind", **unseen)
    graph = KnowledgeGraph.read(folder)
    assert graph.inference is not None
    assert graph.inference.relations == graph.relations
    assert list(graph.inference.entities) == ["u", "v", "w"]
    assert rows_of(graph.inference, "test") == set(unseen["test"])
    assert "u" not in graph.entities
    alone = KnowledgeGraph.read(sibling)  # its own train lacks r
    assert alone.fingerprint() == graph.inference.fingerprint()
    assert alone.inference is None
    (sibling / "test.txt").write_text("w\tzzz\tu\n")
    assert f"{sibling / 'test.txt'}, line 1" in refused(folder)


# OpenKE


# Saving


def test_save_is_whole_or_nothing(tmp_path: Path) -> None:
    graph = KnowledgeGraph.read(folder_of(tmp_path / "toy"))
    with pytest.raises(PatheError, match="new or empty folder, it holds files"):
        graph.save(tmp_path / "toy")
    with pytest.raises(PatheError, match="new or empty folder, this is a file"):
        graph.save(tmp_path / "toy" / "train.txt")
    (tmp_path / "empty").mkdir()
    graph.save(tmp_path / "empty")
    assert sorted(p.name for p in (tmp_path / "empty").iterdir()) == [
        "test.txt",
        "train.txt",
        "valid.txt",
    ]
    odd = KnowledgeGraph.read(openke(tmp_path / "kg", relation2id="2\nr\t0\n\ts\t1\n"))
    with pytest.raises(DataError, match=r"\.csv or \.parquet"):
        odd.save(tmp_path / "odd")
    with pytest.raises(DataError) as caught:
        graph.save(tmp_path / "deep" / "new", ".doc")
    assert str(tmp_path / "deep" / "new" / "train.doc") in str(caught.value)
    assert not (tmp_path / "odd").exists()
    assert not (tmp_path / "deep").exists()
    assert not list(tmp_path.glob(".*"))


def test_a_failed_save_takes_its_parents_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = KnowledgeGraph.read(folder_of(tmp_path / "toy"))

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathe.data.knowledge_graph.write_rows", fail)
    with pytest.raises(PatheError) as caught:
        graph.save(tmp_path / "deep" / "er" / "new")
    target = tmp_path / "deep" / "er" / "new"
    assert str(caught.value) == (
        f"{target}: can't be written (the disk is full: No space left on device)"
    )
    assert sorted(p.name for p in tmp_path.iterdir()) == ["toy"]


def test_save_keeps_what_can_be_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "one.tsv"
    path.write_text(tsv(TRAIN))
    with pytest.raises(DataError, match=r"valid is empty.*--split"):
        KnowledgeGraph.read(path).save(tmp_path / "new")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(PatheError, match="other than the current"):
        KnowledgeGraph.read(folder_of(tmp_path / "toy")).save(".")


def test_pairs_are_saved_as_pairs(tmp_path: Path) -> None:
    folder_of(tmp_path / "x_ind", train=[("u", "s", "v")], valid=[("v", "r", "u")],
              test=[("v", "s", "u")])  # fmt: skip
    graph = KnowledgeGraph.read(folder_of(tmp_path / "x"))
    (tmp_path / "y_ind").mkdir()
    (tmp_path / "y_ind" / "kept").touch()
    with pytest.raises(PatheError, match="y_ind: expected a new or empty folder"):
        graph.save(tmp_path / "y")
    assert not (tmp_path / "y").exists()
    assert [*graph.save(tmp_path / "z")] == [tmp_path / "z", tmp_path / "z_ind"]
    back = KnowledgeGraph.read(tmp_path / "z")
    assert back.fingerprint() == graph.fingerprint()
    assert graph.inference is not None
    assert back.inference is not None
    assert back.inference.fingerprint() == graph.inference.fingerprint()


# The benchmarks


@needs_data
@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("fb15k-237", (14541, 237, 272115, 17535, 20466)),
        ("wn18rr", (40943, 11, 86835, 3034, 3134)),
        ("codex-s", (2034, 42, 32888, 1827, 1828)),
        ("codex-m", (17050, 51, 185584, 10310, 10311)),
        ("scale/yago3-10-quarter", (106196, 37, 269760, 5000, 5000)),
        ("scale/r25kg.tsv.gz", (111171, 16, 2132795, 0, 0)),
    ],
)
def test_benchmark_counts(name: str, counts: tuple[int, ...]) -> None:
    graph = KnowledgeGraph.read(DATA / name)
    sizes = (len(graph.train), len(graph.valid), len(graph.test))
    assert (graph.n_entities, graph.n_relations, *sizes) == counts
    assert graph.report.duplicates == graph.report.skipped == 0


@needs_data
def test_benchmark_pairs() -> None:
    names = [f"{name}_v{i}" for name in ("fb237", "wn18rr") for i in range(1, 5)]
    for folder in (DATA / "inductive" / name for name in names):
        graph = KnowledgeGraph.read(folder)
        assert graph.inference is not None
        assert graph.inference.relations == graph.relations
        alone = KnowledgeGraph.read(folder.with_name(f"{folder.name}_ind"))
        assert alone.fingerprint() == graph.inference.fingerprint()
    assert (graph.name, graph.n_relations, len(graph.train)) == ("wn18rr_v4", 9, 7940)


@needs_data
def test_benchmark_names_survive(tmp_path: Path) -> None:
    path = DATA / "codex-s" / "train.txt.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        lines = {tuple(line.rstrip("\n").split("\t")) for line in file}
    assert rows_of(KnowledgeGraph.read(path), "train") == lines
