"""Studies with raters: the edits assigned to each rater, their answers, and their invitation links.

A study stores all answers in the form, including `can't tell` and reasons. In the same transaction, the score of a real
edit is also stored as a rating, so `agree` uses it immediately. Controls, whose answer is known, never become ratings.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import random
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from editjudge.errors import UsageError, did_you_mean
from editjudge.store.judgements import mark_lists_stale
from editjudge.store.ratings import one_line
from editjudge.store.schema import (
    BY_ID,
    NewRow,
    answers,
    assignments,
    invitations,
    items,
    ratings,
    studies,
    upsert,
)
from editjudge.store.store import Store, lock_ratings


@dataclass(frozen=True, slots=True)
class Study:
    id: int
    name: str
    run_id: int
    rubrics: Sequence[str]
    """Hashes of the rubrics that raters answer."""
    overlap: int
    """Target number of raters for each edit."""
    quota: int
    """Number of edits for each rater."""
    controls: int
    """Number of controls (edits with a known answer) among them, at random positions."""
    seed: int
    created: float
    models: Sequence[str] | None = None
    """Models whose edits are rated; None for all."""
    query: str | None = None
    """Query string of the run's table that selects the edits; None for all."""
    closed: float | None = None
    """Time when the study was closed; None if it is open. A closed study accepts no more ratings."""

    @property
    def title(self) -> str:
        """Title shown to raters. The study's name is not shown, since it may reveal the run or a model."""
        return f"Study {self.id}"


@dataclass(frozen=True, slots=True)
class Assignment:
    """An edit that is assigned to a rater, with its position in the rater's order."""

    number: int
    item: str
    control: bool


@dataclass(frozen=True, slots=True)
class FilledForm:
    """A rater's answer for one factor. The score is None if the rater could not tell."""

    score: float | None
    reason: str
    choice: str | None = None
    """Choice for a pair: a, b, tie or both_bad, with the item's names of the outputs."""


@dataclass(frozen=True, slots=True)
class Needs:
    """Inputs that an edit must have to be rated. In a run, edits without them are not passed to a judge either."""

    images: tuple[str, ...] = ()
    instruction: bool = False

    def conditions(self) -> dict[str, sa.ColumnElement[bool]]:
        """Return the SQL condition for each input, keyed by the input's name."""
        # Compared as text: quotation marks inside a JSON string are escaped, so only the name of a role matches.
        images = sa.type_coerce(items.c.images, sa.Text)
        conditions: dict[str, sa.ColumnElement[bool]] = {}
        for role in self.images:
            names = (role, f"{role}[1]")
            has_image = sa.or_(*(images.contains(f'"{name}":{{') for name in names))
            conditions[f"{role.replace('_', ' ')} image"] = has_image
        if self.instruction:
            text = sa.type_coerce(items.c.instruction, sa.Text)
            conditions["instruction"] = sa.func.trim(text, " \t\r\n") != ""
        return conditions

    def lacking(self, store: Store, run_id: int) -> str:
        """Return an empty string if some edit of the run has all the required inputs. Otherwise go through the inputs
        in order, and return the first at which no edit has all inputs up to there.
        """
        query = sa.select(items.c.position).where(items.c.run_id == run_id).limit(1)
        for name, condition in self.conditions().items():
            query = query.where(condition)
            if not store._read(query):
                return name
        return ""


# --- studies --------------------------------------------------------------------------------------------------


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
    """Create a study. Raise `UsageError` if a study with this name exists."""
    with store._writing() as connection:
        if not name:  # not named after the run, whose name raters need not know
            last = connection.scalar(sa.select(sa.func.max(studies.c.id)))
            name = f"Study {(last or 0) + 1}"
        if connection.scalar(sa.select(studies.c.id).where(studies.c.name == name)):
            raise UsageError(
                f'there is a study "{name}" already: give this one another name'
            )
        new = sa.insert(studies).values(
            name=name,
            run_id=run_id,
            rubrics=list(rubrics),
            overlap=overlap,
            quota=quota,
            controls=controls,
            models=list(models) or None,
            query=query or None,
            seed=random.SystemRandom().getrandbits(31),
            created=time.time(),
        )
        (number,) = connection.execute(new).inserted_primary_key or (0,)
    return find_study(store, int(number))


def list_studies(store: Store) -> list[Study]:
    return [
        Study(*row) for row in store._read(sa.select(studies).order_by(studies.c.id))
    ]


def find_study(store: Store, number: int) -> Study:
    for row in store._read(sa.select(studies).where(studies.c.id == number)):
        return Study(*row)
    raise UsageError(f"no study has the number {number}")


def named_study(store: Store, name: str) -> Study:
    """Return the study with this name or, if there is none, with this number."""
    every = list_studies(store)
    by_name = {str(study.id): study for study in every}
    by_name |= {study.name: study for study in every}
    if name in by_name:
        return by_name[name]
    hint = ": it has none yet; set one up at /rate/new of `editjudge serve`"
    if every:
        hint = did_you_mean(name, [study.name for study in every])
    raise UsageError(f'{store.name}: no study "{name}"{hint}')


