"""Each measure against an independent computation, and the properties that every measure must have."""

from __future__ import annotations

import io
from itertools import pairwise
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy import stats
from skimage import color
from skimage.metrics import structural_similarity

from editjudge.media.image import decode
from editjudge.rubrics.files import load as rubric
from editjudge.vision.measured.assess import Subject, assess
from editjudge.vision.measured.calibration import load
from editjudge.vision.measured.change import find_change
from editjudge.vision.measured.degenerate import find_degenerate
from editjudge.vision.measured.factors import percent, position
from editjudge.vision.measured.lettering import edit_distance
from editjudge.vision.measured.measures import (
    Measures,
    _palette,
    _slope,
    measure,
    statistics,
)
from editjudge.vision.measured.network import see
from editjudge.vision.measured.resemblance import correlation
from editjudge.vision.measured.scene import area, compose, fit, to_lab
from editjudge.vision.measured.structure import structure_map, weighted_median

from .made import Picture, mix, photograph, recoloured, region

SMALL = cv2.resize(photograph(), (210, 170), interpolation=cv2.INTER_AREA)
EDITED = cv2.resize(recoloured(photograph()), (210, 170), interpolation=cv2.INTER_AREA)
INSIDE = cv2.resize(
    region(photograph().shape)[..., 0], (210, 170), interpolation=cv2.INTER_AREA
)[..., None]
seeds = st.integers(0, 2**32 - 1)


def values(
    before: Picture, after: Picture, mask: Picture | None = None
) -> dict[str, float]:
    return dict(measure(compose(before, after, mask)).values)


def noise(seed: int, shape: tuple[int, ...] = SMALL.shape) -> Picture:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


# --- against an independent computation -----------------------------------------------------------------------


@given(seeds)
@settings(max_examples=10, deadline=None)
def test_lab_is_that_of_scikit_image(seed: int) -> None:
    picture = noise(seed, (8, 9, 3))
    lab = color.rgb2lab
    np.testing.assert_allclose(to_lab(picture), lab(picture), atol=0.6)


