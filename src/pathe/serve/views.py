"""What requests get: plain dicts with exact names, and labels to show beside them."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

from pathe.core.errors import ConfigError, PatheError
from pathe.core.types import PARTS, Fact, Part, Progress, Query, chunks, fill, open_part
from pathe.predict.predictor import Predictor
from pathe.predict.results import (
    Answer,
    BridgeEvidence,
    Explanation,
    MissingTriple,
    Neighbour,
    PatternEvidence,
    Rule,
    SuspiciousFact,
    relation_arrows,
)
from pathe.serve.graphs import ServedGraph

Row = dict[str, Any]
T = TypeVar("T")
MOST_KNOWN = 100  # known answers that are listed beside predictions
AT_ONCE = 64  # queries that are answered together


@dataclass(frozen=True)
class AnswerOptions:
    """Which answers to a query are wanted."""

    k: int = 10
    offset: int = 0
    known: bool = False
    type: str | None = None
    plausible: bool = True


def answers(
    graph: ServedGraph,
    p: Predictor,
    queries: Sequence[Query],
    options: AnswerOptions,
    progress: Progress,
) -> list[Row | PatheError]:
    """Answers queries together; a query that can't be answered gets the error as its result."""
    found: list[Row | PatheError] = []
    for chunk in chunks(queries, AT_ONCE):
        progress(len(found), len(queries))
        exact = [_or_error(_exact, p, query) for query in chunk]
        good = [query for query in exact if not isinstance(query, PatheError)]
        rows = _or_error(_answered, graph, p, good, options)
        if isinstance(rows, PatheError):  # of one of these
            alone = (_or_error(_answered, graph, p, [query], options) for query in good)
            rows = [own if isinstance(own, PatheError) else own[0] for own in alone]
        left = iter(rows)
        found += [query if isinstance(query, PatheError) else next(left) for query in exact]
    return found


def _or_error(call: Callable[..., T], *given: Any) -> T | PatheError:
    try:
        return call(*given)
    except PatheError as error:
        return error


def _exact(p: Predictor, query: Query) -> Query:
    open_part(query)
    return p.exact(query)


def _answered(
    graph: ServedGraph, p: Predictor, queries: list[Query], options: AnswerOptions
) -> list[Any]:
    which: Any = {"type": options.type} if options.type else {}
    if not options.plausible:
        which["plausible"] = False
    n, filter_known = options.k + options.offset, not options.known
    found = p.answer(queries, n, filter_known=filter_known, **which)
    rows = zip(queries, found, p.known_answers_to(queries), strict=True)
    return [_answers(graph, *row, options) for row in rows]


def _answers(
    graph: ServedGraph, query: Query, found: Any, known: list[str], options: AnswerOptions
) -> Row:
    rows = []
    for answer in found[options.offset :]:
        held_out = fill(query, answer.name) in graph.held_out
        rows.append(vars(answer) | {"label": graph.show(answer.name), "held_out": held_out})
    shown = graph.names.shown(found)
    return {
        **dict(zip(PARTS, query, strict=True)),
        "labels": {name: graph.show(name) for name in query if name is not None},
        "asked": open_part(query),
        "answers": rows,
        "complete": found.complete,
        "implausible": found.implausible,
        "left_out": found.left_out,
        "notes": shown.notes,
        "n_known": len(known),
        "known": [{"name": n, "label": graph.show(n)} for n in known[:MOST_KNOWN]],
    }


def with_labels(graph: ServedGraph, row: Row) -> Row:
    """Returns a row of a triple with its labels."""
    return row | {f"{part}_label": graph.show(row[part]) for part in PARTS}


def entity(
    graph: ServedGraph, p: Predictor, name: str, relation: str | None, direction: str,
    offset: int, limit: int,
) -> Row:  # fmt: skip
    """Returns an entity's types and a page of its facts, with counts by relation."""
    name = p.entity_names.exact(name)
    out, into = p.facts_of(name)
    found = [*((fact, "out") for fact in out), *((fact, "in") for fact in into)]
    counts = Counter((fact[1], own) for fact, own in found)
    if relation:
        relation = p.relation_names.exact(relation)
    wanted = [
        (fact, own)
        for fact, own in found
        if (not relation or fact[1] == relation) and direction in ("both", own)
    ]
    shown = wanted[offset : offset + limit]
    return {
        "name": name,
        "label": graph.show(name),
        "types": graph.version.types_of.get(name, []),
        "total": len(wanted),
        "offset": offset,
        "facts": [
            with_labels(graph, dict(zip(PARTS, fact, strict=True))) | {"direction": own}
            for fact, own in shown
        ],
        "counts": [
            {"relation": r, "label": graph.show(r), "direction": own, "facts": n}
            for (r, own), n in counts.most_common()
        ],
    }


