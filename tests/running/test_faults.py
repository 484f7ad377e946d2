"""Every fault at once: no score that nobody said, no edit lost, and hardly a call more than had to be paid."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path

import pytest

from editjudge.judges.judge import Options
from tests.stub.server import Behaviour, Ledger, Stub

from .made import SPECS, Done, edits, expected, pacing, run, stub

EVERYTHING = Behaviour(
    rate_limited=0.20,
    server_error=0.10,
    garbage=0.10,
    length_stop=0.05,
    hang_up=0.02,
    overloaded=0.02,
    not_json_http=0.01,
    half_answer=0.02,
    refusal=0.02,
    content_filter=0.01,
    empty=0.01,
    wrong_id=0.02,
    decimal=0.02,
    two_answers=0.02,
    slow_drip=0.05,
    drip_seconds=0.05,
    retry_after=0.01,
)
"""The mix under which other tools make scores up or lose edits, and some more."""

IN_TIME = Options(timeout=4.0)
"""Long enough for a slow drip on a busy machine: an answer that is given up is one that is paid for twice."""


@pytest.mark.parametrize("wire", SPECS)
def test_under_every_fault_at_once_nothing_is_made_up_or_lost(
    wire: str, tmp_path: Path
) -> None:
    manifest = edits(tmp_path, 100)
    with stub(EVERYTHING) as server, pacing():
        done = run(
            manifest,
            tmp_path / "s.db",
            judges=(SPECS[wire],),
            options=IN_TIME,
            manner={"concurrency": 24},
        )
    look(done, server, manifest, 100)


@pytest.mark.soak
@pytest.mark.parametrize("wire", SPECS)
def test_two_thousand_edits_under_every_fault_at_once(
    wire: str, tmp_path: Path
) -> None:
    manifest = edits(tmp_path, 2_000)
    with (
        stub(dataclasses.replace(EVERYTHING, timeout=0.001)) as server,
        pacing(first=0.1, longest=5.0),
    ):
        # Minutes on a machine that is busy with other things: at 4 seconds some answers came too late to be kept.
        options = dataclasses.replace(IN_TIME, timeout=20.0)
        done = run(manifest, tmp_path / "s.db", judges=(SPECS[wire],), options=options)
    look(done, server, manifest, 2_000)


def look(done: Done, server: Stub, manifest: Path, count: int) -> None:
    assert done.outcome.ending == "finished"
    assert nothing_is_missing(done, count)
    assert made_up(done, manifest) == []
    assert failures_without_a_reason(done) == []
    assert replies_not_kept(done, server.ledger) == []
    assert paid_ratio(done, server.ledger) <= 1.06
    by_fault = server.ledger.by_fault
    assert count < 2_000 or all(
        by_fault[name]
        for name in ("rate_limited", "half_answer", "decimal", "slow_drip")
    )


def nothing_is_missing(done: Done, count: int) -> bool:
    asked = Counter((row["item"], row["rubric"]) for row in done.rows)
    return (
        len(asked) == 3 * count == len(done.rows) and "pending" not in done.statuses()
    )


def made_up(done: Done, manifest: Path) -> list[object]:
    """Scores that the server did not say of that edit for that rubric."""
    said = expected(manifest)
    return [
        row
        for row in done.rows
        if row["scores"] is not None
        and row["scores"] != said[row["item"], row["rubric"]]
    ]


def failures_without_a_reason(done: Done) -> list[object]:
    failed = [row for row in done.rows if row["status"] != "ok"]
    return [
        row
        for row in failed
        if row["scores"] is not None or not row["reasons"] or row["justifications"]
    ]


def replies_not_kept(done: Done, ledger: Ledger) -> list[object]:
    """Answers that arrived whole and are not in the store; a question that Google blocks has no reply to keep."""
    kept = {
        str(e.request_id).removeprefix("req_")
        for replies in done.replies.values()
        for e in replies
    }
    gone = [
        answer
        for answer in ledger.answers
        if answer.request_id.removeprefix("req_") not in kept
    ]
    return [
        a
        for a in gone
        if a.outcome != "half_answer" and (a.wire, a.outcome) != ("google", "refusal")
    ]


def paid_ratio(done: Done, ledger: Ledger) -> float:
    """Paid calls for each that had to be: one right answer for each that is kept, and all that the stub spoilt."""
    answered = len({row["key"] for row in done.rows if row["status"] == "ok"})
    spoilt = sum(
        count for outcome, count in ledger.by_outcome.items() if outcome != "right"
    )
    return ledger.paid / (answered + spoilt)
