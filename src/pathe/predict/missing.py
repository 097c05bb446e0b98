"""Finds facts that a graph lacks.

1. Which queries have an answer that the graph lacks? Those of entities without a relation that
   others of their kind have, and those of relations with many answers. Queries of a functional
   relation that have their answer are left out.
2. The most promising queries are asked, and their best answers become candidates.
3. Candidates are ranked from their other side, too, and get the probability of being true.

How promising a query is, and how probable a candidate, is learned from the graph itself: a tenth of
each relation's facts is hidden, and the same steps are run to find them again. Facts that the graph
really lacks turn up in this search, too, and look like mistakes; probabilities allow for that. A
small graph has few facts to hide; what was learned from other graphs counts there, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from pathe.core.randomness import keyed
from pathe.core.types import PARTS, SIDES, Progress, Side
from pathe.evaluation.prior import Mixture
from pathe.evaluation.truth import (
    FEATURES,
    Background,
    Examples,
    SideRanks,
    Truth,
    background,
    candidate_ranks,
    features,
    side_ranks,
)
from pathe.graph.known import KnownTriples
from pathe.graph.prepared import PreparedGraph
from pathe.model.builder import scorer_without
from pathe.model.scorer import Scorer
from pathe.predict.judge import Judge, hidden

EXPECTED = 0.05  # prediction from which on an entity may lack a relation
ANSWERS = 10  # candidates per query
ENOUGH, ROUNDS = 300, 5  # hidden facts to learn from; in small graphs, several rounds of hiding
QUERIES = {True: 10_000, False: 200_000}  # asked by default, at most: with bridges, without
PER_FACT, FEWEST_QUERIES = 25, 1000  # asked by default per fact that is wanted, and at least
FIT_QUERIES = 1500  # asked to learn from, in all rounds, and as many from the other side
EXAMPLES = 4000  # queries that are learned from, with a hidden answer and without each
FEWEST_HIDDEN = 3  # with fewer, nothing is learned
FEWEST = 1000  # candidates of a side that are ranked from the other, too, or one per query
KEPT = 1 << 28  # bytes of scores that are kept: queries come up again from the other side
NONE = float("-inf")


class Queries(NamedTuple):
    """Queries of an entity and a kind: r for (e, r, ?), r + R for (?, r, e)."""

    entities_N: Tensor
    kinds_N: Tensor
    expected_N: Tensor
    known_N: Tensor

    def at(self, rows: Tensor) -> Queries:
        """Returns some of the queries."""
        return Queries(*(column[rows] for column in self))


class Candidates(NamedTuple):
    """Triples that the graph lacks, ranked from both sides."""

    triples_C3: Tensor
    scores_C: Tensor
    features_CF: Tensor


class Learned(NamedTuple):
    """What was learned from hidden facts."""

    promise: Truth | None  # how probably a query has an answer that the graph lacks
    truth: Mixture  # how probably a candidate is true


@dataclass(frozen=True)
class Wanted:
    """Filters: relations, and entities of which each fact must contain one (None: no filter).

    `not_of`: entities to exclude.
    """

    relations: list[int]
    entities: Tensor | None = None  # ids
    not_of: Tensor | None = None


@dataclass(frozen=True)
class Found:
    """Missing triples, the most probable first."""

    triples_K3: Tensor
    scores_K: Tensor
    probability_K: Tensor


@dataclass(frozen=True)
class View:
    """A graph as it is, or with facts hidden: nothing in it knows of these."""

    scorer: Scorer
    prepared: PreparedGraph
    about: Background
    temperature: float
    round: int | None = None  # of hiding
    kept: dict[int, Tensor] = field(default_factory=dict)  # scores by query

    @property
    def known(self) -> KnownTriples:
        return self.prepared.known()

    @property
    def keeps(self) -> bool:
        """Whether scores are kept. With a frontier, few would fit."""
        return self.scorer.bridged and not self.scorer.frontier

    def scores(self, ids_B3: Tensor, side: Side) -> Tensor:
        """Returns (B, E) scores; minus infinity for entities that can't be answers.

        These are unlike all answers of the relation, or the query's own entity.
        """
        return self._masked(self._scores(ids_B3, side), ids_B3, side)

    def scores_of_triples(self, ids_B3: Tensor, side: Side) -> Tensor:
        """Returns `scores`, but the answer of a triple always has its score."""
        scores_BE, own_B1 = self._scores(ids_B3, side), ids_B3[:, PARTS.index(side), None]
        own = scores_BE.gather(1, own_B1)
        return self._masked(scores_BE, ids_B3, side).scatter_(1, own_B1, own)

    def _masked(self, scores_BE: Tensor, ids_B3: Tensor, side: Side) -> Tensor:
        """Sets the scores of entities that can't be answers to minus infinity."""
        if not len(ids_B3):
            return scores_BE
        relations_B, kinds = ids_B3[:, 1], self.prepared.kinds
        plausible = [kinds.plausible(relation, side) for relation in relations_B.tolist()]
        scores_BE.masked_fill_(~torch.stack(plausible), NONE)
        alone_B = (~self.loops_R[relations_B]).nonzero().squeeze(1)
        scores_BE[alone_B, ids_B3[alone_B, 2 - PARTS.index(side)]] = NONE
        return scores_BE

    def _scores(self, ids_B3: Tensor, side: Side) -> Tensor:
        """Returns (B, E) scores of all entities; with bridges, those of a query are kept."""
        if not self.keeps or not len(ids_B3):
            return self.scorer.scores(ids_B3, side)
        n, asked_B = self.prepared.n_entities, ids_B3[:, 2 - PARTS.index(side)]
        codes = (self.about.kinds(ids_B3[:, 1], side) * n + asked_B).tolist()
        new = [row for row, code in enumerate(codes) if code not in self.kept]
        if new:
            found_NE = self.scorer.scores(ids_B3[new], side)
            if len(self.kept) + len(new) <= KEPT // (4 * n):
                self.kept.update(zip((codes[row] for row in new), found_NE, strict=True))
            if len(new) == len(codes):
                return found_NE.clone()
        fresh = dict(zip(new, found_NE, strict=True)) if new else {}
        return torch.stack(
            [fresh[i] if i in fresh else self.kept[code] for i, code in enumerate(codes)]
        )

    @cached_property
    def loops_R(self) -> Tensor:
        """Which relations have self-loops."""
        heads_M, relations_M, tails_M = self.prepared.train_M3.unbind(1)
        loops_N = relations_M[heads_M == tails_M]
        return torch.bincount(loops_N, minlength=self.prepared.n_relations) > 0


