"""Errors by what they are: class, code and the data that their message names, never its wording."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

E = TypeVar("E", bound=BaseException)


@contextmanager
def raises(
    kind: type[E] | tuple[type[E], ...], code: str = "", *data: object
) -> Iterator[pytest.ExceptionInfo[E]]:
    """Expect an error with this code whose message names these data, such as a file, a factor or a number."""
    with pytest.raises(kind) as caught:
        yield caught
    check_error(caught.value, code, *data)


def check_error(error: BaseException | None, code: str, *data: object) -> None:
    """Fail unless an error has this code and its message names these data."""
    assert getattr(error, "code", "") == code, f"{error!r} has another code"
    missing = [value for value in data if str(value) not in str(error)]
    assert not missing, f"{error!r} does not name {missing}"


def shows(text: str, *data: object) -> bool:
    """Whether a text for people has these data, in this order; where its lines break does not matter."""
    rest = " ".join(text.split())
    for value in data:
        _, is_there, rest = rest.partition(str(value))
        if not is_there:
            return False
    return True
