"""A run from beginning to end. A job determines the judges, the plan, the engine and the summary."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
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
from editjudge.edit import Edit
from editjudge.errors import (
    ImageError,
    InputError,
    JudgeError,
    ManifestError,
    Option,
    UsageError,
    did_you_mean,
)
from editjudge.judgement import DONE, FAILED, Judgement
from editjudge.judges.cost import Budget, Shortfall, check_budget
from editjudge.judges.judge import Judge, Options
from editjudge.judges.registry import check_answers, open_judge
from editjudge.manifest import Columns, NamedInputs
from editjudge.media.cache import DigestCache, ImageCache, ImageReader
from editjudge.media.source import fetch, name_of
from editjudge.orders import ORDERS
from editjudge.redaction import hidden_names
from editjudge.rubrics.files import SETS, load_one, load_set, resolve
from editjudge.rubrics.model import Layout, Rubric
from editjudge.rubrics.prompt import EXACT_NOTICE, layout_of_run
from editjudge.rubrics.sets import RubricSet, asking
from editjudge.running.asker import Asker
from editjudge.running.engine import Ending, Engine, RunControl
from editjudge.running.pace import Circuit, Pace, Retry
from editjudge.running.plan import (
    PlacedEdit,
    Planner,
    QuestionSettings,
    add_outline,
    look_at,
    named_inputs,
    nothing_to_ask,
    placed,
    works,
)
from editjudge.running.progress import RunTally
from editjudge.running.summary import (
    Summary,
    commonest,
    summary_of,
)
from editjudge.running.sums import OVERALL, run_sums
from editjudge.running.until import Decides, Until
from editjudge.running.where import EditFilter, Selected
from editjudge.store.records import PENDING

if TYPE_CHECKING:
    from editjudge.running.offline import OfflineFiles
    from editjudge.store.store import Store

T = TypeVar("T")

Order = Literal["both", "given"]

_FIRST = 1_000
"""Number of edits at the start of a manifest of which at least one must have an existing image. Many may share a
missing image.
"""
_CACHED = 10_000
"""Maximum number of edits kept in memory, about 10 MB. A longer manifest is read again by each judge."""


@dataclass(frozen=True)
class Job:
    """The edits, rubrics, judges and settings of a run: everything that can change an answer."""

    manifest: Path
    rubrics: tuple[str, ...]
    judges: tuple[str, ...]
    repeats: int = 1
    layout: Layout | None = None
    """Layout of the questions; by default each rubric's own."""
    fuse: bool = False
    order: Order = "both"
    """Orders in which pairs are shown: both, or only the order of the manifest."""
    best_of: str | None = None
    """"all" for a run of all pairs that `--best-of` made from a manifest."""
    models: tuple[str, ...] = ()
    """Models whose edits are judged; empty for all."""
    limit: int | None = None
    """Maximum number of edits, counted after `models` was applied."""
    allow_outside: bool = False
    allow_urls: bool = False
    options: Options = field(default_factory=Options)
    columns: Columns = ()
    """Manifest columns that contain the fields of an edit, if their names differ from the fields' names."""
    where: tuple[str, ...] = ()
    """Conditions such as `RUN:FACTOR>=VALUE`. Only edits that meet all of them are judged."""
    primary: tuple[str, ...] = ()
    """Scores that comparisons of this run are about, declared before anything is judged."""
    step: float | None = None
    """Training step at which the edits were made, for `trend`."""
    step_from: str | None = None
    """Regular expression that reads the step from a model's name instead."""
    until: tuple[str, ...] = ()
    """Claims such as `overall: A > B`; the run ends once all of them are decided."""
    alpha: float | None = None
    margin: float | None = None
    rows: Iterable[Mapping[str, object]] | None = field(
        default=None, compare=False, repr=False
    )
    """Rows in memory instead of a file. The manifest's path is then only a name."""
    _cache: dict[object, list[Edit]] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )
    """Edits of a manifest that was read completely, keyed by the manifest's state. Long manifests and images in memory
    are not cached.
    """
    _ids: dict[object, array[int]] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )
    """Hashes of the ids of all edits, including those that `models` leaves out, keyed by the manifest's state. A hash
    takes eight bytes; an id would take about a hundred.
    """
    edits_by_model: Counter[str] = field(
        default_factory=Counter, init=False, compare=False, repr=False
    )
    """Number of edits to judge for each model, set by `check`."""

    def __post_init__(self) -> None:
        if self.repeats < 1:
            repeats = Option("repeats", self.repeats)
            raise UsageError(
                f"{repeats}: at least one", options=[repeats], code="bad_number"
            )
        if not self.judges or not self.rubrics:
            raise UsageError("a run needs at least one rubric and one judge")
        if len(set(self.judges)) < len(self.judges):
            raise UsageError(
                "a judge is named twice; use --repeats to ask it more than once",
                options=[Option("repeats")],
            )

        if self.step_from:
            if self.step is not None:
                raise UsageError(
                    "--step is one step for all edits and --step-from one for each model: give one of them",
                    options=[Option("step"), Option("step-from")],
                )
            step_pattern(self.step_from)
        if self.early and self.is_stream:
            raise UsageError(
                "--until shows edits in random order, and a stream is read from its beginning: give a file",
                options=[Option("until")],
            )
        if self.early and self.limit is not None:
            raise UsageError(
                "--until and --limit both end the run: give one of them, or --budget",
                options=[Option("until"), Option("limit")],
            )

    @property
    def early(self) -> Until | None:
        """The claims that may end the run early."""
        return Until.of(self.until, self.alpha, self.margin)

    def load_rubrics(self) -> list[Rubric]:
        if self.fuse and (sets := self.loaded_sets()):
            raise UsageError(
                f"--fuse: {sets[0].name} is a set of your own, which is asked rubric by rubric: leave --fuse out",
                options=[Option("fuse")],
                code="fused_set",
            )
        if self.fuse and {*self.rubrics} & {*SETS}:
            rubrics = [load_one(name) for name in self.rubrics]
        else:
            rubrics = resolve(self.rubrics)
        check_answers(self.judges, rubrics)
        return rubrics

    def loaded_sets(self) -> list[RubricSet]:
        """Return the user's own rubric sets."""
        names = (name for name in self.rubrics if name not in SETS)
        return [loaded for name in names if (loaded := load_set(name))]

    def sets(self) -> dict[str, Any]:
        """Return the user's own rubric sets, keyed by name, in the form in which a run stores them."""
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
        edits = (edit for edit in self.all_edits() if self.is_about(edit.model))
        return islice(edits, self.limit)

    @property
    def is_stream(self) -> bool:
        """Whether the edits come from a stream. If so, their number is unknown, and reading them again would cost
        network traffic.
        """
        return self.rows is not None and not isinstance(self.rows, Sized)

    def is_about(self, model: str | None) -> bool:
        return not self.models or model in self.models

    def all_edits(self) -> Iterator[Edit]:
        """Yield all edits of the manifest, including those that `models` and `limit` leave out."""
        settings: dict[str, Any] = {
            "allow_outside": self.allow_outside,
            "allow_urls": self.allow_urls,
            "named": self.named_inputs(),
        }
        if self.rows is not None:
            edits = manifest.from_rows(self.rows, name=str(self.manifest), **settings)
        else:
            edits = manifest.read(self.manifest.absolute(), **settings)
        labelled = [each for each in self.loaded_sets() if each.labels]
        for edit in edits:
            if self.is_about(edit.model):
                for each in labelled:
                    each.check_labels(edit)
            yield edit

    def named_inputs(self) -> NamedInputs:
        """Return the extra manifest columns that the rubrics use."""
        return named_inputs(self.load_rubrics(), self.columns)

    @property
    def _folder(self) -> Path:
        return self.manifest if self.manifest.is_dir() else self.manifest.parent

    def reader(self) -> ImageReader:
        """Return an image reader for the manifest's folder. It reads other locations only if they are allowed."""
        root = None if self.allow_outside else self._folder
        addresses = fetch if self.allow_urls else None
        return ImageReader(root=root, fetch=addresses, judges=len(self.judges))

    def chosen(self, store: Store | None) -> Selected:
        """Return the edits that the run selects. The conditions in `where` refer to earlier runs, so they are applied
        only if a store is given.
        """
        conditions = EditFilter(self.where, store) if self.where and store else None
        return Selected(self.edits, conditions)

    def check(self, *, complete: bool = True) -> int | None:
        """Check the manifest before any judge is called. Every line must be valid, every named model must have edits,
        and images must exist, since a wrong path would be blamed on the models. Return the number of judgements that
        the run will have, or None if it is unknown.

        Unless `complete`, only the first edits are read. A stream is never read twice, since that costs network
        traffic.
        """
        complete = complete and not self.is_stream
        state = self._state()
        models = set[str]()
        chosen = 0
        first: list[Edit] = []
        cached: list[Edit] | None = [] if state and complete else None
        ids = array("q")
        self.edits_by_model.clear()
        for edit in self.all_edits():
            ids.append(hash(edit.id))
            models.add(edit.model or "")
            if self.is_about(edit.model):
                chosen += 1
                if self.limit is None or chosen <= self.limit:
                    self.edits_by_model[edit.model or ""] += 1
                if len(first) < _FIRST:
                    first.append(edit)
                if cached is not None:
                    cached.append(edit)
                    holds_images = bytes in map(type, edit.all_images().values())
                    if chosen > _CACHED or holds_images:
                        cached = None
            enough = chosen == self.limit or (not complete and len(first) == _FIRST)
            if enough and not self.until and models.issuperset(self.models):
                is_counted = chosen == self.limit
                break
        else:
            is_counted = True
            if state:
                self._ids[state] = ids
        self._check_models(models)
        self._check_primary()
        if early := self.early:
            scores = {
                f.name: f.term.ends for s in self.loaded_sets() for f in s.formulas
            }
            present = {model for model in self.edits_by_model if model}
            early.check(present, self.load_rubrics(), scores)
        self._check_images(first[: self.limit])
        if cached is not None:
            self._cache[state] = cached[: self.limit]
        if self.where or not is_counted:
            return None
        questions = self.question_settings(self.load_rubrics()).questions
        return min(chosen, self.limit or chosen) * questions * len(self.judges)

    def has_ids(self) -> Callable[[str], bool]:
        """Return a function that tests whether the manifest has an edit with a given id. The manifest is read again if
        `check` did not read all of it.
        """
        ids = self._ids.get(self._state())
        present = {*ids} if ids else {hash(edit.id) for edit in self.all_edits()}
        return lambda item: hash(item) in present

    def _state(self) -> object:
        """Return a value that changes when the manifest file changes. Return None for folders and rows."""
        if self.rows is not None or not self.manifest.is_file():
            return None
        status = self.manifest.stat()
        return status.st_size, status.st_mtime_ns, status.st_ctime_ns

    def outline_mark(self, settings: QuestionSettings) -> str | None:
        """Return a value that changes when the run's questions change. Return None if its edits must be checked again."""
        state = self._state()
        if state is None or self.where:
            return None
        questions = [[rubric.name, asking(rubric)] for rubric in settings.rubrics]
        return json_hash([state, questions, self.limit])

    def _check_images(self, edits: Sequence[Edit]) -> None:
        if not edits:
            raise ManifestError(f"{self.manifest}: has no edits")
        # Without its input, no rubric can be asked about an edit.
        needs_input = all("input" in rubric.images for rubric in self.load_rubrics())
        missing: Path | None = None
        for edit in edits:
            for role, image in edit.all_images().items():
                if role == "input" or not needs_input:
                    if not isinstance(image, Path) or image.exists():
                        return
                    missing = missing or image
        # Recorded replies need no images.
        if all(judge.startswith("replay:") for judge in self.judges):
            return
        example = f", e.g. {name_of(missing)}" if missing else ", nor is any named"
        raise ManifestError(
            f"{self.manifest}: none of the {'inputs' if needs_input else 'images'} of the first {len(edits):,} "
            f"edits was found{example}; paths are relative to the manifest's folder {self._folder.absolute()}",
            code="no_inputs",
        )

    def _check_models(self, present: set[str]) -> None:
        for model in sorted({*self.models} - present):
            names = ", ".join(sorted(present)[:20])
            raise UsageError(
                f'--model: no edit is of "{model}"{did_you_mean(model, present)} Models here: {names or "none"}',
                code="unknown_model",
            )

    def _check_primary(self) -> None:
        names = [name for each in self.sets().values() for name in each["score"]]
        rubrics = self.load_rubrics()
        names += [*(rubric.name for rubric in rubrics), OVERALL]
        names += [factor.key for rubric in rubrics for factor in rubric.factors]
        for name in self.primary:
            if name not in names:
                raise UsageError(
                    f'--primary: no score is called "{name}"{did_you_mean(name, dict.fromkeys(names))}'
                )

    def spec(self, rubrics: Sequence[Rubric]) -> dict[str, object]:
        """Return the spec to store with the run. It is enough to repeat the run, and contains no secrets."""
        where = sorted(set(self.where))
        optional = {
            # One condition is stored as text and several as a list, so that older runs keep their hash.
            "where": where if where[1:] else "".join(where),
            "order": self.order if self.order == "given" else None,
            "best_of": self.best_of,
            "models": sorted(set(self.models)),
            "columns": dict(self.columns),
            "sets": self.sets(),
            "primary": list(self.primary),
            "step_from": self.step_from,
            "until": early.spec() if (early := self.early) else None,
        }
        return {
            "manifest": str(self.manifest.resolve()),
            "rubrics": {rubric.name: rubric.hash for rubric in rubrics},
            "asked_for": list(self.rubrics),
            "judges": list(self.judges),
            "repeats": self.repeats,
            "layout": layout_of_run(rubrics, self.layout),
            "fuse": self.fuse,
            "limit": self.limit,
            "allow_outside": self.allow_outside,
            "allow_urls": self.allow_urls,
            "options": self.options.frozen(),
            **{name: value for name, value in optional.items() if value},
            **({} if self.step is None else {"step": self.step}),
        }

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Job:
        """Recreate the job from the spec of a stored run."""
        options = dict(spec["options"])
        parameters = options.pop("parameters")
        if hidden := hidden_names(parameters["extra"]):
            raise UsageError(
                f"the run was made with secrets, which are not kept: -J {', -J '.join(hidden)}. "
                "Repeat its `editjudge run` command, with the same --name"
            )
        where = spec.get("where", ())
        until = spec.get("until") or {}
        same = ("repeats", "layout", "fuse", "limit", "allow_outside", "allow_urls")
        return cls(
            manifest=Path(spec["manifest"]),
            rubrics=tuple(spec["asked_for"]),
            judges=tuple(spec["judges"]),
            order=spec.get("order", "both"),
            models=tuple(spec.get("models", ())),
            columns=tuple(spec.get("columns", {}).items()),
            primary=tuple(spec.get("primary", ())),
            step=spec.get("step"),
            step_from=spec.get("step_from"),
            until=tuple(until.get("claims", ())),
            alpha=until.get("alpha"),
            margin=until.get("margin"),
            where=(where,) if isinstance(where, str) else tuple(where),
            options=Options(**parameters, **options),
            **{name: spec[name] for name in same},
        )


