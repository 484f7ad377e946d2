"""Bodies of requests that were made to do harm: each is refused with words or means what it says, nothing grows, and
the server goes on."""

from __future__ import annotations

import asyncio
import base64
import json
import math
import random
import resource
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest
from starlette.requests import Request

from editjudge.rewards import requests as sent
from editjudge.rewards.protocol import RequestModels, Terms
from tests.running.made import picture
from tests.web.served import edit, recorded_rewards, serving

TERMS = Terms(
    max_image=4096,
    max_body=2**18,
    max_edits=4,
    rubrics=("compliance",),
    more_rubrics=(),
)
READER = sent.RequestReader(
    RequestModels(TERMS, ["measured"], ["compliance"], ["effect_score"]), TERMS.edits
)
BOUNDARY = "cut-here"
KINDS = {
    "json": "application/json",
    "msgpack": "application/msgpack",
    "multipart": f"multipart/form-data; boundary={BOUNDARY}",
}
GROWTH = 150 * 2**10
"""KiB that the process may grow by: a few bodies with all their values, and no more with a thousand times as many."""


def good() -> dict[str, Any]:
    return {
        "edits": [
            {
                "id": "a",
                "input": b"\x89PNG-in",
                "edited": b"\x89PNG-out",
                "instruction": "x",
            }
        ],
        "deadline": 5,
    }


def as_json(value: Any) -> bytes:
    return json.dumps(
        value, default=lambda data: base64.b64encode(data).decode()
    ).encode()


def as_msgpack(value: Any) -> bytes:
    packed: bytes = msgpack.packb(value)
    return packed


def part(name: str, data: bytes, more: str = "") -> bytes:
    head = (
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'
    )
    return head.encode() + data + b"\r\n"


def multipart(*parts: bytes) -> bytes:
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


def as_multipart(value: Any) -> bytes:
    words = {**value, "edits": [{"id": "a", "instruction": "x"}]}
    return multipart(
        part("request", as_json(words)),
        part("edits.0.edited", b"\x89PNG", '; filename="e"'),
    )


def with_option(**options: Any) -> dict[str, Any]:
    return good() | options


def json_bodies() -> list[bytes]:
    deep = 20_000
    return [
        b"[" * deep, b'{"edits":' * deep, b"[" * deep + b"]" * deep, b'{"a":' * deep + b"1" + b"}" * deep,
        b'{"edits": [{}' + b",{}" * 60_000 + b"]}", b'{"deadline": ' + b"9" * 100_000 + b"}", b'{"deadline": 1e999}',
        b'{"deadline": NaN}', b'{"deadline": -Infinity}', b'{"edits": [], "edits": [{"edited": null}]}',
        b'{"edits": [{"edited": null, "edited": "AAAA"}]}', b'{"edits": [{"edited": "AA' + b"A" * 200_000 + b'"}]}',
        b'\xef\xbb\xbf{"edits": []}', b'{"edits": [{"edited": null, "id": "\\ud800"}]}',
        b'{"edits": [{"id": "\\u0000"}]}',
        b'"' + b"\\u0041" * 30_000, b'{"edits": [{"edited": "data:text/html;base64,AAAA"}]}', b"{} {}", b"\0" * 1000,
        as_json(with_option(samples=10**30)), as_json(with_option(samples=-1)), as_json(with_option(weights={})),
        as_json(with_option(ranking="pairs", weights={"effect_score": math.inf})),
        as_json(with_option(judges={"measured": 1e308})), as_json(with_option(rubrics=["../../etc/passwd"])),
    ]  # fmt: skip


def msgpack_bodies() -> list[bytes]:
    return [
        b"\x91" * 100_000, b"\x81\xa1a" * 50_000, b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xffabc", b"\xdb\x7f\xff\xff\xff", b"\xc7\x05\x01hello", b"\xd8\xff" + b"\0" * 16, b"\xc1",
        b"\xdd\x00\x01\x00\x00" + b"\x80" * 65536, as_msgpack({1: 2}), as_msgpack({b"edits": []}),
        as_msgpack(with_option(deadline=math.nan)), as_msgpack(with_option(deadline=math.inf)),
        as_msgpack(with_option(samples=2**63)), b"\x82\xa5edits\x90\xa5edits\x91\x80", as_msgpack(good())[:-3],
        as_msgpack({"edits": [{"edited": b"x" * 5000}]}), as_msgpack(with_option(protocol=True)),
    ]  # fmt: skip


def multipart_bodies() -> list[bytes]:
    words = as_json({"edits": [{}]})
    return [
        b"", b"--", f"--{BOUNDARY}".encode(), multipart(), multipart(part("request", b"[")), as_multipart(good())[:-20],
        multipart(part("request", words), part("request", words)), multipart(part("edits.0.edited", b"x")),
        multipart(part("request", words), part("edits.9999.edited", b"x")),
        multipart(part("request", words), part("edits.0.../../edited", b"x")),
        multipart(part("request", words), part("edits.0.edited", b"x" * 5000)),
        multipart(*(part(f"p{n}", b"") for n in range(500))),
        multipart(part("request", words), *(part(f"edits.0.references.{n}", b"x") for n in range(40))),
        part("x" * 50_000, b""), f"--{BOUNDARY}\r\n".encode() + b"a: b\r\n" * 5000 + b"\r\n",
        f"--{BOUNDARY}\r\nContent-Disposition: form-data\r\n\r\nx\r\n--{BOUNDARY}--\r\n".encode(),
        multipart(part("request", words, '; filename="../../x"'), part("edited", b"\xff\xfe")),
        multipart(part("request", b"\xff\xfe" + words)),
    ]  # fmt: skip


