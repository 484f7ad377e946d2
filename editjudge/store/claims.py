"""Claims on questions. A process that works on a question owns the question's key until the claim is released or
expires.

A claim expires a short time (the lease) after the owner's last heartbeat. Two processes may work on one run, two runs
may share questions, and a reward server may run at the same time. The process that claims a key sends the question, and
the others wait for the answer. For processes on one machine, expiry is measured with the monotonic clock, which they
share and which cannot be set. If the owner is on another machine, expiry is measured with the database's clock: the
server's or, with SQLite, this machine's.
"""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

import sqlalchemy as sa

from editjudge.errors import StoreError
from editjudge.store.database import MAX_IN, Row, chunks
from editjudge.store.schema import claims, upsert
from editjudge.store.store import Store

LEASE = 60.0
"""Seconds from an owner's last heartbeat until its claims expire. This is the longest time to wait for a dead owner on
another machine.
"""
BEAT = 15.0
"""Seconds between heartbeats. On a busy disk, three may be late before a claim expires."""


def new_owner() -> str:
    return f"{process_name(os.getpid())} {uuid.uuid4().hex}"


def process_name(pid: int) -> str:
    """Return a process name that is unique across machines, containers and reused process ids."""
    return f"{_here()} {pid} {_started(pid)}"


@functools.cache
def _here() -> str:
    """Return an identifier of this machine's current boot and of the process namespace."""
    parts = [socket.gethostname().replace(" ", "-")]
    with contextlib.suppress(OSError):  # only on Linux
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    return "/".join(parts)


def is_on_this_machine(owner: str) -> bool:
    """Whether an owner is a process that was started on this machine since its last boot. If so, both use the same
    monotonic clock.
    """
    return _machine(owner.partition(" ")[0]) == _machine(_here())


def _machine(here: str) -> str:
    """Return an identifier of a machine's current boot, which all its containers share. If there is none, return the
    host name.
    """
    name, *marks = here.split("/", 2)
    return marks[0] if marks else name


def _started(pid: int) -> str:
    """Return the start time of a process, or "dead" for a zombie."""
    with contextlib.suppress(OSError, IndexError):  # only on Linux
        state, *fields = (
            Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        )
        return "dead" if state in "ZX" else fields[18]
    return "?"


def is_alive(owner: str) -> bool:
    """Whether an owner may still be alive. An owner on another machine counts as alive until its claim expires."""
    here, pid, started, *_ = [*owner.split(" "), "", "", ""]
    if here != _here() or not pid.isdecimal():
        return True
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # a process of another user
    return _started(int(pid)) == started


