"""Runs against the stub over real sockets: what is asked, kept, asked again, and what ends a run."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from editjudge import manifest as manifest_module
from editjudge.edit import Edit
from editjudge.errors import JudgeError, ManifestError, StoreError, UsageError
from editjudge.judgement import Judgement
from editjudge.judges.judge import Options
from editjudge.media import cache as pictures
from editjudge.media import source as source_module
from editjudge.rubrics.files import dump, load
from editjudge.running import plan as planning
from editjudge.running.engine import RunControl
from editjudge.running.job import Job, OpenRun
from editjudge.running.pace import JudgeDown
from editjudge.running.plan import PlannedBatch, Planner
from editjudge.store.store import Store
from tests.faults import raises
from tests.stub.server import Behaviour

from .made import (
    ONLINE,
    SPECS,
    Canned,
    answered,
    canned,
    edits,
    environment,
    expected,
    pacing,
    picture,
    rows_of,
    run,
    stub,
    until,
    variables,
    write_manifest,
    write_old,
)

OPENAI = SPECS["openai"]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


# --- asking once ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", SPECS)
def test_every_answer_is_the_one_that_was_given_for_that_edit_and_rubric(
    wire: str, tmp_path: Path, store: Path
) -> None:
    manifest = edits(tmp_path, 6)
    with stub() as server:
        done = run(manifest, store, judges=(SPECS[wire],))
    assert {
        (row["item"], row["rubric"]): row["scores"] for row in done.rows
    } == expected(manifest)
    assert done.statuses() == {"ok": 18}
    assert server.ledger.paid == server.ledger.least_paid == 18
    assert [(row["item"], row["rubric"]) for row in done.rows] == [
        (f"e{n}", r) for n in range(6) for r in ONLINE
    ]


def test_running_again_asks_nothing_and_changes_nothing(
    tmp_path: Path, store: Path
) -> None:
    manifest = edits(tmp_path, 5)
    with stub() as server:
        first = run(manifest, store)
        server.reset()
        again = run(manifest, store)
        assert server.ledger.requests == 0
    assert again.rows == first.rows
    assert (
        again.outcome.tally.cached,
        again.outcome.tally.asked,
        again.outcome.tally.replies,
    ) == (15, 0, 0)
    assert again.outcome.run_id == first.outcome.run_id


def test_running_again_reads_no_picture_also_where_the_manifest_is_named_from_where_one_stands(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edits(tmp_path, 5)
    monkeypatch.chdir(tmp_path)
    # else only waiting makes them old enough
    monkeypatch.setattr(pictures.DigestCache, "_SETTLED_NS", -(10**12))
    with stub():
        run(Path("edits.jsonl"), store)
        monkeypatch.setattr(pictures, "read", no_picture)
        again = run(Path("edits.jsonl"), store)
    assert again.statuses() == {"ok": 15}


def test_each_picture_is_read_once_and_the_manifest_opened_once(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = edits(tmp_path, 8)
    monkeypatch.setattr(pictures.DigestCache, "_SETTLED_NS", -(10**12))
    opened: list[str] = []
    read_file = source_module.read_file
    read_manifest = manifest_module.read

    def reading(source: Path, *options: Any) -> Any:
        opened.append(source.name)
        return read_file(source, *options)

    def reading_manifest(path: Path, **options: Any) -> Iterator[Edit]:
        opened.append(path.name)
        return read_manifest(path, **options)

    monkeypatch.setattr(pictures, "read_file", reading)
    monkeypatch.setattr(manifest_module, "read", reading_manifest)
    with stub():
        done = run(manifest, store)
    assert done.statuses() == {"ok": 24}
    assert sorted(opened) == sorted(
        path.name for path in tmp_path.iterdir() if path.suffix in (".png", ".jsonl")
    )


def no_picture(*_: object, **__: object) -> bytes:
    raise AssertionError("a picture was read")


def test_a_file_with_a_new_time_is_read_again_and_has_its_old_key(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pictures.DigestCache, "_SETTLED_NS", -(10**12))
    manifest = edits(tmp_path, 2)
    edited = tmp_path / "edited-0.png"
    with stub() as server:
        first = run(manifest, store)
        os.utime(edited, (1_000_000, 1_000_000))
        again = run(manifest, store)
        assert server.ledger.paid == 6
    assert again.rows == first.rows
    with Store.open(store, readonly=True) as stored:
        file, _ = stored.load_digests([str(edited)])[str(edited)]
        assert file.mtime_ns == 1_000_000 * 10**9


def test_a_picture_replaced_by_one_of_the_same_size_and_time_is_asked_about_again(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pictures.DigestCache, "_SETTLED_NS", -(10**12))
    manifest = edits(tmp_path, 1)
    edited = tmp_path / "edited-0.png"
    before = edited.stat()
    other = bytearray(edited.read_bytes())
    other[-1] ^= 1  # of the checksum at the very end
    with stub() as server:
        run(manifest, store)
        (tmp_path / "other.png").write_bytes(other)
        os.utime(tmp_path / "other.png", ns=(before.st_atime_ns, before.st_mtime_ns))
        (tmp_path / "other.png").replace(edited)
        assert (edited.stat().st_size, edited.stat().st_mtime_ns) == (
            before.st_size,
            before.st_mtime_ns,
        )
        run(manifest, store)
        assert server.ledger.paid == 6


def test_a_changed_picture_is_asked_about_again_and_the_others_are_not(
    tmp_path: Path, store: Path
) -> None:
    manifest = edits(tmp_path, 4)
    with stub() as server:
        first = run(manifest, store)
        write_old(tmp_path / "edited-2.png", picture("another"))
        again = run(manifest, store)
        assert server.ledger.paid == 12 + 3
    changed = {
        row["item"]
        for row, before in zip(again.rows, first.rows, strict=True)
        if row["key"] != before["key"]
    }
    assert changed == {"e2"}
    assert {(r["item"], r["rubric"]): r["scores"] for r in again.rows} == expected(
        manifest
    )


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"options": Options(temperature=0.5)}, id="parameter"),
        pytest.param({"options": Options(strict=True)}, id="strict"),
        pytest.param({"options": Options(schema=False)}, id="schema"),
        pytest.param({"layout": "published"}, id="layout"),
    ],
)
def test_another_way_of_asking_is_another_question(
    tmp_path: Path, store: Path, change: dict[str, Any]
) -> None:
    manifest = edits(tmp_path, 2)
    with stub() as server:
        run(manifest, store)
        run(manifest, store, **change)
        assert server.ledger.paid == 12


def test_a_changed_rubric_is_another_question(tmp_path: Path, store: Path) -> None:
    manifest = edits(tmp_path, 2)
    file = tmp_path / "mine.yaml"
    fidelity = load("fidelity")
    with stub() as server:
        for task in ("Judge it.", "Judge it.", "Judge it well."):
            file.write_text(dump(dataclasses.replace(fidelity, task=task)))
            run(manifest, store, rubrics=(str(file),), manner={"name": task})
        assert server.ledger.paid == 4


def test_another_run_of_the_same_questions_pays_nothing(
    tmp_path: Path, store: Path
) -> None:
    manifest = edits(tmp_path, 2)
    with stub() as server:
        run(manifest, store, rubrics=("fidelity",), manner={"name": "one"})
        done = run(manifest, store, manner={"name": "two"})
        assert server.ledger.paid == 6
    assert (done.outcome.tally.cached, done.outcome.tally.asked) == (2, 4)
    assert done.statuses() == {"ok": 6}


def test_repeats_never_collapse(tmp_path: Path, store: Path) -> None:
    manifest = edits(tmp_path, 2)
    with stub() as server:
        done = run(manifest, store, rubrics=("fidelity",), repeats=4)
        assert (server.ledger.paid, server.ledger.least_paid) == (8, 2)
    assert Counter(row["item"] for row in done.rows) == {"e0": 4, "e1": 4}
    assert len({row["key"] for row in done.rows}) == 8


def test_edits_with_the_same_content_are_paid_for_once_and_all_appear(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside each other, and so far apart that the first is in flight or done when the second is planned."""
    row = rows_of(edits(tmp_path, 1))[0]
    manifest = write_manifest(
        tmp_path, [{**row, "id": f"twin-{n}", "model": f"m{n}"} for n in range(9)]
    )
    monkeypatch.setattr(planning, "BATCH", 2)
    with stub(Behaviour(latency=0.02)) as server:
        done = run(manifest, store, manner={"concurrency": 1})
        assert server.ledger.paid == 3
    assert done.statuses() == {"ok": 27}
    assert {row["model"] for row in done.rows} == {f"m{n}" for n in range(9)}
    assert done.outcome.tally.asked == 3
    assert done.outcome.tally.cached == 24


