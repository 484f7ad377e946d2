"""A run from beginning to end: what was asked for becomes judges, a plan, an engine and a summary."""

from __future__ import annotations

import asyncio
import hashlib
import math
import os
import re
import sys
from array import array
from collections import Counter
from collections.abc import (
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Sized,
)
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from editjudge import manifest, plugins
from editjudge.canonical import json_hash
from editjudge.edit import IMAGE_ROLES, TEXT_ROLES, Edit, column_of
from editjudge.errors import (
    ImageError,
    InputError,
    JudgeError,
    ManifestError,
    Option,
    UsageError,
    near_miss,
)
from editjudge.judgement import DONE, Judgement, Task
from editjudge.judges.cost import Budget, Shortfall
from editjudge.judges.judge import Judge, Options
from editjudge.judges.registry import check_answers, open_judge
from editjudge.judges.wire import Parameters
from editjudge.manifest import Columns, NamedInputs
from editjudge.media.cache import DigestCache, ImageCache, ImageReader
from editjudge.media.source import fetch, name_of
from editjudge.orders import ORDERS
from editjudge.redaction import hidden_names
from editjudge.rubrics.files import SETS, load_one, load_set, resolve
from editjudge.rubrics.model import EACH, EARLIER, Rubric
from editjudge.rubrics.prompt import Layout
from editjudge.rubrics.sets import RubricSet, asking
from editjudge.running.asker import Asker
from editjudge.running.cost import Costs
from editjudge.running.engine import Ending, Engine, RunControl
from editjudge.running.pace import Circuit, Pace, Retry
from editjudge.running.plan import (
    Outline,
    Planner,
    QuestionSettings,
    look_at,
    nothing_to_ask,
    placed,
    works,
)
from editjudge.running.progress import RunTally
from editjudge.running.summary import (
    Summary,
    commonest,
    is_failure,
    summary_of,
)
from editjudge.running.sums import OVERALL, run_sums
from editjudge.running.where import EditFilter, Selected
from editjudge.store.records import PENDING, RunRecord

if TYPE_CHECKING:
    from editjudge.store.store import Store

T = TypeVar("T")

Order = Literal["both", "given"]

_FIRST = 1_000
"""Edits among which a picture must exist before anything is stored: many may share one that is missing."""
_CACHED = 10_000
"""Edits that are held in memory, some 10 MB; a longer manifest is read again by each judge."""


