"""Bridges between judges: maps, bands, and errors on images that they were not fitted to."""

from __future__ import annotations

import numpy as np
import pytest

from editjudge.stats.bridge import (
    BridgeLimits,
    EditPairs,
    FactorBridge,
    bridge,
    map_error,
    mapped,
)
from editjudge.stats.columns import Column, Floats, Interval, Scores
from editjudge.stats.compare import compare
from editjudge.stats.inference import AddedError, Clusters, Widened, infer

SCALE = (1.0, 7.0)
SHIFT = np.array([-0.6, -0.1, 0.2, 0.5])


def quality(images: int, seed: int = 0, models: int = 4) -> Floats:
    """How good each edit is, of each model (columns) for each image (rows)."""
    rng = np.random.default_rng(seed)
    return np.asarray(
        rng.normal(4, 1.2, (images, 1))
        + rng.normal(0, 0.6, (images, models))
        + SHIFT[:models]
    )


def pairs(old: Floats, new: Floats) -> EditPairs:
    images, models = old.shape
    group = Column.of(np.repeat(np.arange(images), models))
    return EditPairs(
        tuple(map(str, range(old.size))),
        old.ravel(),
        new.ravel(),
        Column.of(np.tile(np.arange(models), images)),
        group,
        group,
    )


def stricter(images: int = 100, seed: int = 0, noise: float = 0.15) -> EditPairs:
    """A new judge that uses half of the scale."""
    rng = np.random.default_rng([seed, 1])
    q = quality(images, seed)
    old, new = (
        np.clip(q_ + rng.normal(0, noise, q.shape), 1, 7) for q_ in (q, 1 + q / 2)
    )
    return pairs(old, np.round(new, 1))


def rounded(images: int = 100, seed: int = 0) -> EditPairs:
    rng = np.random.default_rng([seed, 1])
    q = quality(images, seed)
    old, new = (
        np.clip(np.round(q + rng.normal(0, 0.4, q.shape)), 1, 7) for _ in range(2)
    )
    return pairs(old, new)


def test_a_judge_against_itself_is_comparable_without_error() -> None:
    each = rounded()
    same = bridge(EditPairs(**{**vars(each), "new": each.old}), scale=SCALE)
    assert same.comparable and same.within == 0
    assert same.spearman_ci == Interval(1, 1) and same.same_verdicts == 1
    assert all(k.new == k.old == k.lo == k.hi for k in same.map)


def test_another_use_of_the_scale_is_mapped_back() -> None:
    result = bridge(stricter(), scale=SCALE)
    assert result.comparable and result.within is not None and result.within < 0.75
    back = mapped(result.map, np.array([2.5, 3.0, 3.5, np.nan]))
    assert back[:3] == pytest.approx([3, 4, 5], abs=0.3) and np.isnan(back[3])


def test_the_map_rises_within_its_band_and_the_scale() -> None:
    for seed in range(20):
        result = bridge(rounded(15, seed), scale=SCALE, draws=50)
        for column in ("new", "old", "lo", "hi"):
            values = [getattr(knot, column) for knot in result.map]
            assert values == sorted(values)
        for knot in result.map:
            assert 1 <= knot.lo <= knot.old <= knot.hi <= 7


def test_a_few_edits_of_a_judge_against_itself_have_no_error_at_rare_scores() -> None:
    for seed in range(10):
        each = rounded(14, seed)
        same = EditPairs(**{**vars(each), "new": each.old})
        assert bridge(same, scale=SCALE, new_scale=SCALE, draws=50).within == 0


def test_the_map_continues_to_the_ends_of_the_scale_with_a_wide_band() -> None:
    each = rounded()
    middle = each.take((each.new > 2) & (each.new < 6))
    result = bridge(middle, scale=SCALE, new_scale=SCALE)
    first, *_, last = result.map
    assert (first.new, first.n, first.lo) == (1, 0, 1)
    assert (last.new, last.n, last.hi) == (7, 0, 7)
    assert first.old < result.map[1].old < result.map[-2].old < last.old


def test_random_scores_are_not_comparable() -> None:
    each = rounded()
    random = np.random.default_rng(5).integers(1, 8, len(each)).astype(float)
    result = bridge(EditPairs(**{**vars(each), "new": random}), scale=SCALE)
    assert not result.comparable
    assert result.reason and result.reason.code == "bridge_ranks"


def test_random_scores_near_the_old_ones_are_not_comparable_either() -> None:
    rng = np.random.default_rng(5)
    old = rng.choice([6.0, 6.5], (100, 2))
    result = bridge(pairs(old, rng.choice([6.0, 6.5], old.shape)), scale=SCALE)
    assert result.within is not None and result.within < 0.75
    assert result.reason and result.reason.code == "bridge_ranks"


@pytest.mark.parametrize("side", ["old", "new"])
def test_a_constant_judge_has_no_correlation_and_no_bridge(side: str) -> None:
    each = rounded()
    flat = {**vars(each), side: np.full(len(each), 5.0)}
    result = bridge(EditPairs(**flat), scale=SCALE)
    assert not result.comparable and result.spearman is None
    assert result.reason and result.reason.code == "constant_scores"


@pytest.mark.parametrize("images", [0, 1, 9])
def test_too_few_images_have_a_reason_and_no_figures(images: int) -> None:
    result = bridge(rounded(images), scale=SCALE)
    assert result.reason and result.reason.code == "bridge_few"
    assert (result.comparable, result.n, result.within) == (False, 4 * images, None)
    assert result.map == () and result.spearman is None


