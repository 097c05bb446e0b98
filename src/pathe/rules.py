"""What a bridge has learned, as rules: the sequences of relations that it trusts most."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pathe.answers import Rule
from pathe.connections import Connected
from pathe.encoding import Describer
from pathe.graph import by_pair, owners
from pathe.model import PathE
from pathe.propagation import Edges
from pathe.randomness import keyed
from pathe.triples import Vocabulary
from pathe.twins import ONE_AT_A_TIME, twin

PATHS = 10  # looked at for each fact
AT_ONCE = 256  # heads whose ends are counted together


@dataclass(frozen=True)
class LearnedRule:
    """Entities connected by the sequence `kinds` (r, or r + R against the arrow) have `relation`.

    `trust` is the sequence's share of what paths brought to the scores of the facts looked at;
    `connected` counts the pairs it connects in the training graph, `support` those of them that
    have the relation there.
    """

    relation: int
    kinds: tuple[int, ...]
    trust: float
    support: int
    connected: int

    def named(self, relations: Vocabulary) -> Rule:
        """The same with names."""
        n = len(relations)
        path = [relations[kind] if kind < n else f"^{relations[kind - n]}" for kind in self.kinds]
        confidence = self.support / self.connected if self.connected else 0.0
        counts = self.support, self.connected, confidence
        return Rule(relations[self.relation], path, self.trust, *counts)


def learned_rules(
    model: PathE,
    describe: Describer,
    relations: Sequence[int],
    *,
    k: int = 5,
    n_facts: int = 32,
    seed: int = 0,
    whole_pairs: bool = False,
) -> Iterator[list[LearnedRule]]:
    """For each relation its k most trusted sequences, most trusted first.

    Some facts of the relation are looked at as if they were missing: without their own edge, or
    with `whole_pairs` without all between their entities.
    """
    assert describe.edges is not None
    edges = describe.graph.outgoing
    heads_M = owners(edges.offsets_E1)
    train_M3 = torch.stack([heads_M, edges.relations_M.long(), edges.neighbours_M.long()], 1)
    pairs = by_pair(train_M3, describe.graph.n_entities)
    for relation in relations:
        rows_N = (train_M3[:, 1] == relation).nonzero().squeeze(1)
        rows_N = rows_N[keyed(seed, rows_N).argsort()[:n_facts]]
        worth: dict[tuple[int, ...], float] = defaultdict(float)
        for row_1 in rows_N[:, None]:
            gone = pairs.of_same(row_1) if whole_pairs else row_1
            fact = Connected(model, describe, train_M3[row_1[0]], "tail", gone)
            for path in fact.paths(PATHS):
                worth[path.kinds] += max(path.worth, 0.0)
        total = sum(worth.values()) or 1.0
        best = sorted(worth, key=lambda kinds: -worth[kinds])[:k]
        yield [
            LearnedRule(
                relation, kinds, worth[kinds] / total, *count(describe.edges, kinds, relation)
            )
            for kinds in best
            if worth[kinds] > 0
        ]


def count(edges: Edges, kinds: Sequence[int], relation: int) -> tuple[int, int]:
    """(pairs that a sequence connects and that have the relation, pairs that it connects).

    A pair is two entities; no path leads to where it started.
    """
    if kernel := twin("rules", edges.offsets_E1.device.type):
        with ONE_AT_A_TIME:
            support, connected = kernel.count(edges, kinds, relation)
        return support, connected
    return count_plain(edges, kinds, relation)


@torch.no_grad()
def count_plain(edges: Edges, kinds: Sequence[int], relation: int) -> tuple[int, int]:
    """The same by products of matrices, some heads at a time."""
    n, device = len(edges.offsets_E1) - 1, edges.offsets_E1.device
    steps = [_matrix(edges, kind, n) for kind in kinds]
    wanted = _matrix(edges, relation, n)
    starts_N = edges.neighbours_M[edges.relations_M == kinds[0]].unique().long()
    support = connected = 0
    for heads_H in starts_N.split(AT_ONCE):
        columns_H = torch.arange(len(heads_H), device=device)
        at_EH = torch.zeros(n, len(heads_H), device=device)
        at_EH[heads_H, columns_H] = 1
        here_EH = at_EH
        for step in steps:
            here_EH = (torch.sparse.mm(step, here_EH) > 0).float()
        here_EH[heads_H, columns_H] = 0
        has_EH = torch.sparse.mm(wanted, at_EH) > 0
        connected += int(here_EH.sum())
        support += int(here_EH[has_EH].sum())
    return support, connected


def _matrix(edges: Edges, kind: int, n: int) -> Tensor:
    """E x E: 1 where an edge of this kind leads to (row) from (column)."""
    slots = (edges.relations_M == kind).nonzero().squeeze(1)
    ends = torch.stack([edges.owners_M[slots], edges.neighbours_M[slots]]).long()
    ones = torch.ones(len(slots), device=ends.device)
    matrix = torch.sparse_coo_tensor(ends, ones, (n, n), check_invariants=False)
    return matrix.coalesce()
