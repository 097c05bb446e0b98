"""Index of known triples, for filtering negatives and candidates in bulk."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from pathe.core.tensors import Tensors, expand
from pathe.core.types import Part
from pathe.kernels.dispatch import kernel

STRIDE = 1 << 31  # above any id, so keys and codes stay valid when a graph grows
FEW = 1000  # added triples that have an index of their own
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


class KnownTriples:
    """The known answers to queries, as ids; the index of each part is built when first used.

    A few triples that were added are looked up beside the index of the others.
    """

    def __init__(self, triples_M3: Tensor, lists: dict[Part, Lists] | None = None) -> None:
        """Takes the triples in any order; duplicates are allowed. `lists` are made already."""
        self._triples_M3 = triples_M3
        self._lists: dict[Part, Lists] = dict(lists or {})
        self._parts: tuple[KnownTriples, KnownTriples] | None = None  # before; a few added since

    def lists(self, part: Part) -> Lists:
        """Returns the known answers to all queries for one part of a triple."""
        if part not in self._lists:
            columns = self._triples_M3[:, list(COLUMNS[part])].long().unbind(1)
            self._lists[part] = _lists(columns[0] * STRIDE + columns[1], columns[2])
        return self._lists[part]

    def answers(self, ids_B3: Tensor, part: Part) -> tuple[Lists, Tensor]:
        """Returns the lists for a part and each query's key; ignores the part's own column."""
        return self.lists(part), _keys(ids_B3, part)

    def find(self, ids_B3: Tensor, part: Part) -> tuple[Tensor, Tensor]:
        """Returns the known answers to each query as (row, answer) pairs, in order."""
        if self._parts is None:
            lists, keys_B = self.answers(ids_B3, part)
            return lists.find(keys_B)
        before, added = (torch.stack(known.find(ids_B3, part)) for known in self._parts)
        rows_N, answers_N = torch.cat([before, added], 1).unique(dim=1) if added.numel() else before
        return rows_N, answers_N

    def contains(self, ids_B3: Tensor) -> Tensor:
        """Whether each triple is known."""
        if self._parts is not None:
            before, added = (known.contains(ids_B3) for known in self._parts)
            return before | added
        lists, keys_B = self.answers(ids_B3, "tail")
        return lists.listed_plain(keys_B, ids_B3[:, 2])

    def add(self, triples_N3: Tensor) -> KnownTriples:
        """Returns the index with more triples; some may be known already."""
        more = KnownTriples(torch.cat([self._triples_M3, triples_N3.to(self._triples_M3)]))
        before, added_M3 = self, triples_N3
        if self._parts is not None:
            before, added_M3 = self._parts[0], torch.cat([self._parts[1]._triples_M3, triples_N3])
        if len(added_M3) <= FEW:
            more._parts = before, KnownTriples(added_M3)
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
