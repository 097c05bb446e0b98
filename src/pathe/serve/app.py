"""The REST interface under /api/v1, and the page at /."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles
from prometheus_client import generate_latest
from starlette.exceptions import HTTPException

from pathe.core.errors import PatheError, UnknownNameError
from pathe.serve.graphs import ServedGraph
from pathe.serve.guard import Guard, problem
from pathe.serve.journal import NotWritten
from pathe.serve.queues import Busy, Cancelled, TookTooLong
from pathe.serve.routes import api
from pathe.serve.server import Limits, Server

STATIC = Path(__file__).with_name("static")
UNREADABLE = "There was an error parsing the body"  # in FastAPI's words


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
    app.add_middleware(Guard, server=server, token=None if public else token, hosts=hosts)
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
        return problem(504, "The request was cancelled.")

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
        if detail == UNREADABLE:
            detail = "The body should be JSON in UTF-8, and not nested deeply; it can't be read."
        elif detail == HTTPStatus(error.status_code).phrase:
            detail = f"No such endpoint: {request.method} {path}. See /api/v1/openapi.json."
        return problem(error.status_code, detail, dict(error.headers or {}))

    @app.exception_handler(Exception)
    async def bug(request: Request, error: Exception) -> Response:
        return problem(500, f"An internal error ({type(error).__name__}). Please report it.")


def _add_page(app: FastAPI, server: Server) -> None:
    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return FileResponse(STATIC / "index.html", headers={"Cache-Control": "no-cache"})

    @app.get("/metrics", include_in_schema=False)
    async def metrics() -> Response:
        return Response(generate_latest(server.registry), media_type="text/plain; version=0.0.4")

    app.mount("/static", StaticFiles(directory=STATIC), name="static")
