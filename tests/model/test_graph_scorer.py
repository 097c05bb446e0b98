"""The scorer of models for any graph."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from support.graphs import DEVICES, knowledge_graph, toy
from support.models import any_graph_artifact

from pathe.core.types import PARTS
from pathe.graph.prepared import PreparedGraph
from pathe.model import relation_encoder, scorer
from pathe.model.builder import build_scorer
from pathe.model.foundation import view
from pathe.model.ranks import rank


def scorer_of(kg, device="cpu"):
    artifact = any_graph_artifact()
    return build_scorer(artifact.model, artifact.config, PreparedGraph(kg, device))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("side", ["tail", "head"])
def test_scores_are_those_of_the_model(device, side):
    kg = toy()
    found = scorer_of(kg, device)
    edges, prepared = found.prepared.edges, found.prepared
    triples = prepared.triples("test")
    source, shift = (triples[:, 0], 0) if side == "tail" else (triples[:, 2], kg.n_relations)
    with torch.no_grad():
        seen = view(prepared.arrivals, edges.keep())
        expected = found.model.links(edges, seen, source, triples[:, 1] + shift)
    close = {"atol": 1e-5, "rtol": 1e-4}
    torch.testing.assert_close(found.scores(triples, side), expected, **close)
    some = torch.tensor([[3, 1, 4]] * len(triples), device=device)
    given = found.links(source, triples[:, 1], side, some)
    torch.testing.assert_close(given, expected[:, [3, 1, 4]], **close)


def test_caches_follow_the_graph():
    """Scores with warm caches are those of a new scorer, also of another graph."""
    kg = toy()
    found, queries = scorer_of(kg), kg.test.long()
    fewer = replace(kg, train=kg.train[::2])
    for own in (kg, kg, fewer, kg):
        if own is not found.prepared.kg:
            found.take(PreparedGraph(own))
        for part in ("tail", "head"):
            expected = scorer_of(own).scores(queries, part)
            torch.testing.assert_close(found.scores(queries, part), expected)


def test_relations_are_scored_as_by_the_model():
    found = scorer_of(toy())
    prepared = found.prepared
    triples = prepared.triples("test")
    with torch.no_grad():
        seen = view(prepared.arrivals, prepared.edges.keep())
        expected = found.model.relations(prepared.edges, seen, triples[:, 0], triples[:, 2])
    torch.testing.assert_close(found.scores(triples, "relation"), expected, atol=1e-5, rtol=1e-4)


def test_relations_without_training_triples_are_no_candidates():
    kg = knowledge_graph([(i, i % 2, i + 1) for i in range(9)], test=[(0, 2, 3)])
    scores = scorer_of(kg).relations(torch.tensor([0, 1]), torch.tensor([1, 5]))
    assert scores.isinf().tolist() == [[False, False, True]] * 2


@pytest.mark.parametrize("part", PARTS)
def test_ranks_do_not_depend_on_chunks_or_caches(part, monkeypatch):
    kg = toy()
    triples, known = kg.test.long(), PreparedGraph(kg).known()
    whole = scorer_of(kg).rank(triples, part, known)
    plain = scorer_of(kg)
    scores = torch.cat([plain.scores(row[None], part) for row in triples])
    true = triples[:, PARTS.index(part)]
    lists, keys = known.answers(triples, part)
    expected = rank(scores, true, lists.find(keys))
    assert torch.equal(whole.realistic_B, expected.realistic_B)
    monkeypatch.setattr(scorer, "STATE_CACHE", 1)  # a query at a time
    monkeypatch.setattr(relation_encoder, "CACHE", 1)  # the vectors of one kind
    monkeypatch.setattr(relation_encoder, "GROUP", 1)
    again = scorer_of(kg).rank(triples, part, known, budget=1)
    assert torch.equal(whole.realistic_B, again.realistic_B)


def test_relation_vectors_are_computed_once(monkeypatch):
    monkeypatch.setattr(relation_encoder, "GROUP", 1)
    found = scorer_of(toy())
    calls = []
    real = found.model.encoder.forward
    monkeypatch.setattr(
        found.model.encoder, "forward", lambda *given: calls.append(len(given[1])) or real(*given)
    )
    triples = found.prepared.triples("test")
    first = found.scores(triples, "tail")
    assert sum(calls) == len(triples[:, 1].unique())
    assert torch.equal(found.scores(triples, "tail"), first)
    assert sum(calls) == len(triples[:, 1].unique())
    found.warm()
    assert sum(calls) == 2 * found.prepared.n_relations


def test_valid_and_test_triples_change_no_score():
    kg = toy()
    alone = knowledge_graph(kg.train.tolist())
    queries = kg.test.long()
    for part in PARTS:
        assert torch.equal(
            scorer_of(kg).scores(queries, part), scorer_of(alone).scores(queries, part)
        )


def test_planted_valid_and_test_triples_change_nothing_that_scores_are_made_of():
    """The planted facts follow a pattern that training triples don't have."""
    kg = toy()
    planted = [(i, 1, (i + 30) % 60) for i in range(60)]
    leaky = knowledge_graph(kg.train.tolist(), planted[::2], kg.test.tolist() + planted[1::2])
    ours, theirs = scorer_of(kg), scorer_of(leaky)
    assert torch.equal(ours.graph.meetings, theirs.graph.meetings)
    contexts = ours.graph.contexts, theirs.graph.contexts
    for name in ("kinds_P", "shares_P", "sums_E", "degrees_E"):
        assert torch.equal(*(getattr(each, name) for each in contexts))
    edges = ours.prepared.edges, theirs.prepared.edges
    for name in ("owners_M", "neighbours_M", "relations_M"):
        assert torch.equal(*(getattr(each, name) for each in edges))
    kinds = torch.arange(2 * kg.n_relations)
    assert torch.equal(ours.kinds(kinds).vectors_QKD, theirs.kinds(kinds).vectors_QKD)
    queries = torch.tensor(planted)
    for part in PARTS:
        assert torch.equal(ours.scores(queries, part), theirs.scores(queries, part))


def test_relations_and_entities_of_test_alone_change_no_score():
    train = toy().train.tolist()
    ours = scorer_of(knowledge_graph(train))
    theirs = scorer_of(knowledge_graph(train, [(2, 3, 61)], [(1, 4, 60), (60, 0, 1)]))
    queries = torch.tensor(train)
    for part, n in zip(PARTS, (60, 3, 60), strict=True):
        expected = ours.scores(queries, part)[:, :n]
        torch.testing.assert_close(
            theirs.scores(queries, part)[:, :n], expected, atol=1e-5, rtol=1e-4
        )
