from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from effort import effort
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import permutation_test

from editjudge.stats import permutation
from editjudge.stats.columns import Scores
from editjudge.stats.compare import cluster_error, compare, corrected, detectable, paired
from editjudge.stats.permutation import holm, sign_flip, wilcoxon

from .made import clustered, scores_of, valid_json


def two(a: list[float | None], b: list[float | None], group: list[int] | None = None) -> tuple[Scores, Scores]:
    def side(name: str, values: list[float | None]) -> Scores:
        n = range(len(values))
        return Scores.of([f"{name}{i}" for i in n], ["f"] * len(values), values, group=group or n, pair=n)

    return side("a", a), side("b", b)


def test_differences_are_paired_by_edit() -> None:
    (found,) = compare(*two([1, 2, 3, 4], [2, 2, 5, 3]))
    assert (found.n, found.mean_a, found.mean_b, found.difference) == (4, 2.5, 3, 0.5)
    assert (found.wins, found.ties, found.losses) == (2, 1, 1)


def test_edits_scored_on_one_side_only_are_counted_and_left_out() -> None:
    (found,) = compare(*two([1, None, 3, 4], [2, 2, None, 3]))
    assert (found.n, found.only_a, found.only_b) == (2, 1, 1)
    assert any("2 edits have a score on one side only" in note for note in found.notes)


def test_no_pairs_are_answered_in_words() -> None:
    (found,) = compare(*two([1, None], [None, 2]))
    assert found.verdict.startswith("cannot be compared: no edit has a score on both sides")
    assert found.p is None and found.difference is None and found.ci is None
    valid_json(found)


def test_noise_alone_is_no_evidence_of_a_difference() -> None:
    rng = np.random.default_rng(4)
    a, b = clustered(rng, 40, 1).ravel(), clustered(rng, 40, 1).ravel()
    (found,) = compare(*two(list(a), list(b)))
    assert found.verdict.startswith("inconclusive: no evidence of a difference")
    assert "MDE at 80 % power" in found.verdict


def test_a_real_difference_is_said_with_its_direction_and_size() -> None:
    rng = np.random.default_rng(4)
    a = rng.normal(5, 1, 60)
    (found,) = compare(*two(list(a), list(a - 1 + rng.normal(0, 0.2, 60))), names=("old", "new"))
    assert found.verdict.startswith("new scores lower than old by ")
    assert found.difference == pytest.approx(-1, abs=0.1)
    assert found.ci is not None and found.ci.hi < 0


def test_three_edits_cannot_show_anything() -> None:
    (found,) = compare(*two([1, 1, 1], [7, 7, 7]))
    assert found.p == 0.25
    assert found.verdict.startswith("inconclusive: no evidence of a difference")
    assert any("same difference" in note for note in found.notes)


def test_identical_scores_have_p_one() -> None:
    (found,) = compare(*two([3, 4, 5], [3, 4, 5]))
    assert found.p == 1
    assert found.ties == 3


@given(st.lists(st.integers(-6, 6), min_size=3, max_size=9))
@settings(max_examples=25, deadline=None)
def test_exact_sign_flips_are_scipys_paired_permutation_test(values: list[int]) -> None:
    d = np.array(values, float)
    theirs = permutation_test(
        (d, np.zeros(len(d))), lambda x, y: np.mean(x - y), permutation_type="samples", n_resamples=10_000
    )
    ours = sign_flip(d, np.arange(len(d)))
    assert ours == pytest.approx(theirs.pvalue)


def test_drawn_sign_flips_come_close_to_exact_ones() -> None:
    d = np.random.default_rng(1).normal(0.4, 1, 20)
    exact = np.mean(np.abs((1 - 2 * ((np.arange(2**20)[:, None] >> np.arange(20)) & 1)) @ d) >= abs(d.sum()))
    assert sign_flip(d, np.arange(20)) == pytest.approx(exact, abs=0.01)


def test_flipping_whole_groups_keeps_its_false_alarms_and_flipping_rows_does_not() -> None:
    rng, runs, size = np.random.default_rng(9), 400, 5
    found: dict[str, int] = {"groups": 0, "rows": 0}
    for run in range(runs):
        # Differences share a source image, and their mean is zero.
        d = (rng.normal(0, 1, (25, 1)) + rng.normal(0, 1, (25, size))).ravel()
        for name, groups in (("groups", np.repeat(np.arange(25), size)), ("rows", np.arange(25 * size))):
            p = sign_flip(d, groups, seed=run, flips=400)
            found[name] += p is not None and p < 0.05
    assert found["groups"] / runs < 0.08
    assert found["rows"] / runs > 0.15


