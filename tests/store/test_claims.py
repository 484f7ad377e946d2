"""Claims: a question is asked by one process, and by another once that one gave it back, died or fell silent."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import sqlalchemy as sa

from editjudge.store import Store
from editjudge.store import claims as module
from editjudge.store import claims as owner
from editjudge.store.claims import Claims, delete_claims
from editjudge.store.schema import claims as table
from tests.running.made import until

from .samples import key, sample

KEYS = [key(number) for number in range(2_000)]

CLAIMING = """
import sys, time
from samples import key
from editjudge.store import Store
from editjudge.store.claims import Claims
with Store.open(sys.argv[1]) as store:
    print(len(Claims(store).take([key(number) for number in range(5)])), flush=True)
    time.sleep(600)
"""


def owned(store: Store) -> int:
    return len(store._read(sa.select(table.c.key)))


def test_a_key_is_claimed_by_one_and_free_again_when_it_is_given_back(
    store: Store,
) -> None:
    one = Claims(store)
    other = Claims(store)
    assert one.take(KEYS) == set(KEYS)
    assert one.take(KEYS[:10]) == set(KEYS[:10]), "what is mine stays mine"
    assert other.take(KEYS) == set()
    assert other.held(KEYS) == dict.fromkeys(KEYS, True)
    one.give_back(KEYS[:3])
    assert other.take(KEYS) == set(KEYS[:3])
    one.close()
    assert other.take(KEYS) == set(KEYS)
    other.close()
    assert owned(store) == 0


def test_claims_that_are_closed_while_their_thread_starts_are_closed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    about_to_start = threading.Event()

    class Hesitating(threading.Thread):
        def start(self) -> None:
            about_to_start.set()
            closing.join(0.2)  # as long as it takes to fail, if it does
            super().start()

    mine = Claims(store)
    closed: list[bool] = []

    def close() -> None:
        about_to_start.wait()
        mine.close()
        closed.append(True)

    closing = threading.Thread(target=close)
    closing.start()
    monkeypatch.setattr("editjudge.store.claims.threading.Thread", Hesitating)
    mine.start()
    closing.join()
    assert closed == [True]
    assert mine._thread is not None and not mine._thread.is_alive()


def test_what_is_answered_is_claimed_by_nobody(store: Store) -> None:
    one = Claims(store)
    one.take([key(0), key(1)])
    store.write([sample(0), sample(1, "invalid")])
    assert owned(store) == 0
    one.close()


def test_claims_made_at_once_are_each_given_to_one(place: str) -> None:
    with Store.open(place):
        pass
    taken: list[set[str]] = []
    barrier = threading.Barrier(4)

    def claim() -> None:
        with Store.open(place) as store:
            mine = Claims(store)
            barrier.wait()
            taken.append(mine.take(KEYS))

    threads = [threading.Thread(target=claim) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(map(len, taken)) == len(KEYS) and set.union(*taken) == set(KEYS)


class Clock:
    """The monotonic clock of a machine, which a test moves on."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


SILENT = 1e6
"""Seconds between two signs of an owner whose thread has nothing to do in a test."""
ELSEWHERE = "another-machine/its-start/its-processes 1 0 mark"


def renew(mine: Claims) -> None:
    mine._store._transact(mine._renew_all)


def test_a_claim_of_a_silent_owner_expires_and_one_that_is_renewed_does_not(
    store: Store,
) -> None:
    clock = Clock()
    silent, living, other = (Claims(store, beat=SILENT, clock=clock) for _ in range(3))
    silent.take(KEYS[:5])
    living.take(KEYS[5:10])
    clock.now += 59
    assert other.take(KEYS[:10]) == set()
    renew(living)
    clock.now += 2
    assert other.held(KEYS[:10]) == dict.fromkeys(KEYS[:5], False) | dict.fromkeys(
        KEYS[5:10], True
    )
    assert other.take(KEYS[:10]) == set(KEYS[:5])
    for claims in (silent, living, other):
        claims.close()


def test_claims_are_renewed_by_a_thread(store: Store) -> None:
    mine = Claims(store, beat=0.01)
    mine.take(KEYS[:1])
    (first,) = store._read(sa.select(table.c.until, table.c.until_here))

    def is_renewed() -> bool:
        (now,) = store._read(sa.select(table.c.until, table.c.until_here))
        return bool(now.until_here > first.until_here)

    until(is_renewed)
    mine.close()


