"""Runs that are asked to stop, killed while they start, or started twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from support.commands import COMMAND
from support.folders import tsv
from support.graphs import toy
from support.models import any_graph_artifact
from support.runs import SMALL, train, weights

from pathe.core.config import configure
from pathe.core.errors import ConfigError, Interrupted, PatheError
from pathe.core.files import locked
from pathe.training import run as runs
from pathe.training.run_folder import read_metrics
from pathe.training.vector_learner import PathELearner

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


def sends(monkeypatch, at: int, *signals: int) -> None:
    """Sends signals to this process in a step."""
    real, count = PathELearner.training_step, 0

    def step(self, batch, batch_idx):
        nonlocal count
        count += 1
        for signum in signals if count == at else ():
            os.kill(os.getpid(), signum)
        return real(self, batch, batch_idx)

    monkeypatch.setattr(PathELearner, "training_step", step)


@pytest.mark.parametrize("signum", CODES)
def test_a_stopped_run_saves_and_resumes(tmp_path, monkeypatch, signum):
    straight = train(toy(), tmp_path / "straight", max_epochs=2)
    sends(monkeypatch, 6, signum)
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with pytest.raises(Interrupted, match=r"Stopped and saved.*--resume --out .*run") as caught:
        train(toy(), tmp_path / "run", max_epochs=2)
    assert caught.value.code == CODES[signum]
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    monkeypatch.undo()
    resumed = train(toy(), tmp_path / "run", resume=True, max_epochs=2)
    assert resumed["mrr"] == straight["mrr"]
    ours, theirs = weights(tmp_path / "run"), weights(tmp_path / "straight")
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    rows = [read_metrics(tmp_path / name) for name in ("run", "straight")]
    one, other = ([row["loss"] for row in found if "loss" in row] for found in rows)
    assert len(one) == 2
    assert one == pytest.approx(other)  # of whole epochs, also of the one that was interrupted


@pytest.mark.parametrize("signals", [(signal.SIGINT, signal.SIGINT), (15, 15), (15, 2)])
def test_a_second_signal_stops_at_once_and_says_so(tmp_path, monkeypatch, signals):
    sends(monkeypatch, 6, *signals)
    with pytest.raises(Interrupted, match=r"Stopped at once. .*intact.*--resume --out") as caught:
        train(toy(), tmp_path / "run", max_epochs=2)
    assert caught.value.code == CODES[signals[1]]


def test_a_signal_after_training_says_how_to_go_on(tmp_path, monkeypatch):
    real = runs.calibrate

    def stopped(*given, **more):
        os.kill(os.getpid(), signal.SIGTERM)
        return real(*given, **more)

    monkeypatch.setattr(runs, "calibrate", stopped)
    with pytest.raises(Interrupted, match="Resume with") as caught:
        train(toy(), tmp_path / "run", max_epochs=1)
    assert caught.value.code == 143
    monkeypatch.undo()
    assert "mrr" in train(toy(), tmp_path / "run", resume=True, max_epochs=1)


def test_a_run_killed_before_its_settings_were_written_can_start_again(tmp_path):
    folder = tmp_path / "run"
    (folder / "checkpoints").mkdir(parents=True)
    (folder / ".config.yaml.0a1b-1-2c.tmp").write_text("task: li")
    with pytest.raises(ConfigError, match=r"nothing to resume.*without --resume"):
        train(toy(), folder, resume=True, max_epochs=1)
    assert "mrr" in train(toy(), folder, max_epochs=1)
    assert not list(folder.glob(".*.tmp"))


def test_a_run_killed_before_its_model_to_start_from_was_saved_can_start_again(
    tmp_path, monkeypatch
):
    model = any_graph_artifact()
    given = {"init": "model", "relation_vectors": "graph", "hold_out_batch": True, "max_epochs": 1}
    given |= {"bridge": "paths", "bridge_dim": 8, "bridge_hops": 3, "relation_layers": 2}
    config = configure(settings=SMALL | given)

    def start(**more):
        options = runs.Options(progress_bar=False, **more)
        return runs.train(toy(), config, tmp_path / "run", options, model)

    def killed(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr(runs, "save_model", killed)
    with pytest.raises((KeyboardInterrupt, Interrupted)):
        start()
    monkeypatch.undo()
    assert (tmp_path / "run" / "config.yaml").exists()
    with pytest.raises(ConfigError, match=r"nothing to resume.*without --resume"):
        start(resume=True)
    assert "mrr" in start()
    with pytest.raises(ConfigError, match="is not empty"):
        start()


def test_a_folder_with_other_files_is_still_refused(tmp_path):
    for name in ("notes.txt", "checkpoints/last.ckpt"):
        folder = tmp_path / name.split(".")[0]
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("mine")
        with pytest.raises(ConfigError, match="is not empty"):
            train(toy(), folder, max_epochs=1)
        assert (folder / name).read_text() == "mine"


def test_two_processes_do_not_share_a_run(tmp_path):
    train(toy(), tmp_path / "run", max_epochs=1)
    with locked(tmp_path / "run"), pytest.raises(PatheError, match="another process"):
        train(toy(), tmp_path / "run", resume=True, max_epochs=2)
    assert train(toy(), tmp_path / "run", resume=True, max_epochs=2)["epochs"] == 2


def command(folder, *more: str) -> list[str]:
    settings = SMALL | {"max_epochs": 100_000, "patience": 100_000, "init": "none"}
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    return [*COMMAND, "train", str(folder / "train.tsv"), "--split", "0.8,0.1,0.1", *words,
            "--out", str(folder / "run"), *more]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("signum", CODES)
def test_a_stopped_command_exits_with_the_code_of_the_signal(tmp_path, signum):
    rows = [(f"e{i}", f"r{i % 3}", f"e{(7 * i + i % 5) % 40}") for i in range(200)]
    (tmp_path / "train.tsv").write_text(tsv(rows))
    process = subprocess.Popen(
        command(tmp_path), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    metrics, limit = tmp_path / "run" / "metrics.jsonl", time.monotonic() + 120
    while not metrics.exists() and process.poll() is None and time.monotonic() < limit:
        time.sleep(0.05)
    process.send_signal(signum)
    out, err = process.communicate(timeout=60)
    assert process.returncode == CODES[signum], err
    assert out == ""
    assert "Stopped and saved. Resume with: pathe train DATA --resume --out" in err
    assert "Traceback" not in err
    assert (tmp_path / "run" / "checkpoints" / "last.ckpt").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.02, 0.06, 0.1, 0.15, 0.2, 0.4, 0.8])
def test_ctrl_c_while_the_command_loads_gives_no_traceback(delay):
    """The interpreter itself takes some hundredths of a second, which is not ours."""
    code = "import sys, signal, typing; print('on', flush=True); sys.argv[1:] = ['--help']; "
    code += "from pathe.__main__ import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "on\n"
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode in (0, 130), err
    assert "Traceback" not in err or "pathe/cli" not in err


@pytest.mark.slow
def test_ctrl_c_while_python_cleans_up_changes_nothing():
    """The command is done: its exit code stays, and nothing is said."""
    code = "import atexit, os, signal, sys, typing; sys.argv[1:] = ['--help']; "
    code += "atexit.register(os.kill, os.getpid(), signal.SIGINT); "
    code += "from pathe.__main__ import main; main()"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
