"""What every request goes through: checks of host, token and size; headers; figures."""

from __future__ import annotations

import time
from http import HTTPStatus

from fastapi import Request
from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pathe.core.types import whole_number
from pathe.serve.server import Server
from pathe.serve.tokens import has_token

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
RAW_HEADERS = [(name.encode(), value.encode()) for name, value in HEADERS.items()]


def problem(status: int, detail: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """Returns an error as problem+json (RFC 9457)."""
    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status}
    return JSONResponse(
        body | {"detail": detail}, status, HEADERS | (headers or {}),
        media_type="application/problem+json",
    )  # fmt: skip


class Guard:
    """An ASGI application around another: lets requests through, or answers them itself.

    Answers that are kept (`Server.keep`) are sent from here, before anything else is looked at.
    """

    def __init__(
        self, app: ASGIApp, server: Server, token: str | None, hosts: tuple[str, ...]
    ) -> None:
        """`token` is what requests need, `hosts` the names that the server may be called by."""
        self.app, self.server, self.token, self.hosts = app, server, token, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status = time.perf_counter(), 500

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                given = {name.lower() for name, _ in message["headers"]}
                more = [header for header in RAW_HEADERS if header[0] not in given]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        request, kept, chosen = Request(scope), None, self.app
        length = _length(request)
        if refusal := self._refusal(request, length):
            if length:
                refusal.headers["Connection"] = "close"  # its body isn't read
            chosen, length = refusal, 0
        elif kept := self.server.kept(request):
            chosen = kept.response
        self.server.bodies += length
        try:
            await chosen(scope, receive, send_with_headers)
        finally:
            self.server.bodies -= length
            shown = kept.path if kept else getattr(scope.get("route"), "path", "other")
            self.server.requests.labels(shown, status).inc()
            self.server.seconds.labels(shown).observe(time.perf_counter() - start)

    def _refusal(self, request: Request, length: float) -> JSONResponse | None:
        """Returns the answer to a request that isn't let through."""
        path = request.scope["path"]
        is_open = path in ("/", "/api/v1/health") or path.startswith("/static/")
        if self.hosts and _host(request) not in self.hosts:  # a page elsewhere may have sent it
            words = " or ".join(f"http://{host}" for host in self.hosts if ":" not in host)
            return problem(400, f"Unexpected Host header. Use {words}.")
        if self.token and not is_open and not has_token(request, self.token):
            words = "Give the token: Authorization: Bearer TOKEN."
            return problem(401, words, {"WWW-Authenticate": "Bearer"})
        limits = self.server.limits
        if length > limits.body:
            words = f"The limit is {limits.body:,} bytes."
            return problem(413, f"The body is too large or has no Content-Length. {words}")
        if length and self.server.bodies + length > limits.bodies:
            return problem(429, "Too many large requests. Try again.", {"Retry-After": "1"})
        return None


def _host(request: Request) -> str:
    """Returns the name that the request calls the server by, without the port."""
    given = request.headers.get("host", "").lower()
    return given[1:].partition("]")[0] if given.startswith("[") else given.partition(":")[0]


def _length(request: Request) -> float:
    """Returns the bytes of a request's body; infinity if they aren't told."""
    length = whole_number(request.headers.get("content-length", "0"))
    return float("inf") if "transfer-encoding" in request.headers or length is None else length
