"""People's opinions on edits: ratings of individual factors, and reviewers' tags and notes.

Only the latest rating is kept for each edit, rater and factor. An edit is identified by its input, output and
instruction (`editjudge.matching`), so a rating or a tag belongs to every run that has exactly that edit. A rating also
records the rubric of its form, since two rubrics may use the same name for different factors.
"""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import sqlalchemy as sa

from editjudge.errors import UsageError
from editjudge.files import spreadsheet_safe
from editjudge.matching import Content, is_unread
from editjudge.store.database import MAX_IN, MAX_ROWS, Row, chunks
from editjudge.store.judgements import mark_lists_stale
from editjudge.store.migrations import LEGACY
from editjudge.store.records import Item, RunRecord
from editjudge.store.schema import (
    BY_ID,
    NewRow,
    edit_annotations,
    items,
    ratings,
    runs,
    upsert,
)
from editjudge.store.store import Store, lock_ratings


class StoredRating(NamedTuple):
    """One person's rating of one edit on one factor."""

    item: str
    """Id of the edit in the file, form or run from which the rating came."""
    rater: str
    factor: str
    score: float
    content: str = ""
    """Content key of the rated edit, as in `items.content`. If it is empty, the edit in the store with this id is used.
    """
    rubric: str = ""
    """Hash of the rubric in the rating form; empty for imported ratings."""
    choice: str = ""
    """Choice for a pair: a, b, tie or both_bad."""


# --- contents -------------------------------------------------------------------------------------------------


def contents_of(store: Store, ids: Iterable[str]) -> dict[str, str]:
    """Return a content key for each id. If exactly one edit in the store has the id, the key is that edit's content
    key. If no edit has it, the key is a `BY_ID` key.

    Raise `UsageError` if several edits share an id.
    """
    with store._reading() as connection:
        return _contents_of(store.name, connection, ids)


def _contents_of(
    store_name: str, connection: sa.Connection, ids: Iterable[str]
) -> dict[str, str]:
    wanted = sorted({*ids})
    contents = _contents_by_id(connection, wanted)
    several = sorted(item for item in contents if len(contents[item]) > 1)
    if several:
        raise UsageError(
            f"{store_name}: {len(several):,} of the ids are of several different edits, such as {several[0]!r:.80}: "
            "say what was rated with --run RUN or --manifest FILE",
            code="several_edits_of_one_id",
        )
    return {item: min(contents.get(item, {BY_ID + item})) for item in wanted}


def _contents_by_id(
    connection: sa.Connection, ids: Iterable[str]
) -> dict[str, set[str]]:
    """Map each id to the content keys of all edits that have this id in any run. Ids that no run has are left out.

    The key of an edit whose images were not read is left out if another run has read the images of an edit with the
    same id.
    """
    contents: dict[str, set[str]] = {}
    # The run is the first column of the index.
    numbers = connection.scalars(sa.select(runs.c.id)).all()
    query = sa.select(items.c.item, items.c.content).distinct()
    for chunk in chunks(ids, MAX_IN):
        among = (items.c.run_id.in_(numbers), items.c.item.in_(chunk))
        for item, content in connection.execute(query.where(*among)):
            contents.setdefault(item, set()).add(content)
    return {
        item: {content for content in every if not is_unread(content)} or every
        for item, every in contents.items()
    }


def contents_in(store: Store, run: RunRecord) -> dict[str, str]:
    """Map the ids of a run's edits to their content keys."""
    query = sa.select(items.c.item, items.c.content).where(items.c.run_id == run.id)
    return dict(map(tuple, store.stream(query.order_by(items.c.position))))


# --- ratings --------------------------------------------------------------------------------------------------


def add_ratings(store: Store, rows: Iterable[Sequence[Any]]) -> int:
    """Store ratings, given as rows of `StoredRating` fields, and return the number of rows. The score of an existing
    rating is replaced.

    A person has one rating for each edit and factor, even if the edit was added after the rating. A rating that names
    only an id is bound to the edit once the store has it, and is replaced by a rating of the edit itself.
    """
    new = [StoredRating(*row) for row in rows]

    def unchanged(old: sa.Table, row: NewRow) -> sa.ColumnElement[bool]:
        same_choice = old.c.choice.is_not_distinct_from(row["choice"])
        return sa.and_(
            old.c.score == row["score"], sa.or_(row["choice"].is_(None), same_choice)
        )

    replaced = ("item", "score", "created", "study_id", "choice")
    statement = upsert(store._dialect, ratings, replaced, unless=unchanged)
    now = time.time()

    def work(connection: sa.Connection) -> None:
        lock_ratings(connection)
        bound = _bound(store.name, connection, new)
        _forget_unbound(connection, bound)
        values = (
            row._asdict()
            | {"choice": row.choice or None, "created": now, "study_id": None}
            for row in bound
        )
        for chunk in chunks(values, MAX_ROWS):
            connection.execute(statement, chunk)
        mark_lists_stale(connection)

    store._transact(work)
    return len(new)


