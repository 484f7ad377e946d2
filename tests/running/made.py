"""Edits with tiny pictures, runs of them against the stub, and what it must have said, worked out a second time."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import http.server
import io
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from editjudge.cli import main
from editjudge.judgement import Exchange
from editjudge.judges.judge import Options
from editjudge.running import job as job_module
from editjudge.running.job import Job, Outcome, RunOptions, execute
from editjudge.running.pace import Circuit, Pace, Retry
from editjudge.store.store import Store
from tests.stub import answers
from tests.stub.server import Behaviour, Stub, expected_scores, serve_in_thread

SPECS = {
    "openai": "openai/stub",
    "anthropic": "anthropic/stub",
    "google": "google/stub",
}
"""A judge for each wire format."""
ONLINE = ("preservation", "quality", "fidelity")
SEED = 11


def variables(url: str, key: str = "key-of-the-stub") -> dict[str, str]:
    """What points each provider at the stub."""
    return {
        "OPENAI_BASE_URL": f"{url}/v1",
        "ANTHROPIC_BASE_URL": url,
        "GOOGLE_GEMINI_BASE_URL": url,
        "OPENAI_API_KEY": key,
        "ANTHROPIC_API_KEY": key,
        "GOOGLE_API_KEY": key,
        "GEMINI_API_KEY": key,
    }


def picture(*what: object) -> bytes:
    """A PNG of 8 x 8 pixels that is another one for anything else."""
    noise = hashlib.shake_128(repr(what).encode()).digest(8 * 8 * 3)
    out = io.BytesIO()
    Image.frombytes("RGB", (8, 8), noise).save(out, "PNG")
    return out.getvalue()


def write_old(path: Path, data: bytes) -> None:
    """A file that is not younger than the clock's grain, so that its digest is remembered."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    then = time.time_ns() - 3_600 * 10**9
    os.utime(path, ns=(then, then))


def write_manifest(folder: Path, rows: list[dict[str, Any]]) -> Path:
    path = folder / "edits.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def edits(folder: Path, count: int, **more: Any) -> Path:
    """A manifest of that many edits; four of them share an input."""
    rows = []
    for number in range(count):
        source = f"input-{number // 4}.png"
        edited = f"edited-{number}.png"
        if number % 4 == 0:
            write_old(folder / source, picture(source))
        write_old(folder / edited, picture(edited))
        row = {
            "id": f"e{number}",
            "input": source,
            "edited": edited,
            "instruction": f"Paint car {number} red.",
        }
        rows.append(row | {"model": f"m{number % 2}"} | more)
    return write_manifest(folder, rows)


def edit_pairs(folder: Path, count: int) -> Path:
    """A manifest of that many pairs: two outputs of one input each."""
    rows = []
    for number in range(count):
        row = {
            "id": f"p{number}",
            "instruction": f"Paint car {number} red.",
            "model_a": "m0",
            "model_b": "m1",
        }
        row |= {
            role: f"{role}-{number}.png" for role in ("input", "edited_a", "edited_b")
        }
        for role in ("input", "edited_a", "edited_b"):
            write_old(folder / row[role], picture(row[role]))
        rows.append(row)
    return write_manifest(folder, rows)


def rows_of(manifest: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in manifest.read_text().splitlines()]


def expected(manifest: Path, seed: int = SEED) -> dict[tuple[str, str], dict[str, int]]:
    """By item and rubric of the online set, what the stub says; the identifier is worked out from the files here."""
    said = {}
    for row in rows_of(manifest):
        content = {
            role: hashlib.sha256((manifest.parent / row[role]).read_bytes()).hexdigest()
            for role in _SHOWN
        }
        canonical = json.dumps(
            content | {"instruction": row["instruction"]}, sort_keys=True
        )
        identifier = f"edit-{hashlib.sha256(canonical.encode()).hexdigest()[:16]}"
        for rubric in ONLINE:
            said[row["id"], rubric] = expected_scores(seed, identifier, rubric)
    return said


_SHOWN = ("input", "edited")


@contextmanager
def stub(
    behaviour: Behaviour | None = None, *, seed: int = SEED, port: int = 0
) -> Iterator[Stub]:
    """The server in a thread, and the environment that leads to it."""
    with (
        serve_in_thread(behaviour, seed, port=port) as server,
        environment(variables(server.url)),
    ):
        yield server


