"""A focus reads its path: softmax attention whose keys and values are rows of a table, by token.

Written plainly this gathers N x T x D keys and as many values; the compiled twins read each row
where it lies, skip padding, and sum the gradients of a row over its occurrences.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pathe.twins import ONE_AT_A_TIME, twin


def attend(
    query_NHS: Tensor,
    keys_VHS: Tensor,
    values_VHS: Tensor,
    tokens_NT: Tensor,
    bias_NHT: Tensor,
    keep_NHT: Tensor,
) -> tuple[Tensor, Tensor]:
    """(read_NHS, weights_NHT): H heads of width S, one query a path, tokens -1 where padded.

    Scores are query . key + bias; weights are their softmax times `keep`, the dropout.
    """
    kernel = twin("attention", query_NHS.device.type)
    if kernel is None or query_NHS.dtype == torch.float64:
        return attend_plain(query_NHS, keys_VHS, values_VHS, tokens_NT, bias_NHT, keep_NHT)
    rows = (query_NHS, keys_VHS, values_VHS)
    if query_NHS.device.type == "cpu":
        rows = (query_NHS.float(), keys_VHS.float(), values_VHS.float())  # there is no bfloat16
    read_NHS, weights_NHT = _Attend.apply(  # type: ignore[no-untyped-call]
        *rows, tokens_NT, bias_NHT.float(), keep_NHT.float()
    )
    return read_NHS, weights_NHT * keep_NHT


def attend_plain(
    query_NHS: Tensor,
    keys_VHS: Tensor,
    values_VHS: Tensor,
    tokens_NT: Tensor,
    bias_NHT: Tensor,
    keep_NHT: Tensor,
) -> tuple[Tensor, Tensor]:
    """The same, written out."""
    rows_NT = tokens_NT.clamp(min=0).long()
    scores_NHT = torch.einsum("nhs,nths->nht", query_NHS, keys_VHS[rows_NT]) + bias_NHT
    scores_NHT = scores_NHT.masked_fill((tokens_NT < 0)[:, None], float("-inf"))
    weights_NHT = scores_NHT.softmax(-1) * keep_NHT
    return torch.einsum("nht,nths->nhs", weights_NHT, values_VHS[rows_NT]), weights_NHT


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *parts: Tensor) -> tuple[Tensor, Tensor]:
        query, keys, values, tokens, bias, keep = (part.contiguous() for part in parts)
        with ONE_AT_A_TIME:
            read_NHS, weights_NHT = _kernel(query).read(query, keys, values, tokens, bias, keep)
        ctx.save_for_backward(query, keys, values, tokens, keep, weights_NHT)
        return read_NHS, weights_NHT

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        query, keys, values, tokens, keep, weights = ctx.saved_tensors
        with ONE_AT_A_TIME:
            found = _kernel(query).read_backward(
                query, keys, values, tokens, keep, weights, *(g.contiguous() for g in grads)
            )
        grad_query, grad_keys, grad_values, grad_bias = found
        return (
            grad_query.to(query.dtype),
            grad_keys.to(keys.dtype),
            grad_values.to(values.dtype),
            None,
            grad_bias,
            None,
        )


def _kernel(tensor: Tensor) -> Any:
    return twin("attention", tensor.device.type)
