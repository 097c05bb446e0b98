"""A run's folder: its files, who may use it, and what is stored in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pathe.core.config import Config, configure, current_names
from pathe.core.errors import ConfigError, ModelError
from pathe.core.files import check_new_folder, locked, remove
from pathe.core.yaml_files import read_settings_file, read_text
from pathe.training.callbacks import read_metric_lines
from pathe.training.checkpoints import UNREADABLE, read_checkpoint
from pathe.training.processes import SETTINGS as SETTINGS
from pathe.training.processes import is_leader

CHECKPOINTS, MODEL, RESULT, METRICS = "checkpoints", "model", "result.json", "metrics.jsonl"
REPORT, START = "report.png", "start"
BEST, LAST = "best.ckpt", "last.ckpt"  # in CHECKPOINTS
LEFTOVERS = (".model-*", ".*.tmp")  # what a killed process leaves in a run's folder


@contextmanager
def owned(folder: Path, resume: bool) -> Iterator[None]:
    """Keeps a run's folder for this process, and removes what a killed one left there.

    The folder of a new run is created, that of a resumed one has to exist.
    """
    if not is_leader():
        yield
        return
    if not resume:
        check_free(folder)
        folder.mkdir(parents=True, exist_ok=True)
    elif not folder.is_dir():
        raise ConfigError(f"{folder}: nothing to resume: no such folder.")
    with locked(folder):
        if not resume:
            check_free(folder)  # another process may have been faster
        remove_leftovers(folder)
        yield


def check_free(folder: Path) -> None:
    """Raises an error unless a new run can use the folder."""
    places = [place for place in (folder, folder / CHECKPOINTS) if place.is_dir()]
    found = {path for place in places for path in place.iterdir()}
    left = {*_leftovers(folder), folder / CHECKPOINTS}  # by a start that was killed
    if _lacks_start(folder):
        left.add(folder / SETTINGS)
    if found - left:
        raise ConfigError(
            f"{folder} exists and is not empty. Resume it with --resume, or choose another --out."
        )
    if not found:
        check_new_folder(folder)


def check_resumable(folder: Path, config: Config, fingerprint: str) -> None:
    """Raises an error if the folder has a run with other settings or data."""
    about = {"data_fingerprint": fingerprint, **config.as_dict()}
    about.pop("learning_rate")  # a lower one helps after a loss that isn't finite
    if (folder / SETTINGS).is_file() and (was := differences(stored_settings(folder), about)):
        raise ConfigError(f"{folder}: can't resume with other settings or data: {was}.")


def differences(stored: dict[str, Any], wanted: dict[str, Any]) -> str:
    """Describes settings that differ, except for hardware settings and max_epochs."""
    stored = Config().as_dict() | current_names(stored)  # settings added later had their default
    free = ("max_epochs", "minutes", "accelerator", "devices", "precision", "cuda_graphs")
    changed = [k for k, v in wanted.items() if stored.get(k) != v and k not in free]
    return ", ".join(f"{k} was {stored.get(k)!r}, now {wanted[k]!r}" for k in changed)


def resumed_config(folder: Path) -> Config:
    """Returns the settings that a run was started with."""
    stored = stored_settings(folder)
    stored.pop("data_fingerprint", None)
    return configure(settings=stored, source=str(folder / SETTINGS))


def stored_settings(folder: Path) -> dict[str, Any]:
    """Reads the settings of a run to resume, under their current names."""
    path = folder / SETTINGS
    if not path.exists():
        raise ConfigError(
            f"{folder}: nothing to resume, as it has no {SETTINGS}. Start it without --resume."
        )
    if _lacks_start(folder):
        raise ConfigError(
            f"{folder}: nothing to resume, as the model to start from wasn't saved. Start it "
            "without --resume."
        )
    return current_names(read_settings_file(path))


def stored_rate(folder: Path, config: Config) -> float:
    """Returns the learning rate that a run had so far."""
    return float(stored_settings(folder).get("learning_rate", config.learning_rate))


def ended_epochs(folder: Path, config: Config, last: Path | None) -> int | None:
    """Returns the epochs of a run that is finished, by early stopping or max_epochs, or None."""
    if last is None:
        return None
    longer = config.max_epochs > stored_settings(folder).get("max_epochs", config.max_epochs)
    try:
        state = read_checkpoint(last)
        waits = [v["wait_count"] for k, v in state["callbacks"].items() if "EarlyStopping" in k]
        epochs = int(state["epoch"]) + 1
    except UNREADABLE:
        return None  # training raises the error
    stopped = not longer and any(wait >= config.patience for wait in waits)
    return epochs if stopped or epochs >= config.max_epochs else None


def _lacks_start(folder: Path) -> bool:
    """Whether a run was killed before it had saved the model that it starts from."""
    if (folder / START).is_dir() or (folder / CHECKPOINTS / LAST).exists():
        return False
    with suppress(ConfigError):
        found = read_settings_file(folder / SETTINGS)
        return "data_fingerprint" in found and found.get("init") == "model"
    return False


def remove_leftovers(folder: Path) -> None:
    """Removes temporary files of a killed process."""
    for path in _leftovers(folder):
        remove(path)


def _leftovers(folder: Path) -> list[Path]:
    """Returns the temporary files of a killed process."""
    places = [folder, folder / CHECKPOINTS]
    return [path for place in places for name in LEFTOVERS for path in place.glob(name)]


def read_result(folder: Path) -> dict[str, Any]:
    """Reads the result of a finished run."""
    path = folder / RESULT
    try:
        result = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: not valid JSON ({error}): truncated or modified.") from None
    if not isinstance(result, dict):
        raise ModelError(f"{path}: expected the result of a run: truncated or modified.")
    return result


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Reads the metrics of a run, one record per epoch or validation."""
    return read_metric_lines(folder / METRICS, "step")
