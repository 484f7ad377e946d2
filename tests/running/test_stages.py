"""Questions whose answers later ones use: descriptions without a score, and questions that an earlier answer decides."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from editjudge.errors import RubricError
from editjudge.rubrics.contract import check
from editjudge.rubrics.files import load, parse_any, resolve
from editjudge.rubrics.verdict import Failure, Verdict
from editjudge.store.scores import run_set_scores
from editjudge.store.store import Store
from tests.faults import raises

from .made import editjudge, edits, rows_of, run
from .test_rubric_sets import server, text_of

SET = """
name: looked
rubrics:
  - name: look
    task: List the differences.
    images: [input, edited]
    answer: {form: text, words: [1, 200]}
  - name: found
    images: [input, edited]
    after: look
    factors: [{key: found, scale: {choices: ["yes", "no"]}}]
    answer: {form: scores, others: ["changes: string[]", "sure: number"]}
  - name: detail
    when: found.found == "yes"
    images: [edited]
    texts: [found.changes, instruction]
    scale: {values: [0, 1]}
    factors: [{key: good}]
    answer: {form: scores}
  - name: last
    after: [look, detail]
    images: [edited]
    scale: {values: [0, 1]}
    factors: [{key: done}]
    answer: {form: scores}
score:
  overall: good if asked(detail) else 0
  yes_no: 'number(found, {"yes": 1, "no": 0})'