def close_study(store: Store, study: Study, *, closed: bool) -> None:
    """Close a study, or reopen it. Its answers are kept."""
    change = sa.update(studies).where(studies.c.id == study.id)
    store._execute(change.values(closed=time.time() if closed else None))


# --- assignments ----------------------------------------------------------------------------------------------


def join(
    store: Store,
    study: Study,
    rater: str,
    controls: Sequence[str] = (),
    needs: Needs | None = None,
    positions: Sequence[int] | None = None,
) -> list[Assignment]:
    """Return a rater's assignments, in a random order. They are created at the rater's first visit and then stay the
    same.

    `positions` are the edits to which the study is limited. Edits that are assigned to another rater and need more
    raters come first, so raters overlap from the start.
    """
    with store._writing() as connection:
        if assigned := _assignments(connection, study, rater):
            return assigned
        raters_of: dict[str, int] = dict(
            map(tuple, connection.execute(_RATERS_OF_EDITS, {"study": study.id}))
        )
        if positions is None:
            edits = sa.select(sa.func.count()).where(items.c.run_id == study.run_id)
            positions = range(connection.scalar(edits) or 0)
        chance = random.Random(f"{study.seed} {rater}")  # noqa: S311  (an order, not a secret)
        chosen = [item for item, n in raters_of.items() if n < study.overlap]
        chance.shuffle(chosen)
        chosen = chosen[: study.quota]
        usable = (items.c.run_id == study.run_id, *(needs or Needs()).conditions().values())  # fmt: skip
        order = _shuffled(positions, chance)
        # Draw edits without a rater, without reading all edits: a run may have a million.
        while len(chosen) < study.quota and (
            drawn := list(itertools.islice(order, 500))
        ):
            among = sa.select(items.c.position, items.c.item).where(
                *usable, items.c.position.in_(drawn)
            )
            at: dict[int, str] = dict(map(tuple, connection.execute(among)))
            free = [at[position] for position in drawn if position in at]
            chosen += [item for item in free if item not in raters_of]
        chosen = chosen[: study.quota]
        chance.shuffle(chosen)
        places = [(item, False) for item in chosen]
        if places:
            for control in chance.sample(
                list(controls), min(len(controls), study.controls)
            ):
                # Never first, since people check the first edit more carefully.
                places.insert(chance.randint(1, len(places)), (control, True))
        assigned = [
            Assignment(number, item, control)
            for number, (item, control) in enumerate(places, 1)
        ]
        rows = [
            {"study_id": study.id, "rater": rater, **dataclasses.asdict(assignment)}
            for assignment in assigned
        ]
        if rows:
            connection.execute(sa.insert(assignments), rows)
        return assigned


_RATERS_OF_EDITS = (
    sa.select(assignments.c.item, sa.func.count())
    .where(
        assignments.c.study_id == sa.bindparam("study"),
        assignments.c.control.is_(False),
    )
    .group_by(assignments.c.item)
    .order_by(assignments.c.item)
)


def _shuffled(positions: Sequence[int], chance: random.Random) -> Iterator[int]:
    """Yield the positions in a random order. This is a lazy Fisher-Yates shuffle, which keeps only the swapped entries
    in memory.
    """
    moved: dict[int, int] = {}
    for last in reversed(range(len(positions))):
        at = chance.randint(0, last)
        yield int(positions[moved.get(at, at)])
        moved[at] = moved.pop(last, last)


def _assignments(
    connection: sa.Connection, study: Study, rater: str
) -> list[Assignment]:
    columns = (assignments.c.number, assignments.c.item, assignments.c.control)
    of_rater = (assignments.c.study_id == study.id, assignments.c.rater == rater)
    query = sa.select(*columns).where(*of_rater).order_by(assignments.c.number)
    return [
        Assignment(number, item, bool(control))
        for number, item, control in connection.execute(query)
    ]


def assignments_of(store: Store, study: Study, rater: str) -> list[Assignment]:
    """Return a rater's assignments. The list is empty before the rater's first visit."""
    with store._reading() as connection:
        return _assignments(connection, study, rater)


def raters(store: Store, study: Study) -> list[str]:
    of_study = assignments.c.study_id == study.id
    query = sa.select(assignments.c.rater).where(of_study).distinct()
    return sorted(rater for (rater,) in store._read(query))


# --- answers --------------------------------------------------------------------------------------------------


