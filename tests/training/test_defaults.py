"""Settings that suit a graph and a machine."""

from __future__ import annotations

import pytest
import torch
from support.graphs import knowledge_graph, toy

from pathe.core.config import Config, configure
from pathe.core.errors import ConfigError
from pathe.graph.prepared import PreparedGraph
from pathe.training import costs, defaults, memory
from pathe.training.costs import reached_entities
from pathe.training.defaults import NEW, TABLE, TUNED, plan
from pathe.training.defaults import recommend as recommend_any

LINE = [(i, 0, i + 1) for i in range(99)]


@pytest.fixture
def slower(monkeypatch):
    """Makes this machine as many times slower as asked."""

    def by(times: float) -> None:
        for kind in costs.COST["cpu"]:
            monkeypatch.setitem(costs.COST["cpu"], kind, costs.COST["cpu"][kind] * times)

    monkeypatch.setattr(costs, "COST", {k: dict(v) for k, v in costs.COST.items()})
    monkeypatch.setattr(costs.torch, "get_num_threads", lambda: 1)
    return by


CPU = {"accelerator": "cpu"}


def recommend(kg, settings=None):
    """Settings for a new model."""
    return recommend_any(kg, {"init": "none"} | (settings or {}))


def test_a_small_graph_gets_bridges_small_batches_and_enough_steps():
    kg = toy()
    config, words = recommend(kg)
    assert config.bridge == "paths"
    assert config.negative_sampling == "all"
    assert "bridges of" in words
    steps = len(kg.train) / config.batch_size
    assert 500 <= config.max_epochs * steps <= 2000
    assert config.patience >= config.max_epochs // 2  # or training would end before
    assert recommend(kg) == (config, words)
    tiny = knowledge_graph([(0, 0, 1)])
    assert recommend(tiny)[0].max_epochs == 100


def test_given_settings_stay():
    given = {"batch_size": 7, "bridge_hops": 2, "bridge_dropout": 0.97, "task": "multi", "seed": 5}
    config, words = recommend(toy(), given)
    assert {key: getattr(config, key) for key in given} == given
    assert "bridges of 2 hops for 3% of the queries" in words
    config, words = recommend(toy(), {"bridge": "none"})
    assert config.bridge == "none"
    assert config.batch_size < 64  # some steps per epoch without bridges, too
    assert words == "vectors"
    assert recommend(toy(), {"validate_every": 90})[0].max_epochs >= 90
    with pytest.raises(ConfigError, match="dim must be"):
        recommend(toy(), {"dim": 7})


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_the_first_error():
    with pytest.raises(ConfigError, match="torch finds none"):
        recommend(toy(), {"accelerator": "gpu"})


def test_relations_are_learnt_with_bridges_for_all_queries():
    config, _ = recommend(toy(), {"task": "relation"})
    assert (config.bridge, config.bridge_dropout, config.path_form) == ("paths", 0.0, "single")


def test_what_queries_reach_is_counted():
    reached = reached_entities(PreparedGraph(knowledge_graph(LINE)))
    assert reached[0] == (1.0, pytest.approx(2.0, abs=0.1))
    assert reached[1][0] == pytest.approx(3, abs=0.1)  # but for those at an end
    assert reached[5] == (pytest.approx(11, abs=1), pytest.approx(22, abs=2))


def test_where_it_takes_more_hops_to_get_anywhere_more_are_taken():
    config, words = recommend(knowledge_graph(LINE))
    assert (config.bridge_hops, config.path_form) == (5, "joined")
    assert "5 hops" in words
    near = knowledge_graph([(i, 0, (i * i + k) % 100) for i in range(100) for k in range(4)])
    assert (recommend(near)[0].bridge_hops, recommend(near)[0].path_form) == (3, "single")


def test_a_large_graph_has_links_of_four_edges_though_fewer_lead_everywhere(monkeypatch):
    near = knowledge_graph([(i, 0, (i * i + k) % 100) for i in range(100) for k in range(4)])
    monkeypatch.setattr(defaults, "LARGE", 400)
    assert len(near.train) == 400
    assert recommend(near)[0].bridge_hops == 4
    assert recommend(near, {"task": "relation"})[0].bridge_hops == 3
    monkeypatch.setattr(defaults, "LARGE", 401)
    assert recommend(near)[0].bridge_hops == 3


