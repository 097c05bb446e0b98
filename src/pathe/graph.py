"""The training graph as tensors: adjacency in both directions and sparse relational contexts."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

Holder = TypeVar("Holder", bound="Tensors")


class Tensors:
    """Frozen holders of tensors: move them together, count their bytes."""

    def to(self: Holder, device: torch.device | str) -> Holder:
        moved = {
            f.name: v.to(device) if isinstance(v := getattr(self, f.name), Tensor | Tensors) else v
            for f in fields(self)  # type: ignore[arg-type]
        }
        return type(self)(**moved)

    @property
    def n_bytes(self) -> int:
        values = [getattr(self, f.name) for f in fields(self)]  # type: ignore[arg-type]
        return sum(
            v.numel() * v.element_size() if isinstance(v, Tensor) else v.n_bytes
            for v in values
            if isinstance(v, Tensor | Tensors)
        )


@dataclass(frozen=True)
class Adjacency(Tensors):
    """Edges grouped by the entity a walk stands on, sorted by (entity, relation, neighbour).

    Entity e owns slots offsets_E1[e] to offsets_E1[e + 1].
    """

    offsets_E1: Tensor  # int64
    neighbours_M: Tensor  # int32
    relations_M: Tensor  # int32
    triples_M: Tensor  # int32: the row of the training triple behind each slot

    @property
    def n_entities(self) -> int:
        return len(self.offsets_E1) - 1

    @property
    def degrees_E(self) -> Tensor:
        return self.offsets_E1.diff()


@dataclass(frozen=True)
class Contexts(Tensors):
    """How often each relation touches each entity in one direction, as sparse rows."""

    offsets_E1: Tensor  # int64
    relations_P: Tensor  # int32
    counts_P: Tensor  # int32


@dataclass(frozen=True)
class Graph(Tensors):
    """A directed multi-relational graph; built from training triples and nothing else."""

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


def build_graph(triples_M3: Tensor, n_entities: int, n_relations: int) -> Graph:
    """Adjacency and contexts of (head, relation, tail) triples, sorted and unique as read."""
    _check(triples_M3, n_entities, n_relations)
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


def _check(triples_M3: Tensor, n_entities: int, n_relations: int) -> None:
    bounds = torch.tensor([n_entities, n_relations, n_entities], device=triples_M3.device)
    if not ((triples_M3 >= 0) & (triples_M3 < bounds)).all():
        raise ValueError(f"ids out of range for {n_entities} entities, {n_relations} relations")
    (h, r, t), (h2, r2, t2) = triples_M3[:-1].unbind(1), triples_M3[1:].unbind(1)
    if not ((h < h2) | (h == h2) & ((r < r2) | (r == r2) & (t < t2))).all():
        raise ValueError("triples must be sorted and unique: see triples.unique_triples")


def sort_order(keys_M: Tensor, bound: int) -> Tensor:
    """The stable order of keys in [0, bound); one plain sort where key and row fit 63 bits."""
    n = len(keys_M)
    if bound * max(n, 1) >= 1 << 63:
        return keys_M.argsort(stable=True)
    codes_M = keys_M * n + torch.arange(n, device=keys_M.device)
    if codes_M.device.type == "cpu":  # numpy's sort uses the CPU's vector units
        return torch.from_numpy(np.sort(codes_M.numpy())) % max(n, 1)
    return codes_M.sort().values % max(n, 1)


def owners(offsets_E1: Tensor) -> Tensor:
    """The entity that owns each slot."""
    entities_E = torch.arange(len(offsets_E1) - 1, device=offsets_E1.device)
    return entities_E.repeat_interleave(offsets_E1.diff())


def expand(starts_B: Tensor, sizes_B: Tensor) -> tuple[Tensor, Tensor]:
    """Slots start, start + 1, ... of every row: (row, slot) pairs in row order."""
    rows_N = torch.arange(len(sizes_B), device=sizes_B.device).repeat_interleave(sizes_B)
    ends_B = sizes_B.cumsum(0)
    slots_N = (
        torch.arange(len(rows_N), device=sizes_B.device) + (starts_B - ends_B + sizes_B)[rows_N]
    )
    return rows_N, slots_N


def _offsets(owners_M: Tensor, n_entities: int) -> Tensor:
    counts_E = torch.bincount(owners_M, minlength=n_entities)
    return torch.cat([counts_E.new_zeros(1), counts_E.cumsum(0)])


def _contexts(adjacency: Adjacency, n_relations: int) -> Contexts:
    keys_M = owners(adjacency.offsets_E1) * n_relations + adjacency.relations_M
    keys_P, counts_P = keys_M.unique_consecutive(return_counts=True)
    offsets_E1 = _offsets(keys_P // n_relations, len(adjacency.offsets_E1) - 1)
    return Contexts(offsets_E1, (keys_P % n_relations).int(), counts_P.int())
