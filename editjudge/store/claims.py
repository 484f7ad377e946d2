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
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import sqlalchemy as sa

from editjudge.errors import StoreError
from editjudge.store.database import MAX_IN, chunks
from editjudge.store.schema import claims, upsert
from editjudge.store.store import Store

LEASE = 60.0
"""Seconds that a claim outlives the last sign of its owner: on another machine, a dead one is waited for so long."""
BEAT = 15.0
"""Seconds between two signs: three may be late on a busy disk before a claim is lost."""


def new_owner() -> str:
    return f"{process_name(os.getpid())} {uuid.uuid4().hex}"


def process_name(pid: int) -> str:
    """A process, told from those of another machine or container, and from a later one of the same number."""
    return f"{_here()} {pid} {_started(pid)}"


@functools.cache
def _here() -> str:
    """This machine since it was started, and its processes as they are seen from here."""
    parts = [socket.gethostname().replace(" ", "-")]
    with contextlib.suppress(OSError):  # only on Linux
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    return "/".join(parts)


def is_on_this_machine(owner: str) -> bool:
    """Whether an owner is or was a process of this machine since it was started: it reads the same monotonic clock."""
    return _machine(owner.partition(" ")[0]) == _machine(_here())


def _machine(here: str) -> str:
    """The mark of a machine's start, which its containers share; its name where there is none."""
    name, *marks = here.split("/", 2)
    return marks[0] if marks else name


def _started(pid: int) -> str:
    """When a process was started; "dead" for one that nobody has buried yet."""
    with contextlib.suppress(OSError, IndexError):  # only on Linux
        state, *fields = (
            Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        )
        return "dead" if state in "ZX" else fields[18]
    return "?"


def is_alive(owner: str) -> bool:
    """Whether an owner may live: one elsewhere always may, until its claim expires."""
    here, pid, started, *_ = [*owner.split(" "), "", "", ""]
    if here != _here() or not pid.isdecimal():
        return True
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # of another user
    return _started(int(pid)) == started


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
        self._store = store
        self._lease = lease
        self._beat = beat
        self._clock = clock
        self._odd: dict[str, tuple[float, float]] = {}
        """Claims that last longer than any is made for, by key: their end, and when it was first seen."""
        self._ended = threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Renew from now on what this owner holds."""
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._renew, name="editjudge-claims", daemon=True
                )
                self._thread.start()

    def take(self, keys: Sequence[str]) -> set[str]:
        """Claim keys and return those that are ours now: free ones, and those whose owner is gone."""
        if not keys:
            return set()
        self.start()
        taken: set[str] = set()
        # in one order, so that two who claim the same wait and not in a circle
        for some in chunks(sorted(keys), MAX_IN):
            taken |= self._store._transact(functools.partial(self._take, keys=some))
        return taken

    def _take(self, connection: sa.Connection, keys: Sequence[str]) -> set[str]:
        self._delete(
            connection,
            [claim for claim, stands in self._others(connection, keys) if not stands],
        )
        until = _now(connection) + self._lease
        until_here = self._clock() + self._lease
        rows = [_Claim(key, self.owner, until, until_here)._asdict() for key in keys]
        connection.execute(self._insert, rows)
        mine = sa.select(claims.c.key).where(
            claims.c.key.in_(keys), claims.c.owner == self.owner
        )
        return set(connection.scalars(mine))

    def _others(
        self, connection: sa.Connection, keys: Sequence[str]
    ) -> list[tuple[_Claim, bool]]:
        """Return the claims of others on these keys, and whether each still holds."""
        now = _now(connection)
        columns = [claims.c[name] for name in _Claim._fields]
        query = sa.select(*columns).where(
            claims.c.key.in_(keys), claims.c.owner != self.owner
        )
        others = [_Claim(*row) for row in connection.execute(query)]
        lives = {owner: is_alive(owner) for owner in {claim.owner for claim in others}}
        return [
            (claim, lives[claim.owner] and self._is_in_time(claim, now))
            for claim in others
        ]

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
        for (owner, until), some in itertools.groupby(
            sorted(gone, key=_renewal), _renewal
        ):
            same = (claims.c.owner == owner, claims.c.until == until)
            connection.execute(
                sa.delete(claims).where(
                    claims.c.key.in_([claim.key for claim in some]), *same
                )
            )

    @property
    def _insert(self) -> sa.Insert:
        """Statement that takes what is free, and what is ours already."""
        return upsert(
            self._store._dialect,
            claims,
            ("owner", "until", "until_here"),
            unless=lambda old, _: old.c.owner != self.owner,
        )

    def held(self, keys: Sequence[str]) -> dict[str, bool]:
        """Return, for each key that another owner claimed and did not release, whether that owner is alive."""
        is_held: dict[str, bool] = {}
        with self._store._reading() as connection:
            for some in chunks(keys, MAX_IN):
                is_held |= {
                    claim.key: stands
                    for claim, stands in self._others(connection, some)
                }
        return is_held

    def give_back(self, keys: Collection[str]) -> None:
        for some in chunks(sorted(keys), MAX_IN):
            mine = sa.delete(claims).where(
                claims.c.key.in_(some), claims.c.owner == self.owner
            )
            self._store._transact(
                functools.partial(sa.Connection.execute, statement=mine)
            )

    def close(self) -> None:
        """Give everything back: what was not asked is for others to ask."""
        self._ended.set()
        with self._starting:
            thread = self._thread
        if thread is None:
            return
        thread.join()
        with contextlib.suppress(StoreError):  # then they expire
            self._store._transact(
                lambda c: c.execute(
                    sa.delete(claims).where(claims.c.owner == self.owner)
                )
            )

    def _renew(self) -> None:
        while not self._ended.wait(self._beat):
            with contextlib.suppress(StoreError):  # it may do better the next time
                self._store._transact(self._renewed)

    def _renewed(self, connection: sa.Connection) -> None:
        until = {
            "until": _now(connection) + self._lease,
            "until_here": self._clock() + self._lease,
        }
        connection.execute(
            sa.update(claims).where(claims.c.owner == self.owner).values(until)
        )


def _renewal(claim: _Claim) -> tuple[str, float]:
    return claim.owner, claim.until


def _now(connection: sa.Connection) -> float:
    if connection.dialect.name == "postgresql":  # one clock for all machines
        return float(
            connection.scalar(sa.text("SELECT extract(epoch FROM clock_timestamp())"))
            or 0.0
        )
    return time.time()
