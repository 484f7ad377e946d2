"""Data from people in a store: ratings, the studies that they are given in, and links that invite raters.

A rating is one for each edit, rater and factor, whoever brings it last. An edit is its input, output and instruction
(`editjudge.matching`), so that a rating belongs to every run that has that very edit, and to no other. What was asked
in a form is part of it too: two rubrics may call different things alike.

A study has the edits that each rater was given, and what they filled in, `can't tell` and reasons included; a score of
a real edit is kept among the ratings too, in the same transaction, so that `agree` has it at once. Controls, whose
answer is known, never become ratings.
"""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import hmac
import io
import itertools
import random
import secrets
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from editjudge.errors import UsageError, near_miss
from editjudge.files import spreadsheet_safe
from editjudge.matching import Content, is_unread
from editjudge.store.database import MAX_IN, MAX_ROWS, chunks
from editjudge.store.migrations import LEGACY
from editjudge.store.records import Item, RunRecord
from editjudge.store.schema import (
    BY_ID,
    answers,
    assignments,
    invitations,
    items,
    ratings,
    runs,
    studies,
    upsert,
)
from editjudge.store.store import Store, lock_ratings, mark_lists_stale

# --- ratings ------------------------------------------------------------------------------------------------

Row = tuple[str, str, str, float]
"""Item, rater, factor and score."""
ScopedRow = tuple[str, str, str, float, str, str]
"""The same, with what was rated and the rubric of the form."""
COLUMNS = ("item", "rater", "factor", "score", "content", "rubric")
"""Columns of a ratings file that identify what was rated."""


def contents_of(store: Store, named: Iterable[str]) -> dict[str, str]:
    """Return what the items of these ids are: the one edit of the store that has the id, or `BY_ID` where none has.

    An id that is of several edits is refused.
    """
    wanted = sorted({*named})

    with store._reading() as connection:
        contents_by_id = _contents_by_id(connection, wanted)
    several = sorted(
        item for item, contents in contents_by_id.items() if len(contents) > 1
    )
    if several:
        raise UsageError(
            f"{store.place}: {len(several):,} of the ids are of several different edits, such as {several[0]!r:.80}: "
            "say what was rated with --run RUN or --manifest FILE"
        )
    return {
        item: next(iter(contents_by_id[item]))
        if item in contents_by_id
        else BY_ID + item
        for item in wanted
    }


def _contents_by_id(
    connection: sa.Connection, named: Iterable[str]
) -> dict[str, set[str]]:
    """Return the contents of the edits of these ids, in whatever run; ids that no run has are left out.

    An edit that a run has not read yet is no other edit than one of the same id that a run has read.
    """
    contents: dict[str, set[str]] = {}
    # the index begins with the run
    numbers = connection.scalars(sa.select(runs.c.id)).all()
    query = (
        sa.select(items.c.item, items.c.content)
        .where(items.c.run_id.in_(numbers))
        .distinct()
    )
    for some in chunks(named, MAX_IN):
        for item, content in connection.execute(query.where(items.c.item.in_(some))):
            contents.setdefault(item, set()).add(content)
    for item, known in contents.items():
        contents[item] = {
            content for content in known if not is_unread(content)
        } or known
    return contents


def contents_in(edits: Iterable[Item]) -> dict[str, str]:
    """Return what the items of a run are."""
    return {item.item: Content.of(item).key() for item in edits}


def add_ratings(
    store: Store, rows: Iterable[Row], contents: Mapping[str, str] | None = None
) -> int:
    """Keep ratings of what `contents` says the items are; one that is there already takes the new score. Answers how
    many were brought."""
    listed = list(rows)
    known = (
        contents_of(store, (row[0] for row in listed)) if contents is None else contents
    )
    return add_scoped(store, ((*row, known[row[0]], "") for row in listed))


def add_scoped(store: Store, rows: Iterable[ScopedRow]) -> int:
    """The same, of rows that say it themselves.

    A person's answer about an edit is one rating, whenever a run brings the edit: one that is known by id alone is
    bound to the edit that has the id by now, and replaced by one of the edit itself.
    """
    now = time.time()
    listed = list(rows)

    def unchanged(
        old: sa.Table, new: sa.ColumnCollection[str, sa.ColumnElement[float]]
    ) -> sa.ColumnElement[bool]:
        return old.c.score == new["score"]

    replaced = ("item", "score", "created", "study_id", "choice")
    statement = upsert(store._dialect, ratings, replaced, unless=unchanged)
    none = {"created": now, "study_id": None, "choice": None}

    def work(connection: sa.Connection) -> None:
        lock_ratings(connection)
        bound = _bound(connection, listed)
        _forget_unbound(connection, bound)
        values = (dict(zip(COLUMNS, row, strict=True)) | none for row in bound)
        for some in chunks(values, MAX_ROWS):
            connection.execute(statement, some)
        mark_lists_stale(connection)

    store._transact(work)
    return len(listed)


