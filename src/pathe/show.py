"""Results as tables for the terminal. Gives renderables; only the command line prints them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pathe.answers import path_start, walked
from pathe.plots import shorten

if TYPE_CHECKING:
    from pathe.answers import Answer, Explanation, Judged, Missing, Neighbour, Rule
    from pathe.schema import Coverage

COLOURS = {"well suited": "green", "workable": "yellow", "poorly suited": "red"}
RULES = 3  # relations shown of each kind of leakage
Steps = list[tuple[str, str, str]]


def plain(name: str) -> str:
    """The name on one line: what can't be printed is escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def number(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def analysis(result: dict[str, Any]) -> Iterator[RenderableType]:
    """The report of `analysis.analyze`, a table a topic and the verdict last."""
    counts, degree, leakage = result["counts"], result["degree"], result["leakage"]
    yield Text(plain(result["name"]), style="bold")
    yield _counts("Counts", counts)

    table = _table("Degree (edges in and out of an entity in train)")
    table.add_row("mean", number(degree["mean"], 2))
    table.add_row("median", number(degree["percentiles"]["50"], 0))
    table.add_row("99 % have at most", number(degree["percentiles"]["99"], 0))
    table.add_row("largest", number(degree["max"], 0))
    yield table

    table = Table(title="Most frequent relations", **_LEFT)
    table.add_column("relation", overflow="fold")
    for title in ("triples", "share"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in result["relations"]["top"]:
        table.add_row(_relation(row["relation"]), f"{row['triples']:,}", percent(row["share"]))
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
        for rule in leakage[kind][:RULES]:
            names = Text(", ").join(_relation(name) for name in rule["relations"])
            table.add_row(Text("  ").append(names), percent(min(rule["shares"])))
        if len(leakage[kind]) > RULES:
            table.add_row("  ... (all with --json)", "")
    test = leakage["test"]
    table.add_row("test pairs linked in train, same way", percent(test["linked_same"]))
    table.add_row("test pairs linked in train, in reverse", percent(test["linked_reverse"]))
    table.add_row("test answers that follow from such a relation", percent(test["leaked"]))
    table.add_row("training pairs linked more than once", percent(result["pairs"]["train"]))
    table.add_row("valid pairs linked in train", percent(result["pairs"]["valid"]))
    yield table

    if other := result["inference"]:
        table = _counts("Inference graph (other entities, same relations)", other)
        for key, label in (
            ("shared_entities", "entities shared with the training graph"),
            ("unseen_relations", "relations that the training graph lacks"),
        ):
            if other[key]:
                table.add_row(label, f"{other[key]:,}")
        yield table

    verdict = result["verdict"]
    colour = COLOURS.get(verdict["grade"], "bold")
    yield f"[bold]Verdict:[/] [bold {colour}]{verdict['grade']}[/]"
    for sentence in verdict["sentences"]:
        yield Padding(Text(sentence), (0, 0, 0, 2), expand=False)


def path(focus: str, steps: Steps) -> Text:
    """A path on one line, the entity that it is for standing out."""

    def name(entity: str) -> tuple[str, str]:
        return plain(entity), "bold cyan" if entity == focus else ""

    start = path_start(steps, focus)
    line = Text.assemble("  ", name(start))
    for relation, along, entity in walked(steps, start):
        before, after = (" -", "-> ") if along else (" <-", "- ")
        hop = ((before, "dim"), plain(relation), (after, "dim"), name(entity))
        line.append_text(Text.assemble(*hop))
    return line


def _relation(name: str) -> Text:
    return Text(plain(shorten(name, 56)))


def _counts(title: str, counts: dict[str, Any]) -> Table:
    table = _table(title)
    table.add_row("entities", f"{counts['entities']:,}")
    table.add_row("  of them in train", f"{counts['entities_in_train']:,}")
    table.add_row("relations", f"{counts['relations']:,}")
    for split, n in counts["triples"].items():
        if n:
            table.add_row(f"{split} triples", f"{n:,}")
        if n and split in counts["seen"]:
            table.add_row("  with both entities in train", f"{counts['seen'][split]:,}")
    return table


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
    "min_width": 56,
}


