"""With every key set to a canary: nothing that is written, shown, served, exported, logged or raised holds one.

Passwords of PostgreSQL in messages of the store are held in `store/test_postgres.py`; here the verbs are.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import logging
import os
import re
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from editjudge.judges.http import HttpTransport
from editjudge.judges.providers import PROVIDERS, resolve
from tests.postgres import PASSWORD, Server
from tests.running.made import (
    Told,
    canned,
    editjudge,
    edits,
    environment,
    pacing,
    start,
    until,
)
from tests.web.served import edit, serving

CANARY = "sk-canary-7f3a9c51d2"
TOKEN = "token-canary-0123456789abcdef"
KEYS = sorted(
    {variable for provider in PROVIDERS.values() for variable in provider.key_variables}
)
JUDGES = ("openai/m", "anthropic/m", "google/m")


def echoing(
    headers: Mapping[str, str], body: bytes
) -> tuple[int, dict[str, str], bytes]:
    """A broken server that says back all that it was sent, key included, in words and in headers."""
    said = " ".join(f"{name}: {value}" for name, value in headers.items())
    sent = {name: value for name, value in headers.items() if CANARY in value}
    # what is told at once: others are asked again for minutes
    status = (401, 400)[len(body) % 2]
    error = {
        "error": {
            "message": f"bad request: {said}",
            "type": "x",
            "code": CANARY,
            "status": said,
        }
    }
    return (
        status,
        {"x-request-id": CANARY, "retry-after": "0", "x-echo": str(sent)},
        json.dumps(error).encode(),
    )


@pytest.fixture
def canaries() -> Iterator[None]:
    with environment(dict.fromkeys(KEYS, CANARY) | {"EDITJUDGE_TOKEN": TOKEN}):
        yield


def clean(told: Told | str | bytes) -> bool:
    """Neither as it is nor in pieces of it that would do."""
    text = (
        told.out + told.err
        if isinstance(told, Told)
        else told
        if isinstance(told, str)
        else told.decode("latin-1")
    )
    return "canary" not in text and CANARY[-10:] not in text and PASSWORD not in text


def files_below(folder: Path) -> Iterator[tuple[Path, bytes]]:
    for path in folder.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            yield path, data
            # replies are packed
            for found in re.finditer(rb"\x78[\x01\x5e\x9c\xda]|\x1f\x8b", data):
                unpack = (
                    gzip.decompress
                    if found[0] == b"\x1f\x8b"
                    else zlib.decompressobj().decompress
                )
                try:
                    yield path, unpack(data[found.start() :])
                except (OSError, EOFError, zlib.error):
                    continue


def test_every_verb_and_every_file_after_a_server_that_says_the_key_back(
    canaries: None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    manifest = edits(tmp_path, 3)
    store = tmp_path / "s.db"
    told: list[Told] = []
    with canned(echoing, CANARY), pacing(tries=2, patience=0.2):
        one = (
            "--input",
            tmp_path / "input-0.png",
            "--edited",
            tmp_path / "edited-0.png",
            "--instruction",
            "Paint it.",
        )
        for judge in JUDGES:
            common = ("--judge", judge, "--timeout", "5", "--retries-invalid", "0")
            told.append(
                editjudge(
                    "run",
                    manifest,
                    *common,
                    "--store",
                    store,
                    "--name",
                    judge[:6],
                    "--rubric",
                    "fidelity",
                )
            )
            told.append(
                editjudge("judge", *one, *common, "--rubric", "fidelity", "--json")
            )
            told.append(
                editjudge(
                    "run",
                    manifest,
                    *common,
                    "--store",
                    store,
                    "--name",
                    f"{judge[:6]}b",
                    "--batch",
                )
            )
        told.append(editjudge("doctor", "--store", store))
        told.append(editjudge("doctor", "--json"))
    verbs: list[tuple[object, ...]] = [
        ("report", "openai"),
        ("runs", "list"),
        ("runs", "show", "openai", "--json"),
    ]
    verbs += [
        ("report", "openai", "-o", tmp_path / f"r.{f}", "--format", f)
        for f in ("html", "md", "latex", "csv", "json")
    ]
    verbs += [
        ("export", "openai", "-o", tmp_path / f, "--format", f)
        for f in ("parquet", "jsonl", "csv", "inspect")
    ]
    told += [editjudge(*words, "--store", store) for words in verbs]
    assert any("unreachable" in one.out + one.err or one.code == 1 for one in told)
    assert [one for one in told if not clean(one)] == []
    assert clean(caplog.text)
    assert [path for path, data in files_below(tmp_path) if not clean(data)] == []
    assert {"r.html", "judgements.jsonl"} <= {path.name for path in tmp_path.rglob("*")}


ENCODED = {
    "plain": CANARY,
    "for a URL": "".join(f"%{ord(mark):02X}" for mark in CANARY),
    "for a URL twice": CANARY.replace("-", "%252d"),
    "escaped": "".join(f"\\\\u{ord(mark):04x}" for mark in CANARY),
    "for HTML": "".join(f"&#{ord(mark)};" for mark in CANARY),
    "in base64": base64.b64encode(CANARY.encode()).decode().rstrip("="),
}


def answering(
    form: str,
) -> Callable[[Mapping[str, str], bytes], tuple[int, dict[str, str], bytes]]:
    """A server that answers well, and says the key back in all that it answers."""

    def say(
        headers: Mapping[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        assert any(CANARY in value for value in headers.values())
        identifier = re.search(rb"edit-[0-9a-f]{16}", body)
        assert identifier
        why = f"The red car stands on the left, as was asked, and your key is {form} as far as one can see it there"
        entry = {"score": 7, "justification": why}
        factors = {
            "image_id": identifier[0].decode(),
            "online_factor_results": dict.fromkeys(FIDELITY, entry),
        }
        text = json.dumps(factors).replace("\\\\u", "\\u")
        choice = {"message": {"content": text}, "finish_reason": "stop"}
        candidate = {"content": {"parts": [{"text": text}]}, "finishReason": "STOP"}
        document = {
            "choices": [choice],
            "content": [{"type": "text", "text": text}],
            "candidates": [candidate],
            **dict.fromkeys(
                ("id", "model", "modelVersion", "responseId", "system_fingerprint"),
                form,
            ),
        }
        return (
            200,
            {"x-request-id": form, "request-id": form},
            json.dumps(document).encode(),
        )

    return say


FIDELITY = ("alignment", "completeness", "plausibility")


@pytest.mark.parametrize("form", ENCODED)
def test_a_key_in_an_answer_that_is_accepted_is_in_nothing_that_is_kept_or_shown(
    canaries: None, tmp_path: Path, form: str
) -> None:
    manifest = edits(tmp_path, 2)
    store = tmp_path / "s.db"
    with canned(answering(ENCODED[form]), CANARY), pacing(tries=2, patience=0.2):
        judges = [word for judge in JUDGES for word in ("--judge", judge)]
        told = [
            editjudge(
                "run",
                manifest,
                *judges,
                "--rubric",
                "fidelity",
                "--store",
                store,
                "--name",
                "r",
            )
        ]
    assert told[0].code == 0, told[0].err
    told += [
        editjudge("export", "r", "-o", tmp_path / f, "--format", f, "--store", store)
        for f in ("jsonl", "parquet")
    ]
    told += [
        editjudge("report", "r", "-o", tmp_path / "r.html", "--store", store),
        editjudge("runs", "show", "r"),
    ]
    kept = [
        *files_below(tmp_path),
        *((Path("told"), (one.out + one.err).encode()) for one in told),
    ]
    needles = [CANARY, ENCODED[form], ENCODED[form].replace("\\\\", "\\")]
    assert [
        path for path, data in kept for needle in needles if needle.encode() in data
    ] == []
    assert [path for path, data in kept if not clean(data)] == []
    assert b"[key]" in b"".join(
        data
        for path, data in kept
        if path.name == "replies.jsonl" or path.suffix == ".jsonl"
    )


def test_the_keys_of_other_providers_are_taken_out_as_well() -> None:
    environ = {
        "OPENAI_API_KEY": "sk-one-123456",
        "ANTHROPIC_API_KEY": "sk-two-123456",
        "VLLM_API_KEY": "EMPTY",
    }
    endpoint = resolve("openai/m", environ=environ)
    assert endpoint.redacted("sk-one-123456 sk-two-123456 EMPTY") == "[key] [key] EMPTY"
    body = b'{"a": "sk-two-123456 \xff"}'
    assert endpoint.redacted_body(body) == b'{"a": "[key] \xff"}'
    assert endpoint.redacted_body(b"\xff\x00") == b"\xff\x00"


def test_pages_and_rewards_of_a_server_with_keys_and_a_token(
    canaries: None, tmp_path: Path
) -> None:
    with (
        canned(echoing, CANARY),
        serving(tmp_path / "s.db", judge="openai/m", token=TOKEN) as served,
    ):
        answers = [
            served.client.get(f"{served.url}{path}")
            for path in ("/", "/sign-in", "/nowhere", "/v1/judge")
        ]
        served.client.headers["authorization"] = f"Bearer {TOKEN}"
        answers.append(served.post("reward", {"edits": [edit()], "deadline": 20}))
        answers.append(
            served.post("judge", {"edits": [edit()], "judge": f"openai/{'x' * 9}"})
        )
        answers += [
            served.client.get(f"{served.url}{path}")
            for path in ("/", "/runs/1", "/runs/1/edits/e0", "/openapi.json")
        ]
        assert [a.status_code for a in answers].count(200) >= 4
        for answer in answers:
            assert clean(answer.text) and clean(str(answer.headers.raw)), answer.url
    assert [path for path, data in files_below(tmp_path) if not clean(data)] == []


def test_a_traceback_with_the_values_of_its_frames_holds_no_key(canaries: None) -> None:
    """As tools print it that show local variables."""
    import traceback

    endpoint = resolve("openai/m", "http://127.0.0.1:9/v1")
    try:
        asyncio.run(fail(endpoint))
    except ZeroDivisionError as error:
        shown = "".join(
            traceback.TracebackException.from_exception(
                error, capture_locals=True
            ).format()
        )
    assert "endpoint" in shown and clean(shown)
    assert clean(repr(endpoint)) and clean(str(vars(HttpTransport)))


async def fail(endpoint: Any) -> None:
    raise ZeroDivisionError


def test_a_key_in_the_wrong_place_is_refused_without_being_repeated(
    canaries: None, tmp_path: Path
) -> None:
    words = (
        "run",
        edits(tmp_path, 1),
        "--judge",
        "openai/m",
        "--store",
        tmp_path / "s.db",
    )
    for url in (
        f"https://user:{CANARY}@host/v1",
        f"https://host/v1?key={CANARY}",
        f"https://{CANARY}:x/v1",
    ):
        told = editjudge(*words, "--base-url", url)
        assert told.code == 2 and clean(told), told.err


def test_the_password_of_a_database_is_in_nothing_that_verbs_say_or_keep(
    postgres: Server, tmp_path: Path
) -> None:
    place = postgres.new_place()
    manifest = edits(tmp_path, 1)
    (tmp_path / "r.jsonl").write_text(
        json.dumps({"item": "e0", "rubric": "fidelity", "reply": "{}"})
    )
    judged = (
        "--judge",
        f"replay:{tmp_path / 'r.jsonl'}",
        "--rubric",
        "fidelity",
        "--name",
        "r",
        "--max-failures",
        "1",
    )
    told = [editjudge("run", manifest, *judged, "--store", place)]
    assert told[0].code == 0
    export = ("export", "r", "-o", tmp_path / "x", "--format", "jsonl")
    verbs = (
        ("doctor",),
        ("runs", "list"),
        ("runs", "show", "r", "--json"),
        ("report", "r"),
        ("report", "gone"),
        export,
    )
    told += [editjudge(*words, "--store", place) for words in verbs]
    assert [one for one in told if not clean(one)] == []
    with start("serve", "--store", place, "--port", "0", folder=tmp_path) as server:
        assert server.stderr
        first = server.stderr.readline()
        server.terminate()
        assert "http://127.0.0.1" in first and "postgresql://" in first
        assert clean(first + server.stderr.read())
    assert [path for path, data in files_below(tmp_path) if not clean(data)] == []


def test_the_token_of_serve_is_not_in_what_it_says(
    canaries: None, tmp_path: Path
) -> None:
    command = [
        sys.executable,
        "-m",
        "editjudge",
        "serve",
        "--store",
        str(tmp_path / "s.db"),
        "--create",
        "--port",
        "0",
    ]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    ) as server:
        assert server.stderr
        first = server.stderr.readline()
        server.terminate()
        until(lambda: server.poll() is not None)
        assert "http://" in first and clean(first + server.stderr.read())
