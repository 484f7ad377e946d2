"""How fast a judge is asked: adaptive concurrency, one finite retry policy, and a circuit that opens when it is down.

A 429 says that the rate is too high, so concurrency shrinks. A 5xx or a timeout says that the server is in trouble,
which fewer requests may or may not cure, so concurrency only stops growing.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from editjudge.errors import JudgeError
from editjudge.judges.messages import CallFailed

T = TypeVar("T")

CEILING = 256
"""Where automatic concurrency stops growing: at 7 ms of CPU a request (bench/throughput.py) a process is busy."""
START = 8
"""Where automatic concurrency begins: it doubles every round trip until the first 429."""
_FIRST_CUT = 0.3
"""Off the limit at the first 429: growth by doubling overshoots by up to half."""
_MEMORY = 1 / 16
"""Weight of the latest answer in the share of 429s."""
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
        backoff = min(self.longest, first * 2.0 ** min(failures - 1, 20)) * jitter
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
                    self._still_asked()
                    yield
                    return
        self._still_asked()
        yield

    def _still_asked(self) -> None:
        if self.over or (self.stopped and self.open):
            raise JudgeDown(self._why)


@dataclass
class Permit:
    """One send: when it began by the clock of whoever allowed it, and what became of it."""

    started: float
    problem: CallFailed | None = None
    down: bool = False
    """Whether the judge counts as down since."""


class Persistence(ABC):
    """Sends until there is a reply, within the retry policy, whoever allows the sends: this process, or a cluster."""

    def __init__(self, judge: str, retry: Retry | None = None, seed: int | None = None) -> None:
        self.judge = judge
        self.retry = retry or Retry()
        self._chance = random.Random(seed)  # noqa: S311  (spreads retries, guards nothing)

    @property
    def refused_by_chance(self) -> bool:
        """Whether 429s were found not to answer to the pace."""
        return False

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
            # A 429 that comes at any pace says nothing about the next one.
            again = 1 if problem.kind == "rate limit" and self.refused_by_chance else streaks[problem.kind]
            pause = self.retry.pause(problem, again, self._chance)
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
    """Slots for requests to one judge; how many there are follows what the judge can take."""

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
        self.ceiling = concurrency or CEILING
        self.limit = float(concurrency or START)
        self.circuit = circuit or Circuit(judge)
        self.in_flight = 0
        self.rate_limited = 0
        """429s so far."""
        self._has_answered = False
        self._refused = 0.0
        """Share of 429s among the latest answers."""
        self._grows_fast = True
        self._calm = 0
        """Successes to come before the limit grows again."""
        self._shrunk = -1.0
        self._trial = _Trial()
        self._limit_before = self.limit
        """What to go back to where slowing down was in vain."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._meters = [_Meter(requests_per_minute), _Meter(tokens_per_minute)]
        self._brake = _Brake()

    @asynccontextmanager
    async def turn(self, tokens: int) -> AsyncIterator[Permit]:
        for meter, amount in zip(self._meters, (1, tokens), strict=True):
            await self.rest(meter.wait(amount))
        await self._brake.wait(self.rest)
        turn = Permit(time.monotonic())
        async with self.circuit.passage():
            yield turn
        if turn.problem is None:
            self._praise(turn.started)
        else:
            self._heed(turn.problem, turn.started)
        turn.down = self.circuit.open

    async def rest(self, seconds: float) -> None:
        await self.circuit.rest(seconds)

    async def end(self, why: str) -> JudgeDown:
        return self.circuit.end(why)

    def stop(self) -> None:
        self.circuit.stop()

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """A place among those who may ask now, in the order of asking; none is given once the run is stopping."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._wake()
        try:
            await turn
            if self.circuit.stopped:
                raise JudgeDown("the run was stopped")
            yield
        finally:
            if turn.done() and not turn.cancelled():  # also where it was given to one who had just left
                self.in_flight -= 1
                self._wake()

    def _wake(self) -> None:
        """A place is taken by whoever gives it, so that nobody comes in between."""
        while self._waiting and (self._waiting[0].done() or self.in_flight < int(self.limit)):
            turn = self._waiting.popleft()
            if not turn.done():  # else cancelled
                turn.set_result(None)
                self.in_flight += 1

    @property
    def refused_by_chance(self) -> bool:
        return self._trial.by_chance

    def _praise(self, started: float) -> None:
        self.circuit.succeeded()
        self._has_answered = True
        self._outcome(started, refused=False)
        self._brake.answered()
        self._refused -= self._refused * _MEMORY
        self._calm -= 1
        if self.limit < self.ceiling and self._calm < 0:
            # One more slot for every success doubles the limit each round trip; later, one for every round trip.
            self.limit = min(self.ceiling, self.limit + (1 if self._grows_fast else 1 / self.limit))
            self._wake()

    def _heed(self, problem: CallFailed, started: float) -> None:
        if problem.kind == "rate limit":
            self.rate_limited += 1
            self._refused += (1 - self._refused) * _MEMORY
            self._heed_429(started, problem.retry_after)
        elif problem.passing:
            # For a round trip. For a time instead, a steady 10 % of 5xx would never let it grow again, and with 20 %
            # of 429 beside it one request would be left in flight (8 answers a second where there are 20 now).
            self._calm = int(self.limit)
        declined = problem.kind in ("refusal", "schema", "image", "grammar")
        # Where no question was ever taken, all are malformed; where some were, it is for what this one shows.
        if declined or (problem.kind in ("request", "context") and self._has_answered):
            self.circuit.succeeded()  # an answer, if not the one that was hoped for
        elif problem.kind in ("key", "model"):
            self.circuit.end(f"{self.judge}: {problem}")
        elif not self._last_few():
            self.circuit.failed(problem, self.in_flight)

    def _outcome(self, started: float, *, refused: bool) -> None:
        """Conclude the trial, should this outcome decide it."""
        verdict = self._trial.outcome(started, refused=refused)
        if verdict is None:
            return
        self._brake.resume()
        if verdict == "by chance":  # slowing down was in vain
            self._brake.release()
            self.limit, self._grows_fast = max(self.limit, self._limit_before), True
            self._wake()

    def _heed_429(self, started: float, retry_after: float | None) -> None:
        self._outcome(started, refused=True)
        if self._trial.by_chance or self._trial.running:
            return
        if started > self._shrunk:  # those sent before the last cut say nothing about the rate since
            self._shrunk = time.monotonic()
            if self._brake.rate == math.inf:
                self._limit_before = max(self.limit, self._limit_before)
            self._shrink()
            braked = self._brake.refused(self.in_flight)
            if braked and self._trial.begin(self._shrunk, retry_after, in_vain=self._brake.in_vain):
                self._brake.share = _Trial.PACE
        self._grows_fast = False

    def _shrink(self) -> None:
        """By half the share that was refused, as DCTCP does with marked packets: a limit that is nearly kept is
        approached gently, and one that refuses at random does not drive a run down to one request at a time. Whoever
        is refused keeps its slot while it waits, so that a few slots are slow enough as long as most are answered."""
        cut = _FIRST_CUT if self._grows_fast else max(0.05, self._refused / 2)
        floor = 1.0 if self._refused > 0.5 else min(START, self.ceiling, self.limit)
        self.limit = max(floor, self.limit * (1 - cut))

    def _last_few(self) -> bool:
        """A judge that has answered is not down because the last questions fail: one that always does, say for its
        picture, gathers failures here until the tries are used up, and nothing else is left that could burn."""
        return self._has_answered and self.in_flight < START and not self._waiting


class _Trial:
    """Whether 429s answer to the pace: for a moment half of what was answered is sent, and the share of 429s among it
    is held against the share before.

    A limit on the rate refuses nothing of that; what refuses at random refuses as many as before. The likelihoods of
    the two are compared answer by answer (Wald's sequential test).
    """

    PACE = 0.5
    """Of what was answered a second, which answers that come in waves make seem higher than it is."""
    _SURE = 4.0
    """Log likelihood ratio at which one of the two is taken for true: one in fifty is wrong."""
    _LEAST = 16
    """Answers at least: refusals come in bursts where there is a limit."""
    _WORTH = 5
    """429s among the latest at least: fewer cost less than finding out."""
    _MOST = 0.5
    """A server that refuses more than this by chance is not known; one that is asked far too fast does."""
    _RISE = 0.2
    """On the share that was found to be by chance: with more than that at the higher pace, there is a limit."""
    _WINDOW = 96
    _APART = 100
    """Outcomes between two trials, twice as many after each that found a limit."""
    _SETTLE = 1.0
    """Seconds until what was sent before the cut has left a server's window, unless it says how long that takes."""

    def __init__(self) -> None:
        self.by_chance = False
        self._begun: float | None = None
        self._recent: deque[bool] = deque(maxlen=self._WINDOW)
        """Whether each of the latest was refused."""
        self._before = self._evidence = 0.0
        self._counted = self._refused = self._rest = 0
        self._apart = self._APART

    @property
    def running(self) -> bool:
        return self._begun is not None

    def begin(self, at: float, retry_after: float | None, *, in_vain: bool) -> bool:
        """Whether it is worth a trial now, as where the rate was cut again and again; what is sent once the server has
        settled is counted."""
        self._before = (sum(self._recent) + 0.5) / (len(self._recent) + 1)
        worth = in_vain or sum(self._recent) >= self._WORTH
        if self._rest <= 0 and worth and self._before <= self._MOST:
            self._begun = at + (self._SETTLE if retry_after is None else retry_after)
            self._evidence, self._counted, self._refused = 0.0, 0, 0
        return self.running

    def outcome(self, started: float, *, refused: bool) -> Literal["by chance", "a limit"] | None:
        """What the trial found, once it has."""
        self._recent.append(refused)
        self._rest -= 1
        if self.by_chance and len(self._recent) == self._WINDOW:
            self.by_chance = sum(self._recent) / self._WINDOW <= self._before + self._RISE
        if self._begun is None or started <= self._begun:
            return None
        self._counted += 1
        self._refused += refused
        after = self._before / 8
        self._evidence += math.log(self._before / after if refused else (1 - self._before) / (1 - after))
        if abs(self._evidence) < self._SURE or self._counted < self._LEAST:
            return None
        # Where more is refused than before, what was answered seemed far more than it is.
        as_before = self._refused / self._counted <= self._before + self._RISE
        self.by_chance, self._begun = self._evidence > 0 and as_before, None
        self._rest = self._apart
        self._apart = self._APART if self.by_chance else 2 * self._apart
        self._recent.clear()
        return "by chance" if self.by_chance else "a limit"


class _Brake:
    """How many a second a judge was found to answer: known from the first 429, and then a little less than that many
    are sent, evenly, and slowly more until the next 429.

    Slots alone cannot keep to a rate: with answers after 0.1 s and a limit of 50 a second, five slots keep it and six
    are refused 17 %; they were refused 10 % in all (simulated), where this is refused less than 1 %.
    """

    _KNOWN = 20
    """Answers at least whose times tell the rate."""
    _SOON = 10
    """Answers at least until a cut shows: what is refused before says nothing about it."""
    _IN_VAIN = 0.7
    _CUT, _GROWTH = 0.97, 1 / 5000
    """Off the rate at a 429, and on it at each answer: some 300 answers from one 429 to the next."""

    def __init__(self) -> None:
        self.rate = math.inf
        self.share = 1.0
        """Of the rate, that is sent."""
        self._first = math.inf
        """The rate that was found first, or when it was found that there is a limit."""
        self._line = asyncio.Lock()
        self._next = 0.0
        self._times: deque[float] = deque(maxlen=2 * CEILING)
        self._since = 0
        self._met = False
        """Whether there was a 429 yet."""

    async def wait(self, rest: Callable[[float], Awaitable[None]]) -> None:
        if self.rate == math.inf:
            return
        async with self._line:  # one after the other, so that a new rate holds from the next one on
            await rest(self._next - time.monotonic())
            self._next = max(self._next, time.monotonic()) + 1 / (self.rate * self.share)

    def resume(self) -> None:
        """The whole rate again. What was answered at a share of it says nothing about how many can be."""
        self.share, self._first = 1.0, self.rate
        self._times.clear()

    @property
    def in_vain(self) -> bool:
        """Whether the rate fell far below what was answered once."""
        return self.rate < self._IN_VAIN * self._first

    def release(self) -> None:
        """What is refused is refused at any rate: the rate is found anew, should a limit be met later."""
        self.rate = self._first = math.inf
        self._since = 0

    def answered(self) -> None:
        self._times.append(time.monotonic())
        self._since += 1
        # Faster after long without a 429: the limit may have been raised, or was never met.
        self.rate *= 1 + self._GROWTH * max(1.0, (self._since / 140) ** 2)

    def refused(self, in_flight: int) -> bool:
        """A 429 to what was sent since the last one that counted; whether less is sent since."""
        if not self._met:  # what was answered until now was asked when there was room
            self._met = True
            self._times.clear()
        # Answers come in waves as wide as what is in flight: a rate is one of whole waves.
        known, soon = max(self._KNOWN, 2 * in_flight), max(self._SOON, in_flight)
        if len(self._times) < known or self._since < soon:
            return False
        seconds = self._times[-1] - self._times[-known]
        if seconds > 0:
            self.rate = self._CUT * min(self.rate, (known - 1) / seconds)
            self._first = self.rate if self._first == math.inf else self._first
        self._since = 0
        return self.rate < math.inf


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
