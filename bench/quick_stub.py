"""A server that costs as little as Python allows: it throws pictures away as they arrive, and knows one rubric.

    python -m bench.quick_stub

`tests.stub.server` reads and checks every body, which takes longer than a client needs to send it. This one keeps the end of
a body, finds the identifier in it, and answers `fidelity` at once, so that a benchmark finds the limit of the client.
Prints its URL, and serves until it is terminated.
"""

from __future__ import annotations

import asyncio
import json
import re

from tests.stub.answers import IDENTIFIER, envelope, expected_scores

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_END = 16_384
"""Bytes at the end of a body that are kept: the text of the question stands behind the pictures."""
_IDENTIFIER = re.compile(IDENTIFIER.encode())


class _Answering(asyncio.BufferedProtocol):
    """One connection. The socket writes into one buffer, so that no bytes are allocated for a picture."""

    def __init__(self) -> None:
        self._buffer = bytearray(1 << 18)
        self._start_anew()

    def _start_anew(self) -> None:
        self._head = b""
        self._end = b""
        self._left = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, _sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, count: int) -> None:
        if self._left < 0:
            self._head += self._buffer[:count]
            head, end_of_head, body = self._head.partition(b"\r\n\r\n")
            length = _LENGTH.search(head)
            if not end_of_head or not length:
                return
            self._left = int(length[1]) - len(body)
            self._end = body[-_END:]
        else:
            self._left -= count
            self._end = (self._end + self._buffer[max(0, count - _END) : count])[-_END:]
        if self._left <= 0:
            self._transport.write(_response(self._end))
            self._start_anew()


def _response(end_of_body: bytes) -> bytes:
    match = _IDENTIFIER.search(end_of_body)
    name = match[0].decode() if match else ""
    message = {
        "role": "assistant",
        "content": json.dumps(
            envelope("fidelity", expected_scores(0, name, "fidelity"), name)
        ),
    }
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    usage = {"prompt_tokens": 1000, "completion_tokens": 100}
    body = json.dumps(
        {"id": "quick", "model": "stub", "choices": [choice], "usage": usage}
    ).encode()
    return (
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
        % (len(body), body)
    )


async def _serve() -> None:
    server = await asyncio.get_running_loop().create_server(
        _Answering, "127.0.0.1", 0, backlog=512
    )
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve())
