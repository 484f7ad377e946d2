"""Verdicts and rewards over HTTP, from a real server, by a real stub judge: in order, once, kept, and never a 0 for a
failure."""

from __future__ import annotations

import base64
import json
import math
import pickle
import signal
import socket
import threading
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from editjudge.errors import StoreError, UsageError
from editjudge.judgement import Judgement
from editjudge.judges.chat import ChatJudge
from editjudge.judges.judge import Load, Options, Work
from editjudge.media.cache import DigestCache
from editjudge.rewards.protocol import Terms
from editjudge.rubrics.files import load
from editjudge.store.listing import count_edits
from editjudge.store.store import Store
from editjudge.web.listing import Browser, Query
from tests import patient
from tests.faults import raises
from tests.measured.made import encoded, photograph, recoloured
from tests.measured.test_degenerate import CASES
from tests.running.made import (
    ONLINE,
    canned,
    editjudge,
    edits,
    expected,
    picture,
    rows_of,
    run,
    start,
    stub,
    until,
)
from tests.stub.server import Behaviour, Stub
from tests.web.served import STUB, Served, base64_of, edit, serving


@pytest.fixture
def judge() -> Iterator[Stub]:
    with stub() as server:
        yield server


@pytest.fixture
def served(judge: Stub, tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path / "s.db") as running:
        yield running


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Stub]]:
    """A server that lasts, for what it must not do anything about."""
    with (
        stub() as judge,
        serving(tmp_path_factory.mktemp("refusing") / "s.db") as running,
    ):
        yield running, judge


def right(tmp_path: Path, count: int) -> list[float]:
    """Rewards worked out a second time, from what the stub says by design."""
    manifest = edits(tmp_path, count)
    said = expected(manifest)
    means = []
    for row in rows_of(manifest):
        scores = [
            score for rubric in ONLINE for score in said[row["id"], rubric].values()
        ]
        means.append(sum((score - 1) / 6 for score in scores) / len(scores))
    return means


# --- rewards ------------------------------------------------------------------------------------------------------


def test_rewards_come_in_the_order_of_the_edits_and_are_the_mean_of_all_factors(
    served: Served, tmp_path: Path
) -> None:
    answer = served.post("reward", {"edits": [edit(n) for n in range(12)]}).json()
    assert [reward["id"] for reward in answer["rewards"]] == [
        f"e{n}" for n in range(12)
    ]
    assert [reward["reward"] for reward in answer["rewards"]] == pytest.approx(
        right(tmp_path, 12)
    )
    assert len(set(right(tmp_path, 12))) > 6
    assert answer["formula"].startswith("mean of (score - worst) / (best - worst)")
    assert answer["judge"] == STUB and set(answer["rubrics"]) == set(ONLINE)


def test_a_failure_is_null_with_its_status_and_the_others_keep_their_places(
    served: Served,
) -> None:
    nothing = edit(1, edited=None)
    garbage = edit(2, edited=base64_of(b"GIF89a but no picture"))
    first, second, third, fourth = served.rewards(edit(0), nothing, garbage, edit(3))
    assert (second["reward"], second["status"], second["scores"]) == (
        None,
        "missing_output",
        None,
    )
    assert (third["reward"], third["status"], third["scores"]) == (
        None,
        "bad_image",
        None,
    )
    assert (
        first["status"] == fourth["status"] == "ok"
        and first["reward"] != fourth["reward"]
    )


def test_a_rubric_that_fails_leaves_no_reward_from_the_others(tmp_path: Path) -> None:
    with stub(Behaviour(garbage=0.5)), serving(tmp_path / "s.db") as served:
        rewards = served.rewards(*(edit(n) for n in range(16)))
        kept = {row["key"]: row["status"] for row in served.rows()}
    statuses = [{kept[key] for key in reward["keys"].values()} for reward in rewards]
    assert {"ok", "invalid"} in statuses
    for reward, found in zip(rewards, statuses, strict=True):
        assert (reward["reward"] is None) == (found != {"ok"})
        assert reward["status"] == ("ok" if found == {"ok"} else "invalid")


def test_the_pages_of_rewards_count_and_list_each_edit_once(served: Served) -> None:
    """Found by the soak: positions by the clock were rows of the table, some 130 MB for each minute that passed."""
    for asked in (
        {"edits": [edit(0), edit(1)]},
        {"edits": [edit(1), edit(2)]},
        {"edits": [edit(1)], "rubrics": ["lighting"]},
    ):
        served.post("reward", asked)
    (run,) = served.store.runs()
    assert count_edits(served.store, run) == 3
    assert Browser(served.store).page(run, Query(sort="model")).total == 3
    page = served.client.get(f"{served.url}/runs/{run.id}").text
    assert [page.count(f">{name}-") for name in ("e0", "e1", "e2")] == [
        1,
        1,
        1,
    ] and "3 edits" in page


