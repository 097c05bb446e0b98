"""Finds the most plausible triples that a graph lacks, in chunks.

A triple's plausibility is the geometric mean of two probabilities: that of its tail among all tails
of (head, relation, ?), and that of its head among all heads of (?, relation, tail). Raw scores of
different queries can't be compared; docs/decisions/0006-using-a-model.md has the comparison.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from pathe.core.types import Progress, Side
from pathe.graph.adjacency import Contexts, Graph, owners
from pathe.graph.known import KnownTriples
from pathe.model.scorer import Scorer

KEPT = 1 << 27  # scores of head queries kept in memory, with bridges
NONE = float("-inf")


@dataclass(frozen=True)
class Best:
    """The k best triples so far, best first, with their scores and log plausibilities."""

    triples_K3: Tensor
    scores_K: Tensor
    plausible_K: Tensor

    def merge(self, other: Best, k: int) -> Best:
        """Returns the k best of both; triples of plausibility 0 are dropped."""
        plausible = torch.cat([self.plausible_K, other.plausible_K])
        kept = plausible.topk(min(k, int((~plausible.isneginf()).sum())))
        return Best(
            torch.cat([self.triples_K3, other.triples_K3])[kept.indices],
            torch.cat([self.scores_K, other.scores_K])[kept.indices],
            kept.values,
        )


class _Queries:
    """Scores queries of one relation without known answers, and reports progress."""

    def __init__(
        self,
        scorer: Scorer,
        known: KnownTriples,
        temperature: float,
        total: int,
        progress: Progress | None,
    ) -> None:
        self.scorer, self.known, self.temperature = scorer, known, temperature
        self.progress, self.total, self.done = progress, total, 0
        self.rows = scorer.rows_at_once()

    def __call__(
        self, entities_N: Tensor, relation: int, side: Side
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yields (entities_B, scores_BE, their log-sum-exp_B) per chunk of entities."""
        for entities_B in entities_N.split(self.rows):
            relations_B = torch.full_like(entities_B, relation)
            scores_BE = self.scorer.links(entities_B, relations_B, side)
            ids_B3 = torch.stack([entities_B, relations_B, entities_B], 1)
            scores_BE[self.known.find(ids_B3, side)] = NONE
            yield entities_B, scores_BE, (scores_BE / self.temperature).logsumexp(1)
            self.done += len(entities_B)
            if self.progress:
                self.progress(self.done, self.total)


@torch.no_grad()
def most_plausible(
    scorer: Scorer,
    known: KnownTriples,
    relations: list[int],
    k: int,
    temperature: float,
    progress: Progress | None = None,
) -> Best:
    """Returns the k most plausible triples, best first, with plausibilities from 0 to 1.

    Candidates are all heads of a relation with all its tails; self-loops only if the relation has
    some in the graph.
    """
    graph = scorer.prepared.graph
    heads_R = _by_relation(graph.out_contexts, graph.n_relations)
    tails_R = _by_relation(graph.in_contexts, graph.n_relations)
    loops_R = _has_loops(graph)
    sizes_R = torch.bincount(graph.triples_M3[:, 1], minlength=graph.n_relations).tolist()
    parts_R = {r: _parts(scorer, heads_R[r], tails_R[r], sizes_R[r]) for r in relations}
    total = sum(sum(map(len, p)) + len(p) * len(heads_R[r]) for r, p in parts_R.items())
    queries = _Queries(scorer, known, temperature, total, progress)
    none = torch.empty(0, device=graph.device)
    best = Best(torch.empty((0, 3), dtype=torch.long, device=graph.device), none, none)
    for r, parts in parts_R.items():
        for tails_N in parts:
            for found in _best_pairs(queries, r, heads_R[r], tails_N, k, loops_R[r]):
                best = best.merge(found, k)
    return Best(best.triples_K3, best.scores_K, best.plausible_K.exp().clamp(max=1))


def _best_pairs(
    queries: _Queries, r: int, heads_N: Tensor, tails_N: Tensor, k: int, loops: bool
) -> Iterator[Best]:
    """Yields the best triples per chunk of heads, with all of the tails."""
    bridged = queries.scorer.bridged
    sums, backwards = [], []
    for _, scores_BE, sum_B in queries(tails_N, r, "head"):
        sums.append(sum_B)
        if bridged:  # bridges score a triple differently as a head query and as a tail query
            backwards.append(scores_BE[:, heads_N])
    by_tail_N, done = torch.cat(sums), 0
    for heads_B, scores_BE, by_head_B in queries(heads_N, r, "tail"):
        scores_BN = scores_BE[:, tails_N]
        if not loops:
            scores_BN[heads_B[:, None] == tails_N] = NONE
        both_BN = scores_BN
        if bridged:
            back_NB = torch.cat([b[:, done : done + len(heads_B)] for b in backwards])
            both_BN = (scores_BN + back_NB.T) / 2
        done += len(heads_B)
        log_BN = both_BN / queries.temperature - (by_head_B[:, None] + by_tail_N) / 2
        log_BN[scores_BN.isneginf()] = NONE  # known; if all are, the sums are -inf too
        top = log_BN.flatten().topk(min(k, log_BN.numel()))
        row, column = top.indices // len(tails_N), top.indices % len(tails_N)
        triples_K3 = torch.stack([heads_B[row], torch.full_like(row, r), tails_N[column]], 1)
        yield Best(triples_K3, scores_BN.flatten()[top.indices], top.values)


def _parts(scorer: Scorer, heads_N: Tensor, tails_N: Tensor, n_triples: int) -> list[Tensor]:
    """Splits the tails into chunks: with bridges, their scores as queries must fit in memory.

    There are none if the graph has all pairs, as where a relation has one head or one tail.
    """
    if len(heads_N) * len(tails_N) == n_triples:
        return []
    if not scorer.bridged:
        return [tails_N]
    return list(tails_N.split(max(KEPT // len(heads_N), 1)))


def _by_relation(contexts: Contexts, n_relations: int) -> tuple[Tensor, ...]:
    """Returns the entities of each relation's edges in one direction."""
    order_P = contexts.relations_P.argsort(stable=True)
    counts_R = torch.bincount(contexts.relations_P, minlength=n_relations)
    groups: tuple[Tensor, ...] = owners(contexts.offsets_E1)[order_P].split(counts_R.tolist())
    return groups


def _has_loops(graph: Graph) -> list[bool]:
    """Whether each relation has a self-loop."""
    heads_M, relations_M, tails_M = graph.triples_M3.unbind(1)
    loops_N = relations_M[heads_M == tails_M]
    return [n > 0 for n in torch.bincount(loops_N, minlength=graph.n_relations).tolist()]
