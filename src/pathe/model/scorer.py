"""The `Scorer`, which computes all scores and ranks from vectors and bridges, in chunks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pathe.core.hardware import free_memory
from pathe.core.types import PARTS, Part, Progress, Side
from pathe.graph.held_out import HeldOut
from pathe.graph.known import KnownTriples
from pathe.graph.prepared import PreparedGraph
from pathe.model.featurizer import Featurizer
from pathe.model.heads import Ranker
from pathe.model.left_out import BridgeScore, PathScore, TripleScore
from pathe.model.pathe import PathE
from pathe.model.ranks import Ranks, join, rank
from pathe.model.vectors import EntityVectors

STATE_CACHE = 4 << 20  # bytes of bridge states that stay in a CPU's cache
SAMPLED_CHUNK, PAIR_CHUNK = 1024, 4096  # queries per chunk: with own candidates; for relations


class Scorer:
    """Scores queries with a model on a prepared graph, by ids.

    Entities are encoded when first needed, and their vectors cached. A score is the sum of the
    vectors' score and, if the model has bridges, the bridges' score.
    """

    def __init__(self, model: PathE, featurizer: Featurizer, seed: int = 0) -> None:
        self.model, self.seed = model, seed
        self.vectors = EntityVectors(model, featurizer, seed)

    @property
    def featurizer(self) -> Featurizer:
        return self.vectors.featurizer

    @property
    def prepared(self) -> PreparedGraph:
        return self.featurizer.prepared

    @torch.no_grad()
    def links(
        self,
        entities_B: Tensor,
        relations_B: Tensor,
        side: Side,
        candidates_BN: Tensor | None = None,
    ) -> Tensor:
        """Returns (B, E) scores of all entities as answers on `side`, or (B, N) of candidates."""
        head = self.model.head
        candidates = self.vectors.candidates(side, candidates_BN)
        query = head.query(self.vectors.rows(entities_B), relations_B, side)
        score = head.score_all if candidates_BN is None else head.score
        scores = score(query, candidates).float()
        if self.model.bridge is not None:
            self._add_bridges(scores, entities_B, relations_B, side, candidates_BN)
        return scores

    @torch.no_grad()
    def relations(self, heads_B: Tensor, tails_B: Tensor) -> Tensor:
        """Returns (B, R) scores of all relations between heads and tails."""
        heads, tails = self.vectors.rows(torch.stack([heads_B, tails_B])).unbind(0)
        scores_BR = self.model.relation_scores(heads, tails).float()
        if (bridge := self.model.bridge) is not None:
            edges = self.prepared.edges
            keep_M, chunk = edges.keep(), self._bridged_at_once()
            pairs = zip(heads_B.split(chunk), tails_B.split(chunk), strict=True)
            found = [bridge.pairs(edges, keep_M, heads_C, tails_C) for heads_C, tails_C in pairs]
            scores_BR = scores_BR + torch.cat(found)
        return scores_BR

    def scores(self, ids_B3: Tensor, part: Part) -> Tensor:
        """Returns (B, C) scores of all candidates for a part of triples; ignores its column.

        Stale vectors of the queries' entities are updated first, also as candidates.
        """
        if part == "relation":
            return self.relations(ids_B3[:, 0], ids_B3[:, 2])
        self.vectors.all()
        self.vectors.ensure(ids_B3[:, [0, 2]])
        return self.links(ids_B3[:, 2 if part == "head" else 0], ids_B3[:, 1], part)

    def chunks(self, ids_M3: Tensor, part: Part) -> Iterator[Tensor]:
        """Yields queries in chunks whose scores fit in memory."""
        if part == "relation":
            yield from ids_M3.split(PAIR_CHUNK)
        else:
            yield from ids_M3.split(self.rows_at_once())

    def rows_at_once(self, budget: int | None = None) -> int:
        """Returns how many queries to score per chunk against all entities."""
        z_E = self.vectors.all()
        per_query = self.model.head.score_bytes(z_E)
        if self.model.bridge is not None:
            per_query += 12 * len(z_E)
        return max((budget or memory_budget(z_E.device)) // per_query, 1)

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
        order_M, column, found = self._order(triples_M3, part), PARTS.index(part), []
        count, rows = self._ranker(part, budget)
        for ids_B3 in triples_M3[order_M].split(rows):
            true_B, (lists, keys_B) = ids_B3[:, column], known.answers(ids_B3, part)
            if count is None:
                found.append(rank(self.scores(ids_B3, part), true_B, lists.find(keys_B)))
            else:
                found.append(count(ids_B3, true_B, lists, keys_B))
            if progress:
                progress(sum(map(len, found)), len(triples_M3))
        return join(found)[order_M.argsort()]

    def _ranker(self, part: Part, budget: int | None) -> tuple[Ranker | None, int]:
        """Returns the head's ranking kernel for queries as ids, or None, and queries per chunk."""
        if part == "relation":
            return None, PAIR_CHUNK
        z_E, head, side = self.vectors.all(), self.model.head, part
        count = head.ranker(self.vectors.candidates(side)) if self.model.bridge is None else None
        if count is None:
            return None, self.rows_at_once(budget)

        @torch.no_grad()
        def rank_ids(ids_B3: Tensor, *rest: Any) -> Ranks:
            known_z = self.vectors.rows(ids_B3[:, 2 if side == "head" else 0])
            return count(head.query(known_z, ids_B3[:, 1], side), *rest)

        # it takes memory for queries, not for scores
        return rank_ids, max((budget or memory_budget(z_E.device)) // (64 * z_E.shape[-1]), 1)

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
        self.vectors.ensure(wanted, progress)
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

    def triple(self, triple_3: Tensor, part: Part) -> TripleScore:
        """Returns one triple's score, which can be recomputed with paths or edges left out."""
        paths = PathScore(self.model, self.featurizer, triple_3, part, self.seed)
        return TripleScore(paths, self.bridge_score(triple_3, part))

    def bridge_score(
        self, triple_3: Tensor, part: Part, held_out: HeldOut | None = None
    ) -> BridgeScore | None:
        """Returns what bridges add to one triple's score; None if the model has no bridges."""
        if self.model.bridge is None:
            return None
        return BridgeScore(self.model.bridge, self.prepared.edges, triple_3, part, held_out)

    def _order(self, triples_M3: Tensor, part: Part) -> Tensor:
        """Returns an order that makes equal queries adjacent, so that bridges run them once."""
        if self.model.bridge is None or part == "relation":
            return torch.arange(len(triples_M3), device=triples_M3.device)
        entities_M, relations_M = triples_M3[:, 2 if part == "head" else 0], triples_M3[:, 1]
        return torch.argsort(entities_M * self.model.n_relations + relations_M, stable=True)

    def _add_bridges(
        self,
        scores: Tensor,
        entities_B: Tensor,
        relations_B: Tensor,
        side: Side,
        candidates_BN: Tensor | None,
    ) -> None:
        """Adds the bridges' scores in place, in chunks of distinct queries."""
        bridge, edges, n_kinds = self.model.bridge, self.prepared.edges, 2 * self.model.n_relations
        assert bridge is not None
        kinds_B = relations_B if side == "tail" else relations_B + self.model.n_relations
        codes_U, rows_B = (entities_B * n_kinds + kinds_B).unique(return_inverse=True)
        keep_M, chunk = edges.keep(), self._bridged_at_once()
        for first in range(0, len(codes_U), chunk):
            codes_F = codes_U[first : first + chunk]
            found_FE = bridge.links(edges, keep_M, codes_F // n_kinds, codes_F % n_kinds)
            rows_K = ((rows_B >= first) & (rows_B < first + chunk)).nonzero().squeeze(1)
            places_K = rows_B[rows_K] - first
            if candidates_BN is None:
                scores[rows_K] += found_FE[places_K]
            else:
                scores[rows_K] += found_FE[places_K[:, None], candidates_BN[rows_K]]

    def _bridged_at_once(self) -> int:
        """Returns how many queries to propagate per chunk: on a CPU, as many as fit its cache."""
        assert self.model.bridge is not None
        device = self.prepared.device
        room = STATE_CACHE if device.type == "cpu" else free_memory(device) // 40
        states = 4 * self.prepared.n_entities * self.model.bridge.dim  # at most
        return int(max(room // states, 1))


def memory_budget(device: torch.device) -> int:
    """Returns the bytes that scores may take per chunk: about the cache size on a CPU."""
    if device.type == "cuda":
        return free_memory(device) // 4
    return max(min(free_memory(device) // 8, 64 << 20), 1 << 20)
