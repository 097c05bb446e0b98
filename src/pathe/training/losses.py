"""Losses as functions of scores.

Each positive has N negatives on one side; mask_BN is False for negatives to ignore.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

LossName = Literal["ce", "bce", "nssa"]


def link_loss(
    name: LossName,
    positive_B: Tensor,
    negative_BN: Tensor,
    mask_BN: Tensor,
    *,
    label_smoothing: float = 0.0,
    margin: float = 10.0,
    temperature: float = 1.0,
) -> Tensor:
    """Returns the named loss of positives and their negatives, averaged over positives."""
    match name:
        case "ce":
            return ce(positive_B, negative_BN, mask_BN, label_smoothing)
        case "bce":
            return bce(positive_B, negative_BN, mask_BN, label_smoothing)
        case "nssa":
            return nssa(positive_B, negative_BN, mask_BN, label_smoothing, margin, temperature)


def ce(positive_B: Tensor, negative_BN: Tensor, mask_BN: Tensor, smoothing: float) -> Tensor:
    """Returns the softmax cross entropy of positives among their negatives, with smoothing."""
    negative_BN = negative_BN.masked_fill(~mask_BN, float("-inf"))
    total_B = torch.logaddexp(positive_B, negative_BN.logsumexp(1))
    loss_B = total_B - positive_B
    if smoothing:
        sums_B = positive_B + negative_BN.masked_fill(~mask_BN, 0.0).sum(1)
        mean_B = sums_B / (1 + mask_BN.sum(1))
        loss_B = (1 - smoothing) * loss_B + smoothing * (total_B - mean_B)
    return loss_B.mean()


def bce(positive_B: Tensor, negative_BN: Tensor, mask_BN: Tensor, smoothing: float) -> Tensor:
    """Returns the binary cross entropy; a positive weighs as much as its negatives together."""
    positive = _binary(positive_B, 1.0, smoothing)
    negative = _weighted(_binary(negative_BN, 0.0, smoothing), _even(mask_BN))
    return (positive + negative).mean() / 2


def nssa(
    positive_B: Tensor,
    negative_BN: Tensor,
    mask_BN: Tensor,
    smoothing: float,
    margin: float,
    temperature: float,
) -> Tensor:
    """Returns the self-adversarial loss (Sun et al., 2019): harder negatives weigh more."""
    hardness = (negative_BN.detach() * temperature).masked_fill(~mask_BN, -1e9)
    weights = hardness.softmax(1) * mask_BN
    positive = _binary(positive_B + margin, 1.0, smoothing)
    negative = _weighted(_binary(negative_BN + margin, 0.0, smoothing), weights)
    return (positive + negative).mean() / 2


def relation_loss(
    scores_BR: Tensor,
    relations_B: Tensor,
    *,
    label_smoothing: float = 0.0,
    class_weights_R: Tensor | None = None,
) -> Tensor:
    """Returns the cross entropy over all relations, optionally with class weights."""
    return F.cross_entropy(
        scores_BR, relations_B, weight=class_weights_R, label_smoothing=label_smoothing
    )


def class_weights(counts_R: Tensor) -> Tensor:
    """Returns weights that balance relations by frequency; absent relations get 0."""
    present = (counts_R > 0).sum()
    weights = counts_R.sum() / (present * counts_R.clamp(min=1))
    return torch.where(counts_R > 0, weights, torch.zeros_like(weights))


def _binary(scores: Tensor, label: float, smoothing: float) -> Tensor:
    target = label * (1 - smoothing) + smoothing / 2
    return F.softplus(scores) - target * scores


def _even(mask_BN: Tensor) -> Tensor:
    return mask_BN / mask_BN.sum(1, keepdim=True).clamp(min=1)


def _weighted(losses_BN: Tensor, weights_BN: Tensor) -> Tensor:
    return (losses_BN * weights_BN).sum(1)
