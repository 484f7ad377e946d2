"""Rating of edits by people with the questions of the rubrics. Rating is blind and in random order, and every answer is
stored at once."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote, unquote

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import BaseRoute, Route

from editjudge import plugins
from editjudge.errors import EditjudgeError, ImageError, UsageError
from editjudge.rubrics.files import PAIRWISE, SETS, resolve
from editjudge.rubrics.model import Rubric
from editjudge.running.images import image_of
from editjudge.store.listing import models_of
from editjudge.store.ratings import StoredRating, csv_lines, read_ratings
from editjudge.store.records import Item, RunRecord
from editjudge.store.studies import (
    NAME,
    Assignment,
    FilledForm,
    Study,
    assignments_of,
    clean_name,
    close_study,
    create_study,
    fill_in,
    filled_in,
    find_study,
    invite,
    invited,
    join,
    list_invitations,
    list_studies,
    raters,
    revoke,
)
from editjudge.web.guard import cookie_values
from editjudge.web.images import INERT, blind, title_of
from editjudge.web.listing import Browser, Query
from editjudge.web.questionnaire import (
    ESTIMATES,
    MAX_REASON,
    BlindEdit,
    Questionnaire,
    find_control,
    offered,
)
from editjudge.web.site import Site
from editjudge.web.values import form_fields, whole_number, with_fields

COOKIE = "rater"
_EXTRA = "controls are made with an extra that is not installed here: pip install 'editjudge[probes]'"
_BATCH = 500
"""Number of edits looked up at once."""
_PAIR_LABELS = {"edited_a": "Left", "edited_b": "Right"}
_BUTTONS = (
    ("a", "Left is better", "1"),
    ("tie", "Tie", "2"),
    ("b", "Right is better", "3"),
    ("both_bad", "Both bad", "4"),
)
"""Choices between the two outputs of a pair, as shown: value, label and keyboard key of each."""


def routes(site: Site, browser: Browser) -> list[BaseRoute]:
    pages = _RatingPages(site, browser)
    post = ["POST"]
    study = "/rate/{study:number}"
    all_routes: list[BaseRoute] = [
        Route("/rate", pages.studies),
        Route("/rate/name", with_fields(pages.sign_in), methods=post),
        Route("/rate/new", with_fields(pages.new), methods=["GET", "POST"]),
        Route(f"{study}/progress", pages.progress),
        Route(f"{study}/invite", with_fields(pages.invite), methods=post),
        Route(f"{study}/revoke", with_fields(pages.revoke), methods=post),
        Route(f"{study}/close", with_fields(pages.close), methods=post),
        Route("/ratings.csv", pages.csv),
    ]
    for home in (study, "/rate/{code:join_code}"):
        edit = f"{home}/{{number:number}}"
        all_routes += [
            Route(home, pages.go_on),
            Route(edit, pages.form, methods=["GET", "POST"]),
            Route(f"{edit}/images/{{role}}", pages.image),
        ]
    return all_routes


@dataclass(frozen=True)
class Visitor:
    """A rater in a study: a person with a link, or one who entered a name."""

    study: Study
    rater: str
    home: str
    """Path with which the URLs of the rater's pages begin."""
    linked: bool

    def is_swapped(self, assigned: Assignment) -> bool:
        """Whether output b is on the left. This is random for each person and pair, but the same at every visit."""
        seed = f"{self.study.seed} {self.rater} {assigned.item}"
        return random.Random(seed).random() < 0.5  # noqa: S311  (no secret)


