"""Group commit: told is kept, together is cheap, and a failure reaches everybody who must know."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from editjudge.errors import StoreError, StoreMoved
from editjudge.judgement import Exchange, Judgement
from editjudge.store import Store
from editjudge.store.sink import Writer
from tests.faults import raises

from .samples import key, sample


@pytest.fixture
def batches(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the transactions."""
    sizes: list[int] = []
    write = store.write

    def counted(batch: Sequence[Judgement]) -> None:
        sizes.append(len(batch))
        write(batch)

    monkeypatch.setattr(store, "write", counted)
    return sizes


def test_a_judgement_is_there_when_put_returns(store: Store) -> None:
    async def main() -> None:
        async with Writer(store) as writer:
            for number in range(5):
                await writer.put(sample(number))
                assert store.done([key(number)])

    asyncio.run(main())


def test_hundreds_that_arrive_together_share_few_transactions(
    store: Store, batches: list[int]
) -> None:
    async def main() -> None:
        async with Writer(store) as writer:
            await asyncio.gather(*(writer.put(sample(number)) for number in range(800)))

    asyncio.run(main())
    assert len(store.done([key(number) for number in range(800)])) == 800
    assert sum(batches) == 800 and len(batches) <= 4 and max(batches) <= 512


def test_a_commit_of_slow_answers_waits_for_those_who_come_a_little_later(
    store: Store, batches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("editjudge.store.sink._LONGEST", 1.0)

    async def late(writer: Writer, number: int) -> None:
        await asyncio.sleep(number / 1000)
        await writer.put(sample(number))

    async def main() -> None:
        async with Writer(store, linger=0.1) as writer:
            await writer.put(sample(0, exchanges=(Exchange("{}", "ok", latency=10.0),)))
            await asyncio.gather(*(late(writer, number) for number in range(1, 10)))

    asyncio.run(main())
    assert batches == [1, 9]


def test_a_commit_of_answers_that_took_no_time_waits_for_nobody(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    sleep = asyncio.sleep

    def noted(seconds: float) -> Coroutine[Any, Any, None]:
        waits.append(seconds)
        return sleep(seconds)

    async def main() -> None:
        async with Writer(store, linger=0.1) as writer:
            for number in range(3):
                await writer.put(sample(number, exchanges=()))

    monkeypatch.setattr(asyncio, "sleep", noted)
    asyncio.run(main())
    assert waits == [0.0, 0.0, 0.0]


def test_close_keeps_what_has_arrived_and_then_takes_nothing_more(store: Store) -> None:
    async def main() -> None:
        writer = Writer(store)
        puts = [asyncio.create_task(writer.put(sample(number))) for number in range(10)]
        await asyncio.sleep(0)
        await writer.close()
        assert all(put.done() and not put.exception() for put in puts)
        with pytest.raises(RuntimeError, match="closed"):
            await writer.put(sample(11))
        await writer.close()

    asyncio.run(main())
    assert len(store.done([key(number) for number in range(10)])) == 10


def test_a_judgement_is_kept_though_its_caller_was_cancelled(store: Store) -> None:
    async def main() -> None:
        async with Writer(store) as writer:
            put = asyncio.create_task(writer.put(sample(1)))
            await asyncio.sleep(0)
            put.cancel()
            await writer.put(sample(2))

    asyncio.run(main())
    assert len(store.done([key(1), key(2)])) == 2


def test_a_judgement_that_is_no_json_fails_alone(store: Store) -> None:
    async def main() -> list[BaseException | None]:
        async with Writer(store) as writer:
            said = [sample(1), sample(2, evidence={"delta": float("nan")}), sample(3)]
            return await asyncio.gather(
                *(writer.put(each) for each in said), return_exceptions=True
            )

    first, second, third = asyncio.run(main())
    assert first is third is None and isinstance(second, ValueError)
    assert set(store.done([key(number) for number in (1, 2, 3)])) == {key(1), key(3)}


def test_a_store_that_fails_reaches_every_waiter_later_callers_and_close(
    tmp_path: Path,
) -> None:
    store = Store.open(tmp_path / "store.db", timeout=0.05)

    async def main() -> None:
        writer = Writer(store)
        # holds the lock
        with Store.open(tmp_path / "store.db") as other, other._writing():
            failed = await asyncio.gather(
                *(writer.put(sample(n)) for n in range(700)), return_exceptions=True
            )
        assert all(isinstance(error, StoreError) for error in failed)
        with raises(StoreError, "sqlite_busy"):
            await writer.put(sample(1))
        with raises(StoreError, "sqlite_busy"):
            await writer.close()

    with store:
        asyncio.run(main())
        assert store.done([key(number) for number in range(700)]) == {}


def test_what_comes_while_a_store_moves_and_after_is_written_to_the_copy_and_everybody_is_told(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = sqlite_store.write
    commits: list[int] = []

    def moved(batch: Sequence[Judgement]) -> None:
        commits.append(len(batch))
        # the first went into the old file, of which another thread had made a copy before
        if len(commits) > 1:
            write(batch)
        raise StoreMoved("moved")

    monkeypatch.setattr(sqlite_store, "write", moved)

    async def main() -> None:
        writer = Writer(sqlite_store)
        for number in (1, 2):
            with pytest.raises(StoreMoved):
                await writer.put(sample(number))
        with pytest.raises(StoreMoved):
            await writer.close()

    asyncio.run(main())
    assert sqlite_store.done([key(1), key(2)]) == {key(1): "ok", key(2): "ok"}
