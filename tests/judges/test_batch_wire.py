"""Batches as we hand them in and fetch them are as the vendors' own clients do it, against the same server."""

from __future__ import annotations

import asyncio
import email
import io
import json
from collections.abc import Iterator
from email.message import Message as HttpHeaders
from typing import Any

import pytest

from editjudge.judges import batch
from editjudge.judges.batch import BatchCalls, BatchJob, BatchPart
from editjudge.judges.chat import ChatJudge
from editjudge.judges.http import HttpTransport
from editjudge.judges.judge import Options
from editjudge.judges.providers import resolve
from editjudge.judges.wire import Conversation, RejectedTurn
from editjudge.rubrics.prompt import TextPart
from editjudge.running.pace import Pace
from tests.stub.server import Stub, serve_in_thread

from .test_wire_against_sdks import as_we_spell_it

KEY = "sk-not-a-real-key"
MARK = "0123456789abcdef"
ID = "0123456789abcdef-k"
TEXT = "Judge “it”.\nedit-0123456789abcdef online_factor_results alignment"
QUESTION = Conversation(
    parts=(TextPart(TEXT),), images={}, turns=(RejectedTurn("seven", "No: JSON."),)
)
ENVIRON = {"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY, "GOOGLE_API_KEY": KEY}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stub]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serve_in_thread() as stub:
        yield stub


class Ours:
    """One of our batches, handed in, looked at and fetched without a run around it."""

    def __init__(self, spec: str, url: str) -> None:
        self._endpoint = resolve(spec, url, ENVIRON)
        self._spec = spec
        self.desk = batch.batch_client(spec)

    def _do(self, what: Any) -> Any:
        async def done() -> Any:
            async with HttpTransport() as transport:
                talker = ChatJudge(
                    self._spec,
                    self._endpoint,
                    Options(max_tokens=99),
                    Pace(self._spec),
                    transport,
                )
                return await what(BatchCalls(talker, transport))

        return asyncio.run(done())

    def submit(self) -> str:
        request = self._endpoint.request(QUESTION, Options(max_tokens=99))
        _, headers = self._endpoint.address(request)
        part = BatchPart(
            self._endpoint.model, MARK, [self.desk.line(ID, request.body)], headers
        )
        return str(self._do(lambda calls: self.desk.submit(calls, part)))

    def look(self, id_: str) -> BatchJob:
        found: BatchJob = self._do(lambda calls: self.desk.look(calls, id_))
        return found

    def find(self, mark: str) -> str | None:
        found: str | None = self._do(lambda calls: self.desk.find(calls, mark, 0.0, 1))
        return found


def posted(server: Stub) -> list[tuple[str, dict[str, str], bytes]]:
    """Path, headers and body of each POST since the last time."""
    found = [
        (path, headers, body) for _, path, headers, body in server.batches.requests
    ]
    server.batches.requests.clear()
    return found


# --- OpenAI ---------------------------------------------------------------------------------------------------


def openai_line() -> dict[str, Any]:
    messages = [
        {"role": "user", "content": [{"type": "text", "text": TEXT}]},
        {"role": "assistant", "content": "seven"},
        {"role": "user", "content": "No: JSON."},
    ]
    body = {"model": "stub", "messages": messages, "max_completion_tokens": 99}
    return {
        "custom_id": ID,
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": body,
    }


def form_of(headers: dict[str, str], body: bytes) -> dict[str, HttpHeaders]:
    whole = email.message_from_bytes(
        b"content-type: " + headers["content-type"].encode() + b"\r\n\r\n" + body
    )
    return {
        str(part.get_param("name", header="content-disposition")): part
        for part in whole.walk()
    }


def payload(part: HttpHeaders) -> bytes:
    found = part.get_payload(decode=True)
    assert isinstance(found, bytes)
    return found


def test_openai(server: Stub) -> None:
    import openai

    ours = Ours("openai/stub", f"{server.url}/v1")
    mine = ours.submit()
    (path, headers, body), (batch_path, batch_headers, asked) = posted(server)
    with openai.OpenAI(
        api_key=KEY, base_url=f"{server.url}/v1", max_retries=0
    ) as client:
        line = json.dumps(openai_line()).encode() + b"\n"
        file = client.files.create(
            file=("x.jsonl", line, "application/jsonl"), purpose="batch"
        )
        theirs = client.batches.create(
            completion_window="24h",
            endpoint="/v1/chat/completions",
            input_file_id=file.id,
            metadata={"editjudge": MARK},
        )
        (
            (their_path, their_headers, their_body),
            (their_batch_path, their_batch_headers, their_asked),
        ) = posted(server)
        assert (path, batch_path) == (their_path, their_batch_path)
        assert (
            headers["authorization"]
            == their_headers["authorization"]
            == batch_headers["authorization"]
        )
        assert batch_headers["content-type"] == their_batch_headers["content-type"]
        form = form_of(headers, body)
        their_form = form_of(their_headers, their_body)
        assert form.keys() == their_form.keys()
        assert form["purpose"].get_payload() == their_form["purpose"].get_payload()
        assert form["file"].get_content_type() == their_form["file"].get_content_type()
        lines = [payload(part["file"]) for part in (form, their_form)]
        assert json.loads(lines[0]) == json.loads(lines[1])
        assert json.loads(asked) | {"input_file_id": ""} == json.loads(their_asked) | {
            "input_file_id": ""
        }
        # What we read is what they read.
        assert (
            not ours.look(mine).ended
            and client.batches.retrieve(mine).status == "completed"
        )
        job = ours.look(mine)
        seen = client.batches.retrieve(mine)
        assert job.results == (
            f"files/{seen.output_file_id}/content",
            f"files/{seen.error_file_id}/content",
        )
        answer = json.loads(client.files.content(str(seen.output_file_id)).text)
        assert ours.desk.answer(answer)[0] == ID
        assert [b.id for b in client.batches.list(limit=100) if b.metadata] == [
            theirs.id,
            mine,
        ]
    assert ours.find(MARK) == theirs.id and ours.find("other") == ""


# --- Anthropic ------------------------------------------------------------------------------------------------


def test_anthropic(server: Stub) -> None:
    import anthropic

    ours = Ours("anthropic/stub", server.url)
    mine = ours.submit()
    ((path, headers, body),) = posted(server)
    messages: list[Any] = [
        {"role": "user", "content": [{"type": "text", "text": TEXT}]},
        {"role": "assistant", "content": "seven"},
        {"role": "user", "content": "No: JSON."},
    ]
    with anthropic.Anthropic(api_key=KEY, base_url=server.url, max_retries=0) as client:
        params: Any = {"model": "stub", "max_tokens": 99, "messages": messages}
        client.messages.batches.create(requests=[{"custom_id": ID, "params": params}])
        ((their_path, their_headers, their_body),) = posted(server)
        assert (path, json.loads(body)) == (their_path, json.loads(their_body))
        for name in ("anthropic-version", "content-type"):
            assert headers[name] == their_headers[name]
        assert not ours.look(mine).ended
        assert client.messages.batches.retrieve(mine).processing_status == "ended"
        (result,) = client.messages.batches.results(mine)
        assert ours.look(mine).results == (f"v1/messages/batches/{mine}/results",)
        kinds = {
            result.result.type,
            server.batches.batches[mine].results[0]["result"]["type"],
        }
        assert len(kinds) == 1 and result.custom_id == ID
    assert ours.find(MARK)


def test_a_batch_of_anthropic_that_is_at_work_may_be_ours_and_nobody_can_tell(
    server: Stub,
) -> None:
    server.batches.manners.looks = 10**6
    ours = Ours("anthropic/stub", server.url)
    ours.submit()
    assert ours.find(MARK) is None


# --- Google ---------------------------------------------------------------------------------------------------


def test_google(server: Stub) -> None:
    from google import genai
    from google.genai import types

    ours = Ours("google/stub", server.url)
    mine = ours.submit()
    start, sent, created = posted(server)
    contents = [
        {"role": "user", "parts": [{"text": TEXT}]},
        {"role": "model", "parts": [{"text": "seven"}]},
        {"role": "user", "parts": [{"text": "No: JSON."}]},
    ]
    request = {"contents": contents, "generationConfig": {"maxOutputTokens": 99}}
    line = (
        json.dumps(
            {"key": ID, "request": request}, ensure_ascii=False, separators=(",", ":")
        ).encode()
        + b"\n"
    )
    options = types.HttpOptions(base_url=server.url, api_version="v1beta")
    with genai.Client(api_key=KEY, vertexai=False, http_options=options) as client:
        config = types.UploadFileConfig(
            mime_type="application/jsonl", display_name=MARK
        )
        file = client.files.upload(file=io.BytesIO(line), config=config)
        client.batches.create(
            model="stub", src=str(file.name), config={"display_name": MARK}
        )
        their_start, their_sent, their_created = posted(server)
        assert start[0] == their_start[0]
        described = json.loads(start[2])["file"]
        theirs = as_we_spell_it(json.loads(their_start[2]))["file"]
        # 64 bits are text in JSON, or should be
        assert described == theirs | {"sizeBytes": str(theirs["sizeBytes"])}
        for name in (n for n in their_start[1] if n.startswith("x-goog-upload")):
            assert start[1][name] == their_start[1][name]
        assert sent[2] == their_sent[2] == line
        for name in ("x-goog-upload-command", "x-goog-upload-offset"):
            assert sent[1][name] == their_sent[1][name]
        assert created[0] == their_created[0]
        blank = {"batch": {"inputConfig": None}}
        assert {**json.loads(created[2])["batch"], **blank["batch"]} == {
            **json.loads(their_created[2])["batch"],
            **blank["batch"],
        }
        assert not ours.look(mine).ended
        seen = client.batches.get(name=mine)
        assert (
            seen.state
            and seen.state.name == "JOB_STATE_SUCCEEDED"
            and seen.dest
            and seen.dest.file_name
        )
        assert ours.look(mine).results == (
            f"v1beta/{seen.dest.file_name}:download?alt=media",
        )
        answers = client.files.download(file=seen.dest.file_name)
        assert ours.desk.answer(json.loads(answers))[0] == ID
    assert ours.find(MARK) and ours.find("other") == ""


def test_the_place_to_upload_to_is_not_taken_from_the_server_beyond_its_path(
    server: Stub,
) -> None:
    """The key goes along, so a server cannot send us elsewhere."""
    ours = Ours("google/stub", server.url)
    ours.submit()
    assert server.batches.requests[1][1].startswith("/upload-here?")
