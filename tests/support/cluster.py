"""Work for the tests of jobs: quick to compute, slow or fatal on request."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from pathe.cluster.job import Compute, Job, shards_of


@dataclass(frozen=True)
class Squares:
    """Squares numbers. The first process that gets the shard `fatal` is killed there.

    Without `marks`, every process is.

    Nodes with PATHE_TEST_FULL in their environment have a full disk.
    """

    seconds: float = 0.0
    fatal: int = -1
    marks: Path | None = None  # for a file that says that it has happened

    def open(self) -> Compute:
        def compute(first: int, stop: int) -> pa.Table:
            if first == self.fatal:
                _die_once(self.marks)
            time.sleep(self.seconds)
            if "PATHE_TEST_FULL" in os.environ:
                Path("/dev/full").write_text("no room")
            return pa.table({"square": [n * n for n in range(first, stop)]})

        return compute


@contextmanager
def _limited() -> Iterator[None]:
    """Limits the memory that is taken meanwhile; Ray itself has what it needs."""
    more = os.environ.get("PATHE_TEST_MEMORY")
    before, hard = resource.getrlimit(resource.RLIMIT_AS)
    if more is not None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * os.sysconf("SC_PAGE_SIZE") + int(more)
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (before, hard))


def _die_once(marks: Path | None) -> None:
    """Kills this process, unless there are marks and another one has been killed here."""
    try:
        if marks is not None:
            (marks / "killed").touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def squares(n: int = 20, size: int = 3, **how) -> Job:
    return Job("squares", Squares(**how), shards_of(n, size), {"settings": {"n": n}})


@dataclass(frozen=True)
class Slowed:
    """Work that takes longer, so that all nodes get a part of it, or is fatal once.

    Nodes with PATHE_TEST_MEMORY in their environment have so many bytes for it.
    """

    work: Any
    seconds: float
    fatal: int = -1
    marks: Path | None = None

    @property
    def source(self) -> Any:
        return self.work.source

    def open(self) -> Compute:
        with _limited():
            compute = self.work.open()

        def slowly(first: int, stop: int) -> pa.Table:
            time.sleep(self.seconds)
            if first == self.fatal and self.marks is not None:
                _die_once(self.marks)
            with _limited():
                return compute(first, stop)

        return slowly
