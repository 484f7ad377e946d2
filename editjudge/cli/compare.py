"""`editjudge compare`: whether a difference is real."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from editjudge.cli import completion
from editjudge.cli.options import run_argument, store_option
from editjudge.cli.output import json_option
from editjudge.cli.reading import (
    across_option,
    guaranteed_option,
    load_run,
    need_statistics,
    of_option,
    present,
    primary_option,
)
from editjudge.errors import UsageError

if TYPE_CHECKING:
    from editjudge.report.run_data import Of


@click.command(epilog="\b\nExample: editjudge compare mine --a old --b new")
@run_argument
@click.argument(
    "other", required=False, metavar="[RUN_B]", shell_complete=completion.runs
)
@click.option("--a", help="The model (or judge, or rubric) that is one side.")
@click.option(
    "--b", help="The other side; without --a and --b, every pair is compared."
)
@click.option(
    "--by",
    type=click.Choice(["model", "judge", "rubric"]),
    default="model",
    show_default=True,
    help="What is compared.",
)
@click.option(
    "--factor",
    "factors",
    multiple=True,
    help="Only this factor or aggregate (overall ...); repeatable.",
)
@across_option
@click.option(
    "--judge",
    help="The judge that decides; without it the mean of all of them, the panel.",
)
@primary_option
@guaranteed_option
@of_option
@store_option
@json_option
def command(
    run: str,
    other: str | None,
    a: str | None,
    b: str | None,
    by: Any,
    factors: tuple[str, ...],
    across_rubrics: bool,
    judge: str | None,
    primary: tuple[str, ...],
    guaranteed: bool,
    of: Of,
    store_place: str,
    as_json: bool,
) -> None:
    """Test whether two models, judges, rubrics or runs differ: paired differences, b minus a.

    The conclusion comes first, then the table. Models are paired by source image and instruction, judges and rubrics by
    edit. p, CI and MDE (minimum detectable effect at 80 % power) come from one method: a bootstrap over source images,
    or, where too few of them carry the difference, a guaranteed bound. The primary scores (a set's own, or the rubric
    means and `overall`) are corrected together; factors are exploratory and corrected within their rubric. A CI
    excludes 0 where the corrected p is below .05.

    With RUN_B each run's edits are one side, paired by input and instruction (and ground truth and mask) whatever their
    ids: within a model that both runs have, else across models; several edits of one side count as their mean.
    Unmatched edits are counted. Runs that asked by different rubrics are refused; --across-rubrics compares them on
    factors of the same scale. Factors of different scales are never compared.
    """
    need_statistics()
    from editjudge.report import comparison
    from editjudge.report.selection import Choice

    choice = Choice(factors, judge, primary, guaranteed)
    if other is None:
        if across_rubrics:
            raise UsageError(
                "--across-rubrics is about two runs: name RUN_B, or compare rubrics of one run with --by rubric"
            )
        answer = comparison.compare(load_run(store_place, run, of=of), by, a, b, choice)
    else:
        if a is not None or b is not None:
            raise UsageError(
                "--a and --b choose two sides of one run; with RUN_B each run is a side: leave --a and --b out"
            )
        first = load_run(store_place, run, pairing=True, of=of)
        second = load_run(store_place, other, pairing=True, of=of)
        answer = comparison.compare_runs(
            first, second, choice, across_rubrics=across_rubrics
        )
    present(as_json, answer)
