"""Training triples that a training step holds out, and their slots in contexts and adjacency."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from pathe.core.tensors import Tensors, expand
from pathe.graph.adjacency import Contexts, Graph


@dataclass(frozen=True)
class HeldOut(Tensors):
    """Training triples to leave out, as ids or as a mask over all training triples.

    Ids are cheaper if they are few; a mask has a fixed shape, so a step needs no GPU
    synchronisation.
    """

    ids_B: Tensor | None = None
    mask_M: Tensor | None = None

    def __post_init__(self) -> None:
        if (self.ids_B is None) == (self.mask_M is None):
            raise ValueError("held-out triples are given as ids or as a mask, one of the two")

    def mask(self, n_triples: int) -> Tensor:
        """Returns the mask over all training triples."""
        if self.ids_B is not None:
            mask_M = torch.zeros(n_triples, dtype=torch.bool, device=self.ids_B.device)
            return mask_M.index_fill_(0, self.ids_B.long(), True)
        assert self.mask_M is not None
        if self.mask_M.shape != (n_triples,):
            raise ValueError(f"expected a mask of {n_triples}, got {tuple(self.mask_M.shape)}")
        return self.mask_M

    def ids(self) -> Tensor:
        """Returns the ids; synchronises with the GPU if a mask was given."""
        if self.ids_B is not None:
            return self.ids_B
        assert self.mask_M is not None
        return self.mask_M.nonzero().squeeze(1)


class HeldOutSlots(NamedTuple):
    """Context entries and adjacency slots of triples; `times` is 1.0 if held out, else 0.0."""

    entries: Tensor
    slots: Tensor
    times: Tensor


@dataclass(frozen=True)
class ContextSlots(Tensors):
    """The context entry and the adjacency slot of each training triple, in both directions."""

    outgoing_M: Tensor  # the context entry that counts it
    incoming_M: Tensor
    out_places_M: Tensor  # its slot in the adjacency
    in_places_M: Tensor

    def of(self, held_out: HeldOut) -> tuple[HeldOutSlots, HeldOutSlots]:
        """Returns the slots of held-out triples among incoming and among outgoing edges."""
        sides = (self.incoming_M, self.in_places_M), (self.outgoing_M, self.out_places_M)
        if (mask_M := held_out.mask_M) is not None:
            incoming, outgoing = (HeldOutSlots(*side, mask_M.float()) for side in sides)
        else:
            ids_B = held_out.ids()
            once = torch.ones_like(ids_B, dtype=torch.float32)
            incoming, outgoing = (HeldOutSlots(e[ids_B], s[ids_B], once) for e, s in sides)
        return incoming, outgoing


def context_slots(graph: Graph) -> ContextSlots:
    """Finds the context entry and the slot of each training triple, in both directions."""

    def entries(contexts: Contexts, triples_M: Tensor) -> Tensor:
        entries_P = torch.arange(len(contexts.counts_P), device=triples_M.device)
        entry_M = entries_P.repeat_interleave(contexts.counts_P)
        return torch.empty_like(entry_M).index_copy_(0, triples_M.long(), entry_M)

    def places(triples_M: Tensor) -> Tensor:
        slots_M = torch.arange(len(triples_M), device=triples_M.device)
        return torch.empty_like(slots_M).index_copy_(0, triples_M.long(), slots_M)

    return ContextSlots(
        entries(graph.out_contexts, graph.outgoing.triples_M),
        entries(graph.in_contexts, graph.incoming.triples_M),
        places(graph.outgoing.triples_M),
        places(graph.incoming.triples_M),
    )


@dataclass(frozen=True)
class Pairs(Tensors):
    """Triples by pair of entities: pair p has order_M[offsets_P1[p] : offsets_P1[p + 1]]."""

    pair_M: Tensor  # the pair of each triple
    order_M: Tensor
    offsets_P1: Tensor

    def of_same(self, ids_B: Tensor) -> Tensor:
        """Returns the unique ids of all triples that connect the same pairs as the given ones."""
        pairs_B = self.pair_M[ids_B].unique()
        starts_B = self.offsets_P1[pairs_B]
        return self.order_M[expand(starts_B, self.offsets_P1[pairs_B + 1] - starts_B)[1]]

    def flag_same(self, ids_B: Tensor) -> Tensor:
        """Returns `of_same` as a mask over all triples, without a GPU synchronisation."""
        flags_P = torch.zeros_like(self.offsets_P1[1:], dtype=torch.bool)
        return flags_P.index_fill_(0, self.pair_M[ids_B], True)[self.pair_M]


def by_pair(triples_M3: Tensor, n_entities: int) -> Pairs:
    """Groups triples by their two entities, whichever of them is the head."""
    ends_M2 = triples_M3[:, [0, 2]].long().sort(1).values
    codes_M = ends_M2[:, 0] * n_entities + ends_M2[:, 1]
    _, pair_M, counts_P = codes_M.unique(return_inverse=True, return_counts=True)
    return Pairs(pair_M, pair_M.argsort(stable=True), F.pad(counts_P.cumsum(0), (1, 0)))
