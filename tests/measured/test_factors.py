"""Each factor answers to its own defect, and no other does by as much."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import cv2
import numpy as np
import pytest

from editjudge.rubrics.files import resolve
from editjudge.vision.measured.assess import Subject, assess
from editjudge.vision.measured.calibration import load

from .made import Picture, jpeg, mix, photograph, recoloured, region, scores

DOSES = (0.25, 0.5, 0.75, 1.0)
PHOTOGRAPHS = (0, 1)


def _noise(shape: tuple[int, ...]) -> Picture:
    return np.random.default_rng(5).normal(0, 1, shape)


def _outside(picture: Picture) -> Picture:
    return (
        1
        - cv2.dilate(
            (region(picture.shape, 0) > 0).astype(np.uint8), np.ones((15, 15), np.uint8)
        )[..., None]
    )


def leak(edit: Picture, dose: float) -> Picture:
    wave = cv2.GaussianBlur(_noise(edit.shape).astype(np.float32), (0, 0), 10)
    return np.clip(
        edit + _outside(edit) * wave / wave.std() * 35 * dose, 0, 255
    ).astype(np.uint8)


def tint(edit: Picture, dose: float) -> Picture:
    return mix(edit, np.full_like(edit, (255, 150, 40)), 0.45 * dose)


def replaced(edit: Picture, dose: float) -> Picture:
    return mix(
        edit, np.roll(photograph(2), (110, 150), (0, 1)), region(edit.shape) * dose
    )


def smeared(edit: Picture, dose: float) -> Picture:
    return mix(edit, cv2.GaussianBlur(edit, (0, 0), 0.4 + 3 * dose), region(edit.shape))


def speckled(edit: Picture, dose: float) -> Picture:
    return mix(edit, edit + _noise(edit.shape) * 40 * dose, region(edit.shape))


def compressed(edit: Picture, dose: float) -> Picture:
    return jpeg(edit, round(70 - 64 * dose))


def blurred(edit: Picture, dose: float) -> Picture:
    return cv2.GaussianBlur(edit, (0, 0), 0.4 + 2.2 * dose)


def relit(edit: Picture, dose: float) -> Picture:
    """Up to 1.5 stops: where more of it clips, the thing is another drawing, and its light is not judged."""
    ramp = np.clip((np.arange(edit.shape[1]) - 150) / 120, 0, 1)[None, :, None] - 0.5
    return mix(
        edit, np.clip(edit * 2 ** (1.5 * dose * ramp), 0, 255), region(edit.shape)
    )


def seamed(edit: Picture, dose: float) -> Picture:
    """The mask was cut a little beyond the thing, and what lies between was brightened with it."""
    cut = cv2.dilate(region(edit.shape, 0), np.ones((25, 25), np.uint8))[..., None]
    return mix(edit, np.clip(edit + 60.0 * dose, 0, 255), cut)


DEFECTS: dict[str, tuple[str, Callable[[Picture, float], Picture]]] = {
    "leak": ("unchanged_regions", leak),
    "tint": ("global_consistency", tint),
    "replaced": ("identity_preservation", replaced),
    "smeared": ("texture_and_detail", smeared),
    "speckled": ("texture_and_detail", speckled),
    "compressed": ("image_quality", compressed),
    "blurred": ("image_quality", blurred),
    "relit": ("color_and_lighting", relit),
    "seamed": ("seamlessness", seamed),
}

ALSO = {"seamed": ("color_and_lighting",), "tint": ("unchanged_regions",)}
"""A rim inside which all is brighter is a fault of light too."""


@pytest.mark.parametrize("seed", PHOTOGRAPHS)
@pytest.mark.parametrize("defect", DEFECTS)
def test_a_factor_falls_with_the_dose_of_its_own_defect(defect: str, seed: int) -> None:
    factor, make = DEFECTS[defect]
    before = photograph(seed)
    clean = recoloured(before)
    found = [
        scores(before, clean)[factor],
        *(scores(before, make(clean, dose))[factor] for dose in DOSES),
    ]
    assert found[0] > 5.4, "the clean edit is no defect"
    assert all(
        later <= earlier + 0.3 for earlier, later in itertools.pairwise(found)
    ), found
    assert found[0] - found[-1] > 2, found


@pytest.mark.parametrize("defect", DEFECTS)
def test_other_factors_move_less_than_half_as_much(defect: str) -> None:
    factor, make = DEFECTS[defect]
    before = photograph()
    clean = recoloured(before)
    first = scores(before, clean)
    last = scores(before, make(clean, 1.0))
    moved = {name: first[name] - last[name] for name in first}
    allowed = {factor, *ALSO.get(defect, ())}
    assert all(
        moved[name] < moved[factor] / 2 for name in moved if name not in allowed
    ), moved


@pytest.mark.parametrize(
    ("instruction", "counts"),
    [
        ("Make the middle blue.", True),
        ("Keep the address on the sign.", True),
        ("Add a dog to the middle.", False),
        ("Removing the person would be nice", False),
        ("replace the cup with a bowl", False),
    ],
)
def test_what_was_to_be_drawn_anew_is_no_loss_of_identity(
    instruction: str, counts: bool
) -> None:
    before = photograph(0)
    after = replaced(recoloured(before), 1.0)
    (rubric,) = resolve(["preservation"])
    found = assess(
        rubric, Subject({"input": before, "edited": after}, instruction), load()
    ).scores
    assert (
        (found["identity_preservation"] <= 4)
        if counts
        else (found["identity_preservation"] >= 6)
    )
