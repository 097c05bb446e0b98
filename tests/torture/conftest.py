"""Torture tests are slow; `make torture` runs them alone, with larger numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.forks import Forks
from support.ordeals import write_inputs


@pytest.fixture(scope="session")
def forks():
    made = Forks()
    yield made
    made.close()


@pytest.fixture(scope="session")
def inputs(tmp_path_factory) -> Path:
    return write_inputs(tmp_path_factory.mktemp("torture") / "inputs")
