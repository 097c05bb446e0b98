"""Plots at the top of the results page: accuracy, transfer, speed, and what each part brings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pathe.reports.plots import BLUE, INK, ORANGE, PALE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GREY = "#8a8a8a"
LABEL = 9  # points


@dataclass(frozen=True)
class Method:
    """A method in the plot of accuracy against parameters."""

    name: str
    parameters: float  # millions
    mrr: float
    kind: str  # "ours", "paper" or "other"


def draw_accuracy(axes: Axes, methods: Sequence[Method]) -> None:
    """Draws MRR against the number of parameters, which is on a logarithmic axis."""
    colours = {"ours": BLUE, "paper": ORANGE, "other": GREY}
    for method in methods:
        place, colour = (method.parameters, method.mrr), colours[method.kind]
        axes.scatter(*place, s=42, color=colour, zorder=3)
        left = method.kind == "other"  # so that names of close points stay apart
        axes.annotate(
            method.name, place, xytext=(-7 if left else 7, 4 * (method.kind == "paper")),
            textcoords="offset points", ha="right" if left else "left", va="center",
            color=INK if method.kind == "ours" else colour, fontsize=LABEL,
        )  # fmt: skip
    axes.set_xscale("log")
    sizes, mrrs = zip(*((method.parameters, method.mrr) for method in methods), strict=True)
    axes.set_xlim(min(sizes) / 1.6, max(sizes) * 1.6)
    axes.set_ylim(0.8 * min(mrrs), 1.06 * max(mrrs))
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}M")
    axes.xaxis.set_minor_formatter(lambda *_: "")
    axes.grid(axis="y", color=PALE, linewidth=0.6)
    axes.set_xlabel("parameters", fontsize=LABEL, color=INK)
    axes.set_ylabel("MRR", fontsize=LABEL, color=INK)


def draw_transfer(axes: Axes, graphs: Mapping[str, Mapping[str, float | None]]) -> None:
    """Draws, per graph, the MRR of several ways to get a model, as {graph: {way: MRR}}."""
    names = list(graphs)[::-1]
    ways = list(dict.fromkeys(way for found in graphs.values() for way in found))
    styles = [("o", BLUE), ("D", ORANGE), ("s", INK), ("|", GREY)]
    for y, name in enumerate(names):
        known = [mrr for mrr in graphs[name].values() if mrr is not None]
        axes.hlines(y, min(known), max(known), color=PALE, linewidth=2, zorder=1)
    for way, (marker, colour) in zip(ways, styles, strict=False):
        at = [
            (mrr, y) for y, name in enumerate(names) if (mrr := graphs[name].get(way)) is not None
        ]
        x, y_of = zip(*at, strict=True)
        size = 90 if marker == "|" else 34
        axes.scatter(x, y_of, s=size, marker=marker, color=colour, label=way)
    axes.set_yticks(range(len(names)), names, fontsize=LABEL)
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(left=0)
    axes.set_xlabel("MRR on the test triples", fontsize=LABEL, color=INK)
    axes.legend(
        frameon=False, fontsize=LABEL, loc="lower center", bbox_to_anchor=(0.45, 1), ncols=len(ways)
    )


def draw_speed(axes: Axes, rates: Mapping[str, float]) -> None:
    """Draws queries per second by model, on a log scale; PathE's models have a colour of theirs."""
    names = sorted(rates, key=lambda name: rates[name])
    colours = [BLUE if name.startswith("PathE") else GREY for name in names]
    bars = axes.barh(range(len(names)), [rates[name] for name in names], color=colours, height=0.6)
    shown = [f"{rates[name]:,.0f}" if rates[name] >= 10 else f"{rates[name]:.1f}" for name in names]
    axes.bar_label(bars, shown, padding=4, fontsize=LABEL, color=INK)
    axes.set_yticks(range(len(names)), names, fontsize=LABEL)
    axes.tick_params(axis="y", length=0)
    axes.set_xscale("log")
    axes.set_xlim(min(1, *rates.values()), 3 * max(rates.values()))
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
    axes.xaxis.set_minor_formatter(lambda *_: "")
    axes.set_xlabel("queries per second", fontsize=LABEL, color=INK)


def draw_parts(axes: Axes, changes: Mapping[str, Mapping[str, float]]) -> None:
    """Draws how each change affects the MRR, as {graph: {change: difference}}."""
    names = list(dict.fromkeys(name for found in changes.values() for name in found))[::-1]
    height = 0.8 / len(changes)
    for i, (graph, found) in enumerate(changes.items()):
        shift = height * ((len(changes) - 1) / 2 - i)
        at = [(y + shift, found[name]) for y, name in enumerate(names) if name in found]
        places, widths = zip(*at, strict=True)
        axes.barh(places, widths, height=height, color=(BLUE, ORANGE)[i % 2], label=graph)
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.set_yticks(range(len(names)), names, fontsize=LABEL)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("change in MRR", fontsize=LABEL, color=INK)
    axes.legend(frameon=False, fontsize=LABEL, loc="lower left")
