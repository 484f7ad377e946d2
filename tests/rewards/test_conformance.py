"""The conformance kit passes our server, and names what is wrong with servers that are not: each has one fault."""

from __future__ import annotations

import http.server
import json
import pickle
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from editjudge.rewards import conformance
from editjudge.rewards.protocol import Terms
from editjudge.rubrics.files import load
from tests import patient
from tests.running.made import stub
from tests.stub.server import Behaviour
from tests.web.served import Served, serving


def test_our_server_conforms(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        stub(),
        serving(
            tmp_path / "s.db", terms=Terms(rubrics=("compliance",)), token="t" * 20
        ) as served,
    ):
        code = conformance.main([served.url, "--token", "t" * 20, "--json"])
        document = json.loads(capsys.readouterr().out)
        not_passed = {
            check["check"]: check["outcome"]
            for check in document["checks"]
            if check["outcome"] != "passed"
        }
        # Nothing is late where the judge answers at once.
        assert not_passed.pop("a deadline holds", "skipped") == "skipped"
        assert not_passed == {"a failing judge is null": "skipped"}
        assert (
            code == 0
            and document["conforms"]
            and len(document["checks"]) == len(conformance.CHECKS)
        )
        # without the token it is no server of rewards
        assert conformance.main([served.url]) == 1
        assert "failed" in capsys.readouterr().out


