"""Checks on every request (token, host, size), and security headers on every response.

Every request has a role; the default is the least privileged. A *reviewer* (with the token, or the cookie that sign-in
set) may do everything. A *service* (with the service token, in a header or as `/t/TOKEN/...`) may request verdicts and
rewards. A *rater* has a link to one study. The rating pages check the link.
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
from starlette.responses import (
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
)
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from editjudge.web.site import LOOPBACK, Site
from editjudge.web.values import JOIN_CODE

COOKIE = "editjudge"
SIGN_IN = "/sign-in"
_OPEN = re.compile(rf"{SIGN_IN}|/static/.*|/rate/{JOIN_CODE}(/.*)?", re.DOTALL)
"""Paths that need no token: the sign-in form, static files, and links that are secrets themselves."""
_IN_PATH = re.compile(r"/t/([^/]+)(/.*)?", re.DOTALL)
_MAX_BODY = {SIGN_IN: 2**14, "": 2**20}
"""Maximum size of a body in bytes, keyed by the beginning of the path: for the sign-in form, and for any other form."""
_PATIENCE = 20.0
"""Seconds that the server waits for a client to send the body."""
_BYTES_PER_SECOND = 64 * 2**10
"""Number of bytes for which a client gets one more second, so that slow connections are served and stalled ones are
not."""
_MAX_COOKIES = 64 * 2**10
"""Maximum length of a cookie header. A browser keeps 4 KiB per cookie, and other servers on this machine may set
cookies as well."""
_SAFE = ("GET", "HEAD", "OPTIONS")

Role = Literal["reviewer", "service", "nobody"]

_HEADERS = {
    # No inline scripts or styles, no resources from other sites, and no embedding in frames.
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    # Not `no-referrer`, with which browsers send `Origin: null` for our own forms.
    "referrer-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "x-frame-options": "DENY",
    "cache-control": "no-cache",
}


class Guard:
    """ASGI middleware that checks every request before the application sees it."""

    def __init__(self, app: ASGIApp, site: Site) -> None:
        self._app = app
        self._site = site
        self._open = [_OPEN, *(extension.open_paths for extension in site.extensions)]
        self._service = [extension.service_paths for extension in site.extensions]
        self._max_body: dict[str, int] = {}
        for extension in site.extensions:
            self._max_body |= extension.max_bodies
        self._max_body |= _MAX_BODY

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

        role, scope = self._identify(scope)
        path = scope["path"]
        sizes = self._max_body.items()
        limit = next(size for start, size in sizes if path.startswith(start))
        rejection = self._reject_request(scope, limit) or self._reject_role(scope, role)
        if rejection:
            await rejection(scope, receive, sending)
            return
        try:
            await self._app(scope, _bounded(receive, limit), sending)
        except asyncio.CancelledError:
            # The server is stopping and the grace period is over, so this is not logged as an error.
            if not started:
                error = {"error": "the server is shutting down"}
                stopped = JSONResponse(error, 503, {"connection": "close"})
                await stopped(scope, receive, sending)

    def _identify(self, scope: Scope) -> tuple[Role, Scope]:
        """Return the role of a request, and the request with the path to serve."""
        role = self._role(Headers(scope=scope))
        if in_path := _IN_PATH.fullmatch(scope["path"]):
            # The token is removed from the path, so that it cannot get into a log or an answer. The raw path cannot be
            # used: if slashes are quoted, its segments differ.
            scope = _at_path(scope, in_path[2] or "/")
            role = "service" if _is(in_path[1], self._site.service_token) else "nobody"
        for extension in self._site.extensions:
            if served := extension.served_path(scope["method"], scope["path"]):
                return role, _at_path(scope, served)
        return role, scope

    def _role(self, headers: Headers) -> Role:
        token = self._site.token
        service_token = self._site.service_token
        scheme, _, text = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and (token or service_token):
            if _is(text.strip(), token):
                return "reviewer"
            return "service" if _is(text.strip(), service_token) else "nobody"
        if token is None:
            return "reviewer"
        expected = cookie_value(token)
        cookies = cookie_values(headers, COOKIE)
        return "reviewer" if any(same(c, expected) for c in cookies) else "nobody"

    def _reject_request(self, scope: Scope, limit: int) -> Response | None:
        """Return the response to a request that is refused for every role, or None if it is accepted."""
        headers = Headers(scope=scope)
        # DNS rebinding: a foreign host name that resolves to this server would be same-origin. Such a page has no
        # cookie, so the host matters only for a server without a token.
        if self._site.token is None and _host(headers.get("host", "")) not in LOOPBACK:
            return PlainTextResponse(
                "This server answers to loopback names, such as http://127.0.0.1.", 421
            )
        if scope["method"] not in _SAFE and not _from_here(headers):
            return PlainTextResponse(
                "Refused: the request was made by another site's page.", 403
            )
        length = headers.get("content-length", "0")
        if not re.fullmatch("[0-9]{1,15}", length) or int(length) > limit:
            return PlainTextResponse(f"The body is larger than {limit:,} bytes.", 413)
        return None

    def _reject_role(self, scope: Scope, role: Role) -> Response | None:
        """Return the response to a request that its role does not allow, or None if it is allowed."""
        site = self._site
        path = scope["path"]
        is_service = any(paths.fullmatch(path) for paths in self._service)
        # If programs have a token, they need it, even if the pages need none on this machine.
        needs_token = is_service and site.service_token and not site.token
        is_allowed = {
            "reviewer": not needs_token,
            "service": is_service,
            "nobody": False,
        }
        if is_allowed[role] or any(paths.fullmatch(path) for paths in self._open):
            return None
        if role == "service":
            return JSONResponse({"error": "this token opens only /v1/ and /d/"}, 403)
        is_page = "text/html" in Headers(scope=scope).get("accept", "")
        if scope["method"] in _SAFE and is_page and site.token:
            return RedirectResponse(f"{SIGN_IN}?next={quote(path)}", 303)
        message = "a token is required: send it as `Authorization: Bearer TOKEN`, or sign in with a browser"
        return JSONResponse({"error": message}, 401, {"www-authenticate": "Bearer"})


def _at_path(scope: Scope, path: str) -> Scope:
    return {**scope, "path": path, "raw_path": quote(path).encode()}


def is_join_path(path: str) -> bool:
    """Whether the path belongs to a rater's link."""
    return re.match(rf"/rate/{JOIN_CODE}(/|$)", path) is not None


