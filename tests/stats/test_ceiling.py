from __future__ import annotations

import krippendorff
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr

from bench.further_rater import Family, simulate
from editjudge.stats.ceiling import (
    FEWEST_SHARED,
    alpha_interval,
    alpha_nominal,
    alpha_ordinal,
    ceiling,
    fleiss,
    further_rater,
    icc1,
    icc2k,
    stepped_up,
)
from editjudge.stats.columns import Floats, Ints, Ratings, Reason

from .made import said, valid_json

tables = st.lists(
    st.lists(st.sampled_from([1.0, 2.0, 3.0, 5.0, np.nan]), min_size=3, max_size=3),
    min_size=2,
    max_size=15,
).map(np.array)

SHROUT_FLEISS = np.array(
    [
        [9, 2, 5, 8],
        [6, 1, 3, 2],
        [8, 4, 6, 8],
        [7, 1, 2, 6],
        [10, 5, 6, 9],
        [6, 2, 4, 7],
    ],
    float,
)
"""Shrout and Fleiss (1979): six targets, four judges; ICC(1) = .17, ICC(2,k) = .62."""


def long(table: Floats) -> tuple[Ints, Ints, Floats]:
    item, rater = np.nonzero(np.isfinite(table))
    return item, rater, table[item, rater]


def ratings(table: Floats) -> Ratings:
    item, rater, x = long(table)
    return Ratings.of(item, [f"r{r}" for r in rater], ["f"] * len(x), x)


@given(tables)
@settings(max_examples=80, deadline=None)
def test_alpha_is_that_of_the_krippendorff_package(table: Floats) -> None:
    item, _, x = long(table)
    shared = table[np.isfinite(table).sum(axis=1) > 1]
    assume(len(np.unique(shared[np.isfinite(shared)])) > 1)
    theirs = {
        "nominal": krippendorff.alpha(
            reliability_data=table.T, level_of_measurement="nominal"
        ),
        "ordinal": krippendorff.alpha(
            reliability_data=table.T, level_of_measurement="ordinal"
        ),
        "interval": krippendorff.alpha(
            reliability_data=table.T, level_of_measurement="interval"
        ),
    }
    assert alpha_nominal(item, x) == pytest.approx(theirs["nominal"], abs=1e-9)
    assert alpha_ordinal(item, x) == pytest.approx(theirs["ordinal"], abs=1e-9)
    assert alpha_interval(item, x) == pytest.approx(theirs["interval"], abs=1e-9)


def test_intraclass_correlations_are_those_of_the_textbook() -> None:
    item, rater, x = long(SHROUT_FLEISS)
    assert icc1(item, x) == pytest.approx(0.17, abs=0.005)
    assert icc2k(item, rater, x) == pytest.approx(0.62, abs=0.005)


def test_fleiss_kappa_is_that_of_the_textbook() -> None:
    # Fleiss (1971) as worked on Wikipedia: 10 items, 14 raters, 5 categories, kappa = 0.210.
    counts = [
        [0, 0, 0, 0, 14], [0, 2, 6, 4, 2], [0, 0, 3, 5, 6], [0, 3, 9, 2, 0], [2, 2, 8, 1, 1],
        [7, 7, 0, 0, 0], [3, 2, 6, 3, 0], [2, 5, 3, 2, 2], [6, 5, 2, 1, 0], [0, 2, 2, 3, 7],
    ]  # fmt: skip
    item = np.repeat(np.arange(10), 14)
    x = np.concatenate([np.repeat(np.arange(5.0), row) for row in counts])
    assert fleiss(item, x) == pytest.approx(0.210, abs=0.0005)


def test_leave_one_out_is_each_rater_against_the_mean_of_the_others() -> None:
    rng = np.random.default_rng(0)
    table = np.rint(rng.normal(4, 1, (40, 1)) + rng.normal(0, 1, (40, 3)))
    found = ceiling(ratings(table))
    each = [
        spearmanr(table[:, r], np.delete(table, r, axis=1).mean(axis=1)).statistic
        for r in range(3)
    ]
    assert found.loo_spearman == pytest.approx(np.mean(each))
    assert [
        r.spearman_with_rest for r in found.rater_quality.values()
    ] == pytest.approx(each)
    assert found.ci["loo_spearman"].lo < np.mean(each) < found.ci["loo_spearman"].hi


def test_the_step_from_one_rater_less_is_that_of_the_textbook() -> None:
    # Two raters correlate by .5: one with the mean of two others by .5 * sqrt(2 / 1.5), with three by .5 * sqrt(3 / 2).
    observed = np.array([0.5 * np.sqrt(2 / 1.5)])
    assert stepped_up(observed, 2, 3) == pytest.approx(0.5 * np.sqrt(3 / 2))
    assert stepped_up(-observed, 2, 3) == pytest.approx(-0.5 * np.sqrt(3 / 2))
    assert stepped_up(np.array([0.0, 1.0]), 1, 2) == pytest.approx([0, 1])
    assert stepped_up(observed, 2, 2) == pytest.approx(observed), "no step, no change"


