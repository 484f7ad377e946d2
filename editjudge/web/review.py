"""Runs, a run's table, an edit's page: what was judged, to be looked at."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route

from editjudge.judgement import DONE
from editjudge.web import browse
from editjudge.web.site import Site


def routes(site: Site) -> list[BaseRoute]:
    pages = _Pages(site)
    return [Route("/", pages.runs)]


class _Pages:
    def __init__(self, site: Site) -> None:
        self._site = site

    def runs(self, request: Request) -> Response:
        store = self._site.store
        rows = [(run, browse.count(store, run)) for run in reversed(store.runs())]
        return HTMLResponse(self._site.page("runs.html", runs=rows, done=DONE, place=store._place))
