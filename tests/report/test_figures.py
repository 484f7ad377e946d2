"""Figures of a report against figures computed here, from the same scores, with NumPy and SciPy alone."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tests.cli.stores import Call, Done, Spec, call, made, quality
from tests.faults import check_error, shows

__all__ = ["call"]

FACTORS = ("alignment", "completeness", "plausibility")
EDITS = 24


def ten_of_eleven(
    model: str, n: int, judge: str, factor: str, repeat: int
) -> int | str | None:
    """One judgement in eleven has a score, and that one abstains from a factor."""
    if n % 11:
        return "refused" if n % 2 else "invalid"
    return (
        None if factor == "plausibility" else quality(model, n, judge, factor, repeat)
    )


def scores(model: str, factor: str) -> np.ndarray:
    return np.array(
        [quality(model, n, "openai/m", factor, 0) for n in range(EDITS)], dtype=float
    )


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return made(tmp_path / "s.db", Spec(edits=EDITS))


def cells(
    done: Done, kind: str = "factors"
) -> Mapping[tuple[str, str], dict[str, Any]]:
    return {(cell["model"], cell["factor"]): cell for cell in done.document[kind]}


def test_means_medians_and_counts_are_those_of_the_scores(
    call: Call, store: Path
) -> None:
    done = call("report", "r", "--store", store, "--json")
    for (model, factor), cell in cells(done).items():
        given = scores(model, factor)
        assert (cell["n"], cell["ok"], cell["abstained"], cell["failed"]) == (
            EDITS,
            EDITS,
            0,
            {},
        )
        assert cell["mean"] == pytest.approx(given.mean()) and cell[
            "median"
        ] == np.median(given)
        assert cell["distribution"] == {
            str(v): int(np.sum(given == v)) for v in range(1, 8)
        }
        assert (
            cell["ci"][0] < cell["mean"] < cell["ci"][1]
            and cell["groups"] == EDITS // 2
        )
    overall = cells(call("report", "r", "--store", store, "--json"), "aggregates")
    for model in ("good", "poor"):
        table = np.array([scores(model, factor) for factor in FACTORS])
        assert overall[model, "overall"]["mean"] == pytest.approx(table.mean())
        assert overall[model, "overall_minimum"]["mean"] == pytest.approx(
            table.min(axis=0).mean()
        )
        assert overall[model, "overall_geometric"]["mean"] == pytest.approx(
            stats.gmean(table, axis=0).mean()
        )


def test_differences_are_paired_and_tested_over_source_images(
    call: Call, store: Path
) -> None:
    compared = {
        one["factor"]: one
        for one in call("compare", "r", "--store", store, "--json").document[
            "comparisons"
        ]
    }
    for factor in FACTORS:
        gap = scores("poor", factor) - scores("good", factor)
        one = compared[factor]
        assert one["difference"] == pytest.approx(gap.mean()) and one["n"] == EDITS
        assert one["effect"] == pytest.approx(gap.mean() / gap.std(ddof=1))
        assert (one["wins"], one["ties"], one["losses"]) == (
            sum(gap > 0),
            sum(gap == 0),
            sum(gap < 0),
        )
        # two edits of one source image are one unit
        images = gap.reshape(-1, 2).mean(axis=1)
        assert one["groups"] == len(images) and one["error"] == pytest.approx(
            images.std(ddof=1) / np.sqrt(len(images))
        )
        assert one["family"] == "exploratory" and one["method"] in (
            "studentised",
            "guaranteed",
        )
    order = sorted(FACTORS, key=lambda factor: compared[factor]["p"])
    steps = [
        min(1.0, (3 - n) * compared[factor]["p"]) for n, factor in enumerate(order)
    ]
    assert [compared[factor]["p_holm"] for factor in order] == pytest.approx(
        np.maximum.accumulate(steps)
    )
    overall = compared["overall"]
    assert overall["family"] == "primary" and overall["declared"] is False
    assert overall["p_holm"] == overall["p"], "the only primary score of one rubric"


def test_every_form_has_the_means_of_the_document(call: Call, store: Path) -> None:
    document = cells(call("report", "r", "--store", store, "--json"))
    rows = list(
        csv.DictReader(
            io.StringIO(call("report", "r", "--store", store, "--format", "csv").out)
        )
    )
    mine = {(row["model"], row["factor"]): row for row in rows if not row["slice_by"]}
    for place, cell in document.items():
        assert (
            float(mine[place]["mean"]) == cell["mean"]
            and int(mine[place]["ok"]) == cell["ok"]
        )
        assert (float(mine[place]["mean_lo"]), float(mine[place]["mean_hi"])) == tuple(
            cell["ci"]
        )
    rounded = [
        f"{c['mean']:.1f} [{c['ci'][0]:.1f}, {c['ci'][1]:.1f}]"
        for c in document.values()
    ]
    prose = {
        form: call("report", "r", "--store", store, "--format", form).out
        for form in ("md", "latex", "html")
    }
    page = re.sub(r"<[^>]+>", " ", prose["html"])
    for figure in rounded:
        assert (
            figure in prose["md"]
            and figure in page
            and figure.replace("[", "{[}") in prose["latex"]
        ), figure


def test_ten_failures_in_eleven_leave_means_of_what_was_scored_and_say_so_first(
    call: Call, tmp_path: Path
) -> None:
    store = made(tmp_path / "s.db", Spec(edits=22), ten_of_eleven)
    done = call("report", "r", "--store", store, "--json")
    for (model, factor), cell in cells(done).items():
        assert (
            sum(cell["failed"].values()) == 20 and cell["ok"] + cell["abstained"] == 2
        )
        if factor == "plausibility":
            assert (
                cell["mean"] is None and cell["ci"] is None and cell["abstained"] == 2
            )
            continue
        values = [quality(model, n, "openai/m", factor, 0) for n in (0, 11)]
        assert cell["mean"] == pytest.approx(np.mean(values))
        assert cell["worst_case"] == pytest.approx((sum(values) + 20) / 22), (
            "failures at 1, the worst score"
        )
        assert cell["best_case"] == pytest.approx((sum(values) + 140) / 22)
    assert not any(
        math.isnan(value)
        for cell in cells(done).values()
        for value in [cell["mean"] or 0.0]
    )
    page = call("report", "r", "--store", store, "--format", "html").out
    assert shows(page, "Not scored: ", "openai/m", "plausibility")
    assert page.index("openai/m has few scores on alignment (4 of 44)") < page.index(
        "<main>"
    )
    assert "scores lower than" not in page.partition("<main>")[0], (
        "nothing is claimed of so few"
    )
    assert call("compare", "r", "--store", store).out.startswith(
        "good and poor: no evidence"
    )


def test_a_run_without_any_score_has_no_number_in_any_form(
    call: Call, tmp_path: Path
) -> None:
    # black or broken frames, all of them
    store = made(tmp_path / "s.db", Spec(edits=4), lambda *_: "bad_image")
    document = call("report", "r", "--store", store, "--json").document
    assert all(
        cell["mean"] is None and cell["ok"] == 0
        for cell in (*document["factors"], *document["aggregates"])
    )
    assert document["ranks"] == [] or all(
        rank["mean"] is None for rank in document["ranks"]
    )
    for form in ("md", "latex", "csv", "html", "fragment"):
        done = call("report", "r", "--store", store, "--format", form)
        assert done.code == 0 and not re.search(r"\bnan\b", done.out, re.IGNORECASE), (
            form
        )
    page = call("report", "r", "--store", store, "--format", "html").out
    assert (
        shows(page, "8 bad_image", "8 judgements")
        and 'id="best"' not in page
        and 'class="interval' not in page
    )


def test_models_are_in_order_only_where_all_have_the_figure_that_orders_them(
    call: Call, tmp_path: Path
) -> None:
    def silent(model: str, n: int, judge: str, factor: str, repeat: int) -> int | None:
        return (
            None
            if model == "good" and factor == "alignment"
            else quality(model, n, judge, factor, repeat)
        )

    whole = call(
        "report", "r", "--store", made(tmp_path / "a.db"), "--format", "html"
    ).out
    assert "In order of overall." in whole
    part = call(
        "report",
        "r",
        "--store",
        made(tmp_path / "b.db", say=silent),
        "--format",
        "html",
    ).out
    assert "Not in order" in part and "In order of" not in part


def test_a_filter_by_a_mean_of_factors_passes_the_edits_whose_scores_have_it(
    call: Call, tmp_path: Path
) -> None:
    def partly(model: str, n: int, judge: str, factor: str, repeat: int) -> int | None:
        return (
            None
            if n % 6 == 0 and factor == "plausibility"
            else quality(model, n, judge, factor, repeat)
        )

    store = made(tmp_path / "s.db", Spec(repeats=2), partly)
    for name in ("overall", "fidelity"):
        arguments = (
            "export",
            "r",
            "-o",
            tmp_path / name,
            "--where",
            f"{name}>=5",
            "--store",
            store,
            "--json",
        )
        document = call(*arguments).document
        expected = [
            np.mean([quality(model, n, "openai/m", factor, k) for factor in FACTORS for k in (0, 1)]) >= 5
            for model in ("good", "poor") for n in range(EDITS) if n % 6
        ]  # fmt: skip
        assert (document["kept"], document["edits"], document["unscored"]) == (
            sum(expected),
            2 * EDITS,
            8,
        )
    wrong = call(
        "export", "r", "-o", tmp_path / "x", "--where", "fidelty>=5", "--store", store
    )
    assert wrong.code == 2
    check_error(
        wrong.error, "unknown_score", '"fidelity"', "alignment", "fidelity, overall"
    )
