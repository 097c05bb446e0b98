"""Damaged and hostile inputs of every kind: a result or an error in words, in bounds."""

from __future__ import annotations

import pytest
from support.hostile import KINDS, fuzz
from support.tally import INPUTS, share

pytestmark = [pytest.mark.slow, pytest.mark.torture]
WEIGHT = sum(kind.weight for kind in KINDS.values())


@pytest.mark.parametrize("name", KINDS)
def test_any_input(name, tmp_path, tally):
    kind = KINDS[name]
    tried, failures = fuzz(kind, share(INPUTS, kind.weight / WEIGHT), tmp_path / "files")
    tally(f"fuzz: {name}", tried, failures)
