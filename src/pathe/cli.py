"""The command line: one command a verb. Only this module and its options print."""

from __future__ import annotations

import atexit
import gc
import sys
from typing import Annotated

import typer
from rich.markup import escape

from pathe.commands_graph import analyze, convert, paths
from pathe.commands_lab import reproduce, tune
from pathe.commands_model import config, evaluate, train
from pathe.commands_use import embed, missing, predict, pull, push, rules, schema, similar
from pathe.errors import Interrupted, PatheError
from pathe.options import (
    err,
    out,
    prepare_output,
)

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


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version."),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks (any command).")] = False,
) -> None:
    """Knowledge-graph embeddings without an entity table.

    Start with [cyan]pathe analyze DATA[/]: is this method right for your graph? Then
    [cyan]pathe train DATA[/], [cyan]pathe evaluate[/] what came out, and ask it with
    [cyan]pathe predict[/].
    """


PANELS = {
    "A graph": (analyze, paths, convert),
    "A model": (train, evaluate, config, push, pull),
    "Using it": (predict, similar, rules, missing, embed, schema),
    "Research": (reproduce, tune),
}
for panel, commands in PANELS.items():
    for command in commands:
        app.command(rich_help_panel=panel)(command)


def main() -> None:
    """Runs the command line: what a user can put right ends with exit code 2 and no traceback."""
    prepare_output()
    gc.set_threshold(200_000)  # imports make a million objects that stay: few need looking at
    atexit.register(gc.freeze)  # and none at the end
    args = [a for a in sys.argv[1:] if a != "--debug"]
    if len(args) < len(sys.argv) - 1:
        app(args)
        return
    try:
        app(args)
    except Interrupted as stopped:
        err.print(escape(str(stopped)), soft_wrap=True)
        raise SystemExit(130) from None
    except PatheError as error:
        _fail(str(error))
    except OSError as error:
        _fail(str(error))
    except MemoryError:
        _fail("out of memory")
    except RuntimeError as error:
        if "allocate" not in str(error):  # torch's way to say it
            raise
        _fail("out of memory: ask for less at once")


def _fail(text: str) -> None:
    err.print(f"[bold red]error:[/] {escape(text)}", soft_wrap=True)
    raise SystemExit(2)
