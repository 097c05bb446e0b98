"""Optional dependencies: imported when they are needed, named in an error when missing."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from pathe.core.errors import PatheError


def require(module: str, extra: str, what: str) -> ModuleType:
    """Imports and returns a module of an extra; if it is missing, the error starts with `what`."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise PatheError(f"{what} needs {package}: pip install 'pathe[{extra}]'.") from error
