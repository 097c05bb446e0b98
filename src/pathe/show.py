"""Results as tables for the terminal. Gives renderables; only the command line prints them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

COLOURS = {"well suited": "green", "workable": "yellow", "poorly suited": "red"}


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def number(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def shorten(name: str, width: int = 56) -> str:
    """Long names keep their end: that is where relation paths differ."""
    return name if len(name) <= width else "…" + name[1 - width :]


def analysis(result: dict[str, Any]) -> Iterator[RenderableType]:
    """The report of `analysis.analyze`, a table a topic and the verdict last."""
    counts, degree, leakage = result["counts"], result["degree"], result["leakage"]
    yield f"[bold]{escape(result['name'])}[/]"

    table = _table("Counts")
    table.add_row("entities", f"{counts['entities']:,}")
    table.add_row("  of them in train", f"{counts['entities_in_train']:,}")
    table.add_row("relations", f"{counts['relations']:,}")
    for split, n in counts["triples"].items():
        table.add_row(f"{split} triples", f"{n:,}")
        if n and split in counts["seen"]:
            table.add_row("  with both entities in train", f"{counts['seen'][split]:,}")
    yield table

    table = _table("Degree (edges in and out of an entity in train)")
    table.add_row("mean", number(degree["mean"], 2))
    table.add_row("median", number(degree["percentiles"]["50"], 0))
    table.add_row("99 % have at most", number(degree["percentiles"]["99"], 0))
    table.add_row("largest", number(degree["max"], 0))
    yield table

    table = Table("relation", "triples", "share", title="Most frequent relations", **_LEFT)
    for column in table.columns[1:]:
        column.justify = "right"
    for row in result["relations"]["top"]:
        table.add_row(
            escape(shorten(row["relation"])), f"{row['triples']:,}", percent(row["share"])
        )
    yield table
    yield (
        f"  two most frequent: {percent(result['relations']['top_two_share'])} of triples; as "
        f"diverse as {number(result['relations']['effective'])} equally frequent relations\n"
    )

    table = Table(
        "after seeing neighbours", "distinct", "theirs alone",
        title="Contexts: how far they tell entities apart", **_LEFT,
    )  # fmt: skip
    for row in result["contexts"]:
        rounds = (
            "not at all" if not row["round"] else f"{row['round']} hop" + "s" * (row["round"] > 1)
        )
        table.add_row(rounds, percent(row["distinct"]), percent(row["alone"]))
    yield table

    yield _walks(result)

    table = _table("Leakage between splits")
    for split, n in leakage["overlap"].items():
        table.add_row(f"{split} triples also in train", number(n, 0))
    for kind in ("symmetric", "inverse", "duplicate"):
        table.add_row(f"{kind} relations", f"{len(leakage[kind]):,}" if leakage[kind] else "none")
    test = leakage["test"]
    table.add_row("test pairs linked in train, same way", percent(test["linked_same"]))
    table.add_row("test pairs linked in train, in reverse", percent(test["linked_reverse"]))
    table.add_row("test answers that follow from such a relation", percent(test["leaked"]))
    yield table

    if other := result["inference"]:
        table = _table("Inference graph (other entities, same relations)")
        for key, value in other.items():
            parts = value if isinstance(value, dict) else {"": value}
            shown = ", ".join(f"{name} {n:,}".strip() for name, n in parts.items())
            table.add_row(key.replace("_", " "), shown)
        yield table

    verdict = result["verdict"]
    colour = COLOURS.get(verdict["grade"], "bold")
    yield f"[bold]Verdict:[/] [bold {colour}]{verdict['grade']}[/]"
    for sentence in verdict["sentences"]:
        yield Padding(escape(sentence), (0, 0, 0, 2))


def _walks(result: dict[str, Any]) -> Table:
    walks, reach = result["walks"], result["reach"]
    table = _table("Walks")
    dead = walks["dead_ends"]
    table.add_row("entities without outgoing edges", f"{dead['without_out']:,}")
    table.add_row("entities without incoming edges", f"{dead['without_in']:,}")
    table.add_row("entities without any (valid or test only)", f"{dead['isolated']:,}")
    table.add_row("mean hops of a 10-hop walk, outgoing", number(walks["out"]["mean_hops"]))
    table.add_row("mean hops of a 10-hop walk, incoming", number(walks["in"]["mean_hops"]))
    if reach:
        table.add_row(
            f"{reach['split']} tails met by 64 three-hop walks from the head",
            percent(reach["visited"]),
        )
        if reach["within"]:
            shares = ", ".join(percent(share) for share in reach["within"])
            table.add_row(f"{reach['split']} tails within 1, 2, 3 hops", shares)
    return table


_LEFT: dict[str, Any] = {
    "title_justify": "left",
    "title_style": "bold",
    "box": None,
    "pad_edge": True,
}


def _table(title: str) -> Table:
    table = Table(title=title, show_header=False, **_LEFT)
    table.add_column(min_width=46)
    table.add_column()
    return table
