"""Google's batches: a file of questions, an operation over it, a file of answers."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Mapping
from typing import Any

from editjudge.judges import batch as batch_api
from editjudge.judges import body as pieces
from editjudge.judges.body import count, mapping, string
from editjudge.judges.messages import CallFailed

MOST_QUESTIONS = 50_000
"""Google names no limit; this many answers are fetched in one go elsewhere too."""
MOST_BYTES = 190_000_000  # 2 GB would do; what a batch is made of is in memory while it is sent
HEADERS: Mapping[str, str] = {}

_TYPE = "application/jsonl"
_ENDED = ("SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED", "PARTIALLY_SUCCEEDED")


def line(custom_id: str, body: batch_api.Body) -> batch_api.Body:
    return (f'{{"key":{json.dumps(custom_id)},"request":'.encode(), *body, b"}\n")


async def submit(calls: batch_api.HttpCalls, part: batch_api.BatchPart) -> str:
    file = await _upload(calls, part.mark, tuple(piece for line in part.lines for piece in line))
    name = part.model if part.model.startswith(("models/", "tunedModels/")) else f"models/{part.model}"
    job = {"batch": {"displayName": part.mark, "inputConfig": {"fileName": file}}}
    path = f"v1beta/{urllib.parse.quote(name, safe='/')}:batchGenerateContent"
    batch, _ = await calls.post(path, pieces.encode(job))
    return string(batch.get("name"))


async def _upload(calls: batch_api.HttpCalls, mark: str, body: batch_api.Body) -> str:
    size = str(sum(map(len, body)))
    start = {
        "x-goog-upload-protocol": "resumable",
        "x-goog-upload-command": "start",
        "x-goog-upload-header-content-length": size,
        "x-goog-upload-header-content-type": _TYPE,
    }
    described = {"file": {"displayName": mark, "mimeType": _TYPE, "sizeBytes": size}}
    _, headers = await calls.post("upload/v1beta/files", pieces.encode(described), start)
    # Only the path: the key goes along, and it goes to nobody but who was named.
    there = urllib.parse.urlsplit(pieces.header(headers, "x-goog-upload-url") or "")
    path = f"{there.path.lstrip('/')}?{there.query}"
    send = {"x-goog-upload-command": "upload, finalize", "x-goog-upload-offset": "0", "content-type": _TYPE}
    document, _ = await calls.post(path, body, send)
    name = string(mapping(document.get("file")).get("name"))
    if not name:
        raise CallFailed("server", "the file of questions was not taken")
    return name


async def look(calls: batch_api.HttpCalls, batch_id: str) -> batch_api.BatchJob:
    batch = await calls.get(f"v1beta/{batch_id}")
    about = mapping(batch.get("metadata"))
    stats, state = mapping(about.get("batchStats")), string(about.get("state")).rpartition("_STATE_")[2]
    answered = sum(_number(stats.get(f"{kind}RequestCount")) for kind in ("successful", "failed"))
    file = string(mapping(about.get("output")).get("responsesFile"))
    file = file or string(mapping(batch.get("response")).get("responsesFile"))
    if state == "FAILED" and not file:
        message = string(mapping(batch.get("error")).get("message"))
        return batch_api.BatchJob(True, answered, problem=pieces.cleaned(message) or "no reason given")
    return batch_api.BatchJob(state in _ENDED, answered, (f"v1beta/{file}:download?alt=media",) if file else ())


def _number(value: object) -> int:
    """Numbers of 64 bits are text in JSON for protocol buffers."""
    return int(value) if isinstance(value, str) and value.isdecimal() else count(value) or 0


_STATUSES = {1: 499, 3: 400, 4: 504, 5: 404, 7: 403, 8: 429, 9: 400, 14: 503, 16: 401}
"""Codes of google.rpc as those of HTTP; all others are failures of the server."""


def answer(line: Mapping[str, Any]) -> batch_api.BatchAnswer:
    key = string(line.get("key"))
    if isinstance(line.get("response"), dict):
        return batch_api.BatchAnswer(key, 200, json.dumps(line["response"]).encode())
    error = mapping(line.get("error")) or mapping(line.get("status")) or {"message": "the batch has no answer to this"}
    code = count(error.get("code")) or 0
    status = code if 400 <= code < 600 else _STATUSES.get(code, 500)
    return batch_api.BatchAnswer(key, status, json.dumps({"error": error}).encode())


async def find(calls: batch_api.HttpCalls, lost: batch_api.LostAnswer) -> batch_api.BatchSearch:
    page = ""
    for _ in range(batch_api.PAGES):
        listed = await calls.get(f"v1beta/batches?pageSize=100{page}")
        for batch in batch_api.rows(listed.get("operations")):
            if mapping(batch.get("metadata")).get("displayName") == lost.mark:
                return batch_api.BatchSearch(string(batch.get("name")))
        token = string(listed.get("nextPageToken"))
        if not token:
            break
        page = f"&pageToken={urllib.parse.quote(token, safe='')}"
    return batch_api.BatchSearch()
