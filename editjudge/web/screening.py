"""Outputs that are no edit, found before a judge is asked."""

from __future__ import annotations

from typing import NamedTuple

from editjudge import measured
from editjudge.edit import Edit


class NoEdit(NamedTuple):
    """What is wrong with an output itself."""

    kind: str
    words: str
    """A clause with the picture as its subject: "is one flat colour ..."."""
    set_aside: bool
    """No judge is asked for a reward; else it is a flag on the answer."""


def screened(edit: Edit) -> NoEdit | None:
    """What the extra `measured` detects; without it, only an output that is the very file of its input."""
    if edit.edited is not None and edit.edited == edit.input:
        return NoEdit("unchanged", "is the file of the input", set_aside=True)
    if measured.missing():
        return None
    from editjudge.measured.degenerate import screen

    output = screen(edit)
    # An output that is its input again is not a good edit, however well everything is preserved.
    return None if output is None else NoEdit(output.kind, output.words, output.set_aside or output.kind == "unchanged")
