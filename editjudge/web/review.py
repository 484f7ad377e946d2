"""Runs, a run's table, an edit's page, two compared: what was judged, to be looked at."""

from __future__ import annotations

from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route

from editjudge.edit import PAIR_ROLES
from editjudge.errors import ImageError, UsageError
from editjudge.judgement import DONE
from editjudge.run.contradicting import contradicted_verdicts
from editjudge.store import browse
from editjudge.store.pairs import answers_about, pair_factors, ranking_factor
from editjudge.store.store import Item, RunRecord
from editjudge.web import pictures as frames
from editjudge.web import questions
from editjudge.web.fields import raw_tail
from editjudge.web.filters import edit_url
from editjudge.web.leaderboard import Leaderboards
from editjudge.web.listing import ALL_STATUSES, PAGE, Browser, Query
from editjudge.web.pairing import Pairing
from editjudge.web.site import Site


def routes(site: Site) -> list[BaseRoute]:
    pages = _Pages(site)
    return [
        Route("/", pages.runs),
        Route("/compare", pages.compare),
        Route("/runs/{run:number}", pages.table),
        Route("/runs/{run:number}/leaderboard", pages.leaderboard),
        Route("/runs/{run:number}/edits/{item:path}", pages.edit),
        Route("/runs/{run:number}/images/{role}/{item:path}", pages.image),
        Route("/runs/{run:number}/evidence/{name}/{item:path}", pages.evidence),
    ]


