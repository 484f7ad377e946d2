"""What a run would ask and cost, before anything is asked."""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from editjudge.judgement import DONE
from editjudge.judges.registry import open_judge
from editjudge.judges.work import Judge, Work
from editjudge.pictures import Digests
from editjudge.run.cost import Costs, Estimate
from editjudge.run.job import Job, access
from editjudge.run.pace import Pace
from editjudge.run.plan import Shape, works
from editjudge.run.planning import BATCH, known
from editjudge.store.store import Store


@dataclass
class Todo:
    tasks: int = 0
    done: int = 0
    problems: Counter[str] = field(default_factory=Counter)
    """Tasks that no judge can be asked, by the status they will have."""


def forecast(job: Job, store_place: str) -> tuple[list[Estimate], Todo]:
    """Estimates for each judge of what is not done yet; a store that does not exist yet is not made."""
    return asyncio.run(_forecast(job, store_place))


async def _forecast(job: Job, store_place: str) -> tuple[list[Estimate], Todo]:
    shape = Shape(job.load_rubrics(), job.repeats, job.layout)
    costs = Costs(job.options, None, job.judges)
    exists = "://" in store_place or Path(store_place).exists()
    todo, estimates = Todo(), []
    async with AsyncExitStack() as resources:
        store = resources.enter_context(Store.open(store_place, readonly=True)) if exists else None
        for spec in job.judges:
            judge = await open_judge(spec, job.options, Pace, resources)
            estimates.append(_one(job, shape, judge, costs, store, todo))
    return estimates, todo


def _one(job: Job, shape: Shape, judge: Judge, costs: Costs, store: Store | None, todo: Todo) -> Estimate:
    estimate = costs.estimate(judge.spec)
    edits = job.edits()
    counted: set[str] = set()
    while batch := list(itertools.islice(edits, BATCH)):
        digests = Digests(root=access(job).root, fetch=access(job).fetch)
        planned = list(works(batch, shape, judge, functools.partial(known, digests)))
        statuses = store.done([work.task.key for work in planned]) if store else {}
        waiting = [work for work in planned if statuses.get(work.task.key) not in DONE]
        todo.tasks += len(planned)
        todo.done += len(planned) - len(waiting)
        _count(waiting, todo)
        fresh = {work.task.key: work for work in waiting if work.task.key not in counted}
        counted.update(fresh)  # what two edits share is paid for once
        costs.add(estimate, fresh.values())
    return estimate


def _count(waiting: list[Work], todo: Todo) -> None:
    todo.problems.update(work.problem[0] for work in waiting if work.problem)
