"""People rate with the rubrics' own questions: blind, in an order of their own, each answer kept at once."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote

import numpy as np
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from editjudge.edit import TEXT_ROLES, Edit, column_of
from editjudge.errors import EditjudgeError, ImageError, UsageError
from editjudge.ratings import Rating, ratings_columns
from editjudge.rubrics.files import PAIRWISE, SETS, resolve
from editjudge.rubrics.model import Factor, Rubric
from editjudge.rubrics.sets import check_unconditional
from editjudge.run.picture_sources import picture_of
from editjudge.store.browse import count_edits
from editjudge.store.invitations import NAME, clean_name, invite, invited, list_invitations, revoke
from editjudge.store.ratings import csv_lines, read_choices, read_scoped
from editjudge.store.records import Item, RunRecord
from editjudge.store.studies import (
    Assignment,
    FilledForm,
    Needs,
    Study,
    close_study,
    create_study,
    fill_in,
    filled_in,
    find_study,
    join,
    list_studies,
    places,
    raters,
)
from editjudge.web.background import NotReady
from editjudge.web.blind import blind
from editjudge.web.fields import form_fields, whole_number, with_fields
from editjudge.web.guard import cookie_values
from editjudge.web.listing import Browser, Query
from editjudge.web.pictures import title_of
from editjudge.web.questions import rubric_of
from editjudge.web.site import Site

if TYPE_CHECKING:
    from editjudge.stats.ceiling import Ceiling
    from editjudge.stats.statistic import Interval

COOKIE = "rater"
_REASON = 2_000
_EXTRA = "controls are made with an extra that is not installed here: pip install 'editjudge[probes]'"
_WAIT = 30.0
"""Seconds for each column of a run that a study's filter needs."""
_DRAWS = 200
"""Resamples of the live agreement: a page that is looked at often; `agree` takes its time."""
_ESTIMATES = {
    "alpha_interval": "Alpha, interval",
    "icc1": "ICC(1)",
    "further_rater": "A further rater, Spearman",
}
"""Figures of the live agreement, each of which has an interval."""
_IDS = 500
"""Edits that are looked up at once."""


def routes(site: Site, browser: Browser) -> list[BaseRoute]:
    pages = _RatingPages(site, browser)
    own = [
        Route("/rate", pages.studies),
        Route("/rate/name", with_fields(pages.sign_in), methods=["POST"]),
        Route("/rate/new", with_fields(pages.new), methods=["GET", "POST"]),
        Route("/rate/{study:number}/progress", pages.progress),
        Route("/ratings.csv", pages.csv),
    ]
    posted = {"invite": pages.invite, "revoke": pages.revoke, "close": pages.close}
    own += [Route(f"/rate/{{study:number}}/{n}", with_fields(page), methods=["POST"]) for n, page in posted.items()]
    for study in ("{study:number}", "{code:join_code}"):
        own += [
            Route(f"/rate/{study}", pages.go_on),
            Route(f"/rate/{study}/{{number:number}}", pages.form, methods=["GET", "POST"]),
            Route(f"/rate/{study}/{{number:number}}/images/{{role}}", pages.image),
        ]
    return [*own]


@dataclass(frozen=True)
class _Visitor:
    """Who rates, and what: a person with a link, or one who gave a name."""

    study: Study
    rater: str
    home: str
    """The path that their pages begin with."""
    linked: bool


@dataclass(frozen=True)
class _BlindEdit:
    """What a rater sees of an edit: no name, no model, no file."""

    instruction: str
    referring_expression: str
    roles: tuple[str, ...]
    """Of a pair: edited_a is the left one, whichever of the two that is."""
    texts: tuple[tuple[str, str], ...] = ()
    """Further texts that the rubrics show, each with its title."""


_PAIR_LABELS = {"edited_a": "Left", "edited_b": "Right"}