def step_pattern(text: str) -> re.Pattern[str]:
    """Return a compiled pattern that extracts a step from a name. Raise `UsageError` if the text is not a regular
    expression.
    """
    try:
        return re.compile(text)
    except re.error as error:
        raise UsageError(
            f'--step-from "{text}" is not a regular expression: {error}',
            options=[Option("step-from", text)],
        ) from None


@dataclass(frozen=True)
class Cluster:
    """Address and size of a cluster."""

    address: str | None = None
    """Address of the cluster; None for RAY_ADDRESS, or a temporary cluster on this machine."""
    workers: int | None = None
    """Number of workers; None for one on each CPU."""
    engine: str = "ray"
    """Name of the plug-in that runs the job on the cluster."""


@dataclass(frozen=True)
class Part:
    """One of several parts of a manifest. An edit's id determines to which part it belongs."""

    index: int
    """Number of the part, from 1."""
    count: int

    @classmethod
    def parse(cls, text: str) -> Part:
        """Parse `I/N`. Raise `UsageError` if it is invalid."""
        match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
        if match and 1 <= int(match[1]) <= int(match[2]):
            return cls(int(match[1]), int(match[2]))
        raise UsageError(
            f'--part "{text}": expected I/N, such as 1/4, with I from 1 to N',
            code="bad_part",
        )

    def holds(self, edit: Edit) -> bool:
        """Whether an edit belongs to this part."""
        digest = hashlib.sha256(edit.id.encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[:8], "big") % self.count == self.index - 1


