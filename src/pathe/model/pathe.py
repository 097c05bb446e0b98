"""The whole model: projector, path encoder, aggregator, heads, bridges.

Encode once, score many: `encode` turns paths into a vector per entity, and the heads score those
vectors only.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

from pathe.graph.paths import N_POSITIONS
from pathe.model.aggregators import Aggregator
from pathe.model.bridge import Bridge
from pathe.model.encoder import PathEncoder, Table
from pathe.model.heads import Head, PairwiseHead, RelationHead
from pathe.model.projector import NodeProjector, Surroundings

Model = TypeVar("Model", bound=nn.Module)


@dataclass(frozen=True)
class EntityBatch:
    """The inputs to encode U entities: their paths, and the contexts of the V entities on them.

    tokens_UKT index rows of [V entities | R relations], -1 for padding; positions (T, or U x K x T)
    count from 1.
    """

    contexts: Surroundings | None  # None if `encode` gets a table
    tokens_UKT: Tensor
    positions: Tensor
    focus: int


class PathE(nn.Module):
    """The PathE model. Its size depends on the number of relations, not of entities.

    Each task needs its head; `bridge` is optional.
    """

    def __init__(
        self,
        projector: NodeProjector,
        relations: nn.Embedding,
        encoder: PathEncoder,
        aggregator: Aggregator,
        link_head: Head | None,
        relation_head: RelationHead | None,
        bridge: Bridge | None,
    ) -> None:
        super().__init__()
        self.projector, self.relations, self.encoder = projector, relations, encoder
        self.aggregator, self.link_head, self.relation_head = aggregator, link_head, relation_head
        self.bridge = bridge

    @property
    def n_relations(self) -> int:
        return self.projector.n_relations

    @property
    def head(self) -> Head:
        """The link head; it includes the aggregator if that is pairwise."""
        assert self.link_head is not None
        if self.aggregator.pairwise:
            return PairwiseHead(self.link_head, self.aggregator.pair)
        return self.link_head

    def table(self, around: Surroundings) -> Table:
        """Returns the table of all tokens: projected entities, then relations."""
        nodes_VD = self.projector(*around)
        return self.encoder.table(torch.cat([nodes_VD, self.relations.weight]))

    def encode(self, batch: EntityBatch, table: Table | None = None) -> Tensor:
        """Returns z, a row per entity: a vector, or one per path if the aggregator is pairwise."""
        z: Tensor = self.aggregator(self.read(batch, table))
        return z

    def read(self, batch: EntityBatch, table: Table | None = None) -> Tensor:
        """Returns x_UKD, a vector per path."""
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

    def link_scores(self, heads: Tensor, relations_B: Tensor, tails: Tensor) -> Tensor:
        """Returns (B) scores of triples; heads and tails are rows of z."""
        head = self.head
        query = head.query(heads, relations_B, "tail")
        return head.score(query, head.candidates(tails, "tail")[:, None]).squeeze(1)

    def relation_scores(self, heads: Tensor, tails: Tensor) -> Tensor:
        """Returns (B, R) scores of all relations per pair; heads and tails are rows of z."""
        assert self.relation_head is not None
        return self.relation_head(*self.aggregator.pair(heads, tails))  # type: ignore[no-any-return]


def on_device(model: Model, device: torch.device | str) -> Model:
    """Returns the model on a device: itself, or a copy if it is on another one."""
    current, wanted = next(model.parameters()).device, torch.device(device)
    if current.type == wanted.type and wanted.index in (None, current.index):
        return model
    return copy.deepcopy(model).to(device)


def count_parameters(model: nn.Module) -> int:
    """Counts the model's parameters."""
    return sum(p.numel() for p in model.parameters())


def published_count(
    n_relations: int, dim: int, feedforward: int, n_layers: int, aggregator_layers: int
) -> int:
    """Counts parameters as the paper does: with both heads and two spare relations.

    0 aggregator layers stand for the mean.
    """
    r, d, f = n_relations, dim, feedforward
    aggregator = aggregator_layers * (6 * d * d + 10 * d) + d if aggregator_layers else 0
    return (
        (r + 2) * d + r * d + N_POSITIONS * d
        + n_layers * (4 * d * d + 9 * d + 2 * d * f + f) + 2 * d
        + 2 * ((r + 2) * d + d) + (4 * d * d + 2 * d) + (2 * d * d + d)
        + (2 * d * r + r) + (3 * d * d + 2 * d + 1) + aggregator
    )  # fmt: skip
