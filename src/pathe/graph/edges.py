"""Edges in both directions for message passing."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from pathe.core.tensors import Tensors
from pathe.graph.adjacency import Graph, merge, owners
from pathe.graph.held_out import HeldOut

CHUNK = 128  # slots of a chunk


@dataclass(frozen=True)
class Chunks(Tensors):
    """Slots sorted by relation and split into chunks of at most `size`.

    Relation r owns chunks offsets_R1[r] to offsets_R1[r + 1].
    """

    size: int
    order_M: Tensor  # int32
    starts_C1: Tensor  # int64: positions in order_M
    offsets_R1: Tensor


@dataclass(frozen=True)
class Edges(Tensors):
    """Two edges per triple: relation r into the tail, relation r + R into the head.

    Entity e owns slots offsets_E1[e] to offsets_E1[e + 1].
    """

    n_relations: int
    offsets_E1: Tensor
    owners_M: Tensor  # int32: target entities
    neighbours_M: Tensor  # int32: source entities
    relations_M: Tensor  # int32, below 2 R
    triples_M: Tensor  # int64: the id (row) of each slot's training triple
    slots_N2: Tensor  # int64: the two slots of each training triple
    by_relation: Chunks

    @property
    def n_entities(self) -> int:
        return len(self.offsets_E1) - 1

    def keep(self, held_out: HeldOut | None = None) -> Tensor:
        """Returns a mask over the slots that is False for both slots of held-out triples."""
        if held_out is not None and held_out.mask_M is not None:
            return ~held_out.mask_M[self.triples_M]
        keep_M = torch.ones(len(self.relations_M), dtype=torch.bool, device=self.offsets_E1.device)
        if held_out is not None:
            keep_M[self.slots_N2[held_out.ids()].flatten()] = False
        return keep_M


def both_ways(graph: Graph) -> Edges:
    """Returns the edges of a graph in both directions."""
    n = graph.n_relations
    arriving = merge(graph.incoming, graph.outgoing, n)
    relations_M, triples_M = arriving.relations_M, arriving.triples_M.long()
    return Edges(
        n,
        arriving.offsets_E1,
        owners(arriving.offsets_E1).int(),
        arriving.neighbours_M,
        relations_M,
        triples_M,
        triples_M.argsort(stable=True).view(-1, 2),
        chunks_of(relations_M.argsort(stable=True), torch.bincount(relations_M, minlength=2 * n)),
    )


def chunks_of(order_M: Tensor, sizes_R: Tensor) -> Chunks:
    """Returns chunks of slots that are sorted by relation; sizes_R are the slots per relation."""
    return Chunks(CHUNK, order_M.int(), *chunk_places(sizes_R))


def chunk_places(sizes_R: Tensor, size: int = CHUNK) -> tuple[Tensor, Tensor]:
    """Returns where chunks start, and the first chunk of each relation, given their sizes."""
    n_chunks_R = (sizes_R + size - 1) // size
    offsets_R1 = F.pad(n_chunks_R.cumsum(0), (1, 0))
    first_R = sizes_R.cumsum(0) - sizes_R
    owner_C = torch.repeat_interleave(n_chunks_R)
    within_C = torch.arange(len(owner_C), device=sizes_R.device) - offsets_R1[owner_C]
    starts_C = first_R[owner_C] + within_C * size
    return torch.cat([starts_C, sizes_R.sum()[None]]), offsets_R1
