"""`editjudge compare`: whether a difference is real."""

from __future__ import annotations

from typing import Any

import click

from editjudge.cli.options import run_argument, store_option
from editjudge.cli.output import emit, json_option
from editjudge.cli.shown import load_run, show
from editjudge.errors import UsageError


@click.command(epilog="\b\nExample: editjudge compare mine --a old --b new")
@run_argument
@click.argument("more", nargs=-1, metavar="")
@click.option("--a", help="The model (or judge, or rubric) to compare with.")
@click.option("--b", help="The one that is compared; without --a and --b, every pair.")
@click.option(
    "--by",
    type=click.Choice(["model", "judge", "rubric"]),
    default="model",
    show_default=True,
    help="What is compared.",
)
@click.option("--factor", "factors", multiple=True, help="Only this factor or aggregate (overall ...); repeatable.")
@store_option
@json_option
def command(
    run: str,
    more: tuple[str, ...],
    a: str | None,
    b: str | None,
    by: Any,
    factors: tuple[str, ...],
    store_place: str,
    as_json: bool,
) -> None:
    """Paired differences, b minus a, with intervals and corrected p-values.

    Models are paired by source image and instruction, judges and rubrics by edit. Says so where there is no evidence
    of a difference, and how small a difference this many edits could have shown. P-values, the verdict and that
    smallest difference are corrected for all that is compared together; an interval is for its row alone.
    """
    if more:
        raise UsageError(
            f"compare takes one run with both sides in it, not {run} and {more[0]}: run one manifest with a model on "
            f"each line. For the same edits judged twice: editjudge drift {more[0]} --against {run}. "
            "To look at two runs side by side: editjudge serve, page /compare"
        )
    judged = load_run(store_place, run)
    from editjudge.report.differences import compare_tables, differences

    found = differences(judged, by, a, b, factors=factors)
    if as_json:
        emit({"run": judged.run.name, "by": by, "comparisons": [one.as_json() for one in found]})
        return
    show(judged.lead(), compare_tables(found, by))
    if not found:
        click.echo(
            f"\nnothing to compare: no two of them have scores on the same {'rubric' if by == 'judge' else 'factor'}"
        )
