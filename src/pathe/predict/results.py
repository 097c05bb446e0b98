"""Results of a `Predictor`: records with names, and their text form."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pathe.core import html
from pathe.core.extras import require
from pathe.core.types import PARTS, Fact, Query, fill, open_part
from pathe.predict.phrases import phrase
from pathe.predict.picture import Drawn, draw_paths

if TYPE_CHECKING:
    import pandas

T = TypeVar("T")
SHARES = ("probability", "threshold", "trust", "confidence")  # shown in percent
FEW, REASONS = 5, 6  # results in a repr, reasons in a notebook
ANSWER_ROW: dict[str, type] = {
    "head": str, "relation": str, "tail": str, "asked": str,
    "rank": int, "score": float, "probability": float, "known": bool,
    "complete": bool, "implausible": bool,
}  # fmt: skip


class Records(list[T]):
    """A list of results that notebooks show as a table and that pandas can take."""

    def to_dicts(self) -> list[dict[str, Any]]:
        """Returns one dict per result."""
        return [dict(vars(record)) for record in self]

    def to_pandas(self) -> pandas.DataFrame:
        """Returns a data frame with one row per result."""
        module = require("pandas", "pandas", "to_pandas")
        frame: pandas.DataFrame = module.DataFrame(self.to_dicts())
        return frame

    def __repr__(self) -> str:
        rows = [" ".join(f"{v:.3g}" if isinstance(v, float) else str(v) for v in vars(row).values())
                for row in self[:FEW]]  # fmt: skip
        rows += [f"... {len(self) - FEW:,} more"] if len(self) > FEW else []
        kind = f"{type(self[0]).__name__}: " if self else ""
        return f"Records({kind}{'; '.join(rows)})"

    def _repr_html_(self) -> str:
        rows = self.to_dicts()
        columns = list(rows[0]) if rows else []
        cells = ([html.Percent(row[c]) if c in SHARES and row[c] is not None else row[c]
                  for c in columns] for row in rows)  # fmt: skip
        return html.table(columns, cells) if rows else html.line("no results")


@dataclass(frozen=True)
class Answer:
    """One answer: its rank, name, score (higher is better) and probability.

    The probability assumes that one of the ranked candidates is correct.
    """

    rank: int
    name: str
    score: float
    probability: float
    known: bool = False  # whether the graph already has it; scored with its own fact

    def __repr__(self) -> str:
        known = ", known" if self.known else ""
        return f"Answer({self.rank}, {self.name!r}, {self.probability:.1%}{known})"


class Answers(Records[Answer]):
    """The answers to a query, best first, and what the graph says about the query itself."""

    def __init__(
        self,
        answers: Iterable[Answer] = (),
        query: Query = (None, None, None),
        *,
        complete: list[str] | None = None,
        implausible: bool = False,
        left_out: int = 0,
    ) -> None:
        super().__init__(answers)
        self.query = query
        self.complete = complete or []  # the known answers, if there should be no others
        self.implausible = implausible  # whether no entity of this kind has the relation
        self.left_out = left_out  # implausible candidates that weren't ranked

    @property
    def notes(self) -> list[str]:
        """What to know before trusting an answer, in words."""
        return notes_on(self.query, self.complete, self.implausible)

    def __repr__(self) -> str:
        head, relation, tail = (name or "?" for name in self.query)
        query = f"{head} -{relation}-> {tail}: " if any(self.query) else ""
        names = [f"{answer.name} {answer.probability:.1%}" for answer in self[:FEW]]
        names += [f"... {len(self) - FEW:,} more"] if len(self) > FEW else []
        notes = "".join(f"; {note}" for note in self.notes)
        return f"Answers({query}{', '.join(names) or 'none'}{notes})"

    def _repr_html_(self) -> str:
        head, relation, tail = (name or "?" for name in self.query)
        rows = [(a.rank, a.name, a.score, html.Percent(a.probability), "known" if a.known else "")
                for a in self]  # fmt: skip
        parts = [html.title(f"{head} -{relation}-> {tail}")] if any(self.query) else []
        parts += map(html.line, self.notes)
        parts.append(html.table(("", "answer", "score", "probability", ""), rows))
        return "".join(parts)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Returns one dict per answer, each with what is said about the query."""
        about = {"complete": bool(self.complete), "implausible": self.implausible}
        return [vars(answer) | about for answer in self]


def notes_on(query: Query, complete: list[str], implausible: bool) -> list[str]:
    """Returns in words that a query has its answers already, or that it makes no sense."""
    head, relation, tail = query
    own, other = ("head", "tail") if tail is None else ("tail", "head")
    notes = []
    if complete:
        why = f"nearly every {own} of {relation} has one {other}"
        notes.append(f"probably complete: {why}; known: {', '.join(complete)}")
    if implausible:
        entity = head if tail is None else tail
        notes.append(f"implausible: no entity like {entity} is a {own} of {relation}")
    return notes


