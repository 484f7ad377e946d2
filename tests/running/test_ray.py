"""The same job on a real cluster: three nodes, one of them killed, a driver killed, limits divided among workers."""

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
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from editjudge.errors import ManifestError
from editjudge.judgement import JudgementRow
from editjudge.judges.judge import Options
from editjudge.running.asker import LOOKAHEAD
from editjudge.running.engine import RunControl
from editjudge.running.job import Cluster, Job, Outcome, RunOptions, execute
from editjudge.running.progress import RunTally
from editjudge.store.store import Store
from tests.stub.server import Behaviour, Stub, serve_in_thread

from .made import (
    SEED,
    edit_pairs,
    edits,
    expected,
    start,
    until,
    write_manifest,
)

# Ray's own, of itself.
pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning:ray",
    "ignore::FutureWarning:ray",
    "ignore::ResourceWarning",
)
JUDGE = "openai-compatible/stub"


# --- a cluster ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """Three nodes on this machine, which reach nothing but loopback."""
    os.environ |= {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    }
    os.environ |= {
        "RAY_BACKEND_LOG_LEVEL": "fatal",
        "RAY_health_check_period_ms": "1000",
    }
    import ray
    from ray.cluster_utils import Cluster as Nodes

    nodes = Nodes()
    try:
        for _ in range(3):
            nodes.add_node(
                num_cpus=2, object_store_memory=100 * 2**20, include_dashboard=False
            )
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
    return Job(
        manifest,
        ("online",),
        (judge,),
        options=Options(base_url=f"{server.url}/v1", timeout=60),
    )


def judge_all(
    job: Job, place: Path, cluster: Cluster | None = None, **manner: Any
) -> tuple[Outcome, list[Any]]:
    with Store.open(place) as store:
        outcome = asyncio.run(
            execute(job, store, RunOptions(cluster=cluster, **manner))
        )
        return outcome, list(timeless(store.judgements(outcome.run_id)))


def timeless(rows: Iterator[JudgementRow]) -> Iterator[dict[str, Any]]:
    """What was said, less when."""
    return (without(row, ("created",)) for row in rows)


def without(row: Mapping[str, object], names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}


