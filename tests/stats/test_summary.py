from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from editjudge.errors import UsageError
from editjudge.stats.columns import Reason, Scores
from editjudge.stats.inference import clopper_pearson
from editjudge.stats.summary import (
    Aggregate,
    aggregate,
    design_effect,
    pass_rates,
    rank,
    summarise,
)
from tests.faults import raises

from .made import clustered, said, scores_of, valid_json

STATUSES = ["ok", "ok", "ok", "abstained", "refused", "invalid", "invalid"]
SEVEN = {"f": range(1, 8)}


def seven_rows() -> Scores:
    score = [2, 6, 7, None, None, None, None]
    return Scores.of([f"i{n}" for n in range(7)], ["f"] * 7, score, status=STATUSES)


def test_every_judgement_stays_in_the_count() -> None:
    (cell,) = summarise(seven_rows(), scales=SEVEN)
    assert (cell.n, cell.ok, cell.abstained) == (7, 3, 1)
    assert cell.failed == {"refused": 1, "invalid": 2}
    assert (cell.mean, cell.median) == (5, 6)


def test_bounds_put_every_failure_at_either_end_and_leave_abstentions_out() -> None:
    (cell,) = summarise(seven_rows(), scales=SEVEN)
    assert cell.worst_case == pytest.approx((15 + 3 * 1) / 6)
    assert cell.best_case == pytest.approx((15 + 3 * 7) / 6)


def test_without_a_scale_nothing_bounds_what_failed() -> None:
    (cell,) = summarise(seven_rows())
    assert (cell.worst_case, cell.best_case) == (None, None)
    assert Reason("scale_unknown") in cell.notes


def test_the_distribution_shows_values_that_nobody_gave() -> None:
    (cell,) = summarise(seven_rows(), scales=SEVEN)
    assert cell.distribution == {"1": 0, "2": 1, "3": 0, "4": 0, "5": 0, "6": 1, "7": 1}


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0, 7.0]), min_size=1, max_size=60))
@settings(max_examples=50, deadline=None)
def test_mean_and_median_are_numpys(values: list[float]) -> None:
    (cell,) = summarise(
        Scores.of(range(len(values)), ["f"] * len(values), values), draws=20
    )
    assert cell.mean == pytest.approx(np.mean(values))
    assert cell.median == np.median(values)
    assert sum(cell.distribution.values()) == cell.ok == len(values)
    valid_json(cell)


def test_cells_are_split_by_model_and_slice() -> None:
    scores = Scores.of(
        "abcd",
        "ffff",
        [1, 2, 3, 4],
        model=["m", "m", "n", "n"],
        slices={"edit_type": ["add", "remove", "add", "add"]},
    )
    cells = {(c.model, c.slice): c.mean for c in summarise(scores, by="edit_type")}
    assert cells == {("m", "add"): 1, ("m", "remove"): 2, ("n", "add"): 3.5}
    with raises(UsageError, "unknown_column", "colour"):
        summarise(scores, by="colour")


def test_a_cell_where_all_failed_has_no_mean_and_both_bounds() -> None:
    (cell,) = summarise(Scores.of("ab", "ff", [None, None]), scales=SEVEN)
    assert (cell.mean, cell.ci, cell.worst_case, cell.best_case) == (None, None, 1, 7)
    assert cell.notes[0].code == "no_scores"


def test_an_aggregate_says_its_formula_and_follows_it() -> None:
    scores = Scores.of("aaabbb", "xyzxyz", [1, 2, 4, 7, 7, 7])
    kinds = [
        Aggregate(how, ("x", "y", "z"), how) for how in ("mean", "geometric", "minimum")
    ]
    assert [kind.formula for kind in kinds] == [
        "mean = (x + y + z) / 3",
        "geometric = (x * y * z) ** (1/3)",
        "minimum = min(x, y, z)",
    ]
    table = aggregate(scores, kinds)
    found = {
        name: table.where(factor=name).score
        for name in ("mean", "geometric", "minimum")
    }
    np.testing.assert_allclose(found["mean"], [7 / 3, 7])
    np.testing.assert_allclose(found["geometric"], [2, 7])
    np.testing.assert_allclose(found["minimum"], [1, 7])


def test_an_aggregate_with_a_missing_factor_is_missing_too() -> None:
    scores = Scores.of(
        "aabbcc", "xyxyxy", [5, None, 5, None, 5, 6],
        status=["ok", "abstained", "ok", "refused", "ok", "ok"],
    )  # fmt: skip
    table = aggregate(scores, [Aggregate("both", ("x", "y"))]).where(factor="both")
    assert dict(zip(table.item, table.status, strict=True)) == {
        "a": "abstained",
        "b": "refused",
        "c": "ok",
    }


def test_an_aggregate_whose_factor_was_never_asked_has_failed() -> None:
    scores = Scores.of("aab", "xyx", [5, 5, 5])
    table = aggregate(scores, [Aggregate("both", ("x", "y"))]).where(factor="both")
    assert dict(zip(table.item, table.status, strict=True)) == {
        "a": "ok",
        "b": "failed",
    }


def test_repeats_are_aggregated_each_on_its_own() -> None:
    scores = Scores.of("aaaa", "xyxy", [1, 3, 5, 7], repeat=[0, 0, 1, 1])
    np.testing.assert_allclose(
        sorted(aggregate(scores, [Aggregate("m", ("x", "y"))]).where(factor="m").score),
        [2, 6],
    )


