"""Command-line options that several commands share, and the reading of DATA that they steer."""

from __future__ import annotations

import functools
import inspect
import io
import json
import os
import sys
import typing
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, RenderableType
from rich.markup import escape

from pathe.errors import DataError

if TYPE_CHECKING:
    from pathe.artifact import Artifact
    from pathe.datasets import KnowledgeGraph
    from pathe.encoding import Progress
    from pathe.readers import ReadReport
    from pathe.tables import Columns, Write


class _Console(Console):
    """Rich's console, but a closed pipe is the caller's to handle."""

    def on_broken_pipe(self) -> None:
        raise


out = _Console(highlight=False, emoji=False)
err = _Console(highlight=False, emoji=False, stderr=True)
PIPED_WIDTH = 1000  # a file or a pipe has no width: only names and sentences are that long
FILES = "How to read the files"


class OnError(str, Enum):
    """What to do with a line that can't be read."""

    stop = "raise"
    skip = "skip"


DATA_HELP = (
    "A file (.tsv .csv .txt .parquet .nt .nq .ttl .rdf, plain or .gz .zst .xz .bz2), a folder with "
    "train/valid/test files, a GraIL or OpenKE folder, or a data set's name such as [cyan]umls[/] "
    "or [cyan]fb15k237[/]."
)
Data = Annotated[str, typer.Argument(metavar="DATA", help=DATA_HELP, show_default=False)]
DataOption = Annotated[
    str, typer.Option("--data", metavar="DATA", help="As for train.", show_default=False)
]
Model = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A run or a model folder.", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on stdout.")]
Seed = Annotated[int, typer.Option(help="Seed of everything random.")]


class Form(str, Enum):
    """How walks become paths."""

    joined = "joined"
    single = "single"
    mixed = "mixed"


class Task(str, Enum):
    """What to learn."""

    link = "link"
    relation = "relation"
    multi = "multi"


class TestSet(str, Enum):
    """Which triples of a split count."""

    seen = "seen"
    unseen = "unseen"
    all = "all"


class SplitName(str, Enum):
    """A part of the data."""

    train = "train"
    valid = "valid"
    test = "test"


Device = Annotated[
    str, typer.Option(help="[cyan]auto[/] (a GPU if there is one), [cyan]cpu[/] or [cyan]gpu[/].")
]


RelationMap = Annotated[
    Path | None,
    typer.Option(
        help="Relations that the graph calls otherwise: a .tsv or .csv of the graph's name and the "
        "model's, [cyan]^[/] before the latter if it points the other way.",
        rich_help_panel=FILES,
    ),
]


@dataclass(frozen=True)
class ReadData:
    """Reads the DATA of a command, as its options say; in a model's relations if one is given."""

    cut: str | None
    cut_seed: int
    allow_unseen: bool
    columns: str | None
    header: bool | None
    delimiter: str | None
    on_error: OnError
    relation_map: Path | None

    def __call__(
        self, data: str, model: Artifact | None = None, *, every_relation: bool = False
    ) -> KnowledgeGraph:
        wanted = _three(self.columns, "--columns", "head,relation,tail") if self.columns else None
        fractions = _fractions(self.cut)
        if self.allow_unseen and fractions is None:
            raise DataError("--allow-unseen is for cutting one file: add --split 0.8,0.1,0.1.")
        from pathe.columns import ReadOptions, check_fractions, existing_path

        if fractions is not None:
            check_fractions(fractions)
        existing_path(data)  # what is plainly wrong is said before the slow imports
        from pathe.datasets import KnowledgeGraph

        separator = {"\\t": "\t", "tab": "\t", "space": " ", "comma": ","}
        options = ReadOptions(
            wanted,
            self.header,
            separator.get(self.delimiter, self.delimiter) if self.delimiter else None,
            self.on_error.value,
        )
        with err.status(f"reading {escape(data)} ..."):
            kg = KnowledgeGraph.read(
                data,
                split=fractions,
                seed=self.cut_seed,
                allow_unseen=self.allow_unseen,
                every_relation=every_relation or model is not None,
                options=options,
            )
            if model is not None:
                kg = self._in_its_relations(kg, model)
        _report(kg.report)
        if kg.inference is not None:
            _report(kg.inference.report, "inference graph: ")
        sizes = {"train": len(kg.train), "valid": len(kg.valid), "test": len(kg.test)}
        empty = [s for s, f in zip(sizes, fractions or (), strict=False) if f and not sizes[s]]
        if empty:
            found = ", ".join(f"{split} {n:,}" for split, n in sizes.items())
            err.print(
                f"[yellow]warning:[/] the cut left {' and '.join(empty)} empty ({found} triples)."
                " Cut more off, or add --allow-unseen to let entities fall into them alone.",
                soft_wrap=True,
            )
        return kg

    @property
    def skips(self) -> bool:
        """Whether what can't be read is skipped and counted."""
        return self.on_error is OnError.skip

    @functools.cached_property
    def relation_names(self) -> dict[str, str]:
        """The model's name for each of the graph's that the relation map has."""
        from pathe.schema import read_relation_map

        return read_relation_map(self.relation_map) if self.relation_map else {}

    def _in_its_relations(self, kg: KnowledgeGraph, model: Artifact) -> KnowledgeGraph:
        from pathe.schema import align

        names = self.relation_names or None
        return align(kg, model.relations, names, "drop" if self.skips else "raise")


