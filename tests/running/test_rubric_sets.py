"""Runs of rubric sets: of which edits each rubric is asked, how often, after what, and the scores that come of it."""

from __future__ import annotations

import csv
import json
import math
import random
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import editjudge as editjudge_api
from editjudge.errors import UsageError
from editjudge.rubrics.files import resolve
from editjudge.rubrics.sets import check_unconditional
from editjudge.running.job import Job
from editjudge.store.scores import run_set_scores
from editjudge.store.store import Store
from tests.faults import raises, shows

from .made import SPECS, canned, editjudge, edits, rows_of, run, write_manifest

SET = """
name: pair
rubrics:
  - name: light
    when: edit_type in [add, remove]
    system: You judge light.
    images: [edited]
    scale: {values: [0, 1, 2]}
    factors: [{key: light, definition: Light.}]
    answer: {form: scores, texts: [why]}
    samples: 2
  - name: verdict
    after: light
    images: [edited]
    scale: {values: [0, 1]}
    factors: [{key: passes, definition: Whether it passes.}]
    answer: {form: scores}
score:
  overall: light * verdict
"""

Say = Callable[[str], str]


@contextmanager
def server(say: Say) -> Iterator[list[dict[str, Any]]]:
    """Answers what `say` makes of the question's text, and keeps what it was sent."""
    sent: list[dict[str, Any]] = []

    def reply(_: Mapping[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        document = json.loads(body)
        sent.append(document)
        message = {"role": "assistant", "content": say(text_of(document))}
        answer = {
            "choices": [{"message": message, "finish_reason": "stop"}],
            "usage": {},
            "model": "m",
        }
        return 200, {}, json.dumps(answer).encode()

    with canned(reply):
        yield sent


def text_of(document: dict[str, Any]) -> str:
    (question, *_) = [
        message["content"]
        for message in document["messages"]
        if message["role"] == "user"
    ]
    return "".join(part.get("text", "") for part in question)


def as_asked(text: str) -> str:
    return '{"passes": 1}' if "`passes`" in text else '{"why": "A lamp.", "light": 2}'


@pytest.fixture
def rubrics(tmp_path: Path) -> Path:
    path = tmp_path / "pair.yaml"
    path.write_text(SET)
    return path


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    path = edits(tmp_path, 3)
    kinds = ("add", "remove", "style")
    rows = [
        row | {"edit_type": kind}
        for row, kind in zip(rows_of(path), kinds, strict=True)
    ]
    return write_manifest(tmp_path, rows)


def test_a_rubric_is_asked_of_its_edits_alone_and_as_often_as_it_says(
    tmp_path: Path, rubrics: Path, manifest: Path
) -> None:
    with server(as_asked) as sent:
        done = run(manifest, tmp_path / "s.db", rubrics=(str(rubrics),))
        again = run(manifest, tmp_path / "s.db", rubrics=(str(rubrics),))
    asked = sorted((row["item"], row["rubric"], row["repeat"]) for row in done.rows)
    assert asked == [
        (e, *q)
        for e in ("e0", "e1")
        for q in (("light", 0), ("light", 1), ("verdict", 0))
    ]
    assert done.statuses() == {"ok": 6}
    # neither rubric of e2: the second has nothing to be told
    assert done.outcome.tally.not_applicable == 2
    assert again.outcome.tally.cached == 6
    assert len(sent) == 6


def test_a_later_question_is_told_the_earlier_answer_and_its_key_says_so(
    tmp_path: Path, rubrics: Path, manifest: Path
) -> None:
    with server(as_asked) as sent:
        done = run(manifest, tmp_path / "s.db", rubrics=(str(rubrics),))
        other = run(
            manifest,
            tmp_path / "t.db",
            rubrics=(str(rubrics),),
        )
    with server(lambda text: as_asked(text).replace("A lamp.", "A window.")):
        third = run(manifest, tmp_path / "u.db", rubrics=(str(rubrics),))
    (told, *_) = [text_of(body) for body in sent if "`passes`" in text_of(body)]
    assert "light: 2 (A lamp.)" in told
    keys = [one.row("e0", "verdict")["key"] for one in (done, other, third)]
    assert keys[0] == keys[1] != keys[2]


@pytest.mark.parametrize(
    ("earlier", "later", "told_of"),
    [
        (2, 1, [0, 2]),
        (1, 3, [0, 0, 0, 1, 1, 1]),
        (2, 2, [0, 1, 2, 3]),
        (2, 3, [0, 1, 0, 2, 3, 2]),
    ],
)
def test_a_later_question_is_told_of_its_own_repeat_of_the_run(
    tmp_path: Path, earlier: int, later: int, told_of: list[int]
) -> None:
    # One answer to the earlier question is on record, so that only what is told of it can be asked.
    text = SET.replace("samples: 2", f"samples: {earlier}")
    text = text.replace("after: light", f"after: light\n    samples: {later}")
    (tmp_path / "pair.yaml").write_text(text)
    path = edits(tmp_path, 1)
    manifest = write_manifest(
        tmp_path, [row | {"edit_type": "add"} for row in rows_of(path)]
    )
    for answered in range(2 * earlier):
        light = {
            "item": "e0",
            "rubric": "light",
            "reply": '{"why": "A lamp.", "light": 2}',
            "repeat": answered,
        }
        verdict = {"item": "e0", "rubric": "verdict", "reply": '{"passes": 1}'}
        verdicts = [verdict | {"repeat": number} for number in range(2 * later)]
        replies = tmp_path / f"{answered}.jsonl"
        replies.write_text(
            "".join(f"{json.dumps(line)}\n" for line in (light, *verdicts))
        )
        done = run(
            manifest,
            tmp_path / "s.db",
            rubrics=(f"{tmp_path}/pair.yaml",),
            judges=(f"replay:{replies}",),
            repeats=2,
        )
        told = {
            row["repeat"]
            for row in done.rows
            if row["rubric"] == "verdict" and row["status"] == "ok"
        }
        assert told == {number for number, of in enumerate(told_of) if of == answered}


def test_a_system_message_is_sent(
    tmp_path: Path, rubrics: Path, manifest: Path
) -> None:
    with server(as_asked) as sent:
        run(manifest, tmp_path / "s.db", rubrics=(str(rubrics),))
    systems = {
        body["messages"][0]["content"]
        for body in sent
        if body["messages"][0]["role"] == "system"
    }
    assert systems == {"You judge light."}


def test_what_is_asked_after_a_failure_is_a_missing_input_until_the_earlier_is_answered(
    tmp_path: Path, rubrics: Path, manifest: Path
) -> None:
    with server(lambda _: "nothing to say"):
        failed = run(manifest, tmp_path / "s.db", rubrics=(str(rubrics),))
    row = failed.row("e0", "verdict")
    assert row["status"] == "missing_input"
    assert shows(row["reasons"][0]["message"], '"light"', "invalid")
    with server(as_asked):
        done = run(manifest, tmp_path / "s.db", rubrics=(str(rubrics),))
    assert done.statuses() == {"ok": 6}


def test_the_scores_of_the_set_are_computed_from_the_store(
    tmp_path: Path, rubrics: Path, manifest: Path
) -> None:
    with server(as_asked):
        done = run(manifest, tmp_path / "s.db", rubrics=(str(rubrics),))
    with Store.open(tmp_path / "s.db", readonly=True) as store:
        record = store.find_run(done.outcome.name)
        assert record.spec["sets"]["pair"]["score"] == {"overall": "light * verdict"}
        scores = run_set_scores(store, record)
    assert scores
    assert scores["e0"][SPECS["openai"]]["overall"] == 2.0


def test_the_command_says_how_many_questions_did_not_apply(
    tmp_path: Path, rubrics: Path, manifest: Path
) -> None:
    with server(as_asked):
        told = editjudge(
            "run",
            manifest,
            "--rubric",
            rubrics,
            "--judge",
            SPECS["openai"],
            "--store",
            tmp_path / "s.db",
            "--json",
        )
    assert told.code == 0, told.err
    assert told.json["not_applicable"] == 2


def test_one_edit_is_judged_by_a_set(
    tmp_path: Path, rubrics: Path, manifest: Path
) -> None:
    words = (
        "--edited",
        tmp_path / "edited-0.png",
        "--rubric",
        rubrics,
        "--judge",
        SPECS["openai"],
    )
    rubrics.write_text(SET.replace("    when: edit_type in [add, remove]\n", ""))
    with server(as_asked) as sent:
        told = editjudge("judge", *words, "--json")
    assert told.code == 0, told.err
    assert [row["rubric"] for row in told.json["judgements"]] == [
        "light",
        "light",
        "verdict",
    ]
    assert len(sent) == 3


# --- a question for each element of a list ----------------------------------------------------------------------

CHECKS = """
name: checks
rubrics:
  - name: check
    for_each: checks
    images: [edited]
    texts: [each.question]
    scale: {values: [0, 1]}
    factors: [{key: holds, definition: Whether the answer is yes.}]
    answer: {form: scores}
  - name: second_look
    for_each: checks
    after: check
    images: [edited]
    texts: [each.question]
    scale: {values: [0, 1]}
    factors: [{key: sure, definition: Whether that is certain.}]
    answer: {form: scores}
score:
  accuracy: mean(check.holds)
"""


def test_each_element_of_a_list_is_a_question_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "checks.yaml").write_text(CHECKS)
    path = edits(tmp_path, 3)
    lists: list[Any] = [
        [{"question": "Is it red?"}, {"question": "Is it dark?"}],
        [],
        None,
    ]
    rows = [
        row | {"checks": some} for row, some in zip(rows_of(path), lists, strict=True)
    ]
    manifest = write_manifest(tmp_path, rows)

    def say(text: str) -> str:
        return (
            '{"sure": 1}'
            if "`sure`" in text
            else f'{{"holds": {int("Is it red?" in text)}}}'
        )

    with server(say) as sent:
        done = run(
            manifest, tmp_path / "s.db", rubrics=(str(tmp_path / "checks.yaml"),)
        )
    found = {
        (row["item"], row["rubric"], row["variant"]): row["scores"] or row["status"]
        for row in done.rows
    }
    assert found == {
        ("e0", "check", "0"): {"holds": 1},
        ("e0", "check", "1"): {"holds": 0},
        ("e0", "second_look", "0"): {"sure": 1},
        ("e0", "second_look", "1"): {"sure": 1},
        ("e2", "check", ""): "missing_input",
        ("e2", "second_look", ""): "missing_input",
    }
    told = [text_of(body) for body in sent if "`sure`" in text_of(body)]
    assert sorted("holds: 1" in text for text in told if "Is it red?" in text) == [True]
    assert sorted("holds: 0" in text for text in told if "Is it dark?" in text) == [
        True
    ]
    assert done.outcome.tally.not_applicable == 2
    with Store.open(tmp_path / "s.db", readonly=True) as store:
        scores = run_set_scores(store, store.find_run(done.outcome.name))
    assert scores
    assert scores["e0"][SPECS["openai"]] == {"accuracy": 0.5}


def test_a_plan_prices_every_element_every_sample_and_what_comes_after(
    tmp_path: Path, rubrics: Path
) -> None:
    (tmp_path / "checks.yaml").write_text(CHECKS)
    path = edits(tmp_path, 1)
    manifest = write_manifest(
        tmp_path,
        [
            row | {"checks": [{"question": "a"}, {"question": "b"}], "edit_type": "add"}
            for row in rows_of(path)
        ],
    )
    words = (
        "--rubric",
        tmp_path / "checks.yaml",
        "--rubric",
        rubrics,
        "--judge",
        SPECS["openai"],
        "--repeats",
        2,
    )
    with server(as_asked) as sent:
        told = editjudge(
            "run",
            manifest,
            *words,
            "--dry-run",
            "--json",
            "--store",
            tmp_path / "none.db",
        )
    assert told.code == 0, told.err
    assert (
        told.json["judges"][0]["calls"]
        == told.json["tasks"]
        == 2 * (2 + 2) + 2 * (2 + 1)
    )
    assert not sent


def test_yes_or_no_about_one_output_are_choices_that_a_formula_counts(
    tmp_path: Path,
) -> None:
    text = CHECKS.partition("  - name: second_look")[0].replace(
        "{values: [0, 1]}", "{choices: [yes, no]}"
    )
    text = (
        text.replace("{form: scores}", "{form: token}")
        + 'score:\n  accuracy: mean(check.holds == "yes")\n'
    )
    (tmp_path / "checks.yaml").write_text(text)
    path = edits(tmp_path, 1)
    checks = [{"question": "Is it red?"}, {"question": "Is it dark?"}]
    manifest = write_manifest(
        tmp_path, [row | {"checks": checks} for row in rows_of(path)]
    )
    with server(lambda text: "yes" if "Is it red?" in text else "no"):
        done = run(
            manifest, tmp_path / "s.db", rubrics=(str(tmp_path / "checks.yaml"),)
        )
    assert [(row["choices"], row["scores"], row["order"]) for row in done.rows] == [
        ({"holds": "yes"}, None, None),
        ({"holds": "no"}, None, None),
    ]
    with Store.open(tmp_path / "s.db", readonly=True) as store:
        scores = run_set_scores(store, store.find_run(done.outcome.name))
    assert scores
    assert scores["e0"][SPECS["openai"]] == {"accuracy": 0.5}
    for words in (
        ["report", done.outcome.name, "--format", "json"],
        ["export", done.outcome.name, "-o", tmp_path / "x"],
    ):
        told = editjudge(*words, "--store", tmp_path / "s.db")
        assert told.code == 0, told.err


def test_one_edit_takes_further_pictures_and_texts(tmp_path: Path) -> None:
    edits(tmp_path, 2)
    (tmp_path / "refs.yaml").write_text(
        "name: refs\nwhen: edit_type == add\nimages: [references, edited]\ntexts: [hint]\n"
        "scale: {choices: [yes, no]}\nfactors: [{key: same}]\nanswer: {form: lines}\n"
    )
    words = ("judge", "--edited", tmp_path / "edited-0.png", "--rubric", tmp_path / "refs.yaml",
             "--judge", SPECS["openai"], "--text", "hint=A dog.", "--edit-type", "add")  # fmt: skip
    pictures = (
        "--picture",
        f"references={tmp_path}/edited-1.png",
        "--picture",
        f"references={tmp_path}/input-0.png",
    )
    with server(lambda _: "same: yes") as sent:
        told = editjudge(*words, *pictures)
        without = editjudge(*words, "--json")
        shown = editjudge(*words, *pictures, "--envelope")
    assert told.code == 0, told.err
    assert "same  yes" in told.out
    assert "A dog." in text_of(sent[0])
    assert (
        sum(part["type"] == "image_url" for part in sent[0]["messages"][0]["content"])
        == 3
    )
    assert (without.code, without.json["status"]) == (3, "missing_input")
    assert shown.out.strip() == "same: yes"


def test_in_python_several_judgements_of_a_rubric_have_numbers(
    tmp_path: Path, rubrics: Path
) -> None:
    edits(tmp_path, 1)
    with server(as_asked):
        found = editjudge_api.judge(
            edited=tmp_path / "edited-0.png",
            rubrics=str(rubrics),
            judge=SPECS["openai"],
            edit_type="add",
        )
    assert list(found) == ["light[0]", "light[1]", "verdict"]
    assert found["verdict"].scores == {"passes": 1}


def test_recorded_replies_name_the_element_that_they_are_about(tmp_path: Path) -> None:
    (tmp_path / "checks.yaml").write_text(
        CHECKS.replace("texts: [each.question]", "texts: [each]")
    )
    path = edits(tmp_path, 1)
    manifest = write_manifest(
        tmp_path, [row | {"checks": ["same", "same", "same"]} for row in rows_of(path)]
    )
    lines = [
        {"item": "e0", "rubric": "check", "variant": n, "reply": f'{{"holds": {n}}}'}
        for n in (0, 1)
    ]
    (tmp_path / "replies.jsonl").write_text(
        "".join(f"{json.dumps(line)}\n" for line in lines)
    )
    done = run(
        manifest,
        tmp_path / "s.db",
        rubrics=(f"{tmp_path}/checks.yaml#check",),
        judges=(f"replay:{tmp_path}/replies.jsonl",),
    )
    assert [(row["variant"], row["scores"], row["status"]) for row in done.rows] == [
        ("0", {"holds": 0}, "ok"),
        ("1", {"holds": 1}, "ok"),
        ("2", None, "unreachable"),
    ]


@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning:ray",
    "ignore::FutureWarning:ray",
    "ignore::ResourceWarning",
)
def test_conditions_and_earlier_answers_hold_on_a_cluster(
    tmp_path: Path, rubrics: Path, manifest: Path
) -> None:
    words = ("--rubric", rubrics, "--judge", SPECS["openai"], "--json")
    with server(as_asked) as sent:
        told = editjudge(
            "run",
            manifest,
            *words,
            *("--store", tmp_path / "s.db"),
            *("--engine", "ray", "--workers", 2),
        )
        here = editjudge("run", manifest, *words, "--store", tmp_path / "t.db")
    assert told.code == 0, told.err
    assert told.json["statuses"] == here.json["statuses"] == {"ok": 6}
    assert len(sent) == 12


