"""Who rates what: a study of a run's edits, the edits that each rater was given, and what they filled in.

A form's answers live here, `can't tell` and reasons included; a score of a real edit is kept among the ratings too, in
the same transaction, so that `agree` has it at once. Controls, whose answer is known, never become ratings.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from editjudge.errors import UsageError
from editjudge.store.schema import BY_ID, answers, assignments, items, ratings, studies, upsert
from editjudge.store.store import Store, lock_ratings


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
        """What raters are told of it: its name may be that of a run, or of a model."""
        return f"Study {self.id}"


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a rater is shown at a place of their own order."""

    number: int
    item: str
    control: bool


@dataclass(frozen=True, slots=True)
class FilledForm:
    """What was filled in for a factor; no score where the rater could not tell."""

    score: float | None
    reason: str
    choice: str | None = None
    """Of a pair: a, b, tie or both_bad, in the item's own naming."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What an edit must have to be rated: what a run asks no judge about without it, either."""

    images: tuple[str, ...] = ()
    instruction: bool = False

    def conditions(self) -> dict[str, sa.ColumnElement[bool]]:
        """By what is needed, in words."""
        # As text: inside a string of the JSON a quotation mark is escaped, so only a role's own name looks like this.
        images, words = (sa.type_coerce(column, sa.Text) for column in (items.c.images, items.c.instruction))
        conditions = {
            f"{role.replace('_', ' ')} picture": sa.or_(*(images.contains(f'"{n}":{{') for n in (role, f"{role}[1]")))
            for role in self.images
        }
        return conditions | ({"instruction": sa.func.trim(words, " \t\r\n") != ""} if self.instruction else {})

    def lacking(self, store: Store, run_id: int) -> str:
        """What no edit of the run has, with all that was named before it; empty where some edit has everything."""
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
    values: dict[str, Any] = {"name": name, "run_id": run_id, "rubrics": list(rubrics), "overlap": overlap}
    values |= {"quota": quota, "controls": controls, "models": list(models) or None, "query": query or None}
    values |= {"seed": random.SystemRandom().getrandbits(31), "created": time.time()}
    with store._writing() as connection:
        if not name:  # not after the run, whose name raters need not know
            values["name"] = name = f"Study {(connection.scalar(sa.select(sa.func.max(studies.c.id))) or 0) + 1}"
        if connection.scalar(sa.select(studies.c.id).where(studies.c.name == name)):
            raise UsageError(f'there is a study "{name}" already: give this one another name')
        number = connection.execute(sa.insert(studies).values(values)).inserted_primary_key
    return find_study(store, int(number[0]) if number else 0)


def list_studies(store: Store) -> list[Study]:
    with store._reading() as connection:
        return [Study(*row) for row in connection.execute(sa.select(studies).order_by(studies.c.id))]


def find_study(store: Store, number: int) -> Study:
    for study in list_studies(store):
        if study.id == number:
            return study
    raise UsageError(f"no study has the number {number}")


def close_study(store: Store, study: Study, *, closed: bool) -> None:
    """End a study, or open it again. What was answered stays."""
    change = sa.update(studies).where(studies.c.id == study.id).values(closed=time.time() if closed else None)
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
        given: Counter[str] = Counter(dict(map(tuple, connection.execute(_GIVEN, {"study": study.id}))))
        if positions is None:
            positions = range(connection.scalar(_EDITS, {"run": study.run_id}) or 0)
        chance = random.Random(f"{study.seed} {rater}")  # noqa: S311  (an order, not a secret)
        wanting = [item for item, n in given.items() if n < study.overlap]
        chance.shuffle(wanting)
        chosen = wanting[: study.quota]
        usable = (needs or Needs()).conditions().values()
        query = sa.select(items.c.position, items.c.item).where(items.c.run_id == study.run_id, *usable)
        chosen += _fresh(connection, query, given, study.quota - len(chosen), _shuffled(positions, chance))
        chance.shuffle(chosen)
        places = [(item, False) for item in chosen]
        for control in chance.sample(list(controls), min(len(controls), study.controls)) if places else ():
            places.insert(chance.randint(1, len(places)), (control, True))  # never the first: people look twice there
        mine = [Assignment(number, item, control) for number, (item, control) in enumerate(places, 1)]
        shared = {"study_id": study.id, "rater": rater}
        if mine:
            connection.execute(sa.insert(assignments), [shared | dataclasses.asdict(place) for place in mine])
        return mine


