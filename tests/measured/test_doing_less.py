"""Outputs that do next to nothing, global shifts, and drift: what is flagged, scored and abstained from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
import pytest
from skimage import data

from editjudge.edit import Edit
from editjudge.rubrics.files import resolve
from editjudge.vision.measured.assess import Assessment, Subject, assess
from editjudge.vision.measured.blending import blended
from editjudge.vision.measured.calibration import load
from editjudge.vision.measured.degenerate import find_degenerate, screen
from tests.measured.made import (
    Picture,
    encoded,
    jpeg,
    mix,
    photograph,
    recoloured,
    region,
)

ASKED = "Make the cup in the middle blue."
PHOTOGRAPHS: Any = data


def pasted(before: Picture) -> Picture:
    """An edit that draws something else over the thing."""
    height, width = before.shape[:2]
    other = cv2.resize(PHOTOGRAPHS.rocket()[40:340, 200:500], (width, height))
    return mix(before, other, region(before.shape, 3.0))


def blend(before: Picture, after: Picture, share: float) -> Picture:
    return np.clip(before + share * (after - before.astype(float)), 0, 255).astype(
        np.uint8
    )


def contrast(before: Picture, times: float) -> Picture:
    mean = before.mean(axis=(0, 1))
    return np.clip((before - mean) * times + mean, 0, 255).astype(np.uint8)


def sticker(before: Picture) -> Picture:
    after = before.copy()
    cv2.circle(after, (60, 60), 6, (255, 220, 0), -1)
    return after


NEXT_TO_NOTHING: dict[str, Callable[[Picture], Picture]] = {
    "a tenth of the edit": lambda p: blend(p, pasted(p), 0.1),
    "more contrast": lambda p: contrast(p, 1.12),
    "a small sticker": sticker,
    "six tenths of the edit": lambda p: blend(p, pasted(p), 0.6),
}


@pytest.mark.parametrize("name", NEXT_TO_NOTHING)
def test_an_output_that_does_next_to_nothing_is_unchanged_and_has_no_reward(
    name: str,
) -> None:
    before = photograph()
    edited = NEXT_TO_NOTHING[name](before)
    output = find_degenerate(before, edited, ASKED)
    assert output is not None and output.kind == "unchanged"
    assert not output.set_aside, "it is judged as any edit"
    (found,) = screen(
        Edit("1", input=encoded(before), edited=encoded(edited), instruction=ASKED)
    )
    # Rewards without fidelity have none for it; a judge of the instruction is asked, with the flag.
    assert found.kind == "unchanged" and not found.set_aside


@pytest.mark.parametrize("share", [0.5, 0.6])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_blend_of_input_and_edit_is_told_from_the_edit(
    share: float, seed: int
) -> None:
    before = photograph(seed)
    after = pasted(before)
    assert blended(before, after) is None
    found = blended(before, blend(before, after, share))
    assert found is not None and abs(found - (1 - share)) <= 0.1


def redrawn(before: Picture) -> Picture:
    """A copy as an editor makes it that passes the whole image through an autoencoder: soft, spotted and grainy."""
    height, width = before.shape[:2]
    rng = np.random.default_rng(0)
    spots = rng.normal(0, 1.5, (height // 8, width // 8, 3))
    soft = cv2.GaussianBlur(before.astype(float), (0, 0), 0.8)
    soft += cv2.resize(spots, (width, height), interpolation=cv2.INTER_CUBIC)
    grainy = soft + rng.normal(0, 1.5, before.shape)
    return np.clip(grainy * 1.02 - 1, 0, 255).astype(np.uint8)


COPIES: dict[str, Callable[[Picture], Picture]] = {
    "passed through an autoencoder": redrawn,
    "and saved as JPEG": lambda p: jpeg(redrawn(p), 75),
    "and moved by a pixel": lambda p: jpeg(np.roll(redrawn(p), 1, axis=1), 85),
    "brighter": lambda p: blend(p, np.full_like(p, 255), 0.02),
    "blurred": lambda p: cv2.GaussianBlur(p, (0, 0), 1.5),
    "at twice the size": lambda p: cv2.resize(p, None, fx=2, fy=2),
}


@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_copy_of_the_input_that_was_rendered_anew_is_unchanged(
    name: str, seed: int
) -> None:
    before = photograph(seed)
    output = find_degenerate(before, COPIES[name](before), ASKED)
    assert output is not None and output.kind == "unchanged"


@pytest.mark.parametrize("make", [recoloured, pasted])
def test_an_edit_is_not_unchanged(make: Any) -> None:
    before = photograph()
    assert find_degenerate(before, make(before), ASKED) is None


def test_more_contrast_is_an_edit_if_it_was_asked_for() -> None:
    before = photograph()
    edited = contrast(before, 1.3)
    wish = "Raise the contrast of the whole image."
    assert find_degenerate(before, edited, wish) is None


def test_a_few_letters_are_an_edit_if_they_were_asked_for() -> None:
    before = photograph()
    edited = cv2.putText(
        before.copy(), "A1", (40, 60), cv2.FONT_HERSHEY_SIMPLEX, 0.5, (255, 255, 255), 1
    )
    assert find_degenerate(before, edited, 'Write "A1" on the wall.') is None


def assessed(before: Picture, after: Picture, instruction: str) -> Assessment:
    (rubric,) = resolve(["preservation"])
    return assess(rubric, Subject({"input": before, "edited": after}, instruction), load())  # fmt: skip


@pytest.mark.parametrize(("times", "most"), [(1.15, 6), (1.4, 5)])
def test_more_contrast_that_was_not_asked_for_counts_in_unchanged_regions(
    times: float, most: float
) -> None:
    before = photograph(2)
    found = assessed(before, contrast(before, times), ASKED)
    assert found.scores["unchanged_regions"] <= most


def test_a_room_that_was_darkened_is_not_unchanged() -> None:
    before = photograph()
    darker = (before * 0.5).astype(np.uint8)
    asked = "let the monitor turn black"
    assert assessed(before, darker, asked).scores["unchanged_regions"] <= 2


@pytest.mark.parametrize(
    "instruction",
    [
        "Make it night.",
        "Turn the photo into a black and white image",
        "It should be winter now",
        "change the lighting to a warm evening",
        "in the style of an oil painting",
        "let it rain",
    ],
)
def test_a_shift_that_was_asked_for_abstains(instruction: str) -> None:
    before = photograph()
    found = assessed(before, (before * 0.5).astype(np.uint8), instruction)
    assert "as the instruction asks" in found.abstained["unchanged_regions"]


@pytest.mark.parametrize(
    "instruction",
    [
        "let the monitor turn black",
        "Remove the cup from the photo.",
        "Make the car darker blue",
        "add a cat to the picture on the wall",
    ],
)
def test_a_local_wish_excuses_no_shift(instruction: str) -> None:
    before = photograph()
    found = assessed(before, (before * 0.5).astype(np.uint8), instruction)
    assert found.scores["unchanged_regions"] <= 2


@pytest.mark.parametrize("levels", [-3, 3])
def test_a_tone_that_is_not_visible_costs_nothing(levels: int) -> None:
    before = photograph()
    moved = np.clip(recoloured(before).astype(int) + levels, 0, 255).astype(np.uint8)
    assert assessed(before, moved, ASKED).scores["unchanged_regions"] == 7


def test_preservation_abstains_from_an_image_that_was_drawn_anew_a_few_pixels_away() -> (
    None
):
    before = photograph(2)
    height, width = before.shape[:2]
    y, x = np.mgrid[:height, :width].astype(np.float32)
    wave = 4 * np.sin(x / 40) * np.cos(y / 50)
    drifted = cv2.remap(before, x + wave, y - wave, cv2.INTER_CUBIC, borderMode=cv2.BORDER_REFLECT)  # fmt: skip
    found = assessed(before, drifted, ASKED)
    assert "a few pixels away" in found.abstained["unchanged_regions"]
    assert "a few pixels away" in found.abstained["identity_preservation"]


def test_scores_are_stored_before_rounding_too() -> None:
    before = photograph()
    found = assessed(before, recoloured(before), ASKED)
    assert found.expected.keys() == found.scores.keys()
    assert all(abs(found.expected[key] - found.scores[key]) <= 0.5 for key in found.scores)  # fmt: skip
