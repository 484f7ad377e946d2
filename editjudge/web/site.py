"""What every page and endpoint works with."""

from __future__ import annotations

from dataclasses import dataclass, field

from editjudge.judges.registry import Options
from editjudge.store.store import Store


@dataclass(frozen=True)
class Site:
    store: Store
    judge: str = "measured"
    """Who judges what is sent to `/v1/judge` and `/v1/reward` unless the request names another that is allowed."""
    options: Options = field(default_factory=Options)
    token: str | None = None
    """Required of every request where it is set; off loopback one always is."""