def test_what_failed_is_tried_again_and_its_earlier_replies_are_kept(
    tmp_path: Path, store: Path
) -> None:
    manifest = edits(tmp_path, 3)
    with stub(Behaviour(garbage=1)) as server:
        first = run(manifest, store, rubrics=("fidelity",))
        server.behaviour = Behaviour()
        again = run(manifest, store, rubrics=("fidelity",))
    assert (first.statuses(), again.statuses()) == ({"invalid": 3}, {"ok": 3})
    assert [row["attempts"] for row in again.rows] == [1, 1, 1]
    for replies in again.replies.values():
        assert [reply.outcome for reply in replies] == [
            "invalid",
            "invalid",
            "invalid",
            "ok",
        ]
        assert all(reply.text for reply in replies)


def test_a_failure_that_fails_again_keeps_both(tmp_path: Path, store: Path) -> None:
    manifest = edits(tmp_path, 1)
    with stub(Behaviour(empty=1)):
        run(manifest, store, rubrics=("fidelity",))
        again = run(manifest, store, rubrics=("fidelity",))
    assert again.statuses() == {"invalid": 1}
    assert [len(replies) for replies in again.replies.values()] == [6]


def test_the_same_name_with_another_spec_is_an_error_that_says_what_differs(
    tmp_path: Path, store: Path
) -> None:
    manifest = edits(tmp_path, 1)
    with stub() as server:
        run(manifest, store, manner={"name": "mine"})
        server.reset()
        with raises(StoreError, "another_spec", "mine", "temperature"):
            run(
                manifest,
                store,
                options=Options(temperature=1.0),
                manner={"name": "mine"},
            )
        assert server.ledger.requests == 0


