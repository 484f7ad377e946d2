"""A budget against the server's own bill: whatever the server does, no more is billed than was allowed."""

from __future__ import annotations

import asyncio
import json
import random
import time
from pathlib import Path

import pytest

from editjudge.errors import BudgetReached, UsageError
from editjudge.judges.cost import Budget, MaximumCost
from editjudge.judges.failures import CallFailed
from editjudge.judges.judge import Options
from editjudge.running import batch as batches
from editjudge.running.pace import Retry
from tests.faults import raises
from tests.stub.server import Behaviour, Ledger

from .made import SPECS, Done, canned, edits, pacing, run, stub

INPUT = 10.0
OUTPUT = 40.0


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    path = tmp_path / "prices.yaml"
    numbers = "".join(
        f"  {spec}: {{input: {INPUT}, output: {OUTPUT}}}\n" for spec in SPECS.values()
    )
    path.write_text(
        "as_of: 2026-01-01\nbatch: {openai: 1.0, anthropic: 1.0, google: 1.0}\nmodels:\n"
        + numbers
    )
    return path


def billed(ledger: Ledger) -> float:
    """What the server puts on the bill, with what nobody waited for."""
    answers = [*ledger.answers, *ledger.abandoned]
    return sum(
        (answer.usage.prompt * INPUT + answer.usage.output * OUTPUT) / 1e6
        for answer in answers
    )


def spend(
    folder: Path,
    store: Path,
    prices: Path,
    budget: float,
    count: int = 60,
    **how: object,
) -> Done:
    options = Options(prices=prices, timeout=float(str(how.pop("timeout", 20.0))))
    judges = (str(how.pop("judge", SPECS["openai"])),)
    with pacing(tries=4):
        return run(
            edits(folder, count),
            store,
            judges=judges,
            options=options,
            manner={"budget": budget, **how},
        )


@pytest.mark.parametrize("wire", SPECS)
@pytest.mark.parametrize("budget", [0.3, 2.0])
def test_a_judge_that_takes_every_token_it_is_allowed_stays_within_the_budget(
    wire: str, budget: float, tmp_path: Path, store: Path, prices: Path
) -> None:
    with stub(Behaviour(thinks=True, latency=0.01)) as server:
        done = spend(tmp_path, store, prices, budget, judge=SPECS[wire], concurrency=64)
    assert 0 < billed(server.ledger) <= budget
    assert done.outcome.ending == "budget"
    assert done.outcome.tally.cost == pytest.approx(billed(server.ledger))


FAULTS = [
    Behaviour(rate_limited=0.3, server_error=0.2, latency=0.02, retry_after=0.01),
    Behaviour(garbage=0.7, latency=0.02, thinks=True),
    Behaviour(half_answer=0.5, latency=0.02),
    Behaviour(hang_up=0.3, not_json_http=0.2, latency=0.02),
    Behaviour(length_stop=0.5, refusal=0.2, empty=0.2),
]


@pytest.mark.parametrize(
    "behaviour", FAULTS, ids=["429 and 500", "garbage", "cut off", "hang up", "useless"]
)
@pytest.mark.parametrize("budget", [0.4, 1.5])
def test_no_fault_makes_the_bill_pass_the_budget(
    behaviour: Behaviour, budget: float, tmp_path: Path, store: Path, prices: Path
) -> None:
    with stub(behaviour) as server:
        done = spend(tmp_path, store, prices, budget, concurrency=64)
        assert server.ledger.requests > 0
    assert billed(server.ledger) <= budget
    assert billed(server.ledger) <= done.outcome.tally.cost + 1e-9
    assert done.outcome.ending == "budget"


@pytest.mark.parametrize("concurrency", [1, 64])
def test_a_server_slower_than_the_timeout_is_paid_for_within_the_budget_and_reported(
    concurrency: int, tmp_path: Path, store: Path, prices: Path
) -> None:
    budget = 3.0
    with stub(Behaviour(latency=30.0)) as server:
        done = spend(
            tmp_path,
            store,
            prices,
            budget,
            timeout=0.05,
            concurrency=concurrency,
            count=8,
        )
    assert 0 < billed(server.ledger) <= done.outcome.tally.cost <= budget
    assert done.outcome.tally.estimated == pytest.approx(done.outcome.tally.cost)
    rows = [row for row in done.rows if row["status"] == "unreachable"]
    assert rows and all(
        any(note["code"] == "cost_estimated" for note in row["notes"]) for row in rows
    )


