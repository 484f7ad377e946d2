from __future__ import annotations

import numpy as np

from editjudge.errors import UsageError
from editjudge.stats.columns import Column, Ratings, Scores, item_means, joined
from tests.faults import raises


def judgement(**changes: object) -> dict[str, object]:
    row: dict[str, object] = {
        "item": "a", "model": "m", "group": "g", "rubric": "fidelity", "judge": "j", "repeat": 0, "status": "ok",
        "scores": {"alignment": 6, "plausibility": 5}, "abstained": {}, "instruction": "make it blue",
    }  # fmt: skip
    return {**row, **changes}


def test_a_column_keeps_names_in_the_order_of_their_first_appearance() -> None:
    column = Column.of(["b", "a", "b", "c"])
    assert column.labels == ("b", "a", "c")
    assert list(column) == ["b", "a", "b", "c"]
    assert column.take(np.array([1, 3])).present() == ("a", "c")
    assert column.take(np.array([1, 3])).compact().labels == ("a", "c")


def test_a_mistyped_label_is_answered_with_a_near_miss() -> None:
    with raises(UsageError, "unknown_name", '"alignment"'):
        Scores.of(["a"], ["alignment"], [5]).where(factor="alignmnt")


def test_columns_of_different_lengths_are_refused_by_name() -> None:
    with raises(UsageError, "unequal_columns", "'factor'", "'score'"):
        Scores.of(["a", "b"], ["f"], [1, 2])


def test_a_score_exists_only_where_the_status_is_ok() -> None:
    with raises(UsageError, "score_without_ok", "1"):
        Scores.of(["a", "b"], ["f", "f"], [1, 2], status=["ok", "refused"])
    with raises(UsageError, "score_without_ok"):
        Scores.of(["a"], ["f"], [None], status=["ok"])


def test_an_empty_score_without_a_status_has_failed() -> None:
    scores = Scores.of(["a", "b"], ["f", "f"], [None, 3])
    assert list(scores.status) == ["failed", "ok"]


def test_a_failed_judgement_counts_for_every_factor_of_its_rubric() -> None:
    rows = [judgement(), judgement(item="b", status="refused", scores=None)]
    scores = Scores.from_judgements(rows)
    assert len(scores) == 4
    assert list(scores.where(item="b").status) == ["refused", "refused"]
    assert set(scores.where(item="b").factor) == {"alignment", "plausibility"}


def test_the_factors_of_a_rubric_can_be_told_when_nothing_was_answered() -> None:
    scores = Scores.from_judgements(
        [judgement(status="invalid", scores=None)], factors={"fidelity": ["alignment"]}
    )
    assert list(scores.factor) == ["alignment"]
    assert list(scores.status) == ["invalid"]


def test_a_factor_that_abstains_in_an_ok_judgement_is_an_abstention() -> None:
    row = judgement(
        scores={"alignment": 6}, abstained={"plausibility": "needs understanding"}
    )
    scores = Scores.from_judgements([row])
    assert dict(zip(scores.factor, scores.status, strict=True)) == {
        "alignment": "ok",
        "plausibility": "abstained",
    }


def test_edits_pair_across_models_by_source_image_and_instruction() -> None:
    rows = [
        judgement(),
        judgement(item="b", model="n"),
        judgement(item="c", instruction="remove it"),
    ]
    scores = Scores.from_judgements(rows)
    pairs = dict(zip(scores.item, scores.pair, strict=True))
    assert pairs["a"] == pairs["b"] != pairs["c"]


def test_metadata_becomes_slices() -> None:
    scores = Scores.from_judgements([judgement(edit_type="add")], slices=["edit_type"])
    assert set(scores.slices["edit_type"]) == {"add"}


def test_empty_ratings_are_left_out() -> None:
    ratings = Ratings.of(["a", "b"], ["r", "r"], ["f", "f"], [1, None])
    assert list(ratings.item) == ["a"]


def test_the_mean_of_an_item_is_over_its_finite_scores() -> None:
    means = item_means(Column.of("aabc"), np.array([1.0, np.nan, 3.0, np.nan]))
    np.testing.assert_array_equal(means, [1.0, 3.0, np.nan])


def test_joined_columns_have_one_code_for_each_combination() -> None:
    assert len(joined(Column.of("aabb"), Column.of("xyxx")).labels) == 3
