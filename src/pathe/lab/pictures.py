"""The four plots at the top of the results page, from the results that the page shows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pathe.lab import zero_shot
from pathe.lab.experiments import Result, judged
from pathe.reports.plots import plot_figure
from pathe.reports.result_plots import (
    Method,
    draw_accuracy,
    draw_parts,
    draw_speed,
    draw_transfer,
)

SPEED = Path("benchmarks") / "speed.json"  # beside the folder of results
INCHES, TALL = (7.4, 4.2), (7.4, 5.6)  # sizes of the plots
WAYS = ("pre-trained, as it is", "fine-tuned", "trained from scratch", "ULTRA, as it is")
OURS = {  # names of points, by experiment on FB15k-237
    "fb15k237-link": "node vectors",
    "fb15k237-link-bridge": "with bridges",
    "fb15k237-tuned": "fine-tuned",
}
PARTS = {  # variants that are shown, and their names
    "no bridges": "no bridges",
    "bridges of 2 hops": "bridges of 2 hops",
    "the batch's edges in contexts and walks": "batch not held out",
    "mined paths": "mined paths",
    "256 shared negatives": "256 shared negatives",
    "constant rate": "constant learning rate",
    "positions from the start": "positions from the start",
    "raw counts": "raw counts in contexts",
    "states half as wide": "states half as wide",
}


def write_pictures(
    page: Path,
    summaries: list[Result],
    without_training: dict[str, Any] | None,
    others: Mapping[str, Any],
    results: Path,
) -> None:
    """Draws what there are results for, beside the page; `others` are published figures."""
    shown = methods(summaries, without_training, others)
    graphs, ratios = transfer(summaries, without_training), speed(results.parent / SPEED)
    changes = parts(summaries)
    drawn = {
        "accuracy": (shown, partial(draw_accuracy, methods=shown), INCHES),
        "transfer": (graphs, partial(draw_transfer, graphs=graphs), TALL),
        "speed": (ratios, partial(draw_speed, ratios=ratios), INCHES),
        "parts": (changes, partial(draw_parts, changes=changes), TALL),
    }
    for name, (found, draw, size) in drawn.items():
        if found:
            plot_figure(picture(page, name), TITLES[name], [draw], size)


TITLES = {
    "accuracy": "FB15k-237: accuracy against size",
    "transfer": "One model for any graph: with and without training on the graph",
    "speed": "Two CPU cores: speed against other libraries",
    "parts": "What each part brings: one change at a time",
}
ABOUT = {
    "accuracy": "**How accurate, for how many parameters?** Test triples of FB15k-237. The "
    "pre-trained model has seen FB15k-237's training triples in pre-training. Other methods: "
    "their own papers' figures, or those in PathE's paper.",
    "transfer": "**Does it need training?** The pre-trained model as it is, fine-tuned, and a new "
    "model trained on the graph alone, where there is one. ULTRA's figures are in its own "
    "protocol: valid and test triples together, pessimistic ties.",
    "speed": "**How fast?** FB15k-237, in the same run; see [performance](performance.md).",
    "parts": "**What does each part bring?** A model with bridges that was trained from scratch on "
    "a GraIL graph, evaluated on unseen entities. One seed, so changes below .01 mean little.",
}


def at_a_glance(page: Path) -> Iterator[str]:
    """Yields the section of the page that shows the plots that are there."""
    shown = [name for name in TITLES if picture(page, name).is_file()]
    if shown:
        yield "\n## At a glance\n"
    for name in shown:
        yield f"{ABOUT[name]}\n\n![{TITLES[name]}]({picture(page, name).name})\n"


def picture(page: Path, name: str) -> Path:
    """Returns where a plot of the page is written."""
    return page.with_name(f"results-{name}.svg")


def methods(
    summaries: list[Result], without_training: dict[str, Any] | None, others: Mapping[str, Any]
) -> list[Method]:
    """Returns the methods with a figure on FB15k-237: ours, the paper's and others."""
    found = []
    for summary in summaries:
        if summary["name"] in OURS:
            size, mrr = summary["parameters"] / 1e6, judged(summary)["mrr"]["mean"]
            found.append(Method(f"PathE, {OURS[summary['name']]}", size, mrr, "ours"))
    graphs = (without_training or {}).get("graphs", {})
    if without_training and "fb15k-237" in graphs:
        size, mrr = without_training["parameters"] / 1e6, graphs["fb15k-237"]["links"]["mrr"]
        found.append(Method("PathE, pre-trained", size, mrr, "ours"))
    if not found:
        return []
    paper = next((s["paper"] for s in summaries if s["name"] == "fb15k237-link-paper"), None)
    if paper:
        found.append(Method("PathE (paper)", paper["parameters"], paper["mrr"], "paper"))
    for name, figures in others["accuracy"].items():
        found.append(Method(name, figures["parameters"], figures["mrr"], "other"))
    return found


def transfer(
    summaries: list[Result], without_training: dict[str, Any] | None
) -> dict[str, dict[str, float | None]]:
    """Returns the MRR of each way to get a model, by graph that one was fine-tuned on."""
    graphs = (without_training or {}).get("graphs", {})
    tuned = {s["title"]: s for s in summaries if s["table"] == "tuned"}
    named, found = {s["name"]: s for s in summaries}, {}
    for name, entry in zero_shot.listed()["graphs"].items():
        if entry["title"] in tuned and name in graphs:
            ours = tuned[entry["title"]]
            scratch = named.get(ours["name"].replace("-tuned", "-link-bridge"))
            mrrs = (
                graphs[name]["links"]["mrr"],
                judged(ours)["mrr"]["mean"],
                _full(scratch) if scratch else None,
                entry["ultra"][0] if entry.get("ultra") else None,
            )
            found[entry["title"]] = dict(zip(WAYS, mrrs, strict=True))
    return found


def _full(summary: Result) -> float:
    """Returns the MRR of the full ranking, on all test triples if there is such a figure."""
    full = summary["inference"].get("full") or summary.get("all_metrics") or summary["metrics"]
    return float(full["mrr"]["mean"])


def speed(path: Path) -> dict[str, float]:
    """Returns how many times as fast as a peer each measured task is."""
    if not path.is_file():
        return {}
    rows = json.loads(path.read_text(encoding="utf-8"))["results"]
    return {
        f"{row['measure'].split(',')[0].partition(' positives/s')[0]}\n"
        f"(PyKEEN's {_peer(row)})": row["ours_per_s"] / row["peer_per_s"]
        for row in rows
        if row.get("peer_per_s")
    }


def _peer(row: dict[str, Any]) -> str:
    """Returns the model that a row of the benchmark compares with."""
    return str(row["peer"]).split()[1].rstrip(",")


def parts(summaries: list[Result]) -> dict[str, dict[str, float]]:
    """Returns the change in MRR of each variant that is shown, by graph."""
    found = {}
    for summary in summaries:
        rows = summary.get("variants", {})
        if summary["table"] == "recipes" and "no bridges" in rows and summary.get("inference"):
            whole = summary["inference"]["full"]["mrr"]["mean"]
            found[_graph_of(summary)] = {
                shown: rows[name]["inference"]["full"]["mrr"]["mean"] - whole
                for name, shown in PARTS.items()
                if name in rows
            }
    return found


def _graph_of(summary: Result) -> str:
    """Returns the graph in brackets at the end of a title."""
    return str(summary["title"].rpartition("(")[2].rstrip(")"))
