"""What servers say when they answer with an error: the table, row by row."""

from __future__ import annotations

import pytest

from editjudge.judges.failures import CallFailed, context_limit, error_rows, read_error


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (
            500,
            "The model produced output that does not match the expected peg-native format",
            "grammar",
        ),
        (500, "output does not match the grammar", "grammar"),
        (500, "Failed to parse input at pos 13: <|channel>thought", "grammar"),
        (500, "Unexpected empty grammar stack after accepting piece", "grammar"),
        (
            400,
            "request (13392 tokens) exceeds the available context size (8192 tokens), try increasing it",
            "context",
        ),
        (
            400,
            "This model's maximum context length is 16384 tokens. However, you requested 20000",
            "context",
        ),
        (
            400,
            "The input (691793 tokens) is longer than the model's context length (540000 tokens).",
            "context",
        ),
        (400, "prompt is too long: 213462 tokens > 200000 maximum", "context"),
        (
            400,
            "The input token count (1300000) exceeds the maximum number of tokens allowed (1048575).",
            "context",
        ),
        (400, "Could not process image", "image"),
        (400, "Unable to process input image. Please retry", "image"),
        (500, "cannot identify image file <_io.BytesIO object>", "image"),
        (500, "failed to decode image", "image"),
        (400, "Your credit balance is too low", "key"),
        (400, "guided_json is not supported", "schema"),
        (400, "flagged by our usage policies", "refusal"),
        (400, "temperature must be 1", None),
        (500, "response_format crashed", None),
        (503, "overloaded", None),
    ],
)
def test_words_of_real_servers_are_read(
    status: int, message: str, kind: str | None
) -> None:
    reading = read_error(status, [], message)
    assert (reading and reading[0]) == kind
    assert reading is None or reading[1] in message


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("exceed_context_size_error", "context"),
        ("context_length_exceeded", "context"),
        ("image_parse_error", "image"),
        ("response_format.json_schema", "schema"),
    ],
)
def test_a_named_field_outweighs_words(name: str, kind: str) -> None:
    reading = read_error(400, [None, 7, name], "against our usage policies")
    assert reading == (kind, "")


@pytest.mark.parametrize(
    ("message", "limit"),
    [
        (
            "request (9412 tokens) exceeds the available context size (8192 tokens)",
            8192,
        ),
        ("This model's maximum context length is 16,384 tokens", 16384),
        ("prompt is too long: 213462 tokens > 200000 maximum", 200000),
        ("exceeds the maximum number of tokens allowed (1048575)", 1048575),
        ("longer than the model's context length (540000 tokens)", 540000),
        ("it does not fit", None),
    ],
)
def test_the_size_of_a_context_is_read(message: str, limit: int | None) -> None:
    assert context_limit(message) == limit


def test_every_row_says_where_it_comes_from() -> None:
    assert all(len(row.source) > 20 and row.statuses for row in error_rows())


def test_a_kind_that_rests_on_quoted_words_falls_back_to_the_status() -> None:
    problem = CallFailed(
        "image", "HTTP 400: bad text", status=400, words="Could not process image"
    )
    assert (
        problem.ignoring_quotes_of("a sign: could  not process\nimage!").kind
        == "request"
    )
    assert problem.ignoring_quotes_of("a sign").kind == "image"
    assert (
        CallFailed("context", "HTTP 400", status=400).ignoring_quotes_of("").kind
        == "context"
    )
