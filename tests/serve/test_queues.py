"""Queues of work: batches, limits, time."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from pathe.serve.queues import Busy, TookTooLong, WorkQueue


def doubled(items, job):
    return [2 * item for item in items]


def test_waiting_items_with_equal_keys_are_done_together():
    queue, started, go, sizes = WorkQueue("test", 100), threading.Event(), threading.Event(), []

    def wait(items, job):
        started.set()
        go.wait(5)
        return items

    def work(items, job):
        sizes.append(len(items))
        return doubled(items, job)

    async def ask():
        first = asyncio.create_task(queue.do("a", 0, wait, 5))
        await asyncio.to_thread(started.wait, 5)
        rest = [asyncio.create_task(queue.do(i % 2, i, work, 5)) for i in range(10)]
        await asyncio.sleep(0.05)
        go.set()
        return await first, await asyncio.gather(*rest)

    assert asyncio.run(ask()) == (0, [2 * i for i in range(10)])
    assert sizes == [5, 5]
    queue.close()


def test_errors_reach_the_request_they_belong_to():
    queue = WorkQueue("test", 100)

    def work(items, job):
        return [ValueError("odd") if item % 2 else item for item in items]

    async def ask():
        return await asyncio.gather(
            *(queue.do("a", i, work, 5) for i in range(4)), return_exceptions=True
        )

    found = asyncio.run(ask())
    assert [type(result) for result in found] == [int, ValueError, int, ValueError]

    def fails(items, job):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(queue.do("a", 1, fails, 5))
    assert asyncio.run(queue.do("a", 1, doubled, 5)) == 2  # the thread goes on
    queue.close()


def test_too_much_work_is_refused_and_time_is_limited():
    queue, go = WorkQueue("test", 2), threading.Event()

    def wait(items, job):
        while not go.is_set():
            job.progress(0, 1)
            time.sleep(0.01)
        return items

    async def ask():
        tasks = [asyncio.create_task(queue.do(object(), i, wait, 0.3)) for i in range(1)]
        await asyncio.sleep(0.1)  # the first one is running
        tasks += [asyncio.create_task(queue.do(object(), i, doubled, 5)) for i in range(2)]
        await asyncio.sleep(0.05)
        with pytest.raises(Busy, match="waiting"):
            await queue.do(object(), 3, doubled, 5)
        return await asyncio.gather(*tasks, return_exceptions=True)

    found = asyncio.run(ask())
    assert isinstance(found[0], TookTooLong)  # it never ends by itself: it was cancelled
    assert found[1:] == [0, 2]
    queue.close()


def test_a_closed_queue_takes_no_work():
    queue = WorkQueue("test", 2)
    queue.close()
    with pytest.raises(Busy, match="shutting down"):
        asyncio.run(queue.do("a", 1, doubled, 5))
