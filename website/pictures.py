"""Draws the pictures of the docs' concepts: `python -m website.pictures` writes docs/pictures.

Colours are variables with a light and a dark value; the site sets them to those of its theme.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "pictures"
STYLE = """
.pic { --ink: var(--pic-ink, #1f2328); --box: var(--pic-box, #eef3fa);
  --line: var(--pic-line, #57606a); --hue: var(--pic-hue, #1f5fa8);
  --warm: var(--pic-warm, #b35900); --page: var(--md-default-bg-color, #fff);
  font-family: var(--md-text-font-family, sans-serif), sans-serif; }
@media (prefers-color-scheme: dark) {
  .pic { --ink: var(--pic-ink, #e6edf3); --box: var(--pic-box, #22303f);
    --line: var(--pic-line, #9aa4af); --hue: var(--pic-hue, #7db4f5);
    --warm: var(--pic-warm, #f0a35c); --page: var(--md-default-bg-color, #0d1117); } }
.pic text { fill: var(--ink); font-size: 14px; text-anchor: middle; dominant-baseline: central; }
.pic .small { font-size: 12.5px; }
.pic .left { text-anchor: start; }
.pic .title { font-weight: 600; }
.pic .label { paint-order: stroke; stroke: var(--page); stroke-width: 5px; }
.pic text.hue { fill: var(--hue); }
.pic text.warm { fill: var(--warm); }
.pic .box { fill: var(--box); stroke: var(--line); stroke-width: 1.2; }
.pic .focus { fill: var(--hue); }
.pic .onfocus { fill: var(--page); }
.pic .edge { fill: none; stroke: var(--line); stroke-width: 1.4; }
.pic .tip { fill: var(--line); }
.pic .edge.hue { stroke: var(--hue); stroke-width: 2.4; }
.pic .edge.warm { stroke: var(--warm); stroke-width: 2.4; }
.pic .edge.ask { stroke: var(--hue); stroke-width: 1.8; stroke-dasharray: 6 5; }
.pic .tip.hue, .pic .tip.ask { fill: var(--hue); }
.pic .tip.warm { fill: var(--warm); }
"""


class Box(NamedTuple):
    """An entity or a relation: its centre, its width and its name."""

    x: float
    y: float
    name: str
    kind: str = "box"  # or "focus": the entity in question
    width: float = 0

    def half(self) -> float:
        return (self.width or 26 + 7.6 * len(self.name)) / 2

    def draw(self) -> str:
        half = self.half()
        text = "onfocus" if self.kind == "focus" else ""
        return (
            f'<rect class="{self.kind}" x="{self.x - half:g}" y="{self.y - 16:g}" '
            f'width="{2 * half:g}" height="32" rx="16"/>'
            f'<text class="{text}" x="{self.x:g}" y="{self.y:g}">{escape(self.name)}</text>'
        )


def border(box: Box, x: float, y: float, gap: float = 0) -> tuple[float, float]:
    """Returns where the line from a box's centre to (x, y) leaves the box."""
    dx, dy = x - box.x, y - box.y
    part = min((box.half() + gap) / abs(dx) if dx else 9e9, (16 + gap) / abs(dy) if dy else 9e9)
    return box.x + dx * part, box.y + dy * part


def arrow(start: Box, end: Box, name: str = "", kind: str = "", bend: float = 0) -> str:
    """Draws an edge with its relation; `bend` moves its middle to the left of its direction."""
    length = ((end.x - start.x) ** 2 + (end.y - start.y) ** 2) ** 0.5
    ux, uy = (end.x - start.x) / length, (end.y - start.y) / length
    mx, my = (start.x + end.x) / 2 + uy * 2 * bend, (start.y + end.y) / 2 - ux * 2 * bend
    (x1, y1), (x2, y2) = border(start, mx, my), border(end, mx, my, gap=2)
    far = ((x2 - mx) ** 2 + (y2 - my) ** 2) ** 0.5
    vx, vy = (x2 - mx) / far, (y2 - my) / far
    bx, by = x2 - 9 * vx, y2 - 9 * vy
    corners = (x2, y2), (bx - 4.5 * vy, by + 4.5 * vx), (bx + 4.5 * vy, by - 4.5 * vx)
    tip = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
    tx, ty = (x1 + 2 * mx + x2) / 4, (y1 + 2 * my + y2) / 4
    above = 11 if abs(ux) > 0.5 else 0
    label = (
        f'<text class="small label {kind.replace("ask", "hue")}" x="{tx:.1f}" y="{ty - above:.1f}">'
        f"{escape(name)}</text>"
    )
    return (
        f'<path class="edge {kind}" d="M{x1:.1f} {y1:.1f}Q{mx:.1f} {my:.1f} {bx:.1f} {by:.1f}"/>'
        f'<polygon class="tip {kind}" points="{tip}"/>{label if name else ""}'
    )


def meeting(one: Box, other: Box, *names: str) -> str:
    """Draws how two relations meet: a line without a direction."""
    (x1, y1), (x2, y2) = border(one, other.x, other.y), border(other, one.x, one.y)
    x, y = (x1 + x2) / 2, (y1 + y2) / 2
    level = abs(y2 - y1) < 1
    labels = [
        text(x, y + (11 if i else -11) if level else y, name, "small")
        for i, name in enumerate(names)
    ]
    line = f"M{x1:g} {y1:g}L{x2:g} {y2:g}"
    if not level:  # the line makes room for its name
        line = f"M{x1:g} {y1:g}L{x1:g} {y - 12:g}M{x1:g} {y + 12:g}L{x2:g} {y2:g}"
    return f'<path class="edge" d="{line}"/>{"".join(labels)}'


def text(x: float, y: float, words: str, kind: str = "small left") -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}">{escape(words)}</text>'


def picture(width: int, height: int, *parts: str) -> str:
    style = " ".join(STYLE.split())
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="pic" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}"><style>{style}</style>\n'
        + "\n".join(parts)
        + "</svg>\n"
    )


def context() -> str:
    """Draws the context of the Rhine: how often each relation leads out of it and into it."""
    rhine = Box(255, 130, "Rhine", "focus")
    into = Box(70, 45, "Cologne"), Box(70, 130, "Basel"), Box(70, 215, "Main")
    out = Box(450, 45, "Germany"), Box(450, 130, "France"), Box(450, 215, "North Sea")
    names = ("lies on", "lies on", "flows into"), ("flows through", "flows through", "flows into")
    rows = [("lies on", "into it", 4), ("flows into", "into it", 2),
            ("flows through", "out of it", 6), ("flows into", "out of it", 1)]  # fmt: skip
    table = [text(570, 66, "the context of the Rhine", "left title")]
    for i, (relation, way, count) in enumerate(rows):
        y = 98 + 28 * i
        table += [text(570, y, relation), text(665, y, way)]
        table += [
            f'<rect class="focus" x="{735 + 15 * n}" y="{y - 6}" width="11" height="12" rx="2"/>'
            for n in range(count)
        ]
    return picture(
        840, 260,
        *(arrow(box, rhine, name) for box, name in zip(into, names[0], strict=True)),
        *(arrow(rhine, box, name) for box, name in zip(out, names[1], strict=True)),
        *(box.draw() for box in (*into, *out, rhine)), *table,
    )  # fmt: skip


def path() -> str:
    """Draws a joined path that describes Austria, with the distance of each part to it."""
    boxes = [Box(90, 60, "Vienna"), Box(310, 60, "Austria", "focus"), Box(530, 60, "Slovenia"),
             Box(750, 60, "Euro")]  # fmt: skip
    names = [("capital of", "warm"), ("borders", "hue"), ("currency", "hue")]
    marks = [(90, "3"), (200, "2"), (310, "1"), (420, "2"), (530, "3"), (640, "4"), (750, "5")]
    return picture(
        840, 190,
        *(arrow(a, b, *name) for a, b, name in zip(boxes, boxes[1:], names, strict=False)),
        *(box.draw() for box in boxes),
        *(text(x, 115, mark, "small") for x, mark in marks),
        text(200, 165, "a random walk into Austria", "small warm"),
        text(530, 165, "a random walk out of Austria", "small hue"),
        '<path class="edge warm" d="M60 140H290"/><path class="edge hue" d="M330 140H780"/>',
    )  # fmt: skip


def bridge() -> str:
    """Draws the paths between a query's head and a candidate."""
    paris, france = Box(90, 150, "Paris", "focus"), Box(690, 150, "France")
    seine = Box(390, 232, "Seine")
    return picture(
        780, 270,
        arrow(paris, france, "capital of?", "ask", bend=56),
        arrow(paris, france, "city in", "hue"),
        arrow(paris, seine, "lies on", "warm"), arrow(seine, france, "flows through", "warm"),
        paris.draw(), france.draw(), seine.draw(),
    )  # fmt: skip


def relations() -> str:
    """Draws a graph and the graph of its relations."""
    paris, france, seine = Box(70, 70, "Paris"), Box(310, 70, "France"), Box(190, 200, "Seine")
    capital, city = Box(520, 50, "capital of", width=110), Box(770, 50, "city in", width=110)
    lies, flows = Box(520, 200, "lies on", width=110), Box(770, 200, "flows through", width=124)
    return picture(
        860, 290,
        arrow(paris, france, "capital of", "hue", bend=22),
        arrow(paris, france, "city in", "warm", bend=-14),
        arrow(paris, seine, "lies on"), arrow(seine, france, "flows through"),
        *(box.draw() for box in (paris, france, seine)),
        meeting(capital, city, "same head", "same tail"),
        meeting(capital, lies, "same head"), meeting(city, flows, "same tail"),
        meeting(lies, flows, "tail is head"),
        *(box.draw() for box in (capital, city, lies, flows)),
        text(190, 262, "facts", "title"), text(645, 262, "how their relations meet", "title"),
    )  # fmt: skip


def main(folder: Path = FOLDER) -> None:
    for draw in (context, path, bridge, relations):
        (folder / f"{draw.__name__}.svg").write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
