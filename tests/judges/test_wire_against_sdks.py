"""What we send is what the vendors' own clients send for the same question."""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from editjudge.judges.judge import Options
from editjudge.judges.providers import Endpoint, resolve
from editjudge.judges.wire import Conversation, RejectedTurn
from editjudge.media.image import EncodedImage
from editjudge.rubrics.prompt import ImagePart, TextPart

KEY = "sk-not-a-real-key"
# Bytes whose base64 holds both letters in which its two alphabets differ.
PNG = b"\x89PNG\xfb\xff\xfe?>"
JPEG = b"\xff\xd8\xff\xe0 and so on"
LABELS = ("Input image:", "Edited image: “naïve” 😀\n\t\\", "Judge the edit.")
SAID = "I'd say 7/7."
TOLD = "That reply cannot be used.\nAnswer in JSON."
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "reason": {"type": "string"},
        "score": {"type": "integer", "enum": [1, 2, 3]},
    },
    "required": ["reason", "score"],
    "additionalProperties": False,
}
QUESTION = Conversation(
    parts=(
        TextPart(LABELS[0]),
        ImagePart("input"),
        TextPart(LABELS[1]),
        ImagePart("edited"),
        TextPart(LABELS[2]),
    ),
    images={
        "input": EncodedImage("image/png", base64.b64encode(PNG)),
        "edited": EncodedImage("image/jpeg", base64.b64encode(JPEG)),
    },
    turns=(RejectedTurn(SAID, TOLD),),
    schema=SCHEMA,
    schema_name="online",
)


@dataclass
class Captured:
    """The last request that came."""

    url: str
    path: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: dict[str, Any] = field(default_factory=dict)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Captured]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            captured.path = self.path
            captured.headers = {
                name.lower(): value for name, value in self.headers.items()
            }
            captured.body = json.loads(
                self.rfile.read(int(self.headers["content-length"]))
            )
            self.send_response(418)  # not retried, and every client raises
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (its name there)
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        captured = Captured(f"http://127.0.0.1:{http.server_port}")
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        yield captured
        http.shutdown()
        thread.join()


def ours(endpoint: Endpoint, parameters: Options) -> tuple[str, dict[str, str], Any]:
    request = endpoint.request(QUESTION, parameters)
    url, headers = endpoint.address(request)
    return url, headers, json.loads(b"".join(request.body))


def openai_messages() -> list[Any]:
    def image(media_type: str, data: bytes) -> dict[str, Any]:
        url = f"data:{media_type};base64,{base64.b64encode(data).decode()}"
        return {"type": "image_url", "image_url": {"url": url}}

    texts = [{"type": "text", "text": label} for label in LABELS]
    return [
        {
            "role": "user",
            "content": [
                texts[0],
                image("image/png", PNG),
                texts[1],
                image("image/jpeg", JPEG),
                texts[2],
            ],
        },
        {"role": "assistant", "content": SAID},
        {"role": "user", "content": TOLD},
    ]


def anthropic_messages() -> list[Any]:
    def image(media_type: str, data: bytes, **more: Any) -> dict[str, Any]:
        encoded = base64.b64encode(data).decode()
        return {
            "type": "image",
            "source": {"type": "base64", "media_type": media_type, "data": encoded},
            **more,
        }

    texts = [{"type": "text", "text": label} for label in LABELS]
    return [
        {
            "role": "user",
            "content": [
                texts[0],
                image("image/png", PNG),
                texts[1],
                image("image/jpeg", JPEG),
                texts[2],
            ],
        },
        {"role": "assistant", "content": SAID},
        {"role": "user", "content": TOLD},
    ]


# --- OpenAI ---------------------------------------------------------------------------------------------------


