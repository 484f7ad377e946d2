"""Further pictures, lists of pictures and texts of a manifest, which a rubric shows by their names."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from editjudge import manifest
from editjudge.edit import MAX_IMAGES, Edit
from editjudge.errors import ManifestError, RubricError, UsageError
from editjudge.manifest import NamedInputs
from editjudge.rubrics.files import parse
from editjudge.rubrics.model import LAYOUTS
from editjudge.rubrics.prompt import ask
from editjudge.running.job import Job
from tests.faults import raises

from .made import canned, editjudge, picture, run, write_manifest, write_old

RUBRIC = """
name: subjects
task: Judge whether the subjects of the reference pictures are in the edited image.
images: [references, edited]
texts: [instruction, explanation]
scale: {values: [0, 1, 2]}
factors: [{key: subjects, definition: Whether they are there.}]
answer: {form: scores}
"""


@pytest.fixture
def rubric(tmp_path: Path) -> Path:
    path = tmp_path / "subjects.yaml"
    path.write_text(RUBRIC)
    return path


def row(folder: Path, name: str = "e", **more: Any) -> dict[str, Any]:
    for file in ("edited", "one", "two"):
        write_old(folder / f"{file}.png", picture(file))
    known = {
        "id": name,
        "edited": "edited.png",
        "instruction": "Put both on a beach.",
        "model": "m",
    }
    return (
        known
        | {"references": ["one.png", "two.png"], "explanation": "A dog and a cat."}
        | more
    )


@contextmanager
def server() -> Iterator[list[dict[str, Any]]]:
    """Answers with a 2, and keeps what it was sent."""
    sent: list[dict[str, Any]] = []

    def say(_: Mapping[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        sent.append(json.loads(body))
        message = {"role": "assistant", "content": '{"subjects": 2}'}
        reply = {
            "choices": [{"message": message, "finish_reason": "stop"}],
            "usage": {},
            "model": "m",
        }
        return 200, {}, json.dumps(reply).encode()

    with canned(say):
        yield sent


def pictures_in(body: dict[str, Any]) -> list[bytes]:
    parts = [
        part for part in body["messages"][0]["content"] if part["type"] == "image_url"
    ]
    return [
        base64.b64decode(part["image_url"]["url"].partition(",")[2]) for part in parts
    ]


def test_every_picture_of_a_list_is_shown_in_its_order_and_the_text_is_quoted(
    tmp_path: Path, rubric: Path
) -> None:
    edits = write_manifest(tmp_path, [row(tmp_path)])
    with server() as sent:
        done = run(edits, tmp_path / "s.db", rubrics=(str(rubric),))
    assert done.row("e")["scores"] == {"subjects": 2}
    assert done.row("e")["prepared"] == {
        "references[1]": "as-is",
        "references[2]": "as-is",
        "edited": "as-is",
    }
    assert pictures_in(sent[0]) == [picture("one"), picture("two"), picture("edited")]
    words = "".join(part.get("text", "") for part in sent[0]["messages"][0]["content"])
    assert "References, 1 of 2:" in words
    assert "A dog and a cat." in words


def test_another_picture_another_order_and_another_text_are_other_questions(
    tmp_path: Path, rubric: Path
) -> None:
    write_old(tmp_path / "three.png", picture("three"))
    others: dict[str, dict[str, Any]] = {
        "same": {},
        "order": {"references": ["two.png", "one.png"]},
        "another": {"references": ["one.png", "three.png"]},
        "fewer": {"references": ["one.png"]},
        "alone": {"references": "one.png"},
        "text": {"explanation": "A dog."},
    }
    edits = write_manifest(
        tmp_path,
        [
            row(tmp_path),
            *(row(tmp_path, name, **more) for name, more in others.items()),
        ],
    )
    with server() as sent:
        done = run(edits, tmp_path / "s.db", rubrics=(str(rubric),))
        again = run(edits, tmp_path / "s.db", rubrics=(str(rubric),))
    keys = {name: done.row(name)["key"] for name in ("e", *others)}
    assert keys["e"] == keys["same"]
    assert len(set(keys.values())) == len(others)
    assert len(sent) == len(others)
    assert again.outcome.tally.cached == len(keys)


@pytest.mark.parametrize(
    ("more", "status", "why"),
    [
        ({"references": None}, "missing_input", "references"),
        ({"references": []}, "missing_input", "references"),
        ({"references": ["one.png", "gone.png"]}, "missing_input", "gone.png"),
        ({"explanation": " "}, "missing_input", "explanation"),
        ({"explanation": None}, "missing_input", "explanation"),
        ({"edited": None}, "missing_output", "no image"),
        ({"references": ["one.png", "broken.png"]}, "bad_image", "broken.png"),
    ],
)
def test_what_is_missing_is_a_status_and_nobody_is_asked(
    more: dict[str, Any], status: str, why: str, tmp_path: Path, rubric: Path
) -> None:
    (tmp_path / "broken.png").write_bytes(b"no picture")
    edits = write_manifest(tmp_path, [row(tmp_path, **more)])
    with server() as sent:
        done = run(edits, tmp_path / "s.db", rubrics=(str(rubric),))
    assert done.row("e")["status"] == status
    assert why in done.row("e")["reasons"][0]["message"]
    assert not sent


def test_a_picture_that_changed_is_asked_about_again(
    tmp_path: Path, rubric: Path
) -> None:
    edits = write_manifest(tmp_path, [row(tmp_path)])
    with server() as sent:
        run(edits, tmp_path / "s.db", rubrics=(str(rubric),))
        (tmp_path / "two.png").write_bytes(picture("two, anew"))
        run(edits, tmp_path / "s.db", rubrics=(str(rubric),))
    assert [pictures_in(body)[1] for body in sent] == [
        picture("two"),
        picture("two, anew"),
    ]


def test_a_plan_counts_every_picture_of_a_list(tmp_path: Path, rubric: Path) -> None:
    edits = write_manifest(tmp_path, [row(tmp_path)])
    with server():
        told = editjudge(
            "run",
            edits,
            "--rubric",
            rubric,
            "--judge",
            "openai/stub",
            "--dry-run",
            "--json",
        )
    assert told.json["judges"][0]["images"] == 3


# --- the manifest ---------------------------------------------------------------------------------------------

NAMED = NamedInputs(frozenset({"references"}), frozenset({"explanation"}))


def read(tmp_path: Path, text: str, name: str = "m.jsonl") -> Edit:
    path = tmp_path / name
    path.write_text(text)
    return next(iter(manifest.read(path, named=NAMED)))


def test_a_column_that_no_rubric_names_stays_metadata(tmp_path: Path) -> None:
    write_manifest(tmp_path, [row(tmp_path)])
    (edit,) = manifest.read(tmp_path / "edits.jsonl")
    assert edit.metadata == {
        "references": ["one.png", "two.png"],
        "explanation": "A dog and a cat.",
    }
    assert not edit.images


def test_a_list_may_stand_in_a_cell_of_csv(tmp_path: Path) -> None:
    text = 'id,edited,references,explanation\ne,x.png,"[""a.png"", ""b.png""]",why\n'
    edit = read(tmp_path, text, "m.csv")
    assert edit.images == {
        "references[1]": tmp_path / "a.png",
        "references[2]": tmp_path / "b.png",
    }
    assert edit.text("explanation") == "why"


def test_pictures_of_a_list_may_stand_in_parquet_as_bytes(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    table = pa.table(
        {"id": ["e"], "edited": ["x.png"], "references": [[picture(1), picture(2)]]}
    )
    pq.write_table(table, tmp_path / "m.parquet")
    (edit,) = manifest.read(tmp_path / "m.parquet", named=NAMED)
    assert list(edit.images.values()) == [picture(1), picture(2)]


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (["a.png", "../../outside.png"], "outside_folder"),
        (["https://example.com/a.png"], "address_not_fetched"),
        (["a.png", None], "empty_element"),
        ([["a.png"]], "not_an_image"),
        (7, "not_an_image"),
        (["a.png"] * (MAX_IMAGES + 1), "too_many_images"),
    ],
)
def test_a_list_of_pictures_is_held_to_the_rules_of_every_picture(
    value: Any, code: str, tmp_path: Path
) -> None:
    with raises(ManifestError, code, 'm.jsonl:1: field "references"'):
        read(
            tmp_path,
            json.dumps({"id": "e", "edited": "x.png", "references": value}) + "\n",
        )


def test_a_text_that_a_rubric_shows_is_text_or_a_number(tmp_path: Path) -> None:
    assert (
        read(tmp_path, '{"id": "e", "edited": "x.png", "explanation": 7}\n').text(
            "explanation"
        )
        == "7"
    )
    with raises(ManifestError, "not_text", "explanation"):
        read(tmp_path, '{"id": "e", "edited": "x.png", "explanation": {"a": 1}}\n')


# --- rubrics --------------------------------------------------------------------------------------------------


def test_a_name_is_a_picture_to_every_rubric_of_a_run_or_a_text_to_all(
    tmp_path: Path, rubric: Path
) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(
        RUBRIC.replace("name: subjects", "name: other").replace(
            "explanation]", "references]", 1
        )
    )
    with raises(UsageError, "image_and_text", "references"):
        Job(
            tmp_path / "edits.jsonl", (str(rubric), str(other)), ("measured",)
        ).named_inputs()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_slot_of_a_published_prompt_takes_a_whole_list(layout: Any) -> None:
    text = RUBRIC.replace("task: Judge", "description: Judge") + (
        "template:\n  text: 'Look at <refs>, then at <out>. Hint: {hint} Asked: {instruction}'\n  slots:\n"
        "    - {mark: <refs>, role: references}\n    - {mark: <out>, role: edited}\n"
        "    - {mark: '{hint}', role: explanation}\n    - {mark: '{instruction}', role: instruction}\n"
    )
    pictures = {"references[1]": Path("a.png"), "references[2]": Path("b.png")}
    edit = Edit(
        "e",
        edited=Path("x.png"),
        instruction="Go.",
        metadata={"explanation": "Two."},
        images=pictures,
    )
    question = str(ask(parse(text), edit, {}, layout))
    printed = [line for line in question.splitlines() if line.startswith("[image")]
    assert printed == [
        "[image: references[1]]",
        "[image: references[2]]",
        "[image: edited]",
    ]
    assert "Hint: Two. Asked: Go." in question


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("images: [model, edited]", "identity_shown"),
        ("images: [instruction]", "wrong_list"),
        ('images: ["a b"]', "bad_column"),
        ("images: [inptu]", "mistyped_input"),
    ],
)
def test_a_name_that_cannot_be_meant_is_refused(line: str, code: str) -> None:
    with raises(RubricError, code):
        parse(RUBRIC.replace("images: [references, edited]", line))
