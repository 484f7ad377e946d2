"""How fast a judge is asked, by a clock that jumps: no test here waits."""

from __future__ import annotations

import asyncio
import itertools
import math
import random
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from editjudge.errors import JudgeError
from editjudge.judges.failures import CallFailed, ProblemKind
from editjudge.running.pace import Circuit, JudgeDown, Pace, Retry
from editjudge.running.throttle import START
from tests.faults import shows

from .clockwork import now, wind
from .limiters import LimitedServer, TokenBucket

Send = Callable[[], Awaitable[str]]
LATENCY = 1.0


def answering(*problems: CallFailed | None, latency: float = LATENCY) -> Send:
    """These one after the other, None being a reply; replies from then on."""
    coming = iter(problems)

    async def send() -> str:
        await asyncio.sleep(latency)
        if problem := next(coming, None):
            raise problem
        return "reply"

    return send


def rate_limit(retry_after: float | None = None) -> CallFailed:
    return CallFailed("rate limit", "too many", status=429, retry_after=retry_after)


def trouble(kind: ProblemKind = "server") -> CallFailed:
    return CallFailed(kind, "sorry")


async def ask(pace: Pace, send: Send) -> str:
    async with pace.slot():
        reply, _ = await pace.send_with_retries(send)
        return reply


async def ask_all(pace: Pace, count: int, send: Send) -> list[str | BaseException]:
    return await asyncio.gather(
        *(ask(pace, send) for _ in range(count)), return_exceptions=True
    )


# --- stopping -------------------------------------------------------------------------------------------------


def test_a_stop_ends_every_wait_and_lets_what_is_in_flight_be_answered() -> None:
    async def use() -> tuple[float, list[str | BaseException]]:
        pace = Pace("j", concurrency=3)
        calls = [answering(rate_limit(200)), answering(trouble(), trouble(), latency=3)]
        calls += [answering(latency=4) for _ in range(8)]
        asking = asyncio.gather(
            *(ask(pace, call) for call in calls), return_exceptions=True
        )
        await asyncio.sleep(5)
        pace.stop()
        replies = await asking
        return now(), replies

    ended, (refused, failed, *others) = wind(use())
    assert 5 < ended <= 5 + 4  # when the last one in flight was answered
    assert all(isinstance(one, JudgeDown) for one in (refused, failed))
    # those in flight, and not those who waited
    assert others == sorted(others, key=lambda one: one != "reply")
    assert {type(one) for one in others} == {str, JudgeDown}


@pytest.mark.parametrize("count", [1, 20])
def test_a_server_to_which_there_was_never_a_connection_is_soon_given_up(
    count: int,
) -> None:
    async def use() -> tuple[float, list[str | BaseException]]:
        refused = [CallFailed("connection", "no connection to localhost:8000")] * 999
        replies = await ask_all(Pace("vllm/m"), count, answering(*refused, latency=0))
        return now(), replies

    ended, errors = wind(use())
    assert ended == pytest.approx(15, abs=0.1)
    assert all(isinstance(error, JudgeDown) for error in errors)
    assert shows(str(errors[0]), "vllm/m", "localhost:8000", "--base-url")


# --- concurrency ----------------------------------------------------------------------------------------------


def test_concurrency_doubles_every_round_trip_until_the_first_429() -> None:
    async def use() -> list[tuple[float, float]]:
        pace = Pace("j")
        limits = []

        async def send() -> str:
            limits.append((now(), pace.throttle.limit))
            await asyncio.sleep(LATENCY)
            return "reply"

        await ask_all(pace, 1000, send)
        return limits

    first: dict[float, float] = {}
    for time, limit in wind(use()):
        first.setdefault(time, limit)
    assert list(first.values())[:5] == [
        START,
        2 * START,
        4 * START,
        8 * START,
        16 * START,
    ]
    assert max(first.values()) <= 256


def test_one_429_changes_nothing() -> None:
    async def use() -> tuple[float, float]:
        pace = Pace("j", concurrency=64)
        await ask(pace, answering(rate_limit()))
        return pace.throttle.limit, pace.throttle.rate

    assert wind(use()) == (64, math.inf)


