"""A rubric's system message, in each of the three wire formats."""

from __future__ import annotations

import json
from typing import Any

import pytest

from editjudge.judges import anthropic, google, openai
from editjudge.judges.judge import Options
from editjudge.judges.wire import Conversation, RejectedTurn
from editjudge.rubrics.prompt import TextPart

PLACES = {
    openai: lambda body: [
        m["content"] for m in body["messages"] if m["role"] == "system"
    ],
    anthropic: lambda body: [body["system"]] if "system" in body else [],
    google: lambda body: [
        part["text"] for part in body.get("systemInstruction", {}).get("parts", [])
    ],
}


@pytest.mark.parametrize(
    "wire", PLACES, ids=lambda wire: wire.__name__.rpartition(".")[2]
)
def test_a_system_message_goes_where_the_format_has_it_and_nowhere_without_one(
    wire: Any,
) -> None:
    for system in ("You judge light.", ""):
        conversation = Conversation(
            (TextPart("Judge."),),
            {},
            (RejectedTurn("no", "JSON, please"),),
            system=system,
        )
        body = json.loads(b"".join(wire.request(conversation, "m", Options()).body))
        assert PLACES[wire](body) == ([system] if system else [])
        assert json.dumps(body).count("You judge light.") == bool(system)
