"""People's ratings in a store: one for each edit, rater and factor, whoever brings it last.

An edit is its input, output and instruction (`editjudge.edit`), so that a rating belongs to every run that has that
very edit, and to no other. What was asked in a form is part of it too: two rubrics may call different things alike.
"""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from editjudge.edit import Content, is_unread
from editjudge.errors import UsageError
from editjudge.store.export import harmless
from editjudge.store.records import Item, RunRecord
from editjudge.store.schema import BY_ID, LEGACY, items, ratings, runs, upsert
from editjudge.store.store import _IN, _ROWS, Store, _chunks, lock_ratings

Row = tuple[str, str, str, float]
"""Item, rater, factor and score."""
ScopedRow = tuple[str, str, str, float, str, str]
"""The same, with what was rated and the rubric of the form."""
COLUMNS = ("item", "rater", "factor", "score", "content", "rubric")
"""Of a file of ratings that says what was rated."""


def contents_of(store: Store, named: Iterable[str]) -> dict[str, str]:
    """What the items of these ids are: the one edit of the store that has the id, or `BY_ID` where none has.

    An id that is of several edits is refused.
    """
    wanted = sorted({*named})

    def read() -> dict[str, set[str]]:
        with store._reading() as connection:
            return _contents_by_id(connection, wanted)

    contents_by_id = store._patiently(read)
    several = sorted(item for item, contents in contents_by_id.items() if len(contents) > 1)
    if several:
        raise UsageError(
            f"{store.place}: {len(several):,} of the ids are of several different edits, such as {several[0]!r:.80}: "
            "say what was rated with --run RUN or --manifest FILE"
        )
    return {item: next(iter(contents_by_id[item])) if item in contents_by_id else BY_ID + item for item in wanted}


def _contents_by_id(connection: sa.Connection, named: Iterable[str]) -> dict[str, set[str]]:
    """Return the contents of the edits of these ids, in whatever run; ids that no run has are left out.

    An edit that a run has not read yet is no other edit than one of the same id that a run has read.
    """
    contents: dict[str, set[str]] = {}
    numbers = connection.scalars(sa.select(runs.c.id)).all()  # the index begins with the run
    query = sa.select(items.c.item, items.c.content).where(items.c.run_id.in_(numbers)).distinct()
    for some in _chunks(named, _IN):
        for item, content in connection.execute(query.where(items.c.item.in_(some))):
            contents.setdefault(item, set()).add(content)
    for item, known in contents.items():
        contents[item] = {content for content in known if not is_unread(content)} or known
    return contents


def contents_in(edits: Iterable[Item]) -> dict[str, str]:
    """What the items of a run are."""
    return {item.item: Content.of(item).key() for item in edits}


def add_ratings(store: Store, rows: Iterable[Row], contents: Mapping[str, str] | None = None) -> int:
    """Keep ratings of what `contents` says the items are; one that is there already takes the new score. Answers how
    many were brought."""
    listed = list(rows)
    known = contents_of(store, (row[0] for row in listed)) if contents is None else contents
    return add_scoped(store, ((*row, known[row[0]], "") for row in listed))


def add_scoped(store: Store, rows: Iterable[ScopedRow]) -> int:
    """The same, of rows that say it themselves.

    A person's answer about an edit is one rating, whenever a run brings the edit: one that is known by id alone is
    bound to the edit that has the id by now, and replaced by one of the edit itself.
    """
    now = time.time()
    listed = list(rows)

    def unchanged(old: sa.Table, new: sa.ColumnCollection[str, sa.ColumnElement[float]]) -> sa.ColumnElement[bool]:
        return old.c.score == new["score"]

    replaced = ("item", "score", "created", "study_id", "choice")
    statement = upsert(store._dialect, ratings, replaced, unless=unchanged)
    none = {"created": now, "study_id": None, "choice": None}

    def work(connection: sa.Connection) -> None:
        lock_ratings(connection)
        bound = _bound(connection, listed)
        _forget_unbound(connection, bound)
        values = (dict(zip(COLUMNS, row, strict=True)) | none for row in bound)
        for some in _chunks(values, _ROWS):
            connection.execute(statement, some)

    store._transact(work)
    return len(listed)


def _bound(connection: sa.Connection, rows: Sequence[ScopedRow]) -> list[ScopedRow]:
    """Return the rows; of an edit known by its id alone, or not read, with its content if there is one by now.

    An unread edit that some run still has keeps its rating until that run reads it.
    """
    unread = {row[4] for row in rows if is_unread(row[4])}
    query = sa.select(items.c.content).where(items.c.content.in_(sorted(unread))).distinct()
    gone = unread - set(connection.scalars(query)) if unread else set()
    unbound = [row for row in rows if row[4] == BY_ID + row[0] or row[4] in gone]
    contents = _contents_by_id(connection, sorted({row[0] for row in unbound}))
    known = {item: next(iter(those)) for item, those in contents.items() if len(those) == 1}
    moved = {row[4]: known[row[0]] for row in unbound if row[0] in known}
    bound: list[ScopedRow] = [(*row[:4], moved.get(row[4], row[4]), row[5]) for row in rows]
    return bound


def add_choices(store: Store, choices: Mapping[tuple[str, str, str, str], str]) -> None:
    """Keep what people chose of pairs whose ratings are kept, by content, rubric, rater and factor."""
    names = ("content", "rubric", "rater", "factor")
    same = (ratings.c[name] == sa.bindparam(f"its_{name}") for name in names)
    statement = sa.update(ratings).where(*same).values(choice=sa.bindparam("its_choice"))
    values = [
        {f"its_{name}": value for name, value in zip((*names, "choice"), (*place, choice), strict=True)}
        for place, choice in choices.items()
    ]
    if values:
        store._transact(lambda connection: connection.execute(statement, values))


