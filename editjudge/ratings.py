"""Readers for files (CSV, JSONL or Parquet) with people's ratings, people's preferences or judges' scores."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from editjudge import manifest
from editjudge.errors import InputError, ManifestError
from editjudge.manifest import Reader, rows
from editjudge.orders import read_choice
from editjudge.stats.columns import FAILED, OK, Column, Ratings, Scores
from editjudge.stats.pairwise import Preference
from editjudge.store.ratings import StoredRating

RATING = ("item", "rater", "factor", "score")
SCORE = ("item", "judge", "factor", "score")
VOTES = {
    "a": "A", "b": "B", "tie": "tie",
    "both_bad": "tie", "both bad": "tie",
    "[[a>b]]": "A", "[[b>a]]": "B", "[[a=b=good]]": "tie", "[[a=b=bad]]": "tie",
}  # fmt: skip
"""Votes, keyed by their spellings in lower case, including those used by arenas. "Both bad" counts as a tie."""
GUESSED = "guessed"
"""Status of a score that its source guessed because it could not read the answer."""


class Origin(NamedTuple):
    """The model that made an item, and the item's source image."""

    model: str = ""
    group: str = ""


class PairRating(NamedTuple):
    """One person's preference between the two outputs of a pair."""

    item: str
    rater: str
    vote: str


# --- rows of a file -------------------------------------------------------------------------------------------

_WRITTEN = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)


class _Row:
    """A row of a file. Errors name its line and field."""

    def __init__(self, reader: Reader, line: int, cells: dict[str, Any]) -> None:
        self._reader = reader
        self.line = line
        self.cells = cells

    def wrong(self, name: str, message: str) -> ManifestError:
        return self._reader.wrong(self.line, name, message)

    def text(self, name: str) -> str:
        """Return a cell as a string. It is empty if the cell is missing."""
        return str(self.cells.get(name) or "")

    def name(self, name: str) -> str:
        """Return a cell as a string. Raise `ManifestError` if it is empty."""
        value = self.cells.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)  # items and raters are often numbered
        if not isinstance(value, str) or not value.strip():
            raise self.wrong(name, f"found {value!r:.80}, expected a name")
        return value

    def number(self, name: str) -> float | None:
        """Return a cell as a number, or None if it is empty."""
        value = self.cells.get(name)
        if value is None or (isinstance(value, str) and not value.strip()):
            return None
        # float() also accepts 1_000, digits of other scripts and "infinity".
        written = not isinstance(value, str) or _WRITTEN.fullmatch(value.strip())
        number = math.nan
        try:
            if written and not isinstance(value, bool):
                number = float(value)
        except (TypeError, ValueError, OverflowError):
            pass
        if not math.isfinite(number):
            raise self.wrong(
                name, f"found {value!r:.80}, expected a number or an empty cell"
            )
        return number

    def human_vote(self, expected: str) -> str:
        """Return the person's vote in this row. Raise `ManifestError` if it is not a known vote."""
        has_judges = "human_preference" in self.cells
        name = "human_preference" if has_judges else "preference"
        vote = vote_of(self.cells.get(name))
        if vote is None:
            value = self.cells.get(name)
            raise self.wrong(name, f"found {value!r:.80}, expected {expected}")
        return vote

    @property
    def origin(self) -> Origin:
        return Origin(self.text("model"), self.text("group"))


def _table(path: Path, columns: tuple[str, ...] = ()) -> Iterator[_Row]:
    reader = Reader(path)
    if path.is_dir():
        raise ManifestError(
            f"{reader.name}: is a folder; expected a CSV, JSONL or Parquet file"
        )
    expected = ", ".join(columns)
    empty = True
    for line, cells in rows(path, reader):
        if not isinstance(cells, dict):
            raise cells
        row = _Row(reader, line, cells)
        missing = [name for name in columns if name not in cells] if empty else ()
        if missing:
            raise row.wrong(
                missing[0], f"is missing; found {[*cells]!r:.200}, expected {expected}"
            )
        empty = False
        yield row
    if empty:
        raise ManifestError(f"{reader.name}: has no rows; expected {expected}")


# --- ratings --------------------------------------------------------------------------------------------------

