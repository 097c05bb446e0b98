"""Changes a dataclass of numbers declared by `setting`; checks names and types."""

from __future__ import annotations

import contextlib
import typing
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from pathe.core.config import to_number
from pathe.core.errors import ConfigError, UnknownNameError, nearest

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Settings = TypeVar("Settings", bound=DataclassInstance)

KINDS = {int: "a whole number", float: "a number"}


def change(base: Settings, changed: Mapping[str, Any], source: str) -> Settings:
    """Returns the base with some settings changed, each checked against its type.

    `source` says in errors where the settings are from.
    """
    types = typing.get_type_hints(type(base))
    checked = {}
    for key, value in changed.items():
        if key not in types:
            raise UnknownNameError(
                f"There is no setting {key!r} ({source}).{nearest(str(key), types)} "
                f"All: {', '.join(types)}."
            )
        checked[key] = _value(key, value, types[key], source)
    return replace(base, **checked)


def _value(key: str, value: Any, kind: type, source: str) -> Any:
    if kind is float and isinstance(value, str):  # YAML reads 1e-3 as text
        with contextlib.suppress(ValueError):
            value = float(value)
    accepted = (int, float) if kind is float else int
    if isinstance(value, bool) or not isinstance(value, accepted):
        raise ConfigError(f"{key} takes {KINDS[kind]}; got {value!r} ({source}).")
    return to_number(key, kind, value)
