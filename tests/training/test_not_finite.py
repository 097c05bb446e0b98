"""Losses and weights that are NaN or infinite: training stops, and goes on with a lower rate."""

from __future__ import annotations

import math

import pytest
from support.commands import refused
from support.graphs import toy
from support.models import ANY
from support.runs import train, weights

from pathe.core.config import configure
from pathe.core.errors import TrainingError
from pathe.training.checkpoints import read_checkpoint
from pathe.training.graph_learner import GraphLearner
from pathe.training.learner import Learner
from pathe.training.selection import train_best
from pathe.training.vector_learner import PathELearner

KINDS = {
    "vectors": (PathELearner, {}),
    "bridges": (PathELearner, {"bridge": "paths", "bridge_dim": 4, "bridge_hops": 2}),
    "any graph": (GraphLearner, ANY),
}
kinds = pytest.mark.parametrize("kind", KINDS)


def spoil_loss(monkeypatch, learner: type[Learner], at: int, value: float) -> None:
    """Makes the loss of a step, counted from 0, NaN or infinite."""
    real = learner.loss

    def loss(self, *given):
        found = real(self, *given)
        return found * value if self.trainer.global_step == at else found

    monkeypatch.setattr(learner, "loss", loss)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@kinds
def test_a_loss_that_is_not_finite_names_step_rate_and_checkpoint(
    tmp_path, monkeypatch, kind, value
):
    learner, settings = KINDS[kind]
    spoil_loss(monkeypatch, learner, 6, value)  # in the second epoch
    with pytest.raises(TrainingError) as caught:
        train(toy(), tmp_path / "run", **settings, learning_rate=0.01)
    said, last = str(caught.value), tmp_path / "run" / "checkpoints" / "last.ckpt"
    assert "NaN or infinite in step 6 (epoch 2), with a learning rate of 0.01" in said
    state = read_checkpoint(last)
    assert f"{last}, of step {state['global_step']}" in said
    assert f"--resume --out {tmp_path / 'run'} --set learning_rate=0.0025" in said
    assert all(weight.isfinite().all() for weight in state["state_dict"].values())
    monkeypatch.undo()
    found = train(toy(), tmp_path / "run", resume=True, **settings, learning_rate=0.0025)
    assert found["config"]["learning_rate"] == 0.0025
    assert found["epochs"] == 4
    assert all(weight.isfinite().all() for weight in weights(tmp_path / "run").values())


@kinds
def test_weights_that_are_not_finite_reach_no_checkpoint(tmp_path, monkeypatch, kind):
    """The step that spoils them has a finite loss itself."""
    settings = KINDS[kind][1]
    real = Learner.on_save_checkpoint

    def save(self, checkpoint):
        if self.trainer.current_epoch == 1:
            next(self.model.parameters()).data.fill_(math.nan)
        real(self, checkpoint)

    monkeypatch.setattr(Learner, "on_save_checkpoint", save)
    with pytest.raises(
        TrainingError, match=r"Weights became NaN or infinite in step \d+ \(epoch 2"
    ):
        train(toy(), tmp_path / "run", **settings)
    for name in ("last.ckpt", "best.ckpt"):
        state = read_checkpoint(tmp_path / "run" / "checkpoints" / name)["state_dict"]
        assert all(weight.isfinite().all() for weight in state.values())


def test_without_a_checkpoint_the_run_has_to_start_again(tmp_path, monkeypatch):
    spoil_loss(monkeypatch, PathELearner, 0, math.nan)
    with pytest.raises(TrainingError, match=r"no checkpoint yet: start again with --set lear"):
        train(toy(), tmp_path / "run")


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_a_resumed_run_takes_the_rate_that_it_is_given(tmp_path, monkeypatch, schedule):
    settings = {"schedule": schedule, "max_epochs": 3}
    spoil_loss(monkeypatch, PathELearner, 9, math.nan)
    with pytest.raises(TrainingError):
        train(toy(), tmp_path / "run", **settings, learning_rate=0.01)
    monkeypatch.undo()
    seen, real = {}, PathELearner.training_step

    def step(self, batch, batch_idx):
        seen[self.trainer.global_step] = self.trainer.optimizers[0].param_groups[0]["lr"]
        return real(self, batch, batch_idx)

    monkeypatch.setattr(PathELearner, "training_step", step)
    train(toy(), tmp_path / "run", resume=True, **settings, learning_rate=0.002)
    own = dict(seen)
    seen.clear()
    train(toy(), tmp_path / "straight", **settings, learning_rate=0.002)
    assert min(own) > 0
    assert own == pytest.approx({at: seen[at] for at in own})


def test_one_of_several_models_names_the_run_to_resume(tmp_path, monkeypatch):
    spoil_loss(monkeypatch, GraphLearner, 6, math.nan)
    config = configure(settings=ANY | {"batch_size": 40, "max_epochs": 3, "accelerator": "cpu"})
    with pytest.raises(TrainingError, match=rf"--resume --out {tmp_path / 'run'} --set"):
        train_best(toy(), {"fine-tuned": config}, tmp_path / "run")


def test_the_command_exits_with_an_error_and_no_traceback(tmp_path):
    rows = [f"e{i % 30}\tr{i % 3}\te{(7 * i + 1) % 30}\n" for i in range(200)]
    (tmp_path / "g.tsv").write_text("".join(rows))
    said = refused(
        "train", "g.tsv", "--set", "init=none", "--set", "bridge=none", "--set", "dim=8",
        "--set", "learning_rate=1e30", "--set", "gradient_clip=0", "--set", "batch_size=10",
        "--set", "max_epochs=3", "--out", "run", cwd=tmp_path,
    )  # fmt: skip
    assert "NaN or infinite in step" in said
    assert "--set learning_rate=2.5e+29" in said
