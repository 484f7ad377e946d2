"""Early decisions: the claims of `run --until`, and the random order in which a run shows source images."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Literal, cast

from editjudge.edit import Edit
from editjudge.errors import Option, UsageError, did_you_mean
from editjudge.media.cache import DigestCache
from editjudge.media.source import is_url
from editjudge.rubrics.model import Rubric
from editjudge.running.plan import item_of
from editjudge.running.sums import OVERALL, sums_of
from editjudge.store.records import RunRecord, RunSpec, UntilSpec

if TYPE_CHECKING:
    from editjudge.store.store import Store

Relation = Literal[">", "!=", "~"]
Decides = Callable[["Store", RunRecord], bool]
"""Function that returns whether every claim of a run is decided."""

_CLAIM = re.compile(r"\s*([^:]+?)\s*:\s*(\S|\S.*?\S)\s+(>|!=|~)\s+(\S|\S.*?\S)\s*")
_SEED = 1
"""Seed of the order of images, stored with the run. The order depends only on it and on the images, so the same
command continues the same sequence.
"""
_FIRST = {False: 10, True: 50}
_GROWTH = {False: 1.1, True: 2.0}
"""Number of images before the first look, and growth until the next one, without and with batches. More looks stop
earlier, but each look waits for the requests in flight; a look at a batch may take a day.
"""


@dataclass(frozen=True)
class Claim:
    """A claim such as `overall: mine-v2 > mine-v1` about the mean difference of two models."""

    factor: str
    a: str
    relation: Relation
    b: str

    @classmethod
    def parse(cls, text: str) -> Claim:
        if not (match := _CLAIM.fullmatch(text)):
            raise _refused(text, "expected FACTOR: A > B, or A != B, or A ~ B")
        factor, a, relation, b = match.groups()
        if a == b:
            raise _refused(text, f'"{a}" is on both sides')
        return cls(factor, a, cast("Relation", relation), b)

    def __str__(self) -> str:
        return f"{self.factor}: {self.a} {self.relation} {self.b}"


@dataclass(frozen=True)
class Until:
    """Claims that end a run once they are decided."""

    claims: Sequence[Claim]
    alpha: float = 0.05
    """Probability of any false decision, for all claims together."""
    margin: float | None = None
    """Largest difference, in points of the scale, at which two models count as equivalent."""
    seed: int = _SEED

    @classmethod
    def of(
        cls, texts: Iterable[str], alpha: float | None, margin: float | None
    ) -> Until | None:
        """Return the claims, or None if there are none. Raise `UsageError` if the settings do not fit them."""
        claims = tuple(dict.fromkeys(map(Claim.parse, texts)))
        if not claims:
            for name, value in (("alpha", alpha), ("margin", margin)):
                if value is not None:
                    option = Option(name, value)
                    raise UsageError(
                        f"{option} belongs to --until, which is not given",
                        options=[option],
                    )
            return None
        alpha = 0.05 if alpha is None else alpha
        if not 0 < alpha < 0.5:
            raise UsageError(
                f"--alpha {alpha:g}: expected a number between 0 and 0.5",
                options=[Option("alpha", alpha)],
            )
        equivalent = [claim for claim in claims if claim.relation == "~"]
        if bool(equivalent) != (margin is not None) or (margin or 1) <= 0:
            raise UsageError(
                "--margin is the difference in points, above 0, at which ~ counts two models as equivalent: "
                "give it with such a claim and not without",
                options=[Option("margin", margin)],
            )
        return cls(claims, alpha, margin)

    def spec(self) -> UntilSpec:
        return {
            "claims": [str(claim) for claim in self.claims],
            "alpha": self.alpha,
            "margin": self.margin,
            "seed": self.seed,
        }

    @classmethod
    def of_spec(cls, spec: RunSpec) -> Until | None:
        """Return the claims of a stored run, or None if it has none."""
        if not (stored := spec.get("until")):
            return None
        claims = tuple(map(Claim.parse, stored["claims"]))
        return cls(claims, stored["alpha"], stored["margin"], stored["seed"])

    @property
    def models(self) -> set[str]:
        return {model for claim in self.claims for model in (claim.a, claim.b)}

    def check(
        self,
        models: Iterable[str],
        rubrics: Sequence[Rubric],
        ends: Mapping[str, tuple[float, float] | None],
    ) -> None:
        """Raise `UsageError` for a claim about a model or score that the run will not have. `ends` are the ends of the
        scores of the run's sets.
        """
        ends = _ends(rubrics) | dict(ends)
        for claim in self.claims:
            for model in (claim.a, claim.b):
                if model not in models:
                    hint = did_you_mean(model, models)
                    here = ", ".join(sorted(filter(None, models))[:20]) or "none"
                    raise _refused(
                        str(claim), f'no edit is of "{model}"{hint} Models here: {here}'
                    )
            if claim.factor not in ends:
                hint = did_you_mean(claim.factor, ends)
                raise _refused(
                    str(claim),
                    f'no score is called "{claim.factor}"{hint} Scores here: {", ".join(ends)}',
                )
            if ends[claim.factor] is None:
                raise _refused(
                    str(claim),
                    f'the ends of the scale of "{claim.factor}" are not known, and the test needs them',
                )

    def rank(self, group: str) -> str:
        """Return the place of a source image in the random order, as a string to sort by."""
        return hashlib.sha256(
            f"{self.seed}\0{group}".encode("utf-8", "surrogatepass")
        ).hexdigest()

    def rounds(
        self, edits: Iterable[Edit], digests: DigestCache, *, batch: bool
    ) -> Iterator[list[Edit]]:
        """Yield the edits in random order of their source images, in rounds after which the claims are looked at."""
        ranked = sorted(
            ((self.rank(_group(edit, digests)), edit) for edit in edits),
            key=lambda pair: pair[0],
        )
        images = [
            [edit for _, edit in pairs]
            for _, pairs in groupby(ranked, key=lambda pair: pair[0])
        ]
        first = 0
        while first < len(images):
            last = max(first + _FIRST[batch], int(first * _GROWTH[batch]))
            yield [edit for image in images[first:last] for edit in image]
            first = last


def _refused(claim: str, problem: str) -> UsageError:
    return UsageError(
        f'--until "{claim}": {problem}',
        options=[Option("until", claim)],
        code="bad_claim",
    )


def _group(edit: Edit, digests: DigestCache) -> str:
    """Return the name of an edit's group, as the store has it."""
    by_role: dict[str, str] = {}
    if not edit.group and edit.input is not None and not is_url(edit.input):
        # An image that cannot be read is identified by its path.
        with suppress(Exception):
            by_role["input"] = digests.of(edit.input) or ""
    return item_of(edit, by_role).group or edit.id