def _bound(
    store_name: str, connection: sa.Connection, rows: Sequence[StoredRating]
) -> list[StoredRating]:
    """Return the rows with the content keys of their edits, for edits that the store has.

    A rating of an edit with unread images stays unbound until a run reads them.
    """
    named = _contents_of(
        store_name, connection, (row.item for row in rows if not row.content)
    )
    unread = {row.content for row in rows if is_unread(row.content)}
    if unread:
        among = items.c.content.in_(sorted(unread))
        unread -= {*connection.scalars(sa.select(items.c.content).where(among))}
    unbound = {
        row.item
        for row in rows
        if row.content == BY_ID + row.item or row.content in unread
    }
    contents = {
        item: min(those)
        for item, those in _contents_by_id(connection, sorted(unbound)).items()
        if len(those) == 1
    }
    bound = []
    for row in rows:
        content = row.content or named[row.item]
        if content == BY_ID + row.item or content in unread:
            content = contents.get(row.item, content)
        bound.append(row._replace(content=content))
    return bound


def _forget_unbound(connection: sa.Connection, rows: Iterable[StoredRating]) -> None:
    """Delete ratings that name only an id, if these rows contain a rating of the edit itself."""
    statement = sa.delete(ratings).where(
        ratings.c.content == sa.bindparam("unbound"),
        ratings.c.rater == sa.bindparam("of_rater"),
        ratings.c.factor == sa.bindparam("of_factor"),
    )
    values = [
        {"unbound": mark + row.item, "of_rater": row.rater, "of_factor": row.factor}
        for row in rows
        if not row.content.startswith((BY_ID, LEGACY))
        for mark in (LEGACY, BY_ID)
    ]
    if values:
        connection.execute(statement, values)


def check_unbound(store: Store, rows: Iterable[StoredRating]) -> int:
    """Return how many of these ratings identify their edit only by its id. Raise `UsageError` if one of them would
    replace a different score.

    Two files may use the same id for different edits, so the second file must identify its edits by more than an id.
    """
    new = {
        (row.content, row.rubric, row.rater, row.factor): row.score
        for row in rows
        if row.content.startswith(BY_ID)
    }
    for row in read_ratings(store) if new else ():
        score = new.get((row.content, row.rubric, row.rater, row.factor), row.score)
        if score != row.score:
            raise UsageError(
                f"{store.name}: {row.rater!r:.80} already gave {row.item!r:.80} on {row.factor!r:.80} {row.score:g}, "
                f"and no run has that id, so that {score:g} may be of another edit: name the edits with --run RUN or "
                "--manifest FILE",
                code="another_score",
            )
    return len(new)


_COLUMNS = [ratings.c[name] for name in StoredRating._fields]
_ORDER = [ratings.c[n] for n in ("item", "rater", "factor", "content", "rubric")]


def _rating(row: Row) -> StoredRating:
    return StoredRating(*row)._replace(choice=row.choice or "")


def read_ratings(store: Store) -> list[StoredRating]:
    """Return all ratings, ordered by item, rater and factor."""
    rows = store.stream(sa.select(*_COLUMNS).order_by(*_ORDER))
    return [_rating(row) for row in rows]


def ratings_of(
    store: Store, run: RunRecord, ids: Collection[str] | None = None
) -> list[StoredRating]:
    """Return the ratings of a run's edits, with the ids that the edits have in this run. If `ids` is given, only these
    edits are included.
    """
    query = (
        sa.select(items.c.item.label("id"), *_COLUMNS[1:])
        .join_from(items, ratings, ratings.c.content == items.c.content)
        .where(*counting_ratings(store, run))
        .order_by(*_ORDER, items.c.position)
    )
    if ids is not None:
        query = query.where(items.c.item.in_(ids))
    return [_rating(row) for row in store._read(query)]


def counting_ratings(store: Store, run: RunRecord) -> list[sa.ColumnElement[bool]]:
    """Return the SQL conditions on `items` and `ratings` under which a rating counts for a run.

    The rubric of the rating must not define a factor of the run differently. A rubric counts as equal to a fused
    rubric that includes it.
    """
    factors = {
        factor.key: factor
        for rubric in store.questions_of(run).rubrics.values()
        for factor in rubric.factors
    }
    alike = [
        key
        for key, rubric in store.rubrics().items()
        if all(factors.get(factor.key, factor) == factor for factor in rubric.factors)
    ]
    return [items.c.run_id == run.id, ratings.c.rubric.in_(["", *alike])]


def count_ratings(store: Store) -> int:
    ((number,),) = store._read(sa.select(sa.func.count()).select_from(ratings))
    return int(number)


