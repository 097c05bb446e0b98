"""Lightning callbacks and settings of a run: stopping, progress, checkpoints, metrics."""

from __future__ import annotations

import json
import logging
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
from lightning.pytorch.callbacks import ModelCheckpoint, RichProgressBar

from pathe.core.errors import Interrupted, ModelError
from pathe.core.files import replacing
from pathe.training.checkpoints import read_checkpoint, write_checkpoint
from pathe.training.costs import minutes_words

EVERY = 60  # seconds between two lines within an epoch


SIGNALS = (signal.SIGINT, signal.SIGTERM)  # Ctrl-C, and what Slurm, Kubernetes or kill send
Handler = Callable[[int, Any], Any]


@contextmanager
def handling(handler: Handler) -> Iterator[None]:
    """Handles Ctrl-C and SIGTERM within the context."""
    if threading.current_thread() is not threading.main_thread():  # only that one gets signals
        yield
        return
    before = {signum: signal.signal(signum, handler) for signum in SIGNALS}
    try:
        yield
    finally:
        for signum, old in before.items():
            signal.signal(signum, old)


@contextmanager
def stopping(text: str) -> Iterator[None]:
    """Ends the run at once on Ctrl-C or SIGTERM within the context; `text` says how to go on."""

    def stop(signum: int, frame: Any) -> None:
        raise Interrupted(text, signum)

    with handling(stop):
        yield


class StopKey(pl.Callback):
    """Saves a checkpoint and stops after the current step on Ctrl-C or SIGTERM.

    The second one stops at once: then the run goes on from the last checkpoint.
    """

    def __init__(self, checkpoint: Path, accumulate: int, how: str) -> None:
        self.checkpoint, self.accumulate, self.how = checkpoint, accumulate, how
        self.signum = 0  # of the signal that came

    @property
    def pressed(self) -> bool:
        return self.signum != 0

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Handles both signals within the context."""
        with handling(self._press):
            yield

    def _press(self, signum: int, frame: Any) -> None:
        if self.pressed:
            saved = "The last checkpoint is intact. " if self.checkpoint.exists() else ""
            raise Interrupted(f"Stopped at once. {saved}Resume with: {self.how}", signum)
        self.signum = signum

    def on_train_start(self, trainer: pl.Trainer, learner: pl.LightningModule) -> None:
        """Takes SIGTERM back from Lightning, which would end training without an error."""
        if signal.getsignal(signal.SIGINT) == self._press:
            signal.signal(signal.SIGTERM, self._press)

    def check(self) -> None:
        """Stops if that was asked for when the last step had been made."""
        if self.pressed:
            self._stop()

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
            self._stop()  # the last epoch's end has saved a checkpoint

    def _agreed(self, trainer: pl.Trainer) -> bool:
        """Whether any process was asked to stop: all must stop in the same step."""
        if trainer.world_size == 1:
            return self.pressed
        stops: bool = trainer.strategy.reduce_boolean_decision(self.pressed, all=False)
        return stops

    def _stop(self) -> None:
        done = "Stopped and saved." if self.checkpoint.exists() else "Stopped."
        raise Interrupted(f"{done} Resume with: {self.how}", self.signum or signal.SIGINT)


class Bar(RichProgressBar):
    """A progress bar that reads the loss only every few steps, as that synchronises with a GPU."""

    def __init__(self, every: int, left: TimeLeft) -> None:
        super().__init__(every, leave=False, console_kwargs={"stderr": True})
        self.left = left

    def _update_metrics(self, trainer: pl.Trainer, *given: Any, **more: Any) -> None:
        if trainer.global_step % self.refresh_rate == 0:
            super()._update_metrics(trainer, *given, **more)

    def get_metrics(self, *given: Any) -> dict[str, Any]:
        return {key: value for key, value in super().get_metrics(*given).items() if key != "v_num"}

    def _get_train_description(self, current_epoch: int) -> str:
        return f"epoch {current_epoch + 1}/{self.trainer.max_epochs}{self.left.words()}"

    def on_train_batch_end(self, trainer: pl.Trainer, *given: Any) -> None:
        super().on_train_batch_end(trainer, *given)
        if trainer.global_step % self.refresh_rate or self.progress is None:
            return
        if (task := self.train_progress_bar_id) is not None:
            words = self._get_train_description(trainer.current_epoch)
            self.progress.update(task, description=words)


class TimeLeft(pl.Callback):
    """Estimates how much longer training takes at most, from the steps since it began."""

    def __init__(self, minutes: float = 0) -> None:
        self.minutes, self.begin, self.first, self.now = minutes, 0.0, 0.0, 0.0
        self.trainer: pl.Trainer | None = None

    def on_train_start(self, trainer: pl.Trainer, learner: Any) -> None:
        self.trainer, self.begin = trainer, time.perf_counter()
        self.first = self.now = float(trainer.current_epoch)

    def on_train_batch_end(
        self, trainer: pl.Trainer, learner: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        n = max(int(trainer.num_training_batches), 1)
        self.now = trainer.current_epoch + min((batch_idx + 1) / n, 1.0)

    def on_train_epoch_end(self, trainer: pl.Trainer, learner: Any) -> None:
        self.now = trainer.current_epoch + 1.0

    def seconds(self) -> float | None:
        """Returns the seconds left at most; None before the first step."""
        if self.trainer is None or self.now <= self.first:
            return None
        passed: float = time.perf_counter() - self.begin
        left = passed / (self.now - self.first) * ((self.trainer.max_epochs or 0) - self.now)
        if self.minutes:
            learner: Any = self.trainer.lightning_module
            left = min(left, 60 * self.minutes - learner.seconds)
        return max(left, 0.0)

    def words(self) -> str:
        """Returns text such as `, at most 3 min left`; nothing if that isn't known."""
        seconds = self.seconds()
        if seconds is None:
            return ""
        minutes = seconds / 60
        shown = f"{minutes / 60:.1f} h" if minutes > 120 else f"{minutes:.0f} min"
        return f", at most {shown if minutes >= 1 else 'a minute'} left"