def test_holm_steps_down_and_never_decreases() -> None:
    assert holm([0.01, None, 0.04, 0.03]) == [0.03, None, 0.06, 0.06]
    assert holm([0.9, 0.8]) == [1.0, 1.0]


@given(st.lists(st.floats(0, 1), max_size=12))
def test_a_corrected_p_is_never_smaller(ps: list[float]) -> None:
    for p, p_holm in zip(ps, holm(ps), strict=True):
        assert p_holm is not None and p <= p_holm <= 1


def test_the_detectable_difference_is_found_about_eighty_times_in_a_hundred() -> None:
    rng, n, runs = np.random.default_rng(5), 30, 400
    true = detectable(1 / np.sqrt(n), n)
    assert true is not None
    found = 0
    for run in range(runs):
        p = sign_flip(rng.normal(true, 1, n), np.arange(n), seed=run, flips=1_000)
        found += p is not None and p < 0.05
    assert 0.74 <= found / runs <= 0.86


def test_what_can_be_shown_is_at_the_level_of_the_verdict() -> None:
    rng = np.random.default_rng(5)
    values = rng.normal(4, 1, (2, 30, 3)).round(3)
    items = [f"i{n}" for n in range(30)]

    def side(k: int, factors: int) -> Scores:
        names = np.repeat([f"f{j}" for j in range(factors)], 30)
        return Scores.of(items * factors, names, values[k, :, :factors].T.ravel(), pair=items * factors)

    alone, *_ = compare(side(0, 1), side(1, 1))
    among, *_ = found = compare(side(0, 3), side(1, 3))
    assert alone.error == among.error and alone.error is not None
    assert alone.detectable == detectable(alone.error, 30)
    assert among.detectable == detectable(alone.error, 30, 3)
    assert among.detectable > alone.detectable  # type: ignore[operator]
    assert corrected(found) == found, "corrected twice is corrected once"


def test_one_of_several_comparisons_finds_its_detectable_difference_eighty_times_in_a_hundred() -> None:
    rng, n, runs = np.random.default_rng(5), 30, 400
    true = detectable(1 / np.sqrt(n), n, 4)
    assert true is not None
    found = 0
    for run in range(runs):
        p = sign_flip(rng.normal(true, 1, n), np.arange(n), seed=run, flips=1_000)
        found += p is not None and p < 0.05 / 4
    assert 0.74 <= found / runs <= 0.86


def test_repeats_tell_how_much_of_the_detectable_difference_is_the_judges_noise() -> None:
    rng = np.random.default_rng(3)
    quality = np.repeat(rng.normal(4, 1, 50), 3)

    def side(name: str) -> Scores:
        return Scores.of(
            np.repeat([f"{name}{i}" for i in range(50)], 3), ["f"] * 150, quality + rng.normal(0, 1, 150),
            pair=np.repeat(np.arange(50), 3), group=np.repeat(np.arange(50), 3), repeat=np.tile([0, 1, 2], 50),
        )  # fmt: skip

    (found,) = compare(side("a"), side("b"))
    assert found.n == 50
    assert found.detectable is not None and found.detectable_without_noise is not None
    assert found.detectable_without_noise < found.detectable / 2


def test_the_clustered_error_equals_the_plain_one_where_no_image_is_shared() -> None:
    d = np.random.default_rng(0).normal(size=50)
    assert cluster_error(d, np.arange(50)) == pytest.approx(d.std(ddof=1) / np.sqrt(50))


def test_two_judges_are_paired_by_item() -> None:
    rng = np.random.default_rng(0)
    table = clustered(rng, 10, 2)
    x, y, group, *_ = paired(scores_of(table, judge=["a"] * 20), scores_of(table + 1, judge=["b"] * 20), "item")
    assert np.all(y - x == 1)
    assert len(group.labels) == 10


def test_wilcoxon_ranks_groups_and_agrees_with_the_library_where_each_edit_is_its_own_group() -> None:
    values = np.random.default_rng(0).integers(-3, 5, 40).astype(float)
    moved = values[values != 0]
    assert wilcoxon(values, np.arange(40)) == pytest.approx(stats.wilcoxon(moved).pvalue)
    doubled = wilcoxon(np.repeat(values, 3), np.repeat(np.arange(40), 3))
    assert doubled == pytest.approx(wilcoxon(values, np.arange(40)))
    assert wilcoxon(np.zeros(5), np.arange(5)) == 1.0
    assert wilcoxon(np.zeros(0), np.arange(0)) is None