@contextmanager
def careless() -> Iterator[str]:
    """Answers every edit with 0.0 where it has no picture, refuses nothing, and keeps no deadline."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._say({})

        def do_POST(self) -> None:
            body: Any = {}
            with suppress(ValueError):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            edits = body.get("edits") if isinstance(body, dict) else []
            common = {
                "abstained": {},
                "reasons": [],
                "keys": {},
                "cached": True,
                "stored_as": None,
                "group": None,
            }
            rewards = [
                {
                    "id": e.get("id", ""),
                    "reward": 0.9 if e.get("edited") else 0.0,
                    "status": "ok",
                    "scores": {},
                    **common,
                }
                | {"uncertainty": None}
                for e in (edits if isinstance(edits, list) else [])
            ]
            known = {
                "protocol": 1,
                "formula": "",
                "judge": "j",
                "judges": {"j": 1},
                "rubrics": {},
                "run": None,
            }
            self._say({"rewards": rewards, **known})

        def _say(self, value: Any) -> None:
            data = json.dumps(value).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def test_a_server_that_makes_zeros_of_failures_does_not_conform(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with careless() as url:
        assert conformance.main([url, "--json"]) == 1
    checks = {
        check["check"]: check for check in json.loads(capsys.readouterr().out)["checks"]
    }
    assert "is 0.0" in checks["a missing output is null"]["message"]
    failed = {name for name, check in checks.items() if check["outcome"] == "failed"}
    assert {
        "what is not known is refused",
        "strict answers 503",
        "groups are compared",
    } <= failed
    assert checks["rewards come in order"]["outcome"] == "passed"


def test_a_server_that_is_not_there_and_an_address_that_is_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert conformance.main(["http://127.0.0.1:9"]) == 1
    assert "cannot be reached" in capsys.readouterr().out
    assert conformance.main(["127.0.0.1"]) == 1
    assert "expected the address" in capsys.readouterr().err


# --- servers with one fault -----------------------------------------------------------------------------------

Json = dict[str, Any]
FACTORS = [factor.key for factor in load("fidelity").factors]
OF_JUDGES = ("unreachable", "invalid", "refused", "truncated", "error")
"""Statuses of a judge that failed."""


class Fault:
    """What a server does wrong with an answer that was right."""

    def answer(self, request: Json, rewards: list[Json]) -> list[Json]:
        """Return the rewards that are sent instead."""
        del request
        return [self.reward(reward) for reward in rewards]

    def reward(self, reward: Json) -> Json:
        return reward


def zero(reward: Json, *, scores: Json | None = None) -> Json:
    """A 0 that nobody said, made up as well as a server may; by default with scores."""
    worst = dict.fromkeys(FACTORS, 1) if scores is None else scores
    return reward | {"reward": 0.0, "status": "ok", "scores": worst, "reasons": []}


class ZeroAtTheDeadline(Fault):
    def answer(self, request: Json, rewards: list[Json]) -> list[Json]:
        return (
            [zero(reward) for reward in rewards] if request["deadline"] < 1 else rewards
        )


class ZeroAtTheDeadlineThatIsKept(Fault):
    def __init__(self) -> None:
        self.late: set[str] = set()

    def answer(self, request: Json, rewards: list[Json]) -> list[Json]:
        if request["deadline"] < 1:
            self.late |= {edit["instruction"] for edit in request["edits"]}
        is_late = [
            edit.get("instruction") in self.late and not request.get("fresh")
            for edit in request["edits"]
        ]
        return [
            zero(reward) if late else reward
            for reward, late in zip(rewards, is_late, strict=True)
        ]


class ZeroForAJudgesFailure(Fault):
    def reward(self, reward: Json) -> Json:
        return zero(reward) if reward["status"] in OF_JUDGES else reward


class ZeroWithoutScoresForAJudgesFailure(Fault):
    def reward(self, reward: Json) -> Json:
        return zero(reward, scores={}) if reward["status"] in OF_JUDGES else reward


class ZeroForABrokenPicture(Fault):
    def reward(self, reward: Json) -> Json:
        return zero(reward) if reward["status"] == "bad_image" else reward


class ZeroForAMissingOutput(Fault):
    def reward(self, reward: Json) -> Json:
        return zero(reward) if reward["status"] == "missing_output" else reward


class Constant(Fault):
    def reward(self, reward: Json) -> Json:
        return reward if reward["reward"] is None else reward | {"reward": 0.5}


class NumbersOfOthers(Fault):
    """The ids are in order, and the first and the last number change places."""

    def answer(self, request: Json, rewards: list[Json]) -> list[Json]:
        del request
        numbered = [
            n for n, reward in enumerate(rewards) if reward["reward"] is not None
        ]
        if len(numbered) > 1:
            first = numbered[0]
            last = numbered[-1]
            swapped = {first: rewards[last]["reward"], last: rewards[first]["reward"]}
            return [
                reward | {"reward": swapped.get(n, reward["reward"])}
                for n, reward in enumerate(rewards)
            ]
        return rewards


class AsTheyFinish(Fault):
    def answer(self, request: Json, rewards: list[Json]) -> list[Json]:
        del request
        return rewards[::-1]


class FailuresLeftOut(Fault):
    def answer(self, request: Json, rewards: list[Json]) -> list[Json]:
        del request
        return [reward for reward in rewards if reward["reward"] is not None]


class DuplicatesLeftOut(Fault):
    def answer(self, request: Json, rewards: list[Json]) -> list[Json]:
        del request
        return list({reward["id"]: reward for reward in rewards}.values())


class DuplicatesAskedTwice(Fault):
    """The second of two equal edits has another number."""

    def answer(self, request: Json, rewards: list[Json]) -> list[Json]:
        del request
        seen: set[str] = set()
        answers = []
        for reward in rewards:
            is_second = reward["id"] in seen and reward["reward"] is not None
            answers.append(
                reward | {"reward": (reward["reward"] + 0.3) % 1}
                if is_second
                else reward
            )
            seen.add(reward["id"])
        return answers


class NotANumber(Fault):
    def reward(self, reward: Json) -> Json:
        return (
            reward | {"reward": float("nan")}
            if reward["status"] == "missing_output"
            else reward
        )


class AlwaysCached(Fault):
    def reward(self, reward: Json) -> Json:
        return reward | {"cached": True}


class NeverCached(Fault):
    def reward(self, reward: Json) -> Json:
        return reward | {"cached": False}


class NoScores(Fault):
    def reward(self, reward: Json) -> Json:
        return reward if reward["reward"] is None else reward | {"scores": {}}


class ReadsPickles(Fault):
    pass


MISSING = {
    "a missing output is null",
    "strict answers 503",
    "groups are ranked by pairs",
}
"""The checks that send an edit without an output."""
FAULTS: dict[type[Fault], set[str]] = {
    Fault: set(),
    ZeroAtTheDeadline: {"a deadline holds"},
    ZeroAtTheDeadlineThatIsKept: {"a deadline holds"},
    ZeroForAJudgesFailure: {"a failing judge is null"},
    ZeroWithoutScoresForAJudgesFailure: {
        "a failing judge is null",
        "every number has scores behind it",
    },
    ZeroForABrokenPicture: {"a broken picture is null"},
    ZeroForAMissingOutput: MISSING,
    Constant: {"different edits have different rewards"},
    NumbersOfOthers: {"rewards come in order"},
    AsTheyFinish: {
        "rewards come in order",
        "a missing output is null",
        "groups are ranked by pairs",
    },
    FailuresLeftOut: {
        *MISSING,
        "a broken picture is null",
        "a failing judge is null",
        "odd edits do not break a server",
    },
    DuplicatesLeftOut: {"a repeated edit has the same reward"},
    DuplicatesAskedTwice: {"a repeated edit has the same reward"},
    NotANumber: MISSING,
    AlwaysCached: {"cached says what was there before"},
    NeverCached: {"cached says what was there before"},
    NoScores: {"every number has scores behind it"},
    ReadsPickles: {"a pickle is refused"},
}


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, str]]:
    """Our server, which looks for nothing in the pictures itself, and a judge of it that never answers."""
    folder = tmp_path_factory.mktemp("right")
    (folder / "empty.jsonl").write_text("")
    failing = f"replay:{folder / 'empty.jsonl'}"
    terms = Terms(rubrics=("fidelity",), judges=(failing,))
    with (
        pytest.MonkeyPatch.context() as patch,
        stub(),
        serving(folder / "s.db", terms=terms) as served,
    ):
        patch.setattr("editjudge.rewards.queue.screen", lambda _: None)
        yield served, failing


@contextmanager
def with_fault(url: str, fault: Fault) -> Iterator[str]:
    """A server before ours that changes what it answers."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._say(client.get(url + self.path))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            kind = self.headers["content-type"]
            if isinstance(fault, ReadsPickles) and kind == "application/octet-stream":
                body = json.dumps(pickle.loads(body)).encode()  # noqa: S301  (of the kit)
                kind = "application/json"
            answer = client.post(
                url + self.path, content=body, headers={"content-type": kind}
            )
            if answer.status_code not in (200, 503):
                self._say(answer)
                return
            values = answer.json()
            request: Json = {"edits": [{} for _ in values["rewards"]], "deadline": 60}
            if kind == "application/json":
                request = json.loads(body)
            rewards = values["rewards"] = fault.answer(request, values["rewards"])
            is_failed = any(reward["reward"] is None for reward in rewards)
            status = 503 if request.get("strict") and is_failed else 200
            self._say(httpx.Response(status, content=json.dumps(values)))

        def _say(self, answer: httpx.Response) -> None:
            self.send_response(answer.status_code)
            self.send_header("content-length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.05}
    )
    thread.start()
    with patient.Client(timeout=60) as client:
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


