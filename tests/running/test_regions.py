"""Pictures that are shown as parts of themselves: by a box of the edit, or by what changed."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from editjudge.edit import Edit
from editjudge.rubrics.files import parse
from editjudge.rubrics.prompt import ask
from editjudge.running.images import ImageRegion, RegionMissing
from tests.faults import raises

from .made import canned, run, write_manifest

RUBRIC = """
name: parts
task: Answer about the part.
images: [IMAGES]
scale: {values: [0, 1]}
factors: [{key: holds, definition: Whether it holds.}]
answer: {form: scores}
"""
SIDE = 96


def photo(at: tuple[int, int] | None = None) -> bytes:
    """A grey slope, with a red square at a place."""
    slope = np.add.outer(np.arange(SIDE), np.arange(SIDE)).astype(np.uint8)
    pixels = np.stack([slope] * 3, axis=-1)
    if at:
        pixels[at[1] : at[1] + 24, at[0] : at[0] + 24] = (220, 20, 20)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


@contextmanager
def server() -> Iterator[list[list[Image.Image]]]:
    """Keeps the pictures that it was sent."""
    sent: list[list[Image.Image]] = []

    def say(_: Mapping[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        parts = json.loads(body)["messages"][-1]["content"]
        urls = [
            part["image_url"]["url"] for part in parts if part["type"] == "image_url"
        ]
        sent.append(
            [
                Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2])))
                for url in urls
            ]
        )
        message = {"role": "assistant", "content": '{"holds": 1}'}
        return (
            200,
            {},
            json.dumps(
                {
                    "choices": [{"message": message, "finish_reason": "stop"}],
                    "usage": {},
                }
            ).encode(),
        )

    with canned(say):
        yield sent


def judge(
    folder: Path, images: str, more: str = "", **row: Any
) -> tuple[list[dict[str, Any]], list[list[Image.Image]]]:
    (folder / "in.png").write_bytes(photo())
    (folder / "out.png").write_bytes(photo((48, 16)))
    (folder / "parts.yaml").write_text(RUBRIC.replace("IMAGES", images) + more)
    known = {
        "id": "e",
        "input": "in.png",
        "edited": "out.png",
        "instruction": "Add a red square.",
    }
    manifest = write_manifest(folder, [known | row])
    with server() as sent:
        done = run(manifest, folder / "s.db", rubrics=(str(folder / "parts.yaml"),))
    return done.rows, sent


def test_a_box_of_the_edit_is_cut_out_and_is_in_the_key(tmp_path: Path) -> None:
    (row,), ((shown,),) = judge(tmp_path, "edited@box", box=[48, 16, 72, 40])
    assert shown.size == (24, 24)
    assert shown.convert("RGB").getpixel((0, 0)) == (220, 20, 20)
    assert row["prepared"] == {"edited@box": "crop 48,16,72,40, as-is"}
    (other,), _ = judge(tmp_path, "edited@box", box=[48, 16, 72, 41])
    assert row["key"] != other["key"]


def test_each_element_of_a_list_has_its_own_box(tmp_path: Path) -> None:
    checks = [
        {"box": {"x": 0, "y": 0, "width": 10, "height": 20}},
        {"box": [0.5, 0.5, 1, 1]},
        {"box": "nowhere"},
    ]
    rows, sent = judge(tmp_path, "edited@each.box", "for_each: checks\n", checks=checks)
    assert sorted(picture.size for (picture,) in sent) == [(10, 20), (48, 48)]
    assert [row["status"] for row in rows] == ["ok", "ok", "missing_input"]
    assert "expected a box" in rows[2]["reasons"][0]["message"]


@pytest.mark.parametrize(
    "box",
    [
        None,
        [1, 2, 3],
        [5, 5, 5, 9],
        [200, 200, 300, 300],
        ["a", 0, 1, 1],
        [True, 0, 1, 1],
        {},
    ],
)
def test_what_is_no_box_of_the_picture_is_a_missing_input(
    box: Any, tmp_path: Path
) -> None:
    (row,), sent = judge(tmp_path, "edited@box", box=box)
    assert row["status"] == "missing_input"
    assert not sent


def test_what_lies_outside_the_picture_is_cut_off() -> None:
    region = ImageRegion.of("edited@box")
    assert region
    assert region.box(Edit("e", metadata={"box": [-5, 90, 20, 120]}), 96, 96) == (
        0,
        90,
        20,
        96,
    )
    assert region.box(Edit("e", metadata={"box": "[0, 0, 1, 0.5]"}), 96, 96) == (
        0,
        0,
        96,
        48,
    )
    with raises(RegionMissing, "bad_box", "e: edited@box"):
        region.box(Edit("e"), 96, 96)


def test_the_part_that_changed_is_found_by_measuring(tmp_path: Path) -> None:
    pytest.importorskip("cv2")
    (row,), ((shown,),) = judge(tmp_path, "edited@change")
    assert row["status"] == "ok"
    assert max(shown.size) < 48
    pixels = np.asarray(shown.convert("RGB")).reshape(-1, 3)
    assert (pixels == (220, 20, 20)).all(axis=1).sum() == 24 * 24
    assert row["prepared"]["edited@change"].startswith("change 1 against ")


def test_the_change_map_has_the_shape_of_the_picture(tmp_path: Path) -> None:
    pytest.importorskip("cv2")
    (row,), ((whole, shown),) = judge(tmp_path, "edited, edited@change_map")
    assert row["status"] == "ok"
    assert shown.size == whole.size


def test_where_nothing_changed_there_is_no_part_that_did(tmp_path: Path) -> None:
    pytest.importorskip("cv2")
    (row,), sent = judge(tmp_path, "edited@change", edited="in.png")
    assert row["status"] == "missing_input"
    (reason,) = row["reasons"]
    assert reason["code"] == "missing_input" and "differs" in reason["message"]
    assert not sent


def test_without_an_input_nothing_can_be_compared(tmp_path: Path) -> None:
    (row,), _ = judge(tmp_path, "edited@change", input=None)
    assert row["status"] == "missing_input"


def test_the_question_says_which_part_is_shown() -> None:
    rubric = parse(RUBRIC.replace("IMAGES", "edited@change, edited@box"))
    question = str(ask(rubric, Edit("e"), {}))
    assert (
        "The part of this picture that differs from the input, cut out. Edited image:"
        in question
    )
    assert "A part that was cut out of this picture. Edited image:" in question
