"""Evidence for a score: the effect of leaving out each path."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pathe.core.types import Fact
from pathe.model.left_out import Ids, TripleScore
from pathe.predict.connections import Connection, connections
from pathe.predict.results import BridgeEvidence, PathEvidence

SHOWN = 10  # paths between head and tail
Named = Callable[[Iterable[Ids]], list[Fact]]


def path_evidence(score: TripleScore, named: Named) -> list[PathEvidence]:
    """Returns the effect of each path of head and tail on the score, largest first."""
    whole = score.without()
    found = [
        PathEvidence(p.of, named(p.steps), len(p.numbers), whole - score.without([p]))
        for p in score.paths
    ]
    return sorted(found, key=lambda path: -abs(path.effect))


def bridge_evidence(score: TripleScore, named: Named) -> list[BridgeEvidence]:
    """Returns the effect of the main paths between head and tail on the score, largest first."""
    if (bridge := score.bridge) is None:
        return []
    whole = bridge.without()
    found = [
        BridgeEvidence(named(path.steps), whole - bridge.without(path.triples))
        for path in connections(bridge, SHOWN)
    ]
    return sorted(found, key=lambda path: -abs(path.effect))


def score_without(
    score: TripleScore, paths: Iterable[PathEvidence | BridgeEvidence], named: Named
) -> float:
    """Returns the score without some paths of an explanation, left out together."""
    wanted = {(getattr(path, "of", "between"), tuple(path.steps)) for path in paths}
    left_out = [p for p in score.paths if (p.of, tuple(named(p.steps))) in wanted]
    between: list[Connection] = []
    if score.bridge is not None and any(of == "between" for of, _ in wanted):
        between = [
            path
            for path in connections(score.bridge, SHOWN)
            if ("between", tuple(named(path.steps))) in wanted
        ]
    return score.without(left_out, [row for path in between for row in path.triples])
