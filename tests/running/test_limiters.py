"""Every kind of limit is used to 95 % within seconds, and refusals at random cost little: by a clock that jumps."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

from editjudge.judges.failures import CallFailed
from editjudge.running.pace import Pace, Retry
from editjudge.running.throttle import Permit, Throttle

from .clockwork import now, wind
from .limiters import (
    Both,
    ConcurrencyLimit,
    FixedWindow,
    LimitedServer,
    Limiter,
    Random,
    SlidingWindow,
    TokenBucket,
)

RATE = 40.0
SECONDS = 40


def used(server: LimitedServer, start: float, end: float) -> float:
    return server.between(start, end)[0] / RATE


def judge_all(server: LimitedServer, count: int, pace: Pace) -> float:
    """Seconds until all are answered."""

    async def ask() -> str:
        async with pace.slot():
            return (await pace.send_with_retries(server.send))[0]

    async def ask_all() -> float:
        assert await asyncio.gather(*(ask() for _ in range(count))) == ["reply"] * count
        return now()

    return wind(ask_all())


def tokens() -> Limiter:
    chance = random.Random(0)
    return TokenBucket(1000 * RATE, 5000 * RATE, lambda: chance.uniform(300, 1700))


LIMITERS: dict[str, Callable[[], Limiter]] = {
    "bucket without a burst": lambda: TokenBucket(RATE, 1),
    "bucket, small burst": lambda: TokenBucket(RATE, 5),
    "bucket, burst of a second": lambda: TokenBucket(RATE, RATE),
    "bucket, burst of ten seconds": lambda: TokenBucket(RATE, 10 * RATE),
    "window of a second": lambda: SlidingWindow(RATE, 1),
    "window of ten seconds": lambda: SlidingWindow(RATE, 10),
    "fixed window of a second": lambda: FixedWindow(RATE, 1, 0.37),
    "fixed window of ten seconds": lambda: FixedWindow(RATE, 10, 3.7),
    "tokens": tokens,
    "bucket and random": lambda: Both(Random(0.1, 0), TokenBucket(RATE, RATE)),
}


@pytest.mark.parametrize("concurrency", [64, None])
@pytest.mark.parametrize("latency", [0.1, 0.5])
@pytest.mark.parametrize("kind", LIMITERS)
def test_a_limit_on_the_rate_is_used(
    kind: str, latency: float, concurrency: int | None
) -> None:
    server = LimitedServer(LIMITERS[kind](), latency)
    end = judge_all(
        server, int(RATE * SECONDS), Pace("j", concurrency=concurrency, seed=1)
    )
    # A window or a large burst that was used up in its first moment has given all that it has.
    start = 0.0 if "ten seconds" in kind or kind == "tokens" else 8.0
    assert used(server, start, end - latency - 1.5) > 0.95


@pytest.mark.parametrize("spread", [0.0, 0.5])
@pytest.mark.parametrize("concurrency", [64, None])
def test_a_limit_on_the_concurrency_is_used(
    concurrency: int | None, spread: float
) -> None:
    server = LimitedServer(ConcurrencyLimit(20), 0.5, spread=spread)
    end = judge_all(
        server, int(RATE * SECONDS), Pace("j", concurrency=concurrency, seed=1)
    )
    assert used(server, 8, end - 2) > (0.85 if spread else 0.95)


def test_a_window_of_a_minute_is_used() -> None:
    server = LimitedServer(SlidingWindow(RATE, 60), 0.1)
    end = judge_all(server, int(3 * 60 * RATE), Pace("j", concurrency=64, seed=1))
    assert used(server, 0, end) > 0.95


class KnowingThrottle(Throttle):
    """Knows that refusals are random."""

    def _count(self, permit: Permit, now: float) -> None:
        super()._count(
            Permit(permit.started, permit.in_flight, None, permit.seconds), now
        )


class KnowingRetry(Retry):
    def pause(
        self,
        problem: CallFailed,
        failures: int,
        chance: random.Random | None = None,
    ) -> float:
        return problem.retry_after or 0.0


@pytest.mark.parametrize("refusal", [0.0, 0.5])
@pytest.mark.parametrize("concurrency", [64, None])
@pytest.mark.parametrize("count", [200, 1500])
def test_refusals_at_random_cost_little_more_than_they_must(
    count: int, concurrency: int | None, refusal: float
) -> None:
    ratios = []
    for seed in range(3):
        pace = Pace("j", concurrency=concurrency, seed=seed)
        knowing = Pace(
            "j", concurrency=concurrency, retry=KnowingRetry(tries=99), seed=seed
        )
        knowing.throttle = KnowingThrottle(concurrency)
        ours, least = (
            judge_all(
                LimitedServer(Random(0.2, seed), 0.5, refusal=refusal), count, one
            )
            for one in (pace, knowing)
        )
        ratios.append(ours / least)
    assert sorted(ratios)[1] < 1.2
    assert max(ratios) < 1.5