def test_openai(server: Captured) -> None:
    import openai

    client = openai.OpenAI(api_key=KEY, base_url=f"{server.url}/v1", max_retries=0)
    with client, pytest.raises(openai.APIStatusError):
        client.chat.completions.create(
            model="gpt-5",
            messages=openai_messages(),
            temperature=0.5,
            seed=7,
            max_completion_tokens=99,
            reasoning_effort="low",
            response_format={
                "type": "json_schema",
                "json_schema": {"name": "online", "strict": True, "schema": SCHEMA},
            },
            top_p=0.9,
        )
    endpoint = resolve("openai/gpt-5", f"{server.url}/v1", {"OPENAI_API_KEY": KEY})
    command = Options(
        temperature=0.5,
        seed=7,
        max_tokens=99,
        reasoning_effort="low",
        extra={"top_p": 0.9},
    )
    url, headers, body = ours(endpoint, command)
    assert body == server.body
    assert url == server.url + server.path
    assert {name: server.headers[name] for name in headers} == headers


def test_servers_that_are_compatible_with_openai(server: Captured) -> None:
    import openai

    client = openai.OpenAI(api_key=KEY, base_url=f"{server.url}/v1", max_retries=0)
    with client, pytest.raises(openai.APIStatusError):
        client.chat.completions.create(
            model="qwen",
            messages=openai_messages(),
            max_tokens=99,
            response_format={
                "type": "json_schema",
                "json_schema": {"name": "online", "strict": True, "schema": SCHEMA},
            },
            extra_body={"top_k": 1},
        )
    endpoint = resolve("vllm/qwen", f"{server.url}/v1", {"VLLM_API_KEY": KEY})
    url, headers, body = ours(endpoint, Options(max_tokens=99, extra={"top_k": 1}))
    assert (body, url) == (server.body, server.url + server.path)
    assert {name: server.headers[name] for name in headers} == headers


@pytest.mark.parametrize("version", ["2024-10-21", None])
def test_azure(server: Captured, version: str | None) -> None:
    import openai

    client: openai.OpenAI
    if version:
        client = openai.AzureOpenAI(
            api_key=KEY, azure_endpoint=server.url, api_version=version, max_retries=0
        )
    else:  # the undated API is made for the plain client
        client = openai.OpenAI(
            api_key=KEY, base_url=f"{server.url}/openai/v1", max_retries=0
        )
    with client, pytest.raises(openai.APIStatusError):
        client.chat.completions.create(
            model="my-deployment",
            messages=openai_messages(),
            response_format={
                "type": "json_schema",
                "json_schema": {"name": "online", "strict": True, "schema": SCHEMA},
            },
        )
    environ = {
        "AZURE_OPENAI_API_KEY": KEY,
        "AZURE_OPENAI_ENDPOINT": server.url,
        "OPENAI_API_VERSION": version or "",
    }
    url, headers, body = ours(
        resolve("azure/my-deployment", environ=environ), Options()
    )
    assert (body, url) == (server.body, server.url + server.path)
    assert headers["api-key"] == KEY
    if version:  # with the plain client the key goes into Authorization, which Azure takes as well
        assert {name: server.headers[name] for name in headers} == headers


# --- Anthropic ------------------------------------------------------------------------------------------------


def test_anthropic(server: Captured) -> None:
    import anthropic

    client = anthropic.Anthropic(api_key=KEY, base_url=server.url, max_retries=0)
    with client, pytest.raises(anthropic.APIStatusError):
        client.messages.create(
            model="claude-opus-5-5",
            max_tokens=99,
            messages=anthropic_messages(),
            output_config={
                "effort": "low",
                "format": {"type": "json_schema", "schema": SCHEMA},
            },
        )
    endpoint = resolve(
        "anthropic/claude-opus-5-5", server.url, {"ANTHROPIC_API_KEY": KEY}
    )
    url, headers, body = ours(endpoint, Options(max_tokens=99, reasoning_effort="low"))
    assert (body, url) == (server.body, server.url + server.path)
    # The client moved the key to Authorization; the API's own examples keep it in x-api-key, and both are read.
    assert (
        headers.pop("x-api-key") == KEY
        and server.headers["authorization"] == f"Bearer {KEY}"
    )
    assert {name: server.headers[name] for name in headers} == headers


