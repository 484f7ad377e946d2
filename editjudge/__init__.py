"""Judge image edits factor by factor, with reasons."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from editjudge.api import (
        Attempt,
        Run,
        Verification,
        arun,
        judge,
        open,  # noqa: A004
        run,
        verify,
    )
    from editjudge.edit import Edit
    from editjudge.errors import EditjudgeError, InputError, WorldError
    from editjudge.judgement import Judgement
    from editjudge.rubrics.contract import check
    from editjudge.rubrics.files import load as load_rubric
    from editjudge.rubrics.model import Rubric
    from editjudge.rubrics.verdict import Failure, Verdict

__version__ = "0.1.0"

_WHERE = {
    "Attempt": "api",
    "Edit": "edit",
    "EditjudgeError": "errors",
    "Failure": "rubrics.verdict",
    "InputError": "errors",
    "Judgement": "judgement",
    "Rubric": "rubrics.model",
    "Run": "api",
    "Verdict": "rubrics.verdict",
    "Verification": "api",
    "WorldError": "errors",
    "arun": "api",
    "check": "rubrics.contract",
    "judge": "api",
    "load_rubric": "rubrics.files:load",
    "open": "api",
    "run": "api",
    "verify": "api",
}
"""Module of each public name. A module is imported when one of its names is first used."""

__all__ = [
    "Attempt",
    "Edit",
    "EditjudgeError",
    "Failure",
    "InputError",
    "Judgement",
    "Rubric",
    "Run",
    "Verdict",
    "Verification",
    "WorldError",
    "arun",
    "check",
    "judge",
    "load_rubric",
    "open",
    "run",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'editjudge' has no attribute {name!r}")
    module, _, other = _WHERE[name].partition(":")
    value = getattr(importlib.import_module(f"editjudge.{module}"), other or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
