"""`/v1/judge`, `/v1/reward`, `/healthz`, `/openapi.json`: verdicts and rewards for programs."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

import editjudge
from editjudge.edit import IMAGE_ROLES, TEXT_ROLES, Edit
from editjudge.errors import EditjudgeError, UsageError
from editjudge.judgement import DONE
from editjudge.judges.registry import check_answers
from editjudge.rubrics.files import SETS, resolve
from editjudge.rubrics.model import Rubric
from editjudge.rubrics.sets import check_unconditional
from editjudge.run.cost import Costs
from editjudge.web.audit import RewardAudit, Suspicion, at_work, metrics
from editjudge.web.comparisons import FORMULA, Game, check_groups, games_of, pair_of, pair_rewards
from editjudge.web.dialects import REWARD, Dialect, Sent, chosen, parse_pickle
from editjudge.web.openapi import SCHEMA, document
from editjudge.web.queue import PREFERENCE, InspectedEdit, JudgingQueue, RequestBatch, open_queue
from editjudge.web.reduction import Reduction, check_weights, labelled, labels, names
from editjudge.web.requests import PROTOCOL, TYPES, BadEdit, Refused, RequestModels, body, edits_of
from editjudge.web.rewards import RewardRules, compare_groups, judgement_row, not_taken
from editjudge.web.site import Site

_log = logging.getLogger(__name__)


def routes(site: Site) -> list[BaseRoute]:
    service = _Service(site)
    return [
        Route("/healthz", service.health, methods=["GET"]),
        Route("/metrics", service.metrics, methods=["GET"]),
        Route("/audit", service.audit, methods=["GET"]),
        Route("/openapi.json", service.describe, methods=["GET"]),
        Route("/v1/judge", _refusing(service.judge), methods=["POST"]),
        Route("/v1/reward", _refusing(service.reward), methods=["POST"]),
        Route("/v1/reward/schema", service.schema, methods=["GET"]),
        *(route for dialect, _ in chosen(site.terms.dialects) for route in service.dialect_routes(dialect)),
    ]


@asynccontextmanager
async def judging_queue(site: Site) -> AsyncIterator[JudgingQueue]:
    """What the application keeps as `state.queue` for as long as it runs."""
    rubrics = resolve(_words(site))
    check_unconditional(rubrics, "a server asks every rubric of every edit once")
    for rubric in rubrics:
        carried = {*IMAGE_ROLES, *TEXT_ROLES, "references"}
        if others := [name for name in (*rubric.images, *rubric.texts) if name not in carried]:
            raise UsageError(f"{rubric.name}: shows {others[0]}, which a request cannot carry: use `editjudge run`")
    check_answers([site.judge, *site.terms.mixture], rubrics)
    async with open_queue(site, rubrics) as opened:
        yield opened


def _words(site: Site) -> list[str]:
    return list(dict.fromkeys((*site.terms.rubrics, *site.terms.more_rubrics)))


class _Service:
    def __init__(self, site: Site) -> None:
        terms = site.terms
        self._terms, self._judge, self._site = terms, site.judge, site
        self._rubrics = {rubric.name: rubric for rubric in resolve(_words(site))}
        """All that may be asked, by name."""
        self._sets = {word: [r.name for r in resolve([word])] for word in _words(site)}
        """What each word of the operator's stands for; a file is asked by its rubric's name."""
        self._factors = names(list(self._rubrics.values()))
        check_weights(Reduction(terms.formula, terms.weights).weights, self._factors)
        judges = dict.fromkeys((site.judge, *terms.mixture, *terms.judges))
        Costs(site.options, terms.budget, list(judges))  # raises where a budget cannot be kept
        words = dict.fromkeys((*(word for word in self._sets if word in SETS), *self._rubrics))
        self._models = RequestModels(terms, judges, words, self._factors)
        self._document = document(site, self._models)

    async def describe(self, request: Request) -> Response:
        return JSONResponse(self._document)

    async def metrics(self, request: Request) -> Response:
        queue: JudgingQueue = request.app.state.queue
        gauges = {
            "editjudge_waiting_edits": ("Edits taken in and not judged yet.", float(queue.edits)),
            "editjudge_held_bytes": ("Bytes of the requests that wait.", float(queue.held)),
            "editjudge_spent_dollars": ("What judges cost since the server began.", queue.budget.spent),
        }
        return PlainTextResponse(metrics(queue.audit, gauges), media_type="text/plain; version=0.0.4")

    async def audit(self, request: Request) -> Response:
        audit: RewardAudit = request.app.state.queue.audit
        has_pictures = self._terms.pictures is not None
        suspicious = [_with_pictures(one, has_pictures=has_pictures) for one in audit.suspicious()]
        return HTMLResponse(self._site.page("audit.html", audit=audit, suspicious=suspicious))

    async def schema(self, _: Request) -> Response:
        return Response(SCHEMA.read_bytes(), media_type="application/schema+json")

    async def health(self, request: Request) -> Response:
        queue: JudgingQueue = request.app.state.queue
        return _readiness(queue, {"version": editjudge.__version__, "waiting": queue.edits})

    async def judge(self, request: Request) -> Response:
        judged = await self._judged(request, partial(self._models.read, rewards=False))
        params, batch = judged.request, judged.batch
        assert batch is not None  # noqa: S101  (only pairs may have none)
        rows = [
            {"id": one.edit.id, "stored_as": one.stored_as or None} | judgement_row(one, number, batch)
            for one in batch.parts[0].edits
            for number in range(len(one.works))
        ]
        failed = any(row["status"] not in DONE for row in rows)
        answer = {"judgements": rows, **self._provenance(judged)}
        return JSONResponse(answer, 503 if params.strict and failed else 200)

    async def reward(self, request: Request) -> Response:
        judged, rewards = await self.rewards(request, partial(self._models.read, rewards=True))
        params = judged.request
        failed = any(reward["reward"] is None for reward in rewards)
        answer = {
            "protocol": PROTOCOL,
            "rewards": rewards,
            "formula": FORMULA if judged.games is not None else self._rules(params).reduction.words(),
            **self._provenance(judged),
            "judges": self._weights(params),
        }
        return JSONResponse(answer, 503 if params.strict and failed else 200)

    async def rewards(
        self, request: Request, read: Callable[[Any], Any], accepted: Sequence[str] = TYPES
    ) -> tuple[_Judged, list[dict[str, Any]]]:
        """The request as `read` understands its body, and the rewards of its edits in their order."""
        queue: JudgingQueue = request.app.state.queue
        begun, audit = time.monotonic(), queue.audit
        # A dialect is asked at /d/NAME/..., whatever path its client called.
        protocol = request.url.path.split("/")[2] if request.url.path.startswith("/d/") else "v1"
        try:
            judged = await self._judged(request, read, accepted)
        except Refused as refused:
            audit.refused[protocol, refused.status] += 1
            raise
        rewards, parts = self._rewards_of(judged), judged.batch.parts if judged.batch else []
        run, ended = parts[0].run if parts else None, time.monotonic()
        keys = (work.task.key for part in parts for one in part.edits for work in one.works)
        spans = (queue.spans[key] for key in keys if key in queue.spans)
        audit.note(protocol, rewards, run.id if run else None)
        audit.note_request(protocol, ended - begun, at_work(spans, begun, ended))
        return judged, rewards

    def _rewards_of(self, judged: _Judged) -> list[dict[str, Any]]:
        params, batch, rules = judged.request, judged.batch, self._rules(judged.request)
        if judged.games is not None:
            members = judged.edits, judged.groups, judged.inspected, judged.games
            return pair_rewards(*members, batch, rules.weights, worst=rules.worst)
        assert batch is not None  # noqa: S101  (only pairs may have none)
        rewards = [rules.reward(number, batch) for number in range(len(params.edits))]
        compare_groups(judged.groups, rewards, ranked=params.ranking == "scores")
        return rewards

    def dialect_routes(self, dialect: Dialect) -> list[BaseRoute]:
        at = f"/d/{dialect.name}"
        for mode, options in dialect.modes.items():
            try:
                self._models.validated({"edits": [{"edited": None}], **options}, rewards=True)
            except Refused as refused:
                problem = refused.problems[0]
                where = f"--dialect {dialect.name}: mode.choices.{mode}.{problem['where']}"
                raise UsageError(f"{where}: {problem['what']}; judges and rubrics are those of the server") from None

        called = labels(self._rubrics_for(None))
        factors = {called[rubric.name, f.key]: f for rubric in self._rubrics_for(None) for f in rubric.factors}

        async def reward(request: Request) -> Response:
            received: list[Sent] = []
            bad: dict[int, BadEdit] = {}

            def read(data: Any) -> Any:
                """In a thread."""
                values = parse_pickle(data, self._models.max_values) if dialect.pickled else self._models.parse(data)
                sent = dialect.read(values, factors)
                received.append(sent)
                bad.update(sent.bad)
                params = self._models.valid_edits(sent.edits, sent.options, bad)
                if params is None:
                    raise _NothingTaken
                return params

            try:
                _, taken = await self.rewards(request, read, dialect.content_types)
            except _NothingTaken:
                taken = []
            except Refused as refused:
                # Their clients show the status alone: whoever runs the server can read what is wrong.
                if refused.status != 429:
                    _log.warning("%s refused a request (%d): %a", dialect.name, refused.status, refused.error[:500])
                raise
            failed = {n: not_taken(Edit(str(n)), *bad[n]) for n in sorted(bad)}
            if failed:
                audit: RewardAudit = request.app.state.queue.audit
                audit.note(dialect.name, list(failed.values()), None)
                first = next(iter(bad.values())).message[:500]
                _log.warning("%s: %d edits of a request could not be taken: %a", dialect.name, len(bad), first)
            judged = iter(taken)
            rewards = [failed[n] if n in failed else next(judged) for n in range(len(received[0].edits))]
            return dialect.answer(dialect.write(received[0], rewards, factors))

        async def look(request: Request) -> Response:
            """Whether the server is ready, and what it offers."""
            queue: JudgingQueue = request.app.state.queue
            names = [REWARD, *factors]
            if request.url.path.endswith("/rewards"):
                return JSONResponse({"rewards": names})
            return _readiness(queue, {"rewards": {name: ["ready"] for name in names}})

        return [
            Route(f"{at}{dialect.post}", _refusing(reward), methods=["POST"]),
            *(Route(f"{at}{path}", look, methods=["GET"]) for path in dialect.gets),
        ]

    async def _judged(self, request: Request, read: Callable[[Any], Any], accepted: Sequence[str] = TYPES) -> _Judged:
        """The request as it was understood, and what has come of it by its deadline."""
        begun, terms = time.monotonic(), self._terms
        queue: JudgingQueue = request.app.state.queue
        length = request.headers.get("content-length", "")
        size = int(length) if length.isascii() and length.isdigit() else 0
        if size > terms.max_body:
            raise Refused(413, f"{size:,} bytes: at most {terms.max_body:,} are taken; send smaller batches")
        with queue.admitted(size) as hold:
            reading = partial(self._understood, read, await body(request, terms, hold.add, accepted))
            try:
                # The deadline of the request itself is not known before it is read.
                async with asyncio.timeout(terms.deadline - (time.monotonic() - begun)):
                    judged = await queue.threaded(reading)
                    if judged.games is not None:
                        judged.inspected = await queue.inspected(judged.edits)
                        judged.games = games_of(judged.groups, judged.inspected)
            except TimeoutError:
                raise queue.full() from None
            del reading
            params, edits = judged.request, judged.edits
            if judged.games is not None:
                edits = [pair_of(edits, game) for game in judged.games]
            if edits:
                judged.batch = queue.take(
                    edits,
                    judged.rubrics,
                    list(self._weights(params)),
                    hold,
                    screened=judged.games is None and hasattr(params, "ranking"),
                    samples=getattr(params, "samples", 1),
                    fresh=params.fresh,
                )
        if judged.batch:
            await judged.batch.wait((params.deadline or terms.deadline) - (time.monotonic() - begun))
        return judged

    def _understood(self, read: Callable[[Any], Any], data: Any) -> _Judged:
        """The request of a body. In a thread: pictures are decoded and hashed."""
        params = read(data)
        self._check_weights(params)
        judged = _Judged(params, edits_of(params), self._rubrics_for(params), _groups(params))
        if getattr(params, "ranking", "none") == "pairs":
            self._check_pairs(judged)
            judged.rubrics, judged.games = [PREFERENCE], []
        return judged

    def _check_weights(self, params: Any) -> None:
        try:
            check_weights(getattr(params, "weights", None) or {}, self._factors)
        except UsageError as error:
            raise Refused(422, str(error), [("weights", str(error))]) from None

    def _check_pairs(self, judged: _Judged) -> None:
        params = judged.request
        for name in ("rubrics", "formula", "weights"):
            if getattr(params, name) is not None:
                what = f"pairs are compared by {PREFERENCE.name}.overall: leave {name} out"
                raise Refused(422, what, [(name, what)])
        try:
            check_answers(list(self._weights(params)), [PREFERENCE])
        except UsageError as error:
            raise Refused(422, str(error), [("ranking", str(error))]) from None
        check_groups(judged.edits, judged.groups, self._terms.max_waiting)

    def _provenance(self, judged: _Judged) -> dict[str, Any]:
        run = judged.batch.parts[0].run if judged.batch else None
        return {
            "judge": " + ".join(self._weights(judged.request)),
            "rubrics": {rubric.name: rubric.hash for rubric in judged.rubrics},
            "run": {"id": run.id, "name": run.name} if run else None,
        }

    def _weights(self, params: Any) -> dict[str, float]:
        """The judges of a request, with their weights."""
        if mixture := getattr(params, "judges", None):
            return dict(mixture)
        default = self._terms.mixture if hasattr(params, "judges") else {}
        return {params.judge: 1.0} if params.judge else dict(default) or {self._judge: 1.0}

    def _rules(self, params: Any) -> RewardRules:
        chosen, called = self._reduction(params), labels(self._rubrics_for(params))
        reduction = Reduction(chosen.formula, labelled(chosen.weights, self._factors, called))
        return RewardRules(reduction, called, self._factors, self._weights(params), self._terms.degenerate == "worst")

    def _reduction(self, params: Any) -> Reduction:
        if params is None:  # a dialect has no words for it
            return Reduction(self._terms.formula, self._terms.weights)
        weights = (
            params.weights if params.weights is not None else self._terms.weights if params.rubrics is None else {}
        )
        return Reduction(params.formula or self._terms.formula, weights)

    def _rubrics_for(self, params: Any) -> list[Rubric]:
        """The rubrics that are named and those of factors that are, else the site's own; always in its order."""
        words = params.rubrics if params is not None and params.rubrics is not None else ()
        wanted = {name for word in words for name in self._sets.get(word, [word])}
        if params is None or hasattr(params, "weights"):
            wanted |= {self._factors[name][0].name for name in self._reduction(params).weights}
        wanted = wanted or {name for word in self._terms.rubrics for name in self._sets[word]}
        return [rubric for name, rubric in self._rubrics.items() if name in wanted]


