"""The example graphs of the package: known by name, the same as those in `examples`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.commands import pathe, refused
from support.places import ROOT

from pathe.data.columns import EXAMPLES, existing_path
from pathe.data.knowledge_graph import KnowledgeGraph


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_read_by_its_name_without_extras(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("pykeen", "pykeen.datasets", "pandas", "pyoxigraph"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.chdir(tmp_path)
    kg = KnowledgeGraph.read(name)
    assert kg.name == name
    assert kg.fingerprint() == KnowledgeGraph.read(ROOT / "examples" / f"{name}.csv").fingerprint()
    assert len(KnowledgeGraph.read(name, split=(0.8, 0.1, 0.1)).test) > 50


@pytest.mark.parametrize("name", EXAMPLES)
def test_its_file_is_that_of_the_checkout(name: str) -> None:
    packaged = existing_path(name)
    assert packaged is not None
    assert packaged.read_bytes() == (ROOT / "examples" / f"{name}.csv").read_bytes()


def test_a_folder_of_that_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    other = [("b", "r", "a")]
    KnowledgeGraph.from_triples([("a", "r", "b")], other, other).save("europe")
    assert len(KnowledgeGraph.read("europe").train) == 1


def test_commands_take_it_and_a_name_like_it_is_corrected(tmp_path: Path) -> None:
    found = pathe("convert", "films", "out", "--split", "0.8,0.1,0.1", cwd=tmp_path)
    assert (found.returncode, (tmp_path / "out" / "train.txt").exists()) == (0, True)
    found = pathe("prepare", "europe", "prepared", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    assert "'europe'" in refused("analyze", "eurpe", cwd=tmp_path)
