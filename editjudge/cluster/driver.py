"""The driver of a run on a cluster. It starts a worker for each part of the manifest, and stores the workers'
judgements.

Only this process writes judgements to the store. A worker that dies is replaced, and the new worker resumes the same
part. Only questions that were in flight are asked again.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass, field
from typing import Any

from editjudge.cluster.worker import (
    StoreCall,
    StoreResult,
    Worker,
    WorkerReport,
    WorkerSettings,
    identity_hash,
)
from editjudge.errors import EditjudgeError, UsageError
from editjudge.judges.cost import check_budget
from editjudge.judges.registry import open_judge
from editjudge.running.engine import RunControl
from editjudge.running.job import Cluster, Job, OpenRun, Outcome, Part, RunOptions
from editjudge.running.pace import Pace
from editjudge.running.plan import nothing_to_ask
from editjudge.running.progress import RunTally
from editjudge.store.claims import Claims, new_owner
from editjudge.store.store import Store

MAX_DEATHS = 100
"""Maximum number of workers that may die in a run. If more die, the cause is the work itself and not the nodes."""
_CHECK_NODES_S = 5.0
"""Seconds between checks of the cluster's nodes. Ray takes up to half a minute to notice a dead node."""


async def execute(
    cluster: Cluster,
    job: Job,
    store: Store | Callable[[], Store],
    options: RunOptions,
) -> Outcome:
    """Run a job on a cluster. The arguments and the result are the same as for `editjudge.running.job.execute`."""
    if options.batch or options.part:
        raise UsageError(
            "--engine ray takes neither --batch nor --part: leave --engine ray out"
        )
    job = dataclasses.replace(job, manifest=job.manifest.absolute())
    check_budget(options.budget, job.judges, job.options)
    job.check()
    identities = await _identities(job, options)
    edits = job.edits_by_model.total()
    store = store() if callable(store) else store
    if store.has_batches():
        raise UsageError(
            "questions in the store are waiting in a batch and would be paid for twice: collect their answers with --batch"
        )
    with _joined(cluster) as ray:
        run = OpenRun(job, store, options)
        expected = run.keep_outline()
        if not expected:
            store.remove_run(run.record)
            raise nothing_to_ask(str(job.manifest))
        settings = WorkerSettings(
            dataclasses.replace(job),  # without the edits that the check has read
            run.record.id,
            run.rubrics,
            options,
            new_owner(),
            identities,
            frozenset(edit.id for edit in run.chosen()) if job.where else None,
        )
        workers = cluster.workers or int(ray.cluster_resources().get("CPU", 1))
        workers = max(1, min(workers, edits, options.concurrency or workers))
        driver = _Driver(ray, store, options, expected)
        parts = [_share(settings, Part(i + 1, workers)) for i in range(workers)]
        try:
            await driver.run(parts)
        except BaseException:  # for example Ctrl-C or a lost cluster
            store.mark(run.record, "interrupted")
            raise
    return run.conclude(driver.control, driver.tally())


async def _identities(job: Job, options: RunOptions) -> dict[str, str]:
    """Return the hash of each judge's identity. A judge that cannot be used raises an error here, before the run is
    created.
    """
    rubrics = job.load_rubrics()
    async with AsyncExitStack() as resources:
        judges = [
            await open_judge(spec, job.options, Pace, resources) for spec in job.judges
        ]
        for judge in judges:
            for warning in judge.warnings:
                options.say(warning)
        return {judge.spec: identity_hash(judge, rubrics) for judge in judges}


def _share(settings: WorkerSettings, part: Part) -> WorkerSettings:
    """Return the worker settings for one part, with the part's share of every limit."""
    options = settings.options
    concurrency = options.concurrency
    if concurrency is not None:
        more = part.index <= concurrency % part.count
        concurrency = concurrency // part.count + more

    def divided(limit: float | None) -> float | None:
        return None if limit is None else limit / part.count

    share = RunOptions(
        part=part,
        concurrency=concurrency,
        requests_per_minute=divided(options.requests_per_minute),
        tokens_per_minute=divided(options.tokens_per_minute),
        budget=divided(options.budget),
        rehash=options.rehash,
    )
    return dataclasses.replace(settings, options=share)


@dataclass
class _PartProgress:
    """Progress of one part, summed over its current worker and the workers that died."""

    tally: RunTally = field(default_factory=RunTally)
    """Counts of the current worker. Judgements made by its predecessors count as cached."""
    written: RunTally = field(default_factory=RunTally)
    """Counts of the judgements made by the current worker."""
    earlier: RunTally = field(default_factory=RunTally)
    """Counts of the judgements made by workers that died."""
    committed: float = 0.0
    """US dollars that the current worker has spent or reserved."""

    def replace_worker(self) -> None:
        """Add the counts of a worker that died to `earlier`."""
        self.earlier.merge(self.written)
        self.written = RunTally()
        self.tally = RunTally()
        self.committed = 0.0


