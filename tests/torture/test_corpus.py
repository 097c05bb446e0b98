"""Inputs that have failed once, in the fast tier."""

from __future__ import annotations

import pytest
from support.hostile import CORPUS, KINDS, check

CASES = sorted(
    f"{case.parent.name}/{case.name}" for case in CORPUS.glob("*/*") if case.name != "failed"
)


@pytest.mark.parametrize("name", KINDS)
def test_valid_files_are_read(name, tmp_path):
    kind = KINDS[name]
    from support.hostile import lay

    kind.check(lay(kind, {}, tmp_path / "files"))


@pytest.mark.parametrize("case", CASES)
def test_what_has_failed_once(case, tmp_path):
    kind, folder = KINDS[case.split("/")[0]], CORPUS / case
    files = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    check(kind, files, tmp_path / "files")
