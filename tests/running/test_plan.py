"""What is asked, and the key of all that can change the answer."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from editjudge.canonical import json_hash
from editjudge.edit import Edit
from editjudge.judges.chat import ChatJudge
from editjudge.judges.http import HttpTransport
from editjudge.judges.judge import Judge, Options, Work
from editjudge.judges.providers import resolve
from editjudge.judges.replay import Replay
from editjudge.media.cache import DigestCache, KnownImage
from editjudge.media.header import ImageInfo
from editjudge.rubrics import files
from editjudge.rubrics.files import load
from editjudge.rubrics.model import (
    LAYOUTS,
    AnswerFormat,
    Factor,
    Rubric,
    Slot,
    Template,
)
from editjudge.rubrics.prompt import RENDERING, Question, TextPart, ask, reask
from editjudge.rubrics.scale import Scale
from editjudge.rubrics.verdict import Failure, Remark
from editjudge.running import plan
from editjudge.running.pace import Pace
from editjudge.running.plan import QuestionSettings, placed, works

from .made import picture, write_old

KEY = {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}
FIDELITY = load("fidelity")
REFERENCE = load("reference")


def talker(
    spec: str = "openai/m",
    parameters: Options | None = None,
    base_url: str | None = None,
    **options: Any,
) -> ChatJudge:
    endpoint = resolve(spec, base_url, KEY)
    return ChatJudge(
        spec,
        endpoint,
        dataclasses.replace(parameters or Options(), **options),
        Pace(spec),
        HttpTransport(),
    )


@pytest.fixture
def edit(tmp_path: Path) -> Edit:
    for role in ("input", "edited", "truth"):
        write_old(tmp_path / f"{role}.png", picture(role))
    return Edit(
        "e1",
        tmp_path / "input.png",
        tmp_path / "edited.png",
        "Paint it red.",
        tmp_path / "truth.png",
    )


def planned(
    edit: Edit, rubric: Rubric = FIDELITY, judge: Judge | None = None, **shape: Any
) -> list[Work]:
    def look(edit: Edit, role: str) -> KnownImage | None:
        source = getattr(edit, role)
        return None if source is None else DigestCache().look_up(source)

    return list(
        works([edit], QuestionSettings([rubric], **shape), judge or talker(), look)
    )


def key(edit: Edit, *args: Any, **shape: Any) -> str:
    (work,) = planned(edit, *args, **shape)
    return work.task.key


# --- what is asked --------------------------------------------------------------------------------------------


def test_every_edit_is_asked_every_rubric_as_often_as_wanted(edit: Edit) -> None:
    edits = [edit, dataclasses.replace(edit, id="e2")]
    shape = QuestionSettings([FIDELITY, load("quality")], repeats=3)
    tasks = [work.task for work in works(edits, shape, talker(), lambda *_: None)]
    assert [(t.item, t.rubric, t.repeat) for t in tasks] == [
        (item, rubric, repeat)
        for item in ("e1", "e2")
        for rubric in ("fidelity", "quality")
        for repeat in range(3)
    ]


def test_the_parts_of_a_manifest_have_the_positions_of_the_whole(edit: Edit) -> None:
    """Also if the edits before one are asked different numbers of questions."""
    quality = dataclasses.replace(load("quality"), when="edit_type == add")
    settings = QuestionSettings([FIDELITY, quality], repeats=2)
    kinds = ("add", "remove", "add", "add")
    edits = [
        dataclasses.replace(edit, id=f"e{number}", edit_type=kind)
        for number, kind in enumerate(kinds)
    ]
    together = list(placed(edits, settings))
    odd = placed(edits, settings, lambda edit: edit.id in ("e1", "e3"))
    even = placed(edits, settings, lambda edit: edit.id in ("e0", "e2"))
    assert sorted([*odd, *even]) == together
    assert [each.position for each in together] == [0, 1, 2, 3]
    tasks = [at for each in together for at in each.tasks.values()]
    assert tasks == list(range(14))


def status(edit: Edit, rubric: Rubric = FIDELITY) -> str | None:
    (work,) = planned(edit, rubric)
    return work.problem[0] if work.problem else None


def test_an_edit_with_all_that_the_rubric_shows_can_be_asked(edit: Edit) -> None:
    assert status(edit) is None
    assert status(edit, REFERENCE) is None


@pytest.mark.parametrize("gone", [None, Path("not/there.png")])
def test_an_output_that_was_never_produced_is_missing(
    edit: Edit, gone: Path | None
) -> None:
    assert status(dataclasses.replace(edit, edited=gone)) == "missing_output"


@pytest.mark.parametrize("gone", [None, Path("not/there.png")])
def test_a_ground_truth_that_is_not_there_is_a_missing_input(
    edit: Edit, gone: Path | None
) -> None:
    assert (
        status(dataclasses.replace(edit, ground_truth=gone), REFERENCE)
        == "missing_input"
    )
    assert status(dataclasses.replace(edit, ground_truth=gone), FIDELITY) is None


def test_an_empty_instruction_is_a_missing_input_only_where_it_is_asked_about(
    edit: Edit,
) -> None:
    silent = dataclasses.replace(edit, instruction=" \n")
    assert status(silent) == "missing_input"
    assert status(silent, load("lighting")) is None


def test_what_the_model_never_produced_outweighs_what_else_is_wrong(
    edit: Edit, tmp_path: Path
) -> None:
    write_old(tmp_path / "input.png", b"no picture")
    assert status(dataclasses.replace(edit, instruction="")) == "bad_image"
    assert (
        status(dataclasses.replace(edit, edited=None, instruction=""))
        == "missing_output"
    )


def test_where_neither_picture_is_found_the_model_is_not_to_blame(edit: Edit) -> None:
    gone = Path("not/there.png")
    assert status(dataclasses.replace(edit, input=gone, edited=gone)) == "missing_input"
    assert (
        status(dataclasses.replace(edit, input=gone, edited=gone), REFERENCE)
        == "missing_input"
    )
    # as the manifest says
    assert (
        status(dataclasses.replace(edit, input=gone, edited=None)) == "missing_output"
    )


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(picture("x")[:60], id="truncated"),
        pytest.param(b"just words", id="text"),
        pytest.param(b"", id="empty"),
        pytest.param(
            picture("x").replace(b"\0\0\0\x08\0\0\0\x08", b"\0\0\xff\xff\0\0\xff\xff"),
            id="bomb",
        ),
    ],
)
def test_a_file_that_is_no_picture_is_a_bad_image(
    edit: Edit, tmp_path: Path, content: bytes
) -> None:
    write_old(tmp_path / "edited.png", content)
    assert status(edit) == "bad_image"


# --- keys -----------------------------------------------------------------------------------------------------


def test_the_same_task_has_the_same_key(edit: Edit) -> None:
    assert key(edit) == key(edit)


def test_what_cannot_change_the_answer_is_not_part_of_the_key(
    edit: Edit, tmp_path: Path
) -> None:
    before = key(edit)
    labels: Any = {
        "id": "other",
        "model": "m",
        "group": "g",
        "edit_type": "t",
        "metadata": {"a": 1},
    }
    assert key(dataclasses.replace(edit, **labels)) == before
    assert (
        key(
            edit,
            dataclasses.replace(FIDELITY, name="mine", description="words for people"),
        )
        == before
    )
    os.utime(tmp_path / "edited.png", (1, 1))
    assert key(edit) == before
    moved = tmp_path / "moved.png"
    moved.write_bytes((tmp_path / "edited.png").read_bytes())
    assert key(dataclasses.replace(edit, edited=moved)) == before


def test_whatever_can_change_the_answer_is_part_of_the_key(
    edit: Edit, tmp_path: Path
) -> None:
    keys = list(other_keys(edit, tmp_path))
    assert len({key(edit), *keys}) == len(keys) + 1


def other_keys(edit: Edit, folder: Path) -> Iterator[str]:
    yield key(dataclasses.replace(edit, instruction="Paint it blue."))
    yield key(edit, dataclasses.replace(FIDELITY, task=FIDELITY.task + " "))
    yield key(edit, load("quality"))
    yield key(edit, layout="published")
    for parameters in (
        Options(temperature=0.0),
        Options(temperature=0.5),
        Options(seed=0),
        Options(max_tokens=100),
        Options(reasoning_effort="low"),
        Options(extra={"top_p": 0.5}),
    ):
        yield key(edit, FIDELITY, talker(parameters=parameters))
    yield key(edit, FIDELITY, talker(strict=True))
    yield key(edit, FIDELITY, talker(schema=False))
    yield key(edit, FIDELITY, talker("openai/other"))
    yield key(edit, FIDELITY, talker("anthropic/m"))
    yield key(edit, FIDELITY, talker(base_url="http://127.0.0.1:1/v1"))
    yield planned(edit, repeats=2)[1].task.key
    for role in ("input", "edited"):
        before = (folder / f"{role}.png").read_bytes()
        (folder / f"{role}.png").write_bytes(picture("another"))
        yield key(edit)
        (folder / f"{role}.png").write_bytes(before)


@pytest.mark.parametrize("version", ["RENDERING", "KEY_VERSION"])
def test_the_wording_of_questions_is_part_of_the_key_by_its_number(
    version: str, edit: Edit, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = key(edit)
    monkeypatch.setattr(plan, version, 999)
    assert key(edit) != before


TEXT = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from('"\\\n\u2028'),
    max_size=20,
)
PICTURES = st.none() | st.builds(
    KnownImage,
    st.text("0123456789abcdef", min_size=64, max_size=64),
    st.none()
    | st.builds(
        ImageInfo,
        st.sampled_from(["png", "jpeg"]),
        *[st.integers(1, 5000)] * 2,
        st.integers(1),
    ),
    TEXT,
)
ELEMENTS = dataclasses.replace(
    FIDELITY, name="elements", for_each="parts", texts=("instruction", "each")
)
KEYED = [REFERENCE, load("preference"), ELEMENTS, *files.resolve(["online"])]


@given(st.data())
def test_a_key_that_is_written_in_parts_is_the_hash_of_the_whole_value(
    data: st.DataObject,
) -> None:
    metadata = {"parts": data.draw(st.lists(TEXT, max_size=3)), "each": data.draw(TEXT)}
    pair = {role: Path(role) for role in ("edited_a", "edited_b")}
    texts = {"instruction": data.draw(TEXT), "referring_expression": data.draw(TEXT)}
    edit = Edit(
        data.draw(TEXT), Path("i"), Path("e"), metadata=metadata, images=pair, **texts
    )
    pictures = {
        role: data.draw(PICTURES, role)
        for role in ("input", "edited", "ground_truth", *pair)
    }
    by_path = {edit.image(role): names for role, names in pictures.items()}
    settings = QuestionSettings(
        KEYED, data.draw(st.integers(1, 2)), data.draw(st.sampled_from(LAYOUTS))
    )
    judge = talker(
        parameters=Options(temperature=data.draw(st.none() | st.floats(0, 2)))
    )
    for work in works(
        [edit], settings, judge, lambda edit, role: by_path.get(edit.image(role))
    ):
        assert work.task.key == json_hash(whole_key(work, judge), "compact")


def whole_key(work: Work, judge: Judge) -> list[Any]:
    question: dict[str, Any] = {
        "version": plan.KEY_VERSION,
        "rendering": RENDERING,
        "rubric": work.rubric.hash,
        "layout": work.layout,
        "texts": {role: work.edit.text(role) for role in work.rubric.texts},
        "images": {
            role: [work.digests.get(role), work.recipes.get(role)]
            for role in work.images
        },
    }
    if work.rubric.pairwise:
        question["order"] = work.task.variant
    if work.problem:
        question["problem"] = [work.problem.status, work.problem.key_text]
    return [
        question,
        judge.identity(work.edit, work.rubric, work.task.repeat),
        work.task.repeat,
    ]


def test_a_picture_that_the_rubric_does_not_show_is_not_part_of_the_key(
    edit: Edit,
) -> None:
    assert key(edit) == key(dataclasses.replace(edit, ground_truth=None))
    assert key(edit, REFERENCE) == key(dataclasses.replace(edit, input=None), REFERENCE)


def test_how_a_picture_is_prepared_is_part_of_the_key(
    edit: Edit, tmp_path: Path
) -> None:
    (tmp_path / "edited.png").write_bytes(picture("x"))
    mine = talker()
    theirs = talker()
    assert mine.limits
    theirs.limits = dataclasses.replace(mine.limits, max_side=4)
    assert key(edit, FIDELITY, mine) != key(edit, FIDELITY, theirs)


def test_two_things_that_are_wrong_with_an_edit_are_two_keys(
    edit: Edit, tmp_path: Path
) -> None:
    """One model produced nothing, the other a folder: neither has a digest, and the two are not the same failure."""
    (tmp_path / "folder.png").mkdir()
    nothing = planned(dataclasses.replace(edit, edited=None))[0]
    folder = planned(dataclasses.replace(edit, edited=tmp_path / "folder.png"))[0]
    assert nothing.problem and folder.problem
    assert (nothing.problem[0], folder.problem[0]) == ("missing_output", "bad_image")
    assert nothing.task.key != folder.task.key


def test_the_text_of_a_missing_image_in_a_key_never_changes(edit: Edit) -> None:
    output = planned(dataclasses.replace(edit, edited=None))[0].problem
    source = planned(dataclasses.replace(edit, input=None))[0].problem
    assert output and source
    assert output.key_text == "the editing model produced no picture"
    assert source.key_text == "the input is to be looked at, and there is none"


def test_a_recorded_reply_is_part_of_the_key_and_so_is_the_item_that_it_must_echo(
    edit: Edit, tmp_path: Path
) -> None:
    def replayed(reply: str, item: str = "e1") -> str:
        path = tmp_path / f"{hashlib.sha256(reply.encode()).hexdigest()[:8]}.jsonl"
        path.write_text(
            json.dumps({"item": item, "rubric": "fidelity", "reply": reply})
        )
        return key(dataclasses.replace(edit, id=item), FIDELITY, Replay(str(path)))

    assert replayed("a") == replayed("a")
    assert len({replayed("a"), replayed("b"), replayed("a", "e2")}) == 3


@given(st.text(), st.text(), st.text(), st.text())
def test_no_two_texts_run_into_each_other(a: str, b: str, c: str, d: str) -> None:
    rubric = dataclasses.replace(load("compliance"), images=("input",))

    def of(instruction: str, expression: str) -> str:
        edit = Edit("e", instruction=instruction, referring_expression=expression)
        return next(
            works(
                [edit],
                QuestionSettings([rubric]),
                talker(),
                lambda *_: KnownImage("digest", None),
            )
        ).task.key

    assert (of(a, b) == of(c, d)) == ((a, b) == (c, d))


# --- wording --------------------------------------------------------------------------------------------------

SMALL = Rubric(
    name="small",
    images=("input", "edited"),
    texts=("instruction", "referring_expression"),
    role="A careful judge.",
    task="Say how good it is.",
    scope=("What is visible.",),
    allowed=("Noise.",),
    forbidden=("Holes.",),
    ignored=("Arrows.",),
    steps=("Look.", "Decide."),
    constraints=("Be brief.",),
    factors=(
        Factor(
            "first",
            Scale((1, 2, 3), {1: "bad", 3: "good"}),
            "First",
            "If.",
            ("Edges.",),
            ("Care.",),
            "Taste.",
        ),
        Factor("second", Scale((5, 3, 1)), "Second"),
    ),
    answer=AnswerFormat(id_key="image_id", envelope="results", words=(5, 10)),
)
PUBLISHED = dataclasses.replace(
    SMALL,
    template=Template(
        "Judge {instruction} in [image]!", (Slot("{instruction}", "instruction"),)
    ),
)
SECTIONS = dataclasses.replace(
    SMALL, answer=AnswerFormat(sections=("Reasoning", "JSON"), reason="one sentence")
)
PAINTED = Edit("id", instruction="Paint it.", referring_expression="the car")
DIGESTS = {"input": "0" * 64, "edited": "1" * 64}

WORDING = {1: "c74abcf74b8199e24802ae79550c86d25d7e6c6885f6941cb910a83a3dc3d1a4"}
"""By the number of the rendering, the digest of what it asks."""


def test_a_question_that_is_worded_differently_has_another_rendering() -> None:
    """Keys hold the number and not the words: whoever changes the words raises `RENDERING` and adds the digest here."""
    assert WORDING.get(RENDERING) == worded()


def worded() -> str:
    content = hashlib.sha256()
    for rubric in (SMALL, PUBLISHED, SECTIONS):
        for layout in LAYOUTS:
            question = ask(rubric, PAINTED, DIGESTS, layout)
            silent = ask(rubric, Edit("id"), DIGESTS, layout)
            again = reask(
                Failure("invalid", (Remark("code", "It was wrong."),)), question
            )
            content.update(json.dumps([parts(question), parts(silent), again]).encode())
    return content.hexdigest()


def parts(question: Question) -> list[str]:
    return [
        part.text if isinstance(part, TextPart) else f"<{part.role}>"
        for part in question.parts
    ]
