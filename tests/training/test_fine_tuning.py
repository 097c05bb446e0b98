"""Fine-tuning of a model for any graph."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from support.graphs import knowledge_graph, toy
from support.models import ANY
from support.runs import weights

from pathe.core.config import configure
from pathe.core.errors import ConfigError
from pathe.graph.prepared import PreparedGraph
from pathe.model.artifact import load_model
from pathe.training import graph_learner, memory
from pathe.training import run as runs
from pathe.training.defaults import recommend
from pathe.training.graph_learner import GraphLearner
from pathe.training.memory import check_memory, graph_step_bytes
from pathe.training.run_folder import read_metrics
from pathe.training.start import build_learner

SMALL = ANY | {"batch_size": 40, "max_epochs": 4, "learning_rate": 0.01, "accelerator": "cpu"}


def train(folder, resume=False, **settings):
    config = configure(settings=SMALL | settings)
    return runs.train(toy(), config, folder, runs.Options(resume, progress_bar=False))


@pytest.mark.parametrize("task", ["link", "relation", "multi"])
def test_training_learns_the_toy_graph(tmp_path, task):
    result = train(tmp_path, task=task, max_epochs=8)
    losses = [epoch["loss"] for epoch in read_metrics(tmp_path)]
    assert losses[-1] < 0.7 * losses[0]
    assert result["parameters"] == sum(w.numel() for w in weights(tmp_path).values())
    assert load_model(tmp_path).relations is None


def test_a_run_resumes_exactly(tmp_path):
    train(tmp_path / "whole", max_epochs=3)
    train(tmp_path / "parts", max_epochs=1)
    train(tmp_path / "parts", resume=True, max_epochs=3)
    ours, theirs = weights(tmp_path / "parts"), weights(tmp_path / "whole")
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("hold_out_pairs", [False, True])
def test_a_step_on_a_large_graph_sees_what_one_on_a_small_graph_does(monkeypatch, hold_out_pairs):
    """The batch's edges are held out, or all between their entities, without counting anew."""
    config, seen = configure(settings=SMALL | {"hold_out_pairs": hold_out_pairs}), []
    for frontier in (0, 9):
        monkeypatch.setattr(graph_learner, "frontier_size", lambda *_, k=frontier: k)
        learner = build_learner(config, PreparedGraph(toy()))
        learner.setup("fit")
        assert (learner.views is not None) == (frontier > 0)
        seen.append(learner._seen(torch.tensor([4, 70, 9])))
        assert torch.isfinite(learner.loss(torch.tensor([4, 70, 9]), torch.tensor(1)))
    assert torch.equal(seen[0].keep_M, seen[1].keep_M)
    assert int((~seen[0].keep_M).sum()) >= 6 + 2 * hold_out_pairs
    assert torch.equal(seen[0].meetings, seen[1].meetings)
    every = torch.arange(60)
    for one, other in zip(seen[0].contexts.at(every), seen[1].contexts.at(every), strict=True):
        assert torch.equal(one, other)


def test_epochs_may_have_a_part_of_the_triples(tmp_path):
    config = configure(settings=SMALL | {"epoch_triples": 90, "batch_size": 40})
    learner = build_learner(config, PreparedGraph(toy()))
    learner.setup("fit")
    learner._trainer = type("T", (), {"world_size": 1, "global_rank": 0})()
    batches = learner.train_dataloader()
    epochs = []
    for _ in range(2):
        found = list(batches)
        assert [len(ids) for ids, _, _ in found] == [40, 40, 10]
        epochs.append(torch.cat([ids for ids, _, _ in found]))
        assert len(epochs[-1].unique()) == 90
        batches.finish(found[-1][1], found[-1][2])
    assert not torch.equal(*epochs)


def test_the_pretrained_model_stays_if_training_makes_it_worse(tmp_path, monkeypatch):
    best = {"mrr": 1.0}  # that of a perfect model: no epoch can be better
    validate = GraphLearner.validate

    def first(learner):
        return {"valid_link": best} if learner.global_step == 0 else validate(learner)

    monkeypatch.setattr(GraphLearner, "validate", first)
    config, words = recommend(toy(), {"init": "pretrained", "accelerator": "cpu"})
    assert "the pre-trained model" in words
    said = []
    settings = config.as_dict() | {"learning_rate": 1.0, "max_epochs": 1, "schedule": "constant"}
    options = runs.Options(say=said.append, progress_bar=False)
    runs.train(toy(), configure(settings=settings), tmp_path, options)
    assert any("kept the pre-trained model as it is" in line for line in said)
    shipped, kept = load_model().model.state_dict(), weights(tmp_path)
    assert all(torch.equal(shipped[name], kept[name]) for name in shipped)


