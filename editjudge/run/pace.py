"""How fast a judge is asked: adaptive concurrency, one finite retry policy, and a circuit that opens when it is down.

`run.throttle` finds out what 429s say about the rate. A 5xx or a timeout says that the server is in trouble, which
fewer requests may or may not cure, so concurrency only stops growing.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from editjudge.errors import JudgeError
from editjudge.judges.messages import CallFailed
from editjudge.run.throttle import START, Permit, Throttle

T = TypeVar("T")

_SHORT_BLOCK = 10.0
"""Seconds for which a judge may refuse everything with 429 before it counts as down: a short window is used up."""
_ELSEWHERE = "Is its server running? --base-url URL says where it is."
_NOTHING_LOST = "Nothing is lost: run the same command again to go on."


@dataclass(frozen=True)
class Retry:
    """The one retry policy: nothing else in the program sends a request again for want of an answer."""

    tries: int = 10
    """At 32 % failing requests, as in the fault tests, one ask in 90,000 stays unanswered."""
    billable: int = 2
    """Of these, how many may follow a failure that may be billed: a timeout, or an answer that broke off."""
    first: float = 0.5
    longest: float = 30.0
    patience: float = 300.0
    """A server that wants a longer pause than this is as good as down."""

    def pause(self, problem: CallFailed, failures: int, chance: random.Random) -> float:
        """Seconds to wait; what the server asks for is the least, and nobody retries in step with others."""
        jitter = chance.uniform(0.5, 1.0)
        first = self.first * (4 if problem.may_be_billed else 1)  # each such retry may cost as much as an answer
        # The pace heeds a 429 for all questions: only one that keeps coming is this question's own.
        doublings = max(0, failures - (3 if problem.kind == "rate limit" else 1))
        backoff = min(self.longest, first * 2.0 ** min(doublings, 20)) * jitter
        return max(backoff, (problem.retry_after or 0.0) * (1 + 0.1 * jitter))


class JudgeDown(JudgeError):
    """A judge that answers nobody: the run stops, and what is not judged yet stays to be judged."""


@dataclass
class Circuit:
    """Opens after many failures in a row without a success, and lets one request through at a time to see."""

    judge: str
    threshold: int = 9
    """Failures in a row: one less than the tries of a question, so that not even a single one at a time is burnt
    before. At 32 % failing requests that happens once in 28,000 by chance, and then costs a message."""
    patience: float = 120.0
    """Seconds that a judge may stay down before the run gives up."""
    absence: float = 15.0
    """The same for one to which there was never a connection: it is rather not started, or somewhere else."""
    say: Callable[[str], None] = field(default=lambda _: None)
    _failures: int = 0
    _absent: float | None = None
    """Since when there is no connection."""
    _heard: bool = False
    _opened: float | None = None
    _probing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _woken: asyncio.Event = field(default_factory=asyncio.Event)
    over: bool = False
    stopped: bool = False
    """Nobody waits any more; what is in flight may be answered, and asked again where it is no answer."""
    _why: str = ""

    @property
    def open(self) -> bool:
        return self._opened is not None

    def succeeded(self) -> None:
        self._failures, self._heard = 0, True
        if self._opened is not None:
            self._opened = None
            self.say(f"{self.judge} answers again")

    def failed(self, problem: CallFailed, in_flight: int = 1) -> None:
        """`in_flight` requests fail together when one limit is met, which alone does not make a judge down."""
        self._failures += 1
        self._heard = self._heard or problem.kind != "connection"
        threshold = max(self.threshold, 2 * in_flight)
        if not self._heard:
            self._absent = time.monotonic() if self._absent is None else self._absent
            if time.monotonic() - self._absent >= self.absence:
                raise self.end(f"{self.judge} cannot be reached: {problem}. {_ELSEWHERE} {_NOTHING_LOST}")
        if problem.kind in ("request", "context") and self._failures >= threshold:
            raise self.end(f"{self.judge} refused {self._failures} questions in a row: {problem}")
        if self._opened is None and self._failures >= threshold:
            self._opened = time.monotonic()
            patience = self.patience if self._heard else min(self.absence, self.patience)
            self.say(f"{self.judge} is down ({problem}); waiting up to {patience:g} s for it")
        elif self._opened is not None and time.monotonic() - self._opened > self.patience:
            raise self.end(f"{self.judge} did not answer for {self.patience:g} s: {problem}. {_NOTHING_LOST}")

    def end(self, why: str) -> JudgeDown:
        """Nobody is asked any more; what is in flight may still be answered, and was paid for."""
        self._why, self.over = self._why or why, True
        self._woken.set()
        return JudgeDown(self._why)

    def stop(self) -> None:
        """The run is being stopped: who waits leaves, and its question stays to be asked."""
        self._why, self.stopped = self._why or "the run was stopped", True
        self._woken.set()

    async def rest(self, seconds: float) -> None:
        """Sleep, but not beyond the end, nor beyond the moment when one who never came is given up."""
        if self._absent is not None and not self._heard:
            seconds = min(seconds, self._absent + self.absence - time.monotonic())
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), seconds)
            if self.stopped:
                raise JudgeDown(self._why)

    @asynccontextmanager
    async def passage(self) -> AsyncIterator[None]:
        """Nothing to wait for while the judge answers; one at a time while it does not."""
        if self.open:
            async with self._probing:
                if self.open:  # else it answers since a moment ago, and those who waited go together
                    self.check()
                    yield
                    return
        self.check()
        yield

    def check(self) -> None:
        """Raise where nobody is asked any more."""
        if self.over or (self.stopped and self.open):
            raise JudgeDown(self._why)


class Persistence(ABC):
    """Sends until there is a reply, within the retry policy, whoever allows the sends: this process, or a cluster."""

    def __init__(self, judge: str, retry: Retry | None = None, seed: int | None = None) -> None:
        self.judge = judge
        self.retry = retry or Retry()
        self._chance = random.Random(seed)  # noqa: S311  (spreads retries, guards nothing)

    async def persist(self, send: Callable[[], Awaitable[T]], tokens: int = 0) -> tuple[T, int]:
        """The reply, and how many sends brought none."""
        failures = spent = billable = 0
        streaks: Counter[str] = Counter()
        while True:
            async with self.turn(tokens) as turn:
                try:
                    reply = await send()
                except CallFailed as found:
                    turn.problem = found
            if (problem := turn.problem) is None:
                return reply, failures
            failures += 1
            # While the circuit is open a judge is waited for: its tasks must not burn into failures.
            spent += not turn.down
            billable += problem.may_be_billed
            if not problem.passing or spent >= self.retry.tries or billable > self.retry.billable:
                raise problem
            streaks[problem.kind] += 1
            pause = self.retry.pause(problem, streaks[problem.kind], self._chance)
            if pause > self.retry.patience:
                why = f"{self.judge} wants to be left alone for {pause:.0f} s: {problem}. {_NOTHING_LOST}"
                raise await self.end(why)
            await self.rest(pause)

    @abstractmethod
    def turn(self, tokens: int) -> AbstractAsyncContextManager[Permit]:
        """A send, once it may be; on leaving, what became of it is heeded by all that follow."""

    @abstractmethod
    async def rest(self, seconds: float) -> None:
        """Sleep, but not beyond the end."""

    @abstractmethod
    async def end(self, why: str) -> JudgeDown:
        """Nobody is asked any more."""


class Pace(Persistence):
    """Slots for requests to one judge; how many there are, and how fast they are used, follows what it can take."""

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
        super().__init__(judge, retry, seed)
        self.throttle = Throttle(concurrency)
        self.circuit = circuit or Circuit(judge)
        self.in_flight = 0
        """Slots in use."""
        self.pausing = 0
        """Questions that wait to be sent again, and have no slot meanwhile."""
        self._has_answered = False
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._meters = [_Meter(requests_per_minute), _Meter(tokens_per_minute)]
        self._line = asyncio.Lock()

    @property
    def window(self) -> int:
        """Questions that may be under way, those that pause included."""
        return int(self.throttle.limit) + min(self.pausing, int(self.throttle.limit))

    @asynccontextmanager
    async def turn(self, tokens: int) -> AsyncIterator[Permit]:
        for meter, amount in zip(self._meters, (1, tokens), strict=True):
            await self.circuit.rest(meter.wait(amount))
        async with self.circuit.passage():
            async with self._line:  # one after the other, so that a new rate holds from the next one on
                while (seconds := self.throttle.wait(time.monotonic())) > 1e-5 and not self.circuit.over:
                    await self.circuit.rest(seconds)
                self.circuit.check()
                permit = self.throttle.send(time.monotonic())
            try:
                yield permit
            except BaseException:
                self.throttle.drop(permit)
                raise
            self.throttle.done(permit, time.monotonic())
            self._wake()
            self._heed(permit.problem)
            permit.down = self.circuit.open or self.throttle.blocked

    async def rest(self, seconds: float) -> None:
        """Sleep without a slot, and have one again before those who come anew."""
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

    async def end(self, why: str) -> JudgeDown:
        return self.circuit.end(why)

    def stop(self) -> None:
        self.circuit.stop()

    @asynccontextmanager
    async def slot(self, *, has_reply: bool = False) -> AsyncIterator[None]:
        """A place among those who may ask now, in the order of asking; none is given once the run is stopping, unless
        there is a reply already, which was paid for."""
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
            if turn.done() and not turn.cancelled():  # given to one who had just left
                self._leave()
            raise

    def _leave(self) -> None:
        self.in_flight -= 1
        self._wake()

    def _wake(self) -> None:
        """A slot is taken by whoever gives it, so that nobody comes in between."""
        while self._waiting and (self._waiting[0].done() or self.in_flight < int(self.throttle.limit)):
            turn = self._waiting.popleft()
            if not turn.done():  # else cancelled
                turn.set_result(None)
                self.in_flight += 1

    def _heed(self, problem: CallFailed | None) -> None:
        self._has_answered = self._has_answered or problem is None
        declined = problem is None or problem.kind in ("refusal", "schema", "image", "grammar")
        # Where no question was ever taken, all are malformed; where some were, it is for what this one shows.
        if problem is None or declined or (problem.kind in ("request", "context") and self._has_answered):
            self.circuit.succeeded()  # an answer, if not the one that was hoped for
        elif problem.kind in ("key", "model"):
            self.circuit.end(f"{self.judge}: {problem}")
        elif problem.kind == "rate limit" and self.throttle.blocked:
            if self.throttle.blocked_for(time.monotonic()) > _SHORT_BLOCK:
                self.circuit.failed(problem)
        elif problem.kind == "rate limit" or not self._last_few():
            self.circuit.failed(problem, self.in_flight)

    def _last_few(self) -> bool:
        """A judge that has answered is not down because the last questions fail: one that always does, say for its
        picture, gathers failures here until the tries are used up, and nothing else is left that could burn."""
        return self._has_answered and self.in_flight + self.pausing < START and not self._waiting


class _Meter:
    """At most so many per minute, evenly: a burst at the start of each minute is what providers punish."""

    def __init__(self, per_minute: float | None) -> None:
        self._spacing = 60.0 / per_minute if per_minute else 0.0
        self._next = 0.0

    def wait(self, amount: float) -> float:
        """Seconds until it is the turn of whoever asks, which is theirs from now on."""
        if not self._spacing:
            return 0.0
        now = time.monotonic()
        turn = max(now, self._next)
        self._next = turn + self._spacing * amount
        return turn - now
