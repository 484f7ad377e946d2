"""`/v1/judge`, `/v1/reward`, `/healthz`, `/openapi.json`: verdicts and rewards for programs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

import editjudge
from editjudge.errors import EditjudgeError, UsageError, near_miss
from editjudge.judgement import DONE, Judgement, row
from editjudge.judges.registry import check_answers
from editjudge.rubrics.contract import Remark
from editjudge.rubrics.files import SETS, resolve
from editjudge.rubrics.model import Rubric
from editjudge.web.openapi import document
from editjudge.web.queue import JudgingQueue, QueuedEdit, RequestBatch, open_queue
from editjudge.web.reduction import Reduction, failure, labels, names
from editjudge.web.requests import Refused, RequestModels, body, edits_of
from editjudge.web.site import Site

if TYPE_CHECKING:
    from editjudge.measured.degenerate import Degenerate

_PENDING = Remark("deadline", "not judged in time; it goes on, and asking again finds the answer")


def routes(site: Site) -> list[BaseRoute]:
    service = _Service(site)
    return [
        Route("/healthz", service.health, methods=["GET"]),
        Route("/openapi.json", service.describe, methods=["GET"]),
        Route("/v1/judge", _refusing(service.judge), methods=["POST"]),
        Route("/v1/reward", _refusing(service.reward), methods=["POST"]),
    ]


@asynccontextmanager
async def desk(site: Site) -> AsyncIterator[JudgingQueue]:
    """What the application keeps as `state.desk` for as long as it runs."""
    rubrics = resolve(_words(site))
    check_answers([site.judge], rubrics)
    async with open_queue(site, rubrics) as opened:
        yield opened


def _words(site: Site) -> list[str]:
    return list(dict.fromkeys((*site.terms.rubrics, *site.terms.more_rubrics)))


class _Service:
    def __init__(self, site: Site) -> None:
        terms = site.terms
        self._terms, self._judge = terms, site.judge
        self._rubrics = {rubric.name: rubric for rubric in resolve(_words(site))}
        """All that may be asked, by name."""
        self._sets = {word: [r.name for r in resolve([word])] for word in _words(site)}
        """What each word of the operator's stands for; a file is asked by its rubric's name."""
        self._factors = names(list(self._rubrics.values()))
        if unknown := [name for name in terms.weights if name not in self._factors]:
            raise UsageError(f"a weight for {unknown[0]}, which no rubric has{near_miss(unknown[0], self._factors)}")
        judges = dict.fromkeys((site.judge, *terms.judges))
        words = dict.fromkeys((*(word for word in self._sets if word in SETS), *self._rubrics))
        self._models = RequestModels(terms, judges, words, self._factors)
        self._document = document(site, self._models)

    async def describe(self, request: Request) -> Response:
        return JSONResponse(self._document)

    async def health(self, request: Request) -> Response:
        desk: JudgingQueue = request.app.state.desk
        said = {"status": "stopping" if desk.closing else "ok", "version": editjudge.__version__, "waiting": desk.edits}
        return JSONResponse(said, 503 if desk.closing else 200)

    async def judge(self, request: Request) -> Response:
        asked, batch = await self._judged(request, rewards=False)
        rows = [
            {"id": one.edit.id, "stored_as": one.stored_as or None} | _row(one, number, batch)
            for one in batch.asked
            for number in range(len(one.works))
        ]
        failed = any(row["status"] not in DONE for row in rows)
        return JSONResponse({"judgements": rows, **_provenance(batch)}, 503 if asked.strict and failed else 200)

    async def reward(self, request: Request) -> Response:
        asked, batch = await self._judged(request, rewards=True)
        reduction = self._reduction(asked)
        called = labels(self._asked_for(asked))
        weights = {
            called[rubric.name, factor.key]: weight
            for name, weight in reduction.weights.items()
            for rubric, factor in [self._factors[name]]
        }
        reduction = Reduction(reduction.formula, weights)
        rewards = [self._rewarded(one, reduction, called, batch) for one in batch.asked]
        failed = any(reward["reward"] is None for reward in rewards)
        answer = {"rewards": rewards, "formula": reduction.words(), **_provenance(batch)}
        return JSONResponse(answer, 503 if asked.strict and failed else 200)

    async def _judged(self, request: Request, *, rewards: bool) -> tuple[Any, RequestBatch]:
        """The request as it was understood, and what has come of it by its deadline."""
        begun, desk, terms = time.monotonic(), request.app.state.desk, self._terms
        length = request.headers.get("content-length", "")
        size = int(length) if length.isascii() and length.isdigit() else 0
        if size > terms.max_body:
            raise Refused(413, f"{size:,} bytes: at most {terms.max_body:,} are taken; send smaller batches")
        with desk.admitted(size) as hold:
            read = partial(self._models.read, await body(request, terms, hold.add), rewards=rewards)
            try:
                # The deadline of the request itself is not known before it is read.
                async with asyncio.timeout(terms.deadline - (time.monotonic() - begun)):
                    asked = await desk.threaded(read)
            except TimeoutError:
                raise desk.full() from None
            del read
            judge = asked.judge or self._judge
            batch: RequestBatch = desk.take(edits_of(asked), self._asked_for(asked), judge, hold, screened=rewards)
        await batch.wait((asked.deadline or terms.deadline) - (time.monotonic() - begun))
        return asked, batch

    def _reduction(self, asked: Any) -> Reduction:
        weights = asked.weights if asked.weights is not None else self._terms.weights if asked.rubrics is None else {}
        return Reduction(asked.formula or self._terms.formula, weights)

    def _asked_for(self, asked: Any) -> list[Rubric]:
        """The rubrics that are named and those of factors that are, else the site's own; always in its order."""
        words = asked.rubrics if asked.rubrics is not None else ()
        wanted = {name for word in words for name in self._sets.get(word, [word])}
        if hasattr(asked, "weights"):
            wanted |= {self._factors[name][0].name for name in self._reduction(asked).weights}
        wanted = wanted or {name for word in self._terms.rubrics for name in self._sets[word]}
        return [rubric for name, rubric in self._rubrics.items() if name in wanted]

    def _rewarded(self, one: QueuedEdit, reduction: Reduction, called: Any, batch: RequestBatch) -> dict[str, Any]:
        """One number, or none with the reason why."""
        if one.degenerate and one.degenerate.set_aside:
            return self._set_aside(one, one.degenerate)
        rows = [_row(one, number, batch) for number in range(len(one.works))]
        scores = {
            called[row["rubric"], key]: (self._factors[f"{row['rubric']}.{key}"][1], score)
            for row in rows
            for key, score in (row["scores"] or {}).items()
        }
        failed = failure(one.judgements)
        number = None if failed else reduction.of(scores)
        return {
            "id": one.edit.id,
            "reward": number,
            "status": failed or ("abstained" if number is None else "ok"),
            "scores": None if number is None else {name: score for name, (_, score) in scores.items()},
            "abstained": {called[row["rubric"], key]: why for row in rows for key, why in row["abstained"].items()},
            "reasons": [
                *([] if one.degenerate is None else _flags(one, one.degenerate, "flagged")),
                *({"rubric": row["rubric"], **reason} for row in rows for reason in row["reasons"]),
            ],
            "keys": {row["rubric"]: row["key"] for row in rows if row["key"]},
            "cached": all(row["cached"] for row in rows),
            "stored_as": one.stored_as or None,
        }

    def _set_aside(self, one: QueuedEdit, output: Degenerate) -> dict[str, Any]:
        """Of an output that is no edit: nobody was asked, so that there are no scores."""
        worst = self._terms.degenerate == "worst"
        return {
            "id": one.edit.id,
            "reward": 0.0 if worst else None,
            "status": "ok" if worst else "abstained",
            "scores": {} if worst else None,
            "abstained": {},
            "reasons": _flags(one, output, "no edit"),
            "keys": {},
            "cached": False,
            "stored_as": one.stored_as or None,
        }


