"""Attention of a query among the tokens of its path; its kernels are tested in `kernels`."""

from __future__ import annotations

import torch
from support.kernels import attention_example

from pathe.model.attention import attend, attend_plain


def test_gradients_are_those_of_the_function():
    query, keys, values, paths, bias, keep = attention_example(n=5, tokens=3, rows=6)
    inputs = [x.double().requires_grad_() for x in (query, keys, values, bias)]
    assert torch.autograd.gradcheck(
        lambda q, k, v, b: attend(q, k, v, paths, b, keep.double()), inputs
    )


def test_weights_are_a_softmax_over_real_tokens_times_what_dropout_keeps():
    query, keys, values, paths, bias, keep = attention_example()
    _, weights = attend_plain(query, keys, values, paths, bias, torch.ones_like(keep))
    assert not weights[(paths < 0)[:, None].expand_as(weights)].any()
    torch.testing.assert_close(weights.sum(-1), torch.ones(37, 2))
    _, dropped = attend_plain(query, keys, values, paths, bias, keep)
    torch.testing.assert_close(dropped, weights * keep)


def test_bfloat16_works_on_a_cpu():
    query, keys, values, *rest = attention_example()
    plain, _ = attend(query, keys, values, *rest)
    half, _ = attend(query.bfloat16(), keys.bfloat16(), values.bfloat16(), *rest)
    torch.testing.assert_close(half, plain, atol=0.05, rtol=0.05)
