"""The batch APIs of three vendors, as a part of the stub: batches take their time, lose lines and answer twice."""

from __future__ import annotations

import email
import itertools
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from aiohttp import web

from tests.stub.answers import Json, Wire, draw

_CHAT = "/v1/chat/completions"
MOST_BYTES = {
    "/v1/files": 200 * 10**6,
    "/messages/batches": 256 * 10**6,
    "/upload-here": 2 * 10**9,
}
"""Largest body by the end of its path, as OpenAI, Anthropic and Google document it; elsewhere what chat takes."""
_MOST_ELSEWHERE = 20 * 2**20


@dataclass
class Manners:
    """How batches are treated; may be changed while the server runs. Probabilities are of lines."""

    looks: int = 1
    """Times a batch is looked at before it has ended."""
    expired: float = 0.0
    missing: float = 0.0
    """Neither answered nor accounted for."""
    errored: float = 0.0
    status: int = 500
    """Of what is `errored`, where the vendor says it so."""
    strangers: bool = False
    """An answer to something that was not asked, and one that comes twice."""
    turn_down: int = 0
    """So many batches are turned down as a whole."""
    unheard: int = 0
    """So many batches are taken, and the connection breaks before their id is sent."""
    flaky: float = 0.0
    """The share of GETs that meet 429 or 503."""
    page: int = 100


@dataclass
class Batch:
    id: str
    wire: Wire
    lines: list[Json]
    created: float
    mark: str | None = None
    looks: int = 0
    results: list[Json] = field(default_factory=list)
    problem: str = ""


class Server(Protocol):
    seed: int

    def answered_in_a_batch(self, wire: Wire, path: str, body: bytes) -> Any: ...


