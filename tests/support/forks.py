"""Commands in forked children of a process that has imported everything: killed, failed, limited.

A child starts in milliseconds. Its file operations in the folder that it works in are counted by an
audit hook, and the n-th of them can be the end of the child, or an error.

`python forks.py` is that process: it reads lists of runs as lines of JSON and answers each list
with their ends.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
LIMIT = 120  # seconds after which a command counts as hanging
HANGS = "hangs"


@dataclass(frozen=True)
class Run:
    """A command to run in a folder, and what happens to it."""

    words: Sequence[str]
    folder: str
    kill_at: int | None = None  # the file operation, from 1, before which SIGKILL comes
    fail_at: int | None = None  # the one from which all fail
    code: int = 0  # the error number of these
    signum: int | None = None  # a signal that is sent
    after: float = 0.0  # after so many seconds
    memory: int | None = None  # bytes that the command may take
    wait: float = 0.0  # seconds before it starts
    small: bool = False  # with tiny shards and pieces


@dataclass(frozen=True)
class End:
    """How a run has ended: exit code, or minus the signal; or that it hangs."""

    code: int | str
    seconds: float
    said: str
    operations: list[str]
    memory: int = 0  # bytes of addresses that it took at most, if it has come to its end

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL


class Forks:
    """A process that forks a child per run."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1"},
        )  # fmt: skip

    def __call__(self, *runs: Run) -> list[End]:
        """Starts all of them at once; returns how they have ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([asdict(run) for run in runs]) + "\n")
        self._process.stdin.flush()
        return [End(**end) for end in json.loads(self._process.stdout.readline())]

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()


def _serve() -> None:
    """Imports everything, then runs what is asked for."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _import_all()
    for line in sys.stdin:
        runs = [Run(**one) for one in json.loads(line)]
        answers.write(json.dumps([asdict(end) for end in _run_all(runs)]) + "\n")
        answers.flush()


def _import_all() -> None:
    import importlib
    import pkgutil
    from functools import cache

    import typer

    import pathe
    from pathe.cli import main
    from pathe.reports import plots

    for found in pkgutil.walk_packages(pathe.__path__, "pathe."):
        if not found.name.startswith(("pathe.kernels.gpu.", "pathe.cluster.worker", "pathe.__")):
            importlib.import_module(found.name)
    for name in ("lightning.pytorch", "pyarrow.parquet", "pyoxigraph", "tensorboard", "optuna"):
        with suppress(ModuleNotFoundError):
            importlib.import_module(name)
    typer.main.get_command = cache(typer.main.get_command)  # building all commands takes long
    typer.main.get_command(main.app)
    from pathe.core.files import replacing
    from pathe.core.hardware import commit

    commit()
    gc.freeze()  # collections in children would copy all of it

    def not_drawn(path: Path, *_: Any) -> None:
        with replacing(path) as aside:
            aside.write_text("not drawn")

    plots.plot_figure = not_drawn  # type: ignore[assignment]


def _run_all(runs: list[Run]) -> list[End]:
    outputs = [os.memfd_create("said") for _ in runs]
    counts = [os.memfd_create("counted") for _ in runs]
    peaks = [os.memfd_create("peak") for _ in runs]
    begin = time.monotonic()
    waiting = {
        _fork(run, *fds): i
        for i, (run, *fds) in enumerate(zip(runs, outputs, counts, peaks, strict=True))
    }
    signalled, ends = set(), [(0, 0.0)] * len(runs)
    while waiting:
        now = time.monotonic() - begin
        for process, i in list(waiting.items()):
            signum = runs[i].signum
            if signum is not None and now > runs[i].wait + runs[i].after and i not in signalled:
                signalled.add(i)
                os.kill(process, signum)
            if now > LIMIT:
                os.kill(process, signal.SIGKILL)
            found, status = os.waitpid(process, os.WNOHANG)
            if found:
                del waiting[process]
                code = HANGS if now > LIMIT else os.waitstatus_to_exitcode(status)
                ends[i] = (code, now - runs[i].wait)
        time.sleep(0.001)
    said = [_content(fd) for fd in outputs]
    counted = [_content(fd).splitlines() for fd in counts]
    memory = [int(_content(fd) or 0) for fd in peaks]
    return [End(*end, *more) for end, *more in zip(ends, said, counted, memory, strict=True)]  # type: ignore[arg-type]


