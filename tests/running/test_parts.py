"""`run --part I/N`: processes that each judge a part of one manifest come to what one process comes to."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from editjudge.edit import Edit
from editjudge.errors import UsageError
from editjudge.judgement import JudgementRow
from editjudge.judges.judge import Options
from editjudge.running.job import Job, Outcome, Part, RunOptions, execute
from editjudge.store.store import Store
from tests.faults import raises

from .made import editjudge, edits, expected, stub

JUDGE = "openai-compatible/stub"


def judge_part(
    job: Job, place: Path, part: Part | None
) -> tuple[Outcome, list[JudgementRow]]:
    with Store.open(place) as store:
        outcome = asyncio.run(execute(job, store, RunOptions(part=part)))
        return outcome, list(store.judgements(outcome.run_id))


def test_every_edit_is_in_one_part() -> None:
    for count in (1, 2, 7):
        parts = [Part(index, count) for index in range(1, count + 1)]
        sizes = Counter[int]()
        for number in range(700):
            holding = [part.index for part in parts if part.holds(Edit(f"e{number}"))]
            assert len(holding) == 1
            sizes.update(holding)
        assert all(0.6 < count * size / 700 < 1.4 for size in sizes.values())


@pytest.mark.parametrize("text", ["", "1", "0/2", "3/2", "-1/2", "1/0", "a/b", "1/2/3"])
def test_a_part_that_is_none_is_refused(text: str) -> None:
    with raises(UsageError, "bad_part"):
        Part.parse(text)


def test_parts_in_one_store_come_to_the_run_of_all_edits(tmp_path: Path) -> None:
    manifest = edits(tmp_path, 20)
    with stub() as server:
        options = Options(base_url=f"{server.url}/v1")
        job = Job(manifest, ("online",), (JUDGE,), options=options)
        first, rows = judge_part(job, tmp_path / "parts.db", Part(1, 2))
        judged = [row for row in rows if row["status"] != "pending"]
        assert first.ending == "finished" and 0 < len(judged) < len(rows) == 60
        assert first.tally.total == first.tally.expected == len(judged)
        with Store.open(tmp_path / "parts.db") as store:
            assert store.run_of(first.run_id).state == "interrupted"  # type: ignore[union-attr]
        second, rows = judge_part(job, tmp_path / "parts.db", Part(2, 2))
        assert second.run_id == first.run_id
        assert second.tally.asked == second.tally.total == 60 - len(judged)
        with Store.open(tmp_path / "parts.db") as store:
            assert store.run_of(first.run_id).state == "finished"  # type: ignore[union-attr]
        paid = server.ledger.paid
        _, alone = judge_part(job, tmp_path / "whole.db", None)
    assert paid == 60
    assert [(row["key"], row["scores"]) for row in rows] == [
        (row["key"], row["scores"]) for row in alone
    ]
    assert {(row["item"], row["rubric"]): row["scores"] for row in rows} == expected(
        manifest
    )


def test_the_command_takes_a_part(tmp_path: Path) -> None:
    manifest = edits(tmp_path, 6)
    with stub() as server:
        words = ("--judge", JUDGE, "--base-url", f"{server.url}/v1", "--json")
        words = ("run", manifest, *words, "--store", tmp_path / "s.db")  # type: ignore[assignment]
        told = [editjudge(*words, "--part", f"{n}/3") for n in (1, 2, 3)]
        assert [each.code for each in told] == [0, 0, 0]
        assert server.ledger.paid == 18
    assert told[-1].json["statuses"] == {"ok": 18}
    assert editjudge(*words, "--part", "4/3").code == 2
    assert editjudge(*words, "--part", "1/3", "--engine", "ray").code == 2