NO_EDIT = (
    "black",
    "black with a watermark",
    "noise",
    "64 by 64 pixels",
    "1 by 1 pixel",
)


def outputs(*pictures: Any) -> list[dict[str, Any]]:
    sent = {
        "input": base64_of(encoded(photograph())),
        "instruction": "make the cup blue",
    }
    return [
        {"id": str(n), "edited": base64_of(encoded(p)), **sent}
        for n, p in enumerate(pictures)
    ]


def test_an_output_that_is_no_edit_has_no_reward_and_nobody_is_asked_about_it(
    served: Served, judge: Stub
) -> None:
    sent = outputs(*(CASES[name][1](photograph()) for name in NO_EDIT), photograph(1))
    rewards = served.rewards(*sent, rubrics=["preservation"])
    assert [(r["reward"], r["status"], r["scores"]) for r in rewards] == [
        (None, "abstained", None)
    ] * 6
    kinds = [reason["code"] for r in rewards for reason in r["reasons"]]
    assert kinds == [*(CASES[name][0] for name in NO_EDIT), "unrelated"]
    assert judge.ledger.requests == 0
    assert (
        served.rewards(*outputs(recoloured(photograph())), rubrics=["preservation"])[0][
            "reward"
        ]
        is not None
    )


def test_an_output_that_is_no_edit_may_get_the_worst_reward(
    judge: Stub, tmp_path: Path
) -> None:
    with serving(tmp_path / "s.db", terms=Terms(degenerate="worst")) as served:
        black, good = served.rewards(
            *outputs(photograph() * 0, recoloured(photograph())),
            rubrics=["preservation"],
        )
    assert (black["reward"], black["status"], black["reasons"][0]["code"]) == (
        0.0,
        "ok",
        "flat",
    )
    assert good["reward"] is not None and good["scores"]


def test_the_input_returned_is_no_good_edit_and_the_input_mirrored_is_judged_and_flagged(
    served: Served, judge: Stub
) -> None:
    (same,) = served.rewards(*outputs(photograph()), rubrics=["preservation"])
    assert (same["reward"], same["status"]) == (
        None,
        "abstained",
    ) and judge.ledger.requests == 0
    assert [reason["code"] for reason in same["reasons"]] == ["unchanged"]
    (mirrored,) = served.rewards(
        *outputs(photograph()[:, ::-1]), rubrics=["preservation"]
    )
    assert mirrored["status"] == "ok" and [
        reason["code"] for reason in mirrored["reasons"]
    ] == ["mirrored"]


def test_strict_answers_503_with_the_same_body(served: Served) -> None:
    asked = {"edits": [edit(0), edit(1, edited=None)]}
    lenient = served.post("reward", asked)
    strict = served.post("reward", asked | {"strict": True})
    assert (lenient.status_code, strict.status_code) == (200, 503)
    assert [r["reward"] for r in strict.json()["rewards"]] == [
        r["reward"] for r in lenient.json()["rewards"]
    ]
    assert (
        served.post("reward", {"edits": [edit(0)], "strict": True}).status_code == 200
    )
    assert served.post("judge", edit(1, edited=None, strict=True)).status_code == 503


def test_what_is_not_judged_by_the_deadline_is_pending_and_answered_when_asked_again(
    tmp_path: Path,
) -> None:
    with stub(Behaviour(latency=1.0)) as judge, serving(tmp_path / "s.db") as served:
        (late,) = served.rewards(edit(0), deadline=0.05)
        assert (late["reward"], late["status"]) == (None, "pending")
        assert late["reasons"][0]["code"] == "deadline"
        (again,) = served.rewards(edit(0))
        assert again["status"] == "ok" and again["keys"] == late["keys"]
        # a rubric each, once: the second request met the first one's work
        assert judge.ledger.paid == 3


def test_a_score_is_an_expression_of_factors_and_asks_only_their_rubrics(
    served: Served,
) -> None:
    def asked(**options: Any) -> Any:
        return served.post("reward", {"edits": [edit(n) for n in range(4)], **options})

    def numbers(**options: Any) -> list[float]:
        return [reward["reward"] for reward in asked(**options).json()["rewards"]]

    answer = asked(score="min(alignment, completeness)").json()
    assert answer["formula"] == "min(alignment, completeness)"
    assert list(answer["rubrics"]) == ["fidelity"]
    for reward in answer["rewards"]:
        scores = reward["scores"]
        least = min(scores["alignment"], scores["completeness"])
        assert reward["reward"] == (least - 1) / 6
    assert numbers(score="alignment") == numbers(weights={"alignment": 1})
    assert numbers(score="min") == numbers(formula="min")
    everything = numbers(score="mean(fidelity.*)", rubrics=["fidelity", "quality"])
    assert everything == pytest.approx(numbers(rubrics=["fidelity"]))
    wrong: dict[str, dict[str, Any]] = {
        "an unknown factor": {"score": "min(alignmnt)"},
        "no range": {"score": "1 / (alignment - 1)"},
        "many values": {"score": "fidelity.*"},
        "a column": {"score": 'alignment if item.edit_type == "add" else 0'},
        "two words for one thing": {"score": "min", "formula": "min"},
        "pairs": {"score": "alignment", "ranking": "pairs"},
        "an expression as a formula": {"formula": "min(alignment)"},
    }
    for name, options in wrong.items():
        refused = asked(**options)
        assert refused.status_code == 422, name
        assert refused.json()["problems"][0]["where"] in ("score", "formula"), name
    with_weights = asked(score="min(alignment)", weights={"alignment": 1})
    assert with_weights.json()["problems"][0]["where"] == "weights"


