"""`editjudge agree`: judges against people."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from editjudge.cli.completion import runs
from editjudge.cli.options import columns_option, open_store, store_option
from editjudge.cli.output import json_option, safe
from editjudge.cli.reading import as_option, load_pair_run, load_run, need_statistics, of_option, present
from editjudge.errors import InputError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from editjudge.manifest import Columns
    from editjudge.ratings import Origin
    from editjudge.report.pairwise import PairRun
    from editjudge.report.run_data import Of, RunData
    from editjudge.stats.columns import Ratings, Scores

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
    "--manifest", type=FILE, help="With --scores: a manifest that gives the model and source image of each item."
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
@click.option("--with-guessed", is_flag=True, help="Include scores that the file marks as guessed.")
@click.option("--calibrate", "calibrating", is_flag=True, help="Also fit a map from each judge's scale to people's.")
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
        if ratings_file or scores_file or manifest or called or with_guessed or calibrating or estimating:
            raise UsageError(
                "--preferences takes no --ratings, --scores, --manifest, --as, --with-guessed, --calibrate, --estimate"
            )
        _preferences(run, preferences_file, of, store_place, as_json)
        return
    if (run is None) == (scores_file is None):
        raise UsageError("name what to compare with people: either a RUN, or a file of scores with --scores")
    if run is None and ratings_file is None:
        raise UsageError("--scores needs people's ratings to compare with: add --ratings FILE")
    if run is not None and manifest is not None:
        raise UsageError("--manifest goes with --scores only: a run has its own manifest; leave --manifest out")
    if run is None and of != "scores":
        raise UsageError(f"--of {of} needs a RUN: a file of scores has no token probabilities")
    need_statistics()
    if run is not None and ratings_file is None and (pairs := load_pair_run(store_place, run)):
        _stored_preferences(pairs, store_place, as_json)
        return
    from editjudge.report.agreement import agreed, conclusions, tables
    from editjudge.report.people import check_common, file_ratings, renamed, run_agreement

    judged = load_run(store_place, run, pairing=True, of=of) if run is not None else None
    if judged is not None:
        ratings = _ratings(ratings_file, store_place, judged)
        agreement = run_agreement(judged, ratings, called, calibrating=calibrating, estimating=estimating)
        lead = judged.lead()
    else:
        ratings, origins = file_ratings(Path(str(ratings_file)), None)
        scores, guesses, lead = _scores(Path(str(scores_file)), manifest, columns, origins, with_guessed)
        ratings = renamed(ratings, called, scores.factor.present())
        check_common(ratings, scores, ())
        agreement = agreed(ratings, scores, with_guessed=guesses, calibrating=calibrating, estimating=estimating)
    lead = [*conclusions(agreement), *lead]
    pending = judged.pending if judged else 0
    present(as_json, lambda: {**agreement.as_json(), "of": of, "pending": pending}, lead, lambda: tables(agreement))


def _preferences(run: str | None, file: Path, of: Of, store_place: str, as_json: bool) -> None:
    need_statistics()
    from editjudge.ratings import read_preferences
    from editjudge.report.preference import preferred, tables

    if run is not None and (pair_run := load_pair_run(store_place, run)):
        _pair_preferences(pair_run, file, as_json)
        return
    rows = list(read_preferences(file, of_run=run is not None))
    pairs, lead = [one for _, one in rows], []
    judged = load_run(store_place, run, of=of) if run is not None else None
    if judged is not None:
        known, lead = {*judged.scores.item.present()}, judged.lead()
        pairs = [one for one in pairs if known.issuperset(one.pair)]
        if len(pairs) < len(rows):
            line, name = next((line, name) for line, one in rows for name in one.pair if name not in known)
            first = safe(f"{file}:{line}: found {name!r:.80}, and the run has no judgement of it")
            if not pairs:
                raise InputError(f"{first}, nor of both edits of any other pair; expected ids of the run's edits")
            lead.append(f"{len(rows) - len(pairs):,} of {len(rows):,} pairs are left out; the first at {first}")
    elif not any(one.votes for one in pairs):
        raise InputError(
            f"{safe(str(file))}: has no judge's votes; name a RUN, or add columns vote:NAME or an object judge_votes"
        )
    elif not all(one.group for one in pairs):
        lead.append("some pairs have no group and count as source images of their own: intervals may be too narrow")
    agreement = preferred(pairs, judged)
    counts = {"pairs": len(rows), "left_out": len(rows) - len(pairs), "pending": judged.pending if judged else 0}
    present(as_json, lambda: {**counts, **agreement.as_json()}, lead, lambda: tables(agreement))


def _pair_preferences(pairs: PairRun, file: Path, as_json: bool) -> None:
    """A run of pairs against a file of people's votes on the same pairs."""
    from editjudge.ratings import read_pair_ratings
    from editjudge.report.preference import VOTE, pair_tables, preferred_pairs

    rows = list(read_pair_ratings(file))
    known = [rating for _, rating in rows if rating.item in pairs.origins]
    lead = pairs.lead()
    if len(known) < len(rows):
        line, item = next((line, one.item) for line, one in rows if one.item not in pairs.origins)
        first = safe(f"{file}:{line}: found {item!r:.80}, which is not a pair of the run")
        if not known:
            raise InputError(f"{first}, nor is any other; expected ids of pairs, such as {next(iter(pairs.origins))!r}")
        lead.append(f"{len(rows) - len(known):,} of {len(rows):,} votes are left out; the first at {first}")
    agreement = preferred_pairs({VOTE: known}, pairs)
    counts = {"votes": len(rows), "left_out": len(rows) - len(known)}
    present(as_json, lambda: {**counts, **agreement.as_json()}, lead, lambda: pair_tables(agreement))