@dataclass(frozen=True)
class RunOptions:
    """Settings of a run that do not change answers."""

    name: str | None = None
    concurrency: int | None = None
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    budget: float | None = None
    rehash: bool = False
    batch: bool = False
    """Whether to use the providers' batch APIs, which cost half as much and take up to a day."""
    write_questions: Path | None = None
    """File for the questions, which are then not asked."""
    read_answers: tuple[Path, ...] = ()
    """Files with answers. No server is asked."""
    part: Part | None = None
    """Part of the edits that this process judges; None for all edits."""
    cluster: Cluster | None = None
    """Cluster to run on; None to run in this process."""
    decides: Decides | None = None
    """Function that says whether the claims of `Job.until` are decided; required if there are any."""
    say: Callable[[str], None] = lambda _: None
    observe: Callable[[RunTally], None] = lambda _: None
    control: Callable[[RunControl], None] = lambda _: None
    """Function that is called before the run starts, with the control by which the run can be stopped."""

    @property
    def is_offline(self) -> bool:
        """Whether questions go to a file or answers come from files, so that no server is asked."""
        return bool(self.write_questions or self.read_answers)


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
    """The request that the budget did not cover; None if the budget sufficed."""
    store: str = ""
    """Address of the store, without a password."""
    saved: int | None = None
    """Number of judgements that were not needed because every claim was decided; None for a run without claims."""