@pytest.mark.parametrize("raters", [2, 3, 5])
def test_a_further_rater_is_estimated_without_bias_and_the_interval_holds(
    raters: int,
) -> None:
    cell = simulate(Family(), raters, 60, draws=150, seed=1)
    # four standard errors: a draw of another seed passes, too
    noise = 4 * 0.07 / np.sqrt(60)
    assert cell.given == 1
    assert abs(cell.estimate - cell.truth) < 0.02 + noise
    assert cell.coverage >= 0.85 and cell.difference_coverage >= 0.85
    assert cell.left_out < cell.estimate


def test_where_items_have_different_numbers_of_raters_harmonic_means_count() -> None:
    rng = np.random.default_rng(0)
    table = np.rint(rng.normal(4, 1.5, (60, 1)) + rng.normal(0, 0.7, (60, 3)))
    table[:20, 1:] = np.nan
    table[20:40, 2] = np.nan
    found = further_rater(ratings(table))
    assert found.raters == pytest.approx(60 / (20 / 1 + 20 / 2 + 20 / 3))
    assert found.items == 40, "an item with one rating has nobody to be compared with"


def test_draws_of_a_further_rater_do_not_depend_on_the_order_of_ratings() -> None:
    rng = np.random.default_rng(0)
    item, rater, x = long(
        np.rint(rng.normal(4, 1.5, (30, 1)) + rng.normal(0, 0.7, (30, 3)))
    )
    order = rng.permutation(len(x))
    group = {str(n): f"image {n // 2}" for n in range(30)}
    each = [
        further_rater(
            Ratings.of(item[rows], rater[rows], ["f"] * len(x), x[rows]),
            group=group,
            draws=100,
        )
        for rows in (np.arange(len(x)), order)
    ]
    assert each[0].ci["spearman"] == pytest.approx(each[1].ci["spearman"])
    assert (each[0].items, each[0].images) == (30, 15)


@pytest.mark.parametrize(
    ("items", "raters", "images"),
    [(30, 1, 30), (FEWEST_SHARED - 1, 3, 9), (30, 3, FEWEST_SHARED - 1)],
)
def test_too_few_raters_items_or_images_give_no_further_rater(
    items: int, raters: int, images: int
) -> None:
    rng = np.random.default_rng(0)
    table = np.rint(
        rng.normal(4, 1.5, (items, 1)) + rng.normal(0, 0.7, (items, raters))
    )
    found = ceiling(
        ratings(table), group={str(n): f"image {n % images}" for n in range(items)}
    )
    person = found.further_rater
    assert person.spearman is None and person.ci == {} and person.reason
    valid_json(found)


def test_alpha_and_intraclass_correlation_have_intervals() -> None:
    rng = np.random.default_rng(0)
    table = np.rint(rng.normal(4, 1.5, (60, 1)) + rng.normal(0, 0.7, (60, 3)))
    table[:10, 2] = np.nan
    found = ceiling(ratings(table))
    for name in ("alpha_interval", "icc1"):
        assert found.ci[name].lo < getattr(found, name) < found.ci[name].hi
    assert "icc1" not in ceiling(ratings(table[:8])).ci


def test_a_rater_who_straight_lines_is_named_and_what_leaving_them_out_does_is_shown() -> (
    None
):
    rng = np.random.default_rng(0)
    table = np.rint(rng.normal(4, 1.5, (40, 1)) + rng.normal(0, 0.4, (40, 3)))
    table[:, 2] = 7
    found = ceiling(ratings(table))
    assert [r.straight_lining for r in found.rater_quality.values()] == [
        False,
        False,
        True,
    ]
    assert found.rater_quality["r2"].spearman_with_rest is None
    before = found.variants["all"]
    after = found.variants["without_straight_liners"]
    assert before.alpha_interval is not None and after.alpha_interval is not None
    assert after.raters == 2 and after.alpha_interval > before.alpha_interval + 0.3
    assert found.rater_quality["r2"].alpha_without == pytest.approx(
        after.alpha_interval
    )


def test_centring_takes_out_a_strict_raters_level() -> None:
    rng = np.random.default_rng(0)
    table = (
        rng.normal(4, 1, (60, 1)) + rng.normal(0, 0.2, (60, 3)) - np.array([0, 0, 3])
    )
    found = ceiling(ratings(table)).variants
    assert (found["rater_centred"].alpha_interval or 0) > 0.9
    assert (found["all"].alpha_interval or 0) < 0.5


@pytest.mark.parametrize(
    ("table", "text"),
    [
        (np.array([[1.0], [2.0], [3.0]]), "one rater"),
        (np.array([[1.0, np.nan], [np.nan, 2.0]]), "no item was rated twice"),
        (np.full((5, 3), 4.0), "every rating is the same"),
    ],
)
def test_what_is_undefined_is_none_and_said_in_words(table: Floats, text: str) -> None:
    found = ceiling(ratings(table))
    assert (
        found.alpha_interval is None
        and found.fleiss is None
        and found.loo_spearman is None
    )
    assert any(text in said(note) for note in found.notes)
    valid_json(found)


def test_ratings_of_a_crowd_have_no_two_way_correlation() -> None:
    item = np.repeat(np.arange(6), 2)
    rater = np.arange(12)
    found = ceiling(Ratings.of(item, rater, ["f"] * 12, np.tile([1.0, 2, 3], 4)))
    assert found.icc2k is None and found.icc1 is not None
    assert Reason("few_items_of_all") in found.notes
