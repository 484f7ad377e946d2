"""What all tests share."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from tests.postgres import postgres

__all__ = ["postgres"]

# Hypothesis takes a busy machine for a slow test: neither says anything about the code.
settings.register_profile(
    "busy", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("busy")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Under `--dist loadgroup`, tests that share a server, a browser or a cluster go to one worker: it is made once."""
    for item in items:
        if group := _shared_by(item):
            item.add_marker(pytest.mark.xdist_group(group))


def _shared_by(item: pytest.Item) -> str | None:
    """Where what a test shares with others is made: a folder or file for a whole session, and else the test's file."""
    fixtures = item._fixtureinfo.name2fixturedefs.values()  # type: ignore[attr-defined]
    own = [fixture for (*_, fixture) in fixtures if fixture.baseid.startswith("tests")]
    if session := [fixture.baseid for fixture in own if fixture.scope == "session"]:
        return str(min(session, key=len))
    return (
        item.nodeid.split("::")[0]
        if any(fixture.scope == "module" for fixture in own)
        else None
    )
