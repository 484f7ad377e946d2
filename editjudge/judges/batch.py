"""Batch APIs of the providers: many questions submitted together, answers fetched later."""

from __future__ import annotations

import datetime
import json
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from editjudge.errors import UsageError
from editjudge.judges import wire
from editjudge.judges.anthropic import VERSION
from editjudge.judges.failures import CallFailed, cleaned
from editjudge.judges.wire import count, mapping, objects, string

Body = tuple[bytes, ...]
"""A request body in pieces."""

MAX_PAGES = 1_000
"""Pages of a provider's list of batches that are read, so that an endless list does not hold up a run."""
CLOCK_SKEW = 600.0
"""Seconds by which our clock and a provider's may differ."""


@dataclass(frozen=True, slots=True)
class BatchAnswer:
    """The outcome of one question, as the HTTP response that it would have had alone."""

    custom_id: str
    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class BatchJob:
    """The provider's view of a batch."""

    ended: bool
    answered: int = 0
    results: tuple[str, ...] = ()
    """Paths of files with a line for each answer."""
    problem: str = ""
    """Reason for which the batch was rejected, if it was."""


@dataclass(slots=True)
class BatchPart:
    """A batch that is being filled."""

    model: str
    mark: str
    """Our own identifier, by which the batch can be found again."""
    lines: list[Body] = field(default_factory=list)
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers that one of its questions would have alone."""

    @property
    def body(self) -> Body:
        """Return all lines as one body."""
        return tuple(piece for line in self.lines for piece in line)


@dataclass(frozen=True, slots=True)
class LostAnswer:
    """A submission whose response was lost, so that the batch may exist and its id is unknown."""

    mark: str
    since: float
    questions: int


@dataclass(frozen=True, slots=True)
class BatchSearch:
    """Result of looking for a batch of ours in the provider's list."""

    id: str | None = None
    sure: bool = True
    """Whether there is none, if none was found."""


class HttpCalls(Protocol):
    """Requests to a provider other than questions; each raises `CallFailed` unless it succeeds."""

    async def post(
        self, path: str, body: Body, headers: Mapping[str, str] = {}
    ) -> tuple[Any, Mapping[str, str]]:
        """Send once and return the document and the headers of the response; the caller decides about retries."""
        ...

    async def get(self, path: str, headers: Mapping[str, str] = {}) -> Any:
        """Return the document at a path."""
        ...

    async def head_of(self, path: str, headers: Mapping[str, str] = {}) -> Any:
        """Return the first line of a file of JSON lines."""
        ...


class BatchClient(Protocol):
    """The batch API of a provider."""

    max_questions: int
    max_bytes: int
    headers: Mapping[str, str]

    def line(self, custom_id: str, body: Body) -> Body:
        """Return a question as part of a batch."""
        ...

    async def submit(self, calls: HttpCalls, part: BatchPart) -> str:
        """Submit a batch, with our mark if the API has a field for it, and return its id."""
        ...

    async def look(self, calls: HttpCalls, batch_id: str) -> BatchJob:
        """Return the state of a batch."""
        ...

    def answer(self, line: Mapping[str, Any]) -> BatchAnswer:
        """Read a line of a file of results."""
        ...

    async def find(self, calls: HttpCalls, lost: LostAnswer) -> BatchSearch:
        """Look for a batch of ours in the provider's list."""
        ...