@dataclass(frozen=True)
class Job:
    """The edits, rubrics, judges and settings of a run: all that can change an answer."""

    manifest: Path
    rubrics: tuple[str, ...]
    judges: tuple[str, ...]
    repeats: int = 1
    layout: Layout = "images-first"
    fuse: bool = False
    order: Order = "both"
    """Order in which pairs are shown: both ways, or only as the manifest names them."""
    best_of: str | None = None
    """Set to "all" for a run of all pairs that `--best-of` made of a manifest."""
    models: tuple[str, ...] = ()
    """Only edits of these; all where none is named."""
    limit: int | None = None
    """Maximum number of edits, after `models`."""
    allow_outside: bool = False
    allow_urls: bool = False
    options: Options = field(default_factory=Options)
    columns: Columns = ()
    """Fields and the columns of the manifest that hold them, where it calls them otherwise."""
    where: tuple[str, ...] = ()
    """`RUN:FACTOR>=VALUE`, all of them: only the edits that earlier runs of the same store did not rule out."""
    primary: tuple[str, ...] = ()
    """Scores that a comparison of this run is about, declared before anything is judged."""
    rows: Iterable[Mapping[str, Any]] | None = field(
        default=None, compare=False, repr=False
    )
    """In the place of a file: the manifest's path is then no more than a name."""
    _cache: dict[object, list[Edit]] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )
    """The edits of a manifest that was read through, by its state; none where they are many or hold pictures."""
    _ids: dict[object, array[int]] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )
    """Hashes of the ids of all its edits, whatever `models` leaves out: eight bytes each, where the ids of a million
    edits would take a hundred."""
    edits_by_model: Counter[str] = field(
        default_factory=Counter, init=False, compare=False, repr=False
    )
    """Number of edits to be judged, once `check` has read all of them."""

    def __post_init__(self) -> None:
        if self.repeats < 1:
            repeats = Option("repeats", self.repeats)
            raise UsageError(f"{repeats}: at least one", options=[repeats])
        if not self.judges or not self.rubrics:
            raise UsageError("a run needs at least one rubric and one judge")
        if len(set(self.judges)) < len(self.judges):
            raise UsageError(
                "a judge is named twice; use --repeats to ask it more than once",
                options=[Option("repeats")],
            )

    def load_rubrics(self) -> list[Rubric]:
        if self.fuse and (
            own := [
                word for word in self.rubrics if word not in SETS and load_set(word)
            ]
        ):
            raise UsageError(
                f"--fuse: {own[0]} is a set of your own, which is asked rubric by rubric: leave --fuse out",
                options=[Option("fuse")],
            )
        fused = self.fuse and set(self.rubrics) & set(SETS)
        rubrics = (
            [load_one(word) for word in self.rubrics]
            if fused
            else resolve(self.rubrics)
        )
        check_answers(self.judges, rubrics)
        return rubrics

    def loaded_sets(self) -> list[RubricSet]:
        """The sets of one's own among the rubrics."""
        return [
            loaded
            for word in self.rubrics
            if word not in SETS and (loaded := load_set(word))
        ]

    def sets(self) -> dict[str, Any]:
        """The sets of one's own among the rubrics, as a run keeps them, by name."""
        return {each.name: each.spec() for each in self.loaded_sets()}

    def question_settings(self, rubrics: Sequence[Rubric]) -> QuestionSettings:
        return QuestionSettings(
            rubrics,
            self.repeats,
            self.layout,
            ORDERS[: 1 if self.order == "given" else 2],
        )

    def edits(self) -> Iterator[Edit]:
        cached = self._cache.get(self._state())
        if cached is not None:
            return iter(cached)
        return islice(
            (edit for edit in self.all_edits() if self.is_about(edit.model)), self.limit
        )

    @property
    def is_stream(self) -> bool:
        """Whether nobody knows how many edits there are before all are read, which costs a network."""
        return self.rows is not None and not isinstance(self.rows, Sized)

    def is_about(self, model: str | None) -> bool:
        return not self.models or model in self.models

    def all_edits(self) -> Iterator[Edit]:
        """Yield the edits of the manifest, also those that `models` and `limit` leave out."""
        settings: dict[str, Any] = {
            "allow_outside": self.allow_outside,
            "allow_urls": self.allow_urls,
        }
        settings["named"] = self.named_inputs()
        if self.rows is not None:
            edits = manifest.from_rows(self.rows, name=str(self.manifest), **settings)
        else:
            edits = manifest.read(self.manifest.absolute(), **settings)
        labelled = [each for each in self.loaded_sets() if each.labels]
        return self._with_checked_labels(edits, labelled) if labelled else edits

    def _with_checked_labels(
        self, edits: Iterable[Edit], sets: Sequence[RubricSet]
    ) -> Iterator[Edit]:
        for edit in edits:
            for each in sets if self.is_about(edit.model) else ():
                each.check_labels(edit)
            yield edit

    def named_inputs(self) -> NamedInputs:
        """The further columns of the manifest that the rubrics show."""
        rubrics = self.load_rubrics()
        pictures = {column_of(name) for rubric in rubrics for name in rubric.images} - {
            *IMAGE_ROLES
        }
        texts = {name for rubric in rubrics for name in rubric.texts if "." not in name}
        texts -= {*TEXT_ROLES, EACH, EARLIER}
        if both := sorted(pictures & texts):
            raise UsageError(
                f'"{both[0]}" is a picture to one rubric and a text to another'
            )
        return NamedInputs(frozenset(pictures), frozenset(texts), self.columns)

    def reader(self) -> ImageReader:
        """Reads pictures of the manifest's folder, and others only as far as that is allowed."""
        folder = self.manifest if self.manifest.is_dir() else self.manifest.parent
        root = None if self.allow_outside else folder
        addresses = fetch if self.allow_urls else None
        return ImageReader(root=root, fetch=addresses, judges=len(self.judges))

    def chosen(
        self, store: Store | None, edits: Callable[[], Iterator[Edit]] | None = None
    ) -> Selected:
        """The edits that the run is about, of all or of some of the manifest's; conditions need a store."""
        return Selected(
            edits or self.edits,
            EditFilter(self.where, store) if self.where and store else None,
        )

    def check(self, *, whole: bool = True) -> int | None:
        """Read the manifest through before anything is asked: every line can be understood, every model has edits, and
        pictures are where it says, since a wrong path would be blamed on the models. Returns how many judgements the
        run comes to, where that is known.

        Without `whole` only the first edits are read. A stream costs its network, so it is not read twice.
        """
        whole = whole and not self.is_stream
        state = self._state()
        models = set[str]()
        chosen = 0
        first: list[Edit] = []
        edits: list[Edit] | None = [] if state and whole else None
        ids = array("q")
        self.edits_by_model.clear()
        for edit in self.all_edits():
            ids.append(hash(edit.id))
            models.add(edit.model or "")
            if self.is_about(edit.model):
                chosen += 1
                self.edits_by_model[edit.model or ""] += (
                    self.limit is None or chosen <= self.limit
                )
                if len(first) < _FIRST:
                    first.append(edit)
                if edits is not None:
                    edits.append(edit)
                    if chosen > _CACHED or bytes in map(
                        type, edit.all_pictures().values()
                    ):
                        edits = None
            enough = chosen == self.limit or (not whole and len(first) == _FIRST)
            if enough and models.issuperset(self.models):
                read_through = chosen == self.limit
                break
        else:
            read_through = True
            if state:
                self._ids[state] = ids
        self._check_models(models)
        self._check_primary()
        self._check_pictures(first[: self.limit])
        if edits is not None:
            self._cache[state] = edits[: self.limit]
        return (
            self._questions(min(chosen, self.limit or chosen))
            if read_through and not self.where
            else None
        )

    def _questions(self, edits: int) -> int:
        return (
            edits
            * self.question_settings(self.load_rubrics()).questions
            * len(self.judges)
        )

    def has_ids(self) -> Callable[[str], bool]:
        """Whether the manifest has an edit of an id; read again only where `check` did not read all of it."""
        ids = self._ids.get(self._state())
        present = (
            {hash(edit.id) for edit in self.all_edits()} if ids is None else {*ids}
        )
        return lambda item: hash(item) in present

    def _state(self) -> object:
        """Return what tells that a manifest has not changed; None for folders and rows."""
        status = (
            self.manifest.stat()
            if self.rows is None and self.manifest.is_file()
            else None
        )
        return status and (status.st_size, status.st_mtime_ns, status.st_ctime_ns)

    def outline_mark(self, settings: QuestionSettings) -> str | None:
        """Return what tells that a run asks the same as before; None if that has to be looked at again."""
        state = self._state()
        if state is None or self.where:
            return None
        return json_hash(
            [state, [[rubric.name, asking(rubric)] for rubric in settings.rubrics]]
        )

    def _check_pictures(self, edits: Sequence[Edit]) -> None:
        if not edits:
            raise ManifestError(f"{self.manifest}: holds no edit")
        needs_input = all("input" in rubric.images for rubric in self.load_rubrics())
        named: Path | None = None
        for role, picture in (
            place for edit in edits for place in edit.all_pictures().items()
        ):
            # without its input no rubric can be asked of an edit
            if role == "input" or not needs_input:
                if not isinstance(picture, Path) or picture.exists():
                    return
                named = named or picture
        # recorded replies need no pictures
        if all(judge.startswith("replay:") for judge in self.judges):
            return
        folder = (
            self.manifest.absolute()
            if self.manifest.is_dir()
            else self.manifest.absolute().parent
        )
        example = f", e.g. {name_of(named)}" if named else ", nor is any named"
        raise ManifestError(
            f"{self.manifest}: none of the {'inputs' if needs_input else 'pictures'} of the first {len(edits):,} "
            f"edits was found{example}; paths are relative to the manifest's folder {folder}"
        )

    def _check_models(self, present: set[str]) -> None:
        for model in sorted({*self.models} - present):
            names = ", ".join(sorted(present)[:20])
            raise UsageError(
                f'--model: no edit is of "{model}"{near_miss(model, present)} Models here: {names or "none"}'
            )

    def _check_primary(self) -> None:
        rubrics = self.load_rubrics()
        factors = [factor.key for rubric in rubrics for factor in rubric.factors]
        scores = [
            name for spec in self.sets().values() for name in spec.get("score", {})
        ]
        known = dict.fromkeys(
            (*scores, *(rubric.name for rubric in rubrics), OVERALL, *factors)
        )
        for name in self.primary:
            if name not in known:
                raise UsageError(
                    f'--primary: no score is called "{name}"{near_miss(name, known)}'
                )

    def spec(self, rubrics: Sequence[Rubric]) -> dict[str, Any]:
        """Return what is stored with the run: enough to repeat it, and nothing secret."""
        return {
            "manifest": str(self.manifest.resolve()),
            "rubrics": {rubric.name: rubric.hash for rubric in rubrics},
            "asked_for": list(self.rubrics),
            "judges": list(self.judges),
            "repeats": self.repeats,
            "layout": self.layout,
            "fuse": self.fuse,
            "limit": self.limit,
            "allow_outside": self.allow_outside,
            "allow_urls": self.allow_urls,
            "options": self.options.frozen(),
            # One is a word and several a list, so that a run of one condition is the run it was.
            **(
                {"where": all_of if all_of[1:] else all_of[0]}
                if (all_of := sorted(set(self.where)))
                else {}
            ),
            **({"order": self.order} if self.order == "given" else {}),
            **({"best_of": self.best_of} if self.best_of else {}),
            **({"models": sorted(set(self.models))} if self.models else {}),
            **({"columns": dict(self.columns)} if self.columns else {}),
            **({"sets": sets} if (sets := self.sets()) else {}),
            **({"primary": list(self.primary)} if self.primary else {}),
        }

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Job:
        """The job of a stored run."""
        options = dict(spec["options"])
        parameters = Parameters(**options.pop("parameters"))
        if hidden := hidden_names(parameters.extra):
            raise UsageError(
                f"the run was made with secrets, which are not kept: -J {', -J '.join(hidden)}. "
                "Repeat its `editjudge run` command, with the same --name"
            )
        return cls(
            manifest=Path(spec["manifest"]),
            rubrics=tuple(spec["asked_for"]),
            judges=tuple(spec["judges"]),
            repeats=spec["repeats"],
            layout=spec["layout"],
            fuse=spec["fuse"],
            order=spec.get("order", "both"),
            models=tuple(spec.get("models", ())),
            columns=tuple(spec.get("columns", {}).items()),
            primary=tuple(spec.get("primary", ())),
            limit=spec["limit"],
            where=(where,)
            if isinstance(where := spec.get("where", ()), str)
            else tuple(where),
            allow_outside=spec["allow_outside"],
            allow_urls=spec["allow_urls"],
            options=Options(parameters, **options),
        )


