"""Scores are finite on any graph: a hub of a million, thousands of relations, a single fact."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
import torch
from support.models import any_graph_artifact, artifact_of

from pathe.data.columns import ReadReport
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.data.vocabulary import Vocabulary
from pathe.evaluation.ranking import evaluate
from pathe.graph.prepared import PreparedGraph
from pathe.model.artifact import Artifact, load_model
from pathe.model.builder import build_scorer
from pathe.predict.predictor import Predictor

MODELS: dict[str, Callable[[KnowledgeGraph], Artifact]] = {
    "bridges": lambda kg: artifact_of(kg, bridge="paths", bridge_dim=6, bridge_hops=3),
    "published": lambda kg: artifact_of(
        kg, path_form="joined", positions="absolute", aggregator="transformer",
        context_counts="raw", path_source="mined", n_mined=3, hold_out_batch=False,
    ),
    "relation-free": lambda kg: load_model(),
    "relation-free, random": lambda kg: any_graph_artifact(),
}  # fmt: skip
every_model = pytest.mark.parametrize("model", MODELS)
SMALL = {
    "one triple": [("a", "r", "b")],
    "one entity": [("a", "r", "a")],
    "one entity, several relations": [("a", r, "a") for r in "rst"],
    "loops alone": [(e, "r", e) for e in "abcd"],
    "loops and no way between": [("a", "r", "a"), ("b", "s", "b"), ("c", "r", "d")],
    "every relation between two": [("a", f"r{i}", "b") for i in range(50)],
    "all pairs": [(a, "r", b) for a in "abcdef" for b in "abcdef"],
    "a chain": [(f"e{i:03}", "r", f"e{i + 1:03}") for i in range(300)],
}


@every_model
@pytest.mark.parametrize("rows", SMALL.values(), ids=SMALL)
def test_scores_are_finite_on_the_smallest_graphs(model, rows):
    kg = KnowledgeGraph.from_triples(rows, test=rows[:1])
    artifact = MODELS[model](kg)
    prepared = PreparedGraph(kg)
    scorer = build_scorer(artifact.model, artifact.config, prepared)
    for part in ("head", "relation", "tail"):
        scores = scorer.scores(prepared.train_M3[:20], part)
        assert scores.isfinite().all()
        ranks = scorer.rank(prepared.train_M3[:20], part, prepared.known())
        assert ((ranks.realistic_B >= 1) & (ranks.realistic_B <= scores.shape[1])).all()
    found = evaluate(artifact, prepared)
    assert 0 < found["mrr"] <= 1
    p, (head, relation, tail) = Predictor(artifact, kg), rows[0]
    answers = p.tails(head, relation, 9, filter_known=False, plausible=False)
    assert sum(answer.probability for answer in answers) <= 1 + 1e-5
    assert all(math.isfinite(answer.score) for answer in answers)
    assert math.isfinite(p.explain(head, relation, tail).score)
    assert all(math.isfinite(n.similarity) for n in p.similar(head)) or len(kg.entities) == 1


def numbered(rows: torch.Tensor) -> KnowledgeGraph:
    """A graph of many entities and relations, without a Python object per triple."""
    names = Vocabulary([f"e{i:07}" for i in range(int(rows[:, [0, 2]].max()) + 1)])
    relations = Vocabulary([f"r{i:04}" for i in range(int(rows[:, 1].max()) + 1)], "relation")
    none = torch.zeros(0, 3, dtype=torch.int32)
    codes_M = (rows[:, 0] * len(relations) + rows[:, 1]) * len(names) + rows[:, 2]
    rows = rows[codes_M.argsort()].int()
    return KnowledgeGraph("large", names, relations, rows, none, none, ReadReport())


def assert_finite(artifact: Artifact, kg: KnowledgeGraph, frontier: int | None = None) -> None:
    """Checks queries about the hub, entity 0, and about another one; both are candidates."""
    scorer = build_scorer(artifact.model, artifact.config, PreparedGraph(kg), frontier=frontier)
    entities_B, relations_B = torch.tensor([0, 1]), torch.tensor([0, 1])
    candidates_BN = torch.tensor([[0, 1, 2, kg.n_entities - 1]]).repeat(2, 1)
    for side in ("head", "tail"):
        assert scorer.links(entities_B, relations_B, side, candidates_BN).isfinite().all()
    if kg.n_relations < 100 or artifact.relations is not None:  # vectors of all kinds take minutes
        assert scorer.relations(entities_B, entities_B.flip(0)).isfinite().all()


@pytest.mark.slow
@pytest.mark.parametrize("frontier", [None, 0])
@every_model
def test_scores_are_finite_at_a_hub_of_a_million(model, frontier):
    n = 1_000_000
    tails = torch.arange(1, n + 1)
    kg = numbered(torch.stack([torch.zeros_like(tails), tails % 3, tails], 1))
    artifact = MODELS[model](kg)
    if artifact.relations is not None and frontier is None:
        pytest.skip("table models have no frontier")
    if artifact.config.path_source == "mined":  # one path per entity would take a minute
        artifact = artifact_of(
            kg, path_form="joined", aggregator="transformer", context_counts="raw"
        )
    assert_finite(artifact, kg, frontier)


@pytest.mark.slow
@every_model
def test_scores_are_finite_with_five_thousand_relations(model):
    draw = torch.Generator().manual_seed(0)
    rows = torch.stack(
        [torch.randint(3000, (20_000,), generator=draw), torch.arange(20_000) % 5000,
         torch.randint(3000, (20_000,), generator=draw)], 1,
    )  # fmt: skip
    hub = torch.stack(
        [torch.zeros(5000).long(), torch.arange(5000), torch.arange(5000) % 2999 + 1], 1
    )
    kg = numbered(torch.cat([rows, hub]).unique(dim=0))
    assert_finite(MODELS[model](kg), kg)


@every_model
@pytest.mark.parametrize("seed", range(3))
def test_scores_are_finite_for_weights_that_are_large(model, seed):
    """Ten times what the test's weights are, through every layer."""
    draw = random.Random(seed)
    rows = [(f"e{draw.randrange(9)}", f"r{i % 3}", f"e{draw.randrange(9)}") for i in range(40)]
    kg = KnowledgeGraph.from_triples(rows)
    artifact, prepared = MODELS[model](kg), PreparedGraph(kg)
    for weight in artifact.model.parameters():
        weight.data.mul_(10)
    scorer = build_scorer(artifact.model, artifact.config, prepared)
    for part in ("head", "relation", "tail"):
        assert scorer.scores(prepared.train_M3, part).isfinite().all()