class _NothingTaken(Exception):
    """No edit of a trainer's request can be judged."""


@dataclass
class _Judged:
    """A request, and what has become of it."""

    request: Any
    edits: list[Edit]
    rubrics: list[Rubric]
    groups: list[str | None]
    """Of each edit."""
    batch: RequestBatch | None = None
    """None where there is nothing to ask: no two edits of a group can be compared."""
    games: list[Game] | None = None
    """With `ranking: pairs`, which edits are compared; None without it."""
    inspected: list[InspectedEdit] = field(default_factory=list)


def _groups(params: Any) -> list[str | None]:
    """The group of each edit; for ranks, edits without one are compared if they share input and instruction."""
    edits = params.edits if hasattr(params, "edits") else [params]
    if getattr(params, "ranking", "none") == "none":
        return [edit.group for edit in edits]
    contents = (edit.instruction.encode() + b"\n" + (edit.input or b"") for edit in edits)
    return [e.group or hashlib.sha256(content).hexdigest()[:12] for e, content in zip(edits, contents, strict=True)]


def _readiness(queue: JudgingQueue, about: Mapping[str, Any]) -> Response:
    status = "stopping" if queue.closing else "ok"
    return JSONResponse({"status": status, **about}, 503 if queue.closing else 200)


def _with_pictures(suspicion: Suspicion, *, has_pictures: bool) -> dict[str, Any]:
    """For the page: where the edit and its pictures are."""
    one = suspicion.reward
    at = None if one.run is None or one.stored_as is None else f"/runs/{one.run}"
    item = quote(one.stored_as or "", safe="")
    pictures = [(role, f"{at}/images/{role}/{item}") for role in ("input", "edited")] if at and has_pictures else []
    return {"reward": one, "why": suspicion.why, "page": at and f"{at}/edits/{item}", "pictures": pictures}


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