class _RatingPages:
    def __init__(self, site: Site, browser: Browser) -> None:
        self._site = site
        self._store = site.store
        self._browser = browser

    def _page(self, name: str, status: int = 200, **values: object) -> Response:
        return HTMLResponse(self._site.page(name, **values), status)

    def _study(self, request: Request) -> Study:
        try:
            return find_study(self._store, request.path_params["study"])
        except UsageError as error:
            raise HTTPException(404, str(error)) from None

    def _visitor(self, request: Request) -> Visitor:
        if "code" not in request.path_params:
            study = self._study(request)
            rater = _rater(request)
            invitations = list_invitations(self._store, study)
            if any(invitation.rater == rater for invitation in invitations):
                raise HTTPException(
                    403, f"{rater} has a personal link to this study: use that link."
                )
            return Visitor(study, rater, f"/rate/{study.id}", linked=False)
        code = request.path_params["code"]
        invitation = invited(self._store, code)
        if invitation is None:
            raise HTTPException(
                404,
                "This link is no longer valid. Ask the person who sent it for a new one.",
            )
        return Visitor(*invitation, f"/rate/{code}", linked=True)

    def _run(self, study: Study) -> RunRecord:
        if run := self._store.run_of(study.run_id):
            return run
        raise HTTPException(404, "The run of this study is no longer in the store.")

    def _questionnaire(self, study: Study) -> Questionnaire:
        stored = self._store.rubrics(study.rubrics)
        return Questionnaire(tuple(stored[key] for key in study.rubrics))

    # --- for raters -----------------------------------------------------------------------------------------------

    def studies(self, request: Request) -> Response:
        rater = _rater(request)
        rows = [
            (study, *self._state(study, rater)) for study in list_studies(self._store)
        ]
        return self._page(
            "rate.html", rater=rater, studies=rows, can_plan=bool(self._store.runs())
        )

    def _state(self, study: Study, rater: str) -> tuple[int, int]:
        """Return how many edits the rater has finished, and how many are assigned."""
        if not rater:
            return 0, 0
        assigned = assignments_of(self._store, study, rater)
        filled = filled_in(self._store, study, rater)
        done = self._questionnaire(study).done(rater, assigned, filled)
        return len(done), len(assigned)

    def sign_in(self, _: Request, fields: Mapping[str, str]) -> Response:
        name = clean_name(fields.get("name", ""))
        answer = RedirectResponse("/rate", 303)
        if name:
            answer.set_cookie(
                COOKIE,
                quote(name, safe=""),
                httponly=True,
                samesite="lax",
                max_age=90 * 86400,
            )
        else:
            answer.delete_cookie(COOKIE)
        return answer

    def go_on(self, request: Request) -> Response:
        """Redirect to the first unfinished edit, or show a page that says that none is left."""
        visitor = self._visitor(request)
        study = visitor.study
        if not visitor.rater:
            return RedirectResponse("/rate", 303)
        if study.closed:
            return self._end(visitor)
        questionnaire = self._questionnaire(study)
        limited = None
        if study.models or study.query:
            limited = self._positions(
                self._run(study), study.models or (), study.query or ""
            )
        assigned = join(
            self._store,
            study,
            visitor.rater,
            questionnaire.controls() if study.controls else (),
            questionnaire.needs(),
            limited,
        )
        filled = filled_in(self._store, study, visitor.rater)
        done = questionnaire.done(visitor.rater, assigned, filled)
        present = self._store.item_ids(study.run_id)
        for edit in assigned:
            # Edits that have since been removed from the manifest are skipped.
            if edit.number not in done and (edit.control or edit.item in present):
                return RedirectResponse(f"{visitor.home}/{edit.number}", 303)
        return self._end(visitor)

    def _end(self, visitor: Visitor) -> Response:
        """Show that nothing is left to rate, or that the study is closed."""
        assigned = assignments_of(self._store, visitor.study, visitor.rater)
        return self._page(
            "rated.html",
            visitor=visitor,
            study=visitor.study,
            rater=visitor.rater,
            total=len(assigned),
        )

    async def form(self, request: Request) -> Response:
        # Checked before the body of the request is read.
        visitor, assigned, total = await run_in_threadpool(self._assigned, request)
        if request.method == "GET":
            return await run_in_threadpool(self._form, visitor, assigned, total)
        if visitor.study.closed:
            raise HTTPException(409, "This study is closed: the answer was not saved.")
        fields = await form_fields(request)
        await run_in_threadpool(self._save, visitor, assigned, fields)
        if "text/html" not in request.headers.get("accept", ""):
            return Response(status_code=204)
        following = min(assigned.number + 1, total)
        return RedirectResponse(f"{visitor.home}/{following}", 303)

    def _assigned(self, request: Request) -> tuple[Visitor, Assignment, int]:
        """Return the visitor, the edit in the URL, and the number of edits assigned."""
        visitor = self._visitor(request)
        assigned: list[Assignment] = []
        if visitor.rater:
            assigned = assignments_of(self._store, visitor.study, visitor.rater)
        number = request.path_params["number"]
        if not 1 <= number <= len(assigned):
            raise HTTPException(
                404, f"This edit is not assigned to you: start at {visitor.home}."
            )
        return visitor, assigned[number - 1], len(assigned)

    def _form(self, visitor: Visitor, assigned: Assignment, total: int) -> Response:
        study = visitor.study
        if study.closed:
            return self._end(visitor)
        questionnaire = self._questionnaire(study)
        filled = filled_in(self._store, study, visitor.rater)
        return self._page(
            "rate_edit.html",
            visitor=visitor,
            study=study,
            number=assigned.number,
            total=total,
            rubrics=questionnaire.rubrics,
            filled={
                factor: form
                for (_, number, factor), form in filled.items()
                if number == assigned.number
            },
            edit=self._blinded(study, assigned, questionnaire),
            title_of=lambda role: _PAIR_LABELS.get(role) or title_of(role),
            reason_most=MAX_REASON,
            buttons=_BUTTONS,
            offered=offered,
            turned=visitor.is_swapped(assigned),
            pairwise=questionnaire.pairwise,
        )

    def _save(
        self, visitor: Visitor, assigned: Assignment, fields: Mapping[str, str]
    ) -> None:
        """Check all answers in a form, then store them."""
        study = visitor.study
        swapped = visitor.is_swapped(assigned)
        answers = self._questionnaire(study).answers(fields, swapped=swapped)
        for key, filled, rubric in answers:
            fill_in(self._store, study, visitor.rater, assigned, key, filled, rubric)

    def _item(self, study: Study, assigned: Assignment) -> tuple[RunRecord, Item]:
        run = self._run(study)
        for item in self._store.items(run, assigned.item):
            return run, item
        raise HTTPException(404, "This edit is no longer in the store.")

    def _blinded(
        self, study: Study, assigned: Assignment, questionnaire: Questionnaire
    ) -> BlindEdit:
        control = find_control(assigned.item) if assigned.control else None
        if control:
            return questionnaire.blinded_control(control.edit)
        return questionnaire.blinded(self._item(study, assigned)[1])

    def image(self, request: Request) -> Response:
        visitor, assigned, _ = self._assigned(request)
        study = visitor.study
        role = request.path_params["role"]
        control = find_control(assigned.item) if assigned.control else None
        try:
            edit = self._blinded(study, assigned, self._questionnaire(study))
            if role not in edit.roles:
                raise ImageError("no rubric of the study shows it")
            if role in _PAIR_LABELS and visitor.is_swapped(assigned):
                role = "edited_b" if role == "edited_a" else "edited_a"
            source = control.edit.image(role) if control else None
            if not isinstance(source, bytes):
                source = image_of(*self._item(study, assigned), role)
            data, media_type = blind(source)
        except ImageError:
            # Its message may contain the file name, and thereby the model.
            raise HTTPException(404, "This image cannot be shown.") from None
        return Response(data, media_type=media_type, headers=INERT)

    # --- for organisers -------------------------------------------------------------------------------------------

    def new(self, request: Request, fields: Mapping[str, str]) -> Response:
        """Show the form for a new study, or create the study. The URL may name a run and a filter of its table."""
        problem = ""
        if fields:
            try:
                study = self._create(fields)
                return RedirectResponse(f"/rate/{study.id}/progress", 303)
            except EditjudgeError as error:
                problem = str(error)
        chosen = request.query_params
        names = sorted({rubric.name for rubric in self._store.rubrics().values()})
        runs = self._store.runs()[::-1]
        number = fields.get("run") or chosen.get("run")
        run = next(
            (run for run in runs if str(run.id) == number), runs[0] if runs else None
        )
        query = Query.parse(fields.get("query") or chosen.get("query", ""))
        models = models_of(self._store, run) if run else []
        return self._page(
            "study.html",
            400 if problem else 200,
            runs=runs,
            run=run,
            rubrics=list(dict.fromkeys((*SETS, *PAIRWISE, *names))),
            suggested=PAIRWISE[0]
            if run and self._store.questions_of(run).pair_factors
            else "",
            given=fields,
            problem=problem,
            models=[model for model in models if model] if len(models) > 1 else [],
            query=query,
            no_controls=_EXTRA if plugins.missing("probes") else "",
        )

    def _create(self, fields: Mapping[str, str]) -> Study:
        run = self._store.find_run(fields.get("run", ""))
        rubrics = self._chosen_rubrics(run, fields.get("rubric", ""))
        questionnaire = Questionnaire(tuple(rubrics))
        if lacking := questionnaire.needs().lacking(self._store, run.id):
            raise UsageError(
                f"{fields['rubric']} shows the {lacking}, and no edit of the run {run.name} has one: "
                "take another rubric, or judge a manifest that names it"
            )
        questionnaire.check()
        controls = _number_field(fields, "controls", 0, 14)
        if controls and plugins.missing("probes"):
            # Raise errors for the organiser now, and not for the first rater.
            raise UsageError(f"controls: {_EXTRA}; set none, or install it")
        query = Query.parse(fields.get("query", ""))
        models = [
            name.removeprefix("model:") for name in fields if name.startswith("model:")
        ]
        view = query.address(page=None, look=None, sort=None)
        if not len(self._positions(run, models, view) if models or view else [0]):
            raise UsageError(
                f"no edit of the run {run.name} is by these models and matches this filter: widen it"
            )
        self._store.add_rubrics(rubrics)
        return create_study(
            self._store,
            fields.get("name", "").strip()[:100],
            run.id,
            [rubric.hash for rubric in rubrics],
            overlap=_number_field(fields, "overlap", 1, 100),
            quota=_number_field(fields, "quota", 1, 10_000),
            controls=controls,
            models=models,
            query=view,
        )

    def _positions(
        self, run: RunRecord, models: Sequence[str], view: str
    ) -> Sequence[int]:
        """Return the positions of the edits that a study covers: the edits by its models that currently match its
        filter.
        """
        return self._browser.positions(run, Query.parse(view), models)

    def _chosen_rubrics(self, run: RunRecord, name: str) -> list[Rubric]:
        """Return the rubrics with this name. The versions that the run's judges used take precedence."""
        of_run = self._store.questions_of(run).rubrics
        if name in of_run:
            return [of_run[name]]
        return [of_run.get(rubric.name, rubric) for rubric in resolve([name])]

    def invite(self, request: Request, fields: Mapping[str, str]) -> Response:
        study = self._study(request)
        rater = fields.get("name", "")
        try:
            code = invite(self._store, study, rater)
        except UsageError as error:
            raise HTTPException(400, str(error)) from None
        # Not a redirect: the link is known only now, and must not become part of another URL.
        link = f"{request.url.scheme}://{request.url.netloc}/rate/{code}"
        return self._progress(study, (clean_name(rater), link))

    def revoke(self, request: Request, fields: Mapping[str, str]) -> Response:
        study = self._study(request)
        revoke(self._store, study, fields.get("rater", ""))
        return RedirectResponse(f"/rate/{study.id}/progress", 303)

    def close(self, request: Request, fields: Mapping[str, str]) -> Response:
        """Close or reopen a study."""
        study = self._study(request)
        close_study(self._store, study, closed="open" not in fields)
        return RedirectResponse(f"/rate/{study.id}/progress", 303)

    def progress(self, request: Request) -> Response:
        return self._progress(self._study(request))

    def _progress(self, study: Study, link: tuple[str, str] | None = None) -> Response:
        questionnaire = self._questionnaire(study)
        filled = filled_in(self._store, study)
        links = {
            invitation.rater: invitation.revoked is None
            for invitation in list_invitations(self._store, study)
        }
        rows = []
        ratings: list[StoredRating] = []
        for rater in sorted({*raters(self._store, study), *links}):
            assigned = assignments_of(self._store, study, rater)
            forms = {
                (number, factor): form
                for (name, number, factor), form in filled.items()
                if name == rater
            }
            done = questionnaire.done(rater, assigned, filled)
            rows.append(_row(questionnaire, rater, assigned, forms, len(done)))
            ratings += _ratings(rater, assigned, forms)
        sources = self._sources(study, ratings)
        return self._page(
            "progress.html",
            study=study,
            run=self._run(study),
            raters=rows,
            link=link,
            links=links,
            agreement=list(questionnaire.agreement(ratings, sources)),
            estimates=ESTIMATES,
        )

    def _sources(self, study: Study, ratings: Sequence[StoredRating]) -> dict[str, str]:
        """Return the source image of every rated edit that has one in the run."""
        run = self._run(study)
        ids = sorted({rating.item for rating in ratings})
        sources = {}
        for start in range(0, len(ids), _BATCH):
            for item in self._store.items(run, ids[start : start + _BATCH]):
                sources[item.item] = item.group or item.item
        return sources

    def csv(self, _: Request) -> Response:
        """Send all ratings in the store as CSV, in the format that `agree --ratings` reads."""
        headers = {"content-disposition": 'attachment; filename="ratings.csv"'}
        return StreamingResponse(
            csv_lines(read_ratings(self._store)),
            media_type="text/csv",
            headers=headers,
        )


