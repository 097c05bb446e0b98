"""The contract of a link head: pair scores equal scores of all, and ranks are those of scores."""

from __future__ import annotations

import pytest
import torch
from support.graphs import toy
from support.models import artifact_of
from torch import Tensor, nn

from pathe.evaluation.ranking import evaluate
from pathe.graph.prepared import PreparedGraph
from pathe.model.builder import build_scorer
from pathe.model.heads import Head, LinkHead
from pathe.model.ranks import rank
from pathe.predict.predictor import Predictor


class ToyHead(Head, nn.Module):
    """DistMult: the sum of the products of both entities and the relation, and nothing more."""

    def __init__(self, n_relations: int, dim: int) -> None:
        super().__init__()
        self.relations = nn.Embedding(n_relations, dim)

    def query(self, known_z: Tensor, relations_B: Tensor, side: str) -> Tensor:
        return known_z * self.relations(relations_B)

    def candidates(self, z_C: Tensor, side: str) -> Tensor:
        return z_C

    def score(self, query: Tensor, candidates_BN: Tensor) -> Tensor:
        return (query[:, None] * candidates_BN).sum(-1)


def artifact_with(head: type[Head] | None, kg, **more):
    artifact = artifact_of(kg, **more)
    if head is not None:
        torch.manual_seed(0)
        artifact.model.link_head = head(kg.n_relations, artifact.config.dim)
    return artifact


HEADS = [(None, {}), (None, {"aggregator": "transformer-joint"}), (ToyHead, {}),
         (ToyHead, {"aggregator": "transformer-joint"})]  # fmt: skip


@pytest.mark.parametrize(("head", "more"), HEADS)
@pytest.mark.parametrize("side", ["head", "tail"])
def test_scores_of_pairs_are_those_of_all_candidates(head, more, side):
    kg = toy()
    artifact = artifact_with(head, kg, **more)
    scorer = build_scorer(artifact.model, artifact.config, PreparedGraph(kg))
    z, link_head = scorer.vectors.all(), artifact.model.head
    with torch.no_grad():
        query = link_head.query(z[:6], torch.tensor([0, 1, 2, 0, 1, 2]), side)
        candidates = link_head.candidates(z, side)
        every = link_head.score_all(query, candidates)
        picks = torch.arange(18).view(6, 3)
        some = link_head.score(query, candidates[picks])
    assert every.shape == (6, kg.n_entities)
    torch.testing.assert_close(some, every.gather(1, picks), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("head", "more"), HEADS)
@pytest.mark.parametrize("side", ["head", "tail"])
def test_a_head_is_ranked_by_its_own_scores(head, more, side):
    """A head without a ranking kernel is never ranked by that of another."""
    kg = toy()
    artifact = artifact_with(head, kg, **more)
    scorer = build_scorer(artifact.model, artifact.config, PreparedGraph(kg))
    triples, known = kg.test.long(), scorer.prepared.known()
    scores = scorer.scores(triples, side)
    expected = rank(scores, triples[:, 0 if side == "head" else 2], known.find(triples, side))
    found = scorer.rank(triples, side, known)
    torch.testing.assert_close(found.realistic_B, expected.realistic_B)


def test_only_the_link_head_behind_a_plain_aggregator_brings_a_kernel():
    kg = toy()
    z = torch.zeros(3, 8)
    assert artifact_with(None, kg).model.head.ranker(z) is not None
    assert artifact_with(ToyHead, kg).model.head.ranker(z) is None
    joint = artifact_with(None, kg, aggregator="transformer-joint").model
    assert isinstance(joint.link_head, LinkHead)
    assert joint.head.ranker(z) is None


def test_a_new_head_serves_evaluation_and_prediction():
    """It needs `query`, `candidates` and `score`: everything else follows."""
    kg = toy()
    artifact = artifact_with(ToyHead, kg)
    report = evaluate(artifact, kg)
    p = Predictor(artifact, kg)
    triples = [(kg.entities[h], kg.relations[r], kg.entities[t]) for h, r, t in kg.test.tolist()]
    scored = p.score(triples)
    mrr = sum(1 / s.rank for s in scored) / len(scored)
    assert mrr == pytest.approx(report["tail"]["mrr"], abs=0.02)
    first = p.tails(*triples[0][:2], 5)
    assert [a.score for a in first] == sorted((a.score for a in first), reverse=True)
    assert p.explain(*triples[0]).score == pytest.approx(scored[0].score, abs=1e-5)
    p.use_functional(one_tail={"r0": False}, one_head={"r0": False})
    assert p.missing(3, relations="r0")[0].probability <= 1


def test_a_head_must_keep_the_whole_contract():
    class Half(Head):
        def query(self, known_z, relations_B, side):
            return known_z

    with pytest.raises(TypeError, match="abstract"):
        Half()
