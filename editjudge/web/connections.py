"""Connections that make no progress are closed, and there are only so many of them.

uvicorn bounds how long a connection is idle between requests, and nothing else: half a request would stay for ever.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

_IDLE = 75
"""Seconds that a connection may be idle: longer than clients keep one (aiohttp 15), so that it is they who close it.
With uvicorn's own 5, now and then a POST went into one that was just being closed, and nobody sends a POST twice."""


class Connection(H11Protocol):
    """One that must send a request's head in time, and the rest of a body that was refused. How slowly a body may come
    that somebody reads is the guard's to say."""

    head_seconds = 20.0
    """From the connection, or from the first byte of a later request, to the end of its head."""
    rest_seconds = 5.0
    """For a body that nobody reads any more: a client that is sending it should still see why it was refused."""
    most = 512
    """Connections at a time: half the files that a process may open by default on Linux."""

    _timer: asyncio.TimerHandle | None = None
    _since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.most:
            self._make_room()
        self._expect(self.head_seconds)

    def _make_room(self) -> None:
        """Close who has waited longest without asking anything; where all are being answered, the one that came."""
        mine = [one for one in self.connections if isinstance(one, Connection) and not one.transport.is_closing()]
        if len(mine) > self.most:
            silent = (one for one in mine if one.silent and one is not self)
            min(silent, key=lambda one: one._since, default=self)._abort()

    @property
    def silent(self) -> bool:
        """Whether no request is being read or answered."""
        return self.conn.their_state is h11.IDLE

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except (h11.ProtocolError, ValueError):  # of a request that broke off where it was being refused already
            self._abort()
            return
        if self.silent:
            if self._timer is None:
                self._expect(self.head_seconds)
        elif self.conn.our_state is not h11.DONE:  # not in the rest of a body that was refused
            self._expect(None)

    def send_400_response(self, msg: str) -> None:
        if self.cycle is not None:  # what the application still says of this request has no place any more
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        super().send_400_response(msg)

    def on_response_complete(self) -> None:
        self._expect(self.rest_seconds if self.conn.their_state is h11.SEND_BODY else None)
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect(None)
        super().connection_lost(exc)

    def _expect(self, seconds: float | None) -> None:
        """Close the connection after so many seconds, unless something else is expected of it by then."""
        if self._timer is not None:
            self._timer.cancel()
        self._since = self.loop.time()
        self._timer = None if seconds is None else self.loop.call_later(seconds, self._abort)

    def _abort(self) -> None:
        self.transport.abort()


def server(app: Any, **more: Any) -> uvicorn.Server:
    """The server of an application. It keeps no access log: addresses hold people's search words and raters' links."""
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
