"""The pace of requests to a judge: adaptive concurrency, a retry policy, and a circuit breaker that opens when the
judge is down.

`running.throttle` learns from 429 responses how many requests a judge admits. A 5xx response or a timeout means that
the server has a problem, which fewer requests may or may not solve, so concurrency only stops growing.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import sys
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from editjudge.errors import JudgeError
from editjudge.judges.failures import CallFailed
from editjudge.judges.judge import JudgeServer
from editjudge.running.throttle import START, Throttle

T = TypeVar("T")

_SHORT_BLOCK = 10.0
"""Seconds for which a judge may refuse all requests with 429 before it counts as down. A short rate-limit window may
just be used up.
"""
_CHANCE = random.Random()  # noqa: S311  (spreads retries, guards nothing)
_LONGEST_REST = 10.0
"""Maximum number of seconds before a server that failed gets its next question, if others answer meanwhile."""
_LOOK = 0.02
"""Seconds between checks for a free server."""
_ELSEWHERE = (
    "Is its server running? Its address is that of --base-url, or of --judge http:URL."
)
_NOTHING_LOST = "Nothing is lost: run the same command again to resume."


@dataclass(frozen=True)
class Retry:
    """The program's only retry policy. No other code repeats an unanswered request."""

    tries: int = 10
    """Maximum number of attempts for one question. If 32 % of requests fail, as in the fault tests, one question in
    90,000 stays unanswered.
    """
    billable: int = 2
    """Maximum number of retries after failures that may be billed, such as timeouts and truncated answers."""
    first: float = 0.5
    longest: float = 30.0
    patience: float = 300.0
    """Longest wait that a server may ask for before it counts as down."""

    def pause(
        self, problem: CallFailed, failures: int, chance: random.Random = _CHANCE
    ) -> float:
        """Return the number of seconds to wait before a retry. It is at least what the server asks for, with jitter so
        that retries do not coincide.
        """
        jitter = chance.uniform(0.5, 1.0)
        # Each such retry may cost as much as an answer.
        first = self.first * (4 if problem.may_be_billed else 1)
        # The throttle already slows down all questions after a 429, so only repeated ones increase this question's
        # own pause.
        doublings = max(0, failures - (3 if problem.kind == "rate limit" else 1))
        backoff = min(self.longest, first * 2.0 ** min(doublings, 20)) * jitter
        return max(backoff, (problem.retry_after or 0.0) * (1 + 0.1 * jitter))


_DECLINED = ("refusal", "schema", "image", "grammar")
"""Kinds of failure that show that the judge answers, although it declined the question."""


class JudgeDown(JudgeError):
    """Raised when a judge does not answer. The run stops, and its remaining tasks stay pending."""