def _table(title: str) -> Table:
    table = Table(title=title, show_header=False, **_LEFT)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    return table


def result(found: dict[str, Any]) -> Iterator[RenderableType]:
    """Figures of an evaluation, or of a run with its model."""
    if "mrr" in found:
        what = f"{found['task']} prediction, {found['split']} split"
        data = Text(plain(found.get("data", "")), style="bold")
        yield Text.assemble(data, f": {what}, {found['test_set']} test set")
        yield (
            f"  {found['n_triples']:,} triples, ranked {_protocol(found)}, "
            f"{found['n_paths']} paths an entity"
        )
        table = Table("", "MRR", "Hits@1", "Hits@3", "Hits@5", "Hits@10", "mean rank", box=None)
        for column in table.columns[1:]:
            column.justify = "right"
        rows = {"all": found, "heads": found.get("head"), "tails": found.get("tail")}
        rows["relations"] = found.get("relation")
        for name, row in rows.items():
            if row:
                hits = [number(row[f"hits_at_{k}"], 3) for k in (1, 3, 5, 10)]
                table.add_row(name, number(row["mrr"], 3), *hits, number(row["mean_rank"]))
        yield table
    if "parameters" in found:
        as_published = found["parameters_as_published"]
        paper = f" ({as_published:,} as the paper counts)" if as_published else ""
        yield f"  {found['parameters']:,} parameters{paper}"
    if "train_seconds" in found:
        seconds = number(found["train_seconds"])
        epochs = "1 epoch" if found["epochs"] == 1 else f"{found['epochs']} epochs"
        yield f"  {epochs} in {seconds} s on {found['device']}"


def answers(
    question: tuple[str | None, str | None, str | None],
    found: list[Answer],
    reasons: list[Explanation],
    n_known: int,
) -> Iterator[RenderableType]:
    """A question and its answers, best first, each with the paths behind it if they are there."""
    head, relation, tail = (name or "?" for name in question)
    yield Text(plain(f"{head}  -{relation}->  {tail}"), style="bold")
    table = _right(Table("", "answer", "score", "probability", "", box=None), 0, 2, 3)
    for i, answer in enumerate(found):
        cells = number(answer.score, 2), percent(answer.probability)
        mark = Text("known" if answer.known else "", style="dim")
        table.add_row(str(answer.rank), Text(plain(answer.name)), *cells, mark)
        for line in evidence(reasons[i], 3) if reasons else ():
            table.add_row("", line, "", "", "")
    if found:
        yield table
    else:
        yield "  no answer is left: all are known"
    if n_known:
        yield Text(f"  {n_known:,} known left out; --known shows them", style="dim")


def judged(triple: Judged, reasons: list[Explanation]) -> Iterator[RenderableType]:
    """A triple, how good it is, and why."""
    yield Text(plain(f"{triple.head}  -{triple.relation}->  {triple.tail}"), style="bold")
    yield (
        f"  score {number(triple.score, 2)}, rank {triple.rank:,}, probability "
        f"{percent(triple.probability)}" + (", known already" if triple.known else "")
    )
    for reason in reasons:
        yield f"  score without any path: {number(reason.alone, 2)}; what it loses without each:"
        yield from evidence(reason, 10)


