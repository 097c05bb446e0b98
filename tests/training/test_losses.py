from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from pathe.training.losses import bce, ce, class_weights, link_loss, nssa, relation_loss

POSITIVE = torch.tensor([1.0, -0.5])
NEGATIVE = torch.tensor([[0.0, 2.0, 9.0], [0.5, 0.1, -1.0]])
MASK = torch.tensor([[True, True, False], [True, True, True]])


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_ce_is_torchs_cross_entropy_of_each_group(smoothing):
    groups = [torch.tensor([[1.0, 0.0, 2.0]]), torch.tensor([[-0.5, 0.5, 0.1, -1.0]])]
    target = torch.tensor([0])
    expected = sum(F.cross_entropy(g, target, label_smoothing=smoothing) for g in groups) / 2
    torch.testing.assert_close(ce(POSITIVE, NEGATIVE, MASK, smoothing), expected)


def test_bce_weighs_a_positive_as_its_negatives_together():
    def softplus(x: float) -> float:
        return math.log1p(math.exp(x))

    first = softplus(-1.0) + (softplus(0.0) + softplus(2.0)) / 2
    second = softplus(0.5) + (softplus(0.5) + softplus(0.1) + softplus(-1.0)) / 3
    found = bce(POSITIVE, NEGATIVE, MASK, 0.0)
    assert float(found) == pytest.approx((first + second) / 2 / 2, rel=1e-6)


def test_nssa_by_hand():
    def log_sigmoid(x: float) -> float:
        return -math.log1p(math.exp(-x))

    weights = [math.exp(0.0), math.exp(2.0)]
    weights = [w / sum(weights) for w in weights]
    negative = -weights[0] * log_sigmoid(-3.0 - 0.0) - weights[1] * log_sigmoid(-3.0 - 2.0)
    expected = (-log_sigmoid(3.0 + 1.0) + negative) / 2
    found = nssa(POSITIVE[:1], NEGATIVE[:1], MASK[:1], 0.0, margin=3.0, temperature=1.0)
    assert float(found) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("name", ["ce", "bce", "nssa"])
def test_masked_negatives_and_empty_groups_are_harmless(name):
    changed = NEGATIVE.clone()
    changed[0, 2] = -50.0
    losses = [link_loss(name, POSITIVE, n, MASK, label_smoothing=0.1) for n in (NEGATIVE, changed)]
    torch.testing.assert_close(*losses)
    positive = POSITIVE.clone().requires_grad_()
    nothing = link_loss(name, positive, NEGATIVE, torch.zeros_like(MASK), label_smoothing=0.1)
    nothing.backward()
    assert torch.isfinite(nothing)
    assert torch.isfinite(positive.grad).all()


@pytest.mark.parametrize("name", ["ce", "bce", "nssa"])
def test_better_scores_lose_less(name):
    worse = link_loss(name, POSITIVE, NEGATIVE, MASK)
    assert link_loss(name, POSITIVE + 1, NEGATIVE, MASK) < worse
    assert link_loss(name, POSITIVE, NEGATIVE - 1, MASK) < worse


@pytest.mark.parametrize("name", ["ce", "bce", "nssa"])
def test_splitting_a_batch_keeps_the_mean(name):
    halves = [
        link_loss(name, POSITIVE[i : i + 1], NEGATIVE[i : i + 1], MASK[i : i + 1]) for i in (0, 1)
    ]
    torch.testing.assert_close(sum(halves) / 2, link_loss(name, POSITIVE, NEGATIVE, MASK))


def test_class_weights_even_out_relations():
    counts = torch.tensor([90.0, 10.0, 0.0])
    weights = class_weights(counts)
    assert weights[2] == 0
    torch.testing.assert_close(weights[0] * 90, weights[1] * 10)
    scores = torch.zeros(2, 3)
    loss = relation_loss(scores, torch.tensor([0, 1]), class_weights_R=weights)
    assert float(loss) == pytest.approx(math.log(3), rel=1e-6)
