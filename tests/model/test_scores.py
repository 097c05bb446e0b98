"""The sums of the link head; their kernels are tested in `kernels`."""

from __future__ import annotations

import torch
from support.kernels import kernels_off, scores_example

from pathe.model import scores
from pathe.model.scores import relu_dot, relu_dot_plain


def test_scores_by_hand():
    """1 * relu(2 + 3) + 10 * relu(1 - 4), and with another candidate 1 * 0 + 10 * 2."""
    query, weight = torch.tensor([[2.0, 1.0]]), torch.tensor([1.0, 10.0])
    candidates = torch.tensor([[3.0, -4.0], [-2.0, 1.0]])
    for how in (relu_dot, relu_dot_plain):
        assert how(query, candidates, weight).tolist() == [[5, 20]]


def test_gradients_are_those_of_the_function():
    assert torch.autograd.gradcheck(
        relu_dot, [x.double().requires_grad_() for x in scores_example(b=3, c=4, dim=5)]
    )


def test_chunks_of_queries_do_not_change_the_plain_scores(monkeypatch):
    parts = scores_example()
    monkeypatch.setattr(scores, "PLAIN", 2 * parts[1].numel())
    with kernels_off(), torch.no_grad():
        assert torch.equal(relu_dot(*parts), relu_dot_plain(*parts))
