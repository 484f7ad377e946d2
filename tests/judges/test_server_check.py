"""`doctor --server`: what a server does is found out by asking it, whatever it says of itself."""

from __future__ import annotations

import base64
import http.server
import json
import math
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.faults import check_error
from tests.running.made import editjudge, edits, environment

KEY = "sk-canary-0f1e2d3c4b5a69788796a5b4"
Document = dict[str, Any]
Answer = Callable[[Document], tuple[int, Any]]
"""A request to the status and the document of what it is told."""


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_COMPATIBLE_API_KEY", KEY)


@contextmanager
def server(
    answer: Answer, models: Any = None, delay: threading.Event | None = None
) -> Iterator[tuple[str, list[Any]]]:
    requests: list[Document] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            listed = (
                {"data": [{"id": "tiny", "max_model_len": 512}]}
                if models is None
                else models
            )
            self._send(*((200, listed) if self.path == "/v1/models" else (404, {})))

        def do_POST(self) -> None:
            requests.append(
                json.loads(self.rfile.read(int(self.headers["content-length"])))
            )
            status, document = answer(requests[-1])
            if status == 0 and delay:
                delay.wait(20)
            self._send(status or 200, document)

        def _send(self, status: int, document: Any) -> None:
            body = (
                document
                if isinstance(document, bytes)
                else json.dumps(document).encode()
            )
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            if status == 302:
                self.send_header("location", "http://127.0.0.1:9/")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """A client that hung up."""

    with Server(("127.0.0.1", 0), Handler) as one:
        thread = threading.Thread(target=one.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{one.server_port}", requests
        finally:
            if delay:
                delay.set()
            one.shutdown()
            thread.join()


def saying(text: str, tokens: int = 10, **choice: Any) -> Document:
    message = {
        "message": {"role": "assistant", "content": text},
        "finish_reason": "stop",
    }
    return {
        "id": "1",
        "model": "tiny",
        "choices": [message | choice],
        "usage": {"prompt_tokens": tokens},
    }


def pictures_in(request: Document) -> list[str]:
    content = request["messages"][0]["content"]
    return [part["image_url"]["url"] for part in content if part["type"] == "image_url"]


def word_of(request: Document) -> str:
    """The only word that the schema allows, wherever the schema stands."""
    match = re.search(r'"enum": \["(\w+)"\]', json.dumps(request))
    assert match
    return match[1]


def good(
    request: Document, mass: float = 1.0, supports: str = "json_schema"
) -> tuple[int, Document]:
    """A server that does everything; its probabilities are `mass` on what the schema allows."""
    shown = pictures_in(request)
    length = 10 + 7 * len(shown)
    if len(json.dumps(request["messages"])) - sum(map(len, shown)) > 1_000:
        return 400, {
            "message": "This model's maximum context length is 512 tokens",
            "code": "context_length_exceeded",
        }
    if any(
        b"this is not an image" in base64.b64decode(url.partition(",")[2])
        for url in shown
    ):
        return 400, {"message": "cannot identify image file"}
    enforced = {
        "json_schema": request.get("response_format", {}).get("type") == "json_schema",
        "json_object": request.get("response_format", {}).get("type") == "json_object",
        "guided_json": "guided_json" in request,
    }[supports]
    text = f'{{"code":"{word_of(request)}"}}' if enforced else "yes"
    choices = [saying(text, length)["choices"][0]] * request.get("n", 1)
    if request.get("logprobs"):
        pieces = [text[:9], *text[9:]] if enforced else [text]
        content: list[Document] = [
            {"token": p, "logprob": math.log(mass), "top_logprobs": []} for p in pieces
        ]
        choices = [choices[0] | {"logprobs": {"content": content}}]
    return 200, saying(text, length) | {"choices": choices}


def doctor(url: str, *words: object) -> Document:
    told = editjudge("doctor", "--server", url, "--json", *words)
    assert told.code == 0, told.err
    document: Document = told.json
    return document


def test_what_a_server_does_is_found_out_by_asking() -> None:
    with server(good) as (url, _):
        found = doctor(url)
    assert found["server"] == f"{url}/v1" and found["model"] == "tiny"
    assert found["pictures"] == {"max": 16, "formats": ["jpeg", "png", "webp", "gif"]}
    assert (found["schema"], found["logprobs"]) == ("enforced", "masked")
    assert {name: found["limits"][name] for name in ("context", "choices", "top_logprobs", "picture_tokens")} == {
        "context": 512, "choices": 4, "top_logprobs": 20, "picture_tokens": 7,
    }  # fmt: skip
    statuses = {
        name: (error["status"], error["code"])
        for name, error in found["errors"].items()
    }
    assert statuses["long_question"] == ("error", "context_too_small")
    assert statuses["broken_picture"] == ("bad_image", "bad_image")


def test_probabilities_that_are_not_of_what_the_schema_allows_are_unmasked() -> None:
    with server(lambda request: good(request, mass=0.01)) as (url, _):
        assert doctor(url)["logprobs"] == "unmasked"


@pytest.mark.parametrize("field", ["response_format", "logprobs", "n"])
def test_what_is_refused_is_said_with_the_words_of_the_server(field: str) -> None:
    def answer(request: Document) -> tuple[int, Any]:
        refused = {"error": {"message": f"{field} is not supported", "param": field}}
        return (400, refused) if field in request else good(request)

    with server(answer) as (url, _):
        found = doctor(url)
    expected: dict[str, tuple[Any, Any]] = {
        "response_format": (found["schema"], "refused"),
        "logprobs": (found["logprobs"], "none"),
        "n": (found["limits"]["choices"], 1),
    }
    assert expected[field][0] == expected[field][1]
    name = {"response_format": "schema", "n": "choices"}.get(field, field)
    assert f"{field} is not supported" in found["errors"][name]["message"]


def test_a_schema_that_changes_nothing_is_ignored_and_its_probabilities_unmasked() -> (
    None
):
    with server(lambda request: good(request, supports="guided_json")) as (
        url,
        requests,
    ):
        found = doctor(url)
        assert (found["schema"], found["schema_request"]) == ("enforced", "guided_json")
        nothing = doctor(url, "--model", "other")
    assert nothing["schema"] == "enforced"

    def plain(request: Document) -> tuple[int, Any]:
        content = [{"token": "yes", "logprob": 0.0}]
        return 200, saying("yes", logprobs={"content": content}) if request.get(
            "logprobs"
        ) else saying("yes")

    with server(plain) as (url, requests):
        found = doctor(url)
    assert (found["schema"], found["logprobs"]) == ("ignored", "unmasked")
    assert "counts no more tokens" in found["errors"]["pictures"]["message"]
    assert found["errors"]["broken_picture"]["status"] == "ok"
    assert requests


@pytest.mark.parametrize("most", [0, 1, 3, 11])
def test_the_most_pictures_are_counted(most: int) -> None:
    def answer(request: Document) -> tuple[int, Any]:
        if len(pictures_in(request)) > most:
            return 400, {
                "message": f"At most {most} image(s) may be provided in one prompt."
            }
        return good(request)

    with server(answer) as (url, _):
        assert doctor(url)["pictures"]["max"] == most


def test_what_takes_too_long_is_not_known_and_the_rest_is() -> None:
    def answer(request: Document) -> tuple[int, Any]:
        return (0, {}) if pictures_in(request) else good(request)

    with server(answer, delay=threading.Event()) as (url, _):
        found = doctor(url, "--timeout", 1)
    assert found["schema"] == "enforced" and found["pictures"] == {
        "max": None,
        "formats": [],
    }
    assert found["errors"]["png"]["code"] == "timeout"
    assert found["errors"]["broken_picture"]["status"] == "unreachable"


HOSTILE: dict[str, tuple[int, Any]] = {
    "a page": (200, b"<html>login</html>"),
    "deep": (200, b"[" * 100_000),
    "no message": (200, {"choices": [{}]}),
    "a redirect": (302, {}),
    "an error": (500, {"error": {"message": "\x1b[2J broken"}}),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_server_that_answers_no_plain_question_is_an_error_in_words(
    kind: str,
) -> None:
    with server(lambda _: HOSTILE[kind]) as (url, _):
        result = editjudge("doctor", "--server", url)
    assert result.code == 1 and "\x1b" not in result.err
    check_error(result.error, "no_plain_answer", url)


@pytest.mark.parametrize(
    "models",
    [
        [],
        {"data": 7},
        {"data": [7, {"id": 8}, {"id": ""}]},
        b"\xff\xfe",
        {"data": [{"id": "\x1b[2J" * 2_000}]},
    ],
)
def test_a_list_of_models_that_is_none_asks_for_the_name(models: Any) -> None:
    with server(good, models=models) as (url, _):
        told = editjudge("doctor", "--server", url)
        assert "\x1b" not in told.out + told.err
        assert told.code == 0 or "name one with --model" in told.err
        assert doctor(f"{url}/v1", "--model", "tiny")["schema"] == "enforced"


def test_odd_probabilities_are_none_of_them_taken() -> None:
    def answer(request: Document) -> tuple[int, Any]:
        odd = [
            {"token": 5},
            {"token": "a", "logprob": "x"},
            {"bytes": [300], "logprob": 0},
            7,
            None,
        ]
        status, document = good(request)
        for choice in document.get("choices", ()):
            choice["logprobs"] = {"content": odd}
        return status, document

    with server(answer) as (url, _):
        assert doctor(url)["logprobs"] == "none"


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_key_that_the_server_repeats_is_not_shown(form: tuple[str, ...]) -> None:
    def answer(request: Document) -> tuple[int, Any]:
        if request.get("logprobs") or pictures_in(request):
            return 400, {"error": {"message": f"no: {KEY}"}}
        return good(request)

    with server(answer, models={"data": [{"id": KEY}]}) as (url, requests):
        told = editjudge("doctor", "--server", url, *form)
    assert told.code == 0 and requests
    assert KEY not in told.out + told.err and "[key]" in told.out


def test_a_server_that_is_not_there_or_wants_a_key_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = editjudge("doctor", "--server", "http://127.0.0.1:9/v1")
    assert told.code == 1 and "127.0.0.1:9" in told.err
    with server(lambda _: (401, {"error": {"message": "wrong key"}})) as (url, _):
        told = editjudge("doctor", "--server", url)
    assert (
        told.code == 1
        and "OPENAI_COMPATIBLE_API_KEY" in told.err
        and KEY not in told.err
    )
    assert editjudge("doctor", "--server", "ftp://x").code == 2
    assert editjudge("doctor", "--model", "tiny").code == 2


# --- what runs make of it -------------------------------------------------------------------------------------


def run(url: str, folder: Path, name: str, *more: str) -> Document:
    folder.mkdir(exist_ok=True)
    words = (
        "--judge",
        "openai-compatible/tiny",
        "--base-url",
        f"{url}/v1",
        "--retries-invalid",
        0,
        "--json",
        *more,
    )
    told = editjudge(
        "run",
        edits(folder, 1),
        "--rubric",
        "compliance",
        "--store",
        folder / f"{name}.db",
        *words,
    )
    exported = editjudge(
        "export",
        told.json["id"],
        "-o",
        folder / name,
        "--format",
        "jsonl",
        "--store",
        folder / f"{name}.db",
    )
    assert exported.code == 0, exported.err
    document: Document = json.loads(
        (folder / name / "judgements.jsonl").read_text().splitlines()[0]
    )
    return document


def test_a_run_requests_the_schema_with_the_option_that_the_check_names_and_keeps_its_keys(
    tmp_path: Path,
) -> None:
    with (
        environment({"EDITJUDGE_STORE": None}),
        server(lambda r: good(r, supports="json_object")) as (url, requests),
    ):
        before = run(url, tmp_path / "e", "before")
        assert requests[-1]["response_format"]["type"] == "json_schema"
        assert doctor(url)["schema_request"] == "json_object"
        told = editjudge("doctor", "--server", url)
        option = "-J schema_request=json_object"
        assert f"enforced with {option}" in told.out
        after = run(url, tmp_path / "e", "after", *option.split())
        assert requests[-1]["response_format"]["type"] == "json_object"
        assert "schema_request" not in requests[-1]
        again = run(url, tmp_path / "e", "after")
    assert before["key"] == after["key"] == again["key"]


def test_a_way_of_requesting_a_schema_that_does_not_exist_is_refused(
    tmp_path: Path,
) -> None:
    words = ("--judge", "openai-compatible/tiny", "--base-url", "http://127.0.0.1:9/v1")
    told = editjudge("run", edits(tmp_path, 1), *words, "-J", "schema_request=please")
    assert told.code == 2
    assert "expected json_schema, json_object, guided_json" in told.err
