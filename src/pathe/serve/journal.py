"""An append-only file of changes to a graph: what was acknowledged survives a kill."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pathe.core.errors import DataError, PatheError
from pathe.core.files import sync_names
from pathe.core.types import Fact

START = b'{"add": ['  # of every line
KEYS = {"add", "remove"}


class NotWritten(PatheError):
    """Changes that could not be written to the journal, so they were not made."""


@dataclass(frozen=True)
class Changes:
    """Facts to remove from a graph, and then facts to add to it."""

    add: list[Fact] = field(default_factory=list)
    remove: list[Fact] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.add or self.remove)

    def digest(self) -> str:
        """Returns what tells these changes from others."""
        text = json.dumps([self.add, self.remove])
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class Journal:
    """Changes, one JSON object per line; each is on the disk before `append` returns.

    A line has a digest of its changes; lines of older versions don't.
    """

    def __init__(self, path: Path) -> None:
        """Opens or creates the file. A last line that a crash left unfinished is dropped."""
        self.path, self.broken = path, False
        try:
            self._file = path.open("a+b", buffering=0)  # nothing is left behind by a failed write
            try:
                _lock(self._file, path)
                self.changes = self._read()
                sync_names(path.parent)
            except BaseException:
                self._file.close()
                raise
        except OSError as error:
            raise DataError(f"{path}: can't be written ({error.strerror})") from error

    def append(self, changes: Changes) -> None:
        """Writes changes; returns once they are on the disk."""
        if self.broken:
            raise NotWritten(f"{self.path.name}: a write has failed. Restart the server.")
        line = json.dumps(asdict(changes) | {"digest": changes.digest()}, ensure_ascii=False)
        raw = f"{line}\n".encode()
        good = self._file.seek(0, os.SEEK_END)
        try:
            if self._file.write(raw) != len(raw):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._file.fileno())
        except OSError as error:
            said = f"{self.path.name}: can't be written ({error.strerror})."
            try:
                self._file.truncate(good)  # a part of the line may be there
            except OSError:
                self.broken = True
                said += " Restart the server, and see whether the change was made."
            raise NotWritten(said) from error

    def close(self) -> None:
        self._file.close()

    def _read(self) -> list[Changes]:
        self._file.seek(0)
        *lines, last = self._file.readall().split(b"\n")
        found = [self._parsed(number, line) for number, line in enumerate(lines, 1)]
        if last:
            self._end(len(lines) + 1, last, found)
        return found

    def _end(self, number: int, last: bytes, found: list[Changes]) -> None:
        """Completes a last line that lacks no more than its end, or drops a part of a line."""
        try:
            found.append(self._parsed(number, last))
        except DataError:
            if not _is_part(last):
                raise
            self._file.truncate(self._file.tell() - len(last))
        else:
            self._file.write(b"\n")

    def _parsed(self, number: int, line: bytes) -> Changes:
        try:
            given = json.loads(line.decode())
            if not KEYS <= set(given) <= KEYS | {"digest"}:
                raise KeyError
            changes = Changes(*([_fact(row) for row in given[key]] for key in ("add", "remove")))
        except (ValueError, TypeError, KeyError, RecursionError):
            raise DataError(
                f'{self.path}, line {number}: expected {{"add": [...], "remove": [...]}}. '
                "Is this a journal of `pathe serve`? If it is, the line is damaged."
            ) from None
        if given.get("digest", changes.digest()) != changes.digest():
            raise DataError(
                f"{self.path}, line {number}: damaged, its digest doesn't fit. Restore the file "
                "from a backup, or remove the line to start without its changes."
            )
        return changes


def _is_part(line: bytes) -> bool:
    """Whether a crash may have left this of a line: its beginning, but not all of it.

    After a power failure, zero bytes may stand for what had no time to reach the disk.
    """
    line = line.rstrip(b"\0")
    if not (line.startswith(START) or START.startswith(line)):
        return False
    try:
        json.JSONDecoder().raw_decode(line.decode(errors="replace"))
    except (ValueError, RecursionError):
        return True
    return False  # whole, so what follows was written by somebody else


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
