"""Runs with little to say: what each form of a report shows, against figures computed here from the same judgements."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.stats import t

from tests.cli.stores import Call, Say, Spec, call, made, quality

__all__ = ["call"]

FACTORS = ("alignment", "completeness", "plausibility")
FORMS = ("md", "latex", "csv", "html", "fragment")
P = 0.025

DECIMALS = """
name: closeness
images: [input, edited]
factors:
  - {key: distance, scale: {range: [0, 1], direction: down}}
  - {key: likeness, scale: {range: [0, 1]}}
answer: {}
"""
DECISION = """
name: decision
images: [input, edited]
factors:
  - {key: done, scale: {values: [0, 1]}}
answer: {}
"""


class Report:
    """One run in every form."""

    def __init__(self, call: Call, store: Path) -> None:
        self.call = call
        self.store = store
        self.document: dict[str, Any] = self("--json").document
        self.cells = {(c["model"], c["factor"]): c for c in self.document["factors"]}

    def __call__(self, *words: str) -> Any:
        done = self.call("report", "r", "--store", self.store, *words)
        assert done.code == 0, done.err
        return done

    def form(self, name: str) -> str:
        return str(self("--format", name).out)

    def rows(self) -> list[dict[str, str]]:
        return [
            row
            for row in csv.DictReader(io.StringIO(self.form("csv")))
            if not row["slice_by"]
        ]

    def tables(self) -> dict[str, list[list[str]]]:
        """The Markdown tables by the first words of their captions, names that stand above filled in."""
        out: dict[str, list[list[str]]] = {}
        for caption, table in re.findall(
            r"^\*\*([^:;*]+).*\n\n((?:\|.*\n?)+)", self.form("md"), re.MULTILINE
        ):
            head, _, *lines = [
                [c.strip() for c in line.strip("| ").split(" | ")]
                for line in table.splitlines()
            ]
            lines = [[""] * (len(head) - len(line)) + line for line in lines]
            out[caption] = [head, *lines]
        return out


@pytest.fixture
def report(call: Call, tmp_path: Path) -> Callable[..., Report]:
    def written(spec: Spec, say: Say = quality, rubric: str = "") -> Report:
        if rubric:
            (tmp_path / "mine.yaml").write_text(rubric)
            spec = Spec(**{**vars(spec), "rubrics": (str(tmp_path / "mine.yaml"),)})
        return Report(
            call, made(tmp_path / f"{len(list(tmp_path.iterdir()))}.db", spec, say)
        )

    return written


def gaffke(groups: Sequence[float], ends: tuple[float, float]) -> list[float]:
    """The limits of a mean of equally large groups: one more at an end of the scale, by Dirichlet's distribution."""
    shares = np.random.default_rng(9).dirichlet(np.ones(len(groups) + 1), 20_000)
    return [
        float(np.quantile(shares @ np.r_[groups, end], p))
        for end, p in zip(ends, (P, 1 - P), strict=True)
    ]


def student(groups: Sequence[float]) -> list[float]:
    """Student's limits, which a bootstrap-t over images of nearly normal means comes close to."""
    values = np.asarray(groups)
    reach = (
        float(t.ppf(1 - P, len(values) - 1)) * values.std(ddof=1) / np.sqrt(len(values))
    )
    return [float(values.mean() - reach), float(values.mean() + reach)]


def near(value: float) -> Any:
    return pytest.approx(value, rel=1e-9, abs=1e-9)


def same_to_its_digits(shown: str, values: Sequence[float]) -> bool:
    """Whether a cell shows these numbers, each rounded to as many decimals as are shown."""
    numbers = re.findall(r"-?\d+(?:\.\d+)?", shown)
    rounded = [
        f"{v:.{len(text.partition('.')[2])}f}"
        for text, v in zip(numbers, values, strict=True)
    ]
    return numbers == rounded


# --- decimals -------------------------------------------------------------------------------------------------


