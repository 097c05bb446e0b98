"""Tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, RenderableType

from pathe.evaluation.metrics import METRICS
from pathe.reports import tables


def printed(parts: Iterable[RenderableType]) -> list[str]:
    console = Console(width=100)
    with console.capture() as found:
        for part in parts:
            console.print(part)
    return [" ".join(line.split()) for line in found.get().splitlines()]


def test_a_result_has_a_column_per_metric() -> None:
    values = {metric.key: (i + 1) / 7 for i, metric in enumerate(METRICS)}
    about = {"task": "link", "data": "toy", "split": "test", "test_set": "seen", "n_triples": 9,
             "protocol": "full", "n_candidates": 1234, "n_paths": 16}  # fmt: skip
    lines = printed(tables.result(about | values | {"head": values}))
    assert lines[:2] == [
        "toy: link prediction, test split, seen test set",
        "9 triples, ranked among all 1,234 entities, 16 paths per entity",
    ]
    assert lines[2] == " ".join(metric.title for metric in METRICS)
    cells = " ".join(f"{values[metric.key]:.{metric.digits}f}" for metric in METRICS)
    assert lines[3:5] == [f"all {cells}", f"heads {cells}"]
