from __future__ import annotations

import importlib.util
import json
import sys

import lightning.pytorch as pl
import pytest
import yaml
from support.commands import pathe
from support.graphs import toy

from pathe.cluster.job import in_this_process
from pathe.core.config import configure, read_preset
from pathe.core.errors import ConfigError, PatheError, UnknownNameError
from pathe.lab import tuning
from pathe.lab.tuning import Space, read_space, settings_of, space_names, tune

FIXED = {"task": "link", "feedforward": 8, "n_paths": 2, "max_hops": 2, "aggregator": "mean",
         "batch_size": 40, "negatives": 8}  # fmt: skip
SHORT = {"max_epochs": 3, "accelerator": "cpu"}
SPACE = Space("toy", FIXED, {"dim": [6, 8], "heads": [2, 3], "learning_rate": [0.001, 0.01, 0.03]})


def picks(result):
    return [t["settings"] for t in result["trials"]]


def scores(result):
    return [t["valid_score"] for t in result["trials"]]


@pytest.mark.pictures
def test_a_search_is_seeded_resumable_and_leaves_a_preset(tmp_path):
    kg = toy()
    whole = tune(kg, SPACE, tmp_path / "whole", settings=SHORT, n_trials=5, seed=3)
    said: list[str] = []
    tune(kg, SPACE, tmp_path / "parts", settings=SHORT, n_trials=3, seed=3)
    parts = tune(kg, SPACE, tmp_path / "parts", settings=SHORT, n_trials=5, seed=3, say=said.append)
    assert said[0] == "3 trials are done already"
    assert picks(parts) == picks(whole)
    assert scores(parts) == scores(whole)
    other = tune(kg, SPACE, tmp_path / "other", settings=SHORT, n_trials=5, seed=4)
    assert picks(other) != picks(whole)
    assert parts["default_valid_score"] == whole["default_valid_score"]
    complete = [t for t in whole["trials"] if t["state"] == "complete"]
    best = max(complete, key=lambda t: t["valid_score"])
    assert whole["best_valid_score"] == best["valid_score"]
    assert whole["best"] == FIXED | best["settings"] | SHORT
    config = read_preset(str(tmp_path / "whole" / "best.yaml"))
    assert config.dim == best["settings"]["dim"]
    assert (tmp_path / "whole" / "report.png").read_bytes()[:4] == b"\x89PNG"
    assert json.loads((tmp_path / "whole" / "result.json").read_text()) == whole
    with pytest.raises(ConfigError, match="another --out"):
        tune(kg, SPACE, tmp_path / "whole", settings=SHORT, n_trials=5, seed=9)


def without_times(result):
    """A result without what differs from run to run."""
    trials = [{k: v for k, v in t.items() if k != "seconds"} for t in result["trials"]]
    return result | {"trials": trials}


@pytest.mark.parametrize("harm", ["none", "stopped", "damaged"])
def test_trials_that_come_in_any_order_give_the_same_result(tmp_path, monkeypatch, harm):
    """As on a cluster: backwards; pruned and impossible trials are the same ones."""
    monkeypatch.setattr(tuning, "WARM_UP", 1)
    monkeypatch.setattr(tuning, "SLOW_START", 0)
    kg, how = toy(), {"settings": SHORT, "n_trials": 6, "seed": 7}
    plain = tune(kg, SPACE, tmp_path / "plain", **how)
    assert any(t["state"] == "pruned" and t["validations"] for t in plain["trials"])
    asked = []

    def backwards(job, numbers):
        for n, (number, part) in enumerate(in_this_process(job, list(numbers)[::-1])):
            if harm != "none" and len(asked) == 2:
                asked.append("stopped")
                raise PatheError("stopped")
            asked.append(n)
            yield number, part

    if harm != "none":
        with pytest.raises(PatheError, match="stopped"):
            tune(kg, SPACE, tmp_path / "far", **how, backend=backwards)
        kept = sorted((tmp_path / "far" / "outcomes").glob("*.json"))
        assert len(kept) == 2
        if harm == "damaged":
            kept[0].write_text(kept[0].read_text()[:-9])
    said = []
    found = tune(kg, SPACE, tmp_path / "far", **how, backend=backwards, say=said.append)
    assert without_times(found) == without_times(plain)
    assert all(t["seconds"] >= 0 for t in found["trials"])
    assert not (tmp_path / "far" / "outcomes").exists()
    n_trained = sum("trained on" in line for line in said)
    impossible = sum("not possible" in line for line in said)
    assert impossible > 0
    assert n_trained == 7 - impossible - {"none": 0, "stopped": 2, "damaged": 1}[harm]
    more = tune(kg, SPACE, tmp_path / "far", **how | {"n_trials": 7}, backend=in_this_process)
    assert picks(more)[:6] == picks(plain)


def test_a_trial_on_a_cluster_has_one_device(tmp_path):
    with pytest.raises(ConfigError, match="devices=2"):
        tune(toy(), SPACE, tmp_path / "t", settings=SHORT | {"devices": 2}, backend=in_this_process)


