"""The providers' batch APIs, to which many questions are submitted at once, and whose answers are fetched later."""

from __future__ import annotations

import dataclasses
import datetime
import json
import re
import tempfile
import urllib.parse
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import IO, Protocol

from editjudge.errors import UsageError
from editjudge.judges import wire
from editjudge.judges.anthropic import VERSION
from editjudge.judges.chat import ChatJudge
from editjudge.judges.failures import CallFailed, cleaned
from editjudge.judges.google import model_path
from editjudge.judges.http import HttpTransport, Response
from editjudge.judges.wire import ChatRequest, count, document, mapping, objects, string

Body = tuple[bytes, ...]
"""A request body in pieces."""
BatchAnswer = tuple[str, int, bytes]
"""Our id of a question, with the status and body of the HTTP response that it would have received on its own."""

MAX_PAGES = 1_000
"""Maximum number of pages that are read from a provider's list of batches. An endless list cannot block a run."""
CLOCK_SKEW = 600.0
"""Maximum difference in seconds between our clock and the provider's."""


@dataclass(frozen=True, slots=True)
class BatchJob:
    """State of a batch at the provider."""

    ended: bool
    answered: int = 0
    results: tuple[str, ...] = ()
    """Paths of result files, with an answer on each line."""
    problem: str = ""
    """Reason why the batch was rejected; empty if it was not."""


@dataclass(slots=True)
class BatchPart:
    """A batch that is being filled."""

    model: str
    mark: str
    """Our own identifier of the batch, by which it can be found again."""
    lines: list[Body] = field(default_factory=list)
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers that each question would have on its own."""

    @property
    def body(self) -> Body:
        """All lines as one body."""
        return tuple(piece for line in self.lines for piece in line)


class BatchCalls:
    """Sends requests other than questions to a provider, with the judge's address and API key. Each method raises
    `CallFailed` if its request does not succeed.
    """

    def __init__(self, judge: ChatJudge, transport: HttpTransport) -> None:
        self._judge = judge
        self._transport = transport

    async def post(
        self, path: str, body: Body, headers: Mapping[str, str] = {}
    ) -> tuple[dict[str, object], Mapping[str, str]]:
        """Send a request once, and return the response's document and headers. It is up to the caller to retry."""
        address = self._address(path, headers)
        response = self._checked(await self._transport.post(*address, body))
        return document(response.body), response.headers

    async def get(
        self, path: str, headers: Mapping[str, str] = {}
    ) -> dict[str, object]:
        """Send a GET request and return the JSON document of the response."""
        address = self._address(path, headers)
        answer = document(self._checked(await self._transport.get(*address)).body)
        if not answer:
            raise CallFailed("server", "the server sent no JSON", status=200)
        return answer

    async def head_of(
        self, path: str, headers: Mapping[str, str] = {}
    ) -> dict[str, object]:
        """Return the first line of a JSONL file."""
        with tempfile.TemporaryFile() as file:
            await self.download(path, file, headers)
            file.seek(0)
            return document(file.readline())

    async def download(
        self, path: str, into: IO[bytes], headers: Mapping[str, str]
    ) -> int:
        """Save a file and return its size."""
        address = self._address(path, headers)
        self._checked(await self._transport.get(*address, into))
        return into.tell()

    def _address(
        self, path: str, headers: Mapping[str, str]
    ) -> tuple[str, dict[str, str]]:
        # The ids in a path come from a server.
        if ".." in path or not re.fullmatch(r"[\x21-\x7e]+", path):
            raise CallFailed(
                "server", "the provider named something that cannot be an id"
            )
        return self._judge.endpoint.address(ChatRequest(path, (), headers))

    def _checked(self, response: Response) -> Response:
        if not 200 <= response.status < 300:
            self._judge.parse_response(response)  # raises the error, without the key
            raise CallFailed(
                "server", f"HTTP {response.status}", status=response.status
            )
        body = self._judge.endpoint.redacted_body(response.body)
        return dataclasses.replace(response, body=body)