_BUTTONS = (
    ("a", "Left is better", "1"),
    ("tie", "Tie", "2"),
    ("b", "Right is better", "3"),
    ("both_bad", "Both bad", "4"),
)
"""Choices between the two outputs of a pair as they are shown: value, words and key."""
_POINTS = {"a": 1.0, "b": 0.0, "tie": 0.5, "both_bad": 0.5}
"""What a choice is worth to a: that both are bad counts as a tie."""


def _is_turned(study: Study, rater: str, place: Assignment) -> bool:
    """Whether b stands on the left: by chance for each person and pair, and the same at every visit."""
    return random.Random(f"{study.seed} {rater} {place.item}").random() < 0.5  # noqa: S311  (no secret)


class _RatingPages:
    def __init__(self, site: Site, browser: Browser) -> None:
        self._site, self._store, self._browser = site, site.store, browser

    def _page(self, name: str, status: int = 200, **values: Any) -> Response:
        return HTMLResponse(self._site.page(name, **values), status)

    def _study(self, request: Request) -> Study:
        try:
            return find_study(self._store, request.path_params["study"])
        except UsageError as error:
            raise HTTPException(404, str(error)) from None

    def _visitor(self, request: Request) -> _Visitor:
        if "code" not in request.path_params:
            study, rater = self._study(request), _rater(request)
            if any(one.rater == rater for one in list_invitations(self._store, study)):
                raise HTTPException(403, f"{rater} has a personal link to this study: use that link.")
            return _Visitor(study, rater, f"/rate/{study.id}", linked=False)
        code = request.path_params["code"]
        who = invited(self._store, code)
        if who is None:
            raise HTTPException(404, "This link is no longer valid. Ask the person who sent it for a new one.")
        return _Visitor(*who, f"/rate/{code}", linked=True)

    def _run(self, study: Study) -> RunRecord:
        if run := self._store.run_of(study.run_id):
            return run
        raise HTTPException(404, "The run of this study is no longer in the store.")

    def _rubrics(self, study: Study) -> list[Rubric]:
        stored = self._store.rubrics()
        return [rubric_of(stored[key]["content"]) for key in study.rubrics]

    # --- coming and going -----------------------------------------------------------------------------------------

    def studies(self, request: Request) -> Response:
        rater = _rater(request)
        rows = [(study, *self._state(study, rater)) for study in list_studies(self._store)]
        return self._page("rate.html", rater=rater, studies=rows, can_plan=bool(self._store.runs()))

    def _state(self, study: Study, rater: str) -> tuple[int, int]:
        """Places done and given, of this rater."""
        if not rater:
            return 0, 0
        mine = places(self._store, study, rater)
        return len(_done(self._rubrics(study), filled_in(self._store, study, rater), rater, mine)), len(mine)

    def sign_in(self, _: Request, fields: Mapping[str, str]) -> Response:
        name = clean_name(fields.get("name", ""))
        answer = RedirectResponse("/rate", 303)
        if name:
            answer.set_cookie(COOKIE, quote(name, safe=""), httponly=True, samesite="lax", max_age=90 * 86400)
        else:
            answer.delete_cookie(COOKIE)
        return answer

    def new(self, request: Request, given: Mapping[str, str]) -> Response:
        """The form. The address may name a run and the filter of its table."""
        chosen, problem = request.query_params, ""
        if given:
            try:
                study = self._create(given)
                return RedirectResponse(f"/rate/{study.id}/progress", 303)
            except EditjudgeError as error:
                problem = str(error)
        own = sorted({rubric["name"] for rubric in self._store.rubrics().values()})
        status, runs = 400 if problem else 200, self._store.runs()[::-1]
        word = given.get("run") or chosen.get("run")
        run = next((run for run in runs if str(run.id) == word), runs[0] if runs else None)
        query = Query.parse(given.get("query") or chosen.get("query", ""))
        try:
            models = self._browser.labels(run, 3.0).models if run else []
        except NotReady:
            models = []
        return self._page(
            "study.html", status, runs=runs, run=run,
            rubrics=list(dict.fromkeys((*SETS, *PAIRWISE, *own))), given=given, problem=problem,
            models=[model for model in models if model] if len(models) > 1 else [],
            query=query,
            no_controls="" if _can_make_controls() else _EXTRA,
        )  # fmt: skip

    def _create(self, given: Mapping[str, str]) -> Study:
        run = self._store.find_run(given.get("run", ""))
        rubrics = self._chosen_rubrics(run, given.get("rubric", ""))
        keys = [factor.key for _, factor in _factors(rubrics)]
        if len(set(keys)) < len(keys):
            raise UsageError("two of these rubrics have a factor of the same name, which ratings cannot tell apart")
        if lacking := _needs(rubrics).lacking(self._store, run.id):
            raise UsageError(
                f"{given['rubric']} shows the {lacking}, and no edit of the run {run.name} has one: "
                "take another rubric, or judge a manifest that names it"
            )
        for rubric in rubrics:
            _check_answerable(rubric)
        controls = _whole(given, "controls", 0, 14)
        if controls and not _can_make_controls():  # an error for the organiser, not for the first rater
            raise UsageError(f"controls: {_EXTRA}; set none, or install it")
        query = Query.parse(given.get("query", ""))
        models = [name.removeprefix("model:") for name in given if name.startswith("model:")]
        view = query.address(page=None, look=None, sort=None)
        if not len(self._positions(run, models, view) if models or view else [0]):
            raise UsageError(f"no edit of the run {run.name} is by these models and matches this filter: widen it")
        self._store.add_rubrics(rubrics)
        return create_study(
            self._store,
            given.get("name", "").strip()[:100],
            run.id,
            [rubric.hash for rubric in rubrics],
            overlap=_whole(given, "overlap", 1, 100),
            quota=_whole(given, "quota", 1, 10_000),
            controls=controls,
            models=models,
            query=view,
        )

    def _positions(self, run: RunRecord, models: Sequence[str], view: str) -> Sequence[int]:
        """The edits that a study is limited to: those of its models that match its filter, as things stand now."""
        total = count_edits(self._store, run)
        try:
            order = self._browser.order(run, Query.parse(view), total, _WAIT)
            if models:
                labels = self._browser.labels(run, _WAIT)
                wanted = [number for number, name in enumerate(labels.models) if name in models]
                order = order[np.isin(labels.model[order], wanted)]
        except NotReady:
            raise HTTPException(503, "The run is still being read. Try again in a minute.") from None
        return list(map(int, order))

    def _chosen_rubrics(self, run: RunRecord, word: str) -> list[Rubric]:
        """Those of the run by preference: they are what its judges were asked."""
        stored, hashes = self._store.rubrics(), run.spec.get("rubrics", {})
        own = {name: rubric_of(stored[key]["content"]) for name, key in hashes.items() if key in stored}
        if word in own:
            return [own[word]]
        return [own.get(rubric.name, rubric) for rubric in resolve([word])]

    def go_on(self, request: Request) -> Response:
        """To the first place that is not done, or to what there is to say at the end."""
        visitor = self._visitor(request)
        study, rater = visitor.study, visitor.rater
        if not rater:
            return RedirectResponse("/rate", 303)
        if study.closed:
            return self._end(visitor)
        rubrics, limited = self._rubrics(study), None
        if study.models or study.query:
            limited = self._positions(self._run(study), study.models or (), study.query or "")
        mine = join(self._store, study, rater, _controls(rubrics) if study.controls else (), _needs(rubrics), limited)
        done = _done(rubrics, filled_in(self._store, study, rater), rater, mine)
        there = self._store.item_ids(study.run_id)
        for place in mine:  # an edit that left the manifest since is not waited for
            if place.number not in done and (place.control or place.item in there):
                return RedirectResponse(f"{visitor.home}/{place.number}", 303)
        return self._end(visitor)

    def _end(self, visitor: _Visitor) -> Response:
        """That there is nothing left to rate, or that the study was closed."""
        mine = places(self._store, visitor.study, visitor.rater)
        return self._page("rated.html", visitor=visitor, study=visitor.study, rater=visitor.rater, total=len(mine))

    # --- one edit -------------------------------------------------------------------------------------------------

    async def form(self, request: Request) -> Response:
        at = await run_in_threadpool(self._place, request)  # before anything of a stranger's is read
        given = await form_fields(request) if request.method == "POST" else {}
        return await run_in_threadpool(self._form, request, *at, given)

    def _form(
        self, request: Request, visitor: _Visitor, place: Assignment, total: int, given: Mapping[str, str]
    ) -> Response:
        study, rater = visitor.study, visitor.rater
        if study.closed and request.method == "GET":
            return self._end(visitor)
        if study.closed:
            raise HTTPException(409, "This study is closed: the answer was not saved.")
        rubrics = self._rubrics(study)
        if request.method == "POST":
            self._keep(study, rater, place, rubrics, given)
            if "text/html" not in request.headers.get("accept", ""):
                return Response(status_code=204)
            return RedirectResponse(f"{visitor.home}/{min(place.number + 1, total)}", 303)
        mine = {factor: f for (_, n, factor), f in filled_in(self._store, study, rater).items() if n == place.number}
        return self._page(
            "rate_edit.html", visitor=visitor, study=study, number=place.number, total=total, rubrics=rubrics,
            filled=mine, edit=self._blinded(study, place, rubrics),
            title_of=lambda role: _PAIR_LABELS.get(role) or title_of(role),
            reason_most=_REASON, buttons=_BUTTONS, turned=_is_turned(study, rater, place),
            pairwise=any(rubric.pairwise for rubric in rubrics),
        )  # fmt: skip

    def _place(self, request: Request) -> tuple[_Visitor, Assignment, int]:
        visitor = self._visitor(request)
        mine = places(self._store, visitor.study, visitor.rater) if visitor.rater else []
        number = request.path_params["number"]
        if not 1 <= number <= len(mine):
            raise HTTPException(404, f"This edit is not assigned to you: start at {visitor.home}.")
        return visitor, mine[number - 1], len(mine)

    def _keep(
        self, study: Study, rater: str, place: Assignment, rubrics: list[Rubric], given: Mapping[str, str]
    ) -> None:
        """Every factor of the form, or the one that was just answered; all are checked before any is kept."""
        answers = []
        for rubric, factor in _factors(rubrics):
            if (answer := given.get(factor.key)) is not None:
                reason = given.get(f"{factor.key}.reason", "")[:_REASON]
                if factor.scale.choices:
                    filled = _chosen(factor, answer, reason, turned=_is_turned(study, rater, place))
                else:
                    filled = FilledForm(_score(factor, answer), reason)
                answers.append((factor.key, filled, rubric.hash))
        for key, filled, rubric_hash in answers:
            fill_in(self._store, study, rater, place, key, filled, rubric_hash)

    def _item(self, study: Study, place: Assignment) -> tuple[RunRecord, Item]:
        run = self._run(study)
        for item in self._store.items(run, place.item):
            return run, item
        raise HTTPException(404, "This edit is no longer in the store.")

    def _blinded(self, study: Study, place: Assignment, rubrics: list[Rubric]) -> _BlindEdit:
        # A part of a picture is shown to judges alone; people see the whole.
        roles = dict.fromkeys(role.partition("@")[0] for rubric in rubrics for role in rubric.images)
        if place.control:
            edit = _made_controls(pairs="|" in place.item)[place.item].edit
            return _BlindEdit(edit.instruction, "", tuple(role for role in roles if edit.picture(role) is not None))
        item = self._item(study, place)[1]
        names = tuple(n for role in roles for n in item.images if role in (n, column_of(n)))
        further = dict.fromkeys(t for rubric in rubrics for t in rubric.texts if t not in TEXT_ROLES)
        texts = tuple((title_of(name), str(item.metadata.get(name, ""))) for name in further)
        return _BlindEdit(item.instruction, item.referring_expression, names, texts)

    def image(self, request: Request) -> Response:
        visitor, place, _ = self._place(request)
        study, role = visitor.study, request.path_params["role"]
        try:
            if role not in self._blinded(study, place, self._rubrics(study)).roles:
                raise ImageError("no rubric of the study shows it")
            if role in _PAIR_LABELS and _is_turned(study, visitor.rater, place):
                role = "edited_b" if role == "edited_a" else "edited_a"
            control = place.control and _made_controls(pairs="|" in place.item)[place.item].edit.picture(role)
            data, media_type = blind(control or picture_of(*self._item(study, place), role))
        except ImageError:  # its words may name the file, and the file the model
            raise HTTPException(404, "This picture cannot be shown.") from None
        headers = {"content-security-policy": "default-src 'none'; sandbox; frame-ancestors 'none'"}
        return Response(data, media_type=media_type, headers=headers)

    # --- for whoever set it up ------------------------------------------------------------------------------------

    def invite(self, request: Request, fields: Mapping[str, str]) -> Response:
        study, rater = self._study(request), fields.get("name", "")
        try:
            code = invite(self._store, study, rater)
        except UsageError as error:
            raise HTTPException(400, str(error)) from None
        # Not by a redirect: only now the link is known, and it belongs into no address but its own.
        return self._progress(study, (clean_name(rater), f"{request.url.scheme}://{request.url.netloc}/rate/{code}"))

    def revoke(self, request: Request, fields: Mapping[str, str]) -> Response:
        study = self._study(request)
        revoke(self._store, study, fields.get("rater", ""))
        return RedirectResponse(f"/rate/{study.id}/progress", 303)

    def close(self, request: Request, fields: Mapping[str, str]) -> Response:
        """Close a study, or open it again."""
        study = self._study(request)
        close_study(self._store, study, closed="open" not in fields)
        return RedirectResponse(f"/rate/{study.id}/progress", 303)

    def progress(self, request: Request) -> Response:
        return self._progress(self._study(request))

    def _progress(self, study: Study, link: tuple[str, str] | None = None) -> Response:
        rubrics, filled = self._rubrics(study), filled_in(self._store, study)
        rows, rated = [], []
        links = {one.rater: one.revoked is None for one in list_invitations(self._store, study)}
        for rater in sorted({*raters(self._store, study), *links}):
            mine = places(self._store, study, rater)
            by_number = {place.number: place for place in mine}
            forms = {(n, factor): f for (who, n, factor), f in filled.items() if who == rater}
            checks = [
                passed
                for (n, factor), f in forms.items()
                if by_number[n].control and (passed := _passed(by_number[n], rubrics, factor, f)) is not None
            ]
            unsure = sum(f.score is None for f in forms.values())
            rows.append((rater, len(_done(rubrics, filled, rater, mine)), len(mine), sum(checks), len(checks), unsure))
            rated += [
                Rating(by_number[n].item, rater, factor, f.score)
                for (n, factor), f in forms.items()
                if f.score is not None and not by_number[n].control
            ]
        return self._page(
            "progress.html", study=study, run=self._run(study), raters=rows, link=link,
            links=links, agreement=list(_agreement(rubrics, rated, self._sources(study, rated))), estimates=_ESTIMATES,
        )  # fmt: skip

    def _sources(self, study: Study, rated: Sequence[Rating]) -> dict[str, str]:
        """Return the source image of every rated edit, where the run knows it."""
        run = self._run(study)
        ids = sorted({rating.item for rating in rated})
        sources = {}
        for start in range(0, len(ids), _IDS):
            for item in self._store.items(run, ids[start : start + _IDS]):
                sources[item.item] = item.group or item.item
        return sources

    def csv(self, _: Request) -> Response:
        """Every rating of the store, as `agree --ratings` and a spreadsheet read it."""
        headers = {"content-disposition": 'attachment; filename="ratings.csv"'}
        return StreamingResponse(
            csv_lines(read_scoped(self._store), read_choices(self._store)), media_type="text/csv", headers=headers
        )


