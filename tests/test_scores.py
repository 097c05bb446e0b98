"""The compiled link-head sums and ranks against the plain ones."""

from __future__ import annotations

import pytest
import torch
from graphs import DEVICES
from hypothesis import given, settings
from hypothesis import strategies as st

from pathe import scores, scores_cpu
from pathe.ranking import rank
from pathe.scores import relu_dot, relu_dot_plain
from pathe.twins import twin


def example(b=5, c=300, dim=8, device="cpu"):
    made = torch.Generator().manual_seed(b + c + dim)
    return [
        torch.randn(*shape, generator=made).to(device) for shape in ((b, dim), (c, dim), (dim,))
    ]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "shape", [{}, {"c": 1}, {"b": 1}, {"b": 70, "c": 129}, {"dim": 64}, {"dim": 2}]
)
def test_the_compiled_scores_equal_the_plain_ones(device, shape):
    parts = example(device=device, **shape)
    assert twin("scores", device)
    grad = torch.randn(len(parts[0]), len(parts[1]), device=device)
    fast, plain = (
        [x.to(dtype, copy=True).requires_grad_() for x in parts]
        for dtype in (torch.float32, torch.float64)
    )
    found, expected = relu_dot(*fast), relu_dot_plain(*plain)
    torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=1e-5)
    found.backward(grad)
    expected.backward(grad.double())
    for ours, theirs in zip(fast, plain, strict=True):
        torch.testing.assert_close(ours.grad.double(), theirs.grad, atol=1e-4, rtol=1e-5)


def test_gradients_are_those_of_the_function():
    assert torch.autograd.gradcheck(
        relu_dot, [x.double().requires_grad_() for x in example(b=3, c=4, dim=5)]
    )


def test_dimensions_need_be_no_multiple_of_anything():
    for dim in (1, 3, 5, 7):
        torch.testing.assert_close(relu_dot(*example(dim=dim)), relu_dot_plain(*example(dim=dim)))


def test_without_a_twin_the_plain_one_serves(monkeypatch):
    fast = relu_dot(*example())
    monkeypatch.setattr(scores, "twin", lambda *wanted: None)
    torch.testing.assert_close(relu_dot(*example()), fast)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 70), st.integers(1, 300), st.integers(0, 2**31), st.booleans(), st.booleans())
def test_counted_ranks_equal_those_of_the_score_matrix(b, c, seed, repeats, broken):
    """With ties (repeated candidates), scores that are no numbers, and lists of any length."""
    made = torch.Generator().manual_seed(seed)
    query, candidates, weight = (torch.randn(n, 6, generator=made) for n in (b, c, 1))
    if repeats:
        candidates = candidates[torch.randint(0, max(c // 4, 1), (c,), generator=made)]
    if broken:
        candidates[torch.rand(c, generator=made) < 0.2, 0] = float("nan")
    true = torch.randint(0, c, (b,), generator=made)
    listed = torch.rand(b, c, generator=made) < 0.3
    rows, columns = listed.nonzero(as_tuple=True)
    sizes = listed.sum(1)
    expected = rank(relu_dot(query, candidates, weight[0]), true, (rows, columns))
    better, equal, others = scores_cpu.rank(
        query, scores_cpu.tiles(candidates), weight[0], c, true,
        sizes.cumsum(0) - sizes, sizes, rows * c + columns, c,
    )  # fmt: skip
    assert torch.equal(1 + better, expected.optimistic_B)
    assert torch.equal(1 + better + equal, expected.pessimistic_B)
    assert torch.equal(1 + others, expected.candidates_B)
