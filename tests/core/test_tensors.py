from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pathe.core.tensors import Tensors, expand, insert


def test_expand_lists_every_slot_of_every_row():
    rows, slots = expand(torch.tensor([5, 0, 9]), torch.tensor([2, 0, 3]))
    assert rows.tolist() == [0, 0, 2, 2, 2]
    assert slots.tolist() == [5, 6, 9, 10, 11]


def test_insert_puts_values_where_they_are_wanted():
    """The places are those that the values have in the result."""
    found = insert(torch.tensor([10, 20, 30]), torch.tensor([0, 2, 5]), torch.tensor([1, 2, 3]))
    assert found.tolist() == [1, 10, 2, 20, 30, 3]


@dataclass(frozen=True)
class Example(Tensors):
    name: str
    numbers: Tensor
    more: Tensor | None = None


def test_records_of_tensors_move_and_count_their_bytes():
    example = Example("a", torch.zeros(3))
    assert example.n_bytes == 12
    assert example.to("cpu").numbers is example.numbers
    moved = example.to("meta")
    assert (moved.name, moved.numbers.device.type, moved.more) == ("a", "meta", None)
