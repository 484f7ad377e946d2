"""Questions in a file and answers from files: the same keys, contract and statuses as from a server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from editjudge.errors import ManifestError
from tests.running.made import Done, editjudge, edits, run, stub
from tests.stub.server import Stub

JUDGE = "openai-compatible/stub"
Lines = list[dict[str, Any]]


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Any:
    with stub() as server:
        monkeypatch.setenv("OPENAI_COMPATIBLE_BASE_URL", f"{server.url}/v1")
        yield server


def asked(folder: Path, count: int = 3, **manner: Any) -> Done:
    return run(
        edits(folder, count),
        folder / "a.db",
        judges=(JUDGE,),
        rubrics=("quality",),
        manner=manner,
    )


def answers(server: Stub, questions: Path) -> Lines:
    """What an offline engine would write: it asks the server itself."""
    lines = []
    for line in questions.read_text().splitlines():
        question = json.loads(line)
        assert question["url"] == "/v1/chat/completions"
        response = httpx.post(
            f"{server.url}/v1/chat/completions",
            json=question["body"],
            headers={"authorization": "Bearer x"},
        )
        body = response.json()
        lines.append(
            {
                "id": "vllm-1",
                "custom_id": question["custom_id"],
                "response": {"status_code": 200, "request_id": "r", "body": body},
                "error": None,
            }
        )
    return lines


def written(path: Path, lines: Lines) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_answers_from_a_file_are_those_of_the_server(
    judge: Stub, tmp_path: Path
) -> None:
    first = asked(tmp_path, write_questions=tmp_path / "q.jsonl")
    assert {row["status"] for row in first.rows} == {"pending"}
    path = written(tmp_path / "a.jsonl", answers(judge, tmp_path / "q.jsonl"))
    offline = asked(tmp_path, read_answers=(path,))
    (tmp_path / "a.db").unlink()
    live = asked(tmp_path)
    assert offline.statuses() == live.statuses() == {"ok": 3}
    for row in live.rows:
        assert offline.row(row["item"])["key"] == row["key"]
        assert offline.row(row["item"])["scores"] == row["scores"]


def truncate(lines: Lines) -> None:
    lines[0]["response"]["body"]["choices"][0]["finish_reason"] = "length"


def babble(lines: Lines) -> None:
    lines[0]["response"]["body"]["choices"][0]["message"]["content"] = "5 out of 7"


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (lambda lines: lines.pop(0), "unreachable"),
        (lambda lines: lines[0].update(custom_id="foreign"), "unreachable"),
        (lambda lines: lines[0].update(response=None, error={"message": "no"}), "unreachable"),
        (lambda lines: lines[0]["response"].update(status_code=500, body={}), "unreachable"),
        (lambda lines: lines[0]["response"].update(body={}), "unreachable"),
        (lambda lines: lines[0]["response"].update(status_code=400), "error"),
        (truncate, "truncated"),
        (babble, "invalid"),
    ],
)  # fmt: skip
def test_a_line_that_is_missing_foreign_or_wrong_is_a_failure(
    judge: Stub, change: Callable[[Lines], None], status: str, tmp_path: Path
) -> None:
    asked(tmp_path, write_questions=tmp_path / "q.jsonl")
    lines = answers(judge, tmp_path / "q.jsonl")
    change(lines)
    done = asked(tmp_path, read_answers=(written(tmp_path / "a.jsonl", lines),))
    assert done.statuses() == {"ok": 2, status: 1}
    assert [row["scores"] for row in done.rows if row["status"] == status] == [None]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('{"custom_id": "a", "respon', "bad_answer_line"),
        ("5", "bad_answer_line"),
        ('{"custom_id": "a"}', "bad_answer_line"),
        ('{"response": {}}', "bad_answer_line"),
        ('{"custom_id": "a", "error": {}}\n' * 2, "answered_twice"),
        ("\0\0", "bad_answer_line"),
    ],
)
def test_a_file_that_is_broken_or_answers_twice_is_refused(
    judge: Stub, text: str, code: str, tmp_path: Path
) -> None:
    (tmp_path / "a.jsonl").write_text(text)
    with pytest.raises(ManifestError) as error:
        asked(tmp_path, read_answers=(tmp_path / "a.jsonl",))
    assert error.value.code == code


def test_what_was_invalid_is_asked_again_in_the_next_file(
    judge: Stub, tmp_path: Path
) -> None:
    asked(tmp_path, write_questions=tmp_path / "q.jsonl")
    lines = answers(judge, tmp_path / "q.jsonl")
    babble(lines)
    first = written(tmp_path / "a.jsonl", lines)
    second = asked(
        tmp_path, read_answers=(first,), write_questions=tmp_path / "q2.jsonl"
    )
    assert second.statuses()["ok"] == 2
    (question,) = (tmp_path / "q2.jsonl").read_text().splitlines()
    assert "5 out of 7" in question
    later = written(tmp_path / "a2.jsonl", answers(judge, tmp_path / "q2.jsonl"))
    third = asked(tmp_path, read_answers=(first, later))
    assert third.statuses() == {"ok": 3}
    assert max(row["attempts"] for row in third.rows) == 2


def test_writing_again_writes_what_is_left(judge: Stub, tmp_path: Path) -> None:
    asked(tmp_path, write_questions=tmp_path / "q.jsonl")
    lines = answers(judge, tmp_path / "q.jsonl")
    path = written(tmp_path / "a.jsonl", lines[:1])
    asked(tmp_path, read_answers=(path,), write_questions=tmp_path / "rest.jsonl")
    left = (tmp_path / "rest.jsonl").read_text().splitlines()
    ids = [json.loads(line)["custom_id"] for line in left]
    assert sorted(ids) == sorted(line["custom_id"] for line in lines[1:])


def test_the_command_line_needs_no_key_and_replaces_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    edits(tmp_path, 2)
    words = ["run", "edits.jsonl", "--rubric", "quality", "--judge", "openai/stub"]
    told = editjudge(*words, "--write-questions", "q.jsonl")
    assert "editjudge report" not in told.out + told.err
    assert told.code == 0
    assert len((tmp_path / "q.jsonl").read_text().splitlines()) == 2
    assert editjudge(*words, "--write-questions", "q.jsonl").code == 2
    other = ["run", "edits.jsonl", "--rubric", "quality", "--judge", "anthropic/stub"]
    assert editjudge(*other, "--write-questions", "q2.jsonl").code == 2
    assert not (tmp_path / "q2.jsonl").exists()
