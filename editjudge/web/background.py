"""Cache for values that are slow to compute. Each is computed in a thread, and again after its run has changed."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from editjudge.store.records import RunRecord

T = TypeVar("T")

FRESH = 5.0
"""Seconds after which a value may be computed again even if its run is unchanged, because there may be new ratings."""


class NotReady(Exception):
    """Raised while a value that a page needs is still being computed."""


class BackgroundCache:
    """Cache for the `limit` most recently used values. Only one is computed at a time, since computing two at once
    would be slower."""

    def __init__(self, limit: int, fresh: float = FRESH) -> None:
        self._limit = limit
        self._fresh = fresh
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        self._values: OrderedDict[Hashable, _Value[object]] = OrderedDict()

    def get(
        self,
        key: Hashable,
        runs: tuple[RunRecord, ...],
        make: Callable[[], T],
        patience: float,
    ) -> T:
        """Return the value for a key; it may date from before the last change of its runs. Raises `NotReady` if it is
        not computed within `patience` seconds."""
        state = tuple((run.id, run.updated, run.state) for run in runs)
        with self._lock:
            value = self._values.get(key)
            if value is None or value.is_stale(state, self._fresh):
                value = self._values[key] = _Value(make, state, self._turn, value)
            self._values.move_to_end(key)
            while len(self._values) > self._limit:
                self._values.popitem(last=False)
        return value.wait(patience)  # type: ignore[return-value]  # a key stands for one kind of value


class _Value(Generic[T]):
    def __init__(
        self,
        make: Callable[[], T],
        state: Hashable,
        turn: threading.Lock,
        earlier: _Value[T] | None,
    ) -> None:
        self._make = make
        self._state = state
        self._turn = turn
        self._begun = time.monotonic()
        self._seconds = 0.0
        self._made: list[T] = earlier._made if earlier else []
        self._error: Exception | None = None
        self._done = threading.Event()
        threading.Thread(
            target=self._work, name="editjudge-background", daemon=True
        ).start()

    def _work(self) -> None:
        try:
            with self._turn:
                begun = time.monotonic()
                self._made = [self._make()]
                self._seconds = time.monotonic() - begun
        except Exception as error:  # raised in the thread of the waiting request
            self._error = error
        finally:
            self._done.set()

    def wait(self, seconds: float) -> T:
        self._done.wait(0 if self._made else seconds)
        if self._error:
            raise self._error
        if not self._made:
            raise NotReady
        return self._made[0]

    def is_stale(self, state: Hashable, fresh: float) -> bool:
        """Whether the value should be computed again. Recomputing takes up at most a twentieth of the elapsed time."""
        if not self._done.is_set():
            return False
        age = time.monotonic() - self._begun
        return age > 20 * self._seconds and (
            state != self._state or self._error is not None or age > fresh
        )
