"""What bridges do with states, a row each: take in what arrived, and give evidence for answers.

Rows are many (questions times entities) and narrow, so that reading and writing them is what takes
time: compiled, each step reads its rows once.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from pathe.propagation import Reach
from pathe.twins import twin

WIDTHS = (16, 32, 64)  # that a GPU's kernels know


def settle(x_AD: Tensor, arrived_OD: Tensor, take_DK: Tensor) -> Tensor:
    """(O, D): the states after a hop; rows beyond A were nothing before.

    Hubs add up thousands of edges: what arrives keeps its direction and the logarithm of its size.
    """
    if _compiled(x_AD, arrived_OD):
        found: Tensor = _Settle.apply(x_AD, arrived_OD, take_DK)  # type: ignore[no-untyped-call]
        return found
    return settle_plain(x_AD, arrived_OD, take_DK)


def settle_plain(x_AD: Tensor, arrived_OD: Tensor, take_DK: Tensor) -> Tensor:
    """The same, written out."""
    x_OD = F.pad(x_AD, (0, 0, 0, len(arrived_OD) - len(x_AD)))
    size_O1 = arrived_OD.square().mean(-1, keepdim=True).add(1e-12).sqrt()
    arrived_OD = arrived_OD * (size_O1.log1p() / size_O1)
    return x_OD + F.relu(F.linear(torch.cat([x_OD, arrived_OD], -1), take_DK))


def answer_scores(
    x_AD: Tensor, asked_BH: Tensor, first_HD: Tensor, second_1H: Tensor, reached: Reach
) -> Tensor:
    """(B, E): what states say for each entity as an answer; 0 where there are none."""
    if _compiled(x_AD, asked_BH):
        parts = x_AD, asked_BH, first_HD, second_1H, reached
        found: Tensor = _AnswerScores.apply(*parts)  # type: ignore[no-untyped-call]
        return found
    return answer_scores_plain(x_AD, asked_BH, first_HD, second_1H, reached)


def answer_scores_plain(
    x_AD: Tensor, asked_BH: Tensor, first_HD: Tensor, second_1H: Tensor, reached: Reach
) -> Tensor:
    """The same, written out."""
    questions_A, entities_A = reached.questions_A.long(), reached.entities_A
    scores_A = evidence(x_AD, F.embedding(questions_A, asked_BH), first_HD, second_1H).squeeze(1)
    b, n = reached.row_BE.shape
    places_A = torch.where(entities_A >= 0, questions_A * n + entities_A, b * n)  # or nowhere
    return scores_A.new_zeros(b * n + 1).index_put((places_A,), scores_A)[:-1].view(b, n)


def evidence(x_AD: Tensor, asked_AH: Tensor, first_HD: Tensor, second_SH: Tensor) -> Tensor:
    """(A, S): states -> scores, in the light of what is asked; nothing scores nothing."""
    hidden_AH = F.relu(F.linear(x_AD, first_HD) + asked_AH) - F.relu(asked_AH)
    return F.linear(hidden_AH, second_SH)


def _compiled(x_AD: Tensor, other: Tensor) -> bool:
    device = x_AD.device.type
    known = device == "cpu" or x_AD.shape[1] in WIDTHS
    floats = x_AD.dtype == other.dtype == torch.float32
    return known and floats and twin("states", device) is not None


class _Settle(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_AD: Tensor, arrived_OD: Tensor, take_DK: Tensor) -> Tensor:
        parts = x_AD.contiguous(), arrived_OD.contiguous(), take_DK.contiguous()
        ctx.save_for_backward(*parts)
        found: Tensor = _kernels(x_AD).settle(*parts)
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_OD: Tensor) -> tuple[Tensor, ...]:
        found: tuple[Tensor, ...] = _kernels(grad_OD).settle_backward(
            *ctx.saved_tensors, grad_OD.contiguous()
        )
        return found


class _AnswerScores(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x_AD: Tensor, asked_BH: Tensor, first_HD: Tensor, second_1H: Tensor,
        reached: Reach,
    ) -> Tensor:  # fmt: skip
        parts = [p.contiguous() for p in (x_AD, asked_BH, first_HD, second_1H)]
        ctx.save_for_backward(*parts)
        ctx.reached = reached
        found: Tensor = _kernels(x_AD).answer_scores(*parts, reached)
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_BE: Tensor) -> tuple[Tensor | None, ...]:
        found: tuple[Tensor, ...] = _kernels(grad_BE).answer_scores_backward(
            *ctx.saved_tensors, ctx.reached, grad_BE.contiguous()
        )
        return *found, None


def _kernels(tensor: Tensor) -> Any:
    return twin("states", tensor.device.type)
