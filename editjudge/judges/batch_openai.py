"""OpenAI's batches: a file of questions, a batch over it, files of answers and errors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from editjudge.judges import batch as batch_api
from editjudge.judges import body as pieces
from editjudge.judges.body import count, mapping, string

MOST_QUESTIONS = 50_000
MOST_BYTES = 190_000_000  # 200 MB, less room for the form around it
HEADERS: Mapping[str, str] = {}

_URL = "/v1/chat/completions"
_ENDED = ("completed", "expired", "cancelled")


def line(custom_id: str, body: batch_api.Body) -> batch_api.Body:
    opening = {"custom_id": custom_id, "method": "POST", "url": _URL}
    return (json.dumps(opening, separators=(",", ":"))[:-1].encode() + b',"body":', *body, b"}\n")


async def submit(calls: batch_api.HttpCalls, part: batch_api.BatchPart) -> str:
    file, _ = await calls.post("files", *form(part.mark, part.lines))
    job = {
        "completion_window": "24h",
        "endpoint": _URL,
        "input_file_id": string(file.get("id")),
        "metadata": {"editjudge": part.mark},
    }
    batch, _ = await calls.post("batches", pieces.encode(job))
    return string(batch.get("id"))


def form(mark: str, lines: Sequence[batch_api.Body]) -> tuple[batch_api.Body, dict[str, str]]:
    """The upload as a form, and its header. By hand: the client's own forms copy what they send."""
    edge = f"editjudge-{mark}"  # base64 and JSON hold no line that begins with two hyphens
    opening = (
        f'--{edge}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
        f'--{edge}\r\nContent-Disposition: form-data; name="file"; filename="{mark}.jsonl"\r\n'
        "Content-Type: application/jsonl\r\n\r\n"
    )
    body = (opening.encode(), *(piece for line in lines for piece in line), f"\r\n--{edge}--\r\n".encode())
    return body, {"content-type": f"multipart/form-data; boundary={edge}"}


async def look(calls: batch_api.HttpCalls, batch_id: str) -> batch_api.BatchJob:
    batch = await calls.get(f"batches/{batch_id}")
    counts, status = mapping(batch.get("request_counts")), string(batch.get("status"))
    if status == "failed":
        errors = mapping(batch.get("errors")).get("data")
        error = pieces.first(errors) or {}
        return batch_api.BatchJob(True, problem=pieces.cleaned(string(error.get("message"))) or "no reason given")
    files = [string(batch.get(name)) for name in ("output_file_id", "error_file_id")]
    return batch_api.BatchJob(
        status in _ENDED,
        (count(counts.get("completed")) or 0) + (count(counts.get("failed")) or 0),
        tuple(f"files/{file}/content" for file in files if file),
    )


def answer(line: Mapping[str, Any]) -> batch_api.BatchAnswer:
    response, error = mapping(line.get("response")), mapping(line.get("error"))
    custom_id = string(line.get("custom_id"))
    if response:
        return batch_api.BatchAnswer(
            custom_id, count(response.get("status_code")) or 502, _json(mapping(response.get("body")))
        )
    return batch_api.BatchAnswer(
        custom_id, 504, _json({"error": error or {"message": "the batch ended without an answer"}})
    )


async def find(calls: batch_api.HttpCalls, lost: batch_api.LostAnswer) -> batch_api.BatchSearch:
    page = ""
    for _ in range(batch_api.PAGES):
        listed = await calls.get(f"batches?limit=100{page}")
        batches = batch_api.rows(listed.get("data"))
        for batch in batches:
            if mapping(batch.get("metadata")).get("editjudge") == lost.mark:
                return batch_api.BatchSearch(string(batch.get("id")))
        # The newest come first.
        if (
            not batches
            or not listed.get("has_more")
            or (count(batches[-1].get("created_at")) or 0) < lost.since - batch_api.SLACK
        ):
            break
        page = f"&after={string(batches[-1].get('id'))}"
    return batch_api.BatchSearch()


def _json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document).encode()
