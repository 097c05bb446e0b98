"""Queues of work off the event loop: bounded, micro-batched, cancelled when nobody waits."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Hashable
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
    """Ends work that nobody waits for any more; raised by `Batch.progress`."""


@dataclass(eq=False)
class Job(Generic[T, R]):
    """One request's part of a batch."""

    key: Hashable
    item: T
    work: Callable[[list[T], Batch], list[R]]
    done: Future[R] = field(default_factory=Future)
    stopped: bool = False  # nobody waits for it any more
    committed: bool = False  # it will be finished, and its request waits for that
    lock: threading.Lock = field(default_factory=threading.Lock)

    def stop(self) -> bool:
        """Gives the job up, unless it is committed; returns whether it is given up."""
        with self.lock:
            self.stopped = not self.committed
            return self.stopped

    def commit(self) -> bool:
        """Lets its request wait beyond its time limit; returns False if it was given up."""
        with self.lock:
            self.committed = not self.stopped
            return self.committed


@dataclass(frozen=True)
class Batch:
    """The jobs that are done together; work asks it whether to go on."""

    jobs: list[Job[Any, Any]]

    def progress(self, done: int = 0, total: int = 1) -> None:
        """Ends the work if all of its requests were given up; long work calls it now and then."""
        if all(job.stopped for job in self.jobs):
            raise Cancelled

    def commit(self) -> None:
        """Ends the work if all of its requests were given up; otherwise, they wait for its end.

        Work with lasting effects calls it before the first of them: a request that was given up
        has had no effect.
        """
        committed = [job.commit() for job in self.jobs]
        if not any(committed):
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
        work: Callable[[list[T], Batch], list[R]],
        seconds: float,
        gone: Coroutine[Any, Any, Any] | None = None,
    ) -> R:
        """Returns the result of an item; `work` gets all waiting items with the same key.

        A result that is an exception is raised. Raises Busy if too much is waiting, TookTooLong
        after the given time, and Cancelled once `gone` ends: the client has left. Then the work is
        ended at its next `Batch.progress`, unless it has called `Batch.commit`.
        """
        job = Job(key, item, work)
        result = asyncio.wrap_future(job.done)
        left = asyncio.ensure_future(gone or asyncio.Event().wait())
        try:
            self._put(job)
            await asyncio.wait((result, left), timeout=seconds, return_when="FIRST_COMPLETED")
            if result.done() or not job.stop():
                return await result
            if left.done():
                raise Cancelled
            raise TookTooLong(f"No answer within {seconds:g} seconds. Ask for less.")
        finally:
            left.cancel()
            if not result.done() and job.stop():
                result.cancel()
                self._remove(job)

    def close(self, seconds: float = 5.0) -> None:
        """Finishes what is running; what waits fails."""
        with self._wake:
            self._closed = True
            for job in self._jobs:
                job.done.cancel()
            self._jobs.clear()
            self._wake.notify()
        self._thread.join(seconds)

    def _put(self, job: Job[Any, Any]) -> None:
        with self._wake:
            if self._closed:
                raise Busy("The server is shutting down.")
            if len(self._jobs) >= self.most_waiting:
                raise Busy(f"{len(self._jobs):,} requests are waiting. Try again in a moment.")
            self._jobs.append(job)
            self._wake.notify()

    def _remove(self, job: Job[Any, Any]) -> None:
        """Makes room for another job, if this one still waits."""
        with self._wake:
            if job in self._jobs:
                self._jobs.remove(job)

    def _run(self) -> None:
        while (jobs := self._next()) is not None:
            running = [job for job in jobs if job.done.set_running_or_notify_cancel()]
            if not running:
                continue
            try:
                results = running[0].work([job.item for job in running], Batch(running))
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