class Best(NamedTuple):
    """Answers to queries: how promising each is, its triple, and its ranks on the asked side."""

    promise_C: Tensor
    triples_C3: Tensor
    ranks: SideRanks


@dataclass(frozen=True)
class Steps:
    """The long steps of a search: `best_answers` and `other_ranks`, or what does the same."""

    ask: Callable[[View, Queries, Tensor, Side, Progress], Best]
    rank: Callable[[View, Tensor, Side, Progress], SideRanks]


def find_missing(
    judge: Judge, wanted: Wanted, learned: Learned, n_queries: int, work: Work
) -> Found:
    """Returns the missing triples of the most promising queries, the most probable first."""
    found = candidates(judge, wanted, learned.promise, n_queries, work)
    triples_C3, scores_C, features_CF = found
    bounds = judge.bounds(triples_C3) if learned.truth.share < 1 else None
    chances_C = learned.truth(features_CF, triples_C3[:, 1], bounds)
    order_C = learned.truth.order(features_CF, triples_C3[:, 1], chances_C)
    order_C = order_C.argsort(descending=True, stable=True)
    if wanted.not_of is not None:
        out_C = torch.isin(triples_C3[:, [0, 2]], wanted.not_of).any(1)
        order_C = order_C[~out_C[order_C]]
    order_C = order_C[_one_per_functional(judge.about, triples_C3[order_C])]
    return Found(triples_C3[order_C], scores_C[order_C], chances_C[order_C])


def candidates(
    judge: Judge, wanted: Wanted, promise: Truth | None, n_queries: int, work: Work
) -> Candidates:
    """Returns the best answers to the most promising queries."""
    view = View(judge.scorer, judge.prepared, judge.about, judge.temperature)
    queries = open_queries(view.about, wanted)
    gain_N = (queries.known_N > 0) + queries.expected_N.clamp(0, 1)
    if promise is not None and len(gain_N):
        gain_N = promise(_query_features(view.about, queries), queries.kinds_N)
    rows_N = gain_N.argsort(descending=True, stable=True)[:n_queries]
    work.grow(2 * len(rows_N))
    return _candidates(view, queries.at(rows_N), gain_N[rows_N], work)


def queries_for(k: int, bridged: bool) -> int:
    """Returns how many queries to ask by default for k facts; without bridges they are cheap."""
    wanted = max(PER_FACT * k, FEWEST_QUERIES)
    return min(wanted, QUERIES[bridged]) if bridged else QUERIES[bridged]


