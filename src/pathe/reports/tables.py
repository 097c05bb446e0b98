"""Results as tables for the terminal. Yields renderables; only the command line prints them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from pathe.core.config import Config, describe_settings
from pathe.evaluation.metrics import HEADLINE, METRICS, TITLES
from pathe.predict.results import path_start, walked
from pathe.reports.plots import shorten

if TYPE_CHECKING:
    from pathe.core.types import Fact, Query
    from pathe.data.schema import Coverage
    from pathe.predict import results

    Rows = Iterable[tuple[str | Text, ...]]

PRE_TRAINED = (
    "The pre-trained model also reads the paths between two entities, so the verdict isn't about "
    "it. `pathe evaluate DATA` measures how well it does; add --split 0.8,0.1,0.1 if no facts are "
    "held out."
)
COLOURS = {"well suited": "green", "workable": "yellow", "poorly suited": "red"}
RULES = 3  # relations shown per kind of leakage
NO_ANSWERS = "no answers left: all are known or left out"
KNOWN_ANSWERS = (
    "known answers are scored with their own fact in the graph; to score one as if it were "
    "missing, give --head, --relation and --tail"
)


def plain(name: str) -> str:
    """Returns a name on one line, with unprintable characters escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


def _name(name: str, style: str = "") -> Text:
    return Text(plain(name), style=style)