def answer_rows(query: Query, answers: Answers) -> list[dict[str, Any]]:
    """Returns rows of ANSWER_ROW: whole triples, the part that was predicted, and its figures."""
    rows = []
    for row in answers.to_dicts():
        names = dict(zip(PARTS, fill(query, row.pop("name")), strict=True))
        rows.append(names | {"asked": open_part(query)} | row)
    return rows


@dataclass(frozen=True)
class ScoredTriple:
    """A triple with its score, and the rank and probability of one part among all candidates.

    Other known answers don't compete. Ties get the mean rank, rounded down.
    """

    head: str
    relation: str
    tail: str
    score: float
    probability: float
    rank: int
    known: bool
    complete: bool = False  # whether one of its two queries has another answer, and needs no more
    implausible: bool = False  # whether no entity like its head or tail has the relation
    notes: list[str] = field(default_factory=list)  # both in words


@dataclass(frozen=True)
class Neighbour:
    """An entity similar to another one, by the cosine of their vectors."""

    rank: int
    name: str
    similarity: float


@dataclass(frozen=True)
class MissingTriple:
    """A triple that the graph lacks, and the probability that it is true.

    The probability assumes that the graph lacks about a tenth of each relation's facts.
    """

    rank: int
    head: str
    relation: str
    tail: str
    score: float
    probability: float
    reason: str = ""  # the main pattern of paths behind it, if asked for


@dataclass(frozen=True)
class ClassifiedTriple:
    """A triple, whether it is true, and the probability of that.

    Ranks and probabilities of head and tail are those among all candidates that aren't known. The
    triple counts as true if its probability reaches the relation's threshold.
    """

    head: str
    relation: str
    tail: str
    true: bool
    probability: float
    threshold: float
    tail_rank: int
    tail_probability: float
    head_rank: int
    head_probability: float
    known: bool
    reason: str = ""  # the main pattern of paths behind it, if asked for


@dataclass(frozen=True)
class SuspiciousFact:
    """A fact that looks wrong, given the rest of the graph.

    The probability that it is true, and the ranks of tail and head among all candidates that aren't
    known, are computed without the fact itself. So is `expected`: the tails that are more probable
    than its own, best first, known or not. If asked for, `reason` is the main pattern of paths
    behind the fact, and `instead` that behind the first expected tail.
    """

    rank: int
    head: str
    relation: str
    tail: str
    probability: float
    tail_rank: int
    head_rank: int
    expected: list[str] = field(default_factory=list)
    reason: str = ""
    instead: str = ""


@dataclass(frozen=True)
class Rule:
    """A rule that a model with bridges has learned: pairs connected by `path` have `relation`.

    `trust` is the path's share of what all paths contribute to the scores of sampled facts. In the
    training graph it connects `connected` pairs, `support` of which have the relation. `instances`
    are a few of these: the entities along the path, from head to tail.
    """

    relation: str
    path: list[str]  # relations, with ^ before one that is followed backwards
    trust: float
    support: int
    connected: int
    confidence: float
    instances: list[list[str]] = field(default_factory=list)

    def words(self) -> str:
        """Returns the path as text with arrows."""
        return relation_arrows(self.path)

    def instance_words(self) -> list[str]:
        """Returns the instances as text with arrows."""
        found = []
        for start, *others in self.instances:
            hops = [
                (relation.removeprefix("^"), not relation.startswith("^"), name)
                for relation, name in zip(self.path, others, strict=True)
            ]
            found.append(start + arrows(hops))
        return found


@dataclass(frozen=True)
class PathEvidence:
    """One path of the head or the tail; `effect` is what the score loses without it.

    The entity's other paths are kept, so a redundant path has no effect.
    """

    of: Literal["head", "tail"]
    steps: list[Fact]  # in the order of the path; empty for an entity without edges
    count: int  # how often it was sampled
    effect: float


@dataclass(frozen=True)
class BridgeEvidence:
    """A path that connects head and tail; `effect` is what the score loses without its edges."""

    steps: list[Fact]  # triples of the graph from one end to the other, in either direction
    effect: float

    def words(self, start: str) -> str:
        """Returns the path from `start` on, with arrows as in the graph."""
        return start + arrows(walked(self.steps, start))


