"""Runs the application until it is stopped."""

from __future__ import annotations

import resource
import socket
from collections.abc import Callable
from dataclasses import replace

import uvicorn
from fastapi import FastAPI

from pathe.core.errors import PatheError
from pathe.serve.connections import Connection
from pathe.serve.server import Server

GRACE = 5  # seconds for running requests at the end
KEEP_ALIVE = 30  # seconds that a connection may wait for its next request
WAITING = 1024  # connections that aren't accepted yet
OTHER_FILES = 200  # open files that aren't connections


def run(app: FastAPI, host: str, port: int, say: Callable[[str], None]) -> None:
    """Serves until Ctrl-C or SIGTERM; then running requests are finished."""
    own = listening(host, port)
    shown = f"[{host}]" if ":" in host else host
    say(f"serving on http://{shown}:{own.getsockname()[1]} (Ctrl-C stops)")
    try:
        http_server(app).run([own])
    finally:
        own.close()


def listening(host: str, port: int) -> socket.socket:
    """Returns a socket for a server; from now on, requests wait until they are served."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # named as TCP: otherwise asyncio leaves Nagle's algorithm on, which takes 40 ms per answer
    own = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        own.bind((host, port))
        own.listen(WAITING)
    except OSError as error:
        own.close()
        raise PatheError(
            f"{host}:{port}: can't listen there ({error.strerror}). Choose another --port."
        ) from None
    return own


def http_server(app: FastAPI) -> uvicorn.Server:
    """Returns what serves the application on sockets."""
    server: Server = app.state.server
    most = open_files(server.limits.connections + OTHER_FILES) - OTHER_FILES
    server.limits = replace(server.limits, connections=min(server.limits.connections, most))
    config = uvicorn.Config(
        app, http=Connection, ws="none", proxy_headers=False, server_header=False,
        log_level="error", timeout_graceful_shutdown=GRACE, timeout_keep_alive=KEEP_ALIVE,
    )  # fmt: skip
    return uvicorn.Server(config)


def open_files(wanted: int) -> int:
    """Raises the number of files that the process may open if it is less; returns what it is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft
