from __future__ import annotations

import json

import pytest
import yaml
from command import pathe
from graphs import toy

from pathe.config import configure, read_preset
from pathe.errors import ConfigError, UnknownNameError
from pathe.tuning import Space, read_space, settings_of, space_names, tune

FIXED = {"task": "link", "feedforward": 8, "n_paths": 2, "max_hops": 2, "aggregator": "mean",
         "batch_size": 40, "negatives": 8}  # fmt: skip
SHORT = {"max_epochs": 3, "accelerator": "cpu"}
SPACE = Space("toy", FIXED, {"dim": [6, 8], "heads": [2, 3], "learning_rate": [0.001, 0.01, 0.03]})


def picks(result):
    return [t["settings"] for t in result["trials"]]


def test_a_search_is_seeded_resumable_and_leaves_a_preset(tmp_path):
    kg = toy()
    whole = tune(kg, SPACE, tmp_path / "whole", settings=SHORT, n_trials=5, seed=3)
    said: list[str] = []
    tune(kg, SPACE, tmp_path / "parts", settings=SHORT, n_trials=3, seed=3)
    parts = tune(kg, SPACE, tmp_path / "parts", settings=SHORT, n_trials=5, seed=3, say=said.append)
    assert said[0] == "3 trials are done already"
    assert picks(parts) == picks(whole)
    assert [t["valid_mrr"] for t in parts["trials"]] == [t["valid_mrr"] for t in whole["trials"]]
    other = tune(kg, SPACE, tmp_path / "other", settings=SHORT, n_trials=5, seed=4)
    assert picks(other) != picks(whole)
    assert parts["default_valid_mrr"] == whole["default_valid_mrr"]
    complete = [t for t in whole["trials"] if t["state"] == "complete"]
    best = max(complete, key=lambda t: t["valid_mrr"])
    assert whole["best_valid_mrr"] == best["valid_mrr"]
    assert whole["best"] == FIXED | best["settings"] | SHORT
    config = read_preset(str(tmp_path / "whole" / "best.yaml"))
    assert config.dim == best["settings"]["dim"]
    assert (tmp_path / "whole" / "report.png").read_bytes()[:4] == b"\x89PNG"
    assert json.loads((tmp_path / "whole" / "result.json").read_text()) == whole
    with pytest.raises(ConfigError, match="another --out"):
        tune(kg, SPACE, tmp_path / "whole", settings=SHORT, n_trials=5, seed=9)


def test_settings_that_do_not_fit_are_told_and_count_as_trials(tmp_path):
    space = Space("odd", FIXED | {"dim": 8}, {"heads": [3, 2]})
    said: list[str] = []
    result = tune(toy(), space, tmp_path / "t", settings=SHORT, n_trials=6, seed=1, say=said.append)
    refused = [line for line in said if "can't be: dim must be a multiple of heads" in line]
    assert 0 < len(refused) < 6
    assert len(result["trials"]) == 6
    assert result["best"]["heads"] == 2


def test_only_validation_judges(tmp_path, monkeypatch):
    from dataclasses import replace

    kg = toy()
    seen = tune(kg, SPACE, tmp_path / "a", settings=SHORT, n_trials=2)
    without = tune(replace(kg, test=kg.test[:0]), SPACE, tmp_path / "b", settings=SHORT, n_trials=2)
    assert [t["valid_mrr"] for t in seen["trials"]] == [t["valid_mrr"] for t in without["trials"]]
    with pytest.raises(ConfigError, match="needs validation triples"):
        tune(replace(kg, valid=kg.valid[:0]), SPACE, tmp_path / "c", settings=SHORT, n_trials=1)


@pytest.mark.parametrize("name", space_names())
def test_spaces_that_ship_can_be_read_and_their_picks_be_settings(name):
    space = read_space(name)
    picked = {key: choices[0] for key, choices in space.choices.items()}
    assert configure(settings=settings_of(space, picked)).task in ("link", "relation")


def test_batches_count_negatives_as_the_paper_does():
    link = Space("x", {"task": "link"}, {})
    picked = {"negatives": 99, "batch_triples": 4096, "accumulated": 8}
    assert settings_of(link, picked) == {"task": "link", "negatives": 99, "batch_size": 164}
    relation = Space("x", {"task": "relation"}, {})
    assert settings_of(relation, {"batch_triples": 512, "accumulated": 8})["batch_size"] == 4096


def test_bad_spaces_are_refused(tmp_path):
    with pytest.raises(UnknownNameError, match="Closest: 'paper-link'"):
        read_space("paper-lnk")
    path = tmp_path / "s.yaml"
    path.write_text("space: {dimm: [1]}")
    with pytest.raises(ConfigError, match="no setting 'dimm'"):
        read_space(str(path))
    path.write_text("space: {dim: 3}")
    with pytest.raises(ConfigError, match="list of choices"):
        read_space(str(path))


def test_the_command(tmp_path):
    toy().save(tmp_path / "toy")
    space = {"fixed": FIXED | SHORT, "space": {"learning_rate": [0.01, 0.03]}}
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(space))
    found = pathe(
        "tune",
        "toy",
        "--space",
        "s.yaml",
        "--trials",
        "2",
        "--json",
        "--set",
        "max_epochs=3",
        cwd=tmp_path,
    )
    assert found.returncode == 0, found.stderr
    assert len(json.loads(found.stdout)["trials"]) == 2
    assert "trial 2/2" in found.stderr
    assert (tmp_path / "runs" / "toy-tune-s" / "best.yaml").exists()


def test_the_defaults_are_judged_as_training_judges_them(tmp_path):
    from pathe.runs import train

    result = tune(toy(), SPACE, tmp_path / "t", settings=SHORT, n_trials=1, seed=5)
    settings = SHORT | {"task": "link", "seed": 5}
    trained = train(toy(), configure(settings=settings), tmp_path / "run", progress_bar=False)
    assert result["default_valid_mrr"] == pytest.approx(trained["best_valid_mrr"], abs=1e-6)
