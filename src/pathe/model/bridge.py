"""Bridges: message passing that scores all paths between a query's entity and every candidate.

A small state is propagated from the query's entity along all edges, hop by hop, conditioned on the
query. The final state at an entity gives its score as an answer; without a path the score is zero.
Entities have no parameters, so unseen ones are candidates like any other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple, Protocol, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pathe.graph.edges import Edges
from pathe.model.dense import dense_scores
from pathe.model.frontier import frontier_between
from pathe.model.propagation import Kept, Reach, between, propagate, reach
from pathe.model.states import answer_scores, evidence, update


class QueryVectors(NamedTuple):
    """The vectors of all kinds of edges as seen from Q kinds of queries; each query's row."""

    kinds_Q: Tensor
    vectors_QKD: Tensor
    rows_B: Tensor


class RelationVectors(Protocol):
    """Relation vectors of a graph that are computed from it."""

    def __call__(self, kinds_B: Tensor) -> QueryVectors:
        """Returns the vectors for queries of these kinds."""


class Conditions(NamedTuple):
    """What queries tell the bridges: a vector per query, and weights of messages per hop."""

    asked_BD: Tensor
    weights: list[Tensor]  # (B, 2 R, D) per hop, by query and kind of the edge


class Hop(nn.Module):
    """One hop of message passing: the update of states."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.take = nn.Linear(2 * dim, dim, bias=False)

    def forward(self, x_AD: Tensor, arrived_OD: Tensor) -> Tensor:
        """Returns the states after this hop. Zero states stay zero."""
        return update(x_AD, arrived_OD, self.take.weight)


@dataclass(frozen=True)
class Trace:
    """A record of one hop: states before it, weights per relation, summed messages."""

    x_AD: Tensor
    weights_BRD: Tensor
    arrived_AD: Tensor


class Evidence(nn.Module):
    """An MLP that scores states, given the query; a zero state scores zero."""

    def __init__(self, dim: int, n_scores: int) -> None:
        super().__init__()
        self.first, self.asked = nn.Linear(dim, 2 * dim, bias=False), nn.Linear(dim, 2 * dim)
        self.second = nn.Linear(2 * dim, n_scores, bias=False)

    def forward(self, x_AD: Tensor, asked_BD: Tensor, queries_A: Tensor) -> Tensor:
        """Returns (A, n_scores) scores; queries_A is the query of each state."""
        asked_AH = F.embedding(queries_A.long(), self.asked(asked_BD))
        return evidence(x_AD, asked_AH, self.first.weight, self.second.weight)

    def answers(self, x_AD: Tensor, asked_BD: Tensor, reached: Reach | Kept) -> Tensor:
        """Returns (B, E) scores of every entity, 0 where no state arrived."""
        return answer_scores(x_AD, *self.layers(asked_BD), reached)

    def layers(self, asked_BD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the queries' part of the hidden layer, and the weights of both layers."""
        return self.asked(asked_BD), self.first.weight, self.second.weight


