"""Plot of an explanation: a small graph of the paths from head to tail, or paths in rows."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from functools import partial
from math import hypot
from pathlib import Path
from typing import TYPE_CHECKING
from unicodedata import east_asian_width

from pathe.core.types import Fact
from pathe.predict.results import Explanation, PatternEvidence, path_start, walked
from pathe.reports.fonts import fonts_for
from pathe.reports.plots import BLUE, INK, ORANGE, PALE, plot_figure, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Hops = list[tuple[str, bool, str]]  # relation, whether forward, next entity
Place = tuple[float, float]
Pair = tuple[str, str]
PATTERNS = 6  # drawn at most
NAME, LABEL = 20, 22  # characters per line of an entity and of a relation
BREAK = "\x1f"  # marks where a line may end without a space
APART, LINE = 2.9, 0.17  # inches between columns of entities, and per line of text


def plot_evidence(reason: Explanation, path: Path) -> str:
    """Draws the main reasons of a score; returns the characters that no installed font has.

    Paths from head to tail are drawn as a graph: shared entities once, wider lines for a larger
    effect, dashed ones for patterns that speak against the triple. Without such paths, those of
    head and tail are drawn in rows.
    """
    patterns, _, shown = reason.reasons(PATTERNS)
    facts = [step for pattern in patterns for steps in pattern.instances for step in steps]
    facts += [(reason.head, reason.relation, reason.tail)]
    facts += [step for _, steps, _ in shown for step in steps]
    fonts, lacking = fonts_for("".join(name for fact in facts for name in fact))
    if not patterns:
        _rows(reason, path, fonts)
    else:
        _graph(reason, patterns, path, fonts)
    return "" if path.suffix.lower() == ".svg" else lacking  # viewers of SVG choose the fonts


# the graph of paths from head to tail


@dataclass
class Drawn:
    """The parts of the graph: where each entity is, and what is written on each edge.

    `over` are the heights at which edges pass entities of other columns.
    """

    columns: dict[str, float]  # from 0, the head, to 1
    edges: dict[Pair, dict[Fact, PatternEvidence]] = field(default_factory=dict)
    wrapped: dict[str, str] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)
    over: dict[Pair, list[float]] = field(default_factory=dict)
    tall: float = 0.0  # inches

    def half(self, name: str) -> Place:
        """Returns half the width and height of an entity's box, in inches."""
        lines = self.wrapped[name].split("\n")
        return 0.1 + 0.033 * max(map(_width, lines)), 0.07 + LINE * len(lines) / 2


def _collect(head: str, tail: str, patterns: list[PatternEvidence]) -> Drawn:
    """Collects the instances; an edge belongs to the pattern that adds most."""
    drawn = Drawn({head: 0.0, tail: 1.0})
    for pattern in patterns:
        for steps in pattern.instances:
            here = head
            for i, (step, (_, _, name)) in enumerate(zip(steps, walked(steps, head), strict=True)):
                drawn.columns.setdefault(name, (i + 1) / len(steps))
                ends = drawn.edges.setdefault((min(here, name), max(here, name)), {})
                if step not in ends or abs(ends[step].added) < abs(pattern.added):
                    ends[step] = pattern
                here = name
    drawn.wrapped = {name: _wrap(name, NAME) for name in drawn.columns}
    _arrange(drawn)
    return drawn


def _arrange(drawn: Drawn) -> None:
    """Places entities in columns, top to bottom as collected; edges that pass by take room, too."""
    columns = sorted(set(drawn.columns.values()))
    rows: dict[float, dict[str | Pair, float]] = {x: {} for x in columns}
    for pair in drawn.edges:
        left, right = sorted(drawn.columns[name] for name in pair)
        for x in columns:
            if left < x < right:
                rows[x][pair] = 0.5
        for name in sorted(pair, key=drawn.columns.__getitem__):
            rows[drawn.columns[name]][name] = 0.4 + 2 * drawn.half(name)[1]
    drawn.tall = max(max(sum(own.values()) for own in rows.values()), 1.0)
    for i, x in enumerate(columns):
        top = sum(rows[x].values()) / 2
        for item, height in rows[x].items():
            y, top = top - height / 2, top - height
            if isinstance(item, str):
                drawn.places[item] = APART * i, y
            else:
                drawn.over.setdefault(item, []).append(y)


