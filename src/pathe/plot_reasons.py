"""A picture of an explanation: the paths that moved a score, a row each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pathe.answers import (
    BridgeEvidence,
    Explanation,
    Fact,
    PathEvidence,
    path_start,
    walked,
)
from pathe.plots import BLUE, INK, ORANGE, PALE, check_picture, save_figure, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_evidence(reason: Explanation, path: Path, n: int = 8) -> None:
    """Draw the n paths that moved a score most, a row each, aligned at the entity they are of.

    Paths between head and tail come first.
    """
    path = Path(path)
    check_picture(path)
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    bridges, shown = reason.strongest(n)
    n_rows = len(bridges) + len(shown)
    figure = Figure(figsize=(12.5, 1.4 + 0.75 * max(n_rows, 1)), layout="constrained")
    with rc_context({"text.parse_math": False, "svg.hashsalt": "pathe"}):
        axes = figure.subplots()
        axes.set_axis_off()
        axes.set_xlim(-3.1, 2.6)
        axes.set_ylim(n_rows - 0.4, -0.6)
        for row, bridge in enumerate(bridges):
            _bridge_row(axes, row, bridge, reason.start(bridge))
        for row, (found, steps, remark) in enumerate(shown, len(bridges)):
            _path_row(axes, row, found, reason.focus(found), steps, remark)
        title = " ".join(
            shorten(name, 40) for name in (reason.head, f"-{reason.relation}->", reason.tail)
        )
        figure.suptitle(
            f"{title}\nrank {reason.rank:,}, probability {reason.probability:.1%}; what the score "
            "loses without each path",
            color=INK, fontsize=11,
        )  # fmt: skip
        save_figure(figure, path)


def _bridge_row(axes: Axes, y: int, bridge: BridgeEvidence, start: str) -> None:
    """One path between head and tail, from left to right, arrows as they are in the graph."""
    colour = BLUE if bridge.effect > 0 else ORANGE
    axes.text(-3.05, y, f"{bridge.effect:+.3f}", color=colour, fontsize=11, va="center")
    axes.text(-2.45, y, "between", color=INK, fontsize=8, va="center", ha="center")
    apart = min(1.0, 4.3 / len(bridge.steps))
    names = [start]
    for i, (relation, forward, name) in enumerate(walked(bridge.steps, start)):
        names.append(name)
        middle = -1.9 + (i + 0.5) * apart
        axes.text(
            middle, y - 0.27, shorten(relation, round(26 * apart)), ha="center", va="center",
            fontsize=7, color=INK,
        )  # fmt: skip
        axes.text(middle, y, "→" if forward else "←", ha="center", va="center", color=INK)
    for i, name in enumerate(names):
        ends = i in (0, len(names) - 1)
        axes.text(
            -1.9 + i * apart, y, shorten(name, round(22 * apart)), ha="center", va="center",
            fontsize=8, color="white" if ends else INK, zorder=3,
            bbox={"boxstyle": "round,pad=0.35", "fc": colour if ends else "white", "ec": colour,
                  "lw": 1.0},
        )  # fmt: skip


def _path_row(
    axes: Axes, y: int, found: PathEvidence, focus: str, steps: list[Fact], remark: str
) -> None:
    """One path: entities in boxes, the entity that it is of in the middle, arrows between them."""
    colour = BLUE if found.effect > 0 else ORANGE
    axes.text(-3.05, y, f"{found.effect:+.3f}", color=colour, fontsize=11, va="center")
    axes.text(-2.45, y, found.of, color=INK, fontsize=8, va="center", ha="center")
    axes.text(-2.45, y + 0.25, remark.strip(" ()"), fontsize=6, va="center", ha="center")
    start = path_start(steps, focus)
    hops = walked(steps, start)
    names = [start, *(name for _, _, name in hops)]
    first = -names.index(focus)
    for i, name in enumerate(names):
        box = {"boxstyle": "round,pad=0.35", "fc": colour if name == focus else "white",
               "ec": colour, "lw": 1.0}  # fmt: skip
        ink = "white" if name == focus else INK
        axes.text(
            first + i, y, shorten(name, 22), ha="center", va="center", fontsize=8, color=ink,
            bbox=box, zorder=3,
        )  # fmt: skip
    half = [0.05 + 0.0165 * len(shorten(name, 22)) for name in names]  # of a box's width
    for i, (relation, along, _) in enumerate(hops):
        axes.annotate(
            "", (first + i + 1 - half[i + 1], y), (first + i + half[i], y), zorder=1,
            arrowprops={"arrowstyle": "->" if along else "<-", "color": PALE, "lw": 1.4},
        )  # fmt: skip
        axes.text(
            first + i + 0.5, y - 0.27, shorten(relation, 26), ha="center", va="center", fontsize=7,
            color=INK,
        )  # fmt: skip
