from __future__ import annotations

import typing
from dataclasses import fields, replace

import pytest
import yaml
from support.places import MODELS, ROOT

from pathe.core.config import (
    KEYS,
    RENAMED,
    Config,
    configure,
    current_names,
    describe_settings,
    preset_names,
    preset_text,
    read_overrides,
    read_preset,
)
from pathe.core.errors import ConfigError, UnknownNameError
from pathe.training.pretraining import Pretraining


def test_a_config_names_its_tasks():
    tasks = [configure(settings={"task": task}).tasks for task in ("link", "relation", "multi")]
    assert tasks == [("link",), ("relation",), ("link", "relation")]


def test_overrides_are_typed_and_win():
    words = ["dim=32", "learning_rate=1e-2", "hold_out_batch=true", "task=multi", "layers=2"]
    config = configure(read_preset("tiny"), read_overrides(words))
    assert (config.dim, config.learning_rate, config.hold_out_batch) == (32, 0.01, True)
    assert (config.task, config.layers) == ("multi", 2)
    assert config.path_form == "single"  # the preset's


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["dims=3"], "'dim'"),
        (["dim=big"], "whole number"),
        (["dim=3.5"], "whole number"),
        (["dim=true"], "whole number"),
        (["dim"], "key=value"),
        (["hold_out_batch=1"], "true or false"),
        (["aggregator=meen"], "'mean'"),
        (["loss=mse"], "ce, bce, nssa"),
        (["n_paths=0"], "at least 1"),
        (["dropout=1.0"], "below 1"),
        (["learning_rate=0"], "above 0"),
        (["dim=["], "can't be read"),
        (["learning_rate=.nan"], "finite"),
        (["temperature=-3"], "at least 0"),
        (["link_weight=1.5"], "at least 0 and at most 1; got 1.5"),
        (["validate_every=9", "max_epochs=3"], "validation would never run"),
        (["dim=10", "heads=4"], "multiple of heads"),
        (["path_source=mined", "hold_out_batch=true"], "path_source=fresh"),
        (["aggregator=transformer-joint", "negative_sampling=all"], "each or shared"),
    ],
)
def test_bad_settings_are_refused_in_words(words, message):
    with pytest.raises((ConfigError, UnknownNameError), match=message):
        configure(Config(), read_overrides(words))


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_loads_and_says_where_it_comes_from(name):
    read_preset(name)
    header = [line for line in preset_text(name).splitlines() if line.startswith("#")]
    assert any(line.startswith("# Source: ") for line in header)
    assert any(f"--preset {name}" in line for line in header)


def test_the_papers_rows_are_all_there():
    rows = {"fb15k237-link", "wn18rr-link", "codexl-link", "yago310-link", "fb15k237-relation",
            "wn18rr-relation", "fb15k237-link-no-aggregator", "fb15k237-link-one-path",
            "fb15k237-link-absolute-positions", "inductive-fb15k237-link",
            "inductive-wn18rr-link"}  # fmt: skip
    assert {f"paper-{row}" for row in rows} | {"tiny"} <= set(preset_names())


def test_a_misspelt_preset_names_the_closest():
    with pytest.raises(UnknownNameError, match="'paper-wn18rr-link'"):
        read_preset("paper-wn18r-link")


