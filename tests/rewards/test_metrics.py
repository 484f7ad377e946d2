"""Figures of rewards for Prometheus: shares, drift and times, each worked out by hand."""

from __future__ import annotations

import math
import random
import re
from pathlib import Path

import pytest

from editjudge.rewards.metrics import RewardFigures, at_work
from editjudge.rewards.protocol import RewardedEdit, Terms
from tests import patient
from tests.running.made import stub
from tests.stub.server import Behaviour
from tests.web.served import edit, serving

TERMS = Terms(rubrics=("compliance",), more_rubrics=())


def reward(number: float | None, n: int = 0) -> RewardedEdit:
    edit = RewardedEdit(id=f"e{n}", status="invalid", stored_as=f"e{n}-x")
    return edit if number is None else edit.with_number(number, {})


def test_a_drift_of_the_mean_is_seen_and_noise_is_not() -> None:
    chance = random.Random(0)
    figures = RewardFigures()
    figures.note("v1", [reward(chance.gauss(0.5, 0.1), n) for n in range(1000)])
    steady = figures.drift()
    figures.note("v1", [reward(chance.gauss(0.56, 0.1), n) for n in range(200)])
    moved = figures.drift()
    assert steady is not None and abs(steady) < 3
    assert moved is not None and moved > 5
    assert RewardFigures().drift() is None


def test_a_constant_reward_that_changes_drifts_without_bound() -> None:
    figures = RewardFigures()
    figures.note("v1", [reward(0.5)] * 300)
    assert figures.drift() == 0.0
    figures.note("v1", [reward(0.75)] * 200)
    assert figures.drift() == math.inf


def test_time_at_judges_counts_what_overlaps_once() -> None:
    assert at_work([(1, 3), (2, 5), (7, 8), (9, 20)], 2, 10) == pytest.approx(3 + 1 + 1)
    assert at_work([], 0, 1) == 0.0


def test_metrics_are_prometheus_text(tmp_path: Path) -> None:
    with (
        stub(Behaviour(latency=0.2)),
        serving(tmp_path / "s.db", terms=TERMS) as served,
    ):
        served.rewards(edit(0, group="g"), edit(1, edited=None, group="g"))
        served.rewards(edit(0))
        served.post("reward", {"edits": []})
        answer = served.client.get(f"{served.url}/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples = {}
    for line in answer.text.splitlines():
        assert re.fullmatch(
            r'# (HELP|TYPE) \w+ .+|\w+(\{(\w+="[^"]*",?)+\})? [-+\d.eInf]+', line
        ), line
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            samples[name] = float(value)
    assert samples['editjudge_rewards_total{protocol="v1",status="ok"}'] == 2
    assert (
        samples['editjudge_rewards_total{protocol="v1",status="missing_output"}'] == 1
    )
    assert samples['editjudge_refused_total{protocol="v1",status="422"}'] == 1
    assert samples['editjudge_request_seconds_count{protocol="v1"}'] == 2
    assert samples['editjudge_request_seconds{protocol="v1",quantile="0.99"}'] >= 0.2
    assert samples["editjudge_reward_failed_share"] == pytest.approx(1 / 3)
    # The judge took at least .2 seconds of the first request, and none of the second.
    total = samples['editjudge_request_seconds_sum{protocol="v1"}']
    share = samples["editjudge_server_share"]
    assert 0 < share < 1 and total * (1 - share) > 0.19
    assert samples["editjudge_waiting_edits"] == samples["editjudge_held_bytes"] == 0


def test_metrics_of_a_server_that_has_rewarded_nothing_are_empty_and_no_zeros() -> None:
    text = RewardFigures().prometheus_text()
    assert "reward_mean" not in text and "failed_share" not in text


def test_a_service_sees_metrics_and_a_stranger_does_not(tmp_path: Path) -> None:
    token = "service-" * 3
    with serving(
        tmp_path / "s.db", "measured", TERMS, service_token=token, token="reviewer-" * 3
    ) as served:
        with patient.Client(headers={"authorization": f"Bearer {token}"}) as service:
            assert service.get(f"{served.url}/metrics").status_code == 200
        assert patient.get(f"{served.url}/metrics").status_code == 401