@dataclass(frozen=True)
class _SharedFactor:
    """How raters agree on a factor so far."""

    title: str
    ceiling: Ceiling
    missing_edits: int
    """Edits that two people still have to rate before any figure is shown."""
    missing_images: int
    """Source images that such edits still have to be of."""

    def estimate(self, name: str) -> tuple[float | None, Interval | None]:
        """Return a figure and its interval."""
        if name == "further_rater":
            person = self.ceiling.further_rater
            return person.spearman, person.ci.get("spearman")
        return getattr(self.ceiling, name), self.ceiling.ci.get(name)

    @property
    def silence(self) -> str:
        """Return why there is no figure at all; empty where there is one."""
        shared = self.ceiling.shared
        if self.missing_edits:
            more = "edit" if self.missing_edits == 1 else "edits"
            return f"too few for a figure: at least {self.missing_edits} more {more} rated by two people"
        if self.missing_images:
            images = f"{shared} edits of {self.ceiling.images} source images"
            return f"too few for a figure: {images}; edits of at least {self.missing_images} more images are needed"
        if any(self.estimate(name)[1] for name in _ESTIMATES):
            return ""
        return self.ceiling.further_rater.reason or "no figure has an interval yet"


def _agreement(rubrics: list[Rubric], rated: list[Rating], sources: Mapping[str, str]) -> Iterator[_SharedFactor]:
    from editjudge.stats.ceiling import FEWEST_SHARED, ceiling

    for _, factor in _factors(rubrics):
        mine = [rating for rating in rated if rating.factor == factor.key]
        if len({rating.rater for rating in mine}) > 1:
            agreement = ceiling(ratings_columns(mine), group=sources, draws=_DRAWS)
            missing_edits = max(0, FEWEST_SHARED - agreement.shared)
            missing_images = max(0, FEWEST_SHARED - agreement.images)
            yield _SharedFactor(factor.title or factor.key, agreement, missing_edits, missing_images)


