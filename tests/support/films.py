"""The graph of examples/make_films.py, with its gaps and wrong facts."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from types import ModuleType

from support.places import ROOT


@cache
def films_script() -> ModuleType:
    """Loads examples/make_films.py as a module."""
    spec = importlib.util.spec_from_file_location("make_films", ROOT / "examples/make_films.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module


@cache
def films(seed: int = 0):
    """Returns the `Films` of a seed: triples, gaps, wrong, reasons, instead, types."""
    return films_script().make_films(seed)