@dataclass(frozen=True)
class PatternEvidence:
    """The paths from head to tail that follow the same relations.

    `added` is what the edges of these paths add to the score beside those of the patterns listed
    before: with `Explanation.rest`, this adds up to what all paths between head and tail add.
    `effect` is what the score loses without the edges of all these paths; where other paths say the
    same, that is little. Among other pairs of entities, the pattern connects `connected`, `support`
    of which have the relation.
    """

    relations: list[str]  # from head to tail, with ^ before one that is followed backwards
    instances: list[list[Fact]]  # one or two of the paths, in the same order
    n_paths: int
    complete: bool  # whether n_paths are all; there may be more if not
    effect: float
    added: float
    support: int
    connected: int
    against: bool = False  # whether these paths clearly lower the score
    between: list[str] = field(default_factory=list)  # types of the entities between, if known

    @property
    def confidence(self) -> float | None:
        """The share of other connected pairs that have the relation; None if there are none."""
        return self.support / self.connected if self.connected else None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"confidence": self.confidence, "words": self.words()}

    def words(self) -> str:
        """Returns the pattern in words, such as "born in a city located in India"."""
        head, _, tail = self.instances[0][-1]
        end = head if self.relations[-1].startswith("^") else tail
        return phrase(self.relations, self.between, end)

    def figures(self) -> str:
        """Returns how many paths there are, and how often the pattern holds."""
        most = "" if self.complete else "at least "
        paths = f"{most}{self.n_paths:,} path{'s' * (self.n_paths != 1)}"
        if self.confidence is None:
            holds = "no other pair to compare"
        else:
            pairs = "1 other pair" if self.connected == 1 else f"{self.connected:,} other pairs"
            holds = f"holds for {self.confidence:.0%} of {pairs}"
        return f"{'against: ' * self.against}{paths}, {holds}"

    def example(self, start: str) -> str:
        """Returns the first instance from `start`, the head, on, with arrows as in the graph."""
        return start + arrows(walked(self.instances[0], start))