@dataclass
class Circuit:
    """Circuit breaker. It opens after many consecutive failures, and then admits only one request at a time, as a
    probe.
    """

    judge: str
    threshold: int = 9
    """Number of consecutive failures that open the circuit. It is one less than the number of attempts for a question,
    so the circuit opens before even a single question has failed. If 32 % of requests fail, this happens by chance once
    in 28,000 requests, and only costs a message.
    """
    patience: float = 120.0
    """Seconds that a judge may stay down before the run gives up."""
    absence: float = 15.0
    """Seconds after which the run gives up on a judge that was never reached, because it is not running or has another
    address.
    """
    say: Callable[[str], None] = field(default=lambda _: None)
    over: bool = False
    """Whether no more requests are sent."""
    stopped: bool = False
    """Whether waiting tasks are ended. Requests in flight may still be answered, and retried after an invalid reply."""
    _failures: int = 0
    _connected: bool = False
    _absent: float | None = None
    """Time since which there has been no connection."""
    _opened: float | None = None
    _probing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _woken: asyncio.Event = field(default_factory=asyncio.Event)
    _reason: str = ""
    _error: type[JudgeError] = JudgeDown
    """Class of the error that is raised, with the reason, for every question that is no longer sent."""

    @property
    def open(self) -> bool:
        return self._opened is not None

    def succeeded(self) -> None:
        self._failures = 0
        self._connected = True
        if self._opened is not None:
            self._opened = None
            self.say(f"{self.judge} answers again")

    def failed(self, problem: CallFailed, in_flight: int = 1) -> None:
        """Count a failure. Raise a `JudgeError` if it ends the run. When a rate limit is reached, all `in_flight`
        requests fail together, which alone does not mean that the judge is down.
        """
        now = time.monotonic()
        self._failures += 1
        self._connected = self._connected or problem.kind != "connection"
        patience = self.patience
        if not self._connected:
            patience = min(self.absence, self.patience)
            self._absent = now if self._absent is None else self._absent
            if now - self._absent >= self.absence:
                raise self.end(
                    f"{self.judge} cannot be reached: {problem}. {_ELSEWHERE} {_NOTHING_LOST}"
                )
        too_many = self._failures >= max(self.threshold, 2 * in_flight)
        if too_many and problem.kind in ("request", "context"):
            raise self.end(
                f"{self.judge} refused {self._failures} questions in a row: {problem}"
            )
        if self._opened is not None:
            if now - self._opened > self.patience:
                raise self.end(
                    f"{self.judge} did not answer for {self.patience:g} s: {problem}. {_NOTHING_LOST}"
                )
        elif too_many:
            self._opened = now
            self.say(
                f"{self.judge} is down ({problem}); waiting up to {patience:g} s for it"
            )

    def end(self, reason: str, error: type[JudgeError] = JudgeDown) -> JudgeError:
        """Stop sending requests, and return the error to raise. Requests in flight have been paid for and may still be
        answered.
        """
        if not self._reason:
            self._reason = reason
            self._error = error
        self.over = True
        self._woken.set()
        return self._error(self._reason)

    def stop(self) -> None:
        """End all waits, because the run is being stopped. The waiting questions stay pending."""
        self._reason = self._reason or "the run was stopped"
        self.stopped = True
        self._woken.set()

    async def rest(self, seconds: float) -> None:
        """Sleep for this many seconds. Return earlier if the circuit ends, or if the run gives up on a judge that was
        never reached.
        """
        if self._absent is not None and not self._connected:
            seconds = min(seconds, self._absent + self.absence - time.monotonic())
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), seconds)
            if self.stopped:
                raise self._error(self._reason)

    @asynccontextmanager
    async def wait_until_allowed(self) -> AsyncIterator[None]:
        """Let all requests through as long as the judge responds, but only one at a time when it does not."""
        if self.open:
            async with self._probing:
                if self.open:  # else it answers since a moment ago, and all that waited go together
                    self.check()
                    yield
                    return
        self.check()
        yield

    def check(self) -> None:
        """Raise a `JudgeError` if no more requests may be sent."""
        if self.over or (self.stopped and self.open):
            raise self._error(self._reason)