def _bound(connection: sa.Connection, rows: Sequence[ScopedRow]) -> list[ScopedRow]:
    """Return the rows; of an edit known by its id alone, or not read, with its content if there is one by now.

    An unread edit that some run still has keeps its rating until that run reads it.
    """
    unread = {row[4] for row in rows if is_unread(row[4])}
    query = (
        sa.select(items.c.content).where(items.c.content.in_(sorted(unread))).distinct()
    )
    gone = unread - set(connection.scalars(query)) if unread else set()
    unbound = [row for row in rows if row[4] == BY_ID + row[0] or row[4] in gone]
    contents = _contents_by_id(connection, sorted({row[0] for row in unbound}))
    known = {
        item: next(iter(those)) for item, those in contents.items() if len(those) == 1
    }
    moved = {row[4]: known[row[0]] for row in unbound if row[0] in known}
    bound: list[ScopedRow] = [
        (*row[:4], moved.get(row[4], row[4]), row[5]) for row in rows
    ]
    return bound


def add_choices(store: Store, choices: Mapping[tuple[str, str, str, str], str]) -> None:
    """Keep what people chose of pairs whose ratings are kept, by content, rubric, rater and factor."""
    names = ("content", "rubric", "rater", "factor")
    same = (ratings.c[name] == sa.bindparam(f"its_{name}") for name in names)
    statement = (
        sa.update(ratings).where(*same).values(choice=sa.bindparam("its_choice"))
    )
    values = [
        {
            f"its_{name}": value
            for name, value in zip((*names, "choice"), (*place, choice), strict=True)
        }
        for place, choice in choices.items()
    ]
    if values:
        store._transact(lambda connection: connection.execute(statement, values))


def read_ratings(store: Store) -> list[Row]:
    """Every rating, by item, rater and factor."""
    return [
        (item, rater, factor, score)
        for item, rater, factor, score, *_ in read_scoped(store)
    ]


def read_scoped(store: Store) -> list[ScopedRow]:
    """Every rating with what was rated, by item, rater and factor."""
    columns = [ratings.c[name] for name in COLUMNS]
    order = [*columns[:3], *columns[4:]]
    return [tuple(row) for row in store._stream(sa.select(*columns).order_by(*order))]


def ratings_of(store: Store, run: RunRecord, contents: Mapping[str, str]) -> list[Row]:
    """Return the ratings of a run's edits, by what they are called there: `contents` by id, as of `contents_in`."""
    names = ("item", "rater", "factor", "content", "rubric", "score")
    query = sa.select(*(ratings.c[name] for name in names))
    wanted = sorted({*contents.values()})
    rows = sorted(map(tuple, store._read_among(query, ratings.c.content, wanted)))
    values = (
        (rater, factor, score, content, rubric)
        for _, rater, factor, content, rubric, score in rows
    )
    return list(_by_item(store, run, contents, values))


def _by_item(
    store: Store,
    run: RunRecord,
    contents: Mapping[str, str],
    rows: Iterable[Sequence[Any]],
) -> Iterator[tuple[str, str, str, Any]]:
    """Item, rater, factor and value, of rows that end in content and rubric: those that count for the run."""
    ids: dict[str, list[str]] = {}
    for item, content in contents.items():
        ids.setdefault(content, []).append(item)
    alike = {"", *rubrics_alike(store, run)}
    for rater, factor, value, content, rubric in rows:
        if rubric in alike:
            yield from ((item, rater, factor, value) for item in ids.get(content, ()))


def choices_of(
    store: Store, run: RunRecord, contents: Mapping[str, str]
) -> list[tuple[str, str, str, str]]:
    """Item, rater, factor and choice of people who rated the pairs of a run."""
    columns = [
        ratings.c[name] for name in ("rater", "factor", "choice", "content", "rubric")
    ]
    query = sa.select(*columns).where(ratings.c.choice.is_not(None)).order_by(*columns)
    return list(_by_item(store, run, contents, store._stream(query)))


