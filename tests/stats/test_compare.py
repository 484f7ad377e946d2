from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from editjudge.report.words import verdict
from editjudge.stats.columns import Reason, Scores
from editjudge.stats.compare import compare, corrected, paired
from editjudge.stats.inference import holm, wilcoxon

from .made import clustered, said, scores_of, valid_json

SEVEN = {"f": range(1, 8)}


def two(
    a: Sequence[float | None], b: Sequence[float | None], group: list[int] | None = None
) -> tuple[Scores, Scores]:
    def side(name: str, values: Sequence[float | None]) -> Scores:
        n = range(len(values))
        return Scores.of(
            [f"{name}{i}" for i in n],
            ["f"] * len(values),
            values,
            group=group or n,
            pair=n,
        )

    return side("a", a), side("b", b)


def test_differences_are_paired_by_edit() -> None:
    (found,) = compare(*two([1, 2, 3, 4], [2, 2, 5, 3]))
    assert (found.n, found.mean_a, found.mean_b, found.difference) == (4, 2.5, 3, 0.5)
    assert (found.wins, found.ties, found.losses) == (2, 1, 1)


def test_edits_scored_on_one_side_only_are_counted_and_left_out() -> None:
    (found,) = compare(*two([1, None, 3, 4], [2, 2, None, 3]))
    assert (found.n, found.only_a, found.only_b) == (2, 1, 1)
    assert Reason.of("unpaired", n=2) in found.notes


def test_no_pairs_are_answered_in_words() -> None:
    (found,) = compare(*two([1, None], [None, 2]))
    assert verdict(found).startswith(
        "cannot be compared: no edit has a score on both sides"
    )
    assert found.p is None and found.difference is None and found.ci is None
    valid_json(found)


def test_noise_alone_is_no_evidence_of_a_difference() -> None:
    rng = np.random.default_rng(4)
    a = clustered(rng, 40, 1).ravel()
    b = clustered(rng, 40, 1).ravel()
    (found,) = compare(*two(list(a), list(b)), scales=SEVEN)
    assert not found.evident and found.method == "studentised"
    assert found.detectable is not None and found.detectable_reason is None
    assert verdict(found).startswith("inconclusive: no evidence of a difference")


def test_a_real_difference_is_said_with_its_direction_and_size() -> None:
    rng = np.random.default_rng(4)
    a = rng.normal(5, 1, 60)
    (found,) = compare(
        *two(list(a), list(a - 1 + rng.normal(0, 0.2, 60))), names=("old", "new")
    )
    assert verdict(found).startswith("new scores lower than old by ")
    assert found.difference == pytest.approx(-1, abs=0.1)
    assert found.ci is not None and found.ci.hi < 0


@pytest.mark.parametrize(("images", "needed"), [(3, 6), (5, 6)])
def test_few_images_cannot_show_anything_and_the_answer_says_how_many_can(
    images: int, needed: int
) -> None:
    (found,) = compare(*two([1.0] * images, [7.0] * images), scales=SEVEN)
    assert (
        found.method == "guaranteed"
        and not found.evident
        and found.p is not None
        and found.p > 0.05
    )
    assert found.detectable is None
    assert (
        said(found.detectable_reason)
        == f"{images} source images cannot show any difference at this level; {needed} can"
    )
    (enough,) = compare(*two([1.0] * needed, [7.0] * needed), scales=SEVEN)
    assert enough.evident and enough.method == "guaranteed"


def test_the_number_of_images_that_differ_is_said_where_few_do() -> None:
    (found,) = compare(*two([4.0] * 60, [4.0] * 58 + [3.0, 5.0]), scales=SEVEN)
    assert found.method == "guaranteed" and found.detectable_reason == Reason.of(
        "few_differ", moved=2, images=60
    )


def test_a_difference_of_the_same_answers_is_zero_by_identity() -> None:
    items = range(30)
    scores = Scores.of(
        items,
        ["f"] * 30,
        [float(1 + n % 7) for n in items],
        answer=np.arange(1, 31, dtype=np.uint64),
    )
    (found,) = compare(scores, scores, on="item", scales=SEVEN)
    assert found.method == "identity" and found.difference == 0
    assert (
        found.p is None
        and found.ci is None
        and not found.evident
        and not found.overturnable
    )
    others = replace(scores, answer=scores.answer + 100)
    (judged_again,) = compare(scores, others, on="item", scales=SEVEN)
    assert judged_again.method == "guaranteed", (
        "equal scores of other answers are no identity"
    )
    (unknown,) = compare(*two([3.0, 4.0, 5.0], [3.0, 4.0, 5.0]), scales=SEVEN)
    assert unknown.method == "guaranteed" and unknown.p == 1 and unknown.ties == 3


