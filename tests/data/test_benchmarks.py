"""Data sets by name."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from support.folders import SKIP, TRAIN, UNSEEN, folder_of, openke, refused, rows_of, tsv

from pathe.core.errors import DataError, UnknownNameError
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.data.readers import ReadOptions


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
    with pytest.raises(DataError, match="its own splits"):
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