def test_while_everything_is_refused_single_requests_find_out_when_that_ends() -> None:
    times: list[float] = []

    async def send() -> str:
        times.append(now())
        if 1 < now() < 9:
            raise rate_limit(0.1)
        await asyncio.sleep(0.1)
        return "reply"

    assert (
        wind(ask_all(Pace("j", concurrency=32, seed=1), 600, send)) == ["reply"] * 600
    )
    assert sum(2 < at < 9 for at in times) < 40
    assert sum(9 < at < 10 for at in times) > 10


def test_who_pauses_has_no_slot() -> None:
    async def use() -> tuple[float, int]:
        pace = Pace("j", concurrency=1)
        refused = asyncio.create_task(ask(pace, answering(rate_limit(100))))
        await asyncio.sleep(2 * LATENCY)
        window = pace.window
        await ask(pace, answering())
        answered = now()
        await refused
        return answered, window

    assert wind(use()) == (3 * LATENCY, 2)


def test_429s_that_do_not_depend_on_the_load_leave_more_than_one_request_in_flight() -> (
    None
):
    async def use() -> float:
        pace = Pace("j", concurrency=64, seed=1)
        chance = random.Random(1)

        async def send() -> str:
            await asyncio.sleep(LATENCY)
            if chance.random() < 0.2:
                raise rate_limit(0.1)
            return "reply"

        await ask_all(pace, 2000, send)
        return pace.throttle.limit

    assert wind(use()) >= START


@pytest.mark.parametrize("share", [0.02, 0.05, 0.2])
def test_429s_by_chance_do_not_drive_the_rate_down(share: float) -> None:
    async def told() -> tuple[float, float]:
        pace = Pace("j", seed=1)
        chance = random.Random(1)
        times: list[float] = []

        async def send() -> str:
            await asyncio.sleep(LATENCY)
            if chance.random() < share:
                raise rate_limit()
            return "reply"

        async def ask() -> None:
            async with pace.slot():
                await pace.send_with_retries(send)
                times.append(now())

        await asyncio.gather(*(ask() for _ in range(6_000)))
        return times[1_500], times[-1] - times[-1_500]

    early, late = wind(told())
    assert late < 2 * early  # the last 1,500 are not asked more slowly than the first


def test_it_never_shrinks_below_one() -> None:
    async def use() -> float:
        pace = Pace("j", concurrency=2)
        await ask(pace, answering(*[rate_limit()] * 8))
        return pace.throttle.limit

    assert wind(use()) >= 1


@pytest.mark.parametrize("kind", ["server", "timeout", "connection"])
def test_a_server_in_trouble_stops_growth_for_a_round_trip_and_shrinks_nothing(
    kind: ProblemKind,
) -> None:
    async def use() -> tuple[float, float, float]:
        pace = Pace("j", retry=Retry(tries=1))
        with pytest.raises(CallFailed):
            await ask(pace, answering(trouble(kind)))
        before = pace.throttle.limit
        await ask_all(pace, int(before) - 1, answering())
        held = pace.throttle.limit
        await ask_all(pace, int(before), answering())
        return before, held, pace.throttle.limit

    assert wind(use()) == (START, START, 2 * START)


def test_a_server_that_fails_as_often_at_any_concurrency_does_not_stop_growth() -> None:
    async def use() -> float:
        pace = Pace("j", seed=1)
        chance = random.Random(1)

        async def send() -> str:
            await asyncio.sleep(LATENCY)
            if chance.random() < 0.1:
                raise trouble()
            return "reply"

        await ask_all(pace, 1500, send)
        return pace.throttle.limit

    assert wind(use()) == 256


def test_concurrency_stops_growing_where_answers_only_get_slower() -> None:
    async def use() -> float:
        pace = Pace("j")
        line = asyncio.Semaphore(32)

        async def send() -> str:
            async with line:
                await asyncio.sleep(LATENCY)
            return "reply"

        await ask_all(pace, 2000, send)
        return pace.throttle.limit

    assert wind(use()) < 150  # and then one at a time


