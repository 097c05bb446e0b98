"""Copies the figures of the last torture (torture.json) to docs/reliability.md."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from measure import HERE

PAGE, FIGURES = HERE.parent / "docs" / "reliability.md", HERE / "torture.json"
ONLY_TORTURE = ("fuzz with Atheris",)  # CI runs all others, with smaller numbers
BEGIN, END = "<!-- torture -->\n", "<!-- end of torture -->"


def table(found: dict[str, Any]) -> str:
    """Returns the classes of trials as a table, and where the figures are from."""
    groups: dict[str, Counter[str]] = {}  # faults by kind, whatever the command; inputs likewise
    for row in found["classes"]:
        counts = groups.setdefault(row["class"].partition(":")[0], Counter())
        counts.update({key: row[key] for key in ("tried", "failed")}, kinds=1)
    rows = [
        f"| {name} | {n['kinds']} | {n['tried']:,} | {n['failed']:,} "
        f"| {'no' if name in ONLY_TORTURE else 'yes'} | yes |"
        for name, n in sorted(groups.items())
    ]
    total = f"| **all** | | **{found['tried']:,}** | **{found['failed']:,}** | | |"
    source = (
        f"[Figures](../benchmarks/torture.json): `{found['command']}`, commit `{found['commit']}`."
    )
    heads = ["| fault | commands or kinds of files | tried | failed | in CI | in torture |"]
    heads.append("|---|---|---|---|---|---|")
    return "\n".join([*heads, *rows, total, "", source]) + "\n"


def filled(page: str, found: dict[str, Any]) -> str:
    """Returns the page with the figures between its marks."""
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    return before + BEGIN + table(found) + END + after


if __name__ == "__main__":
    figures = json.loads(FIGURES.read_text(encoding="utf-8"))
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), figures), encoding="utf-8")
