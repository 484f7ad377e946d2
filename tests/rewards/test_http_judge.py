"""Reward servers as judges: statuses are kept, and what breaks the protocol never becomes a number."""

from __future__ import annotations

import http.server
import json
import os
import pickle
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from editjudge.judges.judge import Options
from editjudge.rewards.client import TOKEN, scorers
from editjudge.rewards.protocol import Terms
from tests.running.made import Done, editjudge, edits, pacing, run, stub, until
from tests.stub.server import Behaviour
from tests.web.served import serving

SERVED = Path(__file__).parents[2] / "examples" / "judges" / "served.py"
FACTORS = (
    "scale_realism spatial_relationship texture_and_detail image_quality "
    "color_and_lighting seamlessness"
).split()
FIVES = dict.fromkeys(FACTORS, 5)
APPEAL = """
name: appeal
description: Appeal.
task: Judge the edit.
images: [input, edited]
texts: [instruction]
scale: {range: [null, null]}
factors: [{key: appeal, definition: How good it looks.}]
answer: {words: [3, 40]}
"""


@contextmanager
def answering(say: Callable[[bytes], tuple[int, bytes]]) -> Iterator[str]:
    """A server that answers what the test says."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            status, answer = say(body)
            self.send_response(status)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def asked(
    folder: Path, url: str, *, count: int = 1, rubric: str = "quality", **extra: object
) -> Done:
    with pacing(tries=2):
        return run(
            edits(folder, count),
            folder / "client.db",
            judges=(f"http:{url}",),
            rubrics=(rubric,),
            options=Options(timeout=20.0, extra=extra),
        )


def judged(folder: Path, reward: object, **answer: object) -> dict[str, Any]:
    document = {"protocol": 1, "rewards": [reward], **answer}
    with answering(lambda _: (200, json.dumps(document).encode())) as url:
        return asked(folder, url).rows[0]


def test_a_real_server_s_scores_and_failures_are_kept(tmp_path: Path) -> None:
    with (
        stub(Behaviour(refusal=0.3)),
        serving(tmp_path / "s.db", terms=Terms(rubrics=("quality",))) as served,
    ):
        done = asked(tmp_path, served.url, count=12)
        (run_id,) = {listed.id for listed in served.store.runs()}
        theirs = Counter(
            (row["status"], str(row["scores"]))
            for row in served.store.judgements(run_id)
        )
    ours = Counter((row["status"], str(row["scores"])) for row in done.rows)
    assert ours == theirs
    assert done.statuses().keys() == {"ok", "refused"}
    assert done.row("e0")["server_model"] == "openai/stub"


@pytest.mark.parametrize(
    ("reward", "answer", "code"),
    [
        ({"status": "ok", "scores": FIVES | {"seamlessness": 8}}, {}, "score_out_of_scale"),
        ({"status": "ok", "scores": FIVES | {"seamlessness": "5"}}, {}, "not_a_number"),
        ({"status": "ok", "scores": {"beauty": 5}}, {}, "unknown_factor"),
        ({"status": "ok", "scores": {"seamlessness": 5}}, {}, "missing_factor"),
        ({"status": "ok", "reward": 0.5}, {}, "no_scores"),
        ({"reward": 0.0, "scores": FIVES}, {}, "unknown_status"),
        ({"status": "fine", "scores": FIVES}, {}, "unknown_status"),
        ({"status": "ok", "scores": FIVES, "id": "e7"}, {}, "wrong_id"),
        ({"status": "ok", "scores": FIVES}, {"rubrics": {"quality": "f" * 64}}, "other_rubric"),
        (5, {}, "unknown_status"),
        ({"status": "ok", "scores": FIVES}, {"rewards": []}, "wrong_batch"),
    ],
)  # fmt: skip
def test_what_is_not_of_the_protocol_is_invalid(
    reward: object, answer: dict[str, object], code: str, tmp_path: Path
) -> None:
    row = judged(tmp_path, reward, **answer)
    assert (row["status"], row["scores"]) == ("invalid", None)
    assert code in {reason["code"] for reason in row["reasons"]}


@pytest.mark.parametrize(
    ("status", "kept"),
    [
        ("refused", "refused"),
        ("bad_image", "bad_image"),
        ("pending", "unreachable"),
        ("instruction_not_judged", "abstained"),
        ("undefined", "abstained"),
        ("abstained", "abstained"),
    ],
)
def test_a_status_without_scores_stays_one(
    status: str, kept: str, tmp_path: Path
) -> None:
    row = judged(tmp_path, {"status": status, "reward": None, "scores": None})
    assert (row["status"], row["scores"]) == (kept, None)


@pytest.mark.parametrize(
    ("status", "body", "kept"),
    [
        (200, b"<html>", "invalid"),
        (200, b"[1, 2]", "invalid"),
        (200, b"{" * 100_000, "invalid"),
        (422, b'{"error": "no such rubric"}', "error"),
        (503, b"", "unreachable"),
    ],
)
def test_a_server_s_error_is_a_failure(
    status: int, body: bytes, kept: str, tmp_path: Path
) -> None:
    with answering(lambda _: (status, body)) as url:
        row = asked(tmp_path, url).rows[0]
    assert (row["status"], row["scores"]) == (kept, None)


def test_the_example_server_scores_and_fails_by_the_protocol(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen([sys.executable, str(SERVED), str(port)])
    try:
        until(lambda: _listens(port))
        url = f"http://127.0.0.1:{port}"
        done = asked(tmp_path, url, count=2)
        other = asked(tmp_path, url, count=1, rubric="fidelity")
    finally:
        server.kill()
        server.wait()
    assert done.statuses() == {"ok": 2}
    assert done.row("e0")["server_model"] == "contrast-1"
    assert other.statuses() == {"error": 1}


def _listens(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


# --- trained scorers ----------------------------------------------------------------------------------------------


def scored(folder: Path, name: str, say: Callable[[Any], object]) -> dict[str, Any]:
    """A judgement by a server that is like the scorer's own."""
    (folder / "appeal.yaml").write_text(APPEAL)

    def answer(body: bytes) -> tuple[int, bytes]:
        said = say(pickle.loads(body))  # noqa: S301  (from our own client)
        return 200, said if isinstance(said, bytes) else pickle.dumps(said)

    with answering(answer) as url:
        return asked(folder, url, rubric=str(folder / "appeal.yaml"), server=name).rows[
            0
        ]


