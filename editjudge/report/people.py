"""People's ratings beside a run: which of their factors are which of the judges', and how well both agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from editjudge.errors import InputError, UsageError, near_miss
from editjudge.ratings import Origin, Rating, ratings_columns, read_ratings
from editjudge.report.agreement import AgreementReport, agreed
from editjudge.report.run_data import RunData
from editjudge.report.tables import clean
from editjudge.stats.columns import Ratings, Scores
from editjudge.store.ratings import contents_in, count_ratings, ratings_of
from editjudge.store.store import Store

_USUAL = {"SC": "fidelity", "PQ": "quality"}
"""What ImagenHub and its successors call semantic consistency and perceptual quality."""


def agreement_of(judged: RunData, store: Store, mappings: Sequence[str]) -> tuple[AgreementReport | None, str]:
    """Agreement with the ratings of the store on factors of the run; and a sentence on ratings of other factors."""
    factors, contents = (*judged.scores.factor.present(), *judged.sums()), contents_in(store.items(judged.run))
    ratings = ratings_columns(Rating(*row) for row in ratings_of(store, judged.run, contents))
    ratings = renamed(ratings, mappings, factors)
    shared = [name for name in ratings.factor.present() if name in factors]
    others = [name for name in ratings.factor.present() if name not in factors]
    unmatched = ""
    if others:
        n = len(ratings.where(factor=others))
        unmatched = (
            f"The store has {n:,} ratings of these edits under {', '.join(others)}, which no rubric of this run has"
        )
        unmatched += f". Map them with --as, such as {such_as(others, factors)}." if factors else "."
    if not shared:
        return None, unmatched
    scores, _ = judged.with_aggregates(shared)
    scales, continuous = judged.all_scales(), judged.continuous | {*judged.sums()}
    return agreed(ratings.where(factor=shared), scores, scales=scales, continuous=continuous), unmatched


def renamed(ratings: Ratings, mappings: Sequence[str], factors: Sequence[str]) -> Ratings:
    """Ratings under the judges' factor names, by `--as PEOPLE=FACTOR`. One rated factor may map to several."""
    pairs = [text.rpartition("=")[::2] for text in mappings]
    rated = ratings.factor.present()
    for text, (people, factor) in zip(mappings, pairs, strict=True):
        if not people or not factor:
            raise UsageError(f'--as "{text}": expected PEOPLE=FACTOR, such as PQ=quality')
        if people not in rated:
            raise UsageError(f'--as "{text}": nobody rated "{people}"{near_miss(people, rated)}')
        if factor not in factors:
            raise UsageError(f'--as "{text}": judges have no "{factor}"{near_miss(factor, factors)}')
    pairs += [(name, name) for name in rated if name not in dict(pairs)]
    if twice := [name for name, n in Counter(factor for _, factor in pairs).items() if n > 1]:
        raise UsageError(f"--as: two of people's factors cannot both be {twice[0]}")
    parts = [(ratings.where(factor=people), factor) for people, factor in pairs]
    columns = [[x for part, _ in parts for x in getattr(part, name)] for name in ("item", "rater", "score")]
    names = [factor for part, factor in parts for _ in range(len(part))]
    return Ratings.of(columns[0], columns[1], names, columns[2]) if mappings else ratings


def such_as(people: Sequence[str], factors: Sequence[str]) -> str:
    """An example of --as that makes sense: the usual mapping, or the one that assumes least."""
    usual = [(name, ours) for name, ours in _USUAL.items() if name in people and ours in factors]
    theirs, ours = usual[0] if usual else (people[0], "overall" if "overall" in factors else factors[0])
    return f"--as {theirs}={ours}"


def run_agreement(
    judged: RunData,
    ratings: Ratings,
    mappings: Sequence[str] = (),
    *,
    calibrating: bool = False,
    estimating: bool = False,
) -> AgreementReport:
    """Judges of a run, loaded with `pairing`, against people's ratings of its edits."""
    sums = judged.sums()
    ratings = renamed(ratings, mappings, (*judged.scores.factor.present(), *sums))
    scores, _ = judged.with_aggregates(ratings.factor.present())
    check_common(ratings, scores, sums)
    return agreed(
        ratings,
        scores,
        scales=judged.all_scales(),
        continuous=judged.continuous | {*sums},
        calibrating=calibrating,
        estimating=estimating,
    )


def file_ratings(file: Path, judged: RunData | None) -> tuple[Ratings, dict[str, Origin]]:
    """The ratings of a file. One that says what was rated is taken at its word: the id may be of another edit here."""
    contents = _contents(judged) if judged else {}
    rows = [
        (rating, origin)
        for _, rating, origin in read_ratings(file)
        if not rating.content or contents.get(rating.item, rating.content) == rating.content
    ]
    return ratings_columns(rating for rating, _ in rows), {
        rating.item: origin for rating, origin in rows if origin != Origin()
    }


def stored_ratings(judged: RunData, store: Store) -> Ratings:
    """The store's ratings of the run's edits."""
    ratings = [Rating(*row) for row in ratings_of(store, judged.run, _contents(judged))]
    if not ratings:
        total, name = count_ratings(store), clean(judged.run.name)
        what = f"none of its {total:,} ratings is of an edit of {name}" if total else "has no ratings"
        how = "give --ratings, or bring them in with `ratings import FILE --run RUN`"
        raise UsageError(f"{clean(store.place)}: {what}: {how}")
    return ratings_columns(ratings)


def _contents(judged: RunData) -> dict[str, str]:
    return {item: content.key() for item, content in judged.side.edits.items()}


def check_common(ratings: Ratings, scores: Scores, sums: Sequence[str]) -> None:
    """A file of other items, or factors with other names, is a mistake and not a result."""
    for name, scored, rated in (("item", scores.item, ratings.item), ("factor", scores.factor, ratings.factor)):
        mine, theirs = scored.present(), rated.present()
        if not set(mine) & set(theirs):
            message = f"judges have {_some(mine)}, people {_some(theirs)}"
            if name == "factor" and mine and theirs:
                others = f" (judges also have the sums {', '.join(sums)})" if sums else ""
                message += f". Map people's names to judges', such as {such_as(theirs, (*mine, *sums))}{others}"
            raise InputError(f"no {name} has both scores and ratings: {clean(message)}")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (" ..." if len(names) > 3 else "") or "none"