def test_a_score_of_a_set_that_is_served_goes_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "two.yaml"
    path.write_text(
        "name: two\nrubrics: [{use: fidelity}, {use: quality}]\n"
        "score: {overall: min(fidelity.*) + min(quality.*)}\n"
    )
    terms = Terms(more_rubrics=(str(path),))
    with stub(), serving(tmp_path / "s.db", terms=terms) as running:
        edits = {"edits": [edit(0)], "score": "overall"}
        for rubrics in ({}, {"rubrics": ["fidelity"]}):
            answer = running.post("reward", edits | rubrics).json()
            assert set(answer["rubrics"]) == {"fidelity", "quality"}
            (reward,) = answer["rewards"]
            fidelity = [
                reward["scores"][factor.key] for factor in load("fidelity").factors
            ]
            quality = [
                reward["scores"][factor.key] for factor in load("quality").factors
            ]
            least = min(fidelity) + min(quality)
            assert reward["reward"] == pytest.approx((least - 2) / 12)


def test_the_score_of_a_server_is_an_expression_unless_a_request_names_another(
    tmp_path: Path,
) -> None:
    terms = Terms(formula="min(alignment, completeness)")
    with stub(), serving(tmp_path / "s.db", terms=terms) as running:
        edits = {"edits": [edit(0)]}
        own = running.post("reward", edits).json()
        assert own["formula"] == terms.formula and list(own["rubrics"]) == ["fidelity"]
        for other in ({"rubrics": ["quality"]}, {"weights": {"seamlessness": 1}}):
            answer = running.post("reward", edits | other).json()
            assert answer["formula"].startswith("mean of (score")
            assert list(answer["rubrics"]) == ["quality"]
    with (
        raises(UsageError, "weights_with_expression"),
        serving(tmp_path / "s.db", terms=replace(terms, weights={"alignment": 1})),
    ):
        pass


@pytest.mark.parametrize(
    ("formula", "by_hand"),
    [
        ("mean", lambda shares: sum(shares) / len(shares)),
        ("min", min),
        ("product", math.prod),
        ("geometric_mean", lambda shares: math.prod(shares) ** (1 / len(shares))),
    ],
)
def test_the_formula_is_the_clients_and_is_named(
    served: Served, formula: str, by_hand: Any
) -> None:
    asked = {
        "edits": [edit(n) for n in range(8)],
        "formula": formula,
        "rubrics": ["fidelity"],
    }
    answer = served.post("reward", asked).json()
    shares = [
        [(score - 1) / 6 for score in reward["scores"].values()]
        for reward in answer["rewards"]
    ]
    assert [reward["reward"] for reward in answer["rewards"]] == pytest.approx(
        [by_hand(s) for s in shares]
    )
    assert answer["formula"].startswith(f"{formula} of") and any(
        min(s) > 0 for s in shares
    )


def test_weights_pick_factors_and_only_their_rubrics_are_asked(
    served: Served, judge: Stub
) -> None:
    answer = served.post(
        "reward",
        {"edits": [edit(0)], "weights": {"alignment": 3, "fidelity.completeness": 1}},
    ).json()
    (reward,) = answer["rewards"]
    scores = reward["scores"]
    assert reward["reward"] == pytest.approx(
        (3 * (scores["alignment"] - 1) + (scores["completeness"] - 1)) / 6 / 4
    )
    assert set(answer["rubrics"]) == {"fidelity"} and judge.ledger.paid == 1
    assert "alignment x 3" in answer["formula"]


def test_a_factor_that_is_named_and_abstained_from_is_no_number(tmp_path: Path) -> None:
    with serving(tmp_path / "s.db", "measured") as served:
        (reward,) = served.rewards(edit(0), weights={"alignment": 1, "plausibility": 1})
        assert (reward["reward"], reward["status"], reward["scores"]) == (
            None,
            "instruction_not_judged",
            None,
        )
        assert "plausibility" in reward["abstained"]
        (reward,) = served.rewards(
            edit(0), weights={"image_quality": 1, "scale_realism": 1}
        )
        assert (reward["reward"], reward["status"]) == (None, "abstained")
        assert "scale_realism" in reward["abstained"]