def _graph(
    reason: Explanation, patterns: list[PatternEvidence], path: Path, fonts: list[str]
) -> None:
    drawn = _collect(reason.head, reason.tail, patterns)
    n_columns, tall = len(set(drawn.columns.values())), drawn.tall
    words = [f"{p.added:+.2f}  {p.words()}  ({p.figures()})" for p in patterns]
    words += [f"{reason.left_over(patterns):+.2f}  other paths"]
    wide = max(APART * (n_columns - 1) + 2.2, 6.5)
    width = round(15 * wide)  # characters
    notes = [textwrap.fill(line, width, subsequent_indent="        ") for line in words]
    below = LINE * (1 + sum(1 + note.count("\n") for note in notes))

    def draw(axes: Axes) -> None:
        axes.set_axis_off()
        axes.set_xlim(-1.1, wide - 1.1)
        axes.set_ylim(-tall / 2 - below, tall / 2)
        _edges(axes, drawn)
        for name, (x, y) in drawn.places.items():
            end = name in (reason.head, reason.tail)
            fill, ink = (BLUE, "white") if end else ("white", INK)
            box = {"boxstyle": "round,pad=0.4", "fc": fill, "ec": BLUE, "lw": 1.0}
            axes.text(x, y, drawn.wrapped[name], bbox=box, zorder=3, fontsize=8, color=ink,
                      ha="center", va="center")  # fmt: skip
        axes.text(-1.1, -tall / 2 - 0.1, "\n".join(notes), fontsize=8, color=INK, va="top")

    triple = f"{reason.head} -{reason.relation}-> {reason.tail}"
    title = (
        f"{textwrap.fill(' '.join(triple.split()), round(10 * wide))}\n"
        f"rank {reason.rank:,}, probability {reason.probability:.1%}; paths between them add "
        f"{reason.bridged:+.2f}"
    )
    plot_figure(path, title, [draw], (wide + 0.2, tall + below + 0.8), fonts)


def _edges(axes: Axes, drawn: Drawn) -> None:
    """Draws one line per pair of entities and direction, with the relations on it."""
    most = max(abs(p.added) for own in drawn.edges.values() for p in own.values()) or 1.0
    for pair, ends in drawn.edges.items():
        by_direction: dict[Pair, list[str]] = {}
        for head, relation, tail in ends:
            by_direction.setdefault((head, tail), []).append(relation)
        pattern = max(ends.values(), key=lambda p: abs(p.added))
        for i, ((head, tail), relations) in enumerate(by_direction.items()):
            (x, y), (to_x, to_y) = drawn.places[head], drawn.places[tail]
            bend = 0.08 if len(by_direction) > 1 else 0.0
            if pair in drawn.over and to_x != x:
                over = sum(drawn.over[pair]) / len(drawn.over[pair]) - 0.3 * i
                bend = -2 * (over - (y + to_y) / 2) / (to_x - x)
            line = {
                "arrowstyle": "-|>,head_width=0.18,head_length=0.35",
                "connectionstyle": f"arc3,rad={bend}",
                "color": ORANGE if pattern.against else BLUE, "alpha": 0.75,
                "lw": 0.8 + 3.5 * abs(pattern.added) / most,
                "linestyle": "--" if pattern.against else "-",
                "shrinkA": _shrink(drawn, head, tail), "shrinkB": _shrink(drawn, tail, head),
            }  # fmt: skip
            axes.annotate("", (to_x, to_y), (x, y), zorder=1, arrowprops=line)
            # the curve passes half way to its control point
            middle = (x + to_x) / 2 + bend * (to_y - y) / 2, (y + to_y) / 2 - bend * (to_x - x) / 2
            box = {"boxstyle": "round,pad=0.12", "fc": "white", "ec": "none", "alpha": 0.85}
            label = "\n".join(_wrap(relation, LABEL) for relation in relations)
            axes.text(*middle, label, fontsize=7, color=INK, ha="center", va="center", bbox=box,
                      zorder=2)  # fmt: skip


