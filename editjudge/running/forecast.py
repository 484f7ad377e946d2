"""Questions, cost, time and storage of a run before anything is asked, from all edits or from a sample of very many."""

from __future__ import annotations

import asyncio
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
from editjudge.judgement import DONE, Judgement
from editjudge.judges.judge import Judge, Work
from editjudge.judges.registry import open_judge
from editjudge.media.cache import DigestCache
from editjudge.running.cost import Costs, Estimate
from editjudge.running.job import Job
from editjudge.running.pace import Pace
from editjudge.running.plan import (
    BATCH,
    EditQuestions,
    QuestionSettings,
    look_at,
    nothing_to_ask,
)
from editjudge.running.where import EditFilter
from editjudge.store.store import Store

SAMPLE = 1_000
"""Edits whose pictures are looked at; of a longer manifest this many are drawn."""
BYTES = 2_300
"""Bytes of a judgement in a SQLite store, with its task, replies and indexes, as the stub answers (held by the tests)."""
BYTES_AN_EDIT = 500
"""Bytes of an edit, with the digests of its images."""
_Z = 1.96


@dataclass(frozen=True)
class Rates:
    """Limits on how fast judges are asked."""

    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    concurrency: int | None = None


@dataclass
class Todo:
    edits: int = 0
    sampled: int | None = None
    """Number of edits in the sample; None if all were looked at."""
    tasks: int = 0
    done: int = 0
    problems: Counter[str] = field(default_factory=Counter)
    """Tasks that no judge can be asked, by the status they will have."""
    not_applicable: int = 0
    """Questions of rubrics that are not for that edit."""
    left_out: int = 0
    """Edits that an earlier run, named as a condition, does not have."""
    stored_bytes: int = 0


def forecast(
    job: Job, store_place: str, rates: Rates | None = None, *, needs_keys: bool = False
) -> tuple[list[Estimate], Todo]:
    """Estimates for each judge of what is not done yet; a store that does not exist yet is not made.

    Nobody is asked, so no key is needed, unless it is known that they will be (`needs_keys`)."""
    return asyncio.run(_forecast(job, store_place, rates or Rates(), needs_keys))


async def _forecast(
    job: Job, store_place: str, rates: Rates, needs_keys: bool
) -> tuple[list[Estimate], Todo]:
    job.check(whole=False)
    shape = job.question_settings(job.load_rubrics())
    costs = Costs(job.options, None, job.judges)
    exists = "://" in store_place or Path(store_place).exists()
    drawn, total = _draw(job)
    todo = Todo()
    estimates = []
    async with AsyncExitStack() as resources:
        store = (
            resources.enter_context(Store.open(store_place, readonly=True))
            if exists
            else None
        )
        for spec in job.judges:
            judge = await open_judge(
                spec, job.options, Pace, resources, needs_key=needs_keys
            )
            edits = job.edits() if drawn is None else iter(drawn)
            ones = list(
                _ones(
                    job,
                    shape,
                    judge,
                    costs,
                    store,
                    todo,
                    edits,
                    apart=drawn is not None,
                )
            )
            latency = store.mean_latency(spec) if store else None
            estimates.append(
                _sum(costs.estimate(spec), ones, total or len(ones), rates, latency)
            )
    if drawn is None and todo.not_applicable and not todo.tasks:
        raise nothing_to_ask(str(job.manifest))
    todo.edits = total or len(ones)
    todo.left_out //= len(job.judges)  # each judge goes through all edits
    if drawn is not None:
        todo.sampled = len(drawn)
        _scale(todo, todo.edits / len(drawn))
    todo.stored_bytes = BYTES_AN_EDIT * todo.edits + BYTES * (todo.tasks - todo.done)
    return estimates, todo


def _ones(
    job: Job,
    shape: QuestionSettings,
    judge: Judge,
    costs: Costs,
    store: Store | None,
    todo: Todo,
    edits: Iterator[Edit],
    apart: bool,
) -> Iterator[Estimate]:
    """An estimate for each edit; `apart` from the others, or without what an earlier one shares with it."""
    counted: set[str] = set()
    sieve = EditFilter(job.where, store) if job.where and store else None
    while whole := list(itertools.islice(edits, BATCH)):
        batch, absent = sieve.through(whole) if sieve else (whole, 0)
        todo.left_out += absent
        yield from itertools.repeat(costs.estimate(judge.spec), len(whole) - len(batch))
        look = functools.partial(look_at, DigestCache(job.reader()))
        planned: list[Work] = []
        for edit in batch:
            questions = EditQuestions(
                edit, shape, judge, look, functools.partial(_answer, store)
            )
            planned += questions.works()
            todo.not_applicable += questions.not_applicable()
        statuses = store.done([work.task.key for work in planned]) if store else {}
        waiting = [work for work in planned if statuses.get(work.task.key) not in DONE]
        todo.tasks += len(planned)
        todo.done += len(planned) - len(waiting)
        todo.problems.update(work.problem[0] for work in waiting if work.problem)
        fresh = {
            work.task.key: work for work in waiting if work.task.key not in counted
        }
        if not apart:
            counted.update(fresh)  # what two edits share is paid for once
        mine: dict[str, list[Work]] = {edit.id: [] for edit in batch}
        for work in waiting if apart else fresh.values():
            mine[work.edit.id].append(work)
        for some in mine.values():
            one = costs.estimate(judge.spec)
            costs.add(one, some)
            yield one