class Bridge(ABC, nn.Module):
    """Scores all entities as answers to (entity, kind) queries: kind r for tails, r + R for heads.

    Also scores all relations between pairs of entities, if it has a relation head. Subclasses say
    where relation vectors come from.
    """

    dim: int
    half_messages = False  # whether training on a GPU rounds messages to bfloat16
    pair_hops: int  # maximum path length for relation queries
    rounds: nn.ModuleList  # a Hop each
    link_head: Evidence | None
    relation_head: Evidence | None

    @abstractmethod
    def condition(self, kinds_B: Tensor, relations: RelationVectors | None) -> Conditions:
        """Returns the conditions of queries of these kinds."""

    def reach(
        self, edges: Edges, keep_M: Tensor, sources_B: Tensor, targets_B: Tensor | None = None
    ) -> Reach:
        """Finds the entities that queries reach.

        With targets, only those on paths of up to `pair_hops` edges to them.
        """
        if targets_B is None:
            return reach(edges, sources_B, len(self.rounds), keep_M)
        return between(edges, sources_B, targets_B, self.pair_hops, keep_M)

    def frontier_between(
        self, edges: Edges, keep_M: Tensor, heads_B: Tensor, tails_B: Tensor, most: int
    ) -> Kept:
        """Finds entities between heads and tails, with a frontier of `most` entities per end."""
        return frontier_between(edges, keep_M, heads_B, tails_B, self.pair_hops, most)

    def states(
        self,
        edges: Edges,
        keep_M: Tensor,
        sources_B: Tensor,
        given: Conditions,
        targets_B: Tensor | None = None,
        reached: Reach | Kept | None = None,
        traces: list[Trace] | None = None,
    ) -> tuple[Reach | Kept, Tensor]:
        """Returns the reached rows of (query, entity) and their final states.

        With targets, computes only rows on paths to them. `reached` may be passed in, also with
        fewer hops, and `traces` collects a record per hop.
        """
        if reached is None:
            reached = self.reach(edges, keep_M, sources_B, targets_B)
        x_AD, half, rows = given.asked_BD, self.half_messages and self.training, reached
        if isinstance(rows, Kept):
            edges, keep_M, rows = rows.edges, rows.keep_M, rows.rows
        for number, (hop, weights_BRD, size) in enumerate(
            zip(self.rounds, given.weights, reached.sizes[1:], strict=False), 1
        ):
            if isinstance(reached, Kept):  # one query, whose relations are those of all queries
                weights_BRD = weights_BRD.transpose(0, 1).flatten(0, 1)[None]
            arrived_AD = propagate(x_AD, weights_BRD, edges, keep_M, rows, size, half)
            if isinstance(reached, Kept):
                arrived_AD = reached.with_unkept(arrived_AD, x_AD, weights_BRD[0], number)
            if traces is not None:
                traces.append(Trace(x_AD, weights_BRD, arrived_AD))
            x_AD = hop(x_AD, arrived_AD)
        return reached, x_AD

    def links(
        self,
        edges: Edges,
        keep_M: Tensor,
        sources_B: Tensor,
        kinds_B: Tensor,
        reached: Reach | Kept | None = None,
        relations: RelationVectors | None = None,
    ) -> Tensor:
        """Returns (B, E) scores of all entities as answers, 0 without a path."""
        assert self.link_head is not None
        given = self.condition(kinds_B, relations)
        if reached is None:
            takes = [hop.take.weight for hop in self.rounds if isinstance(hop, Hop)]
            evidence = self.link_head.layers(given.asked_BD)
            asked_BD, weights = given
            found_BE = dense_scores(edges, keep_M, sources_B, asked_BD, weights, takes, evidence)
            if found_BE is not None:
                return found_BE
        reached, x_AD = self.states(edges, keep_M, sources_B, given, reached=reached)
        return self.link_head.answers(x_AD, given.asked_BD, reached)

    def pairs(
        self,
        edges: Edges,
        keep_M: Tensor,
        heads_B: Tensor,
        tails_B: Tensor,
        reached: Reach | Kept | None = None,
    ) -> Tensor:
        """Returns (B, R) scores of all relations between heads and tails, 0 without a path."""
        assert self.relation_head is not None
        given = self.condition(torch.full_like(heads_B, 2 * edges.n_relations), None)
        reached, x_AD = self.states(edges, keep_M, heads_B, given, tails_B, reached)
        rows_B = reached.at(tails_B)
        x_BD = x_AD[rows_B.clamp(min=0)] * (rows_B >= 0)[:, None]
        rows = torch.arange(len(heads_B), device=heads_B.device)
        scores_BR: Tensor = self.relation_head(x_BD, given.asked_BD, rows)
        return scores_BR


