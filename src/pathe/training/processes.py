"""The processes that train one run together: one leads, the others get its folder."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pathe.core.config import Config
from pathe.core.errors import ConfigError, TrainingError

SETTINGS = "config.yaml"  # of a run: its folder has this file as soon as it is open
LEADER_FOLDER = "PATHE_RUN"  # the environment variable that names it to the other processes
OPEN_SECONDS = 1800  # that other processes wait for the first one to open a run


def is_leader() -> bool:
    """Whether this is the first process of a run, or the only one."""
    return _number() == 0


def leader_folder() -> Path | None:
    """Returns the folder of the run that the first process has opened; None if there is none."""
    folder = os.environ.get(LEADER_FOLDER)
    return Path(folder) if folder else None


@contextmanager
def leading(folder: Path) -> Iterator[None]:
    """Passes the run's folder to the processes that Lightning starts."""
    os.environ[LEADER_FOLDER] = str(folder)
    try:
        yield
    finally:
        del os.environ[LEADER_FOLDER]


def follow(folder: Path | None) -> None:
    """Waits for the first process of torchrun to open the run, in all other processes."""
    if not _by_torchrun() or leader_folder() is not None:
        return
    if folder is None:
        raise ConfigError("torchrun needs the run's folder: --out RUN.")
    if is_leader():
        return
    until = time.monotonic() + OPEN_SECONDS
    while not (folder / SETTINGS).is_file():
        if time.monotonic() > until:
            raise TrainingError(f"{folder}: the first process has not opened this run.")
        time.sleep(0.1)
    os.environ[LEADER_FOLDER] = str(folder)


def n_nodes(config: Config) -> int:
    """Returns the machines that torchrun started processes on, 1 without it."""
    if not _by_torchrun():
        return 1
    world, local = (int(os.environ[key]) for key in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    if config.devices != local:
        raise ConfigError(
            f"torchrun started {local} processes on this machine, but devices={config.devices}. "
            f"Add --set devices={local}."
        )
    return world // local


def free_folder(wanted: Path) -> Path:
    """Returns the folder, numbered if it exists; in other processes, that of the first one."""
    if (folder := leader_folder()) is not None:
        return folder
    path, n = wanted, 2
    while path.exists():
        path, n = wanted.with_name(f"{wanted.name}-{n}"), n + 1
    return path


def _by_torchrun() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ


def _number() -> int:
    """Returns the number of this process among those that train together."""
    return int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")))