class OpenAIBatches:
    """A file of questions, a batch over it, files of answers and of errors."""

    max_questions = 50_000
    max_bytes = 190_000_000  # 200 MB, less room for the form around it
    headers: Mapping[str, str] = {}

    _URL = "/v1/chat/completions"

    def line(self, custom_id: str, body: Body) -> Body:
        opening = {"custom_id": custom_id, "method": "POST", "url": self._URL}
        return (
            json.dumps(opening, separators=(",", ":"))[:-1].encode() + b',"body":',
            *body,
            b"}\n",
        )

    async def submit(self, calls: HttpCalls, part: BatchPart) -> str:
        # Written by hand: the HTTP client's own forms copy what they send.
        # Neither base64 nor JSON has a line that begins with two hyphens.
        boundary = f"editjudge-{part.mark}"
        opening = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
            f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{part.mark}.jsonl"\r\n'
            "Content-Type: application/jsonl\r\n\r\n"
        )
        closing = f"\r\n--{boundary}--\r\n"
        form = (opening.encode(), *part.body, closing.encode())
        content_type = f"multipart/form-data; boundary={boundary}"
        file, _ = await calls.post("files", form, {"content-type": content_type})
        job = {
            "completion_window": "24h",
            "endpoint": self._URL,
            "input_file_id": string(file.get("id")),
            "metadata": {"editjudge": part.mark},
        }
        batch, _ = await calls.post("batches", wire.encode(job))
        return string(batch.get("id"))

    async def look(self, calls: HttpCalls, batch_id: str) -> BatchJob:
        batch = await calls.get(f"batches/{batch_id}")
        counts = mapping(batch.get("request_counts"))
        status = string(batch.get("status"))
        if status == "failed":
            error = wire.first(mapping(batch.get("errors")).get("data")) or {}
            return BatchJob(True, problem=_reason(error))
        files = (
            string(batch.get(name)) for name in ("output_file_id", "error_file_id")
        )
        return BatchJob(
            status in ("completed", "expired", "cancelled"),
            (count(counts.get("completed")) or 0) + (count(counts.get("failed")) or 0),
            tuple(f"files/{file}/content" for file in files if file),
        )

    def answer(self, line: Mapping[str, Any]) -> BatchAnswer:
        custom_id = string(line.get("custom_id"))
        response = mapping(line.get("response"))
        if response:
            status = count(response.get("status_code")) or 502
            return _answer(custom_id, status, mapping(response.get("body")))
        error = mapping(line.get("error")) or {
            "message": "the batch ended without an answer"
        }
        return _answer(custom_id, 504, {"error": error})

    async def find(self, calls: HttpCalls, lost: LostAnswer) -> BatchSearch:
        page = ""
        for _ in range(MAX_PAGES):
            listed = await calls.get(f"batches?limit=100{page}")
            batches = objects(listed.get("data"))
            for batch in batches:
                if mapping(batch.get("metadata")).get("editjudge") == lost.mark:
                    return BatchSearch(string(batch.get("id")))
            if not batches or not listed.get("has_more"):
                break
            # The newest come first.
            oldest = count(batches[-1].get("created_at")) or 0
            if oldest < lost.since - CLOCK_SKEW:
                break
            page = f"&after={string(batches[-1].get('id'))}"
        return BatchSearch()


