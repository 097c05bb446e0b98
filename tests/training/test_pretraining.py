"""Pre-training of a model for any graph: settings, steps, and runs that stop and go on."""

from __future__ import annotations

import json
import math
import os
import signal
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.graphs import DEVICES, graph_of_ids, knowledge_graph, toy

from pathe.core.errors import (
    ConfigError,
    DataError,
    Interrupted,
    ModelError,
    TrainingError,
    UnknownNameError,
)
from pathe.core.settings import change
from pathe.evaluation.ranking import evaluate_links
from pathe.graph.prepared import PreparedGraph
from pathe.model.artifact import load_model
from pathe.model.scorer import GraphScorer
from pathe.training import pretraining_run as runs
from pathe.training.mix import Mix
from pathe.training.pretraining import (
    LAST_RATE,
    Pretrainer,
    Pretraining,
    one_ahead,
    repeatable,
)
from pathe.training.pretraining_run import Place, Reports, name_graphs, pretrain
from pathe.training.run_folder import read_metrics, read_result

SMALL = Pretraining(
    dim=4, n_hops=2, n_layers=1, steps=6, valid_every=3, valid_triples=5, n_subgraphs=3,
    least_entities=10, most_entities=30, least_batch=4, most_batch=8, whole_share=0.5,
    relation_share=0.5, learning_rate=0.01,
)  # fmt: skip


@pytest.fixture(scope="module")
def graphs():
    """Two graphs to train on, which have different numbers of relations."""
    rows = [(i, i % 5, (7 * i + 3) % 40) for i in range(40)]
    rows += [((7 * i + 3) % 40, (i + 1) % 5, i) for i in range(40)]
    return [toy(), replace(knowledge_graph(rows[::2] + rows[1::4], rows[3::4]), name="other")]


def run(graphs, folder: Path, settings=SMALL, lines=None, **place):
    reports = Reports(lines.append) if lines is not None else None
    return pretrain(graphs, settings, Place(folder, **place), reports=reports)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_model(folder).model.state_dict()


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


# settings


def test_settings_are_checked_by_name_type_and_range():
    assert change(SMALL, {"dim": 8, "learning_rate": "1e-3"}, "--set").learning_rate == 1e-3
    with pytest.raises(UnknownNameError, match=r"'dims' \(--set\)\. Closest: 'dim'.*All: .*steps"):
        change(SMALL, {"dims": 8}, "--set")
    for key, value, said in (
        ("dim", 0, "dim must be at least 1 and at most 4,096; got 0"),
        ("dim", 2.5, "dim takes a whole number; got 2.5"),
        ("dim", True, "a whole number"),
        ("learning_rate", "fast", "learning_rate takes a number; got 'fast'"),
        ("learning_rate", math.nan, "finite"),
        ("learning_rate", 0, "above 0"),
        ("drop_share", 1.5, "at least 0 and at most 1"),
        ("least_entities", 50, "least_entities must be at most most_entities; got 50 and 30"),
        ("least_batch", 9, "at most most_batch"),
    ):
        with pytest.raises(ConfigError, match=said):
            change(SMALL, {key: value}, "--set")


def test_the_learning_rate_rises_then_falls_to_a_share():
    settings = Pretraining(steps=2200, warm_up=200, learning_rate=0.5)
    assert settings.rate(0) == pytest.approx(0.5 / 200)
    assert settings.rate(99) == pytest.approx(0.25)
    assert settings.rate(199) == settings.rate(200) == 0.5
    assert settings.rate(1200) == pytest.approx(0.5 * (1 + LAST_RATE) / 2)
    assert settings.rate(2199) == pytest.approx(0.5 * LAST_RATE, rel=1e-3)
    short = Pretraining(steps=5)
    assert short.rate(0) == short.learning_rate  # too short to warm up
    assert all(short.rate(i) > short.rate(i + 1) > 0 for i in range(4))


# steps


def threads() -> int:
    return sum(thread.name.startswith("ThreadPool") for thread in threading.enumerate())


