"""What bridges do with states; the kernels for it are tested in `kernels`."""

from __future__ import annotations

import pytest
import torch
from support.graphs import DEVICES
from support.kernels import states_example
from support.propagation import example

from pathe.model.states import answer_scores, update


def parts_of(device: str, dim: int):
    reached = example(n=600, device=device, dim=dim)[3]
    return *states_example(reached, dim), reached


def test_zero_states_stay_zero():
    updating, scoring, reached = parts_of("cpu", 16)
    assert not update(*(0 * part for part in updating[:2]), updating[2]).any()
    assert not answer_scores(0 * scoring[0], *scoring[1:], reached).any()


def test_what_arrives_keeps_its_direction_and_the_logarithm_of_its_size():
    """One number, by hand: 3 arrives at a state of 2; relu(1 * 2 + 10 * log(1 + 3))."""
    found = update(torch.tensor([[2.0]]), torch.tensor([[3.0]]), torch.tensor([[1.0, 10.0]]))
    expected = 2 + 2 + 10 * torch.tensor(4.0).log()
    torch.testing.assert_close(found, expected.view(1, 1))


@pytest.mark.parametrize("device", DEVICES)
def test_nan_is_passed_on(device):
    updating, scoring, reached = parts_of(device, 16)
    weights = updating[2].clone()
    weights[0, 0] = float("nan")
    assert update(*updating[:2], weights).isnan().any()
    asked = scoring[1].clone()
    asked[0, 0] = float("nan")
    assert answer_scores(scoring[0], asked, *scoring[2:], reached).isnan().any()
