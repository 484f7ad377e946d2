"""A server over the sample run, and a browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser import chromium, page
from tests.web.sample import made
from tests.web.served import Served, serving

__all__ = ["chromium", "page"]


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The sample run, served; its folder is that of its store."""
    place = made(tmp_path_factory.mktemp("sample") / "edits")
    with serving(place, judge="measured") as served:
        yield served


@pytest.fixture
def folder(sample: Served) -> Path:
    return Path(sample.store.name).parent
