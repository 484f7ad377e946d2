"""Recorded replies, held to the same contract as live ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from editjudge.errors import ManifestError
from editjudge.judges.judge import Options
from editjudge.judges.replay import Replay
from tests.faults import raises
from tests.running.made import SPECS, Done, edits, run, stub, write_manifest
from tests.stub.answers import SHAPES, envelope
from tests.stub.server import Behaviour

KEPT = (
    "item",
    "model",
    "group",
    "rubric",
    "repeat",
    "status",
    "scores",
    "justifications",
    "violations",
    "abstained",
)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


def good(rubric: str = "fidelity", item: str = "e0", score: int = 5) -> str:
    return json.dumps(
        envelope(rubric, dict.fromkeys(SHAPES[rubric].factors, score), item)
    )


def recorded(
    folder: Path, lines: list[dict[str, Any]], name: str = "replies.jsonl"
) -> str:
    path = folder / name
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return f"replay:{path}"


def line(
    reply: str, item: str = "e0", rubric: str = "fidelity", **more: Any
) -> dict[str, Any]:
    return {"item": item, "rubric": rubric, "reply": reply, **more}


def replayed(folder: Path, *lines: dict[str, Any], count: int = 1, **job: Any) -> Done:
    """Edits whose pictures do not exist."""
    rows = [
        {"id": f"e{n}", "input": "gone.png", "edited": "gone.png", "instruction": ""}
        for n in range(count)
    ]
    judge = recorded(folder, list(lines))
    return run(
        write_manifest(folder, rows),
        folder / "s.db",
        judges=(judge,),
        rubrics=("fidelity",),
        **job,
    )


# --- the same as live -----------------------------------------------------------------------------------------


def record(live: Done) -> list[dict[str, Any]]:
    """What the store kept, as lines. A recording names the item where the question had an opaque identifier."""
    lines = []
    for row in live.rows:
        opaque = next(
            (word for word in _words(live, row["key"]) if word.startswith("edit-")),
            None,
        )
        for reply in live.replies[row["key"]]:
            text = reply.text.replace(opaque, row["item"]) if opaque else reply.text
            lines.append(line(text, row["item"], row["rubric"], repeat=row["repeat"]))
    return lines


def _words(live: Done, key: str) -> list[str]:
    """What is quoted in replies that were accepted, or at least parsed."""
    texts = [reply.text for reply in live.replies[key] if reply.outcome == "ok"]
    return [word for text in texts for word in text.split('"')]


@pytest.mark.parametrize("wire", SPECS)
def test_a_replayed_run_has_the_rows_of_the_live_one(wire: str, tmp_path: Path) -> None:
    spoilt = Behaviour(
        garbage=0.15, length_stop=0.1, decimal=0.1, two_answers=0.1, empty=0.05
    )
    manifest = edits(tmp_path, 12)
    with stub(spoilt):
        live = run(manifest, tmp_path / "live.db", judges=(SPECS[wire],), repeats=2)
    judge = recorded(tmp_path, record(live))
    again = run(manifest, tmp_path / "again.db", judges=(judge,), repeats=2)
    assert live.outcome.summary.failed > 0
    assert shown(again) == shown(live)
    assert [row["attempts"] for row in again.rows] == [
        row["attempts"] for row in live.rows
    ]


def shown(done: Done) -> list[dict[str, Any]]:
    return [{name: row[name] for name in KEPT} for row in done.rows]


# --- attempts -------------------------------------------------------------------------------------------------


def test_a_further_line_is_the_next_attempt(tmp_path: Path) -> None:
    done = replayed(
        tmp_path, line("no JSON here"), line(good(score=3)), line(good(score=7))
    )
    assert done.rows[0]["scores"] == {
        "alignment": 3,
        "completeness": 3,
        "plausibility": 3,
    }
    assert done.rows[0]["attempts"] == 2
    assert [reply.outcome for reply in done.replies[done.rows[0]["key"]]] == [
        "invalid",
        "ok",
    ]


def test_when_none_is_left_the_last_one_decides(tmp_path: Path) -> None:
    done = replayed(
        tmp_path, line("no JSON here"), line("I'm sorry, I can't help with that.")
    )
    assert (done.rows[0]["status"], done.rows[0]["attempts"]) == ("refused", 2)


def test_there_may_be_more_attempts_than_a_live_judge_is_given(tmp_path: Path) -> None:
    done = replayed(tmp_path, *[line("no")] * 9, line(good()))
    assert (done.rows[0]["status"], done.rows[0]["attempts"]) == ("ok", 10)


def test_no_line_at_all_is_unreachable(tmp_path: Path) -> None:
    done = replayed(
        tmp_path, line(good()), line(good("quality"), rubric="quality"), count=2
    )
    assert [row["status"] for row in done.rows] == ["ok", "unreachable"]
    assert [reason["code"] for reason in done.rows[1]["reasons"]] == [
        "no_recorded_reply"
    ]
    assert (done.rows[1]["attempts"], done.rows[1]["scores"]) == (0, None)


def test_each_repeat_has_its_own_lines(tmp_path: Path) -> None:
    lines = [
        line(good(score=2)),
        line(good(score=4), repeat=1),
        line(good(score=6), repeat=2),
    ]
    done = replayed(tmp_path, *lines, repeats=4)
    assert [row["scores"] and row["scores"]["alignment"] for row in done.rows] == [
        2,
        4,
        6,
        None,
    ]


def test_pictures_and_words_need_not_exist(tmp_path: Path) -> None:
    assert replayed(tmp_path, line(good())).statuses() == {"ok": 1}


# --- the contract ---------------------------------------------------------------------------------------------


def test_a_reply_that_echoes_another_item_is_somebody_elses_verdict(
    tmp_path: Path,
) -> None:
    done = replayed(tmp_path, line(good(item="e1")))
    assert [reason["code"] for reason in done.rows[0]["reasons"]] == ["wrong_id"]


def test_strict_is_passed_on_and_is_another_key(tmp_path: Path) -> None:
    short = good().replace("Along the left edge and behind the main subject, ", "")
    loose = replayed(tmp_path, line(short))
    strict = replayed(tmp_path, line(short), options=Options(strict=True))
    assert (loose.statuses(), strict.statuses()) == ({"ok": 1}, {"invalid": 1})
    assert loose.rows[0]["key"] != strict.rows[0]["key"]


def test_another_recording_is_another_answer_and_the_same_one_is_not_read_twice(
    tmp_path: Path,
) -> None:
    rows = [{"id": "e0", "instruction": ""}]
    manifest = write_manifest(tmp_path, rows)
    keys = []
    for name, score in (("a", 3), ("b", 3), ("c", 4)):
        judge = recorded(tmp_path, [line(good(score=score))], f"{name}.jsonl")
        done = run(
            manifest,
            tmp_path / "s.db",
            judges=(judge,),
            rubrics=("fidelity",),
            manner={"name": name},
        )
        keys.append((done.rows[0]["key"], done.outcome.tally.cached))
    assert keys[0][0] == keys[1][0] != keys[2][0]
    assert [cached for _, cached in keys] == [0, 1, 0]


def test_replies_are_kept_byte_for_byte(tmp_path: Path) -> None:
    strange = "\ufeff \r\n" + good() + "\u2028\0\ud7ff \U0001f3a8"
    done = replayed(tmp_path, line(strange))
    assert [reply.text for reply in done.replies[done.rows[0]["key"]]] == [strange]


# --- files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", ":1: not JSON"),
        ("[1]", ":1: expected an object"),
        ('\n\n{"item": "a", "rubric": "b"}', ':3: "reply" must be text, found None'),
        ('{"item": 3, "rubric": "b", "reply": ""}', ':1: "item" must be text, found 3'),
        (
            '{"item": "a", "rubric": "b", "reply": "", "repeat": -1}',
            ':1: "repeat" must be',
        ),
        (
            '{"item": "a", "rubric": "b", "reply": "", "repeat": true}',
            ':1: "repeat" must be',
        ),
        (
            '{"item": "a", "rubric": "b", "reply": "", "repeat": 1.0}',
            ':1: "repeat" must be',
        ),
    ],
)
def test_a_line_that_is_wrong_is_named(
    text: str, complaint: str, tmp_path: Path
) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(text)
    with pytest.raises(ManifestError) as raised:
        Replay(str(path))
    assert complaint in str(raised.value)


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_a_file_that_cannot_be_read_is_named(
    content: bytes | None, tmp_path: Path
) -> None:
    path = tmp_path / "r.jsonl"
    if content:
        path.write_bytes(content)
    with raises(ManifestError, "unreadable_file", "r.jsonl"):
        Replay(str(path))


def test_a_byte_order_mark_and_empty_lines_are_nothing(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text("\ufeff" + json.dumps(line(good())) + "\n\n", encoding="utf-8")
    manifest = write_manifest(tmp_path, [{"id": "e0", "instruction": ""}])
    done = run(
        manifest, tmp_path / "s.db", judges=(f"replay:{path}",), rubrics=("fidelity",)
    )
    assert done.statuses() == {"ok": 1}
