"""An exception that nobody expected is the failure of one edit: named, logged and tried again; the rest goes on."""

from __future__ import annotations

import errno
import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from editjudge.edit import Edit
from editjudge.errors import WorldError
from editjudge.judgement import Judgement, Task
from editjudge.judges.chat import ChatJudge
from editjudge.judges.judge import Judge, Load, Options, Work
from editjudge.media.cache import DigestCache, ImageCache
from editjudge.rubrics import contract
from editjudge.rubrics.files import load
from editjudge.running import asker as module
from editjudge.running import batch as batches
from editjudge.running.asker import judge_task

from .made import answered, canned, edits, environment, rows_of, run, stub

ROUTES = pytest.mark.parametrize("batch", [False, True], ids=["live", "batch"])


@pytest.fixture(autouse=True)
def anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """No traceback is in the log yet."""
    monkeypatch.setattr(module, "_logged", set())
    monkeypatch.setattr(batches, "LOOK", (0.01, 0.05))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Exception]]:
    """Edits whose judging raises, with what."""
    raising: dict[str, Exception] = {}
    judge = ChatJudge.judge

    async def instead(self: ChatJudge, work: Work, loading: Load) -> Judgement:
        if error := raising.get(work.edit.id):
            raise error
        return await judge(self, work, loading)

    with monkeypatch.context() as patch:
        patch.setattr(ChatJudge, "judge", instead)
        yield raising


ERRORS = [
    ZeroDivisionError("division by zero"),
    OverflowError("int too large to convert to float"),
    RecursionError("maximum recursion depth exceeded"),
    MemoryError(),
    KeyError("nowhere"),
    OSError(errno.ENOENT, "gone"),
]


