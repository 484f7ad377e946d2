"""From edits to judgements: plan, pace, engine."""

from __future__ import annotations

import inspect
import sys
import types
from importlib import import_module
from typing import Any


class _CallablePackage(types.ModuleType):
    """Python puts a package that is imported under its name into the parent, where `editjudge.run` is also the
    function that users call. So the package can be called, and both meanings hold whichever came first."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return import_module("editjudge.api").run(*arguments, **named)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(import_module("editjudge.api").run)


sys.modules[__name__].__class__ = _CallablePackage
