"""The same job on a real cluster: three nodes, one of them killed, a driver killed, one pace for all workers."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.stub import Behaviour, Stub, serve_in_thread
from editjudge.cluster import coordinator as coordinator_module
from editjudge.cluster.coordinator import Coordinator
from editjudge.cluster.shard_run import ShardRun, is_folder
from editjudge.cluster.splits import Source, edits_of
from editjudge.cluster.worker import ClusterPersistence
from editjudge.errors import ManifestError, StoreError, UsageError
from editjudge.judges.budget import MaximumCost
from editjudge.judges.messages import CallFailed
from editjudge.judges.registry import Options
from editjudge.run.engine import RunControl
from editjudge.run.job import Cluster, Job, Outcome, RunOptions, execute
from editjudge.run.pace import JudgeDown
from editjudge.run.progress import RunTally
from editjudge.store.shards import Shards
from editjudge.store.store import Store

from .clockwork import now, wind
from .limiters import LimitedServer, TokenBucket
from .made import SEED, edit_pairs, edits, expected, picture, rows_of, start, until, write_manifest, write_old
from .test_pace import LIMITS, trouble

# Ray's own, of itself.
pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning:ray", "ignore::FutureWarning:ray", "ignore::ResourceWarning"
)
JUDGE = "openai-compatible/stub"


# --- who conducts, without a cluster --------------------------------------------------------------------------


class Handle:
    """A coordinator as workers see it: every call is on its way while others go on."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    def __getattr__(self, name: str) -> Any:
        class Method:
            @staticmethod
            def remote(*arguments: Any) -> asyncio.Task[Any]:
                return asyncio.create_task(getattr(self._coordinator, name)(*arguments))

        return Method


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator by the same clock as its paces."""
    monkeypatch.setattr(coordinator_module, "time", SimpleNamespace(monotonic=now))


async def ask(pace: ClusterPersistence, send: Callable[[], Any]) -> Any:
    async with pace.slot():
        return await pace.persist(send)


@pytest.mark.parametrize("workers", [1, 8])
@pytest.mark.parametrize(("rate", "latency", "burst"), LIMITS[::2])
def test_a_limit_is_kept_and_used_by_all_workers_together(
    workers: int, rate: float, latency: float, burst: float, clock: None
) -> None:
    server, count = LimitedServer(TokenBucket(rate, burst), latency), int(80 * rate)

    async def use() -> list[Any]:
        handle = Handle(Coordinator(["j"]))
        paces = [ClusterPersistence("j", handle, f"w{n}") for n in range(workers)]
        return await asyncio.gather(*(ask(paces[n % workers], server.send) for n in range(count)))

    assert len(wind(use())) == count
    admitted, turned_away = server.between(30, server.log[-1][0] - 5)
    assert admitted > 0.9 * rate
    assert turned_away < 0.05


def test_429s_anywhere_slow_all(clock: None) -> None:
    async def use() -> int:
        handle = Handle(Coordinator(["j"]))
        one, other = ClusterPersistence("j", handle, "one"), ClusterPersistence("j", handle, "other")

        async def refused() -> str:
            raise trouble("rate limit")

        asking = [asyncio.ensure_future(ask(one, refused)) for _ in range(40)]
        await asyncio.sleep(1)
        slots = [other.slot() for _ in range(100)]
        entered = [asyncio.ensure_future(slot.__aenter__()) for slot in slots]
        await asyncio.sleep(1)
        for task in asking:
            task.cancel()
        return sum(task.done() for task in entered)

    assert wind(use()) < 8


def test_what_a_dead_worker_held_is_given_back(clock: None) -> None:
    async def use() -> float:
        handle = Handle(Coordinator(["j"], concurrency=1, heartbeat_timeout=15))
        slot = ClusterPersistence("j", handle, "dead").slot()
        await slot.__aenter__()
        waiting = asyncio.create_task(ask(ClusterPersistence("j", handle, "alive"), lambda: asyncio.sleep(0, "reply")))
        while not waiting.done():
            await asyncio.sleep(1)
            await handle.state.remote()
        return now()

    assert 15 <= wind(use()) <= 18


def test_a_judge_that_ends_the_run_ends_it_for_all(clock: None) -> None:
    async def refused() -> str:
        raise trouble("key")

    async def use() -> list[Any]:
        handle = Handle(Coordinator(["j"]))
        one, other = ClusterPersistence("j", handle, "one"), ClusterPersistence("j", handle, "other")
        return [(await asyncio.gather(ask(pace, refused), return_exceptions=True))[0] for pace in (one, other)]

    first, second = wind(use())
    assert isinstance(first, CallFailed) and isinstance(second, JudgeDown)


def test_one_purse_is_never_overspent_and_what_the_dead_owe_counts(clock: None) -> None:
    most = MaximumCost(0.4, 0.0, 10, 10)

    async def use() -> tuple[list[bool], str | None]:
        coordinator = Coordinator(["j"], budget=1.0, heartbeat_timeout=5)
        first = await coordinator.reserve("one", most)
        afforded = [first is not None, await coordinator.reserve("dead", most) is not None]
        waiting = asyncio.create_task(coordinator.reserve("one", most))
        await asyncio.sleep(1)
        afforded.append(waiting.done())
        assert first
        await coordinator.settle("one", first[0], 0.1)
        third = await waiting
        afforded.append(third is not None)
        last = asyncio.create_task(coordinator.reserve("one", most))
        assert third
        await coordinator.settle("one", third[0], 0.3)
        await asyncio.sleep(10)
        state = await coordinator.state()
        afforded.append(await last is not None)
        return afforded, (await coordinator.state()).stopping or state.stopping

    afforded, ending = wind(use())
    assert afforded == [True, True, False, True, False]
    assert ending == "budget"


def test_nothing_is_begun_once_the_run_stops(clock: None) -> None:
    async def use() -> list[object]:
        coordinator = Coordinator(["j"])
        begun = await coordinator.begin_split("w", 1)
        await coordinator.stop("interrupted")
        refused, busy = await coordinator.begin_split("w", 2), (await coordinator.state()).busy
        await coordinator.finish_split("w", 1, RunTally(cached=3))
        state = await coordinator.state()
        return [begun, refused, busy, state.busy, state.tally.cached, state.stopping]

    assert wind(use()) == [True, False, 1, 0, 3, "interrupted"]


# --- splits ---------------------------------------------------------------------------------------------------


def in_splits(job: Job, folder: Path, size: int) -> list[Any]:
    return [edit for split in Source(job, str(folder)).splits(size) for edit in edits_of(split, job)]


def as_parquet(manifest: Path, *, inside: bool, **options: Any) -> Path:
    """The same edits in Parquet, their pictures by path or in the rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = rows_of(manifest)
    if inside:
        rows = [r | {name: (manifest.parent / r[name]).read_bytes() for name in ("input", "edited")} for r in rows]
    path = manifest.with_name(f"{'inside' if inside else 'paths'}.parquet")
    pq.write_table(pa.Table.from_pylist(rows), path, **options)
    return path