def test_anthropic_with_sampling_and_a_cached_prefix(server: Captured) -> None:
    import anthropic

    messages = anthropic_messages()
    client = anthropic.Anthropic(api_key=KEY, base_url=server.url, max_retries=0)
    with client, pytest.raises(anthropic.APIStatusError):
        client.messages.create(
            model="claude-sonnet-4-6",
            max_tokens=99,
            messages=messages,
            output_config={"format": {"type": "json_schema", "schema": SCHEMA}},
            # The client lost the parameter with the version that refuses it; this is how to ask the one before.
            extra_body={"temperature": 0.0},
            extra_headers={"anthropic-version": "2023-06-01"},
        )
    endpoint = resolve(
        "anthropic/claude-sonnet-4-6", server.url, {"ANTHROPIC_API_KEY": KEY}
    )
    _, headers, body = ours(endpoint, Options(temperature=0.0, max_tokens=99))
    assert body == server.body
    assert headers["anthropic-version"] == server.headers["anthropic-version"]


def test_the_version_of_the_anthropic_api_is_the_one_its_client_sends() -> None:
    from anthropic._constants import ANTHROPIC_API_VERSION

    from editjudge.judges.anthropic import VERSION

    assert VERSION == ANTHROPIC_API_VERSION


# --- Google ---------------------------------------------------------------------------------------------------


def as_we_spell_it(node: Any) -> Any:
    """JSON for protocol buffers is read in two spellings of names, snake_case and camelCase, and of bytes, base64 and
    its alphabet for URLs. Google's client mixes the names and takes the second of the bytes; we use the documented."""
    if isinstance(node, list):
        return [as_we_spell_it(item) for item in node]
    if not isinstance(node, dict):
        return node
    named = {
        re.sub("_(.)", lambda found: found[1].upper(), key): as_we_spell_it(value)
        for key, value in node.items()
    }
    if "data" in named:
        named["data"] = named["data"].replace("-", "+").replace("_", "/")
    return named


@pytest.mark.parametrize(
    ("model", "effort", "thinking"),
    [
        ("gemini-3-pro", "low", {"thinking_level": "LOW"}),
        ("gemini-2.5-flash", "medium", {"thinking_budget": 8192}),
    ],
)
def test_google(
    server: Captured, model: str, effort: str, thinking: dict[str, Any]
) -> None:
    from google import genai
    from google.genai import errors, types

    contents = [
        types.Content(
            role="user",
            parts=[
                types.Part.from_text(text=LABELS[0]),
                types.Part.from_bytes(data=PNG, mime_type="image/png"),
                types.Part.from_text(text=LABELS[1]),
                types.Part.from_bytes(data=JPEG, mime_type="image/jpeg"),
                types.Part.from_text(text=LABELS[2]),
            ],
        ),
        types.Content(role="model", parts=[types.Part.from_text(text=SAID)]),
        types.Content(role="user", parts=[types.Part.from_text(text=TOLD)]),
    ]
    config = types.GenerateContentConfig(
        temperature=0.5,
        seed=7,
        max_output_tokens=99,
        response_mime_type="application/json",
        response_json_schema=SCHEMA,
        thinking_config=types.ThinkingConfig(**thinking),
    )
    # The client's default is the stable v1, which has fewer models: previews are served under v1beta alone.
    options = types.HttpOptions(base_url=server.url, api_version="v1beta")
    client = genai.Client(api_key=KEY, vertexai=False, http_options=options)
    with client, pytest.raises(errors.APIError):
        client.models.generate_content(model=model, contents=contents, config=config)
    endpoint = resolve(f"google/{model}", server.url, {"GOOGLE_API_KEY": KEY})
    command = Options(temperature=0.5, seed=7, max_tokens=99, reasoning_effort=effort)
    url, headers, body = ours(endpoint, command)
    assert body == as_we_spell_it(server.body)
    assert url == server.url + server.path
    assert {name: server.headers[name] for name in headers} == headers
