"""Reasons by pattern: the paths between head and tail that follow the same relations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

from pathe.core.types import Progress
from pathe.graph.patterns import LONGEST, Between, Kinds
from pathe.model.left_out import BridgeScore
from pathe.predict.connections import Connection, connection
from pathe.predict.rules import count

MOST, AGAINST = 8, 2  # patterns that are returned, and others that speak against the triple
LISTED, TRIED = 64, 24  # patterns whose confidence is counted, and whose paths are scored
UNSURE = 5  # pairs without the relation that are added to those of every pattern
CLOSE = 0.95  # patterns of at least this share of another's strength are about as strong
DETOUR = 0.5  # weight of a detour
SINGLE = 0.9  # heads per tail, or tails per head, of a relation between about as many of both
INSTANCES = 2


@dataclass(frozen=True)
class Pattern:
    """A pattern in ids: `kinds` lead from the query's entity to the answer.

    Among other pairs it connects `connected`, `support` of which have the relation (`_counts`).
    `alone` is the bridges' score with the edges of its paths alone.
    """

    kinds: Kinds
    triples: frozenset[int]  # on its paths
    n_paths: int
    complete: bool  # whether these are all of its paths
    instances: list[Connection]
    support: int
    connected: int
    alone: float


def find_patterns(
    score: BridgeScore,
    relation: int,
    hops: Sequence[Tensor],
    others: Iterable[Kinds] = (),
    progress: Progress | None = None,
) -> list[Pattern]:
    """Returns the most convincing patterns, best first, then some that may speak against.

    Candidates are the patterns of all paths of up to three edges, and `others`. A pattern convinces
    by what its paths contribute alone, times its confidence. `hops` are the contributions of edges.
    """
    if score.source == score.target or not hops:
        return []
    worth_M = torch.stack(list(hops)).sum(0)
    between = Between(score.edges, score.kept_M, score.source, score.target)
    worths = between.patterns(worth_M, min(LONGEST, score.hops))
    listed = sorted(worths, key=lambda kinds: (len(kinds) > 2, -abs(worths[kinds])))[:LISTED]
    against = sorted((k for k in worths if worths[k] < 0), key=lambda kinds: worths[kinds])
    candidates = list(dict.fromkeys([*listed, *others, *against[:AGAINST]]))
    counts = _counts(score, _told(candidates, progress), relation)
    sure = {kinds: _confidence(score, kinds, relation, *counts[kinds]) for kinds in candidates}
    tried = sorted(candidates, key=lambda kinds: (-sure[kinds], len(kinds)))[:TRIED]
    found = {
        kinds: _pattern(score, between, kinds, counts[kinds], worth_M)
        for kinds in _told(list(dict.fromkeys([*tried, *against[:AGAINST]])), progress)
    }

    strength = {kinds: max(found[kinds].alone, 0.0) * sure[kinds] for kinds in tried}
    best = _ordered(tried, strength, {kinds: counts[kinds][0] for kinds in tried})[:MOST]
    return [found[kinds] for kinds in dict.fromkeys([*best, *against[:AGAINST]])]


def _told(patterns: Sequence[Kinds], progress: Progress | None) -> Iterator[Kinds]:
    """Yields patterns, and tells the progress before each."""
    for number, kinds in enumerate(patterns):
        if progress:
            progress(number, len(patterns))
        yield kinds


def _ordered(
    patterns: Iterable[Kinds], strength: Mapping[Kinds, float], support: Mapping[Kinds, int]
) -> list[Kinds]:
    """Returns patterns by strength; of those about as strong, the shortest and most usual first."""
    left, found = sorted(patterns, key=lambda kinds: -strength[kinds]), list[Kinds]()
    while left:
        close = [kinds for kinds in left if strength[kinds] >= CLOSE * strength[left[0]]]
        found.append(min(close, key=lambda kinds: (len(kinds), -support[kinds])))
        left.remove(found[-1])
    return found


def is_detour(kinds: Kinds, relation: int, n_relations: int) -> bool:
    """Whether a pattern goes back and forth, or on a longer way uses the relation itself.

    Such as: born in the same city as somebody with this nationality. Symmetric and transitive
    relations are no detours.
    """
    back = any(abs(a - b) == n_relations for a, b in pairwise(kinds))
    return back or (len(kinds) > 2 and any(kind % n_relations == relation for kind in kinds))


def from_head(score: BridgeScore, kinds: Kinds) -> Kinds:
    """Returns a pattern from the head to the tail, wherever the query starts; and back."""
    n = score.edges.n_relations
    return tuple((kind + n) % (2 * n) for kind in reversed(kinds)) if score.backwards else kinds


def pattern_triples(score: BridgeScore, kinds: Kinds) -> set[int]:
    """Returns the training triples on a pattern's paths."""
    between = Between(score.edges, score.kept_M, score.source, score.target)
    return set(score.edges.triples_M[between.paths(kinds).slots_NL.flatten()].tolist())


def _pattern(
    score: BridgeScore, between: Between, kinds: Kinds, counts: tuple[int, int], worth_M: Tensor
) -> Pattern:
    """Finds the paths of a pattern and scores them alone."""
    paths = between.paths(kinds)
    weakest_N = worth_M[paths.slots_NL].amin(1)
    best = weakest_N.argsort(descending=True, stable=True)[:INSTANCES]
    instances = [
        connection(score.edges, tuple(slots), worth)
        for slots, worth in zip(
            paths.slots_NL[best].tolist(), weakest_N[best].tolist(), strict=True
        )
    ]
    triples = frozenset(score.edges.triples_M[paths.slots_NL.flatten()].tolist())
    n, alone = len(paths.slots_NL), score.only(triples)
    return Pattern(kinds, triples, n, paths.complete, instances, *counts, alone)


def _confidence(
    score: BridgeScore, kinds: Kinds, relation: int, support: int, connected: int
) -> float:
    """Returns a pattern's confidence as it counts for the order: few pairs and detours less."""
    weight = DETOUR if is_detour(kinds, relation, score.edges.n_relations) else 1.0
    return weight * support / (connected + UNSURE)


def _counts(
    score: BridgeScore, patterns: Iterable[Kinds], relation: int
) -> dict[Kinds, tuple[int, int]]:
    """Counts other pairs that each pattern connects: those with the relation, and all.

    Pairs without the relation count only where its absence can be known: if each head has about one
    tail, those whose head has one; if each tail has about one head, those whose tail has one. If
    both are so, the side with more pairs counts.
    """
    edges, kept_M, n = score.edges, score.kept_M, score.edges.n_relations
    if not kept_M.all():
        columns = ("owners_M", "neighbours_M", "relations_M")
        edges = replace(edges, **{name: getattr(edges, name)[kept_M] for name in columns})
    own = edges.relations_M == relation
    heads, tails = (ends[own].unique() for ends in (edges.neighbours_M, edges.owners_M))
    head, tail = score.source, score.target
    if score.backwards:
        head, tail = tail, head
    few = max(len(heads), len(tails)) * SINGLE
    found = {}
    for kinds in patterns:
        forward, counts = from_head(score, kinds), list[tuple[int, int]]()
        if len(heads) >= few:
            support, connected = count(edges, forward, relation, known_heads=True)
            counts.append((support, connected - int((heads == head).any())))
        if len(tails) >= few:
            back = tuple((kind + n) % (2 * n) for kind in reversed(forward))
            support, connected = count(edges, back, relation + n, known_heads=True)
            counts.append((support, connected - int((tails == tail).any())))
        found[kinds] = max(counts, key=lambda pair: pair[1])
    return found
