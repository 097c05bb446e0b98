"""The link head's last step: sum_d weight_d relu(query_d + candidate_d), for all pairs at once.

Written plainly this holds B x C x D numbers; the compiled twins hold B x C, forwards and backwards.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from pathe.twins import ONE_AT_A_TIME, twin

PLAIN = 1 << 24  # numbers that the plain version holds at once, where nothing learns from them


def relu_dot(query_BD: Tensor, candidates_CD: Tensor, weight_D: Tensor) -> Tensor:
    """(B, C) scores of every candidate for every query."""
    kernel = twin("scores", query_BD.device.type)
    dtypes = {x.dtype for x in (query_BD, candidates_CD, weight_D)}
    if kernel is None or torch.float64 in dtypes:
        if torch.is_grad_enabled():
            return relu_dot_plain(query_BD, candidates_CD, weight_D)
        rows = max(PLAIN // max(candidates_CD.numel(), 1), 1)
        few = [relu_dot_plain(q, candidates_CD, weight_D) for q in query_BD.split(rows)]
        return torch.cat(few)
    parts = (query_BD.float(), candidates_CD.float(), weight_D.float())
    scores_BC: Tensor = _ReluDot.apply(*parts)  # type: ignore[no-untyped-call]
    return scores_BC


def relu_dot_plain(query_BD: Tensor, candidates_CD: Tensor, weight_D: Tensor) -> Tensor:
    """The same, written out."""
    return F.relu(query_BD[:, None] + candidates_CD) @ weight_D


class _ReluDot(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query_BD: Tensor, candidates_CD: Tensor, weight_D: Tensor) -> Tensor:
        ctx.save_for_backward(query_BD, candidates_CD, weight_D)
        with ONE_AT_A_TIME:
            scores_BC: Tensor = _kernel(query_BD).relu_dot(query_BD, candidates_CD, weight_D)
        return scores_BC

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query_BD, candidates_CD, weight_D = ctx.saved_tensors
        with ONE_AT_A_TIME:
            # what passes the relu, summed: times the weight it is the gradient of either side
            open_BD, open_CD = _kernel(query_BD).open_sums(query_BD, candidates_CD, grads[0])
        grad_D = (query_BD * open_BD).sum(0) + (candidates_CD * open_CD).sum(0)
        return open_BD * weight_D, open_CD * weight_D, grad_D


def _kernel(tensor: Tensor) -> Any:
    return twin("scores", tensor.device.type)
