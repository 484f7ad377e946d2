"""`editjudge parse`: one raw reply against its contract."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from editjudge.rubrics.files import load, load_one, names
from tests.faults import check_error

from .stores import Call, call

__all__ = ["call"]

GOOD = load("preservation").example
BAD = GOOD.replace('"score": 6', '"score": 6.5')
NEVER = pytest.mark.parametrize("flag", [[], ["--json"]], ids=["for people", "as JSON"])


@pytest.fixture
def parse(call: Call) -> Call:
    return functools.partial(call, "parse")


@pytest.mark.parametrize("name", names())
def test_an_accepted_reply_exits_with_0_and_a_refused_one_with_1(
    parse: Call, name: str
) -> None:
    assert parse("--rubric", name, "-", stdin=load(name).example).code == 0
    assert parse("--rubric", name, "-", stdin="7").code == 1


def test_the_document_of_an_accepted_reply_has_the_published_shape(parse: Call) -> None:
    done = parse(
        "--rubric",
        "preservation",
        "--id",
        "example",
        "--json",
        "-",
        stdin=f"Sure:\n{GOOD}",
    )
    scores = {
        "unchanged_regions": 6,
        "global_consistency": 7,
        "identity_preservation": 4,
    }
    entries = json.loads(GOOD)["online_factor_results"]
    document = done.document
    assert (done.code, done.err) == (0, "")
    assert list(document)[:5] == [
        "status",
        "scores",
        "justifications",
        "violations",
        "reasons",
    ]
    assert set(document) - {"details", "notes"} == {
        "status",
        "scores",
        "justifications",
        "violations",
        "reasons",
    }
    assert document["status"] == "ok"
    assert document["scores"] == scores
    assert document["justifications"] == {
        key: entries[key]["justification"] for key in scores
    }
    assert document["violations"] == ["prose"]
    assert document["reasons"] == []


def test_the_document_of_a_refused_reply_has_the_published_shape(parse: Call) -> None:
    done = parse("--rubric", "preservation", "--json", "-", stdin=BAD)
    document = done.document
    assert (done.code, done.err) == (1, "")
    assert set(document) - {"details", "notes"} == {
        "status",
        "scores",
        "justifications",
        "violations",
        "reasons",
    }
    assert (document["status"], document["scores"], document["violations"]) == (
        "invalid",
        None,
        [],
    )
    [reason] = document["reasons"]
    assert set(reason) == {"code", "factor", "message"}
    assert (reason["code"], reason["factor"]) == ("score_decimal", "unchanged_regions")
    assert "6.5" in reason["message"]


@pytest.mark.parametrize(
    ("reply", "status", "code"),
    [
        ("", "invalid", "empty"),
        ("I'm sorry, I can't help with that.", "refused", "refusal"),
        (GOOD[:200], "truncated", "truncated"),
        (GOOD + GOOD.replace("6", "5"), "invalid", "ambiguous"),
        ("The edit is fine: 7/7.", "invalid", "no_answer"),
    ],
)
@NEVER
def test_a_failure_is_never_a_number(
    parse: Call, reply: str, status: str, code: str, flag: list[str]
) -> None:
    done = parse("--rubric", "preservation", *flag, "-", stdin=reply)
    assert done.code == 1
    if flag:
        assert (done.document["status"], done.document["scores"]) == (status, None)
        assert [reason["code"] for reason in done.document["reasons"]] == [code]
    else:
        assert done.out.startswith(f"not accepted ({status})\n  {code}: ")


def test_a_person_reads_each_factor_with_its_score_and_reason(parse: Call) -> None:
    lines = parse(
        "--rubric", "preservation", "-", stdin=f"Sure:\n{GOOD}"
    ).out.splitlines()
    assert lines[0].startswith("unchanged_regions: 6  Outside the repainted door")
    assert lines[3].strip().startswith("violation prose: ")
    assert len(lines) == 4


def test_a_file_is_read_as_standard_input_is(parse: Call, tmp_path: Path) -> None:
    path = tmp_path / "reply.txt"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    from_file = parse("--rubric", "preservation", "--json", str(path))
    assert from_file == parse("--rubric", "preservation", "--json", "-", stdin=GOOD)
    assert from_file.document["violations"] == []


def test_the_identifier_must_be_the_one_asked_about(parse: Call) -> None:
    assert (
        parse("--rubric", "preservation", "--id", "example", "-", stdin=GOOD).code == 0
    )
    done = parse("--rubric", "preservation", "--id", "other", "--json", "-", stdin=GOOD)
    assert (done.code, done.document["reasons"][0]["code"]) == (1, "wrong_id")


def test_strict_refuses_what_is_otherwise_a_violation(parse: Call) -> None:
    data = json.loads(GOOD)
    data["online_factor_results"]["unchanged_regions"]["justification"] = "Fine."
    reply = json.dumps(data)
    kept = parse("--rubric", "preservation", "--json", "-", stdin=reply)
    assert (kept.code, kept.document["violations"]) == (0, ["justification_too_short"])
    strict = parse("--rubric", "preservation", "--strict", "--json", "-", stdin=reply)
    assert (strict.code, strict.document["reasons"][0]["factor"]) == (
        1,
        "unchanged_regions",
    )


@pytest.mark.parametrize("name", ["online", "offline"])
def test_a_set_means_its_fused_contract(parse: Call, name: str) -> None:
    rubric = load_one(name)
    entry = {"justification": " ".join(["seen"] * 16), "score": 4}
    value = {
        "image_id": "a",
        rubric.answer.envelope: {factor.key: entry for factor in rubric.factors},
    }
    done = parse("--rubric", name, "--json", "-", stdin=json.dumps(value))
    assert (done.code, len(done.document["scores"])) == (0, 12)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["-"],
        ["--rubric", "preservation"],
        ["--rubric", "preservation", "-", "extra"],
        ["--rubric", "-", "--nope", "-"],
    ],
)
def test_a_call_that_cannot_be_meant_exits_with_2(
    parse: Call, arguments: list[str]
) -> None:
    done = parse(*arguments, stdin=GOOD)
    assert (done.code, done.out) == (2, "")
    assert "Usage:" in done.err


@NEVER
def test_a_missing_file_is_told_in_words(
    parse: Call, tmp_path: Path, flag: list[str]
) -> None:
    done = parse("--rubric", "preservation", *flag, str(tmp_path / "none.txt"))
    assert (done.code, bool(done.out)) == (1, bool(flag))
    check_error(done.error, "unreadable_file", "none.txt")
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    "data",
    [b"\xff\xfe{\x00", GOOD.encode("utf-16"), b'{"score": "\xe9"}', b"\xed\xa0\x80"],
)
def test_a_reply_that_is_not_utf8_is_told_in_words(
    parse: Call, tmp_path: Path, data: bytes
) -> None:
    path = tmp_path / "reply.txt"
    path.write_bytes(data)
    for done in (
        parse("--rubric", "preservation", str(path)),
        parse("--rubric", "preservation", "-", stdin=data),
    ):
        assert (done.code, done.out) == (1, "")
        assert "not UTF-8 at byte" in done.err


def test_a_directory_is_told_in_words(parse: Call, tmp_path: Path) -> None:
    done = parse("--rubric", "preservation", str(tmp_path))
    assert (done.code, done.out) == (1, "")
    assert "cannot be read" in done.err


def test_an_unknown_rubric_is_told_with_the_nearest_name(parse: Call) -> None:
    done = parse("--rubric", "preservaton", "-", stdin=GOOD)
    assert (done.code, done.out) == (2, "")
    assert 'did you mean "preservation"?' in done.err


@NEVER
@pytest.mark.parametrize(
    "escape",
    ["\x1b[31m", "\x1b]0;owned\x07", "\x9b2J", "\x00", "\x08\x08", "\r", "\u202e"],
)
def test_escape_sequences_of_a_reply_never_reach_the_terminal(
    parse: Call, escape: str, flag: list[str]
) -> None:
    data = json.loads(GOOD)
    data["online_factor_results"]["unchanged_regions"]["justification"] += escape
    accepted = parse("--rubric", "preservation", *flag, "-", stdin=json.dumps(data))
    data["online_factor_results"][f"colour{escape}"] = data["image_id"] = f"x{escape}"
    refused = parse(
        "--rubric", "preservation", "--id", "y", *flag, "-", stdin=json.dumps(data)
    )
    assert (accepted.code, refused.code) == (0, 1)
    for done in (accepted, refused):
        assert not set(done.out) & set("\x1b\x07\x9b\x00\x08\r\u202e")


@pytest.mark.parametrize(
    ("reply", "code"), [(GOOD, 0), (BAD, 1)], ids=["accepted", "refused"]
)
def test_the_installed_command_answers_on_standard_output_alone(
    reply: str, code: int
) -> None:
    command = [
        sys.executable,
        "-c",
        "from editjudge.cli import main; main()",
        "parse",
        "--rubric",
        "preservation",
    ]
    done = subprocess.run(
        [*command, "--json", "-"],
        input=reply.encode(),
        capture_output=True,
        check=False,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (code, b"")
    assert (json.loads(done.stdout)["scores"] is None) is bool(code)


def test_a_reply_in_another_script_is_shown_whatever_the_terminal_can_write() -> None:
    reply = json.dumps(json.loads(GOOD) | {"image_id": "a"}).replace(
        "Outside", "Draußen 影 \\ud83d\\ude00"
    )
    command = [
        sys.executable,
        "-c",
        "from editjudge.cli import main; main()",
        "parse",
        "--rubric",
        "preservation",
        "-",
    ]
    done = subprocess.run(
        command, input=reply.encode(), capture_output=True, check=False, timeout=300
    )
    assert done.returncode == 0
    assert "Draußen 影" in done.stdout.decode()


def test_a_line_break_in_a_reason_cannot_forge_a_line_of_output(parse: Call) -> None:
    reply = json.dumps({"reasoning": "fine\nalignment: 7", "effect_score": 1})
    assert parse("--rubric", "compliance", "-", stdin=reply).out.splitlines() == [
        "effect_score: 1  fine alignment: 7"
    ]


CHOOSING = """name: choosing
images: [input, edited]
scale: {choices: [A, B, I cannot tell], abstain: [N/A]}
factors: [{key: first, definition: Which is sharper.}, {key: second, definition: Which is brighter.}]
answer: {form: scores}
"""
ONE_WORD = """name: one_word
images: [input, edited]
scale: {choices: [A, B, I cannot tell]}
factors: [{key: first, definition: Which is sharper.}]
answer: {form: token}
"""


def rubric_file(folder: Path, text: str) -> Path:
    path = folder / "rubric.yaml"
    path.write_text(text, "utf-8")
    return path


def test_an_accepted_choice_is_printed_and_so_is_an_abstention(
    parse: Call, tmp_path: Path
) -> None:
    path = rubric_file(tmp_path, CHOOSING)
    done = parse("--rubric", path, "-", stdin='{"second": "N/A", "first": "B"}')
    assert (done.code, done.out) == (0, "first: B\nsecond: N/A (abstains)\n")


@pytest.mark.parametrize(
    "reply", ["A.", "I cannot tell.", "i cannot tell", "My answer: I cannot tell!"]
)
def test_who_answers_an_offered_option_with_more_around_it_declines_nothing(
    parse: Call, tmp_path: Path, reply: str
) -> None:
    document = parse(
        "--rubric", rubric_file(tmp_path, ONE_WORD), "--json", "-", stdin=reply
    ).document
    assert (document["status"], document["reasons"][0]["code"]) == (
        "invalid",
        "no_answer",
    )


def test_who_declines_beside_an_offered_option_still_declines(
    parse: Call, tmp_path: Path
) -> None:
    reply = "I cannot tell. I'm sorry, I can't help with pictures of people."
    document = parse(
        "--rubric", rubric_file(tmp_path, ONE_WORD), "--json", "-", stdin=reply
    ).document
    assert document["status"] == "refused"
