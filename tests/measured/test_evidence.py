"""Colours by name, lighting lists, registration, words and contradictions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cv2
import numpy as np
import pytest

from editjudge.report.gallery import BESIDE
from editjudge.rubrics.files import resolve
from editjudge.rubrics.scale import Scale
from editjudge.vision.contradictions import contradictions
from editjudge.vision.measured import forest, illumination, relighting
from editjudge.vision.measured.assess import Subject, assess
from editjudge.vision.measured.calibration import load
from editjudge.vision.measured.change import find_change
from editjudge.vision.measured.factors import (
    LIGHTING,
    MADE,
    PRESERVED,
    UNDERSTOOD,
    bounded,
    on_scale,
    percent,
    position,
)
from editjudge.vision.measured.proof import asked_colour, missing_colour
from editjudge.vision.measured.relighting import differences
from editjudge.vision.measured.scene import compose

from .made import Picture, jpeg, mix, photograph, recoloured, region, scores


@pytest.mark.parametrize(
    ("instruction", "colour"),
    [
        ("Change the dress to blue", "blue"),
        ("make the cat's nose black", "black"),
        ("Let the van turn black.", "black"),
        ("turn the red car green", None),
        ("add a blue bird", None),
        ("make it look like the Black Forest", None),
    ],
)
def test_a_colour_is_asked_for_only_where_something_is_to_become_it(
    instruction: str, colour: str | None
) -> None:
    assert asked_colour(instruction) == colour


def _painted(colour: tuple[int, int, int]) -> tuple[Picture, Picture]:
    before = photograph()
    return before, mix(
        before, np.full_like(before, colour), region(before.shape) * 0.85
    )


def test_a_colour_that_is_not_in_what_changed_is_missing() -> None:
    scene = compose(*_painted((40, 160, 60)))
    assert missing_colour("make it blue", scene, find_change(scene)) is not None
    assert missing_colour("make it green", scene, find_change(scene)) is None
    assert missing_colour("make it bigger", scene, find_change(scene)) is None


def _marks(before: Picture, after: Picture) -> set[str]:
    scene = compose(before, after)
    return {mark for _, mark in differences(scene, find_change(scene))}


def test_light_from_one_side_is_allowed_and_a_new_thing_is_not() -> None:
    before = photograph()
    ramp = np.linspace(0.6, 1.3, before.shape[1])[None, :, None]
    lit = np.clip(before * ramp, 0, 255).astype(np.uint8)
    assert _marks(before, lit) == {"allowed"}
    changed = mix(lit, np.roll(photograph(2), (110, 150), (0, 1)), region(before.shape))
    assert _marks(before, changed) & {"not allowed", "unsure"}


def test_an_arrow_in_the_input_is_ignored() -> None:
    scene = photograph()
    marked = scene.copy()
    cv2.arrowedLine(marked, (60, 60), (150, 150), (255, 30, 30), 9, cv2.LINE_AA)
    assert _marks(marked, scene) <= {"ignored", "allowed"}
    assert "ignored" in _marks(marked, scene)


@pytest.mark.parametrize("colour", [(255, 30, 30), (250, 220, 20)])
def test_a_spotlight_is_allowed_also_where_an_arrow_asked_for_it(
    colour: tuple[int, int, int],
) -> None:
    before = photograph()
    ys, xs = np.mgrid[: before.shape[0], : before.shape[1]]
    spot = np.exp(-(((xs - 250) / 84) ** 2) - ((ys - 136) / 68) ** 2)[..., None]
    lit = np.clip(before * (0.6 + 1.3 * spot), 0, 255).astype(np.uint8)
    assert _marks(before, lit) == {"allowed"}
    marked = before.copy()
    cv2.arrowedLine(marked, (84, 68), (189, 136), colour, 7, cv2.LINE_AA, tipLength=0.3)
    assert _marks(marked, lit) == {"allowed", "ignored"}


def _shade(shape: tuple[int, ...]) -> Picture:
    """Soft patches of shade, as under a tree."""
    noise = np.random.default_rng(0).normal(size=shape[:2]).astype(np.float32)
    patches = cv2.GaussianBlur(noise, (0, 0), 9.0)
    return 0.5 + 0.5 * np.tanh(patches / patches.std() / 0.4)[..., None]


@pytest.mark.parametrize("number", range(3))
def test_dappled_shade_and_a_glow_are_light_and_another_photograph_is_not(
    number: int,
) -> None:
    before = photograph(number)
    shape = before.shape
    dappled = (before * (1 - 0.45 * _shade(shape))).astype(np.uint8)
    ys, xs = np.mgrid[: shape[0], : shape[1]]
    glow = np.exp(-(((xs - 300) / 90) ** 2) - ((ys - 80) / 90) ** 2)[..., None]
    sunny = np.clip(before + 120 * glow * (1.0, 0.85, 0.5), 0, 255).astype(np.uint8)
    assert _lighting(before, dappled) == 1
    assert _lighting(before, sunny) == 1
    other = np.roll(photograph(number + 1), (60, 90), (0, 1))
    assert _lighting(before, mix(dappled, other, region(shape))) == 0


def _lighting(before: Picture, after: Picture) -> float | None:
    (rubric,) = resolve(["lighting"])
    found = assess(rubric, Subject({"input": before, "edited": after}), load())
    return found.scores.get(LIGHTING)


def test_a_part_that_light_may_explain_is_abstained_from_with_its_position(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = photograph()
    ramp = np.linspace(0.6, 1.3, before.shape[1])[None, :, None]
    lit = np.clip(before * ramp, 0, 255).astype(np.uint8)
    doubtful = replace(forest.load(illumination.FILE), allowed=0.0, changed=1.0)
    monkeypatch.setattr(relighting, "load", lambda _: doubtful)
    (rubric,) = resolve(["lighting"])
    found = assess(rubric, Subject({"input": before, "edited": lit}), load())
    assert not found.scores
    assert "whole picture" in found.abstained[LIGHTING]


@pytest.mark.parametrize(
    "same",
    [
        lambda p: jpeg(p, 75),
        lambda p: cv2.resize(
            p, (p.shape[1] * 2, p.shape[0] * 2), interpolation=cv2.INTER_CUBIC
        ),
        lambda p: cv2.resize(
            p, (p.shape[1] // 8 * 8, p.shape[0] // 8 * 8), interpolation=cv2.INTER_AREA
        ),
        lambda p: cv2.warpAffine(
            p,
            np.array([[1, 0, 3], [0, 1, -2]], np.float32),
            p.shape[1::-1],
            borderMode=cv2.BORDER_REFLECT,
        ),
    ],
)
def test_encoding_again_another_size_and_a_small_shift_are_no_edit(same: Any) -> None:
    before = photograph()
    scene = compose(before, same(before))
    assert find_change(scene).nothing
    assert round(scores(before, same(before))["unchanged_regions"]) == 7


def test_a_crop_is_laid_where_it_came_from() -> None:
    before = photograph()
    scene = compose(before, before[:, 40:-40])
    assert find_change(scene).nothing and scene.valid.mean() < 1


def test_words_say_where_and_how_much() -> None:
    part = np.zeros((90, 90))
    part[70:80, 5:15] = 1
    assert (
        position(part) == "lower left"
        and position(np.ones((9, 9))) == "whole picture"
        and position(part * 0) == "nowhere"
    )
    assert [percent(x) for x in (0, 0.001, 0.124, 0.999, 1)] == [
        "0 %",
        "under 1 %",
        "12 %",
        "over 99 %",
        "100 %",
    ]
    longer = bounded(
        "This sentence is too short.",
        (15, 30),
        "measured over the whole picture at 512 by 512 pixels.",
    )
    assert 15 <= len(longer.split()) <= 30
    assert len(bounded("word " * 40, (10, 25), "").split()) == 25


def test_scores_keep_their_place_on_other_scales() -> None:
    assert [on_scale(s, Scale((5, 3, 1))) for s in (1.0, 4.0, 7.0)] == [1, 3, 5]
    assert [on_scale(s, Scale((0, 1))) for s in (1.0, 7.0)] == [0, 1]
    assert on_scale(6.5, Scale(tuple(range(1, 8)))) == 6
    assert [on_scale(s, Scale(range=(0, 1))) for s in (1.0, 4.0, 7.0)] == [0, 0.5, 1]
    assert [
        on_scale(s, Scale(range=(0, 1), step=0.5, direction="down"))
        for s in (1.0, 5.4, 7.0)
    ] == [1, 0.5, 0]
    with pytest.raises(ValueError, match="open end"):
        on_scale(4.0, Scale(range=(0, None)))


def _evidence(**measures: float) -> dict[str, Any]:
    return {
        "measures": {
            name.replace("__", "."): {"value": v, "unit": ""}
            for name, v in measures.items()
        }
    }


def test_a_verdict_is_held_against_the_evidence() -> None:
    leaking: dict[str, Any] = {
        "measures": {"change.visible outside": {"value": 0.34, "unit": "share"}}
    }
    (found,) = contradictions({"unchanged_regions": 7}, {}, leaking)
    assert found.factor == "unchanged_regions" and "34%" in found.measured
    assert contradictions({"unchanged_regions": 3}, {}, leaking) == []
    assert contradictions({"unchanged_regions": 7}, {}, {}) == []


@pytest.mark.parametrize(
    ("reason", "refuted"),
    [
        ("No visible change.", True),
        ("There is no visible difference between the two images.", True),
        ("Nothing was changed at all; the request was ignored.", True),
        ("The edited image is identical to the original.", True),
        ("No change was made to the car; instead the sky was repainted.", False),
        ("No changes were made to the dog.", False),
        ("The car shows no change, but the sky does.", False),
        ("No change was made. However, the sky was repainted.", False),
    ],
)
def test_only_a_sentence_about_the_whole_picture_says_that_nothing_changed(
    reason: str, refuted: bool
) -> None:
    repainted = _evidence(**{"change__visible share": 0.4})
    assert (
        bool(contradictions({"alignment": 1}, {"alignment": reason}, repainted))
        is refuted
    )


@pytest.mark.parametrize(
    ("instruction", "refuted"),
    [("blur the whole picture strongly", False), ("make the cup blue", True)],
)
def test_a_change_everywhere_that_was_asked_for_refutes_no_praise(
    instruction: str, refuted: bool
) -> None:
    before = photograph()
    (rubric,) = resolve(["preservation"])
    blurred = cv2.GaussianBlur(before, (0, 0), 4)
    evidence = assess(
        rubric, Subject({"input": before, "edited": blurred}, instruction), load()
    ).evidence
    assert (
        bool(contradictions({"unchanged_regions": 7, "image_quality": 7}, {}, evidence))
        is refuted
    )


def test_nothing_changed_refutes_that_something_was_done() -> None:
    idle = _evidence(change__share=0.0) | {"nothing changed": True}
    assert [
        c.factor for c in contradictions({"alignment": 6, "completeness": 1}, {}, idle)
    ] == ["alignment"]


@pytest.mark.parametrize(
    ("scale", "praise", "fair"),
    [
        (Scale(tuple(range(1, 8))), 6, 5),
        (Scale((0, 1)), 1, 0),
        (Scale((5, 3, 1)), 5, 3),
        (Scale(range=(0, 100)), 84, 70),
        (Scale(range=(0, 1), direction="down"), 0.1, 0.3),
    ],
)
def test_a_claim_is_read_from_its_place_on_its_own_scale(
    scale: Scale, praise: float, fair: float
) -> None:
    leaking = _evidence(**{"change__visible outside": 0.34})
    scales = {"unchanged_regions": scale}
    assert len(contradictions({"unchanged_regions": praise}, {}, leaking, scales)) == 1
    assert contradictions({"unchanged_regions": fair}, {}, leaking, scales) == []


def test_a_perfect_one_of_zero_and_one_is_no_condemnation() -> None:
    small = _evidence(change__differing=0.001)
    scales = {"unchanged_regions": Scale((0, 1))}
    assert contradictions({"unchanged_regions": 1}, {}, small, scales) == []
    assert len(contradictions({"unchanged_regions": 0}, {}, small, scales)) == 1


@pytest.mark.parametrize(
    ("kind", "factors"),
    [
        (
            "flat",
            {
                "unchanged_regions",
                "image_quality",
                "alignment",
                "effect_score",
                "Contextual_Preservation",
            },
        ),
        (
            "near_flat",
            {
                "unchanged_regions",
                "image_quality",
                "alignment",
                "effect_score",
                "Contextual_Preservation",
            },
        ),
        (
            "noise",
            {
                "unchanged_regions",
                "image_quality",
                "alignment",
                "effect_score",
                "Contextual_Preservation",
            },
        ),
        ("tile", {"unchanged_regions", "image_quality", "Contextual_Preservation"}),
        ("upscaled", {"unchanged_regions", "image_quality", "Contextual_Preservation"}),
        (
            "thumbnail",
            {"unchanged_regions", "image_quality", "Contextual_Preservation"},
        ),
        (
            "partly_blank",
            {"unchanged_regions", "image_quality", "Contextual_Preservation"},
        ),
        ("unrelated", {"unchanged_regions", "Contextual_Preservation"}),
        ("mirrored", {"unchanged_regions"}),
    ],
)
def test_praise_of_an_output_that_is_no_edit_is_contradicted_and_blame_is_not(
    kind: str, factors: set[str]
) -> None:
    evidence = _evidence(change__share=0.0) | {
        "degenerate": {"kind": kind, "words": "is no edit"}
    }
    best = {
        "unchanged_regions": 7,
        "image_quality": 7,
        "alignment": 7,
        "effect_score": 5,
        "Contextual_Preservation": 1,
    }
    worst = dict.fromkeys(best, 1) | {"Contextual_Preservation": 0}
    assert {c.factor for c in contradictions(best, {}, evidence)} == factors
    assert contradictions(worst, {}, evidence) == []


def test_who_rightly_fails_a_black_frame_is_not_contradicted() -> None:
    (asked,) = resolve(["preservation"])
    before = photograph()
    evidence = assess(
        asked,
        Subject({"input": before, "edited": before * 0}, "make the cup blue"),
        load(),
    ).evidence
    failed = dict.fromkeys(
        ("unchanged_regions", "global_consistency", "identity_preservation"), 1
    )
    assert (
        contradictions(
            failed, dict.fromkeys(failed, "no difference can be seen"), evidence
        )
        == []
    )
    assert len(contradictions(dict.fromkeys(failed, 7), {}, evidence)) == 3


def test_a_clean_edit_is_contradicted_by_nobody_who_praises_it() -> None:
    before = photograph()
    found = scores(before, recoloured(before))
    assert min(found.values()) > 4


def test_the_gallery_leaves_out_exactly_the_factors_of_whether_it_was_done() -> None:
    assert {*PRESERVED, LIGHTING, *MADE, *UNDERSTOOD} == BESIDE