def rubrics_alike(store: Store, run: RunRecord) -> list[str]:
    """Hashes of the rubrics under which a rating counts for a run: those that ask for no factor of the run in other
    words. A rubric and the fused one that it is part of ask for the same."""
    asked = {
        factor.key: factor
        for rubric in store.questions_of(run).rubrics.values()
        for factor in rubric.factors
    }
    return [
        key
        for key, rubric in store.rubrics().items()
        if all(asked.get(factor.key, factor) == factor for factor in rubric.factors)
    ]


def ratings_of_edit(
    store: Store, run: RunRecord, item: Item
) -> list[tuple[str, str, float]]:
    """Return rater, factor and score of everyone who rated an edit of a run."""
    columns = (ratings.c.rater, ratings.c.factor, ratings.c.score)
    query = sa.select(*columns).where(
        ratings.c.content == Content.of(item).key(),
        ratings.c.rubric.in_(["", *rubrics_alike(store, run)]),
    )
    rows = store._read(query.order_by(*columns[:2]))
    return [(rater, factor, score) for rater, factor, score in rows]


def _forget_unbound(connection: sa.Connection, rows: Iterable[ScopedRow]) -> None:
    """Delete the ratings known by id alone that these rows bind to an edit."""
    same = (
        ratings.c[name] == sa.bindparam(f"its_{name}") for name in ("rater", "factor")
    )
    statement = sa.delete(ratings).where(
        ratings.c.content == sa.bindparam("unknown"), *same
    )
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
    given = {
        (row[4], row[5], row[1], row[2]): row
        for row in rows
        if row[4].startswith(BY_ID)
    }
    for item, rater, factor, score, content, rubric in (
        read_scoped(store) if given else ()
    ):
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
    """Return people's choices on pairs, by content, rubric, rater and factor."""
    columns = [
        ratings.c[name] for name in ("content", "rubric", "rater", "factor", "choice")
    ]
    return {
        tuple(row[:4]): row[4]
        for row in store._stream(
            sa.select(*columns).where(ratings.c.choice.is_not(None))
        )
    }


def csv_lines(
    rows: Iterable[tuple[object, ...]],
    choices: Mapping[tuple[str, str, str, str], str] | None = None,
) -> Iterator[str]:
    """Yield lines as `agree --ratings`, `ratings import` and a spreadsheet read them.

    Content and rubric are there if item,
    rater and factor alone do not tell all ratings apart; `choice` where people chose between two outputs."""
    listed = list(rows)
    width = 4 if len({row[:3] for row in listed}) == len(listed) else len(COLUMNS)
    for row in (COLUMNS, *listed):
        line = io.StringIO()
        cells = [
            spreadsheet_safe(f"{value:g}" if isinstance(value, float) else value)
            for value in row[:width]
        ]
        if choices:
            place = (str(row[4]), str(row[5]), str(row[1]), str(row[2]))
            cells.append(
                "choice" if row is COLUMNS else spreadsheet_safe(choices.get(place, ""))
            )
        csv.writer(line).writerow(cells)
        yield line.getvalue()


# --- studies ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Study:
    id: int
    name: str
    run_id: int
    rubrics: Sequence[str]
    """Hashes of the rubrics that are asked."""
    overlap: int
    """Raters that each edit should have."""
    quota: int
    """Edits for each rater."""
    controls: int
    """Among them, at random places, so many whose answer is known."""
    seed: int
    created: float
    models: Sequence[str] | None = None
    """Only edits of these models are rated."""
    query: str | None = None
    """Only edits of this view of the run's table: the query of its address."""
    closed: float | None = None
    """When it ended: nobody rates any more."""

    @property
    def title(self) -> str:
        """Title shown to raters: the name may be that of a run or of a model."""
        return f"Study {self.id}"


@dataclass(frozen=True, slots=True)
class Assignment:
    """Edit that a rater is shown at a position of their own order."""

    number: int
    item: str
    control: bool


@dataclass(frozen=True, slots=True)
class FilledForm:
    """Answer for a factor; no score if the rater could not tell."""

    score: float | None
    reason: str
    choice: str | None = None
    """Choice on a pair: a, b, tie or both_bad, in the item's own naming."""


