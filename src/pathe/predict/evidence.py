"""Evidence for a score: the effect of leaving out each path or pattern of paths."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pathe.core.types import Fact, Progress
from pathe.data.vocabulary import Vocabulary
from pathe.model.left_out import BridgeScore, Ids, TripleScore
from pathe.predict.connections import Connection, connections, contributions
from pathe.predict.patterns import MOST, Pattern, find_patterns, from_head
from pathe.predict.results import BridgeEvidence, PathEvidence, PatternEvidence

SHOWN = 10  # paths between head and tail,
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
    score: TripleScore,
    relation: int,
    named: Named,
    relations: Vocabulary,
    progress: Progress | None = None,
) -> tuple[list[PatternEvidence], list[BridgeEvidence]]:
    """Returns the patterns of paths between head and tail, and the main paths.

    Patterns come in the order of `find_patterns`, and those that may speak against the triple last.
    Paths come in the order of `_diverse`: those of the patterns, then the strongest of others.
    """
    if (bridge := score.bridge) is None:
        return [], []
    hops = contributions(bridge)
    strongest = connections(bridge, SHOWN, hops)
    others = [path.kinds for path in strongest]
    patterns = find_patterns(bridge, relation, hops, others, progress)
    found = _patterns(bridge, patterns, named, relations)
    instances = [path for pattern in patterns[:MOST] for path in pattern.instances]
    whole, paths = bridge.without(), _diverse([*instances, *strongest])[:SHOWN]
    return found, [
        BridgeEvidence(named(path.steps), whole - bridge.without(path.triples)) for path in paths
    ]


def _diverse(paths: list[Connection]) -> list[Connection]:
    """Returns paths such that those with other edges than the ones before them come early.

    Of those that share as much with the ones before, the order stays.
    """
    left, found, used = {path.triples: path for path in paths}, list[Connection](), set[int]()
    while left:
        triples = min(left, key=lambda own: len(used.intersection(own)) / len(own))
        found.append(left.pop(triples))
        used.update(triples)
    return found


def _patterns(
    bridge: BridgeScore, patterns: list[Pattern], named: Named, relations: Vocabulary
) -> list[PatternEvidence]:
    """Returns patterns with their effects; those without which the score is higher come last."""
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
                against=after - before < limit,
            )
        )
        before = after
    return found


def _relation(kind: int, relations: Vocabulary) -> str:
    n = len(relations)
    return relations[kind] if kind < n else f"^{relations[kind - n]}"