"""
LOOK = "The gate is green now."
FOUND = {"found": "yes", "changes": ["gate", "cat"], "sure": 0.25}
GONE = {"found": "no", "changes": [], "sure": 1}


@pytest.fixture
def rubrics(tmp_path: Path) -> Path:
    path = tmp_path / "looked.yaml"
    path.write_text(SET)
    return path


def as_asked(text: str) -> str:
    if "`good`" in text:
        return '{"good": 1}'
    if "`done`" in text:
        return '{"done": 1}'
    return json.dumps(FOUND) if "`found`" in text else LOOK


def replayed(folder: Path, rubrics: Path, lines: list[tuple[str, str, Any]]) -> Any:
    replies = [
        {
            "item": item,
            "rubric": rubric,
            "reply": reply if isinstance(reply, str) else json.dumps(reply),
        }
        for item, rubric, reply in lines
    ]
    (folder / "replies.jsonl").write_text(
        "".join(json.dumps(r) + "\n" for r in replies)
    )
    return editjudge(
        *("run", edits(folder, 2), "--rubric", rubrics, "--name", "r", "--json"),
        *("--judge", f"replay:{folder}/replies.jsonl", "--store", folder / "s.db"),
        *("--max-failures", "1"),
    )


def stored(folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    with Store.open(folder / "s.db", readonly=True) as store:
        rows = store.judgements(store.find_run("r"))
        return {(row["item"], row["rubric"]): dict(row) for row in rows}


def set_scores(folder: Path) -> Any:
    with Store.open(folder / "s.db", readonly=True) as store:
        return run_set_scores(store, store.find_run("r"))


def test_a_text_without_a_score_is_a_judgement_that_later_questions_are_given(
    tmp_path: Path, rubrics: Path
) -> None:
    with server(as_asked) as sent:
        done = run(edits(tmp_path, 1), tmp_path / "s.db", rubrics=(str(rubrics),))
        again = run(edits(tmp_path, 1), tmp_path / "s.db", rubrics=(str(rubrics),))
    assert done.statuses() == {"ok": 4} and again.outcome.tally.cached == 4
    look, found, detail, last = done.rows
    assert look["scores"] == {} and look["evidence"]["unscored"] == {"text": LOOK}
    assert found["evidence"]["unscored"] == {"changes": ["gate", "cat"], "sure": 0.25}
    texts = [text_of(each) for each in sent]
    assert LOOK not in texts[0] and LOOK in texts[1]
    assert "- gate\n- cat" in texts[2] and LOOK not in texts[2]
    assert LOOK in texts[3] and "good: 1" in texts[3] and "gate\n" not in texts[3]
    assert "response_format" not in sent[0] and "response_format" in sent[1]
    assert len({row["key"] for row in done.rows}) == 4
    assert (detail["scores"], last["scores"]) == ({"good": 1}, {"done": 1})


def test_the_text_of_a_stage_is_in_the_key_of_the_next(
    tmp_path: Path, rubrics: Path
) -> None:
    keys: list[dict[str, str]] = []
    said = {"text": ""}
    manifest = edits(tmp_path, 1)
    with server(lambda asked: as_asked(asked).replace(LOOK, said["text"])):
        for said["text"] in ("A red gate.", "A green gate."):
            place = tmp_path / f"{len(keys)}.db"
            done = run(manifest, place, rubrics=(str(rubrics),))
            keys.append({row["rubric"]: row["key"] for row in done.rows})
    first, second = keys
    assert first["look"] == second["look"]
    assert first["found"] != second["found"] and first["last"] != second["last"]


def test_an_earlier_answer_decides_whether_a_question_is_asked(
    tmp_path: Path, rubrics: Path
) -> None:
    lines: list[tuple[str, str, Any]] = [
        ("e0", "look", LOOK), ("e0", "found", FOUND), ("e0", "detail", {"good": 1}), ("e0", "last", {"done": 1}),
        ("e1", "look", "Nothing."), ("e1", "found", GONE), ("e1", "detail", {"good": 1}),
    ]  # fmt: skip
    done = replayed(tmp_path, rubrics, lines)
    assert done.json["statuses"] == {"ok": 6}
    assert ("e1", "detail") not in stored(tmp_path)
    judge = f"replay:{tmp_path}/replies.jsonl"
    scores = set_scores(tmp_path)
    assert scores["e0"][judge] == {"overall": 1.0, "yes_no": 1.0}
    assert scores["e1"][judge] == {"overall": 0.0, "yes_no": 0.0}
    again = replayed(tmp_path, rubrics, lines)
    assert again.code == 0 and again.json["statuses"] == {"ok": 6}
    report = editjudge("report", "r", "--store", tmp_path / "s.db", "--json")
    assert report.code == 0 and report.json["pending"] == 0


@pytest.mark.parametrize(
    "reply", [{"found": "maybe", "changes": [], "sure": 1}, "I'm sorry, I can't help."]
)
def test_after_a_stage_that_failed_every_later_question_fails_with_the_reason(
    tmp_path: Path, rubrics: Path, reply: object
) -> None:
    lines: list[tuple[str, str, Any]] = [
        ("e0", "look", LOOK), ("e0", "found", reply), ("e0", "detail", {"good": 1}), ("e0", "last", {"done": 1}),
        ("e1", "look", "I'm sorry, but I can't help with that."), ("e1", "found", FOUND),
    ]  # fmt: skip
    replayed(tmp_path, rubrics, lines)
    rows = stored(tmp_path)
    failed = {
        "e0": ["found", "detail", "last"],
        "e1": ["look", "found", "detail", "last"],
    }
    for item, names in failed.items():
        first, *rest = names
        assert rows[item, first]["status"] in ("invalid", "refused")
        for name in rest:
            row = rows[item, name]
            assert (row["status"], row["scores"]) == ("missing_input", None)
            assert row["reasons"][0]["message"]
    assert all(
        v is None for s in set_scores(tmp_path)["e0"].values() for v in s.values()
    )


def test_a_question_that_an_answer_rules_out_after_all_leaves_the_run(
    tmp_path: Path, rubrics: Path
) -> None:
    lines: list[tuple[str, str, Any]] = [
        ("e0", "look", LOOK),
        ("e0", "found", FOUND),
        ("e0", "detail", {"good": 1}),
    ]
    replayed(tmp_path, rubrics, lines[:1])
    assert stored(tmp_path)["e0", "detail"]["status"] == "missing_input"
    replayed(tmp_path, rubrics, [lines[0], ("e0", "found", GONE)])
    assert ("e0", "detail") not in stored(tmp_path)
    replayed(tmp_path, rubrics, lines)
    assert stored(tmp_path)["e0", "detail"]["scores"] == {"good": 1}


def test_a_run_with_stages_is_exported_and_imported(
    tmp_path: Path, rubrics: Path
) -> None:
    replayed(tmp_path, rubrics, [("e0", "look", LOOK), ("e0", "found", GONE)])
    out = tmp_path / "out"
    export = editjudge(
        "export", "r", "--store", tmp_path / "s.db", "-o", out, "--format", "jsonl"
    )
    assert export.code == 0, export.err
    (look,) = [
        r
        for r in rows_of(out / "judgements.jsonl")
        if (r["item"], r["rubric"]) == ("e0", "look")
    ]
    assert (look["scores"], look["evidence"]) == ({}, {"unscored": {"text": LOOK}})
    done = editjudge("import-run", out, "--store", tmp_path / "t.db")
    assert done.code == 0, done.err


def test_a_forecast_counts_every_question_that_may_be_asked(
    tmp_path: Path, rubrics: Path
) -> None:
    done = editjudge(
        *("run", edits(tmp_path, 2), "--rubric", rubrics, "--judge", "openai/gpt-4.1"),
        *("--dry-run", "--json", "--store", tmp_path / "s.db"),
    )
    assert (done.json["tasks"], done.json["judges"][0]["calls"]) == (8, 8)


# --- the contract, and what a file may say ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (
            "<think>well</think>\nI cannot see a difference.",
            "I cannot see a difference.",
        ),
        ("```\nA gate.\n```", "A gate."),
        ('{"score": 7}', '{"score": 7}'),
    ],
)
def test_the_whole_reply_is_the_text(
    tmp_path: Path, rubrics: Path, reply: str, text: str
) -> None:
    outcome = check(load(f"{rubrics}#look"), reply)
    assert isinstance(outcome, Verdict)
    assert (outcome.unscored, outcome.scores) == ({"text": text}, {})


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        ("", "invalid"),
        ("<think>well</think>", "invalid"),
        ("<think>well", "truncated"),
        ("I am sorry, no.", "refused"),
    ],
)
def test_nothing_and_a_refusal_are_no_text(
    rubrics: Path, reply: str, status: str
) -> None:
    outcome = check(load(f"{rubrics}#look"), reply)
    assert isinstance(outcome, Failure) and outcome.status == status


@pytest.mark.parametrize(
    ("old", "new", "code", "line"),
    [
        ('found.found == "yes"', 'found.fuond == "yes"', "unknown_value", 14),
        ("found.changes", "found.change", "unknown_value", 16),
        ("after: look\n", "after: last\n", "after_a_later_rubric", 10),
        ('found.found == "yes"', 'last.done == "1"', "after_a_later_rubric", 14),
        ("after: [look, detail]", "after: [look, detial]", "after_a_later_rubric", 21),
        (
            "answer: {form: text, words: [1, 200]}",
            "answer: {form: lines}\n    factors: []",
            "no_factors",
            8,
        ),
        ("factors: [{key: good}]", "factors: []", "no_factors", 18),
        (
            "factors: [{key: good}]\n    answer: {form: scores}",
            "factors: [{key: good}]\n    answer: {form: text}",
            "factors_of_text",
            18,
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_its_line(
    old: str, new: str, code: str, line: int
) -> None:
    assert old in SET
    with raises(RubricError, code, f"mine.yaml:{line}:"):
        parse_any(SET.replace(old, new), "mine.yaml")


# --- look first -------------------------------------------------------------------------------------------------


def test_online_looked_lists_the_differences_and_scores_with_the_list_and_the_change(
    tmp_path: Path,
) -> None:
    differences = "The gate on the left is green."
    online = {rubric.name: rubric for rubric in resolve(["online"])}

    def answer(text: str) -> str:
        (identifier,) = set(re.findall(r"edit-[0-9a-f]{16}", text))
        if '"differences"' in text:
            return json.dumps({"image_id": identifier, "differences": [differences]})
        name = next(n for n, r in online.items() if f"`{r.factors[0].key}`" in text)
        entry = {"justification": "word " * 16, "score": 5}
        scores = {factor.key: entry for factor in online[name].factors}
        return json.dumps({"image_id": identifier, "online_factor_results": scores})

    with server(answer) as sent:
        done = run(edits(tmp_path, 1), tmp_path / "s.db", rubrics=("online-looked",))
    assert done.statuses() == {"ok": 4}
    assert [r["rubric"] for r in done.rows] == ["differences", *online]
    first, *rest = map(text_of, sent)
    assert "Edit instruction" not in first and differences not in first
    assert all(differences in text and "cut out" in text for text in rest)
    images = [
        sum(part["type"] == "image_url" for part in each["messages"][-1]["content"])
        for each in sent
    ]
    assert images == [2, 3, 3, 3]
    looked = {rubric.name: rubric for rubric in resolve(["online-looked"])}
    for name, rubric in online.items():
        assert looked[name].factors == rubric.factors
        assert looked[name].hash != rubric.hash


def test_what_the_look_said_wrongly_is_no_list_and_nothing_is_scored(
    tmp_path: Path,
) -> None:
    lines = [("e0", "differences", {"image_id": "e0", "differences": "a gate"})]
    replayed(tmp_path, Path("online-looked"), lines)
    rows = stored(tmp_path)
    assert rows["e0", "differences"]["status"] == "invalid"
    statuses = {rows["e0", r.name]["status"] for r in resolve(["online"])}
    assert statuses == {"missing_input"}
