from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from editjudge.report.tables import decimals, figure_text
from editjudge.report.words import plain
from editjudge.stats.agreement import agree
from editjudge.stats.columns import Interval, Ratings, Scores, number
from editjudge.stats.compare import compare
from editjudge.stats.gate import gate
from editjudge.stats.noise import noise
from editjudge.stats.summary import rank, summarise

from .made import valid_json


@dataclass(frozen=True)
class Nested:
    ci: Interval
    inner: dict[str, tuple[int, ...]]


def test_intervals_and_tuples_become_lists() -> None:
    assert plain(Nested(Interval(1, 2), {"a": (1,)})) == {
        "ci": [1, 2],
        "inner": {"a": [1]},
    }


def test_what_json_has_no_number_for_is_none() -> None:
    assert [number(float(x)) for x in ("nan", "inf", "1")] == [None, None, 1]


@pytest.mark.parametrize(
    ("half", "digits"),
    [(20, 0), (3, 0), (1.5, 1), (0.5, 1), (0.21, 2), (0.05, 2), (0.004, 3), (1e-9, 4)],
)
def test_figures_are_rounded_to_what_their_interval_supports(
    half: float, digits: int
) -> None:
    assert decimals(Interval(5 - half, 5 + half)) == digits


def test_a_figure_reads_with_its_interval() -> None:
    assert figure_text(5.3123, Interval(5.1, 5.5)) == "5.31 [5.10, 5.50]"
    assert figure_text(0.5, sign=True) == "+0.50"
    assert figure_text(None) == "undefined"


SCALES = dict.fromkeys("fg", range(1, 8))
rows = st.lists(
    st.tuples(
        st.sampled_from("abc"), st.sampled_from("fg"), st.one_of(st.none(), st.integers(1, 3)),
        st.sampled_from("mn"), st.sampled_from("xy"), st.sampled_from("jk"),
    ),
    min_size=1, max_size=14,
)  # fmt: skip


@given(rows)
@settings(max_examples=60, deadline=None)
def test_whatever_goes_in_valid_json_comes_out_without_a_warning(
    table: list[tuple[str, str, int | None, str, str, str]],
) -> None:
    item, factor, score, model, group, judge = (
        list(c) for c in zip(*table, strict=True)
    )
    scores = Scores.of(
        item,
        factor,
        score,
        model=model,
        group=group,
        judge=judge,
        repeat=range(len(item)),
    )
    ratings = Ratings.of(item, judge, factor, score)
    half = np.arange(len(item)) % 2 == 0
    valid_json(summarise(scores, draws=20))
    valid_json(rank(scores))
    valid_json(noise(scores))
    valid_json(compare(scores.take(half), scores.take(~half), scales=SCALES, draws=20))
    valid_json(agree(ratings, scores, scales=SCALES, draws=20))
    valid_json(gate(scores, {factor[0]: 2}, draws=20))
    valid_json(gate(scores, {factor[0]: 2}, scales=SCALES, draws=20))


def test_importing_the_package_imports_neither_numpy_nor_scipy() -> None:
    code = "import sys, editjudge.stats; print([m for m in ('numpy', 'scipy') if m in sys.modules])"
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert json.loads(out) == []


def test_importing_its_modules_does_not_import_scipy() -> None:
    names = "agreement calibration ceiling compare gate noise pairwise strengths summary".split()
    code = f"import sys; {'; '.join(f'import editjudge.stats.{n}' for n in names)}; print('scipy' in sys.modules)"
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert out.strip() == "False"
