"""Runs by the providers' batches: the same judgements as live ones, paid for once whatever happens on the way."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from PIL import Image

from editjudge.errors import UsageError
from editjudge.judges.batch import OpenAIBatches
from editjudge.judges.judge import Options
from editjudge.running import batch as engine
from editjudge.running.engine import RunControl
from editjudge.running.pace import Retry
from editjudge.store import batches as kept
from editjudge.store.schema import batch_lines
from editjudge.store.store import Store
from tests import patient
from tests.faults import raises, shows
from tests.stub import batch as stub_batch
from tests.stub.server import Behaviour

from .made import (
    SPECS,
    Done,
    edit_pairs,
    editjudge,
    edits,
    expected,
    rows_of,
    run,
    stub,
    until,
    write_manifest,
)

OPENAI = SPECS["openai"]
SOON = "from editjudge.running import batch; batch.LOOK = (0.02, 0.1)"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "LOOK", (0.01, 0.05))
    monkeypatch.setattr(engine, "RETRY", Retry(tries=10, first=0.005, longest=0.02))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


def batched(
    manifest: Path, place: Path, manner: Mapping[str, Any] | None = None, **job: Any
) -> Done:
    return run(manifest, place, manner={"batch": True, **(manner or {})}, **job)


def verdicts(done: Done) -> dict[tuple[str, str, int], Any]:
    """What was said of what, and under which key."""
    said = (
        "key",
        "status",
        "scores",
        "justifications",
        "attempts",
        "schema_mode",
        "prepared",
        "usage",
    )
    return {
        (r["item"], r["rubric"], r["repeat"]): {name: r[name] for name in said}
        for r in done.rows
    }


def lines_left(place: Path) -> int:
    with Store.open(place, readonly=True) as opened:
        return len(list(opened.stream(sa.select(batch_lines.c.key))))


# --- the same as live -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", SPECS)
def test_a_batch_says_what_live_answers_say_under_the_same_keys(
    wire: str, tmp_path: Path, store: Path
) -> None:
    manifest = edits(tmp_path, 5)
    with stub() as server:
        done = batched(manifest, store, judges=(SPECS[wire],), repeats=2)
        assert (server.ledger.paid, server.batches.calls["create"]) == (30, 1)
        live = run(manifest, tmp_path / "live.db", judges=(SPECS[wire],), repeats=2)
    assert verdicts(done) == verdicts(live)
    assert done.statuses() == {"ok": 30}
    assert lines_left(store) == 0


@pytest.mark.parametrize("wire", SPECS)
def test_a_batch_of_real_images_is_larger_than_a_mebibyte_and_says_what_live_answers_say(
    wire: str, tmp_path: Path, store: Path
) -> None:
    manifest = edits(tmp_path, 3)
    for row in rows_of(manifest):
        noise = random.Random(row["edited"]).randbytes(512 * 512 * 3)
        Image.frombytes("RGB", (512, 512), noise).save(tmp_path / row["edited"])
    asked: dict[str, Any] = {"judges": (SPECS[wire],), "rubrics": ("fidelity",)}
    with stub() as server:
        done = batched(manifest, store, **asked)
        assert max(len(body) for *_, body in server.batches.requests) > 2 * 2**20
        live = run(manifest, tmp_path / "live.db", **asked)
    assert verdicts(done) == verdicts(live) and done.statuses() == {"ok": 3}


def test_the_stub_refuses_an_upload_that_is_larger_than_the_provider_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(stub_batch.MOST_BYTES, "/v1/files", 1000)
    with stub() as server:
        answer = patient.post(f"{server.url}/v1/files", content=b"x" * 1001)
    assert answer.status_code == 413


@pytest.mark.parametrize("wire", SPECS)
def test_a_batch_of_pairs_chooses_as_live_answers_do_in_both_orders(
    wire: str, tmp_path: Path, store: Path
) -> None:
    manifest = edit_pairs(tmp_path, 6)
    asked: dict[str, Any] = {"judges": (SPECS[wire],), "rubrics": ("preference",)}
    with stub() as server:
        done = batched(manifest, store, **asked)
        assert (server.ledger.paid, server.batches.calls["create"]) == (12, 1)
        live = run(manifest, tmp_path / "live.db", **asked)
        again = batched(manifest, store, **asked)
        assert server.ledger.paid == 24 and again.outcome.tally.asked == 0
    said = (
        "item",
        "order",
        "key",
        "status",
        "choices",
        "justifications",
        "attempts",
        "schema_mode",
        "prepared",
    )
    assert [[row[name] for name in said] for row in done.rows] == [
        [row[name] for name in said] for row in live.rows
    ]
    assert done.statuses() == {"ok": 12} and {row["order"] for row in done.rows} == {
        "ab",
        "ba",
    }
    # named by the item, whatever was shown first
    assert len({row["choices"]["overall"] for row in done.rows}) > 1


@pytest.mark.parametrize("wire", SPECS)
def test_a_reply_that_breaks_the_contract_is_asked_again_in_the_next_batch_as_it_is_live(
    wire: str, tmp_path: Path, store: Path
) -> None:
    manifest = edits(tmp_path, 4)
    faults = Behaviour(garbage=0.5, sticky=frozenset({"garbage"}))
    with stub(faults) as server:
        done = batched(manifest, store, judges=(SPECS[wire],), rubrics=("fidelity",))
        assert server.batches.calls["create"] == 3
        asked = [
            line for batch in server.batches.batches.values() for line in batch.lines
        ]
        live = run(
            manifest, tmp_path / "live.db", judges=(SPECS[wire],), rubrics=("fidelity",)
        )
    told = {key: value["attempts"] for key, value in verdicts(done).items()}
    assert told == {key: value["attempts"] for key, value in verdicts(live).items()}
    assert (
        set(done.statuses()) == {"ok", "invalid"} and done.statuses() == live.statuses()
    )
    first = {
        key: replies[0].text
        for key, replies in done.replies.items()
        if len(replies) > 1
    }
    for key, text in first.items():
        mine = [json.dumps(line) for line in asked if key[:40] in json.dumps(line)]
        assert [json.dumps(text)[1:-1][:40] in line for line in mine] == [
            False,
            True,
            True,
        ]


def test_a_server_that_takes_no_schema_is_asked_without(
    tmp_path: Path, store: Path
) -> None:
    with stub(Behaviour(schema_support="none")) as server:
        done = batched(edits(tmp_path, 2), store, rubrics=("fidelity",))
        assert (server.ledger.paid, server.batches.calls["create"]) == (2, 2)
    assert [row["schema_mode"] for row in done.rows] == ["prompt only"] * 2
    assert done.statuses() == {"ok": 2}


def test_what_cannot_be_asked_is_in_no_batch(tmp_path: Path, store: Path) -> None:
    manifest = edits(tmp_path, 2)
    (tmp_path / "edited-1.png").unlink()
    with stub() as server:
        done = batched(manifest, store)
        assert server.ledger.requests == 3
    assert done.statuses() == {"ok": 3, "missing_output": 3}


def test_pictures_are_not_read_again_for_answers_that_need_none(
    tmp_path: Path, store: Path
) -> None:
    manifest = edits(tmp_path, 2)

    def vanish(message: str) -> None:
        if "was submitted" in message:
            (tmp_path / "edited-0.png").unlink()

    with stub():
        done = batched(manifest, store, {"say": vanish})
    assert done.statuses() == {"ok": 6}


# --- parts ----------------------------------------------------------------------------------------------------


def test_a_batch_holds_no_more_questions_than_the_provider_takes(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OpenAIBatches, "max_questions", 4)
    monkeypatch.setattr(engine, "OPEN", 2)
    with stub() as server:
        done = batched(edits(tmp_path, 5), store)
        assert [len(batch.lines) for batch in server.batches.batches.values()] == [
            4,
            4,
            4,
            3,
        ]
        assert server.ledger.paid == 15
    assert done.statuses() == {"ok": 15}


def test_a_batch_holds_no_more_bytes_than_the_provider_takes(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OpenAIBatches, "max_bytes", 30_000)
    with stub() as server:
        done = batched(edits(tmp_path, 5), store)
        sizes = [
            len(file) for name, file in server.batches.files.items() if "/" in name
        ]
    assert max(sizes) <= 30_000 and len(sizes) > 1
    assert done.statuses() == {"ok": 15}


# --- failures -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", SPECS)
def test_lines_that_expire_fail_or_vanish_go_into_the_next_batch_and_nothing_is_lost(
    wire: str, tmp_path: Path, store: Path
) -> None:
    manifest = edits(tmp_path, 12)
    with stub() as server:
        manners = server.batches.manners
        manners.expired = 0.2
        manners.errored = 0.2
        manners.missing = 0.1
        manners.strangers = True
        done = batched(manifest, store, judges=(SPECS[wire],))
        assert server.ledger.paid == server.ledger.least_paid == done.statuses()["ok"]
        assert server.batches.calls["create"] == 3
    right = expected(manifest)
    for row in done.rows:
        assert row["scores"] == (
            right[row["item"], row["rubric"]] if row["status"] == "ok" else None
        )
    assert (
        set(done.statuses()) <= {"ok", "unreachable"}
        and sum(done.statuses().values()) == 36
    )
    assert any("any of our questions" in said for said in done.said)
    retried = {
        exchange.retries for replies in done.replies.values() for exchange in replies
    }
    assert retried >= {0, 1}


@pytest.mark.parametrize("wire", SPECS)
def test_what_expires_every_time_is_unreachable_and_says_so(
    wire: str, tmp_path: Path, store: Path
) -> None:
    with stub() as server:
        server.batches.manners.expired = 1.0
        done = batched(
            edits(tmp_path, 2), store, judges=(SPECS[wire],), rubrics=("fidelity",)
        )
        assert (server.ledger.paid, server.batches.calls["create"]) == (0, 3)
        assert done.statuses() == {"unreachable": 2}
        assert {row["reasons"][0]["code"] for row in done.rows} == {"timeout"}
        server.batches.manners.expired = 0.0
        assert batched(
            edits(tmp_path, 2), store, judges=(SPECS[wire],), rubrics=("fidelity",)
        ).statuses() == {"ok": 2}


@pytest.mark.parametrize("wire", SPECS)
def test_looking_and_fetching_survive_429_and_503(
    wire: str, tmp_path: Path, store: Path
) -> None:
    with stub() as server:
        server.batches.manners.flaky = 0.5
        done = batched(edits(tmp_path, 2), store, judges=(SPECS[wire],))
        assert (server.ledger.paid, server.batches.calls["create"]) == (6, 1)
    assert done.statuses() == {"ok": 6}


@pytest.mark.parametrize("wire", ["openai", "google"])
def test_a_batch_that_is_turned_down_is_said_and_asked_again_by_the_next_run(
    wire: str, tmp_path: Path, store: Path
) -> None:
    manifest = edits(tmp_path, 1)
    with stub() as server:
        server.batches.manners.turn_down = 1
        done = batched(manifest, store, judges=(SPECS[wire],))
        assert done.outcome.ending == "failed"
        assert "Enqueued token limit" in str(done.outcome.error)
        assert batched(manifest, store, judges=(SPECS[wire],)).statuses() == {"ok": 3}
        assert server.ledger.paid == 3


def test_one_batch_too_many_waits_for_the_others(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OpenAIBatches, "max_questions", 3)
    with stub() as server:
        server.batches.manners.turn_down = 1
        done = batched(edits(tmp_path, 3), store)
        assert (server.ledger.paid, server.batches.calls["create"]) == (9, 4)
    assert done.statuses() == {"ok": 9}
    assert any("rejected" in said for said in done.said)


def test_a_key_that_is_refused_stops_the_run_and_nothing_of_it_stays(
    tmp_path: Path, store: Path
) -> None:
    manifest = edits(tmp_path, 2)
    with stub() as server:
        server.batches.manners.errored = 1.0
        server.batches.manners.status = 401
        done = batched(manifest, store)
        assert done.outcome.ending == "failed" and done.statuses() == {"pending": 6}
        server.batches.manners.errored = 0.0
        assert batched(manifest, store).statuses() == {"ok": 6}


@pytest.mark.parametrize(
    "spec",
    ["measured", "replay:x.jsonl", "vllm/qwen", "ollama/llava", "openrouter/a/b"],
)
def test_a_judge_without_batches_is_an_error_that_says_what_to_do(
    spec: str, tmp_path: Path, store: Path
) -> None:
    with raises(UsageError, "no_batches", "--batch"):
        batched(edits(tmp_path, 1), store, judges=(spec,))


# --- stopping and going on ------------------------------------------------------------------------------------


def stopping(when: str) -> dict[str, Any]:
    """A manner that stops, as Ctrl-C does, once something is said."""
    controls: list[RunControl] = []
    said: list[str] = []

    def say(message: str) -> None:
        said.append(message)
        if when in message:
            controls[0].stop("interrupted")

    return {"control": controls.append, "say": say, "said": said}


@pytest.mark.parametrize("wire", SPECS)
def test_a_run_that_is_stopped_says_how_to_go_on_and_collects_what_it_asked(
    wire: str, tmp_path: Path, store: Path
) -> None:
    manifest = edits(tmp_path, 4)
    manner = stopping("at work")
    text = manner.pop("said")
    with stub() as server:
        server.batches.manners.looks = 10**6
        done = batched(manifest, store, manner, judges=(SPECS[wire],))
        assert (done.outcome.ending, done.statuses()) == (
            "interrupted",
            {"pending": 12},
        )
        assert "same command" in text[-1]
        server.batches.manners.looks = 0
        again = batched(manifest, store, judges=(SPECS[wire],))
        assert (server.ledger.paid, server.batches.calls["create"]) == (12, 1)
    assert again.statuses() == {"ok": 12}


def test_another_run_with_the_same_questions_waits_for_the_same_batch(
    tmp_path: Path, store: Path
) -> None:
    manifest = edits(tmp_path, 2)
    manner = stopping("at work")
    del manner["said"]
    with stub() as server:
        server.batches.manners.looks = 3
        batched(manifest, store, {**manner, "name": "first"})
        other = batched(manifest, store, {"name": "second"}, rubrics=("fidelity",))
        assert (server.ledger.paid, server.batches.calls["create"]) == (6, 1)
    assert other.statuses() == {"ok": 2}


@contextlib.contextmanager
def in_a_process(
    manifest: Path, store: Path, spec: str
) -> Iterator[subprocess.Popen[str]]:
    words = ["run", str(manifest), "--judge", spec, "--store", str(store), "--batch"]
    code = f"import sys; {SOON}; sys.argv = ['editjudge', *{words!r}]; from editjudge.cli import main; main()"
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=pipe, stderr=pipe, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("name", [None, "another run of the same questions"])
def test_a_live_run_does_not_pay_again_for_what_waits_in_a_batch(
    name: str | None, tmp_path: Path, store: Path
) -> None:
    manifest = edits(tmp_path, 4)
    manner = stopping("at work")
    manner.pop("said")
    with stub() as server:
        server.batches.manners.looks = 10**6
        batched(manifest, store, manner)
        requests = server.ledger.requests
        live = run(manifest, store, manner={"name": name})
        assert (live.outcome.ending, live.statuses()) == ("failed", {"pending": 12})
        assert shows(str(live.outcome.error), "12 questions", "batch")
        assert server.ledger.requests == requests
        server.batches.manners.looks = 0
        assert batched(manifest, store).statuses() == {"ok": 12}
        again = run(manifest, store, manner={"name": name})
        assert (again.statuses(), again.outcome.tally.asked, server.ledger.paid) == (
            {"ok": 12},
            0,
            12,
        )


@pytest.mark.parametrize("wire", SPECS)
def test_a_process_killed_after_handing_in_leaves_a_batch_that_the_next_one_collects(
    wire: str, tmp_path: Path, store: Path
) -> None:
    manifest = edits(tmp_path, 4)
    with stub() as server:
        server.batches.manners.looks = 10**6
        with in_a_process(manifest, store, SPECS[wire]) as process:
            until(
                lambda: server.batches.calls["look"] >= 2 or process.poll() is not None
            )
            process.kill()
            process.communicate()
        assert server.batches.calls["look"] >= 2
        server.batches.manners.looks = 0
        with in_a_process(manifest, store, SPECS[wire]) as process:
            _, said = process.communicate(timeout=300)
            assert process.returncode == 0, said
        assert (server.ledger.paid, server.batches.calls["create"]) == (12, 1)
        done = batched(manifest, store, judges=(SPECS[wire],))
        assert server.ledger.paid == 12
    assert {(r["item"], r["rubric"]): r["scores"] for r in done.rows} == expected(
        manifest
    )


def die(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("wire", SPECS)
def test_a_crash_between_handing_in_and_keeping_the_id_is_not_paid_twice(
    wire: str, tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is found by its mark, on the second page, behind batches of others."""
    manifest = edits(tmp_path, 4)
    with stub() as server:
        with monkeypatch.context() as patch:
            patch.setattr(kept, "submitted", die)
            with pytest.raises(KeyboardInterrupt):
                batched(manifest, store, judges=(SPECS[wire],))
        assert server.batches.calls["create"] == 1
        batched(
            edits(tmp_path / "others", 5), tmp_path / "others.db", judges=(SPECS[wire],)
        )
        server.batches.manners.page = 1
        before = server.ledger.paid
        done = batched(manifest, store, judges=(SPECS[wire],))
        assert (server.ledger.paid, server.batches.calls["create"]) == (before, 2)
    assert done.statuses() == {"ok": 12}


