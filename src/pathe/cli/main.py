"""The `pathe` command: all subcommands in one app, and errors without tracebacks."""

from __future__ import annotations

import atexit
import gc
import inspect
import sys
from collections.abc import Callable
from typing import Annotated

import typer
from rich.markup import escape

from pathe.cli.facts import check, classify, missing
from pathe.cli.graph import analyze, convert, paths, prepare
from pathe.cli.lab import reproduce, tune
from pathe.cli.model import config, evaluate, train
from pathe.cli.output import err, out, prepare_output
from pathe.cli.pretrain import pretrain
from pathe.cli.serve import serve
from pathe.cli.use import embed, predict, pull, push, rules, schema, similar
from pathe.core.errors import Interrupted, PatheError

app = typer.Typer(
    name="pathe",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from pathe import __version__

        out.print(__version__)
        raise typer.Exit


def _paragraphs(command: Callable[..., None]) -> str:
    """Returns a command's docstring with each paragraph on one line, to be wrapped anew."""
    text = inspect.getdoc(command) or ""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def _root(
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version."),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
) -> None:
    """Complete a knowledge graph, with or without training.

    Start with a file of triples (head, relation, tail), your own or one of examples/. A pre-trained
    model answers right away:

    [cyan]pathe analyze examples/europe.csv[/]  (what is in the graph?)

    [cyan]pathe missing examples/europe.csv[/]  (what does it lack?)

    [cyan]pathe check examples/europe.csv[/]  (which facts look wrong?)

    [cyan]pathe predict --data examples/europe.csv --head Paris --relation "lies on"[/]

    [cyan]pathe train examples/europe.csv --split 0.8,0.1,0.1 --out my-run[/]  (fine-tune the model)

    [cyan]pathe COMMAND --help[/] shows an example and all options of a command.
    """


app.callback(help=_paragraphs(_root))(_root)
PANELS = {
    "Graphs": (analyze, paths, convert, prepare),
    "Models": (train, pretrain, evaluate, config, push, pull),
    "Predictions": (predict, missing, classify, check, similar, rules, embed, schema),
    "Server": (serve,),
    "Research": (reproduce, tune),
}
for panel, commands in PANELS.items():
    for command in commands:
        app.command(rich_help_panel=panel, help=_paragraphs(command))(command)


def main() -> None:
    """Runs a command; errors that the user can fix exit with code 2 and no traceback."""
    prepare_output()
    gc.set_threshold(200_000)  # imports create a million objects that stay: scan them rarely
    atexit.register(gc.freeze)  # and not at exit
    args = [a for a in sys.argv[1:] if a != "--debug"]
    if len(args) < len(sys.argv) - 1:
        app(args)
        return
    try:
        app(args)
    except Interrupted as stopped:
        err.print(escape(str(stopped)), soft_wrap=True)
        raise SystemExit(130) from None
    except (PatheError, OSError) as error:
        _fail(str(error))
    except MemoryError:
        _fail("out of memory")
    except RuntimeError as error:
        if "allocate" not in str(error):  # how torch says it
            raise
        _fail("out of memory: request less at once, e.g. smaller batches")


def _fail(text: str) -> None:
    err.print(f"[bold red]error:[/] {escape(text)}", soft_wrap=True)
    raise SystemExit(2)
