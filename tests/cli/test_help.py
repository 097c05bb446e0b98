"""Every help page teaches: an example that works, and options in panels."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from support.commands import pathe
from support.places import ROOT

from pathe.cli.main import app

COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
# These take minutes, run until they are stopped, or need a hub or benchmark data; their names and
# options are checked only.
NOT_RUN = {"train", "tune", "pretrain", "reproduce", "push", "pull", "serve"}
SLOW = {"missing", "check"}
FIRST = re.findall(r"pathe [a-z]+ [^[]+", typer.main.get_command(app).help or "")


def options_of(command: Any) -> list[Any]:
    return [p for p in command.params if p.param_type_name == "option"]


def example(name: str) -> list[str]:
    """The words of the example command in a command's help."""
    found = re.findall(r"Example: \[cyan\]pathe (.+?)\[/\]", COMMANDS[name].help)
    assert len(found) == 1, f"{name} has {len(found)} examples"
    return shlex.split(found[0])


@pytest.mark.parametrize("name", COMMANDS)
def test_it_has_an_example_and_panels(name: str) -> None:
    command = COMMANDS[name]
    assert example(name)[0] == name
    options = [p for p in options_of(command) if "--help" not in p.opts]
    assert [p.name for p in options if not getattr(p, "rich_help_panel", None)] == []
    assert [p.name for p in options if not p.help] == []


SHOWN = [*map(example, COMMANDS), *(shlex.split(line)[1:] for line in FIRST)]


@pytest.mark.parametrize("words", SHOWN, ids=" ".join)
def test_examples_name_options_and_files_that_exist(words: list[str]) -> None:
    known = {name for p in COMMANDS[words[0]].params for name in (*p.opts, *p.secondary_opts)}
    assert {word for word in words if re.match(r"--?[a-z]", word)} <= known
    for word in words:
        if word.startswith(("examples/", "models/")):
            assert (ROOT / word).exists()


def test_the_first_page_opens_with_what_to_type() -> None:
    assert len(FIRST) >= 4
    assert pathe("--help").stdout.index("pathe analyze") < pathe("--help").stdout.index("Options")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW))
        for name in sorted(set(COMMANDS) - NOT_RUN)
    ],
)
def test_its_example_works(name: str, tmp_path: Path) -> None:
    for folder in ("examples", "models"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    found = pathe(*example(name), cwd=tmp_path)
    assert found.returncode == 0, found.stderr


def test_one_option_means_one_thing() -> None:
    """--split splits a file wherever it is; results go the same ways out of every command."""
    kinds: dict[str, dict[str, str]] = {}
    values: dict[str, dict[bool, set[str]]] = {}  # numbers, or words and files
    for name, command in COMMANDS.items():
        for p in options_of(command):
            for option in [] if p.hidden else p.opts:
                kinds.setdefault(option, {})[name] = p.help
                kind = p.type_descriptor.annotation
                values.setdefault(option, {}).setdefault(kind in (int, float), set()).add(name)
    assert {option: found for option, found in values.items() if len(found) > 1} == {}
    for option in ("--type", "--types", "--type-relation", "--among", "--exclude"):
        assert len({kinds[option][c] for c in ("predict", "similar", "missing", "check")}) == 1
    for option in ("--one-tail", "--one-head", "--many"):
        assert {"missing", "classify", "check"} == set(kinds[option])
    split = kinds["--split"]
    assert len(set(split.values())) == 1
    assert {"analyze", "train", "evaluate", "predict", "missing"} <= set(split)
    assert {"predict", "similar", "rules", "missing", "evaluate", "analyze", "schema", "paths"} <= (
        set(kinds["--json"]) & set(kinds["--jsonl"]) & set(kinds["--out"])
    )