def test_a_factor_of_two_rubrics_keeps_its_rubrics_name(served: Served) -> None:
    truth = edit(0, ground_truth=base64_of(picture("truth")))
    (reward,) = served.rewards(truth, rubrics=["online", "offline"])
    assert {"fidelity.alignment", "reference.alignment"} <= set(reward["scores"])
    assert len(reward["scores"]) == 24


# --- once, and kept -----------------------------------------------------------------------------------------------


def test_identical_edits_are_judged_once_in_a_batch_and_across_requests(
    tmp_path: Path,
) -> None:
    with stub(Behaviour(latency=0.3)) as judge, serving(tmp_path / "s.db") as served:
        found: list[Any] = []
        ask = threading.Thread(
            target=lambda: found.extend(served.rewards(edit(0, id="other")))
        )
        ask.start()
        same = served.rewards(*(edit(0, id=f"copy {n}") for n in range(5)))
        ask.join()
        assert judge.ledger.paid == 3
        assert len({reward["reward"] for reward in [*same, *found]}) == 1
        assert len({json.dumps(reward["keys"]) for reward in [*same, *found]}) == 1


def test_what_was_answered_once_is_answered_from_the_store(
    judge: Stub, tmp_path: Path
) -> None:
    with serving(tmp_path / "s.db") as served:
        (first,) = served.rewards(edit(0))
    with serving(tmp_path / "s.db") as served:
        (second,) = served.rewards(edit(0, id="again"))
        assert len(served.store.runs()) == 1
    assert judge.ledger.paid == 3
    assert (first["cached"], second["cached"]) == (False, True)
    assert first["reward"] == second["reward"]


def test_keys_are_those_of_an_offline_run_and_its_answers_are_not_asked_again(
    judge: Stub, tmp_path: Path
) -> None:
    manifest = edits(tmp_path, 6)
    offline = run(manifest, tmp_path / "s.db")
    paid = judge.ledger.paid
    with serving(tmp_path / "s.db", options=Options(timeout=20.0)) as served:
        rewards = served.rewards(*(edit(n) for n in range(6)))
    keys = {(row["item"], row["rubric"]): row["key"] for row in offline.rows}
    assert {
        (r["id"], rubric): key for r in rewards for rubric, key in r["keys"].items()
    } == keys
    assert judge.ledger.paid == paid and all(reward["cached"] for reward in rewards)


def test_every_reward_can_be_audited_in_the_run_that_it_is_part_of(
    served: Served,
) -> None:
    rewards = served.rewards(
        edit(0, model="policy"),
        edit(0, model="other"),
        edit(1, edited=None),
        edit(0, id="e1"),
    )
    (kept,) = served.store.runs()
    assert kept.name.startswith("rewards-") and kept.spec["judges"] == [STUB]
    rows = {(row["item"], row["rubric"]): row for row in served.store.judgements(kept)}
    for reward in rewards:  # ids that were used twice for different things included
        for rubric, key in reward["keys"].items():
            assert rows[reward["stored_as"], rubric]["key"] == key
    assert rows[rewards[0]["stored_as"], "quality"]["model"] == "policy"
    (item,) = served.store.items(kept, rewards[0]["stored_as"])
    assert item.images["edited"]["digest"] and item.instruction == "Paint car 0 red."
    key = rewards[0]["keys"]["fidelity"]
    assert (
        served.store.replies(key)[0].text
        and load("fidelity").hash in served.store.rubrics()
    )


def test_a_client_that_hangs_up_loses_nothing(tmp_path: Path) -> None:
    with stub(Behaviour(latency=0.5)) as judge, serving(tmp_path / "s.db") as served:
        body = json.dumps({"edits": [edit(0), edit(1)]}).encode()
        place = httpx.URL(served.url)
        head = f"POST /v1/reward HTTP/1.1\r\nhost: {place.host}\r\ncontent-type: application/json\r\n"
        with socket.create_connection((place.host, place.port or 0)) as line:
            line.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
            until(lambda: judge.ledger.requests > 0)
        until(lambda: [row["status"] for row in served.rows()] == ["ok"] * 6)
        assert all(reward["cached"] for reward in served.rewards(edit(0), edit(1)))
        assert judge.ledger.paid == 6


def test_a_server_that_is_stopped_gently_finishes_what_it_took_in(
    tmp_path: Path,
) -> None:
    with stub(Behaviour(latency=1.0)), serving(tmp_path / "s.db") as served:
        # answered, and its work goes on
        (late,) = served.rewards(edit(0), deadline=0.05)
        assert late["status"] == "pending"
        served.stop()
        assert [row["status"] for row in served.rows()] == ["ok"] * 3


def test_who_still_waits_when_the_server_must_end_is_told_what_there_is(
    tmp_path: Path,
) -> None:
    with stub(Behaviour(latency=3.0)) as judge, serving(tmp_path / "s.db") as served:
        served.server.config.timeout_graceful_shutdown = 1
        found: list[Any] = []
        ask = threading.Thread(target=lambda: found.extend(served.rewards(edit(0))))
        ask.start()
        until(lambda: judge.ledger.in_flight == 3)
        served.stop()
        ask.join()
        assert [(reward["reward"], reward["status"]) for reward in found] == [
            (None, "pending")
        ]
        assert [row["status"] for row in served.rows()] == ["ok"] * 3