BODIES: dict[str, list[bytes]] = {
    "json": [as_json(good()), *json_bodies()],
    "msgpack": [as_msgpack(good()), *msgpack_bodies()],
    "multipart": [as_multipart(good()), *multipart_bodies()],
}


def mutated(chance: random.Random, data: bytes) -> bytes:
    changed = bytearray(data[: chance.randint(1, 3000)] if len(data) > 3000 else data)
    for _ in range(chance.randint(0, 6)):
        at = chance.randrange(len(changed) + 1)
        choice = chance.randrange(5)
        if choice == 0:
            changed[at : at + 1] = bytes([chance.randrange(256)])
        elif choice == 1:
            del changed[at : at + chance.randint(1, 20)]
        elif choice == 2:
            changed[at:at] = chance.choice(
                (
                    b"[",
                    b"{",
                    b'"',
                    b"null",
                    b"1e999",
                    b"NaN",
                    b"\xdf\xff\xff\xff\xff",
                    b"\r\n",
                )
            )
        elif choice == 3:
            changed[at:at] = changed[max(0, at - 30) : at] * chance.randint(1, 8)
        else:
            del changed[at:]
    return bytes(changed)


def understood(kind: str, data: bytes, rewards: bool) -> bool:
    """Whether the body is a request; else it was refused, with words."""
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/",
        "headers": [(b"content-type", KINDS[kind].encode())],
    }
    messages = iter([{"type": "http.request", "body": data, "more_body": False}])

    async def receive() -> Any:
        return next(messages)

    refusal = None
    try:
        body = asyncio.run(sent.body(Request(scope, receive), TERMS, lambda _: None))
        request = READER.rewarding(body) if rewards else READER.judging(body)
    except sent.Refused as error:
        refusal = error
    if refusal:
        assert 400 <= refusal.status < 500 and refusal.error
        assert len(refusal.refusal.model_dump_json()) < 100_000
        return False
    edits = [edit.edit(number) for number, edit in enumerate(request.edits)]
    assert 1 <= len(edits) <= TERMS.edits
    return True


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def fuzz(count: int) -> None:
    chance = random.Random(21)
    for kind, bodies in BODIES.items():
        for data in bodies:
            understood(kind, data, rewards=True)
    before = peak()
    taken = 0
    for number in range(count):
        kind = chance.choice(list(BODIES))
        taken += understood(
            kind, mutated(chance, chance.choice(BODIES[kind])), rewards=bool(number % 2)
        )
    assert taken > count // 200  # some changes are harmless
    assert peak() - before < GROWTH


def test_two_thousand_bodies_are_refused_or_mean_what_they_say() -> None:
    fuzz(2000)


@pytest.mark.soak
def test_a_hundred_thousand_bodies_are_refused_or_mean_what_they_say() -> None:
    fuzz(100_000)


# --- through a server -----------------------------------------------------------------------------------------


def png(width: int, height: int, rows: bytes) -> bytes:
    """A PNG that says it has this size, whatever is in it."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data))
            + kind
            + data
            + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(rows, 9))
        + chunk(b"IEND", b"")
    )


BOMBS: dict[str, Callable[[], bytes]] = {
    "a billion pixels announced": lambda: png(40_000, 40_000, b"\0" * 2**20),
    "a size of four billion": lambda: png(2**32 - 1, 2**32 - 1, b""),
    "no pixels at all": lambda: png(0, 0, b""),
    "fewer rows than announced": lambda: png(64, 64, b"\0" * 10),
    "far more data than announced": lambda: png(8, 8, b"\0" * 2**25),
    "cut off": lambda: picture("whole")[:-12],
    "text with the head of a picture": lambda: b"\x89PNG\r\n\x1a\n" + b"<script>" * 100,
}


def test_pictures_that_unpack_to_gigabytes_fail_alone_and_the_server_goes_on(
    tmp_path: Path,
) -> None:
    terms = Terms(rubrics=("online",), more_rubrics=(), max_edits=16)
    with serving(tmp_path / "s.db", "measured", terms) as served:
        before = peak()
        edits = [
            edit(n, edited=base64.b64encode(make()).decode())
            for n, make in enumerate(BOMBS.values())
        ]
        for ranking in ("none", "pairs"):
            rewards = served.rewards(*edits, ranking=ranking)
            assert [reward["reward"] for reward in rewards] == [None] * len(edits)
            statuses = {reward["status"] for reward in rewards}
            assert "bad_image" in statuses
            assert statuses <= {"bad_image", "abstained", "instruction_not_judged"}
        assert peak() - before < 4 * GROWTH
        assert served.client.get(f"{served.url}/healthz").json()["status"] == "ok"


def test_hostile_bodies_over_http_are_4xx_and_the_next_request_is_answered(
    tmp_path: Path,
) -> None:
    with serving(
        tmp_path / "s.db", recorded_rewards(tmp_path / "r.jsonl"), TERMS
    ) as served:
        for kind, bodies in BODIES.items():
            for data in bodies[1:]:
                answer = served.post(
                    "reward", content=data, headers={"content-type": KINDS[kind]}
                )
                assert answer.status_code in (200, 400, 413, 422), (
                    answer.status_code,
                    kind,
                    data[:80],
                )
                json.loads(answer.content)
        (reward,) = served.rewards(edit(0, id="0"))
        assert reward["reward"] == 1.0 and served.queue.held == served.queue.edits == 0