@pytest.mark.parametrize("kind", ["jsonl", "paths", "inside", "folder"])
@pytest.mark.parametrize("limit", [None, 21])
def test_splits_are_the_manifest_however_it_is_cut(kind: str, limit: int | None, tmp_path: Path) -> None:
    manifest = edits(tmp_path, 37)
    if kind == "folder":
        for n in range(10):
            for role in ("input", "m"):
                write_old(tmp_path / "f" / role / f"{n}.png", picture(role, n))
        manifest = tmp_path / "f"
    elif kind != "jsonl":
        manifest = as_parquet(manifest, inside=kind == "inside", row_group_size=16)
    job = Job(manifest, ("online",), ("measured",), limit=limit)
    for size in (1, 5, 64):
        assert in_splits(job, tmp_path / "converted", size) == list(job.edits())


def test_a_folder_of_parquet_files_is_one_manifest(tmp_path: Path) -> None:
    (tmp_path / "all").mkdir()
    for n, name in enumerate(("a", "b")):
        (tmp_path / name).mkdir()
        rows = [row | {"id": f"{name}{row['id']}"} for row in rows_of(edits(tmp_path / name, 5))]
        (tmp_path / name / "edits.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        as_parquet(tmp_path / name / "edits.jsonl", inside=True).rename(tmp_path / "all" / f"{n}.parquet")
    job = Job(tmp_path / "all", ("online",), ("measured",))
    assert in_splits(job, tmp_path, 3) == list(job.edits())
    assert len(list(job.edits())) == 10


def test_an_id_that_stands_twice_is_found_before_anything_is_asked(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"id": ["a", "b", "a"], "input": ["x.png"] * 3}), tmp_path / "edits.parquet")
    with pytest.raises(ManifestError, match="stands twice"):
        Source(Job(tmp_path / "edits.parquet", ("online",), ("measured",)), str(tmp_path))


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_splits_hold_the_models_that_are_wanted_up_to_the_limit(kind: str, tmp_path: Path) -> None:
    manifest = edits(tmp_path, 20)
    path = manifest if kind == "jsonl" else as_parquet(manifest, inside=False)
    for limit in (None, 3, 99):
        job = Job(path, ("online",), ("measured",), models=("m1",), limit=limit)
        assert in_splits(job, tmp_path / str(limit), 4) == list(job.edits())


