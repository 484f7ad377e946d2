"""The one module that talks HTTP, against servers that do not."""

from __future__ import annotations

import asyncio
import gzip
import os
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from editjudge.judges import http
from editjudge.judges.failures import CallFailed
from editjudge.judges.http import HttpTransport, Response

T = TypeVar("T")
Say = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """What was received, by connection."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self.url = ""
        self.connections = 0
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []

    async def __call__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(
                    head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]
                )
                self.heads.append(head)
                self.bodies.append(await reader.readexactly(length))
                await self._say(reader, writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.close()


def talk(
    say: Say, use: Callable[[Server, HttpTransport], Awaitable[T]], timeout: float = 5.0
) -> T:
    async def run() -> T:
        server = Server(say)
        listening = await asyncio.start_server(server, "127.0.0.1", 0)
        server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
        async with listening, HttpTransport(timeout=timeout) as transport:
            return await use(server, transport)

    return asyncio.run(run())


async def post(server: Server, transport: HttpTransport, *body: bytes) -> Response:
    return await transport.post(
        server.url, {"authorization": "Bearer k"}, body or (b"{}",)
    )


def says(raw: bytes, *, hang_up: bool = False) -> Say:
    async def say(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(raw)
        await writer.drain()
        if hang_up:
            writer.close()

    return say


OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx-request-id: r1\r\n\r\n{}"


def test_status_headers_body_and_time_come_back() -> None:
    response = talk(says(OK), post)
    assert (response.status, response.body, response.headers["X-Request-Id"]) == (
        200,
        b"{}",
        "r1",
    )
    assert response.seconds is not None and 0 < response.seconds < 5


def test_an_error_is_a_response_too() -> None:
    response = talk(
        says(b"HTTP/1.1 503 No\r\ncontent-length: 4\r\nretry-after: 7\r\n\r\nbusy"),
        post,
    )
    assert (response.status, response.body, response.headers["retry-after"]) == (
        503,
        b"busy",
        "7",
    )


def test_a_body_in_pieces_arrives_as_one_as_often_as_it_is_sent() -> None:
    pieces = (
        b'{"a":"',
        b"x" * 3_000_000,
        b'","b":"',
        os.urandom(100_000).hex().encode(),
        b'"}',
    )

    async def use(server: Server, transport: HttpTransport) -> list[bytes]:
        for _ in range(2):
            await post(server, transport, *pieces)
        return server.bodies

    assert talk(says(OK), use) == [b"".join(pieces)] * 2


def test_a_connection_is_used_again() -> None:
    async def use(server: Server, transport: HttpTransport) -> int:
        for _ in range(5):
            await post(server, transport)
        return server.connections

    assert talk(says(OK), use) == 1


def problem(say: Say, timeout: float = 5.0) -> CallFailed:
    with pytest.raises(CallFailed) as raised:
        talk(say, post, timeout)
    return raised.value


HEAD = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    "say",
    [
        pytest.param(says(b"", hang_up=True), id="hangs up"),
        pytest.param(
            says(b"SSH-2.0-OpenSSH_9.6\r\n", hang_up=True), id="is no web server"
        ),
        pytest.param(
            says(HEAD + b"content-length: 100\r\n\r\n{", hang_up=True),
            id="stops halfway",
        ),
        pytest.param(
            says(HEAD + b"content-length: nine\r\n\r\n{}", hang_up=True),
            id="cannot count",
        ),
        pytest.param(
            says(
                HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n", hang_up=True
            ),
            id="chunks badly",
        ),
        pytest.param(
            says(
                HEAD + b"content-encoding: gzip\r\ncontent-length: 4\r\n\r\n{{}}",
                hang_up=True,
            ),
            id="zips badly",
        ),
        pytest.param(
            says(HEAD + b"x: " + b"y" * 200_000 + b"\r\n\r\n", hang_up=True),
            id="talks in headers",
        ),
    ],
)
def test_a_server_that_breaks_off_or_talks_nonsense_is_a_connection_that_broke(
    say: Say,
) -> None:
    broken = problem(say)
    assert broken.kind == "connection"
    assert "the connection broke" in str(broken)
    assert broken.is_transient


def test_no_connection_names_the_place() -> None:
    async def use() -> None:
        async with HttpTransport() as transport:
            await transport.post("http://127.0.0.1:9/v1", {}, (b"{}",))

    with pytest.raises(CallFailed, match=r"no connection to 127\.0\.0\.1:9") as raised:
        asyncio.run(use())
    assert raised.value.kind == "connection"


def test_https_to_a_server_that_speaks_plain_http_is_a_connection_problem() -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async def use() -> None:
        async with (
            await asyncio.start_server(plain, "127.0.0.1", 0) as listening,
            HttpTransport() as transport,
        ):
            port = listening.sockets[0].getsockname()[1]
            await transport.post(f"https://127.0.0.1:{port}/v1", {}, (b"{}",))

    with pytest.raises(CallFailed) as raised:
        asyncio.run(use())
    assert raised.value.kind == "connection"


async def forever(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(60)


async def drip(__: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"content-length: 1000\r\n\r\n")
    for _ in range(1000):
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("say", [forever, drip])
def test_an_answer_that_is_not_complete_in_time_is_a_timeout(say: Say) -> None:
    late = problem(say, timeout=0.3)
    assert (late.kind, str(late)) == ("timeout", "no complete answer within 0.3 s")


def test_an_endless_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_REPLY_BYTES", 10_000)
    long = problem(says(HEAD + b"content-length: 50000\r\n\r\n" + b" " * 50_000))
    assert (long.kind, "10,000 bytes" in str(long)) == ("server", True)


def test_a_small_answer_that_unpacks_to_an_endless_one_is_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "MAX_REPLY_BYTES", 100_000)
    bomb = gzip.compress(b" " * 50_000_000)
    head = (
        HEAD
        + b"content-encoding: gzip\r\ncontent-length: "
        + str(len(bomb)).encode()
        + b"\r\n\r\n"
    )
    assert problem(says(head + bomb)).kind in ("server", "connection")


def test_a_redirect_is_not_followed_with_the_key_in_hand() -> None:
    async def use(server: Server, transport: HttpTransport) -> tuple[int, int]:
        return (await post(server, transport)).status, len(server.heads)

    moved = b"HTTP/1.1 307 Moved\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n"
    assert talk(says(moved), use) == (307, 1)


def test_cookies_are_not_taken() -> None:
    async def use(server: Server, transport: HttpTransport) -> bytes:
        await post(server, transport)
        await post(server, transport)
        return server.heads[-1].lower()

    assert b"cookie" not in talk(
        says(OK.replace(b"\r\n\r\n", b"\r\nset-cookie: a=b\r\n\r\n")), use
    )


def test_a_transport_is_used_while_it_is_open() -> None:
    with pytest.raises(RuntimeError, match="async with"):
        asyncio.run(HttpTransport().post("http://127.0.0.1:9", {}, (b"{}",)))
