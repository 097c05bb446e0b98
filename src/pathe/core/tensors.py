"""Records of tensors that move between devices together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

import torch
from torch import Tensor

Record = TypeVar("Record", bound="Tensors")


class Tensors:
    """Base of frozen dataclasses that hold tensors: moves, copies and measures them together."""

    def to(self: Record, device: torch.device | str) -> Record:
        return self.map(lambda tensor: tensor.to(device))

    def map(self: Record, change: Callable[[Tensor], Tensor]) -> Record:
        """Returns a copy with every tensor changed."""

        def changed(value: Any) -> Any:
            if isinstance(value, Tensors):
                return value.map(change)
            return change(value) if isinstance(value, Tensor) else value

        names = [f.name for f in fields(self)]  # type: ignore[arg-type]
        return type(self)(**{name: changed(getattr(self, name)) for name in names})

    def tensors(self) -> list[Tensor]:
        """Returns every tensor, in field order."""
        found: list[Tensor] = []
        self.map(lambda tensor: found.append(tensor) or tensor)  # type: ignore[func-returns-value]
        return found

    @property
    def n_bytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in self.tensors())


def expand(starts_B: Tensor, sizes_B: Tensor) -> tuple[Tensor, Tensor]:
    """Returns (row, slot) pairs of the slots start, start + 1, ... of every row, in row order."""
    rows_N = torch.arange(len(sizes_B), device=sizes_B.device).repeat_interleave(sizes_B)
    shifts_B = starts_B - sizes_B.cumsum(0) + sizes_B
    return rows_N, torch.arange(len(rows_N), device=sizes_B.device) + shifts_B[rows_N]


def insert(old_M: Tensor, slots_N: Tensor, new_N: Tensor) -> Tensor:
    """Returns the new values at their slots, which rise, and the old ones in order around them."""
    places = (slots_N - torch.arange(len(slots_N), device=slots_N.device)).tolist()
    pieces = old_M.tensor_split(places)
    each = new_N.split(1) if len(new_N) else ()
    between = [piece for pair in zip(pieces[:-1], each, strict=True) for piece in pair]
    return torch.cat([*between, pieces[-1]])
