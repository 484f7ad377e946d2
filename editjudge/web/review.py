"""Runs, a run's table, an edit's page, two compared: what was judged, to be looked at."""

from __future__ import annotations

import csv
import io
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from editjudge.edit import PAIR_ROLES
from editjudge.errors import ImageError, UsageError
from editjudge.judgement import DONE
from editjudge.run.contradicting import contradicted_verdicts
from editjudge.store import browse
from editjudge.store.annotations import NOTE, annotate, annotations_of
from editjudge.store.export import harmless
from editjudge.store.pairs import answers_about, pair_factors, ranking_factor
from editjudge.store.records import Item, RunRecord
from editjudge.store.store import Store
from editjudge.web import questions
from editjudge.web.background import BackgroundCache, NotReady
from editjudge.web.fields import raw_tail, with_fields
from editjudge.web.filters import edit_url
from editjudge.web.leaderboard import Leaderboards, ScoreBoard
from editjudge.web.listing import ALL_STATUSES, PAGE, Browser, ListedEdit, Query
from editjudge.web.pairing import Pairing
from editjudge.web.pictures import Evidence, shown, states, title_of
from editjudge.web.pictures import tag as picture_tag
from editjudge.web.site import Site

SUMMARISED = 10
"""Runs whose leaderboard the first page shows, the latest ones."""
LARGEST = 20_000
"""Edits of a run that is summed up here: more take minutes and gigabytes, which the terminal may have."""
_GRID = 24
"""Edits of a page of large pictures."""


def routes(site: Site, browser: Browser) -> list[BaseRoute]:
    pages = _Pages(site, browser)
    return [
        Route("/", pages.runs),
        Route("/compare", pages.compare),
        Route("/runs/{run:number}", pages.table),
        Route("/runs/{run:number}/export.csv", pages.export_csv),
        Route("/runs/{run:number}/export.jsonl", pages.export_jsonl),
        Route("/runs/{run:number}/report", pages.report),
        Route("/runs/{run:number}/leaderboard", pages.leaderboard),
        Route("/runs/{run:number}/edits/{item:path}", pages.edit),
        Route("/runs/{run:number}/edits/{item:path}", with_fields(pages.annotate), methods=["POST"]),
        Route("/runs/{run:number}/images/{role}/{item:path}", pages.image),
        Route("/runs/{run:number}/evidence/{name}/{item:path}", pages.evidence),
    ]


