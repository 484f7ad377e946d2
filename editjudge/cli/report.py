"""`editjudge report`: what the scores of a run add up to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from editjudge.cli.options import NewFile, open_store, run_argument, store_option
from editjudge.cli.output import json_option, safe, tell
from editjudge.cli.reading import as_option, guaranteed_option, load_pair_run, load_run, names_folder, of_option, show
from editjudge.errors import UsageError

if TYPE_CHECKING:
    from editjudge.report.pairwise import PairRun
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
@click.option("--by", multiple=True, metavar="NAME", help="Also group by this metadata field; repeatable.")
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
        raise UsageError("--as is for HTML, the only format with people's ratings; `agree` takes it too")
    if is_page and names_folder(store_place, run):
        raise UsageError(
            f"{safe(run)}: an HTML report needs a store, and this is a folder of shards: "
            f"import it with `editjudge import-run`, then report from there"
        )
    if pairs := load_pair_run(store_place, run):
        _report_pairs(pairs, output, form, by, as_json)
        return
    judged = load_run(store_place, run, by, of=of, evidence=True)
    from editjudge.report.comparison import conclusions
    from editjudge.report.forms import rendered
    from editjudge.report.summary import document, measure, tables

    means = measure(judged, by, width=width, guaranteed=guaranteed)
    if form is None:
        show([*judged.unjudged(), *judged.lead(), *conclusions(means.compared)], tables(means))
        return
    if is_page:
        with open_store(store_place, readonly=True) as store:
            text = rendered(means, form, store, called)
    else:
        text = rendered(means, form)
    _deliver(text, output, document(means) if as_json else {}, as_json)


def _report_pairs(pairs: PairRun, output: Path | None, form: str | None, by: tuple[str, ...], as_json: bool) -> None:
    from editjudge.report.pairwise import measure_pairs, rendered_pairs, tables

    if by:
        raise UsageError("--by groups scores; a run of pairs has none")
    report = measure_pairs(pairs)
    if form is None:
        show(report.lead(), tables(report))
        return
    _deliver(rendered_pairs(report, form), output, report.as_json() if as_json else {}, as_json)


def _deliver(text: str, output: Path | None, document: dict[str, Any], as_json: bool) -> None:
    if output is None:
        click.echo(text, nl=False)
        return
    output.write_text(text, "utf-8", newline="")
    tell(as_json, document | {"written": str(output)}, f"wrote {output}")


def _form(output: Path | None, form: str | None, as_json: bool) -> str | None:
    if as_json and output is None:
        if form not in (None, "json"):
            raise UsageError(f"--json and --format {form} both write to standard output; write one to a file with -o")
        return "json"
    if form is not None or output is None:
        return form
    from editjudge.report.forms import form_of

    return form_of(output)