def test_a_store_is_told_from_a_folder(tmp_path: Path) -> None:
    places = ["a.db", "sqlite:///a.db", "postgresql://h/d", "shards/", str(tmp_path), "s3://bucket/run", "gs://b/r"]
    assert [is_folder(place) for place in places] == [False, False, False, True, True, True, True]


# --- a cluster ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """Three nodes on this machine, which reach nothing but loopback."""
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    os.environ |= {"RAY_BACKEND_LOG_LEVEL": "fatal", "RAY_health_check_period_ms": "1000"}
    import ray
    from ray.cluster_utils import Cluster as Nodes

    nodes = Nodes()
    try:
        for _ in range(3):
            nodes.add_node(num_cpus=2, object_store_memory=100 * 2**20, include_dashboard=False)
        ray.init(nodes.address, logging_level=logging.ERROR, log_to_driver=False)
        yield nodes
    finally:
        ray.shutdown()
        nodes.shutdown()  # type: ignore[no-untyped-call]


@pytest.fixture(scope="module")
def server() -> Iterator[Stub]:
    with serve_in_thread(seed=SEED) as stub:
        yield stub


def job_for(manifest: Path, server: Stub, judge: str = JUDGE) -> Job:
    return Job(manifest, ("online",), (judge,), options=Options(base_url=f"{server.url}/v1", timeout=60))


def judge_all(job: Job, place: Path, cluster: Cluster | None = None, **manner: Any) -> tuple[Outcome, list[Any]]:
    with Store.open(place) as store:
        outcome = asyncio.run(execute(job, store, RunOptions(cluster=cluster, **manner)))
        return outcome, list(timeless(store.judgements(outcome.run_id)))