def test_an_answer_that_differs_is_tested_whatever_else_is_shared() -> None:
    items = range(30)
    answer = np.arange(1, 31, dtype=np.uint64)
    first = Scores.of(items, ["f"] * 30, [4.0] * 30, answer=answer)
    second = Scores.of(
        items,
        ["f"] * 30,
        [4.0] * 29 + [7.0],
        answer=np.where(answer == 30, 99, answer).astype(np.uint64),
    )
    (found,) = compare(first, second, on="item", scales=SEVEN)
    assert found.method == "guaranteed" and found.difference == pytest.approx(0.1)


def test_what_can_be_shown_is_at_the_level_of_the_verdict() -> None:
    rng = np.random.default_rng(5)
    values = rng.normal(4, 1, (2, 30, 3)).round(3)
    items = [f"i{n}" for n in range(30)]

    def side(k: int, factors: int) -> Scores:
        names = np.repeat([f"f{j}" for j in range(factors)], 30)
        return Scores.of(
            items * factors,
            names,
            values[k, :, :factors].T.ravel(),
            pair=items * factors,
        )

    alone, *_ = compare(side(0, 1), side(1, 1))
    among, *_ = found = compare(side(0, 3), side(1, 3))
    assert (alone.level, among.level) == pytest.approx((0.95, 1 - 0.05 / 3))
    assert (
        alone.detectable is not None
        and among.detectable is not None
        and among.detectable > alone.detectable
    )
    assert corrected(found) == found, "corrected twice is corrected once"


def test_guaranteed_bounds_can_be_asked_for() -> None:
    rng = np.random.default_rng(1)
    sides = two(list(rng.integers(2, 6, 60)), list(rng.integers(3, 7, 60)))
    (usual,) = compare(*sides, scales=SEVEN)
    (bound,) = compare(*sides, scales=SEVEN, guaranteed=True)
    assert (usual.method, bound.method) == ("studentised", "guaranteed")
    assert usual.ci is not None and bound.ci is not None
    assert bound.ci.lo < usual.ci.lo and bound.ci.hi > usual.ci.hi
    (unknown,) = compare(*sides, guaranteed=True)
    assert unknown.ci is None and unknown.p is None


def test_holm_steps_down_and_never_decreases() -> None:
    assert holm([0.01, None, 0.04, 0.03]) == [0.03, None, 0.06, 0.06]
    assert holm([0.9, 0.8]) == [1.0, 1.0]


@given(st.lists(st.floats(0, 1), max_size=12))
def test_a_corrected_p_is_never_smaller(ps: list[float]) -> None:
    for p, p_holm in zip(ps, holm(ps), strict=True):
        assert p_holm is not None and p <= p_holm <= 1


def test_repeats_tell_how_much_of_the_detectable_difference_is_the_judges_noise() -> (
    None
):
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


def test_two_judges_are_paired_by_item() -> None:
    rng = np.random.default_rng(0)
    table = clustered(rng, 10, 2)
    x, y, group, *_ = paired(
        scores_of(table, judge=["a"] * 20),
        scores_of(table + 1, judge=["b"] * 20),
        "item",
    )
    assert np.all(y - x == 1)
    assert len(group.labels) == 10


def test_wilcoxon_ranks_groups_and_agrees_with_the_library_where_each_edit_is_its_own_group() -> (
    None
):
    values = np.random.default_rng(0).integers(-3, 5, 40).astype(float)
    moved = values[values != 0]
    assert wilcoxon(values, np.arange(40)) == pytest.approx(
        stats.wilcoxon(moved).pvalue
    )
    doubled = wilcoxon(np.repeat(values, 3), np.repeat(np.arange(40), 3))
    assert doubled == pytest.approx(wilcoxon(values, np.arange(40)))
    assert wilcoxon(np.zeros(5), np.arange(5)) == 1.0
    assert wilcoxon(np.zeros(0), np.arange(0)) is None


def two_models(
    a: Sequence[float | None], b: Sequence[float | None], status: str = "refused"
) -> list[Scores]:
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


def test_of_two_equal_models_the_one_whose_bad_edits_were_refused_is_not_simply_better() -> (
    None
):
    rng = np.random.default_rng(0)
    a = rng.integers(1, 8, 60).astype(float)
    b = rng.integers(1, 8, 60).astype(float)
    better = np.where(b < a, np.nan, b)
    (result,) = compare(
        *two_models(list(a), [None if np.isnan(x) else float(x) for x in better]),
        scales=SEVEN,
    )
    assert "scores higher" in result.verdict and result.overturnable
    assert "overturn" in verdict(result)


def test_a_difference_that_no_failure_can_change_says_so() -> None:
    (found,) = compare(
        *two_models([1.0, 2.0] * 50, [6.0, 7.0] * 49 + [6.0, None]), scales=SEVEN
    )
    assert (
        "scores higher" in found.verdict
        and not found.overturnable
        and "overturn" not in verdict(found)
    )


