from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.graphs import triple_lists

from pathe.core.types import PARTS
from pathe.graph.known import KnownTriples


def every_query(n_entities: int, n_relations: int) -> torch.Tensor:
    """All triples of ids, in order."""
    return torch.cartesian_prod(*(torch.arange(n) for n in (n_entities, n_relations, n_entities)))


def as_pairs(found) -> list[tuple[int, int]]:
    return list(zip(*(x.tolist() for x in found), strict=True))


@settings(max_examples=60, deadline=None)
@given(triple_lists(), st.randoms(use_true_random=False))
def test_every_query_equals_a_scan_of_the_triples(data, random):
    rows, n_entities, n_relations = data
    shuffled = rows + rows[:3]  # any order, duplicates
    random.shuffle(shuffled)
    known = KnownTriples(torch.tensor(shuffled, dtype=torch.int32).view(-1, 3))
    queries = every_query(n_entities, n_relations)
    assert known.contains(queries).tolist() == [tuple(x) in rows for x in queries.tolist()]
    for part, column in (("head", 0), ("relation", 1), ("tail", 2)):
        asked = queries[queries[:, column] == 0].clone()
        asked[:, column] = -7  # its own column is not read
        expected = [
            (row, answer)
            for row, query in enumerate(asked.tolist())
            for answer in range(n_relations if part == "relation" else n_entities)
            if (*query[:column], answer, *query[column + 1 :]) in rows
        ]
        assert as_pairs(known.find(asked, part)) == expected


def test_an_empty_index_knows_nothing():
    known = KnownTriples(torch.zeros(0, 3, dtype=torch.int32))
    zeros = torch.zeros(1, 3, dtype=torch.int64)
    assert known.contains(zeros).tolist() == [False]
    for part in PARTS:
        assert as_pairs(known.find(zeros, part)) == []


def test_ids_out_of_range_are_not_known():
    known = KnownTriples(torch.tensor([[0, 0, 2], [0, 1, 1]]))
    absent = torch.tensor([[0, 1, -1], [0, 0, 3], [-1, 2, 2], [0, 2**31, 2], [0, 0, 2**31]])
    assert not known.contains(absent).any()
    assert as_pairs(known.find(torch.tensor([[-1, 2, 0], [0, -1, 0]]), "tail")) == []
    assert as_pairs(known.find(torch.tensor([[0, 0, 3]]), "relation")) == []


@settings(max_examples=40, deadline=None)
@given(triple_lists(), st.sampled_from(["head", "tail"]), st.booleans())
def test_listed_and_closed_are_what_contains_says(data, side, shared):
    rows, n_entities, _ = data
    triples = torch.tensor(rows, dtype=torch.int64).view(-1, 3)
    known = KnownTriples(triples[::2])  # so that some keys have no list
    lists, keys = known.answers(triples, side)
    values = torch.arange(n_entities).flip(0)
    filled = triples[:, None].repeat(1, n_entities, 1)
    filled[:, :, 0 if side == "head" else 2] = values
    expected = known.contains(filled.view(-1, 3)).view(len(triples), n_entities)
    given_values = values if shared else values.expand(len(triples), -1)
    assert torch.equal(lists.listed(keys, given_values), expected)
    every = torch.ones(len(triples), n_entities, dtype=torch.bool)
    assert torch.equal(lists.close(every, keys), ~expected.flip(1))


@settings(max_examples=60, deadline=None)
@given(triple_lists(), st.data())
def test_an_index_that_grew_equals_a_fresh_one(data, more):
    """Whichever of its lists were built before; some triples are added twice, some were known."""
    rows, n_entities, n_relations = data
    cut = more.draw(st.integers(0, len(rows)))
    random = more.draw(st.randoms(use_true_random=False))
    random.shuffle(rows)
    before, added = (torch.tensor(part, dtype=torch.int64).view(-1, 3)
                     for part in (rows[:cut], rows[cut:] + rows[cut - 1 : cut + 1]))  # fmt: skip
    known = KnownTriples(before)
    for part in more.draw(st.sets(st.sampled_from(PARTS))):
        known.lists(part)
    grown, fresh = known.add(added), KnownTriples(torch.cat([before, added]))
    queries = every_query(n_entities, n_relations)
    assert torch.equal(grown.contains(queries), fresh.contains(queries))
    for part in PARTS:
        for name in ("keys_G", "offsets_G1", "codes_V1"):
            ours, theirs = (getattr(index.lists(part), name) for index in (grown, fresh))
            assert torch.equal(ours, theirs), (part, name)
    assert torch.equal(known.contains(queries), KnownTriples(before).contains(queries))


def test_growing_twice_is_growing_once():
    made = torch.Generator().manual_seed(0)
    triples = torch.randint(0, 20, (60, 3), generator=made)
    first = KnownTriples(triples[:20])
    first.lists("tail")
    twice = first.add(triples[20:40]).add(triples[40:])
    once = first.add(triples[20:])
    for part in PARTS:
        assert torch.equal(twice.lists(part).codes_V1, once.lists(part).codes_V1)


@pytest.mark.parametrize("part", PARTS)
def test_a_list_is_built_when_it_is_first_used(part):
    known = KnownTriples(torch.tensor([[0, 0, 1]]))
    assert not known._lists
    known.find(torch.tensor([[0, 0, 1]]), part)
    assert known._lists.keys() == {part}
