"""PathE's modules: projector, path encoder, aggregators, heads, bridges. Tensors in, tensors out.

Encode entities once, score many times: `encode` turns paths into one vector an entity, and both
heads read nothing but those vectors.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pathe.aggregators import LSTMAggregator, MeanAggregator, TransformerAggregator
from pathe.bridge import Bridge
from pathe.encoder import PathEncoder, Table, dropout
from pathe.known import Side
from pathe.paths import N_POSITIONS
from pathe.scores import relu_dot


@dataclass(frozen=True)
class Bag:
    """Relational contexts of V entities in one direction: entity v owns offsets_V1[v:v + 2]."""

    offsets_V1: Tensor
    relations_P: Tensor
    counts_P: Tensor  # float


@dataclass(frozen=True)
class Neighbours:
    """Neighbours of V entities in one direction, as rows of W; the weights of each add up to 1."""

    offsets_V1: Tensor
    rows_P: Tensor
    weights_P: Tensor  # float


class Surroundings(NamedTuple):
    """What it takes to project V entities: contexts of W, and the rows of V and neighbours in W."""

    incoming: Bag
    outgoing: Bag
    own_V: Tensor | None = None  # None: V is W
    neighbours: tuple[Neighbours, Neighbours] | None = None  # incoming, outgoing


@dataclass(frozen=True)
class EntityBatch:
    """What it takes to encode U entities: paths over V entities and the V entities' contexts.

    tokens_UKT index rows of [V entities | R relations], -1 where padded; positions (T or UKT)
    count from 1.
    """

    contexts: Surroundings | None  # None where a table is given
    tokens_UKT: Tensor
    positions: Tensor
    focus: int


class ContextLinear(nn.Module):
    """A linear layer on sparse relation counts: exactly `counts @ weight + bias`, never dense."""

    def __init__(self, n_relations: int, dim: int, log_counts: bool, dropout: float) -> None:
        super().__init__()
        self.log_counts, self.dropout = log_counts, dropout
        bound = n_relations**-0.5
        self.weight = nn.Parameter(torch.empty(n_relations, dim).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(dim).uniform_(-bound, bound))

    def forward(self, bag: Bag) -> Tensor:
        counts_P = bag.counts_P.log1p() if self.log_counts else bag.counts_P
        weights_P = dropout(counts_P, self.dropout, self.training)
        bags_VD = F.embedding_bag(
            bag.relations_P,
            self.weight,
            bag.offsets_V1,
            mode="sum",
            per_sample_weights=weights_P.to(self.weight.dtype),
            include_last_offset=True,
        )
        return bags_VD + self.bias


class NodeProjector(nn.Module):
    """Relational contexts -> a vector an entity.

    One layer per direction (the published counts) or two (the paper's text), then a fusing MLP;
    refined, an entity also takes in the mean of its neighbours, those before it and those after.
    """

    def __init__(
        self,
        n_relations: int,
        dim: int,
        *,
        layers: int,
        log_counts: bool,
        dropout: float,
        refine: bool = False,
    ) -> None:
        super().__init__()

        def direction() -> nn.Module:
            first = ContextLinear(n_relations, dim, log_counts, dropout)
            return first if layers == 1 else nn.Sequential(first, nn.ReLU(), nn.Linear(dim, dim))

        self.incoming, self.outgoing = direction(), direction()
        self.fuse = nn.Sequential(
            nn.Linear(2 * dim, 2 * dim), nn.LeakyReLU(), nn.Linear(2 * dim, dim), nn.LeakyReLU()
        )
        self.refine = nn.Linear(3 * dim, dim) if refine else None

    def forward(
        self,
        incoming: Bag,
        outgoing: Bag,
        own_V: Tensor | None = None,
        neighbours: tuple[Neighbours, Neighbours] | None = None,
    ) -> Tensor:
        both = torch.cat([self.incoming(incoming), self.outgoing(outgoing)], -1)
        x_WD: Tensor = self.fuse(both)
        if self.refine is None:
            return x_WD
        assert neighbours is not None
        x_VD = x_WD if own_V is None else F.embedding(own_V, x_WD)
        around = [
            F.embedding_bag(
                side.rows_P,
                x_WD,
                side.offsets_V1,
                mode="sum",
                per_sample_weights=side.weights_P.to(x_WD.dtype),
                include_last_offset=True,
            )
            for side in neighbours
        ]
        return x_VD + F.leaky_relu(self.refine(torch.cat([x_VD, *around], -1)))


class LinkHead(nn.Module):
    """w2 . relu(W1 [h|r|t] + b1) + b2, with W1 applied to h, r and t apart.

    So a query is one vector, a candidate is one vector, and [h|r|t] is never built.
    """

    def __init__(self, n_relations: int, dim: int) -> None:
        super().__init__()
        self.relations = nn.Embedding(n_relations, dim)
        self.first, self.second = nn.Linear(3 * dim, dim), nn.Linear(dim, 1)

    def query(self, known_BD: Tensor, relations_B: Tensor, side: Side) -> Tensor:
        """The part of a score that is known; `side` is the one asked for."""
        parts = self.first.weight.chunk(3, 1)
        known = F.linear(known_BD, parts[2] if side == "head" else parts[0])
        asked_RD = F.linear(self.relations.weight, parts[1], self.first.bias)
        return known + F.embedding(relations_B, asked_RD)  # an index's threads race, backward

    def candidate(self, z_CD: Tensor, side: Side) -> Tensor:
        """The part of a score that an entity brings as the answer on `side`."""
        return F.linear(z_CD, self.first.weight.chunk(3, 1)[0 if side == "head" else 2])

    def score(self, query: Tensor, candidate: Tensor) -> Tensor:
        """Scores of query and candidate vectors (..., D) that broadcast."""
        return self.second(F.relu(query + candidate)).squeeze(-1)  # type: ignore[no-any-return]

    def score_all(self, query_BD: Tensor, candidates_CD: Tensor) -> Tensor:
        """(B, C) scores of every candidate for every query."""
        return relu_dot(query_BD, candidates_CD, self.second.weight[0]) + self.second.bias


class RelationHead(nn.Module):
    """A linear layer on [h|t]: a score a relation."""

    def __init__(self, n_relations: int, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(2 * dim, n_relations)

    def forward(self, heads_BD: Tensor, tails_BD: Tensor) -> Tensor:
        return self.linear(torch.cat([heads_BD, tails_BD], -1))  # type: ignore[no-any-return]


class PathE(nn.Module):
    """The whole model. Its size depends on the relations, never on the entities."""

    def __init__(
        self,
        n_relations: int,
        *,
        dim: int = 64,
        projector_layers: int = 1,
        log_counts: bool = False,
        context_dropout: float = 0.5,
        refine: bool = False,
        turned: bool = False,
        n_heads: int = 2,
        n_layers: int = 1,
        feedforward: int = 256,
        dropout: float = 0.1,
        aggregator: str = "transformer",
        aggregator_layers: int = 1,
        bridge_dim: int = 0,
        bridge_hops: int = 4,
        link: bool = True,
        relation: bool = True,
    ) -> None:
        super().__init__()
        self.n_relations = n_relations
        self.joint = aggregator == "transformer-joint"
        self.projector = NodeProjector(
            n_relations,
            dim,
            layers=projector_layers,
            log_counts=log_counts,
            dropout=context_dropout,
            refine=refine,
        )
        self.relations = nn.Embedding(n_relations * (1 + turned), dim)  # on paths
        self.encoder = PathEncoder(dim, n_heads, n_layers, feedforward, dropout)
        self.aggregator: nn.Module
        match aggregator:
            case "mean":
                self.aggregator = MeanAggregator()
            case "lstm":
                self.aggregator = LSTMAggregator(dim)
            case "transformer":
                self.aggregator = TransformerAggregator(dim, aggregator_layers, dropout)
            case "transformer-joint":
                self.aggregator = TransformerAggregator(dim, aggregator_layers, dropout, n_tokens=2)
            case _:
                raise ValueError(f"no aggregator {aggregator!r}")
        self.link_head = LinkHead(n_relations, dim) if link else None
        self.relation_head = RelationHead(n_relations, dim) if relation else None
        self.bridge = (
            Bridge(n_relations, bridge_dim, bridge_hops, link=link, relation=relation)
            if bridge_dim
            else None
        )

    def table(self, around: Surroundings) -> Table:
        """What paths are read from: the projected entities, then the relations."""
        nodes_VD = self.projector(*around)
        return self.encoder.table(torch.cat([nodes_VD, self.relations.weight]))

    def encode(self, batch: EntityBatch, table: Table | None = None) -> Tensor:
        """z_UD, a vector an entity; with the joint aggregator z_UKD, one a path."""
        return self.aggregate(self.read(batch, table))

    def read(self, batch: EntityBatch, table: Table | None = None) -> Tensor:
        """x_UKD, a vector a path."""
        u, k, t = batch.tokens_UKT.shape
        if table is None:
            assert batch.contexts is not None
            table = self.table(batch.contexts)
        encoded_ND = self.encoder(
            table,
            batch.tokens_UKT.view(u * k, t),
            batch.positions.view(-1, t) if batch.positions.dim() > 1 else batch.positions,
            batch.focus,
        )
        x_UKD: Tensor = encoded_ND.view(u, k, encoded_ND.shape[-1])
        return x_UKD

    def aggregate(self, x_UKD: Tensor) -> Tensor:
        """z of entities from their paths' vectors."""
        z: Tensor = x_UKD if self.joint else self.aggregator(x_UKD)
        return z

    def link_scores(self, heads: Tensor, relations: Tensor, tails: Tensor) -> Tensor:
        """(B) scores of triples; heads and tails are rows of z."""
        assert self.link_head is not None
        heads, tails = self._pair(heads, tails)
        query = self.link_head.query(heads, relations, "tail")
        return self.link_head.score(query, self.link_head.candidate(tails, "tail"))

    def relation_scores(self, heads: Tensor, tails: Tensor) -> Tensor:
        """(B, R) scores of every relation for pairs; heads and tails are rows of z."""
        assert self.relation_head is not None
        return self.relation_head(*self._pair(heads, tails))  # type: ignore[no-any-return]

    def candidates(self, z_C: Tensor, side: Side) -> Tensor:
        """What rows of z bring as answers on `side`: made once, scored many times."""
        assert self.link_head is not None
        return z_C if self.joint else self.link_head.candidate(z_C, side)

    def candidate_scores(
        self, known: Tensor, relations_B: Tensor, candidates: Tensor, side: Side
    ) -> Tensor:
        """Scores of `candidates`: the same C for every query (B x C), or its own N (B x N)."""
        assert self.link_head is not None
        if self.joint:
            return self._joint_candidate_scores(known, relations_B, candidates, side)
        query_BD = self.link_head.query(known, relations_B, side)
        if candidates.dim() == 2:
            return self.link_head.score_all(query_BD, candidates)
        return self.link_head.score(query_BD[:, None], candidates)

    def _joint_candidate_scores(
        self, known_BKD: Tensor, relations_B: Tensor, others: Tensor, side: Side
    ) -> Tensor:
        """Every pair through the aggregator: for small graphs."""
        b, c = len(known_BKD), others.shape[-3]
        known = known_BKD[:, None].expand(b, c, *known_BKD.shape[1:]).flatten(0, 1)
        others = others.expand(b, c, *others.shape[-2:]).flatten(0, 1)
        heads, tails = (others, known) if side == "head" else (known, others)
        return self.link_scores(heads, relations_B.repeat_interleave(c), tails).view(b, c)

    def _pair(self, heads: Tensor, tails: Tensor) -> tuple[Tensor, Tensor]:
        if not self.joint:
            return heads, tails
        assert isinstance(self.aggregator, TransformerAggregator)
        return self.aggregator.joint(heads, tails)


def on_device(model: PathE, device: torch.device | str) -> PathE:
    """The model, or a copy of it where it isn't there yet: who else uses it isn't disturbed."""
    here, there = model.relations.weight.device, torch.device(device)
    if here.type == there.type and there.index in (None, here.index):
        return model
    return copy.deepcopy(model).to(device)


def count_parameters(model: nn.Module) -> int:
    """The parameters the model really has."""
    return sum(p.numel() for p in model.parameters())


def published_count(
    n_relations: int, dim: int, feedforward: int, n_layers: int, aggregator_layers: int
) -> int:
    """The paper's way of counting: both heads, two spare relations (0 aggregator layers: mean)."""
    r, d, f = n_relations, dim, feedforward
    aggregator = aggregator_layers * (6 * d * d + 10 * d) + d if aggregator_layers else 0
    return (
        (r + 2) * d + r * d + N_POSITIONS * d
        + n_layers * (4 * d * d + 9 * d + 2 * d * f + f) + 2 * d
        + 2 * ((r + 2) * d + d) + (4 * d * d + 2 * d) + (2 * d * d + d)
        + (2 * d * r + r) + (3 * d * d + 2 * d + 1) + aggregator
    )  # fmt: skip