def _ends(rubrics: Sequence[Rubric]) -> dict[str, tuple[float, float] | None]:
    """Return the ends of each score that a run of these rubrics has; None if a scale is open."""
    numeric = [rubric for rubric in rubrics if not rubric.pairwise]
    factors = {
        factor.key: factor.scale
        for rubric in numeric
        for factor in rubric.factors
        if not factor.scale.choices
    }
    ends: dict[str, tuple[float, float] | None] = {}
    legal: dict[str, tuple[float, ...]] = {}
    for key, scale in factors.items():
        ends[key] = None
        if scale.low is not None and scale.high is not None:
            ends[key] = (scale.low, scale.high)
            legal[key] = scale.steps or (scale.low, scale.high)
    members = {
        rubric.name: tuple(f.key for f in rubric.factors if f.key in factors)
        for rubric in numeric
    }
    falling = {key for key, scale in factors.items() if scale.direction == "down"}
    sums = sums_of(factors, members, legal, falling)
    if sums.scale is None or len(sums.alike) < 2:
        return ends
    alike = {*sums.alike}
    means = [name for name, keys in sums.groups.items() if {*keys} <= alike]
    scale_ends = (min(sums.scale), max(sums.scale))
    return ends | dict.fromkeys([*means, OVERALL], scale_ends)
