"""Who can be asked: specs, addresses, keys, and what each provider takes."""

from __future__ import annotations

import base64
import copy
import dataclasses
import json
import pickle
import traceback
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from editjudge.errors import UsageError
from editjudge.judges.judge import Options
from editjudge.judges.providers import (
    PROVIDERS,
    Endpoint,
    Secret,
    checked_url,
    resolve,
    split,
)
from editjudge.judges.wire import ChatRequest, Conversation
from editjudge.media.image import EncodedImage, ImageLimits
from editjudge.rubrics.prompt import ImagePart, TextPart
from tests.faults import raises

KEY = "sk-super-secret-0123456789"
KEYS = {
    "OPENAI_API_KEY": KEY,
    "ANTHROPIC_API_KEY": KEY,
    "GOOGLE_API_KEY": KEY,
    "OPENROUTER_API_KEY": KEY,
    "AZURE_OPENAI_API_KEY": KEY,
    "AZURE_OPENAI_ENDPOINT": "https://mine.openai.azure.com/",
}
QUESTION = Conversation(
    (TextPart("Judge."), ImagePart("edited")),
    {"edited": EncodedImage("image/png", base64.b64encode(b"picture"))},
)


def address(endpoint: Endpoint) -> tuple[str, dict[str, str]]:
    return endpoint.address(endpoint.request(QUESTION, Options()))


# --- specs ----------------------------------------------------------------------------------------------------


def test_a_spec_is_split_at_the_first_slash() -> None:
    assert split("openrouter/qwen/qwen2.5-vl-72b") == (
        "openrouter",
        "qwen/qwen2.5-vl-72b",
    )


@given(st.sampled_from(sorted(PROVIDERS)), st.text(min_size=1).filter(str.strip))
def test_a_model_may_be_called_anything(provider: str, model: str) -> None:
    assert split(f"{provider}/{model}") == (provider, model.strip())


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("opnai/gpt-5", 'no provider is called "opnai"; did you mean "openai"?'),
        ("Anthropic/claude", 'did you mean "anthropic"?'),
        ("zzz/m", "openai, anthropic, google"),
        ("gpt-5", 'no provider is called "gpt-5"'),
        ("gpt-4.1", 'did you mean "openai/gpt-4.1"?'),
        ("Measured", 'did you mean "measured"?'),
        ("opnai", 'did you mean "openai"?'),
        ("openai", "expected openai/MODEL"),
        ("openai/ ", "expected openai/MODEL"),
    ],
)
def test_a_spec_that_cannot_be_meant_is_explained(spec: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolve(spec, environ=KEYS)
    assert says in str(caught.value)


# --- what each provider gets ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "url", "key_header"),
    [
        (
            "openai/gpt-6-luna",
            "https://api.openai.com/v1/chat/completions",
            "authorization",
        ),
        ("anthropic/claude", "https://api.anthropic.com/v1/messages", "x-api-key"),
        (
            "google/gemini-3-pro",
            "https://generativelanguage.googleapis.com/v1beta/models/gemini-3-pro:generateContent",
            "x-goog-api-key",
        ),
        (
            "openrouter/a/b",
            "https://openrouter.ai/api/v1/chat/completions",
            "authorization",
        ),
        (
            "azure/dep",
            "https://mine.openai.azure.com/openai/v1/chat/completions",
            "api-key",
        ),
        ("vllm/m", "http://localhost:8000/v1/chat/completions", None),
        ("sglang/m", "http://localhost:30000/v1/chat/completions", None),
        ("ollama/m:7b", "http://localhost:11434/v1/chat/completions", None),
        ("llamacpp/m", "http://localhost:8080/v1/chat/completions", None),
        ("lmstudio/m", "http://localhost:1234/v1/chat/completions", None),
    ],
)
def test_a_request_goes_to_the_provider_with_its_key_in_a_header(
    spec: str, url: str, key_header: str | None
) -> None:
    endpoint = resolve(spec, environ=KEYS)
    found, headers = address(endpoint)
    carrying = {name for name, value in headers.items() if KEY in value}
    assert found == url and carrying == ({key_header} if key_header else set())
    assert endpoint.warnings == () and KEY not in found
    if key_header == "authorization":
        assert headers[key_header] == f"Bearer {KEY}"


def test_every_wire_module_is_there_and_takes_the_options_of_its_provider() -> None:
    for name, provider in PROVIDERS.items():
        module = import_module(f"editjudge.judges.{provider.wire}")
        body = module.request(
            QUESTION, "m", Options(max_tokens=9), **provider.options
        ).body
        assert json.loads(b"".join(body)), name


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ("openai/m", "max_completion_tokens"),
        ("azure/m", "max_completion_tokens"),
        ("vllm/m", "max_tokens"),
        ("openrouter/m", "max_tokens"),
        ("ollama/m", "max_tokens"),
        ("anthropic/m", "max_tokens"),
    ],
)
def test_the_token_limit_has_the_name_that_the_provider_knows(
    spec: str, field: str
) -> None:
    body = json.loads(
        b"".join(
            resolve(spec, environ=KEYS).request(QUESTION, Options(max_tokens=9)).body
        )
    )
    assert {key: value for key, value in body.items() if "tokens" in key} == {field: 9}


