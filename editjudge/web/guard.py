"""Checks before every route: tokens, hosts and sizes of requests; and security headers of the answers.

Who asks has a role, and the least one where nothing is said: a *reviewer* (the token, or the cookie that it was
exchanged for) may do everything, a *service* (its own token, in a header or as `/t/TOKEN/...`) may ask for verdicts and
rewards, a *rater* has a link that opens one study. Links are looked up by the pages behind them.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
from typing import Literal
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from editjudge.web.dialects import chosen, native_path
from editjudge.web.site import LOOPBACK, Site

COOKIE = "editjudge"
SIGN_IN = "/sign-in"
JOIN_CODE = "[A-Za-z0-9_-]{24}"
"""What a rater's link ends in: `/rate/JOIN-CODE`."""
_OPEN = re.compile(rf"{SIGN_IN}|/healthz|/static/.*|/rate/{JOIN_CODE}(/.*)?", re.DOTALL)
"""Paths that need no token: the form that takes it, whether the server lives, and links that are secrets themselves."""
_SERVICE = re.compile(r"/(v1|d)/.*|/openapi\.json|/metrics", re.DOTALL)
_IN_PATH = re.compile(r"/t/([^/]+)(/.*)?", re.DOTALL)
_MOST = {"/v1/": 512 * 2**20, "/d/": 512 * 2**20, SIGN_IN: 2**14, "": 2**20}
"""Bytes of a body, by the path's beginning: a batch of pictures, a token, or a form."""
_PATIENCE = 20.0
"""Seconds that reading a body may wait for the client,"""
_SLOWEST = 64 * 2**10
"""and one more for every so many bytes that came: a slow line is served, one that trickles is not."""
_LONGEST_COOKIES = 64 * 2**10
"""Characters of a cookie header; browsers keep 4 KiB a cookie, and other servers on this machine set some too."""
_SAFE = ("GET", "HEAD", "OPTIONS")

