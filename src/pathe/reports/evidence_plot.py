"""Plot of an explanation: the paths that changed a score, a row each."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pathe.predict.results import Explanation, path_start, walked
from pathe.reports.plots import BLUE, INK, ORANGE, PALE, plot_figure, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Hops = list[tuple[str, bool, str]]  # relation, whether forward, next entity


def plot_evidence(reason: Explanation, path: Path, n: int = 8) -> None:
    """Draws the n paths that changed a score most; paths between head and tail come first."""
    bridges, shown = reason.strongest(n)
    n_rows = len(bridges) + len(shown)
    names = (reason.head, f"-{reason.relation}->", reason.tail)
    title = (
        f"{' '.join(shorten(name, 40) for name in names)}\nrank {reason.rank:,}, probability "
        f"{reason.probability:.1%}; effect of each path on the score"
    )

    def draw(axes: Axes) -> None:
        axes.set_axis_off()
        axes.set_xlim(-3.1, 2.6)
        axes.set_ylim(n_rows - 0.4, -0.6)
        for y, bridge in enumerate(bridges):
            colour, start = _effect(axes, y, bridge.effect, "between"), reason.start(bridge)
            _path(axes, y, colour, start, walked(bridge.steps, start))
        for y, (found, steps, remark) in enumerate(shown, len(bridges)):
            colour, focus = _effect(axes, y, found.effect, found.of), reason.focus(found)
            axes.text(-2.45, y + 0.25, remark.strip(" ()"), fontsize=6, va="center", ha="center")
            start = path_start(steps, focus)
            _path(axes, y, colour, start, walked(steps, start), focus)

    plot_figure(path, title, [draw], (12.5, 1.4 + 0.75 * max(n_rows, 1)))


def _effect(axes: Axes, y: int, effect: float, label: str) -> str:
    """Writes the effect of a path and what it belongs to; returns the colour of its row."""
    colour = BLUE if effect > 0 else ORANGE
    axes.text(-3.05, y, f"{effect:+.3f}", color=colour, fontsize=11, va="center")
    axes.text(-2.45, y, label, color=INK, fontsize=8, va="center", ha="center")
    return colour


def _path(axes: Axes, y: int, colour: str, start: str, hops: Hops, focus: str = "") -> None:
    """Draws entities in boxes with the graph's arrows: aligned at the focus, or from the left."""
    names = [start, *(name for _, _, name in hops)]
    left, apart, filled = -1.9, min(1.0, 4.3 / max(len(hops), 1)), {0, len(hops)}
    if focus:
        left, apart = -names.index(focus), 1.0
        filled = {i for i, name in enumerate(names) if name == focus}
    write = partial(axes.text, ha="center", va="center")
    shown = [shorten(name, round(22 * apart)) for name in names]
    for i, name in enumerate(shown):
        fill, ink = (colour, "white") if i in filled else ("white", INK)
        box = {"boxstyle": "round,pad=0.35", "fc": fill, "ec": colour, "lw": 1.0}
        write(left + i * apart, y, name, fontsize=8, color=ink, bbox=box, zorder=3)
    half = [0.05 + 0.0165 * len(name) for name in shown]  # of each box's width
    for i, (relation, forward, _) in enumerate(hops):
        middle = left + (i + 0.5) * apart
        write(middle, y - 0.27, shorten(relation, round(26 * apart)), fontsize=7, color=INK)
        if focus:
            ends = (left + i + 1 - half[i + 1], y), (left + i + half[i], y)
            line = {"arrowstyle": "->" if forward else "<-", "color": PALE, "lw": 1.4}
            axes.annotate("", *ends, zorder=1, arrowprops=line)
        else:
            write(middle, y, "→" if forward else "←", color=INK)
