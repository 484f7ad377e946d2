"""`editjudge bridge`: a map from the scale of one judge to that of another."""

from __future__ import annotations

from pathlib import Path

import click

from editjudge.cli import completion
from editjudge.cli.options import (
    FILE,
    Finite,
    NewFile,
    load_run,
    map_factor_option,
    store_option,
    verb,
)
from editjudge.cli.output import VerbReply
from editjudge.errors import UsageError


@verb(example="editjudge bridge last-year this-year -o bridge.json")
@click.argument("old", metavar="OLD", shell_complete=completion.runs)
@click.argument("new", metavar="NEW", shell_complete=completion.runs)
@click.option("--ratings", type=FILE, help="People's ratings of these edits.")
@map_factor_option
@click.option(
    "--within",
    type=Finite(min=0),
    default=0.75,
    show_default=True,
    help="Points of a 7-point scale, or the same share of another, within which 90 % of edits have to be mapped.",
)
@click.option(
    "--min-spearman",
    type=Finite(min=-1, max=1),
    default=0.6,
    show_default=True,
    help="Minimum of the lower limit of Spearman's correlation.",
)
@click.option(
    "-o",
    "--output",
    type=NewFile(),
    help="Write the bridge to this file: .json for `compare --through`; .html, .md, .tex or .csv for people.",
)
@store_option
def command(
    old: str,
    new: str,
    ratings: Path | None,
    mappings: tuple[str, ...],
    within: float,
    min_spearman: float,
    output: Path | None,
) -> VerbReply:
    """Map a new judge's scores to the scale of an old one, from two runs of the same edits.

    Edits are paired by input, output and instruction. For each factor, the map rises and has a 95 % band; its error is
    measured on source images to which it was not fitted. A factor is comparable if 90 % of edits map within the limit
    and both judges rank the edits alike. The file of -o bridge.json lets `compare OLD OTHER --through bridge.json`
    compare runs of the two judges: it adds the error of the map to every interval.
    """
    from editjudge.report.answers import format_of
    from editjudge.report.bridge import bridge, bridge_text
    from editjudge.stats.bridge import BridgeLimits

    if mappings and ratings is None:
        raise UsageError("--map-factor needs people's ratings: add --ratings FILE")
    form = format_of(output) if output else None
    answer = bridge(
        load_run(old, pairing=True),
        load_run(new, pairing=True),
        BridgeLimits(within, min_spearman),
        ratings=ratings,
        mappings=mappings,
    )
    if output and form:
        output.write_text(bridge_text(answer, form), "utf-8", newline="")
    return VerbReply.of(answer)
