"""The command that pre-trains a model for any graph."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer
from rich.console import RenderableType
from rich.table import Column, Table
from rich.text import Text

from pathe.cli.options import (
    DATA_HELP,
    Files,
    Json,
    command_line,
    grouped,
    option,
    read_settings,
)
from pathe.cli.output import err, print_result, tell
from pathe.core.errors import ConfigError

if TYPE_CHECKING:
    from pathe.training.pretraining import Pretraining
    from pathe.training.pretraining_run import Reports, Status

LINE_EVERY = 60  # seconds between lines of progress, if there is no bar
Graphs = Annotated[list[str], typer.Argument(metavar="GRAPH", help=DATA_HELP)]


@dataclass(frozen=True)
class PretrainOptions:
    """What to pre-train, where and for how long."""

    panel: ClassVar[str] = "Training"
    valid: list[str] | None = option(
        None,
        "An additional graph, for validation and calibration only; repeatable.",
        "--valid",
        metavar="GRAPH",
    )
    steps: int | None = option(None, "Total number of training steps. Default: 20,000.", min=1)
    start: Path | None = option(
        None,
        "Start from this pre-trained model instead of random weights. [cyan]pretrained[/] is the "
        "one that comes with PathE.",
        "--from",
        metavar="MODEL",
    )
    minutes: float | None = option(
        None, "Stop after about this many minutes; continue later with --resume."
    )
    set_: list[str] | None = option(
        None,
        "Change a setting, e.g. [cyan]dim=32[/]; repeatable. An unknown name lists all settings.",
        "--set",
        metavar="KEY=VALUE",
    )
    out_: Path = option(Path("runs/pretrain"), "The run's folder.", "--out", metavar="RUN")
    resume: bool = option(False, "Continue the run in --out where it stopped.", "--resume")
    device: str = option(
        "auto", "[cyan]auto[/] (a GPU if there is one), [cyan]cpu[/] or [cyan]gpu[/]."
    )

    @property
    def model(self) -> Path | None:
        """The folder of the model to start from."""
        from pathe.model.artifact import SHIPPED

        shipped = self.start == Path("pretrained") and not Path("pretrained").exists()
        return SHIPPED if shipped else self.start

    def settings(self) -> Pretraining:
        """Returns the settings, checked; those of the run if one is resumed."""
        changed = read_settings(self.set_) | ({"steps": self.steps} if self.steps else {})
        if self.minutes is not None and not 0 < self.minutes < math.inf:
            raise ConfigError(f"--minutes must be above 0; got {self.minutes:g}.")
        from pathe.core.settings import change
        from pathe.training.pretraining import Pretraining
        from pathe.training.pretraining_run import resumed_settings, started_settings
        from pathe.training.run_folder import check_free

        if not self.resume:
            check_free(self.out_)
        base = started_settings(self.model) if self.model else Pretraining()
        if self.resume:
            base = resumed_settings(self.out_)
        return change(base, changed, "--set")


@grouped
def pretrain(graphs: Graphs, files: Files, options: PretrainOptions, as_json: Json = False) -> None:
    """Pre-train a model that works on any graph, on a mix of graphs.

    The model has no entity or relation embeddings. Each step samples a graph or a subgraph and
    predicts some of its triples from the rest. The model is validated on the graphs' valid splits
    every 1,000 steps. The run's folder holds [cyan]metrics.jsonl[/], a checkpoint, the model and
    [cyan]result.json[/]. Ctrl-C saves the run; the same command with [cyan]--resume[/] continues
    it exactly where it stopped.

    Example: [cyan]pathe pretrain fb15k237 wn18rr codexmedium --minutes 10[/]
    """
    with err.status("starting ..."):
        from pathe.core.hardware import pick_device
        from pathe.training import pretraining_run as runs

        settings, device = options.settings(), pick_device(options.device)
    place = runs.Place(options.out_, options.resume, options.model, options.minutes, device)
    trained = [files.read(data, every_relation=True) for data in graphs]
    valid = [files.read(data, every_relation=True) for data in options.valid or ()]
    tell(f"run folder: {options.out_}")
    with _reports() as reports:
        result = runs.pretrain(
            trained, settings, place, valid=valid, reports=reports, command=command_line()
        )
    print_result(result, _tables(result), as_json)


@contextmanager
def _reports() -> Iterator[Reports]:
    """Yields reports on stderr: lines, and a progress bar if it is a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from pathe.training.pretraining_run import Reports, duration

    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
        TextColumn("{task.fields[figures]}"),
    )  # fmt: skip
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        job, told = bar.add_task("starting", total=None, figures=""), time.monotonic()

        def show(status: Status) -> None:
            figures = []
            if status.loss is not None:
                figures.append(f"loss {status.loss:.3f}")
            if status.steps_per_second:
                figures.append(f"{status.steps_per_second:.3g} steps/s")
            if status.seconds_left is not None:
                figures.append(f"{duration(status.seconds_left)} left")
            nonlocal told
            if not err.is_terminal and time.monotonic() - told > LINE_EVERY:
                told = time.monotonic()
                tell(f"{status.doing}, step {status.step:,}/{status.steps:,}, {', '.join(figures)}")
            bar.update(
                job,
                description=status.doing,
                completed=status.step,
                total=status.steps,
                figures="  ".join(figures),
            )

        yield Reports(tell, show)


def _tables(result: dict[str, Any]) -> Iterator[RenderableType]:
    """Yields the last validation, and where the model is."""
    from pathe.training.pretraining_run import SHOWN

    metrics, steps = result["metrics"], result["settings"]["steps"]
    if found := metrics.get("graphs"):
        titles = ("MRR", "Hits@10", "relation Hits@1")
        numbers = [Column(title, justify="right") for title in titles]
        table = Table("valid", *numbers, box=None)
        for name, row in (found | {"mean": metrics}).items():
            cells = (row.get(key) for key in SHOWN)
            table.add_row(Text(name), *("" if v is None else f"{v:.3f}" for v in cells))
        yield table
    words = f"step {result['step']:,} of {steps:,}, {result['parameters']:,} parameters"
    yield Text(f"{words}: {result['model']}")
