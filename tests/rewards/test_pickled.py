"""Pickles are read as plain values, and nothing else is ever made of one."""

from __future__ import annotations

import collections
import datetime
import io
import os
import pickle
import random
import struct
from typing import Any

import pytest
from PIL import Image

from editjudge.rewards.pickled import NotPlain, dumps, loads

MOST = 5000
PLAIN: dict[str, Any] = {
    "images": [b"\x89PNG", b"", b"x" * 70000],
    "prompts": ["make it blue", "", "é" * 300],
    "metadatas": [
        {"a": 1, "b": -2.5, "c": None, "d": True, "e": (1, (2, 3), [4], ())},
        {},
        {"n": 2**40, "m": -(2**63)},
    ],
    "only_strict": False,
}


class Bomb:
    ran = 0

    def __reduce__(self) -> Any:
        return os.system, ("touch /tmp/editjudge-was-run",)


@pytest.mark.parametrize("protocol", [3, 4, 5])
def test_plain_values_are_read_as_pickle_reads_them(protocol: int) -> None:
    assert loads(pickle.dumps(PLAIN, protocol), MOST) == PLAIN
    shared = [PLAIN["metadatas"]] * 3  # by the memo
    assert loads(pickle.dumps(shared, protocol), MOST) == shared


def test_what_we_write_a_stock_client_reads() -> None:
    assert pickle.loads(dumps(PLAIN)) == PLAIN  # noqa: S301  (our own bytes)


@pytest.mark.parametrize(
    "value",
    [
        Bomb(),
        [Bomb()],
        Image.new("RGB", (2, 2)),
        collections.OrderedDict(a=1),
        datetime.date(2026, 1, 1),
        {1, 2},
        frozenset({1}),
        bytearray(b"x"),
        1 + 2j,
        os.system,
        Bomb,
        {1: 2},
        {(1, 2): 3},
        10**400,
        "\ud800",
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_anything_else_is_refused(value: Any, protocol: int) -> None:
    with pytest.raises(NotPlain):
        loads(pickle.dumps(value, protocol), MOST)
    assert not os.path.exists("/tmp/editjudge-was-run")  # noqa: S108


HOSTILE = {
    "a command": b"cos\nsystem\n(S'touch /tmp/editjudge-was-run'\ntR.",
    "a name by the stack": b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.",
    "an object": b"\x80\x04(\x8c\x02os\x8c\x06systemi.",
    "an extension": b"\x80\x02\x82\x01.",
    "a persistent id": b"\x80\x04\x8c\x01xQ.",
    "out-of-band bytes": b"\x80\x05\x97.",
    "a length beyond the body": b"\x80\x04\x8e" + struct.pack("<Q", 2**62) + b"x.",
    "a length of 4 GB": b"\x80\x04B" + struct.pack("<I", 2**32 - 1) + b"x.",
    "an array of 1 TB": b"\x80\x05\x96" + struct.pack("<Q", 2**40) + b"x.",
    "a memo of 16 GB": b"\x80\x04Nr"
    + struct.pack("<I", 2**31)
    + b"j"
    + struct.pack("<I", 7)
    + b".",
    "a billion laughs": b"\x80\x04]\x94"
    + b"".join(b"]\x94(h%ch%ce" % (n, n) for n in range(40))
    + b".",
    "a list in itself": b"\x80\x04]\x94h\x00a.",
    "a deep list": b"\x80\x04" + b"]" * 2000 + b"a" * 1999 + b".",
    "many values": b"\x80\x04](" + b"N" * 10**6 + b"e.",
    "many tuples as keys": b"\x80\x04}(" + b"K\x01K\x02\x86N" * 1001 + b"u.",
    "a frame that lies": b"\x80\x04\x95" + struct.pack("<Q", 2**63) + b"N",
    "a number of digits": b"L" + b"9" * 10**6 + b"L\n.",
    "nothing": b"",
    "no stop": b"\x80\x04N",
    "an empty stack": b"\x80\x04.",
    "a mark that is not there": b"\x80\x04Ne.",
    "append to a number": b"\x80\x04K\x01K\x02a.",
    "a list as a name": b"\x80\x04}]K\x01s.",
    "an odd dict": b"\x80\x04}(\x8c\x01au.",
    "JSON": b'{"images": []}',
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_hostile_pickles_are_refused(data: bytes) -> None:
    with pytest.raises(NotPlain):
        loads(data, MOST)
    assert not os.path.exists("/tmp/editjudge-was-run")  # noqa: S108


def mutated(chance: random.Random) -> bytes:
    """A pickle or a hostile body with bytes changed, taken out, put in or repeated."""
    small: list[Any] = [
        [1, "a", b"b"],
        {"images": [b"xyz"], "prompts": ["p"], "m": [{"k": (1, 2.5, None)}]},
        Bomb(),
    ]
    sources = [
        pickle.dumps(value, protocol) for value in small for protocol in (2, 3, 4, 5)
    ]
    sources += [data[:4000] for data in HOSTILE.values()]
    data = bytearray(chance.choice(sources))
    for _ in range(chance.randint(1, 8)):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(4):
            case 0:
                data[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                del data[at : at + chance.randint(1, 4)]
            case 2:
                data[at:at] = chance.randbytes(chance.randint(1, 6))
            case 3:
                data[at:at] = data[max(0, at - 8) : at] * chance.randint(1, 40)
    return bytes(data)


def fuzz(count: int) -> None:
    chance = random.Random(20)
    plain = (bytes, str, int, float, bool, type(None), list, dict, tuple)
    same = 0
    for _ in range(count):
        data = mutated(chance)
        try:
            value = loads(data, MOST)
        except NotPlain:
            continue
        assert type(value) in plain
        # LONG_BINPUT: `pickle` itself takes 16 GB for a memo that a few bytes announce
        if b"r" in data:
            continue
        try:
            theirs = _Closed(io.BytesIO(data)).load()
        except (
            pickle.UnpicklingError,
            EOFError,
            ValueError,
            OverflowError,
            MemoryError,
        ):
            continue  # it checks frames as well
        same += 1
        assert repr(value) == repr(theirs)
    assert same > count // 500  # some mutations are harmless
    assert not os.path.exists("/tmp/editjudge-was-run")  # noqa: S108


class _Closed(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise AssertionError(f"{module}.{name} was asked for")


def test_two_thousand_mutations_make_nothing_but_plain_values() -> None:
    fuzz(2000)


@pytest.mark.soak
def test_a_hundred_thousand_mutations_make_nothing_but_plain_values() -> None:
    fuzz(100_000)