@given(seeds, st.integers(1, 40))
@settings(max_examples=30, deadline=None)
def test_a_weighted_median_is_the_median_of_repeated_values(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    numbers = rng.normal(size=n)
    weights = rng.integers(0, 5, n)
    repeated = np.sort(np.repeat(numbers, weights))
    median = weighted_median(numbers, weights.astype(float))
    if not len(repeated):
        assert np.isnan(median)
    else:
        assert median == repeated[(len(repeated) - 1) // 2]


@given(seeds)
@settings(max_examples=10, deadline=None)
def test_the_distance_of_palettes_is_a_sliced_wasserstein_distance(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(2, 50, 3)) * 20
    angles = np.linspace(0, np.pi, 6, endpoint=False)
    light = stats.wasserstein_distance(a[:, 0], b[:, 0])
    hues = [
        stats.wasserstein_distance(
            a[:, 1:] @ (np.cos(t), np.sin(t)), b[:, 1:] @ (np.cos(t), np.sin(t))
        )
        for t in angles
    ]
    assert _palette(a, b) == pytest.approx(np.hypot(light, max(hues)))
    assert _palette(a, b) == pytest.approx(_palette(b, a)) and _palette(a, a) == 0


@given(seeds)
@settings(max_examples=20, deadline=None)
def test_a_correlation_is_that_of_scipy(seed: int) -> None:
    a, b = np.random.default_rng(seed).normal(size=(2, 6, 7)) * 30
    assert correlation(a, b) == pytest.approx(
        stats.pearsonr(a.ravel(), b.ravel()).statistic
    )


@pytest.mark.parametrize("shape", [0.6, 1.0, 2.0, 4.0])
def test_the_shape_of_a_generalised_gaussian_is_found_again(shape: float) -> None:
    sample = stats.gennorm(shape).rvs((200, 200), random_state=0)
    found = statistics(sample)
    assert found["shape"] == pytest.approx(shape, rel=0.08)
    assert found["spread"] == pytest.approx(sample.std(), rel=0.02)


@given(st.text("abc", min_size=1, max_size=5), st.text("abc", max_size=6))
@settings(max_examples=60, deadline=None)
def test_the_distance_of_texts_is_the_least_number_of_changes(
    wanted: str, text: str
) -> None:
    def edits(a: str, b: str) -> int:
        if not a or not b:
            return len(a) + len(b)
        return min(
            edits(a[1:], b) + 1,
            edits(a, b[1:]) + 1,
            edits(a[1:], b[1:]) + (a[0] != b[0]),
        )

    assert edit_distance(wanted, text) == edits(wanted, text)


def test_local_structure_is_the_local_correlation_of_lightness() -> None:
    """At the middle of one window; scikit-image's SSIM of the same planes falls where it does."""
    scene = compose(SMALL, np.ascontiguousarray(cv2.GaussianBlur(EDITED, (0, 0), 3)))
    likeness, _ = structure_map(scene, light=True)
    a, b = (
        cv2.GaussianBlur(area(v.lightness, likeness.shape[::-1]), (7, 7), 1.0)
        for v in (scene.before, scene.after)
    )
    for y, x in ((40, 60), (85, 105), (120, 30)):
        p, q = (plane[y - 4 : y + 5, x - 4 : x + 5].astype(float) for plane in (a, b))
        covariance = ((p - p.mean()) * (q - q.mean())).mean()
        assert likeness[y, x] == pytest.approx(
            (covariance + 9) / (p.std() * q.std() + 9), abs=1e-3
        )
    similarity: Any = structural_similarity
    _, local = similarity(a, b, win_size=9, data_range=100, full=True)
    assert stats.spearmanr(likeness.ravel(), local.ravel()).statistic > 0.7


def test_the_mean_difference_of_a_shift_of_lightness_is_the_shift() -> None:
    flat = np.full((96, 128, 3), 100, np.uint8)
    lighter = flat.copy()
    lighter[24:72, 32:96] = 160
    found = measure(compose(flat, lighter))
    step = float(to_lab(lighter)[48, 64, 0] - to_lab(flat)[48, 64, 0])
    assert found.change.difference[192, 256] == pytest.approx(step, rel=0.02)
    assert found.values["change.visible share"] == pytest.approx(0.25, abs=0.06)
    assert position(found.change.region) == "centre"


@pytest.mark.parametrize(("right", "down"), [(0.0, 0.0), (1.5, 0.0), (0.5, -2.0)])
def test_a_plane_of_light_has_the_slope_of_a_least_squares_fit(
    right: float, down: float
) -> None:
    """In stops from one end to the other; its surroundings and what lies outside the weights do not count."""
    y, x = np.mgrid[0:1:40j, 0:1:60j]
    weight = np.zeros_like(x)
    weight[5:35, 10:50] = 1.0
    plane = np.where(weight > 0, 0.3 + right * x + down * y, 7.0)
    slope = _slope(plane, weight)
    # From end to end are 3.5 standard deviations of 40 columns and of 30 rows.
    across, high = (3.5 * np.sqrt((n * n - 1) / 12) for n in (40, 30))
    np.testing.assert_allclose(
        slope, (right * across / 59, down * high / 39), rtol=2e-3, atol=1e-9
    )
    assert np.isnan(_slope(plane, np.zeros_like(x))).all()


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 39), st.integers(0, 39))
@settings(max_examples=40, deadline=None)
def test_a_place_is_named_by_the_thirds_its_centre_lies_in(
    height: int, width: int, y: int, x: int
) -> None:
    part = np.zeros((height, width), np.uint8)
    part[y % height, x % width] = 1
    if height * width == 1:
        assert position(part) == "whole picture"
        return
    row, column = (
        min(2, int(3 * (v % n) / max(1, n - 1))) for v, n in ((y, height), (x, width))
    )
    names = (("upper", "middle", "lower")[row], ("left", "centre", "right")[column])
    assert position(part) == (
        " ".join(names) if names != ("middle", "centre") else "centre"
    )
    assert position(part * 0) == "nowhere"


@given(st.floats(0, 1))
def test_a_share_is_never_rounded_to_nothing_or_to_all(share: float) -> None:
    words = percent(share)
    assert (words == "0 %") == (share == 0) and (words == "100 %") == (share == 1)