@ROUTES
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_exception_is_the_failure_of_its_edit_and_the_next_run_tries_it_again(
    error: Exception, batch: bool, tmp_path: Path, store: Path, broken: dict[str, Exception],
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    broken["e1"] = error
    manifest = edits(tmp_path, 4)
    how = {"batch": batch}
    with stub() as server:
        done = run(manifest, store, rubrics=("fidelity",), manner=how)
        assert (done.outcome.ending, done.statuses()) == (
            "finished",
            {"ok": 3, "error": 1},
        )
        (reason,) = done.row("e1")["reasons"]
        assert reason["code"] == "unexpected_exception" and reason[
            "message"
        ].startswith(type(error).__name__)
        assert "Traceback" in caplog.text and "e1, fidelity" in caplog.text
        assert done.outcome.summary.failed == 1
        del broken["e1"]
        again = run(manifest, store, rubrics=("fidelity",), manner=how)
    assert again.statuses() == {"ok": 4}
    assert server.ledger.paid == 4


def test_the_traceback_of_one_mistake_is_logged_once_and_every_edit_that_has_it_is_named(
    tmp_path: Path,
    store: Path,
    broken: dict[str, Exception],
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken |= {f"e{n}": ZeroDivisionError("division by zero") for n in range(5)}
    with stub():
        assert run(edits(tmp_path, 5), store, rubrics=("fidelity",)).statuses() == {
            "error": 5
        }
    assert caplog.text.count("Traceback") == 1
    assert all(f"e{n}, fidelity" in caplog.text for n in range(5))


def test_neither_reason_nor_log_holds_a_key(
    tmp_path: Path,
    store: Path,
    broken: dict[str, Exception],
    caplog: pytest.LogCaptureFixture,
) -> None:
    words = "the server said key-of-the-stub, key-of-another and sk-aaaaaaaaaaaaaaaaaaaaaaaa"
    broken["e0"] = ValueError(words + " at length" * 200)
    with stub(), environment({"VLLM_API_KEY": "key-of-another"}):
        done = run(edits(tmp_path, 1), store, rubrics=("fidelity",))
    message = done.row("e0")["reasons"][0]["message"]
    for text in (message, caplog.text, store.read_bytes().decode("latin-1")):
        assert (
            "key-of-the-stub" not in text
            and "key-of-another" not in text
            and "sk-aaaa" not in text
        )
    assert len(message) < 400 and "[key]" in message


def test_a_full_disk_is_not_of_one_edit_and_ends_the_run(
    tmp_path: Path, store: Path, broken: dict[str, Exception]
) -> None:
    broken["e1"] = OSError(errno.ENOSPC, "no space left on device")
    manifest = edits(tmp_path, 3)
    with stub():
        done = run(manifest, store, rubrics=("fidelity",))
        assert done.outcome.ending == "failed" and isinstance(
            done.outcome.error, WorldError
        )
        assert "error" not in done.statuses()
        broken.clear()
        assert run(manifest, store, rubrics=("fidelity",)).statuses() == {"ok": 3}


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_who_ends_the_program_ends_it(interrupt: type[BaseException]) -> None:
    class Ending:
        spec = "ending"
        limits = None

        async def judge(self, work: Work, load: Load) -> Judgement:
            raise interrupt

    task = Task("e0", "fidelity", "ending", 0, "key")
    work = Work(task, Edit("e0"), load("fidelity"))
    with pytest.raises(interrupt):
        judge_task(cast(Judge, Ending()), work, ImageCache()).send(None)


def test_a_picture_that_breaks_the_planner_is_an_error_of_the_edits_that_show_it(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = edits(tmp_path, 3)
    known = DigestCache.look_up
    odd = tmp_path / rows_of(manifest)[1]["edited"]

    def raising(self: DigestCache, source: Any) -> Any:
        if source == odd:
            raise ZeroDivisionError("a header of no width")
        return known(self, source)

    monkeypatch.setattr(DigestCache, "look_up", raising)
    with stub():
        done = run(manifest, store, rubrics=("fidelity",))
    assert done.statuses() == {"ok": 2, "error": 1}
    assert done.row("e1")["reasons"][0]["message"].startswith("ZeroDivisionError")


@ROUTES
@pytest.mark.parametrize(
    "content", [{"width": float("nan")}, {"width": {1, 2}}], ids=["nan", "set"]
)
def test_a_judgement_that_cannot_be_stored_is_an_error_of_its_edit(
    content: Mapping[str, Any],
    batch: bool,
    tmp_path: Path,
    store: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judge = ChatJudge.judge

    async def odd(self: ChatJudge, work: Work, loading: Load) -> Judgement:
        judgement = await judge(self, work, loading)
        return (
            replace(judgement, evidence=content) if work.edit.id == "e1" else judgement
        )

    monkeypatch.setattr(ChatJudge, "judge", odd)
    with stub():
        done = run(
            edits(tmp_path, 4), store, rubrics=("fidelity",), manner={"batch": batch}
        )
    assert (done.outcome.ending, done.statuses()) == ("finished", {"ok": 3, "error": 1})
    assert "ValueError" in done.row("e1")["reasons"][0]["message"]


def test_a_number_that_no_database_takes_is_an_error_of_its_edit(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = ChatJudge.judge

    async def odd(self: ChatJudge, work: Work, loading: Load) -> Judgement:
        judgement = await judge(self, work, loading)
        exchanges = tuple(
            replace(exchange, retries=1 << 70) for exchange in judgement.exchanges
        )
        return (
            replace(judgement, exchanges=exchanges)
            if work.edit.id == "e1"
            else judgement
        )

    monkeypatch.setattr(ChatJudge, "judge", odd)
    with stub():
        done = run(edits(tmp_path, 4), store, rubrics=("fidelity",))
    assert done.statuses() == {"ok": 3, "error": 1}


def test_a_reply_that_breaks_the_contract_s_own_code_is_kept_with_its_cost(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text(
        "as_of: 2026-01-01\nmodels:\n  openai/stub: {input: 10, output: 40}\n"
    )

    def deep(*_: Any, **__: Any) -> Any:
        raise RecursionError("too deep")

    monkeypatch.setattr(contract, "check", deep)
    with stub() as server:
        done = run(
            edits(tmp_path, 1),
            store,
            rubrics=("fidelity",),
            options=Options(prices=prices),
        )
    row = done.row("e0")
    assert (row["status"], row["attempts"], server.ledger.paid) == ("error", 1, 1)
    assert row["cost"] and row["cost"] == done.outcome.tally.cost
    assert done.replies[row["key"]][0].text


@pytest.mark.parametrize(
    "count", [10**400, -1, 1.5, "7", True, float("nan"), None, [1]], ids=repr
)
def test_usage_that_is_no_count_is_unknown_usage_and_never_a_price(
    count: Any, tmp_path: Path, store: Path
) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text(
        "as_of: 2026-01-01\nmodels:\n  openai/stub: {input: 10, output: 40}\n"
    )

    def nonsense(
        _: Mapping[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        document = answered("/v1/chat/completions", body)
        document["usage"] = {"prompt_tokens": 100, "completion_tokens": count}
        return 200, {}, json.dumps(document).encode()

    with canned(nonsense):
        done = run(
            edits(tmp_path, 2),
            store,
            rubrics=("fidelity",),
            options=Options(prices=prices),
        )
    assert done.statuses() == {"ok": 2}
    assert [(row["cost"], row["usage"]["output_tokens"]) for row in done.rows] == [
        (None, None)
    ] * 2
    assert (done.outcome.tally.unpriced, done.outcome.tally.cost) == (2, 0.0)


def test_a_reply_beside_a_number_of_five_thousand_digits_is_read_and_its_usage_unknown(
    tmp_path: Path, store: Path
) -> None:
    def say(_: Mapping[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        document = answered("/v1/chat/completions", body)
        document["usage"] = {"prompt_tokens": 100, "completion_tokens": "MANY"}
        return 200, {}, json.dumps(document).replace('"MANY"', "9" * 5_000).encode()

    with canned(say) as asked:
        done = run(edits(tmp_path, 1), store, rubrics=("fidelity",))
    assert (done.statuses(), len(asked)) == ({"ok": 1}, 1)
    assert done.rows[0]["usage"]["output_tokens"] is None


def test_the_log_goes_to_standard_error_where_nobody_set_up_logging(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logger = logging.getLogger(module.__name__)
    try:
        raise ZeroDivisionError("division by zero")
    except ZeroDivisionError as error:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(logger, "propagate", False)
            remark = module.unexpected(error, "e1")
    assert remark.message == "ZeroDivisionError: division by zero"
    assert "Traceback" in capsys.readouterr().err
