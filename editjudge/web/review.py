"""Pages for reviewers: list of runs, table of a run, page of an edit, and comparison of two runs."""

from __future__ import annotations

import csv
import io
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import BaseRoute, Route

from editjudge.canonical import Json
from editjudge.edit import PAIR_ROLES
from editjudge.errors import ImageError, UsageError
from editjudge.files import spreadsheet_safe
from editjudge.judgement import DONE, Judgement, Task
from editjudge.report.contradictions import refutations
from editjudge.rubrics.model import Rubric
from editjudge.store import listing
from editjudge.store.ratings import (
    NOTE,
    annotate,
    annotations_of,
    ratings_of,
    tag_edits,
)
from editjudge.store.records import PENDING, Item, RunRecord, RunTotals
from editjudge.store.scores import answers_about, ranking_factor
from editjudge.store.store import Store
from editjudge.web.background import BackgroundCache, NotReady
from editjudge.web.comparing import Leaderboards, Pairing, ScoreBoard
from editjudge.web.images import (
    INERT,
    Evidence,
    ShownImage,
    browser_image,
    entity_tag,
    shown_images,
)
from editjudge.web.listing import ALL_STATUSES, PAGE, Browser, ListedEdit, Query
from editjudge.web.site import Site
from editjudge.web.values import (
    edit_url,
    question_text,
    raw_tail,
    whole_number,
    with_fields,
)