def test_what_cannot_be_asked_by_a_server_is_refused(rubrics: Path) -> None:
    with raises(UsageError, "asked_by_a_run_alone", "verdict", "`after`"):
        check_unconditional(
            resolve([str(rubrics)])[1:],
            "a server asks every rubric once about every edit",
        )


def test_a_report_of_a_set_has_each_rubric_on_its_own_scale_and_the_score(
    tmp_path: Path, rubrics: Path, manifest: Path
) -> None:
    with server(as_asked):
        done = run(manifest, tmp_path / "s.db", rubrics=(str(rubrics),))
    told = editjudge(
        "report", done.outcome.name, "--store", tmp_path / "s.db", "--format", "json"
    )
    assert told.code == 0, told.err
    text = json.dumps(told.json)
    assert all(f'"{name}"' in text for name in ("light", "passes", "overall"))
    for form in ("html", "md", "csv", "latex"):
        target = tmp_path / f"report.{form}"
        told = editjudge(
            "report",
            done.outcome.name,
            "--store",
            tmp_path / "s.db",
            "--format",
            form,
            "-o",
            target,
        )
        assert told.code == 0, told.err


def test_the_set_of_the_documents_runs_and_its_scores_are_those_of_its_formulas(
    tmp_path: Path,
) -> None:
    documents = (Path(__file__).parents[2] / "docs" / "rubrics.md").read_text()
    (text,) = [
        block
        for block in re.findall(r"```yaml\n(.*?)```", documents, re.DOTALL)
        if "name: two_questions\n" in block
    ]
    (tmp_path / "two.yaml").write_text(text)
    path = edits(tmp_path, 4)
    kinds = ("add", "style", "remove", "add")
    rows = [
        row | {"edit_type": kind}
        for row, kind in zip(rows_of(path), kinds, strict=True)
    ]
    manifest = write_manifest(tmp_path, rows)
    drawn = random.Random(3)

    def say(question: str) -> str:
        if "`publish`" in question:
            return json.dumps({"publish": drawn.randint(0, 1)})
        if "`natural`" in question:
            return json.dumps({"natural": drawn.randint(0, 20) / 2})
        entry = {"justification": "word " * 20, "score": 0}
        scores = {
            key: entry | {"score": drawn.randint(1, 7)}
            for key in ("alignment", "completeness", "plausibility")
        }
        (name, *_) = re.findall("edit-[0-9a-f]{16}", question)
        return json.dumps({"image_id": name, "online_factor_results": scores})

    with server(say):
        done = run(manifest, tmp_path / "s.db", rubrics=(str(tmp_path / "two.yaml"),))
    assert done.statuses() == {"ok": 3 + 4 * 3 + 4}
    with Store.open(tmp_path / "s.db", readonly=True) as store:
        scores = run_set_scores(store, store.find_run(done.outcome.name))
    assert scores
    for item in ("e0", "e2", "e3"):
        mine = [row for row in done.rows if row["item"] == item]
        (fidelity,) = [row["scores"] for row in mine if row["rubric"] == "fidelity"]
        natural = [
            row["scores"]["natural"] for row in mine if row["rubric"] == "naturalness"
        ]
        (publish,) = [
            row["scores"]["publish"] for row in mine if row["rubric"] == "verdict"
        ]
        least = min(fidelity.values())
        overall = sum(math.sqrt(least * one) for one in natural) / 3
        strict = math.sqrt(least * sum(natural) / 3) * publish
        assert scores[item][SPECS["openai"]] == pytest.approx(
            {"overall": overall, "strict": strict}, abs=1e-9
        )
    assert scores.get("e1", {}).get(SPECS["openai"], {}).get("overall") is None


