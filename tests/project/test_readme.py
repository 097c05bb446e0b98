"""What README and guide say is what happens."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import pathe
from support.places import ROOT

from pathe.data.knowledge_graph import KnowledgeGraph

README = ROOT / "README.md"
GUIDE = ROOT / "docs" / "guide.md"
SMALL = ["--set", "max_epochs=2", "--set", "dim=8", "--set", "feedforward=8"]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.S)


def test_it_is_short_and_begins_with_what_it_is_for():
    lines = README.read_text().splitlines()
    assert len(lines) < 200
    assert lines[2].startswith("**Completes your knowledge graph")
    assert any(line.startswith("![") for line in lines[:10])


@pytest.mark.slow
@pytest.mark.parametrize("page", [README, GUIDE], ids=lambda p: p.stem)
def test_the_python_in_it_runs(page, tmp_path):
    [code] = blocks(page, "python")
    (tmp_path / "models").symlink_to(ROOT / "models")
    europe = KnowledgeGraph.read(ROOT / "examples" / "europe.csv", split=(0.8, 0.1, 0.1))
    europe.save(tmp_path / "europe")  # as the first answers do
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert re.match(r"(virus -causes-> dis|Paris -capital of-> Fr).*: score", done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("page", [README, GUIDE], ids=lambda p: p.stem)
def test_its_commands_work_one_after_the_other(page, tmp_path):
    lines = [line.split("  #")[0].strip() for b in blocks(page, "bash") for line in b.splitlines()]
    commands = [line for line in lines if line.startswith(("pathe ", "printf "))]
    assert len(commands) > 10
    for folder in ("models", "examples"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    if page == GUIDE:
        prepare(tmp_path)
    for command in commands:
        if command.startswith("printf "):
            subprocess.run(["bash", "-c", command], cwd=tmp_path, check=True)
            continue
        words = shlex.split(command)[1:]
        found = pathe(*words, *(SMALL if words[0] == "train" else []), cwd=tmp_path)
        assert found.returncode == 0, f"{command}: {found.stderr}"


def prepare(folder: Path) -> None:
    """Makes what the guide takes for granted: a split graph, a model and a pair of graphs."""
    rows = [f"e{i % 20},r{i % 3},e{(i * 7 + 1 + i // 20) % 20}\n" for i in range(60)]
    for name, mark in (("fb237_v1", "e"), ("fb237_v1_ind", "x")):
        (folder / name).mkdir()
        for split, part in (("train", rows[:40]), ("valid", rows[40:50]), ("test", rows[50:])):
            text = "".join(part).replace(",", "\t").replace("e", mark)
            (folder / name / f"{split}.txt").write_text(text)
    for command in (
        ["convert", "examples/films.csv", "films", "--split", "0.8,0.1,0.1"],
        ["train", "films", "--out", "my-run", "--minutes", "0.1", *SMALL],
    ):
        found = pathe(*command, cwd=folder)
        assert found.returncode == 0, found.stderr


def test_the_output_that_it_shows_is_what_comes(tmp_path):
    [shown] = blocks(README, "text")
    KnowledgeGraph.read(ROOT / "examples" / "europe.csv", split=(0.8, 0.1, 0.1)).save(tmp_path)
    query = ["--head", "Paris", "--relation", "capital of", "-k", "1", "--explain"]
    found = pathe("predict", "--data", "train.txt", *query, cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    printed = " ".join(found.stdout.split())  # lines may be broken elsewhere
    for line in shown.splitlines():
        if line.strip() != "...":
            assert " ".join(line.split()) in printed


def test_links_lead_somewhere():
    for page in [README, *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
