"""llama.cpp's own HTTP server, from the wheel of `xllamacpp`, in a process of its own; and a proxy that records what
it answers, so that a test can hold a status against the raw reply."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_SERVER = """
import sys, xllamacpp
model, projector, context, slots, predict = sys.argv[1:]
options = xllamacpp.CommonParams()
options.model.path, options.mmproj.path = model, projector
options.n_ctx, options.n_parallel, options.n_predict = int(context), int(slots), int(predict)
options.cpuparams.n_threads = options.cpuparams_batch.n_threads = 1
options.warmup, options.ui, options.verbosity = False, False, 1
server = xllamacpp.Server(options)
print(server.listening_address, flush=True)
sys.stdin.read()  # until the test closes it
"""


@contextlib.contextmanager
def serve(
    model: Path,
    projector: Path | str,
    *,
    context: int,
    slots: int = 1,
    predict: int = -1,
) -> Iterator[str]:
    """The address of a server of these files, which ends with the block."""
    words = [
        sys.executable,
        "-c",
        _SERVER,
        str(model),
        str(projector),
        str(context),
        str(slots),
        str(predict),
    ]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout
            address = process.stdout.readline().strip()
            assert address.startswith("http://127.0.0.1:"), (
                f"the server did not start: {address!r}"
            )
            yield address
        finally:
            process.kill()


@dataclass(frozen=True)
class RawAnswer:
    """What the server said to one request."""

    request: dict[str, Any]
    status: int
    body: bytes

    @property
    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.body)
        return document

    @property
    def text(self) -> str:
        return str(self.document["choices"][0]["message"].get("content") or "")

    @property
    def finish(self) -> str:
        return str(self.document["choices"][0]["finish_reason"])


@dataclass
class Recorder:
    url: str
    answers: list[RawAnswer] = field(default_factory=list)

    def by_id(self) -> dict[str, RawAnswer]:
        return {
            answer.document["id"]: answer
            for answer in self.answers
            if answer.status == 200
        }


@contextlib.contextmanager
def recorded(address: str) -> Iterator[Recorder]:
    """A proxy in front of a server, with all that passed through it."""
    host = address.removeprefix("http://")

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            connection = http.client.HTTPConnection(host, timeout=120)
            connection.request(
                "POST", self.path, body, {"content-type": "application/json"}
            )
            response = connection.getresponse()
            reply = response.read()
            connection.close()
            recorder.answers.append(RawAnswer(json.loads(body), response.status, reply))
            self.send_response(response.status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, *_: object) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """A client that hung up is what some tests are about."""

    with Server(("127.0.0.1", 0), Handler) as server:
        recorder = Recorder(f"http://127.0.0.1:{server.server_port}/v1")
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield recorder
        finally:
            server.shutdown()
            thread.join()
