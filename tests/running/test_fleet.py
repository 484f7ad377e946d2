"""Several servers of one judge: the least busy is asked, and one that fails costs nothing but itself."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from editjudge.errors import JudgeError
from editjudge.judges.judge import Options
from tests.stub.server import Behaviour, Stub, serve_in_thread

from .made import (
    SEED,
    Done,
    canned,
    editjudge,
    edits,
    environment,
    expected,
    pacing,
    run,
    until,
)

SPEC = "openai-compatible/stub"
DEAD = "http://127.0.0.1:9/v1"


@pytest.fixture(autouse=True)
def no_proxy() -> Iterator[None]:
    with environment({"NO_PROXY": "127.0.0.1"}):
        yield


@contextmanager
def servers(*behaviours: Behaviour) -> Iterator[list[Stub]]:
    with ExitStack() as stack:
        yield [
            stack.enter_context(serve_in_thread(behaviour, SEED))
            for behaviour in behaviours
        ]


def addresses(stubs: list[Stub]) -> tuple[str, ...]:
    return tuple(f"{stub.url}/v1" for stub in stubs)


def judge(
    manifest: Path, place: Path, urls: tuple[str, ...], concurrency: int = 4, **job: Any
) -> Done:
    options = Options(timeout=20.0, base_url=urls)
    manner = {"concurrency": concurrency}
    return run(manifest, place, judges=(SPEC,), options=options, manner=manner, **job)


def check_all_ok(done: Done, manifest: Path) -> None:
    assert done.statuses() == {"ok": len(done.rows)}
    assert {(r["item"], r["rubric"]): r["scores"] for r in done.rows} == expected(
        manifest
    )


def test_several_servers_share_the_questions_and_keep_their_own_concurrency(
    tmp_path: Path,
) -> None:
    manifest = edits(tmp_path, 16)
    with servers(Behaviour(latency=0.05), Behaviour(latency=0.05)) as stubs:
        done = judge(manifest, tmp_path / "s.db", addresses(stubs))
        check_all_ok(done, manifest)
        assert sum(stub.ledger.paid for stub in stubs) == 48
        assert min(stub.ledger.paid for stub in stubs) >= 12
        assert max(stub.ledger.peak_in_flight for stub in stubs) <= 4


def test_a_slow_server_gets_fewer_questions(tmp_path: Path) -> None:
    manifest = edits(tmp_path, 16)
    with servers(Behaviour(latency=1.0), Behaviour(latency=0.02)) as stubs:
        check_all_ok(judge(manifest, tmp_path / "s.db", addresses(stubs)), manifest)
        slow, quick = (stub.ledger.paid for stub in stubs)
        assert 0 < slow < quick


def test_a_server_that_is_not_there_costs_no_answer(tmp_path: Path) -> None:
    manifest = edits(tmp_path, 8)
    with servers(Behaviour()) as stubs, pacing():
        done = judge(manifest, tmp_path / "s.db", (DEAD, *addresses(stubs)))
    check_all_ok(done, manifest)
    assert any(DEAD in said for said in done.said)


def test_a_server_that_dies_midway_loses_nothing(tmp_path: Path) -> None:
    manifest = edits(tmp_path, 40)
    with ExitStack() as dying, servers(Behaviour(latency=0.1)) as stubs, pacing():
        mortal = dying.enter_context(serve_in_thread(Behaviour(latency=0.1), SEED))
        urls = addresses([mortal, *stubs])

        def kill() -> None:
            until(lambda: mortal.ledger.paid >= 6)
            dying.close()

        killer = threading.Thread(target=kill)
        killer.start()
        done = judge(manifest, tmp_path / "s.db", urls)
        killer.join()
        assert 6 <= mortal.ledger.paid < 60
    check_all_ok(done, manifest)


def test_a_server_that_comes_back_is_asked_again(tmp_path: Path) -> None:
    manifest = edits(tmp_path, 60)
    with servers(Behaviour(latency=0.05)) as stubs, pacing(), ExitStack() as later:
        with serve_in_thread(Behaviour(), SEED) as first:
            port = int(first.url.rpartition(":")[2])
        urls = (*addresses([first]), *addresses(stubs))
        returned: list[Stub] = []

        def come_back() -> None:
            until(lambda: stubs[0].ledger.paid >= 6)
            again = serve_in_thread(Behaviour(latency=0.05), SEED, port=port)
            returned.append(later.enter_context(again))

        starter = threading.Thread(target=come_back)
        starter.start()
        done = judge(manifest, tmp_path / "s.db", urls)
        starter.join()
        assert returned[0].ledger.paid > 6
    check_all_ok(done, manifest)


def test_a_rate_limit_of_one_server_slows_only_that_server(tmp_path: Path) -> None:
    manifest = edits(tmp_path, 16)
    limited = Behaviour(rate_limited=1, retry_after=100.0)
    with servers(limited, Behaviour(latency=0.02)) as stubs:
        check_all_ok(judge(manifest, tmp_path / "s.db", addresses(stubs)), manifest)
        assert stubs[0].ledger.requests <= 4


def test_a_server_without_the_model_is_dropped(tmp_path: Path) -> None:
    manifest = edits(tmp_path, 8)

    def absent(*_: object) -> tuple[int, dict[str, str], bytes]:
        return 404, {}, b'{"error":{"message":"no such model"}}'

    with canned(absent) as asked, servers(Behaviour(latency=0.02)) as stubs:
        import os

        url = os.environ["OPENAI_BASE_URL"]
        done = judge(manifest, tmp_path / "s.db", (url, *addresses(stubs)))
        assert 1 <= len(asked) <= 4
    check_all_ok(done, manifest)


def test_a_run_whose_servers_are_all_gone_stops_with_everything_pending(
    tmp_path: Path,
) -> None:
    manifest = edits(tmp_path, 2)
    gone = (DEAD, "http://127.0.0.1:10/v1")
    with pacing(patience=0.5):
        done = judge(manifest, tmp_path / "s.db", gone)
    assert isinstance(done.outcome.error, JudgeError)
    assert done.statuses() == {"pending": 6}


def test_a_run_goes_on_with_other_servers_under_the_same_name(tmp_path: Path) -> None:
    manifest = edits(tmp_path, 4)
    with servers(Behaviour(), Behaviour(), Behaviour()) as stubs:
        first, *others = addresses(stubs)
        for urls in ((first,), tuple(others)):
            options = Options(timeout=20.0, base_url=urls)
            manner = {"name": "same"}
            done = run(
                manifest,
                tmp_path / "s.db",
                judges=(SPEC,),
                options=options,
                manner=manner,
            )
        assert [stub.ledger.paid for stub in stubs] == [12, 0, 0]
    check_all_ok(done, manifest)


def test_servers_that_run_different_models_are_reported(tmp_path: Path) -> None:
    manifest = edits(tmp_path, 8)
    with servers(Behaviour(latency=0.02)) as stubs:
        body = b'{"model":"another","choices":[{"message":{"content":"no"}}]}'
        with canned(lambda *_: (200, {}, body)):
            import os

            url = os.environ["OPENAI_BASE_URL"]
            options = dataclasses.replace(Options(), reasks=0)
            done = run(
                manifest,
                tmp_path / "s.db",
                judges=(SPEC,),
                options=dataclasses.replace(options, base_url=(url, *addresses(stubs))),
            )
    assert any("another" in said and url in said for said in done.said)


def test_the_command_takes_several_addresses(tmp_path: Path) -> None:
    manifest = edits(tmp_path, 2)
    with servers(Behaviour(), Behaviour()) as stubs:
        first, second = addresses(stubs)
        told = editjudge(
            "run", manifest, "--judge", SPEC, "--base-url", first, "--base-url", second,
            "--store", tmp_path / "s.db", "--json",
        )  # fmt: skip
    assert told.code == 0 and told.json["statuses"] == {"ok": 6}
