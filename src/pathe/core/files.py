"""Atomic, durable writes of files and folders, checks of where they would go, and locks."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import platform
import secrets
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pathe.core.errors import PatheError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # no room, or a limit is reached
_swept: set[tuple[Path, int]] = set()  # folders without the leftovers of dead processes


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a temporary path; renames it to `path` on success, deletes it on failure.

    What is written reaches the disk before it gets its name, so that a power failure leaves the old
    file or the new one. Temporary files of processes that have died are removed.
    """
    _sweep(path.parent)
    aside = _aside(path)
    try:
        yield aside
        sync(aside)
        os.replace(aside, path)  # noqa: PTH105
        _sync_one(path.parent)
    except OSError as error:
        raise PatheError(f"{path}: can't be written ({reason(error)})") from error
    finally:
        if aside.is_dir():
            shutil.rmtree(aside, ignore_errors=True)
        else:
            aside.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Makes a file, or a folder with all that is in it, survive a power failure."""
    if path.is_dir():
        for inner in path.iterdir():
            sync(inner)
    _sync_one(path)


def sync_names(folder: Path) -> None:
    """Makes the names of the files in a folder survive a power failure."""
    _sync_one(folder)


def _sync_one(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system that can't do it
            raise
    finally:
        os.close(opened)


def reason(error: OSError) -> str:
    """Returns in words why a file operation has failed."""
    full = "the disk is full: " if error.errno in FULL else ""
    return f"{full}{error.strerror or error}"


def _aside(path: Path) -> Path:
    """Returns a temporary path beside this one."""
    return path.with_name(f".{path.name}.{_owner()}-{secrets.token_hex(4)}.tmp")


def _owner() -> str:
    """Returns what names this process in temporary files: its machine and its number."""
    return f"{zlib.crc32(platform.node().encode()):08x}-{os.getpid()}"


def _sweep(folder: Path) -> None:
    """Removes temporary files of dead processes of this machine, once per folder."""
    if (folder, os.getpid()) in _swept:
        return
    _swept.add((folder, os.getpid()))
    machine = _owner().split("-", 1)[0]
    for path in folder.glob(f".*.{machine}-*-*.tmp"):
        number = path.name.rsplit(".", 2)[-2].split("-")[1]
        if number.isdigit() and not _lives(int(number)):
            remove(path)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True  # somebody else's
    return True


def remove(path: Path) -> None:
    """Removes a file or a folder with all that is in it, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keeps other processes from using a folder; the lock ends with this process, however it ends.

    Does nothing where the file system has no such locks.
    """
    opened = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(opened)
        raise PatheError(
            f"{folder}: another process is using this folder. Wait for it, or choose another one."
        ) from None
    except OSError:
        pass
    try:
        yield
    finally:
        os.close(opened)


def discard(folder: Path) -> None:
    """Removes a folder at once: nobody sees a part of it, even if this process is killed."""
    _sweep(folder.parent)
    aside = _aside(folder)
    os.replace(folder, aside)  # noqa: PTH105
    remove(aside)


def read_json(path: Path) -> Any:
    """Returns the value of a JSON file; raises ValueError for what isn't one."""
    try:
        return json.loads(path.read_bytes())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def write_json(path: Path, value: Any) -> None:
    """Writes a value as JSON, atomically."""
    with replacing(path) as aside:
        aside.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def check_place(path: Path) -> None:
    """Raises an error if a file can't be written there; call it before a long computation."""
    if path.is_dir():
        raise PatheError(f"{path}: expected the name of a file, this is a folder")
    if not path.parent.is_dir():
        raise PatheError(f"{path}: can't be written (no folder {path.parent})")
    if not os.access(path.parent, os.W_OK):
        raise PatheError(f"{path}: can't be written (no permission)")


def check_new_folder(folder: Path) -> None:
    """Raises an error unless the folder is new or empty; call it before a long computation.

    What dead processes have left in it is removed.
    """
    if folder.is_dir():
        _sweep(folder)
    wanted = f"{folder}: expected a new or empty folder"
    if folder.is_dir() and any(folder.iterdir()):
        raise PatheError(f"{wanted}, it holds files already")
    if folder.exists() and not folder.is_dir():
        raise PatheError(f"{wanted}, this is a file")
    if folder.exists() and folder.samefile(Path.cwd()):
        raise PatheError(f"{wanted} other than the current one")
