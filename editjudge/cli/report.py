"""`editjudge report`: what the scores of a run add up to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from editjudge.cli.options import NewFile, open_store, run_argument, store_option
from editjudge.cli.output import json_option, tell
from editjudge.cli.reading import (
    as_option,
    guaranteed_option,
    load_pair_run,
    load_run,
    of_option,
    present,
)
from editjudge.errors import UsageError

if TYPE_CHECKING:
    from editjudge.report.run_data import Of

FORMS = ("html", "fragment", "md", "latex", "csv", "json")


@click.command(epilog="\b\nExample: editjudge report mine -o report.html")
@run_argument
@click.option("-o", "--output", type=NewFile(), help="File to write.")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMS),
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
@as_option
@guaranteed_option
@of_option
@store_option
@json_option
def command(
    run: str,
    output: Path | None,
    form: str | None,
    by: tuple[str, ...],
    width: float | None,
    called: tuple[str, ...],
    guaranteed: bool,
    of: Of,
    store_place: str,
    as_json: bool,
) -> None:
    """Report means with 95 % CI per model, factor and edit type, and what failed.

    A report begins with a verdict for each pair of models (two to four), as `compare` gives it; JSON has the
    comparisons. HTML is one file with a forest plot, a leaderboard, distributions, heat maps and galleries of
    edits, and compares judges with the ratings in the store, as `agree` does. Tables for people are rounded to what
    the intervals support; CSV and JSON have full precision.

    For a run of pairs: verdicts over both orders, how many flipped with the order, win rates, strengths of models.
    """
    form = _form(output, form, as_json)
    is_page = form in ("html", "fragment")
    if called and not is_page:
        raise UsageError(
            "--as is for HTML, the only format with people's ratings; `agree` takes it too"
        )
    pairs = load_pair_run(store_place, run)
    if pairs and by:
        raise UsageError("--by groups scores; a run of pairs has none")
    from editjudge.report.page import rendered
    from editjudge.report.pairwise import rendered_pairs, report_pairs
    from editjudge.report.summary import measure
    from editjudge.report.summary import report as report_run

    if pairs:
        answer = report_pairs(pairs)
        text = rendered_pairs(pairs, form) if form else ""
    else:
        judged = load_run(store_place, run, by, of=of, evidence=True)
        means = measure(judged, by, width=width, guaranteed=guaranteed)
        answer = report_run(means)
        if is_page:
            with open_store(store_place, readonly=True) as store:
                text = rendered(means, str(form), store, called)
        else:
            text = rendered(means, form) if form else ""
    if form is None:
        present(False, answer)
    elif output is None:
        click.echo(text, nl=False)
    else:
        output.write_text(text, "utf-8", newline="")
        tell(as_json, {**answer.document, "written": str(output)}, f"wrote {output}")


def _form(output: Path | None, form: str | None, as_json: bool) -> str | None:
    if as_json and output is None:
        if form not in (None, "json"):
            raise UsageError(
                f"--json and --format {form} both write to standard output; write one to a file with -o"
            )
        return "json"
    if form is not None or output is None:
        return form
    from editjudge.report.answers import format_of

    return format_of(output)
