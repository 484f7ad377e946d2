"""Alias of `editjudge.integrations.pytest`, which had this name in version 0.1."""

from editjudge.integrations.pytest import assert_edit

__all__ = ["assert_edit"]