def test_draining_is_bounded(tmp_path: Path) -> None:
    with (
        stub(Behaviour(timeout=1.0)),
        serving(tmp_path / "s.db", terms=Terms(drain=0.1)) as served,
    ):
        served.rewards(edit(0), deadline=0.05)
        served.stop()
        assert {row["status"] for row in served.rows()} == {"pending"}


def test_a_server_that_is_being_stopped_takes_nothing_in(served: Served) -> None:
    served.queue.closing = True
    assert served.post("reward", {"edits": [edit(0)]}).status_code == 503
    assert served.client.get(f"{served.url}/healthz").status_code == 503
    assert served.rows() == []


def test_what_a_run_is_asking_is_waited_for_and_not_asked_again(
    served: Served, judge: Stub, tmp_path: Path
) -> None:
    options = Options(timeout=20.0, reasks=0)
    judge.behaviour = Behaviour(latency=0.3)
    manifest = edits(tmp_path, 8)
    rewards = list[dict[str, Any]]()
    thread = threading.Thread(
        target=lambda: run(manifest, tmp_path / "s.db", options=options)
    )
    thread.start()
    until(lambda: judge.ledger.requests > 0)
    rewards = served.rewards(*(edit(n) for n in range(8)))
    thread.join()
    assert judge.ledger.paid == judge.ledger.least_paid == 24
    assert [reward["status"] for reward in rewards] == ["ok"] * 8


def test_an_exception_on_one_edit_is_its_error_and_the_others_have_their_rewards(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = DigestCache.look_up
    judge = ChatJudge.judge

    def odd_picture(self: DigestCache, source: Any) -> Any:
        if source == picture("edited-1.png"):
            raise ZeroDivisionError("a header of no width")
        return known(self, source)

    async def odd_judge(self: ChatJudge, work: Work, loading: Load) -> Judgement:
        if work.edit.id == "e2":
            raise OverflowError("int too large to convert to float")
        return await judge(self, work, loading)

    with monkeypatch.context() as patch:
        patch.setattr(DigestCache, "look_up", odd_picture)
        patch.setattr(ChatJudge, "judge", odd_judge)
        rewards = served.rewards(*(edit(n) for n in range(4)))
    assert [reward["status"] for reward in rewards] == ["ok", "error", "error", "ok"]
    assert [reward["reward"] is None for reward in rewards] == [
        False,
        True,
        True,
        False,
    ]
    assert [
        reward["status"] for reward in served.rewards(*(edit(n) for n in range(4)))
    ] == ["ok"] * 4


def test_a_store_that_fails_once_is_503_once(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(
            served.store,
            "write",
            lambda _: (_ for _ in ()).throw(StoreError("the disk is full")),
        )
        answer = served.post("reward", {"edits": [edit(0)]})
        assert (
            answer.status_code == 503 and "the disk is full" in answer.json()["error"]
        )
    assert served.rewards(edit(0))[0]["status"] == "ok"


def test_the_command_serves_drains_on_a_signal_and_leaves_a_run_that_other_verbs_read(
    tmp_path: Path,
) -> None:
    place = tmp_path / "s.db"
    kept = tmp_path / "kept"
    options = (
        "--create",
        "--store",
        place,
        "--port",
        0,
        "--judge",
        STUB,
        "--rubric",
        "fidelity",
        "--formula",
        "min",
    )
    with stub(Behaviour(latency=1.0)):
        with start(
            "serve", *options, "--keep-pictures", kept, folder=tmp_path
        ) as server:
            assert server.stderr
            url = server.stderr.readline().split()[1]
            asked = {"edits": [edit(0)], "deadline": 0.1}
            late = patient.post(f"{url}v1/reward", json=asked, timeout=60).json()
            server.terminate()
            # raised again by uvicorn once everything is closed
            assert server.wait(60) in (0, -signal.SIGTERM)
        assert late["rewards"][0]["status"] == "pending" and late["formula"].startswith(
            "min of"
        )
    with Store.open(place, readonly=True) as store:
        (run,) = store.runs()
        (row,) = store.judgements(run)
    assert row["status"] == "ok" and row["item"].startswith("e0-")
    assert editjudge("runs", "show", run.name, "--store", place, "--json").code == 0
    again = editjudge("runs", "again", run.name, "--store", place)
    assert again.code == 2 and "over HTTP" in again.err
    assert len(list(kept.iterdir())) == 2


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (("--formula", "median"), "geometric_mean"),
        (("--weight", "alignment"), "FACTOR=NUMBER"),
        (("--weight", "alignment=nan"), "FACTOR=NUMBER"),
        (("--weight", "alignmnt=1"), "alignment"),
        (("--allow", "preference"), "preference: shows edited_a"),
        (("--allow-rubric", "preference"), "preference: shows edited_a"),
    ],
)
def test_terms_that_cannot_be_meant_are_refused(
    tmp_path: Path, option: tuple[str, str], said: str
) -> None:
    told = editjudge(
        "serve", "--create", "--store", tmp_path / "s.db", "--port", 0, *option
    )
    assert told.code == 2 and said in told.err
    lines = [line for line in told.err.splitlines() if "works until" not in line]
    assert "http://" not in told.err and len(lines) == 1