def explanation(
    graph: ServedGraph, p: Predictor, fact: Fact, asked: Part | None, progress: Progress
) -> Row:
    """Returns the evidence for a triple."""
    found = p.explain(*fact, asked, progress=progress)
    names = {found.head, found.relation, found.tail}
    for steps in _paths(found):
        names.update(name for step in steps for name in step)
    for pattern in found.patterns:
        names.update(relation.removeprefix("^") for relation in pattern.relations)
    about = found.as_dict()
    for row, pattern in zip(about["patterns"], found.patterns, strict=True):
        shown = [graph.show(relation) for relation in pattern.relations]
        row |= {"labels": shown, "words": relation_arrows(shown), "figures": pattern.figures()}
    return about | {"labels": {name: graph.show(name) for name in sorted(names)}}


def _paths(found: Explanation) -> Iterable[list[Fact]]:
    for pattern in found.patterns:
        yield from pattern.instances
    yield from (bridge.steps for bridge in found.bridges)
    yield from (path.steps for path in found.paths)


def rescored(
    p: Predictor, fact: Fact, asked: Part | None, patterns: list[list[str]],
    paths: list[list[Fact]], progress: Progress,
) -> Row:  # fmt: skip
    """Returns a triple's score and rank without some patterns or paths, and with them."""
    [before] = p.score([fact], asked, progress=progress)
    left_out: list[Any] = [BridgeEvidence(steps, 0.0) for steps in paths]
    left_out += [PatternEvidence(own, [], 0, True, 0.0, 0.0, 0, 0) for own in patterns]
    score, rank = before.score, before.rank
    if left_out:
        score = p.score_without(*fact, left_out, asked, progress=progress)
        progress(1, 2)
        rank = p.rank_with(*fact, score, asked)
    return {
        "score": score, "rank": rank, "score_before": before.score, "rank_before": before.rank,
    }  # fmt: skip


def missing(
    graph: ServedGraph, p: Predictor, of: Row, k: int, least: float, progress: Progress
) -> Row:
    """Returns the facts that the graph most probably lacks."""
    found = p.missing(k, min_probability=least, reasons=k <= 50, progress=progress, **of)
    return {"triples": [with_labels(graph, vars(row)) for row in found]}


def suspicious(
    graph: ServedGraph, p: Predictor, of: Row, k: int, sample: int | None, progress: Progress
) -> Row:
    """Returns the facts that look wrong, given the rest of the graph."""
    found = p.check(k, sample=sample, progress=progress, **of)
    return {
        "facts": [
            with_labels(graph, vars(row))
            | {"expected_labels": [graph.show(n) for n in row.expected]}
            for row in found
        ]
    }


def rules(
    graph: ServedGraph, p: Predictor, relation: str | None, k: int, progress: Progress
) -> Row:
    """Returns the paths that the model trusts most, of one relation or of all."""
    rows = []
    for rule in p.rules(relation or None, k, progress=progress):
        shown = [graph.show(own) for own in rule.path]
        rows.append(
            asdict(rule)
            | {"label": graph.show(rule.relation), "labels": shown, "words": relation_arrows(shown)}
            | {"instance_labels": [list(map(graph.show, own)) for own in rule.instances]}
        )
    return {"rules": rows}


# files


@dataclass(frozen=True)
class Table:
    """A list of a response that can also be had as a file: its key, and the columns of CSV."""

    key: str
    columns: tuple[str, ...]


def _columns(kind: type, *more: str) -> tuple[str, ...]:
    return *(field.name for field in fields(kind)), *more


LABELS = tuple(f"{part}_label" for part in PARTS)
FACTS = Table("facts", (*PARTS, *LABELS, "direction"))
ANSWERS = Table("answers", (*PARTS, *_columns(Answer, "label", "held_out")))
MISSING = Table("triples", _columns(MissingTriple, *LABELS))
SUSPICIOUS = Table("facts", _columns(SuspiciousFact, *LABELS, "expected_labels"))
SIMILAR = Table("entities", _columns(Neighbour, "label"))
RULES = Table("rules", _columns(Rule, "label", "labels", "words", "instance_labels"))


def as_csv(table: Table, rows: list[Row]) -> str:
    """Returns rows as CSV; lists become text with semicolons, paths in them with arrows."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(table.columns)
    for row in rows:
        writer.writerow([_cell(row[column]) for column in table.columns])
    return out.getvalue()


def _cell(value: Any, between: str = "; ") -> Any:
    if not isinstance(value, list):
        return value
    return between.join(str(_cell(own, " > ")) for own in value)


def as_turtle(graph: ServedGraph, table: Table, rows: list[Row]) -> str:
    """Returns the triples of rows as Turtle."""
    from pathe.data.iris import rdf_lines

    if not set(PARTS) <= set(table.columns):
        raise ConfigError("Only triples can be written as Turtle: choose csv or json.")
    start, line = rdf_lines(".ttl", graph.names)
    return start + "".join(line(*(row[part] for part in PARTS)) for row in rows)
