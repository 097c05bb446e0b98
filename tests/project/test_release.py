"""What docs say about installing the release is what the scripts wrote."""

from __future__ import annotations

import json
import re

import pytest
from support.places import ROOT

INSTALL = " ".join((ROOT / "docs" / "install.md").read_text("utf-8").split())


def read(name: str) -> dict:
    found = json.loads((ROOT / "benchmarks" / f"{name}.json").read_text("utf-8"))
    assert re.fullmatch(r"[0-9a-f]{40}", found["commit"])
    assert found["machine"]["cpu"]
    return found


def test_the_time_from_a_clone_to_an_answer_is_that_of_the_file():
    found = read("stranger")
    names = [step["step"] for step in found["steps"]]
    total, install = found["answer_seconds"], found["install_seconds"]
    answered = names.index("ask about an own file") + 1
    assert sum(step["seconds"] for step in found["steps"][:answered]) == pytest.approx(total)
    assert total < found["bar_seconds"] == 300
    words = f"{total:.0f} seconds from `git clone` to an explained answer about a new CSV file"
    assert f"{words}, {install:.0f} of them for the virtual environment" in INSTALL
    assert "on two CPU cores" in INSTALL
    assert found["machine"]["cores"] == 2
    readme = (ROOT / "README.md").read_text("utf-8")
    for step in found["steps"]:
        if step["step"].startswith("README") or step["step"] == "install PathE":
            assert step["command"] in readme


def test_the_versions_of_python_are_those_that_were_tried():
    rows = read("release")["results"]
    wheels = [row["python"] for row in rows if row["package"] == "wheel"]
    minors = [version.rpartition(".")[0] for version in sorted(wheels, key=numbers)]
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    assert minors == re.findall(r'"Programming Language :: Python :: (3\.\d+)"', text)
    shown = sorted(wheels, key=numbers)
    assert f"with Python {', '.join(shown[:-1])} and {shown[-1]}" in INSTALL
    assert {row["package"] for row in rows} == {"wheel", "sdist"}
    assert all(row["answer"] == "Seine" for row in rows)


def numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]