class BatchClient(Protocol):
    """Batch API of a provider."""

    max_questions: int
    max_bytes: int
    headers: Mapping[str, str] = {}

    def line(self, custom_id: str, body: Body) -> Body:
        """Return a question as a line of a batch."""
        ...

    async def submit(self, calls: BatchCalls, part: BatchPart) -> str:
        """Submit a batch and return its id. The batch carries our mark if the API has a field for one."""
        ...

    async def look(self, calls: BatchCalls, batch_id: str) -> BatchJob:
        """Request the state of a batch from the provider and return it."""
        ...

    def answer(self, line: Mapping[str, object]) -> BatchAnswer:
        """Parse a line of a result file."""
        ...

    async def find(
        self, calls: BatchCalls, mark: str, since: float, questions: int
    ) -> str | None:
        """Search for a batch whose submission was not confirmed.

        Return the batch's id, an empty string if there is no such batch, or None if it cannot be determined yet.
        """
        ...

    async def _listed(
        self, calls: BatchCalls, path: str, name: str
    ) -> AsyncIterator[dict[str, object]]:
        """Yield the account's batches, newest first."""
        page = ""
        for _ in range(MAX_PAGES):
            listed = await calls.get(f"{path}{page}", self.headers)
            for batch in objects(listed.get(name)):
                yield batch
            page = self._next_page(listed)
            if not page:
                return

    def _next_page(self, listed: Mapping[str, object]) -> str:
        """Return the query parameter for the next page of a list, or an empty string if there are no more pages."""
        ...


class OpenAIBatches(BatchClient):
    """OpenAI's batch API: a file of questions, a batch that processes it, and files of answers and errors."""

    max_questions = 50_000
    max_bytes = 190_000_000  # 200 MB, less room for the form around it

    _URL = "/v1/chat/completions"

    def line(self, custom_id: str, body: Body) -> Body:
        opening = {"custom_id": custom_id, "method": "POST", "url": self._URL}
        return (
            json.dumps(opening, separators=(",", ":"))[:-1].encode() + b',"body":',
            *body,
            b"}\n",
        )

    async def submit(self, calls: BatchCalls, part: BatchPart) -> str:
        # Written by hand, since the HTTP client's own forms copy their content. Neither base64 nor JSON has a line
        # that begins with two hyphens.
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

    async def look(self, calls: BatchCalls, batch_id: str) -> BatchJob:
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

    def answer(self, line: Mapping[str, object]) -> BatchAnswer:
        custom_id = string(line.get("custom_id"))
        response = mapping(line.get("response"))
        if response:
            status = count(response.get("status_code")) or 502
            return _answer(custom_id, status, mapping(response.get("body")))
        error = mapping(line.get("error")) or {
            "message": "the batch ended without an answer"
        }
        return _answer(custom_id, 504, {"error": error})

    async def find(
        self, calls: BatchCalls, mark: str, since: float, questions: int
    ) -> str | None:
        async for batch in self._listed(calls, "batches?limit=100", "data"):
            if mapping(batch.get("metadata")).get("editjudge") == mark:
                return string(batch.get("id"))
            if (count(batch.get("created_at")) or 0) < since - CLOCK_SKEW:
                break
        return ""

    def _next_page(self, listed: Mapping[str, object]) -> str:
        batches = objects(listed.get("data"))
        if not batches or not listed.get("has_more"):
            return ""
        return f"&after={string(batches[-1].get('id'))}"


class AnthropicBatches(BatchClient):
    """Anthropic's batch API: all questions in one request, and one file of answers."""

    max_questions = 100_000
    max_bytes = 240_000_000  # 256 MB
    headers: Mapping[str, str] = {"anthropic-version": VERSION}

    _PATH = "v1/messages/batches"

    def line(self, custom_id: str, body: Body) -> Body:
        opening = f'{{"custom_id":{json.dumps(custom_id)},"params":'
        return (opening.encode(), *body, b"}")

    async def submit(self, calls: BatchCalls, part: BatchPart) -> str:
        version = {"anthropic-version": part.headers.get("anthropic-version", VERSION)}
        body: list[bytes] = []
        for line in part.lines:
            body += (b"," if body else b'{"requests":[', *line)
        batch, _ = await calls.post(self._PATH, (*body, b"]}"), version)
        return string(batch.get("id"))

    async def look(self, calls: BatchCalls, batch_id: str) -> BatchJob:
        batch = await calls.get(f"{self._PATH}/{batch_id}", self.headers)
        counts = mapping(batch.get("request_counts"))
        ended = ("succeeded", "errored", "canceled", "expired")
        return BatchJob(
            string(batch.get("processing_status")) == "ended",
            sum(count(counts.get(name)) or 0 for name in ended),
            (f"{self._PATH}/{batch_id}/results",),
        )

    def answer(self, line: Mapping[str, object]) -> BatchAnswer:
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

    async def find(
        self, calls: BatchCalls, mark: str, since: float, questions: int
    ) -> str | None:
        """Search for a batch that was submitted at the same time and has the same size.

        The API has no field for our mark. Only the answers contain it, and they are not available until the batch has
        ended. Until then it is unknown whether the batch is ours.
        """
        none: str | None = ""
        async for batch in self._listed(calls, f"{self._PATH}?limit=100", "data"):
            if _seconds(batch.get("created_at")) < since - CLOCK_SKEW:
                break
            counts = mapping(batch.get("request_counts")).values()
            if sum(count(number) or 0 for number in counts) != questions:
                continue
            if batch.get("processing_status") != "ended":
                none = None
                continue
            id_ = string(batch.get("id"))
            line = await calls.head_of(f"{self._PATH}/{id_}/results", self.headers)
            if string(line.get("custom_id")).startswith(mark):
                return id_
        return none

    def _next_page(self, listed: Mapping[str, object]) -> str:
        more = listed.get("has_more")
        return f"&after_id={string(listed.get('last_id'))}" if more else ""


