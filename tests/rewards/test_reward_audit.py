"""The rolling audit of rewards: shares, drift, what to look at, and the metrics, each worked out by hand."""

from __future__ import annotations

import math
import random
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from measured.made import encoded, photograph
from running.made import stub
from web.served import base64_of, edit, serving

from bench.stub import Behaviour
from editjudge.rewards.audit import RewardAudit, at_work, metrics
from editjudge.rewards.protocol import RewardedEdit, RewardReason, Terms, Uncertainty

TERMS = Terms(rubrics=("compliance",), more_rubrics=())


def reward(number: float | None, n: int = 0, **more: Any) -> RewardedEdit:
    edit = RewardedEdit(id=f"e{n}", status="invalid", stored_as=f"e{n}-x", **more)
    return edit if number is None else edit.with_number(number, {}, edit.uncertainty)


def test_a_drift_of_the_mean_is_seen_and_noise_is_not() -> None:
    chance = random.Random(0)
    audit = RewardAudit()
    audit.note("v1", [reward(chance.gauss(0.5, 0.1), n) for n in range(1000)], 1)
    steady = audit.drift()
    audit.note("v1", [reward(chance.gauss(0.56, 0.1), n) for n in range(200)], 1)
    moved = audit.drift()
    assert steady is not None and abs(steady.standard_errors) < 3
    assert (
        moved is not None
        and moved.standard_errors > 5
        and moved.recent == pytest.approx(0.56, abs=0.02)
    )
    assert RewardAudit().drift() is None


def test_a_constant_reward_that_changes_drifts_without_bound() -> None:
    audit = RewardAudit()
    audit.note("v1", [reward(0.5)] * 300 + [reward(0.75)] * 200, 1)
    drift = audit.drift()
    assert drift is not None and drift.standard_errors == math.inf


def test_what_was_rewarded_though_it_is_flagged_comes_first() -> None:
    audit = RewardAudit()
    flag = RewardReason(rubric="r", code="mirrored", factor=None, message="m")
    unsure = Uncertainty(source="samples", samples=2, standard_error=0.3)
    audit.note("v1", [reward(0.5 + n % 2 / 100, n) for n in range(500)], 1)
    audit.note(
        "v1",
        [
            reward(1.0, 900),
            reward(0.5, 901, uncertainty=unsure),
            reward(0.5, 902, reasons=[flag]),
        ],
        1,
    )
    # which has no reward to be suspicious of
    audit.note("v1", [reward(None, 903, reasons=[flag])], 1)
    assert [one.reward.id for one in audit.suspicious()] == ["e902", "e901", "e900"]
    assert "mirrored" in next(
        one.why for one in audit.suspicious() if one.reward.id == "e902"
    )


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
    text = metrics(RewardAudit(), {})
    assert "reward_mean" not in text and "failed_share" not in text


def test_the_page_shows_what_to_look_at_with_its_pictures(tmp_path: Path) -> None:
    terms = Terms(rubrics=("compliance",), more_rubrics=(), pictures=tmp_path / "kept")
    pictures = {
        "input": base64_of(encoded(photograph())),
        "edited": base64_of(encoded(photograph()[:, ::-1])),
    }
    with stub(), serving(tmp_path / "s.db", terms=terms) as served:
        page = served.client.get(f"{served.url}/audit").text
        assert "No reward was requested" in page
        (mirrored,) = served.rewards(
            {"id": "<b>x</b>", "instruction": "Paint it.", **pictures}
        )
        page = served.client.get(f"{served.url}/audit").text
        if mirrored["reward"]:
            assert (
                "mirrored" in page and "<b>x</b>" not in page and "&lt;b&gt;x" in page
            )
            sources = re.findall(r'<img src="([^"]+)"', page)
            assert len(sources) == 2
            for source in sources:
                assert (
                    served.client.get(served.url + source).headers["content-type"]
                    == "image/png"
                )
            (link,) = re.findall(r'href="(/runs/\d+/edits/[^"]+)"', page)
            assert served.client.get(served.url + link).status_code == 200


def test_a_service_sees_metrics_and_not_the_page(tmp_path: Path) -> None:
    token = "service-" * 3
    with serving(
        tmp_path / "s.db", "measured", TERMS, service_token=token, token="reviewer-" * 3
    ) as served:
        with httpx.Client(headers={"authorization": f"Bearer {token}"}) as service:
            assert service.get(f"{served.url}/metrics").status_code == 200
            assert service.get(f"{served.url}/audit").status_code == 403
        assert httpx.get(f"{served.url}/metrics").status_code == 401
