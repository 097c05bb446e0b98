"""Evidence for a score: the effect of leaving out each path or pattern of paths."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pathe.core.types import Fact
from pathe.data.vocabulary import Vocabulary
from pathe.model.left_out import BridgeScore, Ids, TripleScore
from pathe.predict.connections import connections, contributions
from pathe.predict.patterns import MOST, Pattern, find_patterns, from_head
from pathe.predict.results import BridgeEvidence, PathEvidence, PatternEvidence

SHOWN = 10  # paths between head and tail,
INSTANCES = 5  # and of so many patterns one more path each
NEAR = 0.02  # effects that differ by less, relative to the whole, are about equal
CLEAR = 0.05  # a negative effect of this size, relative to the whole, counts as evidence against
Named = Callable[[Iterable[Ids]], list[Fact]]


def path_evidence(score: TripleScore, named: Named) -> list[PathEvidence]:
    """Returns the effect of each path of head and tail on the score, largest first."""
    whole = score.without()
    found = [
        PathEvidence(p.of, named(p.steps), len(p.numbers), whole - score.without([p]))
        for p in score.paths
    ]
    return sorted(found, key=lambda path: -abs(path.effect))


def bridge_evidence(
    score: TripleScore, relation: int, named: Named, relations: Vocabulary
) -> tuple[list[PatternEvidence], list[BridgeEvidence]]:
    """Returns the patterns of paths between head and tail, and the main paths.

    Patterns come in the order of `find_patterns`, and those that speak against the triple last.
    Paths come by the size of their effect, and the shortest first where these are about equal.
    """
    if (bridge := score.bridge) is None:
        return [], []
    hops = contributions(bridge)
    strongest = connections(bridge, SHOWN, hops)
    patterns = find_patterns(bridge, relation, hops, [path.kinds for path in strongest])
    found = _patterns(bridge, patterns, named, relations)
    paths = {path.triples: path for path in strongest}
    for pattern in patterns[:INSTANCES]:
        paths.setdefault(pattern.instances[0].triples, pattern.instances[0])
    whole, near = bridge.without(), NEAR * abs(bridge.without()) or 1.0
    between = [
        BridgeEvidence(named(path.steps), whole - bridge.without(path.triples))
        for path in paths.values()
    ]
    between.sort(key=lambda path: (-round(abs(path.effect) / near), len(path.steps)))
    return found, between


def _patterns(
    bridge: BridgeScore, patterns: list[Pattern], named: Named, relations: Vocabulary
) -> list[PatternEvidence]:
    """Returns patterns with their effects; those that clearly speak against come last."""
    whole = bridge.without()
    effects = {pattern.kinds: whole - bridge.without(pattern.triples) for pattern in patterns}
    limit = -CLEAR * abs(whole)
    patterns = [p for i, p in enumerate(patterns) if i < MOST or effects[p.kinds] < limit]
    patterns = sorted(patterns, key=lambda p: min(effects[p.kinds] - limit, 0.0), reverse=True)
    found, triples, before = list[PatternEvidence](), set[int](), 0.0
    for pattern in patterns:
        triples |= pattern.triples
        after = bridge.only(triples)
        effect, kinds = effects[pattern.kinds], from_head(bridge, pattern.kinds)
        turn = -1 if bridge.backwards else 1
        found.append(
            PatternEvidence(
                [_relation(kind, relations) for kind in kinds],
                [named(path.steps[::turn]) for path in pattern.instances],
                pattern.n_paths,
                pattern.complete,
                effect,
                after - before,
                pattern.support,
                pattern.connected,
                against=effect < limit,
            )
        )
        before = after
    return found


def _relation(kind: int, relations: Vocabulary) -> str:
    n = len(relations)
    return relations[kind] if kind < n else f"^{relations[kind - n]}"
