"""Figures in the docs are those of the committed files."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs" / "results.md").read_text().splitlines()
    if line.startswith("|") and "results/" in line
]


def test_every_file_has_its_row():
    named = {re.search(r"results/(.+)\.json", row[-1]).group(1) for row in ROWS}
    assert named == {p.stem for p in (ROOT / "results").glob("*.json")}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_the_table_shows_what_the_file_holds(row):
    name = re.search(r"results/(.+)\.json", row[-1]).group(1)
    found = json.loads((ROOT / "results" / f"{name}.json").read_text())
    assert float(row[1]) == pytest.approx(found["mrr"], abs=0.0005)
    assert float(row[2]) == pytest.approx(found["hits_at_1"], abs=0.0005)
    assert float(row[3]) == pytest.approx(found["hits_at_10"], abs=0.0005)
    assert int(row[4].replace(",", "")) == found["parameters"]
    assert re.fullmatch(r"[0-9a-f]{40}", found["commit"])
    for key in ("command", "fingerprint", "protocol", "test_set", "config", "device"):
        assert found[key]


def readme_figures() -> list[tuple[str, str]]:
    text = (ROOT / "README.md").read_text()
    return re.findall(r"\| .*?MRR (\.\d+).*?\[.*?\]\((results/.+?\.json)\) \|", text)


@pytest.mark.parametrize(("figure", "file"), readme_figures())
def test_the_readme_shows_what_the_file_holds(figure, file):
    found = json.loads((ROOT / file).read_text())
    assert float(figure) == pytest.approx(found["mrr"], abs=0.0005)


@pytest.mark.parametrize("device", ["gpu", "cpu"])
def test_the_page_on_performance_shows_what_the_files_hold(device):
    text = (ROOT / "docs" / "performance.md").read_text()
    for row in json.loads((ROOT / "benchmarks" / f"stages_{device}.json").read_text())["results"]:
        shown = f"| {row['stage']} | {row['ms']:.2f} | {row['floor_ms']:.2f} |"
        assert shown in text


@pytest.mark.parametrize("name", ["foundation", "speed", "speed_gpu"])
def test_committed_benchmarks_met_their_bars_and_say_where_they_come_from(name):
    found = json.loads((ROOT / "benchmarks" / f"{name}.json").read_text())
    assert re.fullmatch(r"[0-9a-f]{40}", found["commit"])
    assert found["machine"]["cpu"]
    assert [row["measure"] for row in found["results"] if not row["met"]] == []