def is_new(store: str | os.PathLike[str]) -> bool:
    """Whether opening this store would create a file."""
    return "://" not in os.fspath(store) and not os.path.exists(store)


class OpenRun:
    """A job, and its run in a store."""

    def __init__(self, job: Job, store: Store, options: RunOptions) -> None:
        self.job = job
        self.store = store
        self.rubrics = job.load_rubrics()
        self.settings = job.question_settings(self.rubrics)
        self.chosen = job.chosen(store)
        """The edits to judge."""
        spec = job.spec(self.rubrics)
        # The same spec gives the same name, so that running again without a name resumes.
        name = options.name or f"{job.manifest.stem}-{json_hash(spec)[:8]}"
        self.record = store.open_run(name, spec)
        store.add_rubrics(self.rubrics)
        self._removed = self._drop_removed()
        self.places: dict[str, PlacedEdit] | None = None
        """Positions of the edits of a run with claims, in their random order."""

    def rounds(self, options: RunOptions) -> Iterator[Callable[[], Iterable[Edit]]]:
        """Yield the edits to judge: all of them at once or, in a run with claims, one round after the other until the
        claims are decided.
        """
        if self.places is None or options.decides is None:
            yield self.chosen
            return
        edits = [place.edit for place in self.places.values()]
        for size in self._round_sizes:
            yield partial(iter, edits[:size])
            edits = edits[size:]
            if options.decides(self.store, self.record):
                return

    def shuffle(self, early: Until, *, batch: bool) -> None:
        """Put the edits into the random order of a run with claims."""
        digests = DigestCache(self.job.reader())
        edits = list(self.chosen())
        unknown = digests.unknown(edit.input for edit in edits if edit.input)
        digests.load(self.store.load_digests(sorted(unknown)))
        rounds = list(early.rounds(edits, digests, batch=batch))
        self._round_sizes = [len(edits) for edits in rounds]
        ordered = (edit for edits in rounds for edit in edits)
        self.places = {p.edit.id: p for p in placed(ordered, self.settings)}

    def _drop_removed(self) -> int:
        """Remove edits from a resumed run that are no longer in the manifest, and return their number. Edits that
        `limit` or `models` leaves out are kept.
        """
        stored = self.store.item_ids(self.record)
        if not stored:
            return 0
        is_present = self.job.has_ids()
        removed = [item for item in stored if not is_present(item)]
        self.store.drop_items(self.record, removed)
        return len(removed)

    def keep_outline(self) -> int:
        """Store all edits and tasks of the run, unless they are already stored, and return the number of tasks."""
        mark = self.job.outline_mark(self.settings)
        stored = self.store.outline_of(self.record)
        if stored and mark and stored[0] == mark:
            return stored[1]
        expected = add_outline(
            self.store,
            self.record.id,
            self.job.judges,
            placed(self.chosen(), self.settings),
            resumed=self.store.has_items(self.record),
        )
        self.store.mark_outline(self.record, mark or "", expected)
        return expected

    def interrupt(self) -> bool:
        """Mark the run as interrupted, or remove it if it has no answers. Return whether the run still exists."""
        counts = self.store.counts(self.record)
        has_answers = any(status != PENDING for *_, status in counts)
        if has_answers:
            self.store.mark(self.record, "interrupted")
        else:
            self.store.remove_run(self.record)
        return has_answers

    def conclude(self, control: RunControl, tally: RunTally) -> Outcome:
        """Compute the summary of the run and mark the run as ended."""
        store = self.store
        run = self.record
        tally.left_out = self.chosen.absent
        tally.removed = self._removed
        # Choices have no mean.
        factors = {
            rubric.name: [f.key for f in rubric.factors if not rubric.chooses]
            for rubric in self.rubrics
        }
        summary = self._stored_summary(tally)
        summary = summary or summary_of(*store.score_sums(run), factors)
        if failed := [status for status in summary.statuses if status in FAILED]:
            rows = store.judgements(
                run, fields=("item", "status", "reasons"), status=failed
            )
            summary.reasons = commonest(rows)
        ending = control.stopping or "finished"
        saved = None
        if self.places is not None:
            tasks = sum(len(place.tasks) for place in self.places.values())
            saved = max(0, tasks * len(self.job.judges) - summary.total)
        # A part of a run may finish before the others.
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
            store.name,
            saved if ending == "finished" else None,
        )

    def _stored_summary(self, tally: RunTally) -> Summary | None:
        """Return the stored summary if all tasks were already done and nothing has been judged since. Otherwise return
        None. The store deletes a run's summary when its edits or tasks change.
        """
        stored = self.store.run_of(self.record.id)
        if stored is None or stored.imported_from or not stored.summary:
            return None
        is_same = stored.summary["statuses"] == dict(tally.statuses)
        is_done = {*tally.statuses} <= {*DONE}
        return Summary.of_json(stored.summary) if is_same and is_done else None