def test_an_endpoint_reads_replies_too() -> None:
    body = (
        b'{"content": [{"type": "text", "text": "hello"}], "stop_reason": "end_turn"}'
    )
    assert resolve("anthropic/m", environ=KEYS).reply(200, {}, body).text == "hello"


def test_pictures_are_limited_as_the_provider_documents() -> None:
    limits: dict[str, ImageLimits] = {
        name: provider.limits for name, provider in PROVIDERS.items()
    }
    assert "gif" not in limits["google"].formats and "heic" in limits["google"].formats
    assert limits["anthropic"].max_side == 8000
    encoded = len(base64.b64encode(bytes(limits["anthropic"].max_bytes or 0)))
    assert encoded == 10 * 2**20
    assert limits["llamacpp"].formats == {"jpeg", "png"}


def test_what_a_provider_does_not_take_is_said() -> None:
    assert resolve("anthropic/m", environ=KEYS).unsupported == ("seed",)


# --- addresses ------------------------------------------------------------------------------------------------


def test_an_address_is_given_or_in_the_environment_or_the_default() -> None:
    environ = {**KEYS, "OPENAI_BASE_URL": "https://proxy.example/v1/"}
    assert resolve("openai/m", environ=environ).url == "https://proxy.example/v1"
    assert (
        resolve("openai/m", "https://other.example/v1", environ).url
        == "https://other.example/v1"
    )
    assert resolve("openai/m", environ=KEYS).url == "https://api.openai.com/v1"


def test_who_answers_at_another_address_has_promised_nothing_about_schemas() -> None:
    assert resolve("openai/m", environ=KEYS).schema_mode == "enforced"
    assert (
        resolve("openai/m", "https://proxy.example/v1", KEYS).schema_mode == "requested"
    )
    assert resolve("vllm/m", "http://gpu:8000/v1", {}).schema_mode == "enforced"
    assert resolve("azure/m", environ=KEYS).schema_mode == "enforced"


@pytest.mark.parametrize(
    ("spec", "variable"),
    [("openai-compatible/m", "--base-url"), ("azure/m", "AZURE_OPENAI_ENDPOINT")],
)
def test_an_address_that_only_the_user_knows_is_asked_for(
    spec: str, variable: str
) -> None:
    with raises(UsageError, "no_address", variable):
        resolve(spec, environ={"AZURE_OPENAI_API_KEY": KEY})


@pytest.mark.parametrize(
    ("endpoint", "version", "url"),
    [
        ("https://r.example", None, "https://r.example/openai/v1/chat/completions"),
        (
            "https://r.example/openai/",
            None,
            "https://r.example/openai/v1/chat/completions",
        ),
        (
            "https://r.example/openai/v1",
            "2024-10-21",
            "https://r.example/openai/v1/chat/completions",
        ),
        (
            "https://r.example",
            "2024-10-21",
            "https://r.example/openai/deployments/my%20dep/chat/completions?api-version=2024-10-21",
        ),
    ],
)
def test_azure_has_an_undated_address_and_one_by_version(
    endpoint: str, version: str | None, url: str
) -> None:
    environ = {
        **KEYS,
        "AZURE_OPENAI_ENDPOINT": endpoint,
        "OPENAI_API_VERSION": version or "",
    }
    assert address(resolve("azure/my dep", environ=environ))[0] == url


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("ftp://host/v1", "no_http_url"),
        ("localhost:8000", "no_http_url"),
        ("http:///v1", "no_http_url"),
        ("http://host:port/v1", "not_a_url"),
        ("http://[::1/v1", "not_a_url"),
        ("https://host/v1?api-version=1", "query_in_url"),
        ("https://host/v1#x", "query_in_url"),
        ("https://host/a b", "bad_characters_in_url"),
        ("https://host/v1/chat/completions", "path_in_url"),
        ("https://host/v1/messages/", "path_in_url"),
    ],
)
def test_an_address_that_cannot_be_meant_is_explained(url: str, code: str) -> None:
    with raises(UsageError, code, "--base-url"):
        checked_url(url, "--base-url")


@pytest.mark.parametrize("login", ["me:hunter2", "hunter2", ":hunter2"])
def test_a_password_in_an_address_is_refused_and_not_repeated(login: str) -> None:
    with raises(UsageError, "password_in_url") as caught:
        checked_url(f"https://{login}@host/v1", "--base-url")
    assert "hunter2" not in str(caught.value)