class AnthropicBatches:
    """All questions in one request, answers as lines of one file."""

    max_questions = 100_000
    max_bytes = 240_000_000  # 256 MB
    headers: Mapping[str, str] = {"anthropic-version": VERSION}

    _PATH = "v1/messages/batches"

    def line(self, custom_id: str, body: Body) -> Body:
        opening = f'{{"custom_id":{json.dumps(custom_id)},"params":'
        return (opening.encode(), *body, b"}")

    async def submit(self, calls: HttpCalls, part: BatchPart) -> str:
        version = {"anthropic-version": part.headers.get("anthropic-version", VERSION)}
        body: list[bytes] = []
        for line in part.lines:
            body += (b"," if body else b'{"requests":[', *line)
        batch, _ = await calls.post(self._PATH, (*body, b"]}"), version)
        return string(batch.get("id"))

    async def look(self, calls: HttpCalls, batch_id: str) -> BatchJob:
        batch = await calls.get(f"{self._PATH}/{batch_id}", self.headers)
        counts = mapping(batch.get("request_counts"))
        ended = ("succeeded", "errored", "canceled", "expired")
        return BatchJob(
            string(batch.get("processing_status")) == "ended",
            sum(count(counts.get(name)) or 0 for name in ended),
            (f"{self._PATH}/{batch_id}/results",),
        )

    def answer(self, line: Mapping[str, Any]) -> BatchAnswer:
        custom_id = string(line.get("custom_id"))
        result = mapping(line.get("result"))
        match string(result.get("type")):
            case "succeeded":
                return _answer(custom_id, 200, mapping(result.get("message")))
            case "errored":  # it has no status; the wire format reads its type
                return _answer(custom_id, 200, mapping(result.get("error")))
            case other:
                error = {
                    "type": "timeout_error",
                    "message": f"the batch ended before this was answered ({other})",
                }
                return _answer(custom_id, 504, {"type": "error", "error": error})

    async def find(self, calls: HttpCalls, lost: LostAnswer) -> BatchSearch:
        """Look for a batch of the same time and size.

        The API has no field for a mark. Our mark is in the answers alone, which are there once a batch has ended:
        until then nobody can tell whether it is ours.
        """
        page = ""
        sure = True
        for _ in range(MAX_PAGES):
            listed = await calls.get(f"{self._PATH}?limit=100{page}", self.headers)
            for batch in objects(listed.get("data")):
                if _seconds(batch.get("created_at")) < lost.since - CLOCK_SKEW:
                    return BatchSearch(sure=sure)
                counts = mapping(batch.get("request_counts")).values()
                if sum(count(number) or 0 for number in counts) != lost.questions:
                    continue
                if batch.get("processing_status") != "ended":
                    sure = False
                    continue
                id_ = string(batch.get("id"))
                results = f"{self._PATH}/{id_}/results"
                line = await calls.head_of(results, self.headers)
                if string(line.get("custom_id")).startswith(lost.mark):
                    return BatchSearch(id_)
            if not listed.get("has_more"):
                break
            page = f"&after_id={string(listed.get('last_id'))}"
        return BatchSearch(sure=sure)