# --- properties -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "picture", [SMALL, np.zeros_like(SMALL), np.full_like(SMALL, 255), noise(1)]
)
def test_a_picture_against_itself_has_no_fault(picture: Picture) -> None:
    scene = compose(picture, picture)
    found = measure(scene)
    assert (
        found.change.nothing
        and not found.change.region.any()
        and find_change(scene).tint == 0
    )
    zero = [
        name
        for name in found.values
        if name.endswith(" gain") or name.split(".")[0] == "change"
    ]
    zero += [
        "overall.blur",
        "overall.blocks",
        "overall.flat",
        "overall.clipped",
        "style.palette",
        "style.drawing",
    ]
    assert {
        name: found.values[name]
        for name in zero
        if abs(found.values.get(name, 0.0)) > 1e-6
    } == {}
    assert found.values.get("structure.lost", 0.0) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("turn", [np.fliplr, np.flipud])
def test_a_mirrored_pair_has_the_same_measures(turn: Any) -> None:
    """All but those of single pixels on a grid that does not mirror onto itself."""
    plain = values(SMALL, EDITED)
    turned = values(*(np.ascontiguousarray(turn(p)) for p in (SMALL, EDITED)))
    for name in ("change.share", "change.visible share", "change.mean", "style.palette", "structure.lost",
                 "overall.blur", "redrawn.parts", "content.light"):  # fmt: skip
        assert turned[name] == pytest.approx(plain[name], rel=0.05, abs=0.02), name


def test_what_two_pictures_have_apart_does_not_depend_on_their_order() -> None:
    there = values(SMALL, EDITED)
    back = values(EDITED, SMALL)
    assert there["style.palette"] == pytest.approx(back["style.palette"], abs=0.02)
    assert there["change.visible share"] == pytest.approx(
        back["change.visible share"], rel=0.3
    )
    assert there["style.layout"] == pytest.approx(back["style.layout"])
    assert there["turned.all"] == pytest.approx(back["turned.all"])


