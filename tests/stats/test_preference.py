from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from editjudge.errors import UsageError
from editjudge.stats.preference import accuracy, bradley_terry, tie_calibrated

from .made import valid_json

votes = st.lists(st.tuples(st.sampled_from(["A", "B", "tie"]), st.sampled_from(["A", "B", "tie", None])), min_size=1)


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
    assert found.notes == ("the judge answered no pair",)


def test_an_unknown_vote_is_refused() -> None:
    with pytest.raises(UsageError, match=r"found '\[\[A>B\]\]'"):
        accuracy(["A"], ["[[A>B]]"])


@given(st.lists(st.tuples(st.sampled_from(["A", "B", "tie"]), st.integers(-3, 3)), min_size=1, max_size=30))
@settings(max_examples=60, deadline=None)
def test_the_best_threshold_for_ties_is_the_best_of_all_thresholds(rows: list[tuple[str, int]]) -> None:
    human, difference = [h for h, _ in rows], [float(d) for _, d in rows]

    def right(epsilon: float) -> float:
        called = ["tie" if abs(d) <= epsilon else "A" if d > 0 else "B" for d in difference]
        return float(np.mean([c == h for c, h in zip(called, human, strict=True)]))

    found = tie_calibrated(human, difference)
    assert found.accuracy == pytest.approx(max(right(e) for e in (-1, 0, 1, 2, 3)))
    assert found.epsilon is not None and found.accuracy == pytest.approx(right(found.epsilon))


def test_a_threshold_chosen_elsewhere_promises_less() -> None:
    rng = np.random.default_rng(0)
    human = list(rng.choice(["A", "B", "tie"], 60))
    found = tie_calibrated(human, list(rng.normal(size=60)))
    assert found.accuracy is not None and found.held_out is not None
    assert found.held_out <= found.accuracy
    assert tie_calibrated([], []).accuracy is None


def games(strengths: list[float], n: int, seed: int = 0) -> tuple[list[str], list[str], list[str]]:
    rng = np.random.default_rng(seed)
    a = rng.integers(0, len(strengths), n)
    b = (a + rng.integers(1, len(strengths), n)) % len(strengths)
    gap = np.array(strengths)[a] - np.array(strengths)[b]
    vote = np.where(rng.random(n) < 1 / (1 + np.exp(-gap)), "A", "B")
    return [f"m{i}" for i in a], [f"m{i}" for i in b], list(vote)


def test_strengths_are_those_of_logistic_regression() -> None:
    first, second, vote = games([0, 0.5, 1.5], 300)
    design = np.array([[(f == m) - (s == m) for m in ("m0", "m1", "m2")] for f, s in zip(first, second, strict=True)])
    model = LogisticRegression(C=1e6, fit_intercept=False, tol=1e-10).fit(design[:, 1:], np.array(vote) == "A")
    theirs = np.r_[0, model.coef_[0]]
    ours = {s.model: s.strength for s in bradley_terry(first, second, vote, draws=20)}
    np.testing.assert_allclose([ours[m] for m in ("m0", "m1", "m2")], theirs - theirs.mean(), atol=2e-3)


def test_intervals_of_strengths_hold_the_truth() -> None:
    truth = np.array([-0.8, 0.0, 0.8])
    hits = 0
    for seed in range(60):
        found = {s.model: s for s in bradley_terry(*games(list(truth), 150, seed), draws=200, seed=seed)}
        for i, value in enumerate(truth):
            ci = found[f"m{i}"].ci
            hits += ci is not None and ci.lo <= value <= ci.hi
    assert hits / 180 >= 0.9


def test_a_model_that_never_lost_is_finite_and_said_to_be_unbounded() -> None:
    found = bradley_terry(["x", "x", "y"], ["y", "z", "z"], ["A", "A", "A"])
    assert [s.model for s in found] == ["x", "y", "z"]
    assert "never lost" in found[0].notes[0] and "never won" in found[-1].notes[0]
    valid_json(found)


def test_ties_are_half_a_win_for_each() -> None:
    found = bradley_terry(["x"] * 4, ["y"] * 4, ["tie"] * 4)
    assert [s.strength for s in found] == pytest.approx([0, 0])
    assert bradley_terry(["x"], ["y"], [None]) == []
