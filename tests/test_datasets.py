"""Files, folders and names -> knowledge graphs."""

from __future__ import annotations

import gzip
import random
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pathe.datasets import KnowledgeGraph
from pathe.errors import DataError, PatheError, UnknownNameError
from pathe.readers import ReadOptions
from pathe.triples import Vocabulary

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the benchmark data isn't here")
SKIP = ReadOptions(on_error="skip")
Row = tuple[str, str, str]
TRAIN: list[Row] = [("b", "r", "a"), ("a", "r", "b"), ("a", "s", "c"), ("c", "s", "a")]
VALID: list[Row] = [("b", "r", "c")]
TEST: list[Row] = [("c", "r", "new")]


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
    assert "--split" in refused(path, split=(0.5, 0.1, 0.1))
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
    assert f"{folder / 'valid.txt'}: no triples" in refused(folder)
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


def test_given_relations(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "toy")
    relations = Vocabulary(["q", "r", "s"], "relation")
    graph = KnowledgeGraph.read(folder, relations=relations)
    assert graph.relations == relations
    assert rows_of(graph, "train") == set(TRAIN)
    assert "train.txt, line 3: the relation 's'" in refused(
        folder, relations=Vocabulary(["r"], "relation")
    )


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
        ("entity2id", "3\na\t0\nb\t1\nc\t1\n", "line 4: the id 1 was given to 'b'"),
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

    monkeypatch.setattr("pathe.datasets.write_rows", fail)
    with pytest.raises(PatheError) as caught:
        graph.save(tmp_path / "deep" / "er" / "new")
    target = tmp_path / "deep" / "er" / "new"
    assert str(caught.value) == f"{target}: can't be written (No space left on device)"
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


# Names


def test_paths_that_are_not_there(tmp_path: Path) -> None:
    for data in (tmp_path / "none", "none/train.txt", "none.tsv"):
        assert "no such file or folder" in refused(data)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """PyKEEN's download folder, and a network that refuses at once."""
    import pystow.utils
    import requests

    for module in ("pykeen.constants", "pykeen.datasets.base", "pykeen.datasets.inductive.base"):
        monkeypatch.setattr(f"{module}.PYKEEN_DATASETS", tmp_path)

    def retrieve(url: str, path: Path, **_: Any) -> None:
        sys.stderr.write("12 % done")
        Path(path).write_text("half a file")
        raise OSError("no network")

    def get(*_: Any, **__: Any) -> None:
        raise requests.exceptions.ConnectionError("no network")

    monkeypatch.setitem(pystow.utils.download.__globals__, "urlretrieve", retrieve)
    monkeypatch.setattr(requests, "get", get)
    return tmp_path


def test_data_sets_inside_pykeen(capsys: pytest.CaptureFixture[str]) -> None:
    graph = KnowledgeGraph.read("UMLS")
    assert (graph.name, graph.n_entities, graph.n_relations) == ("umls", 135, 46)
    assert (len(graph.train), len(graph.valid), len(graph.test)) == (5216, 652, 661)
    assert capsys.readouterr().out == ""
    import pykeen.datasets

    files = Path(pykeen.datasets.__file__).parent / "umls"
    assert KnowledgeGraph.read(files).fingerprint() == graph.fingerprint()
    with pytest.raises(DataError, match="--split"):
        KnowledgeGraph.read("umls", split=(0.8, 0.1, 0.1))


