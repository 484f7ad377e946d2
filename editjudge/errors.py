"""Exceptions that editjudge raises on purpose.

EditjudgeError
├── InputError            invalid input: never retried; the message says what to change
│   ├── UsageError        an invalid option or argument
│   ├── RubricError       an unknown rubric, or a rubric file that breaks its schema
│   ├── ManifestError     an invalid line or field of a manifest, ratings or scores file
│   └── ImageError        an image that cannot be read, is not of its declared format, or is too large
└── WorldError            a server, judge or store failed: the same call may succeed later
    ├── JudgeError        a judge did not answer
    │   └── BudgetReached a question was not asked, since it could exceed the budget
    └── StoreError        a store cannot be opened, read or written
        └── StoreMoved    the file of a store was deleted, renamed or replaced; a copy has the data
"""

from __future__ import annotations

import difflib
import json
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Option:
    """An option that a message names: `--judge X` on the command line, `judges="X"` in Python."""

    name: str
    value: object = None
    """True for a flag; a mapping for an option that takes NAME=VALUE."""
    argument: str = ""
    """Name of the Python argument, if it differs from the option's name."""

    def __str__(self) -> str:
        if self.value is None or self.value is True:
            return f"--{self.name}"
        if isinstance(self.value, Mapping):
            pairs = (
                f"--{self.name} {key}={_short(value)}"
                for key, value in self.value.items()
            )
            return " ".join(pairs)
        return f"--{self.name} {self.value}"

    def in_python(self, arguments: Collection[str]) -> str:
        """Return the option as an argument of a Python function. If the function has no such argument, return the
        option unchanged.
        """
        name = self.argument or self.name.replace("-", "_")
        if name not in arguments:
            name += "s"
        if name not in arguments:
            return str(self)
        value = self.value
        if isinstance(value, Mapping | str):
            value = json.dumps(value)
        return f"{name}=" if value is None else f"{name}={value}"


def _short(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


class EditjudgeError(Exception):
    """Base class of all errors that editjudge raises deliberately."""

    def __init__(
        self, message: str = "", *, code: str = "", options: Iterable[Option] = ()
    ) -> None:
        super().__init__(message)
        self.code = code
        """Code for the kind of fault, such as `unknown_run`, for use by programs. The wording of the message may
        change. Empty if the class says enough.
        """
        self.options = tuple(options)
        """Options that the message names."""

    def in_python(self, arguments: Collection[str]) -> str:
        """Return the message with its options written as arguments of a Python function."""
        message = str(self)
        for option in self.options:
            message = message.replace(str(option), option.in_python(arguments))
        return message

    def _render_traceback_(self) -> list[str]:
        """Return what a notebook shows for this error: only the message. The fault is in the call, so the frames inside
        this package would not help.
        """
        return [f"{type(self).__name__}: {printable(str(self))}"]


class InputError(EditjudgeError):
    """Raised for invalid input. A retry with the same input fails again."""


class UsageError(InputError):
    """Raised for an invalid option or argument."""


class RubricError(InputError):
    """Raised for an unknown rubric, or a rubric file that breaks its schema."""


class ManifestError(InputError):
    """Raised when a manifest, ratings or scores file cannot be parsed."""


class ImageError(InputError):
    """Raised when an image cannot be read, is not of its declared format, or is too large."""


class WorldError(EditjudgeError):
    """Raised when something outside editjudge fails, such as a server. The same call may succeed later."""


class JudgeError(WorldError):
    """Raised when a judge does not answer."""

    spent = 0.0
    """US dollars that were spent on the question before it failed."""


class BudgetReached(JudgeError):
    """Raised when a question is not asked because it could exceed the budget."""


class StoreError(WorldError):
    """Raised when a store cannot be opened, read or written."""


class StoreMoved(StoreError):
    """Raised when a store's file was deleted, renamed or replaced. The message names a copy that has the data."""


def near_miss(name: str, names: Iterable[str]) -> str | None:
    """Return the name that is most similar to a mistyped one, or None if no name is similar."""
    folded = {other.casefold(): other for other in names}
    close = difflib.get_close_matches(name.casefold(), folded, n=1)
    return folded[close[0]] if close else None


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return the end of a sentence about a mistyped name: '; did you mean "quality"?'. If no name is similar, return
    '.'.
    """
    close = near_miss(name, names)
    return "." if close is None else f'; did you mean "{close}"?'


def printable(text: str) -> str:
    """Return untrusted text with control and invisible characters escaped. Line breaks and spaces are kept."""
    if text.isprintable():
        return text
    return "".join(c if _is_shown(c) else f"\\x{ord(c):02x}" for c in text)


def _is_shown(character: str) -> bool:
    is_space = character in "\n\t" or unicodedata.category(character) == "Zs"
    return is_space or character.isprintable()


def one_line(text: str) -> str:
    """Return untrusted text on one line, so it cannot imitate a line of our own output."""
    return printable(" ".join(text.split()))