def _factors(rubrics: Iterable[Rubric]) -> Iterator[tuple[Rubric, Factor]]:
    return ((rubric, factor) for rubric in rubrics for factor in rubric.factors)


def _needs(rubrics: list[Rubric]) -> Needs:
    """As a run has it: every picture that is shown, and an instruction; a referring expression may be empty."""
    images = dict.fromkeys(role.partition("@")[0] for rubric in rubrics for role in rubric.images)
    return Needs(tuple(images), any("instruction" in rubric.texts for rubric in rubrics))


def _done(
    rubrics: list[Rubric], filled: Mapping[tuple[str, int, str], FilledForm], rater: str, mine: list[Assignment]
) -> set[int]:
    """Places where every factor has an answer."""
    keys = [factor.key for _, factor in _factors(rubrics)]
    return {place.number for place in mine if all((rater, place.number, key) in filled for key in keys)}


def _can_make_controls() -> bool:
    return all(find_spec(module) for module in ("cv2", "skimage"))


_TELLS = {
    "instruction": "fidelity.alignment",
    "preservation": "preservation.unchanged_regions",
    "quality": "quality.image_quality",
}
"""Factors of `preference`, and the scores by which a control is known to be the better one."""


class _Control(NamedTuple):
    """An edit or a pair whose answers are known."""

    edit: Any
    """An `Edit` whose pictures are bytes."""
    expected: Mapping[str, Any]
    """By `rubric.factor`: the lowest and the highest right score, or of a pair the better output."""


