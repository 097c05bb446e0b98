"""HTTP connections: slow and idle ones are closed, and their number is limited."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from pathe.serve.guard import problem
from pathe.serve.server import Server

ARRIVING = (h11.IDLE, h11.SEND_BODY)  # what a client does until its request is complete


class Connection(H11Protocol):
    """A connection that is closed if a request, or a client that should read, takes too long.

    If there are too many connections, the one that has waited longest for a request is closed:
    those who connect to ask something get their answer.
    """

    pathe: Server
    _stuck: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        app: Any = self.config.app
        self.pathe = app.state.server
        super().connection_made(transport)
        self._wait()
        if len(self.connections) > self.pathe.limits.connections:
            longest: Connection = next(iter(self.pathe.waiting))
            longest._end_waiting()
            longest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_waiting()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]:
            self._end_waiting()  # a request begins: it has all the time
        super().data_received(data)
        self._wait_if_incomplete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait_if_incomplete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stuck = self.loop.call_later(self.pathe.limits.arrival, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None

    def timeout_keep_alive_handler(self) -> None:
        self.transport.abort()  # `close` would wait for a client that doesn't read

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, f"{msg} Does the client speak HTTP/1.1?")

    def _refuse(self, status: int, words: str) -> None:
        """Closes the connection, and says why if there is no response yet."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            answer = problem(status, words, {"connection": "close"})
            reason = HTTPStatus(status).phrase.encode()
            response = h11.Response(status_code=status, headers=answer.raw_headers, reason=reason)
            if self.cycle is not None:
                self.cycle.disconnected = True  # what it may still send goes nowhere
            for event in (response, h11.Data(data=bytes(answer.body)), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _wait_if_incomplete(self) -> None:
        if not self.transport.is_closing() and self.conn.their_state in ARRIVING:
            self._wait()
        else:
            self._end_waiting()

    def _wait(self) -> None:
        """Starts the time that a request may take to arrive, if it hasn't begun."""
        if self not in self.pathe.waiting:
            late = self.loop.call_later(self.pathe.limits.arrival, self._late)
            self.pathe.waiting[self] = late

    def _end_waiting(self) -> None:
        if self in self.pathe.waiting:
            self.pathe.waiting.pop(self).cancel()

    def _late(self) -> None:
        if self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]:
            self.transport.abort()  # it was never used, or isn't any more
        else:
            seconds = self.pathe.limits.arrival
            self._refuse(408, f"The request took longer than {seconds:g} seconds to arrive.")
