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

from editjudge.store import Store, owner
from editjudge.store.claims import Claims
from editjudge.store.schema import claims as table

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


def test_a_key_is_claimed_by_one_and_free_again_when_it_is_given_back(store: Store) -> None:
    one, other = Claims(store), Claims(store)
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


def test_a_claim_of_a_silent_owner_elsewhere_expires_and_one_that_is_renewed_does_not(store: Store) -> None:
    silent, living, other = Claims(store, lease=0.3, beat=60), Claims(store, lease=0.6, beat=0.05), Claims(store)
    silent.take(KEYS[:5])
    living.take(KEYS[5:10])
    assert other.take(KEYS[:10]) == set()
    time.sleep(1.2)  # twice the longer lease, for the renewed one to outlive
    assert other.held(KEYS[:10]) == dict.fromkeys(KEYS[:5], False) | dict.fromkeys(KEYS[5:10], True)
    assert other.take(KEYS[:10]) == set(KEYS[:5])
    for claims in (silent, living, other):
        claims.close()


def test_a_process_of_this_machine_that_was_killed_holds_nothing(place: str) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{Path(__file__).parent}:{os.environ.get('PYTHONPATH', '')}"}
    with (
        Store.open(place) as store,
        subprocess.Popen(
            [sys.executable, "-c", CLAIMING, place], stdout=subprocess.PIPE, text=True, env=environment
        ) as process,
    ):
        assert process.stdout and process.stdout.readline().strip() == "5"
        mine, keys = Claims(store), KEYS[:5]
        assert mine.take(keys) == set()
        process.kill()
        process.wait()
        assert mine.held(keys) == dict.fromkeys(keys, False)
        assert mine.take(keys) == set(keys)
        mine.close()


def test_a_process_of_another_machine_may_live_and_one_whose_number_was_given_anew_does_not() -> None:
    here, pid, started = owner.process_name(os.getpid()).split(" ")
    assert owner.is_alive(f"{here} {pid} {started} mark")
    assert owner.is_alive("elsewhere/boot/pid 1 0 mark")
    assert not owner.is_alive(f"{here} {pid} 12 mark")
