from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pathe.evaluation.metrics import compute, mean_mrr
from pathe.model.ranks import join, rank


def test_ranks_with_ties_by_hand():
    scores = torch.tensor([[3.0, 1.0, 3.0, 2.0, 3.0], [0.0, 5.0, 1.0, 1.0, 9.0]])
    found = rank(scores, torch.tensor([0, 2]))
    assert found.optimistic_B.tolist() == [1, 3]
    assert found.pessimistic_B.tolist() == [3, 4]
    assert found.realistic_B.tolist() == [2.0, 3.5]
    assert found.candidates_B.tolist() == [5, 5]
    # leave out entity 2 of the first row, 4 and the true one itself of the second
    excluded = (torch.tensor([0, 1, 1]), torch.tensor([2, 4, 2]))
    filtered = rank(scores, torch.tensor([0, 2]), excluded)
    assert filtered.realistic_B.tolist() == [1.5, 2.5]
    assert filtered.candidates_B.tolist() == [4, 4]
    table = compute(filtered)
    assert table["mrr"] == pytest.approx((1 / 1.5 + 1 / 2.5) / 2)
    assert table["hits_at_1"] == 0
    assert table["hits_at_3"] == 1
    assert table["mean_rank"] == 2
    assert table["adjusted_mean_rank"] == pytest.approx(2 / 2.5)
    assert table["adjusted_mean_rank_index"] == pytest.approx(1 - 1 / 1.5)


def test_a_constant_scorer_gets_chance_and_an_oracle_gets_one():
    true = torch.arange(40)
    constant = compute(rank(torch.zeros(40, 40), true))
    assert constant["mean_rank"] == 20.5
    assert constant["adjusted_mean_rank"] == 1
    assert constant["adjusted_mean_rank_index"] == 0
    assert constant["hits_at_10"] == 0
    oracle = compute(rank(torch.eye(40), true))
    assert oracle["mrr"] == oracle["hits_at_1"] == oracle["adjusted_mean_rank_index"] == 1


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.booleans())
def test_the_field_s_own_evaluator_agrees(seed, ties):
    from pykeen.evaluation import RankBasedEvaluator

    generator = torch.Generator().manual_seed(seed)
    n, c = 13, 17
    scores = torch.randn(n, c, generator=generator)
    if ties:
        scores = scores.round()
    true = torch.randint(c, (n,), generator=generator)
    known = torch.rand(n, c, generator=generator) < 0.3
    known[torch.arange(n), true] = False
    found = compute(rank(scores, true, known.nonzero(as_tuple=True)))

    evaluator = RankBasedEvaluator(filtered=True, clear_on_finalize=False)
    evaluator.process_scores_(
        hrt_batch=torch.stack([torch.arange(n), torch.zeros(n).long(), true], 1),
        target="tail",
        scores=scores.masked_fill(known, float("nan")),
        true_scores=scores.gather(1, true[:, None]),
        dense_positive_mask=None,
    )
    theirs = evaluator.finalize()
    for ours, name in (
        ("mrr", "both.realistic.inverse_harmonic_mean_rank"),
        ("mean_rank", "both.realistic.arithmetic_mean_rank"),
        ("hits_at_1", "both.realistic.hits_at_1"),
        ("hits_at_3", "both.realistic.hits_at_3"),
        ("hits_at_5", "both.realistic.hits_at_5"),
        ("hits_at_10", "both.realistic.hits_at_10"),
        ("adjusted_mean_rank", "both.realistic.adjusted_arithmetic_mean_rank"),
        ("adjusted_mean_rank_index", "both.realistic.adjusted_arithmetic_mean_rank_index"),
    ):
        assert found[ours] == pytest.approx(theirs.get_metric(name), abs=1e-6), ours
    assert not np.isnan(found["mrr"])


def test_scores_that_are_no_numbers_rank_last():
    nan = float("nan")
    scores = torch.tensor([[nan, nan, nan], [nan, 1.0, 2.0], [1.0, nan, 0.5]])
    assert rank(scores, torch.tensor([0, 0, 0])).realistic_B.tolist() == [3, 3, 2]
    endless = torch.tensor([[float("-inf"), float("-inf"), 1.0]])
    assert rank(endless, torch.tensor([0])).realistic_B.tolist() == [2.5]
    assert rank(endless, torch.tensor([0])).candidates_B.tolist() == [3]


def test_ranks_join_and_empty_compute():
    scores = torch.randn(6, 9)
    true = torch.arange(6)
    parts = join([rank(scores[:2], true[:2]), rank(scores[2:], true[2:])])
    assert compute(parts) == compute(rank(scores, true))
    assert compute(rank(scores[:0], true[:0])) == {"count": 0}


def test_the_mean_mrr_is_over_tasks():
    assert mean_mrr({"link": {"mrr": 0.5, "count": 90}, "relation": {"mrr": 0.25}}) == 0.375
    assert mean_mrr({"link": {"mrr": 0.5}}) == 0.5
