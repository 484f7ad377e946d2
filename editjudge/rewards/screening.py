"""Degenerate outputs, detected before a judge is asked for a reward."""

from __future__ import annotations

from typing import NamedTuple

from editjudge import plugins
from editjudge.edit import Edit
from editjudge.running.asker import unexpected


class NoEdit(NamedTuple):
    """A degenerate output."""

    kind: str
    words: str
    """A clause with the image as its subject: "is one flat colour ..."."""
    set_aside: bool
    """No judge is asked for a reward; else it is a flag on the answer."""
    status: str = "abstained"
    """Status of the reward of what is set aside."""


def screened(edit: Edit) -> NoEdit | None:
    """Return what the installed screens find; without any, only an output that is the very file of its input.

    An unexpected exception is the failure of this edit: nobody knows whether its output is degenerate."""
    if edit.edited is not None and edit.edited == edit.input:
        return NoEdit("unchanged", "is the file of the input", set_aside=True)
    try:
        findings = [
            image for screen in plugins.usable("screens") for image in screen(edit)
        ]
    except Exception as error:
        reason = unexpected(error, f"looking at the output of {edit.id}")
        return NoEdit(
            reason.code,
            f"could not be checked: {reason.message}",
            set_aside=True,
            status="error",
        )
    outputs = (image for image in findings if image.role == "edited")
    output = next(outputs, None)
    return output and NoEdit(output.kind, output.words, output.set_aside)
