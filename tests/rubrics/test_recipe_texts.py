"""Texts out of someone else's checkout: word for word, never executed, refused with file and line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from editjudge.errors import RubricError
from editjudge.rubrics.recipe import TextSource, read_source
from tests.faults import raises

PROMPTS = '''
import os
os.abort()  # whoever runs this file does not come back
RULES = """Look at
both pictures."""
TAIL = "Answer " + "with one number."
BOTH = "\\n".join([RULES, TAIL])
TABLE = {"edit": {"system": "Be kind."}, "list": ["first", "second"]}
NAMED: str = RULES.strip()
TWICE = "a"
TWICE = "b"
COMPUTED = os.environ["HOME"]


class Asker:
    PROMPT = "Of a class."

    def ask(self, question):
        tail = f"About {question}: yes or no?"
        return question + tail


def edit_prompt() -> str:
    return """Which is {better}?"""
'''


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "prompts.py").write_text(PROMPTS, "utf-8")
    (tmp_path / "p.json").write_text(
        json.dumps({"edit": ["no", {"text": "From JSON."}]}), "utf-8"
    )
    (tmp_path / "p.yaml").write_text(
        "system: Be short.\nuser:\n  - text: |\n      Two\n      lines.\n", "utf-8"
    )
    (tmp_path / "README.md").write_text(
        "# Title\n<prompt>\nInside.\n</prompt>\nAfter.\n", "utf-8"
    )
    return tmp_path


PY = "bench/prompts.py"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ({"file": PY, "constant": "RULES"}, "Look at\nboth pictures."),
        (
            {"file": PY, "constant": "BOTH"},
            "Look at\nboth pictures.\nAnswer with one number.",
        ),
        ({"file": PY, "constant": "NAMED"}, "Look at\nboth pictures."),
        ({"file": PY, "constant": "TABLE", "key": ("edit", "system")}, "Be kind."),
        ({"file": PY, "constant": "TABLE", "key": ("list", 1)}, "second"),
        ({"file": PY, "constant": "Asker.PROMPT"}, "Of a class."),
        ({"file": PY, "function": "edit_prompt"}, "Which is {better}?"),
        (
            {"file": PY, "function": "Asker.ask", "variable": "tail"},
            "About {question}: yes or no?",
        ),
        ({"file": "p.json", "key": ("edit", 1, "text")}, "From JSON."),
        ({"file": "p.yaml", "key": ("user", 0, "text")}, "Two\nlines.\n"),
        (
            {
                "file": "README.md",
                "after": "<prompt>",
                "before": "</prompt>",
                "strip": True,
            },
            "Inside.",
        ),
        (
            {"file": PY, "constant": "TAIL", "replace": {"one": "two"}},
            "Answer with two number.",
        ),
    ],
)
def test_a_text_is_read_where_it_stands(
    checkout: Path, source: dict[str, Any], text: str
) -> None:
    assert read_source(checkout, TextSource(**source)) == text


@pytest.mark.parametrize(
    ("source", "code", "named"),
    [
        ({"file": PY, "constant": "RULE"}, "not_one_assignment", '"RULES"'),
        ({"file": PY, "constant": "TWICE"}, "not_one_assignment", "10, 11"),
        ({"file": PY, "constant": "COMPUTED"}, "not_text", "prompts.py:12"),
        (
            {"file": PY, "constant": "TABLE", "key": ("edt",)},
            "missing_key",
            '"edit"',
        ),
        ({"file": PY, "constant": "TABLE"}, "not_text", "prompts.py:8"),
        ({"file": PY, "function": "nothing"}, "not_one_function", '"nothing"'),
        ({"file": PY, "function": "Asker.ask"}, "not_one_assignment", "question"),
        ({"file": PY, "constant": "Asked.PROMPT"}, "not_one_class", "Asked"),
        ({"file": "gone.py", "constant": "X"}, "missing_file", "gone.py"),
        ({"file": "../outside.py"}, "outside_folder", "../outside.py"),
        ({"file": "p.json", "key": ("edit", 5)}, "missing_key", '"edit.5"'),
        ({"file": "p.json", "key": ("edit",)}, "not_text", "edit"),
        ({"file": "p.json", "key": ("edit", 0, "x")}, "missing_key", '"edit.0.x"'),
        ({"file": "README.md", "after": "gone"}, "text_not_once", "'gone'"),
        (
            {"file": PY, "constant": "TAIL", "replace": {"six": "two"}},
            "text_missing",
            "'six'",
        ),
    ],
)
def test_a_checkout_that_is_not_as_expected_is_refused(
    checkout: Path, source: dict[str, Any], code: str, named: str
) -> None:
    with raises(RubricError, code, named):
        read_source(checkout, TextSource(**source))


def test_a_file_that_is_no_python_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("X = 1\ndef (:\n", "utf-8")
    with raises(RubricError, "not_python", "a.py:2"):
        read_source(tmp_path, TextSource("a.py", constant="X"))


def test_a_constant_that_is_made_of_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text('X = Y + "a"\nY = X + "b"\n', "utf-8")
    with raises(RubricError, "too_complex", "200"):
        read_source(tmp_path, TextSource("a.py", constant="X"))


def test_a_link_out_of_the_checkout_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret", "utf-8")
    (tmp_path / "checkout").mkdir()
    (tmp_path / "checkout" / "a.txt").symlink_to(tmp_path / "secret")
    with raises(RubricError, "outside_folder"):
        read_source(tmp_path / "checkout", TextSource("a.txt"))
