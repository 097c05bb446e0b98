"""Pre-training from the command line."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from support.commands import pathe, refused

from pathe.cli import output, pretrain
from pathe.model.artifact import SHIPPED, model_digest
from pathe.training.pretraining import Pretrainer

TINY = ["--set", "dim=4", "--set", "n_hops=2", "--set", "n_layers=1", "--set", "valid_triples=4",
        "--set", "n_subgraphs=2", "--set", "least_entities=5", "--set", "most_entities=20",
        "--set", "valid_every=2", "--steps", "4", "--device", "cpu"]  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """Two graphs with splits, and files of one and of no triple."""
    folder = tmp_path_factory.mktemp("pretrain")
    for name, n in (("ring", 3), ("web", 5)):
        rows = [f"e{i}\tr{i % n}\te{(i * 7 + n) % 30}\n" for i in range(30)]
        rows += [f"e{i}\tr{i % 2}\te{(i + 1) % 30}\n" for i in range(30)]
        (folder / name).mkdir()
        for split, part in (("train", rows[:48]), ("valid", rows[48:54]), ("test", rows[54:])):
            (folder / name / f"{split}.txt").write_text("".join(part))
    (folder / "one.tsv").write_text("a\tr\tb\n")
    return folder


def test_a_run_prints_its_validations_and_where_the_model_is(place):
    done = pathe("pretrain", "ring", "--valid", "web", *TINY, "--out", "a", cwd=place)
    assert done.returncode == 0, done.stderr
    assert "run folder: a\n" in done.stderr
    assert "step 2/4: loss " in done.stderr
    assert "left" in done.stderr
    assert "step 4/4: loss " in done.stderr
    for word in ("MRR", "Hits@10", "ring", "web", "mean", "step 4 of 4", "a/model"):
        assert word in done.stdout
    found = pathe("evaluate", "a", "--data", "web", "--json", "--device", "cpu", cwd=place)
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["n_triples"] == 6
    result = json.loads((place / "a" / "result.json").read_text())
    assert result["command"].startswith("pathe pretrain ring --valid web ")


def test_a_run_stops_at_ctrl_c_and_the_same_command_goes_on(place, monkeypatch):
    command = ("pretrain", "ring", "web", *TINY, "--out", "b", "--json")
    real = Pretrainer._update

    def update(self, *inputs):
        if self.step == 2:
            os.kill(os.getpid(), signal.SIGINT)
        real(self, *inputs)

    monkeypatch.setattr(Pretrainer, "_update", update)
    stopped = pathe(*command, cwd=place)
    assert (stopped.returncode, stopped.stdout) == (130, "")
    assert "Stopped after step 3 and saved." in stopped.stderr
    assert "--resume --out b" in stopped.stderr
    monkeypatch.undo()
    done = pathe(*command, "--resume", cwd=place)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result == json.loads((place / "b" / "result.json").read_text())
    assert result["settings"]["steps"] == result["step"] == 4
    assert {"command", "commit", "device", "seconds", "peak_memory_bytes"} <= result.keys()
    # settings that aren't given again are the run's own
    done = pathe("pretrain", "ring", "web", "--resume", "--out", "b", cwd=place)
    assert done.returncode == 0, done.stderr


def test_a_run_may_start_from_the_model_that_comes_with_pathe(place):
    few = ("--steps", "1", "--set", "n_subgraphs=1", "--set", "valid_triples=2", "--device", "cpu")
    done = pathe(
        "pretrain", "ring", "--from", "pretrained", *few, "--out", "own", "--json", cwd=place
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["start"] == model_digest(SHIPPED)
    refused("pretrain", "ring", "--from", "nothing", *few, "--out", "other", cwd=place)


def test_a_run_with_a_time_limit_says_how_to_go_on(place):
    done = pathe("pretrain", "ring", *TINY, "--minutes", "0.00001", "--out", "c", cwd=place)
    assert done.returncode == 0, done.stderr
    assert "after step 1 of 4; continue with the same graphs and --resume --out c" in done.stderr
    assert "step 1 of 4" in done.stdout


def test_without_a_terminal_there_is_a_line_now_and_then(place, monkeypatch):
    monkeypatch.setattr(pretrain, "LINE_EVERY", 0)
    done = pathe("pretrain", "ring", *TINY, "--out", "e", cwd=place)
    assert "training, step 1/4, loss" in done.stderr
    assert "left" in done.stderr


def test_a_terminal_gets_a_progress_bar(place, monkeypatch):
    monkeypatch.setattr(type(output.err), "is_terminal", True)
    monkeypatch.setattr(output.err, "is_interactive", True)
    done = pathe("pretrain", "ring", *TINY, "--out", "d", cwd=place, TERM="xterm")
    assert done.returncode == 0, done.stderr
    for word in ("calibrating ━", "4/4", "steps/s", "s left"):  # as it ended
        assert word in done.stderr


def test_mistakes_are_clear_errors(place):
    (place / "full").mkdir()
    (place / "full" / "file").touch()
    for said, *given in (
        ("'dims' (--set). Closest: 'dim'", "ring", "--set", "dims=3"),
        ("dim must be at least 1 and at most 4,096; got 0", "ring", "--set", "dim=0"),
        ("dim takes a whole number; got 'wide'", "ring", "--set", "dim=wide"),
        ("--minutes must be above 0; got 0", "ring", "--minutes", "0"),
        ("full exists and is not empty", "ring", "--out", "full"),
        ("full: nothing to resume", "ring", "--out", "full", "--resume"),
        ("one: expected at least two training triples, got 1", "ring", "one.tsv"),
        ("ring: the same graph as ring", "ring", "--valid", "ring"),
        ("no such file", "nowhere"),
    ):
        assert said in refused("pretrain", *given, cwd=place)
    assert not (place / "runs").exists()
    assert pathe("pretrain", cwd=place).returncode == 2  # no graph
    nan = refused("pretrain", "ring", *TINY, "--set", "learning_rate=1e30", "--out", "n", cwd=place)
    assert "Go on from there with a lower rate" in nan
    assert "steps was 4, now 5" in refused(
        "pretrain", "ring", "--resume", "--out", "n", "--steps", "5", cwd=place
    )


def test_help_has_an_example():
    shown = pathe("pretrain", "--help", COLUMNS="120").stdout
    assert "pathe pretrain fb15k237 wn18rr codexmedium --minutes 10" in shown
    assert "pretrain" in pathe("--help").stdout