def _content(fd: int) -> str:
    os.lseek(fd, 0, os.SEEK_SET)
    with os.fdopen(fd, "rb") as file:
        return file.read().decode(errors="replace")


def _fork(run: Run, output: int, counted: int, peak: int) -> int:
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.stdout = os.fdopen(1, "w", encoding="utf-8")
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", buffering=1)
        time.sleep(run.wait)
        os.chdir(run.folder)
        before = _addresses("VmSize")
        code = _command(run, counted)
        os.write(peak, str(_addresses("VmPeak") - before).encode())
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc(file=sys.stderr)
    finally:
        os._exit(code)


def _command(run: Run, counted: int) -> int:
    from pathe.cli.main import main

    sys.argv = ["pathe", *run.words]
    with _small() if run.small else nullcontext():
        _watch(run, counted)
        if run.memory is not None:
            resource.setrlimit(resource.RLIMIT_AS, (_addresses("VmSize") + run.memory,) * 2)
        try:
            main()
        except SystemExit as ended:
            return ended.code if isinstance(ended.code, int) else int(bool(ended.code))
    return 0


def _addresses(kind: str) -> int:
    """Returns bytes of addresses of this process: VmSize, or VmPeak for the most so far."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(kind))


@contextmanager
def _small() -> Iterator[None]:
    """Makes pieces of files and shards of jobs tiny, so that there are several of each."""
    from unittest import mock

    from pathe.cluster import work
    from pathe.graph import named_paths
    from pathe.model import featurizer, scorer
    from pathe.predict import predictor

    sys.path.insert(0, str(Path(__file__).parents[1]))
    from support.prepared import tiny_pieces

    with (
        tiny_pieces(400, 100),
        mock.patch.object(work, "ENTITIES", 20),
        mock.patch.object(work, "BLOCK", 20),
        mock.patch.object(scorer, "BLOCK", 20),
        mock.patch.object(named_paths, "AT_ONCE", 60),
        mock.patch.object(predictor, "AT_ONCE", 5),
        mock.patch.object(work, "entities_at_once", return_value=4),
        mock.patch.object(featurizer, "entities_at_once", return_value=4),
    ):
        yield


def _opened(number: int) -> Path:
    return Path(f"/proc/self/fd/{number}").readlink()


def _watch(run: Run, counted: int) -> None:
    """Counts file operations in the folder; one is the last, or the first that fails."""
    root, n = run.folder.rstrip("/") + "/", 0

    def count(what: str, path: str) -> None:
        nonlocal n
        path = os.path.normpath(f"{root}{path}" if path[:1] != "/" else path)
        if not path.startswith(root):
            return
        n += 1
        os.write(counted, f"{what} {path[len(root) :]}\n".encode(errors="replace"))
        if n == run.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if run.fail_at is not None and n >= run.fail_at:
            raise OSError(run.code, os.strerror(run.code), path)

    def place(path: Any, folder: int) -> str:
        path = os.fsdecode(path)
        return str(_opened(folder) / path) if folder >= 0 else path

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = args
            writes = any(c in mode for c in "wax+") if isinstance(mode, str) else flags & WRITES
            if writes and isinstance(path, str | bytes | os.PathLike):
                count("open", os.fsdecode(path))
        elif event in CHANGES:
            folder = args[-1] if isinstance(args[-1], int) and event != "os.truncate" else -1
            count(event, place(args[0], folder))

    real = os.fsync

    def fsync(opened: int) -> None:
        count("fsync", str(_opened(opened)))
        real(opened)

    os.fsync = fsync  # type: ignore[assignment]
    sys.addaudithook(hook)


if __name__ == "__main__":
    _serve()
