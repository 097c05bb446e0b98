"""Runs the application until it is stopped."""

from __future__ import annotations

import socket
from collections.abc import Callable

import uvicorn
from fastapi import FastAPI

from pathe.core.errors import PatheError

GRACE = 5  # seconds for running requests at the end
WAITING = 1024  # connections


def run(app: FastAPI, host: str, port: int, say: Callable[[str], None]) -> None:
    """Serves until Ctrl-C or SIGTERM; then running requests are finished."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    own = socket.socket(family, socket.SOCK_STREAM)
    own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        own.bind((host, port))
        own.listen(WAITING)  # from now on, requests wait until they are served
    except OSError as error:
        own.close()
        raise PatheError(
            f"{host}:{port}: can't listen there ({error.strerror}). Choose another --port."
        ) from None
    shown = f"[{host}]" if ":" in host else host
    say(f"serving on http://{shown}:{own.getsockname()[1]} (Ctrl-C stops)")
    config = uvicorn.Config(
        app, log_level="warning", timeout_graceful_shutdown=GRACE, server_header=False,
        timeout_keep_alive=30, limit_concurrency=1000,
    )  # fmt: skip
    try:
        uvicorn.Server(config).run([own])
    finally:
        own.close()
