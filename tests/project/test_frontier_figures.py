"""Figures about frontiers are those of the committed files."""

from __future__ import annotations

import json
import re
from typing import Any

from support.places import ROOT

GIB = 1 << 30


def results(name: str) -> list[dict[str, Any]]:
    about = json.loads((ROOT / "benchmarks" / f"{name}.json").read_text())
    assert about["command"] == "make bench-scale"
    assert '"/' not in json.dumps(about)
    for row in about["results"]:
        assert re.fullmatch(r"[0-9a-f]{40}", row["commit"])
        assert row["command"].startswith("python benchmarks/frontier.py")
    return about["results"]


def test_the_tables_are_those_of_the_files(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import frontier_tables

    for page in frontier_tables.PAGES:
        text = (ROOT / "docs" / f"{page}.md").read_text()
        assert frontier_tables.filled(page) == text, "run `python benchmarks/frontier_tables.py`"


def test_bars_match_the_issue():
    for row in results("frontier"):
        assert row["triples"] == min(row["sample"], row["of_triples"])
        if row["bar"] != "none":
            less = [row[f"exact_{key}"] / row[key] for key in ("edges", "rows")]
            close = abs(row["mrr"] - row["exact_mrr"]) <= 0.003
            assert row["graph"] == "fb15k-237"
            assert row["met"] == (close and min(less) >= 5)
    largest = [row for row in results("frontier_synthetic") if row["entities"] == 5_000_000]
    assert {row["part"] for row in largest} >= {"query", "growth"}
    for row in largest:
        if row["part"] == "query":
            peak = max(row["peak_bytes"], row["first_peak_bytes"])
            assert row["met"] == (row["median_seconds"] <= 1 and peak <= 2 * GIB)