@functools.cache
def _made_controls(*, pairs: bool) -> dict[str, _Control]:
    """Controls by their id, which has a bar in it where it is a pair's; none where the extra that makes them is not
    installed. Made when the first study needs them: the pictures take seconds."""
    if not _can_make_controls():
        return {}
    from editjudge.probes.making import attention, attention_pairs

    if not pairs:
        return {made.edit.id: _Control(made.edit, made.expected) for made in attention()}
    controls = {}
    for x, y in attention_pairs():
        better = {f"preference.{factor}": _better(x.expected, y.expected, name) for factor, name in _TELLS.items()}
        expected = {name: winner for name, winner in better.items() if winner}
        if expected and x.edit.edited is not None and y.edit.edited is not None:
            pictures = {"edited_a": x.edit.edited, "edited_b": y.edit.edited}
            edit = Edit(f"{x.edit.id}|{y.edit.id}", x.edit.input, instruction=x.edit.instruction, pictures=pictures)
            controls[edit.id] = _Control(edit, expected)
    return controls


def _better(x: Mapping[str, Any], y: Mapping[str, Any], name: str) -> str:
    """`a`, `b`, or nothing where what is known of the two may be the same."""
    if name not in x or name not in y:
        return ""
    (low_x, high_x), (low_y, high_y) = x[name], y[name]
    return "a" if low_x > high_y else "b" if low_y > high_x else ""


