"""What every page and endpoint works with."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from editjudge.judges.registry import Options
from editjudge.store.store import Store
from editjudge.web.reduction import Formula

if TYPE_CHECKING:
    import jinja2

FOLDER = Path(__file__).parent
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
"""Names under which only this machine can be meant."""


@dataclass(frozen=True)
class Terms:
    """What clients of `/v1/judge` and `/v1/reward` may ask for, and how much of it."""

    judges: tuple[str, ...] = ()
    """Judges that a request may name besides the site's own."""
    rubrics: tuple[str, ...] = ("online",)
    """Asked where a request names none: rubrics, sets, files."""
    more_rubrics: tuple[str, ...] = ("offline", "lighting", "compliance")
    """That a request may name besides."""
    formula: Formula = "mean"
    weights: Mapping[str, float] = field(default_factory=dict)
    """How scores become a reward where a request does not say."""
    mixture: Mapping[str, float] = field(default_factory=dict)
    """Judges whose rewards are averaged where a request names none, with their weights; the site's own without it."""
    degenerate: Literal["null", "worst"] = "null"
    """The reward of an output that is no edit, about which no judge is asked: none, or 0."""
    fresh: bool = False
    """Ask again what the store has an answer to; the earlier answer is kept too."""
    budget: float | None = None
    """US dollars that this server may spend on judges."""
    max_samples: int = 16
    """Answers to one question that a request may ask for."""
    dialects: tuple[str, ...] = ()
    """Protocols of trainers that are spoken besides: `NAME`, or `/d/NAME` for that path alone."""
    max_edits: int = 64
    max_picture: int = 16 * 2**20
    max_body: int = 128 * 2**20
    max_waiting: int = 512
    """Edits taken in and not judged yet; a batch beyond them is told to come back."""
    max_held: int = 512 * 2**20
    """Bytes of request bodies held meanwhile: what bounds memory."""
    deadline: float = 300.0
    """Seconds that a request may wait, and does where it does not say."""
    drain: float = 30.0
    """Seconds that a server which is stopped goes on judging what it took in."""
    concurrency: int | None = None
    """Most requests in flight to a judge; found out as it goes without it."""
    pictures: Path | None = None
    """A folder where the pictures that were sent are kept by their digests, so that review can show them."""
    max_pictures: int = 10 * 2**30
    """Bytes of that folder; beyond them pictures are judged and not kept."""

    @property
    def edits(self) -> int:
        """Most of one request: those that can ever wait together."""
        return min(self.max_edits, self.max_waiting)


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
    from editjudge.report.templating import environment
    from editjudge.web import filters

    # Invisible characters stay: a form has to send back the very text that it shows.
    return environment(
        FOLDER / "templates", filters.encodable, {name: getattr(filters, name) for name in filters.__all__}
    )
