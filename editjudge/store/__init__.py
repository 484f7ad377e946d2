"""What was judged, kept for good: one schema, SQLite by default."""

from __future__ import annotations

from editjudge.store.store import Store

__all__ = ["Store"]
