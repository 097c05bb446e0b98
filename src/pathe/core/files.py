"""Atomic writes of files and folders, and checks of where they would go."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pathe.core.errors import PatheError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a temporary path; renames it to `path` on success, deletes it on failure."""
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        yield aside
        os.replace(aside, path)  # noqa: PTH105
    except OSError as error:
        raise PatheError(f"{path}: can't be written ({error.strerror or error})") from error
    finally:
        if aside.is_dir():
            shutil.rmtree(aside, ignore_errors=True)
        else:
            aside.unlink(missing_ok=True)


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
    """Raises an error unless the folder is new or empty; call it before a long computation."""
    wanted = f"{folder}: expected a new or empty folder"
    if folder.is_dir() and any(folder.iterdir()):
        raise PatheError(f"{wanted}, it holds files already")
    if folder.exists() and not folder.is_dir():
        raise PatheError(f"{wanted}, this is a file")
    if folder.exists() and folder.samefile(Path.cwd()):
        raise PatheError(f"{wanted} other than the current one")