@dataclass(frozen=True)
class Explanation:
    """A triple's score and the paths behind it, those with the largest effect first."""

    head: str
    relation: str
    tail: str
    score: float
    probability: float
    rank: int
    alone: float  # the score without any path, from both entities' relational contexts
    paths: list[PathEvidence]
    bridged: float = 0.0  # what all paths between head and tail add to the score
    bridges: list[BridgeEvidence] = field(default_factory=list)
    patterns: list[PatternEvidence] = field(default_factory=list)

    @property
    def rest(self) -> float:
        """What paths of other patterns add: with what the patterns add, it makes up `bridged`."""
        return self.bridged - sum(pattern.added for pattern in self.patterns)

    def __repr__(self) -> str:
        n = f"{len(self.patterns)} patterns, " if self.patterns else ""
        return (
            f"Explanation({self.head} -{self.relation}-> {self.tail}: score {self.score:.2f}, rank "
            f"{self.rank:,}, probability {self.probability:.1%}; {n}"
            f"{len(self.bridges) + len(self.paths)} paths)"
        )

    def _repr_html_(self) -> str:
        patterns, bridges, shown = self.reasons(REASONS)
        rows = [(pattern.added, pattern.words(), pattern.figures()) for pattern in patterns]
        rows += [(self.left_over(patterns), "other paths", "")] if patterns else []
        rows += [(bridge.effect, bridge.words(self.start(bridge)), "") for bridge in bridges]
        for path, steps, remark in shown:
            start = path_start(steps, self.focus(path))
            names = start + arrows(walked(steps, start)) if steps else f"{start} by itself"
            rows.append((path.effect, names, f"{path.of}{remark}"))
        about = f"score {self.score:.2f}, rank {self.rank:,}, probability {self.probability:.1%}; "
        about += f"{self.alone:.2f} without any path"
        drawn = [Drawn(pattern.instances[0], pattern.added) for pattern in patterns]
        drawn += [Drawn(bridge.steps, bridge.effect) for bridge in bridges]
        parts = [html.title(f"{self.head} -{self.relation}-> {self.tail}:", about)]
        parts.append(html.table(("effect", "paths", ""), rows))
        parts += [draw_paths(self.head, self.tail, drawn)] if drawn else []
        return "".join(parts)

    def as_dict(self) -> dict[str, Any]:
        patterns = [pattern.as_dict() for pattern in self.patterns]
        return asdict(self) | {"patterns": patterns, "rest": self.rest}

    def focus(self, path: PathEvidence) -> str:
        """Returns the entity that a path belongs to."""
        return self.head if path.of == "head" else self.tail

    def start(self, bridge: BridgeEvidence) -> str:
        """Returns the entity, head or tail, at which a path between them starts."""
        return self.head if self.head in bridge.steps[0] else self.tail

    def words(self, n: int = 5, *, paths: bool = False) -> str:
        """Returns the triple and its n main reasons as text.

        Paths between head and tail are shown by pattern, or one by one with `paths`.
        """
        lines = [
            f"{self.head} -{self.relation}-> {self.tail}: score {self.score:.2f}, rank "
            f"{self.rank:,}, probability {self.probability:.1%}; {self.alone:.2f} without any path"
        ]
        if self.bridged:
            lines.append(f"{self.bridged:+.3f} from all paths between them")
        patterns, bridges, shown = self.reasons(n, paths)
        for pattern in patterns:
            lines.append(f"{pattern.added:+.3f} {pattern.words()} ({pattern.figures()})")
            lines.append(f"       {pattern.example(self.head)}")
        if patterns:
            lines.append(f"{self.left_over(patterns):+.3f} from other paths")
        for bridge in bridges:
            lines.append(f"{bridge.effect:+.3f} between: {bridge.words(self.start(bridge))}")
        for path, steps, more in shown:
            start = path_start(steps, self.focus(path))
            names = start + arrows(walked(steps, start)) if steps else f"{start} by itself"
            lines.append(f"{path.effect:+.3f} {path.of}: {names}{more}")
        return "\n".join(lines)

    def reasons(
        self, n: int, paths: bool = False
    ) -> tuple[
        list[PatternEvidence], list[BridgeEvidence], list[tuple[PathEvidence, list[Fact], str]]
    ]:
        """Returns n main reasons: patterns, or paths between head and tail; then paths of either.

        The pattern that speaks most against the triple is one of them.
        """
        if paths or not self.patterns:
            return [], *self.strongest(n)
        found = [pattern for pattern in self.patterns if not pattern.against][:n]
        found += [pattern for pattern in self.patterns if pattern.against][: max(n - len(found), 1)]
        return found, [], self.shown(max(n - len(found), 1))

    def left_over(self, patterns: list[PatternEvidence]) -> float:
        """Returns what paths add beyond some of the patterns."""
        return self.bridged - sum(pattern.added for pattern in patterns)

    def strongest(
        self, n: int
    ) -> tuple[list[BridgeEvidence], list[tuple[PathEvidence, list[Fact], str]]]:
        """Returns the n paths with the largest effect: between head and tail, and others."""
        shown = self.shown(n)
        effects = [bridge.effect for bridge in self.bridges] + [path.effect for path, *_ in shown]
        order = sorted(range(len(effects)), key=lambda i: -abs(effects[i]))[:n]
        between = sum(i < len(self.bridges) for i in order)
        return self.bridges[:between], shown[: len(order) - between]

    def shown(self, n: int) -> list[tuple[PathEvidence, list[Fact], str]]:
        """Returns n paths, each with its steps near the entity and a remark.

        Of paths with the same steps there, only the one with the largest effect is shown.
        """
        groups: dict[tuple[str, tuple[Fact, ...]], list[PathEvidence]] = {}
        for path in self.paths:
            close = tuple(near(path.steps, self.focus(path)))
            groups.setdefault((path.of, close), []).append(path)
        found = []
        for (_, steps), paths in list(groups.items())[:n]:
            hops = len(paths[0].steps)
            remarks = [f"{hops} hops"] if len(steps) < hops else []
            remarks += [f"and {len(paths) - 1} like it"] if len(paths) > 1 else []
            found.append((paths[0], list(steps), f" ({', '.join(remarks)})" if remarks else ""))
        return found


def path_start(steps: list[Fact], focus: str) -> str:
    """Returns the first entity of a path; without edges, the focus."""
    return steps[0][0] if steps else focus


def walked(steps: list[Fact], start: str) -> list[tuple[str, bool, str]]:
    """Returns a path's hops from `start`: (relation, whether forward, next entity)."""
    found = []
    for head, relation, tail in steps:
        forward = head == start
        start = tail if forward else head
        found.append((relation, forward, start))
    return found


def relation_arrows(relations: list[str]) -> str:
    """Returns relations as text, with arrows; ^ is before one that is followed backwards."""
    return " ".join(f"<-{r[1:]}-" if r.startswith("^") else f"-{r}->" for r in relations)


def arrows(hops: list[tuple[str, bool, str]]) -> str:
    """Returns hops as text, with arrows as in the graph."""
    return "".join(f" -{r}-> {name}" if along else f" <-{r}- {name}" for r, along, name in hops)


def near(steps: list[Fact], focus: str, hops: int = 2) -> list[Fact]:
    """Returns the steps of a path within `hops` of its focus."""
    start = path_start(steps, focus)
    names = [start, *(name for _, _, name in walked(steps, start))]
    at = names.index(focus) if focus in names else 0
    return steps[max(at - hops, 0) : at + hops]
