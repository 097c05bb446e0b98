"""Predictions of models with bridges."""

from __future__ import annotations

import pytest
from support.graphs import knowledge_graph, toy
from support.models import BRIDGE, artifact_of, predictor

from pathe.evaluation.ranking import evaluate_links
from pathe.predict.predictor import Predictor


@pytest.mark.parametrize(
    "more", [BRIDGE, {"neighbour_contexts": True}, BRIDGE | {"neighbour_contexts": True}]
)
def test_prediction_equals_evaluation_and_explanation(more):
    kg = toy()
    p = predictor(kg, **more)
    report = evaluate_links(p.scorer, kg.test.long(), p.prepared.known())
    names = kg.entities, kg.relations, kg.entities
    facts = [tuple(of[i] for of, i in zip(names, row, strict=True)) for row in kg.test.tolist()]
    for side in ("head", "tail"):
        ranks = [judged.rank for judged in p.score(facts, side)]
        assert sum(1 / r for r in ranks) / len(ranks) == pytest.approx(
            report[side]["mrr"], abs=0.02
        )
    for asked in ("head", "tail", "relation"):
        [judged] = p.score(facts[:1], asked)
        explained = p.explain(*facts[0], asked)
        assert explained.score == pytest.approx(judged.score, abs=1e-5)
        without = p.score_without(*facts[0], [], asked)
        assert without == pytest.approx(judged.score, abs=1e-4)


def test_new_facts_are_bridges_at_once():
    kg = toy()
    p = predictor(kg, **BRIDGE)
    query = kg.entities[0], kg.relations[0]
    before = {a.name: a.score for a in p.tails(*query, 100)}
    p.add([(kg.entities[0], kg.relations[1], kg.entities[40])])
    p.refresh()
    larger = knowledge_graph([*kg.train.tolist(), [0, 1, 40]], kg.valid.tolist(), kg.test.tolist())
    fresh = Predictor(artifact_of(kg, **BRIDGE), larger)
    ours, theirs = ({a.name: a.score for a in q.tails(*query, 100)} for q in (p, fresh))
    assert ours == pytest.approx(theirs, abs=1e-4)
    assert ours != pytest.approx(before, abs=1e-4)


def test_queries_are_few_at_once_where_bridges_take_memory(monkeypatch):
    """The same answers, however little memory there is."""
    kg = toy()
    p = predictor(kg, **BRIDGE)
    pairs = [(kg.entities[h], None, kg.entities[t]) for h, _, t in kg.test[:6].tolist()]
    whole = [[a.score for a in found] for found in p.answer(pairs)]
    sizes, real = [], p.scorer.model.bridge.pairs
    p.scorer.model.bridge.pairs = lambda *parts: sizes.append(len(parts[2])) or real(*parts)
    monkeypatch.setattr("pathe.model.scorer.STATE_CACHE", 1)
    again = [[a.score for a in found] for found in p.answer(pairs)]
    assert sizes == [1] * 6
    assert [len(row) for row in again] == [len(row) for row in whole]
    for ours, theirs in zip(again, whole, strict=True):
        assert ours == pytest.approx(theirs, abs=1e-5)
