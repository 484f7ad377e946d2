"""Arguments of the Python functions: a mistyped one gets a suggestion, and an error names arguments, not options of the
command line.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

from editjudge.errors import EditjudgeError, near_miss

P = ParamSpec("P")
T = TypeVar("T")

_OPTION = re.compile(
    r"(?<![\w-])--([a-z](?:[a-z-]*[a-z])?)"
    r'(?: "(\w+=[\w.]+)"| (\w+=[\w.]+\b|[A-Z]+\b|[\d.]*\d\b|(?:metrics|logprobs)\b))?'
)
"""An option, and the word after it where that is its value: a placeholder, FIELD=VALUE, a number, or one of ours."""
_NAMES = {"min": "minimum", "max": "maximum", "as": "called", "format": "form"}
_FLAGS = ("allow_outside", "allow_urls", "fuse", "strict")


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """For a public function: raises `TypeError` with a suggestion for an argument that it does not have, and words its
    errors for callers in Python."""
    names = inspect.signature(function).parameters

    def check(arguments: dict[str, Any]) -> None:
        for name in arguments.keys() - names.keys():
            close = near_miss(name, names)
            hint = close if close != "." else f"; it takes {', '.join(n for n in names if n != 'self')}"
            raise TypeError(f"{function.__name__}() has no argument {name!r}{hint}")

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def awaited(*positional: P.args, **named: P.kwargs) -> Any:
            check(named)
            with python_words(names):
                return await function(*positional, **named)

        return awaited  # type: ignore[return-value]  # a coroutine function, as the one it wraps

    @functools.wraps(function)
    def called(*positional: P.args, **named: P.kwargs) -> T:
        check(named)
        with python_words(names):
            return function(*positional, **named)

    return called


@contextmanager
def python_words(names: Collection[str] = ()) -> Iterator[None]:
    """Errors that name `judges=`, where the command line says `--judge`."""
    try:
        yield
    except EditjudgeError as error:
        if error.args and isinstance(error.args[0], str):
            error.args = (in_python(error.args[0], names), *error.args[1:])
        raise


def in_python(text: str, names: Collection[str] = ()) -> str:
    """A message with arguments in the place of options; `names` are those of the function that was called."""

    def argument(match: re.Match[str]) -> str:
        name = match[1].replace("-", "_")
        name = _NAMES.get(name, name)
        name = f"{name}s" if name not in names and f"{name}s" in names else name
        if name not in names:
            return match[0]
        key, equals, value = (match[2] or match[3] or "").partition("=")
        if equals:
            quoted = value if value.replace(".", "").isdecimal() else f'"{value}"'
            return f'{name}={{"{key}": {quoted}}}'
        if key.islower():
            return f'{name}="{key}"'
        return f"{name}={key or ('True' if name in _FLAGS else '')}"

    text = _OPTION.sub(argument, text).replace("--json has all", "the result itself has all")
    return re.sub(r"\} (\w+)=\{", lambda match: ", " if match[1] in names else match[0], text)  # one mapping of several