def test_the_next_inputs_are_made_while_one_is_used():
    before, made, marks = threads(), [], iter(range(100))

    def make(number: int, mark: int) -> tuple[int, int]:
        made.append(number)
        return number, mark

    found = []
    for number, mark in one_ahead(make, lambda: next(marks), range(3, 8)):
        deadline = time.monotonic() + 5
        while len(made) < min(len(found) + 2, 5) and time.monotonic() < deadline:
            time.sleep(0.001)
        assert made == list(range(3, min(number + 2, 8)))
        found.append((number, mark))
    # the mark of the use before the last one: that of step 3 frees memory for step 5
    assert found == [(3, 0), (4, 0), (5, 1), (6, 2), (7, 3)]
    assert threads() == before
    assert list(one_ahead(make, lambda: 0, range(3, 3))) == []


def test_no_thread_is_left_when_the_consumer_stops_early_or_inputs_fail():
    before = threads()
    with closing(one_ahead(lambda i, _: i, lambda: None, range(1000))) as made:
        assert next(made) == 0
    assert threads() == before

    def fail(number: int, mark: None) -> int:
        return 1 // (2 - number)

    made = one_ahead(fail, lambda: None, range(1000))
    assert [next(made), next(made)] == [0, 1]
    with pytest.raises(ZeroDivisionError):
        next(made)
    assert threads() == before


@pytest.mark.parametrize("device", DEVICES)
def test_inputs_of_steps_depend_on_seed_and_step_alone(graphs, device):
    mixes = [
        Mix({kg.name: PreparedGraph(kg).graph for kg in graphs}, SMALL, device) for _ in range(2)
    ]
    trainers = [Pretrainer(mix, SMALL) for mix in mixes]
    straight = list(trainers[0].steps_ahead(9))
    trainers[1].step = 5
    with closing(trainers[1].steps_ahead(9)) as later:
        graph, step = next(later)
    assert (graph.name, step.part) == (straight[5][0].name, straight[5][1].part)
    assert torch.equal(step.sources_N, straight[5][1].sources_N)
    assert torch.equal(step.graph.keep_M, straight[5][1].graph.keep_M)


def test_gradients_on_several_threads_are_repeatable():
    before, threads = torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()
    made = torch.Generator().manual_seed(0)
    x, rows = torch.randn(20, 20, 16, generator=made), torch.randint(20, (3000,), generator=made)
    given = torch.randn(3000, 20, 16, generator=made)
    torch.set_num_threads(2)
    try:
        with repeatable(torch.device("cpu")):
            found = []
            for _ in range(5):
                learned = x.clone().requires_grad_()
                found.append(torch.autograd.grad((learned[rows] * given).sum(), learned)[0])
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(found[0], one) for one in found)
    assert torch.are_deterministic_algorithms_enabled() == before


# runs


@pytest.mark.parametrize("device", DEVICES)
def test_a_run_leaves_a_model_metrics_and_a_result(graphs, tmp_path, device):
    lines, seen = [], []
    reports, place = Reports(lines.append, seen.append), Place(tmp_path / "run", device=device)
    result = pretrain(graphs, SMALL, place, reports=reports)
    assert result == read_result(tmp_path / "run")
    assert result["command"] is None  # it was started from Python
    records = read_metrics(tmp_path / "run")
    assert [record["step"] for record in records] == [3, 6]
    assert result["metrics"] == records[-1]
    assert set(result["graphs"]) == {"toy", "other"}
    assert result["step"] == 6
    for record in records:
        assert set(record["graphs"]) == {"toy", "other"}
        for key in ("mrr", "hits_at_10"):
            each = [found[key] for found in record["graphs"].values()]
            assert record[key] == pytest.approx(sum(each) / 2)
            assert all(0 <= value <= 1 for value in each)
        assert 0 <= record["relation_hits_at_1"] <= 1
        assert set(record["loss"]) <= {"entity", "relation"}
        assert all(math.isfinite(loss) for loss in record["loss"].values())
    assert len(lines) == 2
    assert lines[1].startswith("step 6/6: loss ")
    assert {status.doing for status in seen} == {
        "training", "validating toy", "validating other", "calibrating",
    }  # fmt: skip
    assert all(status.seconds_left is not None for status in seen)
    temperatures = load_model(tmp_path / "run").temperatures
    assert set(temperatures) == {"link", "relation"}
    for task, found in result["calibration"].items():
        assert found["temperature"] == temperatures[task]
        assert set(found["graphs"]) == {"toy", "other"}
    card = (tmp_path / "run" / "model" / "README.md").read_text()
    for fact in ("toy, other", *result["graphs"].values(), "6 of 6", "whole_share=0.5", "| mrr |"):
        assert fact in card


