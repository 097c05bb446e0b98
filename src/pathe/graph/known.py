"""Index of known triples, for filtering negatives and candidates in bulk."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from pathe.core.tensors import Tensors, expand, insert
from pathe.core.types import PARTS, Part
from pathe.kernels.dispatch import kernel

STRIDE = 1 << 31  # above any id, so keys and codes stay valid when a graph grows
NO_KEY = (1 << 63) - 1  # sentinel after the sorted keys and codes, so a search stays in range
# columns (first, second, value): the first two ids form the key, the third is the answer
COLUMNS: dict[Part, tuple[int, int, int]] = {
    "tail": (0, 1, 2), "head": (2, 1, 0), "relation": (0, 2, 1),
}  # fmt: skip


@dataclass(frozen=True)
class Lists(Tensors):
    """Sorted lists of values by int64 key; the last key is the sentinel NO_KEY, with no values."""

    keys_G: Tensor  # int64, sorted
    offsets_G1: Tensor  # int64
    codes_V1: Tensor  # int64: group * STRIDE + value, sorted, then NO_KEY

    def locate(self, keys_B: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the start and the number of each key's codes."""
        group_B = torch.searchsorted(self.keys_G, keys_B)
        starts_B = self.offsets_G1[group_B]
        return starts_B, (self.offsets_G1[group_B + 1] - starts_B) * (
            self.keys_G[group_B] == keys_B
        )

    def find(self, keys_B: Tensor) -> tuple[Tensor, Tensor]:
        """Returns all values of the keys as (row, value) pairs, in row order."""
        rows_N, slots_N = expand(*self.locate(keys_B))
        return rows_N, self.codes_V1[slots_N] % STRIDE

    def close(self, open_BV: Tensor, keys_B: Tensor) -> Tensor:
        """Sets open_BV[b, v] to False for all values v listed under key b, in place."""
        if close := kernel("known.close", open_BV.device.type):
            close(open_BV, *self.locate(keys_B), self.codes_V1, STRIDE)
            return open_BV
        return open_BV.index_put_(self.find(keys_B), open_BV.new_zeros(()))

    def listed(self, keys_B: Tensor, values: Tensor) -> Tensor:
        """Whether values (N, or B x N) are listed under each row's key, as (B, N)."""
        values_BN = values if values.dim() == 2 else values[None]
        if listed := kernel("known.listed", values.device.type):
            found_BN: Tensor = listed(*self.locate(keys_B), self.codes_V1, STRIDE, values_BN)
            return found_BN
        return self.listed_plain(keys_B[:, None], values_BN)

    def listed_plain(self, keys: Tensor, values: Tensor) -> Tensor:
        """Whether each value is listed under its key; both broadcast."""
        group, values = torch.searchsorted(self.keys_G, keys), values.long()
        codes = group * STRIDE + values
        found = self.codes_V1[torch.searchsorted(self.codes_V1, codes)] == codes
        return found & (values >= 0) & (values < STRIDE) & (self.keys_G[group] == keys)

    def add(self, keys_N: Tensor, values_N: Tensor) -> Lists:
        """Returns the lists with a few more values, without sorting the old ones again."""
        fresh_N = self.keys_G[torch.searchsorted(self.keys_G, keys_N)] != keys_N
        new_F = keys_N[fresh_N].unique()
        places_F = torch.searchsorted(self.keys_G, new_F) + _count(new_F)
        keys_G = insert(self.keys_G, places_F, new_F)
        codes_V1 = self.codes_V1
        if len(new_F):  # new groups shift the numbers of those after them
            before_G = torch.searchsorted(new_F, self.keys_G[:-1]) * STRIDE
            moved_V = codes_V1[:-1] + before_G[codes_V1[:-1] // STRIDE]
            codes_V1 = torch.cat([moved_V, codes_V1[-1:]])
        codes_N = (torch.searchsorted(keys_G, keys_N) * STRIDE + values_N).unique()
        slots_N = torch.searchsorted(codes_V1, codes_N)
        absent_N = codes_V1[slots_N] != codes_N
        codes_N, slots_N = codes_N[absent_N], slots_N[absent_N]
        sizes_G = insert(self.offsets_G1.diff(), places_F, torch.zeros_like(new_F))
        sizes_G += torch.bincount(codes_N // STRIDE, minlength=len(sizes_G))
        codes_V1 = insert(codes_V1, slots_N + _count(slots_N), codes_N)
        return Lists(keys_G, F.pad(sizes_G.cumsum(0), (1, 0)), codes_V1)


class KnownTriples:
    """The known answers of queries, by ids; the index of each part is built when first used."""

    def __init__(self, triples_M3: Tensor) -> None:
        """Takes the triples in any order; duplicates are allowed."""
        self._triples_M3 = triples_M3.long()
        self._lists: dict[Part, Lists] = {}

    def lists(self, part: Part) -> Lists:
        """Returns the known answers of all queries for one part of a triple."""
        if part not in self._lists:
            columns = self._triples_M3[:, list(COLUMNS[part])].unbind(1)
            self._lists[part] = _lists(columns[0] * STRIDE + columns[1], columns[2])
        return self._lists[part]

    def answers(self, ids_B3: Tensor, part: Part) -> tuple[Lists, Tensor]:
        """Returns the lists for a part and each query's key; ignores the part's own column."""
        return self.lists(part), _keys(ids_B3, part)

    def find(self, ids_B3: Tensor, part: Part) -> tuple[Tensor, Tensor]:
        """Returns the known answers of each query as (row, answer) pairs."""
        lists, keys_B = self.answers(ids_B3, part)
        return lists.find(keys_B)

    def contains(self, ids_B3: Tensor) -> Tensor:
        """Whether each triple is known."""
        lists, keys_B = self.answers(ids_B3, "tail")
        return lists.listed_plain(keys_B, ids_B3[:, 2])

    def add(self, triples_N3: Tensor) -> KnownTriples:
        """Returns the index with more triples; some may be known already."""
        more = KnownTriples(torch.cat([self._triples_M3, triples_N3.long()]))
        for part in PARTS:
            if part in self._lists:
                values_N = triples_N3[:, COLUMNS[part][2]].long()
                more._lists[part] = self._lists[part].add(_keys(triples_N3, part), values_N)
        return more


def _keys(ids_B3: Tensor, part: Part) -> Tensor:
    """Returns one key per query; an out-of-range id gets -1, a key without answers."""
    first_B, second_B = (ids_B3[:, column].long() for column in COLUMNS[part][:2])
    possible_B = (first_B >= 0) & (second_B >= 0) & (second_B < STRIDE)
    return torch.where(possible_B, first_B * STRIDE + second_B, -1)


def _lists(keys_M: Tensor, values_M: Tensor) -> Lists:
    keys_G, group_M = keys_M.unique(return_inverse=True)
    codes_V = (group_M * STRIDE + values_M).unique()
    sizes_G = torch.bincount(codes_V // STRIDE, minlength=len(keys_G) + 1)
    no_key = keys_G.new_tensor([NO_KEY])
    return Lists(
        torch.cat([keys_G, no_key]), F.pad(sizes_G.cumsum(0), (1, 0)), torch.cat([codes_V, no_key])
    )


def _count(values_N: Tensor) -> Tensor:
    return torch.arange(len(values_N), device=values_N.device)
