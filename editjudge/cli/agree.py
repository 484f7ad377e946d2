"""`editjudge agree`: compare judges with people."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from editjudge.cli.completion import runs
from editjudge.cli.options import (
    FILE,
    columns_option,
    former_option,
    load_run,
    map_factor_option,
    open_run,
    store_option,
    use_option,
    verb,
)
from editjudge.cli.output import VerbReply
from editjudge.errors import UsageError

if TYPE_CHECKING:
    from editjudge.manifest import Columns
    from editjudge.report.answers import Answer
    from editjudge.report.run_data import Of


@verb(example="editjudge agree mine --ratings ratings.csv")
@click.argument("run", required=False, shell_complete=runs)
@click.option(
    "--ratings",
    type=FILE,
    help="People's ratings: item, rater, factor, score. Default with RUN: the ratings in the store.",
)
@click.option(
    "--scores",
    type=FILE,
    help="Judges' scores from a file instead of a RUN: item, judge, factor, score.",
)
@click.option(
    "--manifest",
    type=FILE,
    help="With --scores: a manifest that gives the model and source image of each item.",
)
@columns_option
@click.option(
    "--preferences",
    type=FILE,
    help="A file of which of two edits people prefer. Columns with RUN: a, b (ids of its edits), preference (A, B or "
    "tie), group. With a RUN of pairs: item (or id), preference (A, B, tie or both_bad), optional rater. Without RUN: "
    "model_a, model_b, preference, and judges' votes in columns vote:NAME or an object judge_votes.",
)
@map_factor_option
@former_option("--with-guessed", "guessed = 0 into the file", is_flag=True)
@click.option(
    "--calibrate",
    "calibrating",
    is_flag=True,
    help="Also fit a map from each judge's scale to people's.",
)
@click.option(
    "--estimate",
    "estimating",
    is_flag=True,
    help="Also estimate people's mean per model from few ratings and all scores.",
)
@click.option(
    "--plan",
    type=FILE,
    help="With --estimate: the file of `ratings plan`, which says with which probability an edit was chosen to be rated.",
)
@use_option
@store_option
def command(
    run: str | None,
    ratings: Path | None,
    scores: Path | None,
    manifest: Path | None,
    columns: Columns,
    preferences: Path | None,
    mappings: tuple[str, ...],
    with_guessed: bool,
    calibrating: bool,
    estimating: bool,
    plan: Path | None,
    use: Of,
) -> VerbReply:
    """Compare judges' scores with people's ratings, and judges with a further rater.

    Prints correlations per factor, with 95 % CI. Each item is one point: the mean of the judge's scores and the mean of
    all ratings. Scores come from a RUN or from a file. No rater is excluded and nothing is rescaled.

    With --preferences: compares votes on which of two edits is better. A judge votes for the edit that it scored
    higher.

    If people's factors and the judge's have different names, map them: --map-factor PQ=quality --map-factor
    SC=fidelity.
    """
    from editjudge.report.agreement import agree_files

    further = {"calibrating": calibrating, "estimating": estimating}
    if plan and not (estimating and run):
        raise UsageError("--plan goes with a RUN and --estimate")
    if preferences is not None:
        if any((ratings, scores, manifest, mappings, with_guessed, *further.values())):
            raise UsageError(
                "--preferences takes no --ratings, --scores, --manifest, --map-factor, --calibrate, --estimate"
            )
        return VerbReply.of(_preferences(run, preferences, use))
    if (run is None) == (scores is None):
        raise UsageError(
            "name what to compare with people: either a RUN, or a file of scores with --scores"
        )
    if run is not None:
        if manifest is not None:
            raise UsageError(
                "--manifest goes with --scores only: a run has its own manifest; leave --manifest out"
            )
        return VerbReply.of(_run(run, ratings, mappings, use, further, plan))
    if ratings is None or scores is None:
        raise UsageError(
            "--scores needs people's ratings to compare with: add --ratings FILE"
        )
    if use != "scores":
        raise UsageError(
            f"--use {use} needs a RUN: a file of scores has no token probabilities"
        )
    return VerbReply.of(
        agree_files(
            ratings,
            scores,
            manifest,
            mappings,
            columns=columns,
            with_guessed=with_guessed,
            **further,
        )
    )


def _run(
    name: str,
    file: Path | None,
    mappings: tuple[str, ...],
    use: Of,
    further: dict[str, bool],
    plan: Path | None,
) -> Answer:
    from editjudge.report.agreement import agree
    from editjudge.report.pairwise import agree_stored_pairs, load_pairs

    store, run = open_run(name)
    with store:
        if file is None and (pairs := load_pairs(store, run)):
            return agree_stored_pairs(pairs, store)
        data = load_run(name, pairing=True, use=use)
        return agree(data, file or store, mappings, plan=plan, **further)


def _preferences(name: str | None, file: Path, use: Of) -> Answer:
    from editjudge.report.pairwise import (
        agree_pair_file,
        agree_preferences,
        load_pairs,
    )

    if name is None:
        return agree_preferences(file, None)
    store, run = open_run(name)
    with store:
        pairs = load_pairs(store, run)
    if pairs:
        return agree_pair_file(pairs, file)
    return agree_preferences(file, load_run(name, use=use))
