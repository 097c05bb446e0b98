"""Training as `pathe train` does it: choices, the time told, limits, models to start from."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.graphs import knowledge_graph, toy
from support.models import ANY
from support.runs import SMALL, weights

import pathe
from pathe.core.config import configure
from pathe.core.errors import ConfigError, DataError, ModelError
from pathe.data.knowledge_graph import KnowledgeGraph
from pathe.data.vocabulary import Vocabulary
from pathe.graph.prepared import PreparedGraph
from pathe.model.artifact import load_model
from pathe.training import defaults, timing
from pathe.training import run as runs
from pathe.training.learner import Learner
from pathe.training.run_folder import read_metrics, read_result
from pathe.training.start import build_learner
from pathe.training.timing import Pace
from pathe.training.train import train

CPU = {"device": "cpu", "progress_bar": False}
FAST = CPU | {"max_epochs": 1}
GRAPH = configure(settings=ANY | {"batch_size": 40, "max_epochs": 2, "accelerator": "cpu"})
VECTORS = configure(settings=SMALL | {"accelerator": "cpu"})


@pytest.fixture
def heard(monkeypatch):
    """What is said, and the training steps in between."""
    lines: list[str] = []
    real = Learner.training_step

    def step(self, *given):
        lines.append("a step")
        return real(self, *given)

    monkeypatch.setattr(Learner, "training_step", step)
    return lines


@pytest.mark.parametrize(
    "given", [{"init": "pretrained"}, {"init": "none"}, {"bridge": "none"}, {"config": VECTORS}]
)
def test_the_estimated_time_comes_before_the_first_step(tmp_path, heard, given):
    train(toy(), out=tmp_path / "run", say=heard.append, **FAST | given)
    first = heard.index("a step")
    [told] = [i for i, line in enumerate(heard) if line.startswith("this takes at most about")]
    assert told < first
    assert "seconds" in heard[told]


def test_several_models_have_one_estimate_of_time(tmp_path, heard, monkeypatch):
    monkeypatch.setattr(defaults, "LEAST_VALID", 10)
    run = train(toy(), out=tmp_path / "run", say=heard.append, **FAST)
    assert set(run["selection"]["candidates"]) == {defaults.TUNED, defaults.TABLE, defaults.NEW}
    [told] = [i for i, line in enumerate(heard) if line.startswith("this takes at most about")]
    assert told < heard.index("a step")


def test_measuring_changes_no_weights_and_no_random_numbers(tmp_path):
    runs.train(toy(), VECTORS, tmp_path / "plain")
    train(toy(), VECTORS, tmp_path / "measured", progress_bar=False, say=lambda text: None)
    ours, theirs = weights(tmp_path / "plain"), weights(tmp_path / "measured")
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_long_training_names_the_options_that_shorten_it(tmp_path, monkeypatch):
    kg, said = toy(), []
    monkeypatch.setattr(timing, "measure", lambda learner, device: Pace(60.0, 10.0, 0.5))
    monkeypatch.setattr(runs, "train", lambda *given, **more: {})
    config = configure(VECTORS, {"batch_size": 36, "max_epochs": 10})
    train(kg, config, tmp_path / "run", say=said.append)
    # 144 triples are 4 steps; 18 validation triples: 4 x 60 + 10 + 9 seconds per epoch
    n_valid, n_test = len(kg.valid), len(kg.test)
    assert (len(kg.train), n_valid, n_test) == (144, 18, 18)
    [told] = [line for line in said if line.startswith("this takes")]
    assert "training about 43 minutes" in told
    assert told.endswith("Shorten it with --minutes 20, or take a quick look with --quick")
    said.clear()
    train(kg, config, tmp_path / "run", say=said.append, minutes=3)
    [told] = [line for line in said if line.startswith("this takes")]
    assert "training about 3 minutes" in told
    assert told.endswith("training stops after 3 minutes, evaluation follows")


def test_settings_are_fitted_into_a_time_limit():
    prepared = PreparedGraph(toy())  # 144 train, 18 valid triples
    config = configure(settings={"batch_size": 16, "max_epochs": 100})  # 9 steps per epoch
    pace = Pace(step=1.0, validation=1.0, triple=0.0)
    assert pace.training(config, prepared) == 1000
    assert timing.fit(config, pace, prepared, 1000, ()) == config
    fitted = timing.fit(config, pace, prepared, 200, ())
    assert fitted == configure(config, {"max_epochs": 20})
    fitted = timing.fit(config, pace, prepared, 35, ())  # epochs of 5 seconds: 4 steps
    assert fitted == configure(config, {"max_epochs": 7, "epoch_triples": 64})
    assert pace.training(fitted, prepared) <= 35
    for given in ({"max_epochs"}, {"epoch_triples"}, {"max_epochs", "epoch_triples"}):
        kept = timing.fit(config, pace, prepared, 35, given)
        assert all(getattr(kept, key) == getattr(config, key) for key in given)
    never = timing.fit(config, Pace(1e9, 1e9, 1e9), prepared, 1, ())
    assert (never.max_epochs, never.epoch_triples) == (1, 16)
    rare = configure(config, {"validate_every": 10})
    assert timing.fit(rare, Pace(1e9, 0.0, 0.0), prepared, 1, ()).max_epochs == 10


@pytest.mark.parametrize("config", [VECTORS, GRAPH])
def test_training_stops_within_an_epoch_and_validates(tmp_path, monkeypatch, config):
    said = []
    clock = property(lambda self: 10.0 * self.trainer.global_step)
    monkeypatch.setattr(Learner, "seconds", clock)
    config = configure(config, {"batch_size": 36, "max_epochs": 50})  # 4 steps per epoch
    run = train(toy(), config, tmp_path, minutes=1, say=said.append, progress_bar=False)
    assert run["epochs"] == 2
    lines = read_metrics(tmp_path)
    assert [line["step"] for line in lines] == [4, 6]  # in time for a validation
    assert all("valid_score" in line for line in lines)
    assert "stopped training at the time limit of a minute" in said
    assert any(line.startswith("best epoch: ") for line in said)
    again = train(toy(), None, tmp_path, resume=True, say=said.append, progress_bar=False)
    assert (again["epochs"], again["mrr"]) == (2, run["mrr"])  # the time is over
    monkeypatch.undo()
    more = {"minutes": 0.0, "max_epochs": 3}
    longer = train(toy(), None, tmp_path, resume=True, say=said.append, progress_bar=False, **more)
    assert longer["epochs"] == 3


def test_a_quick_look_is_short_and_says_so(tmp_path):
    said = []
    run = train(toy(), out=tmp_path, quick=True, say=said.append, **FAST)
    assert said[0].startswith("settings for this graph: a quick look, half a minute of training: ")
    assert run["config"]["minutes"] == 0.5
    assert run["config"]["init"] == "pretrained"
    assert run["train_seconds"] < 60
    with pytest.raises(ConfigError, match="not both"):
        train(toy(), quick=True, minutes=3, out=tmp_path / "no")
    with pytest.raises(ConfigError, match="leave the preset or config out"):
        train(toy(), VECTORS, quick=True, out=tmp_path / "no")
    assert not (tmp_path / "no").exists()


def test_a_quick_look_evaluates_on_a_sample_where_ranking_is_slow():
    many = [(i, i % 3, (i * 7 + 3) % 300) for i in range(300)]
    prepared = PreparedGraph(knowledge_graph(many, many[::2], many[1::2]))
    pace = Pace(1.0, 0.0, 0.125)  # 1/8 s x (150 valid + 150 test + 150 to evaluate on)
    assert pace.evaluation(GRAPH, prepared) == 56.25
    assert timing.quick_test(GRAPH, pace, prepared, 56.25) == GRAPH
    fewer = timing.quick_test(GRAPH, pace, prepared, 30)
    assert fewer.test_triples == 80
    assert pace.evaluation(fewer, prepared) == 30
    assert timing.quick_test(GRAPH, pace, prepared, 1).test_triples == timing.LEAST_TEST


@pytest.mark.parametrize("config", [GRAPH, VECTORS, configure(GRAPH, {"relation_vectors": "both"})])
def test_a_model_to_start_from_has_its_old_score_first(tmp_path, config):
    said = []
    old = train(toy(), config, tmp_path / "old", progress_bar=False, say=said.append)
    new = train(toy(), start=tmp_path / "old", out=tmp_path / "new", say=said.append, **FAST)
    assert new["start_valid_score"] == pytest.approx(old["best_valid_score"], abs=1e-6)
    assert new["best_valid_score"] >= old["best_valid_score"] - 1e-6
    assert new["config"]["init"] == "model"
    assert f"continuing from the model in {tmp_path / 'old'}" in said


@pytest.mark.parametrize("vectors", ["graph", "both"])
def test_new_entities_and_relations_may_be_in_the_graph(tmp_path, vectors):
    config = configure(GRAPH, {"relation_vectors": vectors})
    old = train(toy(), config, tmp_path / "old", progress_bar=False, say=lambda text: None)
    kg = toy()
    rows = [
        *kg.train.tolist(),
        *[(60 + i, 0, i) for i in range(9)],
        *[(i, 3, 66) for i in range(9)],
    ]
    larger = knowledge_graph(rows, kg.valid.tolist(), kg.test.tolist())
    larger = replace(larger, relations=Vocabulary(["r0", "a new one", "r1", "r2"], "relation"))
    run = train(larger, start=old.model, out=tmp_path / "new", say=lambda text: None, **FAST)
    assert 0 < run["start_valid_score"] <= 1
    assert (run.model.relations is None) == (vectors == "graph")
    if vectors == "both":  # rows by name; a new relation starts with zeros
        learner = build_learner(
            configure(config, {"init": "model"}), PreparedGraph(larger), old.model
        )
        theirs = old.model.model.encoder.table.view(2, 3, -1)
        ours = learner.model.encoder.table.view(2, 4, -1)
        assert list(larger.relations) == ["a new one", "r0", "r1", "r2"]
        assert torch.equal(ours[:, 1:], theirs)
        assert not ours[:, 0].any()


def test_a_table_of_relations_must_have_those_of_the_graph(tmp_path):
    train(toy(), VECTORS, tmp_path / "old", progress_bar=False, say=lambda text: None)
    other = replace(toy(), relations=Vocabulary(["r0", "r1", "r22"], "relation"))
    with pytest.raises(DataError, match=r"lacks 'r22'\. Closest: 'r2'.* train without --from"):
        train(other, start=tmp_path / "old", out=tmp_path / "no")
    kg = toy()
    fewer = KnowledgeGraph.from_triples(
        [(f"x{h}", f"r{r}", f"x{t}") for h, r, t in kg.train.tolist() if r < 2],
        [(f"x{h}", f"r{r}", f"x{t}") for h, r, t in kg.valid.tolist() if r < 2],
    )  # a graph may have fewer
    run = train(fewer, start=tmp_path / "old", out=tmp_path / "new", say=lambda text: None, **FAST)
    assert run.model.relations == kg.relations
    for given, words in (
        ({"dim": 8}, "needs dim=16"),
        ({"task": "relation"}, "trained for task link, not relation"),
        ({"init": "none"}, "exclude each other"),
    ):
        with pytest.raises(ConfigError, match=words):
            train(toy(), start=tmp_path / "old", out=tmp_path / "no", **given)
    with pytest.raises(ModelError, match="no such model folder"):
        train(toy(), start=tmp_path / "nowhere", out=tmp_path / "no")
    with pytest.raises(ConfigError, match="needs a model to start from"):
        train(toy(), configure(VECTORS, {"init": "model"}), tmp_path / "no")
    assert not (tmp_path / "no").exists()


def test_a_run_from_a_model_resumes_without_that_model(tmp_path):
    quiet = {"say": lambda text: None, "progress_bar": False}
    train(toy(), GRAPH, tmp_path / "old", **quiet)
    more = {"start": tmp_path / "old", "device": "cpu", "schedule": "constant", **quiet}
    train(toy(), out=tmp_path / "whole", max_epochs=2, **more)
    train(toy(), out=tmp_path / "parts", max_epochs=1, **more)
    shutil.rmtree(tmp_path / "old")
    train(toy(), out=tmp_path / "parts", max_epochs=2, resume=True, **quiet)
    ours, theirs = weights(tmp_path / "parts"), weights(tmp_path / "whole")
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_file_is_enough_in_python(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    lines = [f"e{h},r{r},e{t}\n" for h, r, t in toy().train.tolist()]
    (tmp_path / "films.csv").write_text("".join(lines))
    run = pathe.train("films.csv", minutes=1, seed=5, **FAST)
    assert run.folder == Path("runs/films-multi")
    assert run.result == read_result(run.folder)
    assert run["command"] is None
    assert (run["config"]["seed"], run["config"]["accelerator"]) == (5, "cpu")
    assert run.model.relations == load_model(run.folder).relations
    assert repr(run).startswith("TrainedRun('runs/films-multi'")
    assert len(repr(run)) < 100
    assert "this takes at most about" in capsys.readouterr().err
    again = pathe.train(toy(), VECTORS, tmp_path / "own", progress_bar=False)
    assert again["mrr"] == dict(again)["mrr"] == again.result["mrr"]
    assert "test MRR" in repr(again)