class Round(Hop):
    """A hop with relations from a table."""

    def __init__(self, n_kinds: int, dim: int) -> None:
        nn.Module.__init__(self)  # `take` comes last: the order of draws is that of older models
        self.relations = nn.Parameter(torch.randn(n_kinds, dim))
        self.asked, self.carried = nn.Linear(dim, dim), nn.Linear(dim, dim, bias=False)
        self.mixed = nn.Linear(dim, dim, bias=False)
        self.take = nn.Linear(2 * dim, dim, bias=False)

    def weights(self, asked_BD: Tensor, relations_RD: Tensor) -> Tensor:
        """Returns (B, 2 R, D): the factors of messages, per query and relation of the edge."""
        mixed = F.relu(self.asked(asked_BD)[:, None] + self.carried(relations_RD))
        weights: Tensor = self.relations + self.mixed(mixed)
        return weights


@final
class TableBridge(Bridge):
    """Bridges with a table of relation vectors, for a fixed set of relations."""

    def __init__(
        self, n_relations: int, dim: int, n_hops: int, *, link: bool = True, relation: bool = False
    ) -> None:
        super().__init__()
        kinds, self.dim, self.pair_hops = 2 * n_relations, dim, n_hops
        self.asked = nn.Embedding(kinds + relation, dim)  # the last one: relation queries
        self.relations = nn.Parameter(torch.randn(kinds, dim))
        self.rounds = nn.ModuleList(Round(kinds, dim) for _ in range(n_hops))
        self.link_head = Evidence(dim, 1) if link else None
        self.relation_head = Evidence(dim, n_relations) if relation else None

    def condition(self, kinds_B: Tensor, relations: RelationVectors | None) -> Conditions:
        asked_BD = self.asked(kinds_B)
        weights = []
        for hop in self.rounds:
            assert isinstance(hop, Round)
            weights.append(hop.weights(asked_BD, self.relations))
        return Conditions(asked_BD, weights)


class EncodedRound(Hop):
    """A hop with relation vectors that are computed from the graph."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.weights = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim))


@final
class EncodedBridge(Bridge):
    """Bridges with relation vectors of a `RelationEncoder`, for any set of relations."""

    half_messages = True

    def __init__(self, dim: int, n_hops: int, pair_hops: int) -> None:
        super().__init__()
        self.dim, self.pair_hops = dim, min(pair_hops, n_hops)
        self.asked = nn.Linear(dim, dim)
        self.rounds = nn.ModuleList(EncodedRound(dim) for _ in range(n_hops))
        self.link_head, self.relation_head = Evidence(dim, 1), Evidence(dim, 1)

    def condition(self, kinds_B: Tensor, relations: RelationVectors | None) -> Conditions:
        assert relations is not None
        _, vectors_QKD, rows_B = relations(kinds_B)
        own_BD = vectors_QKD[rows_B, kinds_B]
        weights = []
        for hop in self.rounds:
            assert isinstance(hop, EncodedRound)
            weights.append(hop.weights(vectors_QKD)[rows_B])
        return Conditions(self.asked(own_BD), weights)

    def relations(
        self, edges: Edges, keep_M: Tensor, heads_B: Tensor, tails_B: Tensor, kinds_BC: Tensor,
        relations: RelationVectors, reached: Reach | Kept | None = None,
    ) -> Tensor:  # fmt: skip
        """Returns (B, C) scores of some relations between heads and tails, 0 without a path.

        Each relation is a query of its own, along paths of up to `pair_hops` edges.
        """
        b, c = kinds_BC.shape
        if reached is None:
            reached = self.reach(edges, keep_M, heads_B, tails_B)
        reached, sources_N = reached.repeated(c), heads_B.repeat_interleave(c)
        given = self.condition(kinds_BC.flatten(), relations)
        _, x_AD = self.states(edges, keep_M, sources_N, given, reached=reached)
        rows_N = reached.at(tails_B.repeat_interleave(c))
        x_ND = x_AD[rows_N.clamp(min=0)] * (rows_N >= 0)[:, None]
        numbers, head = torch.arange(b * c, device=heads_B.device), self.relation_head
        assert head is not None
        return head(x_ND, given.asked_BD, numbers).view(b, c)  # type: ignore[no-any-return]
