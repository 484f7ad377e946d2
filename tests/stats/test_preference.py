from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from editjudge.errors import UsageError
from editjudge.stats.columns import Reason
from editjudge.stats.pairwise import accuracy, tie_calibrated
from editjudge.stats.strengths import bradley_terry
from tests.faults import raises

from .made import said, valid_json

votes = st.lists(
    st.tuples(
        st.sampled_from(["A", "B", "tie"]), st.sampled_from(["A", "B", "tie", None])
    ),
    min_size=1,
)


def test_accuracies_with_and_without_ties_and_failures() -> None:
    found = accuracy(["A", "B", "tie", "A", "B"], ["A", "A", "tie", "tie", None])
    assert (found.n, found.answered, found.failed) == (5, 4, 1)
    assert found.accuracy == 2 / 4
    assert found.strict == 2 / 5
    assert (found.without_ties, found.decided) == (1 / 2, 2)
    assert (found.judge_ties, found.human_ties) == (2, 1)


@given(votes)
@settings(max_examples=40, deadline=None)
def test_a_failed_answer_never_helps(rows: list[tuple[str, str | None]]) -> None:
    found = accuracy([h for h, _ in rows], [j for _, j in rows], draws=20)
    assert found.strict is not None
    assert found.accuracy is None or found.strict <= found.accuracy
    valid_json(found)


def test_a_judge_that_always_takes_the_first_shows_it() -> None:
    found = accuracy(["A", "B", "A", "B"], ["A", "A", "A", "A"])
    assert (found.first_share, found.human_first_share) == (1, 0.5)


def test_a_judge_that_never_answered_has_no_accuracy() -> None:
    found = accuracy(["A", "B"], [None, None])
    assert found.accuracy is None and found.ci is None
    assert found.notes == (Reason("no_answer"),)


def test_an_unknown_vote_is_refused() -> None:
    with raises(UsageError, "unknown_choice", "[[A>B]]"):
        accuracy(["A"], ["[[A>B]]"])


@given(
    st.lists(
        st.tuples(st.sampled_from(["A", "B", "tie"]), st.integers(-3, 3)),
        min_size=1,
        max_size=30,
    )
)
@settings(max_examples=60, deadline=None)
def test_the_best_threshold_for_ties_is_the_best_of_all_thresholds(
    rows: list[tuple[str, int]],
) -> None:
    human = [h for h, _ in rows]
    difference = [float(d) for _, d in rows]

    def right(epsilon: float) -> float:
        called = [
            "tie" if abs(d) <= epsilon else "A" if d > 0 else "B" for d in difference
        ]
        return float(np.mean([c == h for c, h in zip(called, human, strict=True)]))

    found = tie_calibrated(human, difference)
    assert found.accuracy == pytest.approx(max(right(e) for e in (-1, 0, 1, 2, 3)))
    assert found.epsilon is not None and found.accuracy == pytest.approx(
        right(found.epsilon)
    )


def test_a_threshold_chosen_elsewhere_promises_less() -> None:
    rng = np.random.default_rng(0)
    human = list(rng.choice(["A", "B", "tie"], 60))
    found = tie_calibrated(human, list(rng.normal(size=60)))
    assert found.accuracy is not None and found.held_out is not None
    assert found.held_out <= found.accuracy
    assert tie_calibrated([], []).accuracy is None


def games(
    strengths: list[float], n: int, seed: int = 0
) -> tuple[list[str], list[str], list[str]]:
    rng = np.random.default_rng(seed)
    a = rng.integers(0, len(strengths), n)
    b = (a + rng.integers(1, len(strengths), n)) % len(strengths)
    gap = np.array(strengths)[a] - np.array(strengths)[b]
    vote = np.where(rng.random(n) < 1 / (1 + np.exp(-gap)), "A", "B")
    return [f"m{i}" for i in a], [f"m{i}" for i in b], list(vote)


