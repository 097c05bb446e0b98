"""Picks the compiled version of a function: `kernel("scores.rank", "cpu")`.

Every kernel computes the same as the plain PyTorch version, which runs where there is no kernel.
"""

from __future__ import annotations

import functools
import importlib
import os
import threading
from collections.abc import Callable
from typing import Any

# Kernel functions by device and module; anything else runs as plain PyTorch.
KERNELS: dict[str, dict[str, tuple[str, ...]]] = {
    "cpu": {
        "attention": ("read", "read_backward"),
        "contexts": ("scores",),
        "dense": ("runs", "near", "answer_scores"),
        "frontier": ("spread_mass", "edges_between", "unkept", "top"),
        "known": ("listed",),
        "propagation": ("propagate", "propagate_weights"),
        "relation_graph": ("pairs",),
        "rules": ("count",),
        "scores": ("relu_dot", "open_sums", "tiles", "rank"),
        "states": ("update", "update_backward", "answer_scores", "answer_scores_backward"),
        "walks": ("walk",),
    },
    "cuda": {
        "attention": ("read", "read_backward"),
        "known": ("close",),
        "packed": ("read", "read_backward"),
        "propagation": ("propagate", "propagate_weights", "mark"),
        "scores": ("relu_dot", "open_sums"),
        "states": ("update", "update_backward", "answer_scores", "answer_scores_backward"),
        "walks": ("walk",),
    },
}
_FOLDER = {"cpu": "cpu", "cuda": "gpu"}
# Numba's thread pool must not be used from two Python threads at once.
_LOCK = threading.Lock()
_forked = False


@functools.cache
def kernel(name: str, device_type: str) -> Callable[..., Any] | None:
    """Returns the compiled function for a device, or None if there is none or it can't load."""
    module, _, function = name.partition(".")
    if _forked or function not in KERNELS.get(device_type, {}).get(module, ()):
        return None
    try:
        loaded = importlib.import_module(f"pathe.kernels.{_FOLDER[device_type]}.{module}")
    except (ImportError, RuntimeError):  # RuntimeError: Numba finds no writable cache folder
        return None
    compiled: Callable[..., Any] = getattr(loaded, function)
    return _locked(compiled) if device_type == "cpu" else compiled


def compiled(name: str, device_type: str) -> Callable[..., Any]:
    """Returns a kernel that must exist, such as a backward pass after its forward pass."""
    found = kernel(name, device_type)
    if found is None:
        raise RuntimeError(f"no kernel {name} for {device_type}")
    return found


def _locked(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def run(*args: Any) -> Any:
        with _LOCK:
            return function(*args)

    return run


def _after_fork() -> None:
    """Disables kernels in a forked child: Numba's threads don't survive a fork."""
    global _forked
    _forked = True
    kernel.cache_clear()


os.register_at_fork(after_in_child=_after_fork)