# queries


def open_queries(about: Background, wanted: Wanted) -> Queries:
    """Returns the queries that may have an answer which the graph lacks."""
    expected, found = about.expected, list[Queries]()
    entities_E = torch.arange(len(expected.offsets_E1) - 1, device=expected.offsets_E1.device)
    for side in SIDES:
        for relation in wanted.relations:
            kind = relation if side == "tail" else relation + about.n_relations
            kinds_E = torch.full_like(entities_E, kind)
            known_E = expected.counts(entities_E, kinds_E)
            predicted_E = expected.all_predicted(kind)
            open_E = (known_E > 0) | (predicted_E > EXPECTED)
            if about.functional[side].functional_R[relation]:
                open_E &= known_E == 0
            if wanted.entities is not None:
                open_E &= torch.isin(entities_E, wanted.entities)
            if wanted.not_of is not None:
                open_E &= ~torch.isin(entities_E, wanted.not_of)
            rows = open_E.nonzero().squeeze(1)
            columns = entities_E[rows], kinds_E[rows], predicted_E[rows], known_E[rows]
            found.append(Queries(*columns))
    return Queries(*(torch.cat(column) for column in zip(*found, strict=True)))


def _query_features(about: Background, queries: Queries) -> Tensor:
    """Returns what tells promising queries from others."""
    _, kinds_N, expected_N, known_N = queries
    relations_N = kinds_N % about.n_relations
    tails_N = kinds_N < about.n_relations

    def of(name: str) -> Tensor:
        tails, heads = (getattr(about.functional[s], name)[relations_N] for s in ("tail", "head"))
        found_N: Tensor = torch.where(tails_N, tails, heads).float()
        return found_N

    single_N, has_N = of("single_R"), (known_N > 0).float()
    return torch.stack(
        [
            expected_N,
            known_N.float().log1p(),
            single_N,
            of("mean_R").clamp(min=1).log(),
            has_N,
            has_N * single_N,
            has_N * expected_N,
            about.sizes_R[relations_N].float().log1p(),
        ],
        1,
    )


def _asked(triples_M3: Tensor, n_relations: int, n_entities: int) -> Tensor:
    """Returns codes of the two queries of each triple."""
    heads_M, relations_M, tails_M = triples_M3.unbind(1)
    return torch.cat(
        [relations_M * n_entities + heads_M, (relations_M + n_relations) * n_entities + tails_M]
    )


# learning from hidden facts