def test_fine_tuning_starts_from_the_pretrained_weights():
    config, _ = recommend(toy(), {"init": "pretrained"})
    learner, shipped = build_learner(config, PreparedGraph(toy())), load_model()
    for ours, theirs in zip(learner.model.parameters(), shipped.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    with pytest.raises(ConfigError, match="init=pretrained needs bridge_dim=64"):
        build_learner(configure(config, {"bridge_dim": 32}), PreparedGraph(toy()))


def test_a_model_may_get_more_hops_than_its_start_but_not_fewer():
    config, _ = recommend(toy(), {"init": "pretrained"})
    shipped, prepared = load_model().model.state_dict(), PreparedGraph(toy())
    more = build_learner(configure(config, {"bridge_hops": 8}), prepared).model.state_dict()
    assert all(torch.equal(more[name], shipped[name]) for name in shipped)
    new = [name for name in more if name not in shipped]
    assert new
    assert {name.split(".")[2] for name in new} == {"6", "7"}  # hops are counted from 0
    for name in new:
        parts = name.split(".")
        last = ".".join([*parts[:2], "5", *parts[3:]])
        assert torch.equal(more[name], shipped[last])
    with pytest.raises(ConfigError, match="needs bridge_hops=6 or more; got 4"):
        build_learner(configure(config, {"bridge_hops": 4}), prepared)


def test_a_table_of_relations_may_be_added_to_the_pretrained_model(tmp_path, monkeypatch):
    given = {"init": "pretrained", "relation_vectors": "both", "accelerator": "cpu"}
    config, _ = recommend(toy(), given | {"max_epochs": 1})
    learner, shipped = build_learner(config, PreparedGraph(toy())), load_model()
    learner.setup("fit")
    plain = build_learner(recommend(toy(), {"init": "pretrained"})[0], PreparedGraph(toy()))
    plain.setup("fit")
    assert learner.validate() == plain.validate()  # the table starts as zeros
    more = sum(p.numel() for p in learner.model.parameters())
    assert more == sum(p.numel() for p in shipped.model.parameters()) + 6 * 64
    monkeypatch.setattr(GraphLearner, "on_train_start", lambda self: None)  # keeps what it trains
    runs.train(toy(), config, tmp_path, runs.Options(progress_bar=False))
    assert load_model(tmp_path).relations == toy().relations
    assert weights(tmp_path)["encoder.table"].abs().sum() > 0


def test_the_time_limit_ends_training_after_an_epoch(tmp_path):
    result = train(tmp_path, max_epochs=50, minutes=1e-4)
    assert result["epochs"] == 1


def test_steps_that_do_not_fit_in_memory_are_refused(monkeypatch):
    star = PreparedGraph(knowledge_graph([(0, i % 3, i + 1) for i in range(3000)]))
    line = PreparedGraph(knowledge_graph([(i, i % 3, i + 1) for i in range(3000)]))
    many = PreparedGraph(knowledge_graph([(i, i, i + 1) for i in range(3000)]))
    config = configure(settings=ANY | {"batch_size": 64, "task": "link", "accelerator": "cpu"})
    on_star, on_line, on_many = (graph_step_bytes(config, graph) for graph in (star, line, many))
    # queries reach all of a star, a few entities of a line; relations of the latter are many
    assert on_star > 5 * on_line
    assert on_many > 5 * on_line
    monkeypatch.setattr(memory, "free_memory", lambda device: int(1.1 * on_many))
    check_memory(config, many)
    with pytest.raises(ConfigError, match=r"Lower batch_size \(64\), or set task=link"):
        check_memory(configure(config, {"task": "multi"}), many)
    monkeypatch.setattr(memory, "free_memory", lambda device: on_star // 3)
    with pytest.raises(ConfigError, match=r"Lower batch_size \(64\)\.$"):
        check_memory(config, star)
    asked = {"init": "pretrained", "accelerator": "cpu"}
    monkeypatch.setattr(memory, "free_memory", lambda device: 1 << 29)
    assert recommend(star, asked)[0].batch_size < recommend(line, asked)[0].batch_size


def test_time_may_be_over_before_the_first_validation(tmp_path):
    result = train(tmp_path, max_epochs=50, minutes=1e-4, validate_every=3)
    assert (result["epochs"], result["best_valid_score"]) == (1, None)
    assert result["mrr"] > 0


def test_settings_that_do_not_go_together():
    with pytest.raises(ConfigError, match="trains in float32"):
        configure(settings={"relation_vectors": "graph", "precision": "bf16"})
    with pytest.raises(ConfigError, match="one device"):
        configure(settings={"relation_vectors": "graph", "devices": 2})


@pytest.mark.parametrize("task", ["link", "relation"])
def test_planted_valid_and_test_triples_change_no_loss(task):
    kg, config = toy(), configure(settings=SMALL | {"task": task})
    planted = [(i, 1, (i + 30) % 60) for i in range(60)]
    leaky = knowledge_graph(kg.train.tolist(), planted[::2], planted[1::2])
    leaky = replace(leaky, inference=knowledge_graph(planted))
    losses = []
    for each in (kg, leaky):
        learner = build_learner(config, PreparedGraph(each))
        learner.setup("fit")
        losses.append(learner.loss(torch.arange(0, 80, 3), torch.tensor(1)))
    assert torch.equal(*losses)
