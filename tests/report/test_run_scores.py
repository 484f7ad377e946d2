"""Scores of a whole run: means by dimension, weighted, with intervals over source images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from editjudge.errors import RubricError
from editjudge.rubrics.files import parse_any
from editjudge.stats.columns import Scores
from editjudge.stats.summary import weighted_means
from tests.faults import raises
from tests.running.made import editjudge, edits, rows_of, write_manifest

SET = """
name: weighed
rubrics:
  - name: check
    images: [edited]
    scale: {values: [0, 1]}
    factors: [{key: passes, definition: Whether it passes.}]
    answer: {form: scores}
score:
  points: 10 * passes
run:
  total: {score: points, by: dimension, weights: {light: 0.75, form: 0.25}}
  plain: {score: passes, by: dimension}
"""


def scores(dimension: list[str], values: list[float], group: list[int]) -> Scores:
    return Scores.of(
        range(len(values)),
        ["f"] * len(values),
        values,
        group=group,
        slices={"d": dimension},
    )


def test_the_mean_is_that_of_the_dimensions_and_the_interval_that_of_resampled_images() -> (
    None
):
    rng = np.random.default_rng(3)
    group = rng.integers(0, 60, 300)
    effect = rng.normal(size=60)[group]
    dimension = np.where(rng.random(300) < 0.8, "a", "b")
    values = effect + rng.normal(size=300) + 2 * (dimension == "b")
    table = scores(list(dimension), list(values), list(group))
    (result,) = weighted_means("total", table, "d", {"a": 1, "b": 3})
    of = {d: values[dimension == d].mean() for d in "ab"}
    assert result.mean == pytest.approx(of["a"] / 4 + 3 * of["b"] / 4)
    draws = []
    for _ in range(600):
        chosen = np.concatenate(
            [np.flatnonzero(group == g) for g in rng.integers(0, 60, 60)]
        )
        a, b = (values[chosen][dimension[chosen] == d].mean() for d in "ab")
        draws.append(a / 4 + 3 * b / 4)
    assert result.ci is not None
    width = np.quantile(draws, 0.975) - np.quantile(draws, 0.025)
    assert result.ci.hi - result.ci.lo == pytest.approx(width, rel=0.2)


def test_a_dimension_without_scores_or_weight_leaves_no_mean() -> None:
    table = scores(["a", "b"], [1, 2], [0, 1])
    for weights, code in (
        ({"a": 1.0}, "value_without_weight"),
        ({"a": 1.0, "b": 1.0, "c": 1.0}, "value_without_score"),
    ):
        (result,) = weighted_means("total", table, "d", weights)
        assert result.mean is None and result.ci_reason
        assert result.ci_reason.code == code


def test_a_report_has_the_scores_of_the_run(tmp_path: Path) -> None:
    (tmp_path / "set.yaml").write_text(SET)
    rows: list[dict[str, Any]] = rows_of(edits(tmp_path, 6))
    kinds = ("light", "light", "light", "form", "form", "form")
    rows = [
        row | {"dimension": kind, "model": "m"}
        for row, kind in zip(rows, kinds, strict=True)
    ]
    manifest = write_manifest(tmp_path, rows)
    lines = [
        {
            "item": row["id"],
            "rubric": "check",
            "reply": json.dumps({"passes": int(n < 4)}),
        }
        for n, row in enumerate(rows)
    ]
    lines[2]["reply"] = "none"
    (tmp_path / "r.jsonl").write_text(
        "".join(json.dumps(each) + "\n" for each in lines)
    )
    store = ("--store", tmp_path / "s.db")
    editjudge(
        *("run", manifest, "--rubric", tmp_path / "set.yaml", "--name", "r", *store),
        *("--judge", f"replay:{tmp_path}/r.jsonl"),
    )
    done = editjudge("report", "r", *store, "--json")
    assert done.code == 0, done.err
    total, plain = done.json["run_scores"]
    assert (total["name"], plain["name"]) == ("total", "plain")
    assert total["mean"] == pytest.approx(0.75 * 10 + 0.25 * 10 / 3)
    assert plain["mean"] == pytest.approx((1 + 1 / 3) / 2)
    assert (total["ok"], total["n"]) == (5, 6)
    for form in ("html", "md"):
        out = tmp_path / f"r.{form}"
        assert editjudge("report", "r", *store, "-o", out).code == 0
        assert "Scores of the run" in out.read_text()


@pytest.mark.parametrize(
    ("old", "new", "code", "line"),
    [
        ("score: points,", "score: pionts,", "unknown_score", 12),
        ("weights: {light: 0.75, form: 0.25}", "weights: {light: 0}", "bad_weight", 12),
        ("by: dimension, weights", "bye: dimension, weights", "", 12),
    ],
)
def test_a_run_score_that_cannot_be_is_refused_with_its_line(
    old: str, new: str, code: str, line: int
) -> None:
    assert old in SET
    if code:
        with raises(RubricError, code, f"s.yaml:{line}:"):
            parse_any(SET.replace(old, new), "s.yaml")
    else:
        with pytest.raises(RubricError, match=f"s.yaml:{line}:"):
            parse_any(SET.replace(old, new), "s.yaml")
