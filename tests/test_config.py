from __future__ import annotations

import pytest

from pathe.config import (
    KEYS,
    Config,
    configure,
    describe_settings,
    preset_names,
    preset_text,
    read_overrides,
    read_preset,
)
from pathe.errors import ConfigError, UnknownNameError


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
        (["validate_every=9", "max_epochs=3"], "nothing would ever be validated"),
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


def test_every_setting_is_described():
    rows = describe_settings(Config())
    assert [name for name, _, _ in rows] == list(KEYS)
    assert all(meaning for _, _, meaning in rows)
    assert configure(settings=Config().as_dict()) == Config()
