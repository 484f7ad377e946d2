"""What every page and endpoint works with."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from editjudge.judges.registry import Options
from editjudge.store.store import Store
from editjudge.web.service_options import Terms

if TYPE_CHECKING:
    import jinja2

FOLDER = Path(__file__).parent
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
"""Names under which only this machine can be meant."""


@dataclass(frozen=True)
class Site:
    store: Store
    judge: str = "measured"
    """Who judges what is sent to `/v1/judge` and `/v1/reward` unless the request names another that is allowed."""
    options: Options = field(default_factory=Options)
    token: str | None = None
    """Of reviewers, who may see and ask everything. Without it everybody on this machine is one; off loopback one
    always is set."""
    service_token: str | None = None
    """Of programs that may ask for verdicts and rewards, and see nothing else."""
    terms: Terms = field(default_factory=Terms)
    """What clients of the service may ask for, and how much."""

    def page(self, name: str, **values: Any) -> str:
        """A template, filled in."""
        return _templates().get_template(name).render(signed=self.token is not None, **values)


@functools.cache
def _templates() -> jinja2.Environment:
    import jinja2

    from editjudge.web import filters as wording

    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=wording.whole,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {name: getattr(wording, name) for name in wording.__all__}
    return made
