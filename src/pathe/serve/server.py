"""The state of one server: graphs, queues of work, cached answers, figures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from fastapi import Request, Response
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from pydantic_core import to_json
from starlette.concurrency import run_in_threadpool

from pathe.core.errors import UnknownNameError
from pathe.predict.predictor import Predictor
from pathe.serve import views
from pathe.serve.graphs import Cache, Lane, ServedGraph
from pathe.serve.queues import Batch, WorkQueue
from pathe.serve.views import AnswerOptions

R = TypeVar("R")
KEPT = ("/predict", "/explain")  # calls whose responses are kept
Work = Callable[[Predictor, Batch], R]


@dataclass(frozen=True)
class Limits:
    """What one server takes on."""

    waiting: int = 256  # requests per queue
    body: int = 1 << 20  # bytes of a request
    bodies: int = 1 << 26  # and of all that are worked on
    connections: int = 12_000  # or fewer, if fewer files may be open
    arrival: float = 30.0  # seconds until a request is complete
    seconds: float = 30.0  # per request,
    slow_seconds: float = 300.0  # and per request for missing or suspicious facts
    cached: int = 1 << 26  # bytes of answers


@dataclass(frozen=True)
class Kept:
    """A response that is kept, and the path of its call as figures show it."""

    path: str
    response: Response


class Server:
    """The graphs, the queues of work and the figures of one server."""

    def __init__(self, graphs: list[ServedGraph], limits: Limits) -> None:
        self.graphs, self.limits = {graph.name: graph for graph in graphs}, limits
        lanes: tuple[Lane, ...] = ("fast", "medium", "slow")
        self.queues = {lane: WorkQueue(lane, limits.waiting) for lane in lanes}
        self.cache: Cache[Kept] = Cache(limits.cached, lambda kept: len(kept.response.body) + 1000)
        self.waiting: dict[Any, asyncio.TimerHandle] = {}  # connections without a whole request
        self.bodies = 0.0  # bytes of requests that are worked on
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "pathe_requests", "Requests by path and status", ("path", "status"),
            registry=self.registry,
        )  # fmt: skip
        self.seconds = Histogram(
            "pathe_request_seconds", "Time per request", ("path",), registry=self.registry
        )
        for lane, queue in self.queues.items():
            gauge = Gauge(f"pathe_waiting_{lane}", f"Requests in the {lane} queue",
                          registry=self.registry)  # fmt: skip
            gauge.set_function(queue.__len__)
        for kind in ("hits", "misses"):
            gauge = Gauge(f"pathe_cache_{kind}", f"Cache {kind}", registry=self.registry)
            gauge.set_function(partial(getattr, self.cache, kind))

    def graph(self, name: str) -> ServedGraph:
        if name not in self.graphs:
            raise UnknownNameError(f"There is no graph {name!r}. Graphs: {', '.join(self.graphs)}.")
        return self.graphs[name]

    def kept(self, request: Request) -> Kept | None:
        """Returns the response to an equal request, if it is kept."""
        is_kept = request.method == "GET" and request.scope["path"].endswith(KEPT)
        return self.cache.get(self.key(request)) if is_kept else None

    def keep(self, key: Hashable, request: Request, response: Response) -> Response:
        """Keeps a response for equal requests; `key` is that of when its computation began."""
        self.cache.put(key, Kept(request.scope["route"].path, response))
        return response

    def key(self, request: Request) -> Hashable:
        """Returns what is the same for requests that get the same response."""
        versions = tuple(graph.version.number for graph in self.graphs.values())
        return request.scope["path"], request.scope["query_string"], versions

    def close(self) -> None:
        for queue in self.queues.values():
            queue.close()
        for graph in self.graphs.values():
            graph.close()


@dataclass(frozen=True)
class Caller:
    """A client that waits for the response to a request; work for it ends if it leaves."""

    server: Server
    request: Request

    async def do(self, lane: Lane, graph: ServedGraph, overlay: str, work: Work[R]) -> R:
        """Runs work of one request in a lane, with a predictor of that lane."""

        def run(items: list[None], batch: Batch) -> list[R]:
            return [work(graph.predictor(lane, overlay), batch)]

        result: R = await self._queued(lane, object(), None, run)
        return result

    async def look_up(self, graph: ServedGraph, work: Callable[[], R]) -> R:
        """Runs work that needs a graph's relations and types, but no predictor.

        Predictions may keep the fast lane busy, so it computes relations and types only.
        """
        if graph.version.is_listed:
            return await run_in_threadpool(work)
        return await self.do("fast", graph, "", lambda p, batch: work())

    async def answer(
        self, graph: ServedGraph, overlay: str, query: Any, options: AnswerOptions
    ) -> bytes:
        """Answers a query in JSON; queries that wait for the same graph are answered together."""
        key: Hashable = (graph.name, graph.version.number, overlay, options)

        def run(queries: list[Any], batch: Batch) -> list[Any]:
            p = graph.predictor("fast", overlay)
            found = views.answers(graph, p, queries, options, batch.progress)
            return [row if isinstance(row, Exception) else to_json(row) for row in found]

        text: bytes = await self._queued("fast", key, query, run)
        return text

    async def _queued(self, lane: Lane, key: Hashable, item: Any, run: Any) -> Any:
        limits = self.server.limits
        seconds = limits.slow_seconds if lane == "slow" else limits.seconds
        return await self.server.queues[lane].do(key, item, run, seconds, self._leaves())

    async def _leaves(self) -> None:
        """Ends once the client has closed the connection."""
        while (await self.request.receive())["type"] != "http.disconnect":
            pass
