from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import cohen_kappa_score

from editjudge.stats.ceiling import (
    FIGURES,
    Pairs,
    averaged,
    correlation_draws,
    estimate,
    intervals,
)

from .made import likert


def pairs(x: object, y: object, group: object = None) -> Pairs:
    a = np.asarray(x, float)
    b = np.asarray(y, float)
    return Pairs(a, b, np.arange(len(a)) if group is None else np.asarray(group))


columns = st.lists(
    st.tuples(st.integers(1, 7), st.integers(1, 7)), min_size=3, max_size=40
)


@given(columns)
@settings(max_examples=60, deadline=None)
def test_figures_are_those_of_scipy_and_scikit_learn(
    rows: list[tuple[int, int]],
) -> None:
    x, y = np.array(rows, float).T
    found = estimate(pairs(x, y))
    assert found["mae"] == pytest.approx(np.mean(np.abs(x - y)))
    assert found["bias"] == pytest.approx(np.mean(x - y))
    assert found["exact"] == pytest.approx(np.mean(x == y))
    assert found["within_one"] == pytest.approx(np.mean(np.abs(x - y) <= 1))
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        assert all(np.isnan(found[name]) for name in ("spearman", "pearson", "kendall"))
        return
    assert found["spearman"] == pytest.approx(stats.spearmanr(x, y).statistic)
    assert found["pearson"] == pytest.approx(stats.pearsonr(x, y).statistic)
    assert found["kendall"] == pytest.approx(stats.kendalltau(x, y).statistic)
    assert found["qwk"] == pytest.approx(
        cohen_kappa_score(x, y, labels=range(1, 8), weights="quadratic")
    )


def test_many_levels_are_ranked_exactly_too() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=1_500)
    y = x + rng.normal(size=1_500)
    found = estimate(pairs(x, y))
    assert found["spearman"] == pytest.approx(
        stats.spearmanr(x, y).statistic, abs=1e-12
    )
    assert found["kendall"] == pytest.approx(
        stats.kendalltau(x, y).statistic, abs=1e-12
    )


def test_no_pairs_and_two_pairs_give_no_warning() -> None:
    assert all(np.isnan(value) for value in estimate(pairs([], [])).values())
    assert estimate(pairs([1, 2], [3, 4]))["kendall"] == 1


def test_draws_are_what_resampling_the_rows_gives() -> None:
    rng = np.random.default_rng(1)
    truth = rng.normal(size=200)
    x = likert(truth + rng.normal(0, 0.7, 200))
    y = likert(truth + rng.normal(0, 0.7, 200))
    ours = intervals([pairs(x, y)], 200, draws=2_000)
    for name, figure in (
        ("spearman", stats.spearmanr),
        ("kendall", stats.kendalltau),
        ("pearson", stats.pearsonr),
    ):
        picks = np.random.default_rng(2).integers(0, 200, (400, 200))
        plain = np.quantile(
            [figure(x[i], y[i]).statistic for i in picks], [0.025, 0.975]
        )
        np.testing.assert_allclose(ours[name], plain, atol=0.03)


def test_binning_many_levels_leaves_the_interval_on_the_exact_estimate() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=400)
    y = x + rng.normal(size=400)
    found = intervals([pairs(x, y)], 400)
    exact = estimate(pairs(x, y))
    for name in ("spearman", "kendall"):
        assert found[name].lo < exact[name] < found[name].hi
        assert abs((found[name].lo + found[name].hi) / 2 - exact[name]) < 0.02


def test_averages_skip_strata_without_spread() -> None:
    flat = pairs([1, 1, 1], [1, 2, 3])
    good = pairs([1, 2, 3], [1, 2, 3])
    assert averaged([flat, good])["spearman"] == pytest.approx(1)
    assert np.isnan(averaged([flat])["spearman"])


def test_every_interval_is_within_the_range_of_its_figure() -> None:
    found = intervals(
        [pairs([*range(40)], [(7 * n) % 40 for n in range(20)] + [*range(20, 40)])], 40
    )
    assert set(found) <= set(FIGURES)
    assert all(
        -1 <= found[name].lo <= found[name].hi <= 1
        for name in ("spearman", "pearson", "kendall")
    )


def test_correlations_of_short_rows_are_scipys() -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 4, (20, 6)).astype(float)
    y = rng.integers(0, 4, (20, 6)).astype(float)
    found = correlation_draws(x, y)
    for i in range(20):
        assert found["spearman"][i] == pytest.approx(
            stats.spearmanr(x[i], y[i]).statistic
        )
        assert found["kendall"][i] == pytest.approx(
            stats.kendalltau(x[i], y[i]).statistic
        )
        assert found["pearson"][i] == pytest.approx(
            stats.pearsonr(x[i], y[i]).statistic
        )


@pytest.mark.parametrize("name", ["spearman", "pearson", "kendall", "mae"])
def test_clustered_intervals_of_agreement_cover_what_they_promise(name: str) -> None:
    hits = 0
    runs = 250
    groups = 40
    size = 4
    truth = estimate(_population(np.random.default_rng(99), 6_000, size))[name]
    rng = np.random.default_rng(8)
    for run in range(runs):
        found = intervals(
            [_population(rng, groups, size)], groups, [name], draws=400, seed=run
        )[name]
        hits += found.lo <= truth <= found.hi
    assert 0.92 <= hits / runs <= 0.98  # 250 runs: two standard errors around 95 %


def _population(rng: np.random.Generator, groups: int, size: int) -> Pairs:
    """A judge that shares the source image's difficulty with people, and errs on its own about it."""
    image = rng.normal(0, 0.7, (groups, 1))
    slip = rng.normal(0, 0.4, (groups, 1))
    quality = image + rng.normal(0, 0.7, (groups, size))
    judge = likert(quality + slip + rng.normal(0, 0.4, (groups, size)))
    people = likert(quality + rng.normal(0, 0.3, (groups, size)))
    return Pairs(judge.ravel(), people.ravel(), np.repeat(np.arange(groups), size))