def decimal(model: str, n: int, judge: str, factor: str, repeat: int) -> float:
    """Decimals that differ in their eighth digit only are different scores, too."""
    if factor == "distance":
        return 0.25 + 1e-8 * n
    return float(
        np.random.default_rng([n, len(model)]).beta(
            *((6, 3) if model == "good" else (3, 5))
        )
    )


def of(model: str, factor: str, edits: int) -> np.ndarray:
    return np.array([decimal(model, n, "", factor, 0) for n in range(edits)])


def test_decimals_have_the_means_and_limits_of_their_judgements_in_every_form(
    report: Callable[..., Report],
) -> None:
    mine = report(Spec(edits=30, models=("good", "poorer")), decimal, DECIMALS)
    edits = 30
    rows = {(row["model"], row["factor"]): row for row in mine.rows()}
    for (model, factor), cell in mine.cells.items():
        values = of(model, factor, edits)
        assert cell["mean"] == near(values.mean()) and cell["median"] == near(
            np.median(values)
        )
        images = values.reshape(-1, 2).mean(axis=1)
        limits = (
            gaffke(images, (0.0, 1.0))
            if cell["method"] == "guaranteed"
            else student(images)
        )
        assert cell["ci"] == pytest.approx(limits, abs=0.08 * (limits[1] - limits[0]))
        assert sum(cell["distribution"].values()) == cell["ok"] == edits, (
            "no judgement is lost from the distribution"
        )
        row = rows[model, factor]
        assert [float(row[name]) for name in ("mean", "mean_lo", "mean_hi", "median")] == [
            cell["mean"], *cell["ci"], cell["median"],
        ]  # fmt: skip
        figures = [
            f"{cell['mean']:.{n}f} [{cell['ci'][0]:.{n}f}, {cell['ci'][1]:.{n}f}]"
            for n in (2, 3, 4)
        ]
        page = re.sub(r"<[^>]+>", " ", mine.form("html"))
        assert any(figure in mine.form("md") and figure in page for figure in figures)
        assert any(
            figure.replace("[", "{[}") in mine.form("latex") for figure in figures
        )


def test_decimals_have_no_table_of_how_often_each_occurs(
    report: Callable[..., Report],
) -> None:
    mine = report(Spec(edits=8), decimal, DECIMALS)
    assert "Distribution" not in mine.form("md") and "Distribution" not in mine.form(
        "html"
    )
    assert "Distribution" in report(Spec(edits=8)).form("md")


def test_the_lower_score_ranks_first_where_lower_is_better_and_every_table_says_so(
    report: Callable[..., Report],
) -> None:
    def nearer(model: str, n: int, *_: Any) -> float:
        return (0.1 if model == "good" else 0.6) + 0.01 * (n % 7)

    mine = report(Spec(edits=24, per_group=1), nearer, DECIMALS)
    ranks = {(r["factor"], r["model"]): r["rank"] for r in mine.document["ranks"]}
    assert (ranks["distance", "good"], ranks["distance", "poor"]) == (1, 2)
    assert (ranks["likeness", "good"], ranks["likeness", "poor"]) == (2, 1)
    assert [row[0] for row in mine.tables()["Ranks"][1:] if row[0]] == [
        "distance ↓",
        "likeness",
    ]
    assert r"distance $\downarrow$" in mine.form("latex") and "distance" in {
        row["factor"] for row in mine.rows()
    }


