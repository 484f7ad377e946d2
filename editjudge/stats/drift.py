"""The same edits judged at another time: what changed about the judging first, then what moved beyond noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .answer import Answer
from .bootstrap import DRAWS
from .columns import Scores
from .compare import ALPHA, Difference, On, compare, provenance_changes


@dataclass(frozen=True)
class Drift(Answer):
    changed: tuple[str, ...]
    """What is not the same about how the two were made; a shift after such a change is no surprise."""
    shifts: tuple[Difference, ...]
    """Now minus then, factor by factor."""
    only_then: tuple[str, ...]
    only_now: tuple[str, ...]
    """Factors that one side alone has."""
    verdict: str


def drift(
    then: Scores,
    now: Scores,
    *,
    provenance: tuple[Mapping[str, object], Mapping[str, object]] = ({}, {}),
    on: On = "item",
    draws: int = DRAWS,
) -> Drift:
    """`provenance` of then and now: rubric hash, the model that the server named, image preparation ..."""
    changed = provenance_changes(*provenance)
    shifts = tuple(compare(then, now, names=("then", "now"), on=on, draws=draws))
    before, after = then.factor.present(), now.factor.present()
    moved = [d.factor for d in shifts if d.p_holm is not None and d.p_holm < ALPHA]
    compared = sum(d.n > 0 for d in shifts)
    if not compared:
        verdict = "cannot be compared: no edit was scored both times"
    elif moved:
        verdict = f"moved beyond noise: {', '.join(moved)} ({len(moved)} of {compared} factors)"
    else:
        verdict = f"no evidence of drift in {compared} factors"
    return Drift(
        changed,
        shifts,
        tuple(f for f in before if f not in after),
        tuple(f for f in after if f not in before),
        verdict,
    )
