"""`editjudge drift`: the same edits, judged at another time."""

from __future__ import annotations

import click

from editjudge.cli.completion import runs
from editjudge.cli.options import run_argument, store_option
from editjudge.cli.output import json_option
from editjudge.cli.reading import across_option, load_run, present


@click.command(epilog="\b\nExample: editjudge drift today --against last-month")
@run_argument
@click.option(
    "--against",
    required=True,
    metavar="RUN",
    shell_complete=runs,
    help="The earlier run of the same edits.",
)
@click.option(
    "--against-store",
    metavar="STORE",
    help="Where the earlier run is kept, if elsewhere.",
)
@across_option
@store_option
@json_option
def command(
    run: str,
    against: str,
    against_store: str | None,
    across_rubrics: bool,
    store_place: str,
    as_json: bool,
) -> None:
    """Compare two runs of the same edits: did the judge's scores change beyond noise?

    Edits are matched by input, output and instruction, whatever their ids. Unmatched edits are counted; if nothing
    matches, that is an error. Changes of rubric, server model, image preparation and settings are listed first. Answers
    that both runs share from the store were asked once; their number is printed. Runs that asked by different rubrics
    are refused; --across-rubrics compares them on factors of the same scale.
    """
    now = load_run(store_place, run, pairing=True)
    then = load_run(against_store or store_place, against, pairing=True)
    from editjudge.report import comparison

    present(as_json, comparison.drift(now, then, across_rubrics=across_rubrics))