class Batches:
    """All batches of a stub."""

    def __init__(self, server: Server) -> None:
        self.manners = Manners()
        self.batches: dict[str, Batch] = {}
        self.files: dict[str, bytes] = {}
        self.calls: Counter[str] = Counter()
        """Requests by what they were for."""
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        """Method, path with query, headers and body of each POST."""
        self._server = server
        self._numbers = itertools.count(1)
        self._gets = itertools.count()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse | None:
        """A response, or None where this is no request about batches."""
        path = request.path
        if request.method == "GET":
            return self._get(request)
        most = next(
            (most for end, most in MOST_BYTES.items() if path.endswith(end)),
            _MOST_ELSEWHERE,
        )
        body = bytearray()
        async for chunk in request.content.iter_any():
            body += chunk
            if len(body) > most:
                return web.json_response(
                    {"error": {"message": f"more than {most:,} bytes"}}, status=413
                )
        return self._post(request, bytes(body))

    def _post(self, request: web.BaseRequest, body: bytes) -> web.StreamResponse | None:
        path = request.path
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.requests.append((request.method, request.path_qs, headers, body))
        if path.endswith("/messages/batches"):
            return self._take(request, "anthropic", json.loads(body)["requests"], None)
        if path.endswith("/v1/files"):
            return web.json_response(self._file(_uploaded(headers, body)))
        if path.endswith("/v1/batches"):
            asked = json.loads(body)
            lines = _lines(self.files[asked["input_file_id"]])
            return self._take(
                request, "openai", lines, (asked.get("metadata") or {}).get("editjudge")
            )
        if path == "/upload/v1beta/files":
            there = f"{request.scheme}://{request.host}/upload-here?upload_id={next(self._numbers)}"
            return web.json_response({}, headers={"x-goog-upload-url": there})
        if path == "/upload-here":
            file = {"file": {"name": self._file(body)["name"]}}
            return web.json_response(file, headers={"x-goog-upload-status": "final"})
        if path.endswith(":batchGenerateContent"):
            asked = json.loads(body)["batch"]
            lines = _lines(self.files[asked["inputConfig"]["fileName"]])
            for line in lines:
                line["path"] = path.replace(":batchG", ":g")
            return self._take(request, "google", lines, asked["displayName"])
        return None

    def _file(self, data: bytes) -> Json:
        name = f"files/file-{next(self._numbers)}"
        self.calls["upload"] += 1
        self.files[name] = self.files[name.removeprefix("files/")] = data
        created = {
            "object": "file",
            "bytes": len(data),
            "created_at": int(time.time()),
            "filename": "f.jsonl",
        }
        return created | {
            "id": name.removeprefix("files/"),
            "purpose": "batch",
            "status": "processed",
            "name": name,
        }

    # --- taking -----------------------------------------------------------------------------------------------

    def _take(
        self, request: web.BaseRequest, wire: Wire, lines: list[Json], mark: str | None
    ) -> web.StreamResponse:
        number = next(self._numbers)
        self.calls["create"] += 1
        batch = Batch(
            f"{'batches/' if wire == 'google' else 'batch_'}{number}",
            wire,
            lines,
            time.time(),
            mark,
        )
        self.batches[batch.id] = batch
        if self.manners.turn_down:
            self.manners.turn_down -= 1
            batch.problem = "Enqueued token limit reached"
        else:
            batch.results = list(self._work(batch, number))
        if self.manners.unheard:
            self.manners.unheard -= 1
            assert request.transport
            request.transport.close()
        return web.json_response(_SHOWN[wire](batch, ended=False))

    def _work(self, batch: Batch, number: int) -> Iterator[Json]:
        """Last things first: no vendor promises an order."""
        done = [
            self._line(batch, line, (number, at)) for at, line in enumerate(batch.lines)
        ]
        results = [line for line in reversed(done) if line is not None]
        if self.manners.strangers and results:
            name = "key" if batch.wire == "google" else "custom_id"
            results = [*results, results[0], {**results[0], name: "nobody-asked-this"}]
        yield from results

    def _line(self, batch: Batch, line: Json, place: tuple[int, int]) -> Json | None:
        def strikes(name: str) -> bool:
            return bool(
                draw(self._server.seed, name, *place) < getattr(self.manners, name)
            )

        if strikes("missing"):
            return None
        fate = next((name for name in ("expired", "errored") if strikes(name)), None)
        body = json.dumps(
            line.get("body") or line.get("params") or line.get("request")
        ).encode()
        paths = {
            "openai": _CHAT,
            "anthropic": "/v1/messages",
            "google": line.get("path", ""),
        }
        reply = (
            None
            if fate
            else self._server.answered_in_a_batch(batch.wire, paths[batch.wire], body)
        )
        said = (
            json.loads(reply.body)
            if reply and reply.body[:1] == b"{"
            else {"error": {"message": "broken"}}
        )
        return _LINES[batch.wire](
            line, fate, reply.status if reply else self.manners.status, said
        )

    # --- giving -----------------------------------------------------------------------------------------------

    def _get(self, request: web.BaseRequest) -> web.StreamResponse | None:
        path = request.path
        query = request.query
        listing = next(
            (wire for end, wire in _LISTS.items() if path.endswith(end)), None
        )
        name = (
            path.removeprefix("/v1beta/")
            if path.startswith("/v1beta")
            else path.rpartition("/batches/")[2]
        )
        name, _, rest = (
            name.partition("/")
            if not name.startswith(("batches/", "files/"))
            else (name, "", "")
        )
        known = name in self.batches or name.startswith("files/") or "/files/" in path
        if not listing and not known:
            return None
        if (
            draw(self._server.seed, "flaky", number := next(self._gets))
            < self.manners.flaky
        ):
            return web.json_response(
                {"error": {"message": "later"}}, status=(429, 503)[number % 2]
            )
        if listing:
            self.calls["list"] += 1
            return web.json_response(
                self._page(
                    listing,
                    query.get("after")
                    or query.get("after_id")
                    or query.get("pageToken"),
                )
            )
        if name in self.batches:
            batch = self.batches[name]
            if rest == "results":
                return self._results(batch.results)
            self.calls["look"] += 1
            batch.looks += 1
            return web.json_response(
                _SHOWN[batch.wire](batch, ended=batch.looks > self.manners.looks)
            )
        of, _, kind = (
            path.removeprefix("/v1beta/")
            .rpartition("/files/")[2]
            .removeprefix("files/")
            .partition("-of-")
        )
        batch = next(
            b
            for b in self.batches.values()
            if b.id.rpartition("_")[2].rpartition("/")[2] == _digits(kind)
        )
        failed = [line for line in batch.results if line.get("error")]
        if of == "errors":
            return self._results(failed)
        return self._results(
            [
                line
                for line in batch.results
                if batch.wire == "google" or line not in failed
            ]
        )

    def _results(self, lines: list[Json]) -> web.Response:
        self.calls["results"] += 1
        return web.Response(text="".join(json.dumps(line) + "\n" for line in lines))

    def _page(self, wire: Wire, after: str | None) -> Json:
        mine = [
            batch for batch in reversed(self.batches.values()) if batch.wire == wire
        ]
        start = 1 + [batch.id for batch in mine].index(after) if after else 0
        page = mine[start : start + self.manners.page]
        more = start + len(page) < len(mine)
        for batch in page:
            batch.looks += 1
        shown = [
            _SHOWN[wire](batch, ended=batch.looks > self.manners.looks)
            for batch in page
        ]
        last = page[-1].id if page else None
        if wire == "google":
            return {"operations": shown} | ({"nextPageToken": last} if more else {})
        return {
            "object": "list",
            "data": shown,
            "has_more": more,
            "first_id": None,
            "last_id": last,
        }


_LISTS: dict[str, Wire] = {
    "/messages/batches": "anthropic",
    "/v1/batches": "openai",
    "/v1beta/batches": "google",
}


def _digits(text: str) -> str:
    return "".join(itertools.takewhile(str.isdigit, text))