def _controls(rubrics: list[Rubric]) -> list[str]:
    """The ids of the controls whose answers to these rubrics are known."""
    names = {f"{rubric.name}.{factor.key}" for rubric, factor in _factors(rubrics)}
    made = _made_controls(pairs=any(rubric.pairwise for rubric in rubrics))
    return [key for key, control in made.items() if names & set(control.expected)]


def _passed(place: Assignment, rubrics: list[Rubric], key: str, filled: FilledForm) -> bool | None:
    """Whether a control's answer is as known, give or take one of seven; None where nothing is known of it."""
    control = _made_controls(pairs="|" in place.item).get(place.item)
    for rubric, factor in _factors(rubrics):
        expected = control.expected.get(f"{rubric.name}.{key}") if control and factor.key == key else None
        if isinstance(expected, str) and filled.choice:
            return filled.choice == expected
        if isinstance(expected, tuple) and filled.score is not None:
            leeway = 1 if len(factor.scale.steps) > 3 else 0
            return bool(expected[0] - leeway <= filled.score <= expected[1] + leeway)
    return None


MOST_BUTTONS = 21
"""Of one question: 0 to 1 in steps of .05, or 0 to 10 in steps of .5; nobody chooses well among more."""


def _check_answerable(rubric: Rubric) -> None:
    """People choose among buttons: refuse a rubric with too many of them when a study is set up."""
    if rubric.computed_by:
        raise UsageError(f"{rubric.name}: its figures are computed by {rubric.computed_by}; people are not asked")
    check_unconditional([rubric], "a study asks every rater the same of every edit", allowed=("samples",))
    if rubric.pairwise:
        return
    for factor in rubric.factors:
        if not 1 <= len(factor.scale.steps) <= MOST_BUTTONS:
            raise UsageError(
                f"{rubric.name}: people rate {factor.key} by choosing one of at most {MOST_BUTTONS} scores, and its "
                f"scale is {factor.scale.words}: give it a step, or take another rubric"
            )


def _chosen(factor: Factor, text: str, reason: str, *, turned: bool) -> FilledForm:
    """A choice between left and right, in the item's own naming; none where the rater could not tell."""
    if text == "":
        return FilledForm(None, reason)
    if text not in _POINTS:
        raise HTTPException(422, f"{factor.key}: {text[:20]!r} is none of {', '.join(_POINTS)}")
    choice = {"a": "b", "b": "a"}.get(text, text) if turned else text
    return FilledForm(_POINTS[choice], reason, choice)


def _score(factor: Factor, text: str) -> float | None:
    if text == "":
        return None
    for value in factor.scale.steps:
        if str(value) == text:
            return float(value)
    raise HTTPException(422, f"{factor.key}: {text[:20]!r} is not {factor.scale.words}")


def _whole(given: Mapping[str, str], name: str, least: int, most: int) -> int:
    number = whole_number(given.get(name, ""))
    if number is None or not least <= number <= most:
        raise UsageError(f"{name}: expected a whole number from {least:,} to {most:,}")
    return number


def _rater(request: Request) -> str:
    return unquote(next(iter(cookie_values(request.headers, COOKIE)), ""))[:NAME]
