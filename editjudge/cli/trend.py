"""`editjudge trend`: scores over the checkpoints of a training run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from editjudge.cli import completion
from editjudge.cli.options import (
    guaranteed_option,
    open_run,
    store_option,
    use_option,
    verb,
)
from editjudge.cli.output import VerbReply

if TYPE_CHECKING:
    from editjudge.report.run_data import Of


@verb(example="editjudge trend ckpt-1000 ckpt-2000 ckpt-3000 -o trend.html")
@click.argument(
    "runs",
    nargs=-1,
    required=True,
    metavar="RUN...",
    shell_complete=completion.runs,
)
@click.option(
    "--step-from",
    metavar="REGEX",
    help=r"Read steps from the names of the models, such as 'ckpt-(\d+)'. Default: the --step of each run.",
)
@click.option("--model", help="Only edits of this model.")
@click.option(
    "--judge",
    help="The judge that decides; without it the mean of all of them, the panel.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the page to this file: .html, .md, .tex, .csv or .json.",
)
@guaranteed_option
@use_option
@store_option
def command(
    runs: tuple[str, ...],
    step_from: str | None,
    model: str | None,
    judge: str | None,
    output: Path | None,
    guaranteed: bool,
    use: Of,
) -> VerbReply:
    """Show how scores change over the steps of a training run, and which step is the best.

    Each run is one step (`run --step N`), or each model of a run is (`--step-from`). The best step is listed with the
    steps that cannot be told apart from it. They are found by paired comparisons of all steps, by input and
    instruction, with Holm's correction. Failed judgements and outputs that show their input unchanged are counted
    beside the scores.
    """
    from editjudge.report.answers import format_of
    from editjudge.report.trend import load_step, trend, trend_text

    form = format_of(output) if output else None
    loaded = []
    for name in dict.fromkeys(runs):
        store, run = open_run(name)
        with store:
            loaded.append(load_step(store, run, use=use))
    answer = trend(
        loaded, step_from=step_from, judge=judge, model=model, guaranteed=guaranteed
    )
    if output and form:
        output.write_text(trend_text(answer, form), "utf-8", newline="")
    return VerbReply.of(answer)
