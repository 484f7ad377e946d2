"""The driver of a run on a cluster: hands out pieces, gathers shards, and looks after the run as the local engine does.

Ray Data spreads the pieces over the workers and gives those of a node that died to others. Each worker writes the
judgements of a piece as a shard before it says that it is done, so that nothing that was paid for hangs on the driver.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import uuid
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from editjudge.errors import EditjudgeError, UsageError
from editjudge.judges.registry import open_judge
from editjudge.run.cost import Costs
from editjudge.run.job import Job, Manner, Outcome, conclude, open_run
from editjudge.run.pace import Pace
from editjudge.run.planning import Control, Tally
from editjudge.run.ray import shards
from editjudge.run.ray.conductor import Conductor
from editjudge.run.ray.pieces import Piece, filesystem, pieces
from editjudge.run.ray.worker import Known, Order, Worker, identity
from editjudge.store.store import Run, Store

AT_ONCE = 2
"""Pieces that a worker is at, so that the end of one does not leave it waiting for the slowest answer."""
POLL = 0.5
"""Seconds between two looks at how the run is going."""


@dataclass(frozen=True)
class Cluster:
    """Which cluster, and how much of it."""

    address: str | None = None
    """None: what RAY_ADDRESS says, or one of this machine's own for as long as the run takes."""
    workers: int | None = None
    """None: one for each CPU."""
    shards: str | None = None
    """Where workers leave what was said, for all nodes to reach; None: beside the store."""


class RunFailed(EditjudgeError):
    """What a worker says when it cannot go on."""


async def execute(job: Job, store: Store, manner: Manner, cluster: Cluster) -> Outcome:
    """As `editjudge.run.job.execute`, on a cluster."""
    rubrics = job.load_rubrics()
    Costs(job.options, manner.budget, job.judges)
    async with AsyncExitStack() as resources:
        judges = [await open_judge(spec, job.options, Pace, resources) for spec in job.judges]
        for warning in (w for judge in judges for w in getattr(judge, "warnings", ())):
            manner.say(warning)
        identities = {judge.spec: identity(judge, rubrics) for judge in judges}
    with joined(cluster.address) as ray:
        control = Control()
        manner.control(control)
        workers = cluster.workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        folder = cluster.shards or f"{store.place}.shards"
        run = open_run(job, store, manner, rubrics)
        order = Order(job, rubrics, identities, folder, uuid.uuid4().hex[:8], manner.budget, manner.rehash, None, None)
        driver = _Driver(ray, store, run, order, manner, control)
        try:
            await driver.run(workers)
        except BaseException:
            store.mark(run, "interrupted")
            raise
    return conclude(store, run, rubrics, control, driver.tally)


class _Driver:
    def __init__(self, ray: Any, store: Store, run: Run, order: Order, manner: Manner, control: Control) -> None:
        self.tally = Tally()
        self._ray, self._store, self._run, self._manner, self._control = ray, store, run, manner, control
        self._folder = f"{order.folder}/{run.spec_hash[:16]}"
        self._order = dataclasses.replace(order, folder=self._folder)
        self._over = False

    async def run(self, workers: int) -> None:
        await asyncio.to_thread(self._ingest_all)
        todo = await asyncio.to_thread(pieces, self._order.job, self._folder, workers)
        conductor = self._conductor()
        known = self._ray.put(await asyncio.to_thread(self._known))
        order = dataclasses.replace(self._order, conductor=conductor, known=known)
        feeding = asyncio.create_task(asyncio.to_thread(self._feed, todo, order, min(workers, len(todo))))
        try:
            while not feeding.done():
                await asyncio.wait([feeding], timeout=POLL)
                await self._look(conductor)
            await feeding
        finally:
            self._over = True
        await self._look(conductor)
        await asyncio.to_thread(self._ingest_all)
        if self._control.stopping is None:
            system, inside = filesystem(self._folder)
            system.delete_dir(inside)

    async def _look(self, conductor: Any) -> None:
        if self._control.stopping:
            await conductor.stop.remote(self._control.stopping)
        news = await conductor.news.remote()
        news.tally.started = self.tally.started
        self.tally = news.tally
        self._manner.observe(self.tally)
        for said in news.said:
            self._manner.say(said)
        if news.stopping:
            self._control.stop(news.stopping, RunFailed(news.why) if news.why else None)
            self._over = news.busy == 0  # who is still at a piece is let finish; the others are not begun any more

    def _feed(self, todo: list[Piece], order: Order, workers: int) -> None:
        """Through the cluster, piece by piece; each shard goes into the store when it is there."""
        data = self._ray.data
        strategy = data.ActorPoolStrategy(
            min_size=1, max_size=workers, initial_size=workers, max_concurrent_calls_per_actor=AT_ONCE
        )
        dataset = data.from_items([dataclasses.asdict(piece) for piece in todo], override_num_blocks=len(todo))
        judged = dataset.map_batches(
            Worker,
            batch_size=1,
            batch_format="pyarrow",
            compute=strategy,
            fn_constructor_args=(order,),
            num_cpus=1,
        )
        for row in judged.iter_rows():
            if row["shard"]:
                self._ingest(row["shard"])
            if self._over:
                break

    def _conductor(self) -> Any:
        ray, manner = self._ray, self._manner
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        # Those who wait for a slot are calls that have not returned, and must not keep out those who give one back.
        actor = ray.remote(Conductor).options(num_cpus=0, max_concurrency=100_000, scheduling_strategy=here)
        return actor.remote(
            self._order.job.judges,
            concurrency=manner.concurrency,
            requests_per_minute=manner.requests_per_minute,
            tokens_per_minute=manner.tokens_per_minute,
            budget=manner.budget,
        )

    def _known(self) -> Known:
        import numpy as np

        keys = np.fromiter((bytes.fromhex(key)[:16] for key in self._store.done_keys()), "S16")
        keys.sort()
        each = len(self._order.rubrics) * self._order.job.repeats
        positions = np.fromiter(self._store.task_positions(self._run), np.int64)
        counts = np.bincount(positions // each) if len(positions) else np.zeros(0, np.int64)
        return Known(keys, counts >= each * len(self._order.job.judges))

    def _ingest_all(self) -> None:
        for path in shards.listed(self._folder):
            self._ingest(path)

    def _ingest(self, path: str) -> None:
        """Twice is once: every row has its key."""
        if not shards.exists(path):
            return
        items, tasks, judgements = shards.read(path)
        self._store.add_items(self._run, (item for _, item in items), items[0][0])
        by_judge: dict[str, list[Any]] = {}
        for position, task in tasks:
            by_judge.setdefault(task.judge, []).append((position, task))
        for some in by_judge.values():
            self._store.add_tasks(self._run, (task for _, task in some), some[0][0])
        self._store.write(judgements)
        shards.remove(path)


@contextmanager
def joined(address: str | None) -> Iterator[Any]:
    """Ray, connected to a cluster: the one that is connected already, the one at an address, or one of our own."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
        import ray.data
        import ray.util.scheduling_strategies
    except ImportError:
        raise UsageError("--engine ray needs an extra: pip install 'editjudge[ray]'") from None
    ours = not ray.is_initialized()
    if ours:
        quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
        if address or os.environ.get("RAY_ADDRESS"):
            ray.init(address, **quiet)
        else:
            ray.init("local", include_dashboard=False, _node_ip_address="127.0.0.1", **quiet)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    try:
        yield ray
    finally:
        if ours:
            ray.shutdown()