class GoogleBatches(BatchClient):
    """Google's batch API: a file of questions, an operation that processes it, and a file of answers."""

    max_questions = 50_000
    """Google states no limit, so this is OpenAI's."""
    max_bytes = 190_000_000
    """Google allows 2 GB, but a batch is kept in memory while it is sent."""

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
    """HTTP statuses for google.rpc codes. All other codes are server failures."""

    def line(self, custom_id: str, body: Body) -> Body:
        return (f'{{"key":{json.dumps(custom_id)},"request":'.encode(), *body, b"}\n")

    async def submit(self, calls: BatchCalls, part: BatchPart) -> str:
        file = await self._upload(calls, part)
        job = {"batch": {"displayName": part.mark, "inputConfig": {"fileName": file}}}
        path = f"{model_path(part.model)}:batchGenerateContent"
        batch, _ = await calls.post(path, wire.encode(job))
        return string(batch.get("name"))

    async def _upload(self, calls: BatchCalls, part: BatchPart) -> str:
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
        # Only the path is used, so that the key is not sent to another host.
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

    async def look(self, calls: BatchCalls, batch_id: str) -> BatchJob:
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
        paths = [f"v1beta/{file}:download?alt=media" for file in files if file]
        problem = ""
        if state == "FAILED" and not paths:
            problem = _reason(mapping(batch.get("error")))
        return BatchJob(state in self._ENDED, answered, tuple(paths[:1]), problem)

    def answer(self, line: Mapping[str, object]) -> BatchAnswer:
        key = string(line.get("key"))
        response = line.get("response")
        if isinstance(response, dict):
            return _answer(key, 200, response)
        error = (
            mapping(line.get("error"))
            or mapping(line.get("status"))
            or {"message": "the batch has no answer to this"}
        )
        code = count(error.get("code")) or 0
        status = code if 400 <= code < 600 else self._STATUSES.get(code, 500)
        return _answer(key, status, {"error": error})

    async def find(
        self, calls: BatchCalls, mark: str, since: float, questions: int
    ) -> str | None:
        path = "v1beta/batches?pageSize=100"
        async for batch in self._listed(calls, path, "operations"):
            if mapping(batch.get("metadata")).get("displayName") == mark:
                return string(batch.get("name"))
        return ""

    def _next_page(self, listed: Mapping[str, object]) -> str:
        token = string(listed.get("nextPageToken"))
        return f"&pageToken={urllib.parse.quote(token, safe='')}" if token else ""


CLIENTS: Mapping[str, BatchClient] = {
    "openai": OpenAIBatches(),
    "anthropic": AnthropicBatches(),
    "google": GoogleBatches(),
}


def batch_client(spec: str) -> BatchClient:
    """Return the batch API for a judge. Raise `UsageError` if its provider has none."""
    client = CLIENTS.get(spec.partition("/")[0])
    if client is None:
        providers = ", ".join(f"{name}/..." for name in CLIENTS)
        raise UsageError(
            f"{spec} has no batches: --batch is for {providers}. "
            "Run it without --batch, in a run of its own if others have batches",
            code="no_batches",
        )
    return client


def _answer(custom_id: str, status: int, body: Mapping[str, object]) -> BatchAnswer:
    return custom_id, status, json.dumps(body).encode()


def _reason(error: Mapping[str, object]) -> str:
    return cleaned(string(error.get("message"))) or "no reason given"


def _seconds(text: object) -> float:
    """Return an RFC 3339 time as seconds since 1970. If it cannot be parsed, return infinity so that the batch is not
    skipped.
    """
    try:
        return datetime.datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return float("inf")


def _int64(value: object) -> int:
    """Return a 64-bit integer, which the JSON form of protocol buffers writes as a string."""
    if isinstance(value, str) and value.isdecimal():
        return int(value)
    return count(value) or 0