def test_a_set_of_ones_own_is_not_fused(rubrics: Path, manifest: Path) -> None:
    with raises(UsageError, "fused_set"):
        Job(manifest, (str(rubrics),), ("measured",), fuse=True).load_rubrics()


def test_the_embedded_judge_abstains_from_what_it_does_not_measure(
    tmp_path: Path,
) -> None:
    (tmp_path / "refs.yaml").write_text(
        "name: refs\nimages: [references, edited]\nscale: {values: [0, 1]}\nfactors: [{key: same}]\n"
        "answer: {form: lines}\n"
    )
    path = edits(tmp_path, 1)
    manifest = write_manifest(
        tmp_path, [row | {"references": ["input-0.png"]} for row in rows_of(path)]
    )
    done = run(
        manifest,
        tmp_path / "s.db",
        rubrics=(str(tmp_path / "refs.yaml"),),
        judges=("measured",),
    )
    assert done.row("e0")["status"] == "abstained"
    assert done.row("e0")["scores"] is None


# --- conditions and labels that no edit meets -----------------------------------------------------------------

LABELLED = """
name: checks
rubrics:
  - name: check
    when: hard == true
    for_each: checks
    images: [edited]
    texts: [each.question]
    scale: {choices: ["yes", "no"]}
    factors: [{key: answer, definition: The answer.}]
    answer: {form: token}
score:
  accuracy: mean(check == each.answer)
"""


