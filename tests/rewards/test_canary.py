"""A known edit, asked again and again, notices a judge whose answers move."""

from __future__ import annotations

import random
from pathlib import Path

from editjudge.rewards.canary import REFERENCE, Canary
from editjudge.rewards.protocol import Terms
from editjudge.rubrics.files import load
from tests.running.made import stub, until
from tests.stub.server import Behaviour
from tests.web.served import serving

TERMS = Terms(rubrics=("compliance",), more_rubrics=(), canary=0.001)


def noted(first: list[float], later: list[float]) -> Canary:
    canary = Canary(1.0, {"j": [load("compliance")]})
    for share in (*first, *later):
        canary.note({"effect": share})
    return canary


def test_an_answer_beyond_the_noise_is_an_alarm_until_it_is_back() -> None:
    chance = random.Random(0)
    first = [0.6 + chance.gauss(0, 0.02) for _ in range(REFERENCE)]
    assert not noted(first, [0.62, 0.58]).alarm
    moved = noted(first, [0.62, 0.1])
    assert moved.alarm and moved.deviation is not None and moved.deviation < -0.4
    assert not noted(first, [0.1, 0.6]).alarm


def test_a_judge_without_noise_may_move_by_its_rounding_alone() -> None:
    first = [0.5] * REFERENCE
    assert not noted(first, [0.5 + 0.4 / 6]).alarm
    assert noted(first, [0.5 + 1 / 6]).alarm


def test_a_steady_judge_rarely_raises_an_alarm() -> None:
    alarms = 0
    for seed in range(300):
        chance = random.Random(seed)
        answers = [chance.gauss(0.5, 0.1) for _ in range(REFERENCE + 1)]
        alarms += noted(answers[:REFERENCE], answers[REFERENCE:]).alarm
    assert alarms <= 3


def test_a_failure_is_counted_and_moves_nothing() -> None:
    canary = noted([0.5] * REFERENCE, [])
    canary.note(None)
    assert (canary.failed, canary.asked, canary.alarm) == (1, REFERENCE + 1, False)


def test_an_answer_without_any_factor_of_before_is_an_alarm() -> None:
    canary = noted([0.5] * REFERENCE, [])
    canary.note({"other": 0.5})
    assert canary.alarm


def test_a_server_asks_its_canary_and_shows_the_alarm(tmp_path: Path) -> None:
    with stub(), serving(tmp_path / "s.db", terms=TERMS) as served:

        def state() -> dict[str, object]:
            document: dict[str, object] = served.client.get(f"{served.url}/healthz").json()  # fmt: skip
            canary = document["canary"]
            assert isinstance(canary, dict)
            return {**canary, "status": document["status"]}

        until(lambda: int(str(state()["asked"])) > REFERENCE + 1)
        assert state()["status"] == "ok" and state()["failed"] == 0
        metrics = served.client.get(f"{served.url}/metrics").text
        assert "editjudge_canary_alarm 0" in metrics
        assert "editjudge_canary_asked" in metrics


def test_a_canary_that_cannot_be_judged_is_no_alarm_and_is_seen(tmp_path: Path) -> None:
    with (
        stub(Behaviour(refusal=1.0)),
        serving(tmp_path / "s.db", terms=TERMS) as served,
    ):
        until(
            lambda: (
                served.client.get(f"{served.url}/healthz").json()["canary"]["failed"]
                >= 2
            )
        )
        document = served.client.get(f"{served.url}/healthz").json()
        assert document["canary"]["alarm"] is False
