"""`editjudge.integrations.pytest` under its name of 0.1."""

from editjudge.integrations.pytest import assert_edit

__all__ = ["assert_edit"]