def test_a_preset_may_be_a_file(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("dim: 16\n")
    assert read_preset(str(path)).dim == 16
    path.write_text("dim: [\n")
    with pytest.raises(ConfigError, match="YAML"):
        read_preset(str(path))
    path.write_text("- dim\n")
    with pytest.raises(ConfigError, match="key: value"):
        read_preset(str(path))


@pytest.mark.parametrize("settings", [Config(), Pretraining()], ids=["train", "pretrain"])
def test_every_number_has_bounds_on_both_sides_that_are_checked(settings):
    kinds = typing.get_type_hints(type(settings))
    for declared in fields(settings):
        if (kind := kinds[declared.name]) not in (int, float):
            continue
        bounds = declared.metadata["bounds"]
        assert {"least", "above"} & bounds.keys(), declared.name
        if declared.name != "learning_rate":  # a loss that isn't finite stops training
            assert {"most", "below"} & bounds.keys(), declared.name
        for name, step in (("least", -1), ("above", 0), ("most", 1), ("below", 0)):
            if name in bounds:
                beyond = kind(bounds[name] + step)
                with pytest.raises(ConfigError, match=f"{declared.name} must be "):
                    replace(settings, **{declared.name: beyond})


@pytest.mark.parametrize(
    "words",
    [
        ["n_paths=100000000"], ["test_paths=99999999"], ["layers=100000"], ["bridge_hops=1e9"],
        ["bridge_hops=1000000000"], ["n_paths=100000000000000000000"], [f"seed={2**64}"],
        ["margin=1" + "0" * 400], ["dim=1" + "0" * 400], ["learning_rate=1" + "0" * 400],
        ["minutes=.inf"],
    ],
)  # fmt: skip
def test_settings_that_would_take_forever_are_refused(words):
    with pytest.raises(ConfigError) as caught:
        configure(Config(), read_overrides(words))
    assert len(str(caught.value)) < 700


def test_bounds_are_shown():
    meanings = {name: meaning for name, _, meaning in describe_settings(Config())}
    assert meanings["n_paths"].endswith("(at least 1 and at most 10,000)")
    assert meanings["dropout"].endswith("(at least 0 and below 1)")


def test_every_setting_is_described():
    rows = describe_settings(Config())
    assert [name for name, _, _ in rows] == list(KEYS)
    assert all(meaning for _, _, meaning in rows)
    assert configure(settings=Config().as_dict()) == Config()


OLD = {"record": False, "refine": True, "contexts": "raw", "clip": 0.5, "accumulate": 3}
NEW = {"cuda_graphs": False, "neighbour_contexts": True, "context_counts": "raw",
       "gradient_clip": 0.5, "accumulate_batches": 3}  # fmt: skip


def test_old_names_of_settings_are_accepted(tmp_path):
    assert current_names({"dim": 8, **OLD}) == {"dim": 8, **NEW}
    assert configure(settings=OLD) == configure(settings=NEW)
    assert list(RENAMED) == list(OLD)
    assert set(RENAMED.values()) <= set(KEYS)
    assert not set(RENAMED) & set(KEYS)
    path = tmp_path / "old.yaml"
    path.write_text(yaml.safe_dump(OLD))
    said = []
    assert read_preset(str(path), said.append) == configure(settings=NEW)
    assert "setting 'clip' is now called 'gradient_clip'" in said
    assert len(said) == 5
    said.clear()
    assert read_overrides(["record=false", "dim=8"], said.append) == {
        "cuda_graphs": False, "dim": 8}  # fmt: skip
    assert said == ["setting 'record' is now called 'cuda_graphs'"]


def test_what_ships_uses_the_current_names():
    for name in preset_names():
        said = []
        read_preset(name, said.append)
        assert not said
    for path in (ROOT / "experiments").glob("*.yaml"):
        found = yaml.safe_load(path.read_text())
        for settings in (found.get("settings", {}), *found.get("variants", {}).values()):
            assert not set(RENAMED) & set(settings), path


def test_settings_of_shipped_models_are_read_under_their_old_names():
    stored = yaml.safe_load((MODELS / "umls" / "config.json").read_text())["config"]
    assert "record" in stored
    assert configure(settings=stored).cuda_graphs == stored["record"]


def test_only_the_joint_aggregator_is_pairwise():
    assert configure(settings={"aggregator": "transformer-joint"}).pairwise
    assert not any(
        configure(settings={"aggregator": a}).pairwise for a in ("mean", "lstm", "transformer")
    )


def test_settings_of_bridges_that_do_not_fit_are_refused():
    with pytest.raises(ConfigError, match="hold_out_pairs needs"):
        configure(settings={"hold_out_pairs": True, "hold_out_batch": False})
    with pytest.raises(ConfigError, match="bridge is one of none, paths"):
        configure(settings={"bridge": "walk"})


def test_a_removed_setting_is_accepted_where_it_meant_nothing():
    """Model folders, runs and results of earlier versions still name it."""
    assert configure(settings={"bridge_edges": 1.0}) == Config()
    with pytest.raises(UnknownNameError, match="bridge_edges"):
        configure(settings={"bridge_edges": 0.5})