def test_a_slower_machine_has_bridges_for_fewer_queries_then_none(slower):
    kg = toy()
    usual = recommend(kg, CPU)[0]
    found = []
    for times in (60, 3, 3, 3, 3, 3):
        slower(times)
        found.append(recommend(kg, CPU))
    shares = [1 - c.bridge_dropout for c, _ in found if c.bridge == "paths"]
    assert shares == sorted(shares, reverse=True)
    assert 0.05 <= shares[-1] < 1 - usual.bridge_dropout
    assert f"for {shares[-1]:.0%} of the queries" in found[len(shares) - 1][1]
    config, words = found[-1]
    assert config.bridge == "none"
    assert "here (--set bridge=paths)" in words
    for given in ({"bridge": "paths"}, {"bridge_dropout": 0.0}):  # knows what it wants
        forced, words = recommend(kg, CPU | given)
        assert (forced.bridge, forced.bridge_dropout) == ("paths", usual.bridge_dropout)
        assert "bridges of" in words


def test_all_entities_are_the_wrong_answers_where_there_is_time_or_it_is_asked_for(monkeypatch):
    monkeypatch.setitem(costs.COST["cpu"], "path", 1e12)
    assert recommend(toy(), CPU)[0].negative_sampling == "shared"
    asked, _ = recommend(toy(), CPU | {"negative_sampling": "all"})
    assert (asked.bridge, asked.negative_sampling) == ("paths", "all")
    bare, _ = recommend(toy(), CPU | {"negative_sampling": "all", "bridge": "none"})
    assert bare.batch_size < 64


def test_pairs_are_held_out_where_that_is_how_the_data_were_made():
    twice = [(i, r, (i + 1) % 40) for i in range(40) for r in (0, 1)]
    kg = knowledge_graph(twice, valid=[(i, 0, (i + 9) % 40) for i in range(30)])
    assert recommend(kg)[0].hold_out_pairs
    again = recommend(kg, {"hold_out_batch": False})[0]  # which needs them
    assert (again.bridge, again.negative_sampling) == ("paths", "all")
    assert not again.hold_out_pairs
    assert not recommend(knowledge_graph(LINE))[0].hold_out_pairs
    few = knowledge_graph(twice, valid=[(i, 0, (i + 9) % 40) for i in range(4)])
    assert not recommend(few)[0].hold_out_pairs  # of four, none may be linked by chance


def test_settings_that_go_with_fewer_things_get_those():
    config, _ = recommend(toy(), {"aggregator": "transformer-joint"})
    assert (config.bridge, config.negative_sampling) == ("paths", "shared")
    config, _ = recommend(toy(), {"path_source": "mined", "hold_out_batch": False})
    assert config.bridge == "paths"


def test_where_bridges_do_not_fit_batches_are_smaller_then_there_are_none(monkeypatch):
    kg = knowledge_graph([(i, 0, (i * i + k) % 200) for i in range(200) for k in range(8)])
    assert recommend(kg)[0].batch_size == 32

    def check(config: Config, prepared: PreparedGraph) -> None:
        if config.batch_size > largest and (config.bridge == "paths" or config.n_paths > 4):
            raise ConfigError("too much")

    monkeypatch.setattr(defaults, "check_memory", check)
    largest = 10
    assert recommend(kg)[0].batch_size == 8
    assert recommend(kg)[0].bridge == "paths"
    largest = 1
    config, words = recommend(kg)
    assert config.bridge == "none"
    assert words == "vectors; bridges need more memory than this machine has"
    assert recommend(kg, {"n_paths": 9})[0] == Config(n_paths=9)  # training says what is wrong


