"""The training graph as tensors: adjacency in both directions and sparse relational contexts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pathe.core.tensors import Tensors


@dataclass(frozen=True)
class Adjacency(Tensors):
    """Edges in one direction, sorted by (entity, relation, neighbour): compressed sparse rows.

    Entity e owns slots offsets_E1[e] to offsets_E1[e + 1].
    """

    offsets_E1: Tensor  # int64
    neighbours_M: Tensor  # int32
    relations_M: Tensor  # int32
    triples_M: Tensor  # int32: the id (row) of each slot's training triple

    @property
    def n_entities(self) -> int:
        return len(self.offsets_E1) - 1

    @property
    def degrees_E(self) -> Tensor:
        return self.offsets_E1.diff()


@dataclass(frozen=True)
class Contexts(Tensors):
    """Relation counts per entity in one direction (its relational context), as sparse rows."""

    offsets_E1: Tensor  # int64
    relations_P: Tensor  # int32
    counts_P: Tensor  # int32


@dataclass(frozen=True)
class Graph(Tensors):
    """A directed multi-relational graph, built from training triples only."""

    n_entities: int
    n_relations: int
    outgoing: Adjacency
    incoming: Adjacency
    out_contexts: Contexts
    in_contexts: Contexts

    @property
    def n_triples(self) -> int:
        return len(self.outgoing.triples_M)

    @property
    def device(self) -> torch.device:
        return self.outgoing.offsets_E1.device

    @property
    def triples_M3(self) -> Tensor:
        """Training triples as int32, in the order of the outgoing slots."""
        edges = self.outgoing
        heads_M = owners(edges.offsets_E1).int()
        return torch.stack([heads_M, edges.relations_M, edges.neighbours_M], 1)

    @property
    def degrees_E(self) -> Tensor:
        """Edges per entity, incoming and outgoing."""
        return self.outgoing.degrees_E + self.incoming.degrees_E


def build_graph(triples_M3: Tensor, n_entities: int, n_relations: int) -> Graph:
    """Builds the graph of (head, relation, tail) ids, which must be sorted and unique."""
    check_triples(triples_M3, n_entities, n_relations)
    heads_M, relations_M, tails_M = triples_M3.int().t().contiguous()
    order_M = sort_order(tails_M.long() * n_relations + relations_M, n_entities * n_relations)
    outgoing = Adjacency(
        _offsets(heads_M, n_entities),
        tails_M,
        relations_M,
        torch.arange(len(heads_M), dtype=torch.int32, device=heads_M.device),
    )
    incoming = Adjacency(
        _offsets(tails_M, n_entities), heads_M[order_M], relations_M[order_M], order_M.int()
    )
    return Graph(
        n_entities,
        n_relations,
        outgoing,
        incoming,
        _contexts(outgoing, n_relations),
        _contexts(incoming, n_relations),
    )


def merge(first: Adjacency, second: Adjacency, n_relations: int) -> Adjacency:
    """Merges two adjacencies per entity: the first's edges, then the second's as r + R."""
    owners_M = torch.cat([owners(side.offsets_E1) for side in (first, second)])
    order_M = owners_M.argsort(stable=True)

    def merged(one_M: Tensor, other_M: Tensor) -> Tensor:
        return torch.cat([one_M, other_M])[order_M]

    return Adjacency(
        first.offsets_E1 + second.offsets_E1,
        merged(first.neighbours_M, second.neighbours_M),
        merged(first.relations_M, second.relations_M + n_relations),
        merged(first.triples_M, second.triples_M),
    )


def check_triples(triples_M3: Tensor, n_entities: int, n_relations: int) -> None:
    """Raises a ValueError if ids are out of range, or triples unsorted or repeated."""
    bounds = torch.tensor([n_entities, n_relations, n_entities], device=triples_M3.device)
    if not ((triples_M3 >= 0) & (triples_M3 < bounds)).all():
        raise ValueError(f"ids out of range for {n_entities} entities, {n_relations} relations")
    (h, r, t), (h2, r2, t2) = triples_M3[:-1].unbind(1), triples_M3[1:].unbind(1)
    if not ((h < h2) | (h == h2) & ((r < r2) | (r == r2) & (t < t2))).all():
        raise ValueError("triples must be sorted and unique: see data.triples.unique_triples")


def sort_order(keys_M: Tensor, bound: int) -> Tensor:
    """Returns the stable argsort of keys in [0, bound); faster if key and row fit 63 bits."""
    n = len(keys_M)
    if bound * max(n, 1) >= 1 << 63:
        return keys_M.argsort(stable=True)
    codes_M = keys_M * n + torch.arange(n, device=keys_M.device)
    if codes_M.device.type == "cpu":  # faster: NumPy's sort is vectorised (SIMD)
        return torch.from_numpy(np.sort(codes_M.numpy())) % max(n, 1)
    return codes_M.sort().values % max(n, 1)


def owners(offsets_E1: Tensor, n_slots: int | None = None) -> Tensor:
    """Returns the entity of each slot; passing `n_slots` saves a GPU synchronisation."""
    entities_E = torch.arange(len(offsets_E1) - 1, device=offsets_E1.device)
    return entities_E.repeat_interleave(offsets_E1.diff(), output_size=n_slots)


def _offsets(owners_M: Tensor, n_entities: int) -> Tensor:
    counts_E = torch.bincount(owners_M, minlength=n_entities)
    return torch.cat([counts_E.new_zeros(1), counts_E.cumsum(0)])


def _contexts(adjacency: Adjacency, n_relations: int) -> Contexts:
    keys_M = owners(adjacency.offsets_E1) * n_relations + adjacency.relations_M
    keys_P, counts_P = keys_M.unique_consecutive(return_counts=True)
    offsets_E1 = _offsets(keys_P // n_relations, len(adjacency.offsets_E1) - 1)
    return Contexts(offsets_E1, (keys_P % n_relations).int(), counts_P.int())
