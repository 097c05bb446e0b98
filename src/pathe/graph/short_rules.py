"""How surely facts follow from one or two others, by counting: for small graphs.

Entities that a pattern of one or two relations connects often have a relation, too: who was born in
a city located in Spain is usually a national of Spain.
"""

from __future__ import annotations

from collections import defaultdict

from torch import Tensor

from pathe.core.types import Side

UNSURE = 3  # pairs without the relation that are added to those of every pattern
SUPPORT = 3  # pairs with the relation that a pattern must have
MOST = 1 << 18  # pairs of a pattern that are counted

Fact = tuple[int, int, int]
Pattern = tuple[int, ...]  # kinds of edges: r, or r + R for one that is followed backwards


class ShortRules:
    """Counts, for patterns of up to two edges, how many of the pairs they connect have a relation.

    Whether others lack it, or the graph lacks the fact, can't be known. They count as lacking it.
    """

    def __init__(self, triples_M3: Tensor, n_relations: int) -> None:
        self.n_relations = n_relations
        self.facts = {(h, r, t) for h, r, t in triples_M3.tolist()}
        self._from = defaultdict[int, list[tuple[int, int]]](list)  # kinds and ends by entity
        self._pairs = defaultdict[int, set[tuple[int, int]]](set)  # by kind
        self._kinds = defaultdict[tuple[int, int], list[int]](list)  # by pair
        for h, r, t in sorted(self.facts):
            for start, kind, end in ((h, r, t), (t, r + n_relations, h)):
                self._from[start].append((kind, end))
                self._pairs[kind].add((start, end))
                self._kinds[start, end].append(kind)
        self._connected: dict[Pattern, set[tuple[int, int]]] = {}
        self._support: dict[tuple[Pattern, int], int] = {}

    def confidence(self, head: int, relation: int, tail: int) -> float:
        """Returns the share of the best pattern between head and tail; the fact itself is none."""
        return self._confidence(head, relation, tail, (head, relation, tail))

    def rival(self, head: int, relation: int, tail: int, side: Side) -> float:
        """Returns the confidence of the surest other head or tail, without the fact itself."""
        fact, start = (head, relation, tail), head if side == "tail" else tail
        near = {end for _, end in self._from.get(start, ())}
        ends = near.union(*({end for _, end in self._from[middle]} for middle in near))
        best = 0.0
        for end in ends - {head, tail}:
            pair = (head, end) if side == "tail" else (end, tail)
            best = max(best, self._confidence(pair[0], relation, pair[1], fact))
        return best

    def _confidence(self, head: int, relation: int, tail: int, without: Fact) -> float:
        """Returns the share of the best pattern between head and tail, without a fact."""
        own, best = without in self.facts, 0.0
        pair = without[0], without[2]
        for pattern in self._patterns(head, relation, tail, without):
            connected, support = self._pairs_of(pattern), self._supported(pattern, relation)
            here = own and without[1] == relation and pair in connected
            if support - here >= SUPPORT:
                best = max(best, (support - here) / (len(connected) - here + UNSURE))
        return best

    def _patterns(self, head: int, relation: int, tail: int, without: Fact) -> set[Pattern]:
        """Returns the patterns of the paths from head to tail, without a fact and their own."""
        left_out = {without, (head, relation, tail)}
        found: set[Pattern] = set()
        for kind, end in self._from.get(head, ()):
            if self._fact(head, kind, end) in left_out:
                continue
            if end == tail:
                found.add((kind,))
            elif end != head:
                for k in self._kinds.get((end, tail), ()):
                    if self._fact(end, k, tail) not in left_out:
                        found.add((kind, k))
        return found

    def _fact(self, start: int, kind: int, end: int) -> Fact:
        """Returns the fact of an edge."""
        n = self.n_relations
        return (start, kind, end) if kind < n else (end, kind - n, start)

    def _pairs_of(self, pattern: Pattern) -> set[tuple[int, int]]:
        """Returns the pairs of different entities that a pattern connects; none if too many."""
        if pattern not in self._connected:
            pairs = set[tuple[int, int]]()
            for start, end in self._pairs[pattern[0]]:
                if len(pattern) == 1:
                    pairs.add((start, end))
                else:
                    pairs.update((start, to) for k, to in self._from[end] if k == pattern[1])
                if len(pairs) > MOST:
                    pairs = set()
                    break
            self._connected[pattern] = {pair for pair in pairs if pair[0] != pair[1]}
        return self._connected[pattern]

    def _supported(self, pattern: Pattern, relation: int) -> int:
        """Returns how many of these pairs have the relation."""
        if (pattern, relation) not in self._support:
            both = self._pairs_of(pattern) & self._pairs[relation]
            self._support[pattern, relation] = len(both)
        return self._support[pattern, relation]
