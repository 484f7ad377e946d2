"""`--repeats` in one request, where the server takes `n`: pictures are sent once, and each reply is a judgement."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from editjudge.judges.judge import Options
from tests.running.made import Done, answered, canned, edits, run

Document = dict[str, Any]
Spoil = Callable[[Document, Document], tuple[int, Document]]
"""A request and the answer that it would get, to what it gets."""


@contextmanager
def server(spoil: Spoil = lambda _, answer: (200, answer)) -> Iterator[list[Document]]:
    requests: list[Document] = []

    def say(_: Mapping[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        request = json.loads(body)
        requests.append(request)
        answer = answered("/v1/chat/completions", body)
        answer["choices"] = [
            answer["choices"][0] | {"index": n} for n in range(request.get("n", 1))
        ]
        answer["usage"] = {
            "prompt_tokens": 100,
            "completion_tokens": 7 * len(answer["choices"]) + 1,
        }
        status, document = spoil(request, answer)
        return status, {}, json.dumps(document).encode()

    with canned(say):
        yield requests


def judged(folder: Path, repeats: int = 5, **more: Any) -> Done:
    folder.mkdir(exist_ok=True)
    return run(
        edits(folder, 2), folder / "s.db", rubrics=("quality",), repeats=repeats, **more
    )


def asked(
    folder: Path, spoil: Spoil = lambda _, answer: (200, answer), **more: Any
) -> tuple[Done, list[Document]]:
    """Five repeats of two edits, and the requests."""
    with server(spoil) as requests:
        return judged(folder, **more), requests


def test_one_request_brings_the_repeats_of_an_edit(tmp_path: Path) -> None:
    done, requests = asked(tmp_path)
    assert (
        done.statuses() == {"ok": 10} and len({row["key"] for row in done.rows}) == 10
    )
    assert [request.get("n") for request in requests] == [5, 5]
    assert {len(replies) for replies in done.replies.values()} == {1}
    for item in ("e0", "e1"):
        usage = [row["usage"] for row in done.rows if row["item"] == item]
        assert sum(one["input_tokens"] for one in usage) == 100
        assert sum(one["output_tokens"] for one in usage) == 36
    assert all(row["notes"][0]["code"] == "shared_request" for row in done.rows)


def test_a_server_that_refuses_the_number_is_asked_one_by_one_with_the_same_keys(
    tmp_path: Path,
) -> None:
    refusing = False
    with server(
        lambda request, answer: _refused(request, answer) if refusing else (200, answer)
    ) as requests:
        together = judged(tmp_path / "a")
        refusing = True
        count = len(requests)
        alone = judged(tmp_path / "b")
    assert {row["key"] for row in together.rows} == {row["key"] for row in alone.rows}
    assert sum(
        "n" not in request for request in requests[count:]
    ) == 10 and alone.statuses() == {"ok": 10}


def _refused(request: Document, answer: Document) -> tuple[int, Document]:
    return (
        (400, {"error": {"message": "n must be 1"}})
        if request.get("n", 1) > 1
        else (200, answer)
    )


def test_a_server_that_ignores_the_number_is_asked_one_by_one(tmp_path: Path) -> None:
    done, requests = asked(
        tmp_path,
        spoil=lambda _, answer: (200, answer | {"choices": answer["choices"][:1]}),
    )
    assert done.statuses() == {"ok": 10}
    assert (
        10 <= len(requests) <= 10 and sum("n" in request for request in requests) <= 2
    )


def test_a_reply_that_is_no_answer_is_asked_for_again_alone(tmp_path: Path) -> None:
    def spoil(request: Document, answer: Document) -> tuple[int, Document]:
        if request.get("n", 1) > 1:
            answer["choices"][1] = {
                "message": {"content": "good"},
                "finish_reason": "stop",
            }
            answer["choices"][2] = {
                "message": {"content": "{"},
                "finish_reason": "length",
            }
            answer["choices"][3] = {"message": None, "finish_reason": "error"}
        return 200, answer

    done, requests = asked(tmp_path, spoil=spoil)
    assert done.statuses() == {"ok": 10}
    attempts = Counter(row["attempts"] for row in done.rows)
    assert attempts == {1: 6, 2: 4}
    first = {
        reply.outcome for replies in done.replies.values() for reply in replies[:1]
    }
    assert first == {"ok", "invalid", "truncated"}
    assert sum(request.get("n", 1) > 1 for request in requests) == 2


def test_a_request_that_fails_is_tried_again_for_all_of_them(tmp_path: Path) -> None:
    failed: list[int] = []

    def spoil(_: Document, answer: Document) -> tuple[int, Document]:
        failed.append(1)
        return (
            (503, {"error": {"message": "busy"}}) if len(failed) <= 2 else (200, answer)
        )

    done, _ = asked(tmp_path, spoil=spoil)
    assert done.statuses() == {"ok": 10}


def test_what_is_there_is_not_asked_for_again(tmp_path: Path) -> None:
    with server() as requests:
        judged(tmp_path, repeats=2)
        done = judged(tmp_path, repeats=5, manner={"name": "more"})
    assert [request["n"] for request in requests] == [2, 2, 3, 3]
    assert done.outcome.tally.cached == 4


@pytest.mark.parametrize("options", [Options(seed=1), Options(reasks=0)])
def test_with_a_seed_every_repeat_has_a_request_of_its_own(
    options: Options, tmp_path: Path
) -> None:
    _, requests = asked(tmp_path, options=options)
    assert any("n" in request for request in requests) == (options.seed is None)


def test_with_a_budget_every_repeat_has_a_request_of_its_own(tmp_path: Path) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text(
        "as_of: 2026-01-01\nmodels:\n  openai/stub: {input: 1.0, output: 1.0}\n"
    )
    done, requests = asked(
        tmp_path, options=Options(prices=prices), manner={"budget": 5.0}
    )
    assert done.statuses() == {"ok": 10} and not any(
        "n" in request for request in requests
    )
