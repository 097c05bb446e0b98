"""Contexts of entities and the scores that are read from them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from support.graphs import DEVICES, sorted_triples
from torch import Tensor

from pathe.graph.adjacency import build_graph
from pathe.graph.edges import both_ways
from pathe.graph.held_out import HeldOut
from pathe.graph.relation_graph import arrivals
from pathe.model.context_head import (
    ContextHead,
    EntityContexts,
    contexts_without,
    entity_contexts,
)

N, R, K = 14, 3, 6
HELD_OUT = 5  # every fifth triple


def some_rows() -> list[list[int]]:
    """Random triples; entities 0, 7 and 12 have none."""
    made = torch.Generator().manual_seed(2)
    rows = (torch.rand(45, 3, generator=made) * torch.tensor([N, R, N])).long().tolist()
    return sorted_triples([row for row in rows if not {0, 7, 12} & {row[0], row[2]}]).tolist()


def contexts_of(rows, held_out=(), device="cpu") -> EntityContexts:
    edges = both_ways(build_graph(sorted_triples(rows), N, R)).to(device)
    keep = edges.keep(HeldOut(ids_B=torch.tensor(held_out, dtype=torch.long, device=device)))
    return entity_contexts(arrivals(edges), keep)


def some_contexts(device="cpu") -> EntityContexts:
    rows = some_rows()
    return contexts_of(rows, list(range(0, len(rows), HELD_OUT)), device)


def as_dense(contexts: EntityContexts) -> EntityContexts:
    return replace(contexts, dense_EK=by_rows(contexts))


def as_sparse(contexts: EntityContexts) -> EntityContexts:
    return replace(contexts, dense_EK=None)


def by_rows(contexts: EntityContexts) -> Tensor:
    """The shares as a dense matrix, entry by entry."""
    found = torch.zeros(N, K, device=contexts.shares_P.device)
    for e, k, share in zip(
        contexts.entities_P.tolist(), contexts.kinds_P.tolist(), contexts.shares_P, strict=True
    ):
        found[e, k] = share
    return found


def head_and_vectors(n_kinds: int, device="cpu") -> tuple[ContextHead, Tensor]:
    torch.manual_seed(0)
    return ContextHead(5, 7).to(device), torch.randn(n_kinds, K, 5).to(device).requires_grad_()


def test_a_context_computed_by_hand():
    """Entity 1 has two edges of kind 0 and one of kind 4; one of kind 1 is held out."""
    rows = [(0, 0, 1), (2, 0, 1), (1, 1, 3), (3, 1, 1)]
    found = contexts_of(rows, [rows.index((3, 1, 1))])
    logs = torch.tensor([3.0, 1, 1, 1, 2, 1]).log()  # log1p of the counts
    assert logs.count_nonzero() == 2
    for contexts in (found, as_dense(found)):
        torch.testing.assert_close(contexts.at(torch.tensor([1]))[0][0], logs / logs.sum())
        torch.testing.assert_close(contexts.counts(torch.arange(K))[1], logs)
    torch.testing.assert_close(found.sums_E[1], logs.sum())
    torch.testing.assert_close(found.degrees_E[1], torch.tensor(4.0).log())
    assert not found.at(torch.tensor([5]))[0].any()
    assert found.degrees_E[5] == 0


def test_held_out_edges_are_in_no_context():
    rows = some_rows()
    left = [row for i, row in enumerate(rows) if i % HELD_OUT]
    found, expected = some_contexts(), contexts_of(left)
    everything = torch.arange(N)
    torch.testing.assert_close(found.at(everything), expected.at(everything))
    torch.testing.assert_close(found.counts(torch.arange(K)), expected.counts(torch.arange(K)))
    torch.testing.assert_close(found.degrees_E, expected.degrees_E)
    counts = torch.zeros(N, K)
    for h, r, t in left:
        counts[t, r] += 1
        counts[h, r + R] += 1
    torch.testing.assert_close(found.counts(torch.arange(K)), counts.log1p())
    torch.testing.assert_close(found.degrees_E, counts.sum(1).log1p())


def test_no_edges_at_all():
    for found in (contexts_of([]), contexts_of([(0, 0, 1)], [0])):
        for contexts in (found, as_dense(found)):
            assert not contexts.read(torch.ones(K, 2)).any()
            assert not contexts.at(torch.tensor([0, 1]))[0].any()
            assert not contexts.counts(torch.tensor([0, 3])).any()


@pytest.mark.parametrize("device", DEVICES)
def test_dense_and_sparse_contexts_give_the_same(device):
    """What is read from them, the scores, and the gradients of what is learned."""
    given = some_contexts(device)
    kinds, rows = torch.tensor([4, 0, 1], device=device), torch.tensor([2, 0, 0, 2], device=device)
    sources = torch.tensor([3, 0, 5, 13], device=device)
    found = []
    for contexts in (as_sparse(given), as_dense(given)):
        head, vectors = head_and_vectors(3, device)
        x = torch.randn(K, 4, generator=torch.Generator().manual_seed(1)).to(device)
        query = head.queries(contexts, vectors, kinds, rows, sources)
        scores = head.score(query, head.candidates(contexts, vectors, kinds), rows)
        pairs = head.pairs(contexts, vectors, kinds, sources, sources.flip(0))
        (scores.cos().sum() + pairs.sin().sum()).backward()
        parts = contexts.read(x), contexts.at(sources)[0], contexts.counts(kinds), scores, pairs
        found.append([*parts, vectors.grad, *(p.grad for p in head.parameters())])
    assert all(part.any() for part in found[0])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_scores_are_those_of_the_formula():
    """Queries in any order of kinds, one of which no query has: w . relu(candidate + query)."""
    contexts, (head, vectors) = some_contexts(), head_and_vectors(4)
    kinds, rows = torch.tensor([4, 0, 1, 5]), torch.tensor([3, 0, 1, 0, 3])
    sources, shares, everything = torch.tensor([3, 0, 5, 13, 3]), by_rows(contexts), torch.arange(N)
    logs, degrees = contexts.counts(torch.arange(K)), contexts.degrees_E
    with torch.no_grad():
        query = head.queries(contexts, vectors, kinds, rows, sources)
        scores = head.score(query, head.candidates(contexts, vectors, kinds), rows)
        for b, (row, source) in enumerate(zip(rows.tolist(), sources.tolist(), strict=True)):
            kind, own = int(kinds[row]), vectors[row]
            hidden = head.candidate(shares @ own) + head.source(shares[source] @ own)
            hidden += head.candidate_counts(torch.stack([logs[everything, kind], degrees], 1))
            inverse = (kind + R) % K
            hidden += head.source_counts(torch.stack([logs[source, inverse], degrees[source]]))
            hidden += head.asked(own[kind])
            torch.testing.assert_close(scores[b], head.second(F.relu(hidden))[:, 0])


def test_a_pair_scores_as_in_a_query():
    """Relations, and inverse ones, in any order."""
    contexts, (head, vectors) = some_contexts(), head_and_vectors(4)
    heads, tails = torch.tensor([3, 0, 5, 13, 8, 8]), torch.tensor([4, 3, 5, 2, 0, 8])
    kinds = torch.tensor([2, 0, 4, 1])
    with torch.no_grad():
        pairs = head.pairs(contexts, vectors, kinds, heads, tails)
        candidates = head.candidates(contexts, vectors, kinds)
        assert pairs.shape == (6, 4)
        for row in range(4):
            rows = torch.full_like(heads, row)
            query = head.queries(contexts, vectors, kinds, rows, heads)
            scores = head.score(query, candidates, rows)
            torch.testing.assert_close(pairs[:, row], scores.gather(1, tails[:, None])[:, 0])


def test_renamed_entities_have_the_same_scores():
    new = torch.randperm(N, generator=torch.Generator().manual_seed(4))
    rows, (head, vectors) = some_rows(), head_and_vectors(2)
    renamed = [(int(new[h]), r, int(new[t])) for h, r, t in rows]
    kinds, queries = torch.tensor([2, 3]), torch.tensor([1, 0, 1])
    sources, found = torch.tensor([1, 0, 6]), []
    with torch.no_grad():
        for contexts, own in ((contexts_of(rows), sources), (contexts_of(renamed), new[sources])):
            query = head.queries(contexts, vectors, kinds, queries, own)
            candidates = head.candidates(contexts, vectors, kinds)
            found.append(head.score(query, candidates, queries))
    torch.testing.assert_close(found[1][:, new], found[0])
    assert not torch.allclose(found[1], found[0])


@pytest.mark.parametrize("device", DEVICES)
def test_contexts_of_some_entities_without_a_few_edges(device):
    """Subtracted from those of the whole graph, they are those of the graph without the edges."""
    rows = some_rows()
    edges = both_ways(build_graph(sorted_triples(rows), N, R)).to(device)
    index, everything = arrivals(edges), torch.arange(N, device=device)
    counts = index.counts(edges.keep())
    for held_out in (range(0, len(rows), HELD_OUT), [], range(len(rows))):
        ids = torch.tensor([*held_out], dtype=torch.long, device=device)
        expected = as_sparse(entity_contexts(index, edges.keep(HeldOut(ids_B=ids))))
        found = contexts_without(index, counts, edges.slots_N2[ids].flatten())
        assert found.n_kinds == expected.n_kinds
        for entities in (everything, everything[[3, 0, 5, 3]], everything[:0]):
            pairs = zip(found.at(entities), expected.at(entities), strict=True)
            assert all(torch.equal(*pair) for pair in pairs)
            one, other = found.only(entities).tensors(), expected.only(entities).tensors()
            assert all(torch.equal(*pair) for pair in zip(one, other, strict=True))
        for part, other in zip(found.all().tensors(), expected.tensors(), strict=True):
            assert torch.equal(part, other)
