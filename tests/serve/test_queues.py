"""Queues of work: batches, limits, time."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from pathe.serve.queues import Busy, Cancelled, TookTooLong, WorkQueue


def doubled(items, batch):
    return [2 * item for item in items]


def test_waiting_items_with_equal_keys_are_done_together():
    queue, started, go, sizes = WorkQueue("test", 100), threading.Event(), threading.Event(), []

    def wait(items, batch):
        started.set()
        go.wait(5)
        return items

    def work(items, batch):
        sizes.append(len(items))
        return doubled(items, batch)

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

    def work(items, batch):
        return [ValueError("odd") if item % 2 else item for item in items]

    async def ask():
        return await asyncio.gather(
            *(queue.do("a", i, work, 5) for i in range(4)), return_exceptions=True
        )

    found = asyncio.run(ask())
    assert [type(result) for result in found] == [int, ValueError, int, ValueError]

    def fails(items, batch):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(queue.do("a", 1, fails, 5))
    assert asyncio.run(queue.do("a", 1, doubled, 5)) == 2  # the thread goes on
    queue.close()


def test_too_much_work_is_refused_and_time_is_limited():
    queue, go = WorkQueue("test", 2), threading.Event()

    def wait(items, batch):
        while not go.is_set():
            batch.progress()
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


def test_work_ends_when_the_client_leaves():
    queue, left, ended = WorkQueue("test", 1), threading.Event(), threading.Event()

    def wait(items, batch):
        try:
            while True:
                batch.progress()
                time.sleep(0.01)
        finally:
            ended.set()

    async def ask():
        gone = asyncio.to_thread(left.wait, 5)
        running = asyncio.create_task(queue.do("a", 0, wait, 30, gone))
        await asyncio.sleep(0.1)
        with pytest.raises(Cancelled):  # one that waits makes room at once
            await queue.do("b", 1, doubled, 30, asyncio.sleep(0.05))
        assert len(queue) == 0
        left.set()
        with pytest.raises(Cancelled):
            await running
        assert await queue.do("a", 1, doubled, 5, asyncio.sleep(9)) == 2

    asyncio.run(ask())
    assert ended.is_set()
    queue.close()


def test_a_batch_goes_on_while_one_of_its_requests_waits():
    queue, go = WorkQueue("test", 9), threading.Event()

    def work(items, batch):
        go.wait(5)
        time.sleep(0.2)  # the first request is given up
        batch.progress()
        return doubled(items, batch)

    async def ask():
        blocks = asyncio.create_task(queue.do("a", 0, lambda items, batch: [go.wait(5)], 5))
        await asyncio.sleep(0.05)
        tasks = [asyncio.create_task(queue.do("b", i, work, (0.1, 5)[i])) for i in range(2)]
        await asyncio.sleep(0.05)
        go.set()
        await blocks
        return await asyncio.gather(*tasks, return_exceptions=True)

    first, second = asyncio.run(ask())
    assert isinstance(first, TookTooLong)
    assert second == 2
    queue.close()


def test_committed_work_is_waited_for_and_none_is_committed_too_late():
    queue, made = WorkQueue("test", 9), []

    def write(items, batch):
        before, after = items[0]
        time.sleep(before)
        batch.commit()
        time.sleep(after)
        made.append(items[0])
        return ["made"]

    async def ask():
        assert await queue.do("a", (0, 0.3), write, 0.2) == "made"
        with pytest.raises(TookTooLong):
            await queue.do("a", (0.3, 0), write, 0.2)
        await queue.do("b", 1, doubled, 5)  # the thread has ended the one before

    asyncio.run(ask())
    assert made == [(0, 0.3)]
    queue.close()


def test_a_closed_queue_takes_no_work():
    queue = WorkQueue("test", 2)
    queue.close()
    with pytest.raises(Busy, match="shutting down"):
        asyncio.run(queue.do("a", 1, doubled, 5))