def _stored_preferences(pairs: PairRun, store_place: str, as_json: bool) -> None:
    """A run of pairs against the votes that people gave in the browser."""
    from editjudge.ratings import PairRating, vote_of
    from editjudge.report.preference import pair_tables, preferred_pairs
    from editjudge.store.ratings import choices_of, contents_in

    with open_store(store_place, readonly=True) as store:
        rows = choices_of(store, pairs.run, contents_in(store.items(pairs.run)))
    by_factor: dict[str, list[PairRating]] = {}
    for item, rater, factor, choice in rows:
        by_factor.setdefault(factor, []).append(PairRating(item, rater, vote_of(choice) or "tie"))
    if not by_factor:
        how = "rate them under /rate of `editjudge serve`, or give --preferences FILE"
        raise UsageError(f"nobody has rated the pairs of run {safe(pairs.run.name)}: {how}")
    agreement = preferred_pairs(by_factor, pairs)
    counts = {"votes": len(rows), "left_out": 0}
    present(as_json, lambda: {**counts, **agreement.as_json()}, pairs.lead(), lambda: pair_tables(agreement))


def _ratings(file: Path | None, store_place: str, judged: RunData) -> Ratings:
    """From a file, or those of the store that are of the run's edits."""
    from editjudge.report.people import file_ratings, stored_ratings

    if file is not None:
        return file_ratings(file, judged)[0]
    with open_store(store_place, readonly=True) as store:
        return stored_ratings(judged, store)


def _scores(
    file: Path, manifest: Path | None, columns: Columns, origins: Mapping[str, Origin], with_guessed: bool
) -> tuple[Scores, Scores | None, list[str]]:
    from editjudge.ratings import origins_of, read_scores
    from editjudge.report.tables import counted

    content = read_scores(file, origins_of(manifest, columns) if manifest else origins)
    scores = content.with_guessed or content.scores if with_guessed else content.scores
    counts = ", ".join(f"{n:,} {status}" for status, n in Counter(scores.status).most_common())
    judges = counted(len(scores.judge.present()), "judge")
    lead = [f"{safe(str(file))}: {len(scores):,} scores by {judges}: {counts}"]
    if manifest is None and len(scores.group.present()) == len(scores.item.present()):
        lead.append(
            "every edit counts as a source image of its own: if some share one, intervals are too narrow; "
            "give --manifest"
        )
    if with_guessed and content.with_guessed:
        lead.append("guessed scores are included, as if the judge had given them")
    return scores, None if with_guessed else content.with_guessed, lead