def test_a_forgotten_path_is_warned_of() -> None:
    assert "http://gpu:8000/v1" in resolve("vllm/m", "http://gpu:8000/", {}).warnings[0]
    assert resolve("anthropic/m", "https://proxy.example", KEYS).warnings == ()


@pytest.mark.parametrize(
    ("base_url", "warned"),
    [
        ("http://gpu.example:8000/v1", True),
        ("http://10.0.0.5:8000/v1", True),
        ("https://gpu.example/v1", False),
        ("http://localhost:8000/v1", False),
        ("http://127.0.0.2/v1", False),
        ("http://[::1]:8000/v1", False),
    ],
)
def test_a_key_that_travels_unencrypted_is_warned_of(
    base_url: str, warned: bool
) -> None:
    endpoint = resolve("vllm/m", base_url, {"VLLM_API_KEY": KEY})
    assert bool(endpoint.warnings) == warned
    assert resolve("vllm/m", base_url, {}).warnings == ()


# --- keys -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "variable"),
    [
        ("openai/m", "OPENAI_API_KEY"),
        ("anthropic/m", "ANTHROPIC_API_KEY"),
        ("google/m", "GOOGLE_API_KEY or GEMINI_API_KEY"),
        ("openrouter/m", "OPENROUTER_API_KEY"),
    ],
)
def test_a_missing_key_is_asked_for_by_its_variable(spec: str, variable: str) -> None:
    for environ in ({}, dict.fromkeys(variable.split(" or "), "  ")):
        with raises(UsageError, "no_key", variable):
            resolve(spec, environ=environ)


def test_who_is_never_asked_needs_no_key() -> None:
    assert resolve("openai/gpt-4.1", environ={}, needs_key=False).key is None


def test_either_of_two_variables_serves_and_two_keys_are_told_apart() -> None:
    only = resolve("google/m", environ={"GEMINI_API_KEY": "a"})
    both = resolve("google/m", environ={"GEMINI_API_KEY": "a", "GOOGLE_API_KEY": "b"})
    assert only.key and only.key.reveal() == "a" and only.warnings == ()
    assert both.key and both.key.reveal() == "b"
    assert both.warnings == (
        "GOOGLE_API_KEY and GEMINI_API_KEY differ; GOOGLE_API_KEY is used",
    )


def test_the_key_of_openai_is_not_sent_to_compatible_servers() -> None:
    for spec in ("openai-compatible/m", "vllm/m", "ollama/m"):
        assert resolve(spec, "http://host.example/v1", KEYS).key is None


def test_what_was_pasted_around_a_key_is_removed_and_what_is_inside_is_refused() -> (
    None
):
    endpoint = resolve("openai/m", environ={"OPENAI_API_KEY": f" {KEY}\n"})
    assert endpoint.key and endpoint.key.reveal() == KEY
    with raises(UsageError, "bad_key", "OPENAI_API_KEY") as caught:
        resolve("openai/m", environ={"OPENAI_API_KEY": f"{KEY}\r\nx-evil: 1"})
    assert KEY not in str(caught.value)


def test_a_key_shows_nowhere_but_in_the_headers() -> None:
    endpoint = resolve("openai/m", environ=KEYS)
    shown: list[Any] = [
        repr(endpoint),
        str(endpoint),
        f"{endpoint.key}",
        repr(dataclasses.asdict(endpoint)),
        repr(copy.deepcopy(endpoint)),
        repr(copy.copy(endpoint.key)),
        json.dumps(dict(endpoint.headers)),
    ]
    assert not [text for text in shown if KEY in text]
    assert KEY in address(endpoint)[1]["authorization"]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_key_is_never_pickled(protocol: int) -> None:
    with pytest.raises(TypeError, match="never pickled") as caught:
        pickle.dumps(resolve("openai/m", environ=KEYS), protocol)
    assert KEY not in "".join(traceback.format_exception(caught.value))


def test_an_endpoint_without_a_key_can_be_pickled() -> None:
    endpoint = resolve("vllm/m", environ={})
    assert pickle.loads(pickle.dumps(endpoint)) == endpoint  # noqa: S301  (our own bytes)


def test_a_key_can_be_taken_out_of_the_words_of_others() -> None:
    assert Secret("hunter2").redacted("no user hunter2 here") == "no user [key] here"


def test_headers_of_a_request_join_those_of_the_endpoint() -> None:
    request = ChatRequest("v1/messages", (b"{}",), {"anthropic-version": "1"})
    assert resolve("vllm/m", environ={}).address(request)[1] == {
        "content-type": "application/json",
        "anthropic-version": "1",
    }