class Pace:
    """Slots for requests to one judge. Their number and rate adapt to what the judge admits."""

    def __init__(
        self,
        judge: str,
        *,
        concurrency: int | None = None,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        retry: Retry | None = None,
        circuit: Circuit | None = None,
        seed: int | None = None,
    ) -> None:
        self.judge = judge
        self.retry = retry or Retry()
        self._chance = random.Random(seed)  # noqa: S311  (spreads retries, guards nothing)
        self.throttle = Throttle(concurrency)
        self.circuit = circuit or Circuit(judge)
        self.in_flight = 0
        """Number of slots in use."""
        self.pausing = 0
        """Number of questions that are waiting for a retry. They do not use a slot in the meantime."""
        self._has_answered = False
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._meters = [_Meter(requests_per_minute), _Meter(tokens_per_minute)]
        self._send_order = asyncio.Lock()
        self._same = partial(
            Pace,
            concurrency=concurrency,
            requests_per_minute=requests_per_minute,
            tokens_per_minute=tokens_per_minute,
            retry=self.retry,
            seed=seed,
        )
        self._servers: list[_PacedServer] = []
        """Servers that share the requests; empty if there is only one."""
        self._models_differ = False
        """Whether it was reported that the servers run different models."""

    def spread(self, urls: Sequence[str]) -> None:
        """Divide the requests among several servers, each with its own pace. A server that fails is left alone for a
        while, and its questions go to the others.
        """
        for url in urls:
            # Only all servers together can be down.
            circuit = Circuit(url, threshold=sys.maxsize, absence=math.inf)
            pace = self._same(url, circuit=circuit)
            self._servers.append(_PacedServer(url, pace=pace))

    @property
    def limit(self) -> int:
        """Maximum number of requests in flight."""
        if self._servers:
            return max(1, sum(server.limit for server in self._servers))
        return int(self.throttle.limit)

    @property
    def window(self) -> int:
        """Maximum number of questions in flight, including those that are waiting for a retry."""
        return self.limit + min(self.pausing, self.limit)

    async def send_with_retries(
        self, send: Callable[..., Awaitable[T]], tokens: int = 0
    ) -> tuple[T, int]:
        """Send a request, and retry it if it fails. Return the reply and the number of failed attempts before it."""
        failures = spent = billable = 0
        streaks: Counter[str] = Counter()
        while True:
            result, is_down = await self._send_once(send, tokens)
            if not isinstance(result, CallFailed):
                return result, failures
            failures += 1
            # While the circuit is open, attempts are not counted, so that tasks do not fail because the judge is
            # down.
            spent += not is_down
            billable += result.may_be_billed
            goes_on = self._goes_on(result)
            if (
                not (result.is_transient or goes_on)
                or spent >= self.retry.tries
                or billable > self.retry.billable
            ):
                raise result
            streaks[result.kind] += 1
            if goes_on:
                await self._rest(0.0)
                continue
            pause = self.retry.pause(result, streaks[result.kind], self._chance)
            if pause > self.retry.patience:
                raise self.circuit.end(
                    f"{self.judge} asks to retry after {pause:.0f} s, longer than the limit of "
                    f"{self.retry.patience:.0f} s: {result}. {_NOTHING_LOST}"
                )
            await self._rest(pause)

    def _goes_on(self, problem: CallFailed) -> bool:
        """Whether another server can be asked at once after a failure that is a server's fault."""
        is_fault = problem.is_transient or problem.kind in ("key", "model")
        return is_fault and any(server.limit for server in self._servers)

    async def _send_once(
        self, send: Callable[..., Awaitable[T]], tokens: int
    ) -> tuple[T | CallFailed, bool]:
        """Send a request, to the least busy server if there are several. Return the reply or the failure, and whether
        the failure is due to a judge or server that is down.
        """
        if not self._servers:
            return await self._send_here(send, tokens)
        server = await self._free_server()
        pace = server.pace
        pace.in_flight += 1
        result: T | CallFailed
        try:
            result, _ = await pace._send_here(partial(send, server), tokens)
        except JudgeError as error:
            if self.circuit.stopped:
                raise
            result = CallFailed("model", str(error))
        finally:
            pace.in_flight -= 1
        problem = result if isinstance(result, CallFailed) else None
        self._note(server, problem)
        goes_on = problem is not None and self._goes_on(problem)
        if not goes_on:
            self._update_circuit(problem)
        self._wake()
        return result, self.circuit.open or goes_on

    async def _free_server(self) -> _PacedServer:
        """Return the server that has the smallest share of its requests in flight. Wait if none accepts any."""
        while True:
            self.circuit.check()
            now = time.monotonic()
            free = [
                server
                for server in self._servers
                if server.pace.in_flight < server.limit
                and server.pace.throttle.wait(now) <= _LOOK
            ]
            if free:
                return min(free, key=lambda each: each.pace.in_flight / each.limit)
            if self.circuit.stopped:
                raise JudgeDown("the run was stopped")
            await asyncio.sleep(_LOOK)

    def _note(self, server: _PacedServer, problem: CallFailed | None) -> None:
        """Record how a server answered, and report when it is dropped, comes back, or runs another model."""
        if problem is None:
            if server.dropped:
                self.circuit.say(f"{self.judge}: {server.url} answers again")
            server.failures = 0
            server.dropped = False
            server.rests_until = 0.0
            models = {each.url: each.model for each in self._servers if each.model}
            if len({*models.values()}) > 1 and not self._models_differ:
                self._models_differ = True
                names = ", ".join(f"{model} at {url}" for url, model in models.items())
                self.circuit.say(
                    f"{self.judge}: the servers run different models: {names}"
                )
            return
        ends = problem.kind in ("key", "model")
        if not problem.is_transient and not ends:
            return
        server.failures += 1
        if problem.kind != "rate limit" or problem.retry_after:
            pause = self.retry.pause(problem, server.failures, self._chance)
            if not problem.retry_after:
                pause = min(pause, _LONGEST_REST)
            server.rests_until = time.monotonic() + pause
        is_down = ends or problem.kind == "connection"
        if is_down and not server.dropped and any(each.limit for each in self._servers):
            server.dropped = True
            self.circuit.say(
                f"{self.judge}: {server.url} is dropped ({problem}); the other servers go on"
            )

    async def _send_here(
        self, send: Callable[..., Awaitable[T]], tokens: int
    ) -> tuple[T | CallFailed, bool]:
        """Send a request as soon as the limits, the circuit and the rate allow it. Return the reply or the failure, and
        whether the judge now counts as down.
        """
        for meter, amount in zip(self._meters, (1, tokens), strict=True):
            await self.circuit.rest(meter.wait(amount))
        async with self.circuit.wait_until_allowed():
            # One at a time, so that a new rate applies from the next request on.
            async with self._send_order:
                while (
                    seconds := self.throttle.wait(time.monotonic())
                ) > 1e-5 and not self.circuit.over:
                    await self.circuit.rest(seconds)
                self.circuit.check()
                permit = self.throttle.send(time.monotonic())
            result: T | CallFailed
            try:
                result = await send()
            except CallFailed as problem:
                result = permit.problem = problem
            except BaseException:
                self.throttle.drop(permit)
                raise
            self.throttle.done(permit, time.monotonic())
            self._wake()
            self._update_circuit(permit.problem)
            return result, self.circuit.open or self.throttle.blocked

    async def _rest(self, seconds: float) -> None:
        """Sleep without using a slot. Then take the next free slot, before any new question."""
        self._leave()
        self.pausing += 1
        try:
            await self.circuit.rest(seconds)
            await self._enter(first=True)
        except BaseException:
            self.in_flight += 1  # which `slot` gives back
            raise
        finally:
            self.pausing -= 1

    def stop(self) -> None:
        self.circuit.stop()
        for server in self._servers:
            server.pace.stop()

    @asynccontextmanager
    async def slot(self, *, has_reply: bool = False) -> AsyncIterator[None]:
        """Wait for a slot, in order of arrival. While the run is being stopped, only a question that has a reply gets a
        slot, since the reply has been paid for.
        """
        await self._enter(first=has_reply)
        try:
            if self.circuit.stopped and not has_reply:
                raise JudgeDown("the run was stopped")
            yield
        finally:
            self._leave()

    async def _enter(self, *, first: bool = False) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.insert(0 if first else len(self._waiting), turn)
        self._wake()
        try:
            await turn
        except asyncio.CancelledError:
            if (
                turn.done() and not turn.cancelled()
            ):  # given to a task that had just left
                self._leave()
            raise

    def _leave(self) -> None:
        self.in_flight -= 1
        self._wake()

    def _wake(self) -> None:
        """Assign free slots to waiting questions, so no other question takes them."""
        while self._waiting and (
            self._waiting[0].done() or self.in_flight < self.limit
        ):
            turn = self._waiting.popleft()
            if not turn.done():  # else cancelled
                turn.set_result(None)
                self.in_flight += 1

    def _update_circuit(self, problem: CallFailed | None) -> None:
        self._has_answered = self._has_answered or problem is None
        # If the judge never accepted a question, all are malformed. Otherwise the fault is in this question.
        accepted = ("request", "context") if self._has_answered else ()
        if problem is None or problem.kind in (*_DECLINED, *accepted):
            self.circuit.succeeded()
        elif problem.kind in ("key", "model"):
            # All questions get the same error, whichever of them ends the run first.
            self.circuit.end(f"{self.judge}: {problem}", JudgeError)
        elif problem.kind == "rate limit" and self.throttle.blocked:
            if self.throttle.blocked_for(time.monotonic()) > _SHORT_BLOCK:
                self.circuit.failed(problem)
        elif problem.kind == "rate limit" or not self._only_stragglers_left():
            self.circuit.failed(problem, self.in_flight)

    def _only_stragglers_left(self) -> bool:
        """Whether only a few questions are left for a judge that has answered before. They may fail for reasons of
        their own, such as their images, which does not mean that the judge is down.
        """
        return (
            self._has_answered
            and self.in_flight + self.pausing < START
            and not self._waiting
        )


@dataclass(eq=False)
class _PacedServer(JudgeServer):
    """One of several servers, with its own pace."""

    pace: Pace = field(kw_only=True)
    failures: int = 0
    """Number of consecutive failures."""
    rests_until: float = 0.0
    """Time before which the server is not asked after a failure; 0 after an answer."""
    dropped: bool = False
    """Whether it was reported as dropped."""

    @property
    def limit(self) -> int:
        """Maximum number of requests in flight: none during a rest, and one until it is answered after that."""
        if self.pace.circuit.over or time.monotonic() < self.rests_until:
            return 0
        return 1 if self.rests_until else self.pace.limit


class _Meter:
    """Spaces requests evenly to keep within a limit per minute. Providers penalise a burst at the start of each minute."""

    def __init__(self, per_minute: float | None) -> None:
        self._spacing = 60.0 / per_minute if per_minute else 0.0
        self._next = 0.0

    def wait(self, amount: float) -> float:
        """Return the number of seconds to wait before sending `amount`, and reserve the time that this amount takes."""
        if not self._spacing:
            return 0.0
        now = time.monotonic()
        turn = max(now, self._next)
        self._next = turn + self._spacing * amount
        return turn - now
