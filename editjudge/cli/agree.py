"""`editjudge agree`: judges against people."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from editjudge.cli.completion import runs
from editjudge.cli.options import columns_option, open_store, store_option
from editjudge.cli.output import emit, json_option, safe
from editjudge.cli.reading import as_option, load_pair_run, load_run, need_statistics, of_option, show
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
    help="People's ratings: item, rater, factor, score. With RUN, those of the store without it.",
)
@click.option("--scores", "scores_file", type=FILE, help="Judges' scores from elsewhere: item, judge, factor, score.")
@click.option("--manifest", type=FILE, help="Model and source image of the items of --scores.")
@columns_option
@click.option(
    "--preferences",
    "preferences_file",
    type=FILE,
    help="Pairs of edits of RUN and which one people prefer: a, b, preference (A, B or tie), group. Without RUN: "
    "model_a, model_b and votes of judges (columns vote:NAME, or an object judge_votes). With a RUN of pairs: item (or "
    "id), preference (A, B, tie or both_bad) and, if known, rater.",
)
@as_option
@click.option("--with-guessed", is_flag=True, help="Count scores that the file marks as guessed.")
@click.option("--calibrate", "calibrating", is_flag=True, help="Map each judge's scale onto people's.")
@click.option(
    "--estimate", "estimating", is_flag=True, help="People's mean of each model, from few ratings and many scores."
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
    """Judges against people per factor, with intervals, beside what people reach among themselves.

    Over one pair per item: the mean of a judge's scores against the mean of all ratings. Scores come from a RUN or
    from a file; nobody is excluded and nothing rescaled.

    With --preferences: votes against those of people who say which of two edits is better. A judge of a RUN votes
    for the edit that it scored higher.

    Where people's factors have other names, --as says which is which: --as PQ=quality --as SC=fidelity.
    """
    if preferences_file is not None:
        if ratings_file or scores_file or manifest or called or with_guessed or calibrating or estimating:
            raise UsageError("--preferences goes with a RUN or alone, and with no other option of ratings and scores")
        _preferences(run, preferences_file, of, store_place, as_json)
        return
    if (run is None) == (scores_file is None):
        raise UsageError("name either a RUN or a file of --scores")
    if run is None and ratings_file is None:
        raise UsageError("--scores needs --ratings to be held against")
    if run is not None and manifest is not None:
        raise UsageError("--manifest goes with --scores; a run knows its own")
    if run is None and of != "scores":
        raise UsageError(f"--of {of} is of a RUN; a file has no more than its scores")
    need_statistics()
    if run is not None and ratings_file is None and (asked_pairs := load_pair_run(store_place, run)):
        _stored_preferences(asked_pairs, store_place, as_json)
        return
    from editjudge.report.agreement import agreed, tables
    from editjudge.report.people import check_common, file_ratings, renamed, run_agreement

    judged = load_run(store_place, run, pairing=True, of=of) if run is not None else None
    if judged is not None:
        ratings = _ratings(ratings_file, store_place, judged)
        found = run_agreement(judged, ratings, called, calibrating=calibrating, estimating=estimating)
        lead = judged.lead()
    else:
        ratings, origins = file_ratings(Path(str(ratings_file)), None)
        scores, guesses, lead = _scores(Path(str(scores_file)), manifest, columns, origins, with_guessed)
        ratings = renamed(ratings, called, scores.factor.present())
        check_common(ratings, scores, ())
        found = agreed(ratings, scores, with_guessed=guesses, calibrating=calibrating, estimating=estimating)
    if as_json:
        emit({**found.as_json(), "of": of, "pending": judged.pending if judged else 0})
    else:
        show(lead, tables(found))


def _preferences(run: str | None, file: Path, of: Of, store_place: str, as_json: bool) -> None:
    need_statistics()
    from editjudge.ratings import read_preferences
    from editjudge.report.preference import preferred, tables

    if run is not None and (asked_pairs := load_pair_run(store_place, run)):
        _pair_preferences(asked_pairs, file, as_json)
        return
    rows = list(read_preferences(file, of_run=run is not None))
    pairs, lead = [one for _, one in rows], []
    judged = load_run(store_place, run, of=of) if run is not None else None
    if judged is not None:
        known, lead = {*judged.scores.item.present()}, judged.lead()
        pairs = [one for one in pairs if known.issuperset(one.pair)]
        if len(pairs) < len(rows):
            line, name = next((line, name) for line, one in rows for name in one.pair if name not in known)
            first = safe(f"{file}:{line}: found {name!r:.80}, which the run has no judgement of")
            if not pairs:
                raise InputError(f"{first}, nor of both edits of any other pair")
            lead.append(f"{len(rows) - len(pairs):,} of {len(rows):,} pairs are left out; the first at {first}")
    elif not any(one.votes for one in pairs):
        raise InputError(f"{safe(str(file))}: found no judge's votes; name a RUN, or give judge_votes or vote:NAME")
    elif not all(one.group for one in pairs):
        lead.append("a pair without a group counts as a source image of its own: intervals may be too short")
    found = preferred(pairs, judged)
    if as_json:
        counts = {"pairs": len(rows), "left_out": len(rows) - len(pairs), "pending": judged.pending if judged else 0}
        emit({**counts, **found.as_json()})
    else:
        show(lead, tables(found))


def _pair_preferences(pairs: PairRun, file: Path, as_json: bool) -> None:
    """A run that was asked about pairs, beside people who were."""
    from editjudge.ratings import read_pair_ratings
    from editjudge.report.preference import VOTE, pair_tables, preferred_pairs

    rows = list(read_pair_ratings(file))
    known = [rating for _, rating in rows if rating.item in pairs.origins]
    lead = pairs.lead()
    if len(known) < len(rows):
        line, item = next((line, one.item) for line, one in rows if one.item not in pairs.origins)
        first = safe(f"{file}:{line}: found {item!r:.80}, which is no pair of the run")
        if not known:
            raise InputError(f"{first}, nor is any other; expected ids of pairs, such as {next(iter(pairs.origins))!r}")
        lead.append(f"{len(rows) - len(known):,} of {len(rows):,} votes are left out; the first at {first}")
    found = preferred_pairs({VOTE: known}, pairs)
    if as_json:
        emit({"votes": len(rows), "left_out": len(rows) - len(known), **found.as_json()})
    else:
        show(lead, pair_tables(found))


def _stored_preferences(pairs: PairRun, store_place: str, as_json: bool) -> None:
    """The same, of people who rated the pairs in the browser."""
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
    found = preferred_pairs(by_factor, pairs)
    if as_json:
        emit({"votes": len(rows), "left_out": 0, **found.as_json()})
    else:
        show(pairs.lead(), pair_tables(found))


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

    found = read_scores(file, origins_of(manifest, columns) if manifest else origins)
    scores = found.with_guessed or found.scores if with_guessed else found.scores
    told = ", ".join(f"{n:,} {status}" for status, n in Counter(scores.status).most_common())
    lead = [f"{safe(str(file))}: {len(scores):,} scores by {len(scores.judge.present())} judges: {told}"]
    if with_guessed and found.with_guessed:
        lead.append("guessed scores are counted as if the judge had said them")
    return scores, None if with_guessed else found.with_guessed, lead