def test_planted_valid_and_test_triples_change_no_weight(graphs, tmp_path):
    planted = [(i, 1, (i + 20) % 40) for i in range(40)]
    leaky = [
        replace(
            kg, valid=torch.tensor(planted[::2]).int(), test=torch.tensor(planted[1::2]).int(),
            inference=knowledge_graph(planted),
        )
        for kg in graphs
    ]  # fmt: skip
    run(graphs, tmp_path / "plain")
    run(leaky, tmp_path / "leaky")
    assert equal(weights(tmp_path / "plain"), weights(tmp_path / "leaky"))


def test_the_exported_model_has_the_validated_scores(graphs, tmp_path):
    result = run(graphs, tmp_path / "run")
    artifact = load_model(tmp_path / "run")
    assert artifact.relations is None
    for kg in graphs:
        prepared = PreparedGraph(kg)
        triples_M3 = runs._valid_graph(kg.name, prepared, SMALL).triples_M3
        scorer = GraphScorer(artifact.model, prepared, seed=0)
        found = evaluate_links(scorer, triples_M3, prepared.known("train", "valid"))
        assert result["metrics"]["graphs"][kg.name]["mrr"] == pytest.approx(found["mrr"])


def test_validation_is_on_a_fixed_sample_of_what_train_has():
    train, seen = [(0, 0, 1), (1, 1, 2), (2, 0, 0)], [(0, 0, 2), (1, 0, 0), (2, 1, 1), (2, 0, 1)]
    kg = graph_of_ids(train, [], 4, 3, valid=[*seen, (0, 0, 3), (0, 2, 1)])

    def sample(**settings) -> list[list[int]]:
        found = runs._valid_graph("g", PreparedGraph(kg), replace(SMALL, **settings)).triples_M3
        return found.tolist()

    assert sorted(map(tuple, sample(valid_triples=9))) == sorted(seen)
    assert len(sample(valid_triples=2)) == 2
    assert sample(valid_triples=2) == sample(valid_triples=2, seed=5)


def test_other_graphs_are_validated_and_those_without_validation_triples_are_named(
    graphs, tmp_path
):
    alone, lines = replace(graphs[0], valid=graphs[0].valid[:0], name="alone"), []
    place = Place(tmp_path / "run")
    result = pretrain([alone], SMALL, place, valid=graphs[1:], reports=Reports(lines.append))
    assert set(result["metrics"]["graphs"]) == {"other"}
    assert (set(result["graphs"]), set(result["valid"])) == ({"alone"}, {"other"})
    assert lines[0].startswith("alone: not validated: no validation triples")
    result = pretrain(graphs[:1], SMALL, Place(tmp_path / "both"), valid=graphs[1:])
    assert set(result["metrics"]["graphs"]) == {"toy", "other"}
    for found in result["calibration"].values():  # graphs that it wasn't trained on
        assert set(found["graphs"]) == {"other"}
    result = run([alone], tmp_path / "none", replace(SMALL, steps=1))
    assert (result["metrics"]["graphs"], result["metrics"]["mrr"]) == ({}, None)
    assert (tmp_path / "none" / "model").is_dir()


def press_at(monkeypatch, step: int) -> None:
    """Presses Ctrl-C before the step with this number, counted from 1."""
    real = Pretrainer._update

    def update(self, *inputs):
        if self.step == step - 1:
            os.kill(os.getpid(), signal.SIGINT)
        real(self, *inputs)

    monkeypatch.setattr(Pretrainer, "_update", update)


@pytest.mark.parametrize("at", [1, 3, 4, 6])  # 3 and 6 are validated
def test_a_resumed_run_equals_an_uninterrupted_one(graphs, tmp_path, monkeypatch, at):
    straight = run(graphs, tmp_path / "straight")
    press_at(monkeypatch, at)
    with pytest.raises(Interrupted, match=f"after step {at} and saved.*--resume --out .*broken"):
        run(graphs, tmp_path / "broken")
    assert not (tmp_path / "broken" / "result.json").exists()
    monkeypatch.undo()
    moved = (tmp_path / "broken").rename(tmp_path / "moved")
    resumed = run(graphs, moved, resume=True)
    assert equal(weights(tmp_path / "straight"), weights(moved))
    first, second = read_metrics(tmp_path / "straight"), read_metrics(moved)
    for key in ("step", "loss", "graphs", "mrr", "hits_at_10"):
        assert [record[key] for record in first] == [record[key] for record in second]
    assert straight["metrics"]["graphs"] == resumed["metrics"]["graphs"]