def test_a_limit_takes_the_first_edits(tmp_path: Path, store: Path) -> None:
    manifest = edits(tmp_path, 9)
    with stub():
        done = run(manifest, store, rubrics=("fidelity",), limit=4)
    assert [row["item"] for row in done.rows] == ["e0", "e1", "e2", "e3"]


@pytest.mark.parametrize("further", [7, None])
def test_a_run_grows_with_its_limit_and_pays_for_the_new_edits_alone(
    further: int | None, tmp_path: Path, store: Path
) -> None:
    manifest = edits(tmp_path, 9)
    mine: dict[str, Any] = {"rubrics": ("fidelity",), "manner": {"name": "mine"}}
    with stub() as server:
        run(manifest, store, limit=4, **mine)
        server.reset()
        grown = run(manifest, store, limit=further, **mine)
        count = further or 9
        assert server.ledger.paid == count - 4
        assert [row["item"] for row in grown.rows] == [f"e{n}" for n in range(count)]
        again = run(manifest, store, limit=4, **mine)
        assert server.ledger.paid == count - 4
    assert (again.outcome.ending, len(again.rows)) == ("finished", count)
    with Store.open(store, readonly=True) as opened:
        assert opened.find_run("mine").spec["limit"] == further


def test_a_run_grows_with_its_manifest(tmp_path: Path, store: Path) -> None:
    manifest = edits(tmp_path, 9)
    lines = manifest.read_text().splitlines(keepends=True)
    mine: dict[str, Any] = {"rubrics": ("fidelity",), "manner": {"name": "mine"}}
    with stub() as server:
        manifest.write_text("".join(lines[:4]))
        run(manifest, store, **mine)
        manifest.write_text("".join(lines))
        grown = run(manifest, store, **mine)
        assert server.ledger.paid == 9
    assert (len(grown.rows), grown.statuses()) == (9, {"ok": 9})


def test_a_fused_set_is_one_question(tmp_path: Path, store: Path) -> None:
    manifest = edits(tmp_path, 2)
    with stub() as server:
        done = run(manifest, store, fuse=True)
        assert server.ledger.paid == 2
    assert [(row["rubric"], len(row["scores"])) for row in done.rows] == [
        ("online", 12)
    ] * 2


# --- what is recorded -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", SPECS)
def test_where_an_answer_came_from_is_kept_with_it(
    wire: str, tmp_path: Path, store: Path
) -> None:
    manifest = edits(tmp_path, 1)
    with stub(Behaviour(latency=0.05)) as server:
        done = run(manifest, store, judges=(SPECS[wire],), rubrics=("fidelity",))
    ((said,),) = done.replies.values()
    answer = server.ledger.answers[0]
    assert said.model == done.rows[0]["server_model"] == "stub-2026-01-01"
    assert str(said.request_id).removeprefix("req_") == answer.request_id.removeprefix(
        "req_"
    )
    assert said.latency is not None and 0.05 <= said.latency < 5
    assert (
        said.usage.input_tokens,
        said.usage.cached_tokens,
        said.usage.output_tokens,
    ) == answer.usage
    assert done.rows[0]["usage"] == said.usage.as_json()
    assert done.rows[0]["prepared"] == {"input": "as-is", "edited": "as-is"}
    assert done.rows[0]["schema_mode"] == "requested"
    assert json.loads(said.text)["image_id"] == answer.identifier


def test_requests_that_brought_nothing_are_counted_beside_the_reply(
    tmp_path: Path, store: Path
) -> None:
    with stub(Behaviour(server_error=0.6)) as server, pacing():
        done = run(edits(tmp_path, 8), store, rubrics=("fidelity",))
    retries = sum(
        reply.retries for replies in done.replies.values() for reply in replies
    )
    assert done.statuses() == {"ok": 8}
    assert retries == server.ledger.by_fault["server_error"] > 0


@pytest.mark.parametrize("wire", SPECS)
def test_a_server_without_schemas_is_asked_in_words_and_every_answer_says_so(
    wire: str, tmp_path: Path, store: Path
) -> None:
    with stub(Behaviour(schema_support="none")) as server:
        done = run(
            edits(tmp_path, 12), store, judges=(SPECS[wire],), manner={"concurrency": 4}
        )
    assert done.statuses() == {"ok": 36}
    assert {row["schema_mode"] for row in done.rows} == {"prompt only"}
    # two questions show it; those in flight with each
    assert 1 <= server.ledger.by_fault["schema_refused"] <= 8


