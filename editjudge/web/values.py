"""Values in requests and pages: parsing of numbers, ids and forms, and formatting of text, which templates escape."""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import cast
from urllib.parse import parse_qs, quote, unquote_to_bytes

from starlette.concurrency import run_in_threadpool
from starlette.convertors import (
    IntegerConvertor,
    StringConvertor,
    register_url_convertor,
)
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from editjudge.edit import IMAGE_ROLES, Edit
from editjudge.rubrics.model import EACH, EARLIER, Anchor, Factor, Rubric
from editjudge.rubrics.prompt import ask
from editjudge.store.records import Item, RunRecord

# --- requests -------------------------------------------------------------------------------------------------

JOIN_CODE = "[A-Za-z0-9_-]{24}"
"""Last part of a rater's link: `/rate/JOIN-CODE`."""
_DIGITS = 9
"""Maximum number of digits in a number. Such a number fits into every database."""


def whole_number(text: str) -> int | None:
    """Parse a number of a few ASCII digits, optionally with a minus. Return None for any other string."""
    return int(text) if re.fullmatch(rf"-?[0-9]{{1,{_DIGITS}}}", text) else None


class _Number(IntegerConvertor):
    """The convertor for `{run:number}` in a route. Starlette's `int` accepts any number of digits."""

    regex = rf"[0-9]{{1,{_DIGITS}}}"


class _JoinCode(StringConvertor):
    """The convertor for `{code:join_code}` in a route, which is the last part of a rater's link."""

    regex = JOIN_CODE


def register_convertors() -> None:
    """Register the convertors `number` and `join_code`. This must happen before the first route that uses them is
    created."""
    register_url_convertor("number", _Number())
    register_url_convertor("join_code", _JoinCode())


def raw_tail(request: Request, before: int) -> str:
    """Return the path after its first `before` segments.

    It is taken from the raw path, because the server's decoded path has replacements for invalid bytes.
    """
    raw = b"/".join(request.scope["raw_path"].split(b"/")[before:])
    try:
        return unquote_to_bytes(raw).decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise HTTPException(404, "The id in the address is not valid UTF-8.") from None


async def form_fields(request: Request) -> dict[str, str]:
    """Return the last value of each field in a form."""
    body = (await request.body()).decode("utf-8", "replace")
    try:
        values = parse_qs(body, keep_blank_values=True, max_num_fields=200)
    except ValueError as error:
        raise HTTPException(400, str(error)) from None
    return {name: entries[-1] for name, entries in values.items()}


def with_fields(
    handle: Callable[[Request, Mapping[str, str]], Response],
) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint that calls `handle` in a thread with the form's fields. For a GET they are empty."""

    async def endpoint(request: Request) -> Response:
        fields = await form_fields(request) if request.method == "POST" else {}
        return await run_in_threadpool(handle, request, fields)

    return endpoint


# --- pages ----------------------------------------------------------------------------------------------------


def encodable(text: str) -> str:
    """Return text that can be encoded as UTF-8. Lone surrogates, which a reply or an id may contain, are escaped."""
    return text.encode("utf-8", "backslashreplace").decode()


def edit_url(item: str, run: int, what: str = "edits") -> str:
    """Return the URL of an edit in a run, whatever characters its id contains."""
    # Browsers resolve these as folders, even if they are percent-encoded.
    if item in (".", ".."):
        return f"/runs/{run}/{what}/?item={item}"
    return f"/runs/{run}/{what}/{quote(item.encode('utf-8', 'surrogatepass'), safe='')}"


def day(seconds: float) -> str:
    """Return a time to the minute as text. The time of an imported run may be outside the calendar."""
    try:
        moment = datetime.datetime.fromtimestamp(seconds).astimezone()
        return moment.isoformat(" ", "minutes")[:16]
    except (OverflowError, OSError, ValueError):
        return "at an unknown time"


def number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def score(value: float | None) -> str:
    """Return a mean score as text, without decimals if it is an integer."""
    if value is None or math.isnan(value):
        return "–"
    if float(value).is_integer():
        return f"{value:.0f}"
    # One decimal for a mean of 1 to 7, but three digits for a share, so that .0123 does not become .0.
    return f"{value:.1f}" if abs(value) >= 1 else f"{value:.3g}"


def titled(key: str) -> str:
    """Return a factor's key as a column heading."""
    return key.replace("_", " ")


def choice(value: str) -> str:
    """Return the letter of the output that a judge prefers, or its other answer in words."""
    return value.upper() if value in ("a", "b") else value.replace("_", " ")


def legend(factor: Factor) -> tuple[dict[float, str], list[Anchor]]:
    """Return the description of each value, and the anchors that belong to no value."""
    meanings: dict[float, str] = dict(sorted(factor.scale.labels.items()))
    anchors = list(factor.anchors)
    for anchor in factor.anchors:
        value = anchor.scores[0]
        reference = f"as the anchor for {value} says"
        if len(anchor.scores) == 1 and reference in meanings.get(value, ""):
            text = " ".join(anchor.when)
            meanings[value] = meanings[value].replace(reference, text)
            anchors.remove(anchor)
    plain = {value: m.replace("the anchor for ", "") for value, m in meanings.items()}
    return plain, anchors


def scale_ends(factor: Factor) -> list[tuple[float, str]]:
    """Return the lowest and highest score with their descriptions in the rubric, or an empty list if neither has one."""
    labels, anchors = legend(factor)
    ends = []
    for value in factor.scale.steps[:1] + factor.scale.steps[-1:]:
        when = next((anchor.when for anchor in anchors if value in anchor.scores), ())
        ends.append((value, labels.get(value) or "; ".join(when)))
    return ends if any(meaning for _, meaning in ends) else []


def pretty(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def question_text(rubric: Rubric, run: RunRecord, item: Item) -> str:
    """Return the question as it was sent, with images as [image: role].

    For a rubric whose question is asked for each element of a list, it is the question about the first element.
    """
    edit = Edit(
        item.item,
        instruction=item.instruction,
        referring_expression=item.referring_expression,
        edit_type=item.edit_type,
        metadata=item.metadata,
        images={
            name: str(image["source"])
            for name, image in item.images.items()
            if name not in IMAGE_ROLES
        },
    )
    elements = (edit.listed(rubric.for_each) if rubric.for_each else None) or [
        "(an element of the list)"
    ]
    placeholders = {EACH: elements[0], EARLIER: "(the earlier answers)"}
    edit = dataclasses.replace(edit, metadata={**edit.metadata, **placeholders})
    digests = {
        role: image["digest"]
        for role, image in item.images.items()
        if image.get("digest")
    }
    return str(ask(rubric, edit, cast(dict[str, str], digests), run.spec.get("layout")))


FILTERS: dict[str, Callable[..., object]] = {
    "choice": choice,
    "day": day,
    "edit_url": edit_url,
    "legend": legend,
    "number": number,
    "pretty": pretty,
    "scale_ends": scale_ends,
    "score": score,
    "titled": titled,
}
"""Filters for the templates, keyed by name."""
