"""Copies the figures of the last torture (torture.json) to docs/reliability.md."""

from __future__ import annotations

import json
from typing import Any

from measure import HERE

PAGE, FIGURES = HERE.parent / "docs" / "reliability.md", HERE / "torture.json"
BEGIN, END = "<!-- torture -->\n", "<!-- end of torture -->"


def table(found: dict[str, Any]) -> str:
    """Returns the classes of trials as a table, and where the figures are from."""
    rows = [
        f"| {row['class']} | {row['tried']:,} | {row['failed']:,} |" for row in found["classes"]
    ]
    total = f"| **all** | **{found['tried']:,}** | **{found['failed']:,}** |"
    source = (
        f"[Figures](../benchmarks/torture.json): `{found['command']}`, commit `{found['commit']}`."
    )
    return (
        "\n".join(["| class | tried | failed |", "|---|---|---|", *rows, total, "", source]) + "\n"
    )


def filled(page: str, found: dict[str, Any]) -> str:
    """Returns the page with the figures between its marks."""
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    return before + BEGIN + table(found) + END + after


if __name__ == "__main__":
    figures = json.loads(FIGURES.read_text(encoding="utf-8"))
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), figures), encoding="utf-8")