@given(st.integers(0, 40), st.integers(1, 40))
def test_clopper_pearson_is_scipys(successes: int, n: int) -> None:
    successes = min(successes, n)
    theirs = binomtest(successes, n).proportion_ci(method="exact")
    assert clopper_pearson(successes / n, n) == pytest.approx((theirs.low, theirs.high))


def test_pass_rates_of_unshared_images_are_clopper_pearsons_intervals() -> None:
    scores = Scores.of(range(10), ["effect_score"] * 10, [5] * 7 + [3, 1, None])
    (found,) = pass_rates(scores, {"effect_score": 5})
    assert (found.n, found.ok, found.passed, found.rate) == (10, 9, 7, 7 / 9)
    assert found.design_effect == 1
    theirs = binomtest(7, 9).proportion_ci(method="exact")
    assert found.ci == pytest.approx((theirs.low, theirs.high))


def test_300_passes_on_three_images_are_three_passes() -> None:
    scores = Scores.of(
        range(300), ["f"] * 300, [5] * 300, group=[n % 3 for n in range(300)]
    )
    (found,) = pass_rates(scores, {"f": 5})
    theirs = binomtest(3, 3).proportion_ci(method="exact")
    assert found.ci == pytest.approx((theirs.low, theirs.high))
    (one,) = pass_rates(
        Scores.of(range(9), ["f"] * 9, [5] * 9, group=["g"] * 9), {"f": 5}
    )
    assert one.ci is None and "only one source image" in said(one.ci_reason)


def test_equal_models_are_hardly_ever_certain_of_their_rank() -> None:
    rng = np.random.default_rng(4)
    certain = 0
    runs = 400
    for _ in range(runs):
        score = rng.integers(1, 8, (3, 5)).astype(float)
        table = Scores.of(range(15), ["f"] * 15, score.ravel(), model=np.repeat(list("abc"), 5),
                          group=np.tile(np.arange(5), 3))  # fmt: skip
        certain += any(r.ci != (1, 3) for r in rank(table))
    assert certain / runs <= 0.05


def test_shared_images_widen_a_pass_rate() -> None:
    values = np.repeat([1.0, 0.0, 1.0, 0.0], 5)
    groups = np.repeat(np.arange(4), 5)
    assert design_effect(values, groups) == pytest.approx(5)


def test_ranks_come_with_what_other_images_might_give() -> None:
    rng = np.random.default_rng(2)
    quality = rng.normal(4, 1, 60)
    rows = [
        (m, g, quality[g] + shift + rng.normal(0, 0.3))
        for m, shift in (("good", 1), ("even", 0), ("twin", 0))
        for g in range(60)
    ]
    scores = Scores.of(
        [f"{m}{g}" for m, g, _ in rows], ["f"] * len(rows), [s for *_, s in rows],
        model=[m for m, *_ in rows], group=[g for _, g, _ in rows],
    )  # fmt: skip
    ranks = {r.model: r for r in rank(scores)}
    assert ranks["good"].rank == 1 and ranks["good"].ci == (1, 1)
    assert ranks["even"].ci == ranks["twin"].ci == (2, 3)


def test_the_lowest_mean_is_first_where_lower_is_better() -> None:
    near = [0.1, 0.2] * 10
    far = [0.6, 0.7] * 10
    table = Scores.of(
        [*range(40)],
        ["l1"] * 40,
        near + far,
        model=["near"] * 20 + ["far"] * 20,
        group=[*range(20)] * 2,
    )
    first, second = rank(table, falling={"l1"}, scales={"l1": (1.0, 0.0)})
    assert (first.model, first.rank, first.ci) == (
        "near",
        1,
        (1, 1),
    ) and first.mean == pytest.approx(0.15)
    assert (second.model, second.rank, second.ci) == ("far", 2, (2, 2))


def test_models_with_equal_means_share_a_rank() -> None:
    scores = Scores.of(
        "abcd", "ffff", [3, 5, 5, 3], model=["m", "m", "n", "n"], group=[0, 1, 0, 1]
    )
    assert {r.rank for r in rank(scores)} == {1}


def test_intervals_are_the_same_every_time() -> None:
    scores = scores_of(clustered(np.random.default_rng(0), 20, 3))
    assert summarise(scores)[0].ci == summarise(scores)[0].ci


def test_the_spread_over_repeats_stands_beside_each_mean() -> None:
    score = [1, 3, 5, 5, 7, 2, None]
    repeat = [0, 1, 0, 1, 2, 0, 1]
    status = ["ok"] * 6 + ["invalid"]
    items = ["a", "a", "b", "b", "b", "c", "c"]
    models = ["m"] * 5 + ["n"] * 2
    m, n = summarise(
        Scores.of(items, ["f"] * 7, score, status=status, model=models, repeat=repeat)
    )
    within = np.var([1, 3], ddof=1) * 1 + np.var([5, 5, 7], ddof=1) * 2
    assert m.repeat_sd == pytest.approx((within / 3) ** 0.5)
    assert n.repeat_sd is None  # one score and one failure say nothing of a spread
    (alone,) = summarise(Scores.of(["a", "b"], ["f"] * 2, [1, 3]))
    assert alone.repeat_sd is None
