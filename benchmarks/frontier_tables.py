"""Copies the figures about frontiers to docs/scale.md and docs/experiments.md."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from measure import HERE

DOCS, GIB = HERE.parent / "docs", 1 << 30
Line = dict[str, Any]


def agreement(row: Line) -> list[str]:
    return [
        row["graph"].split("/")[-1], f"{row['triples']:,}", f"{row['frontier']:,}",
        f"{row['exact_mrr']:.4f}",
        f"{row['mrr'] - row['exact_mrr']:+.4f} ± {row['standard_error']:.4f}",
        f"{row['top_10_overlap']:.1f}", *_less(row), f"{row['cpu_seconds']:.3f}",
        f"{row['exact_cpu_seconds']:.3f}",
    ]  # fmt: skip


def query(row: Line) -> list[str]:
    peak = max(row["peak_bytes"], row["first_peak_bytes"])
    return [
        f"{row['entities']:,}", f"{row['triples']:,}", f"{row['graph_bytes'] / GIB:.2f}",
        f"{row['median_seconds']:.2f}", f"{row['median_cpu_seconds']:.2f}",
        f"{row['first_seconds']:.1f}", f"{peak / GIB:.2f}",
    ]  # fmt: skip


def exact(row: Line) -> list[str]:
    return [
        f"{row['entities']:,}", f"{row['top_10_overlap']:.1f}", *_less(row),
        f"{row['cpu_seconds']:.2f}", f"{row['exact_cpu_seconds']:.1f}",
        f"{row['exact_peak_bytes'] / GIB:.1f}",
    ]  # fmt: skip


def step(row: Line) -> list[str]:
    return [
        f"{row['entities']:,}", f"{row['view_anew_cpu_seconds']:.2f}",
        f"{row['view_cpu_seconds']:.3f}", f"{row['cpu_seconds']:.3f}",
    ]  # fmt: skip


def choice(row: Line) -> list[str]:
    return [
        row["graph"], row["way"],
        f"{row['mrr'] - row['exact_mrr']:+.4f} ± {row['standard_error']:.4f}",
        f"{row['mean_change']:.3f}", f"{row['top_10_overlap']:.1f}", *_less(row),
    ]  # fmt: skip


def _less(row: Line) -> tuple[str, ...]:
    return tuple(f"{row['exact_' + key] / row[key]:.1f}x" for key in ("edges", "rows"))


# by page and the first columns of their headings: file, part, cells
TABLES: dict[tuple[str, str], tuple[str, str | None, Callable[[Line], list[str]]]] = {
    ("scale", "| graph | triples | frontier |"): ("frontier", None, agreement),
    ("scale", "| entities | triples | graph, GiB |"): ("frontier_synthetic", "query", query),
    ("scale", "| entities | of the top 10 |"): ("frontier_synthetic", "exact", exact),
    ("scale", "| entities | anew |"): ("frontier_synthetic", "training", step),
    ("experiments", "| graph | way |"): ("frontier_choice", None, choice),
}
PAGES = sorted({page for page, _ in TABLES})


def filled(page: str) -> str:
    """Returns a page with the figures of the files in its tables."""
    text = (DOCS / f"{page}.md").read_text()
    for (place, heading), (name, part, cells) in TABLES.items():
        if place == page:
            rows = json.loads((HERE / f"{name}.json").read_text())["results"]
            lines = [f"| {' | '.join(cells(row))} |\n" for row in rows if row.get("part") == part]
            above = re.search(rf"{re.escape(heading)}.*\n\|[-|]+\n", text)
            assert above, heading
            rest = re.sub(r"\A(\|.*\n)*", "", text[above.end() :])
            text = text[: above.end()] + "".join(lines) + rest
    return text


def write() -> None:
    for page in PAGES:
        (DOCS / f"{page}.md").write_text(filled(page))


if __name__ == "__main__":
    write()
