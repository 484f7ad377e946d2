"""`editjudge report`: summarise the scores of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from editjudge.cli.options import (
    FILE,
    NewFile,
    guaranteed_option,
    load_run,
    map_factor_option,
    open_run,
    run_argument,
    store_option,
    use_option,
    verb,
    wants_json,
)
from editjudge.cli.output import VerbReply
from editjudge.errors import UsageError

if TYPE_CHECKING:
    from editjudge.report.run_data import Of


@verb(example="editjudge report mine -o report.html")
@run_argument
@click.option("-o", "--output", type=NewFile(), help="File to write.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["html", "fragment", "md", "latex", "csv", "json"]),
    help="Default: by the file's name. fragment: HTML to put into another page or a notebook.",
)
@click.option(
    "--by",
    multiple=True,
    metavar="NAME",
    help="Also group by this metadata field; repeatable.",
)
@click.option(
    "--width",
    type=click.FloatRange(min=0, min_open=True),
    help="Also report how many edits or repeats would narrow the CI of a mean to this width.",
)
@map_factor_option
@guaranteed_option
@use_option
@click.option(
    "--passport",
    "passports",
    type=FILE,
    multiple=True,
    metavar="FILE",
    help="Also report a line about this passport of a judge; repeatable.",
)
@store_option
def command(
    run: str,
    output: Path | None,
    format_: str | None,
    by: tuple[str, ...],
    width: float | None,
    mappings: tuple[str, ...],
    guaranteed: bool,
    use: Of,
    passports: tuple[Path, ...],
) -> VerbReply | None:
    """Report means with 95 % CI per model, factor and edit type, and what failed.

    A report begins with a verdict for each pair of models (two to four), as `compare` gives it; JSON has the
    comparisons. HTML is one file with a forest plot, a leaderboard, distributions, heat maps and galleries of
    edits, and compares judges with the ratings in the store, as `agree` does. Tables for people are rounded to what
    the intervals support; CSV and JSON have full precision.

    For a run of pairs: reports verdicts over both orders, how many flipped with the order, win rates, and strengths of
    models.
    """
    from editjudge.report.page import rendered
    from editjudge.report.pairwise import load_pairs, rendered_pairs, report_pairs
    from editjudge.report.passport import Passport
    from editjudge.report.summary import measure, report

    format_ = _format(output, format_)
    if mappings and format_ not in ("html", "fragment"):
        raise UsageError(
            "--map-factor is for HTML, the only format with people's ratings; `agree` takes it too"
        )
    store, name = open_run(run)
    with store:
        pairs = load_pairs(store, name)
        if pairs and passports:
            raise UsageError(
                "--passport is about scores; a run of pairs has none", code="no_scores"
            )
        if pairs and (by or mappings):
            option = "--by groups" if by else "--map-factor maps"
            raise UsageError(
                f"{option} scores; a run of pairs has none", code="no_scores"
            )
        if pairs:
            answer = report_pairs(pairs)
            text = rendered_pairs(pairs, format_, store) if format_ else ""
        else:
            scores = load_run(run, by, use=use, evidence=True)
            scores = scores.with_passports(map(Passport.read, passports))
            means = measure(scores, by, width=width, guaranteed=guaranteed)
            answer = report(means)
            text = rendered(means, format_, store, mappings) if format_ else ""
    if format_ is None:
        return VerbReply.of(answer)
    if output is None:
        click.echo(text, nl=False)
        return None
    output.write_text(text, "utf-8", newline="")
    return VerbReply({**answer.document, "written": str(output)}, [f"wrote {output}"])


def _format(output: Path | None, format_: str | None) -> str | None:
    if wants_json() and output is None:
        if format_ not in (None, "json"):
            raise UsageError(
                f"--json and --format {format_} both write to standard output; write one to a file with -o"
            )
        return "json"
    if format_ is not None or output is None:
        return format_
    from editjudge.report.answers import format_of

    return format_of(output)