def test_strengths_are_those_of_logistic_regression() -> None:
    first, second, vote = games([0, 0.5, 1.5], 300)
    design = np.array(
        [
            [(f == m) - (s == m) for m in ("m0", "m1", "m2")]
            for f, s in zip(first, second, strict=True)
        ]
    )
    model = LogisticRegression(C=1e6, fit_intercept=False, tol=1e-10).fit(
        design[:, 1:], np.array(vote) == "A"
    )
    theirs = np.r_[0, model.coef_[0]]
    ours = {s.model: s.strength for s in bradley_terry(first, second, vote, draws=20)}
    np.testing.assert_allclose(
        [float(ours[m] or 0) for m in ("m0", "m1", "m2")],
        theirs - theirs.mean(),
        atol=2e-3,
    )


def test_intervals_of_strengths_hold_the_truth() -> None:
    truth = np.array([-0.8, 0.0, 0.8])
    hits = 0
    for seed in range(60):
        found = {
            s.model: s
            for s in bradley_terry(*games(list(truth), 150, seed), draws=200, seed=seed)
        }
        for i, value in enumerate(truth):
            ci = found[f"m{i}"].ci
            hits += ci is not None and ci.lo <= value <= ci.hi
    assert hits / 180 >= 0.9


def test_a_model_that_never_lost_has_no_strength_and_no_interval_but_its_place() -> (
    None
):
    found = bradley_terry(["x", "x", "y"], ["y", "z", "z"], ["A", "A", "A"])
    assert [s.model for s in found] == ["x", "y", "z"]
    assert [(s.strength, s.ci) for s in found] == [(None, None)] * 3
    assert "never lost" in said(found[0].ci_reason) and "never won" in said(
        found[-1].ci_reason
    )
    valid_json(found)


def test_twelve_wins_of_twelve_are_no_strength_of_the_ridge() -> None:
    for one in bradley_terry(["x"] * 12, ["y"] * 12, ["A"] * 12):
        assert one.strength is None and one.ci is None and one.ci_reason


def test_models_that_never_met_are_not_on_one_scale() -> None:
    first = list("aabb" * 10 + "ccdd" * 10)
    second = list("bbaa" * 10 + "ddcc" * 10)
    found = {s.model: s for s in bradley_terry(first, second, list("AABA" * 20))}
    assert found["a"].scale == found["b"].scale != found["c"].scale == found["d"].scale
    assert found["a"].notes[0].code == "never_met"
    alone = {
        s.model: s.strength
        for s in bradley_terry(first[:40], second[:40], list("AABA" * 10))
    }
    assert {m: found[m].strength for m in "ab"} == pytest.approx(alone)


def test_a_limit_that_would_be_infinite_is_not_given() -> None:
    found = bradley_terry(["x"] * 30, ["y"] * 30, ["A"] * 29 + ["B"])
    assert found[0].strength is not None and found[0].ci is None
    assert "infinite" in said(found[0].ci_reason)


def test_few_source_images_give_strengths_without_an_interval() -> None:
    found = bradley_terry(
        ["x"] * 40, ["y"] * 40, ["A", "B"] * 20, group=[n % 5 for n in range(40)]
    )
    assert found[0].ci is None and "5 source images" in said(found[0].ci_reason)


def test_twelve_right_of_twelve_is_clopper_pearsons_interval() -> None:
    found = accuracy(["A"] * 12, ["A"] * 12)
    assert found.ci == pytest.approx((0.7354, 1), abs=1e-4)


def test_answers_that_failed_bound_an_accuracy_and_may_overturn_it() -> None:
    found = accuracy(["A"] * 40, ["A"] * 30 + ["B"] * 5 + [None] * 5)
    assert found.bounds is not None
    assert (found.bounds.worst, found.bounds.best) == (
        30 / 40,
        35 / 40,
    ) and not found.overturnable
    many = accuracy(["A"] * 40, ["A"] * 10 + [None] * 30)
    assert many.overturnable and many.bounds is not None and many.bounds.worst == 0.25


def test_ties_are_half_a_win_for_each() -> None:
    found = bradley_terry(["x"] * 4, ["y"] * 4, ["tie"] * 4)
    assert [s.strength for s in found] == pytest.approx([0, 0])
    assert bradley_terry(["x"], ["y"], [None]) == []
