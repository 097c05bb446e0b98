"""Compiled twins: modules NAME_cpu (numba) and NAME_gpu (Triton) that do a plain one's work fast.

A twin gives what the plain tensor version gives; where a machine has none, that one serves.
"""

from __future__ import annotations

import functools
import importlib
import os
import threading
from types import ModuleType

_SUFFIX = {"cpu": "cpu", "cuda": "gpu"}
# numba's threads don't survive a fork, and two Python threads must not run them at once.
ONE_AT_A_TIME = threading.Lock()


@functools.cache
def twin(name: str, device_type: str) -> ModuleType | None:
    """The compiled module for this device; None where it isn't there or doesn't fit."""
    try:
        return importlib.import_module(f"pathe.{name}_{_SUFFIX[device_type]}")
    except (ImportError, KeyError, RuntimeError):  # the last: nowhere to keep compiled code
        return None


def _after_fork() -> None:
    _SUFFIX.clear()
    twin.cache_clear()


os.register_at_fork(after_in_child=_after_fork)
