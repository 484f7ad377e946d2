"""`editjudge docs`: pages of the installed version."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import editjudge

from .stores import Call, call

__all__ = ["call"]

PAGES = Path(__file__).parents[2] / "docs"
PACKAGE = Path(editjudge.__file__).parent


def test_the_list_has_every_page_with_its_title(call: Call) -> None:
    pages = call("docs", "--json").document["pages"]
    assert pages.keys() == {path.stem for path in PAGES.glob("*.md")}
    assert pages["statistics"] and not any(title == "" for title in pages.values())
    assert "statistics" in call("docs").out


@pytest.mark.parametrize("name", ["gate", "gate.md", "docs/gate.md"])
def test_a_page_is_printed_as_it_is(name: str, call: Call) -> None:
    done = call("docs", name)
    assert (done.code, done.out) == (0, PAGES.joinpath("gate.md").read_text())


def test_an_unknown_page_is_an_error_with_the_nearest(call: Call) -> None:
    done = call("docs", "statistic")
    assert done.code == 2 and '"statistics"' in done.err


def test_every_page_that_a_message_names_exists() -> None:
    named = {
        page
        for path in PACKAGE.rglob("*.py")
        for page in re.findall(r"editjudge docs ([a-z-]+)", path.read_text())
    }
    assert len(named) >= 4
    assert named <= {path.stem for path in PAGES.glob("*.md")}