@pytest.mark.parametrize("kind", FAULTS, ids=lambda kind: kind.__name__)
def test_a_fault_is_named_and_nothing_else(
    right: tuple[Served, str], kind: type[Fault]
) -> None:
    served, failing = right
    with with_fault(served.url, kind()) as url:
        results = list(conformance.run(url, failing_judge=failing))
    failed = {
        result.check: result.message for result in results if result.outcome == "failed"
    }
    if kind is FailuresLeftOut:
        # if the judge was late, which depends on the machine
        failed.pop("a deadline holds", None)
    assert set(failed) == FAULTS[kind], failed


def test_a_judge_that_never_answers_and_zeros_in_its_place_are_seen_without_naming_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    with serving(
        tmp_path / "s.db",
        f"replay:{tmp_path / 'empty.jsonl'}",
        Terms(rubrics=("fidelity",)),
    ) as served:
        with with_fault(served.url, ZeroForAJudgesFailure()) as url:
            plausible = {
                result.check
                for result in conformance.run(url)
                if result.outcome == "failed"
            }
        with with_fault(served.url, ZeroWithoutScoresForAJudgesFailure()) as url:
            plain = {
                result.check
                for result in conformance.run(url)
                if result.outcome == "failed"
            }
    assert "different edits have different rewards" in plausible
    assert {
        "different edits have different rewards",
        "every number has scores behind it",
    } <= plain


def test_a_right_server_whose_judge_often_fails_conforms(tmp_path: Path) -> None:
    faults = Behaviour(garbage=0.3, sticky=frozenset({"garbage"}))
    with (
        stub(faults) as judge,
        serving(tmp_path / "s.db", terms=Terms(rubrics=("compliance",))) as served,
    ):
        outcomes = {
            result.check: result.outcome for result in conformance.run(served.url)
        }
        assert judge.ledger.by_fault["garbage"]
    assert "failed" not in outcomes.values(), outcomes


def test_a_right_server_with_a_slow_judge_keeps_its_deadline(tmp_path: Path) -> None:
    """The judge takes longer than the server waits beyond a deadline."""
    terms = Terms(rubrics=("compliance",))
    with (
        stub(Behaviour(latency=4.0)),
        serving(tmp_path / "s.db", terms=terms) as served,
    ):
        conformance.a_deadline_holds(conformance.Server(served.url))
