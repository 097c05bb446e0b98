"""Inputs that Atheris finds by coverage; `pip install atheris` before `make torture` runs these."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from support.places import ROOT
from support.tally import INPUTS, SEED, share

pytestmark = [pytest.mark.slow, pytest.mark.torture]
READERS = ("read.tsv", "read.csv", "read.nt", "read.ttl", "read.rdf")


@pytest.mark.parametrize("kind", READERS)
def test_any_input_that_reaches_new_lines(kind, tally):
    pytest.importorskip("atheris")
    n = share(INPUTS, 0.1)
    program = str(ROOT / "tests" / "support" / "coverage_fuzz.py")
    paths = [str(ROOT / "src"), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
    found = subprocess.run(
        [sys.executable, program, kind, str(n), str(SEED)],
        capture_output=True, text=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
    )  # fmt: skip
    said = (found.stdout + found.stderr)[-3000:]
    tally(f"fuzz with Atheris: {kind}", n, [said] if found.returncode else [])
