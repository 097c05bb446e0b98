"""Figures about frontiers are those of the committed files."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
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


def agreement_cells(row: dict[str, Any]) -> list[str]:
    return [
        row["graph"].split("/")[-1], f"{row['frontier']:,}", f"{row['exact_mrr']:.3f}",
        f"{row['mrr'] - row['exact_mrr']:+.4f} ± {row['standard_error']:.4f}",
        f"{row['top_10_overlap']:.1f}", f"{row['exact_edges'] / row['edges']:.1f}x",
        f"{row['exact_rows'] / row['rows']:.1f}x", f"{row['cpu_seconds']:.3f}",
        f"{row['exact_cpu_seconds']:.3f}",
    ]  # fmt: skip


def query_cells(row: dict[str, Any]) -> list[str]:
    peak = max(row["peak_bytes"], row["first_peak_bytes"])
    return [
        f"{row['entities']:,}", f"{row['triples']:,}", f"{row['graph_bytes'] / GIB:.2f}",
        f"{row['median_cpu_seconds']:.2f}", f"{row['median_seconds']:.2f}",
        f"{row['first_cpu_seconds']:.1f}", f"{peak / GIB:.2f}",
    ]  # fmt: skip


def view_cells(row: dict[str, Any]) -> list[str]:
    return [
        f"{row['entities']:,}", f"{row['view_anew_cpu_seconds']:.2f}",
        f"{row['view_cpu_seconds']:.3f}", f"{row['cpu_seconds']:.3f}",
    ]  # fmt: skip


TABLES = {
    "agreement": ("frontier", lambda row: True, agreement_cells),
    "queries": ("frontier_synthetic", lambda row: row["part"] == "query", query_cells),
    "steps": ("frontier_synthetic", lambda row: row["part"] == "training", view_cells),
}


@pytest.mark.parametrize("table", TABLES)
def test_the_tables_are_those_of_the_files(table):
    """All rows of a file are in the table in the same order, and no others."""
    name, wanted, cells = TABLES[table]
    lines = [f"| {' | '.join(cells(row))} |" for row in results(name) if wanted(row)]
    text = (ROOT / "docs" / "scale.md").read_text()
    body = re.search(re.escape(lines[0]) + r"\n(\|.*\n)*", text)
    assert body, lines
    assert body[0].splitlines() == lines


def test_sample_sizes_are_stated_and_bars_match_the_issue():
    text = (ROOT / "docs" / "scale.md").read_text()
    for row in results("frontier"):
        assert row["triples"] == min(row["sample"], row["of_triples"])
        assert f"{row['triples']} test triples" in text
    largest = [row for row in results("frontier_synthetic") if row["entities"] == 5_000_000]
    assert {row["part"] for row in largest} >= {"query", "growth"}
    for row in largest:
        if row["part"] == "query":
            peak = max(row["peak_bytes"], row["first_peak_bytes"])
            assert row["met"] == (row["median_cpu_seconds"] <= 1 and peak <= 2 * GIB)