def test_an_abstention_is_counted_and_in_no_bound() -> None:
    (found,) = compare(
        *two_models([4.0] * 20, [5.0] * 10 + [None] * 10, "abstained"), scales=SEVEN
    )
    assert (found.abstained_b, found.failed_b, found.only_a) == (10, 0, 10)
    assert (
        found.bounds is not None
        and found.bounds.worst == found.bounds.best == found.difference
    )
    assert not found.overturnable


def test_nothing_but_failures_is_no_verdict_but_has_bounds() -> None:
    (found,) = compare(*two_models([None] * 12, [None] * 12), scales=SEVEN)
    assert (
        found.n == 0
        and found.difference is None
        and found.ci is None
        and found.ci_reason
    )
    assert found.bounds is not None and (found.bounds.worst, found.bounds.best) == (
        -6,
        6,
    )
    assert found.overturnable
    valid_json(found)


def test_a_judgement_that_failed_for_all_factors_fills_all_of_them() -> None:
    """Each factor alone is evident even with its failures at the worst, but not as one of three that all are there."""
    a = [3.0, 4.0, 5.0, 4.0] * 10
    b = ([5.0, 7.0, 6.0, 6.0] * 10)[:31] + [None] * 9

    def side(scores: Sequence[float | None], factors: str) -> Scores:
        return Scores.of(
            [*range(40)] * len(factors),
            [f for f in factors for _ in scores],
            [*scores] * len(factors),
        )

    scales = dict.fromkeys("fgh", range(1, 8))
    for found in compare(side(a, "fgh"), side(b, "fgh"), on="item", scales=scales):
        assert found.bounds and found.bounds.p_worst
        assert (
            found.bounds.p_worst < 0.05 < 3 * found.bounds.p_worst
            and found.overturnable
        )
    (alone,) = compare(side(a, "f"), side(b, "f"), on="item", scales=scales)
    assert "scores higher" in alone.verdict and not alone.overturnable


def test_what_failed_cannot_pair_edits_that_were_never_asked_of_both() -> None:
    a = Scores.of(["x", "y"], ["f", "f"], [5, None])
    b = Scores.of(["z"], ["f"], [None])
    (found,) = compare(a, b, on="item", scales={"f": range(1, 8)})
    assert "cannot be compared" in found.verdict and not found.overturnable


def test_without_a_scale_what_failed_may_overturn_anything() -> None:
    (found,) = compare(*two_models([1.0, 2.0] * 50, [6.0, 7.0] * 49 + [6.0, None]))
    assert found.bounds is None and found.bounds_reason and found.overturnable


def test_equal_differences_have_an_interval_of_some_width_or_none() -> None:
    (known,) = compare(*two_models([4.0] * 30, [5.0] * 30), scales=SEVEN)
    unseen = 1 - 0.025 ** (1 / 30)
    # differences go from -6 to 6
    assert known.ci == pytest.approx((1 - 7 * unseen, 1 + 5 * unseen), abs=0.01)
    (unknown,) = compare(*two_models([4.0] * 30, [5.0] * 30))
    assert unknown.ci is None and "equal" in said(unknown.ci_reason)


@given(st.lists(st.integers(-4, 4), min_size=1, max_size=9))
@settings(max_examples=30, deadline=None)
def test_signed_ranks_of_few_images_are_scipys_exact_test(values: list[int]) -> None:
    d = np.array(values, float)
    moved = d[d != 0]
    # which takes no single value; one sign says nothing
    exact = stats.PermutationMethod(n_resamples=np.inf)
    theirs = stats.wilcoxon(moved, method=exact).pvalue if len(moved) > 1 else 1.0
    assert wilcoxon(d, np.arange(len(d))) == pytest.approx(theirs)


def test_p_interval_and_verdict_never_contradict_each_other() -> None:
    rng = np.random.default_rng(8)
    for edits in (4, 9, 30):
        items = [*range(edits)] * 6
        factors = [f"f{n}" for n in range(6) for _ in range(edits)]
        quality = rng.integers(1, 8, 6 * edits).astype(float)
        moved = np.clip(
            quality
            + np.repeat(range(6), edits) / 2
            - 1
            + rng.integers(-2, 3, 6 * edits),
            1,
            7,
        )
        a, b = (Scores.of(items, factors, side) for side in (quality, moved))
        found = compare(
            a, b, on="item", scales={f"f{n}": range(1, 8) for n in range(6)}
        )
        assert edits < 30 or len({d.evident for d in found}) == 2
        for d in found:
            assert d.ci is not None and d.ci.lo <= (d.difference or 0) <= d.ci.hi
            assert d.evident == (d.ci.lo > 0 or d.ci.hi < 0) == ("scores" in d.verdict)
