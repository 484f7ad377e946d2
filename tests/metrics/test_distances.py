"""The metrics are those of the libraries that define them, and of what has no number they say why."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skimage import data
from skimage.metrics import (
    mean_squared_error,
    peak_signal_noise_ratio,
    structural_similarity,
)

from editjudge.vision.measured.scene import Array
from editjudge.vision.metrics import LEAST_SIDE_MS, MetricPair, unit

PHOTOGRAPH: Array = data.astronaut()[:256, :300]


def noisy(strength: float, seed: int = 0) -> Array:
    noise = np.random.default_rng(seed).normal(0, strength, PHOTOGRAPH.shape)
    return np.clip(PHOTOGRAPH + noise, 0, 255).astype(np.uint8)


@pytest.mark.parametrize("strength", [0.5, 4, 40, 200])
def test_errors_and_psnr_are_those_of_scikit_image(strength: float) -> None:
    a = unit(PHOTOGRAPH)
    b = unit(noisy(strength))
    found = values(PHOTOGRAPH, noisy(strength))
    assert found["mse"] == pytest.approx(mean_squared_error(a, b), rel=1e-12)
    assert found["psnr"] == pytest.approx(
        peak_signal_noise_ratio(a, b, data_range=1), rel=1e-12
    )
    assert found["l1"] == pytest.approx(float(np.abs(a - b).mean()), rel=1e-12)


def structural(a: Array, b: Array) -> float:
    """SSIM by Wang et al., as scikit-image says it is to be asked for."""
    return float(
        structural_similarity(
            unit(a),
            unit(b),
            data_range=1,
            channel_axis=-1,
            gaussian_weights=True,
            sigma=1.5,
            use_sample_covariance=False,
        )
    )


@pytest.mark.parametrize("strength", [0.5, 4, 40, 200])
def test_ssim_is_that_of_scikit_image(strength: float) -> None:
    b = noisy(strength)
    ssim = MetricPair(PHOTOGRAPH, b).value("ssim")
    assert ssim == pytest.approx(structural(PHOTOGRAPH, b), abs=1e-9)


@settings(max_examples=25, deadline=None)
@given(st.integers(11, 40), st.integers(11, 40), st.integers(0, 10_000))
def test_ssim_of_any_two_pictures_is_that_of_scikit_image(
    height: int, width: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(0, 256, (height, width, 3), np.uint8) for _ in range(2))
    ssim = MetricPair(a, b).value("ssim")
    assert ssim == pytest.approx(structural(a, b), abs=1e-9)


def test_ms_ssim_falls_with_noise_from_one() -> None:
    found = [
        float(MetricPair(PHOTOGRAPH, noisy(strength)).value("ms_ssim"))
        for strength in (0, 8, 40, 200)
    ]
    assert found[0] == 1.0 and found == sorted(found, reverse=True) and found[-1] < 0.6


def values(
    reference: Array, edited: Array, mask: Array | None = None, *names: str
) -> dict[str, float | str]:
    wanted = names or ("l1", "mse", "psnr", "ssim", "ms_ssim")
    pair = MetricPair(reference, edited, mask)
    return {name: pair.value(name) for name in wanted}


def test_equal_pictures_have_every_metric_but_psnr_which_is_infinite() -> None:
    found = values(PHOTOGRAPH, PHOTOGRAPH)
    assert "infinite" in str(found.pop("psnr"))
    assert found == {"l1": 0.0, "mse": 0.0, "ssim": 1.0, "ms_ssim": 1.0}


@pytest.mark.parametrize("level", [0, 128, 255])
def test_a_flat_frame_is_told_as_far_from_the_input(level: int) -> None:
    found = values(PHOTOGRAPH, np.full_like(PHOTOGRAPH, level))
    numbers = {name: float(value) for name, value in found.items()}
    assert (
        numbers["l1"] > 0.2
        and numbers["psnr"] < 13
        and numbers["ssim"] < 0.4
        and numbers["ms_ssim"] < 0.4
    )


@pytest.mark.parametrize("level", [0, 255])
def test_flat_pictures_against_each_other_are_numbers(level: int) -> None:
    found = values(np.full_like(PHOTOGRAPH, 128), np.full_like(PHOTOGRAPH, level))
    assert all(
        isinstance(value, float) and math.isfinite(value) for value in found.values()
    )


def test_outside_and_inside_the_mask_are_measured_apart() -> None:
    mask = np.zeros_like(PHOTOGRAPH)
    mask[100:160, 100:160] = 255
    edited = np.where(mask > 0, 255 - PHOTOGRAPH, PHOTOGRAPH).astype(np.uint8)
    found = values(
        PHOTOGRAPH,
        edited,
        mask,
        "l1_outside",
        "psnr_outside",
        "l1_inside",
        "psnr_inside",
        "ssim_outside",
    )
    assert found["l1_outside"] == 0.0 and "infinite" in str(found["psnr_outside"])
    inside = np.abs(unit(PHOTOGRAPH) - unit(edited))[100:160, 100:160]
    assert (
        found["l1_inside"] == pytest.approx(float(inside.mean()))
        and float(found["psnr_inside"]) < 20
    )
    assert 0.9 < float(found["ssim_outside"]) < 1  # windows at the rim see both


def test_without_a_mask_or_with_one_that_covers_everything_there_is_a_reason() -> None:
    white = np.full_like(PHOTOGRAPH, 255)
    assert values(PHOTOGRAPH, noisy(9), None, "l1_outside") == {
        "l1_outside": "the edit has no mask"
    }
    assert values(PHOTOGRAPH, noisy(9), white, "l1_outside") == {
        "l1_outside": "nothing is outside the mask"
    }
    full = values(PHOTOGRAPH, noisy(9), white, "l1", "l1_inside")
    assert full["l1_inside"] == full["l1"]


def test_an_output_of_another_size_is_resized_and_that_is_noted() -> None:
    half = PHOTOGRAPH[::2, ::2]
    comparison = MetricPair(PHOTOGRAPH, half)
    assert float(comparison.value("ssim")) > 0.6
    assert comparison.notes == {
        "edited resized": "from 150 x 128 to 300 x 256 pixels, cubic"
    }


def test_an_output_of_another_shape_has_no_metric() -> None:
    found = values(PHOTOGRAPH, PHOTOGRAPH[:, :200])
    assert all(
        isinstance(value, str) and "200 x 256" in value for value in found.values()
    )


def test_pictures_too_small_for_a_window_say_so() -> None:
    found = values(PHOTOGRAPH[:10, :10], noisy(9)[:10, :10])
    assert (
        isinstance(found["l1"], float)
        and "11 pixels" in str(found["ssim"])
        and "176" in str(found["ms_ssim"])
    )
    assert LEAST_SIDE_MS == 176


def test_a_picture_of_many_pixels_is_reduced_and_that_is_noted() -> None:
    large = np.tile(PHOTOGRAPH, (10, 10, 1))
    comparison = MetricPair(large, large[:, ::-1])
    assert isinstance(comparison.value("l1"), float)
    assert (
        comparison.size == (1891, 2217)
        and "from 3000 x 2560" in comparison.notes["reference resized"]
    )


def test_distances_of_features_grow_with_damage_and_are_none_for_equal_pictures() -> (
    None
):
    names = ("perceptual_lite0", "feature_lite0")
    rows = [
        values(PHOTOGRAPH, noisy(strength), None, *names) for strength in (0, 10, 60)
    ]
    for name in names:
        found = [float(row[name]) for row in rows]
        assert (
            found[0] == pytest.approx(0, abs=1e-6)
            and found == sorted(found)
            and found[-1] > 0.01
        )


def test_a_black_frame_is_farther_by_features_than_a_noisy_one() -> None:
    black = np.zeros_like(PHOTOGRAPH)
    rough = noisy(10)
    for name in ("perceptual_lite0", "feature_lite0"):
        assert float(values(PHOTOGRAPH, black, None, name)[name]) > 2 * float(
            values(PHOTOGRAPH, rough, None, name)[name]
        )