@pytest.mark.parametrize("wire", SPECS)
def test_a_batch_whose_arrival_nobody_confirmed_is_found_and_not_sent_again(
    wire: str, tmp_path: Path, store: Path
) -> None:
    with stub() as server:
        server.batches.manners.unheard = 1
        done = batched(edits(tmp_path, 4), store, judges=(SPECS[wire],))
        assert (server.ledger.paid, server.batches.calls["create"]) == (12, 1)
    assert done.statuses() == {"ok": 12}


@pytest.mark.parametrize("wire", SPECS)
def test_a_batch_that_never_arrived_is_sent(
    wire: str, tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = edits(tmp_path, 2)
    with stub() as server:
        with monkeypatch.context() as patch:
            patch.setattr(engine._BatchSubmitter, "_hand_in", die)
            with pytest.raises(KeyboardInterrupt):
                batched(manifest, store, judges=(SPECS[wire],))
        assert server.batches.calls["create"] == 0
        done = batched(manifest, store, judges=(SPECS[wire],))
        assert (server.ledger.paid, server.batches.calls["create"]) == (6, 1)
    assert done.statuses() == {"ok": 6}


# --- money ----------------------------------------------------------------------------------------------------


def prices(folder: Path, batch: str = "batch: {openai: 0.5}") -> Options:
    path = folder / "prices.yaml"
    path.write_text(
        f"as_of: 2026-01-01\n{batch}\nmodels: {{{OPENAI}: {{input: 10.0, output: 40.0}}}}\n"
    )
    return Options(prices=path, timeout=20.0)


def test_a_batch_costs_the_share_that_the_price_list_says(
    tmp_path: Path, store: Path
) -> None:
    manifest = edits(tmp_path, 3)
    options = prices(tmp_path)
    with stub():
        done = batched(manifest, store, options=options)
        live = run(manifest, tmp_path / "live.db", options=options)
    assert done.outcome.tally.cost == pytest.approx(live.outcome.tally.cost / 2)
    assert done.outcome.tally.cost > 0


def test_a_price_list_without_a_share_leaves_the_cost_of_a_batch_unknown(
    tmp_path: Path, store: Path
) -> None:
    with stub():
        done = batched(edits(tmp_path, 1), store, options=prices(tmp_path, batch=""))
    assert [row["cost"] for row in done.rows] == [None] * 3


def test_a_budget_is_kept_and_a_run_goes_on_with_another(
    tmp_path: Path, store: Path
) -> None:
    manifest = edits(tmp_path, 8)
    options = prices(tmp_path)
    endings: list[str] = []
    with stub() as server:
        while len(endings) < 30 and (not endings or endings[-1] == "budget"):
            done = batched(manifest, store, {"budget": 0.3}, options=options)
            assert done.outcome.tally.cost <= 0.3
            endings.append(done.outcome.ending)
        assert server.ledger.paid == 24
    assert endings[-1] == "finished" and len(endings) > 1


# --- the command ----------------------------------------------------------------------------------------------


def test_the_command_runs_batches(tmp_path: Path, store: Path) -> None:
    with stub() as server:
        told = editjudge(
            "run",
            edits(tmp_path, 2),
            "--judge",
            OPENAI,
            "--store",
            store,
            "--batch",
            "--json",
        )
        assert server.batches.calls["create"] == 1
    assert (told.code, told.json["statuses"]) == (0, {"ok": 6})
    assert "was submitted" in told.err


def test_two_edits_with_the_same_content_are_asked_once(
    tmp_path: Path, store: Path
) -> None:
    row = rows_of(edits(tmp_path, 1))[0]
    manifest = write_manifest(tmp_path, [{**row, "id": f"twin-{n}"} for n in range(5)])
    with stub() as server:
        done = batched(manifest, store)
        assert server.ledger.paid == 3
    assert done.statuses() == {"ok": 15}
