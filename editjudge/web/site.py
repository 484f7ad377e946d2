"""The site that is served: its store, its tokens, and the routes that plug-ins add."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.routing import BaseRoute

from editjudge import plugins
from editjudge.store.store import Store

if TYPE_CHECKING:
    import jinja2

FOLDER = Path(__file__).parent
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
"""Host names that always refer to this machine."""
_NO_PATH = re.compile(r"(?!)")


def _keep_path(_method: str, _path: str) -> str | None:
    return None


@dataclass(frozen=True)
class Extension:
    """Routes that a plug-in adds to `serve`, and who may call them. Reviewers may call all of them."""

    routes: Sequence[BaseRoute]
    lifespan: Callable[[Starlette], AbstractAsyncContextManager[object]] = nullcontext
    """Context manager that is entered before the application serves requests and exited when it stops."""
    served_path: Callable[[str, str], str | None] = _keep_path
    """Function that maps a method and path to a path in `routes`, or to None if the extension does not serve it."""
    open_paths: re.Pattern[str] = _NO_PATH
    """Paths that need no token."""
    service_paths: re.Pattern[str] = _NO_PATH
    """Paths that can be called with the service token."""
    max_bodies: Mapping[str, int] = field(default_factory=dict)
    """Maximum size of a body in bytes, keyed by the beginning of the path. Other paths have the limit for forms."""


@dataclass(frozen=True)
class Site:
    store: Store
    token: str | None = None
    """Token of reviewers, who may do everything. Without a token, everyone on this machine is a reviewer. It is always
    set if the server listens on an address other than loopback."""
    service_token: str | None = None
    """Token for programs, which may request verdicts and rewards and nothing else."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of plug-ins, keyed by plug-in."""

    @functools.cached_property
    def extensions(self) -> list[Extension]:
        """Routes that plug-ins add."""
        return [extend(self) for extend in plugins.usable("routes")]

    def page(self, name: str, **values: object) -> str:
        """Render a template."""
        template = _templates().get_template(name)
        return template.render(signed=self.token is not None, **values)


@functools.cache
def _templates() -> jinja2.Environment:
    from editjudge.report.templating import environment
    from editjudge.web.values import FILTERS, encodable

    # Invisible characters are not replaced, since a form has to send back exactly the text that it shows.
    return environment(FOLDER / "templates", encodable, FILTERS)
