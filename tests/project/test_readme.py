"""What README and guide say is what happens."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import yaml
from support.commands import pathe
from support.places import ROOT
from support.runs import SMALL as SMALL_MODEL

from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.training.defaults import TUNABLE

README = ROOT / "README.md"
GUIDE = ROOT / "docs" / "guide.md"
SHORT = {"max_epochs": 1, "epoch_triples": 256, "valid_triples": 100, "test_triples": 100}
SMALL = [word for key, value in SHORT.items() for word in ("--set", f"{key}={value}")]


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


def commands(page: Path) -> list[str]:
    """The lines of a page's bash blocks, without comments."""
    lines = "".join(blocks(page, "bash")).splitlines()
    return [line.split("  #")[0].strip() for line in lines if line.strip()]


@pytest.mark.slow
@pytest.mark.parametrize("page", [README, GUIDE], ids=lambda p: p.stem)
def test_its_commands_work_one_after_the_other(page, tmp_path):
    lines = [line for line in commands(page) if line.startswith(("pathe ", "printf "))]
    assert len(lines) > 10
    for folder in ("models", "examples"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    if page == GUIDE:
        prepare(tmp_path)
    for command in lines:
        if command.startswith("printf "):
            subprocess.run(["bash", "-c", command], cwd=tmp_path, check=True)
            continue
        words = shlex.split(command)[1:]
        found = pathe(*words, *(SMALL if words[0] == "train" else []), cwd=tmp_path)
        assert found.returncode == 0, f"{command}: {found.stderr}"
        if words[0] == "train":
            assert was_fine_tuned(tmp_path / words[words.index("--out") + 1])


def was_fine_tuned(run: Path) -> bool:
    """Whether a run fine-tuned the pre-trained model, alone or beside others."""
    found = json.loads((run / "result.json").read_text())
    assert set(SHORT) <= TUNABLE
    if "selection" in found:
        return "fine-tuned" in found["selection"]["candidates"]
    return found["start"] is not None


def test_every_line_to_type_is_a_command_that_a_test_runs():
    """The others install: their targets and extras exist, and the stranger's test runs them."""
    rest = [c for c in commands(README) if not c.startswith(("pathe ", "printf "))]
    assert [line.split()[0] for line in rest] == ["make", "pip", "pip"]
    text = (ROOT / "pyproject.toml").read_text().split("[project.optional-dependencies]")[1]
    extras = re.findall(r"^(\w+) = \[", text.split("\n[")[0], re.M)
    named = re.findall(r"\[([a-z,]+)\]", "".join(rest))
    assert named
    assert set(",".join(named).split(",")) <= set(extras)
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
    for page in (README, GUIDE, ROOT / "CONTRIBUTING.md", ROOT / "docs" / "install.md"):
        asked = re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(), re.M)
        assert set(asked) <= set(targets)


# Commands in sentences, and what a test runs: with names for the words in capitals, and small.
IN_PROSE = {
    "pathe train": "",  # in a block, too
    "pathe COMMAND --help": "pathe predict --help",
    "pathe serve --data examples/europe.csv": "",  # runs in a test of its own
    "pathe prepare DATA FOLDER": "pathe prepare examples/europe.csv prepared",
    "pathe reproduce NAME": "pathe reproduce tiny --data . --results results",
    "pathe pretrain GRAPH ...": "pathe pretrain europe --steps 1 --set dim=4 --set n_hops=2 "
    "--set n_layers=1 --set n_subgraphs=1 --set valid_triples=4 --out pretrained",
}


@pytest.mark.slow
def test_commands_in_its_sentences_work(tmp_path):
    assert set(re.findall(r"`(pathe [^`]+)`", README.read_text())) == set(IN_PROSE)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    europe = KnowledgeGraph.read(ROOT / "examples" / "europe.csv", split=(0.8, 0.1, 0.1))
    europe.save(tmp_path / "europe")
    tiny = {"title": "Tiny", "table": "link", "data": "europe", "seeds": [0],
            "settings": SMALL_MODEL | {"max_epochs": 1}}  # fmt: skip
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "tiny.yaml").write_text(yaml.safe_dump(tiny))
    for shown, command in IN_PROSE.items():
        fixed = [word for word in shlex.split(shown) if word != "..." and not word.isupper()]
        assert not command or set(fixed) <= set(shlex.split(command))
        if command:
            found = pathe(*shlex.split(command)[1:], cwd=tmp_path)
            assert found.returncode == 0, f"{command}: {found.stderr}"


@pytest.mark.slow
def test_the_demo_of_the_makefile_runs(tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "Makefile").symlink_to(ROOT / "Makefile")
    command = ["make", "--assume-old=setup", "demo", f"BIN={Path(sys.executable).parent}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.search(r"test MRR 0\.\d+: fine", done.stdout)
    assert not (tmp_path / ".venv").exists()


@pytest.mark.slow
def test_the_server_starts_as_the_readme_says():
    pytest.importorskip("fastapi")
    from support.server import running

    with running("--data", ROOT / "examples" / "europe.csv") as (url, _):
        page = urllib.request.urlopen(url, timeout=30).read().decode()
    assert "<html" in page


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
        ["train", "films", "--out", "my-run", "--set", "init=pretrained", *SMALL],
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
