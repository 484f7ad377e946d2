"""Former name of `editjudge.integrations.pytest`, kept since version 0.1."""

from editjudge.integrations.pytest import assert_edit

__all__ = ["assert_edit"]
