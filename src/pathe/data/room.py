"""Ends reading with an error in words before a file fills the memory."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path

import pyarrow as pa

from pathe.core.errors import DataError, PatheError

MOST = "PATHE_MAX_MEMORY"  # the environment variable with the GiB that reading a file may take
SMALL = 256 << 20  # bytes that it may take anyway
GIB = 1 << 30


class Room:
    """The memory that is left for reading a file."""

    def __init__(self, path: Path) -> None:
        self._path, self._before, self._most = path, _resident(), _most()

    def check(self, needed: int = 0) -> None:
        """Raises DataError unless `needed` more bytes, and half of those taken so far, are free.

        What was read is copied before it is a graph, so some room has to be left.
        """
        taken = max(_resident() - self._before, 0)
        if taken + needed < SMALL:
            return
        free = _free() if self._most is None else self._most - taken
        if free < max(needed, taken // 2):
            raise DataError(
                f"{self._path}: reading it takes {(taken + needed) / GIB:.1f} GiB of memory so far "
                f"and needs more; {max(free, 0) / GIB:.1f} GiB are left. `pathe prepare` reads "
                "large files in 2 GiB. To allow more, set the environment variable "
                f"{MOST} to a number of GiB."
            )


@cache
def check_threads() -> None:
    """Raises PatheError unless the threads that Arrow reads text with can be started.

    Arrow would wait forever for a thread that can't. Once its threads run, they stay.
    """
    wanted = pa.cpu_count() + 1  # those that parse, and one that reads ahead
    done = threading.Event()
    started: list[threading.Thread] = []
    try:
        for _ in range(wanted):
            thread = threading.Thread(target=done.wait, daemon=True)
            thread.start()
            started.append(thread)
    except RuntimeError as error:
        raise PatheError(
            f"Reading text takes {wanted} threads, but only {len(started)} can be started: there "
            "is too little memory, or a limit on processes. Raise that limit, or set the "
            "environment variable OMP_NUM_THREADS to a smaller number."
        ) from error
    finally:
        done.set()
        for thread in started:
            thread.join()


def _most() -> int | None:
    text = os.environ.get(MOST)
    if text is None:
        return None
    with suppress(ValueError, OverflowError):
        if (most := int(float(text) * GIB)) > 0:
            return most
    raise DataError(f"{MOST}: expected a number of GiB above 0; got {text!r}.")


def _free() -> int:
    import torch

    from pathe.core.hardware import free_memory

    return free_memory(torch.device("cpu"))


def _resident() -> int:
    """Returns the bytes of memory that this process takes, 0 where the system doesn't say."""
    with suppress(OSError):
        pages = Path("/proc/self/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    return 0