def asking_checks(
    folder: Path, hard: Any, labels: list[Any], name: str = "edits.jsonl"
) -> Any:
    """A run of one edit, whose judge says yes to each question."""
    (folder / "checks.yaml").write_text(LABELLED)
    (row,) = rows_of(edits(folder, 1))
    checks = [
        {"question": f"Is {number} there?", "answer": label}
        for number, label in enumerate(labels)
    ]
    manifest = write_manifest(folder, [row | {"hard": hard, "checks": checks}])
    if name.endswith(".csv"):
        cells = {key: str(value) for key, value in row.items()} | {
            "hard": str(hard),
            "checks": json.dumps(checks),
        }
        manifest = folder / name
        with manifest.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(cells))
            writer.writeheader()
            writer.writerow(cells)
    words = (
        "--rubric",
        folder / "checks.yaml",
        "--judge",
        SPECS["openai"],
        "--store",
        folder / "s.db",
        "--name",
        "c",
    )
    with server(lambda _: "yes") as sent:
        told = editjudge("run", manifest, *words, "--json")
    return told, sent


def scores_in(folder: Path) -> dict[str, Any]:
    assert (
        editjudge("export", "c", "--store", folder / "s.db", "-o", folder / "out").code
        == 0
    )
    return {
        row["item"]: row["set_scores"]
        for row in rows_of(folder / "out" / "items.jsonl")
    }


