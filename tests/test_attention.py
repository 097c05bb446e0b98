"""The compiled attention against the plain one, forwards and backwards."""

from __future__ import annotations

import pytest
import torch
from graphs import DEVICES
from torch import Tensor

from pathe import attention
from pathe.attention import attend, attend_plain
from pathe.twins import twin


def example(n=37, heads=2, size=8, tokens=7, rows=20, device="cpu") -> list[Tensor]:
    """Paths of every length from one token on, some rows of the table in none of them."""
    made = torch.Generator().manual_seed(n)
    query, keys, values = (torch.randn(k, heads, size, generator=made) for k in (n, rows, rows))
    paths = torch.randint(0, rows - 3, (n, tokens), generator=made, dtype=torch.int32)
    paths[torch.arange(tokens) > torch.arange(n)[:, None] % tokens] = -1
    paths = paths.roll(1, 1)[:, torch.randperm(tokens, generator=made)]  # padding anywhere
    bias = torch.randn(n, heads, tokens, generator=made)
    keep = (torch.rand(n, heads, tokens, generator=made) > 0.3) / 0.7
    return [x.to(device) for x in (query, keys, values, paths, bias, keep)]


def results(how, parts: list[Tensor], grads: list[Tensor]) -> list[Tensor]:
    """Both outputs, and the gradients of all that has one."""
    query, keys, values, paths, bias, keep = parts
    learned = [x.clone().requires_grad_() for x in (query, keys, values, bias)]
    found = how(*learned[:3], paths, learned[3], keep)
    torch.autograd.backward(found, grads)
    return [*found, *(x.grad for x in learned)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "shape", [{}, {"tokens": 1}, {"heads": 1, "size": 4}, {"n": 1}, {"n": 300}]
)
def test_the_compiled_attention_equals_the_plain_one(device, shape):
    parts = example(device=device, **shape)
    assert twin("attention", device)
    grads = [torch.randn_like(parts[0]), torch.randn_like(parts[4])]
    fast = results(attend, parts, grads)
    exact = [x.double() if x.is_floating_point() else x for x in parts]
    plain = results(attend_plain, exact, [g.double() for g in grads])
    for ours, theirs in zip(fast, plain, strict=True):
        torch.testing.assert_close(ours.double(), theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
def test_tokens_that_occur_everywhere_have_the_sum_of_all_their_gradients(device):
    parts = example(n=3000, rows=5, device=device)  # two of the rows, 6,000 times each
    grads = [torch.randn_like(parts[0]), torch.randn_like(parts[4])]
    fast, plain = results(attend, parts, grads), results(attend_plain, parts, grads)
    for ours, theirs in zip(fast, plain, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("device", DEVICES)
def test_the_same_call_gives_the_same_bits(device):
    parts = example(n=500, device=device)
    grads = [torch.ones_like(parts[0]), torch.ones_like(parts[4])]
    once, again = results(attend, parts, grads), results(attend, parts, grads)
    assert all(torch.equal(a, b) for a, b in zip(once, again, strict=True))


def test_gradients_are_those_of_the_function():
    query, keys, values, paths, bias, keep = example(n=5, tokens=3, rows=6)
    inputs = [x.double().requires_grad_() for x in (query, keys, values, bias)]
    assert torch.autograd.gradcheck(
        lambda q, k, v, b: attend(q, k, v, paths, b, keep.double()), inputs
    )


def test_without_a_twin_the_plain_one_serves(monkeypatch):
    parts = example()
    fast = attend(*parts)
    monkeypatch.setattr(attention, "twin", lambda *wanted: None)
    for ours, theirs in zip(fast, attend(*parts), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_bfloat16_works_on_a_cpu():
    query, keys, values, *rest = example()
    plain, _ = attend(query, keys, values, *rest)
    half, _ = attend(query.bfloat16(), keys.bfloat16(), values.bfloat16(), *rest)
    torch.testing.assert_close(half, plain, atol=0.05, rtol=0.05)
