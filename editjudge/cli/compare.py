"""`editjudge compare`: whether a difference is real."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from editjudge.cli import completion
from editjudge.cli.options import run_argument, store_option
from editjudge.cli.output import json_option
from editjudge.cli.reading import across_option, guaranteed_option, load_run, of_option, present, primary_option
from editjudge.errors import UsageError

if TYPE_CHECKING:
    from editjudge.report.run_data import Of, RunData


@click.command(epilog="\b\nExample: editjudge compare mine --a old --b new")
@run_argument
@click.argument("other", required=False, metavar="[RUN_B]", shell_complete=completion.runs)
@click.option("--a", help="The model (or judge, or rubric) that is one side.")
@click.option("--b", help="The other side; without --a and --b, every pair is compared.")
@click.option(
    "--by",
    type=click.Choice(["model", "judge", "rubric"]),
    default="model",
    show_default=True,
    help="What is compared.",
)
@click.option("--factor", "factors", multiple=True, help="Only this factor or aggregate (overall ...); repeatable.")
@across_option
@click.option("--judge", help="The judge that decides; without it the mean of all of them, the panel.")
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
    if other is not None:
        if a is not None or b is not None:
            raise UsageError(
                "--a and --b choose two sides of one run; with RUN_B each run is a side: leave --a and --b out"
            )
        first, second = (load_run(store_place, name, pairing=True, of=of) for name in (run, other))
        chosen = {"factors": factors, "judge": judge, "primary": primary, "guaranteed": guaranteed}
        _runs(first, second, chosen, across_rubrics, as_json)
        return
    if across_rubrics:
        raise UsageError(
            "--across-rubrics is about two runs: name RUN_B, or compare rubrics of one run with --by rubric"
        )
    judged = load_run(store_place, run, of=of)
    from editjudge.report.same_rubrics import SameRubrics, within_one_run

    same = within_one_run(judged) if by == "rubric" else SameRubrics(judged, judged)
    judged = same.a
    from editjudge.report.comparison import compare_tables, comparison_document, conclusions, differences

    comparisons = differences(judged, by, a, b, factors=factors, judge=judge, primary=primary, guaranteed=guaranteed)
    lead = [*judged.unjudged(), *conclusions(comparisons), *same.lead(), *judged.lead()]
    present(
        as_json,
        lambda: comparison_document(judged, by, comparisons),
        lead,
        lambda: compare_tables(comparisons, by),
    )
    if not comparisons and not as_json:
        click.echo(
            f"\nnothing to compare: no two {by}s have scores on the same {'rubric' if by == 'judge' else 'factor'}"
        )


def _runs(a: RunData, b: RunData, chosen: dict[str, Any], across_rubrics: bool, as_json: bool) -> None:
    from editjudge.report.comparison import compare_tables, conclusions, run_differences, runs_document
    from editjudge.report.same_rubrics import same_rubrics

    same = same_rubrics(a, b, across_rubrics=across_rubrics, factors=chosen["factors"])
    a, b = same.a, same.b
    comparisons, match = run_differences(a, b, **chosen)
    words = match.words(a.run.name, b.run.name)
    lead = [*b.unjudged(), *same.lead(), *conclusions(comparisons), *a.lead(), *b.lead(), *words]
    present(
        as_json,
        lambda: runs_document(a, b, match, comparisons) | same.as_json(),
        lead,
        lambda: compare_tables(comparisons, "run"),
    )