def fill_in(
    store: Store,
    study: Study,
    rater: str,
    assignment: Assignment,
    factor: str,
    filled: FilledForm,
    rubric: str = "",
) -> None:
    """Store an answer. It replaces an earlier answer for the same factor. `rubric` is the hash of the question's
    rubric.
    """
    values = {
        "study_id": study.id,
        "created": time.time(),
        "score": filled.score,
        "choice": filled.choice,
    }
    shared = {"rater": rater, "factor": factor}
    answer = {**shared, **values, "number": assignment.number, "reason": filled.reason}
    of_item = (items.c.run_id == study.run_id, items.c.item == assignment.item)
    with store._writing() as connection:
        connection.execute(
            upsert(store._dialect, answers, ("score", "reason", "created", "choice")),
            answer,
        )
        if assignment.control:
            return
        lock_ratings(connection)
        by_id = BY_ID + assignment.item
        content = connection.scalar(sa.select(items.c.content).where(*of_item)) or by_id
        # An edit that is not in the run is identified by its id alone.
        outdated = {by_id, content} if filled.score is None else {by_id} - {content}
        connection.execute(
            sa.delete(ratings).where(
                ratings.c.content.in_(outdated),
                ratings.c.rubric == rubric,
                ratings.c.rater == rater,
                ratings.c.factor == factor,
                ratings.c.study_id == study.id,
            )
        )
        if filled.score is not None:
            edit = {"item": assignment.item, "content": content, "rubric": rubric}
            # A form changes only ratings of its own study, since elsewhere another person may have the same name.
            replace = upsert(
                store._dialect, ratings, ("item", *values), unless=_of_another_study
            )
            connection.execute(replace, {**shared, **values, **edit})
        mark_lists_stale(connection)


def _of_another_study(rating: sa.Table, new: NewRow) -> sa.ColumnElement[bool]:
    return sa.and_(rating.c.study_id.is_not(None), rating.c.study_id != new.study_id)


def filled_in(
    store: Store, study: Study, rater: str | None = None
) -> dict[tuple[str, int, str], FilledForm]:
    """Return a study's answers, keyed by rater, the number of the rater's assignment, and factor. With `rater`, return
    only that rater's answers.
    """
    names = ("rater", "number", "factor", "score", "reason", "choice")
    query = sa.select(*(answers.c[name] for name in names))
    query = query.where(answers.c.study_id == study.id)
    if rater is not None:
        query = query.where(answers.c.rater == rater)
    return {tuple(row[:3]): FilledForm(*row[3:]) for row in store._read(query)}


@dataclass(frozen=True, slots=True)
class Removal:
    """Number of a rater's rows that were deleted or, in a dry run, would be deleted."""

    answers: int
    """Answers in forms, including *can't tell*."""
    ratings: int


def remove_answers(
    store: Store, rater: str, study: Study | None = None, *, dry_run: bool = False
) -> Removal:
    """Delete a person's answers and ratings, either in one study or everywhere, and return the numbers of deleted rows.
    Imported ratings are included if no study is given. The edits that were assigned to the person can be assigned to
    others.
    """
    conditions = {}
    for table in (answers, ratings, assignments):
        conditions[table] = table.c.rater == rater
        if study is not None:
            conditions[table] &= table.c.study_id == study.id

    def work(connection: sa.Connection) -> Removal:
        counts = {}
        for table, condition in conditions.items():
            number = sa.select(sa.func.count()).select_from(table).where(condition)
            counts[table] = connection.scalar(number) or 0
            if not dry_run:
                connection.execute(sa.delete(table).where(condition))
        if not dry_run:
            mark_lists_stale(connection)
        return Removal(counts[answers], counts[ratings])

    return store._transact(work)


# --- invitations ----------------------------------------------------------------------------------------------

NAME = 60
"""Maximum number of characters in a rater's name."""


@dataclass(frozen=True, slots=True)
class Invitation:
    study_id: int
    rater: str
    created: float
    revoked: float | None


def clean_name(text: str) -> str:
    """Return a rater's name in the form in which it is stored: printable, on one line, and of limited length."""
    return one_line(text)[:NAME]


def invite(store: Store, study: Study, rater: str) -> str:
    """Create and return a new code for a rater's link. The person's previous code for the study becomes invalid."""
    rater = clean_name(rater)
    if not rater:
        raise UsageError("a link is made for a person: give a name")
    code = secrets.token_urlsafe(18)
    while code.isdecimal():  # such a path would be the number of a study
        code = secrets.token_urlsafe(18)
    values = {"code": _hash(code), "created": time.time(), "revoked": None}
    store._execute(
        upsert(store._dialect, invitations, [*values]),
        {"study_id": study.id, "rater": rater, **values},
    )
    return code


def invited(store: Store, code: str) -> tuple[Study, str] | None:
    """Return the study and the rater to which a code belongs, or None if the code is unknown or revoked."""
    valid = (invitations.c.code == _hash(code), invitations.c.revoked.is_(None))
    for row in store._read(sa.select(invitations).where(*valid)):
        return find_study(store, row.study_id), row.rater
    return None


def list_invitations(store: Store, study: Study | None = None) -> list[Invitation]:
    columns = [invitations.c[name] for name in Invitation.__slots__]
    query = sa.select(*columns).order_by(*columns[:2])
    if study is not None:
        query = query.where(invitations.c.study_id == study.id)
    return [Invitation(*row) for row in store._read(query)]


def revoke(store: Store, study: Study, rater: str) -> bool:
    """Revoke a person's link, and return whether there was one. The person's answers are kept."""
    valid = (
        invitations.c.study_id == study.id,
        invitations.c.rater == rater,
        invitations.c.revoked.is_(None),
    )
    change = sa.update(invitations).where(*valid).values(revoked=time.time())
    return bool(store._execute(change))


def _hash(code: str) -> str:
    return hashlib.sha256(code.encode("utf-8", "replace")).hexdigest()
