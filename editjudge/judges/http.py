"""HTTP connections to judges. No other module imports the HTTP client.

The client is aiohttp, chosen by `bench/throughput.py`. Bodies are sent in pieces, so requests share megabytes of base64
instead of each having a copy.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Self
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from aiohttp.abc import AbstractStreamWriter

from editjudge.judges.failures import CallFailed

MAX_REPLY_BYTES = 20_000_000
"""Maximum size of a reply. No answer comes near it; a server that sends more is broken or hostile."""
_CONNECT = 30.0
"""Seconds to establish a connection. A server that takes longer counts as unavailable."""


@dataclass(frozen=True, slots=True)
class Response:
    """A complete HTTP response."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    seconds: float | None
    """Seconds until the response was complete; None if the response was not waited for."""


class _Pieces(aiohttp.Payload):
    """A body of known length that is sent piece by piece, and can be sent again."""

    _autoclose = True

    def __init__(self, pieces: tuple[bytes, ...]) -> None:
        super().__init__(pieces, content_type="application/json")
        self._size = sum(map(len, pieces))

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return b"".join(self._value).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        for piece in self._value:
            await writer.write(piece)


class HttpTransport:
    """Connections to judges. They stay open and are reused during a run."""

    def __init__(self, *, timeout: float = 300.0) -> None:
        self._timeout = timeout
        self._session: aiohttp.ClientSession | None = None
        self._proxies: dict[tuple[str, str], str | None] = {}
        """Proxies, keyed by scheme and host."""

    async def __aenter__(self) -> Self:
        # The pace limits concurrency, so the connector has no limit of its own. Cookies would link requests to each
        # other.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60),
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session:
            await self._session.close()

    async def post(
        self,
        url: str,
        headers: Mapping[str, str],
        body: tuple[bytes, ...],
        patience: float = 1.0,
    ) -> Response:
        """Send a request and read the response. Raise `CallFailed` if it is not complete within the timeout multiplied
        by `patience`.
        """
        return await self._request(
            "POST", url, headers, _Pieces(body), patience=patience
        )

    async def get(
        self, url: str, headers: Mapping[str, str], into: IO[bytes] | None = None
    ) -> Response:
        """Send a GET request and read the response. If the response is written `into` a file, its size is not limited."""
        return await self._request("GET", url, headers, None, into)

    async def _request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: _Pieces | None,
        into: IO[bytes] | None = None,
        patience: float = 1.0,
    ) -> Response:
        if self._session is None:
            raise RuntimeError("a transport is used inside `async with`")
        started = time.monotonic()
        seconds = self._timeout * patience
        timeout = aiohttp.ClientTimeout(total=seconds, connect=_CONNECT)
        with _explaining(seconds):
            request = self._session.request(
                method,
                url,
                data=body,
                headers=headers,
                allow_redirects=False,
                timeout=timeout,
                proxy=self._proxy(url),
            )
            async with request as response:
                data = b""
                if into and response.ok:
                    into.seek(0)
                    into.truncate()
                    async for chunk in response.content.iter_any():
                        into.write(chunk)
                else:
                    data = await _bounded(response)
                return Response(
                    response.status, response.headers, data, time.monotonic() - started
                )

    def _proxy(self, url: str) -> str | None:
        """Return the proxy that the environment names for a URL, as the vendors' own clients do, or None.

        It is looked up once for each host. aiohttp's `trust_env` would look it up for every request, in two threads.
        """
        parts = urlsplit(url)
        key = (parts.scheme, parts.netloc)
        if key not in self._proxies:
            bypassed = proxy_bypass(parts.hostname or "")
            self._proxies[key] = None if bypassed else getproxies().get(parts.scheme)
        return self._proxies[key]


@contextmanager
def _explaining(seconds: float) -> Iterator[None]:
    try:
        yield
    except aiohttp.ConnectionTimeoutError:  # nothing was sent, so nothing is billed
        raise CallFailed(
            "connection", f"no connection within {min(seconds, _CONNECT):g} s"
        ) from None
    except TimeoutError:
        raise CallFailed(
            "timeout", f"no complete answer within {seconds:g} s"
        ) from None
    except aiohttp.ClientConnectorDNSError as error:
        raise CallFailed(
            "connection", f"the host {error.host} cannot be found"
        ) from None
    except aiohttp.ClientConnectorCertificateError as error:
        raise CallFailed(
            "key", f"the certificate of {error.host} cannot be trusted"
        ) from None
    except aiohttp.ClientConnectorError as error:
        raise CallFailed(
            "connection",
            f"no connection to {error.host}:{error.port}: {error.strerror}",
        ) from None
    except (aiohttp.ClientError, OSError, asyncio.IncompleteReadError) as error:
        raise CallFailed(
            "connection", f"the connection broke: {type(error).__name__}", cut_off=True
        ) from None


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    data = bytearray()
    async for chunk in response.content.iter_any():
        data += chunk
        if len(data) > MAX_REPLY_BYTES:
            raise CallFailed(
                "server",
                f"the server sent more than {MAX_REPLY_BYTES:,} bytes",
                cut_off=True,
            )
    return bytes(data)
