"""Numbers, ids and form fields of a request; what cannot be read is answered as the client's mistake."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import parse_qs, unquote_to_bytes

from starlette.concurrency import run_in_threadpool
from starlette.convertors import IntegerConvertor, StringConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from editjudge.web.guard import JOIN_CODE

_DIGITS = 9
"""Of a number: what every database and the interpreter take for one without a second look."""


def whole_number(text: str) -> int | None:
    """A number of a few ASCII digits, perhaps with a minus; None for anything else."""
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdecimal() and len(digits) <= _DIGITS else None


class _Number(IntegerConvertor):
    """`{run:number}` in a route: Starlette's own `int` takes any number of digits."""

    regex = rf"[0-9]{{1,{_DIGITS}}}"


class _JoinCode(StringConvertor):
    """`{code:join_code}` in a route: what a rater's link ends in."""

    regex = JOIN_CODE


def register_convertors() -> None:
    """Make `number` and `join_code` known to routes; before the first route that uses them."""
    register_url_convertor("number", _Number())
    register_url_convertor("join_code", _JoinCode())


def raw_tail(request: Request, before: int) -> str:
    """The path after `before` parts of it, to the character: out of the raw path, since a server has decoded the other
    one with replacements."""
    raw = b"/".join(request.scope["raw_path"].split(b"/")[before:])
    try:
        return unquote_to_bytes(raw).decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise HTTPException(404, "No edit has an id of such bytes.") from None


async def form_fields(request: Request) -> dict[str, str]:
    """The last value of each field of a form."""
    body = (await request.body()).decode("utf-8", "replace")
    try:
        values = parse_qs(body, keep_blank_values=True, max_num_fields=200)
    except ValueError as error:
        raise HTTPException(400, str(error)) from None
    return {name: given[-1] for name, given in values.items()}


def with_fields(handle: Callable[[Request, Mapping[str, str]], Response]) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint that calls `handle` in a thread with the fields of the form; a GET has none."""

    async def endpoint(request: Request) -> Response:
        fields = await form_fields(request) if request.method == "POST" else {}
        return await run_in_threadpool(handle, request, fields)

    return endpoint
