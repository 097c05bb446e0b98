"""Mixtures of what a graph's own examples say and what those of other graphs say."""

from __future__ import annotations

import pytest
import torch

from pathe.evaluation.prior import ENOUGH, Bounds, Mixture, priors
from pathe.evaluation.truth import FEATURES, Examples, Truth


def examples(n_true, n=None, seed=0):
    """Examples of two relations; the first feature says what is true."""
    n = n or 2 * n_true
    draw = torch.Generator().manual_seed(seed)
    true = torch.arange(n) < n_true
    x = torch.randn(n, FEATURES, generator=draw)
    x[:, 0] += 2 * true
    return Examples(x, torch.randint(0, 2, (n,), generator=draw), true)


@pytest.mark.parametrize("kind", ["missing", "judge"])
def test_with_enough_examples_a_graph_stands_alone(kind):
    some = examples(ENOUGH[kind])
    mixed, alone = Mixture(kind, some, 2, 0), Truth(some, 2, 0)
    given = some.features_BF, some.relations_B
    assert torch.equal(mixed(*given), alone(*given))
    assert torch.equal(mixed.order(*given, mixed(*given)), alone.logits(*given))
    assert torch.equal(mixed.thresholds(given[1]), alone.thresholds_R[given[1]])
    few = Mixture(kind, examples(20), 2, 0, alone=True)  # the caller knows better
    assert few.prior is None


@pytest.mark.parametrize("kind", ["missing", "judge"])
def test_without_examples_other_graphs_decide(kind):
    given = examples(20)[:2]
    for some in (None, Examples(*given, torch.zeros(40, dtype=torch.bool))):
        mixed = Mixture(kind, some, 2, 0)
        assert torch.equal(mixed(*given), priors()[kind](given[0], torch.zeros(40).long()))
        assert mixed.thresholds(given[1]).tolist() == [0.5] * 40


def test_between_they_are_mixed():
    some, fresh = examples(50), examples(20, seed=1)
    given = fresh.features_BF, fresh.relations_B
    mixed, own = Mixture("missing", some, 2, 0, unlabelled=True), Truth(some, 2, 0, unlabelled=True)
    other = priors()["missing"](given[0], torch.zeros(40).long())
    assert torch.allclose(mixed(*given), own(*given) / 4 + other * 3 / 4)
    least, most = torch.linspace(0, 0.6, 40), torch.linspace(0.3, 0.8, 40)
    bounded = mixed(*given, Bounds(least, most))
    assert torch.allclose(bounded, own(*given) / 4 + other.clamp(least, most) * 3 / 4)
    assert torch.equal(mixed.order(*given, bounded), bounded)


def test_the_stored_prior_equals_a_new_fit():
    some = examples(100)
    one = Examples(some.features_BF, torch.zeros(200, dtype=torch.long), some.true_B)
    fitted = Truth(one, 1, 0)
    again = Truth.restored(fitted.state())
    assert torch.allclose(again(*one[:2]), fitted(*one[:2]))


def test_a_confident_answer_has_the_higher_prior():
    """The first of each side's features is the log probability of the answer, the next its rank."""
    sure, unsure = torch.zeros(2, FEATURES)
    sure[[0, 10]], sure[[7, 17]] = -0.01, 1.0  # the best answers, and expected
    unsure[[0, 10]], unsure[[1, 11]], unsure[[2, 12]] = -6.0, 3.0, -6.0
    both = torch.stack([sure, unsure])
    for kind in ("missing", "judge"):
        chances = priors()[kind](both, torch.zeros(2, dtype=torch.long))
        assert chances[0] > chances[1]