def test_pictures_are_kept_once_by_digest_within_a_bound_and_shown_in_review(
    judge: Stub, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    size = len(picture("input-0.png")) + len(picture("edited-0.png"))
    with serving(
        tmp_path / "s.db", terms=Terms(images=kept, max_images=size)
    ) as served:
        first, _, third = served.rewards(edit(0), edit(0, id="same"), edit(1))
        (kept_run,) = served.store.runs()
        page = f"{served.url}/runs/{kept_run.id}/images/edited"
        assert served.client.get(f"{page}/{first['stored_as']}").status_code == 200
        assert served.client.get(f"{page}/{third['stored_as']}").status_code == 404
    assert {path.read_bytes() for path in kept.iterdir()} == {
        picture("input-0.png"),
        picture("edited-0.png"),
    }


def test_where_there_is_a_token_the_api_needs_it(judge: Stub, tmp_path: Path) -> None:
    token = "long enough to be hard to guess"
    with serving(tmp_path / "s.db", token=token) as served:
        assert served.post("reward", {"edits": [edit(0)]}).status_code == 401
        known = {"authorization": f"Bearer {token}"}
        assert (
            served.post("reward", {"edits": [edit(0)]}, headers=known).status_code
            == 200
        )
        document = served.client.get(f"{served.url}/openapi.json", headers=known).json()
    assert (
        document["security"] == [{"token": []}]
        and "401" in document["paths"]["/v1/reward"]["post"]["responses"]
    )


# --- bounds -------------------------------------------------------------------------------------------------------


def test_a_full_queue_sends_away_with_the_time_to_come_back(tmp_path: Path) -> None:
    terms = Terms(max_edits=4, max_waiting=4)
    with (
        stub(Behaviour(latency=0.5)),
        serving(tmp_path / "s.db", terms=terms) as served,
    ):
        served.rewards(*(edit(n) for n in range(3)), deadline=0.05)
        refused = served.post("reward", {"edits": [edit(4), edit(5)]})
        assert refused.status_code == 429 and int(refused.headers["retry-after"]) >= 1
        assert served.rewards(edit(6))[0]["status"] == "ok"  # there is room for one
        until(lambda: served.client.get(f"{served.url}/healthz").json()["waiting"] == 0)
        assert len(served.rewards(*(edit(n) for n in range(4)))) == 4


def test_bytes_in_waiting_are_bounded_before_a_body_is_read(tmp_path: Path) -> None:
    with (
        stub(Behaviour(latency=0.5)),
        serving(tmp_path / "s.db", terms=Terms(max_held=2_000)) as served,
    ):
        served.rewards(edit(0), deadline=0.05)
        asked = {"edits": [edit(n) for n in range(4)]}
        assert served.post("reward", asked).status_code == 429
        until(lambda: served.client.get(f"{served.url}/healthz").json()["waiting"] == 0)
        assert served.queue.held == 0


def test_a_body_without_a_length_takes_up_no_more_room_than_it_has(
    judge: Stub, tmp_path: Path
) -> None:
    # room for one of unknown length, and a little
    terms = Terms(max_body=10_000, max_held=13_000)
    with (
        stub(Behaviour(latency=0.5)),
        serving(tmp_path / "s.db", terms=terms) as served,
    ):
        for number in range(3):
            body = json.dumps({"edits": [edit(number)], "deadline": 0.01}).encode()
            assert (
                served.post("reward", content=iter([body]), headers=JSON).status_code
                == 200
            )
        assert 0 < served.queue.held < 10_000


@pytest.mark.parametrize(
    ("terms", "sent"),
    [
        (Terms(max_edits=2), {"edits": [edit(n) for n in range(3)]}),
        (Terms(max_image=50), {"edits": [edit(0)]}),
        (Terms(max_body=300), {"edits": [edit(0)]}),
    ],
    ids=["edits", "bytes of a picture", "bytes of a body"],
)
def test_what_is_too_much_is_refused_with_words(
    tmp_path: Path, terms: Terms, sent: dict[str, Any]
) -> None:
    with serving(tmp_path / "s.db", "measured", terms) as served:
        for body in (
            {"json": sent},
            {"content": iter([json.dumps(sent).encode()]), "headers": JSON},
        ):
            answer = served.post("reward", **body)
            assert answer.status_code == 413
            said = answer.json()
            assert (
                "at most" in (said["error"] + str(said["problems"]))
                or "more than" in said["error"]
            )
        assert served.rows() == []


def test_a_run_of_rewards_goes_through_every_verb_that_reads_a_run(
    judge: Stub, tmp_path: Path
) -> None:
    place = tmp_path / "s.db"
    with serving(place) as served:
        assert [
            reward["status"] for reward in served.rewards(*map(edit, range(4)))
        ] == ["ok"] * 4
    with Store.open(place) as store:
        (name,) = [run.name for run in store.runs()]
    forms = ("parquet", "jsonl", "csv", "inspect")
    verbs: list[tuple[object, ...]] = [
        ("export", name, "-o", tmp_path / form, "--format", form) for form in forms
    ]
    verbs += [
        ("report", name, "-o", tmp_path / f"r.{form}", "--format", form)
        for form in ("html", "md", "latex", "csv", "json")
    ]
    verbs += [
        ("report", name),
        ("runs", "show", name),
        ("runs", "list"),
        ("drift", name, "--against", name),
    ]
    verbs += [
        ("gate", name, "--min", "alignment=1"),
        ("compare", name, "--by", "rubric"),
    ]
    for words in verbs:
        told = editjudge(*words, "--store", place)
        assert told.code in (0, 100), (words, told.err)
    told = editjudge("runs", "again", name, "--store", place)
    assert told.code == 2 and "asked over HTTP" in told.err
    assert list((tmp_path / "inspect").glob("*.eval"))


JSON = {"content-type": "application/json"}


def test_a_judge_that_refuses_the_key_is_unreachable_and_asked_again_by_the_next_request(
    tmp_path: Path,
) -> None:
    def no(headers: Any, body: bytes) -> tuple[int, dict[str, str], bytes]:
        return 401, {}, b'{"error": {"message": "wrong key"}}'

    with canned(no) as asked, serving(tmp_path / "s.db") as served:
        (first,) = served.rewards(edit(0))
        before = len(asked)
        (second,) = served.rewards(edit(0))
    assert (
        first["status"] == second["status"] == "unreachable" and first["reward"] is None
    )
    assert first["reasons"][0]["code"] == "judge_down"
    assert len(asked) > before >= 1


# --- what may be sent -----------------------------------------------------------------------------------------------


def multipart(*edits: dict[str, Any]) -> dict[str, Any]:
    """The same edits with their pictures as parts."""
    words = [
        {k: v for k, v in e.items() if k not in ("input", "edited")} for e in edits
    ]
    files: list[tuple[str, Any]] = [("request", (None, json.dumps({"edits": words})))]
    files += [
        (f"edits.{number}.{role}", (f"{role}.png", base64.b64decode(sent[role])))
        for number, sent in enumerate(edits)
        for role in ("input", "edited")
    ]
    return {"files": files}


def test_multipart_json_and_data_urls_mean_the_same(
    served: Served, judge: Stub
) -> None:
    as_url = {
        role: f"data:image/png;base64,{edit(0)[role]}" for role in ("input", "edited")
    }
    (plain,) = served.rewards(edit(0))
    (url,) = served.rewards(edit(0) | as_url)
    parted = served.post("reward", **multipart(edit(1), edit(0))).json()["rewards"]
    assert plain["keys"] == url["keys"] == parted[1]["keys"] != parted[0]["keys"]
    assert judge.ledger.paid == 6
    files = {
        "request": (None, '{"instruction": "Paint car 0 red."}'),
        "input": picture("input-0.png"),
    }
    one = served.post(
        "judge", files=files | {"edited": ("b.png", picture("edited-0.png"))}
    ).json()["judgements"]
    assert {row["rubric"]: row["key"] for row in one} == plain["keys"]


def test_one_edit_is_judged_rubric_by_rubric_with_reasons(served: Served) -> None:
    rows = served.post("judge", edit(0, rubrics=["fidelity"])).json()["judgements"]
    (row,) = rows
    assert row["item"] == row["id"] == "e0" and row["status"] == "ok"
    assert (
        set(row["scores"])
        == set(row["justifications"])
        == {f.key for f in load("fidelity").factors}
    )
    assert (
        row["key"]
        and row["judge"] == STUB
        and row["rubric_hash"] == load("fidelity").hash
    )


@pytest.mark.parametrize(
    "picture",
    [
        b"\x89PNG\r\n\x1a\n garbage",
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        pickle.dumps({"a": 1}),
        b"",
    ],
    ids=["garbage", "svg", "pickle", "nothing"],
)
def test_what_is_no_picture_is_a_bad_image_and_nobody_is_asked(
    refusing: tuple[Served, Stub], picture: bytes
) -> None:
    served, judge = refusing
    (reward,) = served.rewards(edit(0, edited=base64_of(picture)))
    assert (reward["reward"], reward["status"]) == (None, "bad_image")
    assert judge.ledger.requests == 0


def test_a_decompression_bomb_is_refused_by_its_header(
    refusing: tuple[Served, Stub],
) -> None:
    served, judge = refusing
    side = (60_000).to_bytes(4, "big")
    header = b"IHDR" + side + side + bytes([8, 2, 0, 0, 0])
    bomb = (
        b"\x89PNG\r\n\x1a\n"
        + (13).to_bytes(4, "big")
        + header
        + zlib.crc32(header).to_bytes(4, "big")
    )
    bomb += (0).to_bytes(4, "big") + b"IDAT" + zlib.crc32(b"IDAT").to_bytes(4, "big")
    (reward,) = served.rewards(edit(0, edited=base64_of(bomb)))
    assert (reward["reward"], reward["status"]) == (None, "bad_image")
    assert judge.ledger.requests == 0


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (pickle.dumps({"edits": []}), "application/x-pickle", 415),
        (pickle.dumps({"edits": []}), "application/json", 422),
        (b'{"edits": [', "application/json", 422),
        (b"[" * 100_000, "application/json", 422),
        (b'{"edits": [{"edited": null}], "deadline": NaN}', "application/json", 422),
        (b'{"edits": "all"}', "application/json", 422),
        (b"null", "application/json", 422),
        (b"", "", 415),
        (b"--x\r\nbroken", "multipart/form-data; boundary=x", 422),
        (b"", "multipart/form-data", 422),
    ],
)
def test_a_body_that_is_not_understood_is_refused(
    refusing: tuple[Served, Stub], body: bytes, kind: str, status: int
) -> None:
    answer = refusing[0].post("reward", content=body, headers={"content-type": kind})
    assert answer.status_code == status and answer.json()["error"]


