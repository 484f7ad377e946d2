"""The measures of how the package reads may only fall (`make house` prints them)."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from bench.house import (
    RECORD,
    TOLERANCE,
    Figures,
    count_options,
    growth,
    lowered,
    measure,
    measure_all,
)

STYLED = '''"""What a module is, in a docstring: no token of it counts."""
from typing import Any
from made import far
import made.near.deep

A, B = 1, 2
C, D = sorted([A, B])


class Shape:
    """Of a class."""

    side: Any
    """By how much: a docstring of a name."""


def public(x):
    text = f"{_twice(x)}"
    return getattr(x, "side") if hasattr(x, text) else 1 if x else _once(x) + _twice(x)


def _once(x):
    """Return a thing."""
    return x.Any or x


def _twice(x):
    return x
'''


@pytest.fixture
def made(tmp_path: Path) -> Path:
    package = tmp_path / "made"
    for noun in ("near", "far"):
        (package / noun).mkdir(parents=True)
    (package / "near" / "styled.py").write_text(STYLED)
    (package / "far" / "back.py").write_text(
        "def back():\n    from made.near import styled\n    return styled\n"
    )
    (package / "third.py").write_text("import made.far\n")
    return package


def test_no_measure_of_the_package_has_grown() -> None:
    record: Figures = json.loads(RECORD.read_text("utf-8"))
    figures = measure_all()
    assert set(figures) == set(record)
    grown = growth(figures, record)
    assert not grown, "\n".join(["editjudge reads worse than it did:", *grown])


def test_each_measure_counts_what_its_name_says(made: Path) -> None:
    figures = measure(made)
    assert figures["modules"] == 3
    assert figures["classes"] == 1
    assert figures["packed assignments"] == 1
    assert figures["private module functions called once"] == 1
    assert figures["nested conditional expressions"] == 1
    assert figures["getattr or hasattr with a literal name"] == 1
    assert figures["docstrings that open with a relative word"] == 3
    assert figures["uses of Any"] == 1
    assert figures["pairs of packages that import each other"] == 1


@pytest.mark.parametrize(
    ("text", "tokens", "a_line"),
    [
        ("x = 1\n", 3, 3.0),
        ("x = 1  # why\n\n\ny = 2\n", 6, 3.0),
        ('"""Documentation."""\nx = 1; """More of it."""\n', 4, 4.0),
        ("x = f'{y} and {z!r:>{w}}'\n", 3, 3.0),
        ("x = '''a\nb'''\n", 3, 1.5),
    ],
)
def test_tokens_are_counted_without_comments_and_documentation(
    tmp_path: Path, text: str, tokens: int, a_line: float
) -> None:
    (tmp_path / "module.py").write_text(text)
    figures = measure(tmp_path)
    assert (figures["tokens"], figures["tokens a code line"]) == (tokens, a_line)


@pytest.mark.parametrize(("lines", "long"), [(60, 0), (61, 1)])
def test_a_function_of_more_than_sixty_lines_is_long(
    tmp_path: Path, lines: int, long: int
) -> None:
    (tmp_path / "module.py").write_text("def f():\n" + "    x = 1\n" * (lines - 1))
    assert measure(tmp_path)["functions over 60 lines"] == long


def test_a_branch_is_whatever_makes_two_ways(tmp_path: Path) -> None:
    text = "if a and b:\n    c = [x for x in y if x]\nwhile d:\n    pass\n"
    (tmp_path / "module.py").write_text(text)
    figures = measure(tmp_path)
    assert figures["branches per 1,000 tokens"] == round(
        1000 * 4 / figures["tokens"], 1
    )


def test_options_that_help_lists_are_counted_over_all_commands() -> None:
    @click.group()
    @click.option("--loud", is_flag=True)
    def group() -> None: ...

    @group.command()
    @click.argument("file")
    @click.option("--left")
    @click.option("--right")
    @click.option("--former", hidden=True)
    def inner() -> None: ...

    assert count_options(group) == 3


def test_growth_names_the_measure_and_by_how_much_it_grew() -> None:
    record: Figures = {"tokens": 1000, "tokens a code line": 8.0, "uses of Any": 3}
    assert growth(record, record) == []
    (line,) = growth({**record, "uses of Any": 5}, record)
    assert line.startswith("uses of Any: 5,") and " 2 more " in line
    (line,) = growth({**record, "tokens a code line": 8.1}, record)
    assert line.startswith("tokens a code line: 8.1,") and " 0.1 more " in line


@pytest.mark.parametrize("name", TOLERANCE)
def test_size_may_exceed_its_record_by_one_percent_and_no_more(name: str) -> None:
    assert growth({name: 1010}, {name: 1000}) == []
    assert len(growth({name: 1011}, {name: 1000})) == 1


def test_a_record_is_lowered_and_never_raised() -> None:
    record: Figures = {"tokens": 1000, "classes": 10}
    assert lowered({"tokens": 990, "classes": 11, "new": 4}, record) == {
        "tokens": 990,
        "classes": 10,
        "new": 4,
    }
