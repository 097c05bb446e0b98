from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.graphs import triple_lists

from pathe.graph.known import KnownTriples
from pathe.graph.negatives import corrupt, is_known, shared


@settings(max_examples=40, deadline=None)
@given(triple_lists(), st.sampled_from(["head", "tail"]), st.integers())
def test_negatives_come_from_the_pool_and_are_never_known(data, side, seed):
    rows, n_entities, _ = data
    if not rows:
        return
    triples = torch.tensor(rows)
    known = KnownTriples(triples)
    pool = torch.arange(0, n_entities, 2)
    negatives, mask = corrupt(known, triples, side, pool, 6, seed=seed)
    assert set(negatives.flatten().tolist()) <= set(pool.tolist())
    facts = set(rows)
    for (h, r, t), row, counts in zip(rows, negatives.tolist(), mask.tolist(), strict=True):
        for entity, fine in zip(row, counts, strict=True):
            fact = (entity, r, t) if side == "head" else (h, r, entity)
            assert fine == (fact not in facts)


def test_negatives_are_uniform_over_the_entities_left_and_resampled():
    triples = torch.tensor([[0, 0, t] for t in range(5)])
    known = KnownTriples(triples)
    negatives, mask = corrupt(known, triples[:1], "tail", torch.arange(10), 20_000, seed=1)
    assert mask.float().mean() > 0.99
    counts = torch.bincount(negatives[mask], minlength=10)
    assert counts[:5].sum() == 0
    assert (counts[5:] - 4000).abs().max() < 400
    again, _ = corrupt(known, triples[:1], "tail", torch.arange(10), 20_000, seed=2)
    assert (again != negatives).float().mean() > 0.5


def test_shared_negatives_are_masked_for_each_triple():
    triples = torch.tensor([[0, 0, 1], [2, 0, 1]])
    known = KnownTriples(triples)
    pool = shared(torch.arange(4), 50, "head", seed=0)
    assert pool.shape == (50,)
    found = is_known(known, triples, "head", pool)
    assert torch.equal(found, ((pool == 0) | (pool == 2)).expand(2, -1))


@pytest.mark.parametrize("side", ["head", "tail"])
def test_where_every_entity_is_an_answer_nothing_counts(side):
    triples = torch.tensor([[h, 0, t] for h in range(3) for t in range(3)])
    known = KnownTriples(triples)
    _, mask = corrupt(known, triples, side, torch.arange(3), 4, seed=0)
    assert not mask.any()