_EDITS = sa.select(sa.func.count()).where(items.c.run_id == sa.bindparam("run"))
_GIVEN = (
    sa.select(assignments.c.item, sa.func.count())
    .where(assignments.c.study_id == sa.bindparam("study"), assignments.c.control.is_(False))
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
        at: dict[int, str] = dict(map(tuple, connection.execute(query.where(items.c.position.in_(some)))))
        free += [at[position] for position in some if position in at and at[position] not in given]
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
    rows = connection.execute(sa.select(*columns).where(mine).order_by(assignments.c.number))
    return [Assignment(number, item, bool(control)) for number, item, control in rows]


def places(store: Store, study: Study, rater: str) -> list[Assignment]:
    with store._reading() as connection:
        return _places(connection, study, rater)


def fill_in(
    store: Store, study: Study, rater: str, place: Assignment, factor: str, filled: FilledForm, rubric: str = ""
) -> None:
    """Keep an answer at once; a later one for the same factor takes its place. `rubric`: the hash of what was asked."""
    now = time.time()
    answer = {"study_id": study.id, "rater": rater, "number": place.number, "factor": factor, "created": now}
    answer |= {"score": filled.score, "reason": filled.reason, "choice": filled.choice}
    content_query = sa.select(items.c.content).where(items.c.run_id == study.run_id, items.c.item == place.item)
    with store._writing() as connection:
        connection.execute(upsert(store._dialect, answers, ("score", "reason", "created", "choice")), answer)
        if place.control:
            return
        lock_ratings(connection)
        by_id = BY_ID + place.item
        content = connection.scalar(content_query) or by_id
        scope = {"rubric": rubric, "rater": rater, "factor": factor}
        same = sa.and_(*(ratings.c[name] == value for name, value in scope.items()), ratings.c.study_id == study.id)
        # By its id alone an edit is known while the run does not have it.
        outdated = {by_id, content} if filled.score is None else {by_id} - {content}
        connection.execute(sa.delete(ratings).where(same, ratings.c.content.in_(outdated)))
        if filled.score is not None:
            row = scope | {"content": content, "item": place.item, "created": now, "study_id": study.id}
            row |= {"score": filled.score, "choice": filled.choice}
            replaced = ("item", "score", "created", "study_id", "choice")
            # A form changes ratings of its own study alone: elsewhere the name may be another person's.
            connection.execute(upsert(store._dialect, ratings, replaced, unless=_of_another_study), row)


def _of_another_study(rating: sa.Table, new: Any) -> sa.ColumnElement[bool]:
    return sa.and_(rating.c.study_id.is_not(None), rating.c.study_id != new.study_id)


def filled_in(store: Store, study: Study, rater: str | None = None) -> dict[tuple[str, int, str], FilledForm]:
    """By rater, number and factor."""
    names = ("rater", "number", "factor", "score", "reason", "choice")
    query = sa.select(*(answers.c[name] for name in names)).where(answers.c.study_id == study.id)
    if rater is not None:
        query = query.where(answers.c.rater == rater)
    with store._reading() as connection:
        return {
            (who, n, factor): FilledForm(score, reason, choice)
            for who, n, factor, score, reason, choice in connection.execute(query)
        }


def raters(store: Store, study: Study) -> list[str]:
    query = sa.select(assignments.c.rater).where(assignments.c.study_id == study.id).distinct()
    with store._reading() as connection:
        return sorted(connection.scalars(query))
