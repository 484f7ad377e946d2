"""The application: the routes of all modules, and the guard around them."""

from __future__ import annotations

import logging
import traceback
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from editjudge.errors import EditjudgeError
from editjudge.web import guard, rating, review
from editjudge.web.listing import Browser
from editjudge.web.site import FOLDER, Site
from editjudge.web.values import encodable, form_fields, register_convertors

_log = logging.getLogger("editjudge.web")


def create(site: Site) -> Starlette:
    """Create the application."""
    register_convertors()
    browser = Browser(site.store)
    routes: list[BaseRoute] = [
        *review.routes(site, browser),
        *rating.routes(site, browser),
        *(route for extension in site.extensions for route in extension.routes),
    ]
    routes += [
        Route(guard.SIGN_IN, _sign_in, methods=["GET", "POST"]),
        Mount("/static", StaticFiles(directory=FOLDER / "static")),
    ]

    @asynccontextmanager
    async def lifespan(running: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for extension in site.extensions:
                await stack.enter_async_context(extension.lifespan(running))
            yield

    app = Starlette(
        routes=routes,
        middleware=[Middleware(guard.Guard, site=site)],
        exception_handlers={
            HTTPException: _http_error,
            EditjudgeError: _our_error,
            ValueError: _unreadable,
            ClientDisconnect: _disconnected,
        },
        lifespan=lifespan,
    )
    app.state.site = site
    return app


def _error(
    request: Request, status: int, message: str, headers: dict[str, str] | None = None
) -> Response:
    if "text/html" not in request.headers.get("accept", ""):
        return JSONResponse({"error": encodable(message)}, status, headers)
    site: Site = request.app.state.site
    home = not guard.is_join_path(request.url.path)
    return HTMLResponse(
        site.page("error.html", status=status, words=message, home=home),
        status,
        headers,
    )


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101  (registered for it)
    return _error(request, error.status_code, error.detail, dict(error.headers or {}))


async def _our_error(request: Request, error: Exception) -> Response:
    return _error(request, 500, str(error))


async def _unreadable(request: Request, error: Exception) -> Response:
    """Answer with a client error if invalid input caused an exception that no earlier check prevented. Log where it was
    raised."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    _log.warning(
        "a request could not be read: %s (%s:%s)",
        type(error).__name__,
        Path(last.filename).name,
        last.lineno,
    )
    return _error(request, 400, "The request cannot be read.")


async def _disconnected(_: Request, __: Exception) -> Response:
    return Response(status_code=400)  # the client has disconnected


async def _sign_in(request: Request) -> Response:
    """Set the token from a submitted form as a cookie that scripts cannot read. The token is never part of a URL."""
    site: Site = request.app.state.site
    goal = guard.own_path(request.query_params.get("next", "/"))
    if site.token is None:
        return RedirectResponse(goal, 303)
    if request.method == "GET":
        return HTMLResponse(site.page("sign_in.html", goal=goal, wrong=False))
    token = (await form_fields(request)).get("token", "")
    if not guard.same(token.strip(), site.token):
        return HTMLResponse(site.page("sign_in.html", goal=goal, wrong=True), 401)
    answer = RedirectResponse(goal, 303)
    answer.set_cookie(
        guard.COOKIE,
        guard.cookie_value(site.token),
        httponly=True,
        samesite="lax",
        secure=request.url.scheme == "https",
        max_age=30 * 86400,
    )
    return answer
