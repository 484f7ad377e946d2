"""Outputs that are no edit, found before a judge is asked."""

from __future__ import annotations

from typing import NamedTuple

from editjudge import measured
from editjudge.edit import Edit
from editjudge.run.feed import unexpected


class NoEdit(NamedTuple):
    """What is wrong with an output itself."""

    kind: str
    words: str
    """A clause with the picture as its subject: "is one flat colour ..."."""
    set_aside: bool
    """No judge is asked for a reward; else it is a flag on the answer."""
    status: str = "abstained"
    """Status of the reward of what is set aside."""


def screened(edit: Edit) -> NoEdit | None:
    """What the extra `measured` detects; without it, only an output that is the very file of its input.

    An unexpected exception is the failure of this edit: nobody knows whether its output is one."""
    try:
        return _screened(edit)
    except Exception as error:
        reason = unexpected(error, f"looking at the output of {edit.id}")
        return NoEdit(reason.code, f"could not be checked: {reason.message}", set_aside=True, status="error")


def _screened(edit: Edit) -> NoEdit | None:
    if edit.edited is not None and edit.edited == edit.input:
        return NoEdit("unchanged", "is the file of the input", set_aside=True)
    if measured.missing():
        return None
    from editjudge.measured.degenerate import screen

    output = screen(edit)
    # An output that is its input again is not a good edit, however well everything is preserved.
    return None if output is None else NoEdit(output.kind, output.words, output.set_aside or output.kind == "unchanged")
