"""The command line in this process: no start-up, the same output, errors and exit codes."""

from __future__ import annotations

import io
import json
import os
import re
import sys
import traceback
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import typer

from pathe.cli import output
from pathe.cli.main import main

COMMAND = [
    sys.executable,
    "-c",
    "from pathe.cli.main import main; main()",
]  # as a process of its own


# Building all commands from their functions takes longer than many a command.
built = cache(typer.main.get_command)


def pathe(*args: str | Path, cwd: Path | None = None, **env: str) -> SimpleNamespace:
    """Runs a command as a process would: (returncode, stdout, stderr)."""
    coding = env.get("PYTHONIOENCODING", "utf-8")
    out, err = (io.TextIOWrapper(io.BytesIO(), coding, write_through=True) for _ in range(2))
    before, code = Path.cwd(), 0
    consoles = (output.out, output.err)
    kept = [(console._width, console._file) for console in consoles]
    argv = ["pathe", *map(str, args)]
    with (
        redirect_stdout(out),
        redirect_stderr(err),
        mock.patch.object(sys, "argv", argv),
        mock.patch.object(typer.main, "get_command", built),
        mock.patch.dict(os.environ, env),
    ):
        try:
            os.chdir(cwd or before)
            main()
        except SystemExit as stopped:
            code = stopped.code if isinstance(stopped.code, int) else bool(stopped.code)
        except Exception:
            traceback.print_exc()
            code = 1
        finally:
            os.chdir(before)
            for console, (width, file) in zip(consoles, kept, strict=True):
                console._width, console._file = width, file
    texts = [stream.buffer.getvalue().decode() for stream in (out, err)]  # type: ignore[attr-defined]
    return SimpleNamespace(returncode=int(code), stdout=texts[0], stderr=texts[1])


def refused(*args: str | Path, cwd: Path | None = None) -> str:
    """The error of a command that must end with code 2, one error, no traceback, no output."""
    found = pathe(*args, cwd=cwd)
    assert found.returncode == 2, found.stderr
    assert found.stdout == ""
    assert "Traceback" not in found.stderr
    if {"--json", "--jsonl"} & set(map(str, args)):  # one object, in the last line
        told = json.loads(found.stderr.splitlines()[-1])
        assert set(told) >= {"error"}
        return re.sub(r"\s+", " ", json.dumps(told, ensure_ascii=False))
    assert found.stderr.count("error:") == 1
    return re.sub(r"\s+", " ", found.stderr)
