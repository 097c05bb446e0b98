"""Counts of the torture tests: how much they try, and the table of what failed.

PATHE_KILLS and PATHE_INPUTS say how many kills and fuzzed inputs are tried, PATHE_SEED where they
start, and PATHE_TALLY names a JSON file for the table.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

KILLS = int(os.environ.get("PATHE_KILLS", 50))
INPUTS = int(os.environ.get("PATHE_INPUTS", 1000))
SEED = int(os.environ.get("PATHE_SEED", 0))
KEY = "torture"

_rows: list[dict[str, Any]] = []


def share(whole: int, part: float) -> int:
    """Returns a part of a number of trials, at least one."""
    return max(round(whole * part), 1)


@pytest.fixture
def tally(record_property: Callable[[str, Any], None]) -> Callable[..., None]:
    """A function that notes what a class of trials has tried, and fails if any has failed."""

    def note(name: str, tried: int, failures: list[str], **more: int) -> None:
        row = {"class": name, "tried": tried, "failed": len(failures), **more}
        record_property(KEY, row)
        assert not failures, f"{len(failures)} of {tried} failed:\n" + "\n---\n".join(failures[:5])

    return note


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call":
        _rows.extend(row for key, row in report.user_properties if key == KEY)


def _summed() -> list[dict[str, Any]]:
    """Returns a row per class."""
    found: dict[str, dict[str, Any]] = {}
    for row in sorted(_rows, key=lambda row: str(row["class"])):
        own = found.setdefault(row["class"], {"class": row["class"]})
        for key, value in row.items():
            if key != "class":
                own[key] = own.get(key, 0) + value
    return list(found.values())


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if not _rows:
        return
    rows = _summed()
    terminalreporter.section(f"torture, seed {SEED}")
    for row in rows:
        more = ", ".join(f"{n} {what}" for what, n in list(row.items())[3:])
        line = f"{row['class']:<44} tried {row['tried']:>6}   failed {row['failed']:>3}   {more}"
        terminalreporter.write_line(line.rstrip())
    if path := os.environ.get("PATHE_TALLY"):
        Path(path).write_text(json.dumps({"seed": SEED, "rows": rows}, indent=2) + "\n")
