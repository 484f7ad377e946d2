"""Forecast of a run's questions, cost, time and storage. It is based on all edits or, for a long manifest, on a sample."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import itertools
import json
import math
import random
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from editjudge import manifest
from editjudge.edit import Edit
from editjudge.errors import ManifestError
from editjudge.judgement import DONE, Judgement, Usage
from editjudge.judges.cost import (
    answer_tokens,
    price_of,
    prices,
    question_tokens,
    thinking_tokens,
)
from editjudge.judges.judge import Judge, Options, Work, is_local
from editjudge.judges.registry import open_judge
from editjudge.media.cache import DigestCache
from editjudge.rubrics.verdict import UNSCORED
from editjudge.running.job import Job, RunOptions
from editjudge.running.pace import Pace
from editjudge.running.plan import (
    ASSUMED,
    BATCH,
    EditQuestions,
    look_at,
    nothing_to_ask,
)
from editjudge.running.where import EditFilter
from editjudge.store.store import Store

SAMPLE = 1_000
"""Maximum number of edits whose images are examined; a longer manifest is sampled."""
BYTES = 2_300
"""Number of bytes that a judgement takes in a SQLite store, with its task, replies and indexes, for the stub server's
replies (checked by tests).
"""
BYTES_AN_EDIT = 5_500
"""Number of bytes that an edit takes in a store, with its images' digests and its scores in lists (checked by tests).
"""
_Z = 1.96


@dataclass
class Estimate:
    """Expected number of questions to one judge, and their cost."""

    judge: str
    calls: int = 0
    images: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    thinking_tokens: int = 0
    """Assumed tokens of thinking, which are part of the output tokens."""
    price: float | None = None
    """Cost in US dollars; None if it is unknown."""
    batch_price: float | None = None
    """Cost with `--batch`; None if it is unknown, or the judge has no batches."""
    as_of: str = ""
    """Date of the price list."""
    seconds: float | None = None
    """Duration in seconds at the given rates; None if it is unknown."""
    interval: dict[str, tuple[float, float]] = field(default_factory=dict)
    """95 % confidence interval of each number that was estimated from a sample."""

    @classmethod
    def of(cls, judge: str, options: Options, works: Iterable[Work] = ()) -> Estimate:
        """Return the estimate for these tasks, with one question for each."""
        listed = prices(options.prices)
        price = price_of(judge, options)
        batch_price = listed.of(judge, batch=True)
        estimate = cls(judge, as_of=price.as_of if price else listed.as_of)
        estimate.price = None if price is None else 0.0
        estimate.batch_price = None if batch_price is None else 0.0
        thinking = thinking_tokens(judge, options)
        for work in works:
            if work.problem or is_local(judge):
                continue
            sizes = [work.sizes[role] for role in work.images]
            characters = len(str(work.question()))
            question = question_tokens(judge, sizes, characters)
            usage = Usage(question, answer_tokens(work.rubric) + thinking)
            estimate.calls += 1
            estimate.images += len(work.images)
            estimate.input_tokens += question
            estimate.output_tokens += usage.output_tokens or 0
            estimate.thinking_tokens += thinking
            if price and estimate.price is not None:
                estimate.price += price.of(usage) or 0.0
            if batch_price and estimate.batch_price is not None:
                estimate.batch_price += batch_price.of(usage) or 0.0
        return estimate

    def as_json(self) -> dict[str, object]:
        return dataclasses.asdict(self)


@dataclass
class Todo:
    """Number of tasks of a run, and how many of them remain."""

    edits: int = 0
    sampled: int | None = None
    """Number of edits in the sample; None if all edits were examined."""
    tasks: int = 0
    done: int = 0
    problems: Counter[str] = field(default_factory=Counter)
    """Number of tasks that no judge can be asked about, for each status that they will have."""
    not_applicable: int = 0
    """Number of questions that do not apply to their edit."""
    left_out: int = 0
    """Number of edits left out because an earlier run, to which a condition refers, does not have them."""
    stored_bytes: int = 0

    def scale(self, factor: float) -> None:
        """Multiply the counts of a sample by a factor."""
        for name in ("tasks", "done", "left_out", "not_applicable"):
            setattr(self, name, round(getattr(self, name) * factor))
        for status, count in self.problems.items():
            self.problems[status] = round(count * factor)


def forecast(
    job: Job,
    store_place: str,
    rates: RunOptions | None = None,
    *,
    needs_keys: bool = False,
) -> tuple[list[Estimate], Todo]:
    """Estimate the remaining tasks of each judge. The store is only read, and is not created if it does not exist.

    No judge is called, so API keys are not required. A caller that will call judges afterwards sets `needs_keys` to
    require them.
    """
    return asyncio.run(_forecast(job, store_place, rates or RunOptions(), needs_keys))


async def _forecast(
    job: Job, store_place: str, rates: RunOptions, needs_keys: bool
) -> tuple[list[Estimate], Todo]:
    job.check(complete=False)
    sample, total = _draw(job)
    todo = Todo()
    estimates = []
    async with AsyncExitStack() as resources:
        store = None
        if "://" in store_place or Path(store_place).exists():
            store = resources.enter_context(Store.open(store_place, readonly=True))
        for spec in job.judges:
            judge = await open_judge(
                spec, job.options, Pace, resources, needs_key=needs_keys
            )
            edits = job.edits() if sample is None else iter(sample)
            by_edit = list(_by_edit(job, judge, store, todo, edits, sample is not None))
            todo.edits = total or len(by_edit)
            estimate = _sum(Estimate.of(spec, job.options), by_edit, todo.edits)
            latency = store.mean_latency(spec) if store else None
            estimate.seconds = _seconds(estimate, rates, latency)
            estimates.append(estimate)
    if sample is None and todo.not_applicable and not todo.tasks:
        raise nothing_to_ask(str(job.manifest))
    todo.left_out //= len(job.judges)  # each judge goes through all edits
    if sample is not None:
        todo.sampled = len(sample)
        todo.scale(todo.edits / len(sample))
    todo.stored_bytes = BYTES_AN_EDIT * todo.edits + BYTES * (todo.tasks - todo.done)
    return estimates, todo


def _by_edit(
    job: Job,
    judge: Judge,
    store: Store | None,
    todo: Todo,
    edits: Iterator[Edit],
    sampled: bool,
) -> Iterator[Estimate]:
    """Yield an estimate for each edit. A question that several edits share is paid for once, so it is counted only for
    the first of them. In a sample it is counted for each, since the others may not be in the sample.
    """
    settings = job.question_settings(job.load_rubrics())
    answers = functools.partial(_answer, store)
    counted: set[str] = set()
    conditions = EditFilter(job.where, store) if job.where and store else None
    while batch := list(itertools.islice(edits, BATCH)):
        passed, absent = conditions.through(batch) if conditions else (batch, 0)
        todo.left_out += absent
        look = functools.partial(look_at, DigestCache(job.reader()))
        planned: dict[str, list[Work]] = {edit.id: [] for edit in batch}
        for edit in passed:
            questions = EditQuestions(edit, settings, judge, look, answers)
            planned[edit.id] = questions.works()
            todo.not_applicable += questions.not_applicable()
        keys = [work.task.key for works in planned.values() for work in works]
        statuses = store.done(keys) if store else {}
        for works in planned.values():
            waiting = [w for w in works if statuses.get(w.task.key) not in DONE]
            todo.tasks += len(works)
            todo.done += len(works) - len(waiting)
            todo.problems.update(
                work.problem.status for work in waiting if work.problem
            )
            if not sampled:
                by_key = {work.task.key: work for work in waiting}
                waiting = [work for k, work in by_key.items() if k not in counted]
                counted.update(by_key)
            yield Estimate.of(judge.spec, job.options, waiting)


def _answer(store: Store | None, work: Work) -> Judgement:
    """Return the answer to which a later question refers: the stored one or, if there is none, a made-up one of typical
    length.
    """
    if store and (judgement := store.judgement(work.task.key)):
        return judgement
    keys = [factor.key for factor in work.rubric.factors]
    reasons = work.rubric.answer.texts if keys else ()
    unscored = [name for name in work.rubric.values if name not in (*keys, *reasons)]
    length = sum(work.rubric.answer.words or (40,)) // 2
    judgement = work.judgement(
        "ok",
        scores=dict.fromkeys(keys, 0),
        justifications=dict.fromkeys(keys, "word " * length),
        evidence={UNSCORED: dict.fromkeys(unscored, "word " * length)},
    )
    return dataclasses.replace(judgement, key=ASSUMED)


_SUMS = (
    "calls",
    "images",
    "input_tokens",
    "output_tokens",
    "thinking_tokens",
    "price",
    "batch_price",
)


def _sum(estimate: Estimate, by_edit: list[Estimate], total: int) -> Estimate:
    """Extrapolate the mean over these edits to all edits. For a sample, add the confidence interval."""
    for name in _SUMS:
        values = [getattr(edit, name) for edit in by_edit]
        if not values or values[0] is None:
            continue
        count = len(values)
        value = statistics.fmean(values) * total
        setattr(estimate, name, value if isinstance(values[0], float) else round(value))
        if 1 < count < total:
            error = statistics.stdev(values) / math.sqrt(count)
            half = _Z * total * error * math.sqrt(1 - count / total)
            estimate.interval[name] = (max(0.0, value - half), value + half)
    return estimate


def _seconds(
    estimate: Estimate, rates: RunOptions, latency: float | None
) -> float | None:
    """Return the estimated duration in seconds, which the slowest limit determines. Return None if there is neither a
    rate limit nor a measured latency.
    """
    tokens = estimate.input_tokens + estimate.output_tokens
    bounds = []
    if rates.requests_per_minute:
        bounds.append(60 * estimate.calls / rates.requests_per_minute)
    if rates.tokens_per_minute:
        bounds.append(60 * tokens / rates.tokens_per_minute)
    if rates.concurrency and latency:
        bounds.append(estimate.calls * latency / rates.concurrency)
    return max(bounds, default=None)


def _draw(job: Job) -> tuple[list[Edit] | None, int | None]:
    """Return a random sample of a long manifest's edits, and the total number of edits. Return (None, None) if all
    edits should be read.

    Lines are counted and picked without being parsed. Formats other than JSONL are read completely.
    """
    path = job.manifest
    is_jsonl = path.suffix.lower() in (".jsonl", ".ndjson") and path.is_file()
    if job.rows is not None or job.models or not is_jsonl:
        return None, None
    with path.open("rb") as file:
        blocks = iter(lambda: file.read(1 << 22), b"")
        total = sum(block.count(b"\n") for block in blocks)
    total = min(total, job.limit or total)
    if total <= SAMPLE:
        return None, None
    # The same lines each time, so that a repeated forecast is the same.
    chosen = frozenset(random.Random(0).sample(range(1, total + 1), SAMPLE))  # noqa: S311  (a sample)
    rows = []
    with path.open("rb") as file:
        for number, line in enumerate(itertools.islice(file, total), 1):
            if number in chosen and line.strip():
                try:
                    row = dict(json.loads(line))
                except (ValueError, TypeError):
                    raise ManifestError(
                        f"{path}:{number}: expected one JSON object a line"
                    ) from None
                rows.append(row | {"id": row.get("id") or f"line-{number}"})
    edits = manifest.from_rows(
        rows,
        name=str(path),
        root=path.parent,
        allow_outside=job.allow_outside,
        allow_urls=job.allow_urls,
        named=job.named_inputs(),
    )
    return list(edits), total