SUMMARISED = 10
"""Number of runs with a leaderboard on the first page. These are the latest runs."""
LARGEST = 20_000
"""Maximum number of edits in a run that is summarised here. Larger runs take minutes and gigabytes of memory, so they
are left to the command line."""
_EXAMPLES = 6
"""Number of edits of a run on the first page, evenly spaced in its manifest."""
_CHECK = "item:"
"""Prefix of the name of an edit's checkbox in a table."""
_GRID = 24
"""Number of edits on a page with large images."""
_REPORT = {
    "content-security-policy": "default-src 'none'; img-src data:; style-src 'unsafe-inline'; sandbox; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}
"""Response headers for a report, which has an inline style and no scripts. The report's own policy names the digest of
its style."""


def routes(site: Site, browser: Browser) -> list[BaseRoute]:
    pages = _Pages(site, browser)
    run = "/runs/{run:number}"
    edit = f"{run}/edits/{{item:path}}"
    return [
        Route("/", pages.runs),
        Route("/compare", pages.compare),
        Route(run, pages.table),
        Route(f"{run}/export.csv", pages.export_csv),
        Route(f"{run}/export.jsonl", pages.export_jsonl),
        Route(f"{run}/report", pages.report),
        Route(f"{run}/leaderboard", pages.leaderboard),
        Route(f"{run}/tags", with_fields(pages.tag), methods=["POST"]),
        Route(edit, pages.edit),
        Route(edit, with_fields(pages.annotate), methods=["POST"]),
        Route(f"{run}/images/{{role}}/{{item:path}}", pages.image),
        Route(f"{run}/evidence/{{name}}/{{item:path}}", pages.evidence),
    ]


@dataclass(frozen=True)
class RunEntry:
    """A run in the list on the first page."""

    run: RunRecord
    totals: RunTotals
    pairwise: bool
    boards: Sequence[ScoreBoard] = ()
    verdict: Sequence[str] = ()
    note: str = ""
    """Reason why there is no leaderboard."""
    ready: bool = True
    examples: Sequence[Item] = ()
    """Edits whose images are shown."""


@dataclass(frozen=True)
class EditAnswer:
    """A task of an edit, with its judgement, its replies, and measured evidence that contradicts it."""

    task: Task
    judgement: Judgement | None
    replies: Sequence[Any]
    against: Sequence[Any]

    @property
    def status(self) -> str:
        return self.judgement.status if self.judgement else PENDING


class _Pages:
    """Request handlers. They are not async, so Starlette runs them in threads and a slow query does not delay other
    pages."""

    def __init__(self, site: Site, browser: Browser) -> None:
        self._site = site
        self._store = site.store
        self._browser = browser
        self._pairing = Pairing(site.store, browser)
        self._evidence = Evidence()
        self._boards = Leaderboards(site.store)
        self._reports = BackgroundCache(4, fresh=3600)

    def _page(self, name: str, refresh: bool = False, **values: object) -> Response:
        # A page that waits for a result reloads itself.
        headers = {"refresh": "2"} if refresh else None
        return HTMLResponse(self._site.page(name, **values), headers=headers)

    def _run(self, number: int | str) -> RunRecord:
        wanted = whole_number(str(number))
        if wanted is not None and (run := self._store.run_of(wanted)):
            return run
        raise HTTPException(404, f"This store has no run {number}.")

    def _item(self, request: Request, before: int) -> tuple[RunRecord, Item]:
        """Return the edit named in the URL. `before` is the number of path segments before its id."""
        run = self._run(request.path_params["run"])
        name = request.query_params.get("item") or raw_tail(request, before)
        return run, self._named(run, name)

    def _named(self, run: RunRecord, name: str) -> Item:
        for item in self._store.items(run, name):
            return item
        raise HTTPException(404, f"Run {run.name} has no edit {name!r:.200}.")

    # --- runs -----------------------------------------------------------------------------------------------------

    def runs(self, _: Request) -> Response:
        runs = list(reversed(self._store.runs()))
        totals = self._store.totals()
        entries = [
            self._entry(run, totals[run.id], recent=number < SUMMARISED)
            for number, run in enumerate(runs)
        ]
        ready = all(entry.ready for entry in entries)
        return self._page(
            "runs.html", not ready, runs=entries, done=DONE, place=self._store.name
        )

    def _entry(self, run: RunRecord, totals: RunTotals, *, recent: bool) -> RunEntry:
        pairwise = bool(self._store.questions_of(run).pair_factors)
        entry = partial(RunEntry, run, totals, pairwise)
        if not recent or not totals.edits:
            return entry()
        shown = min(_EXAMPLES, totals.edits)
        # Off by one more each time, because a manifest often goes through the models in turn.
        spread = [
            (totals.edits // shown * number + number) % totals.edits
            for number in range(shown)
        ]
        examples = listing.items_at(self._store, run, spread)
        entry = partial(entry, examples=examples)
        if totals.edits > LARGEST:
            return entry(
                note=f"Runs of more than {LARGEST:,} edits are summarised by editjudge report {run.name}"
            )
        try:
            if pairwise:
                board = self._boards.of_pairs(run, "", "", 1.0)
                return entry(verdict=board.lead[:1])
            boards, verdict = self._boards.of_scores(run, 1.0)
        except NotReady:
            note = "The leaderboard is being computed; this page reloads by itself."
            return entry(note=note, ready=False)
        note = "" if boards else "No edit of this run has a score yet."
        return entry(boards=boards, verdict=verdict, note=note)

    def report(self, request: Request) -> Response:
        """Send the HTML report that `editjudge report` makes. If this takes long, it is made in the background."""
        run = self._run(request.path_params["run"])
        if listing.count_edits(self._store, run) > LARGEST:
            command = f"editjudge report {run.name} -o report.html"
            raise HTTPException(
                413,
                f"Runs of more than {LARGEST:,} edits are reported in the terminal: {command}",
            )
        try:
            text = self._reports.get(
                run.id, (run,), partial(_report, self._store, run), 3.0
            )
        except NotReady:
            return self._page("waiting.html", True, run=run)
        except UsageError as error:
            raise HTTPException(404, str(error)) from None
        return HTMLResponse(text, headers=_REPORT)

    def leaderboard(self, request: Request) -> Response:
        """Show the models of a pairwise run, sorted by strength."""
        run = self._run(request.path_params["run"])
        if not self._store.questions_of(run).pair_factors:
            raise HTTPException(
                404,
                f"Run {run.name} asks for scores and not which of two edits is better.",
            )
        query = request.query_params
        judge = query.get("judge", "")
        try:
            board = self._boards.of_pairs(run, judge, query.get("factor", ""))
        except NotReady:
            return self._page("waiting.html", True, run=run)
        return self._page("leaderboard.html", run=run, board=board)

    def compare(self, request: Request) -> Response:
        query = request.query_params
        try:
            a = self._run(query.get("a", ""))
            b = self._run(query.get("b", "") or query.get("a", ""))
            table = self._pairing.page(a, b, query)
        except UsageError as error:
            raise HTTPException(400, str(error)) from None
        return self._page(
            "compare.html", not table.test.ready, table=table, runs=self._store.runs()
        )

    # --- a run's table --------------------------------------------------------------------------------------------

    def table(self, request: Request) -> Response:
        run = self._run(request.path_params["run"])
        query = Query.of(request.query_params)
        size = _GRID if query.look == "grid" else PAGE
        page = self._browser.page(run, query, size)
        items = [row.item.item for row in page.rows]
        return self._page(
            "table.html",
            run=run,
            query=query,
            page=page,
            last=max(1, -(-page.total // size)),
            rubrics=Counter(column.rubric for _, column in page.factors),
            statuses=ALL_STATUSES,
            judges=run.spec.get("judges", []),
            done=DONE,
            pairs=answers_about(self._store, run, items),
            pairwise=bool(self._store.questions_of(run).pair_factors),
            ranking_factor=ranking_factor,
        )

    def tag(self, request: Request, fields: Mapping[str, str]) -> Response:
        """Add a tag to the checked edits, or to all that match the table's filter, or remove it from them."""
        run = self._run(request.path_params["run"])
        query = Query.of(request.query_params)
        checked = [name.partition(":")[2] for name in fields if name.startswith(_CHECK)]
        if fields.get("to") == "checked":
            edits = [self._named(run, name) for name in checked]
        else:
            edits = listing.items_at(
                self._store, run, self._browser.positions(run, query)
            )
        try:
            if not edits:
                raise UsageError("no edit is checked: check some, or tag all")
            remove = fields.get("do") == "remove"
            tag_edits(self._store, run, edits, fields.get("tag", ""), remove=remove)
        except UsageError as error:
            raise HTTPException(400, str(error)) from None
        return RedirectResponse(f"/runs/{run.id}{query.address()}", 303)

    def export_csv(self, request: Request) -> Response:
        """Send the edits that match a table's filter as CSV, in the table's order."""
        run, names, rows = self._listed(request)

        def lines() -> Iterator[str]:
            yield _csv_line(names)
            for row in rows:
                values = _flat(row).values()
                yield _csv_line(
                    [", ".join(v) if isinstance(v, list) else v for v in values]
                )

        return _download(lines(), run, "csv", "text/csv; charset=utf-8")

    def export_jsonl(self, request: Request) -> Response:
        run, _, rows = self._listed(request)
        lines = (json.dumps(row, allow_nan=False) + "\n" for row in rows)
        return _download(lines, run, "jsonl", "application/jsonl")

    def _listed(self, request: Request) -> tuple[RunRecord, list[str], Iterator[Json]]:
        """Return the run, the columns of a CSV file, and a document for each edit that matches the query."""
        run = self._run(request.path_params["run"])
        columns, rows = self._browser.every(run, Query.of(request.query_params))
        factors = [column.id for column in columns.factors]
        people = [column.id for column in columns.people]
        empty = ListedEdit(
            Item(""), [math.nan] * len(factors), math.nan, [math.nan] * len(people)
        )
        names = list(_flat(_document(empty, factors, people)))
        return run, names, (_document(row, factors, people) for row in rows)

    # --- an edit --------------------------------------------------------------------------------------------------

    def edit(self, request: Request) -> Response:
        run, item = self._item(request, 4)
        query = Query.of(request.query_params)
        answers, rubrics = self._answers(run, item)
        siblings = self._browser.siblings(run, item)
        images = shown_images(self._store, run, item)
        other = self._other(request)
        if other:
            images.append(self._other_image(*other))
        has_change = {"input", "edited"} <= item.images.keys()
        return self._page(
            "edit.html",
            run=run,
            item=item,
            query=query,
            answers=answers,
            scores_of=_scores_of,
            rubrics=rubrics,
            other=other,
            near=self._browser.neighbours(run, query, item.item),
            siblings=siblings,
            next_sibling=_following(siblings, item),
            note_most=NOTE,
            annotation=annotations_of(self._store, run, [item.item]).get(item.item),
            images=images,
            question=lambda rubric: question_text(rubric, run, item),
            ratings=self._ratings(run, item),
            done=DONE,
            measured=("change", "boundary", "lettering") if has_change else (),
            verdicts=answers_about(self._store, run, [item.item]).get(item.item, []),
            is_pair=bool(item.images.keys() & {*PAIR_ROLES}),
        )

    def _other(self, request: Request) -> tuple[RunRecord, Item] | None:
        """Return the edit to show beside this one, from another run or by another model. Return None if there is none."""
        query = request.query_params
        if "other" not in query:
            return None
        run = self._run(query.get("other_run", request.path_params["run"]))
        return run, self._named(run, query["other"])

    def _other_image(self, run: RunRecord, item: Item) -> ShownImage:
        label = "The other edit"
        for image in shown_images(self._store, run, item):
            if image.role == "edited":
                return replace(image, role="other", label=label)
        return ShownImage("other", label, edit_url(item.item, run.id, "images/edited"))

    def _answers(
        self, run: RunRecord, item: Item
    ) -> tuple[list[EditAnswer], dict[str, Rubric]]:
        """Return every task of an edit with its answer, and the rubrics keyed by name."""
        tasks = listing.tasks_of(self._store, run, item.item)
        against = refutations(self._store, run, [item.item])
        stored = self._store.rubrics()
        answers = []
        rubrics: dict[str, Rubric] = {}
        for task in tasks:
            judgement = self._store.judgement(task.key)
            replies = self._store.replies(task.key)
            measured = against.get(task.key, [])
            answers.append(EditAnswer(task, judgement, replies, measured))
            rubric = stored.get(run.spec.get("rubrics", {}).get(task.rubric, ""))
            if judgement:
                rubric = stored.get(judgement.rubric_hash)
            if rubric:
                rubrics.setdefault(task.rubric, rubric)
        return answers, rubrics

    def _ratings(
        self, run: RunRecord, item: Item
    ) -> dict[str, list[tuple[str, float]]]:
        """Return people's scores for an edit, with the raters' names, keyed by factor."""
        scores: dict[str, list[tuple[str, float]]] = {}
        for rating in ratings_of(self._store, run, [item.item]):
            scores.setdefault(rating.factor, []).append((rating.rater, rating.score))
        return scores

    def annotate(self, request: Request, fields: Mapping[str, str]) -> Response:
        """Store the tags and the note from an edit's form."""
        run, item = self._item(request, 4)
        tags = fields.get("tags", "").split(",")
        try:
            annotation = annotate(self._store, item, tags, fields.get("note", ""))
        except UsageError as error:
            raise HTTPException(400, str(error)) from None
        if "text/html" not in request.headers.get("accept", ""):
            return Response(
                json.dumps(annotation.as_json()), media_type="application/json"
            )
        query = Query.of(request.query_params).address()
        return RedirectResponse(f"{edit_url(item.item, run.id)}{query}#annotation", 303)

    def image(self, request: Request) -> Response:
        run, item = self._item(request, 5)
        role = request.path_params["role"]
        side = request.query_params.get("side", "")
        try:
            tag = entity_tag(run, item, role, side)
            headers = {"etag": tag, "cache-control": "private, max-age=60"}
            if tag == request.headers.get("if-none-match"):
                return Response(status_code=304, headers=headers)
            image = browser_image(run, item, role, side)
        except ImageError as error:
            raise HTTPException(404, str(error)) from None
        return Response(
            image.data, media_type=image.media_type, headers=headers | INERT
        )

    def evidence(self, request: Request) -> Response:
        run, item = self._item(request, 5)
        name = request.path_params["name"]
        tasks = listing.tasks_of(self._store, run, item.item)
        keys = [task.key for task in tasks if task.judge == "measured"]
        judgements = filter(None, map(self._store.judgement, keys))
        evidence = (dict(judgement.evidence) for judgement in judgements)
        lettering = next((e for e in evidence if "lettering" in e), {})
        try:
            images = self._evidence.of(run, item, lettering)
        except ImageError as error:
            raise HTTPException(404, str(error)) from None
        if name not in images:
            raise HTTPException(404, "Nothing of this kind was measured in this edit.")
        return Response(images[name], media_type="image/png", headers=INERT)


def _report(store: Store, run: RunRecord) -> str:
    from editjudge.report.page import rendered
    from editjudge.report.pairwise import load_pairs, rendered_pairs
    from editjudge.report.run_data import load
    from editjudge.report.summary import measure

    if pairs := load_pairs(store, str(run.id)):
        return rendered_pairs(pairs, "html", store)
    return rendered(measure(load(store, str(run.id), evidence=True)), "html", store)


def _scores_of(answers: Sequence[EditAnswer], factor: str) -> list[float]:
    """Return the scores of a factor; answers without a score are left out."""
    scores = ((a.judgement.scores if a.judgement else None) or {} for a in answers)
    return [by_factor[factor] for by_factor in scores if factor in by_factor]


def _following(siblings: list[Item], item: Item) -> Item | None:
    """Return the next model's edit of the same input and instruction, or None if there is no other edit. After the last
    model, the first one follows.
    """
    names = [sibling.item for sibling in siblings]
    if len(names) < 2 or item.item not in names:
        return None
    return siblings[(names.index(item.item) + 1) % len(names)]


def _document(row: ListedEdit, factors: list[str], people: list[str]) -> Json:
    item = row.item
    return {
        "item": item.item,
        "model": item.model,
        "edit_type": item.edit_type,
        "group": item.group,
        "instruction": item.instruction,
        "statuses": row.statuses,
        "scores": dict(zip(factors, map(_number, row.scores), strict=True)),
        "overall": _number(row.overall),
        "people": dict(zip(people, map(_number, row.people), strict=True)),
        "spread": row.spread,
        "contradicted": row.contradicted,
        **row.annotation.as_json(),
    }


def _flat(document: Json) -> dict[str, object]:
    """Flatten a document into columns: facts about the edit first, then its scores."""
    columns = dict(document)
    scores = columns.pop("scores")
    overall = columns.pop("overall")
    people = columns.pop("people")
    return {**columns, **scores, "overall": overall, **people}


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def _csv_line(values: Sequence[object]) -> str:
    line = io.StringIO()
    csv.writer(line).writerow(map(spreadsheet_safe, values))
    return line.getvalue()


def _download(
    lines: Iterator[str], run: RunRecord, suffix: str, media_type: str
) -> Response:
    headers = {"content-disposition": f'attachment; filename="run-{run.id}.{suffix}"'}
    return StreamingResponse(lines, media_type=media_type, headers=headers)