async def execute(
    job: Job, store: Store | Callable[[], Store], options: RunOptions
) -> Outcome:
    """Run a job and return the outcome. The run may end early because of the budget, the judges or the user.

    If `store` is a function, it is called after all checks, so a job that cannot run leaves no file behind.
    """
    if cluster := options.cluster:
        name = cluster.engine
        execute_on = plugins.load("engines", name, f"--engine {name}")
        outcome: Outcome = await execute_on(cluster, job, store, options)
        return outcome
    job.question_settings(job.load_rubrics())  # raises if a rubric cannot be asked
    check_budget(options.budget, job.judges, job.options, batch=options.batch)
    budget = Budget(options.budget)
    async with AsyncExitStack() as resources:
        judges, files = await _opened(job, options, budget, resources)
        expected = job.check()
        run = OpenRun(job, store() if callable(store) else store, options)
        if early := job.early:
            await asyncio.to_thread(run.shuffle, early, batch=options.batch)
        for warning in itertools.chain(*(judge.warnings for judge in judges)):
            options.say(warning)
        if run.settings.is_exact:
            options.say(EXACT_NOTICE)
        engine = _engine(run, budget, options)
        engine.tally.expected = expected
        options.control(engine.control)
        try:
            if not job.is_stream and run.places is None:
                engine.tally.expected = await asyncio.to_thread(run.keep_outline)
                if options.part:
                    in_part = placed(run.chosen(), run.settings, options.part.holds)
                    tasks = sum(len(edit.tasks) for edit in in_part)
                    engine.tally.expected = tasks * len(judges)
            await engine.run(run.rounds(options), judges)
            for line in files.report(run.store) if files else ():
                options.say(line)
        except InputError:  # the manifest changed since it was checked
            run.interrupt()
            raise
        except BaseException:
            # Stopped immediately: the next run continues from the stored answers.
            run.store.mark(run.record, "interrupted")
            raise
    control = engine.control
    if isinstance(control.error, InputError) and not run.interrupt():
        raise control.error
    nothing_asked = engine.planner.not_applicable and not engine.planner.planned
    if nothing_asked and not control.stopped and options.part is None:
        if not run.store.counts(run.record):
            run.store.remove_run(run.record)
        raise nothing_to_ask(str(job.manifest))
    return run.conclude(control, engine.tally)


