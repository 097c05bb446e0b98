from __future__ import annotations

import re

import pytest
import torch

from pathe.core import hardware as machine
from pathe.core.errors import ConfigError


def test_memory_figures_are_sane():
    cpu = torch.device("cpu")
    assert 2**20 < machine.free_memory(cpu) < 2**50
    assert 2**20 < machine.peak_memory(cpu) < 2**50
    assert "cores" in machine.device_name(cpu)
    assert machine.pick_device("cpu") == cpu


def test_the_commit_is_gits_or_the_environments(monkeypatch, tmp_path):
    found = machine.commit()
    assert found is None or re.fullmatch(r"[0-9a-f]{40}(-dirty)?", found)
    monkeypatch.setattr(machine, "__file__", str(tmp_path / "machine.py"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.setenv("PATHE_COMMIT", "abc")
    assert machine.commit() == "abc"


def test_a_device_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="finds none"):
        machine.pick_device("gpu")
    with pytest.raises(ConfigError, match="banana"):
        machine.pick_device("banana")
    assert machine.pick_device("auto").type == "cpu"


def test_a_containers_limit_counts(monkeypatch, tmp_path):
    cpu = torch.device("cpu")
    monkeypatch.setattr(machine, "CONTAINER", tmp_path)
    free = machine.free_memory(cpu)
    assert free > 1 << 20
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("1000\n")
    assert machine.free_memory(cpu) > 1 << 20
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.stat").write_text("anon 700\ninactive_file 250\nactive_file 50\n")
    assert machine.free_memory(cpu) == 4300