def measurable(folder: Path, count: int) -> Path:
    """Pictures of 64 x 64 with something in them: no edit is like another."""
    from PIL import Image

    rows = []
    for number in range(count):
        before = Image.new("RGB", (64, 64), (number % 251, number // 251, 99))
        before.paste((200, 30, 40), (8, 8, 30, 30))
        edited = before.copy()
        edited.paste(
            (number % 256, 220, number // 256),
            (34, 20 + number % 20, 56, 44 + number % 20),
        )
        row = {
            "id": f"e{number}",
            "input": f"i{number}.png",
            "edited": f"o{number}.png",
            "instruction": "add a box",
        }
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


def check_node_killed(
    nodes: Any, server: Stub, folder: Path, judge: str, count: int
) -> None:
    manifest = edits(folder, count) if judge == JUDGE else measurable(folder, count)
    job = job_for(manifest, server, judge)
    server.reset()
    server.behaviour = Behaviour(latency=0.2)
    seen: list[RunTally] = []
    with after(
        lambda: bool(seen and seen[-1].asked > count // 2),
        lambda: nodes.remove_node(another(nodes), False),
    ):
        # A worker that dies takes at most what it had in flight with it: eight questions, and the answers not yet sent.
        outcome, rows = judge_all(
            job,
            folder / "ray.db",
            Cluster(workers=3),
            observe=seen.append,
            concurrency=24 if judge == JUDGE else None,
        )
    paid = server.ledger.paid
    server.behaviour = Behaviour()
    print(
        json.dumps(
            {
                "judge": judge,
                "edits": count,
                "paid": paid,
                "seconds": time.monotonic() - outcome.tally.started,
            }
        )
    )
    assert (outcome.ending, outcome.summary.total, outcome.summary.failed) == (
        "finished",
        3 * count,
        0,
    )
    assert len({row["key"] for row in rows}) == 3 * count
    assert max(tally.total for tally in seen) == seen[-1].expected == 3 * count
    assert (outcome.tally.total, outcome.tally.cached) == (3 * count, 0)
    local = judge_all(job, folder / "local.db")[1]
    # What is measured differs in the last digit from one run to the next, also of the local engine: not what it means.
    loose = ("evidence", "justifications") if judge == "measured" else ()
    assert [without(row, loose) for row in rows] == [
        without(row, loose) for row in local
    ]
    if judge == JUDGE:
        assert 3 * count <= paid < 3.5 * count
        assert {
            (row["item"], row["rubric"]): row["scores"] for row in rows
        } == expected(manifest)
    nodes.add_node(num_cpus=2, object_store_memory=100 * 2**20, include_dashboard=False)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("judge", "count"), [(JUDGE, 20_000 // 3 + 1), ("measured", 5_000)]
)
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


@pytest.mark.parametrize("order", ["both", "given"])
def test_pairs_are_chosen_from_as_the_local_engine_does(
    order: Any, nodes: Any, server: Stub, tmp_path: Path
) -> None:
    manifest = edit_pairs(tmp_path, 20)
    orders = {"both": ["ab", "ba"], "given": ["ab"]}[order]
    job = dataclasses.replace(
        job_for(manifest, server), rubrics=("preference",), order=order
    )
    server.reset()
    server.behaviour = Behaviour()
    outcome, rows = judge_all(job, tmp_path / "ray.db", Cluster(workers=2))
    assert (outcome.ending, outcome.tally.asked, server.ledger.paid) == (
        "finished",
        len(rows),
        20 * len(orders),
    )
    assert [(row["item"], row["order"]) for row in rows] == [
        (f"p{n}", each) for n in range(20) for each in orders
    ]
    assert judge_all(job, tmp_path / "ray.db", Cluster(workers=2))[0].tally.asked == 0
    local = judge_all(job, tmp_path / "local.db")[1]
    assert rows == local and {row["status"] for row in rows} == {"ok"}


def stop(control: RunControl) -> None:
    control.stop("interrupted")


def test_a_cluster_that_is_stopped_at_once_counts_every_edit_as_pending(
    nodes: Any, server: Stub, tmp_path: Path
) -> None:
    job = dataclasses.replace(job_for(edits(tmp_path, 24), server), repeats=2)
    outcome, kept = judge_all(job, tmp_path / "s.db", Cluster(workers=2), control=stop)
    assert len(kept) == outcome.summary.total == 24 * 3 * 2
    assert Counter(row["model"] for row in kept) == {"m0": 72, "m1": 72}
    finished, _ = judge_all(job, tmp_path / "s.db", Cluster(workers=2))
    assert (finished.summary.total, finished.summary.statuses["pending"]) == (
        24 * 3 * 2,
        0,
    )


def test_a_condition_holds_on_a_cluster_as_it_does_here(
    nodes: Any, server: Stub, tmp_path: Path
) -> None:
    job = job_for(edits(tmp_path, 24), server)
    place = tmp_path / "s.db"
    server.reset()
    server.behaviour = Behaviour()
    _, rows = judge_all(
        dataclasses.replace(job, rubrics=("fidelity",), limit=16), place, name="cheap"
    )
    left = {row["item"] for row in rows if row["scores"]["alignment"] >= 4}
    dear = dataclasses.replace(job, rubrics=("quality",), where=("cheap:alignment>=4",))
    outcome, rows = judge_all(dear, place, Cluster(workers=2), name="dear")
    assert 0 < len(left) < 16
    assert ({row["item"] for row in rows}, outcome.tally.left_out) == (left, 8)


@pytest.mark.soak
def test_a_budget_holds_for_the_whole_cluster(
    nodes: Any, server: Stub, tmp_path: Path
) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text(
        "as_of: 2026-01-01\nmodels:\n  openai-compatible/stub: {input: 1000.0, output: 1000.0}\n"
    )
    options = Options(base_url=f"{server.url}/v1", prices=prices)
    job = Job(edits(tmp_path, 40), ("online",), (JUDGE,), options=options)
    server.behaviour = Behaviour()
    outcome, rows = judge_all(job, tmp_path / "s.db", Cluster(workers=3), budget=60.0)
    spent = sum(row["cost"] or 0.0 for row in rows)
    assert outcome.ending == "budget"
    assert 0 < spent <= 60.0
    assert abs(outcome.tally.cost - spent) < 0.01


# --- the driver -----------------------------------------------------------------------------------------------


def test_a_driver_that_is_killed_or_interrupted_goes_on_where_it_was(
    server: Stub, tmp_path: Path
) -> None:
    """On a cluster of its own, as the command starts one."""
    manifest = edits(tmp_path, 60)
    count = 180
    server.reset()
    # Answers are slow from the signal on, so that however late it is heard much is left to be asked.
    quick = Behaviour(latency=0.4)
    slow = Behaviour(latency=5.0)
    server.behaviour = quick
    arguments = [
        "run",
        manifest,
        "--judge",
        JUDGE,
        "--base-url",
        f"{server.url}/v1",
        "--store",
        tmp_path / "s.db",
    ]
    arguments += ["--engine", "ray", "--workers", "2", "--concurrency", "8", "--json"]
    with start(*arguments, folder=tmp_path) as process:
        until(lambda: server.ledger.paid > count // 4, 240)
        server.behaviour = slow
        process.send_signal(signal.SIGKILL)
    server.behaviour = quick
    with start(*arguments, folder=tmp_path) as process:
        until(lambda: server.ledger.paid > count // 2 + 20, 240)
        server.behaviour = slow
        process.send_signal(signal.SIGINT)
        out, text = process.communicate(timeout=240)
    assert process.returncode == 130, text
    assert "in flight" in text
    assert json.loads(out)["statuses"]["pending"] > 0
    server.behaviour = Behaviour()
    with start(*arguments, folder=tmp_path) as process:
        out, text = process.communicate(timeout=240)
    assert process.returncode == 0, text
    assert json.loads(out)["statuses"] == {"ok": count}
    assert json.loads(out)["cached"] >= count // 2
    # What was in flight when the driver was killed, and the answers of two workers on their way to its store.
    assert count <= server.ledger.paid <= count + 8 + 2 * LOOKAHEAD
    with Store.open(tmp_path / "s.db", readonly=True) as store:
        rows = list(store.judgements(1))
    assert {(row["item"], row["rubric"]): row["scores"] for row in rows} == expected(
        manifest
    )


@pytest.mark.soak
def test_a_run_whose_only_node_dies_ends_with_an_error_and_can_be_resumed(
    server: Stub, tmp_path: Path
) -> None:
    manifest = edits(tmp_path, 60)
    server.reset()
    server.behaviour = Behaviour(latency=0.4)
    words = ["run", manifest, "--judge", JUDGE, "--base-url", f"{server.url}/v1"]
    words += ["--store", tmp_path / "s.db", "--json", "--engine", "ray"]
    words += ["--workers", "2", "--concurrency", "8"]
    with start(*words, folder=tmp_path) as process:
        until(lambda: server.ledger.paid > 45, 240)
        server.behaviour = Behaviour(latency=20.0)
        os.kill(_raylet(process.pid), signal.SIGKILL)
        out, errors = process.communicate(timeout=240)
    assert process.returncode == 1, errors
    assert json.loads(out)["ending"] == "failed"
    server.behaviour = Behaviour()
    with start(*words[:-6], folder=tmp_path) as process:
        out, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    assert json.loads(out)["statuses"] == {"ok": 180}


def _raylet(driver: int) -> int:
    """Return the process of the node that a driver started."""
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            number, _, rest = status.read_text().partition(" (")
            name, _, fields = rest.rpartition(") ")
            if name == "raylet" and int(fields.split()[1]) == driver:
                return int(number)
    raise AssertionError("the driver has no node")


def test_what_is_wrong_with_a_job_is_said_before_a_cluster_is_joined_and_leaves_no_run(
    server: Stub, tmp_path: Path
) -> None:
    manifest = edits(tmp_path, 2)
    job = job_for(manifest, server)
    manifest.write_text(manifest.read_text() + "{broken\n")
    with pytest.raises(ManifestError, match=r"edits.jsonl:3"):
        judge_all(job, tmp_path / "s.db", Cluster())
    with Store.open(tmp_path / "s.db") as store:
        assert store.runs() == []


def test_without_ray_the_extra_is_named(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['ray'] = None; from editjudge.cli import main; main()"
    )
    words = [
        "run",
        str(edits(tmp_path, 1)),
        "--engine",
        "ray",
        "--judge",
        JUDGE,
        "--base-url",
        "http://127.0.0.1:9/v1",
    ]
    command = [sys.executable, "-c", code, *words, "--store", str(tmp_path / "s.db")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'editjudge[ray]'" in done.stderr