def learn(judge: Judge, work: Work) -> Learned:
    """Fits how promising queries are, and how probable candidates, on hidden facts.

    This depends on the graph alone, so that a fact has the same probability whatever is asked for.
    If there are few facts, what was learned from other graphs counts, too; alone, if there is
    nothing to learn from: fewer than `FEWEST_HIDDEN` hidden facts, or no query that is open.
    """
    prepared, seed = judge.prepared, judge.scorer.seed
    nothing = Learned(None, Mixture("missing", None, 0, seed, unlabelled=True))
    hidden_N = hidden(prepared.train_M3, seed)
    if len(hidden_N) < FEWEST_HIDDEN:
        return nothing
    n_rounds = min(ROUNDS, -(-ENOUGH // len(hidden_N)))
    work.grow(2 * FIT_QUERIES)
    every = Wanted(list(range(prepared.n_relations)))
    rounds = []
    for number in range(n_rounds):
        view, hidden_N3 = hide(judge, number)
        rounds.append((view, hidden_N3, open_queries(view.about, every)))
    asked_before = _joined([_query_examples(*parts, EXAMPLES // n_rounds) for parts in rounds])
    if not len(asked_before.true_B):
        return nothing
    promise = Truth(asked_before, 2 * prepared.n_relations, seed)
    examples = []
    for view, hidden_N3, asked in rounds:
        gain_N = promise(_query_features(view.about, asked), asked.kinds_N)
        best_N = gain_N.argsort(descending=True, stable=True)[: QUERIES[judge.scorer.bridged]]
        rows = best_N[keyed(seed, best_N).argsort()[: max(FIT_QUERIES // n_rounds, 1)]]
        found = _candidates(view, asked.at(rows), gain_N[rows], work, sampled=True)
        true_C = KnownTriples(hidden_N3).contains(found.triples_C3)
        examples.append(Examples(found.features_CF, found.triples_C3[:, 1], true_C))
    joined, n_relations = _joined(examples), prepared.n_relations
    return Learned(promise, Mixture("missing", joined, n_relations, seed, unlabelled=True))


def hide(judge: Judge, number: int) -> tuple[View, Tensor]:
    """Returns the graph without the facts that are hidden in a round, and these facts."""
    prepared, seed = judge.prepared, judge.scorer.seed
    hidden_N3 = prepared.train_M3[hidden(prepared.train_M3, seed + number)]
    smaller = prepared.remove(hidden_N3)
    about = background(smaller.graph, judge.overrides)
    scorer = scorer_without(judge.scorer, judge.config, hidden_N3)
    return View(scorer, smaller, about, judge.temperature, number), hidden_N3


def _query_examples(view: View, hidden_N3: Tensor, queries: Queries, most: int) -> Examples:
    """Returns queries with and without a hidden answer; of each, a sample."""
    n = view.scorer.prepared.n_entities
    codes_N = queries.kinds_N * n + queries.entities_N
    true_N = torch.isin(codes_N, _asked(hidden_N3, view.about.n_relations, n))
    some_S = [mask_N.nonzero().squeeze(1) for mask_N in (true_N, ~true_N)]
    rows = torch.cat(
        [rows_S[keyed(view.scorer.seed, rows_S).argsort()[:most]] for rows_S in some_S]
    )
    some = queries.at(rows)
    return Examples(_query_features(view.about, some), some.kinds_N, true_N[rows])


def _joined(parts: list[Examples]) -> Examples:
    columns = zip(*(part[:3] for part in parts), strict=True)
    return Examples(*(torch.cat(column) for column in columns))


# candidates


def _candidates(
    view: View, queries: Queries, gain_N: Tensor, work: Work, sampled: bool = False
) -> Candidates:
    """Returns the best answers to queries, ranked from both sides; each triple once.

    With `sampled`, a sample of them: as many queries from the other side as there are queries.
    """
    found = [_none_of(queries)]
    for side in SIDES:
        own = ((queries.kinds_N < view.about.n_relations) == (side == "tail")).nonzero().squeeze(1)
        if len(own):
            found.append(_of_side(view, queries.at(own), gain_N[own], side, work, sampled))
    n, r = view.scorer.prepared.n_entities, view.about.n_relations
    heads_C, relations_C, tails_C = torch.cat([part.triples_C3 for part in found]).unbind(1)
    kept_C = _first_of_each((heads_C * r + relations_C) * n + tails_C)
    return Candidates(*(torch.cat(column)[kept_C] for column in zip(*found, strict=True)))


def _none_of(queries: Queries) -> Candidates:
    """Returns no candidates."""
    ids_N, floats_N = queries.kinds_N[:0], queries.expected_N[:0]
    return Candidates(
        ids_N.view(0, 1).expand(0, 3), floats_N, floats_N.view(0, 1).expand(0, FEATURES)
    )


def _of_side(
    view: View, queries: Queries, gain_N: Tensor, side: Side, work: Work, sampled: bool
) -> Candidates:
    """Returns the best answers to queries of one side, as many as there are queries."""
    order_N, other = queries.kinds_N.argsort(stable=True), SIDES[1 - SIDES.index(side)]
    given = queries.at(order_N), gain_N[order_N], side
    found = work.steps.ask(view, *given, work.part(len(gain_N)))
    best_C = found.promise_C.argsort(descending=True, stable=True)[: max(len(gain_N), FEWEST)]
    if sampled:
        best_C = best_C[_sample(view, found.triples_C3[best_C], side, len(gain_N))]
    triples_C3 = found.triples_C3[best_C]
    ranks = {side: SideRanks(*(column[best_C] for column in found.ranks))}
    ranks[other] = work.steps.rank(view, triples_C3, other, work.part(len(gain_N)))
    done_C = torch.zeros_like(best_C, dtype=torch.bool)
    for one in SIDES:  # a functional query that has its answer lacks none
        functional_C = view.about.functional[one].functional_R[triples_C3[:, 1]]
        done_C |= functional_C & (ranks[one].known_B > 0)
    own_C = torch.zeros_like(done_C)
    features_CF = features(view.about, triples_C3, ranks, own_C)
    scores_C = (ranks["tail"].scores_B + ranks["head"].scores_B) / 2
    return Candidates(triples_C3[~done_C], scores_C[~done_C], features_CF[~done_C])


def _sample(view: View, triples_C3: Tensor, side: Side, n: int) -> Tensor:
    """Returns the rows of triples with some n of the queries from their other side."""
    answers_C, n_entities = triples_C3[:, PARTS.index(side)], view.prepared.n_entities
    codes_U, place_C = (triples_C3[:, 1] * n_entities + answers_C).unique(return_inverse=True)
    chosen_U = torch.zeros_like(codes_U, dtype=torch.bool)
    chosen_U[keyed(view.scorer.seed, codes_U).argsort()[:n]] = True
    return chosen_U[place_C].nonzero().squeeze(1)


def best_answers(
    view: View, queries: Queries, gain_N: Tensor, side: Side, progress: Progress
) -> Best:
    """Returns the best answers to queries of one side, which are sorted by kind."""
    parts = list(_answers(view, queries, gain_N, side, progress))
    ranks = zip(*(part.ranks for part in parts), strict=True)
    return Best(
        torch.cat([part.promise_C for part in parts]),
        torch.cat([part.triples_C3 for part in parts]),
        SideRanks(*(torch.cat(column) for column in ranks)),
    )


def other_ranks(view: View, triples_C3: Tensor, side: Side, progress: Progress) -> SideRanks:
    """Ranks a side of triples that were answers to queries of the other side."""
    given = view.scorer, view.known, triples_C3, side, view.temperature
    return side_ranks(*given, progress, view.scores_of_triples)


HERE = Steps(best_answers, other_ranks)


@torch.no_grad()
def _answers(
    view: View, queries: Queries, gain_N: Tensor, side: Side, progress: Progress
) -> Iterator[Best]:
    """Yields the best answers to queries, in chunks."""
    column, relations_N = PARTS.index(side), queries.kinds_N % view.about.n_relations
    every_N = torch.arange(len(gain_N), device=gain_N.device)
    for rows_B in every_N.split(view.scorer.rows_at_once()):
        entities_B = queries.entities_N[rows_B]
        ids_B3 = torch.stack([entities_B, relations_N[rows_B], entities_B], 1)
        scores_BE, known = view.scores(ids_B3, side), view.known.find(ids_B3, side)
        scores_BE[known] = NONE
        best = scores_BE.topk(min(ANSWERS, scores_BE.shape[1]), 1)
        ranks = candidate_ranks(scores_BE, known, best.indices, view.temperature)
        triples_BK3 = ids_B3[:, None].repeat(1, best.indices.shape[1], 1)
        triples_BK3[:, :, column] = best.indices
        promise_BK = gain_N[rows_B].log()[:, None] + ranks.log_chances_B
        open_BK = ~best.values.isneginf()
        own = SideRanks(*(x[open_BK] for x in ranks))
        yield Best(promise_BK[open_BK], triples_BK3[open_BK], own)
        progress(len(rows_B), 0)


def _one_per_functional(about: Background, triples_C3: Tensor) -> Tensor:
    """Returns the rows that are the first answer to their query, where it can have one only."""
    kept_C = torch.ones(len(triples_C3), dtype=torch.bool, device=triples_C3.device)
    for side in SIDES:
        rows = (about.functional[side].functional_R[triples_C3[:, 1]] & kept_C).nonzero().squeeze(1)
        asked = triples_C3[rows, 2 - PARTS.index(side)] * about.n_relations + triples_C3[rows, 1]
        first = _first_of_each(asked)
        kept_C[rows] = False
        kept_C[rows[first]] = True
    return kept_C.nonzero().squeeze(1)


def _first_of_each(codes_N: Tensor) -> Tensor:
    """Returns the first row of each distinct code, in order."""
    order_N = codes_N.argsort(stable=True)
    sorted_N = codes_N[order_N]
    starts_N = torch.ones_like(sorted_N, dtype=torch.bool)
    starts_N[1:] = sorted_N[1:] != sorted_N[:-1]
    return order_N[starts_N].sort().values


class Work:
    """Adds up the progress of several parts, whose sizes become known one after the other.

    `steps` says where the long ones are done.
    """

    def __init__(self, progress: Progress | None = None, steps: Steps = HERE) -> None:
        self.progress, self.steps, self.total, self.done = progress, steps, 0, 0

    def grow(self, size: int) -> None:
        """Adds to the total."""
        self.total += size

    def part(self, size: int) -> Progress:
        """Returns a progress function for a part; its total is scaled to its size."""
        start, seen = self.done, 0
        self.done += size

        def tell(done: int, of: int) -> None:
            nonlocal seen
            seen = done * size // of if of else seen + done
            if self.progress and self.total:
                self.progress(min(start + seen, self.total), self.total)

        return tell