@dataclass(frozen=True)
class Cluster:
    """Which cluster, and how much of it."""

    address: str | None = None
    """None: what RAY_ADDRESS says, or one of this machine's own for as long as the run takes."""
    workers: int | None = None
    """None: one for each CPU."""


@dataclass(frozen=True)
class Part:
    """One of several parts of a manifest: an edit belongs to one of them by its id."""

    index: int
    """From 1."""
    count: int

    @classmethod
    def parse(cls, text: str) -> Part:
        """Read `I/N`; raise `UsageError` if it is not a part."""
        match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
        if match and 1 <= int(match[1]) <= int(match[2]):
            return cls(int(match[1]), int(match[2]))
        raise UsageError(
            f'--part "{text}": expected I/N, such as 1/4, with I from 1 to N'
        )

    def holds(self, edit: Edit) -> bool:
        """Whether an edit belongs to this part."""
        digest = hashlib.sha256(edit.id.encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[:8], "big") % self.count == self.index - 1


@dataclass(frozen=True)
class RunOptions:
    """Settings of a run that change no answer."""

    name: str | None = None
    concurrency: int | None = None
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    budget: float | None = None
    rehash: bool = False
    batch: bool = False
    """Whether to use the batches of the providers: at half the price, within a day."""
    part: Part | None = None
    """Part of the edits that this process judges; None for all of them."""
    cluster: Cluster | None = None
    """None: on this machine, by this process."""
    say: Callable[[str], None] = lambda _: None
    observe: Callable[[RunTally], None] = lambda _: None
    control: Callable[[RunControl], None] = lambda _: None
    """Handed the means to stop the run before it starts."""