DEFECTS: dict[str, Any] = {
    "overall.blur": lambda s: cv2.GaussianBlur(EDITED, (0, 0), 0.5 * s),
    "overall.noise": lambda s: np.clip(
        EDITED + np.random.default_rng(0).normal(0, 5 * s, EDITED.shape), 0, 255
    ),
    "texture.lost": lambda s: mix(
        EDITED, cv2.GaussianBlur(EDITED, (0, 0), 0.6 * s), INSIDE
    ),
    "change.visible outside": lambda s: mix(
        EDITED, 255 - EDITED, (np.arange(210) < 12 * s)[None, :, None]
    ),
    "change.tint": lambda s: np.clip(EDITED * (1 - 0.12 * s), 0, 255),
    "overall.clipped": lambda s: np.clip(EDITED + 25.0 * s, 0, 255),
    "structure.lost outside": lambda s: mix(
        EDITED, np.flipud(SMALL), (np.arange(210) < 14 * s)[None, :, None]
    ),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_a_measure_rises_with_the_strength_of_its_defect(name: str) -> None:
    doses = [
        values(SMALL, np.asarray(DEFECTS[name](s), np.uint8))[name]
        for s in (1, 2, 3, 4)
    ]
    assert all(b > a for a, b in pairwise(doses)), doses


def test_a_jump_at_the_boundary_rises_with_its_height() -> None:
    before = photograph()
    inside = region(photograph().shape, soft=0)
    steps = [
        values(before, mix(before, before + float(by), inside))["seam.step"]
        for by in (12, 24, 48)
    ]
    assert steps[0] < steps[1] < steps[2]
    feathered = values(
        before, mix(before, before + 48.0, region(before.shape, soft=6))
    )["seam.step"]
    assert feathered < 0.3 * steps[2]


@pytest.mark.parametrize(
    ("name", "after"),
    [
        ("black", np.zeros_like(SMALL)),
        ("flat", np.full_like(SMALL, 90)),
        ("noise", noise(3)),
        ("unrelated", cv2.resize(photograph(2), (210, 170))),
        ("tiny", SMALL[:5, :5]),
        ("thin", np.ascontiguousarray(SMALL[:20, :3])),
    ],
)
def test_whatever_the_output_is_scores_are_on_the_scale_and_numbers_are_finite(
    name: str, after: Picture
) -> None:
    subject = Subject({"input": SMALL, "edited": after}, "make the cup blue")
    for key in ("preservation", "quality", "fidelity"):
        answer = assess(rubric(key), subject, load())
        assert {*answer.scores, *answer.abstained} == {
            factor.key for factor in rubric(key).factors
        }
        assert not {*answer.scores} & {*answer.abstained} and all(
            1 <= score <= 7 for score in answer.scores.values()
        )
        assert all(
            np.isfinite(m["value"])
            for m in answer.evidence.get("measures", {}).values()
        )
    output = find_degenerate(SMALL, after)
    kinds = {
        "black": "flat",
        "flat": "flat",
        "noise": "noise",
        "unrelated": "unrelated",
    }
    assert output is not None and output.kind == kinds.get(name, "thumbnail")
    kept = assess(rubric("preservation"), subject, load())
    assert max(kept.scores.values(), default=1.0) == 1.0


def _stored(mode: str) -> bytes:
    grey = Image.fromarray(SMALL).convert("L")
    file = io.BytesIO()
    if mode == "I;16":
        Image.fromarray(np.asarray(grey, np.uint16) * 257).save(file, "PNG")
    else:
        grey.convert(mode).save(file, "TIFF" if mode == "CMYK" else "PNG")
    return file.getvalue()


@pytest.mark.parametrize("mode", ["L", "LA", "RGBA", "I;16", "CMYK", "P"])
def test_how_a_picture_is_stored_is_no_edit(mode: str) -> None:
    grey = np.asarray(Image.fromarray(SMALL).convert("L").convert("RGB"))
    read = np.asarray(decode(_stored(mode), name=mode))
    assert read.dtype == np.uint8 and read.shape == SMALL.shape
    assert measure(compose(grey, read)).change.nothing


def test_a_change_outside_the_mask_counts_against_what_should_stay() -> None:
    here = (INSIDE > 0.5).astype(np.uint8)[..., 0] * 255
    inside, away = (
        values(SMALL, EDITED, mask)["change.stray"]
        for mask in (here, np.fliplr(np.roll(here, 80, 0)))
    )
    assert inside < 0.01 < away
    everywhere = measure(compose(SMALL, EDITED, np.full_like(here, 255)))
    assert (
        "change.stray" not in everywhere.values
        and "change.visible outside" not in everywhere.values
    )
    empty = measure(compose(SMALL, EDITED, np.zeros_like(here)))
    assert empty.change.located and empty.change.region.any()


def test_the_network_gives_the_same_numbers_from_two_threads() -> None:
    from concurrent.futures import ThreadPoolExecutor

    picture = fit(SMALL, 224, 224)
    alone = see(picture)
    with ThreadPoolExecutor(2) as pool:
        for answer in pool.map(see, [picture] * 4):
            assert all(np.array_equal(answer[name], alone[name]) for name in alone)


def test_a_score_never_rises_with_a_fault() -> None:
    """Whatever the other measures are: every deduction is monotone."""
    calibration = load()
    for factor, deductions in calibration.factors.items():
        for deduction in deductions:
            low = deduction.cuts[0][0]
            high = deduction.cuts[-1][0]
            trusted = {deduction.trust: 1.0} if deduction.trust else {}
            scores = [
                calibration.score(factor, {deduction.measure: x, **trusted})
                for x in np.linspace(low, high, 9)
            ]
            assert (
                all(b <= a for a, b in pairwise(scores))
                and 1 <= min(scores) <= max(scores) <= 7
            )


def test_measures_are_those_of_one_pair_and_are_hashable_by_identity() -> None:
    one, other = (measure(compose(SMALL, EDITED)) for _ in range(2))
    assert isinstance(one, Measures) and one != other
    # threads add up float32 in any order
    assert one.values == pytest.approx(other.values, abs=1e-6)
