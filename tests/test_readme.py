"""What the README says is what happens."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from pathe.cli import app

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()


def test_the_python_in_it_runs():
    [code] = re.findall(r"```python\n(.*?)```", README, re.S)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("virus -causes-> disease_or_syndrome: score")


def test_every_command_and_option_in_it_exists():
    runner = CliRunner()
    lines = re.findall(r"^pathe (.*?)(?:  +#.*)?$", README, re.M)
    assert len(lines) > 10
    for line in lines:
        command, *words = line.split()
        told = runner.invoke(app, [command, "--help"], env={"COLUMNS": "200"})
        assert told.exit_code == 0, command
        plain = re.sub(r"\x1b\[[0-9;]*m", "", told.output)
        for option in (w for w in words if w.startswith("-")):
            assert re.search(rf"(?<![\w-]){option}(?![\w-])", plain), f"{command} {option}"


def test_links_lead_somewhere():
    for text in [README, *(p.read_text() for p in (ROOT / "docs").glob("*.md"))]:
        for target in re.findall(r"\]\((?!http)([^)#]+)", text):
            assert (ROOT / target).exists() or (ROOT / "docs" / target).exists(), target
