"""Permanent storage of judgements, in SQLite by default."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from editjudge.store.store import Store

__all__ = ["Store"]


def __getattr__(name: str) -> Any:
    """Import the store on first use, since SQLAlchemy takes a quarter of a run's start-up time."""
    if name != "Store":
        raise AttributeError(f"module 'editjudge.store' has no attribute {name!r}")
    from editjudge.store.store import Store

    return Store