@dataclass(frozen=True)
class Outcome:
    """Result of a run."""

    run_id: int
    name: str
    ending: Ending
    tally: RunTally
    summary: Summary
    error: BaseException | None = None
    short: Shortfall | None = None
    """The request that the budget did not pay for."""
    store: str = ""
    """Address of the store, without a password."""


def is_new(place: str | os.PathLike[str]) -> bool:
    """Whether opening this store makes a file."""
    return "://" not in os.fspath(place) and not os.path.exists(place)


async def execute(
    job: Job, store: Store | Callable[[], Store], options: RunOptions
) -> Outcome:
    """Run to the end, or as far as budget, patience and the user allow, and sum up.

    A function in place of a store is called once nothing that can be checked is wrong, so that a job which cannot run
    leaves no file behind.
    """
    if options.cluster:
        execute_on = plugins.load("engines", "ray", "--engine ray")
        outcome: Outcome = await execute_on(options.cluster, job, store, options)
        return outcome
    # Not above: judging one edit needs no database.
    from editjudge.store.claims import Claims

    rubrics = job.load_rubrics()
    settings = job.question_settings(rubrics)
    # raises where a budget cannot be kept
    Costs(job.options, options.budget, job.judges, batch=options.batch)
    budget = Budget(options.budget)
    async with AsyncExitStack() as resources:
        judges = [
            await open_judge(
                spec,
                job.options,
                pacing(options),
                resources,
                batch=options.batch,
                funds=budget,
            )
            for spec in job.judges
        ]
        expected = job.check()
        store = opened(store)
        chosen = job.chosen(store)
        for warning in (w for judge in judges for w in judge.warnings):
            options.say(warning)
        run = open_run(job, store, options, rubrics)
        removed = drop_removed(job, store, run)
        planner = Planner(
            store,
            run.id,
            settings,
            job.reader(),
            rehash=options.rehash,
            outlining=job.is_stream,
            part=options.part.holds if options.part else lambda _: True,
        )
        make: Callable[..., Engine] = Engine
        if options.batch:
            # Three wire formats that other runs need not wait for.
            from editjudge.running.batch import BatchEngine

            make = partial(BatchEngine, run_id=run.id)
        engine = make(
            store,
            planner=planner,
            budget=budget,
            say=options.say,
            claims=Claims(store),
            observe=options.observe,
        )
        engine.tally.expected = expected
        options.control(engine.control)
        try:
            if not job.is_stream:
                engine.tally.expected = await asyncio.to_thread(
                    keep_outline, job, store, run, settings, chosen()
                )
                if options.part:
                    in_part = placed(chosen(), settings, options.part.holds)
                    tasks = sum(len(stage) for edit in in_part for stage in edit.tasks)
                    engine.tally.expected = tasks * len(judges)
            await engine.run(chosen, judges)
        except InputError:  # the manifest changed since it was checked
            _leave(store, run)
            raise
        except BaseException:
            # stopped at once: the next run goes on from what is stored
            store.mark(run, "interrupted")
            raise
    if isinstance(engine.control.error, InputError) and not _leave(store, run):
        raise engine.control.error
    if (
        planner.not_applicable
        and not planner.planned
        and engine.control.stopping is None
        and options.part is None
    ):
        if not store.counts(run):
            store.remove_run(run)
        raise nothing_to_ask(str(job.manifest))
    engine.tally.left_out = chosen.absent
    engine.tally.removed = removed
    return conclude(store, run, rubrics, engine.control, engine.tally)


