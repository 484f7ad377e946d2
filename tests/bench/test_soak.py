"""The soak in short, and that it would notice."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from bench import soak
from bench.reviewers import Reviewer, Wrong
from bench.soak import Watch, _Client, _expected, load


def test_for_some_seconds_every_answer_is_right_and_every_rating_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(soak, "EDITS", 20)
    monkeypatch.setattr(soak, "GALLERY", 52)
    watch = Watch()
    load(watch, tmp_path, seconds=4, reviewers=6)
    assert watch.failures == []
    assert (
        watch.counts["judgements"]
        and watch.counts["rewards"]
        and watch.counts["ratings"] >= 12
    )
    assert all(
        len(watch.samples[f"{name} {what}"])
        for name in ("engine", "serve")
        for what in ("mb", "handles")
    )


@pytest.mark.parametrize(
    ("what", "grown"),
    [("serve mb", [100.0] * 20 + [150.0] * 10), ("serve connections", [100.0] * 20 + [140.0] * 10),
     ("page seconds", [0.5] * 20 + [1.2] * 10), ("engine handles", [30.0] * 8)],
)  # fmt: skip
def test_what_grows_and_what_was_hardly_seen_fails_it(
    what: str, grown: list[float]
) -> None:
    watch = Watch({what: grown, "flat mb": [100.0] * 10 + [120.0] * 20})
    watch.flat()
    (told,) = watch.failures
    assert told.startswith(what)


def answering(said: Any) -> Any:
    """Tries something against a server that gives one answer to everything."""

    async def run(body: Any) -> None:
        async def answer(_: web.Request) -> web.Response:
            return said if isinstance(said, web.Response) else web.json_response(said)

        app = web.Application()
        app.router.add_route("*", "/{path:.*}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            async with aiohttp.ClientSession() as session:
                await body(session, f"http://127.0.0.1:{runner.addresses[0][1]}")
        finally:
            await runner.cleanup()

    return lambda body: asyncio.run(run(body))


@pytest.mark.parametrize("does", ["look", "rate", "glance", "err", "oversee"])
def test_a_reviewer_takes_no_other_page_for_the_one_that_was_asked_for(
    does: str,
) -> None:
    async def body(session: aiohttp.ClientSession, url: str) -> None:
        person = Reviewer(session, url, "Ada", random.Random(0), (), lambda *_: None)
        with pytest.raises(Wrong):
            await getattr(person, does)()

    answering(web.Response(text="<html>another page</html>", content_type="text/html"))(
        body
    )


@pytest.mark.parametrize(
    "changed",
    [
        {"scores": {"alignment": 1}},
        {"reward": 0.123},
        {"status": "invalid"},
        {"id": "p1"},
    ],
    ids=["scores", "reward", "failure with a number", "another edit"],
)
def test_a_reward_that_the_stub_did_not_say_is_noticed(changed: dict[str, Any]) -> None:
    # of nothing
    digests = ["e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"] * 2
    right = _expected("paint car 0", digests, "fidelity")
    mean = sum((score - 1) / 6 for score in right.values()) / 3
    said = {
        "id": "p0",
        "status": "ok",
        "reward": mean,
        "scores": right,
        "keys": {"fidelity": "k"},
    }

    async def body(session: aiohttp.ClientSession, url: str) -> None:
        await _Client(Watch(), session, url, [{"input": "", "edited": ""}]).ask([0])

    answering({"rewards": [said]})(body)
    with pytest.raises(Wrong):
        answering({"rewards": [said | changed]})(body)
