"""Where a command keeps the parts of its jobs, who may use them, and what is removed."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pytest
from support.cluster import squares

from pathe.cli.cluster import ClusterOptions
from pathe.cluster import nodes
from pathe.cluster.job import in_this_process, run_job
from pathe.core.errors import PatheError
from pathe.core.files import locked


@pytest.fixture(autouse=True)
def _here(monkeypatch, tmp_path):
    """No cluster is needed for what is tested here."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(nodes, "connected", nullcontext)
    monkeypatch.setattr(nodes, "on_cluster", lambda where, say: in_this_process)


OPTIONS = ClusterOptions(cluster="local:1")


def test_files_of_others_beside_the_parts_are_kept(tmp_path):
    parts = tmp_path / "out.json.parts"
    (parts / "notes").mkdir(parents=True)
    (parts / "notes" / "a.txt").write_text("mine")
    with OPTIONS.running("evaluate", tmp_path / "out.json") as run:
        assert len(list(run(squares()))) == 7
    assert [path.name for path in parts.iterdir()] == ["notes"]
    assert (parts / "notes" / "a.txt").read_text() == "mine"


def test_parts_are_removed_at_the_end_and_kept_on_request_or_failure(tmp_path):
    with OPTIONS.running("evaluate", None) as run:
        list(run(squares()))
        assert (tmp_path / "pathe-evaluate.parts" / "squares").is_dir()
    assert list(tmp_path.iterdir()) == []
    with OPTIONS.running("evaluate", None):
        pass  # there was nothing to do
    with ClusterOptions("local:1", tmp_path / "kept").running("evaluate", None) as run:
        list(run(squares()))
    assert (tmp_path / "kept" / "squares" / "manifest.json").exists()
    broken = replace(squares(), shards=[(0, 3), (3, "x")])
    with pytest.raises(TypeError), OPTIONS.running("evaluate", None) as run:
        run(broken)
    assert (tmp_path / "pathe-evaluate.parts" / "squares" / "part-000000.parquet").exists()


@pytest.mark.parametrize("name", [None, "parts"])
def test_nobody_else_uses_the_parts_before_they_are_read(tmp_path, name):
    options = ClusterOptions("local:1", name and tmp_path / name)
    folder = tmp_path / (name or "pathe-evaluate.parts") / "squares"
    with options.running("evaluate", None) as run:
        tables = run(squares())
        with pytest.raises(PatheError, match="another process is using"):
            run_job(squares(), folder)
        with options.running("evaluate", None) as other, pytest.raises(PatheError, match="another"):
            other(squares())
        assert len(list(tables)) == 7
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        pass
