"""Results are those of the golden files, to the last digit and byte.

`python -m tests.golden.take` writes the files anew; `answers` has the table of what is not compared."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .answers import PARTS, Answers, Folder, compact
from .take import HERE, golden

FILES = {
    "replayed": {"runs", "reports", "compared", "gated", "agreed", "exports", "python"},
    "paired": {"pairs"},
    "looked_at": {"pixels"},
    "questions": {"questions", "keys"},
    "served": {"service"},
}
SHOWN = 25
"""How many differences a failure lists."""


@pytest.fixture(autouse=True)
def _no_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove addresses that other tests of the process set for long: they are part of keys."""
    for name in os.environ:
        if name.endswith("_BASE_URL"):
            monkeypatch.delenv(name)


@pytest.mark.parametrize("part", PARTS)
def test_what_is_answered_is_what_was_answered(part: str, tmp_path: Path) -> None:
    found = PARTS[part](Folder(tmp_path))
    assert set(found) == FILES[part]
    differences = [
        line for name, answers in found.items() for line in _changed(name, answers)
    ]
    listed = "\n".join(differences[:SHOWN])
    assert not differences, (
        f"{len(differences)} results differ from the golden files:\n{listed}"
    )


def test_every_golden_file_is_compared() -> None:
    assert {path.stem for path in HERE.glob("*.json")} == set().union(*FILES.values())
    assert FILES.keys() == PARTS.keys()


def test_a_difference_in_the_last_digit_the_kind_or_the_order_is_seen() -> None:
    before = {"mean": 0.1, "n": 1, "of": ["a", "b"]}
    assert list(_differences("x", before, {**before, "mean": 0.10000000000000002}))
    assert list(_differences("x", before, {**before, "n": 1.0})) == ["x.n: 1, now 1.0"]
    assert list(_differences("x", before, {"n": 1, "mean": 0.1, "of": ["a", "b"]}))
    assert list(_differences("x", before, {**before, "of": ["a"]})) == [
        "x.of: 2 entries, now 1"
    ]
    assert not list(_differences("x", before, dict(before)))


def _changed(name: str, answers: Answers) -> list[str]:
    """Return in words where answers differ from their golden file."""
    text = HERE.joinpath(f"{name}.json").read_text("utf-8")
    if text == golden(answers):
        return []
    now = json.loads(golden(answers))
    return list(_differences(name, json.loads(text), now)) or [
        f"{name}.json: the same values in other bytes"
    ]


def _differences(where: str, before: Any, after: Any) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in before.keys() | after.keys():
            if key in before and key in after:
                yield from _differences(f"{where}.{key}", before[key], after[key])
            else:
                yield f"{where}.{key}: {'gone' if key in before else 'new'}"
        shared = [key for key in before if key in after]
        if shared != [key for key in after if key in before]:
            yield f"{where}: keys in another order"
    elif isinstance(before, list) and isinstance(after, list):
        if len(before) != len(after):
            yield f"{where}: {len(before)} entries, now {len(after)}"
        for number, (old, new) in enumerate(zip(before, after, strict=False)):
            yield from _differences(f"{where}[{number}]", old, new)
    elif compact(before) != compact(after):
        yield f"{where}: {compact(before):.200}, now {compact(after):.200}"