@pytest.mark.parametrize("name", ["edits.jsonl", "edits.csv"])
def test_a_flag_and_a_list_mean_the_same_in_json_and_in_csv(
    tmp_path: Path, name: str
) -> None:
    told, sent = asking_checks(tmp_path, True, ["yes", "no"], name)
    assert told.code == 0, told.err
    assert len(sent) == 2
    assert scores_in(tmp_path) == {"e0": {SPECS["openai"]: {"accuracy": 0.5}}}


@pytest.mark.parametrize("hard", [False, None, 1, "yes"])
def test_a_run_of_which_nothing_was_asked_is_an_error(
    tmp_path: Path, hard: Any
) -> None:
    told, sent = asking_checks(tmp_path, hard, ["yes"])
    assert (told.code, sent) == (1, [])
    assert "nothing was asked" in told.json["error"]
    with Store.open(tmp_path / "s.db", readonly=True) as store:
        assert store.runs() == []
    words = (
        "--rubric",
        tmp_path / "checks.yaml",
        "--judge",
        SPECS["openai"],
        "--store",
        tmp_path / "t.db",
    )
    assert editjudge("run", tmp_path / "edits.jsonl", *words, "--dry-run").code == 1


def test_an_empty_list_alone_asks_nothing_either(tmp_path: Path) -> None:
    told, sent = asking_checks(tmp_path, True, [])
    assert (told.code, sent) == (1, [])


