"""What a run adds to Lightning: stopping, showing, keeping; and quiet."""

from __future__ import annotations

import json
import logging
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
from lightning.pytorch.callbacks import ModelCheckpoint, RichProgressBar

from pathe.errors import Interrupted
from pathe.files import replacing


class StopKey(pl.Callback):
    """Ctrl-C saves at the end of the step and stops; a second Ctrl-C stops at once."""

    def __init__(self, checkpoint: Path, accumulate: int) -> None:
        self.checkpoint, self.accumulate, self.pressed = checkpoint, accumulate, False

    @contextmanager
    def listening(self) -> Iterator[None]:
        def press(signum: int, frame: Any) -> None:
            self.pressed = True
            signal.signal(signum, before)

        try:
            before = signal.signal(signal.SIGINT, press)
        except ValueError:  # not the main thread: its owner handles signals
            yield
            return
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        learner: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        stepped = (batch_idx + 1) % self.accumulate == 0
        if stepped and not trainer.is_last_batch and self._agreed(trainer):
            trainer.save_checkpoint(self.checkpoint)
            self._stop()

    def on_train_epoch_start(self, trainer: pl.Trainer, learner: pl.LightningModule) -> None:
        if self.checkpoint.exists() and self._agreed(trainer):
            self._stop()  # the end of the last epoch has saved

    def _agreed(self, trainer: pl.Trainer) -> bool:
        """Whether any process was asked to stop: all must do so in the same step."""
        if trainer.world_size == 1:
            return self.pressed
        return trainer.strategy.reduce_boolean_decision(self.pressed, all=False)

    def _stop(self) -> None:
        raise Interrupted(
            f"Stopped and saved. Go on with --resume --out {self.checkpoint.parents[1]}"
        )


class Bar(RichProgressBar):
    """A progress bar that looks at the loss every few steps only: a GPU has to be waited for."""

    def __init__(self, every: int) -> None:
        super().__init__(every, leave=False, console_kwargs={"stderr": True})

    def _update_metrics(self, trainer: pl.Trainer, *given: Any, **more: Any) -> None:
        if trainer.global_step % self.refresh_rate == 0:
            super()._update_metrics(trainer, *given, **more)


class EpochLines(pl.Callback):
    """A line for each epoch, where no terminal shows a bar."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say

    def on_train_epoch_end(self, trainer: pl.Trainer, learner: pl.LightningModule) -> None:
        found = {key: float(value) for key, value in trainer.callback_metrics.items()}
        said = f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}"
        if "loss_epoch" in found:
            said += f": loss {found['loss_epoch']:.3f}"
        if "valid_mrr" in found:
            said += f", validation MRR {found['valid_mrr']:.3f}"
        if trainer.is_global_zero:
            self.say(said)


class Keep(ModelCheckpoint):
    """A ModelCheckpoint that knows its files again when the run's folder was moved."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        def here(path: str) -> str:
            return str(Path(str(self.dirpath)) / Path(path).name) if path else path

        paths = ("best_model_path", "kth_best_model_path", "last_model_path")
        state = state_dict | {"dirpath": self.dirpath} | {k: here(state_dict[k]) for k in paths}
        state["best_k_models"] = {here(k): v for k, v in state_dict["best_k_models"].items()}
        super().load_state_dict(state)


class WholeFiles(TorchCheckpointIO):
    """Writes a checkpoint beside its place and moves it there whole, on the same file system."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with replacing(Path(path)) as aside:
            torch.save(checkpoint, aside)


class MetricLines(pl.Callback):
    """A JSON line for each epoch; a resumed run drops the lines that it will write again."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_train_start(self, trainer: pl.Trainer, learner: pl.LightningModule) -> None:
        if not self.path.exists() or not trainer.is_global_zero:
            return
        lines = self.path.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = [
            x for x in lines if x.endswith("\n") and json.loads(x)["epoch"] < trainer.current_epoch
        ]
        self.path.write_text("".join(kept), encoding="utf-8")

    def on_train_epoch_end(self, trainer: pl.Trainer, learner: pl.LightningModule) -> None:
        if not trainer.is_global_zero:
            return
        found = trainer.callback_metrics.items()
        values = {k: float(v) for k, v in found if k != "loss_step"}
        if (trainer.current_epoch + 1) % (trainer.check_val_every_n_epoch or 1):
            values = {k: v for k, v in values.items() if not k.startswith("valid_")}
        values["loss"] = values.pop("loss_epoch", values.get("loss", float("nan")))
        line = {"epoch": trainer.current_epoch, "step": trainer.global_step, **values}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


@contextmanager
def tf32() -> Iterator[None]:
    """Lets a GPU train with TF32 products; evaluation is exact, and so is what comes after."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def quiet() -> Iterator[None]:
    """Without Lightning's notices about devices, loggers and data-loader workers."""
    loud = [logging.getLogger(n) for n in ("lightning.pytorch", "lightning.fabric")]
    levels = [log.level for log in loud]
    for log in loud:
        log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="lightning")
            warnings.filterwarnings("ignore", message="The AccumulateGrad node's stream")
            yield
    finally:
        for log, level in zip(loud, levels, strict=True):
            log.setLevel(level)