@dataclass(frozen=True, slots=True)
class Needs:
    """Inputs that an edit needs to be rated; a run does not ask a judge without them either."""

    images: tuple[str, ...] = ()
    instruction: bool = False

    def conditions(self) -> dict[str, sa.ColumnElement[bool]]:
        """Message for each input that is needed."""
        # As text: inside a string of the JSON a quotation mark is escaped, so only a role's own name looks like this.
        images, words = (
            sa.type_coerce(column, sa.Text)
            for column in (items.c.images, items.c.instruction)
        )
        conditions = {
            f"{role.replace('_', ' ')} picture": sa.or_(
                *(images.contains(f'"{n}":{{') for n in (role, f"{role}[1]"))
            )
            for role in self.images
        }
        return conditions | (
            {"instruction": sa.func.trim(words, " \t\r\n") != ""}
            if self.instruction
            else {}
        )

    def lacking(self, store: Store, run_id: int) -> str:
        """Return the inputs that no edit of the run has together; empty if some edit has everything."""
        query = sa.select(items.c.position).where(items.c.run_id == run_id).limit(1)
        with store._reading() as connection:
            for name, condition in self.conditions().items():
                query = query.where(condition)
                if connection.scalar(query) is None:
                    return name
        return ""


def create_study(
    store: Store,
    name: str,
    run_id: int,
    rubrics: Sequence[str],
    *,
    overlap: int,
    quota: int,
    controls: int,
    models: Sequence[str] = (),
    query: str = "",
) -> Study:
    values: dict[str, Any] = {
        "name": name,
        "run_id": run_id,
        "rubrics": list(rubrics),
        "overlap": overlap,
    }
    values |= {
        "quota": quota,
        "controls": controls,
        "models": list(models) or None,
        "query": query or None,
    }
    values |= {"seed": random.SystemRandom().getrandbits(31), "created": time.time()}
    with store._writing() as connection:
        if not name:  # not after the run, whose name raters need not know
            values["name"] = name = (
                f"Study {(connection.scalar(sa.select(sa.func.max(studies.c.id))) or 0) + 1}"
            )
        if connection.scalar(sa.select(studies.c.id).where(studies.c.name == name)):
            raise UsageError(
                f'there is a study "{name}" already: give this one another name'
            )
        number = connection.execute(
            sa.insert(studies).values(values)
        ).inserted_primary_key
    return find_study(store, int(number[0]) if number else 0)


def list_studies(store: Store) -> list[Study]:
    with store._reading() as connection:
        return [
            Study(*row)
            for row in connection.execute(sa.select(studies).order_by(studies.c.id))
        ]


def find_study(store: Store, number: int) -> Study:
    for row in store._read(sa.select(studies).where(studies.c.id == number)):
        return Study(*row)
    raise UsageError(f"no study has the number {number}")


def close_study(store: Store, study: Study, *, closed: bool) -> None:
    """End a study, or open it again. What was answered stays."""
    change = (
        sa.update(studies)
        .where(studies.c.id == study.id)
        .values(closed=time.time() if closed else None)
    )
    store._transact(lambda connection: connection.execute(change))


def join(
    store: Store,
    study: Study,
    rater: str,
    controls: Sequence[str] = (),
    needs: Needs | None = None,
    positions: Sequence[int] | None = None,
) -> list[Assignment]:
    """The places of a rater, in an order of their own; given out at the first visit, and the same ever after.

    `positions` are the edits that the study is limited to.

    Edits that another rater has and that still lack one come first, so that raters overlap from the start on.
    """
    with store._writing() as connection:
        if mine := _places(connection, study, rater):
            return mine
        given: Counter[str] = Counter(
            dict(map(tuple, connection.execute(_GIVEN, {"study": study.id})))
        )
        if positions is None:
            positions = range(connection.scalar(_EDITS, {"run": study.run_id}) or 0)
        chance = random.Random(f"{study.seed} {rater}")  # noqa: S311  (an order, not a secret)
        wanting = [item for item, n in given.items() if n < study.overlap]
        chance.shuffle(wanting)
        chosen = wanting[: study.quota]
        usable = (needs or Needs()).conditions().values()
        query = sa.select(items.c.position, items.c.item).where(
            items.c.run_id == study.run_id, *usable
        )
        chosen += _fresh(
            connection,
            query,
            given,
            study.quota - len(chosen),
            _shuffled(positions, chance),
        )
        chance.shuffle(chosen)
        places = [(item, False) for item in chosen]
        for control in (
            chance.sample(list(controls), min(len(controls), study.controls))
            if places
            else ()
        ):
            # never the first: people look twice there
            places.insert(chance.randint(1, len(places)), (control, True))
        mine = [
            Assignment(number, item, control)
            for number, (item, control) in enumerate(places, 1)
        ]
        shared = {"study_id": study.id, "rater": rater}
        if mine:
            connection.execute(
                sa.insert(assignments),
                [shared | dataclasses.asdict(place) for place in mine],
            )
        return mine