def test_without_ends_of_a_scale_nothing_is_close_enough() -> None:
    result = bridge(stricter(), scale=None)
    assert result.reason and result.reason.code == "bridge_no_ends"
    assert result.within is not None and result.limit is None


def test_the_limit_is_the_same_share_of_every_scale() -> None:
    ours = bridge(stricter(), scale=SCALE)
    each = stricter()
    tenfold = EditPairs(**{**vars(each), "old": 10 * (each.old - 1)})
    theirs = bridge(tenfold, scale=(0.0, 60.0))
    assert ours.limit == 0.75 and theirs.limit == 7.5
    assert ours.within is not None
    assert theirs.within == pytest.approx(10 * ours.within)
    assert ours.share == theirs.share


def test_within_and_share_agree_about_the_limit() -> None:
    for within in (0.2, 0.4, 0.6, 0.8):
        result = bridge(stricter(), scale=SCALE, limits=BridgeLimits(within))
        assert result.share is not None and result.within is not None
        assert (result.share >= 0.9) == (result.within <= within) == result.comparable


def test_a_failed_edit_is_counted_and_has_no_number() -> None:
    n = 40
    item = [f"e{i}" for i in range(n)]
    score: list[float | None] = [1.0 + i % 7 for i in range(n)]
    lost = [None if i < 3 else value for i, value in enumerate(score)]
    sides = [
        Scores.of(item, ["f"] * n, values, pair=item, slices={"task": item})
        for values in (score, lost)
    ]
    each = EditPairs.of(*sides)
    assert (len(each), each.failed_old, each.failed_new) == (n, 0, 3)
    assert bridge(each, scale=SCALE).n == n - 3


def test_people_agree_with_both_judges_on_the_same_edits() -> None:
    each = stricter()
    human = np.where(np.arange(len(each)) % 2 == 0, each.old, np.nan)
    rated = bridge(each, scale=SCALE, human=human).people
    assert rated is not None and rated.n == len(each) // 2
    assert rated.old == pytest.approx(1) and rated.new is not None
    assert rated.difference == pytest.approx(rated.new - 1)
    assert rated.difference_ci is not None and rated.difference_ci.hi < 0


def test_the_band_covers_the_true_map() -> None:
    # E[old | new] of a new judge whose score is the quality itself, rounded to halves.
    covered = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        new = np.round(2 * np.clip(quality(40, seed), 1.5, 6.5)) / 2
        old = 2 + new / 2 + rng.normal(0, 0.7, new.shape)
        result = bridge(pairs(old, new), scale=(-5.0, 15.0), draws=20)
        covered += [knot.lo <= 2 + knot.new / 2 <= knot.hi for knot in result.map]
    assert 0.93 < np.mean(covered) <= 1


def test_models_that_the_map_does_not_fit_have_an_error_of_their_own() -> None:
    each = stricter()
    favoured = each.old + np.where(each.model.codes == 3, 0.8, 0.0)
    plain = bridge(each, scale=SCALE).model_error
    biased = bridge(EditPairs(**{**vars(each), "old": favoured}), scale=SCALE)
    assert plain is not None and biased.model_error is not None
    assert biased.model_error > 0.3 > plain


# --- intervals through a bridge ---------------------------------------------------------------------------------


def sides(shift: float) -> tuple[Scores, Scores]:
    rng = np.random.default_rng(0)
    item = [f"e{i}" for i in range(60)]
    first = rng.normal(4, 1, 60)
    values = (first, first + rng.normal(shift, 1, 60))
    a, b = (Scores.of(item, ["f"] * 60, each, pair=item) for each in values)
    return a, b


def test_an_added_error_widens_interval_and_p_alike() -> None:
    for shift in (0.2, 0.4, 0.8):
        a, b = sides(shift)
        (plain,) = compare(a, b)
        (wide,) = compare(a, b, errors={"f": AddedError(0.1, 0.1, 10)})
        assert plain.ci and wide.ci and plain.p and wide.p
        assert wide.method == "bridged" and wide.difference == plain.difference
        assert wide.ci.lo < plain.ci.lo and plain.ci.hi < wide.ci.hi
        assert wide.p > plain.p
        assert (wide.p < 0.05) == (wide.ci.lo > 0 or wide.ci.hi < 0)
        assert wide.detectable and plain.detectable
        assert wide.detectable > plain.detectable


def test_no_error_adds_nothing() -> None:
    values = np.random.default_rng(0).normal(0.5, 1, 50)
    clusters = Clusters.of(values, np.arange(50))
    (base,) = infer([clusters])
    assert base is not None
    same = Widened(clusters, base, AddedError(0.0))
    assert same.interval() == pytest.approx(base.interval())
    assert same.p() == pytest.approx(base.p(), rel=0.05)


def test_the_error_of_a_map_is_that_at_the_scores_that_it_maps() -> None:
    result: FactorBridge = bridge(rounded(400), scale=SCALE)
    middle = map_error(result.map, np.full(20, 4.0), 0.0, 4)
    rare = map_error(result.map, np.full(20, 1.0), 0.0, 4)
    assert 0 < middle.total < rare.total
    both = map_error(result.map, np.full(20, 4.0), 0.3, 4)
    assert both.total == pytest.approx(np.hypot(middle.map, 0.3 * 1.25**0.5))
    assert both.half(0.025) > 1.96 * both.total
