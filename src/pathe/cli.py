"""The command line: one command a verb. Only this module prints."""

from __future__ import annotations

import json
import os
import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from pathe.errors import DataError, PatheError

if TYPE_CHECKING:
    from pathe.datasets import KnowledgeGraph
    from pathe.readers import ReadReport

app = typer.Typer(
    name="pathe",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
out, err = Console(highlight=False), Console(stderr=True, highlight=False)


class OnError(str, Enum):
    """What to do with a line that can't be read."""

    stop = "raise"
    skip = "skip"


class Form(str, Enum):
    """How walks become paths."""

    joined = "joined"
    single = "single"


FILES = "How to read the files"
Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A file (.tsv .csv .txt .parquet .nt .nq .ttl .rdf, plain or .gz .zst .xz .bz2), "
        "a folder with train/valid/test files, a GraIL or OpenKE folder, or a data set's name "
        "such as [cyan]umls[/] or [cyan]fb15k237[/].",
        show_default=False,
    ),
]
Split = Annotated[
    str | None,
    typer.Option(
        help="Cut one file into train,valid,test, e.g. [cyan]0.8,0.1,0.1[/].", rich_help_panel=FILES
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of everything random.")]
AllowUnseen = Annotated[
    bool,
    typer.Option(
        "--allow-unseen",
        help="With --split: let entities fall into valid or test alone.",
        rich_help_panel=FILES,
    ),
]
Columns = Annotated[
    str | None,
    typer.Option(
        help="Which columns are head,relation,tail: numbers from 1 or header names, e.g. "
        "[cyan]1,3,2[/] or [cyan]subject,predicate,object[/].",
        rich_help_panel=FILES,
    ),
]
Header = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header",
        help="Whether the first line is a header. Default: only if it says head, relation, tail "
        "or the like.",
        rich_help_panel=FILES,
    ),
]
Delimiter = Annotated[
    str | None,
    typer.Option(
        help="What separates columns. Default: tab; comma for .csv.", rich_help_panel=FILES
    ),
]
OnErrorOption = Annotated[
    OnError,
    typer.Option(help="Stop at a bad line, or skip and count it.", rich_help_panel=FILES),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on stdout.")]


def _show_version(wanted: bool) -> None:
    if wanted:
        from pathe import __version__

        out.print(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version."),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks (any command).")] = False,
) -> None:
    """Knowledge-graph embeddings without an entity table.

    Start with [cyan]pathe analyze DATA[/]: is this method right for your graph?
    """


@app.command()
def analyze(
    data: Data,
    as_json: Json = False,
    plot: Annotated[
        Path | None, typer.Option(help="Also draw it, e.g. to [cyan]graph.png[/].")
    ] = None,
    split: Split = None,
    seed: Seed = 0,
    allow_unseen: AllowUnseen = False,
    columns: Columns = None,
    header: Header = None,
    delimiter: Delimiter = None,
    on_error: OnErrorOption = OnError.stop,
) -> None:
    """Describe a graph and say how well the method suits it.

    Counts, degrees, relations, how far relational contexts tell entities apart, leakage between
    splits, dead ends and the reach of walks.
    """
    kg = _read(data, split, seed, allow_unseen, columns, header, delimiter, on_error)
    from pathe.analysis import analyze as analyze_graph

    with err.status("analysing ..."):
        result = analyze_graph(kg, seed=seed)
    if plot:
        from pathe.plots import plot_analysis

        plot_analysis(result, plot)
        err.print(f"drawn to {plot}")
    if as_json:
        _print_json(result)
    else:
        from pathe import show

        for part in show.analysis(result):
            out.print(part)


@app.command()
def paths(
    data: Data,
    entity: Annotated[
        list[str] | None,
        typer.Option(help="Whose paths; may be given again. Default: three random entities."),
    ] = None,
    n: Annotated[int, typer.Option("-n", "--n-paths", min=1, help="Paths an entity.")] = 5,
    max_hops: Annotated[int, typer.Option(min=1, help="Longest walk, in edges.")] = 10,
    form: Annotated[
        Form,
        typer.Option(
            help="[cyan]joined[/]: an incoming and an outgoing walk meet at the entity; "
            "[cyan]single[/]: one walk in either direction."
        ),
    ] = Form.joined,
    unique: Annotated[
        bool, typer.Option("--unique", help="Mine a store without repeats, as the paper does.")
    ] = False,
    as_json: Json = False,
    split: Split = None,
    seed: Seed = 0,
    allow_unseen: AllowUnseen = False,
    columns: Columns = None,
    header: Header = None,
    delimiter: Delimiter = None,
    on_error: OnErrorOption = OnError.stop,
) -> None:
    """Show random paths through entities: what the model reads to describe them."""
    kg = _read(data, split, seed, allow_unseen, columns, header, delimiter, on_error)
    import torch

    from pathe.graph import build_graph
    from pathe.paths import mine_paths, path_steps, sample_paths

    if entity:
        ids = torch.tensor([kg.entities.id(name) for name in entity])
    else:
        generator = torch.Generator().manual_seed(seed)
        ids = torch.randperm(kg.n_entities, generator=generator)[:3]
    graph = build_graph(kg.train, kg.n_entities, kg.n_relations)
    if unique:
        with err.status("mining paths ..."):
            store = mine_paths(graph, n, max_hops, seed=seed, form=form.value, entities_E=ids)
        batch = store.draw(torch.arange(len(ids)), n, seed=seed)
    else:
        batch = sample_paths(graph, ids, n, max_hops, seed=seed, form=form.value)
    found: dict[str, list[list[tuple[str, str, str]]]] = {
        kg.entities[int(e)]: [
            [
                (kg.entities[h], kg.relations[r], kg.entities[t])
                for h, r, t in path_steps(batch, u, k)
            ]
            for k in range(n)
        ]
        for u, e in enumerate(ids.tolist())
    }
    if unique:  # a store repeats its paths where more are asked for than there are
        found = {
            name: [path for i, path in enumerate(rows) if path not in rows[:i]]
            for name, rows in found.items()
        }
    if as_json:
        _print_json(found)
        return
    for name, rows in found.items():
        out.print(f"[bold]{escape(name)}[/]")
        for steps in rows:
            out.print("  " + _path_text(name, steps), soft_wrap=True)


