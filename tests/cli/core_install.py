"""Run commands as on an installation without extras: each in a fork of one process that finds no other module.

python core_install.py MODULE,MODULE... < JSON: lists of words; answers each with its exit code and what it wrote.
"""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

LONGEST = 120
"""Seconds of a command that waits for something."""


class WithoutModules:
    """A finder that does not find some modules, as if they were not installed."""

    def __init__(self, finder: Any, absent: frozenset[str]) -> None:
        self._finder = finder
        self._absent = absent

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if name.partition(".")[0] in self._absent:
            return None
        spec: ModuleSpec | None = self._finder.find_spec(name, path, target)
        return spec

    def __getattr__(self, name: str) -> Any:
        return getattr(self._finder, name)  # such as what importlib.metadata looks for


def called(words: list[str]) -> int:
    from editjudge.cli import main

    sys.argv = ["editjudge", *words]
    try:
        main()
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:
        traceback.print_exc()
        return 70
    return 0


def forked(words: list[str]) -> dict[str, Any]:
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = os.fork()
        if not child:
            signal.alarm(LONGEST)
            for file, stream in ((out, 1), (err, 2)):
                os.dup2(file.fileno(), stream)
            sys.stdin = io.StringIO()
            code = called(words)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        _, status = os.waitpid(child, 0)
        out.seek(0)
        err.seek(0)
        return {
            "code": os.waitstatus_to_exitcode(status),
            "out": out.read(),
            "err": err.read(),
        }


if __name__ == "__main__":
    absent = frozenset(sys.argv[1].split(","))
    sys.meta_path[:] = [WithoutModules(finder, absent) for finder in sys.meta_path]
    import editjudge.cli

    del editjudge.cli
    json.dump([forked(words) for words in json.load(sys.stdin)], sys.stdout)
