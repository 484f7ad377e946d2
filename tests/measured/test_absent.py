"""A measure that could not be taken is absent, and no evidence that nothing is wrong."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import cv2
import numpy as np
import pytest

from editjudge.rubrics.files import resolve
from editjudge.vision.measured.assess import Subject, assess
from editjudge.vision.measured.calibration import Deduction, load
from editjudge.vision.measured.factors import MEASURED, score
from editjudge.vision.measured.measures import Measures, measure
from editjudge.vision.measured.scene import compose

from .made import Picture, photograph, recoloured

LEVELS = (0, 128, 255)


def measured(after: Picture, mask: Picture | None = None) -> Measures:
    return measure(compose(photograph(), after, mask))


def even(level: int, contrast: float = 0.0) -> Picture:
    return np.clip(level + contrast * (photograph() - 128.0), 0, 255).astype(np.uint8)


@pytest.mark.parametrize("level", LEVELS)
def test_no_measure_of_a_blank_picture_is_a_made_up_number(level: int) -> None:
    blank = even(level)
    values = measure(compose(blank, blank)).values
    assert all(math.isfinite(value) for value in values.values())
    assert not {
        "texture.lost",
        "seam.step",
        "light.slope against",
        "style.layout",
        "style.turned",
    } & set(values)


@pytest.mark.parametrize("contrast", [0.0, 0.05])
@pytest.mark.parametrize("level", LEVELS)
def test_a_picture_that_was_wiped_out_is_not_taken_for_one_in_another_light(
    level: int, contrast: float
) -> None:
    found = measured(even(level, contrast))
    assert found.values["change.visible share"] > 0.5
    assert load().score("unchanged_regions", found.values) < 2


def test_half_the_light_is_still_a_shift_of_all_colours() -> None:
    found = measured((photograph() * 0.5).astype(np.uint8))
    assert (
        found.values["change.tint"] > 10 and found.values["change.visible share"] < 0.01
    )


def test_a_term_whose_measure_or_trust_is_absent_takes_no_points() -> None:
    term = Deduction("seam.step", ((0.0, 0.0), (1.0, 6.0)), "trust.edit")
    assert not term.taken({"seam.step": 1.0}) and not term.taken({"trust.edit": 1.0})
    assert term.taken({"seam.step": 1.0, "trust.edit": 1.0})


def test_a_mask_over_the_whole_picture_leaves_nothing_that_should_have_stayed() -> None:
    everything = np.full(photograph().shape[:2], 255, np.uint8)
    finding = score(
        "unchanged_regions", measured(recoloured(photograph()), everything), load()
    )
    assert finding.score is None and "mask covers" in finding.reason


def test_a_gray_photograph_has_no_hues_that_could_turn() -> None:
    gray = np.repeat(
        cv2.cvtColor(photograph(), cv2.COLOR_RGB2GRAY)[..., None], 3, axis=2
    )
    sepia = np.clip(gray * (1.0, 0.85, 0.65), 0, 255).astype(np.uint8)
    found = measure(compose(gray, sepia))
    assert "style.turned" not in found.values and found.values["style.tinted"] > 5


@pytest.mark.parametrize("factor", MEASURED)
def test_a_factor_without_its_deciding_measures_abstains_and_says_why(
    factor: str,
) -> None:
    found = measured(np.flipud(photograph()).copy())
    kept = {
        name: found.values[name] for name in ("change.tint", "change.visible share")
    }
    bare = Measures(found.scene, found.change, kept | {"structure.recognisable": 1.0})
    finding = score(factor, bare, dataclasses.replace(load(), learnt=None))
    assert finding.score is None and len(finding.reason.split()) > 5


def _noise() -> Picture:
    return np.random.default_rng(0).integers(0, 256, photograph().shape, np.uint8)


def _thumbnail() -> Picture:
    small = cv2.resize(photograph(), (20, 16), interpolation=cv2.INTER_AREA)
    return cv2.resize(small, photograph().shape[1::-1], interpolation=cv2.INTER_CUBIC)


@pytest.mark.parametrize(
    "make",
    [
        lambda: even(0),
        lambda: even(255),
        lambda: even(128, 0.04),
        _noise,
        _thumbnail,
        lambda: 255 - photograph(1),
    ],
    ids=[
        "black",
        "white",
        "nearly even",
        "noise",
        "a thumbnail blown up",
        "another picture",
    ],
)
@pytest.mark.parametrize("masked", [False, True])
def test_whatever_comes_out_each_factor_has_a_score_or_a_reason_for_none(
    make: Callable[[], Picture], masked: bool
) -> None:
    found = measured(
        make(), np.full(photograph().shape[:2], 255, np.uint8) if masked else None
    )
    for factor in MEASURED:
        for calibration in (load(), dataclasses.replace(load(), learnt=None)):
            assert score(factor, found, calibration).reason


def test_what_was_to_be_added_does_not_excuse_that_everything_else_is_gone() -> None:
    wish = "Add a dog to the table."
    everywhere, there = (
        Subject({"input": photograph(), "edited": after}, wish)
        for after in (even(0), recoloured(photograph()))
    )
    assert everywhere.vs_input.values["trust.thing"] == 1.0
    assert there.vs_input.values["trust.thing"] == 0.0


def test_no_reason_claims_more_than_was_measured() -> None:
    tiny = photograph()
    tiny[100:104, 100:104] = 255
    for after in (
        photograph(),
        recoloured(photograph()),
        (photograph() * 0.5).astype(np.uint8),
        tiny,
        even(0),
    ):
        for rubric in resolve(["preservation", "quality"]):
            said = assess(
                rubric,
                Subject({"input": photograph(), "edited": after}, "recolour it"),
                load(),
            )
            assert all(
                "no further measure" not in reason
                for reason in said.justifications.values()
            )
