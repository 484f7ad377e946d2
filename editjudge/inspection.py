"""Alias of `editjudge.integrations.inspect`, which had this name in version 0.1."""

from editjudge.integrations.inspect import edit_scorer, export_inspect

__all__ = ["edit_scorer", "export_inspect"]
