"""What stands before every route: who may ask, from where, how much; and what the answer may do in a browser."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from editjudge.web.site import LOOPBACK, Site

COOKIE = "editjudge"
SIGN_IN = "/sign-in"
_OPEN = (SIGN_IN, "/healthz")
"""Asked without a token: the form that takes it, and whether the server lives."""
_MOST = {"/v1/": 512 * 2**20, "": 2**20}
"""Bytes of a body, by the path's beginning: a batch of pictures, or a form."""
_SAFE = ("GET", "HEAD", "OPTIONS")

_HEADERS = {
    # No inline script or style anywhere, nothing from elsewhere, and nobody frames us.
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    # Not `no-referrer`: with it browsers say `Origin: null` of our own forms.
    "referrer-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "x-frame-options": "DENY",
    "cache-control": "no-cache",
}


class Guard:
    """Wraps the application."""

    def __init__(self, app: ASGIApp, site: Site) -> None:
        self._app, self._site = app, site

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        headers, path, method = Headers(scope=scope), scope["path"], scope["method"]
        most = next(size for start, size in _MOST.items() if path.startswith(start))
        if refusal := self._refusal(headers, path, method, most):
            await refusal(scope, receive, sending)
        else:
            await self._app(scope, _bounded(receive, most), sending)

    def _refusal(self, headers: Headers, path: str, method: str, most: int) -> Response | None:
        # A page whose name was made to point here would be same-origin with us. It has no cookie for a token, so only
        # a server without one needs to know its own names.
        if self._site.token is None and _host(headers.get("host", "")) not in LOOPBACK:
            return PlainTextResponse("This server answers to loopback names, such as http://127.0.0.1.", 421)
        if method not in _SAFE and not _from_here(headers):
            return PlainTextResponse("Refused: the request was made by another site's page.", 403)
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > most:
            return PlainTextResponse(f"The body is larger than {most:,} bytes.", 413)
        if path in _OPEN or path.startswith("/static/") or self._knows(headers):
            return None
        if method in _SAFE and "text/html" in headers.get("accept", ""):
            return RedirectResponse(f"{SIGN_IN}?next={quote(path)}", 303)
        words = "a token is required: send it as `Authorization: Bearer TOKEN`, or sign in with a browser"
        return JSONResponse({"error": words}, 401, {"www-authenticate": "Bearer"})

    def _knows(self, headers: Headers) -> bool:
        token = self._site.token
        if token is None:
            return True
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return same(given.strip(), token)
        return any(same(value, cookie_value(token)) for value in _cookies(headers.getlist("cookie")))


def same(given: str, expected: str) -> bool:
    """In a time that does not tell how much of it is right."""
    return hmac.compare_digest(given.encode(), expected.encode())


def cookie_value(token: str) -> str:
    """Derived, so that whoever reads a browser's cookies does not have the token itself."""
    return hmac.new(token.encode(), b"editjudge cookie", hashlib.sha256).hexdigest()


def _cookies(headers: Iterable[str]) -> Iterable[str]:
    for header in headers:
        try:
            found = SimpleCookie(header)
        except CookieError:
            continue
        if COOKIE in found:
            yield found[COOKIE].value


def _host(header: str) -> str:
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def _from_here(headers: Headers) -> bool:
    """Whether a browser says that our own page asks; programs say nothing of the kind, and have no cookie to abuse."""
    if (site := headers.get("sec-fetch-site")) is not None:
        return site in ("same-origin", "none")
    if (origin := headers.get("origin")) is not None:
        return urlsplit(origin).netloc == headers.get("host")
    return True


class TooLarge(Exception):
    """A body without a length went on and on."""


def _bounded(receive: Receive, most: int) -> Receive:
    seen = 0

    async def receiving() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > most:
            raise TooLarge(f"the body is larger than {most:,} bytes")
        return message

    return receiving
