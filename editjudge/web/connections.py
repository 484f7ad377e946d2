"""Connections that are closed if they make no progress. Their number is limited.

uvicorn limits only the idle time between requests. A client that sends half a request, or does not read its answer,
would stay connected forever.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

_IDLE = 75
"""Maximum idle seconds of a connection. Clients keep connections for a shorter time (aiohttp for 15), so the client
closes first. With uvicorn's default of 5, a POST sometimes met a connection that was just being closed, and clients do
not retry a POST."""


class Connection(H11Protocol):
    """A connection with time limits for its client: to send the head of a request, to send the rest of a refused body,
    and to read answers. `guard` limits the time for an accepted body."""

    head_seconds = 20.0
    """Seconds in which the head of a request must arrive. They count from the connection or, for later requests, from
    the first byte."""
    rest_seconds = 5.0
    """Seconds that a client has to finish sending a refused body, so that it can still read why it was refused."""
    read_seconds = 10.0
    """Seconds within which the client must read at least one of the bytes sent to it."""
    most = 512
    """Maximum number of connections: half the number of files that a process may open by default on Linux."""

    _timer: asyncio.TimerHandle | None = None
    _reading: asyncio.TimerHandle | None = None
    _unread = 0
    aborted = False
    _since = 0.0
    """Time of the client's last activity."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.most:
            self._make_room()
        self._expect(self.head_seconds)
        self._check_reading()

    def _check_reading(self) -> None:
        """Close the connection if nothing was read since the last check."""
        unread = self.transport.get_write_buffer_size()
        if self._unread and unread >= self._unread:
            self._abort()
            return
        if unread < self._unread:
            self._since = self.loop.time()
        self._unread = unread
        self._reading = self.loop.call_later(self.read_seconds, self._check_reading)

    def resume_writing(self) -> None:
        self._unread = 0  # the client has read most of the buffer
        self._since = self.loop.time()
        super().resume_writing()

    def _make_room(self) -> None:
        """Close a connection if there are too many open connections.

        The one whose client has been inactive for longest is closed: an idle connection if possible, otherwise one
        whose client has stopped sending or reading. If all other clients are waiting for the server, this connection is
        closed.
        """
        alive = [
            connection
            for connection in self.connections
            if isinstance(connection, Connection) and not connection.aborted
        ]
        if len(alive) > self.most:
            waiting = (c for c in alive if c.waits_for_client and c is not self)
            longest = min(waiting, key=lambda c: (not c.silent, c._since), default=self)
            longest._abort()

    @property
    def waits_for_client(self) -> bool:
        """Whether the client must send or read something before the server can continue."""
        return (
            self.conn.their_state in (h11.IDLE, h11.SEND_BODY)
            or self.transport.get_write_buffer_size() > 0
        )

    @property
    def silent(self) -> bool:
        """Whether no request is being read or answered."""
        return self.conn.their_state is h11.IDLE

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except (h11.ProtocolError, ValueError):
            # The request ended early while it was being refused.
            self._abort()
            return
        if self.silent:
            if self._timer is None:
                self._expect(self.head_seconds)
        elif self.conn.our_state is not h11.DONE:
            # The body is being read, and not the rest of a refused one.
            self._expect(None)

    def send_400_response(self, msg: str) -> None:
        if self.cycle is not None:
            # The application can no longer send its answer to this request.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        super().send_400_response(msg)

    def on_response_complete(self) -> None:
        self._expect(
            self.rest_seconds if self.conn.their_state is h11.SEND_BODY else None
        )
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect(None)
        if self._reading is not None:
            self._reading.cancel()
        super().connection_lost(exc)

    def _expect(self, seconds: float | None) -> None:
        """Set the timeout after which the connection is closed. None means no timeout."""
        if self._timer is not None:
            self._timer.cancel()
        self._since = self.loop.time()
        self._timer = (
            None if seconds is None else self.loop.call_later(seconds, self._abort)
        )

    def _abort(self) -> None:
        self.aborted = True
        self.transport.abort()


def server(app: Any, **more: Any) -> uvicorn.Server:
    """Return the server for an application. It has no access log, since URLs contain search terms and raters' links."""
    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        access_log=False,
        timeout_keep_alive=_IDLE,
        timeout_graceful_shutdown=10,
        **more,
    )
    return uvicorn.Server(config)
