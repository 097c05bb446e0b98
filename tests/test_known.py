from __future__ import annotations

import pytest
import torch
from graphs import no_gpu, triple_lists
from hypothesis import given, settings
from hypothesis import strategies as st

from pathe import known as known_module
from pathe.known import index_triples


@settings(max_examples=60, deadline=None)
@given(triple_lists(), st.randoms(use_true_random=False))
def test_every_question_equals_a_scan_of_the_triples(data, random):
    rows, n_entities, n_relations = data
    shuffled = rows + rows[:3]  # any order, duplicates
    random.shuffle(shuffled)
    triples = torch.tensor(shuffled, dtype=torch.int32).view(-1, 3)
    known = index_triples(triples, n_entities, n_relations)
    e, r = range(n_entities), range(n_relations)

    def pairs(found):
        return list(zip(*(x.tolist() for x in found), strict=True))

    hr = torch.cartesian_prod(torch.arange(n_entities), torch.arange(n_relations))
    assert pairs(known.tails(hr[:, 0], hr[:, 1])) == [
        (h * n_relations + x, t) for h in e for x in r for t in e if (h, x, t) in rows
    ]
    assert pairs(known.heads(hr[:, 1], hr[:, 0])) == [
        (t * n_relations + x, h) for t in e for x in r for h in e if (h, x, t) in rows
    ]
    ht = torch.cartesian_prod(torch.arange(n_entities), torch.arange(n_entities))
    assert pairs(known.relations(ht[:, 0], ht[:, 1])) == [
        (h * n_entities + t, x) for h in e for t in e for x in r if (h, x, t) in rows
    ]
    grid = torch.cartesian_prod(*(torch.arange(n) for n in (n_entities, n_relations, n_entities)))
    assert known.contains(*grid.unbind(1)).tolist() == [tuple(x) in rows for x in grid.tolist()]


def test_contains_broadcasts_a_row_of_candidates():
    known = index_triples(torch.tensor([[0, 0, 1], [0, 0, 2], [1, 1, 0]]), 3, 2)
    heads, relations = torch.tensor([[0], [1]]), torch.tensor([[0], [1]])
    found = known.contains(heads, relations, torch.arange(3))
    assert found.tolist() == [[False, True, True], [True, False, False]]


def test_an_empty_index_knows_nothing():
    known = index_triples(torch.zeros(0, 3, dtype=torch.int32), 4, 2)
    zero = torch.tensor([0])
    assert known.contains(zero, zero, zero).tolist() == [False]
    assert [x.tolist() for x in known.tails(zero, zero)] == [[], []]


def test_ids_out_of_range_are_nobody():
    known = index_triples(torch.tensor([[0, 0, 2], [0, 1, 1]]), 3, 2)
    zero, one, minus, three = (torch.tensor([i]) for i in (0, 1, -1, 3))
    assert not known.contains(zero, one, minus)
    assert not known.contains(zero, zero, three)
    assert not known.contains(minus, torch.tensor([2]), torch.tensor([2]))
    assert not len(known.tails(minus, torch.tensor([2]))[0])
    assert not len(known.relations(zero, three)[0])


@settings(max_examples=40, deadline=None)
@given(triple_lists(), st.sampled_from(["head", "tail"]), st.booleans(), st.booleans())
def test_listed_and_closed_are_what_contains_says(data, side, shared, compiled):
    rows, n_entities, n_relations = data
    triples = torch.tensor(rows, dtype=torch.int64).view(-1, 3)
    known = index_triples(triples[::2], n_entities, n_relations)  # so that some keys have no list
    lists, keys = known.answers(triples, side)
    values = torch.arange(n_entities).flip(0)
    heads, relations, tails = (column[:, None] for column in triples.unbind(1))
    expected = (
        known.contains(values, relations, tails)
        if side == "head"
        else known.contains(heads, relations, values)
    )
    with pytest.MonkeyPatch.context() as patch:
        if not compiled:
            patch.setattr(known_module, "twin", lambda *wanted: None)
        given_values = values if shared else values.expand(len(triples), -1)
        assert torch.equal(lists.listed(keys, given_values), expected)
    every = torch.ones(len(triples), n_entities, dtype=torch.bool)
    assert torch.equal(lists.close(every, keys), ~expected.flip(1))


@no_gpu
def test_a_gpu_closes_the_same():
    triples = torch.randint(0, 300, (5000, 3), generator=torch.Generator().manual_seed(0))
    triples[:, 1] %= 2
    known = index_triples(triples, 300, 2)
    for side in ("head", "tail"):
        lists, keys = known.answers(triples, side)
        every = torch.ones(len(triples), 300, dtype=torch.bool)
        there = lists.to("cuda").close(every.cuda(), keys.cuda())
        assert torch.equal(there.cpu(), lists.close(every, keys))