def _answer(store: Store | None, work: Work) -> Judgement:
    """Return the answer that a later question is told of: the stored one, or one of the usual length."""
    if store and (judgement := store.judgement(work.task.key)):
        return judgement
    keys = [factor.key for factor in work.rubric.factors]
    words = "word " * (
        sum(work.rubric.answer.words) // 2 if work.rubric.answer.words else 20
    )
    return work.judgement(
        "ok", scores=dict.fromkeys(keys, 0), justifications=dict.fromkeys(keys, words)
    )


_SUMS = ("calls", "images", "input_tokens", "output_tokens", "price", "batch_price")


def _sum(
    whole: Estimate,
    ones: list[Estimate],
    total: int,
    rates: Rates,
    latency: float | None,
) -> Estimate:
    """Multiply the mean edit by their number; from a sample, with the interval that the spread between edits leaves."""
    for name in _SUMS:
        values = [getattr(one, name) for one in ones]
        if not values or values[0] is None:
            continue
        mean = statistics.fmean(values)
        sampled = len(values) < total
        setattr(
            whole,
            name,
            mean * total if isinstance(values[0], float) else round(mean * total),
        )
        if sampled and len(values) > 1:
            half = (
                _Z
                * total
                * statistics.stdev(values)
                / math.sqrt(len(values))
                * math.sqrt(1 - len(values) / total)
            )
            whole.interval[name] = (max(0.0, mean * total - half), mean * total + half)
    whole.seconds = _seconds(whole, rates, latency)
    return whole


def _seconds(whole: Estimate, rates: Rates, latency: float | None) -> float | None:
    """Return the seconds at the rate that binds; None without a rate, or if no reply was timed yet."""
    tokens = whole.input_tokens + whole.output_tokens
    bounds = [60 * n / rate for n, rate in _metered(whole.calls, tokens, rates) if rate]
    if rates.concurrency and latency:
        bounds.append(whole.calls * latency / rates.concurrency)
    return max(bounds, default=None)


def _metered(
    calls: int, tokens: int, rates: Rates
) -> Iterable[tuple[int, float | None]]:
    return (calls, rates.requests_per_minute), (tokens, rates.tokens_per_minute)


def _scale(todo: Todo, factor: float) -> None:
    todo.tasks, todo.done = round(todo.tasks * factor), round(todo.done * factor)
    todo.left_out = round(todo.left_out * factor)
    todo.not_applicable = round(todo.not_applicable * factor)
    todo.problems = Counter(
        {status: round(count * factor) for status, count in todo.problems.items()}
    )


# --- samples --------------------------------------------------------------------------------------------------


def _draw(job: Job) -> tuple[list[Edit] | None, int | None]:
    """Edits of a long manifest at random, and how many it has; None, None where all are to be read.

    Lines are counted and picked without being parsed. Other formats than JSONL are read as a whole.
    """
    if (
        job.rows is not None
        or job.models
        or job.manifest.suffix.lower() not in (".jsonl", ".ndjson")
        or not job.manifest.is_file()
    ):
        return None, None
    with job.manifest.open("rb") as file:
        total = sum(
            block.count(b"\n") for block in iter(lambda: file.read(1 << 22), b"")
        )
    total = min(total, job.limit or total)
    if total <= SAMPLE:
        return None, None
    # The same lines each time: a plan that is made twice is the same plan.
    chosen = frozenset(random.Random(0).sample(range(total), SAMPLE))  # noqa: S311  (a sample)
    with job.manifest.open("rb") as file:
        picked = [
            (at, raw)
            for at, raw in enumerate(itertools.islice(file, total))
            if at in chosen and raw.strip()
        ]
    rows = [_row(job.manifest, at, raw) for at, raw in picked]
    read = manifest.from_rows(
        (
            row | {"id": row.get("id") or f"line-{at + 1}"}
            for (at, _), row in zip(picked, rows, strict=True)
        ),
        name=str(job.manifest),
        root=job.manifest.parent,
        allow_outside=job.allow_outside,
        allow_urls=job.allow_urls,
        named=job.named_inputs(),
    )
    return list(read), total


def _row(path: Path, at: int, raw: bytes) -> dict[str, object]:
    try:
        row = json.loads(raw)
        return dict(row)
    except (ValueError, TypeError):
        raise ManifestError(
            f"{path}:{at + 1}: expected one JSON object a line"
        ) from None