@pytest.mark.parametrize("kind", ["refusal", "schema"])
def test_a_question_that_is_declined_says_nothing_about_the_rate(
    kind: ProblemKind,
) -> None:
    async def use() -> float:
        pace = Pace("j")
        with pytest.raises(CallFailed):
            await ask(pace, answering(trouble(kind)))
        await ask_all(pace, START, answering())
        return pace.throttle.limit

    assert wind(use()) == 2 * START


def test_fixed_concurrency_is_never_exceeded() -> None:
    async def use() -> int:
        pace = Pace("j", concurrency=5)
        peak = 0
        inside = 0

        async def send() -> str:
            nonlocal peak, inside
            inside += 1
            peak = max(peak, inside)
            await asyncio.sleep(LATENCY)
            inside -= 1
            return "reply"

        await ask_all(pace, 100, send)
        return peak

    assert wind(use()) == 5


LIMITS = [
    (50, 0.1, 50),
    (50, 0.1, 5),
    (50, 0.5, 50),
    (100, 0.5, 100),
    (20, 2.0, 20),
    (5, 1.0, 5),
]


@pytest.mark.parametrize(("rate", "latency", "burst"), LIMITS)
def test_a_limit_is_found_and_kept_and_used(
    rate: float, latency: float, burst: float
) -> None:
    server = LimitedServer(TokenBucket(rate, burst), latency)
    count = int(90 * rate)
    assert wind(ask_all(Pace("j", seed=1), count, server.send)) == ["reply"] * count
    admitted, turned_away = server.between(30, server.log[-1][0] - 5)
    assert admitted > 0.95 * rate
    # Of a few requests a second, too few are refused to be told from chance: up to two a second are sent in vain.
    assert turned_away < 0.05 or rate < 20
    assert turned_away < 0.4


def test_a_limit_that_is_raised_is_used_after_a_while() -> None:
    bucket = TokenBucket(20, 20)
    server = LimitedServer(bucket, 0.2)

    async def use() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(ask_all(Pace("j", seed=1), 12_000, server.send))
            await asyncio.sleep(60)
            bucket.rate = bucket.burst = 100.0

    wind(use())
    assert server.between(100, server.log[-1][0] - 5)[0] > 0.9 * bucket.rate


# --- slots ----------------------------------------------------------------------------------------------------


class Crowd:
    """Those who want a slot, in the order of coming."""

    def __init__(self, limit: int) -> None:
        self.pace = Pace("j", concurrency=50)
        self.pace.throttle.limit = float(limit)
        self.entered: list[int] = []
        self.inside: dict[int, asyncio.Event] = {}
        self.tasks: list[asyncio.Task[None]] = []

    async def _visit(self, number: int) -> None:
        async with self.pace.slot():
            self.entered.append(number)
            self.inside[number] = asyncio.Event()
            try:
                await self.inside[number].wait()
            finally:
                del self.inside[number]

    def come(self) -> None:
        self.tasks.append(asyncio.create_task(self._visit(len(self.tasks))))

    def leave(self, which: int) -> None:
        waiting = [event for event in self.inside.values() if not event.is_set()]
        if waiting:
            waiting[which % len(waiting)].set()

    def give_up(self, which: int) -> None:
        if self.tasks:
            self.tasks[which % len(self.tasks)].cancel()

    def resize(self, limit: int) -> None:
        self.pace.throttle.limit = float(1 + limit % 8)
        self.pace._wake()

    async def settle(self) -> None:
        for _ in range(6):
            await asyncio.sleep(0)

    def check(self) -> None:
        waiting = [
            n
            for n, task in enumerate(self.tasks)
            if not task.done() and n not in self.entered
        ]
        assert self.pace.in_flight == len(self.inside)
        assert not waiting or self.pace.in_flight >= int(self.pace.throttle.limit), (
            "a slot was lost"
        )
        assert max(self.entered, default=-1) < min(waiting, default=len(self.tasks)), (
            "somebody was overtaken"
        )


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["come", "come", "leave", "give_up", "resize", "settle"]),
        st.integers(0, 40),
    ),
    max_size=60,
)


