"""Probability samples of edits to rate."""

from __future__ import annotations

import numpy as np
import pytest

from editjudge.stats.calibration import powered_mean
from editjudge.stats.sampling import draw, probabilities


def test_probabilities_add_up_to_the_budget_and_grow_with_disagreement() -> None:
    spread = np.r_[np.zeros(50), np.ones(50), np.full(20, np.nan)]
    chances = probabilities(spread, 30)
    assert chances.sum() == pytest.approx(30)
    assert 0 < chances[0] < chances[119] < chances[60]


def test_judges_that_agree_everywhere_and_a_large_budget_leave_nothing_to_choose() -> (
    None
):
    assert probabilities(np.zeros(10), 4) == pytest.approx(np.full(10, 0.4))
    assert probabilities(np.arange(10.0), 99) == pytest.approx(np.ones(10))


def test_each_edit_is_drawn_with_its_probability_and_each_model_in_proportion() -> None:
    spread = np.random.default_rng(1).exponential(size=60)
    chances = probabilities(spread, 20)
    stratum = np.repeat(np.arange(3), 20)
    counts = np.zeros(60)
    for seed in range(3000):
        drawn = draw(chances, stratum, seed)
        counts[drawn] += 1
        assert len(drawn) in (19, 20, 21)
        of_model = np.bincount(stratum[drawn], minlength=3)
        expected = np.bincount(stratum, chances)
        assert np.all(np.abs(of_model - expected) < 2)
    assert counts / 3000 == pytest.approx(chances, abs=0.045)


def test_ratings_weighted_by_their_probability_are_unbiased() -> None:
    generator = np.random.default_rng(2)
    quality = generator.normal(4, 1, 300)
    judge = quality + generator.normal(0, 0.5, 300)
    # Edits that are rated more often are better, so unweighted means are too high.
    chances = np.clip(0.1 + 0.15 * (quality - 2), 0.05, 0.9)
    errors = []
    naive = []
    for seed in range(300):
        drawn = draw(chances, np.zeros(300, np.int64), seed)
        human = np.full(300, np.nan)
        human[drawn] = quality[drawn]
        found = powered_mean(judge, human, probability=chances)
        assert found.mean is not None
        errors.append(found.mean - quality.mean())
        naive.append(human[drawn].mean() - quality.mean())
    assert abs(np.mean(errors)) < 4 * np.std(errors) / np.sqrt(300)
    assert np.mean(naive) > 0.2
