"""Settings that suit a graph and a machine."""

from __future__ import annotations

import pytest
from graphs import knowledge_graph, toy

from pathe import recipes
from pathe.config import Config
from pathe.errors import ConfigError
from pathe.recipes import _reached, recommend

LINE = [(i, 0, i + 1) for i in range(99)]


def changed(config: Config) -> dict[str, object]:
    usual = Config().as_dict()
    return {key: value for key, value in config.as_dict().items() if value != usual[key]}


@pytest.fixture
def slower(monkeypatch):
    """Makes this machine as many times slower as asked."""

    def by(times: float) -> None:
        for kind in ("row", "edge", "path"):
            monkeypatch.setitem(recipes.COST["cpu"], kind, recipes.COST["cpu"][kind] * times)

    monkeypatch.setattr(recipes, "COST", {k: dict(v) for k, v in recipes.COST.items()})
    monkeypatch.setattr(recipes.torch, "get_num_threads", lambda: 1)
    return by


CPU = {"accelerator": "cpu"}


def test_a_small_graph_gets_bridges_small_batches_and_enough_steps():
    kg = toy()
    config, words = recommend(kg)
    assert config.bridge == "paths"
    assert config.negative_sampling == "all"
    assert "bridges of" in words
    steps = config.max_epochs * len(kg.train) / config.batch_size
    assert 500 <= steps <= 2000
    assert recommend(kg) == (config, words)


def test_what_is_given_stays():
    given = {"batch_size": 7, "bridge_hops": 2, "bridge_dropout": 0.3, "task": "multi", "seed": 5}
    config, words = recommend(toy(), given)
    assert {key: getattr(config, key) for key in given} == given
    assert "bridges of 2 hops" in words
    config, words = recommend(toy(), {"bridge": "none"})
    assert config.bridge == "none"
    assert config.batch_size < 64  # some steps an epoch without bridges, too
    assert words == "vectors"
    with pytest.raises(ConfigError, match="dim must be"):
        recommend(toy(), {"dim": 7})


def test_what_questions_reach_is_counted():
    reached = _reached(knowledge_graph(LINE))
    assert reached[0] == (1.0, pytest.approx(2.0, abs=0.1))
    assert reached[1][0] == pytest.approx(3, abs=0.1)  # but for those at an end
    assert reached[5] == (pytest.approx(11, abs=1), pytest.approx(22, abs=2))


def test_where_it_takes_more_hops_to_get_anywhere_more_are_taken():
    config, words = recommend(knowledge_graph(LINE))
    assert (config.bridge_hops, config.path_form) == (5, "joined")
    assert "5 hops" in words
    near = knowledge_graph([(i, 0, (i * i + k) % 100) for i in range(100) for k in range(4)])
    assert (recommend(near)[0].bridge_hops, recommend(near)[0].path_form) == (3, "single")


def test_a_slower_machine_has_bridges_for_fewer_questions_then_none(slower):
    kg = toy()
    usual = recommend(kg, CPU)[0]
    found = []
    for times in (100, 10, 10, 10, 10):
        slower(times)
        found.append(recommend(kg, CPU))
    shares = [1 - c.bridge_dropout for c, _ in found if c.bridge == "paths"]
    assert shares == sorted(shares, reverse=True)
    assert 0.05 <= shares[-1] < 1 - usual.bridge_dropout
    config, words = found[-1]
    assert config.bridge == "none"
    assert config.negative_sampling == "shared"
    assert "hours here (--set bridge=paths)" in words
    forced, _ = recommend(kg, CPU | {"bridge": "paths"})
    assert forced.bridge == "paths"
    assert forced.bridge_dropout == usual.bridge_dropout


def test_pairs_are_held_out_where_that_is_how_the_data_were_made():
    twice = [(i, r, (i + 1) % 40) for i in range(40) for r in (0, 1)]
    kg = knowledge_graph(twice, valid=[(i, 0, (i + 9) % 40) for i in range(30)])
    assert recommend(kg)[0].hold_out_pairs
    again = recommend(kg, {"hold_out_batch": False})[0]  # which needs them
    assert again.bridge == "paths"
    assert not again.hold_out_pairs
    assert not recommend(knowledge_graph(LINE))[0].hold_out_pairs
    few = knowledge_graph(twice, valid=[(i, 0, (i + 9) % 40) for i in range(4)])
    assert not recommend(few)[0].hold_out_pairs  # of four, none may be linked by chance


def test_settings_that_go_with_fewer_things_get_those():
    config, _ = recommend(toy(), {"aggregator": "transformer-joint"})
    assert (config.bridge, config.negative_sampling) == ("paths", "shared")
    config, _ = recommend(toy(), {"path_source": "mined", "hold_out_batch": False})
    assert config.bridge == "paths"


def test_where_bridges_do_not_fit_there_are_none(monkeypatch):
    def check(config: Config, n_entities: int, n_triples: int) -> None:
        if config.bridge == "paths" or config.negative_sampling == "all":
            raise ConfigError("too much")

    monkeypatch.setattr(recipes, "check_fits", check)
    config, words = recommend(toy())
    assert set(changed(config)) == {"batch_size"}
    assert words == "vectors"
    monkeypatch.setattr(recipes, "check_fits", lambda *given: check(Config(bridge="paths"), 0, 0))
    assert recommend(toy(), {"n_paths": 9}) == (Config(n_paths=9), "the defaults")
