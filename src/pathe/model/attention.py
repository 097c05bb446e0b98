"""Softmax attention of one query per path, with keys and values from a table indexed by token.

In plain PyTorch this gathers (N, T, D) keys and values; the kernels read table rows in place, skip
padding, and sum each row's gradients over its occurrences.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pathe.kernels.dispatch import compiled, kernel


def attend(
    query_NHS: Tensor, keys_VHS: Tensor, values_VHS: Tensor, tokens_NT: Tensor, bias_NHT: Tensor,
    keep_NHT: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Returns outputs read_NHS and weights_NHT of H heads of width S; tokens are -1 for padding.

    Scores are query . key + bias; weights are their softmax times the dropout factors `keep`.
    """
    device = query_NHS.device.type
    if kernel("attention.read", device) is None or query_NHS.dtype == torch.float64:
        return attend_plain(query_NHS, keys_VHS, values_VHS, tokens_NT, bias_NHT, keep_NHT)
    rows = (query_NHS, keys_VHS, values_VHS)
    if device == "cpu":
        rows = (query_NHS.float(), keys_VHS.float(), values_VHS.float())  # NumPy has no bfloat16
    read_NHS, weights_NHT = _Attend.apply(  # type: ignore[no-untyped-call]
        *rows, tokens_NT, bias_NHT.float(), keep_NHT.float()
    )
    return read_NHS, weights_NHT * keep_NHT


def attend_plain(
    query_NHS: Tensor, keys_VHS: Tensor, values_VHS: Tensor, tokens_NT: Tensor, bias_NHT: Tensor,
    keep_NHT: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Computes `attend` in plain PyTorch."""
    rows_NT = tokens_NT.clamp(min=0).long()
    scores_NHT = torch.einsum("nhs,nths->nht", query_NHS, keys_VHS[rows_NT]) + bias_NHT
    scores_NHT = scores_NHT.masked_fill((tokens_NT < 0)[:, None], float("-inf"))
    weights_NHT = scores_NHT.softmax(-1) * keep_NHT
    return torch.einsum("nht,nths->nhs", weights_NHT, values_VHS[rows_NT]), weights_NHT


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *parts: Tensor) -> tuple[Tensor, Tensor]:
        query, keys, values, tokens, bias, keep = (part.contiguous() for part in parts)
        read = compiled("attention.read", query.device.type)
        read_NHS, weights_NHT = read(query, keys, values, tokens, bias, keep)
        ctx.save_for_backward(query, keys, values, tokens, keep, weights_NHT)
        return read_NHS, weights_NHT

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        query, keys, values, tokens, keep, weights = ctx.saved_tensors
        read_backward = compiled("attention.read_backward", query.device.type)
        grad_query, grad_keys, grad_values, grad_bias = read_backward(
            query, keys, values, tokens, keep, weights, *(g.contiguous() for g in grads)
        )
        return (
            grad_query.to(query.dtype),
            grad_keys.to(keys.dtype),
            grad_values.to(values.dtype),
            None,
            grad_bias,
            None,
        )
