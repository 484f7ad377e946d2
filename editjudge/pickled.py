"""Pickled bodies of trainers whose clients send nothing else, read as plain values.

Nothing else in the package reads a pickle, and this does not do it as `pickle` does: it goes through the opcodes that
`pickletools` finds, and knows those that make bytes, text, numbers, bool, None, lists, tuples and dicts. It has no
opcode for a name, a call or an object, so that nothing can be imported, called or built; a body with one is refused.
"""

from __future__ import annotations

import pickle
import pickletools
from collections.abc import Callable
from typing import Any

MAX_DEPTH = 32
"""Lists in lists; requests have four."""


class NotPlain(ValueError):
    """A pickle that cannot be read as plain values: why."""


def loads(data: bytes, max_values: int) -> Any:
    """The value of a pickle with at most so many opcodes and values. Raises `NotPlain`."""
    machine = _Machine()
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(data), 1):
            if count > max_values:
                raise NotPlain(f"more than {max_values:,} values: send smaller batches")
            machine.do(opcode.name, argument)
    except NotPlain:
        raise
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, Warning) as error:
        # Not a pickle, cut off, or one that takes from an empty stack. A warning is of an escape in a text opcode,
        # which is decoded before it is refused.
        raise NotPlain(f"not a pickle that can be read: {str(error)[:200] or type(error).__name__}") from None
    value = machine.result()
    _check(value, max_values)
    return value


def dumps(value: Any) -> bytes:
    """A pickle of plain values, which any client can read."""
    return pickle.dumps(value, protocol=4)


class _Machine:
    """A stack, the marks on it, and the memo: what the format itself needs, and no more."""

    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}
        self._results: list[Any] = []

    def result(self) -> Any:
        if len(self._results) != 1:
            raise NotPlain("not a pickle: it has no value")
        return self._results[0]

    def do(self, name: str, argument: Any) -> None:
        if name in _VALUES:
            if isinstance(argument, int) and argument.bit_length() > 64:
                raise NotPlain("a number of more than 64 bits")
            self._stack.append(argument)
        elif name in _CONSTANTS:
            self._stack.append(_CONSTANTS[name]())
        elif name in _TUPLES:
            self._stack.append(tuple(self.take(_TUPLES[name])))
        elif name in _STEPS:
            _STEPS[name](self, argument)
        elif name == "PROTO" and argument > pickle.HIGHEST_PROTOCOL:
            raise NotPlain(f"a pickle of protocol {argument}")
        elif name not in ("PROTO", "FRAME"):
            raise NotPlain(
                f"a pickle of more than plain values ({name}): bytes, text, numbers, lists and dicts are read"
            )

    def mark(self) -> None:
        self._marks.append(len(self._stack))

    def after_mark(self) -> list[Any]:
        at = self._marks.pop()
        taken = self._stack[at:]
        del self._stack[at:]
        return taken

    def take(self, count: int) -> list[Any]:
        if count > len(self._stack) - (self._marks[-1] if self._marks else 0):
            raise NotPlain("not a pickle: it takes more than there is")
        taken = self._stack[len(self._stack) - count :]
        del self._stack[len(self._stack) - count :]
        return taken

    def put(self, at: int | None) -> None:
        self._memo[len(self._memo) if at is None else at] = self._stack[-1]

    def get(self, at: int) -> None:
        self._stack.append(self._memo[at])

    def push(self, value: Any) -> None:
        self._stack.append(value)

    def marked_dict(self) -> None:
        items = self.after_mark()
        self._stack.append({})
        self.update(items)

    def stop(self) -> None:
        self._results += self.take(1)

    def extend(self, items: list[Any]) -> None:
        if type(self._stack[-1]) is not list:
            raise NotPlain("not a pickle: it appends to what is no list")
        self._stack[-1].extend(items)

    def update(self, items: list[Any]) -> None:
        # Names alone: their hashes are random, so that nobody can choose ones that collide.
        if type(self._stack[-1]) is not dict or len(items) % 2 or any(type(key) is not str for key in items[::2]):
            raise NotPlain("a dict whose keys are not all text")
        self._stack[-1].update(zip(items[::2], items[1::2], strict=True))


_VALUES = frozenset(
    (
        *("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT"),
        *("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "SHORT_BINBYTES", "BINBYTES", "BINBYTES8"),
    )
)
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_TUPLE": tuple,
}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_STEPS: dict[str, Callable[[_Machine, Any], None]] = {
    "MARK": lambda machine, _: machine.mark(),
    "TUPLE": lambda machine, _: machine.push(tuple(machine.after_mark())),
    "LIST": lambda machine, _: machine.push(machine.after_mark()),
    "DICT": lambda machine, _: machine.marked_dict(),
    "APPEND": lambda machine, _: machine.extend(machine.take(1)),
    "APPENDS": lambda machine, _: machine.extend(machine.after_mark()),
    "SETITEM": lambda machine, _: machine.update(machine.take(2)),
    "SETITEMS": lambda machine, _: machine.update(machine.after_mark()),
    "MEMOIZE": lambda machine, _: machine.put(None),
    **dict.fromkeys(("BINPUT", "LONG_BINPUT"), _Machine.put),
    **dict.fromkeys(("BINGET", "LONG_BINGET"), _Machine.get),
    "STOP": lambda machine, _: machine.stop(),
}


def _check(value: Any, most: int) -> None:
    """Bounds what the value is to whoever goes through it: the memo lets a few bytes stand for any number of values,
    and for one that contains itself."""
    left = [(value, 0)]
    count = 0
    while left:
        one, depth = left.pop()
        count += 1
        if count > most or depth > MAX_DEPTH:
            raise NotPlain(f"more than {most:,} values, or more than {MAX_DEPTH} lists in each other")
        if isinstance(one, str):
            _check_text(one)
        elif isinstance(one, dict):
            left += [(part, depth + 1) for pair in one.items() for part in pair]
        elif isinstance(one, list | tuple):
            left += [(part, depth + 1) for part in one]


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise NotPlain("a text that is not UTF-8") from None
