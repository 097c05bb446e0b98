"""Extracts rules from bridges: the relation sequences that they trust most."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import nlargest

import torch
from torch import Tensor

from pathe.core.config import Config
from pathe.core.errors import ConfigError
from pathe.core.randomness import keyed
from pathe.core.types import Progress
from pathe.data.vocabulary import GrowingVocabulary, Vocabulary
from pathe.graph.edges import Edges
from pathe.graph.held_out import HeldOut
from pathe.kernels.dispatch import kernel
from pathe.model.scorer import Scorer
from pathe.predict.connections import Connection, connections
from pathe.predict.results import Rule

PATHS = 10  # per fact
INSTANCES = 3  # per rule
AT_ONCE = 256  # heads per chunk of a count


@dataclass(frozen=True)
class LearnedRule:
    """A rule in ids: pairs connected by `kinds` (r, or r + R backwards) have `relation`.

    `trust` is the sequence's share of what all paths contribute to the scores of sampled facts;
    `connected` counts the pairs that it connects in the training graph, `support` those of them
    that have the relation. `instances` are paths of sampled facts: entities from head to tail.
    """

    relation: int
    kinds: tuple[int, ...]
    trust: float
    support: int
    connected: int
    instances: tuple[tuple[int, ...], ...] = ()

    def named(self, relations: Vocabulary, entities: GrowingVocabulary) -> Rule:
        """Returns the rule with names."""
        n = len(relations)
        path = [relations[kind] if kind < n else f"^{relations[kind - n]}" for kind in self.kinds]
        confidence = self.support / self.connected if self.connected else 0.0
        counts = self.support, self.connected, confidence
        instances = [[entities[entity] for entity in own] for own in self.instances]
        return Rule(relations[self.relation], path, self.trust, *counts, instances)


def check_has_rules(config: Config) -> None:
    """Raises an error if a model's settings don't give it rules."""
    if config.task == "relation" or (
        config.bridge == "none" and config.relation_vectors == "table"
    ):
        raise ConfigError(
            "Rules need a model that predicts links and has bridges: use the pre-trained "
            "model, or train with --set bridge=paths."
        )


def learned_rules(
    scorer: Scorer,
    relations: Sequence[int],
    *,
    k: int = 5,
    n_facts: int = 32,
    whole_pairs: bool = False,
    progress: Progress | None = None,
) -> Iterator[list[LearnedRule]]:
    """Yields the k most trusted sequences per relation, most trusted first.

    Some facts of the relation are scored as if they were missing: without their own edge, or, with
    `whole_pairs`, without all edges between their entities.
    """
    prepared = scorer.prepared
    for number, relation in enumerate(relations):
        ids_N = (prepared.train_M3[:, 1] == relation).nonzero().squeeze(1)
        ids_N = ids_N[keyed(scorer.seed, ids_N).argsort()[:n_facts]]
        worth: dict[tuple[int, ...], float] = defaultdict(float)
        best_of: dict[tuple[int, ...], list[Connection]] = defaultdict(list)  # one per fact
        for id_1 in ids_N[:, None]:
            if progress:
                progress(number, len(relations))
            held_out = HeldOut(prepared.pairs.of_same(id_1) if whole_pairs else id_1)
            score = scorer.bridge_score(prepared.train_M3[id_1[0]], "tail", held_out)
            assert score is not None
            paths = connections(score, PATHS)
            for path in paths:
                worth[path.kinds] += max(path.worth, 0.0)
            for kinds in {path.kinds for path in paths}:
                own = (path for path in paths if path.kinds == kinds)
                best_of[kinds].append(max(own, key=lambda path: path.worth))
        total = sum(worth.values()) or 1.0
        best = sorted(worth, key=lambda kinds: -worth[kinds])[:k]
        yield [
            LearnedRule(
                relation,
                kinds,
                worth[kinds] / total,
                *count(prepared.edges, kinds, relation),
                _instances(best_of[kinds], prepared.n_relations),
            )
            for kinds in best
            if worth[kinds] > 0
        ]


def _instances(paths: list[Connection], n_relations: int) -> tuple[tuple[int, ...], ...]:
    """Returns the entities along the best paths, from head to tail."""
    found = []
    for path in nlargest(INSTANCES, paths, key=lambda path: path.worth):
        along = [kind < n_relations for kind in path.kinds]
        start = path.steps[0][0 if along[0] else 2]
        ends = (step[2 if forward else 0] for step, forward in zip(path.steps, along, strict=True))
        found.append((start, *ends))
    return tuple(found)


def count(
    edges: Edges, kinds: Sequence[int], relation: int, known_heads: bool = False
) -> tuple[int, int]:
    """Returns how many of the connected pairs have the relation, and how many are connected.

    A pair is two different entities that a path of these kinds connects. With `known_heads`, only
    pairs count whose head has the relation with some entity.
    """
    if compiled := kernel("rules.count", edges.offsets_E1.device.type):
        support, connected = compiled(edges, kinds, relation, known_heads)
        return support, connected
    return count_plain(edges, kinds, relation, known_heads)


@torch.no_grad()
def count_plain(
    edges: Edges, kinds: Sequence[int], relation: int, known_heads: bool = False
) -> tuple[int, int]:
    """Computes `count` in plain PyTorch: products of sparse matrices, in chunks of heads."""
    n, device = edges.n_entities, edges.offsets_E1.device
    steps = [_matrix(edges, kind, n) for kind in kinds]
    wanted = _matrix(edges, relation, n)
    starts_N = edges.neighbours_M[edges.relations_M == kinds[0]].unique().long()
    if known_heads:
        starts_N = starts_N[torch.isin(starts_N, edges.neighbours_M[edges.relations_M == relation])]
    support = connected = 0
    for heads_H in starts_N.split(AT_ONCE):
        columns_H = torch.arange(len(heads_H), device=device)
        start_EH = torch.zeros(n, len(heads_H), device=device)
        start_EH[heads_H, columns_H] = 1
        reached_EH = start_EH
        for step in steps:
            reached_EH = (torch.sparse.mm(step, reached_EH) > 0).float()
        reached_EH[heads_H, columns_H] = 0
        has_EH = torch.sparse.mm(wanted, start_EH) > 0
        connected += int(reached_EH.sum())
        support += int(reached_EH[has_EH].sum())
    return support, connected


def _matrix(edges: Edges, kind: int, n: int) -> Tensor:
    """Returns an (E, E) sparse matrix: 1 for an edge of this kind from column to row."""
    slots = (edges.relations_M == kind).nonzero().squeeze(1)
    ends = torch.stack([edges.owners_M[slots], edges.neighbours_M[slots]]).long()
    ones = torch.ones(len(slots), device=ends.device)
    matrix = torch.sparse_coo_tensor(ends, ones, (n, n), check_invariants=False)
    return matrix.coalesce()
