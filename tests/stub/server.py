"""A loopback server that speaks the wire formats of vision judges, misbehaves on demand and knows what it said.

    async with Stub(Behaviour(rate_limited=0.2, latency=0.5), seed=1) as stub:
        ...                                   # POST to stub.url + "/v1/chat/completions"
    stub.ledger.paid, stub.ledger.answers

or, in a process of its own: `python -m tests.stub.server --latency 0.5 --fault garbage=0.1`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import hashlib
import json
import re
import signal
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Self

from aiohttp import web

from tests.stub import answers
from tests.stub.answers import (
    IDENTIFIER,
    Json,
    Question,
    Usage,
    Wire,
    draw,
    expected_scores,
    read_question,
)
from tests.stub.batch import Batches

__all__ = [
    "FAULTS",
    "Answer",
    "Behaviour",
    "Ledger",
    "Moment",
    "Stub",
    "expected_scores",
    "read_question",
    "serve_in_thread",
]

_KEPT = 200_000
"""Answers and moments that the ledger keeps; the counts go on."""
_HTML = b"<!DOCTYPE html><html><head><title>Bad gateway</title></head><body>nginx</body></html>"


@dataclass(frozen=True)
class Faults:
    """The probability of each, drawn in this order per request; the first that strikes decides.

    So a later one has its probability among the requests that the earlier ones let through.
    """

    hang_up: float = 0.0
    """The socket closes before any byte."""
    timeout: float = 0.0
    """No answer until the client gives up, or `timeout_after` passes."""
    rate_limited: float = 0.0
    server_error: float = 0.0
    """500, 502 (HTML, as proxies send it) or 503."""
    overloaded: float = 0.0
    """529, or 503 where the vendor has no such status."""
    not_json_http: float = 0.0
    """200 with a page of HTML."""
    half_answer: float = 0.0
    """Headers and half the body, then the socket closes."""
    garbage: float = 0.0
    """Prose, broken JSON or HTML where the answer should be."""
    length_stop: float = 0.0
    refusal: float = 0.0
    """As the vendor marks it, or in plain words."""
    content_filter: float = 0.0
    empty: float = 0.0
    wrong_id: float = 0.0
    """Leaves rubrics without an identifier alone."""
    decimal: float = 0.0
    two_answers: float = 0.0


FAULTS = tuple(f.name for f in dataclasses.fields(Faults))


@dataclass(frozen=True)
class Behaviour(Faults):
    """How the server treats its clients; by default well."""

    slow_drip: float = 0.0
    """The probability that a body comes a few bytes at a time; on top of whatever else happens."""
    drip_seconds: float = 1.0
    sticky: frozenset[str] = frozenset()
    """Faults that always hit the same questions, rather than being drawn anew for each request."""
    latency: float = 0.0
    jitter: float = 0.0
    """Seconds, at most, on top of the latency. What is turned away (4xx) is turned away at once."""
    bandwidth: float | None = None
    """Bytes per second and connection at which uploads are read."""
    limit_rps: float | None = None
    """A token bucket: requests beyond it get 429."""
    limit_burst: float | None = None
    """What the bucket holds; a second's worth unless told."""
    retry_after: float | None = 1.0
    """Seconds in the header of a 429; without it no header."""
    timeout_after: float = 60.0
    schema_support: Literal["full", "none"] = "full"
    prefers: Callable[[str, str], str] | None = None
    """Which of two outputs it names, by their digests in the order shown: a, b or tie."""
    thinks: bool = False
    """Whether the model takes every token that it is allowed."""

    def __post_init__(self) -> None:
        for name in (*FAULTS, "slow_drip"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(
                    f"{name}={getattr(self, name)}: a probability is between 0 and 1"
                )
        if unknown := self.sticky - {*FAULTS, "slow_drip"}:
            raise ValueError(f"sticky names unknown faults: {sorted(unknown)}")


class Answer(NamedTuple):
    """One answer of the model, which somebody would have paid for."""

    request_id: str
    wire: str
    model: str
    rubric: str
    content_key: str
    identifier: str | None
    scores: dict[str, int]
    """What is right, whether or not a fault spoilt how it was said."""
    outcome: str
    """`right`, or the fault."""
    usage: Usage


class Moment(NamedTuple):
    """When a request was answered, how (0: not at all), and how many were in flight then, itself included."""

    time: float
    status: int
    in_flight: int


@dataclass(frozen=True, slots=True)
class Reply:
    """What goes back, and why; status 0 stands for nothing at all."""

    status: int
    body: bytes = b""
    fault: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    answer: Answer | None = None
    drip: bool = False


@dataclass
class Ledger:
    """What was asked and said. Times are those of `time.monotonic`, which the processes of a machine share."""

    requests: int = 0
    paid: int = 0
    """Answers of the model with status 200; half an answer too, since vendors bill what they made."""
    by_fault: Counter[str] = field(default_factory=Counter)
    """Faults, and `over_limit`, `schema_refused`, `bad_request`, `gave_up` (the client left too early)."""
    by_status: Counter[int] = field(default_factory=Counter)
    by_outcome: Counter[str] = field(default_factory=Counter)
    in_flight: int = 0
    peak_in_flight: int = 0
    connections: int = 0
    """Distinct ones that carried a question."""
    bytes_received: int = 0
    first: float | None = None
    last: float | None = None
    answers: deque[Answer] = field(default_factory=lambda: deque(maxlen=_KEPT))
    abandoned: deque[Answer] = field(default_factory=lambda: deque(maxlen=_KEPT))
    """Answers that the model made, or was making, when the client left: vendors bill them, too."""
    log: deque[Moment] = field(default_factory=lambda: deque(maxlen=_KEPT))
    _asked: set[tuple[str, str, str]] = field(default_factory=set)
    _transports: weakref.WeakSet[asyncio.BaseTransport] = field(
        default_factory=weakref.WeakSet
    )

    @property
    def least_paid(self) -> int:
        """The fewest paid calls that could have been made: distinct questions, repeats counted as one."""
        return len(self._asked)

    def arrive(self, transport: asyncio.BaseTransport | None) -> int:
        """The number of this request, from 0."""
        self.last = time.monotonic()
        self.first = self.last if self.first is None else self.first
        self.requests += 1
        self.in_flight += 1
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)
        if transport and transport not in self._transports:
            self._transports.add(transport)
            self.connections += 1
        return self.requests - 1

    def record(self, reply: Reply) -> None:
        self.by_status[reply.status] += 1
        self.log.append(Moment(time.monotonic(), reply.status, self.in_flight))
        if reply.fault:
            self.by_fault[reply.fault] += 1
        if reply.drip:
            self.by_fault["slow_drip"] += 1
        if answer := reply.answer:
            self.paid += 1
            self.by_outcome[answer.outcome] += 1
            self.answers.append(answer)
            self._asked.add((answer.model, answer.rubric, answer.content_key))

    def as_json(self, with_answers: bool = False, with_log: bool = False) -> Json:
        hidden = {"_asked", "_transports", "answers", "abandoned", "log"}
        plain = {key: value for key, value in vars(self).items() if key not in hidden}
        plain["least_paid"] = self.least_paid
        if with_answers:
            plain["answers"] = [
                {**a._asdict(), "usage": a.usage._asdict()} for a in self.answers
            ]
        if with_log:
            plain["log"] = list(self.log)
        return plain