@given(limit=st.integers(1, 5), steps=STEPS)
def test_slots_are_fair_and_none_is_lost_whoever_leaves_or_gives_up(
    limit: int, steps: list[tuple[str, int]]
) -> None:
    async def use() -> None:
        crowd = Crowd(limit)
        for step, which in steps:
            if step == "settle":
                await crowd.settle()
                crowd.check()
            elif step == "come":
                crowd.come()
            else:
                getattr(crowd, step)(which)
        await crowd.settle()
        crowd.check()
        for _ in crowd.tasks:
            while crowd.inside:
                crowd.leave(0)
                await crowd.settle()
        assert (crowd.pace.in_flight, sum(not task.done() for task in crowd.tasks)) == (
            0,
            0,
        )
        await asyncio.gather(*crowd.tasks, return_exceptions=True)

    wind(use())


# --- retries --------------------------------------------------------------------------------------------------


def attempts(
    pace: Pace, problems: list[CallFailed]
) -> tuple[list[float], BaseException | None]:
    """When one question was sent, and what became of it."""
    times: list[float] = []
    coming = iter(problems)

    async def send() -> str:
        times.append(now())
        if problem := next(coming, None):
            raise problem
        return "reply"

    async def use() -> BaseException | None:
        (outcome,) = await ask_all(pace, 1, send)
        return outcome if isinstance(outcome, BaseException) else None

    return times, wind(use())


def test_retries_are_finite_and_there_is_only_one_policy() -> None:
    times, error = attempts(Pace("j", retry=Retry(tries=4)), [trouble()] * 99)
    assert len(times) == 4
    assert isinstance(error, CallFailed) and not isinstance(error, JudgeDown)


def test_pauses_double_are_bounded_and_are_not_in_step() -> None:
    pauses = defaultdict(list)
    for seed in range(50):
        times, _ = attempts(Pace("j", seed=seed), [trouble()] * 9)
        for number, (before, after) in enumerate(itertools.pairwise(times)):
            pauses[number].append(after - before)
    for number, seen in pauses.items():
        full = min(30.0, 0.5 * 2**number)
        assert full / 2 <= min(seen) < max(seen) <= full
        assert len({round(pause, 6) for pause in seen}) > 40


@pytest.mark.parametrize("wanted", [0.5, 7.0, 120.0])
def test_no_question_is_sent_again_before_the_server_wants_it(wanted: float) -> None:
    for seed in range(20):
        times, error = attempts(Pace("j", seed=seed), [rate_limit(wanted)] * 3)
        assert error is None
        assert all(
            wanted <= after - before for before, after in itertools.pairwise(times)
        )


def test_a_server_that_says_now_is_still_given_time() -> None:
    times, error = attempts(Pace("j"), [rate_limit(0.0)] * 8)
    assert error is None
    assert times[-1] > 15


@pytest.mark.parametrize("kind", ["request", "key", "model", "refusal", "schema"])
def test_what_another_try_cannot_cure_is_not_tried_again(kind: ProblemKind) -> None:
    times, error = attempts(Pace("j"), [trouble(kind)])
    assert (len(times), type(error)) == (1, CallFailed)


def test_the_number_of_sends_that_brought_nothing_is_told() -> None:
    async def use() -> int:
        pace = Pace("j")
        return (
            await pace.send_with_retries(
                answering(trouble(), rate_limit(1), trouble("connection"))
            )
        )[1]

    assert wind(use()) == 3


def test_a_server_that_wants_to_be_left_alone_for_long_ends_the_run_and_burns_nothing() -> (
    None
):
    async def use() -> list[str | BaseException]:
        return await ask_all(Pace("j"), 40, answering(*[rate_limit(3600)] * 40))

    replies = wind(use())
    assert {type(reply) for reply in replies} == {JudgeDown}
    assert "3" in str(replies[0]) and "same command" in str(replies[0])


# --- limits that the user sets --------------------------------------------------------------------------------


