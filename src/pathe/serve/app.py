"""The REST interface under /api/v1, and the page at /."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import FileResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from prometheus_client import generate_latest
from starlette.exceptions import HTTPException

from pathe.core.errors import PatheError, UnknownNameError
from pathe.core.types import whole_number
from pathe.serve.graphs import ServedGraph
from pathe.serve.journal import NotWritten
from pathe.serve.queues import Busy, Cancelled, TookTooLong
from pathe.serve.routes import api
from pathe.serve.server import Limits, Server
from pathe.serve.tokens import has_token

STATIC = Path(__file__).with_name("static")
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


def problem(status: int, detail: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """Returns an error as problem+json (RFC 9457)."""
    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status}
    return JSONResponse(
        body | {"detail": detail}, status, HEADERS | (headers or {}),
        media_type="application/problem+json",
    )  # fmt: skip


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
    app.state.server, app.state.token = server, token
    _add_errors(app)
    _add_guard(app, server, None if public else token, hosts)
    if origins:  # before the guard: a browser's preflight has no token
        app.add_middleware(
            CORSMiddleware, allow_origins=list(origins), allow_methods=["*"], allow_headers=["*"]
        )
    app.include_router(api)
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
            case NotWritten():
                return problem(507, str(error))
        return problem(400, str(error))

    @app.exception_handler(Cancelled)
    async def gone(request: Request, error: Cancelled) -> Response:
        return problem(504, "The request was given up.")

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            why = f"{first['ctx']['error']}, character {first['loc'][-1]}"
            return problem(422, f"The body should be JSON, but isn't: {why}.")
        where = ".".join(str(part) for part in first["loc"] if part not in ("query", "body"))
        given = repr(first.get("input"))
        given = given if len(given) <= 80 else f"{given[:77]}..."
        return problem(422, f"{where or 'body'}: {first['msg']}; got {given}.")

    @app.exception_handler(HTTPException)
    async def other(request: Request, error: HTTPException) -> Response:
        detail, path = str(error.detail), request.url.path[:100]
        if detail == HTTPStatus(error.status_code).phrase:
            detail = (
                f"{request.method} {path} isn't a call: see /api/v1/openapi.json for all of them."
            )
        return problem(error.status_code, detail, dict(error.headers or {}))

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
        is_open = path in ("/", "/api/v1/health") or path.startswith("/static/")
        if hosts and _host(request) not in hosts:  # a page elsewhere may have sent it here
            response: Response = problem(400, f"This server is called {' or '.join(hosts)}.")
        elif token and not is_open and not has_token(request, token):
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


def _host(request: Request) -> str:
    """Returns the name that the request calls the server by, without the port."""
    given = request.headers.get("host", "").lower()
    return given[1:].partition("]")[0] if given.startswith("[") else given.partition(":")[0]


def _too_large(request: Request, most: int) -> bool:
    if request.method not in ("POST", "PUT", "PATCH"):
        return False
    length = whole_number(request.headers.get("content-length", ""))
    return length is None or length > most


def _add_page(app: FastAPI, server: Server) -> None:
    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return FileResponse(STATIC / "index.html", headers={"Cache-Control": "no-cache"})

    @app.get("/metrics", include_in_schema=False)
    async def metrics() -> Response:
        return Response(generate_latest(server.registry), media_type="text/plain; version=0.0.4")

    app.mount("/static", StaticFiles(directory=STATIC), name="static")
