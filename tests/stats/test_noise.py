from __future__ import annotations

import numpy as np
import pytest

from editjudge.errors import UsageError
from editjudge.stats.columns import Reason, Scores
from editjudge.stats.noise import Noise, noise
from tests.faults import raises

from .made import valid_json


def run(
    edits: int,
    judges: int,
    repeats: int,
    sd: tuple[float, float, float, float],
    seed: int = 0,
) -> Noise:
    rng = np.random.default_rng(seed)
    edit, judge, both, again = sd
    shape = (edits, judges, repeats)
    score = (
        4 + rng.normal(0, edit, (edits, 1, 1)) + rng.normal(0, judge, (1, judges, 1))
        + rng.normal(0, both, (edits, judges, 1)) + rng.normal(0, again, shape)
    )  # fmt: skip
    i, j, k = (axis.ravel() for axis in np.indices(shape))
    (found,) = noise(Scores.of(i, ["f"] * len(i), score.ravel(), judge=j, repeat=k))
    valid_json(found)
    return found


def test_variance_is_split_into_edits_judges_and_repeats() -> None:
    found = run(400, 30, 3, (1.0, 0.5, 0.4, 0.8))
    assert found.edit_variance == pytest.approx(1.0, rel=0.15)
    assert found.judge_variance == pytest.approx(0.25, rel=0.4)
    assert found.interaction_variance == pytest.approx(0.16, rel=0.15)
    assert found.repeat_variance == pytest.approx(0.64, rel=0.05)


def test_reliability_rises_with_repeats_as_measured() -> None:
    found = run(2_000, 1, 4, (1.0, 0, 0, 1.0))
    assert found.reliability(1) == pytest.approx(0.5, abs=0.03)
    assert found.reliability(4) == pytest.approx(0.8, abs=0.03)


def test_without_repeats_the_judges_own_noise_is_said_to_be_unknown() -> None:
    found = run(30, 1, 1, (1, 0, 0, 1))
    assert (
        found.repeat_variance is None
        and found.reliability() is None
        and found.same_answer is None
    )
    assert Reason("no_repeats") in found.notes


def test_self_consistency_counts_pairs_of_repeats() -> None:
    (found,) = noise(
        Scores.of("aaabb", "fffff", [5, 5, 7, 2, 2], repeat=[0, 1, 2, 0, 1])
    )
    assert found.same_answer == pytest.approx(2 / 4)
    assert found.mean_gap == pytest.approx((0 + 2 + 2 + 0) / 4)


def test_the_needed_edits_give_the_wanted_width() -> None:
    found = run(500, 1, 3, (1.0, 0, 0, 1.0))
    n = found.needed_edits(0.4, repeats=2)
    assert (
        n is not None
        and found.edit_variance is not None
        and found.repeat_variance is not None
    )
    width = 2 * 1.96 * np.sqrt((found.edit_variance + found.repeat_variance / 2) / n)
    assert width == pytest.approx(0.4, rel=0.02)


def test_repeats_cannot_replace_edits() -> None:
    result = run(100, 1, 3, (1.0, 0, 0, 0.5))
    assert result.needed_repeats(0.05) is None
    assert result.needed_repeats(2.0) == 1
    with raises(UsageError, "bad_number", "width 0"):
        result.needed_edits(0)


def test_edits_that_one_judge_missed_are_left_out_of_the_split_and_counted() -> None:
    (found,) = noise(Scores.of("abcab", "fffff", [1, 2, 3, 2, 4], judge="jjjkk"))
    assert Reason.of("edits_left_out", n=1) in found.notes


def test_one_edit_has_no_variance_between_edits() -> None:
    (found,) = noise(Scores.of("aa", "ff", [1, 2], repeat=[0, 1]))
    assert found.edit_variance is None
    assert found.needed_edits(1) is None