def sent_at(pace: Pace, count: int, tokens: int = 0) -> list[float]:
    times: list[float] = []

    async def send() -> str:
        times.append(now())
        return "reply"

    async def one() -> None:
        async with pace.slot():
            await pace.send_with_retries(send, tokens)

    async def use() -> None:
        await asyncio.gather(*(one() for _ in range(count)))

    wind(use())
    return times


def test_requests_per_minute_are_spread_evenly() -> None:
    times = sent_at(Pace("j", requests_per_minute=30), 61)
    assert times == pytest.approx([2.0 * number for number in range(61)])


def test_tokens_per_minute_hold_large_questions_back() -> None:
    times = sent_at(Pace("j", tokens_per_minute=60_000), 10, tokens=2_000)
    assert times == pytest.approx([2.0 * number for number in range(10)])


def test_a_retry_counts_among_the_requests_per_minute() -> None:
    times, _ = attempts(Pace("j", requests_per_minute=6), [trouble()] * 3)
    assert all(after - before >= 9.99 for before, after in itertools.pairwise(times))


# --- a judge that is down -------------------------------------------------------------------------------------


class Server:
    """Answers from `back` on, `latency` after it was asked; until then it refuses at once."""

    def __init__(
        self,
        back: float,
        latency: float = 0.0,
        problem: Callable[[], CallFailed] = trouble,
    ) -> None:
        self.back = back
        self.latency = latency
        self.problem = problem
        self.times: list[float] = []
        self.inside = self.peak = 0

    async def send(self) -> str:
        self.times.append(now())
        self.inside += 1
        if self.down_for_long:
            self.peak = max(self.peak, self.inside)
        try:
            await asyncio.sleep(self.latency if now() >= self.back else 0.01)
            if now() < self.back:
                raise self.problem()
            return "reply"
        finally:
            self.inside -= 1

    @property
    def down_for_long(self) -> bool:
        return 5 < now() < self.back


def down(
    server: Server, count: int, **circuit: Any
) -> tuple[list[str | BaseException], list[str], float]:
    said: list[str] = []

    async def use() -> tuple[list[str | BaseException], float]:
        pace = Pace(
            "judge",
            concurrency=16,
            circuit=Circuit("judge", say=said.append, **circuit),
            seed=3,
        )
        return await ask_all(pace, count, server.send), now()

    replies, seconds = wind(use())
    return replies, said, seconds


def test_a_judge_that_is_down_is_waited_for_and_used_again() -> None:
    server = Server(back=60.0)
    replies, said, seconds = down(server, 100)
    assert replies == ["reply"] * 100
    assert "is down" in said[0] and "sorry" in said[0] and "120 s" in said[0]
    assert said[1:] == ["judge answers again"]
    assert seconds < 60 + 31


def test_one_question_at_a_time_finds_out_whether_it_is_back() -> None:
    server = Server(back=60.0)
    down(server, 100)
    assert server.peak == 1


def test_those_who_waited_go_together_once_it_is_back() -> None:
    replies, _, seconds = down(Server(back=60.0, latency=10.0), 16)
    assert replies == ["reply"] * 16
    assert seconds < 60 + 31 + 2 * 10  # one after the other they would take 160 s


def test_a_judge_that_stays_down_ends_the_run_within_the_patience() -> None:
    replies, text, seconds = down(Server(back=1e9), 100, patience=20.0)
    assert {type(reply) for reply in replies} == {JudgeDown}
    assert len(text) == 1
    assert 20 < seconds < 20 + 31
    assert "same command" in str(replies[0])


def test_waiting_for_a_judge_uses_up_no_tries() -> None:
    """Each question fails many times while the judge is down, and once more just after it is back."""
    server = Server(back=100.0)
    again = Server(back=100.0)
    failed_once: set[asyncio.Task[Any] | None] = set()

    async def send() -> str:
        reply = await server.send()
        if (task := asyncio.current_task()) not in failed_once:
            failed_once.add(task)
            raise trouble()
        return reply

    again.send = send  # type: ignore[method-assign]
    replies, _, _ = down(again, 16)
    assert replies == ["reply"] * 16


