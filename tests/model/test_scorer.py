"""The scorer: vectors and bridges together, chunked, cached and ranked."""

from __future__ import annotations

import pytest
import torch
from support.graphs import toy
from support.kernels import kernels_off
from support.models import BRIDGE, artifact_of

from pathe.graph.held_out import HeldOut
from pathe.graph.prepared import PreparedGraph
from pathe.model import scorer as scorer_module
from pathe.model import vectors
from pathe.model.builder import build_scorer
from pathe.model.ranks import rank
from pathe.model.scorer import Scorer

KINDS = [{}, BRIDGE, {"aggregator": "transformer-joint"}, {"aggregator": "lstm"} | BRIDGE]


def scorer_of(kg, **more) -> Scorer:
    artifact = artifact_of(kg, **more)
    return build_scorer(artifact.model, artifact.config, PreparedGraph(kg))


def parts_of(triples: torch.Tensor, side: str) -> tuple[torch.Tensor, torch.Tensor]:
    return triples[:, 2 if side == "head" else 0], triples[:, 1]


@pytest.mark.parametrize("more", KINDS)
@pytest.mark.parametrize("side", ["head", "tail"])
def test_scores_are_those_of_vectors_plus_those_of_bridges(more, side):
    kg = toy()
    scorer, triples = scorer_of(kg, **more), kg.test[:5].long()
    entities, relations = parts_of(triples, side)
    found = scorer.links(entities, relations, side)
    model, z = scorer.model, scorer.vectors.all()
    every = torch.arange(kg.n_entities)
    with torch.no_grad():
        for row, (entity, relation) in enumerate(zip(entities, relations, strict=True)):
            own, others = z[entity].expand_as(z), z
            heads, tails = (others, own) if side == "head" else (own, others)
            expected = model.link_scores(heads, relation.expand_as(every), tails)
            if model.bridge is not None:
                kind = relation + (kg.n_relations if side == "head" else 0)
                edges = scorer.prepared.edges
                expected = expected + model.bridge.links(edges, edges.keep(), entity[None],
                                                         kind[None])[0]  # fmt: skip
            torch.testing.assert_close(found[row], expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("more", KINDS)
def test_candidates_of_their_own_have_the_scores_of_all_entities(more):
    kg = toy()
    scorer, triples = scorer_of(kg, **more), kg.test[:4].long()
    picks = torch.randint(0, kg.n_entities, (4, 7), generator=torch.Generator().manual_seed(0))
    for side in ("head", "tail"):
        query = parts_of(triples, side)
        some = scorer.links(*query, side, picks)
        torch.testing.assert_close(some, scorer.links(*query, side).gather(1, picks))


@pytest.mark.parametrize("more", KINDS)
@pytest.mark.parametrize("part", ["head", "relation", "tail"])
def test_ranks_are_those_of_the_scores(more, part):
    """Whether a kernel counts, scores are sorted or chunks are small."""
    kg = toy()
    scorer, triples = scorer_of(kg, **more), torch.cat([kg.test, kg.valid]).long()
    known, column = scorer.prepared.known(), ("head", "relation", "tail").index(part)
    with kernels_off():
        scores = scorer.scores(triples, part)
        expected = rank(scores, triples[:, column], known.find(triples, part))
    for budget in (None, 1, 10_000):
        found = scorer.rank(triples, part, known, budget=budget)
        assert torch.equal(found.candidates_B, expected.candidates_B)
        torch.testing.assert_close(found.realistic_B, expected.realistic_B)


@pytest.mark.parametrize("more", KINDS)
def test_with_all_entities_as_negatives_sampled_ranks_are_full_ones(more):
    kg = toy()
    scorer, triples = scorer_of(kg, **more), kg.test.long()
    known = scorer.prepared.known()
    for side, column in (("head", 0), ("tail", 2)):
        negatives = torch.arange(kg.n_entities).expand(len(triples), -1)
        mask = torch.ones_like(negatives, dtype=torch.bool)
        mask[known.find(triples, side)] = False
        mask.scatter_(1, triples[:, column, None], False)
        found = scorer.rank_sampled(triples, side, negatives, mask)
        expected = scorer.rank(triples, side, known)
        assert torch.equal(found.candidates_B, expected.candidates_B)
        torch.testing.assert_close(found.realistic_B, expected.realistic_B)


@pytest.mark.parametrize("cache", [1, 1 << 30])
def test_few_queries_at_once_or_all_score_the_same(cache, monkeypatch):
    kg = toy()
    scorer = scorer_of(kg, **BRIDGE)
    h, r, _ = kg.train[:40].long().unbind(1)
    edges, z = scorer.prepared.edges, scorer.vectors.all()
    with torch.no_grad():
        bridges = scorer.model.bridge.links(edges, edges.keep(), h, r)
        query = scorer.model.head.query(z[h], r, "tail")
        vectors = scorer.model.head.score_all(query, scorer.vectors.candidates("tail"))
    monkeypatch.setattr(scorer_module, "STATE_CACHE", cache)
    found = scorer.links(h, r, "tail")
    torch.testing.assert_close(found, vectors + bridges)
    assert scorer.links(h[:0], r[:0], "tail").shape == (0, kg.n_entities)


def test_equal_queries_are_bridged_once(monkeypatch):
    kg = toy()
    scorer, asked = scorer_of(kg, **BRIDGE), []
    real = scorer.model.bridge.links
    monkeypatch.setattr(
        scorer.model.bridge, "links", lambda *parts: asked.append(len(parts[2])) or real(*parts)
    )
    entities, relations = torch.tensor([3, 5, 3, 3]), torch.tensor([0, 1, 0, 1])
    found = scorer.links(entities, relations, "tail")
    assert sum(asked) == 3
    torch.testing.assert_close(found[0], found[2])


def test_relations_between_a_pair_see_its_paths():
    kg = toy()
    scorer = scorer_of(kg, **BRIDGE)
    h, t = kg.train[0, [0, 2]].long().split(1)
    z, edges, bridge = scorer.vectors.all(), scorer.prepared.edges, scorer.model.bridge
    with torch.no_grad():
        alone = scorer.model.relation_scores(z[h], z[t])
        nothing_kept = edges.keep(HeldOut(ids_B=torch.arange(len(kg.train))))
        without = bridge.pairs(edges, nothing_kept, h, t)
    assert (scorer.relations(h, t) - alone).abs().sum() > 0
    assert without.abs().sum() == 0


def test_entities_are_encoded_when_first_needed_and_kept(encoded):
    kg = toy()
    scorer = scorer_of(kg)
    scorer.relations(torch.tensor([1, 2]), torch.tensor([2, 1]))
    assert encoded == [2]
    for side in ("head", "tail"):
        scorer.links(torch.tensor([1]), torch.tensor([0]), side)
        scorer.rank(kg.test.long(), side, scorer.prepared.known())
    assert encoded == [2, kg.n_entities - 2]


def test_vectors_of_all_entities_are_not_copied(monkeypatch):
    """On a graph of millions of entities a second copy would take gigabytes."""
    made, real = [], vectors.encode

    def spy(*args, **more):
        made.append(real(*args, **more))
        return made[-1]

    monkeypatch.setattr(vectors, "encode", spy)
    kg = toy()
    whole = scorer_of(kg).vectors
    assert whole.all().data_ptr() == made[0].data_ptr()
    some = scorer_of(kg).vectors
    some.rows(torch.tensor([7, 3]))
    torch.testing.assert_close(some.all(), whole.all())  # in order, whatever was needed first