async def _opened(
    job: Job, options: RunOptions, budget: Budget, resources: AsyncExitStack
) -> tuple[list[Judge], OfflineFiles | None]:
    """Open the judges, and the files of a run without a server."""
    judges = [
        await open_judge(
            spec,
            job.options,
            pacing(options),
            resources,
            batch=options.batch,
            needs_key=not options.is_offline,
            funds=budget,
        )
        for spec in job.judges
    ]
    if not options.is_offline:
        return judges, None
    from editjudge.running.offline import OfflineFiles, OfflineJudge

    files = OfflineFiles(options.write_questions, options.read_answers)
    offline: list[Judge] = [OfflineJudge(judge, files) for judge in judges]
    return offline, resources.enter_context(files)


def _engine(run: OpenRun, budget: Budget, options: RunOptions) -> Engine:
    # Imported here, since judging a single edit needs no database.
    from editjudge.store.claims import Claims

    planner = Planner(
        run.store,
        run.record.id,
        run.settings,
        run.job.reader(),
        rehash=options.rehash,
        outlining=run.job.is_stream or run.places is not None,
        part=options.part.holds if options.part else lambda _: True,
        places=run.places,
    )
    make: Callable[..., Engine] = Engine
    if options.batch:
        # Imports three wire formats that other runs do not need.
        from editjudge.running.batch import BatchEngine

        make = partial(BatchEngine, run_id=run.record.id)
    return make(
        run.store,
        planner=planner,
        budget=budget,
        say=options.say,
        claims=Claims(run.store),
        observe=options.observe,
    )


