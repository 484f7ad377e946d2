"""An event loop whose clock stands still while there is something to do, and jumps to the next appointment when not.

Hours of pauses pass in milliseconds, and the times are exact.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from editjudge.running import pace

T = TypeVar("T")


class Clockwork(asyncio.SelectorEventLoop):
    now = 0.0

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self.now = max(self.now, self._scheduled[0]._when)  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


def wind(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end, the pace by the same clock."""
    with (
        asyncio.Runner(loop_factory=Clockwork) as runner,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(pace, "time", SimpleNamespace(monotonic=runner.get_loop().time))
        return runner.run(work)


def now() -> float:
    return asyncio.get_running_loop().time()