@app.command()
def convert(
    data: Data,
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="A new folder for the files.", show_default=False),
    ],
    suffix: Annotated[
        str,
        typer.Option(help="Kind of file, e.g. [cyan].txt.gz[/], [cyan].csv[/], [cyan].parquet[/]."),
    ] = ".txt",
    split: Split = None,
    seed: Seed = 0,
    allow_unseen: AllowUnseen = False,
    columns: Columns = None,
    header: Header = None,
    delimiter: Delimiter = None,
    on_error: OnErrorOption = OnError.stop,
) -> None:
    """Write a graph as train/valid/test files: to keep a split, or to change the format."""
    kg = _read(data, split, seed, allow_unseen, columns, header, delimiter, on_error)
    kg.save(folder, suffix)
    sizes = ", ".join(f"{name} {len(getattr(kg, name)):,}" for name in ("train", "valid", "test"))
    err.print(f"wrote {folder}: {sizes} triples; fingerprint {kg.fingerprint()}")


def _read(
    data: str,
    split: str | None,
    seed: int,
    allow_unseen: bool,
    columns: str | None,
    header: bool | None,
    delimiter: str | None,
    on_error: OnError,
) -> KnowledgeGraph:
    from pathe.datasets import KnowledgeGraph
    from pathe.readers import ReadOptions

    wanted = None
    if columns is not None:
        parts = tuple(columns.split(","))
        if len(parts) != 3:
            raise DataError(f"--columns takes three columns, head,relation,tail; got {columns!r}.")
        wanted = (parts[0], parts[1], parts[2])
    if delimiter is not None:
        delimiter = {"\\t": "\t", "tab": "\t", "space": " ", "comma": ","}.get(delimiter, delimiter)
    options = ReadOptions(wanted, header, delimiter, on_error.value)
    with err.status(f"reading {escape(data)} ..."):
        kg = KnowledgeGraph.read(
            data,
            split=_fractions(split),
            seed=seed,
            allow_unseen=allow_unseen,
            options=options,
        )
    _report(kg.report)
    return kg


def _fractions(split: str | None) -> tuple[float, float, float] | None:
    if split is None:
        return None
    try:
        train, valid, test = (float(x) for x in split.split(","))
    except ValueError:
        raise DataError(
            f"--split takes three fractions, train,valid,test, such as 0.8,0.1,0.1; got {split!r}."
        ) from None
    return train, valid, test


def _report(report: ReadReport) -> None:
    """What the reader left out, in words, on stderr."""
    notes = {
        "duplicate triples removed": report.duplicates,
        "triples with a literal left out": report.literals,
        "bad lines skipped": report.skipped,
        "valid/test triples with an unknown relation dropped": report.unknown_relations,
        "header lines": report.header_lines,
    }
    for text, count in notes.items():
        if count:
            err.print(f"[dim]{count:,} {text}[/]")


def _path_text(focus: str, steps: Any) -> str:
    def name(entity: str) -> str:
        return f"[bold cyan]{escape(entity)}[/]" if entity == focus else escape(entity)

    if not steps:
        return name(focus)
    arrows = "".join(f" [dim]-[/]{escape(r)}[dim]->[/] {name(t)}" for _, r, t in steps)
    return name(steps[0][0]) + arrows


def _print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def main() -> None:
    """Runs the command line: what a user can put right ends with exit code 2 and no traceback."""
    args = [a for a in sys.argv[1:] if a != "--debug"]
    if len(args) < len(sys.argv) - 1:
        app(args)
        return
    try:
        app(args)
    except PatheError as error:
        err.print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
    except OSError as error:
        err.print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True)
    except MemoryError:
        err.print("[bold red]error:[/] out of memory", soft_wrap=True)
    raise SystemExit(2)
