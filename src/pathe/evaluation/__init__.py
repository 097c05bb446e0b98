"""Metrics, evaluation and calibration."""

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "evaluate":  # loaded on first use: it needs torch, the metrics' names don't
        from pathe.evaluation.ranking import evaluate

        return evaluate
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