class TimeLimit(pl.Callback):
    """Stops training, also within an epoch, so that it ends with a validation in time."""

    def __init__(self, minutes: float, say: Callable[[str], None]) -> None:
        self.limit, self.say, self.reached = 60 * minutes, say, False
        self.before = 0.0  # the limit that a resumed run has reached
        self.validation, self.begin = 0.0, 0.0  # seconds of the last one, and when it began

    def on_train_start(self, trainer: pl.Trainer, learner: Any) -> None:
        if self.before >= self.limit:
            self._stop(trainer)

    def on_train_batch_end(
        self, trainer: pl.Trainer, learner: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        over = learner.seconds + self.validation > self.limit
        if trainer.world_size > 1:  # all processes must stop in the same step
            over = trainer.strategy.reduce_boolean_decision(over, all=False)
        if over:
            self._stop(trainer)
            learner.batches.finish(learner.batches.epoch, len(learner.batches) - 1)

    def on_validation_start(self, trainer: pl.Trainer, learner: Any) -> None:
        self.begin = time.perf_counter()

    def on_validation_end(self, trainer: pl.Trainer, learner: Any) -> None:
        self.validation = time.perf_counter() - self.begin

    def on_save_checkpoint(
        self, trainer: pl.Trainer, learner: Any, checkpoint: dict[str, Any]
    ) -> None:
        """Marks the epoch as complete, so that a run with a later limit goes on with the next."""
        if self.reached:
            batches = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
            counts = dict.fromkeys(batches["current"], int(trainer.num_training_batches))
            batches |= {"current": counts, "is_last_batch": True}

    def state_dict(self) -> dict[str, Any]:
        return {"reached": self.limit if self.reached else 0.0}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.before = state_dict["reached"]

    def on_train_end(self, trainer: pl.Trainer, learner: Any) -> None:
        if self.reached and trainer.is_global_zero:
            self.say(f"stopped training at the time limit of {minutes_words(self.limit / 60)}")

    def _stop(self, trainer: pl.Trainer) -> None:
        self.reached = trainer.should_stop = True


class EpochLines(pl.Callback):
    """Prints a line per epoch, and one per minute within it, if no progress bar can be shown."""

    def __init__(self, say: Callable[[str], None], validation: str, left: TimeLeft) -> None:
        self.say, self.validation, self.left, self.said = say, validation, left, 0.0

    def on_train_start(self, trainer: pl.Trainer, learner: Any) -> None:
        self.said = time.perf_counter()

    def on_train_batch_end(
        self, trainer: pl.Trainer, learner: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if time.perf_counter() > self.said + EVERY and not trainer.is_last_batch:
            step = f"step {batch_idx + 1:,}/{int(trainer.num_training_batches):,}"
            self._line(trainer, f", {step}: loss {learner.epoch_loss:.3f}")

    def on_train_epoch_end(self, trainer: pl.Trainer, learner: Any) -> None:
        line = f": loss {learner.epoch_loss:.3f}"
        score = trainer.callback_metrics.get("valid_score")
        if score is not None and _validated(trainer):
            line += f", {self.validation} {float(score):.3f}"
        self._line(trainer, line)

    def _line(self, trainer: pl.Trainer, text: str) -> None:
        self.said = time.perf_counter()
        if trainer.is_global_zero:
            epoch = f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}"
            is_over = trainer.should_stop or self.left.seconds() == 0
            self.say(f"{epoch}{text}" + ("" if is_over else self.left.words()))


class Keep(ModelCheckpoint):
    """A ModelCheckpoint that still finds its files after the run's folder was moved."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        def moved(path: str) -> str:
            return str(Path(str(self.dirpath)) / Path(path).name) if path else path

        paths = ("best_model_path", "kth_best_model_path", "last_model_path")
        state = state_dict | {"dirpath": self.dirpath} | {k: moved(state_dict[k]) for k in paths}
        state["best_k_models"] = {moved(k): v for k, v in state_dict["best_k_models"].items()}
        super().load_state_dict(state)


class WholeFiles(TorchCheckpointIO):
    """Writes checkpoints atomically and with a digest, which is checked when they are read."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        write_checkpoint(Path(path), checkpoint)

    def load_checkpoint(
        self, path: Any, map_location: Any = None, *args: Any, **more: Any
    ) -> dict[str, Any]:
        return read_checkpoint(Path(path), map_location or "cpu")


class MetricLines(pl.Callback):
    """Writes a JSON line per epoch; a resumed run first removes lines of epochs to be repeated."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_train_start(self, trainer: pl.Trainer, learner: pl.LightningModule) -> None:
        if not self.path.exists() or not trainer.is_global_zero:
            return
        trim_metric_lines(self.path, "epoch", trainer.current_epoch - 1)

    def on_train_epoch_end(self, trainer: pl.Trainer, learner: Any) -> None:
        if not trainer.is_global_zero:
            return
        found = trainer.callback_metrics.items()
        values = {k: float(v) for k, v in found if not k.startswith("loss")}
        if not _validated(trainer):
            values = {k: v for k, v in values.items() if not k.startswith("valid_")}
        values["loss"] = learner.epoch_loss
        line = {"epoch": trainer.current_epoch, "step": trainer.global_step, **values}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def read_metric_lines(path: Path, key: str, *, numbers: bool = False) -> list[dict[str, Any]]:
    """Reads a file of JSON objects, each with an integer under `key`; none if there is no file.

    With `numbers`, all of their values must be numbers.

    The last line may be half of one: a process was killed while it wrote it.
    """
    try:
        raw = path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise ModelError(f"{path}: can't be read ({error.strerror or error}).") from None
    found = []
    for n, line in enumerate(raw.split(b"\n")[:-1], 1):
        try:
            record = dict(json.loads(line))
            if type(record[key]) is not int:
                raise ValueError
            if numbers and not all(type(value) in (int, float) for value in record.values()):
                raise ValueError
        except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
            raise ModelError(
                f"{path}: line {n} isn't a record of metrics: modified. Remove that line."
            ) from None
        found.append(record)
    return found


def trim_metric_lines(path: Path, key: str, last: int) -> None:
    """Removes the records that come after `last`, as they will be written again."""
    if path.exists():
        kept = [record for record in read_metric_lines(path, key) if record[key] <= last]
        with replacing(path) as aside:
            aside.write_text("".join(json.dumps(one) + "\n" for one in kept), encoding="utf-8")


def _validated(trainer: pl.Trainer) -> bool:
    """Whether this epoch was validated: the metrics of the last one stay where it wasn't."""
    return (trainer.current_epoch + 1) % (trainer.check_val_every_n_epoch or 1) == 0


@contextmanager
def tf32() -> Iterator[None]:
    """Allows TF32 matrix products on a GPU; for training, while evaluation uses full float32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def quiet() -> Iterator[None]:
    """Hides Lightning's notices about devices, loggers and data-loader workers."""
    logs = [logging.getLogger(n) for n in ("lightning.pytorch", "lightning.fabric")]
    levels = [log.level for log in logs]
    for log in logs:
        log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="lightning")
            warnings.filterwarnings("ignore", message="The AccumulateGrad node's stream")
            yield
    finally:
        for log, level in zip(logs, levels, strict=True):
            log.setLevel(level)