def csv_lines(rows: Sequence[StoredRating]) -> Iterator[str]:
    """Yield CSV lines that `agree --ratings`, `ratings import` and spreadsheets can read.

    The columns for content and rubric are included if item, rater and factor alone do not identify each rating.
    `choice` is included if people chose between two outputs.
    """
    names = [*StoredRating._fields[:4]]
    if len({row[:3] for row in rows}) < len(rows):
        names += ["content", "rubric"]
    if any(row.choice for row in rows):
        names.append("choice")
    table = [names, *([getattr(row, name) for name in names] for row in rows)]
    for cells in table:
        line = io.StringIO()
        csv.writer(line).writerow(
            spreadsheet_safe(f"{cell:g}" if isinstance(cell, float) else cell)
            for cell in cells
        )
        yield line.getvalue()


# --- tags and notes -------------------------------------------------------------------------------------------

TAG = 40
TAGS = 12
NOTE = 4_000
"""Maximum number of characters in a tag, of tags on an edit, and of characters in a note."""


@dataclass(frozen=True, slots=True)
class Annotation:
    tags: tuple[str, ...] = ()
    note: str = ""

    def as_json(self) -> dict[str, object]:
        return {"tags": list(self.tags), "note": self.note}


def one_line(text: str, but: str = "") -> str:
    """Return a text as a single line of printable characters. Characters in `but` are replaced by spaces."""
    return " ".join(
        "".join(c if c.isprintable() and c not in but else " " for c in text).split()
    )


def clean_tags(texts: Iterable[str]) -> tuple[str, ...]:
    """Return tags in the form in which they are stored: one line each, without commas or duplicates. Raise `UsageError`
    if a limit is exceeded.
    """
    tags = dict.fromkeys(one_line(text, but=",") for text in texts)
    unique = tuple(filter(None, tags))
    if long := [tag for tag in unique if len(tag) > TAG]:
        raise UsageError(
            f"the tag {long[0][:TAG]!r}… has {len(long[0])} letters: the limit is {TAG}"
        )
    if len(unique) > TAGS:
        raise UsageError(f"an edit has at most {TAGS} tags; {len(unique)} were given")
    return unique


def annotate(store: Store, item: Item, tags: Iterable[str], note: str) -> Annotation:
    """Replace an edit's tags and note. If both are empty, nothing is stored."""
    annotation = Annotation(clean_tags(tags), note.replace("\r\n", "\n").strip())
    if len(annotation.note) > NOTE:
        raise UsageError(
            f"the note has {len(annotation.note):,} letters: the limit is {NOTE:,}"
        )
    _store_annotations(store, {Content.of(item).key(): annotation})
    return annotation


def tag_edits(
    store: Store, run: RunRecord, edits: Collection[Item], tag: str, *, remove: bool
) -> int:
    """Add a tag to these edits of a run, or remove it. Return the number of edits that changed. Raise `UsageError`
    before any of them changes if one would have too many tags.
    """
    tags = clean_tags([tag])
    if not tags:
        raise UsageError("no tag was given: enter a word or a few")
    annotations = annotations_of(store, run)
    changes = {}
    for item in edits:
        before = annotations.get(item.item, Annotation())
        if (tags[0] in before.tags) is not remove:
            continue
        kept = (name for name in before.tags if name != tags[0])
        after = clean_tags(kept if remove else (*before.tags, *tags))
        changes[Content.of(item).key()] = Annotation(after, before.note)
    _store_annotations(store, changes)
    return len(changes)


def _store_annotations(store: Store, annotations: Mapping[str, Annotation]) -> None:
    """Store annotations, keyed by the content of their edits, and delete those that are empty."""
    now = time.time()
    rows = [
        {"content": content, **annotation.as_json(), "updated": now}
        for content, annotation in annotations.items()
        if annotation != Annotation()
    ]
    empty = [key for key, value in annotations.items() if value == Annotation()]

    def work(connection: sa.Connection) -> None:
        for chunk in chunks(empty, MAX_IN):
            same = edit_annotations.c.content.in_(chunk)
            connection.execute(sa.delete(edit_annotations).where(same))
        columns = ["tags", "note", "updated"]
        replace = upsert(store._dialect, edit_annotations, columns)
        for rows_chunk in chunks(rows, MAX_ROWS):
            connection.execute(replace, rows_chunk)

    store._transact(work)


def annotations_of(
    store: Store, run: RunRecord, ids: Collection[str] | None = None
) -> dict[str, Annotation]:
    """Return the tags and notes of a run's edits, keyed by edit id. If `ids` is given, only these edits are included."""
    same = edit_annotations.c.content == items.c.content
    columns = (items.c.item, edit_annotations.c.tags, edit_annotations.c.note)
    query = sa.select(*columns).join_from(items, edit_annotations, same)
    query = query.where(items.c.run_id == run.id)
    if ids is not None:
        query = query.where(items.c.item.in_(list(ids)))
    return {
        item: Annotation(tuple(tags), note) for item, tags, note in store.stream(query)
    }