def test_no_schema_is_requested_where_the_user_wants_none_or_prose_is_asked_for(
    tmp_path: Path, store: Path
) -> None:
    manifest = edits(tmp_path, 1)
    with stub(Behaviour(schema_support="none")) as server:
        plain = run(manifest, store, options=Options(schema=False))
        prose = run(manifest, store, rubrics=("lighting",))
        assert "schema_refused" not in server.ledger.by_fault
    assert {row["schema_mode"] for row in (*plain.rows, *prose.rows)} == {"prompt only"}


def test_the_group_is_the_input_whichever_pictures_the_rubrics_show(
    tmp_path: Path, store: Path
) -> None:
    rows = rows_of(edits(tmp_path, 5))
    manifest = write_manifest(
        tmp_path, [{**row, "ground_truth": "edited-0.png"} for row in rows]
    )
    with stub():
        done = run(manifest, store, rubrics=("reference", "lighting"))
        only = run(manifest, store, rubrics=("reference",))
    groups = {row["item"]: row["group"] for row in done.rows}
    assert groups == {row["item"]: row["group"] for row in only.rows}
    assert len({groups[f"e{n}"] for n in range(4)}) == 1
    assert groups["e4"] != groups["e0"]


def test_a_group_of_the_users_own_stands(tmp_path: Path, store: Path) -> None:
    with stub():
        done = run(edits(tmp_path, 2, group="scene"), store, rubrics=("fidelity",))
    assert {row["group"] for row in done.rows} == {"scene"}


# --- statuses -------------------------------------------------------------------------------------------------


def test_what_cannot_be_asked_has_its_status_and_costs_nothing(
    tmp_path: Path, store: Path
) -> None:
    row = rows_of(edits(tmp_path, 1))[0]
    write_old(tmp_path / "cut.png", picture("cut")[:50])
    write_old(tmp_path / "words.png", b"These are words.")
    bomb = picture("bomb").replace(b"\0\0\0\x08\0\0\0\x08", b"\0\0\xff\xff\0\0\xff\xff")
    write_old(tmp_path / "bomb.png", bomb)
    changes: dict[str, dict[str, Any]] = {
        "fine": {},
        "no field": {"edited": None},
        "no file": {"edited": "gone.png"},
        "no input": {"input": "gone.png"},
        "no words": {"instruction": ""},
        "cut": {"edited": "cut.png"},
        "words": {"input": "words.png"},
        "bomb": {"edited": "bomb.png"},
    }
    manifest = write_manifest(
        tmp_path, [{**row, "id": name, **change} for name, change in changes.items()]
    )
    with stub() as server:
        done = run(manifest, store, rubrics=("fidelity", "reference"))
        assert server.ledger.requests == 1
    assert {name: done.row(name, "fidelity")["status"] for name in changes} == {
        "fine": "ok",
        "no field": "missing_output",
        "no file": "missing_output",
        "no input": "missing_input",
        "no words": "missing_input",
        "cut": "bad_image",
        "words": "bad_image",
        "bomb": "bad_image",
    }
    assert done.row("fine", "reference")["status"] == "missing_input"
    assert all(
        row["scores"] is None and row["reasons"]
        for row in done.rows
        if row["status"] != "ok"
    )
    assert "cut.png" in done.row("cut", "fidelity")["reasons"][0]["message"]
    missing = {
        name: done.row(name, "fidelity")["reasons"][0]["message"]
        for name in ("no field", "no file", "no input")
    }
    assert missing == {
        "no field": "the editing model produced no image",
        "no file": "gone.png is not there",
        "no input": "gone.png is not there",
    }


def test_a_picture_that_came_too_late_is_asked_about_the_next_time(
    tmp_path: Path, store: Path
) -> None:
    manifest = edits(tmp_path, 2)
    late = (tmp_path / "edited-1.png").read_bytes()
    (tmp_path / "edited-1.png").unlink()
    with stub():
        first = run(manifest, store, rubrics=("fidelity",))
        write_old(tmp_path / "edited-1.png", late)
        again = run(manifest, store, rubrics=("fidelity",))
    assert (first.statuses(), again.statuses()) == (
        {"ok": 1, "missing_output": 1},
        {"ok": 2},
    )


@pytest.mark.parametrize("held", [True, False])
def test_a_picture_that_changes_under_the_run_is_judged_as_it_was_read_or_not_at_all(
    held: bool, tmp_path: Path, store: Path
) -> None:
    manifest = edits(tmp_path, 1)
    said = expected(manifest)
    original = Planner.batches

    def changed(self: Planner, *arguments: Any) -> Iterator[PlannedBatch]:
        for batch in original(self, *arguments):
            write_old(tmp_path / "edited-0.png", picture("meddled"))
            if not held:  # as where pictures are large, or digests were remembered
                self.reader._held._values.clear()
            yield batch

    with pytest.MonkeyPatch.context() as patch, stub() as server:
        patch.setattr(Planner, "batches", changed)
        done = run(manifest, store, rubrics=("fidelity",))
        assert server.ledger.requests == held
    if held:
        assert done.rows[0]["scores"] == said["e0", "fidelity"]
    else:
        assert done.statuses() == {"bad_image": 1}
        assert "changed" in done.rows[0]["reasons"][0]["message"]