def evidence(reason: Explanation, n: int) -> Iterator[Text]:
    """The n paths that moved a score most, a line each: near the entity they are of."""
    if reason.bridged:
        colour = "green" if reason.bridged > 0 else "red"
        yield Text.assemble(
            (f"{reason.bridged:+.3f}", colour), (" by all paths between them", "dim")
        )
    bridges, shown = reason.strongest(n)
    for bridge in bridges:
        colour = "green" if bridge.effect > 0 else "red"
        words = plain(bridge.words(reason.start(bridge)))
        yield Text.assemble((f"{bridge.effect:+.3f}", colour), (" between ", "dim"), words)
    for found, steps, remark in shown:
        colour = "green" if found.effect > 0 else "red"
        line = Text.assemble((f"{found.effect:+.3f}", colour), (f" {found.of}", "dim"))
        line.append_text(path(reason.focus(found), steps))
        yield line.append(remark, style="dim")


def neighbours(entity: str, found: list[Neighbour]) -> Iterator[RenderableType]:
    """Entities near one, nearest first."""
    yield Text(plain(entity), style="bold")
    table = _right(Table("", "entity", "similarity", box=None), 0, 2)
    for row in found:
        table.add_row(str(row.rank), Text(plain(row.name)), number(row.similarity, 3))
    yield table


def missing(found: list[Missing]) -> Iterator[RenderableType]:
    """Triples that a graph lacks, most plausible first."""
    if not found:
        yield "none found: the graph holds every triple that was tried"
        return
    table = Table("", "head", "relation", "tail", "plausibility", box=None)
    for row in found:
        names = (Text(plain(name)) for name in (row.head, row.relation, row.tail))
        table.add_row(str(row.rank), *names, percent(row.plausibility))
    yield _right(table, 0, 4)


def rules(found: list[Rule]) -> Iterator[RenderableType]:
    """What a model trusts, a table a relation."""
    if not found:
        yield "none found: no path between two entities spoke for a fact that was looked at"
    for relation in dict.fromkeys(rule.relation for rule in found):
        yield Text(plain(relation), style="bold")
        table = _right(
            Table("path", "trust", "support", "connected", "confidence", box=None), 1, 2, 3, 4
        )
        for rule in found:
            if rule.relation == relation:
                counts = f"{rule.support:,}", f"{rule.connected:,}"
                cells = percent(rule.trust), *counts, percent(rule.confidence)
                table.add_row(Text(plain(rule.words())), *cells)
        yield table


def coverage(name: str, found: Coverage) -> Iterator[RenderableType]:
    """How much of a graph's schema a model knows."""
    n, known = len(found.matches), len(found.matches) - len(found.unknown)
    share = found.known_triples / found.triples if found.triples else None
    yield Text(plain(name), style="bold")
    yield f"  the model knows {known:,} of {n:,} relations, {percent(share)} of the triples"
    table = _right(Table("relation", "the model's", "triples", box=None), 2)
    for row in found.matches:
        theirs = Text("unknown", style="red")
        if row.model is not None:
            theirs = Text(plain(("^" if row.inverse else "") + row.model))
        table.add_row(_relation(row.name), theirs, f"{row.triples:,}")
    yield table
    if found.unused:
        yield f"  {len(found.unused):,} relations of the model are not in the graph"


def _right(table: Table, *columns: int) -> Table:
    for i in columns:
        table.columns[i].justify = "right"
    return table


def settings(presets: list[str]) -> Iterator[RenderableType]:
    """Every setting with its default and meaning, and the presets."""
    from pathe.config import Config, describe_settings

    table = Table("setting", "unless chosen", "meaning", box=None)
    for name, default, meaning in describe_settings(Config()):
        table.add_row(name, Text(default), Text(meaning))
    yield table
    yield "\n`pathe train` chooses bridges, batches, epochs and more to suit graph and machine;"
    yield "a run's config.yaml has what it took."
    yield "\n[bold]Presets[/] (pathe config PRESET shows one)"
    for name in presets:
        yield f"  {name}"


def _protocol(found: dict[str, Any]) -> str:
    if found["task"] == "relation":
        return f"among {found['n_candidates']:,} relations"
    n = f"{found['n_candidates']:,}"
    return (
        f"among all {n} entities" if found["protocol"] == "full" else f"among {n} random entities"
    )
