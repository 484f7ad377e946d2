from __future__ import annotations

import numpy as np
import pytest

from editjudge.report.words import drift_verdict, plain
from editjudge.stats.columns import Scores
from editjudge.stats.compare import corrected_together, drift
from tests.faults import shows

from .made import scores_of, valid_json


def anchor(shift: float, seed: int) -> Scores:
    quality = np.random.default_rng(0).normal(4, 1, (50, 1))
    return scores_of(
        quality + shift + np.random.default_rng(seed).normal(0, 0.2, (50, 1))
    )


def test_a_judge_that_moved_is_caught() -> None:
    result = drift(anchor(0, 1), anchor(-0.5, 2))
    assert shows(drift_verdict(result), "moved", "f (1 of 1")
    assert result.shifts[0].ci is not None and result.shifts[0].ci.hi < 0


def test_a_judge_that_only_wavers_is_not() -> None:
    verdict = drift_verdict(drift(anchor(0, 1), anchor(0, 2)))
    assert shows(verdict, "inconclusive", "1 factors")


def test_what_changed_about_the_judging_comes_before_what_moved() -> None:
    found = drift(
        anchor(0, 1),
        anchor(0, 2),
        provenance=(
            {"rubric_hash": "a", "server": "x"},
            {"rubric_hash": "b", "server": "x"},
        ),
    )
    assert found.changed == (("rubric_hash", "a", "b"),)
    assert list(plain(found))[:2] == ["changed", "shifts"]
    valid_json(found)


def test_something_recorded_on_one_side_only_is_a_change() -> None:
    found = drift(anchor(0, 1), anchor(0, 2), provenance=({}, {"server": "x"}))
    assert found.changed == (("server", "not recorded", "x"),)


def test_other_edits_cannot_show_drift() -> None:
    then = Scores.of("ab", "ff", [1, 2])
    now = Scores.of("cd", "ff", [1, 2])
    assert shows(drift_verdict(drift(then, now)), "cannot be compared")


def test_factors_of_one_side_are_named() -> None:
    then = Scores.of("ab", "fg", [1, 2])
    now = Scores.of("ab", "fh", [1, 2])
    found = drift(then, now)
    assert (found.only_then, found.only_now) == (("g",), ("h",))


def test_shifts_of_several_judges_are_corrected_together() -> None:
    rng = np.random.default_rng(3)
    drifts = []
    for judge in range(10):
        then = rng.integers(1, 8, 40).astype(float)
        now = np.clip(then + (rng.random(40) < 0.25) * (judge == 0), 1, 7)
        sides = (Scores.of(range(40), ["f"] * 40, side) for side in (then, now))
        drifts.append(drift(*sides, scales={"f": range(1, 8)}))
    alone = drifts[0].shifts[0]
    together = corrected_together(drifts)[0].shifts[0]
    assert alone.p_holm == alone.p and alone.p is not None
    assert together.p_holm == pytest.approx(min(1.0, 10 * alone.p))