class _Pages:
    """Plain functions of a request: Starlette runs them in threads, so that nobody waits for another's query."""

    def __init__(self, site: Site) -> None:
        self._site, self._store = site, site.store
        self._browser = Browser(site.store)
        self._pairing = Pairing(site.store, self._browser)
        self._evidence = frames.Evidence()
        self._boards = Leaderboards()

    def _page(self, name: str, refresh: bool = False, **values: Any) -> Response:
        # What is still being indexed or searched is looked at again by itself.
        return HTMLResponse(self._site.page(name, **values), headers={"refresh": "2"} if refresh else None)

    def _run(self, number: int | str) -> RunRecord:
        for run in self._store.runs():
            if str(run.id) == str(number):
                return run
        raise HTTPException(404, f"This store has no run {number}.")

    def _item(self, request: Request, before: int) -> tuple[RunRecord, Item]:
        """The edit that an address names; `before` parts of the path come before its id."""
        run = self._run(request.path_params["run"])
        return run, self._named(run, request.query_params.get("item") or raw_tail(request, before))

    def _named(self, run: RunRecord, name: str) -> Item:
        for item in self._store.items(run, name):
            return item
        raise HTTPException(404, f"Run {run.name} has no edit {name!r:.200}.")

    # --- pages ----------------------------------------------------------------------------------------------------

    def runs(self, _: Request) -> Response:
        rows = [(run, browse.count_edits(self._store, run)) for run in reversed(self._store.runs())]
        return self._page("runs.html", runs=rows, done=DONE, place=self._store.place)

    def table(self, request: Request) -> Response:
        run, query = self._run(request.path_params["run"]), Query.of(request.query_params)
        page = self._browser.page(run, query)
        last = max(1, -(-page.total // PAGE))
        rubrics: dict[str, int] = {}
        for column in page.columns:
            rubrics[column.rubric] = rubrics.get(column.rubric, 0) + 1
        return self._page(
            "table.html", not page.ready, run=run, query=query, page=page, last=last, rubrics=rubrics,
            statuses=ALL_STATUSES, judges=run.spec.get("judges", []), done=DONE,
            pairs=answers_about(self._store, run, [row.item.item for row in page.rows]),
            pairwise=bool(pair_factors(self._store, run)), ranking_factor=ranking_factor,
        )  # fmt: skip

    def leaderboard(self, request: Request) -> Response:
        """Models by strength, of a run of pairs."""
        run = self._run(request.path_params["run"])
        if not pair_factors(self._store, run):
            raise HTTPException(404, f"Run {run.name} asks for scores and not which of two edits is better.")
        wanted = request.query_params.get("judge", ""), request.query_params.get("factor", "")
        return self._page("leaderboard.html", run=run, board=self._boards.of(self._store, run, *wanted))

    def edit(self, request: Request) -> Response:
        run, item = self._item(request, 4)
        query = Query.of(request.query_params)
        voices, rubrics = self._said(run, item)
        found = self._browser.neighbours(run, query, item.item)
        pictures = _pictures(frames.states(self._store, run, item), run, item)
        other = self._other(request)
        if other:
            state = frames.states(self._store, *other).get("edited", {"problem": "", "size": None, "changed": False})
            pictures.append(state | {"role": "other", "label": "The other edit", "url": _image(*other, "edited")})
        return self._page(
            "edit.html", run=run, item=item, query=query, voices=voices, rubrics=rubrics, near=found, other=other,
            pictures=pictures, ratings=self._rated(run, item, rubrics), done=DONE,
            measured=[name for name in ("change", "boundary", "lettering") if {"input", "edited"} <= set(item.images)],
            verdicts=answers_about(self._store, run, [item.item]).get(item.item, []), is_pair=_is_pair(item),
        )  # fmt: skip

    def compare(self, request: Request) -> Response:
        asked = request.query_params
        try:
            a, b = self._run(asked.get("a", "")), self._run(asked.get("b", "") or asked.get("a", ""))
            table = self._pairing.page(a, b, asked)
        except UsageError as error:
            raise HTTPException(400, str(error)) from None
        return self._page("compare.html", not table.ready, table=table, runs=self._store.runs())

    def _other(self, request: Request) -> tuple[RunRecord, Item] | None:
        """Another edit to be looked at beside this one: of another run, or by another model."""
        asked = request.query_params
        if "other" not in asked:
            return None
        run = self._run(asked.get("other_run", request.path_params["run"]))
        return run, self._named(run, asked["other"])

    # --- pictures -------------------------------------------------------------------------------------------------

    def image(self, request: Request) -> Response:
        run, item = self._item(request, 5)
        side = request.query_params.get("side", "")
        try:
            tag = frames.tag(run, item, request.path_params["role"], side)
            headers = {"etag": tag, "cache-control": "private, max-age=60"}
            if tag == request.headers.get("if-none-match"):
                return Response(status_code=304, headers=headers)
            picture = frames.shown(run, item, request.path_params["role"], side)
        except ImageError as error:
            raise HTTPException(404, str(error)) from None
        return Response(picture.data, media_type=picture.media_type, headers=headers | _INERT)

    def evidence(self, request: Request) -> Response:
        run, item = self._item(request, 5)
        try:
            keys = [row.key for row in browse.tasks_of(self._store, run, item.item) if row.judge == "measured"]
            said = [found.evidence for key in keys if (found := self._store.judgement(key))]
            lettering = next((dict(e) for e in said if "lettering" in e), {})
            pictures = self._evidence.of(run, item, lettering)
        except ImageError as error:
            raise HTTPException(404, str(error)) from None
        if request.path_params["name"] not in pictures:
            raise HTTPException(404, "Nothing of this kind was measured in this edit.")
        return Response(pictures[request.path_params["name"]], media_type="image/png", headers=_INERT)

    # --- what was said --------------------------------------------------------------------------------------------

    def _said(self, run: RunRecord, item: Item) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
        """Every task of an edit with what is kept of it; and each rubric with its question."""
        tasks = browse.tasks_of(self._store, run, item.item)
        against = contradicted_verdicts(self._store, run, [item.item])
        kept = self._store.rubrics()
        voices, rubrics = [], {}
        for task in tasks:
            judgement = self._store.judgement(task.key)
            replies = self._store.replies(task.key)
            voices.append({"task": task, "said": judgement, "replies": replies, "against": against.get(task.key, [])})
            hash_ = judgement.rubric_hash if judgement else run.spec.get("rubrics", {}).get(task.rubric, "")
            if task.rubric not in rubrics and hash_ in kept:
                rubric = questions.rubric_of(kept[hash_]["content"])
                rubrics[task.rubric] = {"rubric": rubric, "question": questions.sent(rubric, run, item)}
        return voices, rubrics

    def _rated(self, run: RunRecord, item: Item, rubrics: dict[str, dict[str, Any]]) -> dict[str, Any]:
        """People's scores by factor; those of factors that no rubric of this run has stand apart."""
        known = {factor.key for entry in rubrics.values() for factor in entry["rubric"].factors}
        by: dict[str, list[tuple[str, float]]] = {}
        for rater, factor, score in browse.ratings_of(self._store, run, item):
            by.setdefault(factor, []).append((rater, score))
        return {"known": by, "apart": {factor: said for factor, said in by.items() if factor not in known}}


_INERT = {"content-security-policy": "default-src 'none'; sandbox; frame-ancestors 'none'"}
"""A picture that is opened by itself is nothing but a picture."""


def _is_pair(item: Item) -> bool:
    return bool(item.images.keys() & {*PAIR_ROLES})


def _pictures(states: dict[str, dict[str, Any]], run: RunRecord, item: Item) -> list[dict[str, Any]]:
    return [
        state | {"role": role, "label": _label(role, item), "url": _image(run, item, role)}
        for role, state in states.items()
    ]


def _label(role: str, item: Item) -> str:
    """Of a pair also the model, which a reviewer may know."""
    model = item.metadata.get(f"model_{role[-1]}") if role in PAIR_ROLES else None
    return f"{frames.title_of(role)}, {model}" if model else frames.title_of(role)


def _image(run: RunRecord, item: Item, role: str) -> str:
    return edit_url(item.item, run.id, f"images/{role}")
