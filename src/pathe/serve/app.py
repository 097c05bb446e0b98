"""The REST interface under /api/v1, and the page at /."""

from __future__ import annotations

import hmac
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import FileResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from starlette.exceptions import HTTPException

from pathe.core.errors import PatheError, UnknownNameError
from pathe.core.types import PARTS, Fact, Part, fill
from pathe.predict.predictor import Predictor
from pathe.serve import views
from pathe.serve.graphs import Cache, Lane, ServedGraph
from pathe.serve.journal import Changes
from pathe.serve.views import AnswerOptions, Row
from pathe.serve.work import Busy, Cancelled, Job, TookTooLong, WorkQueue

R = TypeVar("R")
Work = Callable[[Predictor, Job[Any, Any]], R]
STATIC = Path(__file__).with_name("static")
MOST_NAME, MOST_K, MOST_DEPTH, MOST_ROWS = 2000, 1000, 10_000, 1000
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

Name = Annotated[str, StringConstraints(min_length=1, max_length=MOST_NAME)]
Given = Annotated[Name | None, Query()]  # one that may be left out
K = Annotated[int, Query(ge=1, le=MOST_K)]
Format = Literal["json", "csv", "ttl"]


@dataclass(frozen=True)
class Limits:
    """What one server takes on."""

    waiting: int = 256  # requests per queue
    body: int = 1 << 20  # bytes of a request
    seconds: float = 30.0  # per request,
    slow_seconds: float = 300.0  # and per request for missing or suspicious facts
    cached: int = 4096  # answers


