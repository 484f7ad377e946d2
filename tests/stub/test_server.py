"""The stub over real sockets: what it says in each wire format, how it misbehaves, and what it remembers."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import pytest

from tests.stub.answers import SHAPES, draw
from tests.stub.server import (
    FAULTS,
    Behaviour,
    Stub,
    expected_scores,
    read_question,
    serve_in_thread,
)

ID = "edit-0123456789abcdef"
PICTURE = "iVBORw0KGgo" + "A" * 4000
PATHS = {
    "openai": "/v1/chat/completions",
    "anthropic": "/v1/messages",
    "google": "/v1beta/models/stub:generateContent",
}
WIRES = list(PATHS)
T = TypeVar("T")


def question_text(rubric: str, identifier: str = ID) -> str:
    keys = json.dumps([SHAPES[rubric].envelope, *SHAPES[rubric].factors])
    said = f"The identifier is {identifier}." if SHAPES[rubric].envelope else ""
    return f"Judge the edit. {said} Answer with {keys}."


def body(wire: str, text: str, picture: str = PICTURE, **extra: Any) -> bytes:
    if wire == "openai":
        image: dict[str, Any] = {
            "type": "image_url",
            "image_url": {"url": f"data:image/png;base64,{picture}"},
        }
    elif wire == "anthropic":
        image = {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": picture},
        }
    else:
        parts = [
            {"inlineData": {"mimeType": "image/png", "data": picture}},
            {"text": text},
        ]
        return json.dumps(
            {"contents": [{"role": "user", "parts": parts}], **extra}
        ).encode()
    content = [image, {"type": "text", "text": text}]
    return json.dumps(
        {"model": "stub", "messages": [{"role": "user", "content": content}], **extra}
    ).encode()


def text_of(wire: str, reply: Any) -> str:
    if wire == "openai":
        return str(reply["choices"][0]["message"]["content"])
    if wire == "anthropic":
        return "".join(block["text"] for block in reply["content"])
    return "".join(part["text"] for part in reply["candidates"][0]["content"]["parts"])


def stop_of(wire: str, reply: Any) -> str:
    if wire == "openai":
        return str(reply["choices"][0]["finish_reason"])
    return str(
        reply["stop_reason"]
        if wire == "anthropic"
        else reply["candidates"][0]["finishReason"]
    )


def object_in(text: str) -> Any:
    return json.loads(text[text.index("{") : text.rindex("}") + 1])


def scores_in(rubric: str, said: Any) -> dict[str, int]:
    if rubric == "compliance":
        return {"effect_score": said["effect_score"]}
    factors = said[SHAPES[rubric].envelope] if SHAPES[rubric].envelope else said
    return {
        factor: entry["choice" if rubric == "preference" else "score"]
        for factor, entry in factors.items()
    }


class Client:
    def __init__(self, stub: Stub, session: aiohttp.ClientSession) -> None:
        self.stub = stub
        self.session = session

    async def post(
        self,
        wire: str = "openai",
        rubric: str = "fidelity",
        identifier: str = ID,
        **extra: Any,
    ) -> tuple[int, Any, Any]:
        return await self.send(
            PATHS[wire], body(wire, question_text(rubric, identifier), **extra)
        )

    async def send(self, path: str, payload: bytes) -> tuple[int, Any, Any]:
        async with self.session.post(self.stub.url + path, data=payload) as response:
            raw = await response.read()
            is_json = response.content_type == "application/json"
            return (
                response.status,
                response.headers,
                json.loads(raw) if is_json else raw,
            )

    async def many(self, count: int) -> list[tuple[int, Any, Any]]:
        return [await self.post(identifier=f"edit-{i:016x}") for i in range(count)]


def talk(
    use: Callable[[Client], Awaitable[T]],
    behaviour: Behaviour | None = None,
    seed: int = 1,
) -> T:
    async def run() -> T:
        async with Stub(behaviour, seed) as stub, aiohttp.ClientSession() as session:
            return await use(Client(stub, session))

    return asyncio.run(run())


# --- what it says


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("rubric", [*SHAPES])
def test_each_wire_carries_the_expected_scores_of_each_rubric(
    wire: str, rubric: str
) -> None:
    async def use(client: Client) -> tuple[Any, str]:
        _, _, reply = await client.post(wire, rubric)
        return reply, client.stub.ledger.answers[0].content_key

    reply, key = talk(use)
    said = object_in(text_of(wire, reply))
    assert (key == ID) == bool(SHAPES[rubric].envelope)
    assert scores_in(rubric, said) == expected_scores(1, key, rubric)
    assert said.get("image_id") == (ID if SHAPES[rubric].envelope else None)


def test_both_questions_of_a_pair_about_one_edited_picture_get_the_same_two_scores() -> (
    None
):
    async def use(client: Client) -> list[Any]:
        asked = (
            "Rate the edit: output score = [success, overediting]",
            "Rate it: output score = [natural, clean]",
        )
        return [
            await client.send(PATHS["openai"], body("openai", text)) for text in asked
        ]

    first, second = (object_in(text_of("openai", reply)) for _, _, reply in talk(use))
    assert (
        first == second
        and len(first["score"]) == 2
        and all(0 <= score <= 10 for score in first["score"])
    )


@pytest.mark.parametrize(
    "rubric", ["preservation", "quality", "fidelity", "online", "reference"]
)
def test_justifications_have_a_legal_number_of_words(rubric: str) -> None:
    _, _, reply = talk(lambda client: client.post(rubric=rubric))
    entries = object_in(text_of("openai", reply))[SHAPES[rubric].envelope].values()
    assert all(15 <= len(entry["justification"].split()) <= 25 for entry in entries)


def test_lighting_lists_differences_that_lead_to_its_decision() -> None:
    async def use(client: Client) -> list[str]:
        texts = [f"{question_text('lighting')} {i}" for i in range(12)]
        replies = [
            await client.send(PATHS["openai"], body("openai", text)) for text in texts
        ]
        return [text_of("openai", reply) for _, _, reply in replies]

    said = talk(use)
    decisions = {object_in(text)["Contextual_Preservation"]["score"] for text in said}
    assert decisions == {0, 1}
    for text in said:
        heads = re.findall("^## .*", text, re.MULTILINE)
        assert heads == ["## Difference Analysis", "## CP Decision", "## JSON"]
        fails = re.search(": not allowed$", text, re.MULTILINE) is not None
        assert object_in(text)["Contextual_Preservation"]["score"] == (
            0 if fails else 1
        )


def test_replies_name_a_dated_model_and_a_request_id() -> None:
    async def use(client: Client) -> list[tuple[int, Any, Any]]:
        return [await client.post(wire) for wire in WIRES]

    (_, openai_head, openai), (_, anthropic_head, anthropic), (_, _, google) = talk(use)
    assert (
        openai["model"]
        == anthropic["model"]
        == google["modelVersion"]
        == "stub-2026-01-01"
    )
    assert openai_head["x-request-id"].startswith("req_") and anthropic_head[
        "request-id"
    ].startswith("req_")
    stops = [
        stop_of(w, r) for w, r in zip(WIRES, (openai, anthropic, google), strict=True)
    ]
    assert stops == ["stop", "end_turn", "STOP"]


def test_usage_is_what_the_ledger_says_in_each_vendors_way_of_counting() -> None:
    async def use(client: Client) -> list[tuple[Any, tuple[int, int, int]]]:
        replies = [(await client.post(wire))[2] for wire in WIRES]
        return [
            (r, a.usage)
            for r, a in zip(replies, client.stub.ledger.answers, strict=True)
        ]

    (openai, first), (anthropic, second), (google, third) = talk(use)
    used = openai["usage"]
    assert 0 < first[1] < first[0]
    assert (
        used["prompt_tokens"],
        used["prompt_tokens_details"]["cached_tokens"],
        used["completion_tokens"],
    ) == first
    used = anthropic["usage"]
    cached = used["cache_read_input_tokens"]
    assert (used["input_tokens"] + cached, cached, used["output_tokens"]) == second
    used = google["usageMetadata"]
    assert (
        used["promptTokenCount"],
        used["cachedContentTokenCount"],
        used["candidatesTokenCount"],
    ) == third


def test_azure_and_gateway_prefixes_are_served() -> None:
    payload = body("openai", question_text("quality"), model=None)
    path = "/openai/deployments/my-judge/chat/completions?api-version=2026-01-01"
    status, _, reply = talk(lambda client: client.send(path, payload))
    assert (status, reply["model"]) == (200, "my-judge-2026-01-01")


def test_text_is_fenced_sometimes_and_bare_where_a_schema_is_asked_for() -> None:
    schema = {
        "type": "json_schema",
        "json_schema": {"name": "a", "schema": {"type": "object"}},
    }

    async def use(client: Client) -> tuple[list[str], list[str]]:
        loose = [text_of("openai", reply) for _, _, reply in await client.many(12)]
        forms: list[tuple[str, dict[str, Any]]] = [
            ("openai", {"response_format": schema}),
            (
                "anthropic",
                {"output_config": {"format": {"type": "json_schema", "schema": {}}}},
            ),
            ("anthropic", {"output_format": {"type": "json_schema", "schema": {}}}),
            (
                "google",
                {
                    "generationConfig": {
                        "responseMimeType": "application/json",
                        "responseSchema": {},
                    }
                },
            ),
            ("google", {"generationConfig": {"responseJsonSchema": {}}}),
        ]
        return loose, [
            text_of(w, (await client.post(w, "lighting", **extra))[2])
            for w, extra in forms
        ]

    loose, bare = talk(use)
    assert len({text.startswith("```json") for text in loose}) == 2
    assert all(json.loads(text) for text in bare)


def test_a_forced_tool_carries_the_envelope() -> None:
    extra: Any = {
        "tools": [{"name": "judge", "input_schema": {}}],
        "tool_choice": {"type": "tool", "name": "judge"},
    }
    _, _, reply = talk(lambda client: client.post("anthropic", **extra))
    (block,) = reply["content"]
    assert (reply["stop_reason"], block["type"], block["name"]) == (
        "tool_use",
        "tool_use",
        "judge",
    )
    assert scores_in("fidelity", block["input"]) == expected_scores(1, ID, "fidelity")


@pytest.mark.parametrize(
    ("wire", "extra", "named"),
    [
        ("openai", {"response_format": {"type": "json_schema"}}, "response_format"),
        (
            "anthropic",
            {"output_config": {"format": {"type": "json_schema"}}},
            "output_config.format",
        ),
        ("google", {"generationConfig": {"responseSchema": {}}}, "responseSchema"),
    ],
)
def test_without_schema_support_the_parameter_is_refused_by_name(
    wire: str, extra: Any, named: str
) -> None:
    async def use(client: Client) -> Any:
        refused = await client.post(wire, **extra)
        accepted = await client.post(wire)
        assert client.stub.ledger.by_fault["schema_refused"] == 1
        assert accepted[0] == 200
        return refused

    status, _, reply = talk(use, Behaviour(schema_support="none"))
    assert status == 400
    assert named in reply["error"]["message"]


def test_what_is_no_question_is_refused() -> None:
    async def use(client: Client) -> list[int]:
        bodies = [b"{", b"[]", b'{"messages": "hello"}', body("openai", "Say hello.")]
        return [(await client.send(PATHS["openai"], payload))[0] for payload in bodies]

    assert talk(use) == [400] * 4


def test_asking_again_with_reasons_is_the_same_question() -> None:
    again = [
        {"role": "assistant", "content": "no"},
        {"role": "user", "content": "That was no JSON."},
    ]

    async def use(client: Client) -> tuple[list[str], int]:
        first = json.loads(body("openai", question_text("lighting")))
        await client.send(PATHS["openai"], json.dumps(first).encode())
        first["messages"] += again
        await client.send(PATHS["openai"], json.dumps(first).encode())
        return [
            answer.content_key for answer in client.stub.ledger.answers
        ], client.stub.ledger.least_paid

    keys, least = talk(use)
    assert (len(set(keys)), least) == (1, 1)


def test_other_pictures_are_another_question() -> None:
    def key(picture: str) -> str:
        payload = body("openai", question_text("compliance"), picture)
        return read_question("openai", PATHS["openai"], payload).content_key

    assert len({key(PICTURE), key(PICTURE + "B"), key("short"), key("other")}) == 4


def test_models_are_listed() -> None:
    async def use(client: Client) -> Any:
        async with client.session.get(client.stub.url + "/v1/models") as response:
            return await response.json()

    assert talk(use)["data"][0]["id"] == "stub"


# --- how it misbehaves


def seen(
    wire: str, fault: str, rubric: str = "fidelity", **more: Any
) -> tuple[int, Any, Any]:
    """One reply under a fault that always strikes; the ledger must name it."""

    async def use(client: Client) -> tuple[int, Any, Any]:
        reply = await client.post(wire, rubric)
        assert client.stub.ledger.by_fault == {fault: 1}
        return reply

    settings: Any = {fault: 1.0, **more}
    return talk(use, Behaviour(**settings))


@pytest.mark.parametrize("wire", WIRES)
def test_rate_limited(wire: str) -> None:
    status, headers, reply = seen(wire, "rate_limited", retry_after=7.0)
    assert (status, headers["Retry-After"]) == (429, "7")
    assert "Rate limit" in reply["error"]["message"]


def test_a_true_rate_limit_turns_away_what_is_beyond_it() -> None:
    async def use(client: Client) -> list[int]:
        statuses = [status for status, _, _ in await client.many(6)]
        await asyncio.sleep(0.15)
        return [*statuses, (await client.post())[0]]

    statuses = talk(use, Behaviour(limit_rps=10, limit_burst=3))
    assert statuses[:3] == [200] * 3
    assert 429 in statuses[3:6]
    assert statuses[6] == 200


def test_server_errors_come_as_500_502_and_503() -> None:
    replies = talk(lambda client: client.many(20), Behaviour(server_error=1))
    assert {status for status, _, _ in replies} == {500, 502, 503}
    assert all(b"<html" in reply for status, _, reply in replies if status == 502)


@pytest.mark.parametrize(
    ("wire", "status"), [("openai", 503), ("anthropic", 529), ("google", 503)]
)
def test_overloaded(wire: str, status: int) -> None:
    assert seen(wire, "overloaded")[0] == status


def test_a_timeout_ends_when_the_client_gives_up() -> None:
    async def use(client: Client) -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.post(), 0.1)
        await asyncio.sleep(0.05)
        assert client.stub.ledger.in_flight == 0
        assert client.stub.ledger.by_fault == {"timeout": 1}

    talk(use, Behaviour(timeout=1))


def test_a_timeout_is_bounded() -> None:
    with pytest.raises(aiohttp.ServerDisconnectedError):
        seen("openai", "timeout", timeout_after=0.05)


def test_a_hang_up_sends_no_byte() -> None:
    with pytest.raises(aiohttp.ServerDisconnectedError):
        seen("openai", "hang_up")


def test_half_an_answer_is_paid_for_but_does_not_arrive() -> None:
    async def use(client: Client) -> int:
        with pytest.raises(aiohttp.ClientPayloadError):
            await client.post()
        return client.stub.ledger.paid

    assert talk(use, Behaviour(half_answer=1)) == 1


def test_garbage_comes_as_prose_broken_json_and_html() -> None:
    replies = talk(lambda client: client.many(30), Behaviour(garbage=1))
    texts = [text_of("openai", reply) for _, _, reply in replies]
    assert {text[0] for text in texts} == {"T", "{", "<"}
    for text in texts:
        with pytest.raises(ValueError, match="Expecting"):
            json.loads(text)


def test_html_instead_of_json_costs_nothing() -> None:
    async def use(client: Client) -> tuple[int, Any]:
        status, headers, _ = await client.post()
        assert client.stub.ledger.paid == 0
        return status, headers["Content-Type"]

    assert talk(use, Behaviour(not_json_http=1)) == (200, "text/html")


@pytest.mark.parametrize(
    ("wire", "stop"),
    [("openai", "length"), ("anthropic", "max_tokens"), ("google", "MAX_TOKENS")],
)
def test_length_stop_cuts_the_text(wire: str, stop: str) -> None:
    _, _, reply = seen(wire, "length_stop")
    assert stop_of(wire, reply) == stop
    assert not text_of(wire, reply).endswith(("}", "`"))


def test_refusals_come_as_the_vendor_marks_them_and_in_plain_words() -> None:
    async def use(client: Client) -> dict[str, set[str]]:
        marks: dict[str, set[str]] = {wire: set() for wire in WIRES}
        for wire in WIRES:
            for _ in range(20):
                marks[wire].add(refusal_mark(wire, (await client.post(wire))[2]))
        return marks

    assert talk(use, Behaviour(refusal=1)) == {
        "openai": {"refusal", "words"},
        "anthropic": {"refusal", "words"},
        "google": {"blockReason", "SAFETY", "words"},
    }


def refusal_mark(wire: str, reply: Any) -> str:
    if wire == "openai":
        return "refusal" if reply["choices"][0]["message"]["refusal"] else "words"
    if "promptFeedback" in reply:
        return "blockReason"
    return stop if (stop := stop_of(wire, reply)) in ("refusal", "SAFETY") else "words"


def test_content_filters() -> None:
    assert stop_of("openai", seen("openai", "content_filter")[2]) == "content_filter"
    assert (
        stop_of("google", seen("google", "content_filter")[2]) == "PROHIBITED_CONTENT"
    )
    assert seen("anthropic", "content_filter")[0] == 400


@pytest.mark.parametrize("wire", WIRES)
def test_empty(wire: str) -> None:
    assert text_of(wire, seen(wire, "empty")[2]) == ""


def test_a_wrong_identifier() -> None:
    said = object_in(text_of("openai", seen("openai", "wrong_id")[2]))
    assert (
        re.fullmatch("edit-[0-9a-f]{16}", said["image_id"]) and said["image_id"] != ID
    )


def test_a_wrong_identifier_needs_an_identifier() -> None:
    async def use(client: Client) -> dict[str, int]:
        await client.post(rubric="compliance")
        return client.stub.ledger.by_outcome

    assert talk(use, Behaviour(wrong_id=1)) == {"right": 1}


@pytest.mark.parametrize(
    ("rubric", "value"), [("fidelity", 6.5), ("lighting", 0.5), ("compliance", 4.5)]
)
def test_a_decimal(rubric: str, value: float) -> None:
    said = object_in(text_of("openai", seen("openai", "decimal", rubric)[2]))
    assert value in scores_in(rubric, said).values()


def test_two_answers_differ_and_the_last_is_right() -> None:
    text = text_of("openai", seen("openai", "two_answers")[2])
    first, end = json.JSONDecoder().raw_decode(text)
    last = scores_in("fidelity", object_in(text[end:]))
    assert last == expected_scores(1, ID, "fidelity")
    assert all(
        score != last[factor] for factor, score in scores_in("fidelity", first).items()
    )


def test_a_slow_drip_arrives_whole_and_late() -> None:
    start = time.monotonic()
    status, _, reply = seen("openai", "slow_drip", drip_seconds=0.2)
    assert time.monotonic() - start >= 0.15  # timers may go off a little early
    assert (status, scores_in("fidelity", object_in(text_of("openai", reply)))) == (
        200,
        expected_scores(1, ID, "fidelity"),
    )


def test_latency_and_bandwidth_take_their_time() -> None:
    def seconds(behaviour: Behaviour) -> float:
        async def use(client: Client) -> float:
            start = time.monotonic()
            await client.post()
            return time.monotonic() - start

        return talk(use, behaviour)

    assert 0.09 <= seconds(Behaviour(latency=0.1)) < 60
    assert 0.09 <= seconds(Behaviour(bandwidth=40_000)) < 60


def test_faults_are_drawn_anew_for_each_request_unless_sticky() -> None:
    async def use(client: Client) -> set[int]:
        return {(await client.post())[0] for _ in range(30)}

    assert talk(use, Behaviour(rate_limited=0.5)) == {200, 429}
    assert (
        len(talk(use, Behaviour(rate_limited=0.5, sticky=frozenset({"rate_limited"}))))
        == 1
    )


def test_faults_combine_and_strike_as_often_as_asked() -> None:
    async def use(client: Client) -> dict[str, int]:
        await client.many(400)
        return client.stub.ledger.by_fault

    counts = talk(use, Behaviour(rate_limited=0.25, empty=0.5))
    # Of 400 a quarter, then of the 300 that are left a half; four standard deviations either way.
    assert 65 < counts["rate_limited"] < 135
    assert 110 < counts["empty"] < 190


def test_a_fault_must_be_known_and_a_probability() -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        Behaviour(garbage=2)
    with pytest.raises(ValueError, match="nonsense"):
        Behaviour(sticky=frozenset({"nonsense"}))


def test_draws_are_uniform() -> None:
    draws = [draw(0, i) for i in range(2000)]
    assert 0 <= min(draws) < 0.01 and 0.99 < max(draws) < 1
    assert abs(sum(draws) / len(draws) - 0.5) < 0.03


def test_the_same_seed_and_requests_give_the_same_bytes() -> None:
    audible: Any = dict.fromkeys(
        set(FAULTS) - {"hang_up", "timeout", "half_answer"}, 0.08
    )
    mixed = Behaviour(**audible)

    def replies(seed: int) -> list[tuple[int, Any]]:
        return [
            (status, reply)
            for status, _, reply in talk(lambda client: client.many(60), mixed, seed)
        ]

    assert replies(5) == replies(5)
    assert replies(5) != replies(6)


# --- what it remembers


def test_the_ledger_counts_what_was_asked_and_said() -> None:
    async def use(client: Client) -> Any:
        await asyncio.gather(
            *(client.post(identifier=f"edit-{i % 4:016x}") for i in range(8))
        )
        async with client.session.get(
            client.stub.url + "/ledger?answers&log"
        ) as response:
            return await response.json()

    ledger = talk(use, Behaviour(latency=0.05, empty=0.5))
    assert (ledger["requests"], ledger["paid"], ledger["least_paid"]) == (8, 8, 4)
    assert (ledger["peak_in_flight"], ledger["connections"], ledger["in_flight"]) == (
        8,
        8,
        0,
    )
    assert ledger["by_status"] == {"200": 8}
    assert ledger["by_outcome"]["empty"] + ledger["by_outcome"]["right"] == 8
    assert ledger["bytes_received"] == 8 * len(
        body("openai", question_text("fidelity"))
    )
    assert [status for _, status, _ in ledger["log"]] == [200] * 8
    assert ledger["first"] <= ledger["last"] <= ledger["log"][0][0]
    for answer in ledger["answers"]:
        assert answer["scores"] == expected_scores(1, answer["identifier"], "fidelity")


def test_one_connection_is_one_connection() -> None:
    async def use(client: Client) -> int:
        await client.many(5)
        return client.stub.ledger.connections

    assert talk(use) == 1


def test_a_client_that_leaves_early_has_given_up_and_pays_nothing() -> None:
    async def use(client: Client) -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.post(), 0.1)
        await asyncio.sleep(0.05)
        ledger = client.stub.ledger
        assert (ledger.by_fault, ledger.by_status, ledger.in_flight) == (
            {"gave_up": 1},
            {0: 1},
            0,
        )
        assert ledger.paid == 0

    talk(use, Behaviour(latency=5))


def test_reset_forgets() -> None:
    async def use(client: Client) -> None:
        before = await client.many(3)
        async with client.session.post(client.stub.url + "/reset"):
            assert client.stub.ledger.requests == 0
        assert [r[2] for r in await client.many(3)] == [r[2] for r in before]

    talk(use)


def test_what_was_said_can_be_looked_up_by_the_body() -> None:
    payload = body("google", question_text("lighting"))

    async def use(client: Client) -> dict[str, dict[str, int]]:
        await client.send(PATHS["google"], payload)
        return {
            answer.content_key: answer.scores for answer in client.stub.ledger.answers
        }

    key = read_question("google", PATHS["google"], payload).content_key
    assert talk(use) == {key: expected_scores(1, key, "lighting")}


# --- how it runs


def ask(url: str) -> Any:
    payload = body("openai", question_text("fidelity"))
    with urllib.request.urlopen(url + PATHS["openai"], payload, timeout=10) as response:  # noqa: S310  (the stub's URL)
        return json.load(response)


def test_in_a_thread() -> None:
    with serve_in_thread(seed=3) as stub:
        said = object_in(text_of("openai", ask(stub.url)))
        assert stub.ledger.paid == 1
    assert scores_in("fidelity", said) == expected_scores(3, ID, "fidelity")


def test_in_a_process_of_its_own_until_sigterm() -> None:
    command = [
        sys.executable,
        "-m",
        "tests.stub.server",
        "--seed",
        "3",
        "--fault",
        "empty=1",
        "--latency",
        "0.01",
    ]
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout and process.stderr
        url = process.stdout.readline().strip()
        assert text_of("openai", ask(url)) == ""
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        assert process.stderr.read() == ""
