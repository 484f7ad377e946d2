"""People's ratings and preferences and judges' scores from files: CSV, JSONL or Parquet in, columns out."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from editjudge import manifest
from editjudge.errors import InputError, ManifestError
from editjudge.manifest import Reader, rows
from editjudge.orders import read_choice
from editjudge.stats.columns import FAILED, OK, Ratings, Scores
from editjudge.stats.pairwise import Preference

RATING = ("item", "rater", "factor", "score")
SCORE = ("item", "judge", "factor", "score")
VOTES = {
    "a": "A", "b": "B", "tie": "tie",
    "both_bad": "tie", "both bad": "tie",
    "[[a>b]]": "A", "[[b>a]]": "B", "[[a=b=good]]": "tie", "[[a=b=bad]]": "tie",
}  # fmt: skip
"""How a vote is written, in any case: plainly, or as arenas have their judges answer. That both are bad is a tie."""
GUESSED = "guessed"
"""The status of a score that the source says it made up where it could not read an answer."""


@dataclass(frozen=True, slots=True)
class Rating:
    """Rating of one item on one factor by one person."""

    item: str
    rater: str
    factor: str
    score: float
    content: str = ""
    """Key of the rated content, if the file says so."""
    rubric: str = ""
    choice: str = ""
    """Choice of a pair: a, b, tie, both_good or both_bad, where the file says so."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Origin of an item."""

    model: str = ""
    group: str = ""


def read_ratings(path: Path) -> Iterator[tuple[int, Rating, Origin]]:
    """Line by line; a rating that was left empty is none."""
    # as `ratings export` writes them
    quoted = path.suffix.lower() not in (".jsonl", ".parquet")
    for line, row, file in _table(path, RATING):
        score = file.number(line, row, "score")
        if score is not None:
            item, rater, factor = (file.word(line, row, name) for name in RATING[:3])
            if quoted:
                item, rater, factor = map(_without_quote, (item, rater, factor))
            content = str(row.get("content") or "")
            rubric = str(row.get("rubric") or "")
            choice = _choice(line, row, score, file)
            yield (
                line,
                Rating(item, rater, factor, score, content, rubric, choice),
                _origin(row),
            )


def _choice(line: int, row: Mapping[str, Any], score: float, file: _Fields) -> str:
    """Return the choice that `ratings export` writes beside the score of a pair; empty where there is none."""
    choice = read_choice(str(row.get("choice") or ""))
    if choice is None:
        return ""
    points = {"a": 1.0, "b": 0.0}.get(choice, 0.5)
    if score != points:
        raise file.reader.wrong(
            line,
            "choice",
            f"found {choice} beside the score {score:g}, expected {points:g}",
        )
    return choice


_QUOTED = re.compile(r"'+[=+\-@\t\r\n]")


def _without_quote(text: str) -> str:
    """A cell without the quotation mark that `ratings export` puts before what a spreadsheet would run."""
    return text[1:] if _QUOTED.match(text) else text


def unique_ratings(path: Path) -> Iterator[Rating]:
    """Each item, rater and factor once, as a store keeps them; two different scores of one are an error."""
    seen: dict[tuple[str, ...], tuple[int, float]] = {}
    for line, rating, _ in read_ratings(path):
        key = (rating.item, rating.rater, rating.factor, rating.content, rating.rubric)
        first, score = seen.setdefault(key, (line, rating.score))
        if first != line and score != rating.score:
            scores = f"{score:g} on line {first} and {rating.score:g} here"
            raise ManifestError(
                f"{path}:{line}: {rating.rater} gave {rating.item} on {rating.factor} {scores}; "
                "expected one rating for each item, rater and factor"
            )
        if first == line:
            yield rating