def test_a_run_stopped_in_a_validation_validates_again(graphs, tmp_path, monkeypatch):
    straight = run(graphs, tmp_path / "straight")
    real = runs.evaluate_links

    def evaluate(*given, **more):
        os.kill(os.getpid(), signal.SIGINT)
        return real(*given, **more)

    monkeypatch.setattr(runs, "evaluate_links", evaluate)
    with pytest.raises(Interrupted, match="after step 3"):
        run(graphs, tmp_path / "broken")
    assert read_metrics(tmp_path / "broken") == []
    assert load_model(tmp_path / "broken")
    assert "mrr" not in (tmp_path / "broken" / "model" / "README.md").read_text()
    monkeypatch.undo()
    with (tmp_path / "broken" / "metrics.jsonl").open("a") as file:  # of a killed process
        file.write(json.dumps({"step": 3}) + "\n" + '{"st')
    (tmp_path / "broken" / ".checkpoint.pt.1.tmp").touch()
    resumed = run(graphs, tmp_path / "broken", resume=True)
    assert [record["step"] for record in read_metrics(tmp_path / "broken")] == [3, 6]
    assert straight["metrics"]["graphs"] == resumed["metrics"]["graphs"]
    assert equal(weights(tmp_path / "straight"), weights(tmp_path / "broken"))
    assert not list((tmp_path / "broken").glob(".*.tmp"))


def test_a_run_ends_when_its_time_is_over_and_goes_on_later(graphs, tmp_path):
    run(graphs, tmp_path / "straight")
    folder, lines = tmp_path / "short", []
    result = run(graphs, folder, lines=lines, minutes=1e-9)
    assert result["step"] == 1  # always one, so that every call gets on
    assert "step 1 of 6" in lines[-1]
    assert load_model(folder)
    assert [record["step"] for record in read_metrics(folder)] == [1]
    result = run(graphs, folder, lines=lines, resume=True)
    assert "resumed after step 1 of 6" in lines
    assert [record["step"] for record in read_metrics(folder)] == [1, 3, 6]
    assert equal(weights(tmp_path / "straight"), weights(folder))
    again = run(graphs, folder, resume=True)  # nothing is left to do
    assert again["metrics"] == result["metrics"]
    assert len(read_metrics(folder)) == 3


def test_a_checkpoint_is_written_now_and_then(graphs, tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "SAVE_EVERY", 0.0)
    real, saved = runs.PretrainingRun.save, []

    def save(self):
        saved.append(self.pretrainer.step)
        real(self)

    monkeypatch.setattr(runs.PretrainingRun, "save", save)
    run(graphs[:1], tmp_path / "run", replace(SMALL, steps=4, valid_every=9))
    assert saved == [0, 1, 2, 3, 4, 4, 4]


def test_only_the_same_run_can_be_resumed(graphs, tmp_path):
    folder, longer = tmp_path / "run", replace(SMALL, steps=9)
    with pytest.raises(ConfigError, match="nothing to resume"):
        run(graphs, folder, resume=True)
    run(graphs, folder, minutes=1e-9)
    with pytest.raises(ConfigError, match="--resume"):
        run(graphs, folder)
    with pytest.raises(ConfigError, match=r"steps was 6, now 9 \(the learning rate"):
        run(graphs, folder, longer, resume=True)
    with pytest.raises(ConfigError, match=r"drop_share was 0\.3, now 0\.1"):
        run(graphs, folder, replace(SMALL, drop_share=0.1), resume=True)
    with pytest.raises(ConfigError, match=r"graphs were toy \(.*now other"):
        run(graphs[::-1], folder, resume=True)
    with pytest.raises(ConfigError, match="--valid graphs were none, now other"):
        pretrain(graphs[:1], SMALL, Place(folder, resume=True), valid=graphs[1:])
    assert runs.resumed_settings(folder) == SMALL


