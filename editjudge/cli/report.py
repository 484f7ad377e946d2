"""`editjudge report`: what the scores of a run add up to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from editjudge.cli.options import store_option
from editjudge.cli.output import emit, json_option, safe
from editjudge.cli.shown import load_run, show
from editjudge.errors import UsageError

if TYPE_CHECKING:
    from editjudge.report.means import Means

FORMS = {".md": "md", ".tex": "latex", ".csv": "csv", ".json": "json"}
"""The form that a file's name asks for where --format does not."""


@click.command()
@click.argument("run")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="File to write.")
@click.option("--format", "form", type=click.Choice([*FORMS.values()]), help="Without it, what the file's name says.")
@click.option("--by", multiple=True, metavar="NAME", help="Slice by this metadata too; repeatable.")
@click.option(
    "--width",
    type=click.FloatRange(min=0, min_open=True),
    help="Also say how many edits or repeats would make a mean's interval this wide.",
)
@store_option
@json_option
def command(
    run: str,
    output: Path | None,
    form: str | None,
    by: tuple[str, ...],
    width: float | None,
    store_place: str,
    as_json: bool,
) -> None:
    """Means with intervals per model, factor and edit type, and what failed.

    Coverage and failures come first. Tables for people are rounded to what the intervals support; CSV and JSON have
    full precision.
    """
    judged = load_run(store_place, run, by)
    from editjudge.report.means import document, measure, tables

    means = measure(judged, by, width=width)
    form = _form(output, form, as_json)
    if form is None:
        show(judged.lead(), tables(means))
        return
    text = rendered(means, form)
    if output is None:
        click.echo(text, nl=False)
        return
    output.write_text(text, "utf-8", newline="")
    if as_json:
        emit(document(means) | {"written": str(output)})
    else:
        click.echo(f"wrote {safe(str(output))}")


def rendered(means: Means, form: str) -> str:
    """The whole report in one form."""
    from editjudge.report.means import document, long, tables
    from editjudge.report.tables import PROSE

    if form == "csv":
        return long(means).csv()
    if form == "json":
        return json.dumps(document(means), indent=2, allow_nan=False) + "\n"
    judged = means.judged
    return PROSE[form](f"Run {judged.run.name}", judged.lead(), tables(means, full=True))


def _form(output: Path | None, form: str | None, as_json: bool) -> str | None:
    if as_json and output is None:
        if form not in (None, "json"):
            raise UsageError(f"--json and --format {form} want the same standard output; write one to a file with -o")
        return "json"
    if form is not None or output is None:
        return form
    if output.suffix not in FORMS:
        known = ", ".join(FORMS)
        raise UsageError(f"{safe(str(output))}: the name ends in none of {known}; say the form with --format")
    return FORMS[output.suffix]