def wait_for(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end. If this thread already has an event loop, as in a notebook, it runs in another
    thread.

    Ctrl-C cancels the coroutine in both cases. `KeyboardInterrupt` is raised only after the coroutine has stopped, so
    the store is consistent.
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
            # Only the main thread is interrupted, so the other thread must be cancelled.
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
    """Judge one edit without a store. Return the judgements in the order of the rubrics."""
    check_answers([spec], rubrics)
    async with AsyncExitStack() as resources:
        judge = await EditJudge.open(spec, options, resources)
        return await judge.judge(edit, rubrics)


class EditJudge:
    """A judge that is opened once and judges single edits, without a store."""

    def __init__(self, judge: Judge, pace: Pace) -> None:
        self._judge = judge
        self._pace = pace
        self._asker = Asker(None)

    @classmethod
    async def open(
        cls, spec: str, options: Options, resources: AsyncExitStack
    ) -> EditJudge:
        """Open the judge that a spec names. It is closed together with `resources`."""
        pace = Pace(spec, retry=Retry(tries=5), circuit=_interactive_circuit(spec))
        judge = await open_judge(spec, options, lambda _: pace, resources)
        return cls(judge, pace)

    async def judge(self, edit: Edit, rubrics: Sequence[Rubric]) -> list[Judgement]:
        """Return the judgements of an edit, in the order of the rubrics. Raise `JudgeError` if the judge cannot be
        reached. The next call tries again.
        """
        judge = self._judge
        if judge.limits is not None:
            for role, source in edit.all_images().items():
                # A path that the user typed must exist, since a typo is not a missing output.
                if isinstance(source, Path) and not source.exists():
                    raise ImageError(
                        f"{name_of(source)}: no such file (given as {role})",
                        code="missing_image",
                    )
        reader = ImageReader()
        look = partial(look_at, DigestCache(reader))
        images = ImageCache(reader)
        settings = QuestionSettings(rubrics)
        answers: dict[str, Judgement] = {}
        judgements: dict[str, list[Judgement]] = {rubric.name: [] for rubric in rubrics}
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
                try:
                    judgement = await self._asker.answer(judge, work, images)
                except JudgeError:
                    self._pace.circuit = _interactive_circuit(judge.spec)
                    raise
                answers[work.task.key] = judgement
                judgements[work.task.rubric].append(judgement)
        if not answers:
            raise nothing_to_ask(f"edit {edit.id}")
        return [judgement for each in judgements.values() for judgement in each]


def _interactive_circuit(spec: str) -> Circuit:
    """Return a circuit breaker that never opens by itself. A user is waiting for this edit, so a judge that is down is
    reported within seconds instead of minutes.
    """
    return Circuit(spec, threshold=sys.maxsize, absence=math.inf)
