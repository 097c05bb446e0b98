"""Row-wise operations on bridge states: the update after a hop, and scores of answers.

Rows are many (queries times entities) and narrow, so these are bound by memory traffic: the kernels
read each row once.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from pathe.kernels.dispatch import compiled, kernel
from pathe.model.propagation import Kept, Reach

WIDTHS = (16, 32, 64)  # supported by the GPU kernels


def update(x_AD: Tensor, arrived_OD: Tensor, take_DK: Tensor) -> Tensor:
    """Returns the (O, D) states after a hop; rows beyond A were zero before.

    Hubs sum thousands of messages, so a sum is rescaled to the logarithm of its norm.
    """
    if _compiled(x_AD, arrived_OD):
        found: Tensor = _Update.apply(x_AD, arrived_OD, take_DK)  # type: ignore[no-untyped-call]
        return found
    return update_plain(x_AD, arrived_OD, take_DK)


def update_plain(x_AD: Tensor, arrived_OD: Tensor, take_DK: Tensor) -> Tensor:
    """Computes `update` in plain PyTorch."""
    x_OD = F.pad(x_AD, (0, 0, 0, len(arrived_OD) - len(x_AD)))
    size_O1 = arrived_OD.square().mean(-1, keepdim=True).add(1e-12).sqrt()
    arrived_OD = arrived_OD * (size_O1.log1p() / size_O1)
    return x_OD + F.relu(F.linear(torch.cat([x_OD, arrived_OD], -1), take_DK))


def answer_scores(
    x_AD: Tensor, asked_BH: Tensor, first_HD: Tensor, second_1H: Tensor, reached: Reach | Kept
) -> Tensor:
    """Returns (B, E) scores of each entity as an answer, from its state; 0 without a state."""
    if _compiled(x_AD, asked_BH):
        parts = x_AD, asked_BH, first_HD, second_1H, reached
        found: Tensor = _AnswerScores.apply(*parts)  # type: ignore[no-untyped-call]
        return found
    return answer_scores_plain(x_AD, asked_BH, first_HD, second_1H, reached)


def answer_scores_plain(
    x_AD: Tensor, asked_BH: Tensor, first_HD: Tensor, second_1H: Tensor, reached: Reach | Kept
) -> Tensor:
    """Computes `answer_scores` in plain PyTorch."""
    queries_A, entities_A = reached.queries_A.long(), reached.entities_A
    scores_A = evidence(x_AD, F.embedding(queries_A, asked_BH), first_HD, second_1H).squeeze(1)
    b, n = reached.shape
    places_A = torch.where(entities_A >= 0, queries_A * n + entities_A, b * n)  # padding: last
    return scores_A.new_zeros(b * n + 1).index_put((places_A,), scores_A)[:-1].view(b, n)


def evidence(x_AD: Tensor, asked_AH: Tensor, first_HD: Tensor, second_SH: Tensor) -> Tensor:
    """Returns (A, S) scores of states, given the query; a zero state scores zero."""
    hidden_AH = F.relu(F.linear(x_AD, first_HD) + asked_AH) - F.relu(asked_AH)
    return F.linear(hidden_AH, second_SH)


def _compiled(x_AD: Tensor, other: Tensor) -> bool:
    device = x_AD.device.type
    known = device == "cpu" or x_AD.shape[1] in WIDTHS
    floats = x_AD.dtype == other.dtype == torch.float32
    return known and floats and kernel("states.update", device) is not None


class _Update(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_AD: Tensor, arrived_OD: Tensor, take_DK: Tensor) -> Tensor:
        parts = x_AD.contiguous(), arrived_OD.contiguous(), take_DK.contiguous()
        ctx.save_for_backward(*parts)
        found: Tensor = compiled("states.update", x_AD.device.type)(*parts)
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_OD: Tensor) -> tuple[Tensor, ...]:
        backward = compiled("states.update_backward", grad_OD.device.type)
        found: tuple[Tensor, ...] = backward(*ctx.saved_tensors, grad_OD.contiguous())
        return found


class _AnswerScores(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x_AD: Tensor, asked_BH: Tensor, first_HD: Tensor, second_1H: Tensor,
        reached: Reach | Kept,
    ) -> Tensor:  # fmt: skip
        parts = [p.contiguous() for p in (x_AD, asked_BH, first_HD, second_1H)]
        ctx.save_for_backward(*parts)
        ctx.reached = reached
        found: Tensor = compiled("states.answer_scores", x_AD.device.type)(*parts, reached)
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_BE: Tensor) -> tuple[Tensor | None, ...]:
        backward = compiled("states.answer_scores_backward", grad_BE.device.type)
        found: tuple[Tensor, ...] = backward(*ctx.saved_tensors, ctx.reached, grad_BE.contiguous())
        return *found, None