class _Pages:
    """Plain functions of a request: Starlette runs them in threads, so that nobody waits for another's query."""

    def __init__(self, site: Site, browser: Browser) -> None:
        self._site, self._store, self._browser = site, site.store, browser
        self._pairing = Pairing(site.store, browser)
        self._evidence = Evidence()
        self._boards = Leaderboards(site.store)
        self._reports = BackgroundCache(4, fresh=3600)

    def _page(self, name: str, refresh: bool = False, **values: Any) -> Response:
        # What is still being indexed or searched is looked at again by itself.
        return HTMLResponse(self._site.page(name, **values), headers={"refresh": "2"} if refresh else None)

    def _run(self, number: int | str) -> RunRecord:
        if run := next((run for run in self._store.runs() if str(run.id) == str(number)), None):
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
        rows, ready = [], True
        for number, run in enumerate(reversed(self._store.runs())):
            edits, boards, note = browse.count_edits(self._store, run), list[ScoreBoard](), ""
            pairwise = bool(pair_factors(self._store, run))
            if number < SUMMARISED and not pairwise and edits:
                try:
                    boards, note = self._summary(run, edits)
                except NotReady:
                    ready, note = False, "The leaderboard is being computed; this page reloads by itself."
            statuses = Counter((run.summary or {}).get("statuses", {}))
            if not run.summary and number < SUMMARISED and edits <= LARGEST:  # the run goes on, or was added to
                for place, count in self._store.counts(run).items():
                    statuses[place[-1]] += count
            about = {"run": run, "edits": edits, "statuses": statuses, "pairwise": pairwise}
            rows.append(about | {"boards": boards, "note": note})
        return self._page("runs.html", not ready, runs=rows, done=DONE, place=self._store.place)

    def _summary(self, run: RunRecord, edits: int) -> tuple[list[ScoreBoard], str]:
        if edits > LARGEST:
            return [], f"Runs of more than {LARGEST:,} edits are summarised by editjudge report {run.name}"
        boards = self._boards.of_scores(run, 1.0)
        return boards, "" if boards else "No edit of this run has a score yet."

    def table(self, request: Request) -> Response:
        run, query = self._run(request.path_params["run"]), Query.of(request.query_params)
        size = _GRID if query.look == "grid" else PAGE
        page = self._browser.page(run, query, size)
        rubrics: dict[str, int] = {}
        for column in page.columns.factors:
            rubrics[column.rubric] = rubrics.get(column.rubric, 0) + 1
        return self._page(
            "table.html", not page.ready, run=run, query=query, page=page, last=max(1, -(-page.total // size)),
            rubrics=rubrics, statuses=ALL_STATUSES, judges=run.spec.get("judges", []), done=DONE,
            pairs=answers_about(self._store, run, [row.item.item for row in page.rows]),
            pairwise=bool(pair_factors(self._store, run)), ranking_factor=ranking_factor,
        )  # fmt: skip

    def export_csv(self, request: Request) -> Response:
        """The edits of a table's filter, in its order."""
        run, names, rows = self._listed(request)

        def lines() -> Iterator[str]:
            line = io.StringIO()
            write = csv.writer(line).writerow
            write(map(harmless, names))
            yield line.getvalue()
            for row in rows:
                line.seek(0)
                line.truncate()
                write([harmless(", ".join(v) if isinstance(v, list) else v) for v in _flat(row).values()])
                yield line.getvalue()

        return _download(lines(), run, "csv", "text/csv; charset=utf-8")

    def export_jsonl(self, request: Request) -> Response:
        run, _, rows = self._listed(request)
        return _download((json.dumps(row, allow_nan=False) + "\n" for row in rows), run, "jsonl", "application/jsonl")

    def _listed(self, request: Request) -> tuple[RunRecord, list[str], Iterator[dict[str, Any]]]:
        """The run, the columns of a CSV file, and a document for each edit of the query."""
        run, query = self._run(request.path_params["run"]), Query.of(request.query_params)
        columns, rows = self._browser.every(run, query)
        factors, people = ([column.id for column in some] for some in (columns.factors, columns.people))
        documents = (_document(row, factors, people) for row in rows)
        nothing = ListedEdit(Item(""), [math.nan] * len(factors), math.nan, [math.nan] * len(people))
        return run, list(_flat(_document(nothing, factors, people))), documents

    def report(self, request: Request) -> Response:
        """The HTML report, by the code of `editjudge report`; made in the background where it takes long."""
        run = self._run(request.path_params["run"])
        if browse.count_edits(self._store, run) > LARGEST:
            command = f"editjudge report {run.name} -o report.html"
            raise HTTPException(413, f"Runs of more than {LARGEST:,} edits are reported in the terminal: {command}")
        try:
            text = self._reports.get(run.id, (run,), partial(_report, self._store, run), 3.0)
        except NotReady:
            return self._page("waiting.html", True, run=run)
        except UsageError as error:
            raise HTTPException(404, str(error)) from None
        return HTMLResponse(text, headers=_REPORT)

    def leaderboard(self, request: Request) -> Response:
        """Models by strength, of a run of pairs."""
        run = self._run(request.path_params["run"])
        if not pair_factors(self._store, run):
            raise HTTPException(404, f"Run {run.name} asks for scores and not which of two edits is better.")
        wanted = request.query_params.get("judge", ""), request.query_params.get("factor", "")
        try:
            return self._page("leaderboard.html", run=run, board=self._boards.of_pairs(run, *wanted))
        except NotReady:
            return self._page("waiting.html", True, run=run)

    def annotate(self, request: Request, fields: Mapping[str, str]) -> Response:
        """Tags and a note, from the form of an edit's page."""
        run, item = self._item(request, 4)
        try:
            annotation = annotate(self._store, item, fields.get("tags", "").split(","), fields.get("note", ""))
        except UsageError as error:
            raise HTTPException(400, str(error)) from None
        if "text/html" not in request.headers.get("accept", ""):
            return Response(json.dumps(annotation.as_json()), media_type="application/json")
        query = Query.of(request.query_params).address()
        return RedirectResponse(f"{edit_url(item.item, run.id)}{query}#annotation", 303)

    def edit(self, request: Request) -> Response:
        run, item = self._item(request, 4)
        query = Query.of(request.query_params)
        answers, rubrics = self._answers(run, item)
        siblings = self._browser.siblings(run, item)
        pictures = [
            state | {"role": role, "label": _label(role, item), "url": _image(run, item, role)}
            for role, state in states(self._store, run, item).items()
        ]
        other = self._other(request)
        if other:
            state = states(self._store, *other).get("edited", {"problem": "", "size": None, "changed": False})
            pictures.append(state | {"role": "other", "label": "The other edit", "url": _image(*other, "edited")})
        return self._page(
            "edit.html", run=run, item=item, query=query, answers=answers, rubrics=rubrics, other=other,
            near=self._browser.neighbours(run, query, item.item), siblings=siblings,
            next_sibling=_following(siblings, item), note_most=NOTE,
            annotation=annotations_of(self._store, run, [item.item]).get(item.item),
            pictures=pictures, ratings=self._rated(run, item, rubrics), done=DONE,
            measured=[name for name in ("change", "boundary", "lettering") if {"input", "edited"} <= set(item.images)],
            verdicts=answers_about(self._store, run, [item.item]).get(item.item, []),
            is_pair=bool(item.images.keys() & {*PAIR_ROLES}),
        )  # fmt: skip

    def compare(self, request: Request) -> Response:
        query = request.query_params
        try:
            a, b = self._run(query.get("a", "")), self._run(query.get("b", "") or query.get("a", ""))
            table = self._pairing.page(a, b, query)
        except UsageError as error:
            raise HTTPException(400, str(error)) from None
        ready = table.ready and table.test.ready
        return self._page("compare.html", not ready, table=table, runs=self._store.runs())

    def _other(self, request: Request) -> tuple[RunRecord, Item] | None:
        """Another edit to be looked at beside this one: of another run, or by another model."""
        query = request.query_params
        if "other" not in query:
            return None
        run = self._run(query.get("other_run", request.path_params["run"]))
        return run, self._named(run, query["other"])

    # --- pictures -------------------------------------------------------------------------------------------------

    def image(self, request: Request) -> Response:
        run, item = self._item(request, 5)
        side = request.query_params.get("side", "")
        try:
            tag = picture_tag(run, item, request.path_params["role"], side)
            headers = {"etag": tag, "cache-control": "private, max-age=60"}
            if tag == request.headers.get("if-none-match"):
                return Response(status_code=304, headers=headers)
            picture = shown(run, item, request.path_params["role"], side)
        except ImageError as error:
            raise HTTPException(404, str(error)) from None
        return Response(picture.data, media_type=picture.media_type, headers=headers | _INERT)

    def evidence(self, request: Request) -> Response:
        run, item = self._item(request, 5)
        try:
            keys = [row.key for row in browse.tasks_of(self._store, run, item.item) if row.judge == "measured"]
            judgements = filter(None, map(self._store.judgement, keys))
            lettering = next((dict(j.evidence) for j in judgements if "lettering" in j.evidence), {})
            pictures = self._evidence.of(run, item, lettering)
        except ImageError as error:
            raise HTTPException(404, str(error)) from None
        if request.path_params["name"] not in pictures:
            raise HTTPException(404, "Nothing of this kind was measured in this edit.")
        return Response(pictures[request.path_params["name"]], media_type="image/png", headers=_INERT)

    # --- answers --------------------------------------------------------------------------------------------------

    def _answers(self, run: RunRecord, item: Item) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
        """Every task of an edit with its judgement and replies; and each rubric with its question."""
        tasks = browse.tasks_of(self._store, run, item.item)
        against = contradicted_verdicts(self._store, run, [item.item])
        stored = self._store.rubrics()
        answers, rubrics = [], {}
        for task in tasks:
            judgement = self._store.judgement(task.key)
            evidence = against.get(task.key, [])
            replies = self._store.replies(task.key)
            answers.append({"task": task, "judgement": judgement, "replies": replies, "against": evidence})
            hash_ = judgement.rubric_hash if judgement else run.spec.get("rubrics", {}).get(task.rubric, "")
            if task.rubric not in rubrics and hash_ in stored:
                rubric = questions.rubric_of(stored[hash_]["content"])
                rubrics[task.rubric] = {"rubric": rubric, "question": questions.sent(rubric, run, item)}
        return answers, rubrics

    def _rated(self, run: RunRecord, item: Item, rubrics: dict[str, dict[str, Any]]) -> dict[str, Any]:
        """People's scores by factor; those of factors that no rubric of this run has stand apart."""
        known = {factor.key for entry in rubrics.values() for factor in entry["rubric"].factors}
        by: dict[str, list[tuple[str, float]]] = {}
        for rater, factor, score in browse.ratings_of(self._store, run, item):
            by.setdefault(factor, []).append((rater, score))
        return {"known": by, "apart": {factor: scores for factor, scores in by.items() if factor not in known}}


def _report(store: Store, run: RunRecord) -> str:
    from editjudge.report.forms import rendered
    from editjudge.report.pairwise import load_pairs, measure_pairs, rendered_pairs
    from editjudge.report.run_data import load
    from editjudge.report.summary import measure

    if pairs := load_pairs(store, str(run.id)):
        return rendered_pairs(measure_pairs(pairs), "html")
    return rendered(measure(load(store, str(run.id), evidence=True)), "html", store)


_REPORT = {
    "content-security-policy": "default-src 'none'; img-src data:; style-src 'unsafe-inline'; sandbox; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}
"""A report has its style in itself and nothing that runs; its own policy names the digest of that style."""


def _following(siblings: list[Item], item: Item) -> Item | None:
    """The next model's edit of the same input and instruction; after the last comes the first."""
    names = [sibling.item for sibling in siblings]
    if len(names) < 2 or item.item not in names:
        return None
    return siblings[(names.index(item.item) + 1) % len(names)]


def _document(row: ListedEdit, factors: list[str], people: list[str]) -> dict[str, Any]:
    item = row.item
    return {
        **{name: getattr(item, name) for name in ("item", "model", "edit_type", "group", "instruction")},
        "statuses": row.statuses,
        "scores": dict(zip(factors, map(_number, row.scores), strict=True)),
        "overall": _number(row.overall),
        "people": dict(zip(people, map(_number, row.people), strict=True)),
        "spread": row.spread,
        "contradicted": row.contradicted,
        **row.annotation.as_json(),
    }


def _flat(document: Mapping[str, Any]) -> dict[str, Any]:
    scores = {**document["scores"], "overall": document["overall"], **document["people"]}
    own = {name: value for name, value in document.items() if name not in ("scores", "overall", "people")}
    return own | scores


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def _download(lines: Iterator[str], run: RunRecord, form: str, media_type: str) -> Response:
    headers = {"content-disposition": f'attachment; filename="run-{run.id}.{form}"'}
    return StreamingResponse(lines, media_type=media_type, headers=headers)


_INERT = {"content-security-policy": "default-src 'none'; sandbox; frame-ancestors 'none'"}
"""A picture that is opened by itself is nothing but a picture."""


def _label(role: str, item: Item) -> str:
    """Of a pair also the model, which a reviewer may know."""
    model = item.metadata.get(f"model_{role[-1]}") if role in PAIR_ROLES else None
    return f"{title_of(role)}, {model}" if model else title_of(role)


def _image(run: RunRecord, item: Item, role: str) -> str:
    return edit_url(item.item, run.id, f"images/{role}")
