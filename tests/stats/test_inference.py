from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import binom

from editjudge.stats import inference
from editjudge.stats.columns import Codes, Ends, Floats, Reason, Scores
from editjudge.stats.compare import compare
from editjudge.stats.gate import gate
from editjudge.stats.inference import (
    TEST_DRAWS,
    Clusters,
    Inference,
    mean_interval,
    mean_intervals,
)

from .made import clustered, population_mean

SIX = (-6.0, 6.0)


def infer(
    values: Floats,
    groups: Codes,
    ends: Ends | None,
    *,
    guaranteed: bool = False,
    draws: int = TEST_DRAWS,
) -> Inference | None:
    clusters = Clusters.of(values, groups, ends)
    return inference.infer([clusters], guaranteed=guaranteed, draws=draws)[0]


def test_the_error_equals_the_plain_one_if_no_image_is_shared() -> None:
    d = np.random.default_rng(0).normal(size=50)
    assert Clusters.of(d, np.arange(50)).error == pytest.approx(
        d.std(ddof=1) / np.sqrt(50)
    )


def test_effective_images_fall_with_heavy_tails_skewness_and_uneven_sizes() -> None:
    symmetric = Clusters.of(np.tile([-1.0, 1.0], 30), np.arange(60))
    assert symmetric.effective == pytest.approx(60)
    heavy = Clusters.of(np.r_[np.tile([-0.1, 0.1], 28), -5, 5, -5, 5], np.arange(60))
    skewed = Clusters.of(np.r_[np.zeros(54), np.ones(6)], np.arange(60))
    uneven = Clusters.of(
        np.tile([-1.0, 1.0], 30), np.r_[np.zeros(30, int), np.arange(1, 31)]
    )
    assert heavy.effective == pytest.approx(4, abs=0.1)
    assert skewed.effective < 4
    assert uneven.effective <= uneven.even < 4
    assert Clusters.of(np.full(60, 2.0), np.arange(60)).effective == 0


def test_the_data_choose_the_method() -> None:
    rng = np.random.default_rng(0)
    methods = {}
    for name, values in {
        "ordinary": rng.integers(-3, 4, 60).astype(float),
        "few images": rng.integers(-3, 4, 5).astype(float),
        "hardly any differ": np.r_[np.zeros(58), 1.0, -1.0],
        "many": rng.normal(size=9_000),
    }.items():
        found = infer(values, np.arange(len(values)), SIX)
        assert found is not None
        methods[name] = (found.method, type(found).__name__)
    assert methods == {
        "ordinary": ("studentised", "Studentised"),
        "few images": ("guaranteed", "Guaranteed"),
        "hardly any differ": ("guaranteed", "Guaranteed"),
        "many": ("studentised", "Student"),
    }


def test_students_t_of_many_images_is_what_draws_give() -> None:
    values = np.random.default_rng(2).normal(0.02, 1, 2_500)
    drawn = infer(values, np.arange(2_500), None)
    assert isinstance(drawn, inference.Studentised)
    same = inference.Student(drawn.clusters)
    assert drawn.interval() == pytest.approx(
        same.interval(), abs=0.1 * drawn.clusters.error
    )
    assert drawn.detectable() == pytest.approx(same.detectable(), rel=0.05)
    assert drawn.p() == pytest.approx(same.p(), abs=0.03)


def test_p_goes_on_beyond_the_number_of_draws() -> None:
    values = np.random.default_rng(2).normal(1, 1, 60)
    found = infer(values, np.arange(60), None, draws=999)
    assert found is not None
    assert 0 < found.p() < 1e-6
    assert found.interval(1 - 1e-5).lo > found.interval(1 - 1e-7).lo


