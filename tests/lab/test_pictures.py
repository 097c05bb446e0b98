"""The plots at the top of the results page show what the results say."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from support.places import ROOT

from pathe.lab.pictures import (
    ABOUT,
    ANY_GRAPH,
    PRETRAINED,
    SPEED,
    at_a_glance,
    methods,
    parts,
    picture,
    plotted,
    speed,
    transfer,
)
from pathe.lab.results_page import (
    POSITIONS,
    paths_per_triple,
    published,
    read_results,
    read_zero_shot,
)
from pathe.model.artifact import model_digest
from pathe.reports.plots import data_digest

SUMMARIES = read_results(ROOT / "results")
ZERO_SHOT = read_zero_shot(ROOT / "results")


def result(name: str) -> dict:
    return json.loads((ROOT / "results" / f"{name}.json").read_text())


def test_every_plot_is_on_the_page_and_in_the_repository():
    text = (ROOT / "docs" / "results.md").read_text()
    for name in ABOUT:
        shown = picture(ROOT / "docs" / "results.md", name)
        assert f"({shown.name})" in text
        assert "<svg" in shown.read_text()


def test_points_are_the_figures_of_the_files():
    points = {m.name: m for m in methods(SUMMARIES, ZERO_SHOT, published())}
    link = result("fb15k237-link-bridge")
    ours = points["PathE, with bridges"]
    assert (ours.parameters, ours.mrr) == (
        pytest.approx(link["parameters"] / 1e6),
        link["metrics"]["mrr"]["mean"],
    )
    zero_shot = result("zero-shot")
    assert points["PathE, pre-trained"].mrr == zero_shot["graphs"]["fb15k-237"]["links"]["mrr"]
    assert points["PathE (paper)"].mrr == pytest.approx(0.216)
    for table in published()["baselines"]["link"]["FB15k-237"].items():
        name, figures = table[0].partition(" (")[0], table[1]
        assert points[name].mrr == figures["mrr"]
        assert points[name].parameters == figures["parameters"]


def test_ways_of_a_graph_have_its_figures():
    found = transfer(SUMMARIES, ZERO_SHOT)["NELL v1"]
    tuned = result("nell_v1-tuned")["inference"]["full"]["mrr"]["mean"]
    assert found["fine-tuned"] == tuned
    assert found["trained from scratch"] is None
    assert found["ULTRA, as it is"] == pytest.approx(0.785)


def test_changes_are_differences_from_the_recipe():
    found = parts(SUMMARIES)["FB15k-237 v1"]
    recipe = result("recipes-fb237_v1")
    without = recipe["variants"]["no bridges"]["inference"]["full"]["mrr"]["mean"]
    whole = recipe["inference"]["full"]["mrr"]["mean"]
    assert found["no bridges"] == pytest.approx(without - whole)
    assert found["no bridges"] < -0.1


def test_pictures_show_the_data_of_the_files():
    """A stale picture names another digest. `pathe reproduce --page docs/results.md` draws it."""
    docs, found = ROOT / "docs", plotted(SUMMARIES, ZERO_SHOT, published(), ROOT / "results")
    shown = {f"results-{name}": data for name, data in found.items()}
    shown["paths-per-triple"] = {
        n: summary["metrics"] for n, summary in paths_per_triple(SUMMARIES).items()
    }
    shown["positions"] = model_digest(ROOT / "models" / POSITIONS)
    for name, data in shown.items():
        assert data_digest(data) in (docs / f"{name}.svg").read_text(), name
    changed = [replace(found["accuracy"][0], mrr=0.999), *found["accuracy"][1:]]
    assert data_digest(changed) != data_digest(found["accuracy"])


def test_speed_is_in_queries_per_second(tmp_path):
    (tmp_path / "benchmarks").mkdir()
    rows = [
        {"measure": "ranking, queries/s", "peer": "PyKEEN RotatE 5", "ours_per_s": 50.0,
         "peer_per_s": 5.0},
        {"measure": "training positives/s", "peer": "PyKEEN X", "ours_per_s": 3, "peer_per_s": 2},
        {"measure": "embedding", "peer": "-", "ours_per_s": 7.0},
    ]  # fmt: skip
    (tmp_path / SPEED).write_text(json.dumps({"results": rows}))
    assert speed(tmp_path) == {"PathE, node vectors": 50.0, "PyKEEN RotatE": 5.0}
    rows = [{"measure": next(iter(PRETRAINED)), "seconds": 0.05}, {"measure": "?", "seconds": 1}]
    (tmp_path / ANY_GRAPH).write_text(json.dumps({"results": rows}))
    assert speed(tmp_path)["PathE, pre-trained\n(relation asked before)"] == 20
    assert len(speed(ROOT)) == 5
    assert speed(tmp_path / "none") == {}


def test_only_plots_that_were_drawn_are_shown(tmp_path):
    page = tmp_path / "results.md"
    assert not list(at_a_glance(page))
    picture(page, "speed").write_text("<svg/>")
    text = "\n".join(at_a_glance(page))
    assert re.findall(r"\(results-\w+\.svg\)", text) == ["(results-speed.svg)"]
