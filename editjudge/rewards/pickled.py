"""Safe reading of pickled request bodies, for trainers whose clients send only pickles.

This is the only module that reads pickles. A body is first checked opcode by opcode. Opcodes that name, call or build
an object are refused, so the unpickler can only make bytes, strings, numbers, booleans, None, lists, tuples and dicts.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import NoReturn

MAX_DEPTH = 32
"""Maximum nesting of lists. Requests have four levels."""
_PLAIN = frozenset(
    "PROTO FRAME STOP MARK MEMOIZE BINPUT LONG_BINPUT BINGET LONG_BINGET "
    "NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 LONG4 BINFLOAT "
    "SHORT_BINUNICODE BINUNICODE BINUNICODE8 SHORT_BINBYTES BINBYTES BINBYTES8 "
    "EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 "
    "EMPTY_LIST LIST APPEND APPENDS EMPTY_DICT DICT SETITEM SETITEMS".split()
)
"""Opcodes that make plain values."""
_TUPLES = 1000
"""Maximum number of tuples in a body. It is limited because a sender can choose their hashes: a dict with 8,000
colliding keys blocked the interpreter for a second."""


class NotPlain(ValueError):
    """Raised for a pickle that cannot be read as plain values."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> NoReturn:
        raise NotPlain(f"a pickle that names {module}.{name}")


def loads(data: bytes, max_values: int) -> object:
    """Return the value of a pickle. Raise `NotPlain` if it contains objects, or if it has more than `max_values`
    opcodes or values."""
    try:
        _check_opcodes(data, max_values)
        value = _Unpickler(io.BytesIO(data)).load()
    except NotPlain:
        raise
    except (
        pickle.UnpicklingError,
        EOFError,
        ValueError,
        IndexError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        Warning,
    ) as error:
        # It is not a pickle, is truncated, or pops from an empty stack. A warning is raised by an escape in a text
        # opcode, which is decoded before it is refused.
        raise NotPlain(
            f"the pickle cannot be read: {str(error)[:200] or type(error).__name__}"
        ) from None
    _check_value(value, max_values)
    return value


def dumps(value: object) -> bytes:
    """Return a pickle of plain values that any client can read."""
    return pickle.dumps(value, protocol=4)


def _check_opcodes(data: bytes, most: int) -> None:
    tuples = 0
    for count, (opcode, argument, _) in enumerate(pickletools.genops(data), 1):
        if count > most:
            raise NotPlain(f"more than {most:,} values: send smaller batches")
        if opcode.name not in _PLAIN:
            raise NotPlain(
                f"the pickle has more than plain values ({opcode.name}): expected bytes, text, numbers, lists and dicts"
            )
        tuples += opcode.name.startswith("TUPLE")
        if tuples > _TUPLES:
            raise NotPlain(f"more than {_TUPLES:,} tuples: send lists")
        if isinstance(argument, int):
            if argument.bit_length() > 64:
                raise NotPlain("a number of more than 64 bits")
            # The unpickler allocates the memo up to this index: 16 GB for an index of 2**31.
            if opcode.name == "LONG_BINPUT" and argument > most:
                raise NotPlain(f"a memo of more than {most:,} values")


def _check_value(value: object, most: int) -> None:
    """Raise `NotPlain` if a value contains more than `most` values. With the pickle's memo, a few bytes can make any
    number of values, or a value that contains itself."""
    left = [(value, 0)]
    count = 0
    while left:
        part, depth = left.pop()
        count += 1
        if count > most or depth > MAX_DEPTH:
            raise NotPlain(
                f"more than {most:,} values, or lists nested more than {MAX_DEPTH} deep"
            )
        if isinstance(part, str):
            try:
                part.encode()
            except UnicodeEncodeError:
                raise NotPlain("a text that is not UTF-8") from None
        elif isinstance(part, dict):
            if any(type(key) is not str for key in part):
                raise NotPlain("a dict whose keys are not all text")
            left += [(inner, depth + 1) for pair in part.items() for inner in pair]
        elif isinstance(part, list | tuple):
            left += [(inner, depth + 1) for inner in part]