def _flags(one: QueuedEdit, output: Degenerate, effect: str) -> list[dict[str, Any]]:
    """What is wrong with the output itself, as a reason of every rubric."""
    reason = {"code": output.kind, "factor": None, "message": f"{effect}: the output {output.words}"}
    return [{"rubric": work.rubric.name, **reason} for work in one.works]


def _row(one: QueuedEdit, number: int, batch: RequestBatch) -> dict[str, Any]:
    work, edit = one.works[number], one.edit
    judgement: Judgement | None = one.judgements[number]
    said = judgement or work.judgement("unreachable", reasons=(_PENDING,))
    shown = row(said, edit.id, edit.model, one.item.group, work.task.variant)
    shown["key"] = said.key or None
    # An answer that was there before it was asked for: from the store.
    return shown | ({"cached": said.created < batch.started} if judgement else {"status": "pending"})


def _provenance(batch: RequestBatch) -> dict[str, Any]:
    works: Sequence[Any] = batch.asked[0].works
    return {
        "judge": works[0].task.judge,
        "rubrics": {work.rubric.name: work.rubric.hash for work in works},
        "run": {"id": batch.run.id, "name": batch.run.name} if batch.run else None,
    }


def _refusing(handle: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """Answers a refusal with its status and words."""

    async def answered(request: Request) -> Response:
        try:
            return await handle(request)
        except Refused as refused:
            headers = {"Retry-After": str(refused.wait)} if refused.wait else None
            return JSONResponse({"error": refused.error, "problems": refused.problems}, refused.status, headers)
        except EditjudgeError as error:  # a judge that cannot be opened, a store that cannot be written
            return JSONResponse({"error": str(error), "problems": []}, 503)

    return answered