_Forms = Mapping[tuple[int, str], FilledForm]
"""Answers of a rater, keyed by edit number and factor."""


def _row(
    questionnaire: Questionnaire,
    rater: str,
    assigned: Sequence[Assignment],
    forms: _Forms,
    done: int,
) -> dict[str, object]:
    controls = {edit.number: edit.item for edit in assigned if edit.control}
    checks = []
    for (number, factor), form in forms.items():
        if number in controls:
            passed = questionnaire.passed(controls[number], factor, form)
            if passed is not None:
                checks.append(passed)
    return {
        "rater": rater,
        "done": done,
        "assigned": len(assigned),
        "controls_right": sum(checks),
        "controls": len(checks),
        "unsure": sum(form.score is None for form in forms.values()),
    }


def _ratings(
    rater: str, assigned: Sequence[Assignment], forms: _Forms
) -> list[StoredRating]:
    """Return the scores that a rater gave, excluding the scores of control items."""
    items = {edit.number: edit.item for edit in assigned if not edit.control}
    return [
        StoredRating(items[number], rater, factor, form.score)
        for (number, factor), form in forms.items()
        if form.score is not None and number in items
    ]


def _number_field(fields: Mapping[str, str], name: str, least: int, most: int) -> int:
    number = whole_number(fields.get(name, ""))
    if number is None or not least <= number <= most:
        raise UsageError(f"{name}: expected a whole number from {least:,} to {most:,}")
    return number


def _rater(request: Request) -> str:
    return unquote(next(iter(cookie_values(request.headers, COOKIE)), ""))[:NAME]
