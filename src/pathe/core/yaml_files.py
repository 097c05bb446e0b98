"""Reads YAML that may be damaged or hostile: plain values only, and errors in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from pathe.core.errors import ConfigError

LARGEST = 1 << 20  # characters
SHOWN = 300  # characters of a parser's message


class _PlainLoader(yaml.SafeLoader):
    """A safe loader without aliases, a few of which can stand for billions of values."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.YAMLError(f"aliases (*) aren't supported, line {mark.line + 1} has one")
        return super().compose_node(parent, index)


def load_yaml(text: str, source: str) -> Any:
    """Returns the value of a YAML text; `source` says in errors where it is from."""
    if len(text) > LARGEST:
        raise ConfigError(f"{source}: expected at most {LARGEST:,} characters; got {len(text):,}.")
    try:
        return yaml.load(text, _PlainLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        words = " ".join(str(error).split())[:SHOWN]
        raise ConfigError(f"{source}: invalid YAML: {words}") from None


def read_yaml(path: Path) -> Any:
    """Returns the value of a YAML file."""
    return load_yaml(read_text(path), str(path))


def read_settings_file(path: Path) -> dict[str, Any]:
    """Returns the lines `key: value` of a YAML file."""
    found = read_yaml(path)
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise ConfigError(f"{path}: expected lines of `key: value`: truncated or modified.")
    return found


def read_text(path: Path) -> str:
    """Returns the text of a small UTF-8 file."""
    if not path.is_file():
        raise ConfigError(f"{path}: no such file.")
    try:
        with path.open("rb") as file:
            raw = file.read(4 * LARGEST + 1)
        return raw.decode("utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: can't be read ({error.strerror or error}).") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text (byte {error.start:,}).") from None