class Claims:
    """The claims of one owner. A background thread renews them. Safe to use from several threads."""

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
        """Claims that end later than any lease allows, keyed by question key. Each value is the claim's end and the
        time when it was first seen.
        """
        self._ended = threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start to renew this owner's claims in the background."""
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._renew, name="editjudge-claims", daemon=True
                )
                self._thread.start()

    def take(self, keys: Sequence[str]) -> set[str]:
        """Claim the keys that are free or whose owner is gone. Return all keys that this owner now holds."""
        if not keys:
            return set()
        self.start()
        taken: set[str] = set()
        # Sorted, so that two processes that claim the same keys do not deadlock.
        for chunk in chunks(sorted(keys), MAX_IN):
            taken |= self._store._transact(functools.partial(self._take, keys=chunk))
        return taken

    def _take(self, connection: sa.Connection, keys: Sequence[str]) -> set[str]:
        others = self._others(connection, keys)
        delete_claims(connection, [claim for claim, holds in others if not holds])
        ends = self._ends(connection)
        rows = [{"key": key, "owner": self.owner, **ends} for key in keys]
        connection.execute(self._claim, rows)
        ours = (claims.c.key.in_(keys), claims.c.owner == self.owner)
        return set(connection.scalars(sa.select(claims.c.key).where(*ours)))

    @functools.cached_property
    def _claim(self) -> sa.Insert:
        """Statement that claims a key if it is free or already ours."""
        return upsert(
            self._store._dialect,
            claims,
            ("owner", "until", "until_here"),
            unless=lambda old, _: old.c.owner != self.owner,
        )

    def _ends(self, connection: sa.Connection) -> dict[str, float]:
        """Return the time, on both clocks, at which a claim that is made or renewed now will expire."""
        until = _now(connection) + self._lease
        return {"until": until, "until_here": self._clock() + self._lease}

    def _others(
        self, connection: sa.Connection, keys: Sequence[str]
    ) -> list[tuple[Row, bool]]:
        """Return other owners' claims on these keys, and whether each is still valid."""
        now = _now(connection)
        of_others = (claims.c.key.in_(keys), claims.c.owner != self.owner)
        others = connection.execute(sa.select(claims).where(*of_others)).all()
        lives = {owner: is_alive(owner) for owner in {claim.owner for claim in others}}
        return [
            (claim, lives[claim.owner] and self._is_in_time(claim, now))
            for claim in others
        ]

    def _is_in_time(self, claim: Row, now: float) -> bool:
        """Whether a claim has not yet expired. `now` is the database's time."""
        if claim.until_here is not None and is_on_this_machine(claim.owner):
            left = claim.until_here - self._clock()
        else:
            left = claim.until - now
        if left <= max(self._lease, LEASE):
            return bool(left >= 0)
        return self._was_renewed_lately(claim)

    def _was_renewed_lately(self, claim: Row) -> bool:
        """Whether the owner of a claim is still renewing it. This is checked if the clock was set back after the claim
        was made. Otherwise a dead owner would hold the claim until the clock catches up.
        """
        until, since = self._odd.get(claim.key, (None, 0.0))
        if until != claim.until:
            since = self._clock()
            self._odd[claim.key] = (claim.until, since)
        return self._clock() - since <= self._lease

    def held(self, keys: Sequence[str]) -> dict[str, bool]:
        """Return the keys that other owners have claimed, and for each whether its owner is alive."""
        is_held: dict[str, bool] = {}
        with self._store._reading() as connection:
            for chunk in chunks(keys, MAX_IN):
                others = self._others(connection, chunk)
                is_held |= {claim.key: holds for claim, holds in others}
        return is_held

    def give_back(self, keys: Collection[str]) -> None:
        for chunk in chunks(sorted(keys), MAX_IN):
            ours = (claims.c.key.in_(chunk), claims.c.owner == self.owner)
            self._store._execute(sa.delete(claims).where(*ours))

    def close(self) -> None:
        """Release all keys, so other processes can work on the remaining questions."""
        self._ended.set()
        with self._starting:
            thread = self._thread
        if thread is None:
            return
        thread.join()
        with contextlib.suppress(StoreError):  # if this fails, they expire
            ours = claims.c.owner == self.owner
            self._store._execute(sa.delete(claims).where(ours))

    def _renew(self) -> None:
        while not self._ended.wait(self._beat):
            with contextlib.suppress(StoreError):  # the next attempt may succeed
                self._store._transact(self._renew_all)

    def _renew_all(self, connection: sa.Connection) -> None:
        ours = sa.update(claims).where(claims.c.owner == self.owner)
        connection.execute(ours.values(self._ends(connection)))


def delete_claims(connection: sa.Connection, expired: Iterable[Row]) -> None:
    """Delete claims, except those that were renewed after they were read."""
    for claim in expired:
        same = (claims.c[name] == getattr(claim, name) for name in ("key", "owner", "until"))  # fmt: skip
        connection.execute(sa.delete(claims).where(*same))


def _now(connection: sa.Connection) -> float:
    if connection.dialect.name == "postgresql":  # one clock for all machines
        return float(
            connection.scalar(sa.text("SELECT extract(epoch FROM clock_timestamp())"))
            or 0.0
        )
    return time.time()
