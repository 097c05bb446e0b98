"""Output to the terminal: text and JSON on stdout, progress and messages on stderr."""

from __future__ import annotations

import io
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console, RenderableType

from pathe.core.errors import PatheError

if TYPE_CHECKING:
    from pathe.core.types import Progress
    from pathe.data.names import Names
    from pathe.data.row_files import Columns, Write


class _Console(Console):
    """Rich's console, except that callers handle a closed pipe."""

    def on_broken_pipe(self) -> None:
        raise


out = _Console(highlight=False, emoji=False)
err = _Console(highlight=False, emoji=False, stderr=True)
LOG_SECONDS = 30  # between lines about progress where there is no terminal
PIPED_WIDTH = 1000  # for files and pipes: no table or sentence is wider


def prepare_output() -> None:
    """Escapes characters that a stream can't encode; doesn't wrap piped output."""
    for name in ("stdin", "stdout", "stderr"):  # in the order of their numbers
        if getattr(sys, name) is None:  # closed, as by >&-: nobody wants to read it
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    err.file = sys.stderr  # as it is now: loading PyKEEN replaces sys.stderr
    for console in (out, err):
        if not console.is_terminal and "COLUMNS" not in os.environ:
            console.width = PIPED_WIDTH


def print_parts(parts: Iterable[RenderableType], soft_wrap: bool = False) -> None:
    """Prints tables and text on stdout."""
    with _piped():
        for part in parts:
            out.print(part, soft_wrap=soft_wrap)


def print_json(value: Any) -> None:
    """Prints a value as JSON on stdout."""
    with _piped():
        sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def print_result(value: Any, parts: Iterable[RenderableType], as_json: bool) -> None:
    """Prints a value as JSON, or the tables and text that show it."""
    if as_json:
        print_json(value)
    else:
        print_parts(parts)


@contextmanager
def rows_out(
    path: Path | None,
    columns: Columns,
    suffix: Literal[".json", ".jsonl", ".tsv"],
    names: Names | None = None,
) -> Iterator[Write]:
    """Yields a function that writes rows to a file, or to stdout in the format of the suffix.

    `names` has the prefixes for Turtle files.
    """
    from pathe.data.row_files import row_writer, text_writer

    if path is not None:
        with row_writer(path, columns, names) as write:
            yield write
        return
    if suffix == ".json":
        rows: list[dict[str, Any]] = []
        yield rows.extend
        print_json(rows)
        return
    with _piped():
        yield text_writer(sys.stdout, suffix, columns)


def tell(text: str) -> None:
    """Prints a line on stderr as it is, without markup."""
    err.print(text, markup=False, soft_wrap=True)


@contextmanager
def progress_bar(title: str) -> Iterator[Progress]:
    """Shows a progress bar on stderr; yields a function of (done, total) that moves it."""
    from rich.progress import Progress as Bar

    with Bar(console=err, transient=True, disable=not err.is_terminal) as bar:
        job = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(job, completed=done, total=total)


@contextmanager
def phase_bar(title: str) -> Iterator[Progress]:
    """Shows the progress of one of several phases, and the time left; in a log, now and then."""
    started = told = time.monotonic()

    def log(done: int, total: int | None) -> None:
        nonlocal told
        now = time.monotonic()
        if now - told >= LOG_SECONDS and done and total:
            left = (now - started) * (total - done) / done
            tell(f"{title}: {done / total:.0%}, {left / 60:.1f} min left")
            told = now

    if err.is_terminal:
        with progress_bar(title) as move:
            yield move
    else:
        yield log
    tell(f"{title}: {time.monotonic() - started:.1f} s")


@contextmanager
def _piped() -> Iterator[None]:
    """Exits quietly if the reader of our output closes the pipe, as `head` does."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        _discard()
        raise SystemExit(0) from None
    except OSError as error:
        if error.filename is not None:  # of a file, not of stdout
            raise
        _discard()
        raise PatheError(f"stdout: can't be written ({error.strerror or error})") from None


def _discard() -> None:
    """Throws away what is still to be written to stdout, which can't take it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