SEVEN = {"f": range(1, 8)}


def two_models(a: Sequence[float | None], b: Sequence[float | None], status: str = "refused") -> list[Scores]:
    pairs = [f"p{n}" for n in range(len(a))]
    return [
        Scores.of(pairs, ["f"] * len(pairs), side, group=pairs, pair=pairs,
                  status=["ok" if score is not None else status for score in side])
        for side in (a, b)
    ]  # fmt: skip


def test_an_edit_that_failed_on_one_side_is_counted_and_bounds_the_difference() -> None:
    (found,) = compare(*two_models([4.0] * 9 + [7.0], [4.0] * 9 + [None]), scales=SEVEN)
    assert (found.n, found.failed_a, found.failed_b) == (9, 0, 1)
    assert found.bounds is not None
    assert (found.bounds.worst, found.bounds.best) == pytest.approx((-0.6, 0))


def test_of_two_equal_models_the_one_whose_bad_edits_were_refused_is_not_simply_better() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(1, 8, 60).astype(float), rng.integers(1, 8, 60).astype(float)
    better = np.where(b < a, np.nan, b)
    (found,) = compare(*two_models(list(a), [None if np.isnan(x) else float(x) for x in better]), scales=SEVEN)
    assert "scores higher" in found.verdict and found.overturnable
    assert "failed judgements could overturn this" in found.verdict


def test_a_difference_that_no_failure_can_change_says_so() -> None:
    (found,) = compare(*two_models([1.0, 2.0] * 50, [6.0, 7.0] * 49 + [6.0, None]), scales=SEVEN)
    assert "scores higher" in found.verdict and not found.overturnable and "overturn" not in found.verdict


def test_an_abstention_is_counted_and_in_no_bound() -> None:
    (found,) = compare(*two_models([4.0] * 20, [5.0] * 10 + [None] * 10, "abstained"), scales=SEVEN)
    assert (found.abstained_b, found.failed_b, found.only_a) == (10, 0, 10)
    assert found.bounds is not None and found.bounds.worst == found.bounds.best == found.difference
    assert not found.overturnable


def test_nothing_but_failures_is_no_verdict_but_has_bounds() -> None:
    (found,) = compare(*two_models([None] * 12, [None] * 12), scales=SEVEN)
    assert found.n == 0 and found.difference is None and found.ci is None and found.ci_reason
    assert found.bounds is not None and (found.bounds.worst, found.bounds.best) == (-6, 6)
    assert found.overturnable
    valid_json(found)


def test_a_judgement_that_failed_for_all_factors_fills_all_of_them() -> None:
    """Each factor alone is evident even with its failures at the worst, but not as one of three that all are there."""
    a, b = [3.0, 4.0] * 8, [6.0, 7.0] * 6 + [None] * 4

    def side(scores: Sequence[float | None], factors: str) -> Scores:
        return Scores.of([*range(16)] * len(factors), [f for f in factors for _ in scores], [*scores] * len(factors))

    scales = dict.fromkeys("fgh", range(1, 8))
    for found in compare(side(a, "fgh"), side(b, "fgh"), on="item", scales=scales):
        assert found.bounds and found.bounds.p_worst
        assert found.bounds.p_worst < 0.05 < 3 * found.bounds.p_worst and found.overturnable
    (alone,) = compare(side(a, "f"), side(b, "f"), on="item", scales=scales)
    assert "scores higher" in alone.verdict and not alone.overturnable


def test_what_failed_cannot_pair_edits_that_were_never_asked_of_both() -> None:
    a, b = Scores.of(["x", "y"], ["f", "f"], [5, None]), Scores.of(["z"], ["f"], [None])
    (found,) = compare(a, b, on="item", scales={"f": range(1, 8)})
    assert "cannot be compared" in found.verdict and not found.overturnable


def test_without_a_scale_what_failed_may_overturn_anything() -> None:
    (found,) = compare(*two_models([1.0, 2.0] * 50, [6.0, 7.0] * 49 + [6.0, None]))
    assert found.bounds is None and found.bounds_reason and found.overturnable


