"""The error tree: what a user can put right is a `PatheError`; anything else is a defect."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class PatheError(Exception):
    """Something the user can put right: says what was expected, what came and what to do."""


class DataError(PatheError):
    """A file or folder that can't be read as a knowledge graph."""


class UnknownNameError(PatheError):
    """An entity, relation, data set, preset or option name that isn't known."""


class ConfigError(PatheError):
    """Settings that don't fit together or don't fit the data."""


class ModelError(PatheError):
    """A model folder or checkpoint that can't be used."""


class TrainingError(PatheError):
    """A training run that can't go on."""


class Interrupted(PatheError):
    """A run that was stopped on purpose; says how to go on."""


def nearest(name: str, known: Iterable[str], n: int = 3) -> str:
    """The known names closest to `name` as the tail of an error message, or nothing."""
    names = list(known)
    same = [other for other in names if other.casefold() == name.casefold()]
    alike = difflib.get_close_matches(name, names, n=n, cutoff=0.5)
    close = list(dict.fromkeys(same + alike))[:n]
    return f" Closest: {', '.join(map(repr, close))}." if close else ""
