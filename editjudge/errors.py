"""Everything that editjudge raises on purpose.

EditjudgeError
├── InputError            your input is wrong: never retried, the message says what to change
│   ├── UsageError        an invalid option or argument
│   ├── RubricError       a rubric that is unknown, or a rubric file that breaks its schema
│   ├── ManifestError     a line or field of a manifest, ratings or scores file
│   └── ImageError        a picture that cannot be read, is not what it claims, or is too large
└── WorldError            the world failed: the same call may succeed later
    ├── JudgeError        a judge that did not answer
    │   └── BudgetReached a question that was not asked, since the budget may not pay for it
    └── StoreError        a store that cannot be opened, read or written
        └── StoreMoved    a store whose file lost its name: what was written is in a copy
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class EditjudgeError(Exception):
    """The root: catch this to catch all of them."""


class InputError(EditjudgeError):
    """What was handed in is wrong; trying again with the same input fails again."""


class UsageError(InputError):
    """An invalid option or argument."""


class RubricError(InputError):
    """A rubric that is unknown, or a rubric file that breaks its schema."""


class ManifestError(InputError):
    """A manifest, ratings or scores file that cannot be understood."""


class ImageError(InputError):
    """A picture that cannot be read, is not what it claims to be, or is too large."""


class WorldError(EditjudgeError):
    """Something outside failed; the same call may succeed later."""


class JudgeError(WorldError):
    """A judge that did not answer."""

    spent = 0.0
    """US dollars that the question had cost by then."""


class BudgetReached(JudgeError):
    """A question that was not asked, since the budget may not pay for it."""


class StoreError(WorldError):
    """A store that cannot be opened, read or written."""


class StoreMoved(StoreError):
    """A store whose file was deleted, renamed or replaced: what was written is in a copy, which the message names."""


def near_miss(word: str, known: Iterable[str]) -> str:
    """Ends a sentence about a mistyped name: '; did you mean "quality"?', or '.' where no name comes close."""
    folded = {name.casefold(): name for name in known}
    close = difflib.get_close_matches(word.casefold(), folded, n=1)
    return f'; did you mean "{folded[close[0]]}"?' if close else "."