_EDITS = sa.select(sa.func.count()).where(items.c.run_id == sa.bindparam("run"))
_GIVEN = (
    sa.select(assignments.c.item, sa.func.count())
    .where(
        assignments.c.study_id == sa.bindparam("study"),
        assignments.c.control.is_(False),
    )
    .group_by(assignments.c.item)
    .order_by(assignments.c.item)
)


def _fresh(
    connection: sa.Connection,
    query: sa.Select[Any],
    given: Counter[str],
    wanted: int,
    order: Iterator[int],
) -> list[str]:
    """Edits that nobody has, drawn without reading them all: a run may have a million."""
    free: list[str] = []
    while len(free) < wanted and (some := list(itertools.islice(order, 500))):
        at: dict[int, str] = dict(
            map(tuple, connection.execute(query.where(items.c.position.in_(some))))
        )
        free += [
            at[position]
            for position in some
            if position in at and at[position] not in given
        ]
    return free[: max(0, wanted)]


def _shuffled(positions: Sequence[int], chance: random.Random) -> Iterator[int]:
    """The positions in a random order, drawn as they are wanted: Fisher and Yates' shuffle of a list that holds only
    what was moved."""
    moved: dict[int, int] = {}
    for last in reversed(range(len(positions))):
        at = chance.randint(0, last)
        yield int(positions[moved.get(at, at)])
        moved[at] = moved.pop(last, last)


def _places(connection: sa.Connection, study: Study, rater: str) -> list[Assignment]:
    columns = (assignments.c.number, assignments.c.item, assignments.c.control)
    mine = (assignments.c.study_id == study.id) & (assignments.c.rater == rater)
    rows = connection.execute(
        sa.select(*columns).where(mine).order_by(assignments.c.number)
    )
    return [Assignment(number, item, bool(control)) for number, item, control in rows]


def places(store: Store, study: Study, rater: str) -> list[Assignment]:
    with store._reading() as connection:
        return _places(connection, study, rater)


def fill_in(
    store: Store,
    study: Study,
    rater: str,
    place: Assignment,
    factor: str,
    filled: FilledForm,
    rubric: str = "",
) -> None:
    """Keep an answer at once; a later one for the same factor takes its place. `rubric`: the hash of what was asked."""
    now = time.time()
    answer = {
        "study_id": study.id,
        "rater": rater,
        "number": place.number,
        "factor": factor,
        "created": now,
    }
    answer |= {"score": filled.score, "reason": filled.reason, "choice": filled.choice}
    content_query = sa.select(items.c.content).where(
        items.c.run_id == study.run_id, items.c.item == place.item
    )
    with store._writing() as connection:
        connection.execute(
            upsert(store._dialect, answers, ("score", "reason", "created", "choice")),
            answer,
        )
        if place.control:
            return
        lock_ratings(connection)
        by_id = BY_ID + place.item
        content = connection.scalar(content_query) or by_id
        scope = {"rubric": rubric, "rater": rater, "factor": factor}
        same = sa.and_(
            *(ratings.c[name] == value for name, value in scope.items()),
            ratings.c.study_id == study.id,
        )
        # By its id alone an edit is known while the run does not have it.
        outdated = {by_id, content} if filled.score is None else {by_id} - {content}
        connection.execute(
            sa.delete(ratings).where(same, ratings.c.content.in_(outdated))
        )
        if filled.score is not None:
            row = scope | {
                "content": content,
                "item": place.item,
                "created": now,
                "study_id": study.id,
            }
            row |= {"score": filled.score, "choice": filled.choice}
            replaced = ("item", "score", "created", "study_id", "choice")
            # A form changes ratings of its own study alone: elsewhere the name may be another person's.
            connection.execute(
                upsert(store._dialect, ratings, replaced, unless=_of_another_study), row
            )
        mark_lists_stale(connection)


def _of_another_study(rating: sa.Table, new: Any) -> sa.ColumnElement[bool]:
    return sa.and_(rating.c.study_id.is_not(None), rating.c.study_id != new.study_id)


def filled_in(
    store: Store, study: Study, rater: str | None = None
) -> dict[tuple[str, int, str], FilledForm]:
    """Answers by rater, number and factor."""
    names = ("rater", "number", "factor", "score", "reason", "choice")
    query = sa.select(*(answers.c[name] for name in names)).where(
        answers.c.study_id == study.id
    )
    if rater is not None:
        query = query.where(answers.c.rater == rater)
    with store._reading() as connection:
        return {
            (who, n, factor): FilledForm(score, reason, choice)
            for who, n, factor, score, reason, choice in connection.execute(query)
        }


