"""The calculated table: by hand for round figures, and as the file and the docs have it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from support.places import ROOT

from pathe.cluster.plan import GIB, VECTOR_HALF, Figures, Graph, Machines, plan

FIGURES = Figures(
    query_edge_seconds=1e-6, embed_edge_seconds=1e-6, shard_seconds=0.01, efficiency=1.0,
    bytes_per_triple=300, worker_bytes=GIB,
)  # fmt: skip
GRAPH = Graph(8192 * 100, 10_000_000)
MACHINES = Machines(2, cores=4, memory=64 * GIB, bandwidth=1e9, price=0.5)


def test_a_plan_by_hand():
    found = plan(FIGURES, GRAPH, MACHINES, 1024 * 80)
    half = 8192 * 100 * VECTOR_HALF
    assert found["folder_gib"] == pytest.approx(3e9 / GIB)
    assert found["memory_gib"] == pytest.approx((half + 4 * (GIB + half)) / GIB)
    assert found["embed_workers"] == 4
    assert found["hours"]["copies"] == pytest.approx(2 * 3e9 / 1e9 / 3600)
    driver = 200 * 0.01 + 1.5 * 2 * half / 1e9  # its shards, and the vectors over the network
    assert found["hours"]["embed"] == pytest.approx(max(20 / 8, driver) / 3600)
    queries = 1024 * 80 * 20 / 8 + 80 * 0.01
    assert found["hours"]["queries"] == pytest.approx(queries / 3600)
    assert found["dollars"] == pytest.approx(sum(found["hours"].values()) * 2 * 0.5)
    assert found["limits"] == ["exact queries take longest"]


def test_more_machines_than_shards_do_not_help():
    few = plan(FIGURES, GRAPH, replace(MACHINES, count=2), 1024)
    many = plan(FIGURES, GRAPH, replace(MACHINES, count=200), 1024)
    assert few["hours"]["queries"] == many["hours"]["queries"]
    assert many["hours"]["copies"] == pytest.approx(100 * few["hours"]["copies"])


def test_what_breaks_is_said():
    large = Graph(200_000_000, 2_000_000_000)
    found = plan(FIGURES, large, MACHINES, 1024)
    assert found["embed_workers"] == 0
    assert "embed" not in found["hours"]
    assert found["limits"][0] == "prepared graphs hold about a billion triples"
    assert found["limits"][1] == "embed: 0 of 4 workers fit a node's memory"


def test_the_table_is_calculated_from_the_measured_figures():
    found = json.loads((ROOT / "benchmarks" / "cluster.json").read_text())
    rows = {row["measure"]: row for row in found["results"]}
    measured, text = rows["driver per shard"], (ROOT / "docs" / "scale.md").read_text()
    figures = Figures(**measured["figures"])
    assert rows["plan"]["calculated"]
    for one in rows["plan"]["plans"]:
        size = Graph(one["n_entities"], one["n_triples"])
        machines = replace(Machines(**rows["plan"]["machine"]), count=one["machines"])
        again = plan(figures, size, machines, rows["plan"]["queries"])
        assert {key: one[key] for key in again} == again
        hours = {key: f"{one['hours'][key]:,.3f}" for key in one["hours"]}
        memory = f"{one['memory_gib']:,.0f} + {one['folder_gib']:,.0f}"
        cells = [
            one["graph"], str(one["machines"]), memory,
            hours["copies"], hours.get("embed", "-"), f"{one['hours']['queries']:,.0f}",
            f"{one['dollars']:,.0f}", "; ".join(one["limits"]),
        ]  # fmt: skip
        assert f"| {' | '.join(cells)} |" in text
    ranks = rows["exact ranks, 2 workers"]
    assert f"an efficiency of {ranks['ours'].split()[0]}" in text
    assert f"{ranks['one']['ranks']:.0f} s with one worker, {ranks['two']['ranks']:.0f} s" in text
    assert f"{1000 * figures.shard_seconds:.0f} ms of the driver per shard" in text
    assert f"load of {ranks['load']:.0f}" in text
    assert figures.efficiency >= 0.8
