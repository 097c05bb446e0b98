"""Names and their ids: a graph's vocabulary, and one that can grow."""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from pathe.core.errors import UnknownNameError, closest
from pathe.core.types import is_encodable
from pathe.data.columns import id_array, numbers, text_array
from pathe.data.names import Names

Kind = Literal["entity", "relation", "type"]

FEW = 8  # names that are searched one by one rather than hashed
_CANDIDATES = 1000  # names per search for the closest


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Vocabulary:
    """Immutable names of one kind, sorted by their UTF-8 bytes; a name's id is its position.

    `spellings` are other ways to write the names, which `id`, `ids` and `exact` accept.
    """

    array: Any  # a pa.LargeStringArray
    kind: Kind
    spellings: Names

    def __init__(
        self,
        names: Iterable[str] | Any,
        kind: Kind = "entity",
        spellings: Names | None = None,
    ) -> None:
        if isinstance(names, pa.ChunkedArray):
            array = names.cast(pa.large_string()).combine_chunks()
        elif isinstance(names, pa.Array):
            array = names.cast(pa.large_string())
        else:
            array = text_array(list(names))
        # Strictly increasing means sorted and unique: a saved vocabulary isn't sorted again.
        if len(array) and not pc.all(pc.greater(array[1:], array[:-1]), min_count=0).as_py():
            array = array.unique()
            array = array.take(pc.sort_indices(array))
        object.__setattr__(self, "array", array)
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "spellings", spellings or Names())

    @classmethod
    def of_sorted(cls, array: Any, kind: Kind, spellings: Names) -> Vocabulary:
        """Returns a vocabulary of an array that is known to be sorted and unique: not read."""
        self = object.__new__(cls)
        for name, value in (("array", array), ("kind", kind), ("spellings", spellings)):
            object.__setattr__(self, name, value)
        return self

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, i: int) -> str:
        if not 0 <= (i := operator.index(i)) < len(self):
            raise IndexError(f"expected a {self.kind} id from 0 to {len(self) - 1}, got {i}")
        return str(self.array[i].as_py())

    def __iter__(self) -> Iterator[str]:
        return (str(name.as_py()) for name in self.array)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._find(name)[1]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vocabulary):
            return NotImplemented
        return self.kind == other.kind and bool(self.array.equals(other.array))

    def __hash__(self) -> int:
        return hash((self.kind, len(self)))

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} names, kind={self.kind!r})"

    def names(self, ids: Tensor | Sequence[int]) -> list[str]:
        """Returns the names of the ids, in their order."""
        wanted = id_array(np.asarray(torch.as_tensor(ids).cpu()))
        return list(self.array.take(wanted).to_pylist())

    def id(self, name: str) -> int:
        """Returns the id of a name; raises UnknownNameError with the closest names.

        The name may be written as `<IRI>`, as `prefix:local` or by its label.
        """
        if not isinstance(name, str):
            raise UnknownNameError(f"Expected the name of a {self.kind} as text; got {name!r}.")
        i = self.find(name)
        if i is None:
            raise UnknownNameError(f"unknown {self.kind} {name!r}.{self._nearest(name)}")
        return i

    def find(self, name: str) -> int | None:
        """Returns the id of a name, None if it is unknown; raises an error if it is ambiguous."""
        i, found = self._find(name)
        if found:
            return i
        spell = self.spellings
        for others in (spell.expand(name), spell.with_label(name), spell.with_other_label(name)):
            known = [place for place, found in map(self._find, others) if found]
            if len(known) > 1:
                raise UnknownNameError(self._ambiguous(name, known))
            if known:
                return known[0]
        return None

    def exact(self, name: str) -> str:
        """Returns the name itself, however it is written."""
        return self[self.id(name)]

    def spell(self, name: str) -> str:
        """Returns the exact name; of a new name, the IRI if it has a known prefix."""
        i = self.find(name)
        return self.spellings.full(name) if i is None else self[i]

    def with_spellings(self, spellings: Names) -> Vocabulary:
        """Returns the vocabulary with other ways to write its names."""
        return Vocabulary.of_sorted(self.array, self.kind, spellings)

    def ids(self, names: Any, missing: Literal["raise", "mark"] = "raise") -> Tensor:
        """Returns int64 ids of names; unknown names raise, or become -1 with `missing="mark"`."""
        if not isinstance(names, pa.Array):
            names = [names] if isinstance(names, str) else list(names)
            for name in names:
                if not isinstance(name, str) or not is_encodable(name):
                    self.id(name)  # raises
            names = text_array(names)
        array = names.cast(pa.large_string())
        if len(array) < max(FEW, len(self) // 1000):
            # Searching a few names beats hashing the whole vocabulary.
            places = [self._find(n) for n in array.to_pylist()]
            ids = np.array([i if found else -1 for i, found in places], np.int64)
        else:
            found = pc.index_in(array, value_set=self.array)
            there = numbers(found.is_valid().cast(pa.uint8()), np.uint8)
            ids = np.where(there, numbers(found, np.int32), -1).astype(np.int64)
        if missing == "raise":
            for i in np.flatnonzero(ids < 0):
                ids[i] = self.id(array[int(i)].as_py())
        return torch.from_numpy(ids)

    def buffers(self) -> tuple[bytes, Any]:
        """Returns the names' ends (int64) and bytes; equal names give equal buffers."""
        _, offsets, data = self.array.buffers()
        start, n = self.array.offset, len(self)
        ends = np.frombuffer(offsets, np.int64, count=n + 1, offset=8 * start) if n else np.zeros(1)
        first, last = int(ends[0]), int(ends[-1])
        return (ends - first).astype(np.int64).tobytes(), memoryview(data or b"")[first:last]

    def _find(self, name: str) -> tuple[int, bool]:
        """Returns where the name is or would be, and whether it is there."""
        i = bisect_left(self, name)  # code points sort as UTF-8 bytes do
        return i, i < len(self) and self[i] == name

    def _nearest(self, name: str) -> str:
        """Names the closest names and labels, names in their short form."""
        short, name = self.spellings.short, name[:200].encode(errors="replace").decode()
        full = next(iter(self.spellings.expand(name)), name)
        close = [short(other) for other in closest(full, _similar(self.array, full))]
        labels = _similar(self.spellings.sorted_labels, name)
        labels += _similar(self.spellings.other_labels, name)
        known = [label for label in labels if self._has_label(label)]
        close = list(dict.fromkeys([*close, *closest(name, known)]))
        words = f" Closest: {', '.join(map(repr, close[:3]))}." if close else ""
        return f"{words}{self.spellings.unknown_prefix(name)}" or self._some()

    def _has_label(self, label: str) -> bool:
        """Whether one of these names has the label."""
        spell = self.spellings
        names = (*spell.with_label(label), *spell.with_other_label(label))
        return any(self._find(name)[1] for name in names)

    def _ambiguous(self, name: str, ids: list[int]) -> str:
        """Says which names a label or a prefix can mean."""
        plural = "entities" if self.kind == "entity" else f"{self.kind}s"
        some = ", ".join(f"<{self[i]}>" for i in ids[:5])
        more = f" and {len(ids) - 5:,} more" if len(ids) > 5 else ""
        return f"{name!r} can mean {len(ids):,} {plural}: {some}{more}. Give one of these."

    def _some(self, n: int = 5) -> str:
        """Returns ` Known: ...` with the first names, or an empty string if there are none."""
        names = ", ".join(repr(self.spellings.short(name)) for name in self.array[:n].to_pylist())
        more = f" and {len(self) - n:,} more" if len(self) > n else ""
        return f" Known: {names}{more}." if names else ""


def _similar(array: Any, name: str) -> list[str]:
    """Returns some of a sorted array's names: neighbours of a name, and names that share parts."""
    place = bisect_left(range(len(array)), name, key=lambda i: array[i].as_py())
    low = max(0, place - _CANDIDATES)
    found = dict.fromkeys(array[low : low + 2 * _CANDIDATES].to_pylist())
    half = (len(name) + 1) // 2
    if len(array) > 2 * _CANDIDATES and half >= 2:
        for part in {name, name[:half], name[-half:]}:
            hits = pc.match_substring(array, part, ignore_case=True)
            found.update(dict.fromkeys(array.filter(hits)[:_CANDIDATES].to_pylist()))
    return list(found)


class GrowingVocabulary:
    """A vocabulary that accepts new names, which get the next ids in order of arrival."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._added: dict[str, int] = {}
        self._new: list[str] = []

    def copy(self) -> GrowingVocabulary:
        """Returns a vocabulary with the same names; names added to one aren't in the other."""
        other = GrowingVocabulary(self.vocabulary)
        other._added, other._new = dict(self._added), list(self._new)
        return other

    def __len__(self) -> int:
        return len(self.vocabulary) + len(self._new)

    def __contains__(self, name: object) -> bool:
        return name in self._added or name in self.vocabulary

    def __getitem__(self, i: int) -> str:
        n = len(self.vocabulary)
        return self.vocabulary[i] if i < n else self._new[i - n]

    def id(self, name: str) -> int:
        """Returns the id of a name; raises UnknownNameError with the closest names."""
        if (added := self._find_added(name)) is not None:
            return added
        try:
            return self.vocabulary.id(name)
        except UnknownNameError:
            if not isinstance(name, str) or not (close := closest(name, self._new)):
                raise
            kind, some = self.vocabulary.kind, ", ".join(map(repr, close))
            raise UnknownNameError(f"unknown {kind} {name!r}. Closest: {some}.") from None

    def find(self, name: str) -> int | None:
        """Returns the id of a name, None if it is unknown; raises an error if it is ambiguous."""
        added = self._find_added(name)
        return self.vocabulary.find(name) if added is None else added

    def _find_added(self, name: str) -> int | None:
        """Returns the id of an added name, as it is or with a prefix."""
        spelled = self.vocabulary.spellings.expand(name) if isinstance(name, str) else []
        return next((self._added[n] for n in (name, *spelled) if n in self._added), None)

    def ids(self, names: Iterable[str]) -> Tensor:
        """Returns int64 ids of the names."""
        names = list(names)
        if not self._new:
            return self.vocabulary.ids(names)
        return torch.tensor([self.id(name) for name in names], dtype=torch.long)

    def names(self, ids: Tensor) -> list[str]:
        """Returns the names of the ids, in their order."""
        if not self._new:
            return self.vocabulary.names(ids)
        return [self[i] for i in ids.tolist()]

    def add(self, name: str) -> int:
        """Returns the id of a name, which is added if it is new; a known prefix is expanded."""
        known = self.find(name)
        if known is not None:
            return known
        name = self.vocabulary.spell(name)
        self._added[name] = len(self)
        self._new.append(name)
        return self._added[name]

    def exact(self, name: str) -> str:
        """Returns the name itself, however it is written."""
        return self[self.id(name)]