def test_equal_differences_have_an_interval_of_some_width_or_none() -> None:
    (known,) = compare(*two_models([4.0] * 30, [5.0] * 30), scales=SEVEN)
    unseen = 1 - 0.025 ** (1 / 30)
    assert known.ci == pytest.approx((1 - 7 * unseen, 1 + 5 * unseen), abs=0.01)  # differences go from -6 to 6
    (unknown,) = compare(*two_models([4.0] * 30, [5.0] * 30))
    assert unknown.ci is None and "equal" in str(unknown.ci_reason)


@given(st.lists(st.integers(-4, 4), min_size=1, max_size=9))
@settings(max_examples=30, deadline=None)
def test_signed_ranks_of_few_images_are_scipys_exact_test(values: list[int]) -> None:
    d = np.array(values, float)
    moved = d[d != 0]
    exact = stats.PermutationMethod(n_resamples=np.inf)  # which takes no single value; one sign says nothing
    theirs = stats.wilcoxon(moved, method=exact).pvalue if len(moved) > 1 else 1.0
    assert wilcoxon(d, np.arange(len(d))) == pytest.approx(theirs)


def test_the_normal_law_stands_in_for_flips_where_thousands_of_images_carry_a_difference() -> None:
    rng = np.random.default_rng(1)
    for shift in (0.0, 0.03, 0.05):
        d = rng.integers(-3, 4, 3_500).astype(np.float64) + shift
        drawn = permutation._flipped(d[:, None], 0, permutation.FLIPS)[0]
        # Four standard errors of 20,000 flips.
        assert sign_flip(d, np.arange(len(d))) == pytest.approx(drawn, abs=4 * np.sqrt(max(drawn, 1e-4) / 20_000))


@given(
    st.lists(st.tuples(st.integers(-6, 6), st.integers(0, 9)), min_size=1, max_size=24),
    st.sampled_from([0.05, 0.01, 0.05 / 7]),
)
@settings(max_examples=60, deadline=None)
def test_the_inverted_test_excludes_zero_exactly_where_p_is_below_the_level(
    table: list[tuple[int, int]], level: float
) -> None:
    values, labels = np.array([v for v, _ in table], float), [g for _, g in table]
    groups = np.unique(labels, return_inverse=True)[1]
    ci = permutation.InvertedTest(values, groups, 2_000).limits(level)
    p = sign_flip(values, groups, flips=2_000)
    assert p is not None and (p < level) == (ci.lo > 0 or ci.hi < 0)


@pytest.mark.parametrize("images", [9, 40, 2_500])
def test_the_inverted_test_holds_the_means_that_the_test_does_not_reject(images: int) -> None:
    values, groups = np.random.default_rng(images).normal(0.3, 1, images), np.arange(images)
    ci = permutation.InvertedTest(values, groups).limits(0.05)
    for inside, mean in ((True, ci.lo + 0.01), (False, ci.lo - 0.01), (True, ci.hi - 0.01), (False, ci.hi + 0.01)):
        p = sign_flip(values - mean, groups)
        assert p is not None and (p >= 0.05) == inside


@pytest.mark.parametrize("moved", [0, 1])
def test_limits_cost_no_more_where_most_images_are_without_a_difference(moved: int) -> None:
    groups = np.arange(40)

    def limits(count: int) -> None:
        permutation.InvertedTest(np.where(groups < count, 1.0 + groups, 0.0), groups).limits(0.05)

    # With a pass in Python for every draw it was 60 to 100 times as much.
    assert effort(lambda: limits(moved), lambda: limits(40), 8) < 8


def test_p_interval_and_verdict_never_contradict_each_other() -> None:
    rng = np.random.default_rng(8)
    for edits in (4, 9, 30):
        items, factors = [*range(edits)] * 6, [f"f{n}" for n in range(6) for _ in range(edits)]
        quality = rng.integers(1, 8, 6 * edits).astype(float)
        moved = np.clip(quality + np.repeat(range(6), edits) / 2 - 1 + rng.integers(-2, 3, 6 * edits), 1, 7)
        a, b = (Scores.of(items, factors, side) for side in (quality, moved))
        found = compare(a, b, on="item", scales={f"f{n}": range(1, 8) for n in range(6)})
        assert edits < 30 or len({d.evident for d in found}) == 2
        for d in found:
            assert d.ci is not None and d.ci.lo <= (d.difference or 0) <= d.ci.hi
            assert d.evident == (d.ci.lo > 0 or d.ci.hi < 0) == ("scores" in d.verdict)