def test_editreward_s_server_is_understood(tmp_path: Path) -> None:
    def say(request: Any) -> object:
        assert len(request["images"]["source"]) == len(request["images"]["edited"])
        assert request["images"]["edited"][0].startswith(b"\x89PNG")
        assert request["prompts"] == ["Paint car 0 red."]
        return {"scores": [-1.25]}

    row = scored(tmp_path, "editreward", say)
    assert (row["status"], row["scores"]) == ("ok", {"appeal": -1.25})


def test_editscore_s_server_is_understood(tmp_path: Path) -> None:
    def say(request: Any) -> object:
        assert isinstance(request["output_image"][0], Image.Image)
        assert isinstance(request["input_images"][0][0], Image.Image)
        assert json.loads(request["meta_data"][0])["instruction"] == "Paint car 0 red."
        return [{"reward": 0.75, "score": 1.0, "reasoning": "Well done."}]

    row = scored(tmp_path, "editscore", say)
    assert (row["status"], row["scores"]) == ("ok", {"appeal": 0.75})
    assert row["justifications"] == {"appeal": "Well done."}


class Hostile:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch hostile",)


@pytest.mark.parametrize(
    ("answer", "status", "code"),
    [
        ({"error": "CUDA out of memory"}, "error", "scorer_failed"),
        ({"scores": []}, "invalid", "missing_factor"),
        ({"scores": [float("nan")]}, "invalid", "score_out_of_scale"),
        ({"scores": ["0.5"]}, "invalid", "not_a_number"),
        ({"scores": [[0.5, 0.5]]}, "invalid", "not_a_number"),
        ({"rewards": [0.5]}, "invalid", "missing_factor"),
        ({"scores": [Hostile()]}, "invalid", "not_plain"),
        (b"no pickle", "invalid", "not_plain"),
    ],
)
def test_a_scorer_s_bad_answer_is_never_a_number(
    answer: object,
    status: str,
    code: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    row = scored(tmp_path, "editreward", lambda _: answer)
    assert (row["status"], row["scores"]) == (status, None)
    assert row["reasons"][0]["code"] == code
    assert not (tmp_path / "hostile").exists()


def test_every_row_of_the_table_sends_input_output_and_instruction() -> None:
    for scorer in scorers().values():
        template = json.dumps(scorer.request)
        assert "$input" in template and "$edited" in template
        assert "$instruction" in template or "$described" in template


@pytest.mark.parametrize(
    "words",
    [
        ("--judge", "http:ftp://example.org", "--rubric", "quality"),
        ("--judge", "http://user:secret@127.0.0.1:9", "--rubric", "quality"),
        ("--judge", "http://127.0.0.1:9", "-J", "server=editrewrd"),
        ("--judge", "http://127.0.0.1:9", "-J", "sever=editreward"),
        ("--judge", "http://127.0.0.1:9", "--rubric", "preference"),
    ],
)
def test_what_cannot_be_asked_is_a_usage_error(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    edits(tmp_path, 1)
    told = editjudge("run", "edits.jsonl", *words)
    assert told.code == 2
    assert "secret" not in told.err


def test_the_token_goes_to_the_server_and_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN, "token-of-the-test")
    said = json.dumps({"error": "Bearer token-of-the-test is unknown"}).encode()
    with answering(lambda _: (422, said)) as url:
        row = asked(tmp_path, url).rows[0]
    assert row["status"] == "error"
    assert "token-of-the-test" not in json.dumps(row)