def opened(store: Store | Callable[[], Store]) -> Store:
    return store() if callable(store) else store


def conclude(
    store: Store,
    run: RunRecord,
    rubrics: Sequence[Rubric],
    control: RunControl,
    tally: RunTally,
) -> Outcome:
    """Sum a run up and mark it as ended."""
    # No mean is formed of choices.
    factors = {
        rubric.name: [] if rubric.chooses else [factor.key for factor in rubric.factors]
        for rubric in rubrics
    }
    summary = _stored_summary(store, run, tally) or summary_of(
        *store.score_sums(run), factors
    )
    if failed := [status for status in summary.statuses if is_failure(status)]:
        summary.reasons = commonest(
            store.judgements(run, fields=("item", "status", "reasons"), status=failed)
        )
    ending = control.stopping or "finished"
    # A part of a run may be finished before the others are.
    unfinished = ending == "finished" and summary.statuses.get(PENDING)
    state = "interrupted" if ending == "failed" or unfinished else ending
    store.mark(run, state, summary.as_json())
    if state == "finished":
        from editjudge.store import listing

        overall = run_sums(store, run).get(OVERALL, ())
        listing.fill(store, run, "", listing.columns_of(store, run, overall))
    return Outcome(
        run.id,
        run.name,
        ending,
        tally,
        summary,
        control.error,
        control.short,
        store.place,
    )