_QUOTED = re.compile(r"\A'(?='*[=+\-@\t\r\n])")
"""Quotation mark that `ratings export` puts before a string that a spreadsheet would interpret as a formula."""


def read_ratings(path: Path) -> Iterator[tuple[int, StoredRating, Origin]]:
    """Yield the line number, rating and origin of each row. Rows with an empty score are skipped."""
    if path.suffix.lower() == ".json":
        yield from _label_studio(path)
        return
    quoted = path.suffix.lower() not in (".jsonl", ".parquet")
    for row in _table(path, RATING):
        score = row.number("score")
        if score is None:
            continue
        names = (row.name(name) for name in RATING[:3])
        if quoted:
            names = (_QUOTED.sub("", name) for name in names)
        item, rater, factor = names
        choice = _choice(row, score)
        content = row.text("content")
        rubric = row.text("rubric")
        rating = StoredRating(item, rater, factor, score, content, rubric, choice)
        yield row.line, rating, row.origin


def _label_studio(path: Path) -> Iterator[tuple[int, StoredRating, Origin]]:
    """Yield the number of the task, rating and origin of each answer in an export of Label Studio. The name of a control
    is the factor, and `data.item` of a task is the item.
    """
    try:
        tasks = json.loads(path.read_text("utf-8"))
        for number, task in enumerate(tasks, 1):
            data = task["data"]
            origin = Origin(str(data.get("model") or ""), str(data.get("group") or ""))
            for annotation in task.get("annotations", ()):
                if annotation.get("was_cancelled"):
                    continue
                rater = annotation["completed_by"]
                rater = rater.get("email", rater) if isinstance(rater, dict) else rater
                for answer in annotation["result"]:
                    (value,) = answer["value"].values()
                    score = float(value[0] if isinstance(value, list) else value)
                    if not math.isfinite(score):
                        raise ValueError(score)
                    factor = str(answer["from_name"])
                    item = str(data["item"])
                    rating = StoredRating(item, str(rater), factor, score)
                    yield number, rating, origin
    except (
        AttributeError,
        IndexError,
        KeyError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise ManifestError(
            f"{path}: is not an export of Label Studio (JSON) of the tasks that `ratings plan` wrote: {error!r:.200}; "
            "expected data.item, and numbers, ratings or choices of numbers as answers"
        ) from None


def _choice(row: _Row, score: float) -> str:
    """Return the choice that `ratings export` writes next to a pair's score, or an empty string if there is none. Raise
    `ManifestError` if it contradicts the score.
    """
    choice = read_choice(row.text("choice"))
    if choice is None:
        return ""
    points = {"a": 1.0, "b": 0.0}.get(choice, 0.5)
    if score != points:
        raise row.wrong(
            "choice", f"found {choice} beside the score {score:g}, expected {points:g}"
        )
    return choice


def unique_ratings(path: Path) -> Iterator[StoredRating]:
    """Yield one rating for each item, rater and factor. Raise `ManifestError` if there are two with different scores."""
    seen: dict[tuple[str, ...], tuple[int, float]] = {}
    for line, rating, _ in read_ratings(path):
        key = (rating.item, rating.rater, rating.factor, rating.content, rating.rubric)
        first, score = seen.setdefault(key, (line, rating.score))
        if score != rating.score:
            scores = f"{score:g} on line {first} and {rating.score:g} here"
            raise ManifestError(
                f"{path}:{line}: {rating.rater} gave {rating.item} on {rating.factor} {scores}; "
                "expected one rating for each item, rater and factor"
            )
        if first == line:
            yield rating


def by_content(
    path: Path, ratings: Iterable[StoredRating], contents: Mapping[str, str]
) -> list[StoredRating]:
    """Return the ratings with the content keys of their edits. Ratings of items that are not in `contents` are left
    out.

    Two ids may have the same content, for example if two models returned the input. A store keeps one rating for each
    rater and content. Two different scores are therefore an error, since one would silently replace the other.
    """
    seen: dict[tuple[str, ...], StoredRating] = {}
    scoped = []
    for unscoped in ratings:
        content = unscoped.content or contents.get(unscoped.item)
        if not content:
            continue
        rating = unscoped._replace(content=content)
        key = (content, rating.rater, rating.factor, rating.rubric)
        first = seen.setdefault(key, rating)
        if first.score != rating.score:
            scores = f"{first.score:g} as {first.item!r:.80} and {rating.score:g} as {rating.item!r:.80}"
            raise InputError(
                f"{path}: {rating.rater} rated the same edit twice on {rating.factor}: {scores}. Both have the same "
                "input, output and instruction, and a store keeps one rating of each rater: remove one of the two rows",
                code="rated_twice",
            )
        scoped.append(rating)
    return scoped


def ratings_columns(ratings: Iterable[StoredRating]) -> Ratings:
    listed = list(ratings)
    return Ratings.of(
        *([getattr(rating, name) for rating in listed] for name in RATING)
    )


# --- scores ---------------------------------------------------------------------------------------------------


def read_scores(
    path: Path, origins: Mapping[str, Origin] | None = None
) -> tuple[Scores, Scores | None]:
    """Return the judges' scores twice, first without guessed scores and then with them. The second is None if no score
    was guessed.

    An empty score counts as failed. A second row for the same item, judge and factor is a repeat.
    """
    times = Counter[tuple[str, ...]]()
    origin_by_item: dict[str, Origin] = {}
    keys = []
    values = []
    guesses = []
    repeats = []
    for row in _table(path, SCORE):
        key = tuple(row.name(name) for name in SCORE[:3])
        keys.append(key)
        guesses.append(bool(row.number(GUESSED)))
        values.append(row.number("score"))
        repeats.append(times[key])
        times[key] += 1
        origin_by_item[key[0]] = row.origin
    origin_by_item |= origins or {}
    items, judges, factors = zip(*keys, strict=True)
    every = Scores.of(
        items,
        factors,
        values,
        judge=judges,
        status=[FAILED if value is None else OK for value in values],
        model=[origin_by_item[item].model for item in items],
        group=[origin_by_item[item].group or item for item in items],
        repeat=repeats,
    )
    if not any(guesses):
        return every, None
    statuses = zip(guesses, every.status, strict=True)
    stated = replace(
        every,
        score=np.where(guesses, np.nan, every.score),
        status=Column.of(
            GUESSED if guessed else status for guessed, status in statuses
        ),
    )
    return stated, every


def origins_of(path: Path, columns: manifest.Columns = ()) -> dict[str, Origin]:
    """Return the model and source image of every item of a manifest. No image is opened."""
    edits = manifest.read(
        path,
        allow_outside=True,
        allow_urls=True,
        named=manifest.NamedInputs(columns=columns),
    )
    return {
        edit.id: Origin(edit.model or "", edit.group or str(edit.input or edit.id))
        for edit in edits
    }


# --- preferences ----------------------------------------------------------------------------------------------


def vote_of(value: object) -> str | None:
    """Normalise any accepted spelling of a vote to A, B or tie. Return None for any other value."""
    return VOTES.get(value.strip().casefold()) if isinstance(value, str) else None


def read_preferences(path: Path, *, of_run: bool) -> Iterator[tuple[int, Preference]]:
    """Yield the line number and the preference of each row. A pair consists of two edits of a run if `of_run`, and
    otherwise of two models.

    A judge's vote that cannot be read counts as failed.
    """
    names = ("a", "b") if of_run else ("model_a", "model_b")
    for row in _table(path, names):
        human = row.human_vote("A, B or tie")
        votes = row.cells.get("judge_votes") or {}
        if not isinstance(votes, dict):
            raise row.wrong(
                "judge_votes",
                f"found {votes!r:.80}, expected an object of judges and votes",
            )
        votes |= {
            name.removeprefix("vote:"): cell
            for name, cell in row.cells.items()
            if name.startswith("vote:")
        }
        pair = (row.name(names[0]), row.name(names[1]))
        read = {judge: vote_of(vote) for judge, vote in votes.items()}
        yield row.line, Preference(pair, human, row.origin.group, read)


def read_pair_ratings(path: Path) -> Iterator[tuple[int, PairRating]]:
    """Yield the line number and the vote of each row. The columns are `item` or `id`, `preference` and optionally
    `rater`.
    """
    for row in _table(path):
        vote = row.human_vote("A, B, tie or both_bad")
        item = row.name("item" if "item" in row.cells else "id")
        yield row.line, PairRating(item, row.text("rater"), vote)