@pytest.mark.parametrize("what", ["judge", "reward"])
@pytest.mark.parametrize("words", ["{}", '{"edits": []}', '{"edits": null}'])
def test_pictures_alone_make_no_batch(
    refusing: tuple[Served, Stub], what: str, words: str
) -> None:
    """Found by Schemathesis: the document requires the list of edits, and the server made one up."""
    files = {
        "request": (None, words),
        "edits.0.edited": ("b.png", picture("edited-0.png")),
    }
    answer = refusing[0].post(what, files=files)
    assert (
        answer.status_code == 422 and answer.json()["problems"][0]["where"] == "edits"
    )


@pytest.mark.parametrize(
    ("wrong", "where"),
    [
        ({"edits": [edit(0, edited="/etc/passwd")]}, "edits.0.edited"),
        ({"edits": [edit(0, edited="http://127.0.0.1/a.png")]}, "edits.0.edited"),
        ({"edits": [edit(0, edited="file:///etc/passwd")]}, "edits.0.edited"),
        ({"edits": [edit(0, edited="data:text/html;base64,AAAA")]}, "edits.0.edited"),
        ({"edits": [edit(0, edited="AAAA==")]}, "edits.0.edited"),
        ({"edits": [edit(0), edit(1, colour="red")]}, "edits.1.colour"),
        ({"edits": [edit(0)], "judge": "openai/dearest"}, "judge"),
        ({"edits": [edit(0)], "base_url": "http://127.0.0.1:1/v1"}, "base_url"),
        ({"edits": [edit(0)], "rubrics": ["/etc/passwd"]}, "rubrics.0"),
        ({"edits": [edit(0)], "weights": {"beauty": 1}}, "weights.beauty"),
        (
            {"edits": [edit(0)], "weights": {"alignment": 1, "fidelity.alignment": 3}},
            "weights",
        ),
        ({"edits": [edit(0)], "weights": {"alignment": 1e-10}}, "weights.alignment"),
        ({"edits": [edit(0)], "strict": "yes"}, "strict"),
        (
            {"edits": [{"instruction": "no word of the edited picture"}]},
            "edits.0.edited",
        ),
        ({"edits": []}, "edits"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_request_is_told_where_and_what(
    refusing: tuple[Served, Stub], wrong: dict[str, Any], where: str
) -> None:
    answer = refusing[0].post("reward", wrong)
    assert answer.status_code == 422
    assert any(
        problem["where"].startswith(where) and problem["what"]
        for problem in answer.json()["problems"]
    )


def test_a_judge_that_the_operator_allowed_may_be_named(
    judge: Stub, tmp_path: Path
) -> None:
    with serving(tmp_path / "s.db", "measured", Terms(judges=(STUB,))) as served:
        assert served.post("judge", edit(0, judge=STUB)).json()["judge"] == STUB
        assert served.post("judge", edit(0)).json()["judge"] == "measured"
        assert len(served.store.runs()) == 2


def test_a_judge_that_cannot_be_opened_is_503_with_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with serving(tmp_path / "s.db") as served:
        for _ in range(2):
            answer = served.post("reward", {"edits": [edit(0)]})
            assert (
                answer.status_code == 503 and "OPENAI_API_KEY" in answer.json()["error"]
            )
        assert served.client.get(f"{served.url}/healthz").json()["waiting"] == 0