def _stored_summary(store: Store, run: RunRecord, tally: RunTally) -> Summary | None:
    """The summary of the last time, where all tasks were done then and nothing was judged since: what is done stays as
    it is, and a store forgets the summary of a run whose edits or tasks change."""
    stored = store.run_of(run.id)
    if (
        stored is None
        or stored.imported_from
        or not stored.summary
        or not {*tally.statuses} <= {*DONE}
    ):
        return None
    is_same = stored.summary["statuses"] == dict(tally.statuses)
    return Summary.of_json(stored.summary) if is_same else None


def open_run(
    job: Job, store: Store, options: RunOptions, rubrics: Sequence[Rubric]
) -> RunRecord:
    """The run of a job in a store, with its rubrics."""
    spec = job.spec(rubrics)
    run = store.open_run(options.name or _name(job, spec), spec)
    store.add_rubrics(rubrics)
    return run


def drop_removed(job: Job, store: Store, run: RunRecord) -> int:
    """Drop the edits of a resumed run that are no longer in the manifest; those that `limit` or `models` leave out
    stay. Returns how many were dropped."""
    if not (known := store.item_ids(run)):
        return 0
    is_present = job.has_ids()
    removed = [item for item in known if not is_present(item)]
    store.drop_items(run, removed)
    return len(removed)


def keep_outline(
    job: Job,
    store: Store,
    run: RunRecord,
    settings: QuestionSettings,
    edits: Iterable[Edit],
) -> int:
    """Keep all edits and tasks that the run is to come to, unless the store has them; returns how many tasks."""
    mark = job.outline_mark(settings)
    kept = store.outline_of(run)
    if kept and mark and kept[0] == mark:
        return kept[1]
    outline = Outline(store, run.id, job.judges, resumed=store.has_items(run))
    outline.add(placed(edits, settings))
    store.mark_outline(run, mark or "", outline.expected)
    return outline.expected


def _leave(store: Store, run: RunRecord) -> bool:
    """Whether the run stays, to be gone on with: one without any answer is removed."""
    has_answers = any(status != PENDING for *_, status in store.counts(run))
    if has_answers:
        store.mark(run, "interrupted")
    else:
        store.remove_run(run)
    return has_answers