def by_content(
    path: Path, ratings: Iterable[Rating], contents: Mapping[str, str]
) -> list[Rating]:
    """The ratings with the content that they are of; those of items that `contents` does not have are left out.

    Two ids may be one content, as where two models returned the input. A store keeps one rating of it by each rater, so
    two different scores are an error: one would silently replace the other.
    """
    seen: dict[tuple[str, ...], Rating] = {}
    scoped = [
        replace(one, content=key)
        for one in ratings
        if (key := one.content or contents.get(one.item, ""))
    ]
    for rating in scoped:
        first = seen.setdefault(
            (rating.content, rating.rater, rating.factor, rating.rubric), rating
        )
        if first.score != rating.score:
            scores = f"{first.score:g} as {first.item!r:.80} and {rating.score:g} as {rating.item!r:.80}"
            raise InputError(
                f"{path}: {rating.rater} rated the same edit twice on {rating.factor}: {scores}. Both have the same "
                "input, output and instruction, and a store keeps one rating of each rater: remove one of the two rows"
            )
    return scoped


def ratings_columns(ratings: Iterable[Rating]) -> Ratings:
    listed = list(ratings)
    return Ratings.of(
        *([getattr(rating, name) for rating in listed] for name in RATING)
    )


@dataclass(frozen=True, eq=False)
class ScoresFile:
    """Judges' scores from elsewhere."""

    scores: Scores
    """Without those that the file says were guessed."""
    with_guessed: Scores | None
    """With them, where there are any."""


def read_scores(path: Path, origins: Mapping[str, Origin] | None = None) -> ScoresFile:
    """An empty score failed; a second row for the same item, judge and factor is a repeat."""
    score_rows = [
        _score_row(line, row, file) for line, row, file in _table(path, SCORE)
    ]
    known = {one.item: one.origin for one in score_rows} | dict(origins or {})
    guesses = any(one.guessed for one in score_rows)
    return ScoresFile(
        _scores(score_rows, known, keep=False),
        _scores(score_rows, known, keep=True) if guesses else None,
    )


def read_preferences(path: Path, *, of_run: bool) -> Iterator[tuple[int, Preference]]:
    """Line by line; pairs name two edits of a run, or else two models. A judge's vote that cannot be read failed."""
    names = ("a", "b") if of_run else ("model_a", "model_b")
    for line, row, file in _table(path, names):
        people = "human_preference" if "human_preference" in row else "preference"
        human = vote_of(row.get(people))
        if human is None:
            raise file.reader.wrong(
                line, people, f"found {row.get(people)!r:.80}, expected A, B or tie"
            )
        votes = row.get("judge_votes") or {}
        if not isinstance(votes, dict):
            raise file.reader.wrong(
                line,
                "judge_votes",
                f"found {votes!r:.80}, expected an object of judges and votes",
            )
        votes |= {
            name.removeprefix("vote:"): cell
            for name, cell in row.items()
            if name.startswith("vote:")
        }
        pair = file.word(line, row, names[0]), file.word(line, row, names[1])
        yield (
            line,
            Preference(
                pair,
                human,
                _origin(row).group,
                {judge: vote_of(word) for judge, word in votes.items()},
            ),
        )


@dataclass(frozen=True, slots=True)
class PairRating:
    """Which output of a pair one person prefers."""

    item: str
    rater: str
    vote: str


def read_pair_ratings(path: Path) -> Iterator[tuple[int, PairRating]]:
    """Line by line: `item` (or `id`, as in a manifest of pairs), `preference` and, if it is known, `rater`."""
    for line, row, file in _table(path, ()):
        name = "item" if "item" in row else "id"
        people = "human_preference" if "human_preference" in row else "preference"
        vote = vote_of(row.get(people))
        if vote is None:
            raise file.reader.wrong(
                line,
                people,
                f"found {row.get(people)!r:.80}, expected A, B, tie or both_bad",
            )
        yield (
            line,
            PairRating(file.word(line, row, name), str(row.get("rater") or ""), vote),
        )


