"""The link head's last step: sum_d weight_d relu(query_d + candidate_d), for all pairs.

In plain PyTorch this takes a (B, C, D) tensor; the kernels take (B, C), forward and backward.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from pathe.kernels.dispatch import compiled, kernel

PLAIN = 1 << 24  # numbers per chunk of the plain version, without gradients


def relu_dot(query_BD: Tensor, candidates_CD: Tensor, weight_D: Tensor) -> Tensor:
    """Returns (B, C) scores of every candidate for every query."""
    dtypes = {x.dtype for x in (query_BD, candidates_CD, weight_D)}
    if kernel("scores.relu_dot", query_BD.device.type) is None or torch.float64 in dtypes:
        if torch.is_grad_enabled():
            return relu_dot_plain(query_BD, candidates_CD, weight_D)
        rows = max(PLAIN // max(candidates_CD.numel(), 1), 1)
        parts = [relu_dot_plain(q, candidates_CD, weight_D) for q in query_BD.split(rows)]
        return torch.cat(parts)
    floats = (query_BD.float(), candidates_CD.float(), weight_D.float())
    scores_BC: Tensor = _ReluDot.apply(*floats)  # type: ignore[no-untyped-call]
    return scores_BC


def relu_dot_plain(query_BD: Tensor, candidates_CD: Tensor, weight_D: Tensor) -> Tensor:
    """Computes `relu_dot` in plain PyTorch."""
    return F.relu(query_BD[:, None] + candidates_CD) @ weight_D


class _ReluDot(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query_BD: Tensor, candidates_CD: Tensor, weight_D: Tensor) -> Tensor:
        ctx.save_for_backward(query_BD, candidates_CD, weight_D)
        relu_dot = compiled("scores.relu_dot", query_BD.device.type)
        scores_BC: Tensor = relu_dot(query_BD, candidates_CD, weight_D)
        return scores_BC

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query_BD, candidates_CD, weight_D = ctx.saved_tensors
        # sums of the gradients that pass the relu; times the weight, the gradient of each side
        open_sums = compiled("scores.open_sums", query_BD.device.type)
        open_BD, open_CD = open_sums(query_BD, candidates_CD, grads[0])
        grad_D = (query_BD * open_BD).sum(0) + (candidates_CD * open_CD).sum(0)
        return open_BD * weight_D, open_CD * weight_D, grad_D