def test_differences_that_rounding_alone_keeps_apart_have_no_effect_size(
    report: Callable[..., Report],
) -> None:
    def shifted(model: str, n: int, *_: Any) -> float:
        return n / 10 + (0.1 if model == "good" else 0.0)

    assert len({shifted("poor", n) - shifted("good", n) for n in range(8)}) > 1, (
        "by rounding"
    )
    mine = report(Spec(edits=8, per_group=1), shifted, DECIMALS)
    for one in mine.document["comparisons"]:
        assert one["difference"] == near(-0.1) and one["losses"] == 8
        assert (one["effect"], one["detectable"], one["method"]) == (
            None,
            None,
            "guaranteed",
        )
        # The bound on a scale of 0 to 1 if all of 8 images differ by the same amount, in closed form.
        assert one["p"] == pytest.approx(min(1.0, 2 * (1 - 0.1 / 1.1) ** 8), abs=0.01)
        assert "same amount" in one["detectable_reason"]
    head, *rows = mine.tables()[
        "Factors (exploratory) by model, b minus a, paired by edit"
    ]
    assert "MDE" not in head and all(row[head.index("d")] == "-" for row in rows)


# --- little or nothing ----------------------------------------------------------------------------------------


def test_a_single_edit_has_means_without_limits_and_says_why(
    report: Callable[..., Report],
) -> None:
    mine = report(Spec(edits=1, models=("good",)))
    for (_, factor), cell in mine.cells.items():
        score = quality("good", 0, "openai/m", factor, 0)
        assert (cell["mean"], cell["median"], cell["n"], cell["ok"]) == (
            score,
            score,
            1,
            1,
        )
        assert cell["ci"] is None and "only one source image" in cell["ci_reason"]
    assert (
        mine.document["ranks"]
        == mine.document["comparisons"]
        == mine.document["pass_rates"]
        == []
    )
    assert all("mean_lo" not in row and float(row["mean"]) for row in mine.rows())
    for form in ("md", "html"):
        assert "1 edit, 1 judgement." in mine.form(form)
    assert "there is no interval" in mine.form(
        "md"
    ) and 'class="interval' not in mine.form("html")


def test_one_model_is_neither_ranked_nor_compared_and_its_slices_are_means_of_their_edits(
    report: Callable[..., Report],
) -> None:
    mine = report(Spec(models=("good",), edits=12))
    assert mine.document["ranks"] == mine.document["comparisons"] == []
    for cell in mine.document["slices"]["edit_type"]:
        if cell["factor"] in FACTORS:
            numbers = [
                n for n in range(12) if ("add", "remove")[n % 2] == cell["slice"]
            ]
            values = [
                quality("good", n, "openai/m", cell["factor"], 0) for n in numbers
            ]
            assert (
                cell["mean"] == near(float(np.mean(values)))
                and cell["median"] == np.median(values)
                and cell["n"] == 6
            )
    assert "In order" not in mine.form("html") and "Not in order" not in mine.form(
        "html"
    )


def test_equal_scores_have_the_limits_of_a_closed_form_and_no_order(
    report: Callable[..., Report],
) -> None:
    mine = report(Spec(edits=16), lambda *_: 5)
    groups = 8
    # All weight but that of one more image at an end of the scale, which follows Beta(1, groups).
    limits = [1 + 4 * P ** (1 / groups), 7 - 2 * P ** (1 / groups)]
    for cell in (*mine.document["factors"], *mine.document["aggregates"]):
        assert cell["mean"] == near(5) and cell["ci"] == pytest.approx(limits, abs=0.01)
    assert {rank["rank"] for rank in mine.document["ranks"]} == {1}
    assert all(rank["ci"] == [1, 2] for rank in mine.document["ranks"])
    for one in mine.document["comparisons"]:
        assert (one["difference"], one["p"], one["effect"], one["detectable"]) == (
            0.0,
            1.0,
            None,
            None,
        )
        assert (one["wins"], one["ties"], one["losses"]) == (0, 16, 0) and one["ci"][
            0
        ] == near(-one["ci"][1])
    medians = {row[-2] for row in mine.tables()["Aggregates"][1:]}
    assert medians == {"5"}, "the cube root of 125 is 5"
    for form in FORMS:
        assert not re.search(r"\bnan\b|\binf\b", mine.form(form), re.IGNORECASE)


