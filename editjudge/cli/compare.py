"""`editjudge compare` and `editjudge drift`: whether a difference is real, and whether a judge has changed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from editjudge.cli import completion
from editjudge.cli.options import (
    FILE,
    across_option,
    former_option,
    guaranteed_option,
    in_store,
    load_run,
    primary_option,
    run_argument,
    run_option,
    store_option,
    use_option,
    verb,
)
from editjudge.cli.output import VerbReply
from editjudge.errors import UsageError

if TYPE_CHECKING:
    from editjudge.report.run_data import Of


@verb(example="editjudge compare mine --a old --b new")
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
@click.option(
    "--through",
    type=FILE,
    metavar="BRIDGE",
    help="With RUN_B: map its scores to the scale of RUN's judge by a file of `editjudge bridge`.",
)
@primary_option
@guaranteed_option
@use_option
@store_option
def command(
    run: str,
    other: str | None,
    a: str | None,
    b: str | None,
    by: Any,
    factors: tuple[str, ...],
    across_rubrics: bool,
    judge: str | None,
    through: Path | None,
    primary: tuple[str, ...],
    guaranteed: bool,
    use: Of,
) -> VerbReply:
    """Test whether two models, judges, rubrics or runs differ: paired differences, b minus a.

    The conclusion comes first, then the table. Models are paired by source image and instruction, judges and rubrics by
    edit. p, CI and MDE (minimum detectable effect at 80 % power) come from one method: a bootstrap over source images
    or, if too few of them contribute to the difference, a bound with guaranteed coverage. The primary scores (a set's
    own, or the rubric means and `overall`) are corrected together; factors are exploratory and corrected within their
    rubric. A CI excludes 0 if the corrected p is below .05.

    With RUN_B each run's edits are one side. They are paired by input and instruction (and ground truth and mask),
    whatever their ids: within a model if both runs have it, otherwise across models. Several edits on one side count as
    their mean. Unmatched edits are counted. Runs with different rubrics are refused; --across-rubrics compares them on
    factors with the same scale. Factors with different scales are never compared. Runs of different judges are refused;
    --through maps one judge's scores to the other's scale and adds the error of the map to every interval. STORE#RUN
    names a run in another store.
    """
    from editjudge.report import comparison
    from editjudge.report.bridge import Bridge
    from editjudge.report.selection import Choice

    choice = Choice(factors, judge, primary, guaranteed)
    if other is None:
        if through is not None:
            raise UsageError("--through is about two runs: name RUN_B")
        if across_rubrics:
            raise UsageError(
                "--across-rubrics is about two runs: name RUN_B, or compare rubrics of one run with --by rubric"
            )
        return VerbReply.of(
            comparison.compare(load_run(run, use=use), by, a, b, choice)
        )
    if a is not None or b is not None:
        raise UsageError(
            "--a and --b choose two sides of one run; with RUN_B each run is a side: leave --a and --b out"
        )
    crossing = Bridge.read(through) if through else None
    first = load_run(run, pairing=True, use=use)
    second = load_run(other, pairing=True, use=use)
    return VerbReply.of(
        comparison.compare_runs(
            first,
            second,
            choice,
            across_rubrics=across_rubrics,
            through=crossing,
        )
    )


@verb(example="editjudge drift today --against last-month")
@run_argument
@run_option(
    "--against",
    required=True,
    help="The earlier run of the same edits; STORE#RUN if it is in another store.",
)
@former_option("--against-store", "--against STORE#RUN")
@across_option
@store_option
def drift(
    run: str, against: str, against_store: str | None, across_rubrics: bool
) -> VerbReply:
    """Compare two runs of the same edits: did the judge's scores change beyond noise?

    Edits are matched by input, output and instruction, whatever their ids. Unmatched edits are counted; if nothing
    matches, that is an error. Changes of rubric, server model, image preparation and settings are listed first. Some
    answers may be the same stored answers in both runs; their number is printed. Runs with different rubrics are
    refused; --across-rubrics compares them on factors with the same scale. If a server reported several models within a
    run, the edits of each are also compared by themselves.
    """
    from editjudge.report import drift as report

    now = load_run(run, pairing=True)
    then = load_run(in_store(against_store, against), pairing=True)
    return VerbReply.of(report.drift(now, then, across_rubrics=across_rubrics))
