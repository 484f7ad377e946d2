"""The ways in which servers limit how fast they are asked: each says whether a request is admitted now."""

from __future__ import annotations

import asyncio
import math
import random
from collections import deque
from collections.abc import Callable
from typing import Protocol

from editjudge.judges.failures import CallFailed

from .clockwork import now


class Limiter(Protocol):
    def admit(self, now: float) -> bool: ...

    def finished(self) -> None:
        """An admitted request is answered."""


class _RateLimiter:
    def finished(self) -> None:
        """A rate does not depend on how long answers take."""


class TokenBucket(_RateLimiter):
    """`rate` a second, and `burst` at once after a pause; `cost` says how many tokens a request takes."""

    def __init__(
        self, rate: float, burst: float, cost: Callable[[], float] = lambda: 1.0
    ) -> None:
        self.rate = rate
        self.burst = burst
        self._tokens = burst
        self._filled = -math.inf
        self._cost = cost

    def admit(self, now: float) -> bool:
        elapsed = now - self._filled if self._filled > -math.inf else 0.0
        self._tokens = min(self.burst, self._tokens + elapsed * self.rate)
        self._filled = now
        cost = self._cost()
        # Without the tolerance an even pace at exactly the rate is refused for rounding errors.
        admitted = self._tokens >= cost - 1e-9
        self._tokens -= cost if admitted else 0.0
        return admitted


class SlidingWindow(_RateLimiter):
    """At most `rate * seconds` within any `seconds`; with `strict`, refused requests count too."""

    def __init__(self, rate: float, seconds: float, *, strict: bool = False) -> None:
        self._most = round(rate * seconds)
        self._seconds = seconds
        self._strict = strict
        self._times: deque[float] = deque()

    def admit(self, now: float) -> bool:
        while self._times and self._times[0] <= now - self._seconds + 1e-9:
            self._times.popleft()
        admitted = len(self._times) < self._most
        if admitted or self._strict:
            self._times.append(now)
        return admitted


class FixedWindow(_RateLimiter):
    """At most `rate * seconds` from one full window of the server's clock to the next."""

    def __init__(self, rate: float, seconds: float, phase: float) -> None:
        self._most = rate * seconds
        self._seconds = seconds
        self._phase = phase
        self._window = -1
        self._count = 0

    def admit(self, now: float) -> bool:
        window = math.floor((now + self._phase) / self._seconds)
        if window != self._window:
            self._window = window
            self._count = 0
        self._count += self._count < self._most + 1
        return self._count <= self._most


class ConcurrencyLimit:
    """At most `most` requests that are not answered yet."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._inside = 0

    def admit(self, now: float) -> bool:
        admitted = self._inside < self._most
        self._inside += admitted
        return admitted

    def finished(self) -> None:
        self._inside -= 1


class Random(_RateLimiter):
    """Refuses a share of requests, whatever the rate."""

    def __init__(self, share: float, seed: int) -> None:
        self._share = share
        self._chance = random.Random(seed)

    def admit(self, now: float) -> bool:
        return self._chance.random() >= self._share


class Both:
    """Admits what all of some limiters admit, asked in their order."""

    def __init__(self, *limiters: Limiter) -> None:
        self._limiters = limiters

    def admit(self, now: float) -> bool:
        return all(limiter.admit(now) for limiter in self._limiters)

    def finished(self) -> None:
        for limiter in self._limiters:
            limiter.finished()


class LimitedServer:
    """Answers what its limiter admits after `latency`, and refuses the rest at once."""

    def __init__(
        self,
        limiter: Limiter,
        latency: float,
        *,
        spread: float = 0.0,
        refusal: float = 0.0,
    ) -> None:
        self.limiter = limiter
        self.latency = latency
        self.spread = spread
        self.refusal = refusal
        self.log: list[tuple[float, bool]] = []
        self.chance = random.Random(0)

    async def send(self) -> str:
        admitted = self.limiter.admit(now())
        self.log.append((now(), admitted))
        if not admitted:
            await asyncio.sleep(self.refusal)
            raise CallFailed("rate limit", "too many", status=429, retry_after=1.0)
        await asyncio.sleep(
            self.latency * self.chance.uniform(1 - self.spread, 1 + self.spread)
        )
        self.limiter.finished()
        return "reply"

    def between(self, start: float, end: float) -> tuple[float, float]:
        """Requests that were admitted a second, and the share that was turned away."""
        admitted = [admitted for at, admitted in self.log if start <= at < end]
        return sum(admitted) / (end - start), 1 - sum(admitted) / len(admitted)
