"""A run from beginning to end: what was asked for becomes judges, a plan, an engine and a summary."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from editjudge import manifest
from editjudge.edit import IMAGE_ROLES, Edit
from editjudge.errors import InputError, ManifestError, UsageError, near_miss
from editjudge.judges.budget import Budget, Shortfall
from editjudge.judges.messages import Parameters
from editjudge.judges.registry import Options, check_answers, open_judge
from editjudge.media.image import name_of
from editjudge.rubrics.files import SETS, load_one, resolve
from editjudge.rubrics.model import Rubric
from editjudge.rubrics.prompt import Layout
from editjudge.run.batch import BatchEngine
from editjudge.run.contradicting import hold_against_evidence
from editjudge.run.cost import Costs
from editjudge.run.engine import Engine
from editjudge.run.fetching import fetch
from editjudge.run.pace import Circuit, Pace
from editjudge.run.plan import QuestionSettings
from editjudge.run.planner import Ending, PictureAccess, Planner, RunControl, RunTally
from editjudge.run.summary import Summary, commonest, is_failure, summarise
from editjudge.run.where import EditFilter, Selected
from editjudge.store.claims import Claims
from editjudge.store.store import RunRecord, Store

T = TypeVar("T")

_FIRST = 1_000
"""Edits among which a picture is looked for before anything is kept: many may share one that is missing."""


@dataclass(frozen=True)
class Job:
    """What is to be judged, by whom and how: all that can change an answer."""

    manifest: Path
    rubrics: tuple[str, ...]
    judges: tuple[str, ...]
    repeats: int = 1
    layout: Layout = "images-first"
    fuse: bool = False
    models: tuple[str, ...] = ()
    """Only edits of these; all where none is named."""
    limit: int | None = None
    """Of the edits that are left, the first so many."""
    allow_outside: bool = False
    allow_urls: bool = False
    options: Options = field(default_factory=Options)
    where: tuple[str, ...] = ()
    """`RUN:FACTOR>=VALUE`, all of them: only the edits that earlier runs of the same store did not rule out."""
    rows: Iterable[Mapping[str, Any]] | None = field(default=None, compare=False, repr=False)
    """In the place of a file: the manifest's path is then no more than a name."""
    _read_through: list[object] = field(default_factory=list, init=False, compare=False, repr=False)
    """States of the manifest in which every line was understood."""

    def __post_init__(self) -> None:
        if self.repeats < 1:
            raise UsageError(f"--repeats {self.repeats}: at least one")
        if not self.judges or not self.rubrics:
            raise UsageError("a run needs at least one rubric and one judge")
        if len(set(self.judges)) < len(self.judges):
            raise UsageError("a judge is named twice; use --repeats to ask it more than once")

    def load_rubrics(self) -> list[Rubric]:
        fused = self.fuse and set(self.rubrics) & set(SETS)
        rubrics = [load_one(word) for word in self.rubrics] if fused else resolve(self.rubrics)
        check_answers(self.judges, rubrics)
        return rubrics

    def edits(self) -> Iterator[Edit]:
        return islice((edit for edit in self._read() if self.is_about(edit.model)), self.limit)

    def is_about(self, model: str | None) -> bool:
        return not self.models or model in self.models

    def _read(self) -> Iterator[Edit]:
        outside, urls = self.allow_outside, self.allow_urls
        if self.rows is not None:
            return manifest.from_rows(self.rows, name=str(self.manifest), allow_outside=outside, allow_urls=urls)
        return manifest.read(self.manifest.absolute(), allow_outside=outside, allow_urls=urls)

    def chosen(self, store: Store, edits: Callable[[], Iterator[Edit]] | None = None) -> Selected:
        """The edits that the run is about, of all or of some of the manifest's."""
        return Selected(edits or self.edits, EditFilter(self.where, store) if self.where else None)

    def check(self, *, whole: bool = True) -> None:
        """That every line can be understood, before anything is asked, and that there is something to judge, where the
        manifest says: else its models would be blamed for it. Without `whole` the first edits are looked at alone."""
        self._check_models()
        self._check_pictures()
        # A stream costs its network once more, so that it is read as it is judged.
        if whole and (self.rows is None or isinstance(self.rows, Sized)) and self._is_new():
            for _ in self.edits():
                pass

    def _is_new(self) -> bool:
        """Whether the manifest was not read through before, as it is now."""
        status = self.manifest.stat() if self.rows is None and self.manifest.is_file() else None
        state = status and (status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        is_new = state is None or state not in self._read_through
        self._read_through.append(state)
        return is_new

    def _check_pictures(self) -> None:
        needs_input = all("input" in rubric.images for rubric in self.load_rubrics())
        roles = ("input",) if needs_input else IMAGE_ROLES  # without its input no rubric can be asked of an edit
        sought: list[Path | None] = []
        """A picture of each of the first edits, as long as none is found."""
        for edit in islice(self.edits(), _FIRST):
            sought.append(None)
            for picture in filter(None, (getattr(edit, role) for role in roles)):
                if not isinstance(picture, Path) or picture.exists():
                    return
                sought[-1] = picture
        if not sought:
            raise ManifestError(f"{self.manifest}: holds no edit")
        if all(judge.startswith("replay:") for judge in self.judges):  # what was said of them is enough
            return
        folder = self.manifest.absolute() if self.manifest.is_dir() else self.manifest.absolute().parent
        named = next(filter(None, sought), None)
        example = f", e.g. {name_of(named)}" if named else ", nor is any named"
        raise ManifestError(
            f"{self.manifest}: none of the {'inputs' if needs_input else 'pictures'} of the first {len(sought):,} "
            f"edits was found{example}; "
            f"paths are relative to the manifest's folder {folder}"
        )

    def _check_models(self) -> None:
        missing, seen = set(self.models), set()
        for edit in self._read() if missing else ():
            seen.add(edit.model or "")
            missing.discard(edit.model or "")
            if not missing:
                return
        for model in sorted(missing):
            known = ", ".join(sorted(seen)[:20])
            raise UsageError(f'--model: no edit is of "{model}"{near_miss(model, seen)} Models here: {known or "none"}')

    def spec(self, rubrics: Sequence[Rubric]) -> dict[str, Any]:
        """Frozen with the run: enough to do it again, and nothing secret."""
        asked = dataclasses.asdict(self.options)
        for name in ("timeout", "prices"):
            del asked[name]
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
            "options": asked,
            # One is a word and several a list, so that a run of one condition is the run it was.
            **({"where": all_of if all_of[1:] else all_of[0]} if (all_of := sorted(set(self.where))) else {}),
            **({"models": sorted(set(self.models))} if self.models else {}),
        }

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Job:
        """What a run was asked for, as it was frozen."""
        options = dict(spec["options"])
        parameters = Parameters(**options.pop("parameters"))
        return cls(
            manifest=Path(spec["manifest"]),
            rubrics=tuple(spec["asked_for"]),
            judges=tuple(spec["judges"]),
            repeats=spec["repeats"],
            layout=spec["layout"],
            fuse=spec["fuse"],
            models=tuple(spec.get("models", ())),
            limit=spec["limit"],
            where=(where,) if isinstance(where := spec.get("where", ()), str) else tuple(where),
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
class RunOptions:
    """How a run goes about it: nothing here changes an answer."""

    name: str | None = None
    concurrency: int | None = None
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    budget: float | None = None
    rehash: bool = False
    batch: bool = False
    """By the batches of the providers: at half the price, within a day."""
    cluster: Cluster | None = None
    """None: on this machine, by this process."""
    say: Callable[[str], None] = lambda _: None
    observe: Callable[[RunTally], None] = lambda _: None
    control: Callable[[RunControl], None] = lambda _: None
    """Handed the means to stop the run before it starts."""


@dataclass(frozen=True)
class Outcome:
    """What a run came to."""

    run_id: int
    name: str
    ending: Ending
    tally: RunTally
    summary: Summary
    error: BaseException | None = None
    short: Shortfall | None = None
    """What the budget was too little for."""


def is_new(place: str | os.PathLike[str]) -> bool:
    """Whether opening this store makes a file."""
    return "://" not in os.fspath(place) and not os.path.exists(place)


async def rehearse(job: Job, manner: RunOptions) -> None:
    """Raise what `execute` would raise before it keeps anything, for who would make a store only for what can run."""
    job.load_rubrics()
    Costs(job.options, manner.budget, job.judges, batch=manner.batch)
    async with AsyncExitStack() as resources:
        for spec in job.judges:
            await open_judge(spec, job.options, _pacing(manner), resources, batch=manner.batch)
    job.check()


async def execute(job: Job, store: Store, manner: RunOptions) -> Outcome:
    """Run to the end, or as far as budget, patience and the user allow; then say what there is."""
    if manner.cluster:
        from editjudge.cluster.driver import execute as execute_on

        return await execute_on(manner.cluster, job, store, manner)
    rubrics = job.load_rubrics()
    shape = QuestionSettings(rubrics, job.repeats, job.layout)
    Costs(job.options, manner.budget, job.judges, batch=manner.batch)  # says so where a budget cannot be kept
    purse = Budget(manner.budget)
    async with AsyncExitStack() as resources:
        judges = [
            await open_judge(spec, job.options, _pacing(manner), resources, batch=manner.batch, funds=purse)
            for spec in job.judges
        ]
        job.check()
        chosen = job.chosen(store)  # what cannot be asked at all leaves no run behind
        for warning in (w for judge in judges for w in getattr(judge, "warnings", ())):
            manner.say(warning)
        run = open_run(job, store, manner, rubrics)
        removed = drop_removed(job, store, run)
        planner = Planner(store, run.id, shape, access(job, manner.rehash), manner.observe, Claims(store))
        engine = (
            BatchEngine(store, run.id, planner, purse, manner.say)
            if manner.batch
            else Engine(store, planner, purse, manner.say)
        )
        manner.control(engine.control)
        try:
            await engine.run(chosen, judges)
        except BaseException:  # stopped at once: what is kept is there to go on from
            store.mark(run, "interrupted")
            raise
    if isinstance(engine.control.error, InputError) and not store.counts(run):
        store.remove_run(run)  # nothing was planned, so that there is nothing to go on with
        raise engine.control.error
    planner.tally.left_out, planner.tally.removed = chosen.absent, removed
    return conclude(store, run, rubrics, engine.control, planner.tally)


def conclude(store: Store, run: RunRecord, rubrics: Sequence[Rubric], control: RunControl, tally: RunTally) -> Outcome:
    """What a run came to, whichever engine did it."""
    if isinstance(store, Store):  # and no folder of shards, which is held against nothing before it is imported
        hold_against_evidence(store, run)
    rows = store.judgements(run, fields=("judge", "model", "rubric", "status", "scores"))
    summary = summarise(rows, {rubric.name: [factor.key for factor in rubric.factors] for rubric in rubrics})
    if failed := [status for status in summary.statuses if is_failure(status)]:
        summary.reasons = commonest(store.judgements(run, fields=("item", "status", "reasons"), status=failed))
    ending = control.stopping or "finished"
    store.mark(run, "interrupted" if ending == "failed" else ending, summary.as_json())
    return Outcome(run.id, run.name, ending, tally, summary, control.error, control.short)


def open_run(job: Job, store: Store, manner: RunOptions, rubrics: Sequence[Rubric]) -> RunRecord:
    """The run of a job in a store, with the questions it asks."""
    spec = job.spec(rubrics)
    run = store.open_run(manner.name or _name(job, spec), spec)
    store.add_rubrics(rubrics)
    return run


def drop_removed(job: Job, store: Store, run: RunRecord) -> int:
    """Take what the manifest has no more out of a resumed run; what `limit` or `models` leave out is still in it."""
    gone = store.item_ids(run)
    if gone:
        gone.difference_update(edit.id for edit in job._read())
        store.drop_items(run, gone)
    return len(gone)


def wait_for(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, in a thread of its own where this one already has an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def access(job: Job, rehash: bool = False) -> PictureAccess:
    """Pictures come from the manifest's folder, and from nowhere else unless that was allowed."""
    folder = job.manifest if job.manifest.is_dir() else job.manifest.parent
    root = None if job.allow_outside else folder
    return PictureAccess(root, fetch if job.allow_urls else None, rehash)


def _pacing(manner: RunOptions) -> Callable[[str], Pace]:
    def pace(spec: str) -> Pace:
        return Pace(
            spec,
            concurrency=manner.concurrency,
            requests_per_minute=manner.requests_per_minute,
            tokens_per_minute=manner.tokens_per_minute,
            circuit=Circuit(spec, say=manner.say),
        )

    return pace


def _name(job: Job, spec: dict[str, Any]) -> str:
    """The same for the same spec, so that running again without a name resumes."""
    digest = hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()
    return f"{job.manifest.stem}-{digest[:8]}"
