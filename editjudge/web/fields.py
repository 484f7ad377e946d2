"""Numbers, ids and form fields of a request: what cannot be read is the client's mistake, and never an exception of the
interpreter."""

from __future__ import annotations

from urllib.parse import parse_qs, unquote_to_bytes

from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request

from editjudge.web.guard import JOIN_CODE

_DIGITS = 9
"""Of a number: what every database and the interpreter take for one without a second look."""


def whole_number(text: str) -> int | None:
    """A number of a few ASCII digits, perhaps with a minus; None for anything else."""
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdecimal() and len(digits) <= _DIGITS else None


class _Number(Convertor[int]):
    """`{run:number}` in a route: Starlette's own `int` takes digits without end."""

    regex = rf"[0-9]{{1,{_DIGITS}}}"

    def convert(self, value: str) -> int:
        return int(value)

    def to_string(self, value: int) -> str:
        return str(value)


class _JoinCode(Convertor[str]):
    """`{code:join_code}` in a route: what a rater's link ends in."""

    regex = JOIN_CODE

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


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