@contextmanager
def environment(values: Mapping[str, str | None]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    _set(values)
    try:
        yield
    finally:
        _set(before)


def _set(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@dataclass
class Done:
    """A run that came to an end, and the store as it left it."""

    outcome: Outcome
    rows: list[dict[str, Any]]
    replies: dict[str, list[Exchange]]
    """By key, all that were ever kept."""
    said: list[str] = field(default_factory=list)

    def row(self, item: str, rubric: str | None = None) -> dict[str, Any]:
        (row,) = [
            r for r in self.rows if r["item"] == item and rubric in (None, r["rubric"])
        ]
        return row

    def statuses(self) -> dict[str, int]:
        return {
            status: count
            for status, count in self.outcome.summary.statuses.items()
            if count
        }


def run(
    manifest: Path,
    place: Path,
    *,
    judges: tuple[str, ...] = (SPECS["openai"],),
    rubrics: tuple[str, ...] = ("online",),
    options: Options | None = None,
    manner: Mapping[str, Any] | None = None,
    **job: Any,
) -> Done:
    """What `editjudge run` does, in this process."""
    wanted = Job(
        manifest, rubrics, judges, options=options or Options(timeout=20.0), **job
    )
    said: list[str] = []
    with Store.open(place) as store:
        outcome = asyncio.run(
            execute(wanted, store, RunOptions(**{"say": said.append, **(manner or {})}))
        )
        rows: list[dict[str, Any]] = [
            {**row} for row in store.judgements(outcome.run_id)
        ]
        replies = {row["key"]: store.replies(row["key"]) for row in rows}
    return Done(outcome, rows, replies, said)


@contextmanager
def pacing(
    *, first: float = 0.01, longest: float = 0.2, tries: int = 10, patience: float = 2.0
) -> Iterator[None]:
    """Runs that lose their patience sooner than users do."""
    retry = Retry(tries=tries, first=first, longest=longest)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            job_module, "Pace", functools.partial(Pace, retry=retry, seed=SEED)
        )
        patch.setattr(
            job_module, "Circuit", functools.partial(Circuit, patience=patience)
        )
        yield


def until(true: Callable[[], bool], seconds: float = 120.0) -> None:
    """Wait for something that must come true."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise TimeoutError("it did not come true")
        time.sleep(0.01)


# --- the command line -----------------------------------------------------------------------------------------

COMMAND = (sys.executable, "-m", "editjudge")


@dataclass(frozen=True)
class Told:
    code: int
    out: str
    err: str
    error: BaseException | None = None
    """What the verb raised, before it was worded for people."""

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def editjudge(*words: object) -> Told:
    """The command in this process."""
    out = io.StringIO()
    err = io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        patch.setattr(sys, "argv", ["editjudge", *map(str, words)])
        with pytest.raises(SystemExit) as left:
            main()
    code = left.value.code
    return Told(
        code if isinstance(code, int) else 0 if code is None else 1,
        out.getvalue(),
        err.getvalue(),
        left.value.__context__,
    )


def start(*words: object, folder: Path) -> subprocess.Popen[str]:
    """The command in a process of its own, in a session of its own so that a signal meets nobody else."""
    command = [*COMMAND, *map(str, words)]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, cwd=folder, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    )


# --- servers that the stub is not -----------------------------------------------------------------------------

Canned = Callable[[Mapping[str, str], bytes], tuple[int, dict[str, str], bytes]]
"""Headers and body of a request to the status, headers and body of what it is told."""


@contextmanager
def canned(say: Canned, key: str = "key-of-the-stub") -> Iterator[list[float]]:
    """A server that says what the test says; yields the times at which it was asked."""
    asked: list[float] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked.append(time.monotonic())
            body = self.rfile.read(int(self.headers["content-length"]))
            status, headers, said = say(dict(self.headers), body)
            self.send_response(status)
            headers = {
                "content-type": "application/json",
                "content-length": str(len(said)),
            } | headers
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *_: object) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """A client that left is none of our business."""

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            with environment(variables(f"http://127.0.0.1:{server.server_port}", key)):
                yield asked
        finally:
            server.shutdown()
            thread.join()


def answered(path: str, body: bytes, seed: int = SEED) -> dict[str, Any]:
    """The document that the stub would have sent."""
    wire = answers.wire_of(path)
    assert wire
    question = answers.read_question(wire, path, body)
    scores = expected_scores(seed, question.content_key, question.rubric)
    return answers.answer_body(
        question, answers.say(question, scores, None, False, 0.0), "tag"
    )
