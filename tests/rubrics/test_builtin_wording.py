"""The words of the built-in rubrics: complete, as the coverage tables say, and our own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from editjudge.rubrics import files

ROOT = Path(__file__).parents[2]
COVERAGE = Path(__file__).with_name("coverage.md")
PROMPTS = Path(__file__).parents[3] / "shared" / "prompts"
RUN = 6
"""Shorter runs are facts and phrases that nobody can avoid; longer ones are somebody's sentence."""

every_builtin = pytest.mark.parametrize("name", files.names())


def raw(name: str) -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load(
        (files.BUILTIN / f"{name}.yaml").read_text("utf-8")
    )
    return data


def rows(name: str) -> list[str]:
    """The last cell of each row of a rubric's table, which says where the rubric has the clause."""
    section = re.split(r"^## ", COVERAGE.read_text("utf-8"), flags=re.MULTILINE)
    text = next(part for part in section if part.startswith(f"{name}\n"))
    cells = [
        line.strip("| ").split(" | ")[-1]
        for line in text.splitlines()
        if line.startswith("|")
    ]
    return cells[2:]


def resolve(data: Any, path: str) -> Any:
    for word, index in re.findall(r"(\w+)|\[(\w+)\]", path):
        if word:
            data = data[word]
        elif index.isdecimal():
            data = data[int(index)]
        else:
            data = next(factor for factor in data if factor["key"] == index)
    return data


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from texts(item)


def runs(text: str) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", re.sub("['’]", "", text.lower()))
    return {tuple(words[start : start + RUN]) for start in range(len(words) - RUN + 1)}


@every_builtin
def test_every_row_of_the_coverage_table_points_at_something_the_rubric_says(
    name: str,
) -> None:
    data = raw(name)
    for cell in rows(name):
        paths = re.findall(r"`([^`]+)`", cell)
        assert paths, f"a row of {name} names no place: {cell}"
        for path in paths:
            assert resolve(data, path) not in (None, "", [], {}), path


@every_builtin
def test_the_coverage_table_leaves_out_no_factor_step_or_constraint(name: str) -> None:
    cells = " ".join(rows(name))
    data = raw(name)
    wanted = [f"factors[{factor['key']}].definition" for factor in data["factors"]]
    wanted += [
        f"{part}[{i}]"
        for part in ("steps", "constraints")
        for i in range(len(data[part]))
    ]
    assert [path for path in wanted if f"`{path}`" not in cells] == []


@pytest.mark.parametrize(
    "name", [name for name in files.names() if files.load(name).answer.words]
)
def test_the_justifications_of_an_example_keep_to_the_word_limits(name: str) -> None:
    rubric = files.load(name)
    least, most = rubric.answer.words or (0, 0)
    entries = json.loads(rubric.example)[rubric.answer.envelope]
    assert list(entries) == [factor.key for factor in rubric.factors]
    for key, entry in entries.items():
        assert least <= len(entry[rubric.answer.reason_key].split()) <= most, key


@every_builtin
def test_every_factor_has_a_definition_and_anchors(name: str) -> None:
    for factor in files.load(name).factors:
        assert factor.title and factor.definition, factor.key
        assert factor.anchors and all(anchor.when for anchor in factor.anchors), (
            factor.key
        )


@pytest.mark.parametrize("name", files.SETS["online"])
def test_every_online_factor_says_what_to_examine_and_what_it_is_not(name: str) -> None:
    for factor in files.load(name).factors:
        assert factor.examine and factor.excludes, factor.key
        assert [anchor.scores for anchor in factor.anchors] == [(6, 7), (1, 2, 3)], (
            factor.key
        )


@pytest.mark.skipif(
    not PROMPTS.is_dir(),
    reason="the published prompts do not lie beside the repository",
)
@pytest.mark.parametrize("name", [*files.names(), COVERAGE.name])
def test_no_run_of_words_is_taken_from_a_published_prompt(name: str) -> None:
    published = {
        run: path.name
        for path in PROMPTS.glob("*.txt")
        for run in runs(path.read_text("utf-8"))
    }
    assert published
    ours = (
        COVERAGE.read_text("utf-8").splitlines()
        if name == COVERAGE.name
        else texts(raw(name))
    )
    shared = {
        " ".join(run): published[run]
        for text in ours
        for run in runs(text) & published.keys()
    }
    assert shared == {}
