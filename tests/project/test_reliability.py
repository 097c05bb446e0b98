"""docs/reliability.md names tests that exist, and the figures of the last torture."""

from __future__ import annotations

import ast
import importlib
import json
import re
import runpy
import sys
from pathlib import Path

import pytest
from support.places import ROOT

PAGE = (ROOT / "docs" / "reliability.md").read_text()
NAMED = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE)


@pytest.fixture
def script(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
    return importlib.import_module("reliability")


def test_every_test_that_is_named_exists():
    assert len(NAMED) > 50
    assert PAGE.count("`tests/") == len(NAMED)
    for file, name in NAMED:
        tree = ast.parse((ROOT / file).read_text())
        names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert not name or name in names, f"{file}::{name}"


def test_all_fourteen_findings_are_there():
    assert re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE) == [str(i) for i in range(1, 15)]


def test_figures_are_those_of_the_last_torture(script):
    if not script.FIGURES.exists():
        assert f"{script.BEGIN}Not run yet.\n{script.END}" in PAGE
        return
    found = json.loads(script.FIGURES.read_text())
    assert script.filled(PAGE, found) == PAGE, "python benchmarks/reliability.py"


def test_the_table_is_made_of_the_figures(script):
    found = {
        "classes": [
            {"class": "kill: train", "tried": 1000, "failed": 0},
            {"class": "kill: embed", "tried": 200, "failed": 0},
            {"class": "x", "tried": 5, "failed": 1},
            {"class": "fuzz with Atheris: read.tsv", "tried": 9, "failed": 0},
        ],
        "tried": 1214, "failed": 1, "command": "make torture", "commit": "abc",
    }  # fmt: skip
    page = script.filled(PAGE, found)
    assert "| kill | 2 | 1,200 | 0 | yes | yes |\n| x | 1 | 5 | 1 | yes | yes |\n" in page
    assert "| fuzz with Atheris | 1 | 9 | 0 | no | yes |\n" in page
    assert "| **all** | | **1,214** | **1** | | |\n" in page
    assert script.filled(page, found) == page
    assert page.startswith(PAGE.partition(script.BEGIN)[0])
    assert page.endswith(PAGE.partition(script.END)[2])


def test_make_torture_runs_every_test_of_that_kind(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
    script = ROOT / "benchmarks" / "torture.py"
    marked = {
        path.relative_to(ROOT)
        for path in (ROOT / "tests").rglob("*.py")
        if "mark.torture" in path.read_text() and path.name != Path(__file__).name
    }
    assert len(marked) >= 4
    places = [Path(place) for place in runpy.run_path(str(script))["PLACES"]]
    assert {path for path in marked if not any(path.is_relative_to(own) for own in places)} == set()
    tests = [path for place in places for path in [ROOT / place, *(ROOT / place).rglob("*.py")]]
    tests.append(ROOT / "tests" / "support" / "tally.py")
    text = "".join(path.read_text() for path in tests if path.is_file())
    switches = set(re.findall(r'environ.get\("(PATHE_\w+)"', text))
    assert {"PATHE_TORTURE", "PATHE_KILLS"} <= switches
    assert all(f'"{name}":' in script.read_text() for name in switches)
