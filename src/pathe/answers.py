"""What a predictor is asked and what it gives: records of names, and words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import islice, pairwise
from typing import Any, Literal

from pathe.errors import ConfigError, DataError

Part = Literal["head", "relation", "tail"]  # of a triple
PARTS: tuple[Part, Part, Part] = ("head", "relation", "tail")
Question = tuple[str | None, str | None, str | None]  # None is what is asked for
Fact = tuple[str, str, str]


@dataclass(frozen=True)
class Answer:
    """One answer: its place, its name, the model's score (higher is better), how likely it is.

    The probability is that of this answer, given that one of the answers ranked is what is missing.
    """

    rank: int
    name: str
    score: float
    probability: float
    known: bool = False  # the graph holds it already


@dataclass(frozen=True)
class Judged:
    """A triple with its score, and the place and probability of one part of it among all answers.

    Other known answers don't compete. Among equal scores the place is in the middle.
    """

    head: str
    relation: str
    tail: str
    score: float
    probability: float
    rank: int
    known: bool


@dataclass(frozen=True)
class Neighbour:
    """An entity near another one, by the cosine of their vectors."""

    rank: int
    name: str
    similarity: float


@dataclass(frozen=True)
class Missing:
    """A triple that the graph lacks, and how plausible it is, from 0 to 1."""

    rank: int
    head: str
    relation: str
    tail: str
    score: float
    plausibility: float


@dataclass(frozen=True)
class Rule:
    """Entities connected by `path` tend to have `relation`: what a model with bridges has learned.

    `trust` is the path's share of what paths brought to the scores of the facts looked at. In the
    training graph it connects `connected` pairs, `support` of which have the relation.
    """

    relation: str
    path: list[str]  # relations on the way, ^ before one that is followed against its arrow
    trust: float
    support: int
    connected: int
    confidence: float

    def words(self) -> str:
        """The path as arrows."""
        return " ".join(f"<-{r[1:]}-" if r.startswith("^") else f"-{r}->" for r in self.path)


@dataclass(frozen=True)
class PathEvidence:
    """One path of the head or the tail: `effect` is what the score loses without it.

    So it counts against the entity's other paths: a path that says what they all say has none.
    """

    of: Literal["head", "tail"]
    steps: list[Fact]  # (head, relation, tail) names in reading order; none: the entity by itself
    count: int  # how many of the entity's drawn paths are this one
    effect: float


@dataclass(frozen=True)
class BridgeEvidence:
    """A path that connects head and tail: `effect` is what the score loses without its edges."""

    steps: list[Fact]  # triples of the graph, one after the other, in whatever direction
    effect: float

    def words(self, start: str) -> str:
        """The path from `start` on, arrows as they are in the graph."""
        return start + arrows(walked(self.steps, start))


@dataclass(frozen=True)
class Explanation:
    """A triple's score and the paths behind it, those that moved it most first."""

    head: str
    relation: str
    tail: str
    score: float
    probability: float
    rank: int
    alone: float  # the score without any path: of both entities' relational contexts
    paths: list[PathEvidence]
    bridged: float = 0.0  # what all paths between head and tail add to the score
    bridges: list[BridgeEvidence] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def focus(self, path: PathEvidence) -> str:
        """The entity that a path is of."""
        return self.head if path.of == "head" else self.tail

    def start(self, bridge: BridgeEvidence) -> str:
        """Where a path between head and tail starts."""
        return self.head if self.head in bridge.steps[0] else self.tail

    def words(self, n: int = 5) -> str:
        """The triple, and the n paths that moved its score most, a line each."""
        lines = [
            f"{self.head} -{self.relation}-> {self.tail}: score {self.score:.2f}, rank "
            f"{self.rank:,}, probability {self.probability:.1%}; {self.alone:.2f} without any path"
        ]
        bridges, shown = self.strongest(n)
        for path, steps, more in shown:
            start = path_start(steps, self.focus(path))
            names = start + arrows(walked(steps, start)) if steps else f"{start} by itself"
            lines.append(f"{path.effect:+.3f} {path.of}: {names}{more}")
        if self.bridged:
            lines.insert(1, f"{self.bridged:+.3f} by all paths between them")
        for i, bridge in enumerate(bridges):
            lines.insert(2 + i, f"{bridge.effect:+.3f} between: {bridge.words(self.start(bridge))}")
        return "\n".join(lines)

    def strongest(
        self, n: int
    ) -> tuple[list[BridgeEvidence], list[tuple[PathEvidence, list[Fact], str]]]:
        """The n paths that moved the score most: those between head and tail, those of either."""
        shown = self.shown(n)
        effects = [bridge.effect for bridge in self.bridges] + [path.effect for path, *_ in shown]
        order = sorted(range(len(effects)), key=lambda i: -abs(effects[i]))[:n]
        between = sum(i < len(self.bridges) for i in order)
        return self.bridges[:between], shown[: len(order) - between]

    def shown(self, n: int) -> list[tuple[PathEvidence, list[Fact], str]]:
        """The n paths that moved the score most: each with its steps near the entity, and a remark.

        Paths that look the same there are shown once, by the one with the largest effect.
        """
        alike: dict[tuple[str, tuple[Fact, ...]], list[PathEvidence]] = {}
        for path in self.paths:
            close = tuple(near(path.steps, self.focus(path)))
            alike.setdefault((path.of, close), []).append(path)
        found = []
        for (_, steps), paths in list(alike.items())[:n]:
            hops = len(paths[0].steps)
            remarks = [f"{hops} hops"] if len(steps) < hops else []
            remarks += [f"and {len(paths) - 1} like it"] if len(paths) > 1 else []
            found.append((paths[0], list(steps), f" ({', '.join(remarks)})" if remarks else ""))
        return found


