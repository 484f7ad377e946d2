"""Anthropic's message batches: all questions in one request, answers as lines of one file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from editjudge.judges import batch as batch_api
from editjudge.judges.anthropic import VERSION
from editjudge.judges.body import count, mapping, string

MOST_QUESTIONS = 100_000
MOST_BYTES = 240_000_000  # 256 MB
HEADERS = {"anthropic-version": VERSION}

_PATH = "v1/messages/batches"


def line(custom_id: str, body: batch_api.Body) -> batch_api.Body:
    return (f'{{"custom_id":{json.dumps(custom_id)},"params":'.encode(), *body, b"}")


async def submit(calls: batch_api.HttpCalls, part: batch_api.BatchPart) -> str:
    version = {"anthropic-version": part.headers.get("anthropic-version", VERSION)}
    batch, _ = await calls.post(_PATH, (b'{"requests":[', *_listed(part.lines), b"]}"), version)
    return string(batch.get("id"))


def _listed(lines: Sequence[batch_api.Body]) -> Iterator[bytes]:
    for number, line in enumerate(lines):
        if number:
            yield b","
        yield from line


async def look(calls: batch_api.HttpCalls, batch_id: str) -> batch_api.BatchJob:
    batch = await calls.get(f"{_PATH}/{batch_id}", HEADERS)
    counts = mapping(batch.get("request_counts"))
    answered = sum(count(counts.get(name)) or 0 for name in ("succeeded", "errored", "canceled", "expired"))
    return batch_api.BatchJob(
        string(batch.get("processing_status")) == "ended", answered, (f"{_PATH}/{batch_id}/results",)
    )


def answer(line: Mapping[str, Any]) -> batch_api.BatchAnswer:
    custom_id, result = string(line.get("custom_id")), mapping(line.get("result"))
    match string(result.get("type")):
        case "succeeded":
            return batch_api.BatchAnswer(custom_id, 200, json.dumps(mapping(result.get("message"))).encode())
        case "errored":  # has a type by which the wire format knows it, and no status
            return batch_api.BatchAnswer(custom_id, 200, json.dumps(mapping(result.get("error"))).encode())
        case other:
            error = {"type": "timeout_error", "message": f"the batch ended before this was answered ({other})"}
            return batch_api.BatchAnswer(custom_id, 504, json.dumps({"type": "error", "error": error}).encode())


async def find(calls: batch_api.HttpCalls, lost: batch_api.LostAnswer) -> batch_api.BatchSearch:
    """A batch here has no place for a mark but in its answers, which are there once it has ended: until then one of
    the same time and size may be ours, and nobody can tell."""
    page, sure = "", True
    for _ in range(batch_api.PAGES):
        listed = await calls.get(f"{_PATH}?limit=100{page}", HEADERS)
        for batch in batch_api.rows(listed.get("data")):
            if batch_api.seconds_of(batch.get("created_at")) < lost.since - batch_api.SLACK:
                return batch_api.BatchSearch(sure=sure)
            if sum(count(n) or 0 for n in mapping(batch.get("request_counts")).values()) != lost.questions:
                continue
            id_ = string(batch.get("id"))
            if batch.get("processing_status") != "ended":
                sure = False
            elif string((await calls.head_of(f"{_PATH}/{id_}/results", HEADERS)).get("custom_id")).startswith(
                lost.mark
            ):
                return batch_api.BatchSearch(id_)
        if not listed.get("has_more"):
            break
        page = f"&after_id={string(listed.get('last_id'))}"
    return batch_api.BatchSearch(sure=sure)