class Strict(BaseModel):
    """A request's body: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid")


class Triple(Strict):
    head: Name
    relation: Name
    tail: Name

    @property
    def fact(self) -> Fact:
        return self.head, self.relation, self.tail


class OneQuery(Strict):
    head: Name | None = None
    relation: Name | None = None
    tail: Name | None = None


class Queries(Strict):
    queries: Annotated[list[OneQuery], Field(min_length=1, max_length=MOST_ROWS)]
    k: int = Field(10, ge=1, le=MOST_K)
    offset: int = Field(0, ge=0, le=MOST_DEPTH)
    known: bool = False
    type: Name | None = None
    plausible: bool = True


class Triples(Strict):
    triples: Annotated[list[Triple], Field(min_length=1, max_length=MOST_ROWS)]
    asked: Part | None = None


class Claims(Strict):
    triples: Annotated[list[Triple], Field(min_length=1, max_length=MOST_ROWS)]


class LeftOut(Strict):
    patterns: Annotated[list[list[Name]], Field(max_length=50)] = []
    paths: Annotated[list[list[tuple[Name, Name, Name]]], Field(max_length=50)] = []


class Rescore(Triple):
    asked: Part | None = None
    without: LeftOut = LeftOut()


class Facts(Strict):
    add: Annotated[list[Triple], Field(max_length=MOST_ROWS)] = []
    remove: Annotated[list[Triple], Field(max_length=MOST_ROWS)] = []

    @property
    def changes(self) -> Changes:
        return Changes([t.fact for t in self.add], [t.fact for t in self.remove])


class Server:
    """The graphs, the queues of work and the figures of one server."""

    def __init__(self, graphs: list[ServedGraph], limits: Limits) -> None:
        self.graphs, self.limits = {graph.name: graph for graph in graphs}, limits
        lanes: tuple[Lane, ...] = ("fast", "medium", "slow")
        self.queues = {lane: WorkQueue(lane, limits.waiting) for lane in lanes}
        self.cache: Cache[Row] = Cache(limits.cached)
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

    async def do(self, lane: Lane, graph: ServedGraph, overlay: str, work: Work[R]) -> R:
        """Runs work of one request in a lane, with a predictor of that lane."""

        def run(items: list[None], job: Job[Any, Any]) -> list[R]:
            return [work(graph.predictor(lane, overlay), job)]

        limits = self.limits
        seconds = limits.slow_seconds if lane == "slow" else limits.seconds
        return await self.queues[lane].do(object(), None, run, seconds)

    async def answer(
        self, graph: ServedGraph, overlay: str, query: Any, options: AnswerOptions
    ) -> Row:
        """Answers one query; queries that wait for the same graph are answered together."""
        key: Hashable = (graph.name, graph.version, overlay, options)
        found = self.cache.get((key, query))
        if found is not None:
            return found

        def run(queries: list[Any], job: Job[Any, Any]) -> list[Any]:
            return views.answers(graph, graph.predictor("fast", overlay), queries, options)

        row: Row = await self.queues["fast"].do(key, query, run, self.limits.seconds)
        self.cache.put((key, query), row)
        return row

    def close(self) -> None:
        for queue in self.queues.values():
            queue.close()
        for graph in self.graphs.values():
            graph.close()


def problem(status: int, detail: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """Returns an error as problem+json (RFC 9457)."""
    from http import HTTPStatus

    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status}
    return JSONResponse(
        body | {"detail": detail}, status, headers, media_type="application/problem+json"
    )


def build_app(
    graphs: list[ServedGraph],
    *,
    token: str | None = None,
    public: bool = False,
    hosts: tuple[str, ...] = (),
    origins: tuple[str, ...] = (),
    limits: Limits | None = None,
) -> FastAPI:
    """Returns the application. With a token, all requests need it, unless reading is public.

    `hosts` are the names that the server may be called by, none for any; `origins` those of pages
    elsewhere that may use it.
    """
    from pathe import __version__

    limits = limits or Limits()
    server = Server(graphs, limits)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        server.close()

    app = FastAPI(
        title="PathE", version=__version__, lifespan=lifespan, openapi_url="/api/v1/openapi.json",
        docs_url=None, redoc_url=None,
        summary="Completes knowledge graphs and explains each answer.",
    )  # fmt: skip
    app.state.server = server
    _add_errors(app)
    if origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=list(origins), allow_methods=["*"], allow_headers=["*"]
        )
    _add_guard(app, server, None if public else token, hosts)
    app.include_router(_routes(server, token))
    _add_page(app, server)
    return app


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(PatheError)
    async def refused(request: Request, error: PatheError) -> Response:
        match error:
            case Busy():
                return problem(429, str(error), {"Retry-After": "1"})
            case TookTooLong():
                return problem(504, str(error))
            case UnknownNameError():
                return problem(404, str(error))
        return problem(400, str(error))

    @app.exception_handler(Cancelled)
    async def gone(request: Request, error: Cancelled) -> Response:
        return problem(504, "The request was given up.")

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part not in ("query", "body"))
        given = repr(first.get("input"))
        given = given if len(given) <= 80 else f"{given[:77]}..."
        return problem(422, f"{where or 'body'}: {first['msg']}; got {given}.")

    @app.exception_handler(HTTPException)
    async def other(request: Request, error: HTTPException) -> Response:
        return problem(error.status_code, str(error.detail), dict(error.headers or {}))

    @app.exception_handler(Exception)
    async def bug(request: Request, error: Exception) -> Response:
        return problem(500, f"An internal error ({type(error).__name__}). Please report it.")


def _add_guard(app: FastAPI, server: Server, token: str | None, hosts: tuple[str, ...]) -> None:
    """Adds what every request goes through: checks of host, token and size; headers; figures."""

    @app.middleware("http")
    async def guard(
        request: Request, call_next: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        start = time.perf_counter()
        path = request.url.path
        is_page = path == "/" or path.startswith("/static/")
        if hosts and request.url.hostname not in hosts:  # a page elsewhere may have sent it here
            response: Response = problem(400, f"This server is called {' or '.join(hosts)}.")
        elif token and not is_page and not has_token(request, token):
            response = problem(
                401, "Give the token: Authorization: Bearer TOKEN.", {"WWW-Authenticate": "Bearer"}
            )
        elif _too_large(request, server.limits.body):
            response = problem(
                413, f"Send at most {server.limits.body:,} bytes, with their length."
            )
        else:
            response = await call_next(request)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        route = request.scope.get("route")
        shown = getattr(route, "path", "other")
        server.requests.labels(shown, response.status_code).inc()
        server.seconds.labels(shown).observe(time.perf_counter() - start)
        return response


def _too_large(request: Request, most: int) -> bool:
    if request.method not in ("POST", "PUT", "PATCH"):
        return False
    length = request.headers.get("content-length", "")
    return not length.isdecimal() or int(length) > most


def has_token(request: Request, token: str) -> bool:
    """Whether the request has the token; takes the same time for any wrong one."""
    given = request.headers.get("authorization", "")
    return hmac.compare_digest(given.encode(), f"Bearer {token}".encode())


def graph_of(graph: str, request: Request) -> ServedGraph:
    """Returns the graph that a path names."""
    server: Server = request.app.state.server
    return server.graph(graph)


Graph = Annotated[ServedGraph, Depends(graph_of)]
Overlay = Annotated[str, Query(max_length=64)]


def _routes(server: Server, token: str | None) -> APIRouter:
    api = APIRouter(prefix="/api/v1")

    @api.get("/health")
    async def health() -> Row:
        """Says that the server is up."""
        return {"status": "ok"}

    @api.get("/graphs")
    async def graphs() -> Row:
        """Lists the graphs that are served."""
        return {"graphs": [graph.about() for graph in server.graphs.values()]}

    @api.get("/graphs/{graph}")
    async def about(graph: Graph) -> Row:
        """Describes a graph: its sizes, relations and types, and the model's card."""
        more = {"relations_list": graph.relations(), "types": graph.types(), "card": graph.card()}
        return graph.about() | more

    @api.get("/graphs/{graph}/entities")
    async def entities(
        graph: Graph,
        q: Annotated[str, Query(max_length=MOST_NAME)] = "",
        type: Given = None,
        limit: K = 20,
    ) -> Row:
        """Finds entities by a part of their name or label, also with typos."""
        work = lambda p, job: {"entities": graph.search(q, type, limit)}  # noqa: E731
        return await server.do("fast", graph, "", work)

    @api.get("/graphs/{graph}/relations")
    async def relations(
        graph: Graph, q: Annotated[str, Query(max_length=MOST_NAME)] = "", limit: K = 50
    ) -> Row:
        """Finds relations by a part of their name or label."""
        return {"relations": graph.relations(q, limit)}

    @api.get("/graphs/{graph}/entity")
    async def entity(
        graph: Graph,
        name: Name,
        relation: Given = None,
        direction: Literal["both", "out", "in"] = "both",
        offset: Annotated[int, Query(ge=0)] = 0,
        limit: K = 50,
        overlay: Overlay = "",
        format: Format = "json",
    ) -> Any:
        """Returns the facts of an entity."""
        more = relation, direction, offset, limit
        row = await server.do(
            "fast", graph, overlay, lambda p, job: views.entity(graph, p, name, *more)
        )
        return _as(format, graph, row, "facts")

    @api.get("/graphs/{graph}/predict")
    async def predict(
        graph: Graph,
        head: Given = None,
        relation: Given = None,
        tail: Given = None,
        k: K = 10,
        offset: Annotated[int, Query(ge=0, le=MOST_DEPTH)] = 0,
        known: bool = False,
        type: Given = None,
        plausible: bool = True,
        overlay: Overlay = "",
        format: Format = "json",
    ) -> Any:
        """Answers a query: give two of head, relation and tail; the third is predicted."""
        query = head, relation, tail
        options = AnswerOptions(k, offset, known, type, plausible)
        row = await server.answer(graph, overlay, query, options)
        if format == "json":
            return row
        given = row["head"], row["relation"], row["tail"]
        rows = [
            dict(zip(PARTS, fill(given, answer["name"]), strict=True)) | answer
            for answer in row["answers"]
        ]
        return _as(format, graph, {"answers": rows}, "answers")

    @api.post("/graphs/{graph}/predict")
    async def predict_many(graph: Graph, body: Queries, overlay: Overlay = "") -> Row:
        """Answers many queries."""
        options = AnswerOptions(body.k, body.offset, body.known, body.type, body.plausible)
        queries = [(q.head, q.relation, q.tail) for q in body.queries]

        def work(p: Predictor, job: Job[Any, Any]) -> Row:
            found = views.answers(graph, p, queries, options)
            for number, result in enumerate(found):
                if isinstance(result, Exception):
                    raise type(result)(f"queries.{number}: {result}")
            return {"results": found}

        return await server.do("medium", graph, overlay, work)

    @api.post("/graphs/{graph}/score")
    async def score(graph: Graph, body: Triples, overlay: Overlay = "") -> Row:
        """Returns scores, ranks and probabilities of triples."""
        facts = [triple.fact for triple in body.triples]
        work = lambda p, job: {"triples": [vars(r) for r in p.score(facts, body.asked)]}  # noqa: E731
        return await server.do("medium", graph, overlay, work)

    @api.post("/graphs/{graph}/classify")
    async def classify(graph: Graph, body: Claims, overlay: Overlay = "") -> Row:
        """Says of triples whether they are true, and how probable that is."""
        facts = [triple.fact for triple in body.triples]

        def work(p: Predictor, job: Job[Any, Any]) -> Row:
            return {"triples": [vars(row) for row in p.classify(facts, progress=job.progress)]}

        return await server.do("slow", graph, overlay, work)

    @api.get("/graphs/{graph}/explain")
    async def explain(
        graph: Graph, head: Name, relation: Name, tail: Name, asked: Part | None = None,
        overlay: Overlay = "",
    ) -> Row:  # fmt: skip
        """Explains a triple's score by patterns of paths."""
        fact = head, relation, tail
        key = ("explain", graph.name, graph.version, overlay, fact, asked)
        found = server.cache.get(key)
        if found is None:
            found = await server.do(
                "medium", graph, overlay, lambda p, job: views.explanation(graph, p, fact, asked)
            )
            server.cache.put(key, found)
        return found

    @api.post("/graphs/{graph}/explain")
    async def rescore(graph: Graph, body: Rescore, overlay: Overlay = "") -> Row:
        """Scores a triple without some patterns or paths of its explanation."""
        without = body.without
        more = body.fact, body.asked, without.patterns, [list(path) for path in without.paths]
        return await server.do("medium", graph, overlay, lambda p, job: views.rescored(p, *more))

    @api.get("/graphs/{graph}/missing")
    async def missing(
        graph: Graph,
        entity: Given = None,
        relation: Given = None,
        type: Given = None,
        k: K = 20,
        min_probability: Annotated[float, Query(ge=0, le=1)] = 0.0,
        overlay: Overlay = "",
        format: Format = "json",
    ) -> Any:
        """Lists the facts that the graph most probably lacks; this takes seconds to minutes."""
        of = _of(entity, relation, type)
        row = await server.do(
            "slow", graph, overlay,
            lambda p, job: views.missing(graph, p, of, k, min_probability, job.progress),
        )  # fmt: skip
        return _as(format, graph, row, "triples")

    @api.get("/graphs/{graph}/suspicious")
    async def suspicious(
        graph: Graph,
        entity: Given = None,
        relation: Given = None,
        type: Given = None,
        k: K = 20,
        sample: Annotated[int | None, Query(ge=1)] = None,
        overlay: Overlay = "",
        format: Format = "json",
    ) -> Any:
        """Lists the facts that the rest of the graph speaks against; may take minutes."""
        of = _of(entity, relation, type)
        row = await server.do(
            "slow", graph, overlay,
            lambda p, job: views.suspicious(graph, p, of, k, sample, job.progress),
        )  # fmt: skip
        return _as(format, graph, row, "facts")

    @api.get("/graphs/{graph}/similar")
    async def similar(
        graph: Graph, entity: Name, k: K = 10, type: Given = None, overlay: Overlay = "",
        format: Format = "json",
    ) -> Any:  # fmt: skip
        """Lists similar entities."""
        which: Any = {"type": type} if type else {}

        def work(p: Predictor, job: Job[Any, Any]) -> Row:
            found = p.similar(p.entity_names.exact(entity), k, **which)
            return {"entities": [vars(row) | {"label": graph.show(row.name)} for row in found]}

        return _as(format, graph, await server.do("medium", graph, overlay, work), "entities")

    @api.get("/graphs/{graph}/rules")
    async def rules(
        graph: Graph, relation: Given = None, k: K = 5, overlay: Overlay = "",
        format: Format = "json",
    ) -> Any:  # fmt: skip
        """Lists the paths that the model trusts most to predict a relation."""
        row = await server.do(
            "slow", graph, overlay, lambda p, job: views.rules(graph, p, relation, k)
        )
        return _as(format, graph, row, "rules")

    @api.post("/graphs/{graph}/overlays")
    async def add_overlay(graph: Graph, body: Facts) -> Row:
        """Keeps changes for "what if" questions; give their id as `overlay` in other requests."""
        changes = body.changes

        def work(p: Predictor, job: Job[Any, Any]) -> Row:
            overlay = graph.add_overlay(changes)
            changed, now = (
                graph.predictor("fast", overlay).prepared,
                graph.predictor("fast").prepared,
            )
            n_removed = len(set(changes.remove))
            n_added = changed.graph.n_triples - now.graph.n_triples + n_removed
            return {"overlay": overlay, "added": n_added, "removed": n_removed}

        return await server.do("fast", graph, "", work)

    @api.get("/graphs/{graph}/overlays/{overlay}")
    async def get_overlay(graph: Graph, overlay: Annotated[str, Field(max_length=64)]) -> Row:
        """Returns the changes of an overlay."""
        changes = graph.overlay(overlay)
        return {
            key: [dict(zip(PARTS, fact, strict=True)) for fact in getattr(changes, key)]
            for key in ("add", "remove")
        }

    @api.post("/graphs/{graph}/facts")
    async def change(graph: Graph, body: Facts, request: Request) -> Row:
        """Adds and removes facts for everyone; needs --writable and the token."""
        if graph.journal is not None and (token is None or not has_token(request, token)):
            raise HTTPException(401, "Give the token: Authorization: Bearer TOKEN.")
        added, removed = await server.do(
            "medium", graph, "", lambda p, job: graph.change(body.changes)
        )
        return {"added": added, "removed": removed}

    return api


def _of(entity: str | None, relation: str | None, type: str | None) -> Row:
    given = {"entities": entity, "relations": relation, "type": type}
    return {key: value for key, value in given.items() if value is not None}


def _as(format: Format, graph: ServedGraph, row: Row, key: str) -> Any:
    """Returns rows as they are, or as a file."""
    if format == "json":
        return row
    is_csv = format == "csv"
    text = views.as_csv(row[key]) if is_csv else views.as_turtle(graph, row[key])
    return Response(
        text,
        media_type="text/csv; charset=utf-8" if is_csv else "text/turtle; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{key}.{format}"'},
    )


def _add_page(app: FastAPI, server: Server) -> None:
    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return FileResponse(STATIC / "index.html", headers={"Cache-Control": "no-cache"})

    @app.get("/metrics", include_in_schema=False)
    async def metrics() -> Response:
        return Response(generate_latest(server.registry), media_type="text/plain; version=0.0.4")

    app.mount("/static", StaticFiles(directory=STATIC), name="static")
