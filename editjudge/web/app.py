"""The application: the routes of every module, and the guards around them."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from editjudge.errors import EditjudgeError
from editjudge.web import filters as wording
from editjudge.web import guard, rating, review, service
from editjudge.web.fields import form_fields, register_convertors
from editjudge.web.listing import Browser
from editjudge.web.site import FOLDER, Site

_log = logging.getLogger("editjudge.web")


def create(site: Site) -> Starlette:
    """The application."""
    register_convertors()
    browser = Browser(site.store)
    routes: list[BaseRoute] = [*review.routes(site, browser), *rating.routes(site, browser), *service.routes(site)]
    describe = next(one.endpoint for one in routes if isinstance(one, Route) and one.path == "/openapi.json")
    routes += [
        Route("/docs", partial(_docs, describe=describe)),
        Route(guard.SIGN_IN, _sign_in, methods=["GET", "POST"]),
        Mount("/static", StaticFiles(directory=FOLDER / "static")),
    ]

    @asynccontextmanager
    async def lifespan(running: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            running.state.queue = await stack.enter_async_context(service.judging_queue(site))
            yield

    app = Starlette(
        routes=routes,
        middleware=[Middleware(guard.Guard, site=site)],
        exception_handlers={
            HTTPException: _refused,
            EditjudgeError: _failed,
            ValueError: _unreadable,
            ClientDisconnect: _gone,
        },
        lifespan=lifespan,
    )
    app.state.site = site
    return app


async def _docs(request: Request, describe: Callable[[Request], Awaitable[Response]]) -> Response:
    """The HTTP API for people: what /openapi.json says, as a page of our own."""
    site: Site = request.app.state.site
    api = json.loads(bytes((await describe(request)).body))
    return HTMLResponse(site.page("docs.html", api=api, base=request.base_url))


def _error(request: Request, status: int, words: str, headers: dict[str, str] | None = None) -> Response:
    if "text/html" not in request.headers.get("accept", ""):
        return JSONResponse({"error": wording.encodable(words)}, status, headers)
    site: Site = request.app.state.site
    home = not guard.is_join_path(request.url.path)
    return HTMLResponse(site.page("error.html", status=status, words=words, home=home), status, headers)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101  (registered for it)
    return _error(request, error.status_code, error.detail, dict(error.headers or {}))


async def _failed(request: Request, error: Exception) -> Response:
    return _error(request, 500, str(error))


async def _unreadable(request: Request, error: Exception) -> Response:
    """Input that no earlier check refused: a client error. The log has where it happened."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    _log.warning("a request could not be read: %s (%s:%s)", type(error).__name__, Path(last.filename).name, last.lineno)
    return _error(request, 400, "The request cannot be read.")


async def _gone(_: Request, __: Exception) -> Response:
    return Response(status_code=400)  # to nobody


async def _sign_in(request: Request) -> Response:
    """The token goes in a form's body, never in an address, and comes back as a cookie that no script reads."""
    site: Site = request.app.state.site
    goal = guard.own_path(request.query_params.get("next", "/"))
    if site.token is None:
        return RedirectResponse(goal, 303)
    wrong = False
    if request.method == "POST":
        given = (await form_fields(request)).get("token", "")
        if guard.same(given.strip(), site.token):
            answer = RedirectResponse(goal, 303)
            value = guard.cookie_value(site.token)
            secure = request.url.scheme == "https"
            answer.set_cookie(guard.COOKIE, value, httponly=True, samesite="lax", secure=secure, max_age=30 * 86400)
            return answer
        wrong = True
    return HTMLResponse(site.page("sign_in.html", goal=goal, wrong=wrong), 401 if wrong else 200)
