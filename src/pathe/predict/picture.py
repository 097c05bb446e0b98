"""Draws the paths between two entities as inline SVG, for notebooks."""

from __future__ import annotations

from typing import NamedTuple

from pathe.core.html import escape
from pathe.core.types import Fact

WIDTH, MARGIN, ROW, TOP = 760, 110, 64, 34  # of the picture, in pixels
FOR, AGAINST = "#2a6fbb", "#d9822b"
LETTERS = 28  # of a name in the picture; the whole name is a tooltip
Place = tuple[float, float]


class Drawn(NamedTuple):
    """A path of the picture: its steps, and its effect on the score."""

    steps: list[Fact]
    effect: float


def draw_paths(start: str, end: str, drawn: list[Drawn]) -> str:
    """Returns a small graph: `start` left, `end` right, a row per path, shared nodes merged.

    Arrows point as in the graph; their widths show the effects.
    """
    places, height = _places(start, end, drawn)
    most = max(abs(path.effect) for path in drawn) or 1.0
    effects: dict[tuple[str, str], float] = {}  # the first path through an edge colours it
    labels: dict[frozenset[str], list[str]] = {}
    for steps, effect in drawn:
        for head, relation, tail in steps:
            effects.setdefault((head, tail), effect)
            own = labels.setdefault(frozenset((head, tail)), [])
            own += [relation] if relation not in own else []
    parts = [_arrowheads()]
    for (head, tail), effect in effects.items():
        parts.append(_edge(places[head], places[tail], effect, 1 + 3 * abs(effect) / most))
    for pair, relations in labels.items():
        (x1, y1), (x2, y2) = places[min(pair)], places[max(pair)]
        parts.append(_text(", ".join(relations), (x1 + x2) / 2, (y1 + y2) / 2 - 5, 10))
    for name, (x, y) in places.items():
        size, weight = (6, "bold") if name in (start, end) else (4, "normal")
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size}"/>')
        parts.append(_text(name, x, y + 19, 12, weight))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'font-family="sans-serif" fill="currentColor">{"".join(parts)}</svg>'
    )


def _places(start: str, end: str, drawn: list[Drawn]) -> tuple[dict[str, Place], int]:
    """Returns where each entity is, and the height: a path with entities of its own has a row."""
    places: dict[str, Place] = {start: (0, 0), end: (0, 0)}
    n_rows = 0
    for steps, _ in drawn:
        ordered = steps if start in (steps[0][0], steps[0][2]) else steps[::-1]
        at, before = start, len(places)
        for i, (head, _, tail) in enumerate(ordered, 1):
            at = tail if head == at else head
            x = MARGIN + (WIDTH - 2 * MARGIN) * i / len(steps)
            places.setdefault(at, (x, TOP + ROW * n_rows))
        n_rows += len(places) > before
    middle = TOP + ROW * (max(n_rows, 1) - 1) / 2
    places |= {start: (MARGIN, middle), end: (WIDTH - MARGIN, middle)}
    return places, TOP + ROW * max(n_rows, 1)


def _arrowheads() -> str:
    marks = "".join(
        f'<marker id="pathe-{colour[1:]}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" '
        f'markerHeight="9" markerUnits="userSpaceOnUse" orient="auto">'
        f'<path d="M0,0L8,4L0,8z" fill="{colour}"/></marker>'
        for colour in (FOR, AGAINST)
    )
    return f"<defs>{marks}</defs>"


def _edge(start: Place, end: Place, effect: float, width: float) -> str:
    (x1, y1), (x2, y2) = start, end
    length = max(((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5, 1.0)
    dx, dy = 9 * (x2 - x1) / length, 9 * (y2 - y1) / length  # the arrow ends at the node's rim
    colour = FOR if effect >= 0 else AGAINST
    return (
        f'<line x1="{x1 + dx:.1f}" y1="{y1 + dy:.1f}" x2="{x2 - dx:.1f}" y2="{y2 - dy:.1f}" '
        f'stroke="{colour}" stroke-width="{width:.1f}" marker-end="url(#pathe-{colour[1:]})"/>'
    )


def _text(text: str, x: float, y: float, size: int, weight: str = "normal") -> str:
    short = text if len(text) <= LETTERS else f"{text[: LETTERS - 1]}…"
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" '
        f'text-anchor="middle">{escape(short)}<title>{escape(text)}</title></text>'
    )
