"""What the README says is what happens."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import pytest
from support.commands import pathe
from support.places import ROOT

from pathe.data.knowledge_graph import KnowledgeGraph

README = (ROOT / "README.md").read_text()


@pytest.mark.slow
def test_the_python_in_it_runs(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", README, re.S)
    assert len(blocks) == 2
    (tmp_path / "models").symlink_to(ROOT / "models")
    europe = KnowledgeGraph.read(ROOT / "examples" / "europe.csv", split=(0.8, 0.1, 0.1))
    europe.save(tmp_path / "europe")  # as the quick start does
    for code in blocks:
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("virus -causes-> disease_or_syndrome: score")


@pytest.mark.slow
def test_its_commands_work_one_after_the_other(tmp_path):
    blocks = re.findall(r"```bash\n(.*?)```", README, re.S)
    lines = [line.split("  #")[0].strip() for block in blocks for line in block.splitlines()]
    commands = [line for line in lines if line.startswith(("pathe ", "printf "))]
    assert len(commands) > 10
    rows = [f"e{i % 20},r{i % 3},e{(i * 7 + 1 + i // 20) % 20}\n" for i in range(60)]
    for folder in ("models", "examples"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    for folder, mark in (("fb237_v1", "e"), ("fb237_v1_ind", "x")):
        (tmp_path / folder).mkdir()
        for split, part in (("train", rows[:40]), ("valid", rows[40:50]), ("test", rows[50:])):
            text = "".join(part).replace(",", "\t").replace("e", mark)
            (tmp_path / folder / f"{split}.txt").write_text(text)
    small = ["--set", "max_epochs=2", "--set", "dim=8", "--set", "feedforward=8"]
    for command in commands:
        if command.startswith("printf "):
            subprocess.run(["bash", "-c", command], cwd=tmp_path, check=True)
            continue
        words = shlex.split(command)[1:]
        found = pathe(*words, *(small if words[0] == "train" else []), cwd=tmp_path)
        assert found.returncode == 0, f"{command}: {found.stderr}"


def test_links_lead_somewhere():
    for text in [README, *(p.read_text() for p in (ROOT / "docs").glob("*.md"))]:
        for target in re.findall(r"\]\((?!http)([^)#]+)", text):
            assert (ROOT / target).exists() or (ROOT / "docs" / target).exists(), target