def read_ratings(store: Store) -> list[Row]:
    """Every rating, by item, rater and factor."""
    return [(item, rater, factor, score) for item, rater, factor, score, *_ in read_scoped(store)]


def read_scoped(store: Store) -> list[ScopedRow]:
    """Every rating with what was rated, by item, rater and factor."""
    columns = [ratings.c[name] for name in COLUMNS]
    order = [*columns[:3], *columns[4:]]
    return [tuple(row) for row in store._stream(sa.select(*columns).order_by(*order))]


def ratings_of(store: Store, run: RunRecord, contents: Mapping[str, str]) -> list[Row]:
    """The ratings of a run's edits, by what they are called there: `contents` by id, as of `contents_in`."""
    rows = ((rater, factor, score, content, rubric) for _, rater, factor, score, content, rubric in read_scoped(store))
    return list(_by_item(store, run, contents, rows))


def _by_item(
    store: Store, run: RunRecord, contents: Mapping[str, str], rows: Iterable[Sequence[Any]]
) -> Iterator[tuple[str, str, str, Any]]:
    """Item, rater, factor and value, of rows that end in content and rubric: those that count for the run."""
    ids: dict[str, list[str]] = {}
    for item, content in contents.items():
        ids.setdefault(content, []).append(item)
    alike = {"", *rubrics_alike(store, run)}
    for rater, factor, value, content, rubric in rows:
        if rubric in alike:
            yield from ((item, rater, factor, value) for item in ids.get(content, ()))


def choices_of(store: Store, run: RunRecord, contents: Mapping[str, str]) -> list[tuple[str, str, str, str]]:
    """Item, rater, factor and choice of people who rated the pairs of a run."""
    columns = [ratings.c[name] for name in ("rater", "factor", "choice", "content", "rubric")]
    query = sa.select(*columns).where(ratings.c.choice.is_not(None)).order_by(*columns)
    return list(_by_item(store, run, contents, store._stream(query)))


def rubrics_alike(store: Store, run: RunRecord) -> list[str]:
    """Hashes of the rubrics under which a rating counts for a run: those that ask for no factor of the run in other
    words. A rubric and the fused one that it is part of ask for the same."""
    rubrics = {hash_: {f["key"]: f for f in rubric["content"]["factors"]} for hash_, rubric in store.rubrics().items()}
    own = [rubrics[hash_] for hash_ in run.spec.get("rubrics", {}).values() if hash_ in rubrics]
    mine = {key: factor for factors in own for key, factor in factors.items()}
    return [
        hash_
        for hash_, factors in rubrics.items()
        if all(key not in mine or mine[key] == factor for key, factor in factors.items())
    ]


def _forget_unbound(connection: sa.Connection, rows: Iterable[ScopedRow]) -> None:
    """Delete the ratings known by id alone that these rows bind to an edit."""
    same = (ratings.c[name] == sa.bindparam(f"its_{name}") for name in ("rater", "factor"))
    statement = sa.delete(ratings).where(ratings.c.content == sa.bindparam("unknown"), *same)
    values = [
        {"unknown": mark + row[0], "its_rater": row[1], "its_factor": row[2]}
        for row in rows
        if not row[4].startswith((BY_ID, LEGACY))
        for mark in (LEGACY, BY_ID)
    ]
    if values:
        connection.execute(statement, values)


def check_unbound(store: Store, rows: Iterable[ScopedRow]) -> int:
    """How many of these ratings are known by id alone; refuses those that would replace another score.

    Two files may use one id for different edits, so that the second must say which edits it rates."""
    given = {(row[4], row[5], row[1], row[2]): row for row in rows if row[4].startswith(BY_ID)}
    for item, rater, factor, score, content, rubric in read_scoped(store) if given else ():
        other = given.get((content, rubric, rater, factor))
        if other is not None and other[3] != score:
            raise UsageError(
                f"{store.place}: {rater!r:.80} already gave {item!r:.80} on {factor!r:.80} {score:g}, and no run has "
                f"that id, so that {other[3]:g} may be of another edit: name the edits with --run RUN or "
                "--manifest FILE"
            )
    return len(given)


def count_ratings(store: Store) -> int:
    return int(next(store._stream(sa.select(sa.func.count()).select_from(ratings)))[0])


def read_choices(store: Store) -> dict[tuple[str, str, str, str], str]:
    """What people chose of pairs, by content, rubric, rater and factor."""
    columns = [ratings.c[name] for name in ("content", "rubric", "rater", "factor", "choice")]
    return {tuple(row[:4]): row[4] for row in store._stream(sa.select(*columns).where(ratings.c.choice.is_not(None)))}


def csv_lines(
    rows: Iterable[tuple[object, ...]], choices: Mapping[tuple[str, str, str, str], str] | None = None
) -> Iterator[str]:
    """As `agree --ratings`, `ratings import` and a spreadsheet read them. Content and rubric are there where item,
    rater and factor alone do not tell all ratings apart; `choice` where people chose between two outputs."""
    listed = list(rows)
    width = 4 if len({row[:3] for row in listed}) == len(listed) else len(COLUMNS)
    for row in (COLUMNS, *listed):
        line = io.StringIO()
        cells = [harmless(f"{value:g}" if isinstance(value, float) else value) for value in row[:width]]
        if choices:
            place = (str(row[4]), str(row[5]), str(row[1]), str(row[2]))
            cells.append("choice" if row is COLUMNS else harmless(choices.get(place, "")))
        csv.writer(line).writerow(cells)
        yield line.getvalue()