def test_settings_that_do_not_fit_are_reported_and_count_as_trials(tmp_path):
    space = Space("odd", FIXED | {"dim": 8}, {"heads": [3, 2]})
    said: list[str] = []
    result = tune(toy(), space, tmp_path / "t", settings=SHORT, n_trials=6, seed=1, say=said.append)
    refused = [line for line in said if "not possible: dim must be a multiple of heads" in line]
    assert 0 < len(refused) < 6
    assert len(result["trials"]) == 6
    assert result["best"]["heads"] == 2


def test_only_validation_judges(tmp_path, monkeypatch):
    from dataclasses import replace

    kg = toy()
    seen = tune(kg, SPACE, tmp_path / "a", settings=SHORT, n_trials=2)
    without = tune(replace(kg, test=kg.test[:0]), SPACE, tmp_path / "b", settings=SHORT, n_trials=2)
    assert scores(seen) == scores(without)
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
    args = ("tune", "toy", "--space", "s.yaml", "--trials", "2", "--set", "max_epochs=3")
    found = pathe(*args, "--json", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    result = json.loads(found.stdout)
    assert len(result["trials"]) == 2
    assert result["command"] == f"pathe {' '.join(args)} --json"
    assert "trial 2/2" in found.stderr
    assert (tmp_path / "runs" / "toy-tune-s" / "best.yaml").exists()
    again = pathe(*args, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    score = f"best validation MRR among 99 negatives {result['best_valid_score']:.4f}"
    assert score in " ".join(again.stderr.split())


@pytest.mark.parametrize(("precision", "expected"), [("bf16", "bf16-mixed"), ("32", "32-true")])
def test_trials_are_trained_with_the_precision_asked_for(
    tmp_path, monkeypatch, precision, expected
):
    used = []
    real = pl.Trainer

    def spy(**options):
        used.append((options["precision"], options["devices"]))
        return real(**options)

    monkeypatch.setattr("pathe.lab.tuning.pl.Trainer", spy)
    settings = {"max_epochs": 1, "accelerator": "cpu", "precision": precision, "devices": 2}
    space = Space("one", FIXED | {"dim": 8}, {"heads": [2]})
    tune(toy(), space, tmp_path / "t", settings=settings, n_trials=1)
    assert used == [(expected, 1)] * 2  # of the defaults and of the trial


def test_without_optuna_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(PatheError, match=r"needs optuna: pip install 'pathe\[tune\]'"):
        tune(toy(), SPACE, tmp_path / "t", n_trials=1)
    spec = importlib.util.spec_from_file_location("tuning_once_more", str(tuning.__file__))
    assert spec is not None
    assert spec.loader is not None
    again = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, again)  # dataclasses look their module up there
    spec.loader.exec_module(again)  # which needs no optuna


def test_without_matplotlib_a_search_has_no_picture(tmp_path, monkeypatch):
    monkeypatch.setattr("pathe.lab.tuning.find_spec", lambda name: None)
    settings, said = SHORT | {"max_epochs": 1}, []
    tune(toy(), SPACE, tmp_path / "t", settings=settings, n_trials=1, say=said.append)
    assert "pip install 'pathe[plots]'" in said[-1]
    assert (tmp_path / "t" / "result.json").exists()
    assert not (tmp_path / "t" / "report.png").exists()


def test_scores_are_called_what_they_are(tmp_path):
    said: list[str] = []
    space = Space("both", FIXED | {"task": "multi", "dim": 8}, {"heads": [2]})
    settings = SHORT | {"max_epochs": 1}
    result = tune(toy(), space, tmp_path / "t", settings=settings, n_trials=1, say=said.append)
    title = "mean of validation MRR of links among 99 negatives and of relations"
    assert result["validation"] == title
    assert said[0].startswith(f"the defaults: {title} 0.")
    assert said[1].startswith(f"trial 1/1: {title} 0.")
    assert title in (tmp_path / "t" / "best.yaml").read_text()
    space = Space("full", FIXED | {"valid_negatives": 0, "dim": 8}, {"heads": [2]})
    result = tune(toy(), space, tmp_path / "full", settings=settings, n_trials=1)
    assert result["validation"] == "validation MRR"  # the defaults are ranked the same way


def test_old_names_of_settings_are_read(tmp_path):
    (tmp_path / "s.yaml").write_text("fixed: {clip: 0.5}\nspace: {contexts: [raw, log1p]}")
    space = read_space(str(tmp_path / "s.yaml"))
    assert space.fixed == {"gradient_clip": 0.5}
    assert space.choices == {"context_counts": ["raw", "log1p"]}


def test_the_defaults_are_judged_as_training_judges_them(tmp_path):
    from pathe.training.run import Options, train

    result = tune(toy(), SPACE, tmp_path / "t", settings=SHORT, n_trials=1, seed=5)
    assert result["command"] is None  # it was started from Python
    settings = SHORT | {"task": "link", "seed": 5}
    options = Options(progress_bar=False)
    trained = train(toy(), configure(settings=settings), tmp_path / "run", options)
    assert result["default_valid_score"] == pytest.approx(trained["best_valid_score"], abs=1e-6)
    assert result["validation"] == trained["validation"] == "validation MRR among 99 negatives"