def _cut(*names: str) -> Any:
    text = "Cut one file into train,valid,test, e.g. [cyan]0.8,0.1,0.1[/]."
    return Annotated[str | None, typer.Option(*names, help=text, rich_help_panel=FILES)]


def _reader(
    cut: _cut("--split", "--cut") = None,  # type: ignore[valid-type]
    cut_seed: Annotated[int, typer.Option(help="Seed of that cut.", rich_help_panel=FILES)] = 0,
    allow_unseen: Annotated[
        bool,
        typer.Option(
            "--allow-unseen",
            help="When cutting, let entities fall into valid or test alone.",
            rich_help_panel=FILES,
        ),
    ] = False,
    columns: Annotated[
        str | None,
        typer.Option(
            help="Which columns are head,relation,tail: numbers from 1 or header names, e.g. "
            "[cyan]1,3,2[/] or [cyan]subject,predicate,object[/].",
            rich_help_panel=FILES,
        ),
    ] = None,
    header: Annotated[
        bool | None,
        typer.Option(
            "--header/--no-header",
            help="Whether the first line is a header. Default: only if it says head, relation, "
            "tail or the like.",
            rich_help_panel=FILES,
        ),
    ] = None,
    delimiter: Annotated[
        str | None,
        typer.Option(
            help="What separates columns. Default: tab; comma for .csv.", rich_help_panel=FILES
        ),
    ] = None,
    on_error: Annotated[
        OnError,
        typer.Option(help="Stop at a bad line, or skip and count it.", rich_help_panel=FILES),
    ] = OnError.stop,
    relation_map: RelationMap = None,
) -> ReadData:
    """The reader that these options describe."""
    return ReadData(cut, cut_seed, allow_unseen, columns, header, delimiter, on_error, relation_map)


def reads_data(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the file options; its parameter `read` becomes the reader they describe."""
    own = inspect.signature(command).parameters
    shared = dict(inspect.signature(_reader).parameters)
    if "model" not in own or "relation_map" in own:
        del shared["relation_map"]

    @functools.wraps(command)
    def wrapper(**given: Any) -> None:
        read = _reader(**{name: given.pop(name) for name in shared})
        command(read=read, **given)

    hints = typing.get_type_hints(_reader, include_extras=True)
    hints |= typing.get_type_hints(
        command, {**command.__globals__, **globals()}, include_extras=True
    )
    if "split" in own:  # the command's own --split names a part of the data
        hints["cut"] = _cut("--cut")
    parameters = [p for name, p in own.items() if name != "read"] + list(shared.values())
    parameters = [
        p.replace(annotation=hints[p.name], kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters
    ]
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in parameters} | {"return": None}
    return wrapper


def _three(text: str, option: str, meaning: str) -> tuple[str, str, str]:
    parts = tuple(part.strip() for part in text.split(","))
    if len(parts) != 3:
        raise DataError(f"{option} takes three values, {meaning}; got {text!r}.")
    return parts[0], parts[1], parts[2]


def _fractions(split: str | None) -> tuple[float, float, float] | None:
    if split is None:
        return None
    try:
        train, valid, test = map(float, split.split(","))
    except ValueError:
        raise DataError(
            f"--split takes three fractions, train,valid,test, such as 0.8,0.1,0.1; got {split!r}."
        ) from None
    return train, valid, test


def _report(report: ReadReport, whose: str = "") -> None:
    """What the reader met, in words, on stderr."""
    counts = (
        (report.duplicates, "duplicate triple", "removed"),
        (report.literals, "triple", "with a literal left out"),
        (report.skipped, "bad line", f"skipped; the first: {report.first_skipped}"),
        (report.unknown_relations, "triple", "with an unknown relation dropped"),
    )
    lines = [f"{n:,} {what}{'s' * (n > 1)} {done}" for n, what, done in counts if n]
    for line in [*lines, *report.notes]:
        err.print(f"{whose}{line}", style="dim", markup=False, soft_wrap=True)


def prepare_output() -> None:
    """Any character can be written anywhere, and what is piped isn't wrapped."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    err.file = sys.stderr  # as it is now: PyKEEN's loading puts another in its place
    for console in (out, err):
        if not console.is_terminal and "COLUMNS" not in os.environ:
            console.width = PIPED_WIDTH


def print_parts(parts: Iterable[RenderableType], soft_wrap: bool = False) -> None:
    """Print what `show` gives."""
    with _piped():
        for part in parts:
            out.print(part, soft_wrap=soft_wrap)


def print_json(value: Any) -> None:
    with _piped():
        sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


@contextmanager
def rows_out(path: Path | None, columns: Columns, as_json: bool) -> Iterator[Write]:
    """A function that writes rows to a file, or to stdout as JSON lines or tab-separated."""
    from pathe.tables import row_writer, text_writer

    if path is not None:
        with row_writer(path, columns) as write:
            yield write
        return
    with _piped():
        yield text_writer(sys.stdout, ".jsonl" if as_json else ".tsv", columns)


def tell(text: str) -> None:
    """A line of news on stderr; the text is shown as it is."""
    err.print(text, markup=False, soft_wrap=True)


@contextmanager
def progress_bar(title: str) -> Iterator[Progress]:
    """A progress bar on stderr that a (done, total) call moves."""
    from rich.progress import Progress as Bar

    with Bar(console=err, transient=True, disable=not err.is_terminal) as bar:
        job = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(job, completed=done, total=total)


@contextmanager
def _piped() -> Iterator[None]:
    """Who reads our output may have had enough, as `head` has: that is no error."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
