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
ANY_GRAPH = SPEED.with_name("any_graph.json")
INCHES, TALL = (7.4, 4.2), (7.4, 5.6)  # sizes of the plots
WAYS = ("pre-trained, as it is", "fine-tuned", "trained from scratch", "ULTRA, as it is")
OURS = {  # names of points, by experiment on FB15k-237
    "fb15k237-link": "node vectors",
    "fb15k237-link-bridge": "with bridges",
    "fb15k237-tuned": "fine-tuned",
}
OURS_NAMED = "PathE"
PRETRAINED = {  # measures of the pre-trained model that are shown, and their names
    "fb15k-237: a query of a relation that was asked before": "relation asked before",
    "fb15k-237: a query; some are the first of their relations": "any query",
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
    found = plotted(summaries, without_training, others, results)
    draws = {
        "accuracy": partial(draw_accuracy, methods=found["accuracy"]),
        "transfer": partial(draw_transfer, graphs=found["transfer"]),
        "speed": partial(draw_speed, rates=found["speed"]),
        "parts": partial(draw_parts, changes=found["parts"]),
    }
    for name, draw in draws.items():
        if data := found[name]:
            size = TALL if name in ("transfer", "parts") else INCHES
            plot_figure(picture(page, name), TITLES[name], [draw], size, data=data)


def plotted(
    summaries: list[Result],
    without_training: dict[str, Any] | None,
    others: Mapping[str, Any],
    results: Path,
) -> dict[str, Any]:
    """Returns what each plot shows."""
    return {
        "accuracy": methods(summaries, without_training, others),
        "transfer": transfer(summaries, without_training),
        "speed": speed(results.parent),
        "parts": parts(summaries),
    }


TITLES = {
    "accuracy": "FB15k-237: accuracy against size",
    "transfer": "One model for any graph: with and without training on the graph",
    "speed": "Two CPU cores: queries per second on FB15k-237",
    "parts": "What each part brings: one change at a time",
}
ABOUT = {
    "accuracy": "**How accurate, for how many parameters?** Test triples of FB15k-237. The "
    "pre-trained model has seen FB15k-237's training triples in pre-training. Other methods: "
    "their own papers' figures, or those in PathE's paper.",
    "transfer": "**Does it need training?** The pre-trained model as it is, fine-tuned, and a new "
    "model trained on the graph alone, where there is one. ULTRA's figures are in its own "
    "protocol: valid and test triples together, pessimistic ties.",
    "speed": "**How fast?** Test queries of FB15k-237, ranked among all entities, and those of the "
    "pre-trained model one at a time. More in [performance](performance.md).",
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


def speed(folder: Path) -> dict[str, float]:
    """Returns queries per second by model, from the benchmarks in a checkout's folder."""
    found = {}
    for row in _measured(folder / SPEED):
        if row.get("peer_per_s") and "queries/s" in row["measure"]:
            found[f"{OURS_NAMED}, node vectors"] = row["ours_per_s"]
            found[" ".join(str(row["peer"]).split()[:2])] = row["peer_per_s"]
    for row in _measured(folder / ANY_GRAPH):
        for measure, shown in PRETRAINED.items():
            if row["measure"] == measure:
                found[f"{OURS_NAMED}, pre-trained\n({shown})"] = 1 / row["seconds"]
    return found


def _measured(path: Path) -> list[dict[str, Any]]:
    """Returns the rows of a benchmark; none if there is no such file."""
    found = json.loads(path.read_text(encoding="utf-8"))["results"] if path.is_file() else []
    return list(found)


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
