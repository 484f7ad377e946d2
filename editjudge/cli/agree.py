"""`editjudge agree`: judges against people."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from editjudge.cli.completion import runs
from editjudge.cli.options import columns_option, open_store, store_option
from editjudge.cli.output import json_option
from editjudge.cli.reading import (
    as_option,
    load_pair_run,
    load_run,
    need_statistics,
    of_option,
    present,
)
from editjudge.errors import UsageError

if TYPE_CHECKING:
    from editjudge.manifest import Columns
    from editjudge.report.run_data import Of

FILE = click.Path(path_type=Path)


@click.command(epilog="\b\nExample: editjudge agree mine --ratings ratings.csv")
@click.argument("run", required=False, shell_complete=runs)
@click.option(
    "--ratings",
    "ratings_file",
    type=FILE,
    help="People's ratings: item, rater, factor, score. Default with RUN: the ratings in the store.",
)
@click.option(
    "--scores",
    "scores_file",
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
    "preferences_file",
    type=FILE,
    help="A file of which of two edits people prefer. Columns with RUN: a, b (ids of its edits), preference (A, B or "
    "tie), group. With a RUN of pairs: item (or id), preference (A, B, tie or both_bad), optional rater. Without RUN: "
    "model_a, model_b, preference, and judges' votes in columns vote:NAME or an object judge_votes.",
)
@as_option
@click.option(
    "--with-guessed",
    is_flag=True,
    help="Include scores that the file marks as guessed.",
)
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
@of_option
@store_option
@json_option
def command(
    run: str | None,
    ratings_file: Path | None,
    scores_file: Path | None,
    manifest: Path | None,
    columns: Columns,
    preferences_file: Path | None,
    called: tuple[str, ...],
    with_guessed: bool,
    calibrating: bool,
    estimating: bool,
    of: Of,
    store_place: str,
    as_json: bool,
) -> None:
    """Compare judges' scores with people's ratings, beside what a further rater would reach.

    Prints correlations per factor, with 95 % CI. Each item is one point: the mean of the judge's scores and the mean of
    all ratings. Scores come from a RUN or from a file. No rater is excluded and nothing is rescaled.

    With --preferences: compares votes instead, on which of two edits is better. A judge of a RUN votes for the edit
    that it scored higher.

    If people's factors have other names than the judge's, map them: --as PQ=quality --as SC=fidelity.
    """
    if preferences_file is not None:
        if (
            ratings_file
            or scores_file
            or manifest
            or called
            or with_guessed
            or calibrating
            or estimating
        ):
            raise UsageError(
                "--preferences takes no --ratings, --scores, --manifest, --as, --with-guessed, --calibrate, --estimate"
            )
        _preferences(run, preferences_file, of, store_place, as_json)
        return
    if (run is None) == (scores_file is None):
        raise UsageError(
            "name what to compare with people: either a RUN, or a file of scores with --scores"
        )
    if run is None and ratings_file is None:
        raise UsageError(
            "--scores needs people's ratings to compare with: add --ratings FILE"
        )
    if run is not None and manifest is not None:
        raise UsageError(
            "--manifest goes with --scores only: a run has its own manifest; leave --manifest out"
        )
    if run is None and of != "scores":
        raise UsageError(
            f"--of {of} needs a RUN: a file of scores has no token probabilities"
        )
    need_statistics()
    from editjudge.report import agreement, pairwise

    further = {"calibrating": calibrating, "estimating": estimating}
    if run is None:
        assert ratings_file is not None and scores_file is not None  # noqa: S101  (checked above)
        answer = agreement.agree_files(
            ratings_file,
            scores_file,
            manifest,
            called,
            columns=columns,
            with_guessed=with_guessed,
            **further,
        )
    elif ratings_file is None and (pairs := load_pair_run(store_place, run)):
        with open_store(store_place, readonly=True) as store:
            answer = pairwise.agree_stored_pairs(pairs, store)
    else:
        judged = load_run(store_place, run, pairing=True, of=of)
        with open_store(store_place, readonly=True) as store:
            answer = agreement.agree(judged, ratings_file or store, called, **further)
    present(as_json, answer)


def _preferences(
    run: str | None, file: Path, of: Of, store_place: str, as_json: bool
) -> None:
    need_statistics()
    from editjudge.report import pairwise

    if run is not None and (pairs := load_pair_run(store_place, run)):
        present(as_json, pairwise.agree_pair_file(pairs, file))
        return
    judged = load_run(store_place, run, of=of) if run is not None else None
    present(as_json, pairwise.agree_preferences(file, judged))
