"""The cascade's arithmetic, on edits whose answer is known."""

from __future__ import annotations

import numpy as np

from bench.cascade import cascade, compared

ITEMS = [f"i{n}" for n in range(40)]
GROUP = {item: f"g{n // 4}" for n, item in enumerate(ITEMS)}
PEOPLE = {item: n / 40 for n, item in enumerate(ITEMS)}


def test_what_is_below_the_cut_gets_the_lowest_score_and_what_has_none_is_asked() -> (
    None
):
    final, asked = cascade(np.array([1.0, 2.0, np.nan]), np.array([5.0, 6.0, 4.0]), 2.0)
    assert asked.tolist() == [False, True, True]
    assert final.tolist() == [3.0, 6.0, 4.0]


def test_a_cheap_judge_that_is_right_costs_no_best_edit() -> None:
    cheap = {item: float(n >= 20) for n, item in enumerate(ITEMS)}
    told = compared(cheap, PEOPLE, PEOPLE, GROUP, 20)
    (cut,) = told["cascades"]
    assert (cut["cut"], cut["saved"], cut["best_edits_kept"]) == (1.0, 0.5, 1.0)
    assert 0 < cut["agreement_lost"] < 0.2  # half of the order is not known any more


def test_a_cheap_judge_that_is_wrong_loses_them() -> None:
    cheap = {item: float(n < 20) for n, item in enumerate(ITEMS)}
    (cut,) = compared(cheap, PEOPLE, PEOPLE, GROUP, 20)["cascades"]
    assert cut["best_edits_kept"] == 0.0
    assert cut["agreement_lost"] > 0.5
