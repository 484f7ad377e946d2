"""A server of the reward API in a thread, edits to send to it, and a client."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from editjudge.judgement import JudgementRow
from editjudge.judges.judge import Options
from editjudge.rewards.protocol import Terms
from editjudge.rewards.queue import JudgingQueue
from editjudge.store.store import Store
from editjudge.web import connections
from editjudge.web.app import create
from editjudge.web.site import Site
from tests import patient
from tests.running.made import picture, until

STUB = "openai/stub"


@dataclass
class Served:
    url: str
    store: Store
    server: uvicorn.Server
    thread: threading.Thread
    client: httpx.Client = field(default_factory=lambda: patient.Client(timeout=60))

    def post(self, what: str, body: Any = None, **more: Any) -> httpx.Response:
        return self.client.post(
            f"{self.url}/v1/{what}",
            **({"json": body} if body is not None else {}),
            **more,
        )

    def rewards(self, *edits: dict[str, Any], **options: Any) -> list[dict[str, Any]]:
        answer = self.post("reward", {"edits": list(edits), **options})
        assert answer.status_code == 200, answer.text
        rewards: list[dict[str, Any]] = answer.json()["rewards"]
        return rewards

    def rows(self) -> list[JudgementRow]:
        return [row for run in self.store.runs() for row in self.store.judgements(run)]

    @property
    def queue(self) -> JudgingQueue:
        app: Any = self.server.config.app
        queue: JudgingQueue = app.state.queue
        return queue

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(60)
        assert not self.thread.is_alive()


@contextmanager
def serving(
    place: Path, judge: str = STUB, terms: Terms | None = None, **site: Any
) -> Iterator[Served]:
    """A real server on a port of its own."""
    options = site.pop("options", Options(timeout=20.0, reasks=0))
    with Store.open(place) as store:
        rewards = replace(terms or Terms(), judge=judge, options=options)
        app = create(Site(store, settings={"rewards": rewards}, **site))
        server = connections.server(app, host="127.0.0.1", port=0, log_level="error")
        thread = threading.Thread(target=server.run, name="served")
        thread.start()
        try:
            until(lambda: server.started)
            port = server.servers[0].sockets[0].getsockname()[1]
            served = Served(f"http://127.0.0.1:{port}", store, server, thread)
            with served.client:
                yield served
        finally:
            server.should_exit = True
            thread.join(60)


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def edit(number: int = 0, **more: Any) -> dict[str, Any]:
    """The edit that `tests.run.made.edits` writes to a manifest under the same number, as it is sent."""
    return {
        "id": f"e{number}",
        "input": base64_of(picture(f"input-{number // 4}.png")),
        "edited": base64_of(picture(f"edited-{number}.png")),
        "instruction": f"Paint car {number} red.",
    } | more


def recorded_rewards(path: Path, scores: Sequence[int] = (5, 3, 1)) -> str:
    """A judge of recorded replies: edit 0 is worth 1, edit 1 half, edit 2 nothing, and edit 3 has no answer."""
    replies = [
        json.dumps({"reasoning": "seen", "effect_score": score}) for score in scores
    ] + ["no"]
    lines = [
        {"item": str(n), "rubric": "compliance", "reply": reply}
        for n, reply in enumerate(replies)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return f"replay:{path}"
