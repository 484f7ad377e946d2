"""Which process is asking what: a claim on a key lasts as long as its owner lives, and a while longer.

Two processes on one run, two runs that share questions, a reward server beside a run: whoever claims a key asks it,
and the others wait for the answer. A claim expires by the clock of the server, or by that of this machine in SQLite.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Collection, Sequence

import sqlalchemy as sa

from editjudge.errors import StoreError
from editjudge.store.owner import BEAT, LEASE, is_alive, new_owner
from editjudge.store.rows import BulkInsert
from editjudge.store.schema import claims, upsert
from editjudge.store.store import _IN, Store, _chunks

_OWNERS = sa.select(claims.c.owner).where(claims.c.key.in_(sa.bindparam("keys", expanding=True))).distinct()


class Claims:
    """The claims of one owner. Safe to use from several threads; a thread of its own renews them."""

    def __init__(self, store: Store, lease: float = LEASE, beat: float = BEAT, owner: str | None = None) -> None:
        self.owner = owner or new_owner()
        self._store, self._lease, self._beat = store, lease, beat
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
        now = _now(connection)
        owners = connection.scalars(_OWNERS, {"keys": keys})
        if gone := [owner for owner in owners if not is_alive(owner)]:
            connection.execute(sa.delete(claims).where(claims.c.key.in_(keys), claims.c.owner.in_(gone)))
        rows = [(key, self.owner, now + self._lease) for key in keys]
        if self._insert.execute(connection, rows, now, self.owner) == len(rows):
            return {*keys}
        mine = sa.select(claims.c.key).where(claims.c.key.in_(keys), claims.c.owner == self.owner)
        return set(connection.scalars(mine))

    @functools.cached_property
    def _insert(self) -> BulkInsert:
        """Takes what is free or expired, and what is ours already; its parameters are the time and the owner."""

        def held(old: sa.Table, _new: object) -> sa.ColumnElement[bool]:
            return sa.and_(old.c.until >= sa.bindparam("now"), old.c.owner != sa.bindparam("self"))

        statement = upsert(self._store._dialect, claims, ("owner", "until"), unless=held)
        return BulkInsert(self._store._engine.dialect, statement, ("key", "owner", "until"))

    def held(self, keys: Sequence[str]) -> dict[str, bool]:
        """Of the keys that somebody else claimed and nobody gave back, whether the owner lives."""
        is_held: dict[str, bool] = {}
        with self._store._reading() as connection:
            now = _now(connection)
            for some in _chunks(keys, _IN):
                query = sa.select(claims).where(claims.c.key.in_(some), claims.c.owner != self.owner)
                for key, owner, until in connection.execute(query):
                    is_held[key] = until >= now and is_alive(owner)
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
        until = _now(connection) + self._lease
        connection.execute(sa.update(claims).where(claims.c.owner == self.owner).values(until=until))


def _now(connection: sa.Connection) -> float:
    if connection.dialect.name == "postgresql":  # one clock for all machines
        return float(connection.scalar(sa.text("SELECT extract(epoch FROM clock_timestamp())")) or 0.0)
    return time.time()
