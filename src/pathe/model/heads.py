"""Heads, which turn entity vectors into scores. `Head` is the interface of a link head."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pathe.core.types import Side
from pathe.graph.known import STRIDE, Lists
from pathe.kernels.dispatch import compiled, kernel
from pathe.model.ranks import Ranks
from pathe.model.scores import relu_dot

# (query, true_B, known answers, keys_B) -> ranks, without a score matrix
Ranker = Callable[[Any, Tensor, Lists, Tensor], Ranks]


class Head(ABC):
    """The interface of a link head; z has a row per entity, `side` is the one to predict.

    A head implements `query`, `candidates` and `score`. The other methods have defaults that work
    for any head: without a `ranker`, it is ranked by its scores.
    """

    @abstractmethod
    def query(self, known_z: Tensor, relations_B: Tensor, side: Side) -> Any:
        """Returns the representation of B queries, from their entity's z and their relation."""

    @abstractmethod
    def candidates(self, z_C: Tensor, side: Side) -> Tensor:
        """Returns the representation of entities as candidates, a row each; it is cached."""

    @abstractmethod
    def score(self, query: Any, candidates_BN: Tensor) -> Tensor:
        """Returns (B, N) scores of each query's own N candidates."""

    def score_all(self, query: Any, candidates_C: Tensor) -> Tensor:
        """Returns (B, C) scores of candidates shared by all queries; equals `score` per pair."""
        b = len(query if isinstance(query, Tensor) else query[0])  # or a tuple of tensors
        return self.score(query, candidates_C[None].expand(b, *candidates_C.shape))

    def ranker(self, candidates_C: Tensor) -> Ranker | None:
        """Returns a function that ranks these candidates without a score matrix, or None."""
        return None

    def score_bytes(self, z_C: Tensor) -> int:
        """Estimates the bytes that `score_all` takes per query over these entities."""
        return 32 * len(z_C)


@final  # a subclass would inherit kernels that compute this head's scores
class LinkHead(Head, nn.Module):
    """Scores w2 . relu(W1 [h|r|t] + b1) + b2, with W1 applied to h, r and t separately.

    So a query and a candidate are one vector each, and [h|r|t] is never built.
    """

    def __init__(self, n_relations: int, dim: int) -> None:
        super().__init__()
        self.relations = nn.Embedding(n_relations, dim)
        self.first, self.second = nn.Linear(3 * dim, dim), nn.Linear(dim, 1)

    def query(self, known_z: Tensor, relations_B: Tensor, side: Side) -> Tensor:
        parts = self.first.weight.chunk(3, 1)
        known_BD = F.linear(known_z, parts[2] if side == "head" else parts[0])
        asked_RD = F.linear(self.relations.weight, parts[1], self.first.bias)
        # not asked_RD[relations_B], whose backward pass isn't deterministic on a CPU
        return known_BD + F.embedding(relations_B, asked_RD)

    def candidates(self, z_C: Tensor, side: Side) -> Tensor:
        return F.linear(z_C, self.first.weight.chunk(3, 1)[0 if side == "head" else 2])

    def score(self, query: Any, candidates_BN: Tensor) -> Tensor:
        return self.second(F.relu(query[:, None] + candidates_BN)).squeeze(-1)  # type: ignore[no-any-return]

    def score_all(self, query: Any, candidates_C: Tensor) -> Tensor:
        return relu_dot(query, candidates_C, self.second.weight[0]) + self.second.bias

    def ranker(self, candidates_C: Tensor) -> Ranker | None:
        device = candidates_C.device.type
        if kernel("scores.rank", device) is None or candidates_C.dtype != torch.float32:
            return None
        tiled = compiled("scores.tiles", device)(candidates_C)

        def rank(query_BD: Any, true_B: Tensor, lists: Lists, keys_B: Tensor) -> Ranks:
            better_B, equal_B, others_B = compiled("scores.rank", device)(
                query_BD, tiled, self.second.weight[0], len(candidates_C), true_B,
                *lists.locate(keys_B), lists.codes_V1, STRIDE,
            )  # fmt: skip
            return Ranks(1 + better_B, 1 + better_B + equal_B, 1 + others_B)

        return rank


class PairQuery(NamedTuple):
    """Queries of a `PairwiseHead`: path vectors of their entities, relations, side."""

    known_BKD: Tensor
    relations_B: Tensor
    side: Side


class PairwiseHead(Head):
    """A head after an aggregator that needs both entities of a pair together.

    It aggregates every pair separately, so it suits small graphs only.
    """

    def __init__(self, head: Head, pair: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> None:
        self.head, self.pair = head, pair

    def query(self, known_z: Tensor, relations_B: Tensor, side: Side) -> PairQuery:
        return PairQuery(known_z, relations_B, side)

    def candidates(self, z_C: Tensor, side: Side) -> Tensor:
        return z_C

    def score(self, query: Any, candidates_BN: Tensor) -> Tensor:
        b, n = candidates_BN.shape[:2]
        known, relations = (x.repeat_interleave(n, 0) for x in query[:2])
        others = candidates_BN.flatten(0, 1)
        heads_asked = query.side == "head"
        heads, tails = self.pair(others, known) if heads_asked else self.pair(known, others)
        known_z, other_z = (tails, heads) if heads_asked else (heads, tails)
        inner = self.head.query(known_z, relations, query.side)
        scores = self.head.score(inner, self.head.candidates(other_z, query.side)[:, None])
        return scores.view(b, n)

    def score_bytes(self, z_C: Tensor) -> int:
        return 24 * z_C.numel()


class RelationHead(nn.Module):
    """A linear layer on [h|t]: a score per relation."""

    def __init__(self, n_relations: int, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(2 * dim, n_relations)

    def forward(self, heads_BD: Tensor, tails_BD: Tensor) -> Tensor:
        return self.linear(torch.cat([heads_BD, tails_BD], -1))  # type: ignore[no-any-return]
