"""The index of known triples: every filter of negatives and candidates asks here, in bulk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from pathe.graph import Tensors, expand
from pathe.twins import ONE_AT_A_TIME, twin

Side = Literal["head", "tail"]
NO_KEY = (1 << 63) - 1  # closes the sorted keys and codes, so that no search runs off their end


@dataclass(frozen=True)
class Lists(Tensors):
    """A sorted list of values for each of many int64 keys; the last key is NO_KEY, without any."""

    keys_G: Tensor  # int64, sorted
    offsets_G1: Tensor  # int64
    codes_V1: Tensor  # int64: group * n_values + value, sorted; NO_KEY last
    n_values: int

    def locate(self, keys_B: Tensor) -> tuple[Tensor, Tensor]:
        """Where each key's codes start, and how many it has."""
        group_B = torch.searchsorted(self.keys_G, keys_B)
        starts_B = self.offsets_G1[group_B]
        return starts_B, (self.offsets_G1[group_B + 1] - starts_B) * (
            self.keys_G[group_B] == keys_B
        )

    def find(self, keys_B: Tensor) -> tuple[Tensor, Tensor]:
        """Each key's (row, value) pairs, in row order; a key without values gives none."""
        rows_N, slots_N = expand(*self.locate(keys_B))
        return rows_N, self.codes_V1[slots_N] % self.n_values

    def close(self, open_BV: Tensor, keys_B: Tensor) -> Tensor:
        """Sets the flags of all values that are listed under a row's key to False, in place."""
        kernel: Any = twin("known", open_BV.device.type)
        if not hasattr(kernel, "close"):
            return open_BV.index_put_(self.find(keys_B), open_BV.new_zeros(()))
        kernel.close(open_BV, *self.locate(keys_B), self.codes_V1, self.n_values)
        return open_BV

    def listed(self, keys_B: Tensor, values: Tensor) -> Tensor:
        """(B, N): whether each of a row's values (N for all rows, or B x N) is under its key."""
        values_BN = values if values.dim() == 2 else values[None]
        kernel: Any = twin("known", values.device.type)
        if hasattr(kernel, "listed"):
            with ONE_AT_A_TIME:
                found_BN: Tensor = kernel.listed(
                    *self.locate(keys_B), self.codes_V1, self.n_values, values_BN
                )
            return found_BN
        group_B = torch.searchsorted(self.keys_G, keys_B)
        codes_BN = group_B[:, None] * self.n_values + values_BN
        found_BN = self.codes_V1[torch.searchsorted(self.codes_V1, codes_BN)] == codes_BN
        in_range_BN = (values_BN >= 0) & (values_BN < self.n_values)
        return found_BN & in_range_BN & (self.keys_G[group_B] == keys_B)[:, None]

    def contains(self, keys_B: Tensor, values_B: Tensor) -> Tensor:
        """Whether each value is listed under its key."""
        group_B = torch.searchsorted(self.keys_G, keys_B)
        codes_B = group_B * self.n_values + values_B
        found_B = self.codes_V1[torch.searchsorted(self.codes_V1, codes_B)] == codes_B
        in_range_B = (values_B >= 0) & (values_B < self.n_values)
        return found_B & in_range_B & (self.keys_G[group_B] == keys_B)


@dataclass(frozen=True)
class KnownTriples(Tensors):
    """(h, r) -> tails, (r, t) -> heads, (h, t) -> relations, for tensors of ids on any device."""

    n_entities: int
    n_relations: int
    by_head_relation: Lists
    by_relation_tail: Lists
    by_head_tail: Lists

    def answers(self, triples_B3: Tensor, side: Side) -> tuple[Lists, Tensor]:
        """The lists of known answers on a side, and each triple's key there."""
        heads_B, relations_B, tails_B = triples_B3.unbind(1)
        if side == "head":
            return self.by_relation_tail, _keys(tails_B, relations_B, self.n_relations)
        return self.by_head_relation, _keys(heads_B, relations_B, self.n_relations)

    def tails(self, heads_B: Tensor, relations_B: Tensor) -> tuple[Tensor, Tensor]:
        """The known tails of each (head, relation) as (row, tail) pairs."""
        return self.by_head_relation.find(_keys(heads_B, relations_B, self.n_relations))

    def heads(self, relations_B: Tensor, tails_B: Tensor) -> tuple[Tensor, Tensor]:
        """The known heads of each (relation, tail) as (row, head) pairs."""
        return self.by_relation_tail.find(_keys(tails_B, relations_B, self.n_relations))

    def relations(self, heads_B: Tensor, tails_B: Tensor) -> tuple[Tensor, Tensor]:
        """The known relations of each (head, tail) as (row, relation) pairs."""
        return self.by_head_tail.find(_keys(heads_B, tails_B, self.n_entities))

    def contains(self, heads_B: Tensor, relations_B: Tensor, tails_B: Tensor) -> Tensor:
        """Whether each (head, relation, tail) is known; ids broadcast."""
        heads_B, relations_B, tails_B = torch.broadcast_tensors(heads_B, relations_B, tails_B)
        keys_B = _keys(heads_B, relations_B, self.n_relations)
        return self.by_head_relation.contains(keys_B, tails_B)


def index_triples(triples_M3: Tensor, n_entities: int, n_relations: int) -> KnownTriples:
    """An index of these triples, in any order, duplicates allowed."""
    heads_M, relations_M, tails_M = triples_M3.long().unbind(1)
    return KnownTriples(
        n_entities,
        n_relations,
        _lists(heads_M * n_relations + relations_M, tails_M, n_entities),
        _lists(tails_M * n_relations + relations_M, heads_M, n_entities),
        _lists(heads_M * n_entities + tails_M, relations_M, n_relations),
    )


def _keys(first_B: Tensor, second_B: Tensor, n_second: int) -> Tensor:
    """One key for each pair of ids; an id that can't be gets a key that nothing has."""
    keys_B = first_B.long() * n_second + second_B
    possible_B = (first_B >= 0) & (second_B >= 0) & (second_B < n_second)
    return torch.where(possible_B, keys_B, -1)


def _lists(keys_M: Tensor, values_M: Tensor, n_values: int) -> Lists:
    keys_G, group_M = keys_M.unique(return_inverse=True)
    codes_V = (group_M * n_values + values_M).unique()
    counts_G = torch.bincount(codes_V // n_values, minlength=len(keys_G) + 1)
    offsets_G1 = torch.cat([counts_G.new_zeros(1), counts_G.cumsum(0)])
    no_key = keys_G.new_tensor([NO_KEY])
    return Lists(
        torch.cat([keys_G, no_key]),
        offsets_G1,
        torch.cat([codes_V, no_key]),
        n_values,
    )
