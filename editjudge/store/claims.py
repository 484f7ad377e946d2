"""Which process is asking what: a claim on a key lasts as long as its owner lives, and a while longer.

Two processes on one run, two runs that share questions, a reward server beside a run: whoever claims a key asks it,
and the others wait for the answer.

Between processes of one machine a claim expires by the monotonic clock, which they share and which nobody sets. Where
the owner is elsewhere it expires by the clock of the database: that of the server, or of this machine in SQLite.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

import sqlalchemy as sa

from editjudge.errors import StoreError
from editjudge.store.owner import BEAT, LEASE, is_alive, is_on_this_machine, new_owner
from editjudge.store.rows import BulkInsert
from editjudge.store.schema import claims, upsert
from editjudge.store.store import _IN, Store, _chunks


class _Claim(NamedTuple):
    """A row of `claims`."""

    key: str
    owner: str
    until: float
    until_here: float | None


class Claims:
    """The claims of one owner. Safe to use from several threads; a thread of its own renews them."""

    def __init__(
        self,
        store: Store,
        lease: float = LEASE,
        beat: float = BEAT,
        owner: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.owner = owner or new_owner()
        self._store, self._lease, self._beat = store, lease, beat
        self._clock = clock
        self._odd: dict[str, tuple[float, float]] = {}
        """Of claims that last longer than any is made for, by key: until when, and when that was seen first."""
        self._ended = threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Renew from now on what this owner holds."""
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._renew, name="editjudge-claims", daemon=True)
                self._thread.start()

    def take(self, keys: Sequence[str]) -> set[str]:
        """Those of the keys that are ours now: free ones, and those of owners who are gone."""
        if not keys:
            return set()
        self.start()
        taken: set[str] = set()
        for some in _chunks(sorted(keys), _IN):  # in one order, so that two who claim the same wait and not in a circle
            taken |= self._store._transact(functools.partial(self._take, keys=some))
        return taken

    def _take(self, connection: sa.Connection, keys: Sequence[str]) -> set[str]:
        self._delete(connection, [claim for claim, stands in self._others(connection, keys) if not stands])
        until = _now(connection) + self._lease
        until_here = self._clock() + self._lease
        rows = [(key, self.owner, until, until_here) for key in keys]
        if self._insert.execute(connection, rows, self.owner) == len(rows):
            return {*keys}
        mine = sa.select(claims.c.key).where(claims.c.key.in_(keys), claims.c.owner == self.owner)
        return set(connection.scalars(mine))

    def _others(self, connection: sa.Connection, keys: Sequence[str]) -> list[tuple[_Claim, bool]]:
        """Return the claims of others on these keys, and whether each still holds."""
        now = _now(connection)
        columns = [claims.c[name] for name in _Claim._fields]
        query = sa.select(*columns).where(claims.c.key.in_(keys), claims.c.owner != self.owner)
        others = [_Claim(*row) for row in connection.execute(query)]
        lives = {owner: is_alive(owner) for owner in {claim.owner for claim in others}}
        return [(claim, lives[claim.owner] and self._is_in_time(claim, now)) for claim in others]

    def _is_in_time(self, claim: _Claim, now: float) -> bool:
        """Whether a claim has not expired; `now` is the time of the database."""
        if claim.until_here is not None and is_on_this_machine(claim.owner):
            left = claim.until_here - self._clock()
        else:
            left = claim.until - now
        if left <= max(self._lease, LEASE):
            return left >= 0
        return self._was_renewed_lately(claim)

    def _was_renewed_lately(self, claim: _Claim) -> bool:
        """Whether the owner of a claim renews it. That is watched where the clock was put back since it was made: an
        owner who is gone must not hold it until the clock is there again."""
        until, since = self._odd.get(claim.key, (None, 0.0))
        if until != claim.until:
            since = self._clock()
            self._odd[claim.key] = (claim.until, since)
        return self._clock() - since <= self._lease

    def _delete(self, connection: sa.Connection, gone: Iterable[_Claim]) -> None:
        """Delete claims as they were read: one that was renewed since stays."""
        for (owner, until), some in itertools.groupby(sorted(gone, key=_renewal), _renewal):
            same = (claims.c.owner == owner, claims.c.until == until)
            connection.execute(sa.delete(claims).where(claims.c.key.in_([claim.key for claim in some]), *same))

    @functools.cached_property
    def _insert(self) -> BulkInsert:
        """Takes what is free, and what is ours already; its parameter is the owner."""

        def is_of_another(old: sa.Table, _new: object) -> sa.ColumnElement[bool]:
            return old.c.owner != sa.bindparam("self")

        statement = upsert(self._store._dialect, claims, ("owner", "until", "until_here"), unless=is_of_another)
        return BulkInsert(self._store._engine.dialect, statement, _Claim._fields)

    def held(self, keys: Sequence[str]) -> dict[str, bool]:
        """Of the keys that somebody else claimed and nobody gave back, whether the owner lives."""
        is_held: dict[str, bool] = {}
        with self._store._reading() as connection:
            for some in _chunks(keys, _IN):
                is_held |= {claim.key: stands for claim, stands in self._others(connection, some)}
        return is_held

    def give_back(self, keys: Collection[str]) -> None:
        for some in _chunks(sorted(keys), _IN):
            mine = sa.delete(claims).where(claims.c.key.in_(some), claims.c.owner == self.owner)
            self._store._transact(functools.partial(sa.Connection.execute, statement=mine))

    def close(self) -> None:
        """Give everything back: what was not asked is for others to ask."""
        self._ended.set()
        with self._starting:
            thread = self._thread
        if thread is None:
            return
        thread.join()
        with contextlib.suppress(StoreError):  # then they expire
            self._store._transact(lambda c: c.execute(sa.delete(claims).where(claims.c.owner == self.owner)))

    def _renew(self) -> None:
        while not self._ended.wait(self._beat):
            with contextlib.suppress(StoreError):  # it may do better the next time
                self._store._transact(self._renewed)

    def _renewed(self, connection: sa.Connection) -> None:
        until = {"until": _now(connection) + self._lease, "until_here": self._clock() + self._lease}
        connection.execute(sa.update(claims).where(claims.c.owner == self.owner).values(until))


def _renewal(claim: _Claim) -> tuple[str, float]:
    return claim.owner, claim.until


def _now(connection: sa.Connection) -> float:
    if connection.dialect.name == "postgresql":  # one clock for all machines
        return float(connection.scalar(sa.text("SELECT extract(epoch FROM clock_timestamp())")) or 0.0)
    return time.time()