def raters(store: Store, study: Study) -> list[str]:
    query = (
        sa.select(assignments.c.rater)
        .where(assignments.c.study_id == study.id)
        .distinct()
    )
    with store._reading() as connection:
        return sorted(connection.scalars(query))


# --- invitations --------------------------------------------------------------------------------------------

NAME = 60
"""Letters of a rater's name."""


@dataclass(frozen=True, slots=True)
class Invitation:
    study_id: int
    rater: str
    created: float
    revoked: float | None


def named_study(store: Store, word: str) -> Study:
    """The study of this name, else the one of this number."""
    known = list_studies(store)
    for study in (
        *(s for s in known if s.name == word),
        *(s for s in known if str(s.id) == word),
    ):
        return study
    names = [study.name for study in known]
    hint = (
        near_miss(word, names)
        if names
        else ": it has none yet; set one up at /rate/new of `editjudge serve`"
    )
    raise UsageError(f'{store.place}: no study "{word}"{hint}')


def clean_name(text: str) -> str:
    """A rater's name as it is kept: printable, on one line, of bounded length."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:NAME]


def invite(store: Store, study: Study, rater: str) -> str:
    """A new code for a link; the one that this person had for the study before is no longer valid."""
    rater = clean_name(rater)
    if not rater:
        raise UsageError("a link is made for a person: give a name")
    code = secrets.token_urlsafe(18)
    while code.isdecimal():  # such a path is a study's number
        code = secrets.token_urlsafe(18)
    values = {
        "study_id": study.id,
        "rater": rater,
        "code": _hash(code),
        "created": time.time(),
        "revoked": None,
    }
    with store._writing() as connection:
        connection.execute(
            upsert(store._dialect, invitations, ("code", "created", "revoked")), values
        )
    return code


def invited(store: Store, code: str) -> tuple[Study, str] | None:
    """The study and the rater that a code stands for, unless it was withdrawn."""
    row = next(
        iter(
            store._read(sa.select(invitations).where(invitations.c.code == _hash(code)))
        ),
        None,
    )
    if (
        row is None
        or row.revoked is not None
        or not hmac.compare_digest(row.code, _hash(code))
    ):
        return None
    return find_study(store, row.study_id), row.rater


def list_invitations(store: Store, study: Study | None = None) -> list[Invitation]:
    columns = [invitations.c[name] for name in Invitation.__slots__]
    query = sa.select(*columns).order_by(*columns[:2])
    rows = store._read(
        query if study is None else query.where(invitations.c.study_id == study.id)
    )
    return [Invitation(*row) for row in rows]


def revoke(store: Store, study: Study, rater: str) -> bool:
    """Withdraw a person's link; whether there was one. What they answered stays."""
    mine = (
        (invitations.c.study_id == study.id)
        & (invitations.c.rater == rater)
        & invitations.c.revoked.is_(None)
    )
    change = sa.update(invitations).where(mine).values(revoked=time.time())
    return bool(store._transact(lambda connection: connection.execute(change).rowcount))


@dataclass(frozen=True, slots=True)
class Removal:
    """Counts of a rater's data that are, or would be, deleted."""

    answers: int
    """Answers in forms, *can't tell* included."""
    ratings: int


def remove_answers(
    store: Store, rater: str, study: Study | None = None, *, dry_run: bool = False
) -> Removal:
    """Delete what a person answered, in one study or everywhere, ratings that were imported included; the edits that
    were given to them are free for others again."""
    forms = answers.c.rater == rater
    given = assignments.c.rater == rater
    rated = ratings.c.rater == rater
    if study is not None:
        forms &= answers.c.study_id == study.id
        given &= assignments.c.study_id == study.id
        rated &= ratings.c.study_id == study.id

    def work(connection: sa.Connection) -> Removal:
        counts = [
            connection.scalar(
                sa.select(sa.func.count()).select_from(table).where(condition)
            )
            or 0
            for table, condition in ((answers, forms), (ratings, rated))
        ]
        if not dry_run:
            for table, condition in (
                (ratings, rated),
                (answers, forms),
                (assignments, given),
            ):
                connection.execute(sa.delete(table).where(condition))
            mark_lists_stale(connection)
        return Removal(*counts)

    return store._transact(work)


def _hash(code: str) -> str:
    return hashlib.sha256(code.encode("utf-8", "replace")).hexdigest()