def test_the_pretrained_model_is_fine_tuned_unless_its_settings_do_not_fit():
    config, words = recommend_any(toy(), CPU)
    assert (config.init, config.relation_vectors) == ("pretrained", "graph")
    assert words.startswith("the pre-trained model, fine-tuned for links and relations, up to 20")
    assert recommend_any(toy(), CPU | {"relation_vectors": "both"})[0].relation_vectors == "both"
    for given in ({"init": "none"}, {"relation_vectors": "table"}):
        config, words = recommend_any(toy(), CPU | given)
        assert config.init == "none"
        assert "bridges of" in words
    for key, value in (("dim", 32), ("bridge", "none"), ("loss", "bce"), ("n_paths", 2)):
        config, words = recommend_any(toy(), CPU | {key: value})
        assert (config.init, getattr(config, key)) == ("none", value)
        assert words.endswith(f"trains a new model because {key} is set")
    assert "a single device" in recommend_any(toy(), CPU | {"devices": 2})[1]


def test_several_models_are_tried_where_there_is_time_and_validation(slower, monkeypatch):
    monkeypatch.setattr(defaults, "LEAST_VALID", 10)
    found = plan(toy(), CPU | {"seed": 3})
    assert list(found.candidates) == [TUNED, TABLE, NEW]
    tuned, table, new = found.candidates.values()
    assert (tuned.init, tuned.relation_vectors) == ("pretrained", "graph")
    assert table == configure(tuned, {"relation_vectors": "both"})
    assert (new.init, new.bridge) == ("none", "paths")
    assert {config.seed for config in found.candidates.values()} == {3}
    assert "the best validation score" in found.description
    for given in ({"init": "pretrained"}, {"init": "none"}, {"relation_vectors": "both"}):
        assert len(plan(toy(), CPU | given).candidates) == 1
    limited = plan(toy(), CPU | {"minutes": 9.0})
    minutes = [config.minutes for config in limited.candidates.values()]
    assert sum(minutes) == pytest.approx(9)
    assert minutes[0] == minutes[1] != minutes[2]  # as long as they take
    assert list(plan(toy(), CPU | {"minutes": 0.0}).candidates) == list(found.candidates)
    assert list(plan(toy(), CPU | {"minutes": 0.01}).candidates) == [TUNED]
    few = knowledge_graph([(i, 0, i + 1) for i in range(50)], valid=[(0, 0, 5)])
    assert list(plan(few, CPU).candidates) == [TUNED]
    slower(30)
    assert list(plan(toy(), CPU).candidates) == [TUNED]


def test_fine_tuning_may_validate_less_often():
    for every in (5, 30):
        config, _ = recommend_any(toy(), CPU | {"validate_every": every})
        assert config.init == "pretrained"
        assert config.max_epochs >= config.validate_every == every


def test_fine_tuning_that_does_not_fit_in_memory(monkeypatch):
    monkeypatch.setattr(memory, "graph_step_bytes", lambda config, prepared: 1e15)
    config, words = recommend_any(toy(), CPU)
    assert config.init == "none"
    assert words.endswith("because fine-tuning needs more memory than this machine has")
    with pytest.raises(ConfigError, match="A training step would take about"):
        recommend_any(toy(), CPU | {"init": "pretrained"})


def test_fine_tuning_keeps_to_its_budget_on_a_slower_machine(slower):
    kg = toy()
    usual = recommend_any(kg, CPU)[0]
    assert (usual.epoch_triples, usual.max_epochs) == (0, defaults.MOST_TUNED)
    epochs = []
    for _ in range(12):
        slower(3)
        config, words = recommend_any(kg, CPU)
        if config.init == "none":
            break
        epochs.append((config.epoch_triples or len(kg.train), config.max_epochs))
    assert epochs == sorted(epochs, reverse=True)
    assert epochs[-1][0] < len(kg.train)
    assert "because fine-tuning would take too long" in words
    forced, words = recommend_any(kg, CPU | {"init": "pretrained"})
    assert forced.init == "pretrained"
    assert forced.max_epochs == defaults.FEW_EPOCHS
    given = CPU | {"init": "pretrained", "epoch_triples": 50, "max_epochs": 3, "valid_triples": 7}
    config, _ = recommend_any(kg, given)
    assert {key: getattr(config, key) for key in given} == given
