"""Links that let one person rate in one study: only a hash of each is kept, and it can be withdrawn."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from dataclasses import dataclass

import sqlalchemy as sa

from editjudge.errors import UsageError, near_miss
from editjudge.store.schema import answers, assignments, invitations, ratings, upsert
from editjudge.store.store import Store
from editjudge.store.studies import Study, find_study, list_studies

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
    for study in (*(s for s in known if s.name == word), *(s for s in known if str(s.id) == word)):
        return study
    names = [study.name for study in known]
    hint = near_miss(word, names) if names else ": it has none yet; set one up at /rate/new of `editjudge serve`"
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
    values = {"study_id": study.id, "rater": rater, "code": _hash(code), "created": time.time(), "revoked": None}
    with store._writing() as connection:
        connection.execute(upsert(store._dialect, invitations, ("code", "created", "revoked")), values)
    return code


def invited(store: Store, code: str) -> tuple[Study, str] | None:
    """The study and the rater that a code stands for, unless it was withdrawn."""
    row = next(iter(store._read(sa.select(invitations).where(invitations.c.code == _hash(code)))), None)
    if row is None or row.revoked is not None or not hmac.compare_digest(row.code, _hash(code)):
        return None
    return find_study(store, row.study_id), row.rater


def list_invitations(store: Store, study: Study | None = None) -> list[Invitation]:
    columns = [invitations.c[name] for name in Invitation.__slots__]
    query = sa.select(*columns).order_by(*columns[:2])
    rows = store._read(query if study is None else query.where(invitations.c.study_id == study.id))
    return [Invitation(*row) for row in rows]


def revoke(store: Store, study: Study, rater: str) -> bool:
    """Withdraw a person's link; whether there was one. What they answered stays."""
    mine = (invitations.c.study_id == study.id) & (invitations.c.rater == rater) & invitations.c.revoked.is_(None)
    change = sa.update(invitations).where(mine).values(revoked=time.time())
    return bool(store._transact(lambda connection: connection.execute(change).rowcount))


@dataclass(frozen=True, slots=True)
class Removal:
    """What is, or would be, deleted of a rater."""

    answers: int
    """Of forms, *can't tell* included."""
    ratings: int


def remove_answers(store: Store, rater: str, study: Study | None = None, *, dry_run: bool = False) -> Removal:
    """Delete what a person answered, in one study or everywhere, ratings that were imported included; the edits that
    were given to them are free for others again."""
    forms, given, rated = answers.c.rater == rater, assignments.c.rater == rater, ratings.c.rater == rater
    if study is not None:
        forms &= answers.c.study_id == study.id
        given &= assignments.c.study_id == study.id
        rated &= ratings.c.study_id == study.id

    def work(connection: sa.Connection) -> Removal:
        counts = [
            connection.scalar(sa.select(sa.func.count()).select_from(table).where(condition)) or 0
            for table, condition in ((answers, forms), (ratings, rated))
        ]
        if not dry_run:
            for table, condition in ((ratings, rated), (answers, forms), (assignments, given)):
                connection.execute(sa.delete(table).where(condition))
        return Removal(*counts)

    return store._transact(work)


def _hash(code: str) -> str:
    return hashlib.sha256(code.encode("utf-8", "replace")).hexdigest()
