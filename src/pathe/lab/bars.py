"""The bars that were set for the results, and which of them were met."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pathe.core.yaml_files import read_settings_file
from pathe.evaluation.metrics import TITLES
from pathe.lab import fine_tuned, zero_shot
from pathe.lab.experiments import Result, judged

TASKS = {"tuned": "fine-tuned link"}  # what a table's models predict, unless its name says so
TABLE = "[table](#fine-tuned-link-prediction)"
SPEED = Path("benchmarks") / "any_graph.json"  # beside the folder of results


@dataclass(frozen=True)
class Row:
    """A bar, what was reached, and where that is from."""

    title: str
    bar: str
    reached: str
    met: bool
    source: str  # a link

    def line(self) -> str:
        """Returns a line of the table."""
        verdict = "met" if self.met else "**missed**"
        return f"| {self.title} | {self.bar} | {self.reached} | {verdict} | {self.source} |"


@cache
def listed() -> dict[str, Any]:
    """Reads the bars that belong to no single experiment."""
    return read_settings_file(Path(__file__).with_name("bars.yaml"))


def page(
    summaries: list[Result],
    without_training: dict[str, Any] | None,
    speed: Sequence[dict[str, Any]] = (),
) -> Iterator[str]:
    """Yields the table of the results page, a line each; nothing without bars."""
    rows = [
        *(_zero_shot(without_training) if without_training else ()),
        *_of_pairs(summaries),
        *_of_experiments(summaries),
        *(_measured(row) for row in speed),
    ]
    if rows:
        yield "\n## Bars\n"
        yield (
            "What we wanted to reach: at least the figure, or at most so much time or so many "
            f"parameters. {sum(row.met for row in rows)} of {len(rows)} were met.\n"
        )
        yield "|  | bar | reached |  | file |"
        yield "|---|---|---|---|---|"
        yield from (row.line() for row in rows)
        yield ""


def read_speed(results: Path) -> list[dict[str, Any]]:
    """Reads the times of the model for any graph, beside the folder of results."""
    path = results.parent / SPEED
    found = json.loads(path.read_text(encoding="utf-8"))["results"] if path.is_file() else []
    return list(found)


def _row(title: str, key: str, bar: float, value: float, source: str) -> Row:
    """Returns a row for a metric that should be at least the bar."""
    met = value >= bar
    shown = zero_shot.short(value) if met else _below(value, bar)
    return Row(f"{title}: {TITLES[key]}", zero_shot.short(bar), shown, met, source)


def _zero_shot(found: dict[str, Any]) -> Iterator[Row]:
    """Yields the bars of the pre-trained model without fine-tuning, for the graphs there are."""
    bars, about, graphs = listed()["zero_shot"], zero_shot.listed(), found["graphs"]
    source = _link(f"results/{zero_shot.NAME}.json")
    averaged = [name for name, entry in about["graphs"].items() if entry.get("mean")]
    parts = (("mean", "links", "links"), ("relations_mean", "relation_prediction", "relations"))
    for part, key, words in parts:
        if all(key in graphs.get(name, {}) for name in averaged):
            for metric, bar in bars[part].items():
                value = sum(graphs[name][key][metric] for name in averaged) / len(averaged)
                yield _row(f"zero-shot {words}, {about['mean_of']}", metric, bar, value, source)
    for name, wanted in bars["graphs"].items():
        for metric, bar in wanted.items() if name in graphs else ():
            title = f"zero-shot links, {about['graphs'][name]['title']}"
            yield _row(title, metric, bar, graphs[name]["links"][metric], source)
    size, most = found["parameters"], bars["most_parameters"]
    yield Row("parameters of the pre-trained model", f"{most:,}", f"{size:,}", size <= most, source)
    for name, limit in bars["most_seconds"].items():
        if name in graphs:
            title = f"seconds to rank {about['graphs'][name]['title']}'s test triples on an H200"
            seconds = graphs[name]["seconds"]
            yield Row(title, f"{limit:g}", f"{seconds:.2g}", seconds <= limit, source)


def _of_pairs(summaries: list[Result]) -> Iterator[Row]:
    """Yields the bars of the mean over fine-tuned models of GraIL pairs."""
    if pairs := fine_tuned.of_pairs(summaries):
        title = f"fine-tuned links, {zero_shot.listed()['mean_of']}"
        for metric, bar in listed()["fine_tuned"]["mean"].items():
            yield _row(title, metric, bar, fine_tuned.mean_of(pairs)[metric], TABLE)


def _of_experiments(summaries: list[Result]) -> Iterator[Row]:
    for summary in summaries:
        task = TASKS.get(summary["table"], summary["table"])
        for key, bar in summary["bars"].items():
            value, source = judged(summary)[key]["mean"], _link(f"results/{summary['name']}.json")
            yield _row(f"{summary['title']}, {task} prediction", key, bar, value, source)


def _measured(row: dict[str, Any]) -> Row:
    """Returns a row of a benchmark, which has its bar and says whether it was met."""
    return Row(row["measure"], row["bar"], row["ours"], row["met"], _link(SPEED.as_posix()))


def _link(file: str) -> str:
    return f"[json](../{file})"


def _below(value: float, bar: float) -> str:
    """Returns a figure with enough digits to show that it is below the bar."""
    digits = next(n for n in range(3, 17) if n == 16 or round(value, n) < bar)
    return f"{value:.{digits}f}".removeprefix("0")