def timeless(rows: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """What was said, less when."""
    return (without(row, ("created",)) for row in rows)


def without(row: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}


def measurable(folder: Path, count: int) -> Path:
    """Pictures of 64 x 64 with something in them: no edit is like another."""
    from PIL import Image

    rows = []
    for number in range(count):
        before = Image.new("RGB", (64, 64), (number % 251, number // 251, 99))
        before.paste((200, 30, 40), (8, 8, 30, 30))
        edited = before.copy()
        edited.paste((number % 256, 220, number // 256), (34, 20 + number % 20, 56, 44 + number % 20))
        row = {"id": f"e{number}", "input": f"i{number}.png", "edited": f"o{number}.png", "instruction": "add a box"}
        before.save(folder / row["input"], compress_level=1)
        edited.save(folder / row["edited"], compress_level=1)
        rows.append(row)
    return write_manifest(folder, rows)


@contextmanager
def after(true: Callable[[], bool], then: Callable[[], object]) -> Iterator[None]:
    """Do something in the middle of what follows."""
    failed: list[BaseException] = []

    def wait() -> None:
        try:
            until(true, 120)
            then()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    yield
    thread.join()
    assert not failed


def test_with_a_node_killed_in_the_middle_the_result_is_that_of_the_local_engine(
    nodes: Any, server: Stub, tmp_path: Path
) -> None:
    check_node_killed(nodes, server, tmp_path, JUDGE, 120)


def check_node_killed(nodes: Any, server: Stub, folder: Path, judge: str, count: int) -> None:
    manifest = edits(folder, count) if judge == JUDGE else measurable(folder, count)
    job = job_for(manifest, server, judge)
    server.reset()
    server.behaviour = Behaviour(latency=0.2)
    seen: list[RunTally] = []
    with after(lambda: bool(seen and seen[-1].asked > count // 2), lambda: nodes.remove_node(another(nodes), False)):
        outcome, rows = judge_all(job, folder / "ray.db", Cluster(workers=3), observe=seen.append)
    paid = server.ledger.paid
    server.behaviour = Behaviour()
    print(
        json.dumps({"judge": judge, "edits": count, "paid": paid, "seconds": time.monotonic() - outcome.tally.started})
    )
    assert (outcome.ending, outcome.summary.total, outcome.summary.failed) == ("finished", 3 * count, 0)
    assert len({row["key"] for row in rows}) == 3 * count
    local = judge_all(job, folder / "local.db")[1]
    # What is measured differs in the last digit from one run to the next, also of the local engine: not what it means.
    loose = ("evidence", "justifications") if judge == "measured" else ()
    assert [without(row, loose) for row in rows] == [without(row, loose) for row in local]
    if judge == JUDGE:
        assert 3 * count <= paid < 3.5 * count
        assert {(row["item"], row["rubric"]): row["scores"] for row in rows} == expected(manifest)
    nodes.add_node(num_cpus=2, object_store_memory=100 * 2**20, include_dashboard=False)


@pytest.mark.soak
@pytest.mark.parametrize(("judge", "count"), [(JUDGE, 20_000 // 3 + 1), ("measured", 5_000)])
def test_many_edits_with_a_node_killed_in_the_middle(
    judge: str, count: int, nodes: Any, server: Stub, tmp_path: Path
) -> None:
    """20,000 judgements by the stub, and 5,000 edits of pictures that can be measured."""
    check_node_killed(nodes, server, tmp_path, judge, count)


def another(nodes: Any) -> Any:
    """A node that is not the driver's."""
    from ray._private.worker import global_worker

    mine = getattr(global_worker.node, "raylet_socket_name", "")
    return next(node for node in nodes.worker_nodes if node.raylet_socket_name != mine)


def test_shards_are_what_a_store_would_have_been_and_resume_by_key(nodes: Any, server: Stub, tmp_path: Path) -> None:
    manifest = as_parquet(edits(tmp_path, 24), inside=True, row_group_size=8)
    job = job_for(manifest, server)
    server.reset()
    server.behaviour = Behaviour(garbage=0.5, sticky=frozenset({"garbage"}))
    first = into_shards(job, tmp_path)
    failed = first.summary.failed
    assert first.ending == "finished" and 0 < failed < 72
    assert [(reason.status, reason.message != "") for reason in first.summary.reasons] == [("invalid", True)]
    server.reset()
    server.behaviour = Behaviour()
    second = into_shards(job, tmp_path)
    assert (second.tally.asked, second.tally.cached, server.ledger.paid) == (failed, 72 - failed, failed)
    _, rows = judge_all(job, tmp_path / "local.db")
    shards = Shards(tmp_path / "out")
    assert sorted(timeless(shards.judgements(1)), key=_place) == sorted(rows, key=_place)
    assert [item.item for item in shards.items(1)] == [row["id"] for row in rows_of(tmp_path / "edits.jsonl")]
    assert second.summary.as_json() == shards.find_run(1).summary
    with pytest.raises(StoreError, match="another spec or name"):
        into_shards(Job(manifest, ("quality",), (JUDGE,), options=job.options), tmp_path)


@pytest.mark.parametrize("order", ["both", "given"])
def test_pairs_are_chosen_from_in_a_store_and_in_shards_as_the_local_engine_does(
    order: Any, nodes: Any, server: Stub, tmp_path: Path
) -> None:
    manifest, orders = edit_pairs(tmp_path, 20), {"both": ["ab", "ba"], "given": ["ab"]}[order]
    job = dataclasses.replace(job_for(manifest, server), rubrics=("preference",), order=order)
    server.reset()
    server.behaviour = Behaviour()
    outcome, rows = judge_all(job, tmp_path / "ray.db", Cluster(workers=2))
    assert (outcome.ending, outcome.tally.asked, server.ledger.paid) == ("finished", len(rows), 20 * len(orders))
    assert [(row["item"], row["order"]) for row in rows] == [(f"p{n}", each) for n in range(20) for each in orders]
    assert judge_all(job, tmp_path / "ray.db", Cluster(workers=2))[0].tally.asked == 0
    into_shards(job, tmp_path)
    local = judge_all(job, tmp_path / "local.db")[1]
    assert rows == local and {row["status"] for row in rows} == {"ok"}
    assert sorted(timeless(Shards(tmp_path / "out").judgements(1)), key=_place) == local


def _place(row: dict[str, Any]) -> tuple[int, str]:
    return row["position"], row["judge"]


def into_shards(job: Job, folder: Path, **manner: Any) -> Outcome:
    store: Any = ShardRun(str(folder / "out"))
    return asyncio.run(execute(job, store, RunOptions(cluster=Cluster(workers=2), **manner)))


def stop(control: RunControl) -> None:
    control.stop("interrupted")


def test_a_cluster_that_is_stopped_at_once_counts_every_edit_as_pending(
    nodes: Any, server: Stub, tmp_path: Path
) -> None:
    job = dataclasses.replace(job_for(edits(tmp_path, 24), server), repeats=2)
    stopped = into_shards(job, tmp_path, control=stop)
    assert stopped.summary.statuses.total() == 24 * 3 * 2
    rows = list(Shards(tmp_path / "out").judgements(1, fields=("item", "status", "model")))
    assert Counter(row["model"] for row in rows) == {"m0": 72, "m1": 72}
    outcome, kept = judge_all(job, tmp_path / "s.db", Cluster(workers=2), control=stop)
    assert len(kept) == outcome.summary.total == 24 * 3 * 2
    finished = into_shards(job, tmp_path)
    assert (finished.summary.total, finished.summary.statuses["pending"]) == (24 * 3 * 2, 0)


def test_a_condition_holds_on_a_cluster_as_it_does_here(nodes: Any, server: Stub, tmp_path: Path) -> None:
    job, place = job_for(edits(tmp_path, 24), server), tmp_path / "s.db"
    server.reset()
    server.behaviour = Behaviour()
    _, rows = judge_all(dataclasses.replace(job, rubrics=("fidelity",), limit=16), place, name="cheap")
    left = {row["item"] for row in rows if row["scores"]["alignment"] >= 4}
    dear = dataclasses.replace(job, rubrics=("quality",), where=("cheap:alignment>=4",))
    outcome, rows = judge_all(dear, place, Cluster(workers=2), name="dear")
    assert 0 < len(left) < 16
    assert ({row["item"] for row in rows}, outcome.tally.left_out) == (left, 8)


@pytest.mark.soak
def test_a_budget_holds_for_the_whole_cluster(nodes: Any, server: Stub, tmp_path: Path) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text("as_of: 2026-01-01\nmodels:\n  openai-compatible/stub: {input: 1000.0, output: 1000.0}\n")
    options = Options(base_url=f"{server.url}/v1", prices=prices)
    job = Job(edits(tmp_path, 40), ("online",), (JUDGE,), options=options)
    server.behaviour = Behaviour()
    outcome, rows = judge_all(job, tmp_path / "s.db", Cluster(workers=3), budget=60.0)
    spent = sum(row["cost"] or 0.0 for row in rows)
    assert outcome.ending == "budget"
    assert 0 < spent <= 60.0
    assert abs(outcome.tally.cost - spent) < 0.01


# --- the driver -----------------------------------------------------------------------------------------------


def test_a_driver_that_is_killed_or_interrupted_goes_on_where_it_was(server: Stub, tmp_path: Path) -> None:
    """On a cluster of its own, as the command starts one."""
    manifest, count = edits(tmp_path, 60), 180
    server.reset()
    # Answers are slow from the signal on, so that however late it is heard much is left to be asked.
    quick, slow = Behaviour(latency=0.4), Behaviour(latency=5.0)
    server.behaviour = quick
    words = ["run", manifest, "--judge", JUDGE, "--base-url", f"{server.url}/v1", "--store", tmp_path / "s.db"]
    words += ["--engine", "ray", "--workers", "2", "--concurrency", "8", "--json"]
    with start(*words, folder=tmp_path) as process:
        until(lambda: server.ledger.paid > count // 4, 240)
        server.behaviour = slow
        process.send_signal(signal.SIGKILL)
    server.behaviour = quick
    with start(*words, folder=tmp_path) as process:
        until(lambda: server.ledger.paid > count // 2 + 20, 240)
        server.behaviour = slow
        process.send_signal(signal.SIGINT)
        out, said = process.communicate(timeout=240)
    assert process.returncode == 130, said
    assert "finishing what is in flight" in said
    assert json.loads(out)["statuses"]["pending"] > 0
    server.behaviour = Behaviour()
    with start(*words, folder=tmp_path) as process:
        out, said = process.communicate(timeout=240)
    assert process.returncode == 0, said
    assert json.loads(out)["statuses"] == {"ok": count}
    assert json.loads(out)["cached"] >= count // 2
    assert count <= server.ledger.paid <= count + 8  # what was in flight when the driver was killed
    with Store.open(tmp_path / "s.db", readonly=True) as store:
        rows = list(store.judgements(1))
    assert {(row["item"], row["rubric"]): row["scores"] for row in rows} == expected(manifest)


def test_what_is_wrong_with_a_job_is_said_before_a_cluster_is_joined_and_leaves_no_run(
    server: Stub, tmp_path: Path
) -> None:
    manifest = edits(tmp_path, 2)
    job = job_for(manifest, server)
    with pytest.raises(UsageError, match="a folder of shards holds one run only"):
        into_shards(dataclasses.replace(job, where=("cheap:alignment>=4",)), tmp_path)
    manifest.write_text(manifest.read_text() + "{broken\n")
    with pytest.raises(ManifestError, match=r"edits.jsonl:3"):
        into_shards(job, tmp_path)
    with pytest.raises(ManifestError, match=r"edits.jsonl:3"):
        judge_all(job, tmp_path / "s.db", Cluster())
    assert not (tmp_path / "out").exists()
    with Store.open(tmp_path / "s.db") as store:
        assert store.runs() == []


def test_without_ray_the_extra_is_named(tmp_path: Path) -> None:
    code = "import sys; sys.modules['ray'] = None; from editjudge.cli import main; main()"
    words = ["run", str(edits(tmp_path, 1)), "--engine", "ray", "--judge", JUDGE, "--base-url", "http://127.0.0.1:9/v1"]
    command = [sys.executable, "-c", code, *words, "--store", str(tmp_path / "s.db")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'editjudge[ray]'" in done.stderr