class GoogleBatches:
    """A file of questions, an operation over it, a file of answers."""

    max_questions = 50_000
    """Google names no limit; this many answers are fetched at once elsewhere too."""
    max_bytes = 190_000_000
    """2 GB are allowed; a batch is in memory while it is sent."""
    headers: Mapping[str, str] = {}

    _TYPE = "application/jsonl"
    _ENDED = ("SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED", "PARTIALLY_SUCCEEDED")
    _STATUSES: Mapping[int, int] = {
        1: 499,
        3: 400,
        4: 504,
        5: 404,
        7: 403,
        8: 429,
        9: 400,
        14: 503,
        16: 401,
    }
    """HTTP statuses of google.rpc's codes; all other codes are failures of the server."""

    def line(self, custom_id: str, body: Body) -> Body:
        return (f'{{"key":{json.dumps(custom_id)},"request":'.encode(), *body, b"}\n")

    async def submit(self, calls: HttpCalls, part: BatchPart) -> str:
        file = await self._upload(calls, part)
        name = part.model
        if not name.startswith(("models/", "tunedModels/")):
            name = f"models/{name}"
        job = {"batch": {"displayName": part.mark, "inputConfig": {"fileName": file}}}
        path = f"v1beta/{urllib.parse.quote(name, safe='/')}:batchGenerateContent"
        batch, _ = await calls.post(path, wire.encode(job))
        return string(batch.get("name"))

    async def _upload(self, calls: HttpCalls, part: BatchPart) -> str:
        size = str(sum(map(len, part.body)))
        start = {
            "x-goog-upload-protocol": "resumable",
            "x-goog-upload-command": "start",
            "x-goog-upload-header-content-length": size,
            "x-goog-upload-header-content-type": self._TYPE,
        }
        file = {"displayName": part.mark, "mimeType": self._TYPE, "sizeBytes": size}
        opening = wire.encode({"file": file})
        _, headers = await calls.post("upload/v1beta/files", opening, start)
        # Only the path of it: the key goes along, and to no other host.
        url = urllib.parse.urlsplit(wire.header(headers, "x-goog-upload-url") or "")
        send = {
            "x-goog-upload-command": "upload, finalize",
            "x-goog-upload-offset": "0",
            "content-type": self._TYPE,
        }
        path = f"{url.path.lstrip('/')}?{url.query}"
        document, _ = await calls.post(path, part.body, send)
        name = string(mapping(document.get("file")).get("name"))
        if not name:
            raise CallFailed("server", "the file of questions was not taken")
        return name

    async def look(self, calls: HttpCalls, batch_id: str) -> BatchJob:
        batch = await calls.get(f"v1beta/{batch_id}")
        metadata = mapping(batch.get("metadata"))
        stats = mapping(metadata.get("batchStats"))
        state = string(metadata.get("state")).rpartition("_STATE_")[2]
        answered = sum(
            _int64(stats.get(f"{kind}RequestCount"))
            for kind in ("successful", "failed")
        )
        outputs = (mapping(metadata.get("output")), mapping(batch.get("response")))
        files = [string(output.get("responsesFile")) for output in outputs]
        file = files[0] or files[1]
        if file:
            results = (f"v1beta/{file}:download?alt=media",)
            return BatchJob(state in self._ENDED, answered, results)
        if state == "FAILED":
            return BatchJob(
                True, answered, problem=_reason(mapping(batch.get("error")))
            )
        return BatchJob(state in self._ENDED, answered)

    def answer(self, line: Mapping[str, Any]) -> BatchAnswer:
        key = string(line.get("key"))
        if isinstance(line.get("response"), dict):
            return _answer(key, 200, line["response"])
        error = (
            mapping(line.get("error"))
            or mapping(line.get("status"))
            or {"message": "the batch has no answer to this"}
        )
        code = count(error.get("code")) or 0
        status = code if 400 <= code < 600 else self._STATUSES.get(code, 500)
        return _answer(key, status, {"error": error})

    async def find(self, calls: HttpCalls, lost: LostAnswer) -> BatchSearch:
        page = ""
        for _ in range(MAX_PAGES):
            listed = await calls.get(f"v1beta/batches?pageSize=100{page}")
            for batch in objects(listed.get("operations")):
                if mapping(batch.get("metadata")).get("displayName") == lost.mark:
                    return BatchSearch(string(batch.get("name")))
            token = string(listed.get("nextPageToken"))
            if not token:
                break
            page = f"&pageToken={urllib.parse.quote(token, safe='')}"
        return BatchSearch()


CLIENTS: Mapping[str, BatchClient] = {
    "openai": OpenAIBatches(),
    "anthropic": AnthropicBatches(),
    "google": GoogleBatches(),
}


def batch_client(spec: str) -> BatchClient:
    """Return the batch API of a judge; raise `UsageError` if it has none."""
    client = CLIENTS.get(spec.partition("/")[0])
    if client is None:
        providers = ", ".join(f"{name}/..." for name in CLIENTS)
        raise UsageError(
            f"{spec} has no batches: --batch is for {providers}. "
            "Run it without --batch, in a run of its own where others have batches"
        )
    return client


def _answer(custom_id: str, status: int, body: Mapping[str, Any]) -> BatchAnswer:
    return BatchAnswer(custom_id, status, json.dumps(body).encode())


def _reason(error: Mapping[str, Any]) -> str:
    return cleaned(string(error.get("message"))) or "no reason given"


def _seconds(text: object) -> float:
    """Return an RFC 3339 time as seconds since 1970; infinite if it is none, so that the batch is not passed over."""
    try:
        return datetime.datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return float("inf")


def _int64(value: object) -> int:
    """Return an integer of 64 bits, which JSON for protocol buffers writes as text."""
    if isinstance(value, str) and value.isdecimal():
        return int(value)
    return count(value) or 0
