"""HTML for notebooks: tables whose text is escaped, since names come from anywhere."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any

CELL = "padding:2px 10px;border:none;vertical-align:top;text-align:{}"
ROWS = 50  # at most in a table


class Percent(float):
    """A share that a table shows in percent."""


def escape(text: Any) -> str:
    """Returns text that HTML shows as it is."""
    return html.escape(str(text), quote=True)


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Returns a table: text on the left, numbers on the right; without column names, no header.

    Of many rows, only the first are shown.
    """
    shown = [list(row) for row in rows]
    right = [_is_number(cell) for cell in shown[0]] if shown else [False] * len(columns)
    lines = [_row("td", row, right) for row in shown[:ROWS]]
    if any(columns):
        lines.insert(0, _row("th", columns, right))
    body = "".join(lines)
    more = line(f"... and {len(shown) - ROWS:,} more") if len(shown) > ROWS else ""
    return f'<table style="border-collapse:collapse">{body}</table>{more}'


def title(text: str, detail: str = "") -> str:
    """Returns a bold line of text, with details after it."""
    return f"<div><b>{escape(text)}</b> {escape(detail)}</div>"


def line(text: str) -> str:
    """Returns a line of text in a lighter colour."""
    return f'<div style="opacity:0.7">{escape(text)}</div>'


def _is_number(cell: Any) -> bool:
    return isinstance(cell, int | float) and not isinstance(cell, bool)


def _row(tag: str, cells: Sequence[Any], right: Sequence[bool]) -> str:
    styles = (CELL.format("right" if is_right else "left") for is_right in right)
    whole = (
        f'<{tag} style="{style}">{escape(_text(cell))}</{tag}>'
        for cell, style in zip(cells, styles, strict=True)
    )
    return f"<tr>{''.join(whole)}</tr>"


def _text(cell: Any) -> str:
    match cell:
        case None:
            return ""
        case bool():
            return "yes" if cell else ""
        case int():
            return f"{cell:,}"
        case Percent():
            return f"{100 * cell:.1f} %"
        case float():
            return f"{cell:.3f}"
        case list():
            return " ".join(map(str, cell))
    return str(cell)