@given(
    st.lists(
        st.tuples(st.integers(-6, 6), st.integers(0, 14)), min_size=2, max_size=60
    ),
    st.sampled_from([0.05, 0.01, 0.05 / 7, 0.05 / 300]),
    st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_an_interval_excludes_a_value_exactly_if_its_p_is_below_the_level(
    table: list[tuple[int, int]], alpha: float, guaranteed: bool
) -> None:
    values = np.array([v for v, _ in table], float)
    groups = np.unique([g for _, g in table], return_inverse=True)[1]
    found = infer(values, groups, SIX, guaranteed=guaranteed, draws=799)
    if found is None:
        assert len(np.unique(groups)) < 2
        return
    ci = found.interval(1 - alpha)
    assert ci.lo <= found.clusters.mean <= ci.hi
    for null in (0.0, 1.0, -2.5):
        assert (found.p(null) < alpha) == (null < ci.lo or null > ci.hi)


def test_groups_without_a_score_change_nothing() -> None:
    values = np.random.default_rng(4).normal(size=400)
    few, many = (
        mean_interval(values, step * np.arange(400), (-20.0, 20.0)) for step in (1, 25)
    )
    assert few == many and few.ci is not None


def test_a_seed_gives_the_same_interval_again() -> None:
    for n in (100, 300, 5_000):
        values = np.random.default_rng(n).gamma(2, size=n)
        first, second = (
            mean_interval(values, np.arange(n), (0.0, 40.0)) for _ in range(2)
        )
        assert first == second and first.ci is not None


def test_the_interval_of_single_rows_is_close_to_students() -> None:
    values = np.random.default_rng(3).integers(1, 8, 400).astype(float)
    ours = mean_interval(values, np.arange(400), (1.0, 7.0)).ci
    theirs = stats.ttest_1samp(values, 0).confidence_interval()
    assert ours == pytest.approx(
        (theirs.low, theirs.high), abs=0.1 * (theirs.high - theirs.low)
    )


def test_cells_have_the_intervals_that_each_has_alone() -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(1, 8, 600).astype(float)
    cells = rng.integers(0, 3, 600)
    groups = rng.integers(0, 40, 600)
    together = mean_intervals(values, cells, 3, groups, 40, [(1.0, 7.0)] * 3)
    for cell, found in enumerate(together):
        here = cells == cell
        alone = mean_interval(
            values[here], np.unique(groups[here], return_inverse=True)[1], (1.0, 7.0)
        )
        assert found.ci == pytest.approx(alone.ci, abs=1e-3)
        assert found.method == alone.method == "studentised"


def test_an_interval_of_a_mean_stays_on_the_scale() -> None:
    values = np.r_[np.full(40, 7.0), np.arange(1, 8), np.full(10, 6.0)]
    ci = mean_interval(values, np.arange(len(values)), (1.0, 7.0)).ci
    assert ci is not None and 1 <= ci.lo <= ci.hi <= 7


def test_without_ends_few_images_have_no_interval_and_say_why() -> None:
    assert mean_interval(np.array([1.0, 2.0, 4.0]), np.arange(3), None) == (
        None,
        inference.FEW,
        None,
    )
    assert mean_interval(np.full(30, 2.0), np.arange(30), None) == (
        None,
        Reason("same_scores"),
        None,
    )
    assert mean_interval(np.array([1.0, 2.0]), np.zeros(2, int), SIX).ci is None


@pytest.mark.parametrize("values", [(-6.0, 0.0), (-1.0, 5.0), (-6.0, 6.0)])
@pytest.mark.parametrize("images", [5, 10, 30])
def test_a_guaranteed_bound_covers_two_values_at_their_worst_share(
    images: int, values: tuple[float, float]
) -> None:
    """With two values only their number counts, so that coverage needs no simulation."""
    seen = range(images + 1)
    ci = []
    for k in seen:
        found = infer(
            np.repeat(values, [images - k, k]),
            np.arange(images),
            SIX,
            guaranteed=True,
            draws=499,
        )
        assert found is not None
        ci.append(found.interval())
    limits = np.array(ci)
    for share in np.linspace(0.005, 0.5, 100):
        truth = values[0] + share * (values[1] - values[0])
        covered = (limits[:, 0] <= truth + 1e-9) & (truth - 1e-9 <= limits[:, 1])
        assert binom.pmf(seen, images, share) @ covered >= 0.945, share


def _compared(values: Floats, groups: list[int]) -> tuple[float, float]:
    items = range(len(values))
    base = Scores.of(items, ["f"] * len(values), [0.0] * len(values), group=groups)
    other = Scores.of(items, ["f"] * len(values), values, group=groups)
    (found,) = compare(base, other, on="item", scales={"f": (0.0, 6.0)}, draws=399)
    assert found.ci is not None
    return found.ci


@pytest.mark.parametrize(
    ("values", "chances", "images", "least"),
    [
        ((-5, 1), (1 / 6, 5 / 6), 6, 0.93),
        ((-5, 1), (1 / 6, 5 / 6), 15, 0.93),
        ((-5, 0, 1), (0.02, 0.88, 0.1), 60, 0.90),
        ((-1, 0, 1), (0.05, 0.85, 0.1), 30, 0.93),
        (
            (-3, -2, -1, 0, 1, 2, 3),
            (0.067, 0.117, 0.198, 0.236, 0.198, 0.117, 0.067),
            12,
            0.93,
        ),
    ],
)
def test_a_comparison_covers_lopsided_and_ordinary_differences(
    values: tuple[float, ...], chances: tuple[float, ...], images: int, least: float
) -> None:
    rng = np.random.default_rng(images)
    truth = float(np.dot(values, chances))
    runs = 200
    hits = 0
    for _ in range(runs):
        low, high = _compared(
            rng.choice(values, images, p=chances), list(range(images))
        )
        hits += low - 1e-9 <= truth <= high + 1e-9
    # Three standard errors of 200 simulations below what is promised.
    assert hits / runs >= least - 3 * np.sqrt(least * (1 - least) / runs)


def test_the_stated_detectable_difference_is_found_about_eighty_times_in_a_hundred() -> (
    None
):
    rng = np.random.default_rng(5)
    images = 40
    runs = 150
    sample = infer(rng.normal(0, 1, images), np.arange(images), None)
    assert sample is not None
    limit = sample.detectable()
    assert limit is not None
    # The limit is stated in units of the spread that this sample shows.
    spread = limit / sample.clusters.error / np.sqrt(images)
    found = 0
    for _ in range(runs):
        again = infer(rng.normal(spread, 1, images), np.arange(images), None, draws=399)
        found += again is not None and again.p() < 0.05
    assert 0.70 <= found / runs <= 0.90


def test_a_gate_passes_no_drop_and_fails_a_large_one() -> None:
    rng = np.random.default_rng(3)
    outcomes: dict[float, list[str]] = {0.0: [], 1.0: []}
    for drop, seen in outcomes.items():
        for _ in range(40):
            quality = rng.normal(5, 1, 60)
            before, now = (
                np.clip(np.round(quality + rng.normal(-d, 0.7, 60)), 1, 7)
                for d in (0.0, drop)
            )
            sides = [Scores.of(range(60), ["f"] * 60, side) for side in (now, before)]
            seen.append(
                gate(
                    sides[0],
                    baseline=sides[1],
                    max_drop=0.3,
                    scales={"f": range(1, 8)},
                    draws=399,
                ).outcome
            )
    assert outcomes[0.0].count("pass") >= 20 and outcomes[0.0].count("fail") <= 2
    assert outcomes[1.0].count("fail") >= 30 and "pass" not in outcomes[1.0]


@pytest.mark.parametrize(
    ("images", "share"), [(5, 0.235), (10, 0.14), (30, 0.052), (100, 0.016)]
)
def test_a_gate_on_its_allowed_drop_raises_few_false_alarms(
    images: int, share: float
) -> None:
    rng = np.random.default_rng(images)
    items = [str(n) for n in range(images)]
    base = Scores.of(items, ["f"] * images, [2.0] * images)
    alarms = 0
    for _ in range(100):
        run = Scores.of(
            items, ["f"] * images, np.where(rng.random(images) < share, 7.0, 1.0)
        )
        found = gate(
            run,
            baseline=base,
            max_drop=1 - 6 * share,
            scales={"f": range(1, 8)},
            draws=499,
        )
        alarms += found.outcome == "fail"
    # 5 % are promised; more than 9 of 100 would happen in 3 of 100 tests
    assert alarms <= 9


@pytest.mark.parametrize("groups", [15, 40])
def test_clustered_intervals_cover_what_they_promise(groups: int) -> None:
    rng = np.random.default_rng(11)
    truth = population_mean()
    label = np.repeat(np.arange(groups), 5)
    runs = 300
    hits = 0
    for _ in range(runs):
        ci = mean_interval(
            clustered(rng, groups, 5).ravel(), label, (1.0, 7.0), draws=399
        ).ci
        assert ci is not None
        hits += ci.lo <= truth <= ci.hi
    assert hits / runs >= 0.91