class _Driver:
    """Runs a worker for each part of a run."""

    def __init__(
        self, ray: Any, store: Store, options: RunOptions, expected: int
    ) -> None:
        self.control = RunControl()
        self._ray = ray
        self._store = store
        self._options = options
        self._expected = expected
        self._started = RunTally().started
        self._parts: list[_PartProgress] = []
        self._deaths = 0
        # One thread, since a store has one writer.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="editjudge-store")

    async def run(self, parts: Sequence[WorkerSettings]) -> None:
        """Judge all parts until they are done, the run is stopped, or the cluster is lost."""
        self._options.control(self.control)
        try:
            async with asyncio.TaskGroup() as group:
                watch = group.create_task(self._watch_nodes())
                self._parts = [_PartProgress() for _ in parts]
                judging = [
                    group.create_task(self._judge_part(settings, progress))
                    for settings, progress in zip(parts, self._parts, strict=True)
                ]
                await asyncio.wait(judging)
                watch.cancel()
        except* self._ray.exceptions.RayError as errors:
            message = str(errors.exceptions[0]).strip()[-500:]
            self.control.stop(
                "failed", EditjudgeError(f"the cluster failed: {message}")
            )
        finally:
            self._thread.shutdown()

    async def _watch_nodes(self) -> None:
        """Raise `RaySystemError` when no node of the cluster is alive. Otherwise calls to its workers would wait
        forever.
        """
        while True:
            await asyncio.sleep(_CHECK_NODES_S)
            nodes = await asyncio.to_thread(self._ray.nodes)
            if not any(node["Alive"] for node in nodes):
                raise self._ray.exceptions.RaySystemError("no node of it is alive")

    def tally(self) -> RunTally:
        """Return the counts of all parts.

        A worker that replaces a dead one counts its predecessor's judgements as cached. This is corrected here.
        """
        total = RunTally(expected=self._expected, started=self._started)
        for part in self._parts:
            total.merge(part.tally)
            total.merge(part.earlier, paid_only=True)
            done = part.earlier.total - part.earlier.failed
            total.cached -= min(done, part.tally.cached)
        return total

    async def _judge_part(
        self, settings: WorkerSettings, progress: _PartProgress
    ) -> None:
        """Judge a part with a worker. If the worker dies, it is replaced."""
        actor = self._ray.remote(Worker).options(
            num_cpus=1,
            scheduling_strategy="SPREAD",
            max_restarts=0,
            # Recording each call takes a tenth more CPU, and nothing reads the records.
            enable_task_events=False,
        )
        while not self.control.stopped:
            worker = actor.remote(settings)
            claims = Claims(self._store)
            try:
                await self._exchange(worker, claims, progress)
                return
            except self._ray.exceptions.RayActorError as error:
                self._deaths += 1
                if error.actor_init_failed or self._deaths > MAX_DEATHS:
                    raise
                budget = settings.options.budget
                if budget is not None:
                    left = max(0.0, budget - progress.committed)
                    options = dataclasses.replace(settings.options, budget=left)
                    settings = dataclasses.replace(settings, options=options)
                progress.replace_worker()
            finally:
                self._ray.kill(worker)
                await asyncio.to_thread(claims.close)

    async def _exchange(
        self, worker: Any, claims: Claims, progress: _PartProgress
    ) -> None:
        """Execute a worker's store calls and return their results to it, until the worker ends."""
        loop = asyncio.get_running_loop()
        results: list[StoreResult] = []
        while True:
            report: WorkerReport = await worker.exchange.remote(
                results, self.control.stopping
            )
            progress.tally = report.tally
            progress.committed = report.committed
            self._options.observe(self.tally())
            for message in report.messages:
                self._options.say(message)
            if report.ending:
                if report.ending != "finished":
                    error = EditjudgeError(report.error) if report.error else None
                    self.control.stop(report.ending, error, report.short)
                return
            results = await loop.run_in_executor(
                self._thread, self._answers, report.calls, claims, progress
            )

    def _answers(
        self, calls: Sequence[StoreCall], claims: Claims, progress: _PartProgress
    ) -> list[StoreResult]:
        methods: dict[str, Callable[..., Any]] = {
            "load_digests": self._store.load_digests,
            "add_batch": self._store.add_batch,
            "done": self._store.done,
            "judgement": self._store.judgement,
            "write": self._store.write,
            "take": claims.take,
            "held": claims.held,
            "give_back": claims.give_back,
        }
        results: list[StoreResult] = []
        for number, method, arguments in calls:
            try:
                value = methods[method](*arguments)
            except Exception as error:
                results.append((number, None, error))
                continue
            results.append((number, value, None))
            if method == "write":
                for judgement in arguments[0]:
                    progress.written.add(judgement)
        return results


@contextmanager
def _joined(cluster: Cluster) -> Iterator[Any]:
    """Yield the Ray module, connected to a cluster. The cluster is the one that is already connected, the one at the
    given address, or a new one on this machine.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Important errors are raised as exceptions as well.
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    address = cluster.address or os.environ.get("RAY_ADDRESS")
    if not address:  # makes Ray listen on loopback only
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    import ray

    if ray.is_initialized():
        yield ray
        return
    options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if not address:
        options |= {"include_dashboard": False, "num_cpus": cluster.workers}
    try:
        ray.init(address or "local", **options)
    except (ConnectionError, ValueError) as error:
        raise UsageError(f"no cluster at {address}: {error}") from None
    try:
        # Ray prints warnings about its nodes to stdout, which is reserved for the command's output.
        with redirect_stdout(sys.stderr):
            yield ray
    finally:
        ray.shutdown()
