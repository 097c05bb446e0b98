"""Errors that a user can fix, all of them `PatheError`; any other exception is a bug."""

from __future__ import annotations

import difflib
import errno
import re
import sys
from collections.abc import Iterable

# What torch, its workers, CUDA, oneDNN, Arrow and Python say.
_NO_MEMORY = re.compile(
    r"DefaultCPUAllocator: |unable to mmap .*Cannot allocate memory|CUDA error: out of memory|"
    r"\Acould not create a primitive|\Acan't start new thread|Failed to launch worker thread|"
    r"failed to map segment from shared object|\Aerror return without exception set|"
    r"_find_and_load at \w+> returned NULL without setting an exception|: out of memory\Z"
)


class PatheError(Exception):
    """An error that the user can fix: says what was expected, what came and what to do."""


class DataError(PatheError):
    """A file or folder that can't be read as a knowledge graph."""


class UnknownNameError(PatheError):
    """An unknown name of an entity, relation, data set, preset or option."""


class ConfigError(PatheError):
    """Settings that don't fit each other or the data."""


class ModelError(PatheError):
    """A model folder or checkpoint that can't be used."""


class TrainingError(PatheError):
    """A training run that can't continue."""


class Interrupted(PatheError):
    """A run that was stopped on purpose; says how to continue it, and has the exit code."""

    def __init__(self, text: str, signum: int = 2) -> None:
        super().__init__(text)
        self.signum = signum
        self.code = 128 + signum  # as shells report a process that was ended by a signal


def lacks_memory(error: BaseException) -> bool:
    """Whether an error, or its cause, says that there is too little memory."""
    torch, seen = sys.modules.get("torch"), list[int]()
    out_of = (MemoryError, torch.OutOfMemoryError) if torch else MemoryError
    link: BaseException | None = error
    while link is not None and id(link) not in seen:  # a chain can end in a circle
        if isinstance(link, out_of) or _NO_MEMORY.search(str(link)):
            return True
        if isinstance(link, OSError) and link.errno == errno.ENOMEM:
            return True
        seen.append(id(link))
        loading = isinstance(link, ImportError | OSError) and not link.__suppress_context__
        link = link.__cause__ or (link.__context__ if loading else None)
    return False


def nearest(name: str, known: Iterable[str], n: int = 3) -> str:
    """Returns ` Closest: ...` with the known names most similar to `name`, or an empty string."""
    close = closest(name, known, n)
    return f" Closest: {', '.join(map(repr, close))}." if close else ""


def closest(name: str, known: Iterable[str], n: int = 3) -> list[str]:
    """Returns the known names most similar to `name`, those that differ only in case first."""
    names = list(known)
    same = [other for other in names if other.casefold() == name.casefold()]
    alike = difflib.get_close_matches(name, names, n=n, cutoff=0.5)
    return list(dict.fromkeys(same + alike))[:n]