def path_start(steps: list[Fact], focus: str) -> str:
    """Where a path of an entity starts: it reads along its edges or, if it can't, from the entity.

    A walk in mixed directions does the latter.
    """
    along = all(a[2] == b[0] for a, b in pairwise(steps))
    return steps[0][0] if steps and along else focus


def walked(steps: list[Fact], start: str) -> list[tuple[str, bool, str]]:
    """A path's hops from its start on: relation, whether along its arrow, entity it leads to."""
    found = []
    for head, relation, tail in steps:
        forward = head == start
        start = tail if forward else head
        found.append((relation, forward, start))
    return found


def arrows(hops: list[tuple[str, bool, str]]) -> str:
    """Hops in words, arrows as they are in the graph."""
    return "".join(f" -{r}-> {name}" if along else f" <-{r}- {name}" for r, along, name in hops)


def near(steps: list[Fact], focus: str, hops: int = 2) -> list[Fact]:
    """The steps of a path within some hops of the entity that it is of."""
    start = path_start(steps, focus)
    names = [start, *(name for _, _, name in walked(steps, start))]
    at = names.index(focus) if focus in names else 0
    return steps[max(at - hops, 0) : at + hops]


def open_part(question: Question) -> Part:
    """The part that a question leaves open."""
    asked = [part for part, name in zip(PARTS, question, strict=False) if name is None]
    if len(question) != 3 or len(asked) != 1:
        raise ConfigError("Give two of head, relation and tail; the third is what is asked for.")
    return asked[0]


def fill(question: Question, name: str) -> Fact:
    """The question with an answer put in."""
    head, relation, tail = (name if part is None else part for part in question)
    return head, relation, tail


def is_fact(fact: Any) -> bool:
    """Three names, none of them empty or with half a character in it."""
    return (
        not isinstance(fact, str)
        and hasattr(fact, "__len__")
        and len(fact) == 3
        and all(isinstance(name, str) and name and writable(name) for name in fact)
    )


def writable(name: str) -> bool:
    """Whether it can be UTF-8: a command line may hold bytes that can't."""
    return name.isascii() or not any("\ud800" <= c <= "\udfff" for c in name)


def check_fact(fact: Any) -> None:
    if not is_fact(fact):
        raise DataError(f"A fact is three names, head, relation and tail; got {fact!r}.")


def check_k(k: Any) -> None:
    if not isinstance(k, int) or k < 1:
        raise ConfigError(f"k must be a whole number from 1; got {k!r}.")


def chunks(items: Iterable[Any], n: int) -> Iterator[list[Any]]:
    """The items, n at a time."""
    source = iter(items)
    while chunk := list(islice(source, n)):
        yield chunk
