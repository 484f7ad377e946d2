"""The documentation as a site: every page is in it, every link leads somewhere, and nothing comes from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import editjudge
from editjudge.cli import VERBS

ROOT = Path(__file__).parents[1]
LOADED = re.compile(
    r"<(?:script|img|iframe|link)\b[^>]*?\b(?:src|href)=\"?(https?:)?//", re.IGNORECASE
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        check=True,
    )
    return folder


def test_every_page_of_the_documentation_is_reached_from_the_first(site: Path) -> None:
    first = (site / "index.html").read_text("utf-8")
    missing = [
        page.stem
        for page in (ROOT / "docs").glob("*.md")
        if f'href="{page.stem}.html"' not in first
    ]
    assert missing == []


def test_the_commands_are_all_there_with_their_help(site: Path) -> None:
    text = (site / "commands.html").read_text("utf-8")
    assert [verb for verb in VERBS if f">editjudge {verb}<" not in text] == []
    assert "--max-failures" in text


def test_every_public_name_has_its_docstring(site: Path) -> None:
    text = (site / "python.html").read_text("utf-8")
    for name in editjudge.__all__:
        place = getattr(editjudge, name)
        assert f'id="{place.__module__}.{place.__qualname__}"' in text, name


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    loading = [
        page.name
        for page in site.rglob("*.html")
        if LOADED.search(page.read_text("utf-8"))
    ]
    assert loading == []
    assert "fonts.googleapis" not in (site / "index.html").read_text("utf-8")


def test_words_of_the_pages_are_found_by_the_search(site: Path) -> None:
    index = (site / "search" / "search_index.json").read_text("utf-8")
    for word in ("max-failures", "Holm", "resume"):
        assert word in index