def test_the_last_questions_may_fail_for_their_own_sake() -> None:
    """Two that the server can never answer, after many that it could, are two failures and no judge that is down."""

    async def use() -> tuple[list[str | BaseException], bool]:
        pace = Pace("j", seed=1)
        await ask_all(pace, 20, answering())
        return await ask_all(pace, 2, answering(*[trouble()] * 99)), pace.circuit.open

    outcomes, opened = wind(use())
    assert [type(outcome) for outcome in outcomes] == [CallFailed, CallFailed]
    assert not opened


def test_failures_by_chance_do_not_open_the_circuit() -> None:
    async def use() -> list[str]:
        said: list[str] = []
        pace = Pace("j", concurrency=32, circuit=Circuit("j", say=said.append), seed=1)
        coming = iter(range(100_000))

        async def send() -> str:
            await asyncio.sleep(LATENCY)
            if (number := next(coming)) % 3 == 0:
                raise trouble() if number % 2 else rate_limit(1)
            return "reply"

        await ask_all(pace, 1000, send)
        return said

    assert wind(use()) == []


def test_many_that_fail_together_are_one_event() -> None:
    async def use() -> bool:
        pace = Pace("j", concurrency=64, retry=Retry(tries=1))
        await ask_all(pace, 64, answering(*[rate_limit()] * 64))
        return pace.circuit.open

    assert wind(use()) is False


def test_a_key_that_is_refused_ends_all_pauses_at_once() -> None:
    async def use() -> tuple[list[str | BaseException], float]:
        pace = Pace("j", concurrency=64)
        waiting = [
            asyncio.create_task(ask(pace, answering(rate_limit(250), latency=0.1)))
            for _ in range(3)
        ]
        await asyncio.sleep(1)
        with pytest.raises(CallFailed):
            await ask(pace, answering(trouble("key"), latency=0.1))
        return await asyncio.gather(*waiting, return_exceptions=True), now()

    replies, seconds = wind(use())
    assert {type(reply) for reply in replies} == {JudgeError}
    assert seconds == pytest.approx(1.1)


def test_what_is_in_flight_when_a_key_is_refused_is_still_heard() -> None:
    async def use() -> str:
        pace = Pace("j")
        slow = asyncio.create_task(ask(pace, answering(latency=10)))
        await asyncio.sleep(1)
        with pytest.raises(CallFailed):
            await ask(pace, answering(trouble("key")))
        return await slow

    assert wind(use()) == "reply"


def test_questions_refused_as_malformed_one_after_the_other_end_the_run() -> None:
    async def use() -> list[str | BaseException]:
        return await ask_all(
            Pace("j", concurrency=4), 40, answering(*[trouble("request")] * 40)
        )

    kinds = [type(reply) for reply in wind(use())]
    assert kinds.count(CallFailed) == 8
    assert kinds.count(JudgeDown) == 32


def test_questions_refused_as_malformed_after_others_were_taken_are_failures_of_their_own() -> (
    None
):
    async def use() -> list[str | BaseException]:
        pace = Pace("j", concurrency=4)
        await ask(pace, answering())
        return await ask_all(pace, 40, answering(*[trouble("request")] * 30))

    assert Counter(type(outcome) for outcome in wind(use())) == {
        CallFailed: 30,
        str: 10,
    }


@pytest.mark.parametrize("concurrency", [1, 2, 8, 64])
def test_a_judge_that_is_down_burns_no_question_however_few_are_in_flight(
    concurrency: int,
) -> None:
    async def use() -> list[str | BaseException]:
        pace = Pace(
            "j", concurrency=concurrency, circuit=Circuit("j", patience=30.0), seed=1
        )
        return await ask_all(pace, 100, Server(back=1e9).send)

    assert {type(outcome) for outcome in wind(use())} == {JudgeDown}


def test_the_clock_of_these_tests_jumps() -> None:
    async def use() -> float:
        await asyncio.sleep(3600)
        return now()

    work: Coroutine[Any, Any, float] = use()
    assert wind(work) == 3600
