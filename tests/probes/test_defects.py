"""Defects grow with their dose, stay where they belong, and figures are those that SciPy computes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import cv2
import numpy as np
import pytest
from scipy import stats

from editjudge.vision.probes import drawing
from editjudge.vision.probes.defects import FAMILIES, Defect, ProbeScene
from editjudge.vision.probes.drawing import NAMES, photograph
from editjudge.vision.probes.making import Probe
from editjudge.vision.probes.result import DoseResponse, figures

from .made import answers, several

SCENE = ProbeScene(photograph(1, 0), 1, 0)
BY_NAME = {family.name: family for family in FAMILIES}
INSIDE = ("smeared", "noisy", "relit", "replaced")
"""Defects that leave alone what the clean edit left alone."""


def made(family: Defect) -> tuple[Any, list[Any]]:
    clean = SCENE.clean(family.base)
    return clean, [family.make(SCENE, clean, dose) for dose in family.doses]


@pytest.mark.parametrize(
    "name", sorted(BY_NAME.keys() - {"misspelt", "malformed", "misplaced"})
)
def test_a_larger_dose_is_farther_from_the_clean_edit(name: str) -> None:
    clean, pictures = made(BY_NAME[name])
    away = [float(np.abs(picture - clean).mean()) for picture in pictures]
    assert away[0] > 0 and all(b > a for a, b in pairwise(away)), away
    assert all(
        picture.shape == clean.shape and 0 <= picture.min() <= picture.max() <= 1
        for picture in pictures
    )


@pytest.mark.parametrize("name", INSIDE)
def test_a_defect_of_the_target_leaves_the_rest_alone(name: str) -> None:
    clean, pictures = made(BY_NAME[name])
    place = SCENE.photograph.entity.grown(1.6) if name == "replaced" else None
    near = place.drawn(clean.shape) if place else SCENE.region(clean, 24, soft=0)
    for picture in pictures:
        assert float((np.abs(picture - clean) * (near < 0.5)).max()) < 0.02


def test_a_leak_stains_the_share_that_its_dose_says() -> None:
    clean, pictures = made(BY_NAME["leak"])
    outside = SCENE.region(clean, 12, soft=0)[..., 0] < 0.5
    for picture, share in zip(pictures, BY_NAME["leak"].doses, strict=True):
        stained = np.abs(picture - clean).max(axis=2) > 0.02
        assert stained[outside].mean() == pytest.approx(share, abs=0.4 * share + 0.03)


def test_noise_has_the_deviation_that_its_dose_says() -> None:
    grain = drawing.grain((200, 200, 3), 3)
    assert grain.std() == pytest.approx(1, abs=0.05) and abs(grain.mean()) < 0.02
    np.testing.assert_array_equal(grain, drawing.grain((200, 200, 3), 3))


def test_a_tint_moves_all_colours_by_its_dose_in_lab() -> None:
    grey = np.full((40, 40, 3), 0.5, np.float32)
    for dose in BY_NAME["tint"].doses:
        moved = drawing.to_lab(
            BY_NAME["tint"].make(SCENE, grey, dose)
        ) - drawing.to_lab(grey)
        assert float(np.linalg.norm(moved, axis=2).mean()) == pytest.approx(
            dose, rel=0.05
        )


def test_a_blur_is_that_of_a_gaussian() -> None:
    clean, pictures = made(BY_NAME["blurred"])
    for picture, sigma in zip(pictures, BY_NAME["blurred"].doses, strict=True):
        np.testing.assert_allclose(
            picture, cv2.GaussianBlur(clean, (0, 0), sigma), atol=0.01
        )


def test_a_misspelling_has_as_many_wrong_letters_as_its_dose(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words: list[str] = []

    def lettering(picture: Any, place: Any, word: str, warp: float = 0.0) -> Any:
        words.append(word)
        return picture

    monkeypatch.setattr(drawing, "lettering", lettering)
    for dose in BY_NAME["misspelt"].doses:
        BY_NAME["misspelt"].make(SCENE, SCENE.image, dose)
        assert (
            sum(a != b for a, b in zip(words[-1], SCENE.sign_text, strict=True)) == dose
        )


def test_the_same_seed_makes_the_same_picture_and_another_seed_another_set() -> None:
    again = ProbeScene(photograph(1, 0), 1, 0)
    np.testing.assert_array_equal(again.clean("recolour"), SCENE.clean("recolour"))
    other = ProbeScene(photograph(1, 1), 1, 1)
    assert other.sign_text != SCENE.sign_text or other.colours != SCENE.colours
    assert len({photograph(i, 0).name for i in range(len(NAMES))}) == len(NAMES)


def uneven(probe: Probe, rubric: str, factor: str) -> int | None:
    """Falls unevenly, is silent now and then, and not alike for each photograph."""
    number = sum(map(ord, probe.photograph + factor))
    if probe.dose and (number + probe.dose) % 5 == 0:
        return None
    return (
        7 - probe.dose + (number + probe.dose) % 2
        if rubric not in {"compliance", "lighting"}
        else None
    )


def test_slopes_and_correlations_are_those_of_scipy() -> None:
    probes = several(5)
    answered = list(answers(probes, uneven))
    result = figures(probes, answered)
    said = {(a.item, a.rubric): a.scores for a in answered}
    own = [s.own for s in result.sensitivities if s.own.rubric == "preservation"]
    assert own
    for one in own:
        dose, score, photo = _points(one, probes, said)
        pooled = stats.spearmanr(dose, score).statistic
        assert one.spearman == pytest.approx(pooled)
        slopes = []
        for name in dict.fromkeys(photo):
            here = photo == name
            if here.sum() >= 3 and dose[here].min() == 0:
                slopes.append(stats.linregress(dose[here], score[here]).slope)
        assert one.slope == pytest.approx(np.mean(slopes))
        for level, mean in enumerate(one.means):
            assert mean == pytest.approx(score[dose == level].mean())
        assert (
            one.ok == len(dose) and one.ok + one.abstained == one.n and not one.failed
        )


def _points(one: DoseResponse, probes: list[Probe], said: Any) -> tuple[Any, Any, Any]:
    base = f"clean {BY_NAME[one.family].base}"
    rows = [
        (probe.dose, scores[one.factor], probe.photograph)
        for probe in probes
        if (probe.family == one.family or probe.control == base)
        and one.factor in (scores := said[probe.edit.id, one.rubric])
    ]
    dose, score, photo = zip(*rows, strict=True)
    return np.array(dose), np.array(score, float), np.array(photo)