@pytest.mark.parametrize(
    "name",
    ["fb15k-237", "WN18RR", "codex_small", "yago310", "inductivefb15k237:v1", "ilpc2022small"],
)
def test_failed_downloads_are_told_and_leave_nothing(
    cache: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (cache / "fb15k237").mkdir()
    (cache / "fb15k237" / "of another process").touch()
    message = refused(name)
    assert name in message
    assert "must be downloaded, and that failed" in message
    assert "folder with its train, valid and test files" in message
    assert [p.name for p in cache.rglob("*") if p.is_file()] == ["of another process"]
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("fb15k238", "'fb15k237'"),
        ("inductivefb15k237", "inductivefb15k237:v1"),
        ("inductivefb15k237:v9", "inductivefb15k237:v4"),
        ("umls:v1", "no versions"),
        ("ilpc2022small:v1", "expected one of ilpc2022small"),
    ],
)
def test_unknown_data_set_names(name: str, words: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        KnowledgeGraph.read(name)
    assert words in str(caught.value)


UNSEEN: dict[str, list[Row]] = {
    "train": TRAIN,
    "valid": [*VALID, ("only", "r", "here")],
    "test": [*TEST, ("a", "unheard", "b")],
}


def test_data_sets_keep_triples_of_unseen_entities(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from pykeen.datasets import dataset_resolver
    from pykeen.datasets.base import PackedZipRemoteDataset, PathDataset

    folder = folder_of(tmp_path / "toy", **UNSEEN)
    with zipfile.ZipFile(tmp_path / "toy.zip", "w") as archive:
        for split in UNSEEN:
            archive.write(folder / f"{split}.txt", f"Release/{split}.txt")

    class Files(PathDataset):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(*(folder / f"{n}.txt" for n in ("train", "test", "valid")))

    class Zipped(PackedZipRemoteDataset):  # type: ignore[misc]
        def __init__(self) -> None:
            paths = [f"Release/{n}.txt" for n in ("train", "test", "valid")]
            super().__init__(*paths, name="toy.zip", cache_root=tmp_path)
            self.path = tmp_path / "toy.zip"

        def _help_cache(self, _: Any) -> Path:
            return tmp_path

    expected = KnowledgeGraph.read(folder, options=SKIP)
    assert "only" in expected.entities
    for name, cls in {"files": Files, "zipped": Zipped}.items():
        monkeypatch.setitem(dataset_resolver.lookup_dict, name, cls)
        graph = KnowledgeGraph.read(name)
        assert graph.fingerprint() == expected.fingerprint()
        assert graph.report.unknown_relations == 1


def test_options_that_do_not_apply(tmp_path: Path) -> None:
    options = ReadOptions(columns=("1", "2", "3"))
    assert "a data set's name: --columns doesn't apply" in refused("umls", options=options)
    folder = openke(tmp_path / "kg")
    assert "an OpenKE folder: --columns doesn't apply" in refused(folder, options=options)


def test_inductive_data_sets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from pykeen.datasets.inductive import DisjointInductivePathDataset, inductive_dataset_resolver

    files = {
        "train": TRAIN,
        "inference": [("u", "s", "v"), ("v", "r", "w")],
        "valid": [("u", "s", "w")],
        "test": [("w", "r", "u")],
    }
    for name, rows in files.items():
        (tmp_path / name).write_text(tsv(rows))

    class Toy(DisjointInductivePathDataset):  # type: ignore[misc]
        def __init__(self, version: str = "v1") -> None:
            assert version == "v2"
            super().__init__(*(tmp_path / n for n in ("train", "inference", "test", "valid")))

    monkeypatch.setitem(inductive_dataset_resolver.lookup_dict, "toy", Toy)
    graph = KnowledgeGraph.read("toy:v2")
    assert graph.name == "toy:v2"
    assert rows_of(graph, "train") == set(TRAIN)
    assert len(graph.valid) == len(graph.test) == 0
    assert graph.inference is not None
    for split, name in {"train": "inference", "valid": "valid", "test": "test"}.items():
        assert rows_of(graph.inference, split) == set(files[name])
    alone = KnowledgeGraph.read("toy:v2_ind")
    assert alone.name == "toy:v2_ind"
    assert alone.fingerprint() == graph.inference.fingerprint()


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
    folders = sorted(p for p in (DATA / "inductive").iterdir() if not p.name.endswith("_ind"))
    assert len(folders) == 8
    for folder in folders:
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
