"""Attention among the tokens of paths that lie one after the other, against the padded one."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from support.graphs import DEVICES
from support.kernels import packed_example as example
from support.kernels import packed_mask as paths
from torch import Tensor

from pathe.model.packed import LENGTHS, attend_among, attend_among_plain, pack, pick


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
