"""Several models are trained on a graph, and the best in validation is kept."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import pytest
import torch
from support.graphs import toy
from support.models import ANY
from support.runs import weights

from pathe.core.config import configure
from pathe.core.errors import ConfigError, Interrupted
from pathe.evaluation.ranking import evaluate
from pathe.graph.prepared import PreparedGraph
from pathe.model.artifact import load_model
from pathe.training import selection
from pathe.training.learner import Learner
from pathe.training.run import Options
from pathe.training.run_folder import read_result
from pathe.training.selection import stored_candidates, train_best

SMALL = {"task": "link", "batch_size": 40, "max_epochs": 2, "accelerator": "cpu"}
GOOD = configure(settings=ANY | SMALL | {"learning_rate": 0.01, "max_epochs": 6})
BAD = configure(settings=ANY | SMALL | {"learning_rate": 1e-9, "seed": 1})
NEW = configure(settings=SMALL | {"learning_rate": 1e-9, "valid_negatives": 3})


def best_of(folder, candidates, **more):
    return train_best(toy(), candidates, folder, Options(progress_bar=False, **more))


@pytest.mark.parametrize("names", [("bad", "good", "a new one"), ("good", "a new one", "bad")])
def test_the_best_in_validation_is_kept(tmp_path, names):
    said, candidates = [], {"good": GOOD, "bad": BAD, "a new one": NEW}
    kg = toy()
    result = best_of(tmp_path, {name: candidates[name] for name in names}, say=said.append)
    found = result["selection"]
    assert found["chosen"] == "good"
    assert list(found["candidates"]) == list(names)
    assert said[-2].startswith("best validation MRR: good (")
    assert str(tmp_path / "model") in said[-1]
    ours, theirs = weights(tmp_path), weights(tmp_path / "candidates" / "good")
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert (
        load_model(tmp_path).temperatures == load_model(tmp_path / "candidates/good").temperatures
    )
    assert read_result(tmp_path) == result
    assert result["mrr"] == read_result(tmp_path / "candidates" / "good")["mrr"]
    for name in names:  # ranked among all entities, whatever the run's own validation does
        place = tmp_path / "candidates" / name.replace(" ", "-")
        without = replace(kg, test=kg.test[:0])
        again = evaluate(load_model(place), PreparedGraph(without), split="valid")["mrr"]
        assert found["candidates"][name]["valid_score"] == pytest.approx(again)
    for file in ("config.yaml", "metrics.jsonl", "model/README.md"):
        copied, kept = tmp_path / file, tmp_path / "candidates" / "good" / file
        assert copied.read_text() == kept.read_text()


def test_a_stopped_selection_is_resumed(tmp_path, monkeypatch):
    candidates, real = {"bad": BAD, "good": GOOD}, selection.train
    whole = best_of(tmp_path / "whole", candidates)
    step = Learner.training_step

    def stop_at_good(learner, *given):
        if learner.config == GOOD and learner.trainer.global_step == 6:
            os.kill(os.getpid(), signal.SIGTERM)
        return step(learner, *given)

    monkeypatch.setattr(Learner, "training_step", stop_at_good)
    with pytest.raises(Interrupted, match=f"--resume --out {tmp_path / 'parts'}$") as stopped:
        best_of(tmp_path / "parts", candidates)
    assert (stopped.value.signum, stopped.value.code) == (signal.SIGTERM, 143)
    monkeypatch.undo()
    trained = []
    monkeypatch.setattr(
        selection, "train", lambda *given, **more: trained.append(given[1]) or real(*given, **more)
    )
    stored = stored_candidates(tmp_path / "parts")
    assert stored == candidates
    result = best_of(tmp_path / "parts", stored, resume=True)
    assert trained == [GOOD]
    assert result["selection"]["chosen"] == whole["selection"]["chosen"] == "good"
    ours, theirs = weights(tmp_path / "parts"), weights(tmp_path / "whole")
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert best_of(tmp_path / "parts", stored, resume=True)["mrr"] == result["mrr"]  # once more


def test_only_the_same_selection_is_resumed(tmp_path):
    candidates = {"bad": BAD, "worse": configure(BAD, {"seed": 2})}
    best_of(tmp_path, candidates)
    other = replace(toy(), train=toy().train[:-1])
    with pytest.raises(ConfigError, match=r"other settings or data: data_fingerprint was"):
        train_best(other, candidates, tmp_path, Options(resume=True))
    changed = {name: configure(config, {"batch_size": 9}) for name, config in candidates.items()}
    with pytest.raises(ConfigError, match=r"batch_size was 40, now 9"):
        best_of(tmp_path, changed, resume=True)


def test_folders_that_can_not_be_used(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="exists and is not empty"):
        best_of(tmp_path, {"bad": BAD, "good": GOOD})
    assert stored_candidates(tmp_path) is None
    assert stored_candidates(None) is None
    (tmp_path / "candidates.yaml").write_text("[]")
    with pytest.raises(ConfigError, match="truncated or modified"):
        stored_candidates(tmp_path)