def test_a_run_may_start_from_a_model(graphs, tmp_path):
    first, still = tmp_path / "first", replace(SMALL, steps=1, learning_rate=1e-12)
    run(graphs, first)
    run(graphs, tmp_path / "next", still, start=first)
    for name, theirs in weights(first).items():
        torch.testing.assert_close(weights(tmp_path / "next")[name], theirs)
    assert "started_from" in (tmp_path / "next" / "model" / "README.md").read_text()
    run(graphs, tmp_path / "next", still, resume=True)  # without naming it again
    run(graphs, tmp_path / "new", minutes=1e-9)
    with pytest.raises(ConfigError, match="model to start from was none, now"):
        run(graphs, tmp_path / "new", start=first, resume=True)
    with pytest.raises(ConfigError, match="has dim=4; got dim=16"):
        run(graphs, tmp_path / "wide", replace(SMALL, dim=16), start=first)
    assert runs.started_settings(first).dim == SMALL.dim


@pytest.mark.parametrize(
    "spoil", [lambda raw: raw[:-200], lambda raw: b"nonsense", lambda raw: b""]
)
def test_a_spoilt_checkpoint_is_refused_in_words(graphs, tmp_path, spoil):
    run(graphs[:1], tmp_path, replace(SMALL, steps=1))
    path = tmp_path / runs.CHECKPOINT
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(ModelError, match=r"checkpoint\.pt: can't resume"):
        run(graphs[:1], tmp_path, replace(SMALL, steps=1), resume=True)


def test_a_loss_that_is_not_finite_ends_the_run(graphs, tmp_path):
    said = (
        r"in step \d+, with a learning rate of .*checkpoint\.pt, of step \d.*--resume.*--set lear"
    )
    with pytest.raises(TrainingError, match=said):
        run(graphs, tmp_path / "run", replace(SMALL, learning_rate=1e30))
    state = runs.read_checkpoint(tmp_path / "run")  # of a step before
    assert all(tensor.isfinite().all() for tensor in state["model"].values())
    lower = run(graphs, tmp_path / "run", replace(SMALL, learning_rate=1e-3), resume=True)
    assert lower["step"] == SMALL.steps
    assert lower["settings"]["learning_rate"] == 1e-3
    weights = load_model(tmp_path / "run").model.state_dict()
    assert all(weight.isfinite().all() for weight in weights.values())


def test_weights_that_are_not_finite_reach_no_checkpoint(graphs, tmp_path, monkeypatch):
    """The step that spoils them has a finite loss itself."""
    real = Pretrainer._update

    def spoil(self, *inputs):
        real(self, *inputs)
        if self.step == SMALL.steps:
            next(self.model.parameters()).data.fill_(math.inf)

    monkeypatch.setattr(Pretrainer, "_update", spoil)
    with pytest.raises(TrainingError, match=r"Weights became NaN or infinite in step \d+"):
        run(graphs, tmp_path / "run", SMALL)
    state = runs.read_checkpoint(tmp_path / "run")
    assert all(tensor.isfinite().all() for tensor in state["model"].values())


def test_graphs_too_small_or_given_twice_are_refused(graphs, tmp_path):
    one = graph_of_ids([(0, 0, 1)], [], 2, 1)
    for given, said in (
        ([one], "random: expected at least two training triples, got 1"),
        ([], "at least one graph"),
        ([graphs[0], replace(graphs[0], name="copy")], "copy: the same graph as toy"),
    ):
        with pytest.raises(DataError, match=said):
            run(given, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    same_name = replace(graphs[1], name="toy")
    assert list(name_graphs([graphs[0], same_name])) == ["toy", "toy-2"]


@pytest.mark.parametrize(
    "rows",
    [
        [(0, 0, 1), (1, 0, 0)],
        [(0, 0, 0), (0, 1, 0)],  # one entity
        [(0, 0, 1), (2, 0, 3)],  # nothing is left of a part when its triple is hidden
        [(0, i, 1) for i in range(30)],  # every relation is an answer
        [(0, 0, i) for i in range(1, 60)],
    ],
)
def test_losses_are_finite_on_any_graph(rows):
    n_entities, n_relations = max(max(h, t) for h, _, t in rows) + 1, max(r for _, r, _ in rows) + 1
    settings = replace(SMALL, steps=12, least_entities=2)
    graph = PreparedGraph(graph_of_ids(rows, [], n_entities, n_relations)).graph
    pretrainer = Pretrainer(Mix({"g": graph}, settings, "cpu"), settings)
    pretrainer.advance(12, lambda: True)
    assert pretrainer.step == 12
    assert all(tensor.isfinite().all() for tensor in pretrainer.model.state_dict().values())
