"""The `pathe` command: all subcommands in one app, and errors without tracebacks."""

from __future__ import annotations

import atexit
import gc
import inspect
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.markup import escape

from pathe.cli.facts import check, classify, missing
from pathe.cli.graph import analyze, convert, paths, prepare
from pathe.cli.lab import reproduce, tune
from pathe.cli.model import config, evaluate, train
from pathe.cli.output import err, out, prepare_output, tell
from pathe.cli.pretrain import pretrain
from pathe.cli.serve import serve
from pathe.cli.use import embed, predict, pull, push, rules, schema, similar
from pathe.core.errors import Interrupted, PatheError, lacks_memory
from pathe.core.files import FULL, reason

OUT_OF_MEMORY = (
    "out of memory: request less at once, e.g. smaller batches, or use a machine with more memory"
)
MOST_SHOWN = 2000  # characters of an error

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
    """Runs a command; errors that the user can fix exit with code 2 and no traceback.

    Ctrl-C exits with code 130, SIGTERM with 143. With --json or --jsonl, the last line on stderr is
    the error as a JSON object.
    """
    prepare_output()
    gc.set_threshold(200_000)  # imports create a million objects that stay: scan them rarely
    atexit.register(gc.freeze)  # and not at exit
    threading.excepthook = _end_of_thread
    args = [a for a in sys.argv[1:] if a != "--debug"]
    as_json = any(a in ("--json", "--jsonl") for a in args)
    if len(args) < len(sys.argv) - 1:
        with _stoppable():
            app(args)
        return
    try:
        with _stoppable() as signals:
            _guarded(args, as_json, signals)
    except MemoryError as error:  # while another error was being reported
        _fail(error, OUT_OF_MEMORY, 2, as_json)


def _guarded(args: list[str], as_json: bool, signals: list[int]) -> None:
    """Runs a command and reports its error; `signals` are those received so far."""
    try:
        _run(args, as_json)
    except Exception as error:
        if signals and not isinstance(error, Interrupted):  # Python may raise another error instead
            raise SystemExit(128 + signals[-1]) from None
        code, text = _explain(error)
        _fail(error, text, code, as_json)


def _run(args: list[str], as_json: bool) -> None:
    """Runs a command; wrong options are raised instead of shown with JSON, or if they are long."""
    shows = not as_json and max(map(len, args), default=0) <= MOST_SHOWN
    try:
        code = app(args, standalone_mode=shows)
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):  # of `pathe --help | head -1`
            raise SystemExit(0) from None
        raise
    if isinstance(code, int):
        raise SystemExit(code)


@contextmanager
def _stoppable() -> Iterator[list[int]]:
    """Ends a command on Ctrl-C and SIGTERM with their exit codes, after it has cleaned up.

    Yields a list of the signals that have come.
    """
    signals: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return

    def stop(signum: int, frame: Any) -> None:
        signals.append(signum)
        raise SystemExit(128 + signum)

    def ignored(found: sys.UnraisableHookArgs) -> None:
        """Sends a signal again that came where Python ignores exceptions, as in `__del__`."""
        if signals and isinstance(found.exc_value, SystemExit):
            again = threading.Timer(0.01, os.kill, (os.getpid(), signals[-1]))
            again.daemon = True
            again.start()
        else:
            hook(found)

    names = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}
    before = {signum: signal.signal(signum, stop) for signum in names}
    hook, sys.unraisablehook = sys.unraisablehook, ignored
    try:
        yield signals
    except SystemExit as ended:
        for signum, name in names.items():
            if ended.code == 128 + signum and not isinstance(ended.__context__, Interrupted):
                tell(f"stopped by {name}")
        raise
    finally:
        sys.unraisablehook = hook
        for signum, old in before.items():
            signal.signal(signum, old)


def _end_of_thread(ended: threading.ExceptHookArgs) -> None:
    """Hides that a thread of TensorBoard can't write: the command fails with the same error."""
    ours = not type(ended.thread).__module__.startswith("tensorboard")
    if ours or not issubclass(ended.exc_type, OSError):
        threading.__excepthook__(ended)


def _explain(error: Exception) -> tuple[int, str]:
    """Returns the exit code and the text of an error; raises it again if it is a bug."""
    match error:
        case Interrupted():
            return error.code, str(error)
        case OSError() if error.errno in FULL:
            where = f"{error.filename}: " if error.filename else ""
            return 2, f"{where}can't be written ({reason(error)})"
        case PatheError():
            return 2, str(error)
        case _ if lacks_memory(error):
            return 2, OUT_OF_MEMORY
        case OSError():
            return 2, str(error)
    if hasattr(error, "format_message"):  # of an option
        return 2, str(error.format_message())
    raise error


def _fail(error: Exception, text: str, code: int, as_json: bool) -> None:
    if len(text) > MOST_SHOWN:
        text = f"{text[:MOST_SHOWN]} ... ({len(text) - MOST_SHOWN:,} more characters)"
    if as_json:
        about = {"error": text, "kind": type(error).__name__, "exit_code": code}
        sys.stderr.write(json.dumps(about, ensure_ascii=False) + "\n")
    elif text == OUT_OF_MEMORY:  # there may be too little for anything else
        sys.stderr.write(f"error: {text}\n")
    elif isinstance(error, Interrupted):
        err.print(escape(text), soft_wrap=True)
    else:
        err.print(f"[bold red]error:[/] {escape(text)}", soft_wrap=True)
    raise SystemExit(code) from error