def test_what_was_lost_before_anything_was_answered_is_counted_though_every_task_stays_pending(
    tmp_path: Path, store: Path, prices: Path
) -> None:
    with stub(Behaviour(latency=30.0)) as server:
        done = spend(tmp_path, store, prices, 0.7, timeout=0.05, concurrency=8, count=4)
    assert done.outcome.ending == "budget"
    assert 0 < billed(server.ledger) <= done.outcome.tally.cost <= 0.7
    assert done.outcome.tally.estimated == pytest.approx(done.outcome.tally.cost)


def test_a_timeout_is_asked_again_twice_and_waited_for_longer_each_time(
    tmp_path: Path, store: Path, prices: Path
) -> None:
    with stub(Behaviour(latency=30.0)) as server:
        started = time.monotonic()
        done = run(
            edits(tmp_path, 1),
            store,
            rubrics=("fidelity",),
            options=Options(prices=prices, timeout=0.2),
        )
        assert time.monotonic() - started >= 0.2 + 0.4 + 0.8
    assert (done.statuses(), server.ledger.requests) == ({"unreachable": 1}, 3)
    (reason,) = done.row("e0")["reasons"]
    assert reason["code"] == "timeout" and "0.8 s" in reason["message"]
    assert done.outcome.tally.cost >= billed(server.ledger) > 0


BROKEN_OFF = json.dumps(
    {"choices": [{"finish_reason": "error", "message": {"content": ""}}]}
).encode()


@pytest.mark.parametrize("length", ["whole", "cut"])
def test_an_answer_that_breaks_off_and_may_be_billed_is_asked_again_twice(
    length: str, tmp_path: Path, store: Path, prices: Path
) -> None:
    headers = (
        {"content-length": str(len(BROKEN_OFF) + 100), "connection": "close"}
        if length == "cut"
        else {}
    )
    with canned(lambda *_: (200, headers, BROKEN_OFF)) as asked, pacing():
        done = run(
            edits(tmp_path, 1),
            store,
            rubrics=("fidelity",),
            options=Options(prices=prices),
        )
    assert (done.statuses(), len(asked)) == ({"unreachable": 1}, 3)
    assert done.row("e0")["cost"] == done.outcome.tally.estimated > 0


def test_a_retry_that_may_be_billed_twice_waits_longer() -> None:
    retry = Retry()
    chance = random.Random(0)
    cut = CallFailed("connection", "", cut_off=True)
    refused = CallFailed("connection", "")
    assert min(retry.pause(cut, 1, chance) for _ in range(50)) >= max(
        retry.pause(refused, 1, chance) for _ in range(50)
    )


def test_a_question_slower_than_the_timeout_is_answered_at_the_second_try_and_both_are_counted(
    tmp_path: Path, store: Path, prices: Path
) -> None:
    with stub(Behaviour(latency=1.8)) as server:  # the second try is waited for 3 s
        done = run(
            edits(tmp_path, 1),
            store,
            rubrics=("fidelity",),
            options=Options(prices=prices, timeout=1.5),
        )
        assert (len(server.ledger.answers), len(server.ledger.abandoned)) == (1, 1)
    assert done.statuses() == {"ok": 1}
    assert done.row("e0")["cost"] >= billed(server.ledger)
    assert 0 < done.outcome.tally.estimated < done.outcome.tally.cost


def test_an_answer_that_the_budget_cut_off_is_truncated_and_asked_for_again(
    tmp_path: Path, store: Path, prices: Path
) -> None:
    manifest = edits(tmp_path, 1)
    options = Options(prices=prices, reasks=0)
    with stub(Behaviour(length_stop=1.0)) as server:
        first = run(
            manifest,
            store,
            rubrics=("fidelity",),
            options=options,
            manner={"budget": 0.3},
        )
        server.behaviour = Behaviour()
        again = run(manifest, store, rubrics=("fidelity",), options=options)
    row = first.row("e0")
    assert (row["status"], row["scores"]) == ("truncated", None)
    assert "capped" in {note["code"] for note in row["notes"]}
    assert (again.row("e0")["status"], again.row("e0")["key"]) == ("ok", row["key"])
    assert again.outcome.tally.cached == 0