def _shrink(drawn: Drawn, name: str, other: str) -> float:
    """Returns how far from an entity's centre its box ends towards another one, in points."""
    (x, y), (to_x, to_y), (half_x, half_y) = (
        drawn.places[name], drawn.places[other], drawn.half(name)
    )  # fmt: skip
    far = max(hypot(to_x - x, to_y - y), 1e-6)
    across, along = abs(to_x - x) / far, abs(to_y - y) / far
    return 72 * min(half_x / max(across, 1e-6), half_y / max(along, 1e-6)) + 2


def _width(text: str) -> int:
    """Returns the width of a text in characters; wide ones count twice."""
    return len(text) + sum(east_asian_width(c) in "WF" for c in text)


def _wrap(name: str, width: int) -> str:
    """Returns a name on lines of about `width` characters, broken at spaces and after _."""
    name = " ".join(name.split())
    width = max(round(width * len(name) / max(_width(name), 1)), 4)
    lines = textwrap.wrap(name.replace("_", f"_{BREAK} "), width)
    return "\n".join(lines).replace(f"{BREAK} ", "").replace(BREAK, "")


# paths of head and tail, in rows


def _rows(reason: Explanation, path: Path, fonts: list[str], n: int = 8) -> None:
    shown = reason.shown(n)
    names = (reason.head, f"-{reason.relation}->", reason.tail)
    title = (
        f"{' '.join(shorten(name, 40) for name in names)}\nrank {reason.rank:,}, probability "
        f"{reason.probability:.1%}; effect of each path on the score"
    )

    def draw(axes: Axes) -> None:
        axes.set_axis_off()
        axes.set_xlim(-3.1, 2.6)
        axes.set_ylim(len(shown) - 0.4, -0.6)
        for y, (found, steps, remark) in enumerate(shown):
            colour, focus = BLUE if found.effect > 0 else ORANGE, reason.focus(found)
            axes.text(-3.05, y, f"{found.effect:+.3f}", color=colour, fontsize=11, va="center")
            write = partial(axes.text, -2.45, va="center", ha="center", color=INK)
            write(y, found.of, fontsize=8)
            write(y + 0.25, remark.strip(" ()"), fontsize=6)
            start = path_start(steps, focus)
            _path(axes, y, colour, start, walked(steps, start), focus)

    plot_figure(path, title, [draw], (12.5, 1.4 + 0.75 * max(len(shown), 1)), fonts)


def _path(axes: Axes, y: int, colour: str, start: str, hops: Hops, focus: str) -> None:
    """Draws entities in boxes, aligned at the focus, with the graph's arrows."""
    names = [start, *(name for _, _, name in hops)]
    left = -names.index(focus)
    write = partial(axes.text, ha="center", va="center")
    shown = [shorten(name, 22) for name in names]
    for i, name in enumerate(shown):
        fill, ink = (colour, "white") if names[i] == focus else ("white", INK)
        box = {"boxstyle": "round,pad=0.35", "fc": fill, "ec": colour, "lw": 1.0}
        write(left + i, y, name, fontsize=8, color=ink, bbox=box, zorder=3)
    half = [0.05 + 0.0165 * len(name) for name in shown]  # of each box's width
    for i, (relation, forward, _) in enumerate(hops):
        write(left + i + 0.5, y - 0.27, shorten(relation, 26), fontsize=7, color=INK)
        ends = (left + i + 1 - half[i + 1], y), (left + i + half[i], y)
        line = {"arrowstyle": "->" if forward else "<-", "color": PALE, "lw": 1.4}
        axes.annotate("", *ends, zorder=1, arrowprops=line)
