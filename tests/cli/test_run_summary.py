"""The table at the end of `editjudge run`."""

from __future__ import annotations

from editjudge.cli.outcome import glances
from editjudge.running.summary import Summary, SummaryCell


def summary(*models: str, judges: tuple[str, ...] = ("j",)) -> Summary:
    return Summary(
        cells={
            (judge, model, "fidelity", factor): SummaryCell(sum=50, ok=9, n=10)
            if model != "none"
            else SummaryCell(n=10)
            for judge in judges
            for model in models
            for factor in ("alignment", "completeness")
        }
    )


def test_a_row_for_each_factor_and_a_column_for_each_model() -> None:
    (table,) = glances(summary("a", "none"))
    assert table.text().splitlines() == [
        "mean and ok/n by j",
        "factor                         a    none",
        "----------------------------------------",
        "fidelity.alignment     5.56 9/10  - 0/10",
        "fidelity.completeness  5.56 9/10  - 0/10",
    ]


def test_each_judge_has_a_table_and_a_model_without_a_name_is_a_mean() -> None:
    first, second = glances(summary("", judges=("j", "k")))
    assert (first.columns, second.caption) == (("factor", "mean"), "mean and ok/n by k")


def test_models_that_do_not_fit_beside_each_other_stand_under_each_other() -> None:
    (table,) = glances(summary(*(f"a-model-with-a-long-name-{n}" for n in range(6))))
    assert table.columns == ("factor", "model", "mean") and len(table.rows) == 12
    assert max(map(len, table.text().splitlines())) <= 100


def test_a_run_without_tasks_has_no_table() -> None:
    assert glances(Summary()) == []
