"""The driver of a run on a cluster: hands out splits and looks after the run as the local engine does.

A split goes to whichever worker is free, and to another one when the worker's node dies. Each worker writes the
judgements of a split before it says that it is done, so that nothing that was paid for depends on the driver. Actors
are used as they are: through Ray Data the same splits cost 0.7 s of CPU more to import in each process, and work of the
driver for every block.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

from editjudge.cluster.coordinator import Coordinator
from editjudge.cluster.shard_run import ShardRun
from editjudge.cluster.splits import Source, Split
from editjudge.cluster.worker import Worker, WorkerSettings, identity
from editjudge.edit import Edit
from editjudge.errors import EditjudgeError, UsageError
from editjudge.judges.judge import is_local
from editjudge.judges.registry import open_judge
from editjudge.rubrics.model import Rubric
from editjudge.rubrics.sets import check_unconditional
from editjudge.run.cost import Costs
from editjudge.run.engine import RunControl
from editjudge.run.job import Cluster, Job, Outcome, RunOptions, conclude, drop_removed, keep_outline, open_run, opened
from editjudge.run.pace import Pace
from editjudge.run.plan import task_places
from editjudge.run.progress import RunTally
from editjudge.store.records import RunRecord
from editjudge.store.sink import RunPlace
from editjudge.store.store import Store

AT_ONCE = 2
"""Splits that a worker judges at a time, so that the end of one does not leave it waiting for the slowest answer."""
MOST_DEATHS = 100
"""Workers that may die in a run: more die of the work, and not of their nodes."""
_QUIET: dict[str, Any] = {"enable_task_events": False}
"""Ray keeps no record of each call, which nobody reads: 0.8 instead of 0.9 ms of CPU a call on either side."""
POLL = 0.5
"""Seconds between two looks at how the run is going."""


async def execute(cluster: Cluster, job: Job, store: RunPlace | Callable[[], RunPlace], options: RunOptions) -> Outcome:
    """As `editjudge.run.job.execute`, on a cluster: workers write to the store, or into shards in its place."""
    if options.batch:
        raise UsageError("--batch hands questions in once a day, which needs no cluster: leave --engine ray out")
    rubrics = job.load_rubrics()
    check_unconditional(rubrics, "a cluster asks the same questions of every edit", allowed=("samples",))
    job = dataclasses.replace(job, manifest=job.manifest.absolute())
    Costs(job.options, options.budget, job.judges)  # raises where a budget cannot be kept
    expected = job.check()
    identities = await _identities(job, options, rubrics)
    edits_by_model = dict(job.edits_by_model)
    job, store = dataclasses.replace(job), opened(store)  # without the edits that the check has read
    _check_conditions(job, store)
    with _source(job, store) as source, joined(cluster) as ray:
        run = open_run(job, store, options, rubrics)
        removed = _removed(job, store, run)
        shape = job.question_settings(rubrics)
        if isinstance(store, Store):
            expected = keep_outline(job, store, run, shape, job.chosen(store)())
        elif isinstance(store, ShardRun):
            places = [place for stage in range(len(shape.stages)) for place in task_places(Edit(""), shape, stage)]
            store.expect(edits_by_model, places)
        settings = WorkerSettings(job, run, rubrics, identities, store.place, options.budget, options.rehash, None)
        driver = _Driver(ray, settings, options, expected)
        try:
            workers = cluster.workers or int(ray.cluster_resources().get("CPU", 1))
            await driver.run(_splits(source, store, workers, job.judges), workers)
        except BaseException:  # Ctrl-C and a lost cluster alike
            store.mark(run, "interrupted")
            raise
    driver.tally.removed = removed
    return conclude(store, run, rubrics, driver.control, driver.tally)


def _removed(job: Job, store: RunPlace, run: RunRecord) -> int:
    """A shard holds what its split of the manifest does, and nothing that left it."""
    return drop_removed(job, store, run) if isinstance(store, Store) else 0


def _check_conditions(job: Job, store: RunPlace) -> None:
    """Said before there is a run, and not by each worker."""
    if isinstance(store, Store):
        job.chosen(store)
    elif job.where:
        raise UsageError("--where looks at an earlier run of the same store, and a folder of shards holds one run only")


@contextmanager
def _source(job: Job, store: RunPlace) -> Iterator[Source]:
    """The manifest as workers read it; what has to be written for it is where they reach it, and not for long."""
    beside = job.manifest.parent if "://" in store.place else Path(store.place).absolute().parent
    beside.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".editjudge-", dir=beside) as folder:
        yield Source(job, folder)


def _splits(source: Source, store: RunPlace, workers: int, judges: Sequence[str]) -> list[Split]:
    size = source.suitable(workers, computing=any(map(is_local, judges)))
    if not isinstance(store, ShardRun):
        return source.splits(size)
    splits = source.splits(store.split_size(size))
    store.keep_parts(len(splits))
    return splits


async def _identities(job: Job, options: RunOptions, rubrics: Sequence[Rubric]) -> dict[str, str]:
    """Of the judges; what cannot be asked at all leaves no run behind."""
    async with AsyncExitStack() as resources:
        judges = [await open_judge(spec, job.options, Pace, resources) for spec in job.judges]
        for warning in (w for judge in judges for w in getattr(judge, "warnings", ())):
            options.say(warning)
        return {judge.spec: identity(judge, rubrics) for judge in judges}


class _Driver:
    def __init__(self, ray: Any, settings: WorkerSettings, options: RunOptions, expected: int | None) -> None:
        self.tally, self.control = RunTally(expected=expected), RunControl()
        self._ray, self._settings, self._options = ray, settings, options
        self._over = False
        self._deaths = 0

    async def run(self, splits: Sequence[Split], workers: int) -> None:
        self._options.control(self.control)
        coordinator = self._coordinator()
        feeding = asyncio.create_task(self._feed(splits, coordinator, min(workers, len(splits))))
        try:
            while not feeding.done() and not self._over:
                await asyncio.wait([feeding], timeout=POLL)
                await self._poll(coordinator)
        finally:
            feeding.cancel()
            await asyncio.wait([feeding])
        await self._poll(coordinator)

    async def _poll(self, coordinator: Any) -> None:
        if self.control.stopping:
            await coordinator.stop.remote(self.control.stopping)
        state = await coordinator.state.remote()
        state.tally.started, state.tally.expected = self.tally.started, self.tally.expected
        self.tally = state.tally
        self._options.observe(self.tally)
        for message in state.messages:
            self._options.say(message)
        if state.stopping:
            self.control.stop(state.stopping, EditjudgeError(state.why) if state.why else None, state.short)
            self._over = state.busy == 0  # who is still at a split is let finish; the others are not begun any more

    async def _feed(self, splits: Sequence[Split], coordinator: Any, workers: int) -> None:
        """Gives splits to workers until all are judged, or the cluster fails."""
        queue: asyncio.Queue[Split] = asyncio.Queue()
        for split in splits:
            queue.put_nowait(split)
        settings = dataclasses.replace(self._settings, coordinator=coordinator)
        actor = self._ray.remote(Worker).options(
            num_cpus=1, max_concurrency=AT_ONCE, scheduling_strategy="SPREAD", max_restarts=0, **_QUIET
        )
        places = [asyncio.create_task(self._keep_busy(lambda: actor.remote(settings), queue)) for _ in range(workers)]
        done = asyncio.create_task(queue.join())
        try:
            await asyncio.wait([done, *places], return_when=asyncio.FIRST_COMPLETED)
            for place in places:
                if place.done():
                    await place  # raises why the cluster failed
        except self._ray.exceptions.RayError as error:
            self.control.stop("failed", EditjudgeError(f"the cluster failed: {str(error).strip()[-500:]}"))
        finally:
            for task in (done, *places):
                task.cancel()
            await asyncio.wait([done, *places])

    async def _keep_busy(self, start: Callable[[], Any], splits: asyncio.Queue[Split]) -> None:
        """One worker, and another one in its place when it dies. Never returns; raises why no worker can be had."""
        while True:
            worker = start()
            lanes = [asyncio.create_task(self._hand_out(worker, splits)) for _ in range(AT_ONCE)]
            try:
                await asyncio.gather(*lanes)
            except self._ray.exceptions.RayActorError as error:
                self._deaths += 1
                if getattr(error, "actor_init_failed", False) or self._deaths > MOST_DEATHS:
                    raise
            finally:
                for lane in lanes:
                    lane.cancel()
                await asyncio.gather(*lanes, return_exceptions=True)
                self._ray.kill(worker)

    async def _hand_out(self, worker: Any, splits: asyncio.Queue[Split]) -> None:
        while True:
            split = await splits.get()
            try:
                await worker.judge.remote(split)
            except BaseException:
                splits.put_nowait(split)  # for another worker
                raise
            finally:
                splits.task_done()

    def _coordinator(self) -> Any:
        ray, options = self._ray, self._options
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        # Those who wait for a slot are calls that have not returned, and must not keep out those who give one back.
        actor = ray.remote(Coordinator).options(num_cpus=0, max_concurrency=100_000, scheduling_strategy=here, **_QUIET)
        return actor.remote(
            self._settings.job.judges,
            concurrency=options.concurrency,
            requests_per_minute=options.requests_per_minute,
            tokens_per_minute=options.tokens_per_minute,
            budget=options.budget,
        )


@contextmanager
def joined(cluster: Cluster) -> Iterator[Any]:
    """Ray, connected to a cluster: the one that is connected already, the one at an address, or one of our own."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # what matters is said as an exception, too
    address = cluster.address or os.environ.get("RAY_ADDRESS")
    if not address:  # Ray's own way to say: loopback only
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    try:
        import ray
        import ray.util.scheduling_strategies
    except ImportError:
        raise UsageError("--engine ray needs an extra: pip install 'editjudge[ray]'") from None
    ours = not ray.is_initialized()
    if ours:
        quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
        alone: dict[str, Any] = {"include_dashboard": False, "num_cpus": cluster.workers}
        try:
            ray.init(address or "local", **quiet, **({} if address else alone))
        except (ConnectionError, ValueError) as error:
            raise UsageError(f"no cluster at {address}: {error}") from None
    try:
        yield ray
    finally:
        if ours:
            ray.shutdown()
