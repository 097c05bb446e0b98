from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from support.graphs import knowledge_graph, toy
from support.models import artifact_of

from pathe.evaluation import calibration
from pathe.evaluation.calibration import (
    calibrate,
    calibration_error,
    fit,
    fit_across,
    nll,
)
from pathe.graph.prepared import PreparedGraph
from pathe.model.artifact import load_model
from pathe.model.builder import build_scorer


def planted(temperature: float, n: int = 4000, width: int = 30) -> list[calibration.Scored]:
    """Scores whose true answers are drawn at this temperature, some answers closed."""
    draw = torch.Generator().manual_seed(3)
    scores = 3 * torch.randn(n, width, generator=draw)
    scores[torch.rand(n, width, generator=draw) < 0.2] = float("-inf")
    scores[:, 0] = 0.0
    true = torch.multinomial((scores / temperature).softmax(1), 1, generator=draw)[:, 0]
    return list(zip(scores.split(1000), true.split(1000), strict=True))


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5, 4.0])
def test_a_planted_temperature_is_found(temperature):
    scored = planted(temperature)
    found = fit(scored)
    assert found == pytest.approx(temperature, rel=0.12)
    for other in (0.8, 0.95, 1.05, 1.25):
        assert nll(scored, found) <= nll(scored, other * found)
    assert calibration_error(scored, found) < 0.03
    assert calibration_error(scored, 4 * found) > 0.05


def test_perfect_answers_do_not_make_certainty():
    scores = torch.tensor([[2.0, 0.0, -1.0]] * 50)
    found = fit([(scores, torch.zeros(50, dtype=torch.long))])
    assert 0.2 < found < 1
    assert float((scores[0] / found).softmax(0)[0]) < 0.9999


def test_error_of_hand_made_probabilities():
    log = torch.tensor([[0.75, 0.25], [0.75, 0.25], [0.75, 0.25], [0.75, 0.25]]).log()
    right = [(log, torch.tensor([0, 0, 0, 1]))]
    assert calibration_error(right, 1.0) == pytest.approx(0, abs=1e-6)
    assert calibration_error([(log, torch.zeros(4, dtype=torch.long))], 1.0) == pytest.approx(0.25)
    assert nll(right, 1.0) == pytest.approx(float(-(3 * log[0, 0] + log[0, 1]) / 4))


@pytest.mark.parametrize("task", ["link", "relation", "multi"])
def test_each_task_gets_its_temperature(task):
    kg = toy()
    artifact = artifact_of(kg, task=task)
    temperatures, report = calibrate(artifact, kg)
    assert set(temperatures) == {"multi": {"link", "relation"}}.get(task, {task})
    for name, found in report.items():
        assert found["temperature"] == temperatures[name] > 0
        assert found["valid"]["nll"] <= found["valid"]["nll_before"] + 1e-6
        assert found["queries"] == len(kg.valid) * (2 if name == "link" else 1)
        assert set(found["test"]) == {"nll_before", "nll", "ece_before", "ece"}


def test_nothing_of_the_test_set_reaches_the_fit():
    kg = toy()
    artifact = artifact_of(kg)
    temperatures, report = calibrate(artifact, kg)
    other = knowledge_graph(kg.train.tolist(), kg.valid.tolist(), [(i, 1, i) for i in range(60)])
    found, again = calibrate(artifact, other)
    assert found == temperatures
    for task in ("link", "relation"):  # filters neither: the likelihoods would differ
        assert again[task]["valid"] == report[task]["valid"]
        assert again[task]["test"] != report[task]["test"]
    without = replace(kg, test=kg.test[:0])
    found, report = calibrate(artifact, without)
    assert found == temperatures
    assert "test" not in report["link"]


def test_without_validation_triples_there_is_none():
    kg = toy()
    assert calibrate(artifact_of(kg), replace(kg, valid=kg.valid[:0])) == ({}, {})


def test_large_splits_are_sampled(monkeypatch):
    kg = toy()
    monkeypatch.setattr(calibration, "QUERIES", 5)
    monkeypatch.setattr(calibration, "FEWEST", 3)
    assert calibrate(artifact_of(kg), kg)[1]["link"]["queries"] == 10
    monkeypatch.setattr(calibration, "BYTES", 1)
    monkeypatch.setattr(calibration, "FEWEST", 1)
    assert calibrate(artifact_of(kg), kg)[1]["link"]["queries"] == 2


def test_one_temperature_for_several_graphs(monkeypatch):
    one_relation = knowledge_graph([(i, 0, i + 1) for i in range(9)], valid=[(0, 0, 2)])
    kg, scores = toy(), {}
    artifact = artifact_of(kg, task="multi")
    scorers = {"toy": build_scorer(artifact.model, artifact.config, PreparedGraph(kg))}
    scorers |= {"one": build_scorer(artifact.model, artifact.config, PreparedGraph(one_relation))}

    def scored(scorer, split, task, at_most):
        assert (split, at_most) == ("valid", calibration.ACROSS)
        return scores[task, scorer.prepared.n_relations]

    n = kg.n_relations
    scores = {("link", n): planted(1.0), ("link", 1): planted(4.0), ("relation", n): planted(2.5)}
    monkeypatch.setattr(calibration, "_scored", scored)
    temperatures, report = fit_across(scorers, ("link", "relation"))
    assert temperatures["link"] == fit(planted(1.0) + planted(4.0))
    assert temperatures["relation"] == fit(planted(2.5))
    assert set(report["link"]["graphs"]) == {"toy", "one"}
    assert set(report["relation"]["graphs"]) == {"toy"}  # the other one has a single relation


def test_training_keeps_temperatures_in_the_model(tmp_path):
    from support.runs import train

    result = train(toy(), tmp_path / "run", max_epochs=1)
    stored = load_model(tmp_path / "run").temperatures
    assert stored == {"link": result["calibration"]["link"]["temperature"]}