def wait_for(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, in a thread of its own where this one already has an event loop, as in a notebook.

    Ctrl-C cancels it either way. Raises `KeyboardInterrupt` once it has stopped, so that what it stored is complete.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    from concurrent.futures import Future, ThreadPoolExecutor, wait

    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any] | None]] = (
        Future()
    )

    async def cancellable() -> T:
        started.set_result((asyncio.get_running_loop(), asyncio.current_task()))
        return await work

    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(asyncio.run, cancellable())
        try:
            return result.result()
        except KeyboardInterrupt:
            # Only the main thread is interrupted: the other would go on to the end of the run.
            loop, task = started.result()
            if task and not result.done():
                loop.call_soon_threadsafe(task.cancel)
            wait([result])
            raise


def pacing(options: RunOptions) -> Callable[[str], Pace]:
    def pace(spec: str) -> Pace:
        return Pace(
            spec,
            concurrency=options.concurrency,
            requests_per_minute=options.requests_per_minute,
            tokens_per_minute=options.tokens_per_minute,
            circuit=Circuit(spec, say=options.say),
        )

    return pace


async def judge_edit(
    edit: Edit, rubrics: Sequence[Rubric], spec: str, options: Options
) -> list[Judgement]:
    """One edit, judged now and without a store: a judgement for each rubric, in their order."""
    check_answers([spec], rubrics)
    async with AsyncExitStack() as resources:
        judge = await EditJudge.open(spec, options, resources)
        return await judge.judge(edit, rubrics)


class EditJudge:
    """A judge that is opened once and judges edits one by one, without a store."""

    def __init__(self, judge: Judge, pace: Pace) -> None:
        self._judge = judge
        self._pace = pace
        self._asker = Asker(None)

    @classmethod
    async def open(
        cls, spec: str, options: Options, resources: AsyncExitStack
    ) -> EditJudge:
        """Open the judge of a spec; what it holds open is closed with `resources`."""
        pace = Pace(spec, retry=Retry(tries=5), circuit=_interactive_circuit(spec))
        judge = await open_judge(spec, options, lambda _: pace, resources)
        return cls(judge, pace)

    async def judge(self, edit: Edit, rubrics: Sequence[Rubric]) -> list[Judgement]:
        """Return a judgement for each rubric, in their order. Raise `JudgeError` if the judge answers nobody: the next
        call asks it again."""
        try:
            return await self._judged(edit, rubrics)
        except JudgeError:
            self._pace.circuit = _interactive_circuit(self._judge.spec)
            raise

    async def _judged(self, edit: Edit, rubrics: Sequence[Rubric]) -> list[Judgement]:
        judge = self._judge
        for role, source in (
            edit.all_pictures().items() if judge.limits is not None else ()
        ):
            # A path given by hand must exist: a typo is not a missing output.
            if isinstance(source, Path) and not source.exists():
                raise ImageError(f"{name_of(source)}: no such file (given as {role})")
        reader = ImageReader()
        look = partial(look_at, DigestCache(reader))
        pictures = ImageCache(reader)
        settings = QuestionSettings(rubrics)
        answers: dict[str, Judgement] = {}
        tasks: list[tuple[Task, Judgement]] = []
        for stage in range(len(settings.stages)):
            planned = works(
                [edit],
                settings,
                judge,
                look,
                lambda work: answers.get(work.task.key),
                stage,
            )
            for work in list(planned):
                judgement = await self._asker.answer(judge, work, pictures)
                answers[work.task.key] = judgement
                tasks.append((work.task, judgement))
        if not tasks:
            raise nothing_to_ask(f"edit {edit.id}")
        order = [rubric.name for rubric in rubrics]
        return [
            judgement
            for _, judgement in sorted(
                tasks, key=lambda one: order.index(one[0].rubric)
            )
        ]


def _interactive_circuit(spec: str) -> Circuit:
    """Never opens by itself. Somebody waits for this edit, and no other can fail: a judge that is down is unreachable
    after seconds, where a run waits for minutes."""
    return Circuit(spec, threshold=sys.maxsize, absence=math.inf)


def _name(job: Job, spec: dict[str, Any]) -> str:
    """Return a name that is the same for the same spec, so that running again without a name resumes."""
    return f"{job.manifest.stem}-{json_hash(spec)[:8]}"