def test_no_limit_is_sent_without_a_budget_and_keys_are_the_same_with_one(
    tmp_path: Path, store: Path, prices: Path
) -> None:
    manifest = edits(tmp_path, 2)
    options = Options(prices=prices)
    with stub(Behaviour(thinks=True)) as server:
        free = run(manifest, store, options=options)
        assert {answer.usage.output for answer in server.ledger.answers} == {32_768}
        bound = run(
            manifest, tmp_path / "other.db", options=options, manner={"budget": 100.0}
        )
        assert {answer.usage.output for answer in list(server.ledger.answers)[6:]} == {
            16_384
        }
    assert [row["key"] for row in free.rows] == [row["key"] for row in bound.rows]


def test_the_limit_of_the_user_is_what_is_reserved(
    tmp_path: Path, store: Path, prices: Path
) -> None:
    options = Options(max_tokens=1_000, prices=prices)
    with stub(Behaviour(thinks=True, latency=0.2)) as server:
        done = run(
            edits(tmp_path, 20),
            store,
            options=options,
            manner={"budget": 6.0, "concurrency": 16},
        )
        assert server.ledger.peak_in_flight > 8
    assert billed(server.ledger) <= 6.0
    assert done.statuses() == {"ok": 60}


@pytest.mark.parametrize(
    "extra",
    [{"max_completion_tokens": 9}, {"generationConfig": {"maxOutputTokens": 9}}],
)
def test_a_limit_behind_the_budgets_back_is_refused(
    extra: dict[str, object], tmp_path: Path, store: Path, prices: Path
) -> None:
    options = Options(extra=extra, prices=prices)
    with stub() as server, raises(UsageError, "unbounded_answers", "--max-tokens"):
        run(edits(tmp_path, 1), store, options=options, manner={"budget": 1.0})
    assert server.ledger.requests == 0


@pytest.mark.parametrize("budget", [0.3, 1.5])
@pytest.mark.parametrize("garbage", [0.0, 0.5])
def test_a_batch_stays_within_the_budget(
    budget: float,
    garbage: float,
    tmp_path: Path,
    store: Path,
    prices: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batches, "LOOK", (0.01, 0.05))
    with stub(Behaviour(thinks=True, garbage=garbage)) as server:
        done = spend(tmp_path, store, prices, budget, count=20, batch=True)
    assert 0 < billed(server.ledger) <= budget
    assert done.outcome.ending == "budget"


# --- the budget ------------------------------------------------------------------------------------------------


def test_holding_takes_no_longer_with_many_in_flight() -> None:
    most = MaximumCost(0.001, 1e-6, 1_000, 100)

    def seconds(count: int) -> float:
        budget = Budget(1e9)
        for _ in range(count):
            assert budget.try_hold(most)
        started = time.process_time()
        for _ in range(2_000):
            assert budget.try_hold(most)
        return time.process_time() - started

    few, many = (min(seconds(count) for _ in range(5)) for count in (10, 20_000))
    assert many < 5 * few


def test_what_is_held_and_spent_never_passes_the_budget_and_comes_back_exactly() -> (
    None
):
    budget = Budget(1.0)
    holds = []
    most = MaximumCost(0.07, 1e-5, 3_000, 10)
    while hold := budget.try_hold(most):
        holds.append(hold)
    assert len(holds) == 10 and budget.spent + budget.reserved <= 1.0
    for hold in holds:
        hold.settle(0.0)
    assert (budget.reserved, budget.spent, budget.open) == (0.0, 0.0, 0)


def test_who_waits_for_money_is_given_it_or_told_that_there_is_none() -> None:
    async def use() -> list[object]:
        budget = Budget(1.0)
        most = MaximumCost(0.6, 1e-9, 10, 1)
        first = await budget.hold(most)
        waiting = [asyncio.create_task(budget.hold(most)) for _ in range(2)]
        await asyncio.sleep(0)
        first.settle(0.1)
        second = await waiting[0]
        second.settle(0.6)
        return [
            *(await asyncio.gather(waiting[1], return_exceptions=True)),
            budget.short is not None,
            budget.spent,
        ]

    failed, short, spent = asyncio.run(use())
    assert isinstance(failed, BudgetReached)
    assert (short, spent) == (True, pytest.approx(0.7))


def test_a_bound_that_proved_too_low_is_corrected_for_all_that_follow() -> None:
    budget = Budget(1.0)
    most = MaximumCost(0.1, 0.0, 10, 1)
    hold = budget.try_hold(most)
    assert hold
    hold.settle(0.3)
    second = budget.try_hold(most)
    assert second and second.amount == pytest.approx(0.3)
