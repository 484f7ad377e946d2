from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, chisquare

from editjudge.stats import inference
from editjudge.stats.columns import Reason
from editjudge.stats.inference import (
    few_groups,
    folds_of,
    interval,
    mean_draws,
    tail,
    weights,
)

from .made import clustered, population_mean


def test_every_draw_draws_as_many_groups_as_there_are() -> None:
    for drawn in weights(37, 100, seed=3):
        assert np.all(drawn.sum(axis=1) == 37)
        assert np.all(drawn >= 0)


def test_draws_do_not_depend_on_the_size_of_a_block() -> None:
    whole = np.concatenate(list(weights(50, 40, seed=1)))
    parts = np.concatenate(list(weights(50, 40, seed=1, block=500)))
    np.testing.assert_array_equal(whole.sum(axis=1), parts.sum(axis=1))
    assert len(parts) == 40


@pytest.mark.parametrize("groups", [7, 300, 4_096, 65_537])
def test_groups_are_drawn_with_equal_chances(groups: int) -> None:
    draws = max(40, 40_000 // groups)
    drawn = np.concatenate(list(weights(groups, draws, seed=1)))
    assert np.all(drawn.sum(axis=1) == groups)
    assert chisquare(drawn.sum(axis=0)).pvalue > 1e-4
    # In one draw a group occurs as often as so many equal chances let it.
    counts = np.bincount(drawn.astype(int).ravel(), minlength=5)[:5]
    expected = binom.pmf(range(5), groups, 1 / groups) * drawn.size
    np.testing.assert_allclose(counts, expected, atol=5 * np.sqrt(expected.max()))


@pytest.mark.parametrize("groups", [4_095, 4_097])
def test_one_mean_over_many_groups_is_that_of_its_weights(groups: int) -> None:
    rng = np.random.default_rng(groups)
    group = rng.integers(0, groups, 3 * groups)
    values = rng.normal(4, 1, len(group))
    drawn = np.concatenate(list(weights(groups, 40, seed=2))).astype(float)
    sums = np.bincount(group, weights=values, minlength=groups)
    counts = np.bincount(group, minlength=groups)
    means = mean_draws(
        values, np.zeros(len(group), np.int64), 1, group, groups, draws=40, seed=2
    )
    np.testing.assert_allclose(
        means[:, 0], (drawn @ sums) / (drawn @ counts), rtol=1e-6
    )


def test_group_sums_give_what_gathering_the_rows_gives() -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(1, 8, 400).astype(float)
    cells = rng.integers(0, 3, 400)
    groups = rng.integers(0, 20, 400)
    fast = mean_draws(values, cells, 3, groups, 20, draws=30, seed=5)
    for row, drawn in zip(
        fast, np.concatenate(list(weights(20, 30, seed=5))), strict=True
    ):
        repeated = np.repeat(np.arange(400), drawn[groups].astype(int))
        for cell in range(3):
            rows = repeated[cells[repeated] == cell]
            assert row[cell] == pytest.approx(values[rows].mean(), abs=1e-5)


def test_cells_done_in_turns_see_the_same_draws(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=300)
    cells = rng.integers(0, 7, 300)
    groups = rng.integers(0, 15, 300)
    whole = mean_draws(values, cells, 7, groups, 15, draws=20)
    monkeypatch.setattr(inference, "CELLS", 60)
    np.testing.assert_allclose(
        mean_draws(values, cells, 7, groups, 15, draws=20), whole, atol=1e-6
    )


def test_few_groups_widen_the_interval() -> None:
    assert tail(5) < tail(20) < tail(1000) < 0.025
    assert tail(10_000) == pytest.approx(0.025, abs=1e-4)


def test_one_group_has_no_interval_and_says_why() -> None:
    assert interval(np.ones(100), 1) is None
    assert few_groups(1) == Reason("one_image")
    assert few_groups(2) is None


def test_a_figure_undefined_in_most_draws_has_no_interval() -> None:
    assert interval(np.r_[np.ones(10), np.full(90, np.nan)], 20) is None


@given(st.lists(st.integers(1, 7), min_size=1, max_size=40), st.integers(1, 10))
@settings(max_examples=50, deadline=None)
def test_a_drawn_mean_stays_within_the_scores(scores: list[int], n_groups: int) -> None:
    values = np.array(scores, float)
    groups = np.arange(len(values)) % n_groups
    drawn = mean_draws(
        values, np.zeros(len(values), int), 1, groups, int(groups.max()) + 1, draws=50
    )
    assert np.all(drawn >= values.min() - 1e-5)
    assert np.all(drawn <= values.max() + 1e-5)


def test_a_constant_column_draws_itself_exactly() -> None:
    drawn = mean_draws(
        np.full(30, 6.1), np.zeros(30, int), 1, np.arange(30) % 7, 7, draws=50
    )
    assert set(np.ravel(drawn)) == {drawn[0, 0]}
    assert drawn[0, 0] == pytest.approx(6.1, abs=1e-12)


def test_folds_keep_groups_whole() -> None:
    groups = np.array([0, 0, 1, 1, 2, 2, 3, 3])
    fold = folds_of(groups, 3)
    assert all(len(set(fold[groups == g])) == 1 for g in range(4))
    assert set(fold) == {0, 1, 2}


def coverage(groups: int, size: int, *, by_group: bool, runs: int = 1_000) -> float:
    """How often the interval of a mean holds the true mean, on scores of 1 to 7 that share source images."""
    rng = np.random.default_rng(11)
    truth = population_mean()
    hits = 0
    label = np.repeat(np.arange(groups), size) if by_group else np.arange(groups * size)
    n = groups if by_group else groups * size
    for run in range(runs):
        values = clustered(rng, groups, size).ravel()
        drawn = mean_draws(
            values, np.zeros(len(values), int), 1, label, n, draws=600, seed=run
        )[:, 0]
        found = interval(drawn, n)
        assert found is not None
        hits += found.lo <= truth <= found.hi
    return hits / runs


@pytest.mark.parametrize("groups", [15, 40])
def test_clustered_intervals_cover_what_they_promise(groups: int) -> None:
    assert 0.93 <= coverage(groups, 5, by_group=True) <= 0.97


def test_intervals_that_ignore_the_source_image_do_not() -> None:
    assert coverage(40, 5, by_group=False) < 0.85