Role = Literal["reviewer", "service", "nobody"]

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
        self._dialects = chosen(site.terms.dialects)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        started = False

        async def sending(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        headers = Headers(scope=scope)
        role = self._role(headers)
        if in_path := _IN_PATH.fullmatch(scope["path"]):
            # What stands behind never sees the token, so that it cannot end up in a log or in an answer. Where slashes
            # are quoted, the raw path has other parts than this one.
            rest = in_path[2] or "/"
            scope = {**scope, "path": rest, "raw_path": quote(rest).encode()}
            role = "service" if _is(in_path[1], self._site.service_token) else "nobody"
        if native := native_path(self._dialects, scope["method"], scope["path"]):
            scope = {**scope, "path": native, "raw_path": quote(native).encode()}
        path, method = scope["path"], scope["method"]
        most = next(size for start, size in _MOST.items() if path.startswith(start))
        if refusal := self._refusal(headers, path, method, most) or self._unwelcome(role, headers, path, method):
            await refusal(scope, receive, sending)
            return
        try:
            await self._app(scope, _bounded(receive, most), sending)
        except asyncio.CancelledError:  # the server ends, and has waited long enough: no fault to be logged
            if not started:
                stopped = JSONResponse({"error": "the server is being stopped"}, 503, {"connection": "close"})
                await stopped(scope, receive, sending)

    def _refusal(self, headers: Headers, path: str, method: str, most: int) -> Response | None:
        """Why a request is not taken, whoever makes it."""
        # A page whose name was made to point here would be same-origin with us. It has no cookie for a token, so only
        # a server without one needs to know its own names.
        if self._site.token is None and _host(headers.get("host", "")) not in LOOPBACK:
            return PlainTextResponse("This server answers to loopback names, such as http://127.0.0.1.", 421)
        if method not in _SAFE and not _from_here(headers):
            return PlainTextResponse("Refused: the request was made by another site's page.", 403)
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdecimal() or len(length) > 15 or int(length) > most:
            return PlainTextResponse(f"The body is larger than {most:,} bytes.", 413)
        return None

    def _role(self, headers: Headers) -> Role:
        token, service = self._site.token, self._site.service_token
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and (token or service):
            role: Role = "service" if _is(given.strip(), service) else "nobody"
            return "reviewer" if _is(given.strip(), token) else role
        if token is None:
            return "reviewer"
        expected = cookie_value(token)
        return "reviewer" if any(_is(value, expected) for value in cookie_values(headers, COOKIE)) else "nobody"

    def _unwelcome(self, role: Role, headers: Headers, path: str, method: str) -> Response | None:
        """Why somebody of this role is not answered here."""
        service = _SERVICE.fullmatch(path) is not None
        # Where programs have a token of their own, they need one, also beside pages that are open to this machine.
        by_default = role == "reviewer" and self._site.token is None and self._site.service_token is not None
        if _OPEN.fullmatch(path) or (role == "service" and service):
            return None
        if role == "reviewer" and not (by_default and service):
            return None
        if role == "service":
            return JSONResponse({"error": "this token is for judging alone: /v1/ and /d/"}, 403)
        if method in _SAFE and "text/html" in headers.get("accept", "") and self._site.token:
            return RedirectResponse(f"{SIGN_IN}?next={quote(path)}", 303)
        words = "a token is required: send it as `Authorization: Bearer TOKEN`, or sign in with a browser"
        return JSONResponse({"error": words}, 401, {"www-authenticate": "Bearer"})


def is_join_path(path: str) -> bool:
    """Whether the path is of a rater's link."""
    return re.match(rf"/rate/{JOIN_CODE}(/|$)", path) is not None


def _is(given: str, expected: str | None) -> bool:
    return expected is not None and same(given, expected)


def same(given: str, expected: str) -> bool:
    """In a time that does not tell how much of it is right."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())


def cookie_value(token: str) -> str:
    """Derived, so that whoever reads a browser's cookies does not have the token itself."""
    return hmac.new(token.encode(), b"editjudge cookie", hashlib.sha256).hexdigest()


def cookie_values(headers: Headers, name: str) -> list[str]:
    """The values of a cookie, in one pass: `http.cookies` takes minutes for a header full of escaped quotes."""
    pattern = re.compile(rf'(?:^|;)[ \t]*{name}="?([^;"]*)')
    return [value for header in headers.getlist("cookie") for value in pattern.findall(header[:_LONGEST_COOKIES])]


def _host(header: str) -> str:
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def own_path(text: str) -> str:
    """A path of ours, and nothing that a browser would take for another host."""
    inside = text.startswith("/") and not text.startswith(("//", "/\\"))
    return text if inside and text.isprintable() else "/"


def _from_here(headers: Headers) -> bool:
    """Whether a browser says that our own page asks; programs say nothing of the kind, and have no cookie to abuse."""
    if (site := headers.get("sec-fetch-site")) is not None:
        return site in ("same-origin", "none")
    if (origin := headers.get("origin")) is not None:
        return origin.partition("://")[2] == headers.get("host")
    return True


def _bounded(receive: Receive, most: int) -> Receive:
    """Refuses a body that goes on for longer than it may, in bytes and in time; only waiting for the client counts."""
    seen, waited, more = 0, 0.0, True
    loop = asyncio.get_running_loop()

    async def receiving() -> Message:
        nonlocal seen, waited, more
        begun = loop.time()
        try:
            async with asyncio.timeout(_PATIENCE + seen / _SLOWEST - waited if more else None):
                message = await receive()
        except TimeoutError:
            raise HTTPException(408, "The body did not come in time.", {"connection": "close"}) from None
        waited += loop.time() - begun
        seen += len(message.get("body", b""))
        more = more and message.get("more_body", False)
        if seen > most:
            raise HTTPException(413, f"The body is larger than {most:,} bytes.", {"connection": "close"})
        return message

    return receiving
