"""The same edits judged at another time: what changed about the judging first, then what moved beyond noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from editjudge.stats.columns import Scores
from editjudge.stats.compare import Difference, On, compare, corrected, provenance_changes
from editjudge.stats.correction import ALPHA
from editjudge.stats.inference import TEST_DRAWS
from editjudge.stats.statistic import Statistic


@dataclass(frozen=True)
class Drift(Statistic):
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
    scales: Mapping[str, Sequence[float]] | None = None,
    draws: int = TEST_DRAWS,
) -> Drift:
    """`provenance` of then and now: rubric hash, the model that the server named, image preparation ..."""
    changed = provenance_changes(*provenance)
    shifts = tuple(compare(then, now, names=("then", "now"), on=on, scales=scales, draws=draws))
    before, after = then.factor.present(), now.factor.present()
    return Drift(
        changed,
        shifts,
        tuple(f for f in before if f not in after),
        tuple(f for f in after if f not in before),
        _verdict(shifts),
    )


def corrected_together(drifts: Sequence[Drift]) -> list[Drift]:
    """With Holm's correction over all shifts of all of these, such as those of several judges."""
    shifts = iter(corrected([shift for one in drifts for shift in one.shifts]))
    each = [tuple(next(shifts) for _ in one.shifts) for one in drifts]
    return [replace(one, shifts=mine, verdict=_verdict(mine)) for one, mine in zip(drifts, each, strict=True)]


def _verdict(shifts: Sequence[Difference]) -> str:
    moved = [d.factor for d in shifts if d.p_holm is not None and d.p_holm < ALPHA]
    compared = sum(d.n > 0 for d in shifts)
    if not compared:
        return "cannot be compared: no edit was scored both times"
    doubtful = [d.factor for d in shifts if d.overturnable]
    doubt = f"; failed judgements could overturn this for {', '.join(doubtful)}" if doubtful else ""
    if moved:
        return f"moved beyond noise: {', '.join(moved)} ({len(moved)} of {compared} factors){doubt}"
    return f"inconclusive: no evidence of drift in {compared} factors{doubt}"
