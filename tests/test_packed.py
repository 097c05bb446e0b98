"""Attention among the tokens of paths that lie one after the other, against the padded one."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from graphs import DEVICES, no_gpu
from torch import Tensor

from pathe.packed import LENGTHS, attend_among, attend_among_plain, pack, pick
from pathe.twins import twin


def paths(n=40, longest=41, device="cpu") -> Tensor:
    """A mask with paths of every length from one token on, padded on both sides."""
    lengths = torch.arange(n) * 7 % longest + 1
    first = (longest - lengths) // 2
    columns = torch.arange(longest)
    return ((columns >= first[:, None]) & (columns < (first + lengths)[:, None])).to(device)


def example(mask: Tensor, heads=2, size=8, single=False) -> tuple[list[Tensor], Tensor]:
    made = torch.Generator().manual_seed(0)
    m, n = int(mask.sum()), len(mask)
    shapes = [(n if single else m, heads, size), (m, heads, size), (m, heads, size)]
    parts = [torch.randn(shape, generator=made).to(mask.device) for shape in shapes]
    packing = pack(mask)
    each = torch.arange(n + 1, device=mask.device)
    return parts, each if single else packing.offsets_N1


def reference(parts: list[Tensor], mask: Tensor, single: bool) -> Tensor:
    """PyTorch's own attention, a path at a time."""
    query, key, value = parts
    found, at = [], 0
    for n, length in enumerate(mask.sum(1).tolist()):
        own = slice(at, at + length)
        asking = query[n : n + 1] if single else query[own]
        q, k, v = (x.transpose(0, 1) for x in (asking, key[own], value[own]))
        found.append(F.scaled_dot_product_attention(q, k, v).transpose(0, 1))
        at += length
    return torch.cat(found)


def results(how, parts: list[Tensor], grad: Tensor, *rest) -> list[Tensor]:
    learned = [x.clone().requires_grad_() for x in parts]
    found = how(*learned, *rest)
    found.backward(grad)
    return [found, *(x.grad for x in learned)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("shape", [{}, {"heads": 1, "size": 24}, {"heads": 4, "size": 32}])
def test_every_path_is_read_alone(device, single, shape):
    mask = paths(device=device)
    parts, asking = example(mask, single=single, **shape)
    grad = torch.randn_like(parts[0])
    ours = results(attend_among, parts, grad, asking, pack(mask))
    exact = [x.double() for x in parts]
    theirs = results(lambda *x: reference(list(x), mask, single), exact, grad.double())
    close = 1e-5 if device == "cpu" else 5e-3  # TF32
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.double(), b, atol=close, rtol=close)


def test_groups_hold_every_path_once_with_its_length():
    mask = paths(n=200, longest=81)
    packing = pack(mask)
    lengths = mask.sum(1)
    assert torch.equal(torch.cat([p for p, _ in packing.groups]).sort().values, torch.arange(200))
    assert len(packing.groups) == len(LENGTHS) + 1
    assert [n for _, n in packing.groups] == [int(lengths[p].max()) for p, _ in packing.groups]
    assert torch.equal(packing.offsets_N1.diff(), lengths)
    assert pack(mask[:0]).groups == []


def test_dropout_leaves_weights_out_and_keeps_their_mean():
    mask = paths(n=3)
    parts, asking = example(mask)
    torch.manual_seed(0)
    draws = [attend_among_plain(*parts, asking, pack(mask), 0.3) for _ in range(600)]
    exact = attend_among_plain(*parts, asking, pack(mask))
    assert not torch.equal(draws[0], draws[1])
    torch.testing.assert_close(torch.stack(draws).mean(0), exact, atol=0.2, rtol=0)


@no_gpu
def test_dropout_on_a_gpu_is_seeded_and_its_gradients_fit():
    mask = paths(n=30, longest=17, device="cuda")
    parts, asking = example(mask)
    packing = pack(mask)
    assert twin("packed", "cuda")
    runs = []
    for _ in range(2):
        torch.manual_seed(4)
        runs.append(results(attend_among, parts, torch.ones_like(parts[0]), asking, packing, 0.3))
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))
    # the output is linear in the values, so their gradient is what was kept of the weights
    read, *_, grad_value = runs[0]
    total = (grad_value * parts[2]).sum()
    torch.testing.assert_close(total, read.sum(), atol=0.05, rtol=1e-3)
    draws = []
    for seed in range(1500):
        torch.manual_seed(seed)
        draws.append(attend_among(*parts, asking, packing, 0.3))
    exact = attend_among(*parts, asking, packing)
    torch.testing.assert_close(torch.stack(draws).mean(0), exact, atol=0.15, rtol=0)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("n_rows", [3, 5000, 300_000])
def test_picking_from_copies_is_picking(device, n_rows):
    table = torch.randn(n_rows, 4, device=device, requires_grad=True)
    rows = torch.randint(0, min(n_rows, 7), (1000,), device=device)
    grad = torch.randn(1000, 4, device=device)
    found = pick(table, rows)
    assert torch.equal(found, table[rows])
    found.backward(grad)
    expected = torch.zeros_like(table).index_add_(0, rows, grad)
    torch.testing.assert_close(table.grad, expected, atol=1e-4, rtol=1e-4)