def test_a_set_that_is_not_for_one_edit_is_an_error(
    tmp_path: Path, rubrics: Path, manifest: Path
) -> None:
    words = (
        "--edited",
        tmp_path / "edited-0.png",
        "--rubric",
        rubrics,
        "--judge",
        SPECS["openai"],
    )
    with server(as_asked) as sent:
        told = editjudge("judge", *words, "--edit-type", "style", "--json")
    assert (told.code, sent) == (1, [])


@pytest.mark.parametrize("label", ["Yes", True, 1, "", None])
def test_a_label_that_is_none_of_the_choices_names_the_edit_before_anybody_is_asked(
    tmp_path: Path, label: Any
) -> None:
    told, sent = asking_checks(tmp_path, True, ["yes", label])
    # nothing to be compared with: asked, and left out of the score
    if label in ("", None):
        assert told.code == 0, told.err
        assert scores_in(tmp_path) == {"e0": {SPECS["openai"]: {"accuracy": 1.0}}}
        return
    assert (told.code, sent) == (1, [])
    assert 'edit "e0"' in told.json["error"] and json.dumps(label) in told.json["error"]
    assert not (tmp_path / "s.db").exists()


def test_labels_of_edits_that_are_not_asked_do_not_matter(tmp_path: Path) -> None:
    told, _ = asking_checks(tmp_path, False, ["Yes"])
    assert "nothing was asked" in told.json["error"]
