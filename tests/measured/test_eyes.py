"""The network: it sees what is there, the same way every time, and keeps nobody's edits."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from skimage import data

from editjudge.rubrics.files import resolve
from editjudge.vision.measured import network as eyes
from editjudge.vision.measured.assess import Subject, assess
from editjudge.vision.measured.calibration import features, gathered, load
from editjudge.vision.measured.factors import score
from editjudge.vision.measured.measures import Measures, measure
from editjudge.vision.measured.scene import compose

from .made import Picture, photograph, recoloured, region

QUALITY = ("texture_and_detail", "image_quality", "color_and_lighting", "seamlessness")
photographs: Any = data  # scikit-image has no types for them


def square(picture: Picture) -> Picture:
    height, width = picture.shape[:2]
    side = min(height, width)
    top = (height - side) // 2
    left = (width - side) // 2
    return cv2.resize(
        picture[top : top + side, left : left + side],
        (224, 224),
        interpolation=cv2.INTER_AREA,
    )


@pytest.mark.parametrize(
    ("name", "classes"),
    [("chelsea", {281, 282, 285}), ("coffee", {967, 968}), ("rocket", {657, 744})],
    ids=["a cat", "a cup of coffee", "a rocket"],
)
def test_the_network_names_what_known_photographs_show(
    name: str, classes: set[int]
) -> None:
    seen = eyes.see(square(getattr(photographs, name)()))
    assert int(np.argmax(seen["classes"])) in classes


def test_weights_that_were_not_fitted_to_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other.onnx"
    other.write_bytes(eyes.FILE.read_bytes()[:-1] + b"x")
    monkeypatch.setattr(eyes, "FILE", other)
    with pytest.raises(RuntimeError, match=r"other\.onnx: digest"):
        eyes._session.__wrapped__()


def _measured() -> Measures:
    return measure(compose(photograph(), recoloured(photograph())))


def test_the_same_edit_is_placed_alike_whatever_the_number_of_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import onnxruntime

    learnt = load().learnt
    assert learnt is not None
    first = learnt.rank(_measured())
    assert learnt.rank(_measured()) == first
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 3
    session = onnxruntime.InferenceSession(
        str(eyes.FILE), options, providers=["CPUExecutionProvider"]
    )
    monkeypatch.setattr(eyes, "_session", lambda: session)
    assert learnt.rank(_measured()) == pytest.approx(first, abs=1e-3)


def test_what_was_learnt_is_a_weight_for_each_number_and_no_rated_edit() -> None:
    learnt = load().learnt
    assert learnt is not None
    for one in learnt.regressors:
        assert (
            one.weights.shape == (len(one.mean) + 1,)
            and one.scale.shape == one.mean.shape
        )
        assert len(one.mean) == len(
            gathered(one.parts, _measured().values, _measured().features)
        )


def test_what_is_unlike_every_rated_edit_moves_the_answer_less() -> None:
    mean = np.zeros(40)
    scale = np.ones(40)
    usual, odd = features(np.full((2, 40), [[1.0], [4.0]]), mean, scale)
    assert abs(odd[1:]).sum() < abs(usual[1:]).sum() and odd[0] < usual[0]


def test_what_was_not_measured_is_as_in_the_mean_edit() -> None:
    mean = np.full(3, 5.0)
    scale = np.ones(3)
    known, unknown = features(
        np.array([[5.0, 6.0, 5.0], [np.nan, 6.0, np.nan]]), mean, scale
    )
    assert np.array_equal(known, unknown)


def test_the_edit_is_looked_at_from_nearby() -> None:
    top, bottom, left, right = eyes.edit_box(region(photograph().shape, 0)[..., 0] > 0)
    height, width = photograph().shape[:2]
    assert (
        top * height < 110
        and bottom * height > 240
        and left * width < 150
        and right * width > 270
    )
    assert (bottom - top) * (right - left) < 0.5


def test_where_the_learnt_part_decides_the_reason_says_what_it_is() -> None:
    result = _measured()
    learnt = load().learnt
    assert learnt is not None
    learnt._ranks[result] = 0.34
    for factor in QUALITY:
        finding = score(factor, result, load())
        assert finding.score == pytest.approx(
            7 - learnt.points * 0.66 - learnt.offsets[factor]
        )
        assert (
            f"fitted to {learnt.edits} rated edits" in finding.reason
            and "34 %" in finding.reason
        )


def test_where_the_factors_own_measure_decides_the_reason_names_it() -> None:
    blurred = cv2.GaussianBlur(recoloured(photograph()), (0, 0), 3)
    found = measure(compose(photograph(), blurred))
    finding = score("image_quality", found, load())
    lost = re.search(r"lost (\d\.\d) octaves of fine detail", finding.reason)
    assert (
        lost
        and float(lost[1]) == round(found.values["overall.blur"], 1)
        and "rated edits" not in finding.reason
    )


def test_an_edit_that_changed_nothing_is_placed_nowhere() -> None:
    found = measure(compose(photograph(), photograph()))
    assert all(load().rank(factor, found) is None for factor in QUALITY)


def test_only_the_quality_factors_have_a_learnt_part() -> None:
    subject = Subject(
        {"input": photograph(), "edited": recoloured(photograph())}, "recolour it"
    )
    evidence = {
        rubric.name: assess(rubric, subject, load()).evidence
        for rubric in resolve(["preservation", "quality"])
    }
    assert not any(
        "learnt" in points for points in evidence["preservation"]["points"].values()
    )
    assert all("learnt" in evidence["quality"]["points"][factor] for factor in QUALITY)


def test_no_reason_is_cut_off_by_the_rubrics_word_limit() -> None:
    truth = recoloured(photograph())
    pictures = [
        truth,
        (truth * 0.5).astype(np.uint8),
        photograph(),
        np.flipud(truth).copy(),
    ]
    for edited in pictures:
        subject = Subject(
            {"input": photograph(), "edited": edited, "ground_truth": truth},
            "recolour it",
        )
        for rubric in resolve(["preservation", "quality", "reference"]):
            assert rubric.answer.words
            unbounded = dataclasses.replace(
                rubric, answer=dataclasses.replace(rubric.answer, words=None)
            )
            for reason in assess(unbounded, subject, load()).justifications.values():
                assert len(reason.split()) <= rubric.answer.words[1], reason
