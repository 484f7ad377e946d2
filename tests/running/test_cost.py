"""What a run would cost, what it did cost, and a budget that is never passed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from editjudge.errors import InputError, UsageError
from editjudge.judges.judge import Options
from editjudge.running.forecast import forecast
from editjudge.running.job import Job
from editjudge.store.store import Store
from tests.faults import raises
from tests.stub.server import Behaviour, Ledger

from .made import (
    SPECS,
    Done,
    answered,
    canned,
    edits,
    rows_of,
    run,
    stub,
    write_manifest,
)

OPENAI = SPECS["openai"]
INPUT = 10.0
CACHED = 1.0
OUTPUT = 40.0


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    path = tmp_path / "prices.yaml"
    numbers = f"{{input: {INPUT}, cached: {CACHED}, output: {OUTPUT}}}"
    path.write_text(
        "as_of: 2026-01-01\nmodels:\n"
        + "".join(f"  {spec}: {numbers}\n" for spec in SPECS.values())
    )
    return path


def billed(ledger: Ledger) -> float:
    """What the server would put on the bill."""
    return sum(
        (
            (a.usage.prompt - a.usage.cached) * INPUT
            + a.usage.cached * CACHED
            + a.usage.output * OUTPUT
        )
        / 1e6
        for a in ledger.answers
    )


def cost_of(done: Done) -> float:
    return sum(row["cost"] or 0.0 for row in done.rows)


@pytest.mark.parametrize("wire", SPECS)
def test_the_cost_is_what_the_server_counted(
    wire: str, tmp_path: Path, store: Path, prices: Path
) -> None:
    with stub(Behaviour(garbage=0.3)) as server:
        done = run(
            edits(tmp_path, 4),
            store,
            judges=(SPECS[wire],),
            options=Options(prices=prices),
        )
    assert done.outcome.tally.cost == pytest.approx(billed(server.ledger))
    assert cost_of(done) == pytest.approx(billed(server.ledger))
    assert done.outcome.tally.unpriced == 0


def test_a_price_that_is_not_known_is_unknown_and_never_zero(
    tmp_path: Path, store: Path
) -> None:
    with stub():
        done = run(edits(tmp_path, 2), store, rubrics=("fidelity",))
    assert [row["cost"] for row in done.rows] == [None, None]
    assert done.outcome.tally.unpriced == 2


@pytest.mark.parametrize("budget", [0.5, 1.5])
@pytest.mark.parametrize("garbage", [0.0, 0.5])
def test_a_budget_is_used_and_never_passed(
    budget: float, garbage: float, tmp_path: Path, store: Path, prices: Path
) -> None:
    with stub(Behaviour(garbage=garbage, latency=0.01)) as server:
        done = run(
            edits(tmp_path, 40),
            store,
            options=Options(prices=prices),
            manner={"budget": budget},
        )
    assert billed(server.ledger) <= budget
    assert done.outcome.ending == "budget"
    assert done.statuses()["pending"] > 0
    # It stops for want of the most that one more task can cost, three asks and the longest answers, and not sooner.
    assert budget - billed(server.ledger) < 0.4


def test_a_run_that_reached_its_budget_goes_on_with_another(
    tmp_path: Path, store: Path, prices: Path
) -> None:
    manifest = edits(tmp_path, 8)
    options = Options(prices=prices)
    endings: list[str] = []
    with stub() as server:
        while len(endings) < 20 and (not endings or endings[-1] == "budget"):
            endings.append(
                run(
                    manifest, store, options=options, manner={"budget": 0.5}
                ).outcome.ending
            )
        assert (server.ledger.paid, server.ledger.least_paid) == (24, 24)
    assert endings[-1] == "finished"
    assert len(endings) > 1


def test_no_budget_is_no_request(tmp_path: Path, store: Path, prices: Path) -> None:
    with stub() as server:
        done = run(
            edits(tmp_path, 2),
            store,
            options=Options(prices=prices),
            manner={"budget": 0.0},
        )
        assert server.ledger.requests == 0
    assert (done.outcome.ending, done.statuses()) == ("budget", {"pending": 6})


def test_a_budget_without_a_price_is_an_error_that_says_how(
    tmp_path: Path, store: Path
) -> None:
    with (
        stub() as server,
        raises(UsageError, "unknown_price", "openai/stub", "--prices"),
    ):
        run(edits(tmp_path, 1), store, manner={"budget": 1.0})
    assert server.ledger.requests == 0


def test_a_server_that_does_not_count_is_charged_the_most(
    tmp_path: Path, store: Path, prices: Path
) -> None:
    def silent(_: Mapping[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        document = answered("/v1/chat/completions", body)
        del document["usage"]
        return 200, {}, json.dumps(document).encode()

    with canned(silent) as asked:
        done = run(
            edits(tmp_path, 40),
            store,
            options=Options(prices=prices),
            manner={"budget": 3.0},
        )
    assert done.outcome.ending == "budget"
    assert 0 < len(asked) < 30
    assert done.rows[0]["cost"] is None


def test_what_costs_nothing_needs_no_budget(tmp_path: Path, store: Path) -> None:
    rows = rows_of(edits(tmp_path, 1))
    replies = tmp_path / "replies.jsonl"
    replies.write_text(
        json.dumps({"item": "e0", "rubric": "fidelity", "reply": "no"}) + "\n"
    )
    done = run(
        write_manifest(tmp_path, rows),
        store,
        judges=(f"replay:{replies}",),
        rubrics=("fidelity",),
        manner={"budget": 0.0},
    )
    assert (done.outcome.ending, done.statuses()) == ("finished", {"invalid": 1})


# --- beforehand -----------------------------------------------------------------------------------------------


def job(manifest: Path, prices: Path | None = None, **more: Any) -> Job:
    settings: dict[str, Any] = {
        "rubrics": ("online",),
        "judges": (OPENAI,),
        "options": Options(prices=prices),
    } | more
    return Job(manifest, **settings)


def test_a_forecast_asks_nothing_and_writes_nothing(
    tmp_path: Path, store: Path, prices: Path
) -> None:
    with stub() as server:
        (estimate,), todo = forecast(job(edits(tmp_path, 5), prices), str(store))
        assert server.ledger.requests == 0
    assert not store.exists()
    assert (todo.tasks, todo.done, estimate.calls, estimate.images) == (15, 0, 15, 30)
    assert estimate.as_of == "2026-01-01"


def test_a_list_of_runs_adds_up_what_the_answers_of_each_cost(
    tmp_path: Path, store: Path, prices: Path
) -> None:
    manifest = edits(tmp_path, 3)
    with stub():
        done = run(manifest, store, options=Options(prices=prices))
    with Store.open(store, readonly=True) as opened:
        (totals,) = opened.totals().values()
    costs = [row["cost"] for row in done.rows]
    assert totals.cost == pytest.approx(sum(costs)) and min(costs) > 0
    assert (totals.unpriced, totals.edits) == (0, 3)


def test_a_forecast_is_near_the_bill(tmp_path: Path, store: Path, prices: Path) -> None:
    """The stub counts so small a picture as nothing, the vendor as 255 tokens."""
    manifest = edits(tmp_path, 10)
    with stub() as server:
        (estimate,), _ = forecast(job(manifest, prices), str(store))
        run(manifest, store, options=Options(prices=prices))
    command = (
        sum(answer.usage.prompt for answer in server.ledger.answers) + 30 * 2 * 255
    )
    assert estimate.input_tokens == pytest.approx(command, rel=0.1)
    assert estimate.price == pytest.approx(
        (estimate.input_tokens * INPUT + estimate.output_tokens * OUTPUT) / 1e6
    )


def test_a_forecast_leaves_out_what_is_done_and_what_cannot_be_asked(
    tmp_path: Path, store: Path, prices: Path
) -> None:
    manifest = edits(tmp_path, 4)
    (tmp_path / "edited-3.png").unlink()
    with stub():
        run(manifest, store, options=Options(prices=prices), limit=1)
        (estimate,), todo = forecast(job(manifest, prices), str(store))
    assert (todo.tasks, todo.done, dict(todo.problems)) == (
        12,
        3,
        {"missing_output": 3},
    )
    assert estimate.calls == 6


def test_a_forecast_counts_a_question_that_two_edits_share_once(
    tmp_path: Path, store: Path, prices: Path
) -> None:
    row = rows_of(edits(tmp_path, 1))[0]
    manifest = write_manifest(tmp_path, [{**row, "id": f"twin-{n}"} for n in range(5)])
    with stub():
        (estimate,), todo = forecast(job(manifest, prices), str(store))
    assert (todo.tasks, estimate.calls) == (15, 3)


def test_a_forecast_without_a_price_has_none(tmp_path: Path, store: Path) -> None:
    with stub():
        (estimate,), _ = forecast(job(edits(tmp_path, 1)), str(store))
    assert estimate.price is None
    assert estimate.input_tokens > 0


def test_a_price_file_that_is_none_is_said_to_be(tmp_path: Path, store: Path) -> None:
    wrong = tmp_path / "prices.png"
    wrong.write_bytes(b"\x89PNG\r\n\xff\xfe")
    with stub(), raises(InputError, "not_a_price_file"):
        run(edits(tmp_path, 1), store, options=Options(prices=wrong))
