"""Averages of fine-tuned weights with those before training."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from support.graphs import toy

from pathe.core.config import configure
from pathe.graph.prepared import PreparedGraph
from pathe.model.artifact import load_model
from pathe.training import averaging
from pathe.training.averaging import Averaged, average_with_start
from pathe.training.defaults import recommend
from pathe.training.start import build_learner

CPU = torch.device("cpu")


def learners(kg):
    """Returns a learner whose weights are the start's plus one, and the start."""
    config, _ = recommend(kg, {"init": "pretrained", "accelerator": "cpu"})
    learner, start = (build_learner(config, PreparedGraph(kg)) for _ in range(2))
    with torch.no_grad():
        for weight in learner.model.parameters():
            weight.add_(1.0)
    for each in (learner, start):
        each.setup("fit")
    return learner, start


def share_of(learner):
    """Returns the share that a learner's weights show."""
    name, weight = next(iter(learner.model.state_dict().items()))
    return float((weight - load_model().model.state_dict()[name]).mean())


@pytest.mark.parametrize("best", [0.0, 0.25, 0.5, 0.75, 1.0])
def test_the_share_that_validates_best_is_kept(monkeypatch, best):
    learner, start = learners(toy())
    learner.start_score = 0.5 if best else 0.9

    def validate():
        score = 0.8 if share_of(learner) == pytest.approx(best, abs=1e-4) else 0.4
        return {"link": {"mrr": score}, "relation": {"mrr": score}}

    monkeypatch.setattr(learner, "validate", validate)
    found = average_with_start(learner, start, 0.8 if best == 1 else 0.6, CPU)
    assert found.share == best
    assert share_of(learner) == pytest.approx(best, abs=1e-4)
    assert list(found.scores) == ["0.0", "0.25", "0.5", "0.75", "1.0"]
    assert found.scores["0.0"] == learner.start_score
    assert found.own_score == (0.8 if best else 0.9)


def test_of_equal_shares_the_one_nearest_to_the_start_is_kept(monkeypatch):
    learner, start = learners(toy())
    learner.start_score = 0.7
    monkeypatch.setattr(learner, "validate", lambda: {"link": {"mrr": 0.7}})
    assert average_with_start(learner, start, 0.7, CPU).share == 0.0


def test_validation_triples_of_the_inference_graph_decide(monkeypatch):
    kg = toy()
    inference = replace(kg, name="unseen", inference=None)
    learner, start = learners(replace(kg, inference=inference))
    learner.start_score = 0.9  # on the training graph, which doesn't decide
    ranked = []

    def score(learner, target):
        ranked.append((target.kg.name, share_of(learner)))
        return share_of(learner) * (1 - share_of(learner))  # the most at a half

    monkeypatch.setattr(averaging, "_score", score)
    monkeypatch.setattr(learner, "validate", lambda: {"link": {"mrr": 0.3}})
    found = average_with_start(learner, start, 0.6, CPU)
    assert {name for name, _ in ranked} == {"unseen"}
    assert (found.share, found.graph, found.own_score) == (0.5, "unseen", 0.3)


def test_the_score_on_an_inference_graph_is_that_of_evaluate():
    kg = replace(toy(), inference=replace(toy(), inference=None))
    config, _ = recommend(kg, {"init": "pretrained", "accelerator": "cpu"})
    learner = build_learner(configure(config, {"task": "link"}), PreparedGraph(kg))
    learner.setup("fit")
    target = averaging._inference(learner.prepared, CPU)
    assert target is not None
    assert averaging._score(learner, target) == pytest.approx(
        learner.validate()["valid_link"]["mrr"]
    )


def test_the_choice_of_weights_in_words():
    scores = {"0.0": 0.4, "0.25": 0.6, "1.0": 0.5}
    said = [
        Averaged(share, scores, "films", 0.5).words("epoch 2 of 4", "the pre-trained model")
        for share in (0.0, 0.25, 1.0)
    ]
    assert said == [
        "kept the pre-trained model as it is: training didn't improve it (MRR 0.400 on the "
        "validation triples of films)",
        "kept the average of epoch 2 of 4 (25%) and the pre-trained model (75%): MRR 0.600 on the "
        "validation triples of films",
        "kept the model of epoch 2 of 4: MRR 0.500 on the validation triples of films",
    ]
