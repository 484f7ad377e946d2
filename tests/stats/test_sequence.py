"""Sequential tests by betting."""

from __future__ import annotations

import math

import numpy as np
import pytest

from editjudge.stats.sequence import decide, log_money, lower_limit

ENDS = (-6.0, 6.0)


def noise(count: int, mean: float = 0.0, seed: int = 1) -> np.ndarray:
    return np.clip(np.random.default_rng(seed).normal(mean, 2.0, count), -6, 6)


def test_a_large_difference_is_decided_true_and_its_opposite_false() -> None:
    better = decide(noise(200, 2.0), ENDS, ">", 0.05)
    worse = decide(-noise(200, 2.0), ENDS, ">", 0.05)
    assert better.decided is True
    assert better.sequence.lo > 0
    assert worse.decided is False
    assert worse.sequence.hi < 0


def test_a_claim_is_decided_exactly_when_its_evidence_reaches_one_over_alpha() -> None:
    for count in range(5, 120, 5):
        test = decide(noise(count, 1.5), ENDS, ">", 0.05)
        assert (test.decided is not None) == (test.e_value >= 20 * (1 - 1e-9))
        assert (test.decided is True) == (test.sequence.lo > 0)


def test_a_decision_is_kept_whatever_comes_later() -> None:
    won = np.concatenate([noise(100, 3.0), noise(400, -0.5, seed=2)])
    assert decide(won[:100], ENDS, ">", 0.05).decided is True
    assert decide(won, ENDS, ">", 0.05).decided is True


def test_unequal_is_never_decided_false_and_equivalent_can_be() -> None:
    alike = np.clip(np.random.default_rng(3).normal(0, 0.5, 3000), -6, 6)
    assert decide(alike, ENDS, "!=", 0.05).decided is None
    assert decide(alike, ENDS, "~", 0.05, 0.5).decided is True
    assert decide(alike + 1.5, ENDS, "~", 0.05, 0.5).decided is False


def test_no_values_decide_nothing_and_leave_the_whole_scale_open() -> None:
    test = decide(np.empty(0), ENDS, ">", 0.05)
    assert (test.decided, test.images, test.difference) == (None, 0, None)
    assert test.e_value == 1
    assert test.sequence == pytest.approx(ENDS)


def test_money_does_not_depend_on_the_order_of_the_values() -> None:
    values = np.random.default_rng(4).uniform(size=50)
    money = log_money(values, 0.4)[-1]
    assert log_money(values[::-1], 0.4)[-1] == pytest.approx(money)


def test_equal_sides_are_falsely_told_apart_in_at_most_alpha_of_runs_that_look_always() -> (
    None
):
    generator = np.random.default_rng(5)
    enough = math.log(20)
    runs = 400
    false = 0
    for _ in range(runs):
        values = generator.choice([0.0, 0.4, 0.5, 0.6, 1.0], 300)
        false += bool(log_money(values, 0.5).max() >= enough)
    assert false / runs < 0.05 + 3 * math.sqrt(0.05 * 0.95 / runs)


def test_the_lower_limit_covers_the_mean_of_rare_low_values() -> None:
    generator = np.random.default_rng(6)
    missed = 0
    for _ in range(200):
        values = (generator.uniform(size=100) < 0.97).astype(float)
        missed += lower_limit(values, 0.05) > 0.97
    assert missed <= 18