def vote_of(word: object) -> str | None:
    """A, B or tie, however it is written; None where it is none of them."""
    return VOTES.get(word.strip().casefold()) if isinstance(word, str) else None


def origins_of(path: Path, columns: manifest.Columns = ()) -> dict[str, Origin]:
    """Model and source image of every item of a manifest; pictures are not opened."""
    return {
        edit.id: Origin(edit.model or "", edit.group or str(edit.input or edit.id))
        for edit in manifest.read(
            path,
            allow_outside=True,
            allow_urls=True,
            named=manifest.NamedInputs(columns=columns),
        )
    }


@dataclass(frozen=True, slots=True)
class _ScoreRow:
    item: str
    judge: str
    factor: str
    score: float | None
    guessed: bool
    origin: Origin


def _score_row(line: int, row: Mapping[str, Any], file: _Fields) -> _ScoreRow:
    item, judge, factor = (file.word(line, row, name) for name in SCORE[:3])
    guessed = bool(file.number(line, row, GUESSED))
    return _ScoreRow(
        item, judge, factor, file.number(line, row, "score"), guessed, _origin(row)
    )


def _scores(
    score_rows: list[_ScoreRow], known: Mapping[str, Origin], *, keep: bool
) -> Scores:
    times: Counter[tuple[str, str, str]] = Counter()
    values = []
    statuses = []
    repeats = []
    for one in score_rows:
        left_out = one.guessed and not keep
        values.append(None if left_out else one.score)
        status = FAILED if one.score is None else OK
        statuses.append(GUESSED if left_out else status)
        cell = (one.item, one.judge, one.factor)
        repeats.append(times[cell])
        times[cell] += 1
    return Scores.of(
        [one.item for one in score_rows],
        [one.factor for one in score_rows],
        values,
        judge=[one.judge for one in score_rows],
        status=statuses,
        model=[known[one.item].model for one in score_rows],
        group=[known[one.item].group or one.item for one in score_rows],
        repeat=repeats,
    )


def _origin(row: Mapping[str, Any]) -> Origin:
    return Origin(str(row.get("model") or ""), str(row.get("group") or ""))


_WRITTEN = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)


class _Fields:
    """Reads the cells of one file, and names line and field where one is wrong."""

    def __init__(self, path: Path) -> None:
        self.reader = Reader(path)

    def word(self, line: int, row: Mapping[str, Any], name: str) -> str:
        value = row.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)  # items and raters are often numbered
        if not isinstance(value, str) or not value.strip():
            raise self.reader.wrong(line, name, f"found {value!r:.80}, expected a name")
        return value

    def number(self, line: int, row: Mapping[str, Any], name: str) -> float | None:
        value = row.get(name)
        if value is None or (isinstance(value, str) and not value.strip()):
            return None
        # Python's own reader takes 1_000, digits of other scripts and "infinity" too.
        written = not isinstance(value, str) or _WRITTEN.fullmatch(value.strip())
        try:
            number = (
                float(value) if written and not isinstance(value, bool) else math.nan
            )
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            raise self.reader.wrong(
                line, name, f"found {value!r:.80}, expected a number, or nothing"
            )
        return number


def _table(
    path: Path, columns: tuple[str, ...]
) -> Iterator[tuple[int, dict[str, Any], _Fields]]:
    file = _Fields(path)
    if path.is_dir():
        raise ManifestError(
            f"{file.reader.place}: is a folder; expected a CSV, JSONL or Parquet file"
        )
    empty = True
    for line, row in rows(path, file.reader):
        if not isinstance(row, dict):
            raise row
        if empty and (missing := [name for name in columns if name not in row]):
            raise file.reader.wrong(
                line,
                missing[0],
                f"is missing; found {[*row]!r:.200}, expected {', '.join(columns)}",
            )
        empty = False
        yield line, row, file
    if empty:
        raise ManifestError(
            f"{file.reader.place}: holds no row; expected {', '.join(columns)}"
        )
