"""Names that may grow: a graph's entities, and those added since."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from pathe.errors import UnknownNameError, nearest
from pathe.triples import Vocabulary


class Names:
    """A vocabulary that takes new names; they get the next ids, in the order they come."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._added: dict[str, int] = {}
        self._new: list[str] = []

    def __len__(self) -> int:
        return len(self.vocabulary) + len(self._new)

    def __contains__(self, name: object) -> bool:
        return name in self._added or name in self.vocabulary

    def __getitem__(self, i: int) -> str:
        n = len(self.vocabulary)
        return self.vocabulary[i] if i < n else self._new[i - n]

    def id(self, name: str) -> int:
        """The id of a name; UnknownNameError with the closest names otherwise."""
        if name in self._added:
            return self._added[name]
        try:
            return self.vocabulary.id(name)
        except UnknownNameError:
            if not isinstance(name, str) or not (closest := nearest(name, self._new)):
                raise
            kind = self.vocabulary.kind
            raise UnknownNameError(f"unknown {kind} {name!r}.{closest}") from None

    def ids(self, names: Iterable[str]) -> Tensor:
        """int64 ids of the names."""
        names = list(names)
        if not self._new:
            return self.vocabulary.ids(names)
        return torch.tensor([self.id(name) for name in names], dtype=torch.long)

    def names(self, ids: Tensor) -> list[str]:
        """The names of the ids, in their order."""
        if not self._new:
            return self.vocabulary.names(ids)
        return [self[i] for i in ids.tolist()]

    def add(self, name: str) -> int:
        """The id of a name, which is new or not."""
        if name not in self:
            self._added[name] = len(self)
            self._new.append(name)
        return self.id(name)