@dataclass
class Bucket:
    """Tokens that come back at a rate; full to begin with."""

    tokens: float = float("inf")
    filled: float = 0.0

    def take(self, rate: float, size: float) -> bool:
        now = time.monotonic()
        self.tokens = min(size, self.tokens + (now - self.filled) * rate)
        self.filled = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


class Stub:
    """The server; runs in the caller's event loop. `behaviour` may be replaced while it runs."""

    def __init__(
        self,
        behaviour: Behaviour | None = None,
        seed: int = 0,
        *,
        port: int = 0,
        identifier: str = IDENTIFIER,
    ) -> None:
        self.behaviour = behaviour or Behaviour()
        self.seed = seed
        self.url = ""
        self._port = port
        self._identifier = re.compile(identifier)
        self.batches = Batches(self)
        self.reset()

    def reset(self) -> None:
        """Forget everything, as if just started; what is in flight stays with the old ledger."""
        self.ledger = Ledger()
        self._bucket = Bucket()

    async def __aenter__(self) -> Self:
        # Cancelling a handler when its client leaves is what ends a `timeout` and keeps `in_flight` true.
        server = web.Server(self._handle, handler_cancellation=True, access_log=None)
        self._runner = web.ServerRunner(server, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port, backlog=4096).start()
        self.url = "http://{}:{}".format(*self._runner.addresses[0][:2])
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        match request.method, request.path:
            case ["POST", path] if wire := answers.wire_of(path):
                return await self._attend(request, wire)
            case ["GET", path] if path.endswith("/models"):
                return web.json_response(_models())
            case ["GET", "/ledger"]:
                return web.json_response(
                    self.ledger.as_json(
                        "answers" in request.query, "log" in request.query
                    )
                )
            case ["POST", "/reset"]:
                self.reset()
                return web.json_response({})
        if (response := await self.batches.handle(request)) is not None:
            return response
        return web.json_response(
            {"error": {"message": f"nothing at {request.path}"}}, status=404
        )

    async def _attend(self, request: web.BaseRequest, wire: Wire) -> web.StreamResponse:
        ledger = self.ledger
        number = ledger.arrive(request.transport)
        # holds if the client leaves before there is another
        reply = Reply(0, fault="gave_up")
        try:
            try:
                body = await self._read(request)
                ledger.bytes_received += len(body)
                decided = self._decide(wire, request.path, body, number)
                try:
                    await self._work(decided, number)
                except asyncio.CancelledError:
                    if decided.answer:
                        ledger.abandoned.append(decided.answer)
                    raise
                reply = decided
            finally:
                # Before the last byte leaves: who has an answer finds it in the ledger.
                ledger.record(reply)
            return await self._deliver(request, reply)
        finally:
            ledger.in_flight -= 1

    async def _read(self, request: web.BaseRequest) -> bytes:
        if not (bandwidth := self.behaviour.bandwidth):
            return await request.content.read()
        chunks = []
        async for chunk in request.content.iter_any():
            chunks.append(chunk)
            await asyncio.sleep(len(chunk) / bandwidth)
        return b"".join(chunks)

    def answered_in_a_batch(self, wire: Wire, path: str, body: bytes) -> Reply:
        """The same answer as at once, and in the same ledger."""
        number = self.ledger.arrive(None)
        reply = self._decide(wire, path, body, number)
        self.ledger.record(reply)
        self.ledger.in_flight -= 1
        return reply

    def _decide(self, wire: Wire, path: str, body: bytes, number: int) -> Reply:
        """What to reply; nothing is sent or counted here."""
        tag = hashlib.sha256(f"{self.seed}\x1f{number}".encode()).hexdigest()[:24]
        try:
            question = read_question(wire, path, body, self._identifier)
        except ValueError as error:
            return _error(
                wire, tag, 400, "bad_request", f"This is no question: {error}"
            )
        rate = self.behaviour.limit_rps
        if rate and not self._bucket.take(
            rate, self.behaviour.limit_burst or max(1.0, rate)
        ):
            return _rate_limit(wire, tag, "over_limit", self.behaviour.retry_after)
        fault = next(
            (name for name in FAULTS if self._strikes(name, question, number)), None
        )
        if failed := self._fail(fault, wire, tag, number):
            return failed
        if question.schema and self.behaviour.schema_support == "none":
            return _error(
                wire,
                tag,
                400,
                "schema_refused",
                answers.schema_refusal(question),
                question.schema,
            )
        return self._answer(question, fault, tag, number)

    def _strikes(self, name: str, question: Question, number: int) -> bool:
        probability: float = getattr(self.behaviour, name)
        if not probability or (name == "wrong_id" and not question.identifier):
            return False
        drawn_for = question.content_key if name in self.behaviour.sticky else number
        return draw(self.seed, name, drawn_for) < probability

    def _fail(
        self, fault: str | None, wire: Wire, tag: str, number: int
    ) -> Reply | None:
        """The faults that leave no answer of the model, so nothing to pay."""
        match fault:
            case "hang_up" | "timeout":
                return Reply(0, fault=fault)
            case "rate_limited":
                return _rate_limit(wire, tag, fault, self.behaviour.retry_after)
            case "server_error":
                status = (500, 502, 503)[int(draw(self.seed, "status", number) * 3)]
                html = Reply(502, _HTML, fault, {"Content-Type": "text/html"})
                return (
                    html
                    if status == 502
                    else _error(wire, tag, status, fault, "The server had an error.")
                )
            case "overloaded":
                return _error(
                    wire, tag, 529 if wire == "anthropic" else 503, fault, "Overloaded"
                )
            case "not_json_http":
                return Reply(200, _HTML, fault, {"Content-Type": "text/html"})
            case "content_filter" if wire == "anthropic":
                return _error(
                    wire, tag, 400, fault, "Output blocked by content filtering policy"
                )
        return None

    def _answer(
        self, question: Question, fault: str | None, tag: str, number: int
    ) -> Reply:
        scores = expected_scores(self.seed, question.content_key, question.rubric)
        if self.behaviour.prefers and question.outputs:
            scores = dict.fromkeys(scores, self.behaviour.prefers(*question.outputs))
        fenced = draw(self.seed, "fence", question.content_key) < 0.5
        said = answers.say(
            question, scores, fault, fenced, draw(self.seed, "variant", number)
        )
        said = answers.limited(question, said, self.behaviour.thinks)
        answer = Answer(
            f"req_{tag}",
            question.wire,
            question.model,
            question.rubric,
            question.content_key,
            question.identifier,
            scores,
            outcome=fault or "right",
            usage=answers.usage(question, said),
        )
        body = json.dumps(answers.answer_body(question, said, tag)).encode()
        drip = self._strikes("slow_drip", question, number)
        return Reply(200, body, fault, _headers(question.wire, tag), answer, drip)

    async def _work(self, reply: Reply, number: int) -> None:
        behaviour = self.behaviour
        # Turning somebody away takes no time.
        if (behaviour.latency or behaviour.jitter) and not 400 <= reply.status < 500:
            await asyncio.sleep(
                behaviour.latency + behaviour.jitter * draw(self.seed, "jitter", number)
            )

    async def _deliver(
        self, request: web.BaseRequest, reply: Reply
    ) -> web.StreamResponse:
        half = reply.fault == "half_answer"
        if reply.status and not half and not reply.drip:
            return web.Response(
                status=reply.status, body=reply.body, headers=reply.headers
            )
        response = web.StreamResponse(headers=reply.headers)
        if reply.fault == "timeout":
            await asyncio.sleep(self.behaviour.timeout_after)
        if reply.status:
            response.content_length = len(reply.body)
            await response.prepare(request)
            await self._drip(
                response,
                reply.body[: len(reply.body) // 2] if half else reply.body,
                reply.drip,
            )
        # aiohttp takes a write to a closed socket for a client that left, and says nothing.
        if request.transport and (half or not reply.status):
            request.transport.close()
        return response

    async def _drip(
        self, response: web.StreamResponse, body: bytes, slowly: bool
    ) -> None:
        size = len(body) // 20 + 1 if slowly else len(body)
        for at in range(0, len(body), size):
            await response.write(body[at : at + size])
            await asyncio.sleep(self.behaviour.drip_seconds / 20 if slowly else 0)


def _headers(wire: Wire, tag: str) -> dict[str, str]:
    name = "request-id" if wire == "anthropic" else "x-request-id"
    return {"Content-Type": "application/json", name: f"req_{tag}"}


def _error(
    wire: Wire,
    tag: str,
    status: int,
    fault: str,
    message: str,
    param: str | None = None,
) -> Reply:
    body = json.dumps(answers.error_body(wire, status, message, tag, param)).encode()
    return Reply(status, body, fault, _headers(wire, tag))


def _rate_limit(wire: Wire, tag: str, fault: str, retry_after: float | None) -> Reply:
    reply = _error(wire, tag, 429, fault, "Rate limit reached. Please try again later.")
    if retry_after is not None:
        reply.headers["Retry-After"] = f"{retry_after:g}"
    return reply


def _models() -> Json:
    """One list that each vendor's client can read."""
    model = {
        "id": "stub",
        "object": "model",
        "created": 1767225600,
        "owned_by": "editjudge",
    }
    model |= {
        "type": "model",
        "display_name": "Stub",
        "created_at": "2026-01-01T00:00:00Z",
    }
    google = {"name": "models/stub", "supportedGenerationMethods": ["generateContent"]}
    return {"object": "list", "data": [model], "has_more": False, "models": [google]}


@contextlib.contextmanager
def serve_in_thread(
    behaviour: Behaviour | None = None,
    seed: int = 0,
    *,
    port: int = 0,
    identifier: str = IDENTIFIER,
) -> Iterator[Stub]:
    """A stub for code without an event loop."""
    stub = Stub(behaviour, seed, port=port, identifier=identifier)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="stub", daemon=True)
    thread.start()

    def run(step: Coroutine[Any, Any, object]) -> None:
        asyncio.run_coroutine_threadsafe(step, loop).result()

    try:
        run(stub.__aenter__())
        try:
            yield stub
        finally:
            run(stub.__aexit__())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _serve_until_told(stub: Stub) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with stub:
        print(stub.url, flush=True)
        await stop.wait()


