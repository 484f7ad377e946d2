"""What clients of `/v1/judge` and `/v1/reward` may ask for, and how much of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from editjudge.web.reduction import Formula


@dataclass(frozen=True)
class Terms:
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
