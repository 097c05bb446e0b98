"""The `Scorer`, which computes all scores and ranks of a model on a graph, in chunks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor

from pathe.core.hardware import free_memory
from pathe.core.types import PARTS, Part, Progress, Side
from pathe.graph.held_out import HeldOut
from pathe.graph.known import KnownTriples
from pathe.graph.prepared import PreparedGraph
from pathe.model.bridge import Bridge
from pathe.model.featurizer import Featurizer
from pathe.model.foundation import BRIDGED, FoundationModel, bridged_relations, view
from pathe.model.frontier import Frontier, frontier_of, frontier_size
from pathe.model.heads import Ranker
from pathe.model.left_out import BridgeScore, ContextScore, PathScore, TripleScore
from pathe.model.pathe import PathE
from pathe.model.ranks import Ranks, join, rank
from pathe.model.relation_encoder import KindVectors
from pathe.model.vectors import EntityVectors

STATE_CACHE = 4 << 20  # bytes of bridge states that stay in a CPU's cache
PAIR_ROWS, MOST_PAIRS = 1 << 24, 256  # rows and pairs of relation queries at once
BLOCK = 4096  # triples ranked: chunks don't cross it, so that blocks can be ranked anywhere
FRONTIER_ROWS = 1 << 17  # rows of frontiers at once,
FRONTIER_SCORES = 1 << 24  # and scores
SAMPLED_CHUNK, PAIR_CHUNK = 1024, 4096  # queries per chunk: with own candidates; for relations
# (sources, kinds) of distinct queries -> (F, E) scores of all entities
ScoreAll = Callable[[Tensor, Tensor], Tensor]


class Scorer(ABC):
    """Scores queries with a model on a prepared graph, by ids.

    Subclasses say how a kind of model computes scores; everything else follows from them.
    """

    seed: int
    n_paths: int | None  # sampled per entity; None: the model samples none

    @property
    @abstractmethod
    def prepared(self) -> PreparedGraph:
        """The graph that queries are about."""

    @abstractmethod
    def links(
        self,
        entities_B: Tensor,
        relations_B: Tensor,
        side: Side,
        candidates_BN: Tensor | None = None,
    ) -> Tensor:
        """Returns (B, E) scores of all entities as answers on `side`, or (B, N) of candidates."""

    @abstractmethod
    def relations(self, heads_B: Tensor, tails_B: Tensor) -> Tensor:
        """Returns (B, R) scores of all relations between heads and tails."""

    @abstractmethod
    def triple(self, triple_3: Tensor, part: Part, held_out: HeldOut | None = None) -> TripleScore:
        """Returns one triple's score, which can be recomputed with paths or edges left out.

        Held-out triples are left out of bridges and contexts, but not of entity vectors.
        """

    @abstractmethod
    def bridge_score(
        self, triple_3: Tensor, part: Part, held_out: HeldOut | None = None
    ) -> BridgeScore | None:
        """Returns what bridges add to one triple's score; None if the model has no bridges."""

    @property
    @abstractmethod
    def bridged(self) -> bool:
        """Whether scores include paths between a query's entity and its answers."""

    @property
    def frontier(self) -> int:
        """The number of entities per query that bridges pass messages between: `frontier_size`."""
        return 0

    @property
    def one_by_one(self) -> bool:
        """Whether queries are scored one by one, so that none has a part in others' rounding."""
        return False

    @abstractmethod
    def score_bytes(self) -> int:
        """Estimates the bytes that scores of all entities take per query."""

    @abstractmethod
    def ensure(self, entities: Tensor, progress: Progress | None = None) -> None:
        """Encodes entities ahead of their queries, if the model encodes them."""

    @abstractmethod
    def warm(self, progress: Progress | None = None) -> None:
        """Computes now what all queries share, rather than at the first query."""

    @abstractmethod
    def refresh(self) -> None:
        """Forgets what is stale since the graph has changed."""

    def scores(self, ids_B3: Tensor, part: Part) -> Tensor:
        """Returns (B, C) scores of all candidates for a part of triples; ignores its column."""
        if part == "relation":
            return self.relations(ids_B3[:, 0], ids_B3[:, 2])
        return self.links(ids_B3[:, 2 if part == "head" else 0], ids_B3[:, 1], part)

    def chunks(self, ids_M3: Tensor, part: Part) -> Iterator[Tensor]:
        """Yields queries in chunks whose scores fit in memory."""
        if part == "relation":
            yield from ids_M3.split(PAIR_CHUNK)
        else:
            yield from ids_M3.split(self.rows_at_once())

    def rows_at_once(self, budget: int | None = None) -> int:
        """Returns how many queries to score per chunk against all entities."""
        return max((budget or memory_budget(self.prepared.device)) // self.score_bytes(), 1)

    def rank(
        self,
        triples_M3: Tensor,
        part: Part,
        known: KnownTriples,
        *,
        budget: int | None = None,
        progress: Progress | None = None,
    ) -> Ranks:
        """Ranks a part of each triple among all candidates; other known answers are filtered."""
        order_M, column, found = self.order(triples_M3, part), PARTS.index(part), []
        count, rows = self._ranker(part, budget)
        for ids_B3 in (
            chunk for block in triples_M3[order_M].split(BLOCK) for chunk in block.split(rows)
        ):
            true_B, (lists, keys_B) = ids_B3[:, column], known.answers(ids_B3, part)
            if count is None:
                found.append(rank(self.scores(ids_B3, part), true_B, lists.find(keys_B)))
            else:
                found.append(count(ids_B3, true_B, lists, keys_B))
            if progress:
                progress(sum(map(len, found)), len(triples_M3))
        return join(found)[order_M.argsort()]

    def rank_sampled(
        self,
        triples_M3: Tensor,
        side: Side,
        negatives_MN: Tensor,
        mask_MN: Tensor,
        progress: Progress | None = None,
    ) -> Ranks:
        """Ranks each triple's head or tail among its own negatives where the mask is True."""
        column, found = PARTS.index(side), []
        wanted = torch.cat([triples_M3[:, [0, 2]].flatten(), negatives_MN.flatten()])
        self.ensure(wanted, progress)
        for ids_B3, negatives_BN, mask_BN in zip(
            triples_M3.split(SAMPLED_CHUNK), negatives_MN.split(SAMPLED_CHUNK),
            mask_MN.split(SAMPLED_CHUNK), strict=True,
        ):  # fmt: skip
            candidates_BN = torch.cat([ids_B3[:, column, None], negatives_BN], 1)
            scores_BN = self.links(ids_B3[:, 2 - column], ids_B3[:, 1], side, candidates_BN)
            excluded = F.pad(~mask_BN, (1, 0)).nonzero(as_tuple=True)
            true_B = torch.zeros_like(ids_B3[:, 0])
            found.append(rank(scores_BN, true_B, (excluded[0], excluded[1])))
        return join(found)

    def _ranker(self, part: Part, budget: int | None) -> tuple[Ranker | None, int]:
        """Returns a function that ranks queries by ids, or None; and queries per chunk."""
        return None, PAIR_CHUNK if part == "relation" else self.rows_at_once(budget)

    def order(self, triples_M3: Tensor, part: Part) -> Tensor:
        """Returns an order that makes equal queries adjacent, so that bridges run them once."""
        if not self.bridged or part == "relation":
            return torch.arange(len(triples_M3), device=triples_M3.device)
        entities_M, relations_M = triples_M3[:, 2 if part == "head" else 0], triples_M3[:, 1]
        return torch.argsort(relations_M * self.prepared.n_entities + entities_M, stable=True)

    def _add_distinct(
        self,
        scores: Tensor,
        queries: tuple[Tensor, Tensor, Side],
        candidates_BN: Tensor | None,
        score_all: ScoreAll,
        chunk: int,
    ) -> None:
        """Adds scores in place that are computed once per distinct query, in chunks."""
        (entities_B, relations_B, side), n = queries, self.prepared.n_entities
        kinds_B = relations_B if side == "tail" else relations_B + self.prepared.n_relations
        codes_U, rows_B = (kinds_B * n + entities_B).unique(return_inverse=True)
        for first in range(0, len(codes_U), chunk):
            codes_F = codes_U[first : first + chunk]
            found_FE = score_all(codes_F % n, codes_F // n)
            rows_K = ((rows_B >= first) & (rows_B < first + chunk)).nonzero().squeeze(1)
            places_K = rows_B[rows_K] - first
            if candidates_BN is None:
                scores[rows_K] += found_FE[places_K]
            else:
                scores[rows_K] += found_FE[places_K[:, None], candidates_BN[rows_K]]

    def _frontier_size(self, wanted: int | None) -> int:
        n_triples, n_entities = self.prepared.graph.n_triples, self.prepared.n_entities
        return frontier_size(wanted, n_triples, n_entities)

    def _queries_at_once(self, dim: int) -> int:
        """Returns how many distinct queries bridges score per chunk."""
        if not self.frontier:
            return self._states_at_once(dim)
        chunk = min(FRONTIER_ROWS // self.frontier, FRONTIER_SCORES // self.prepared.n_entities)
        return max(chunk, 1)

    def _states_at_once(self, dim: int) -> int:
        """Returns how many queries to propagate per chunk: on a CPU, as many as fit its cache."""
        device = self.prepared.device
        room = STATE_CACHE if device.type == "cpu" else free_memory(device) // 40
        return int(max(room // (4 * self.prepared.n_entities * dim), 1))


@final
class VectorScorer(Scorer):
    """Scores with entity vectors, which are encoded when first needed, and bridges if any.

    A score is the sum of the vectors' score and the bridges' score. With a frontier, bridges add
    nothing to entities that it doesn't keep.
    """

    def __init__(
        self, model: PathE, featurizer: Featurizer, seed: int = 0, frontier: int | None = None
    ) -> None:
        """`frontier` is the number of entities to keep per query; None or 0 keeps all."""
        self.model, self.seed, self.n_paths = model, seed, featurizer.n_paths
        self._frontier = frontier or 0
        self.vectors = EntityVectors(model, featurizer, seed)

    @property
    def featurizer(self) -> Featurizer:
        return self.vectors.featurizer

    @property
    def prepared(self) -> PreparedGraph:
        return self.featurizer.prepared

    @property
    def bridged(self) -> bool:
        return self.model.bridge is not None

    @property
    def frontier(self) -> int:
        return self._frontier_size(self._frontier) if self.bridged else 0

    def ensure(self, entities: Tensor, progress: Progress | None = None) -> None:
        if self.frontier:  # all entities are candidates for it
            self.vectors.all(progress)
        self.vectors.ensure(entities, progress)

    def warm(self, progress: Progress | None = None) -> None:
        self.vectors.all(progress)

    def refresh(self) -> None:
        self.vectors.refresh()

    @torch.no_grad()
    def links(
        self,
        entities_B: Tensor,
        relations_B: Tensor,
        side: Side,
        candidates_BN: Tensor | None = None,
    ) -> Tensor:
        scores = self._vector_scores(entities_B, relations_B, side, candidates_BN)
        if (bridge := self.model.bridge) is not None:
            keep_M = self.prepared.edges.keep()
            score_all = partial(self._bridge_scores, bridge, keep_M, side)
            queries, chunk = (entities_B, relations_B, side), self._queries_at_once(bridge.dim)
            self._add_distinct(scores, queries, candidates_BN, score_all, chunk)
        return scores

    def _vector_scores(
        self,
        entities_B: Tensor,
        relations_B: Tensor,
        side: Side,
        candidates_BN: Tensor | None = None,
    ) -> Tensor:
        """Returns the scores without bridges."""
        head = self.model.head
        candidates = self.vectors.candidates(side, candidates_BN)
        query = head.query(self.vectors.rows(entities_B), relations_B, side)
        score = head.score_all if candidates_BN is None else head.score
        return score(query, candidates).float()

    def _bridge_scores(
        self, bridge: Bridge, keep_M: Tensor, side: Side, sources_F: Tensor, kinds_F: Tensor
    ) -> Tensor:
        """Returns what bridges add to the scores of all entities."""
        edges, rows = self.prepared.edges, None
        if self.frontier:
            alone_FE = self._vector_scores(sources_F, kinds_F % edges.n_relations, side)
            frontier = Frontier(self.frontier, context_BE=alone_FE)
            rows = frontier_of(edges, keep_M, sources_F, len(bridge.rounds), frontier)
        return bridge.links(edges, keep_M, sources_F, kinds_F, rows)

    @torch.no_grad()
    def relations(self, heads_B: Tensor, tails_B: Tensor) -> Tensor:
        heads, tails = self.vectors.rows(torch.stack([heads_B, tails_B])).unbind(0)
        scores_BR = self.model.relation_scores(heads, tails).float()
        if (bridge := self.model.bridge) is not None:
            edges = self.prepared.edges
            keep_M, chunk, found = edges.keep(), self._queries_at_once(bridge.dim), []
            for ends in zip(heads_B.split(chunk), tails_B.split(chunk), strict=True):
                rows = None
                if self.frontier:
                    rows = bridge.frontier_between(edges, keep_M, *ends, self.frontier)
                found.append(bridge.pairs(edges, keep_M, *ends, rows))
            scores_BR = scores_BR + torch.cat(found)
        return scores_BR

    def scores(self, ids_B3: Tensor, part: Part) -> Tensor:
        """Returns (B, C) scores; stale vectors of the queries' entities are updated first."""
        if part != "relation":
            self.vectors.all()
            self.vectors.ensure(ids_B3[:, [0, 2]])
        return super().scores(ids_B3, part)

    def score_bytes(self) -> int:
        z_E = self.vectors.all()
        return self.model.head.score_bytes(z_E) + 12 * len(z_E) * self.bridged

    def triple(self, triple_3: Tensor, part: Part, held_out: HeldOut | None = None) -> TripleScore:
        paths = PathScore(self.model, self.featurizer, triple_3, part, self.seed)
        return TripleScore(paths, self.bridge_score(triple_3, part, held_out))

    @torch.no_grad()
    def bridge_score(
        self, triple_3: Tensor, part: Part, held_out: HeldOut | None = None
    ) -> BridgeScore | None:
        if self.model.bridge is None:
            return None
        rows: Frontier | None = None
        if self.frontier:
            alone_1E = None
            if part != "relation":
                source_1, relation_1 = triple_3[2 if part == "head" else 0, None], triple_3[1, None]
                alone_1E = self._vector_scores(source_1, relation_1, part)
            rows = Frontier(self.frontier, context_BE=alone_1E)
        edges = self.prepared.edges
        return BridgeScore(self.model.bridge, edges, triple_3, part, held_out, frontier=rows)

    def _ranker(self, part: Part, budget: int | None) -> tuple[Ranker | None, int]:
        if part == "relation" or self.bridged:
            return super()._ranker(part, budget)
        z_E, head, side = self.vectors.all(), self.model.head, part
        count = head.ranker(self.vectors.candidates(side))
        if count is None:
            return super()._ranker(part, budget)

        @torch.no_grad()
        def rank_ids(ids_B3: Tensor, *rest: Any) -> Ranks:
            known_z = self.vectors.rows(ids_B3[:, 2 if side == "head" else 0])
            return count(head.query(known_z, ids_B3[:, 1], side), *rest)

        # it takes memory for queries, not for scores
        return rank_ids, max((budget or memory_budget(z_E.device)) // (64 * z_E.shape[-1]), 1)


@final
class GraphScorer(Scorer):
    """Scores with a model that computes relation vectors from the graph.

    The relation graph, contexts and the vectors of kinds are computed once and cached.
    """

    n_paths = None
    bridged = True

    def __init__(
        self,
        model: FoundationModel,
        prepared: PreparedGraph,
        seed: int = 0,
        held_out: HeldOut | None = None,
        frontier: int | None = None,
    ) -> None:
        """`frontier` is what `frontier_size` calls wanted."""
        self.model, self.seed, self._frontier = model, seed, frontier
        self.take(prepared, held_out)

    def take(self, prepared: PreparedGraph, held_out: HeldOut | None = None) -> None:
        """Takes another graph, or a part of it: everything that is computed from it changes."""
        self._prepared, self._held_out = prepared, held_out
        self.graph = view(prepared.arrivals, prepared.edges.keep(held_out))
        self.kinds = KindVectors(self.model.encoder, self.graph.meetings)

    def without(self, held_out: HeldOut) -> GraphScorer:
        """Returns a scorer of the same graph without the edges of held-out triples."""
        return GraphScorer(self.model, self.prepared, self.seed, held_out, self._frontier)

    @property
    def prepared(self) -> PreparedGraph:
        return self._prepared

    @property
    def frontier(self) -> int:
        return self._frontier_size(self._frontier)

    def ensure(self, entities: Tensor, progress: Progress | None = None) -> None:
        """Does nothing: entities aren't encoded."""

    def warm(self, progress: Progress | None = None) -> None:
        """Computes the relation vectors of all kinds of queries, or as many as are cached."""
        n_kinds = min(self.graph.contexts.n_kinds, self.kinds.most)
        self.kinds(torch.arange(n_kinds, device=self.prepared.device))

    def refresh(self) -> None:
        """Does nothing: `take` leaves nothing stale."""

    @torch.no_grad()
    def links(
        self,
        entities_B: Tensor,
        relations_B: Tensor,
        side: Side,
        candidates_BN: Tensor | None = None,
    ) -> Tensor:
        n = self.prepared.n_entities if candidates_BN is None else candidates_BN.shape[1]
        scores = torch.zeros(len(entities_B), n, device=entities_B.device)
        queries, chunk = (entities_B, relations_B, side), self._queries_at_once(self._dim)
        self._add_distinct(scores, queries, candidates_BN, self._score_all, chunk)
        return scores

    @property
    def one_by_one(self) -> bool:
        return self._queries_at_once(self._dim) == 1

    def _score_all(self, sources_F: Tensor, kinds_F: Tensor) -> Tensor:
        """Returns (F, E) scores of all entities."""
        edges, given = self.prepared.edges, self.kinds(kinds_F)
        frontier = Frontier(self.frontier) if self.frontier else None
        return self.model.link_scores(edges, self.graph, given, sources_F, frontier=frontier)

    @torch.no_grad()
    def relations(self, heads_B: Tensor, tails_B: Tensor) -> Tensor:
        edges, of_cache = self.prepared.edges, self._states_at_once(self._dim) // BRIDGED
        # paths between two entities need few states: on a CPU, what limits pairs is their rows
        chunk = max(of_cache, min(PAIR_ROWS // (edges.n_entities * BRIDGED), MOST_PAIRS), 1)
        if not len(heads_B):
            return torch.zeros(0, edges.n_relations, device=heads_B.device)
        if self.frontier:
            chunk = max(FRONTIER_ROWS // (self.frontier * BRIDGED), 1)
        found = []
        for ends in zip(heads_B.split(chunk), tails_B.split(chunk), strict=True):
            rows, model = None, self.model
            if self.frontier:
                rows = model.bridge.frontier_between(edges, self.graph.keep_M, *ends, self.frontier)
            parts = edges, self.graph, self.kinds, *ends
            found.append(model.relation_scores(*parts, reached=rows))
        # nothing is known about a relation without training triples
        return torch.cat(found).masked_fill_(~self.prepared.seen_R, float("-inf"))

    def score_bytes(self) -> int:
        return 44 * self.prepared.n_entities

    @torch.no_grad()
    def triple(self, triple_3: Tensor, part: Part, held_out: HeldOut | None = None) -> TripleScore:
        if held_out is not None:
            return self.without(held_out).triple(triple_3, part)
        bridge = self.bridge_score(triple_3, part)
        alone = self._context_scores(triple_3, part)
        if part == "relation":
            relation = int(triple_3[1])
            if relation not in bridged_relations(alone[None])[0]:
                bridge = None
            return TripleScore(ContextScore(float(alone[relation])), bridge)
        return TripleScore(ContextScore(float(alone[triple_3[PARTS.index(part)]])), bridge)

    def _context_scores(self, triple_3: Tensor, part: Part) -> Tensor:
        """Returns the scores of all candidates of one query by contexts alone."""
        h_1, r_1, t_1 = triple_3[:, None]
        if part == "relation":
            return self.model.relation_context_scores(self.graph, self.kinds, h_1, t_1)[0]
        source_1, kind_1 = (h_1, r_1) if part == "tail" else (t_1, r_1 + self.prepared.n_relations)
        kinds_Q, vectors_QKD, rows_1 = self.kinds(kind_1)
        parts = self.graph.contexts, vectors_QKD, kinds_Q, rows_1, source_1
        return self.model.link_contexts.links(*parts)[0]

    def bridge_score(
        self, triple_3: Tensor, part: Part, held_out: HeldOut | None = None
    ) -> BridgeScore | None:
        rows: Frontier | None = None
        if self.frontier:
            context_1E = None
            if part != "relation":
                context_1E = self._context_scores(triple_3, part)[None]
            rows = Frontier(self.frontier, context_BE=context_1E)
        edges, held_out = self.prepared.edges, held_out or self._held_out
        return BridgeScore(self.model.bridge, edges, triple_3, part, held_out, self.kinds, rows)

    @property
    def _dim(self) -> int:
        return self.model.bridge.dim


def memory_budget(device: torch.device) -> int:
    """Returns the bytes that scores may take per chunk: about the cache size on a CPU."""
    if device.type == "cuda":
        return free_memory(device) // 4
    return max(min(free_memory(device) // 8, 64 << 20), 1 << 20)