def _lines(data: bytes) -> list[Json]:
    return [json.loads(line) for line in data.splitlines() if line.strip()]


def _uploaded(headers: dict[str, str], body: bytes) -> bytes:
    """The file of a form, read by a parser that is not ours."""
    form = email.message_from_bytes(
        b"content-type: " + headers["content-type"].encode() + b"\r\n\r\n" + body
    )
    parts = {
        str(part.get_param("name", header="content-disposition")): part
        for part in form.walk()
    }
    assert parts["purpose"].get_payload(decode=True) == b"batch"
    return bytes(parts["file"].get_payload(decode=True))


# --- as the vendors say it ------------------------------------------------------------------------------------


def _openai(batch: Batch, ended: bool) -> Json:
    number = batch.id.rpartition("_")[2]
    status = "failed" if batch.problem else "completed" if ended else "in_progress"
    shown: Json = {
        "id": batch.id,
        "object": "batch",
        "endpoint": _CHAT,
        "completion_window": "24h",
    }
    shown |= {"input_file_id": "f", "created_at": int(batch.created), "status": status}
    shown |= {"metadata": {"editjudge": batch.mark} if batch.mark else None}
    shown |= {
        "request_counts": {
            "total": len(batch.lines),
            "completed": len(batch.lines) if ended else 0,
            "failed": 0,
        }
    }
    if batch.problem:
        shown["errors"] = {
            "object": "list",
            "data": [{"code": "token_limit_exceeded", "message": batch.problem}],
        }
    elif ended:
        shown |= {
            "output_file_id": f"answers-of-{number}",
            "error_file_id": f"errors-of-{number}",
        }
    return shown


def _anthropic(batch: Batch, ended: bool) -> Json:
    kinds = Counter(line["result"]["type"] for line in batch.results)
    counts = {
        name: kinds[name] if ended else 0
        for name in ("succeeded", "errored", "canceled", "expired")
    }
    counts["processing"] = len(batch.lines) - sum(counts.values())
    moment = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(batch.created))
    shown: Json = {
        "id": batch.id,
        "type": "message_batch",
        "created_at": moment,
        "expires_at": moment,
    }
    shown |= {
        "processing_status": "ended" if ended else "in_progress",
        "request_counts": counts,
    }
    return shown | {
        "results_url": f"/v1/messages/batches/{batch.id}/results" if ended else None
    }


def _google(batch: Batch, ended: bool) -> Json:
    state = "FAILED" if batch.problem else "SUCCEEDED" if ended else "RUNNING"
    about: Json = {
        "displayName": batch.mark,
        "state": f"BATCH_STATE_{state}",
        "model": "models/stub",
    }
    about["batchStats"] = {"requestCount": str(len(batch.lines))}
    shown: Json = {
        "name": batch.id,
        "metadata": about,
        "done": ended or bool(batch.problem),
    }
    if batch.problem:
        shown["error"] = {"code": 8, "message": batch.problem}
    elif ended:
        about["output"] = {
            "responsesFile": f"files/answers-of-{batch.id.rpartition('/')[2]}"
        }
    return shown


_SHOWN: dict[Wire, Callable[..., Json]] = {
    "openai": _openai,
    "anthropic": _anthropic,
    "google": _google,
}


def _openai_line(line: Json, fate: str | None, status: int, said: Json) -> Json:
    shown: Json = {
        "id": "batch_req",
        "custom_id": line["custom_id"],
        "response": None,
        "error": None,
    }
    if fate == "expired":
        return shown | {
            "error": {
                "code": "batch_expired",
                "message": "This request could not be executed in time.",
            }
        }
    if fate == "errored":
        said = {
            "error": {"message": "The server had an error.", "type": "server_error"}
        }
    return shown | {
        "response": {"status_code": status, "request_id": "req", "body": said}
    }


def _anthropic_line(line: Json, fate: str | None, status: int, said: Json) -> Json:
    result: Json = {"type": "succeeded", "message": said}
    if fate == "expired":
        result = {"type": "expired"}
    elif fate == "errored":
        result = {
            "type": "errored",
            "error": {
                "type": "error",
                "error": {"type": "api_error", "message": "An error."},
            },
        }
    elif status != 200:
        result = {"type": "errored", "error": said}
    return {"custom_id": line["custom_id"], "result": result}


def _google_line(line: Json, fate: str | None, status: int, said: Json) -> Json:
    if fate == "expired":
        return {
            "key": line["key"],
            "error": {"code": 4, "message": "Deadline expired."},
        }
    if fate == "errored":
        return {"key": line["key"], "error": {"code": 13, "message": "Internal error."}}
    return {"key": line["key"]} | ({"response": said} if status == 200 else said)


_LINES: dict[Wire, Callable[..., Json]] = {
    "openai": _openai_line,
    "anthropic": _anthropic_line,
    "google": _google_line,
}
