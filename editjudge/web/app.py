"""The application: the routes of every module, and the guards around them."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.routing import BaseRoute

from editjudge.web.site import Site


def create(site: Site) -> Starlette:
    routes: list[BaseRoute] = []
    app = Starlette(routes=routes)
    app.state.site = site
    return app
