"""An append-only file of changes to a graph: what was acknowledged survives a kill."""

from __future__ import annotations

import errno
import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pathe.core.errors import DataError, PatheError
from pathe.core.types import Fact


class NotWritten(PatheError):
    """Changes that could not be written to the journal, so they were not made."""


@dataclass(frozen=True)
class Changes:
    """Facts to remove from a graph, and then facts to add to it."""

    add: list[Fact] = field(default_factory=list)
    remove: list[Fact] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.add or self.remove)


class Journal:
    """Changes, one JSON object per line; each is on the disk before `append` returns."""

    def __init__(self, path: Path) -> None:
        """Opens or creates the file. A last line that a crash left unfinished is dropped."""
        self.path = path
        try:
            self._file = path.open("a+b", buffering=0)  # nothing is left behind by a failed write
        except OSError as error:
            raise DataError(f"{path}: can't be written ({error.strerror})") from error
        try:
            _lock(self._file, path)
            self.changes = self._read()
        except BaseException:
            self._file.close()
            raise

    def append(self, changes: Changes) -> None:
        """Writes changes; returns once they are on the disk."""
        line = (json.dumps(asdict(changes), ensure_ascii=False) + "\n").encode()
        good = self._file.seek(0, os.SEEK_END)
        try:
            if self._file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._file.fileno())
        except OSError as error:  # a part of the line may be there
            with suppress(OSError):
                self._file.truncate(good)
            raise NotWritten(f"{self.path.name}: can't be written ({error.strerror}).") from error

    def close(self) -> None:
        self._file.close()

    def _read(self) -> list[Changes]:
        self._file.seek(0)
        found, good = [], 0
        for number, line in enumerate(self._file.readall().splitlines(keepends=True), 1):
            if not line.endswith(b"\n"):
                break  # it was never acknowledged
            try:
                given = json.loads(line)
                facts = {key: [_fact(row) for row in given[key]] for key in ("add", "remove")}
            except (ValueError, TypeError, KeyError, RecursionError):
                raise DataError(
                    f'{self.path}, line {number}: expected {{"add": [...], "remove": [...]}}. '
                    "Is this a journal of `pathe serve`?"
                ) from None
            found.append(Changes(**facts))
            good += len(line)
        self._file.truncate(good)
        self._file.seek(0, os.SEEK_END)
        return found


def _fact(row: Any) -> Fact:
    head, relation, tail = row
    if not all(isinstance(name, str) for name in row):
        raise TypeError
    return head, relation, tail


def _lock(file: Any, path: Path) -> None:
    """Makes sure that no other server writes the file."""
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise DataError(f"{path}: another server uses it.") from None
