"""The node projector, which turns relational contexts into a vector per entity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pathe.model.encoder import dropout


@dataclass(frozen=True)
class Bag:
    """Contexts of V entities in one direction; v owns offsets_V1[v] to offsets_V1[v + 1]."""

    offsets_V1: Tensor
    relations_P: Tensor
    counts_P: Tensor  # float


@dataclass(frozen=True)
class Neighbours:
    """Neighbours of V entities in one direction, as rows of W; weights sum to 1 per entity."""

    offsets_V1: Tensor
    rows_P: Tensor
    weights_P: Tensor  # float


class Surroundings(NamedTuple):
    """The inputs to project V entities: contexts of W entities, V and their neighbours."""

    incoming: Bag
    outgoing: Bag
    own_V: Tensor | None = None  # rows of V in W; None if they are the same
    neighbours: tuple[Neighbours, Neighbours] | None = None  # incoming, outgoing


class ContextLinear(nn.Module):
    """A linear layer on sparse relation counts: `counts @ weight + bias`."""

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
    """Turns relational contexts into a vector per entity.

    One layer per direction (as in the paper's parameter counts) or two (as in its text), then an
    MLP over both. With `neighbours`, another layer adds the mean vectors of incoming and outgoing
    neighbours.
    """

    def __init__(
        self,
        n_relations: int,
        dim: int,
        *,
        layers: int,
        log_counts: bool,
        dropout: float,
        neighbours: bool,
    ) -> None:
        super().__init__()

        def direction() -> nn.Module:
            first = ContextLinear(n_relations, dim, log_counts, dropout)
            return first if layers == 1 else nn.Sequential(first, nn.ReLU(), nn.Linear(dim, dim))

        self.incoming, self.outgoing = direction(), direction()
        self.fuse = nn.Sequential(
            nn.Linear(2 * dim, 2 * dim), nn.LeakyReLU(), nn.Linear(2 * dim, dim), nn.LeakyReLU()
        )
        self.refine = nn.Linear(3 * dim, dim) if neighbours else None
        self.n_relations = n_relations

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
