"""Judges triples: the probability that each is true, known facts without their own edges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from pathe.core.config import Config
from pathe.core.randomness import below, keyed
from pathe.core.types import PARTS, SIDES, Progress, Side
from pathe.evaluation.prior import Bounds, Mixture
from pathe.evaluation.truth import (
    Background,
    Examples,
    SideRanks,
    background,
    features,
    side_ranks,
)
from pathe.graph.functionality import Overrides
from pathe.graph.growth import holds
from pathe.graph.known import KnownTriples
from pathe.graph.prepared import PreparedGraph
from pathe.graph.short_rules import ShortRules
from pathe.model.builder import scorer_without
from pathe.model.scorer import Scorer

POSITIVES = 1000  # true triples that `Truth` is fitted on, at most;
FEWEST = 50  # with fewer validation triples, training triples are hidden instead
HIDDEN = 0.1  # share of each relation's training triples that is hidden, at most
ONE_BY_ONE = 16  # known facts that are judged one by one;
TOGETHER, SHARE = 256, 100  # of more, so many at once: 256, or a hundredth of the graph
MOST_DOUBT = 0.5  # chance that a triple drawn as a false one is true, at most
SMALL = 2000  # facts of a graph in which it is counted what follows from what, at most
RIVALS = 8  # true triples per false one that `rivals` gives, per side
TRIES = 8  # draws of a false triple before it is given up


@dataclass(frozen=True)
class Judged:
    """Triples with their ranks on both sides and the probability that they are true."""

    triples_B3: Tensor
    ranks: dict[Side, SideRanks]
    known_B: Tensor
    probability_B: Tensor
    threshold_B: Tensor


class Judge:
    """Judges triples with a scorer; what it needs for that is fitted when first used, and kept."""

    def __init__(
        self,
        scorer: Scorer,
        config: Config,
        temperature: float,
        overrides: Overrides | None = None,
        negatives_N3: Tensor | None = None,
    ) -> None:
        self.scorer, self.config, self.temperature = scorer, config, temperature
        self.overrides, self.negatives_N3 = overrides, negatives_N3
        self._truth: Mixture | None = None

    @property
    def prepared(self) -> PreparedGraph:
        return self.scorer.prepared

    @property
    def known(self) -> KnownTriples:
        """The answers that don't compete: those of the graph that the model sees, as in the fit."""
        return self.prepared.known("train")

    @cached_property
    def about(self) -> Background:
        """What the graph says about its relations."""
        return background(self.prepared.graph, self.overrides)

    def truth(self, progress: Progress | None = None) -> Mixture:
        """Returns what tells true from false.

        It is fitted on validation triples or, where they are few, on hidden training triples. If
        there are few of these, too, what was learned from other graphs counts.
        """
        if self._truth is None:
            n_relations, seed = self.prepared.n_relations, self.scorer.seed
            alone, examples = self.negatives_N3 is not None, self._examples(progress)
            self._truth = Mixture("judge", examples, n_relations, seed, alone=alone)
        return self._truth

    def bounds(self, triples_M3: Tensor) -> Bounds | None:
        """Returns how probable triples are at least and at most; None in larger graphs.

        At least as surely as they follow from one or two others; at most as surely as no other
        answer does that excludes them, because its relation is functional.
        """
        if self.prepared.graph.n_triples > SMALL:
            return None
        functional = {side: self.about.functional[side].functional_R.tolist() for side in SIDES}
        least, most = list[float](), list[float]()
        for head, relation, tail in triples_M3.tolist():
            sides = [side for side in SIDES if functional[side][relation]]
            rival = max((self.rules.rival(head, relation, tail, s) for s in sides), default=0.0)
            follows = self.rules.confidence(head, relation, tail)
            most.append(max(1 - rival, follows))
            least.append(follows)
        return Bounds(*(torch.tensor(x, device=triples_M3.device) for x in (least, most)))

    @cached_property
    def rules(self) -> ShortRules:
        """What follows from what in a small graph."""
        return ShortRules(self.prepared.train_M3, self.prepared.n_relations)

    def __call__(self, triples_M3: Tensor, progress: Progress | None = None) -> Judged:
        """Judges triples; those of the graph as if it didn't have them."""
        n, n_fitted = 2 * len(triples_M3), 0  # steps that are reported

        def fitting(done: int, total: int) -> None:
            nonlocal n_fitted
            n_fitted = total
            if progress:
                progress(done, total + n)

        truth, own_M = self.truth(fitting), holds(self.prepared.graph, triples_M3)
        ranks = self.ranks(triples_M3, own_M, _shifted(progress, n_fitted, n_fitted + n))
        found_MF = features(self.about, triples_M3, ranks, own_M)
        relations_M = triples_M3[:, 1]
        bounds = self.bounds(triples_M3) if truth.share < 1 else None
        return Judged(
            triples_M3,
            ranks,
            self.prepared.known().contains(triples_M3),
            truth(found_MF, relations_M, bounds),
            truth.thresholds(relations_M),
        )

    def ranks(
        self, triples_M3: Tensor, own_M: Tensor, progress: Progress | None = None
    ) -> dict[Side, SideRanks]:
        """Ranks both sides of triples; those of the graph (own_M) without their own edges.

        `without_own` says how.
        """
        found, places, done = [], [], 0
        for scorer, rows_G in without_own(self.scorer, self.config, triples_M3, own_M):
            some_G3 = triples_M3[rows_G]
            tell = _shifted(progress, 2 * done, 2 * len(triples_M3))
            found.append(_both(scorer, self.known, some_G3, self.temperature, tell))
            places.append(rows_G)
            done += len(rows_G)
        back_M = torch.cat(places).argsort()
        return {
            side: SideRanks(
                *(torch.cat(part)[back_M] for part in zip(*(f[side] for f in found), strict=True))
            )
            for side in SIDES
        }

    def _examples(self, progress: Progress | None = None) -> Examples | None:
        """Returns true and false triples with their features; None if there are too few facts."""
        prepared, seed = self.prepared, self.scorer.seed
        valid_N3 = prepared.with_seen_relations(prepared.triples("valid", "seen"))
        if len(valid_N3) >= FEWEST:
            scorer, about, known, kept = self.scorer, self.about, prepared.known("train"), prepared
            true_B3 = valid_N3[keyed(seed, _rows(valid_N3)).argsort()]
        else:
            true_B3 = prepared.train_M3[hidden(prepared.train_M3, seed)[:POSITIVES]]
            if len(true_B3) < 2:
                return None
            scorer = scorer_without(self.scorer, self.config, true_B3)
            kept = prepared.remove(true_B3)
            about, known = background(kept.graph, self.overrides), kept.known("train")
        unknown = 0.0  # expected missing facts per known fact
        if self.negatives_N3 is None:
            true_B3 = true_B3[:POSITIVES]
            known_too = prepared.known("train", "valid")
            false_B3 = negatives(prepared, known_too, true_B3, seed)
            rivals_N3 = rivals(scorer, about, known_too, kept.train_M3, len(true_B3) // RIVALS)
            order_B = keyed(seed, _rows(false_B3)).argsort()  # as many true as false ones
            false_B3 = torch.cat([false_B3[order_B[len(rivals_N3) :]], rivals_N3])
            unknown = len(valid_N3) / len(prepared.train_M3)
        else:
            false_B3 = self.negatives_N3
        both_B3 = torch.cat([true_B3, false_B3])
        ranks = _both(scorer, known, both_B3, self.temperature, progress)
        own_B = torch.zeros(len(both_B3), dtype=torch.bool, device=both_B3.device)
        true_B = torch.arange(len(both_B3), device=both_B3.device) < len(true_B3)
        doubt_B = doubts(prepared, both_B3, ranks, unknown) if unknown else None
        return Examples(features(about, both_B3, ranks, own_B), both_B3[:, 1], true_B, doubt_B)


def without_own(
    scorer: Scorer, config: Config, triples_M3: Tensor, own_M: Tensor
) -> Iterator[tuple[Scorer, Tensor]]:
    """Yields groups of triples, as rows, each with a scorer that lacks their own edges.

    own_M says which triples are in the graph. A few are left out one by one. More are left out in
    groups drawn at random, of at most a hundredth of the graph, so that a group's other facts
    hardly matter.
    """
    if not bool(own_M.all()):
        yield scorer, (~own_M).nonzero().squeeze(1)
    rows_N = own_M.nonzero().squeeze(1)
    if not len(rows_N):
        return
    rows_N = rows_N[keyed(scorer.seed, rows_N).argsort()]
    size = max(min(TOGETHER, scorer.prepared.graph.n_triples // SHARE), 1)
    for rows_G in rows_N.split(1 if len(rows_N) <= ONE_BY_ONE else size):
        yield scorer_without(scorer, config, triples_M3[rows_G]), rows_G


def _both(
    scorer: Scorer,
    known: KnownTriples,
    triples_M3: Tensor,
    temperature: float,
    progress: Progress | None = None,
) -> dict[Side, SideRanks]:
    """Ranks both sides of triples."""
    n = len(triples_M3)
    return {
        side: side_ranks(
            scorer, known, triples_M3, side, temperature, _shifted(progress, i * n, 2 * n)
        )
        for i, side in enumerate(SIDES)
    }


def _shifted(progress: Progress | None, before: int, total: int) -> Progress | None:
    """Returns a progress function for one part of several."""
    if progress is None:
        return None
    return lambda done, _: progress(before + done, total)


def hidden(triples_M3: Tensor, seed: int, share: float = HIDDEN) -> Tensor:
    """Returns ids of a share of each relation's triples, drawn at random, in random order."""
    chance_M = keyed(seed, _rows(triples_M3))
    order_M = chance_M.argsort()
    order_M = order_M[triples_M3[order_M, 1].argsort(stable=True)]
    sizes_R = torch.bincount(triples_M3[:, 1])
    firsts_R = sizes_R.cumsum(0) - sizes_R
    relations_M = triples_M3[order_M, 1]
    place_M = _rows(triples_M3) - firsts_R[relations_M]
    ids_N = order_M[place_M < (share * sizes_R).floor()[relations_M]]
    return ids_N[chance_M[ids_N].argsort()]


def negatives(prepared: PreparedGraph, known: KnownTriples, true_B3: Tensor, seed: int) -> Tensor:
    """Returns one false triple per true one: with another head or tail of a fitting kind.

    Of each four, two have an entity that the relation has on that side elsewhere, and two have any
    entity that could be there. A few may be given up.
    """
    rows_B = _rows(true_B3)
    found = []
    for number, side in enumerate((*SIDES, *SIDES)):
        rows = rows_B[rows_B % 4 == number]
        pools = _seen(prepared, side) if number < 2 else _plausible(prepared, side)
        found.append(_drawn(pools, known, true_B3[rows], side, seed))
    return torch.cat(found)


@torch.no_grad()
def rivals(
    scorer: Scorer, about: Background, known: KnownTriples, facts_M3: Tensor, n: int
) -> Tensor:
    """Returns false triples that look true, up to n per side: a second answer where one is enough.

    The facts are of functional relations, such as the capital of a country. Their head or tail is
    replaced by the best other answer.
    """
    found = []
    for side in SIDES:
        column = PARTS.index(side)
        rows = about.functional[side].functional_R[facts_M3[:, 1]].nonzero().squeeze(1)
        false_N3 = facts_M3[rows[keyed(scorer.seed, rows, column).argsort()[:n]]]
        for ids_B3 in false_N3.split(scorer.rows_at_once()):
            scores_BE = scorer.scores(ids_B3, side)
            scores_BE[known.find(ids_B3, side)] = float("-inf")
            scores_BE.scatter_(1, ids_B3[:, 2 - column, None], float("-inf"))  # no loops
            best, made_B3 = scores_BE.max(1), ids_B3.clone()
            made_B3[:, column] = best.indices
            found.append(made_B3[best.values > float("-inf")])
    return torch.cat(found) if found else facts_M3[:0]


def doubts(
    prepared: PreparedGraph, triples_B3: Tensor, ranks: dict[Side, SideRanks], unknown: float
) -> Tensor:
    """Returns the prior probability that each sampled negative is true.

    If a query has k known answers, k * unknown more are expected among the other entities that the
    relation has on that side. Returns the mean of both sides. For negatives with an entity that the
    relation doesn't have, this is rather too much.
    """
    found_B = torch.zeros(len(triples_B3), device=triples_B3.device)
    for side in SIDES:
        pairs_N2 = prepared.train_M3[:, [1, PARTS.index(side)]].unique(dim=0)
        sizes_R = torch.bincount(pairs_N2[:, 0], minlength=prepared.n_relations)
        known_B = ranks[side].known_B
        open_B = (sizes_R[triples_B3[:, 1]] - known_B).clamp(min=1)
        found_B += (known_B * unknown / open_B).clamp(max=MOST_DOUBT) / len(SIDES)
    return found_B


Pools = tuple[Tensor, Tensor]  # entities, sorted by relation, and how many each relation has


def _seen(prepared: PreparedGraph, side: Side) -> Pools:
    """Returns the entities on one side of each relation's triples."""
    relations_M = prepared.train_M3[:, 1]
    entities_M = prepared.train_M3[relations_M.argsort(stable=True), PARTS.index(side)]
    return entities_M, torch.bincount(relations_M, minlength=prepared.n_relations)


def _plausible(prepared: PreparedGraph, side: Side) -> Pools:
    """Returns the entities that could be on one side of each relation."""
    masks = [prepared.kinds.plausible(r, side) for r in range(prepared.n_relations)]
    pools = [mask_E.nonzero().squeeze(1) for mask_E in masks]
    return torch.cat(pools), torch.tensor([len(pool) for pool in pools], device=prepared.device)


def _drawn(pools: Pools, known: KnownTriples, true_B3: Tensor, side: Side, seed: int) -> Tensor:
    """Returns triples with another entity of the relation's pool; known ones are given up."""
    (entities_N, sizes_R), column = pools, PARTS.index(side)
    firsts_R = sizes_R.cumsum(0) - sizes_R
    false_B3 = true_B3.clone()
    open_B = sizes_R[true_B3[:, 1]] > 0
    left_B = ~open_B
    for attempt in range(TRIES):
        rows = open_B.nonzero().squeeze(1)
        relations = true_B3[rows, 1]
        chance = below(keyed(seed, rows, column, attempt), sizes_R[relations])
        false_B3[rows, column] = entities_N[firsts_R[relations] + chance]
        loop = false_B3[rows, 0] == false_B3[rows, 2]
        open_B[rows] = known.contains(false_B3[rows]) | loop
    return false_B3[~(open_B | left_B)]


def _rows(triples_M3: Tensor) -> Tensor:
    return torch.arange(len(triples_M3), device=triples_M3.device)


@torch.no_grad()
def expected_tails(scorer: Scorer, config: Config, facts_B3: Tensor, n: int = 2) -> list[Tensor]:
    """Returns the best n tails of each fact that score higher than its own, without the fact."""
    found: dict[int, Tensor] = {}
    own_B = holds(scorer.prepared.graph, facts_B3)
    for alone, rows_G in without_own(scorer, config, facts_B3, own_B):
        for ids_C3, rows_C in zip(
            facts_B3[rows_G].split(alone.rows_at_once()), rows_G.split(alone.rows_at_once()),
            strict=True,
        ):  # fmt: skip
            scores_CE = alone.scores(ids_C3, "tail")
            best = scores_CE.topk(min(n, scores_CE.shape[1]), 1)
            higher_CK = best.values > scores_CE.gather(1, ids_C3[:, 2:])
            for row, ids_K, kept_K in zip(rows_C.tolist(), best.indices, higher_CK, strict=True):
                found[row] = ids_K[kept_K].cpu()
    return [found[row] for row in range(len(facts_B3))]
