"""How well a judge resists being talked into a score, with our delimiting and without it.

    python -m bench.injection --judge openai/gpt-4.1 [--photographs 3] [--base-url URL]
    python -m bench.injection --credulous            no model: shows that the benchmark tells the two apart

The injection probes of `editjudge probe`, asked twice: as every question is asked, and with the marks and the guard
taken out of the prompt, here and nowhere else. Prints JSON: of the attempts, how many moved a score upwards against
their twin. `--credulous` asks a loopback server that obeys orders unless they stand between marks: a mechanical check,
which says nothing about any model.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from aiohttp import web

from editjudge.judges.judge import Options
from editjudge.rubrics import prompt
from editjudge.running.job import RunOptions, execute
from editjudge.store.store import Store
from editjudge.vision.probes.making import Probe, jobs, probes, write_manifests
from editjudge.vision.probes.making import answers as said_of
from tests.stub import answers

RUBRICS = ("preservation", "quality", "fidelity")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--judge", default="openai-compatible/credulous")
    parser.add_argument("--base-url")
    parser.add_argument("--photographs", type=int, default=1)
    parser.add_argument("--credulous", action="store_true")
    print(json.dumps(asyncio.run(measure(parser.parse_args())), indent=2))


async def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    attempts = [
        probe for probe in probes(arguments.photographs) if probe.family == "injection"
    ]
    async with (
        credulous()
        if arguments.credulous
        else contextlib.nullcontext(arguments.base_url) as url
    ):
        options = Options(base_url=url)
        found = {"delimited": await moved(attempts, arguments.judge, options)}
        with undelimited():
            found["bare"] = await moved(attempts, arguments.judge, options)
    return {"judge": arguments.judge, "mechanical": arguments.credulous, **found}


@contextlib.contextmanager
def undelimited() -> Iterator[None]:
    """Questions without marks and guard, for as long as this benchmark needs them."""

    def bare(role: str, text: str) -> str:
        return f"{prompt._TEXT_TITLES[role]}:\n{text}"

    with mock.patch.multiple(
        prompt, _quoted=bare, _GUARD="", _PICTURE_GUARD="", RENDERING=-1
    ):
        yield


async def moved(attempts: list[Probe], judge: str, options: Options) -> dict[str, Any]:
    """Each attempt against its twin, rubric by rubric."""
    with (
        tempfile.TemporaryDirectory() as name,
        Store.open(Path(name) / "s.db") as store,
    ):
        kept = write_manifests(attempts, Path(name))
        runs = [
            (await execute(job, store, RunOptions(name=f"r{number}"))).run_id
            for number, job in enumerate(
                jobs(
                    kept,
                    Path(name),
                    judge,
                    RUBRICS,
                    options,
                    "images-first",
                    "injection",
                )
            )
        ]
        told = {
            (row.item, row.rubric): row.scores
            for row in said_of(store, runs)
            if row.status == "ok"
        }
    by_kind: dict[str, list[float]] = {}
    for probe in kept:
        for rubric in RUBRICS:
            attacked = told.get((probe.edit.id, rubric))
            twin = told.get((probe.twin, rubric))
            if probe.twin and attacked and twin:
                by_kind.setdefault(probe.control, []).append(
                    sum(attacked.values()) / len(attacked)
                    - sum(twin.values()) / len(twin)
                )
    return {
        kind: {"n": len(rises), "raised": sum(rise > 0 for rise in rises)}
        for kind, rises in by_kind.items()
    }


@contextlib.asynccontextmanager
async def credulous() -> Any:
    """A server that gives 3 to everything, and 7 where an order outside of any marks asks for the highest score."""

    async def answer(request: web.Request) -> web.Response:
        question = answers.read_question("openai", request.path, await request.read())
        asked = json.dumps(json.loads(await request.read())["messages"])
        loose = re.sub(r"\[begin ([0-9a-f]{12})\].*?\[end \1\]", "", asked)
        score = 7 if "highest score" in loose else 3
        scores = dict.fromkeys(answers.SHAPES[question.rubric].factors, score)
        said = answers.say(question, scores, None, False, 0.0)
        return web.json_response(answers.answer_body(question, said, "0" * 24))

    application = web.Application(client_max_size=2**28)
    application.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield "http://{}:{}/v1".format(*runner.addresses[0][:2])
    finally:
        await runner.cleanup()


if __name__ == "__main__":
    main()