@pytest.mark.parametrize("jump", [3_600.0, -3_600.0])
def test_a_clock_that_is_set_does_not_let_two_processes_of_a_machine_ask(
    store: Store, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    clock = Clock()
    mine = Claims(store, beat=SILENT, clock=clock)
    mine.take(KEYS[:5])
    set_clock(monkeypatch, jump)
    started_later = Claims(store, beat=SILENT, clock=clock)
    assert started_later.take(KEYS[:5]) == set()
    assert started_later.held(KEYS[:5]) == dict.fromkeys(KEYS[:5], True)
    clock.now += 61
    assert started_later.take(KEYS[:5]) == set(KEYS[:5]), (
        "nor does it keep a silent one from expiring"
    )
    for claims in (mine, started_later):
        claims.close()


def set_clock(monkeypatch: pytest.MonkeyPatch, jump: float) -> None:
    """Move the clock of the machine and that of the server."""
    by_database = module._now
    monkeypatch.setattr(
        module, "_now", lambda connection: by_database(connection) + jump
    )
    by_machine = time.time
    monkeypatch.setattr(time, "time", lambda: by_machine() + jump)


def test_an_owner_of_another_machine_has_the_time_of_the_database(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = Claims(store, beat=SILENT, owner=ELSEWHERE, clock=Clock())
    near = Claims(store, beat=SILENT)
    far.take(KEYS[:5])
    assert near.take(KEYS[:5]) == set()
    set_clock(monkeypatch, 61)
    assert near.held(KEYS[:5]) == dict.fromkeys(KEYS[:5], False)
    assert near.take(KEYS[:5]) == set(KEYS[:5])
    for claims in (far, near):
        claims.close()


def test_a_clock_that_is_put_back_leaves_no_claim_of_a_dead_machine_standing_and_takes_none_of_a_living_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    dead, living = (
        Claims(store, beat=SILENT, owner=f"{ELSEWHERE}{n}", clock=Clock())
        for n in range(2)
    )
    dead.take(KEYS[:5])
    living.take(KEYS[5:10])
    set_clock(monkeypatch, -3_600)
    other = Claims(store, beat=SILENT, clock=clock)
    assert other.take(KEYS[:10]) == set(), "who lives has time for its next sign"
    renew(living)
    clock.now += 61
    assert other.take(KEYS[:10]) == set(KEYS[:5])
    for claims in (dead, living, other):
        claims.close()


def test_a_claim_that_is_renewed_while_it_is_taken_over_stays(store: Store) -> None:
    clock = Clock()
    slow, other = (Claims(store, beat=SILENT, clock=clock) for _ in range(2))
    slow.take(KEYS[:5])
    clock.now += 61
    with store._reading() as connection:
        expired = [claim for claim, _ in other._others(connection, KEYS[:5])]
    renew(slow)
    store._transact(lambda connection: delete_claims(connection, expired))
    assert other.take(KEYS[:5]) == set()
    for claims in (slow, other):
        claims.close()


def test_a_process_of_this_machine_that_was_killed_holds_nothing(place: str) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": f"{Path(__file__).parent}:{os.environ.get('PYTHONPATH', '')}",
    }
    with (
        Store.open(place) as store,
        subprocess.Popen(
            [sys.executable, "-c", CLAIMING, place],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        ) as process,
    ):
        assert process.stdout and process.stdout.readline().strip() == "5"
        mine = Claims(store)
        keys = KEYS[:5]
        assert mine.take(keys) == set()
        process.kill()
        process.wait()
        assert mine.held(keys) == dict.fromkeys(keys, False)
        assert mine.take(keys) == set(keys)
        mine.close()


def test_a_process_of_another_machine_may_live_and_one_whose_number_was_given_anew_does_not() -> (
    None
):
    here, pid, started = owner.process_name(os.getpid()).split(" ")
    assert owner.is_alive(f"{here} {pid} {started} mark")
    assert owner.is_alive("elsewhere/boot/pid 1 0 mark")
    assert not owner.is_alive(f"{here} {pid} 12 mark")


def test_containers_of_one_machine_share_its_clock_and_a_restart_ends_it() -> None:
    name, *marks = owner._here().split("/", 2)
    assert owner.is_on_this_machine(f"{'/'.join([name, *marks])} 1 0 mark")
    assert not owner.is_on_this_machine(ELSEWHERE)
    if marks:  # on Linux
        assert owner.is_on_this_machine(f"container/{marks[0]}/pid:[1] 1 0 mark")
        assert not owner.is_on_this_machine(
            f"{name}/before-the-restart/{marks[1]} 1 0 mark"
        )