SPOILT = {
    "refusal": ("refused", "refusal"),
    "content_filter": ("refused", "refusal"),
    "length_stop": ("truncated", "truncated"),
    "empty": ("invalid", "empty"),
    "decimal": ("invalid", "score_decimal"),
    "wrong_id": ("invalid", "wrong_id"),
    "two_answers": ("invalid", "ambiguous"),
}


@pytest.mark.parametrize("wire", SPECS)
@pytest.mark.parametrize("fault", SPOILT)
def test_each_way_of_not_answering_has_its_own_status(
    wire: str, fault: str, tmp_path: Path, store: Path
) -> None:
    settings: Any = {fault: 1.0}
    with stub(Behaviour(**settings)):
        done = run(
            edits(tmp_path, 4), store, judges=(SPECS[wire],), rubrics=("fidelity",)
        )
    status, code = SPOILT[fault]
    assert done.statuses() == {status: 4}
    assert {row["reasons"][0]["code"] for row in done.rows} == {code}
    assert {row["scores"] for row in done.rows} == {None}


def test_a_useless_reply_is_asked_again_with_the_reasons_twice_and_all_are_kept(
    tmp_path: Path, store: Path
) -> None:
    with stub(Behaviour(garbage=1)) as server:
        done = run(edits(tmp_path, 2), store, rubrics=("fidelity",))
        assert (server.ledger.requests, server.ledger.least_paid) == (6, 2)
    assert done.statuses() == {"invalid": 2}
    assert [len(replies) for replies in done.replies.values()] == [3, 3]
    assert [row["attempts"] for row in done.rows] == [3, 3]


ONE_BY_ONE = {"concurrency": 1}
"""So that the same request meets the same fault every time."""


def test_a_judge_that_mostly_answers_is_asked_up_to_twice_more(
    tmp_path: Path, store: Path
) -> None:
    with stub(Behaviour(garbage=0.12, length_stop=0.06)) as server:
        done = run(
            edits(tmp_path, 150), store, rubrics=("fidelity",), manner=ONE_BY_ONE
        )
        assert server.ledger.requests == sum(row["attempts"] for row in done.rows)
    assert done.statuses() == {"ok": 150}
    assert 3 < max(row["attempts"] for row in done.rows) <= 5


@pytest.mark.parametrize(
    ("fault", "reasks", "most"),
    [("garbage", 2, 7), ("garbage", 0, 1), ("refusal", 2, 3)],
)
def test_no_question_is_asked_endlessly(
    fault: str, reasks: int, most: int, tmp_path: Path, store: Path
) -> None:
    shares: Any = {fault: 0.05}
    with stub(Behaviour(sticky=frozenset({fault}), **shares)):
        options = Options(reasks=reasks)
        done = run(
            edits(tmp_path, 60),
            store,
            rubrics=("fidelity",),
            options=options,
            manner=ONE_BY_ONE,
        )
    failed = [row["attempts"] for row in done.rows if row["status"] != "ok"]
    assert max(failed) == most
    assert {row["attempts"] for row in done.rows if row["status"] == "ok"} == {1}


def test_a_judge_that_rarely_answers_is_not_asked_more_often(
    tmp_path: Path, store: Path
) -> None:
    with stub(Behaviour(garbage=0.6)):
        done = run(edits(tmp_path, 60), store, rubrics=("fidelity",), manner=ONE_BY_ONE)
    assert {row["attempts"] for row in done.rows} == {1, 2, 3}


def test_reasks_are_as_many_as_wanted(tmp_path: Path, store: Path) -> None:
    with stub(Behaviour(garbage=1)) as server:
        run(edits(tmp_path, 1), store, rubrics=("fidelity",), options=Options(reasks=0))
        assert server.ledger.requests == 1


@pytest.mark.parametrize(
    "fault", ["server_error", "hang_up", "timeout", "not_json_http", "half_answer"]
)
def test_a_question_that_never_gets_through_is_unreachable_and_the_others_are_not(
    fault: str, tmp_path: Path, store: Path
) -> None:
    settings: Any = {fault: 0.4}
    behaviour = Behaviour(sticky=frozenset({fault}), **settings)
    with stub(behaviour) as server, pacing(tries=3):
        # Long enough that a busy machine gets each request to the server in time.
        options = Options(timeout=1.0 if fault == "timeout" else 20.0)
        done = run(edits(tmp_path, 10), store, rubrics=("fidelity",), options=options)
    lost = done.statuses().pop("unreachable")
    assert done.statuses() == {"ok": 10 - lost, "unreachable": lost}
    assert server.ledger.by_fault[fault] == 3 * lost
    unreachable = [row for row in done.rows if row["status"] == "unreachable"]
    codes = {row["reasons"][0]["code"] for row in unreachable}
    assert codes == {
        {
            "hang_up": "connection",
            "half_answer": "connection",
            "timeout": "timeout",
        }.get(fault, "server")
    }


