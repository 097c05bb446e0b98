"""Queues of work off the event loop: bounded, micro-batched, cancelled when nobody waits."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pathe.core.errors import PatheError

T = TypeVar("T")
R = TypeVar("R")


class Busy(PatheError):
    """Too much work is waiting."""


class TookTooLong(PatheError):
    """A request ran into its time limit."""


class Cancelled(Exception):
    """Ends work that nobody waits for any more; raised by `Job.progress`."""


@dataclass(eq=False)
class Job(Generic[T, R]):
    """One request's part of a batch."""

    key: Hashable
    item: T
    work: Callable[[list[T], Job[T, R]], list[R]]
    done: Future[R] = field(default_factory=Future)
    stopped: bool = False

    def progress(self, done: int, total: int) -> None:
        """Ends the work if its request was given up; long computations call it now and then."""
        if self.stopped:
            raise Cancelled


class WorkQueue:
    """A thread that does the work of requests; those with equal keys are done together."""

    def __init__(self, name: str, most_waiting: int, at_once: int = 64) -> None:
        self.most_waiting, self.at_once = most_waiting, at_once
        self._jobs: deque[Job[Any, Any]] = deque()
        self._wake = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=f"pathe-{name}", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        return len(self._jobs)

    async def do(
        self,
        key: Hashable,
        item: T,
        work: Callable[[list[T], Job[T, R]], list[R]],
        seconds: float,
    ) -> R:
        """Returns the result of an item; `work` gets all waiting items with the same key.

        A result that is an exception is raised. Raises Busy if too much is waiting, and TookTooLong
        after the given time; then the work is ended, if it calls `Job.progress`.
        """
        job = Job(key, item, work)
        with self._wake:
            if self._closed:
                raise Busy("The server is shutting down.")
            if len(self._jobs) >= self.most_waiting:
                raise Busy(f"{len(self._jobs):,} requests are waiting. Try again in a moment.")
            self._jobs.append(job)
            self._wake.notify()
        try:
            return await asyncio.wait_for(asyncio.wrap_future(job.done), seconds)
        except asyncio.TimeoutError:
            raise TookTooLong(f"No answer within {seconds:g} seconds. Ask for less.") from None
        finally:
            job.stopped = True  # if it isn't done: the time is up, or the client has gone

    def close(self, seconds: float = 5.0) -> None:
        """Finishes what is running; what waits fails."""
        with self._wake:
            self._closed = True
            for job in self._jobs:
                job.done.cancel()
            self._jobs.clear()
            self._wake.notify()
        self._thread.join(seconds)

    def _run(self) -> None:
        while (batch := self._next()) is not None:
            running = [job for job in batch if job.done.set_running_or_notify_cancel()]
            if not running:
                continue
            try:
                results = running[0].work([job.item for job in running], running[0])
            except BaseException as error:  # whatever it is, the requests get it
                results = [error] * len(running)
            for job, result in zip(running, results, strict=True):
                if isinstance(result, BaseException):
                    job.done.set_exception(result)
                else:
                    job.done.set_result(result)

    def _next(self) -> list[Job[Any, Any]] | None:
        """Waits for work; returns the next jobs that can be done together, None at the end."""
        with self._wake:
            while not self._jobs and not self._closed:
                self._wake.wait()
            if not self._jobs:
                return None
            key = self._jobs[0].key
            batch = [job for job in self._jobs if job.key == key][: self.at_once]
            taken = set(map(id, batch))
            self._jobs = deque(job for job in self._jobs if id(job) not in taken)
            return batch
