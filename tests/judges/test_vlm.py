"""A judge that talks: what is asked, what is asked again, and what is kept of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from editjudge.edit import Edit
from editjudge.judges.chat import ChatJudge
from editjudge.judges.http import HttpTransport
from editjudge.judges.judge import Options
from editjudge.judges.providers import resolve
from editjudge.rubrics.files import load
from editjudge.running.pace import Pace
from tests.running.made import (
    SPECS,
    Done,
    answered,
    canned,
    edits,
    environment,
    pacing,
    picture,
    run,
    stub,
    variables,
    write_old,
)
from tests.stub.server import Behaviour

PATHS = {
    "openai": "/v1/chat/completions",
    "anthropic": "/v1/messages",
    "google": "/v1beta/models/stub:generateContent",
}


class Server:
    """Says these texts first, and then what is right; remembers what it was asked."""

    def __init__(self, wire: str, *texts: str) -> None:
        self._wire = wire
        self._texts = iter(texts)
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []

    def __call__(
        self, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        self.asked.append(json.loads(body))
        self.headers.append({name.lower(): value for name, value in headers.items()})
        document = answered(PATHS[self._wire], body)
        if (text := next(self._texts, None)) is not None:
            _put(self._wire, document, text)
        return 200, {}, json.dumps(document).encode()


def _put(wire: str, document: dict[str, Any], text: str) -> None:
    if wire == "openai":
        document["choices"][0]["message"]["content"] = text
    elif wire == "anthropic":
        document["content"] = [{"type": "text", "text": text}] if text else []
    else:
        document["candidates"][0]["content"]["parts"] = [{"text": text}] if text else []


def one(folder: Path, wire: str, *texts: str, **job: Any) -> tuple[Server, Done]:
    """One edit, one rubric."""
    server = Server(wire, *texts)
    with canned(server):
        done = run(
            edits(folder, 1),
            folder / "s.db",
            judges=(SPECS[wire],),
            rubrics=("fidelity",),
            **job,
        )
    return server, done


def turns(wire: str, body: dict[str, Any]) -> list[tuple[str, str]]:
    """Who says what; the pictures and texts of the question as one."""
    messages = body["contents" if wire == "google" else "messages"]
    return [(message["role"], "".join(_texts(message))) for message in messages]


def _texts(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key in ("text", "content") and isinstance(value, str):
                yield value
            else:
                yield from _texts(value)
    elif isinstance(node, list):
        for value in node:
            yield from _texts(value)


# --- asking again ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", SPECS)
def test_a_useless_reply_is_answered_with_the_reasons(
    wire: str, tmp_path: Path
) -> None:
    server, done = one(
        tmp_path, wire, "It is very good.", '{"online_factor_results": 6.5'
    )
    assert [reply.outcome for reply in done.replies[done.rows[0]["key"]]] == [
        "invalid",
        "truncated",
        "ok",
    ]
    first, second, third = (turns(wire, body) for body in server.asked)
    assert second[:1] == third[:1] == first
    assert [who for who, _ in third] == [
        "user",
        "assistant" if wire != "google" else "model",
    ] * 2 + ["user"]
    assert second[1][1] == "It is very good."
    assert "no JSON object" in second[2][1]
    assert third[:3] == second
    assert "breaks off" in third[4][1]
    identifier = json.loads(done.replies[done.rows[0]["key"]][-1].text)["image_id"]
    assert identifier in second[2][1]


@pytest.mark.parametrize("wire", SPECS)
def test_an_empty_reply_is_not_quoted(wire: str, tmp_path: Path) -> None:
    server, done = one(tmp_path, wire, "")
    assert done.statuses() == {"ok": 1}
    assert [who for who, _ in turns(wire, server.asked[1])] == ["user"]


def test_a_runaway_reply_is_kept_whole_and_quoted_in_part(tmp_path: Path) -> None:
    long = "blah " * 200_000
    server, done = one(tmp_path, "openai", long)
    assert done.replies[done.rows[0]["key"]][0].text == long
    assert len(turns("openai", server.asked[1])[1][1]) == 4_000


def test_half_a_surrogate_pair_in_a_reply_is_kept_and_can_be_answered(
    tmp_path: Path,
) -> None:
    server, done = one(tmp_path, "openai", "broken \ud83d emoji")
    assert done.replies[done.rows[0]["key"]][0].text == "broken \ud83d emoji"
    assert done.statuses() == {"ok": 1}
    assert len(server.asked) == 2


def test_all_replies_count_towards_the_usage(tmp_path: Path) -> None:
    _, done = one(tmp_path, "openai", "no", "no")
    used = [reply.usage for reply in done.replies[done.rows[0]["key"]]]
    assert len(used) == 3
    assert done.rows[0]["usage"]["input_tokens"] == sum(
        usage.input_tokens or 0 for usage in used
    )


# --- how it is asked ------------------------------------------------------------------------------------------

PARAMETERS = Options(
    temperature=0.25,
    seed=7,
    max_tokens=321,
    extra={"top_k": 5, "metadata": {"run": "x"}},
)


def test_parameters_are_passed_through_in_each_vendors_words(tmp_path: Path) -> None:
    bodies = {}
    for wire in SPECS:
        (tmp_path / wire).mkdir()
        server, done = one(tmp_path / wire, wire, options=PARAMETERS)
        assert done.statuses() == {"ok": 1}
        bodies[wire] = server.asked[0]
    openai = bodies["openai"]
    anthropic = bodies["anthropic"]
    google = bodies["google"]
    assert (openai["temperature"], openai["seed"], openai["max_completion_tokens"]) == (
        0.25,
        7,
        321,
    )
    assert (anthropic["temperature"], anthropic["max_tokens"]) == (0.25, 321)
    assert "seed" not in anthropic
    config = google["generationConfig"]
    assert (config["temperature"], config["seed"], config["maxOutputTokens"]) == (
        0.25,
        7,
        321,
    )
    assert all(
        body["top_k"] == 5 and body["metadata"] == {"run": "x"}
        for body in bodies.values()
    )


def test_what_is_not_set_is_left_to_the_server(tmp_path: Path) -> None:
    server, _ = one(tmp_path, "openai")
    assert set(server.asked[0]) == {"model", "messages", "response_format"}


def test_the_key_goes_into_the_vendors_header_and_nowhere_else(tmp_path: Path) -> None:
    for wire, header in (
        ("openai", "authorization"),
        ("anthropic", "x-api-key"),
        ("google", "x-goog-api-key"),
    ):
        (tmp_path / wire).mkdir()
        server, _ = one(tmp_path / wire, wire)
        assert server.headers[0][header].removeprefix("Bearer ") == "key-of-the-stub"
        assert "key-of-the-stub" not in json.dumps(server.asked)


def test_a_judge_does_not_learn_which_model_made_the_edit(tmp_path: Path) -> None:
    write_old(tmp_path / "a.png", picture("a"))
    write_old(tmp_path / "secret-model.png", picture("b"))
    row = {
        "id": "secret-model/1",
        "model": "secret-model",
        "input": "a.png",
        "edited": "secret-model.png",
    }
    (tmp_path / "edits.jsonl").write_text(
        json.dumps(row | {"instruction": "Paint it.", "note": "secret-model"})
    )
    server = Server("openai")
    with canned(server):
        run(tmp_path / "edits.jsonl", tmp_path / "s.db")
    assert "secret-model" not in json.dumps(server.asked)


def test_the_pictures_are_sent_byte_for_byte(tmp_path: Path) -> None:
    import base64

    server, _ = one(tmp_path, "openai")
    sent = json.dumps(server.asked[0])
    for name in ("input-0.png", "edited-0.png"):
        assert base64.b64encode((tmp_path / name).read_bytes()).decode() in sent


# --- what is said about a judge -------------------------------------------------------------------------------


def talker(spec: str, parameters: Options | None = None, **environ: str) -> ChatJudge:
    endpoint = resolve(spec, None, environ)
    return ChatJudge(
        spec,
        endpoint,
        parameters or Options(),
        Pace(spec),
        HttpTransport(),
    )


def test_its_identity_holds_no_secret() -> None:
    judge = talker("openai/m", OPENAI_API_KEY="sesame")
    assert "sesame" not in json.dumps(judge.identity(Edit("e"), load("fidelity"), 0))
    assert "sesame" not in repr(vars(judge))


def test_a_setting_that_is_left_out_is_said_to_be(tmp_path: Path) -> None:
    _, done = one(tmp_path, "anthropic", options=Options(seed=3))
    assert done.said == ["anthropic/stub has no seed: it is left out"]


def test_a_key_that_travels_unencrypted_is_said_to() -> None:
    judge = talker(
        "openai/m", OPENAI_API_KEY="k", OPENAI_BASE_URL="http://example.org/v1"
    )
    assert judge.warnings == (
        "the key of openai goes to example.org unencrypted; use https",
    )


# --- what is not answered -------------------------------------------------------------------------------------


def test_a_question_that_was_blocked_is_refused_with_the_reason_kept(
    tmp_path: Path,
) -> None:
    blocked = json.dumps({"promptFeedback": {"blockReason": "SAFETY"}}).encode()
    with canned(lambda *_: (200, {}, blocked)) as asked:
        done = run(
            edits(tmp_path, 1),
            tmp_path / "s.db",
            judges=("google/stub",),
            rubrics=("fidelity",),
        )
        assert len(asked) == 1
    (kept,) = done.replies[done.rows[0]["key"]]
    assert (done.rows[0]["status"], kept.outcome, kept.finish) == (
        "refused",
        "refused",
        "error",
    )
    assert "SAFETY" in kept.reasons[0].message


@pytest.mark.parametrize("pad", [0, 270, 280, 290, 300])
@pytest.mark.parametrize(
    "form", ['{"error": {"message": "%s"}}', "<html>%s</html>", "%s"]
)
def test_a_server_that_repeats_the_key_does_not_get_it_into_the_store(
    pad: int, form: str, tmp_path: Path
) -> None:
    """Also where the message is cut in the middle of the key."""
    key = "canary0123"
    said = (form % ("x" * pad + " you sent canary0123canary0123 to us")).encode()
    with (
        canned(lambda *_: (400, {}, said), key),
        environment({"OPENAI_API_KEY": f"{key}{key}"}),
    ):
        done = run(edits(tmp_path, 1), tmp_path / "s.db", rubrics=("fidelity",))
    assert done.statuses() == {"error": 1}
    assert "HTTP 400" in done.rows[0]["reasons"][0]["message"]
    assert "canary" not in json.dumps(done.rows) + str(done.replies)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-16"])
@pytest.mark.parametrize("form", ['{"error": {"message": "%s"}}', "“%s”"])
@pytest.mark.parametrize("pad", [0, 280])
def test_a_key_in_an_error_of_any_unicode_encoding_is_not_kept(
    encoding: str, form: str, pad: int, tmp_path: Path
) -> None:
    said = (form % ("x" * pad + " you sent canary0123canary0123 to us")).encode(
        encoding
    )
    with canned(lambda *_: (400, {}, said), "canary0123canary0123"):
        done = run(edits(tmp_path, 1), tmp_path / "s.db", rubrics=("fidelity",))
    kept = json.dumps(done.rows) + str(done.replies)
    assert done.statuses() == {"error": 1}
    assert "canary" not in kept and "c a n a r y" not in kept


def test_a_short_key_does_not_take_answers_apart(tmp_path: Path) -> None:
    """People who serve a model themselves set keys such as "e"; errors keep their meaning without it."""
    with (
        stub(Behaviour(schema_support="none")) as server,
        environment(variables(server.url, "e")),
    ):
        done = run(edits(tmp_path, 2), tmp_path / "s.db")
    assert done.statuses() == {"ok": 6}
    assert {row["schema_mode"] for row in done.rows} == {"prompt only"}


def test_replies_before_a_silence_are_kept(tmp_path: Path) -> None:
    useless = Server("openai", "It is very good.")

    def leaving(
        headers: Mapping[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        return useless(headers, body) if not useless.asked else (500, {}, b"gone")

    with canned(leaving), pacing(tries=2):
        done = run(edits(tmp_path, 1), tmp_path / "s.db", rubrics=("fidelity",))
    assert done.statuses() == {"unreachable": 1}
    assert [(r.outcome, r.text) for r in done.replies[done.rows[0]["key"]]] == [
        ("invalid", "It is very good."),
        ("unreachable", ""),
    ]
    assert done.rows[0]["usage"]["output_tokens"] > 0


# --- what a server rejects ------------------------------------------------------------------------------------


class Rejecting(Server):
    """Rejects the requests that a test picks, and answers the others."""

    def __init__(
        self,
        status: int,
        error: Any,
        when: Callable[[int, dict[str, Any]], bool] = lambda *_: True,
    ) -> None:
        super().__init__("openai")
        self._rejection: tuple[int, dict[str, str], bytes] = (
            status,
            {},
            json.dumps({"error": error}).encode(),
        )
        self._when = when

    def __call__(
        self, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        answer = super().__call__(headers, body)
        return (
            self._rejection if self._when(len(self.asked), self.asked[-1]) else answer
        )

    @property
    def schemas(self) -> list[bool]:
        return ["response_format" in body for body in self.asked]


def rejected(folder: Path, server: Rejecting, count: int = 1, **job: Any) -> Done:
    with canned(server), pacing(tries=3):
        return run(edits(folder, count), folder / "s.db", rubrics=("fidelity",), **job)


@pytest.mark.parametrize(
    ("status", "error", "expected"),
    [
        (400, {"message": "temperature must be 1"}, ("error", "request_rejected")),
        (413, {"message": "Payload Too Large"}, ("error", "request_rejected")),
        (422, {"message": "Unprocessable"}, ("error", "request_rejected")),
        (409, {"message": "conflict"}, ("error", "request_rejected")),
        (
            400,
            {"type": "exceed_context_size_error", "message": "no room", "n_ctx": 4096},
            ("error", "context_too_small"),
        ),
        (400, {"message": "Could not process image"}, ("bad_image", "bad_image")),
        (503, {"message": "overloaded"}, ("unreachable", "server")),
    ],
)
def test_a_rejected_question_has_the_status_of_its_reason(
    status: int, error: dict[str, Any], expected: tuple[str, str], tmp_path: Path
) -> None:
    (row,) = rejected(tmp_path, Rejecting(status, error)).rows
    assert (row["status"], row["reasons"][0]["code"]) == expected
    assert row["scores"] is None


def test_a_question_that_does_not_fit_names_the_limit_and_the_setting(
    tmp_path: Path,
) -> None:
    message = "request (9412 tokens) exceeds the available context size (8192 tokens), try increasing it"
    server = Rejecting(400, {"type": "exceed_context_size_error", "message": message})
    (row,) = rejected(tmp_path, server).rows
    assert (
        "8,192 tokens" in row["reasons"][0]["message"]
        and "context length" in row["reasons"][0]["message"]
    )
    assert len(server.asked) == 1


GRAMMAR = {
    "code": 500,
    "message": "The model produced output that does not match the expected peg-native format",
}


def test_a_reply_that_breaks_the_grammar_is_asked_again_and_at_last_without_the_schema(
    tmp_path: Path,
) -> None:
    server = Rejecting(500, GRAMMAR, lambda number, _: number < 3)
    done = rejected(tmp_path, server)
    assert (done.statuses(), server.schemas) == ({"ok": 1}, [True, True, False])
    assert (done.rows[0]["schema_mode"], done.rows[0]["attempts"]) == ("prompt only", 3)


def test_a_reply_that_breaks_the_grammar_every_time_is_invalid_and_no_transport_error(
    tmp_path: Path,
) -> None:
    server = Rejecting(500, GRAMMAR)
    (row,) = rejected(tmp_path, server).rows
    assert (row["status"], row["reasons"][0]["code"], row["attempts"]) == (
        "invalid",
        "grammar_mismatch",
        3,
    )
    assert len(server.asked) == 3


def test_one_broken_grammar_leaves_the_schema_on_for_the_next_question(
    tmp_path: Path,
) -> None:
    server = Rejecting(500, GRAMMAR, lambda number, _: number == 1)
    done = rejected(tmp_path, server, 3)
    assert done.statuses() == {"ok": 3}
    assert server.schemas == [True] * 4


@pytest.mark.parametrize(
    "words",
    ["response_format", "json_schema", "schema", "usage policy", "prompt is too long"],
)
def test_an_error_that_quotes_the_instruction_says_nothing_about_the_schema_or_the_status(
    words: str, tmp_path: Path
) -> None:
    manifest = edits(tmp_path, 4)
    rows = [json.loads(line) for line in manifest.read_text().splitlines()]
    rows[1]["instruction"] = f"Write {words} on the wall."
    manifest.write_text("".join(json.dumps(row) + "\n" for row in rows))
    message = f"cannot parse the text 'Write {words} on the wall.'"
    server = Rejecting(
        400, {"message": message}, lambda _, body: words in json.dumps(body["messages"])
    )
    with canned(server), pacing(tries=3):
        done = run(
            manifest,
            tmp_path / "s.db",
            rubrics=("fidelity",),
            manner={"concurrency": 1},
        )
    status = {row["item"]: (row["status"], row["schema_mode"]) for row in done.rows}
    assert status.pop("e1")[0] == "error"
    assert set(status.values()) == {("ok", "enforced")} or set(status.values()) == {
        ("ok", "requested")
    }


def test_one_question_that_is_taken_without_the_schema_alone_does_not_switch_it_off(
    tmp_path: Path,
) -> None:
    def odd(number: int, body: dict[str, Any]) -> bool:
        return "car 0" in json.dumps(body["messages"]) and "response_format" in body

    server = Rejecting(400, {"message": "the json_schema is too deep"}, odd)
    done = rejected(tmp_path, server, 4, manner={"concurrency": 1})
    assert done.statuses() == {"ok": 4}
    assert server.schemas.count(False) == 1
    assert [
        row["schema_mode"] == "prompt only"
        for row in sorted(done.rows, key=lambda row: row["item"])
    ] == [
        True,
        False,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("error", "refusals"),
    [({"message": "no", "param": "response_format"}, 1), ("no schema", 2)],
)
def test_a_server_that_takes_no_schema_is_asked_without_it_from_then_on(
    error: Any, refusals: int, tmp_path: Path
) -> None:
    server = Rejecting(400, error, lambda _, body: "response_format" in body)
    done = rejected(tmp_path, server, 6, manner={"concurrency": 1})
    assert done.statuses() == {"ok": 6}
    assert server.schemas.count(True) == refusals
    assert {row["schema_mode"] for row in done.rows} == {"prompt only"}