def test_a_slow_drip_is_an_answer_like_any_other(tmp_path: Path, store: Path) -> None:
    manifest = edits(tmp_path, 3)
    with stub(Behaviour(slow_drip=1, drip_seconds=0.2)):
        done = run(manifest, store, rubrics=("fidelity",))
    said = expected(manifest)
    assert [row["scores"] for row in done.rows] == [
        said[f"e{n}", "fidelity"] for n in range(3)
    ]


def test_strict_refuses_what_is_otherwise_noted(tmp_path: Path, store: Path) -> None:
    def wordy(_: Mapping[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        document = answered("/v1/chat/completions", body)
        message = document["choices"][0]["message"]
        message["content"] = message["content"].replace(
            "Along the left edge and behind the main subject, ", ""
        )
        return 200, {}, json.dumps(document).encode()

    manifest = edits(tmp_path, 1)
    with canned(wordy):
        kept = run(manifest, store, rubrics=("fidelity",))
        refused = run(
            manifest, store, rubrics=("fidelity",), options=Options(strict=True)
        )
    assert (kept.statuses(), refused.statuses()) == ({"ok": 1}, {"invalid": 1})
    assert kept.rows[0]["violations"] == ["justification_too_short"]


# --- what ends a run ------------------------------------------------------------------------------------------


def error(status: int, message: str, **headers: str) -> Any:
    return lambda *_: (
        status,
        headers,
        json.dumps({"error": {"message": message}}).encode(),
    )


@pytest.mark.parametrize(
    ("status", "message"),
    [(401, "Incorrect key"), (403, "Not for you"), (404, "No such model")],
)
@pytest.mark.parametrize("wire", SPECS)
def test_a_key_or_model_that_is_refused_ends_the_run_at_once(
    wire: str, status: int, message: str, tmp_path: Path, store: Path
) -> None:
    with canned(error(status, message)) as asked:
        done = run(edits(tmp_path, 30), store, judges=(SPECS[wire],))
    assert done.outcome.ending == "failed"
    assert type(done.outcome.error) is JudgeError
    assert str(done.outcome.error) == f"{SPECS[wire]}: HTTP {status}: {message}"
    assert done.statuses() == {"pending": 90}
    assert len(asked) <= 8  # those that were in flight together


def test_an_account_that_runs_dry_loses_no_answer_that_was_paid_for(
    tmp_path: Path, store: Path
) -> None:
    """The last question is refused while seven others are being answered."""
    lock = threading.Lock()
    served = iter(range(10_000))

    def say(_: Mapping[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        with lock:
            number = next(served)
        if number >= 7:
            return (
                429,
                {},
                b'{"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}',
            )
        time.sleep(0.5)
        return 200, {}, json.dumps(answered("/v1/chat/completions", body)).encode()

    with canned(say):
        done = run(edits(tmp_path, 20), store)
    assert done.outcome.ending == "failed"
    assert "quota" in str(done.outcome.error)
    assert done.statuses() == {"ok": 7, "pending": 53}


def test_a_judge_that_fails_does_not_cost_another_its_answers(
    tmp_path: Path, store: Path
) -> None:
    refuse: Canned = error(401, "Who are you?")

    def refuse_later(
        headers: Mapping[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        # by then the other judge has something to lose
        until(lambda: server.ledger.requests > 0)
        return refuse(headers, body)

    with stub(Behaviour(latency=0.5)) as server, canned(refuse_later) as asked:
        with environment({"OPENAI_BASE_URL": f"{server.url}/v1"}):
            done = run(
                edits(tmp_path, 20),
                store,
                judges=(OPENAI, SPECS["anthropic"]),
                rubrics=("fidelity",),
            )
        assert asked
    assert (done.outcome.ending, str(done.outcome.error)) == (
        "failed",
        "anthropic/stub: HTTP 401: Who are you?",
    )
    assert server.ledger.paid == done.statuses()["ok"] > 0
    assert done.statuses()["pending"] == 40 - server.ledger.paid


def test_a_server_that_is_down_is_said_to_be_and_nothing_is_burnt(
    tmp_path: Path, store: Path
) -> None:
    with environment(variables("http://127.0.0.1:9")), pacing(patience=0.5):
        done = run(edits(tmp_path, 30), store)
    assert done.outcome.ending == "failed"
    assert isinstance(done.outcome.error, JudgeDown)
    assert "0.5 s" in str(done.outcome.error)
    assert "is down" in done.said[0] and "127.0.0.1:9" in done.said[0]
    assert done.statuses() == {"pending": 90}


def test_a_server_that_comes_back_is_used_again(tmp_path: Path, store: Path) -> None:
    with stub(Behaviour(server_error=1)) as server, pacing(patience=30):

        def mend() -> None:
            until(lambda: server.ledger.requests > 40)
            server.behaviour = Behaviour()

        mending = threading.Thread(target=mend)
        mending.start()
        done = run(edits(tmp_path, 20), store)
        mending.join()
    assert done.statuses() == {"ok": 60}
    assert "is down" in done.said[0]
    assert done.said[-1] == f"{OPENAI} answers again"


def test_a_server_that_wants_a_long_pause_ends_the_run_and_nothing_is_burnt(
    tmp_path: Path, store: Path
) -> None:
    with canned(error(429, "Come back tomorrow", **{"retry-after": "86400"})):
        done = run(edits(tmp_path, 30), store)
    assert done.outcome.ending == "failed"
    assert "Come back tomorrow" in str(done.outcome.error)
    assert done.statuses() == {"pending": 90}


def test_a_line_that_went_wrong_since_ends_the_run_and_what_is_in_flight_is_kept(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "BATCH", 4)
    manifest = edits(tmp_path, 20)
    keep_outline = OpenRun.keep_outline

    def then_break(run: OpenRun) -> int:
        expected = keep_outline(run)
        with manifest.open("a") as file:
            file.write("{broken\n")
        return expected

    monkeypatch.setattr(OpenRun, "keep_outline", then_break)
    with stub(Behaviour(latency=0.05)) as server:
        done = run(manifest, store, rubrics=("fidelity",), manner={"concurrency": 2})
        assert server.ledger.paid == done.statuses()["ok"] > 0
    assert done.outcome.ending == "failed"
    assert isinstance(done.outcome.error, ManifestError)
    assert "edits.jsonl:21" in str(done.outcome.error)


def test_a_line_that_went_wrong_before_the_first_question_leaves_no_run_behind(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = edits(tmp_path, 3)
    check = Job.check

    def then_break(self: Job) -> int | None:
        expected = check(self)
        jsonl_of(manifest)
        return expected

    monkeypatch.setattr(Job, "check", then_break)
    with stub() as server, pytest.raises(ManifestError, match=r"edits.jsonl:4"):
        run(manifest, store)
    with Store.open(store) as kept:
        assert (kept.runs(), server.ledger.requests) == ([], 0)


def csv_of(manifest: Path) -> Path:
    rows = rows_of(manifest)
    with (path := manifest.with_suffix(".csv")).open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows([*rows, rows[-1]])
    return path


def parquet_of(manifest: Path) -> Path:
    rows = rows_of(manifest)
    pq.write_table(
        pa.Table.from_pylist([*rows, rows[-1]]),
        path := manifest.with_suffix(".parquet"),
    )
    return path


def jsonl_of(manifest: Path) -> Path:
    manifest.write_text(manifest.read_text() + "{broken\n")
    return manifest


@pytest.mark.parametrize("broken", [jsonl_of, csv_of, parquet_of])
@pytest.mark.parametrize("batch", [False, True], ids=["live", "batch"])
def test_a_broken_last_line_is_found_before_the_first_question(
    broken: Callable[[Path], Path], batch: bool, tmp_path: Path, store: Path
) -> None:
    manifest = broken(edits(tmp_path, 1_500))
    with stub() as server, pytest.raises(ManifestError, match=r"1,?50[0-2]"):
        run(manifest, store, rubrics=("fidelity",), manner={"batch": batch})
    with Store.open(store) as kept:
        assert (kept.runs(), server.ledger.requests) == ([], 0)


@pytest.mark.parametrize(
    "line", ["{broken", '{"id": "e0", "input": "input-0.png", "edited": null}']
)
def test_a_line_that_is_wrong_before_anything_is_planned_leaves_no_run_behind(
    line: str, tmp_path: Path, store: Path
) -> None:
    manifest = edits(tmp_path, 3)
    manifest.write_text(manifest.read_text() + line + "\n")
    with stub() as server, pytest.raises(ManifestError, match=r"edits.jsonl:4"):
        run(manifest, store)
    with Store.open(store) as kept:
        assert (kept.runs(), server.ledger.requests) == ([], 0)


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"manifest": "gone.jsonl"}, id="manifest"),
        pytest.param({"judges": ("openai/stub", "opanai/stub")}, id="provider"),
        pytest.param(
            {"options": Options(base_url="http://me:secret@127.0.0.1/v1")},
            id="password",
        ),
        pytest.param({"manner": {"budget": 1.0}}, id="price"),
    ],
)
def test_what_cannot_be_asked_at_all_leaves_no_run_behind(
    wrong: dict[str, Any], tmp_path: Path, store: Path
) -> None:
    manifest = edits(tmp_path, 1)
    if "manifest" in wrong:
        manifest = tmp_path / wrong.pop("manifest")
    with stub(), pytest.raises((UsageError, ManifestError)):
        run(manifest, store, **wrong)
    with Store.open(store) as kept:
        assert kept.runs() == []
    assert b"secret" not in store.read_bytes()


def test_a_store_that_fails_ends_the_run_and_keeps_what_it_has(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Store.write
    writes = iter(range(1000))

    def full(self: Store, batch: Sequence[Judgement]) -> None:
        if next(writes) >= 3:
            raise StoreError("the disk is full")
        write(self, batch)

    manifest = edits(tmp_path, 20)
    with stub(Behaviour(latency=0.05)) as server:
        with monkeypatch.context() as patch:
            patch.setattr(Store, "write", full)
            with pytest.raises(StoreError, match="the disk is full"):
                run(manifest, store, manner={"concurrency": 4})
        assert server.ledger.requests < 40
        done = run(manifest, store)
    assert done.statuses() == {"ok": 60}


def state(store: Path) -> str:
    with Store.open(store, readonly=True) as kept:
        (found,) = kept.runs()
    assert found.summary and found.summary["statuses"]
    return found.state


def test_the_store_remembers_how_a_run_ended(tmp_path: Path, store: Path) -> None:
    manifest = edits(tmp_path, 4)
    with canned(error(401, "No")):
        run(manifest, store, manner={"name": "r"})
    assert state(store) == "interrupted"
    with stub():
        run(manifest, store, manner={"name": "r"})
    assert state(store) == "finished"


def test_stopping_lets_what_is_in_flight_finish_and_goes_on_later(
    tmp_path: Path, store: Path
) -> None:
    manifest = edits(tmp_path, 40)

    with stub(Behaviour(latency=0.1)) as server:

        def stop_soon(control: RunControl) -> None:
            def stop() -> None:
                until(lambda: server.ledger.requests >= 6)
                control.stop("interrupted")

            threading.Thread(target=stop).start()

        done = run(manifest, store, manner={"control": stop_soon, "concurrency": 4})
        assert done.outcome.ending == "interrupted"
        assert 0 < done.statuses()["ok"] == server.ledger.paid < 120
        rest = run(manifest, store)
        assert server.ledger.paid == 120
    assert rest.statuses() == {"ok": 120}


def test_fixed_concurrency_is_never_exceeded(tmp_path: Path, store: Path) -> None:
    with stub(Behaviour(latency=0.01, jitter=0.05)) as server:
        run(edits(tmp_path, 20), store, manner={"concurrency": 3})
        assert server.ledger.peak_in_flight == 3


def test_requests_per_minute_are_kept_to(tmp_path: Path, store: Path) -> None:
    with stub() as server:
        started = time.monotonic()  # the first request may come late on a busy machine
        run(
            edits(tmp_path, 4),
            store,
            rubrics=("fidelity", "quality"),
            manner={"requests_per_minute": 240},
        )
    assert server.ledger.last and server.ledger.last - started >= 7 * 0.25


def test_tokens_per_minute_are_kept_to(tmp_path: Path, store: Path) -> None:
    with stub() as server:
        started = time.monotonic()
        run(
            edits(tmp_path, 4),
            store,
            rubrics=("fidelity",),
            manner={"tokens_per_minute": 200_000},
        )
    # A question of about 2,000 tokens at 3,300 a second.
    assert server.ledger.last and server.ledger.last - started >= 3 * 0.5


def test_no_request_is_sent_again_before_the_server_wants_it(
    tmp_path: Path, store: Path
) -> None:
    with stub(Behaviour(rate_limited=1, retry_after=0.7)) as server, pacing(first=0.01):

        def mend() -> None:
            until(lambda: server.ledger.requests >= 4)
            server.behaviour = Behaviour()

        mending = threading.Thread(target=mend)
        mending.start()
        done = run(edits(tmp_path, 4), store, rubrics=("fidelity",))
        mending.join()
    refused = [moment.time for moment in server.ledger.log if moment.status == 429]
    answered_at = [moment.time for moment in server.ledger.log if moment.status == 200]
    assert done.statuses() == {"ok": 4}
    assert len(refused) >= 4
    assert min(answered_at) - min(refused) >= 0.69


def test_connections_are_reused(tmp_path: Path, store: Path) -> None:
    with stub(Behaviour(latency=0.01)) as server:
        run(edits(tmp_path, 20), store, manner={"concurrency": 4})
        assert server.ledger.connections <= 4


# --- what the summary says ------------------------------------------------------------------------------------


def test_the_summary_counts_what_failed_beside_every_mean(
    tmp_path: Path, store: Path
) -> None:
    manifest = edits(tmp_path, 8)
    (tmp_path / "edited-3.png").unlink()
    with stub():
        done = run(manifest, store, rubrics=("fidelity",))
    cells = {
        (c["model"], c["factor"]): c for c in done.outcome.summary.as_json()["factors"]
    }
    assert (cells["m1", "alignment"]["ok"], cells["m1", "alignment"]["n"]) == (3, 4)
    scores = [row["scores"]["alignment"] for row in done.rows if row["model"] == "m0"]
    assert cells["m0", "alignment"]["mean"] == sum(scores) / 4
    assert done.outcome.summary.failed == 1


def test_the_store_can_be_read_while_it_is_written(tmp_path: Path, store: Path) -> None:
    manifest = edits(tmp_path, 20)
    seen = set()

    def watch(_: object) -> None:
        with Store.open(store, readonly=True) as kept:
            for found in kept.runs():
                seen.add(
                    sum(
                        row["status"] == "ok"
                        for row in kept.judgements(found, fields=["status"])
                    )
                )

    with stub(Behaviour(latency=0.02)):
        run(
            manifest,
            store,
            rubrics=("fidelity",),
            manner={"observe": watch, "concurrency": 2},
        )
    assert len(seen) > 3