def _is(text: str, expected: str | None) -> bool:
    return expected is not None and same(text, expected)


def same(text: str, expected: str) -> bool:
    """Whether two strings are equal. The comparison takes the same time whatever they contain."""
    return hmac.compare_digest(text.encode("utf-8", "replace"), expected.encode())


def cookie_value(token: str) -> str:
    """Return the value of the cookie. It is derived from the token, so a stolen cookie does not reveal the token."""
    return hmac.new(token.encode(), b"editjudge cookie", hashlib.sha256).hexdigest()


def cookie_values(headers: Headers, name: str) -> list[str]:
    """Return the values of a cookie in a single pass. `http.cookies` takes minutes for a header full of escaped quotes."""
    pattern = re.compile(rf'(?:^|;)[ \t]*{name}="?([^;"]*)')
    return [
        value
        for header in headers.getlist("cookie")
        for value in pattern.findall(header[:_MAX_COOKIES])
    ]


def _host(header: str) -> str:
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def own_path(text: str) -> str:
    """Return the path if it is on this site. If a browser would read it as another host, return `/`."""
    inside = text.startswith("/") and not text.startswith(("//", "/\\"))
    return text if inside and text.isprintable() else "/"


def _from_here(headers: Headers) -> bool:
    """Whether the browser's headers say that a request is same-origin. Programs do not send such headers, and have no
    cookie."""
    if (site := headers.get("sec-fetch-site")) is not None:
        return site in ("same-origin", "none")
    if (origin := headers.get("origin")) is not None:
        return origin.partition("://")[2] == headers.get("host")
    return True


def _bounded(receive: Receive, limit: int) -> Receive:
    """Return a `receive` function that limits the size of a body and the time to receive it. Only the time spent
    waiting for the client counts.
    """
    seen = 0
    waited = 0.0
    more = True
    loop = asyncio.get_running_loop()

    async def receiving() -> Message:
        nonlocal seen, waited, more
        begun = loop.time()
        try:
            async with asyncio.timeout(
                _PATIENCE + seen / _BYTES_PER_SECOND - waited if more else None
            ):
                message = await receive()
        except TimeoutError:
            raise HTTPException(
                408, "The body did not arrive in time.", {"connection": "close"}
            ) from None
        waited += loop.time() - begun
        seen += len(message.get("body", b""))
        more = more and message.get("more_body", False)
        if seen > limit:
            raise HTTPException(
                413,
                f"The body is larger than {limit:,} bytes.",
                {"connection": "close"},
            )
        return message

    return receiving