def _relation(name: str) -> Text:
    return _name(shorten(name, 56))


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def number(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _triples(n: int) -> str:
    return "1 triple" if n == 1 else f"{n:,} triples"


def _right(title: str = "") -> Column:
    return Column(title, justify="right")


def _table(rows: Rows, *columns: str | Column, **options: Any) -> Table:
    table = Table(*columns, box=None, **options)
    for row in rows:
        table.add_row(*row)
    return table


def _topic(title: str, rows: Rows, *columns: str | Column) -> Table:
    """Returns a table with a title; without columns, of labels and values without a header."""
    look: dict[str, Any] = {"title_justify": "left", "title_style": "bold", "min_width": 56}
    two = columns or (Column(overflow="fold"), Column(overflow="fold"))
    return _table(rows, *two, title=title, show_header=bool(columns), **look)


def analysis(result: dict[str, Any]) -> Iterator[RenderableType]:
    """Yields the report of `graph.analysis.analyze`: a table per topic, then the verdict."""
    yield _name(result["name"], "bold")
    yield _topic("Counts", _counts(result["counts"]))
    degree, percentiles = result["degree"], result["degree"]["percentiles"]
    rows = [
        ("mean", number(degree["mean"], 2)),
        ("median", number(percentiles["50"], 0)),
        ("99th percentile", number(percentiles["99"], 0)),
        ("largest", number(degree["max"], 0)),
    ]
    yield _topic("Degree (incoming and outgoing training edges per entity)", rows)
    yield from _relations(result["relations"], result["counts"]["relations_in_train"])
    columns = ("neighbours included", "distinct", "unique")
    contexts = _contexts(result["contexts"])
    yield _topic("Contexts: how far they tell entities apart", contexts, *columns)
    yield _topic("Walks", _walks(result["walks"], result["reach"]))
    yield _topic("Leakage between splits", _leakage(result["leakage"], result["pairs"]))
    if counts := result["inference"]:
        yield _topic("Inference graph (other entities, same relations)", _counts(counts))
    grade = result["verdict"]["grade"]
    yield f"[bold]Verdict on vectors alone:[/] [bold {COLOURS.get(grade, 'bold')}]{grade}[/]"
    sentences = [*result["verdict"]["sentences"]]
    if result["counts"]["triples"]["train"]:
        sentences.append(PRE_TRAINED)
    for sentence in sentences:
        yield Padding(Text(sentence), (0, 0, 0, 2), expand=False)


def _counts(counts: dict[str, Any]) -> Rows:
    yield "entities", f"{counts['entities']:,}"
    yield "  of them in train", f"{counts['entities_in_train']:,}"
    yield "relations", f"{counts['relations']:,}"
    for split, n in counts["triples"].items():
        if n:
            yield f"{split} triples", f"{n:,}"
        if n and split in counts["seen"]:
            yield "  with both entities in train", f"{counts['seen'][split]:,}"
    if n := counts.get("shared_entities"):
        yield "entities shared with the training graph", f"{n:,}"
    if n := counts.get("unseen_relations"):
        yield "relations that the training graph lacks", f"{n:,}"


def _relations(relations: dict[str, Any], n_all: int) -> Iterator[RenderableType]:
    numbers = (Column(title, justify="right", no_wrap=True) for title in ("triples", "share"))
    rows = ((_relation(r["relation"]), f"{r['triples']:,}", percent(r["share"]))
            for r in relations["top"])  # fmt: skip
    name, n_shown = Column("relation", overflow="fold"), len(relations["top"])
    title = (
        f"The {n_shown} most frequent of {n_all:,} relations" if n_shown < n_all else "Relations"
    )
    yield _topic(title, rows, name, *numbers)
    yield (
        f"  two most frequent: {percent(relations['top_two_share'])} of triples; as "
        f"diverse as {number(relations['effective'])} equally frequent relations\n"
    )
    for key, what in (("one_tail", "one tail per head"), ("one_head", "one head per tail")):
        names = relations[key]
        more = f" and {len(names) - 10:,} more" if len(names) > 10 else ""
        yield Text(f"  {what}: {', '.join(map(plain, names[:10])) or 'none'}{more}\n")


def _contexts(rounds: list[dict[str, Any]]) -> Rows:
    for row in rounds:
        hops = f"{row['round']} hop{'s' * (row['round'] > 1)}" if row["round"] else "none"
        yield hops, percent(row["distinct"]), percent(row["alone"])


def _walks(walks: dict[str, Any], reach: dict[str, Any] | None) -> Rows:
    dead = walks["dead_ends"]
    yield "entities without outgoing edges", f"{dead['without_out']:,}"
    yield "entities without incoming edges", f"{dead['without_in']:,}"
    yield "entities without edges (in valid or test only)", f"{dead['isolated']:,}"
    yield "mean hops of outgoing walks (at most 10)", number(walks["out"]["mean_hops"])
    yield "mean hops of incoming walks (at most 10)", number(walks["in"]["mean_hops"])
    if reach:
        label = f"{reach['split']} tails reached by 64 three-hop walks from the head"
        yield label, percent(reach["visited"])
        if reach["within"]:
            shares = ", ".join(percent(share) for share in reach["within"])
            yield f"{reach['split']} tails within 1, 2, 3 hops", shares


def _leakage(leakage: dict[str, Any], pairs: dict[str, Any]) -> Rows:
    for split, n in leakage["overlap"].items():
        yield f"{split} triples also in train", number(n, 0)
    for kind in ("symmetric", "partly_symmetric", "inverse", "duplicate"):
        yield (
            f"{kind.replace('_', ' ')} relations",
            f"{len(leakage[kind]):,}" if leakage[kind] else "none",
        )
        for rule in leakage[kind][:RULES]:
            names = Text(", ").join(_relation(name) for name in rule["relations"])
            yield Text("  ").append(names), percent(min(rule["shares"]))
        if len(leakage[kind]) > RULES:
            yield "  ... (all with --json)", ""
    test = leakage["test"]
    yield "test pairs linked in train, same direction", percent(test["linked_same"])
    yield "test pairs linked in train, reversed", percent(test["linked_reverse"])
    yield "test triples in train, or that follow from such a relation", percent(test["leaked"])
    yield "test triples also in valid", number(leakage["test_in_valid"], 0)
    yield "test triples copied under another relation", percent(leakage["given_away"]["copied"])
    yield "test triples inverted under another relation", percent(leakage["given_away"]["inverted"])
    yield "training pairs linked more than once", percent(pairs["train"])
    yield "valid pairs linked in train", percent(pairs["valid"])


def path(focus: str, steps: list[Fact]) -> Text:
    """Returns a path as one line, with the entity that it describes highlighted."""

    def name(entity: str) -> Text:
        return _name(entity, "bold cyan" if entity == focus else "")

    start = path_start(steps, focus)
    line = Text.assemble("  ", name(start))
    for relation, along, entity in walked(steps, start):
        before, after = (" -", "-> ") if along else (" <-", "- ")
        line.append(before, "dim").append(plain(relation)).append(after, "dim").append(name(entity))
    return line


def result(found: dict[str, Any]) -> Iterator[RenderableType]:
    """Yields the metrics of an evaluation or a run, and what is known of its model."""
    if "mrr" in found:
        what = f"{found['task']} prediction, {found['split']} split"
        data = _name(found.get("data", ""), "bold")
        yield Text.assemble(data, f": {what}, {found['test_set']} test set")
        n = f"{found['n_candidates']:,}"
        among = f"all {n} entities" if found["protocol"] == "full" else f"{n} random entities"
        if found["task"] == "relation":
            among = f"{n} relations"
        paths = f", {found['n_paths']} paths per entity" if found["n_paths"] else ""
        yield f"  {_triples(found['n_triples'])}, ranked among {among}{paths}"
        if n_dropped := found.get("unknown_relations_dropped"):
            yield f"  {_triples(n_dropped)} left out: no training triple has their relation"
        sides = {"heads": "head", "tails": "tail", "relations": "relation"}
        shown = {"all": found} | {name: found.get(key) for name, key in sides.items()}
        rows = ((name, *(number(row[m.key], m.digits) for m in METRICS))
                for name, row in shown.items() if row)  # fmt: skip
        yield _table(rows, "", *(_right(metric.title) for metric in METRICS))
    if "parameters" in found:
        as_published = found["parameters_as_published"]
        paper = f" ({as_published:,} as the paper counts them)" if as_published else ""
        yield f"  {found['parameters']:,} parameters{paper}"
    if "train_seconds" in found:
        epochs = "1 epoch" if found["epochs"] == 1 else f"{found['epochs']} epochs"
        yield f"  {epochs} in {number(found['train_seconds'])} s on {found['device']}"


def per_relation(found: dict[str, Any]) -> Iterator[RenderableType]:
    """Yields the metrics of an evaluation per relation, of both sides together and each."""
    sides = [side for side in ("head", "tail") if side in found]
    parts = ("both", *sides) if sides else ("",)
    titles = [f"{part}\n{TITLES[key]}".strip() for part in parts for key in HEADLINE]
    numbers = (  # narrow, as there are many
        Column(title.replace("@", "\n@"), justify="right", no_wrap=True)
        for title in ("triples", *titles)
    )
    table = Table(Column("relation", overflow="fold"), *numbers, box=None, padding=(0, 1, 0, 0))
    for row in found["per_relation"]:
        found_by = (row, *(row[side] for side in sides))
        figures = (number(own[key], 3) for own in found_by for key in HEADLINE)
        table.add_row(_relation(row["relation"]), f"{row['triples']:,}", *figures)
    yield table


def answers(
    query: Query,
    found: results.Answers,
    reasons: list[results.Explanation],
    n_known: int,
    paths: bool = False,
) -> Iterator[RenderableType]:
    """Yields a query and its answers, best first, each with its explanation if there is one."""
    head, relation, tail = (name or "?" for name in query)
    yield _name(f"{head}  -{relation}->  {tail}", "bold")
    yield from (_name(f"  {note}", "yellow") for note in found.notes)
    rows: list[tuple[str | Text, ...]] = []
    for i, answer in enumerate(found):
        mark = Text("known" if answer.known else "", style="dim")
        figures = number(answer.score, 2), percent(answer.probability)
        rows.append((str(answer.rank), _name(answer.name), *figures, mark))
        rows += [("", line) for line in (evidence(reasons[i], 3, paths) if reasons else ())]
    columns = (_right(), "answer", _right("score"), _right("probability"), "")
    yield _table(rows, *columns) if found else f"  {NO_ANSWERS}"
    if any(answer.known for answer in found):
        yield Text(f"  {KNOWN_ANSWERS}", style="dim")
    if n_known:
        yield Text(f"  {n_known:,} known left out; --known shows them", style="dim")
    if n := found.left_out:
        yield Text(f"  {n:,} implausible left out; --no-plausible ranks them, too", style="dim")


def judged(
    triple: results.ScoredTriple, reasons: list[results.Explanation], paths: bool = False
) -> Iterator[RenderableType]:
    """Yields a triple, its score, and the explanation."""
    yield _name(f"{triple.head}  -{triple.relation}->  {triple.tail}", "bold")
    yield (
        f"  score {number(triple.score, 2)}, rank {triple.rank:,}, probability "
        f"{percent(triple.probability)}" + (", known already" if triple.known else "")
    )
    yield from (_name(f"  {note}", "yellow") for note in triple.notes)
    for reason in reasons:
        yield f"  score without any path: {number(reason.alone, 2)}; paths change it by:"
        yield from evidence(reason, 10, paths)


def evidence(reason: results.Explanation, n: int, paths: bool = False) -> Iterator[Text]:
    """Yields the n main reasons for a score: patterns with an instance each, or single paths."""

    def line(effect: float, label: str) -> Text:
        colour = "green" if effect > 0 else "red"
        return Text.assemble((f"{effect:+.3f}", colour), (label, "dim"))

    if reason.bridged:
        yield line(reason.bridged, " from all paths between them")
    patterns, bridges, shown = reason.reasons(n, paths)
    if bridges:
        yield Text("       of single paths, what the score loses without each:", "dim")
    for pattern in patterns:
        words = line(pattern.added, "  ").append(plain(pattern.words()))
        yield words.append(f"  ({pattern.figures()})", style="dim")
        yield Text(f"        {plain(pattern.example(reason.head))}")
    if patterns:
        yield line(reason.left_over(patterns), "  other paths")
    for bridge in bridges:
        words = line(bridge.effect, " between ")
        yield words.append(plain(bridge.words(reason.start(bridge))))
    for found, steps, remark in shown:
        whole = line(found.effect, f" {found.of}").append(path(reason.focus(found), steps))
        yield whole.append(remark, style="dim")


def neighbours(entity: str, found: list[results.Neighbour]) -> Iterator[RenderableType]:
    """Yields the entities nearest to one, nearest first."""
    yield _name(entity, "bold")
    rows = ((str(row.rank), _name(row.name), number(row.similarity, 3)) for row in found)
    yield _table(rows, _right(), "entity", _right("similarity"))


def missing(found: Sequence[results.MissingTriple]) -> Iterator[RenderableType]:
    """Yields triples that the graph lacks, most probable first."""
    rows = ((str(row.rank), _name(row.head), _name(row.relation), _name(row.tail),
             percent(row.probability), _name(row.reason)) for row in found)  # fmt: skip
    reason = "reason" if any(row.reason for row in found) else ""
    table = _table(rows, _right(), "head", "relation", "tail", _right("probability"), reason)
    yield table if found else "none found"


def classified(found: Sequence[results.ClassifiedTriple]) -> Iterator[RenderableType]:
    """Yields triples with the probability that they are true, and the ranks of both sides."""
    rows = ((_name(row.head), _name(row.relation), _name(row.tail),
             "true" if row.true else "false", percent(row.probability), percent(row.threshold),
             f"{row.tail_rank:,}", f"{row.head_rank:,}", "yes" if row.known else "",
             _name(row.reason)) for row in found)  # fmt: skip
    numbers = map(_right, ("probability", "threshold", "tail rank", "head rank"))
    reason = "reason" if any(row.reason for row in found) else ""
    yield _table(rows, "head", "relation", "tail", "verdict", *numbers, "known", reason)
    yield f"{sum(row.true for row in found):,} of {len(found):,} judged true"


def suspicious(found: Sequence[results.SuspiciousFact]) -> Iterator[RenderableType]:
    """Yields facts that look wrong, given the rest of the graph, least probable first."""
    rows = ((str(row.rank), _name(row.head), _name(row.relation), _name(row.tail),
             percent(row.probability), f"{row.tail_rank:,}", f"{row.head_rank:,}",
             _name(", ".join(row.expected)), _name(row.instead), _name(row.reason))
            for row in found)  # fmt: skip
    numbers = map(_right, ("probability", "tail rank", "head rank"))
    given = any(row.reason or row.instead for row in found)
    why = ("reason for the first", "reason for the fact") if given else ("", "")
    names = ("head", "relation", "tail")
    table = _table(rows, _right(), *names, *numbers, "more probable tails", *why)
    yield table if found else "no facts to judge"


def rules(found: list[results.Rule], instances: bool = False) -> Iterator[RenderableType]:
    """Yields the rules that a model has learned, a table per relation; instances on request."""
    if not found:
        yield "none found: no path between two entities raised the score of a sampled fact"
    for relation in dict.fromkeys(rule.relation for rule in found):
        yield _name(relation, "bold")
        rows = ((_rule(rule, instances), percent(rule.trust), f"{rule.support:,}",
                 f"{rule.connected:,}", percent(rule.confidence))
                for rule in found if rule.relation == relation)  # fmt: skip
        numbers = ("trust", "support", "connected", "confidence")
        yield _table(rows, "path", *map(_right, numbers))


def _rule(rule: results.Rule, instances: bool) -> Text:
    lines = rule.instance_words() if instances else []
    return Text("\n").join([_name(rule.words()), *(_name(f"  {line}", "dim") for line in lines)])


def coverage(name: str, found: Coverage) -> Iterator[RenderableType]:
    """Yields how much of a graph's schema a model knows."""
    n, known = len(found.matches), len(found.matches) - len(found.unknown)
    share = found.known_triples / found.triples if found.triples else None
    yield _name(name, "bold")
    yield f"  the model knows {known:,} of {n:,} relations, {percent(share)} of the triples"

    def theirs(name: str | None, inverse: bool) -> Text:
        return _name("unknown", "red") if name is None else _name("^" * inverse + name)

    rows = ((_relation(row.name), theirs(row.model, row.inverse), f"{row.triples:,}")
            for row in found.matches)  # fmt: skip
    yield _table(rows, "relation", "the model's", _right("triples"))
    if found.unused:
        yield f"  {len(found.unused):,} relations of the model are not in the graph"


def settings(presets: list[str]) -> Iterator[RenderableType]:
    """Yields every setting with its default and meaning, and the presets."""
    described = describe_settings(Config())
    rows = ((name, Text(default), Text(meaning)) for name, default, meaning in described)
    yield _table(rows, "setting", "default", "meaning")
    yield "\n`pathe train` chooses bridges, batch size, epochs and more to suit graph and machine;"
    yield "a run's config.yaml holds the settings it used."
    yield "\n[bold]Presets[/] (pathe config PRESET shows one)"
    for name in presets:
        yield f"  {name}"
