"""`Predictor` and what it returns: answers, evidence, rules, missing triples."""

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "Predictor":  # loaded on first use: it needs torch, the results don't
        from pathe.predict.predictor import Predictor

        return Predictor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