def main() -> None:
    """Print the URL on the first line, then serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m tests.stub.server")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--identifier", default=IDENTIFIER, metavar="REGEX")
    parser.add_argument(
        "--fault", action="append", default=[], metavar="NAME=P", help=", ".join(FAULTS)
    )
    parser.add_argument("--sticky", action="append", default=[], metavar="NAME")
    parser.add_argument("--schema-support", choices=("full", "none"), default="full")
    numbers = [
        f.name
        for f in dataclasses.fields(Behaviour)
        if "float" in str(f.type) and f.name not in FAULTS
    ]
    for name in numbers:
        parser.add_argument(
            "--" + name.replace("_", "-"), type=float, default=getattr(Behaviour, name)
        )
    options = parser.parse_args()
    settings: Json = {
        name: getattr(options, name) for name in (*numbers, "schema_support")
    }
    try:
        settings |= {
            name: float(p)
            for name, _, p in (fault.partition("=") for fault in options.fault)
        }
        behaviour = Behaviour(**settings, sticky=frozenset(options.sticky))
    except (TypeError, ValueError) as error:
        parser.error(str(error))
    asyncio.run(
        _serve_until_told(
            Stub(
                behaviour,
                options.seed,
                port=options.port,
                identifier=options.identifier,
            )
        )
    )


if __name__ == "__main__":
    main()
