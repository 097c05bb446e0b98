"""Processes that train one run together: which one leads, and where its folder is."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from pathe.core.config import configure
from pathe.core.errors import ConfigError, TrainingError
from pathe.training import processes
from pathe.training.processes import (
    follow,
    free_folder,
    is_leader,
    leader_folder,
    leading,
    n_nodes,
)

NAMES = ("RANK", "LOCAL_RANK", "PATHE_RUN", "TORCHELASTIC_RUN_ID", "WORLD_SIZE", "LOCAL_WORLD_SIZE")


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """No other process; variables that a test sets are gone after it."""
    for name in NAMES:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("variables", "leads"),
    [({}, True), ({"LOCAL_RANK": "0"}, True), ({"LOCAL_RANK": "1"}, False),
     ({"RANK": "2", "LOCAL_RANK": "0"}, False), ({"RANK": "0", "LOCAL_RANK": "0"}, True)],
)  # fmt: skip
def test_the_first_process_leads(monkeypatch, variables, leads):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert is_leader() == leads


def test_other_processes_get_the_folder_of_the_first_one(tmp_path):
    (tmp_path / "run").mkdir()
    assert leader_folder() is None
    assert free_folder(tmp_path / "run") == tmp_path / "run-2"
    with leading(Path("elsewhere")):
        assert leader_folder() == Path("elsewhere")
        assert free_folder(tmp_path / "run") == Path("elsewhere")
    assert leader_folder() is None


def test_without_torchrun_nothing_is_followed(monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "1")
    follow(None)
    assert leader_folder() is None
    assert n_nodes(configure()) == 1


def test_a_process_of_torchrun_waits_until_the_run_is_open(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    with pytest.raises(ConfigError, match="--out RUN"):
        follow(None)
    follow(tmp_path)  # the first process doesn't wait
    assert leader_folder() is None
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr(processes, "OPEN_SECONDS", 0.1)
    with pytest.raises(TrainingError, match="has not opened this run"):
        follow(tmp_path)
    monkeypatch.setattr(processes, "OPEN_SECONDS", 60)
    opening = threading.Timer(0.3, (tmp_path / "config.yaml").touch)
    begin = time.monotonic()
    opening.start()
    follow(tmp_path)
    assert time.monotonic() - begin >= 0.25
    assert os.environ["PATHE_RUN"] == str(tmp_path)
    assert leader_folder() == tmp_path


def test_torchrun_on_several_machines(monkeypatch):
    for name, value in (("TORCHELASTIC_RUN_ID", "x"), ("WORLD_SIZE", "6"),
                        ("LOCAL_WORLD_SIZE", "2")):  # fmt: skip
        monkeypatch.setenv(name, value)
    assert n_nodes(configure(settings={"devices": 2})) == 3
    with pytest.raises(ConfigError, match="--set devices=2"):
        n_nodes(configure())