def mostly_failed(
    model: str, n: int, judge: str, factor: str, repeat: int
) -> float | str | None:
    return (
        quality(model, n, judge, factor, repeat)
        if n % 11 == 0
        else ("refused", "truncated", "invalid")[n % 3]
    )


def test_ten_failures_in_eleven_are_counted_by_kind_and_bound_the_mean_in_every_form(
    report: Callable[..., Report],
) -> None:
    edits = 33
    mine = report(Spec(edits=edits), mostly_failed)
    kinds = Counter(
        str(mostly_failed("good", n, "", "f", 0)) for n in range(edits) if n % 11
    )
    for (model, factor), cell in mine.cells.items():
        values = [quality(model, n, "openai/m", factor, 0) for n in range(0, edits, 11)]
        bounds = [(sum(values) + (edits - 3) * end) / edits for end in (1, 7)]
        assert cell["failed"] == kinds and (cell["n"], cell["ok"]) == (edits, 3)
        assert [cell["worst_case"], cell["best_case"]] == pytest.approx(bounds)
        record = next(
            row
            for row in mine.rows()
            if (row["model"], row["factor"]) == (model, factor)
        )
        assert {kind: int(record[f"failed_{kind}"]) for kind in kinds} == kinds
        assert [
            float(record[name]) for name in ("worst_case", "best_case", "mean")
        ] == pytest.approx([*bounds, np.mean(values)])
    head, *rows = mine.tables()["Scores by factor"]
    assert {(row[head.index("ok/n")], row[head.index("failed")]) for row in rows} == {
        ("3/33", "30")
    }
    cells = [
        mine.cells[model, factor] for factor in FACTORS for model in ("good", "poor")
    ]
    for row, cell in zip(rows, cells, strict=True):
        ends = row[head.index("bounds")].replace("..", " ")
        assert same_to_its_digits(ends, [cell["worst_case"], cell["best_case"]])
    head, *rows = mine.tables()["Judgements by status"]
    assert [row[head.index("ok %")] for row in rows] == ["9%", "9%"]
    for kind, n in kinds.items():
        assert {row[head.index(kind)] for row in rows} == {str(n)}


def test_nothing_scored_leaves_every_cell_of_a_score_empty_and_every_count_in_place(
    report: Callable[..., Report],
) -> None:
    mine = report(Spec(edits=5), lambda *_: "bad_image")
    for row in mine.rows():
        assert (
            row["n"],
            row["ok"],
            row["failed_bad_image"],
            row["mean"],
            row["median"],
        ) == ("5", "0", "5", "", "")
        assert (float(row["worst_case"]), float(row["best_case"])) == (1, 7), (
            "all that is known is the scale"
        )
    head, *rows = mine.tables()["Scores by factor"]
    assert {row[head.index("mean")] for row in rows} == {"-"}
    assert all(
        one["difference"] is None and one["p"] is None
        for one in mine.document["comparisons"]
    )


# --- a decision ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("passed", [0, 3, 17, 20])
def test_a_pass_rate_has_the_exact_limits_of_scipy(
    report: Callable[..., Report], passed: int
) -> None:
    mine = report(
        Spec(models=("good",), edits=20, per_group=1),
        lambda _, n, *__: int(n < passed),
        DECISION,
    )
    (rate,) = mine.document["pass_rates"]
    exact = stats.binomtest(passed, 20).proportion_ci(0.95, "exact")
    assert (rate["n"], rate["passed"], rate["rate"]) == (20, passed, passed / 20)
    assert rate["ci"] == pytest.approx([exact.low, exact.high]) and rate[
        "design_effect"
    ] == pytest.approx(1)
    (cell,) = mine.cells.values()
    assert cell["ci"] == pytest.approx(rate["ci"]) and cell["distribution"] == {
        "0": 20 - passed,
        "1": passed,
    }
    head, row = mine.tables()["Pass rates"]
    assert same_to_its_digits(
        row[head.index("rate")], [passed / 20, exact.low, exact.high]
    )
