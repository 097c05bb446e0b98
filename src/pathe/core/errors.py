"""Errors that a user can fix, all of them `PatheError`; any other exception is a bug."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


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
