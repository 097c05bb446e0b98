"""The wheel, installed alone: without the repository, without extras, it predicts and trains."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from importlib.metadata import PathDistribution, distribution
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from support.places import ROOT


def _name(requirement: str) -> str:
    return re.sub(r"[-_.]+", "-", requirement).lower()


def _needed(wheel: PathDistribution) -> set[str]:
    """The distributions that an installation of the wheel without extras brings."""
    found: set[str] = set()
    open_ = [(requirement, "") for requirement in wheel.requires or []]
    while open_:
        line, extra = open_.pop()
        requirement = Requirement(line)
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = _name(requirement.name)
        own = distribution(name).requires or [] if name not in found or requirement.extras else []
        found.add(name)
        for wanted in ("", *requirement.extras):
            open_ += [(more, wanted) for more in own]
    return found


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nothing but the installed wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    source, place = folder / "source", folder / "place"
    source.mkdir()
    names = (ROOT / n for n in ("pyproject.toml", "README.md", "LICENSE", "src"))
    subprocess.run(["cp", "-r", *names, source], check=True)
    for rest in source.rglob("*.egg-info"):
        subprocess.run(["rm", "-r", rest], check=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, source]
    subprocess.run(build, check=True)
    [wheel] = folder.glob("pathe-*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", place, wheel], check=True)
    return place


@pytest.mark.slow
def test_it_has_the_model_the_examples_and_no_file_of_the_repository(place: Path) -> None:
    [wheel] = place.parent.glob("pathe-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    for name in ("model/shipped/model.safetensors", "data/examples/europe.csv", "py.typed",
                 "core/presets/tiny.yaml", "serve/static/index.html"):  # fmt: skip
        assert f"pathe/{name}" in names
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"pathe"}


@pytest.fixture
def plain(place: Path, tmp_path: Path) -> Path:
    """A folder with what a plain installation brings, and nothing else: links to what is here."""
    folder = tmp_path / "plain"
    folder.mkdir()
    [info] = place.glob("pathe-*.dist-info")
    for name in _needed(PathDistribution(info)):
        own = distribution(name)
        for top in {file.parts[0] for file in own.files or []} - {"..", "bin", "__pycache__"}:
            if not (folder / top).exists():
                (folder / top).symlink_to(Path(str(own.locate_file(top))))
    return folder


@pytest.mark.slow
def test_without_extras_it_predicts_trains_and_evaluates(
    place: Path, plain: Path, tmp_path: Path
) -> None:
    here = {entry.name for entry in plain.iterdir()}
    assert {"torch", "typer"} <= here
    assert not {"pykeen", "matplotlib", "pandas", "pyoxigraph", "fastapi", "ray", "pytest"} & here
    env = {"PYTHONPATH": f"{place}{os.pathsep}{plain}", "PATH": os.environ["PATH"]}
    env |= {"CUDA_VISIBLE_DEVICES": "", "HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}

    def run(*words: str) -> str:
        command = [sys.executable, "-S", "-m", "pathe", *words]  # -S: no site-packages
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    found = run("predict", "--data", "europe", "--head", "Paris", "--relation", "lies on",
                "--known", "-k", "1", "--json", "--explain")  # fmt: skip
    assert '"Seine"' in found
    small = ("--preset", "tiny", "--set", "max_epochs=1", "--json")
    run("train", "europe", "--split", "0.8,0.1,0.1", "--out", "run", *small)
    split = ("--split", "0.8,0.1,0.1")
    figures = json.loads(run("evaluate", "run", "--data", "europe", *split, "--json"))
    assert 0 < figures["mrr"] <= 1


def test_the_citation_names_the_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    text = (ROOT / "pyproject.toml").read_text()
    assert f'version = "{citation["version"]}"' in text
    minors = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', text)
    assert minors == ["3.10", "3.11", "3.12", "3.13"]


def test_the_changelog_begins_with_the_version_and_has_no_empty_part() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    lines = (ROOT / "CHANGELOG.md").read_text("utf-8").splitlines()
    headings = [line for line in lines if line.startswith("#")]
    assert headings[:2] == ["# Changes", f"## {citation['version']} ({citation['date-released']})"]
    parts = [line for line in headings if line.startswith("### ")]
    assert len(parts) == len(set(parts)) > 1
    filled = [line for line in lines if line]
    for heading in parts:
        assert filled[filled.index(heading) + 1].startswith("- ")


def test_docs_name_extras_that_exist() -> None:
    """PathE is installed from a checkout; `pathe[X]` adds an extra to an installation."""
    text = (ROOT / "pyproject.toml").read_text()
    extras = re.findall(r"^(\w+) = \[", text.split("[project.optional-dependencies]")[1], re.M)
    for page in [ROOT / "README.md", ROOT / "SECURITY.md", *(ROOT / "docs").rglob("*.md")]:
        text = page.read_text("utf-8")
        for name in re.findall(r"'(?:pathe|\.)\[([\w,]+)\]'", text):
            assert set(name.split(",")) <= set(extras), f"{page.name}: {name}"
        if page.name != "install.md":
            assert not re.search(r"pip install '?pathe(\[all\])?'?[\s`]", text), page.name


def test_the_workflow_runs_what_ci_runs() -> None:
    text = (ROOT / ".github" / "workflows" / "check.yml").read_text()
    jobs = yaml.safe_load(text)["jobs"]
    assert {"run": ".ci/run"} in jobs["check"]["steps"]
    versions = jobs["python"]["strategy"]["matrix"]["python"]
    oldest = re.search(r'requires-python = ">=([\d.]+)"', (ROOT / "pyproject.toml").read_text())
    assert oldest is not None
    assert oldest[1] in versions
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
    assert set(re.findall(r"make ([a-z-]+)", text)) <= set(targets)
    for form in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"):
        assert yaml.safe_load(form.read_text())
