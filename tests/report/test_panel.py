from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from editjudge.report.run_data import SPEC
from editjudge.report.selection import PANEL, panel_mean
from editjudge.stats.columns import Scores


def scores_of(
    rows: list[tuple[str, str, str, float | None, str]], **columns: Any
) -> Scores:
    """Rows of item, judge, factor, score and status."""
    items, judges, factors, scores, statuses = zip(*rows, strict=True)
    slices = {"rubric": ["r"] * len(rows), SPEC: judges, "edit_type": [""] * len(rows)}
    return Scores.of(
        items, factors, scores, judge=judges, status=statuses, slices=slices, **columns
    )


def test_the_panel_is_the_mean_of_its_judges() -> None:
    panel = panel_mean(scores_of([("a", "x", "f", 4, "ok"), ("a", "y", "f", 7, "ok"), ("b", "x", "f", 1, "ok"),
                                  ("b", "y", "f", 2, "ok")]))  # fmt: skip
    assert panel.judge.present() == (PANEL,)
    assert dict(zip(panel.item, panel.score.tolist(), strict=True)) == {
        "a": 5.5,
        "b": 1.5,
    }


def test_a_failure_of_one_judge_is_a_failure_of_the_panel_and_never_a_number() -> None:
    panel = panel_mean(scores_of([("a", "x", "f", 4, "ok"), ("a", "y", "f", None, "refused"), ("b", "x", "f", 1, "ok"),
                                  ("b", "y", "f", None, "abstained"), ("c", "x", "f", 3, "ok"),
                                  ("c", "y", "f", 3, "ok")]))  # fmt: skip
    assert dict(zip(panel.item, panel.status, strict=True)) == {
        "a": "refused",
        "b": "abstained",
        "c": "ok",
    }
    assert np.isnan(panel.score[:2]).all()


def test_a_judge_that_abstains_from_a_factor_altogether_is_no_member_for_it() -> None:
    rows: list[tuple[str, str, str, float | None, str]] = []
    for item in "ab":
        rows += [(item, "x", "f", 4, "ok"), (item, "y", "f", None, "abstained"), (item, "x", "g", 2, "ok"),
                 (item, "y", "g", 6, "ok")]  # fmt: skip
    panel = panel_mean(scores_of(rows))
    assert panel.where(factor="f").score.tolist() == [4, 4]
    assert panel.where(factor="g").score.tolist() == [4, 4]


def test_repeats_that_not_every_judge_was_asked_for_are_left_out() -> None:
    rows: list[tuple[str, str, str, float | None, str]] = [
        ("a", "x", "f", 4, "ok"),
        ("a", "x", "f", 6, "ok"),
        ("a", "y", "f", 2, "ok"),
    ]
    panel = panel_mean(scores_of(rows, repeat=[0, 1, 0]))
    assert panel.score.tolist() == [3]


def test_an_edit_that_a_judge_has_not_reached_is_pending() -> None:
    panel = panel_mean(
        scores_of(
            [
                ("a", "x", "f", 4, "ok"),
                ("a", "y", "f", 5, "ok"),
                ("b", "x", "f", 4, "ok"),
            ]
        )
    )
    assert dict(zip(panel.item, panel.status, strict=True)) == {
        "a": "ok",
        "b": "pending",
    }


def test_judges_told_apart_by_rubric_stay_apart_in_the_panel() -> None:
    rows = [(rubric, judge) for rubric in ("p", "q") for judge in ("x", "y")]
    scores = Scores.of(
        ["a"] * 4, ["f"] * 4, [1.0, 3.0, 5.0, 7.0], judge=[f"{judge}@{rubric}" for rubric, judge in rows],
        slices={"rubric": [rubric for rubric, _ in rows], SPEC: [judge for _, judge in rows], "edit_type": [""] * 4},
    )  # fmt: skip
    panel = panel_mean(scores)
    assert dict(zip(panel.judge, panel.score.tolist(), strict=True)) == {
        "panel@p": 2.0,
        "panel@q": 6.0,
    }


@pytest.mark.parametrize("judges", [2, 3])
def test_the_panels_mean_is_steadier_than_a_judge(judges: int) -> None:
    rng = np.random.default_rng(0)
    rows: list[tuple[str, str, str, float | None, str]] = [
        (str(item), f"j{judge}", "f", float(rng.normal(4, 1)), "ok")
        for item in range(200)
        for judge in range(judges)
    ]
    assert panel_mean(scores_of(rows)).score.std() == pytest.approx(
        1 / np.sqrt(judges), abs=0.12
    )
