from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.isotonic import IsotonicRegression

from editjudge.errors import UsageError
from editjudge.report.words import reason_text
from editjudge.stats.calibration import calibrate, fit, powered_mean
from editjudge.stats.columns import Reason
from tests.faults import raises, shows

from .made import likert, said, valid_json

points = st.lists(
    st.tuples(st.integers(0, 10), st.integers(1, 7)), min_size=2, max_size=40
)


@given(points)
@settings(max_examples=60, deadline=None)
def test_the_map_is_scikit_learns_and_never_falls(rows: list[tuple[int, int]]) -> None:
    x, y = np.array(rows, float).T
    ours = fit(x, y)
    theirs = IsotonicRegression(out_of_bounds="clip").fit(x, y)
    grid = np.linspace(-1, 11, 40)
    np.testing.assert_allclose(ours(grid), theirs.predict(grid), atol=1e-9)
    assert np.all(np.diff(ours(grid)) >= -1e-12)


def test_a_missing_score_is_not_calibrated_into_one() -> None:
    assert np.isnan(fit([1, 2], [1, 2])([np.nan])[0])
    with raises(UsageError, "no_common_edit"):
        fit([np.nan], [1])


def test_calibration_is_judged_on_groups_that_it_has_not_seen() -> None:
    rng = np.random.default_rng(0)
    truth = rng.uniform(1, 7, 300)
    judge = truth**2 / 7 + rng.normal(0, 0.3, 300)
    found = calibrate(judge, truth, group=np.arange(300) // 3)
    assert (
        found.mae_raw is not None
        and found.mae_calibrated is not None
        and found.mae_constant is not None
    )
    assert found.mae_calibrated < found.mae_raw / 2 < found.mae_constant
    assert found.bias_calibrated == pytest.approx(0, abs=0.05)
    valid_json(found)


def test_scores_that_know_nothing_do_not_beat_the_constant() -> None:
    rng = np.random.default_rng(0)
    found = calibrate(rng.normal(size=200), rng.normal(size=200))
    assert found.mae_calibrated is not None and found.mae_constant is not None
    assert found.mae_calibrated > found.mae_constant - 0.02


def test_too_few_pairs_are_refused_in_words() -> None:
    result = calibrate([1, 2, 3], [1, 2, 3])
    assert result.map is None
    assert shows(reason_text(result.notes[0]), "3 pairs in 3 groups")
    constant = calibrate([4.0] * 20, list(np.arange(20.0)))
    assert constant.notes == (Reason("constant_map"),)


def few_and_many(
    rng: np.random.Generator, groups: int, rated: int
) -> tuple[NDArray[np.float64], ...]:
    """A judge with a bias, three edits an image; people rated the edits of the first images only."""
    image = rng.normal(0, 0.6, (groups, 1))
    quality = image + rng.normal(0, 0.8, (groups, 3))
    human = likert(quality + rng.normal(0, 0.2, quality.shape))
    judge = likert(quality + 0.4 + rng.normal(0, 0.3, quality.shape))
    human[rated:] = np.nan
    return judge.ravel(), human.ravel(), np.repeat(np.arange(groups), 3)


def test_the_estimate_is_near_that_of_the_reference_implementation() -> None:
    rng = np.random.default_rng(7)
    truth = rng.normal(4, 1.5, 400)
    human = np.clip(np.rint(truth + rng.normal(0, 0.5, 400)), 1, 7)
    judge = np.clip(np.rint(truth + rng.normal(0, 1, 400)), 1, 7)
    human[100:] = np.nan
    found = powered_mean(judge, human)
    # ppi-python 0.2.3 on these numbers. It pools the variance of scores to choose the weight and uses the normal
    # where we use the t of the rated groups, hence near and not equal.
    assert found.mean == pytest.approx(3.71541673, abs=0.005)
    assert found.ci == pytest.approx((3.50029799, 3.93053548), abs=0.01)


def test_powered_intervals_are_valid_and_shorter_than_those_of_people_alone() -> None:
    population, _, _ = few_and_many(np.random.default_rng(100), 20_000, 0)
    _, human, _ = few_and_many(np.random.default_rng(100), 20_000, 20_000)
    truth = float(human.mean())
    assert abs(population.mean() - truth) > 0.3  # the judge alone would be wrong
    rng = np.random.default_rng(1)
    hits = 0
    widths = []
    for _ in range(600):
        judge, few, group = few_and_many(rng, 200, 30)
        found = powered_mean(judge, few, group=group)
        assert found.ci is not None and found.human_ci is not None
        hits += found.ci.lo <= truth <= found.ci.hi
        widths.append(
            (found.ci.hi - found.ci.lo) / (found.human_ci.hi - found.human_ci.lo)
        )
    assert 0.93 <= hits / 600 <= 0.97
    assert np.mean(widths) < 0.75


def test_saved_ratings_are_those_that_people_alone_would_have_needed() -> None:
    judge, human, group = few_and_many(np.random.default_rng(3), 300, 40)
    found = powered_mean(judge, human, group=group)
    assert (
        found.saved is not None and found.ci is not None and found.human_ci is not None
    )
    ratio = (found.human_ci.hi - found.human_ci.lo) / (found.ci.hi - found.ci.lo)
    assert found.saved == pytest.approx(found.rated * (ratio**2 - 1))


def test_a_judge_that_knows_nothing_is_hardly_listened_to() -> None:
    rng = np.random.default_rng(0)
    human = np.r_[rng.normal(4, 1, 100), np.full(400, np.nan)]
    found = powered_mean(rng.normal(4, 1, 500), human)
    assert found.weight is not None and found.weight < 0.2


def test_ratings_of_one_group_have_a_mean_and_no_interval() -> None:
    found = powered_mean([1, 2, 3], [4, 5, np.nan], group=["g", "g", "h"])
    assert (found.human_mean, found.ci) == (4.5, None)
    assert found.notes[0].code == "few_rated_groups"
    valid_json(found)


def test_where_all_is_rated_the_judge_adds_nothing() -> None:
    found = powered_mean([1, 2, 3], [1, 2, 4])
    assert found.mean == pytest.approx(7 / 3)
    assert (found.weight, found.saved) == (0, 0)


def test_people_alone_are_all_whom_they_rated_whether_or_not_the_judge_failed() -> None:
    human = np.r_[np.tile([1.0, 3.0], 20), np.tile([5.0, 7.0], 20), np.full(40, np.nan)]
    judge = np.r_[np.full(40, np.nan), np.tile([5.0, 7.0], 20), np.tile([5.0, 7.0], 20)]
    found = powered_mean(judge, human, ends=(1, 7))
    assert (found.rated, found.scored_only) == (80, 40)
    assert found.human_mean == pytest.approx(4) and found.mean == pytest.approx(4)
    assert found.notes[0] == Reason.of("unscored_edits", n=40)


def test_equal_ratings_have_an_interval_of_some_width_or_none() -> None:
    human = np.r_[np.full(30, 7.0), np.full(70, np.nan)]
    known = powered_mean(np.tile([6.0, 7.0], 50), human, ends=(1, 7))
    assert known.human_ci == pytest.approx(
        (7 - 6 * (1 - 0.025 ** (1 / 30)), 7), abs=0.01
    )
    unknown = powered_mean(np.tile([6.0, 7.0], 50), human)
    assert (
        unknown.human_ci is None
        and unknown.ci is None
        and "contribute to the spread" in said(unknown.ci_reason)
    )
