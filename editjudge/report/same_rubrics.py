"""Whether two runs asked the same: a factor is paired only with the same factor of the same rubric.

A rubric is the same where its hash is. Another rubric is compared only where that is asked for, and only on factors
whose scale is the same in both; another scale is never compared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from editjudge.errors import UsageError
from editjudge.report.run_data import RunData
from editjudge.run.sums import RubricFactor

ACROSS = "--across-rubrics"
_LISTED = 4
"""Factors that a message names; the others are counted."""


@dataclass(frozen=True)
class SameRubrics:
    """Two runs without the factors that cannot be paired, and what has to be said of the others."""

    a: RunData
    b: RunData
    across: tuple[str, ...] = ()
    """Factors that are compared although their rubrics differ."""
    left_out: tuple[str, ...] = ()
    """Factors that are not compared, since their scales or formulas differ."""

    def lead(self) -> list[str]:
        lines = []
        if self.across:
            names = f"{self.a.run.name} and {self.b.run.name}"
            lines.append(f"{names} asked by different rubrics; compared all the same: {', '.join(self.across)}")
        if self.left_out:
            lines.append(f"not compared, since scale or formula differs: {', '.join(self.left_out)}")
        return lines

    def as_json(self) -> dict[str, list[str]]:
        return {"across_rubrics": list(self.across), "other_scales": list(self.left_out)}


def same_rubrics(a: RunData, b: RunData, *, across_rubrics: bool = False, factors: Collection[str] = ()) -> SameRubrics:
    """Return both runs as far as they can be paired; `factors` are those that will be compared, by default all.

    Raises `UsageError` that names the rubrics where they differ and `across_rubrics` is false, and where no factor has
    the same scale in both.
    """
    differing: dict[str, tuple[RubricFactor, RubricFactor]] = {}
    for name, pairs in _paired(a, b, factors):
        for one, other in pairs:
            if one.hash != other.hash:
                differing[name] = (one, other)
    formulas = {name for name in _shared_formulas(a, b) if _formula(a, name) != _formula(b, name)}
    computed = _computed_from(a, b, differing)
    if differing and not across_rubrics:
        raise UsageError(_refusal(a, b, differing))
    other_scale = {name for name, (one, other) in differing.items() if not one.is_on_scale_of(other)}
    if other_scale and other_scale == {name for name, _ in _paired(a, b, factors)}:
        raise UsageError(_refusal(a, b, {name: differing[name] for name in other_scale}))
    affected = {name for name in computed if computed[name] & other_scale}
    left_out = other_scale | formulas | affected
    across = (differing.keys() | computed.keys()) - left_out
    return SameRubrics(_without(a, left_out), _without(b, left_out), tuple(sorted(across)), tuple(sorted(left_out)))


def same_baseline(
    judged: RunData, before: RunData | None, *, across_rubrics: bool, max_drop: float | Mapping[str, float]
) -> SameRubrics | None:
    """Return the same for a run and its baseline, of which only the baseline lacks factors: limits hold without it."""
    if before is None:
        if across_rubrics:
            raise UsageError(f"{ACROSS} is about a baseline: name one with --baseline")
        return None
    factors = max_drop if isinstance(max_drop, Mapping) else ()
    same = same_rubrics(judged, before, across_rubrics=across_rubrics, factors=factors)
    return replace(same, a=judged)


def within_one_run(judged: RunData) -> SameRubrics:
    """Return a run whose rubrics are to be compared with each other, without the factors that they scale otherwise."""
    left_out = set()
    for name, questions in judged.questions.items():
        first, *others = questions.values()
        if not all(first.is_on_scale_of(other) for other in others):
            left_out.add(name)
    one = _without(judged, left_out)
    return SameRubrics(one, one, left_out=tuple(sorted(left_out)))


def _paired(
    a: RunData, b: RunData, factors: Collection[str]
) -> Iterator[tuple[str, list[tuple[RubricFactor, RubricFactor]]]]:
    """Each factor of both runs, with how each asked for it: by the rubric's name where a run has several."""
    wanted = set(factors) if set(factors) <= a.questions.keys() & b.questions.keys() else set()
    for name, mine in a.questions.items():
        theirs = b.questions.get(name, {})
        if not theirs or (wanted and name not in wanted):
            continue
        if len(mine) == len(theirs) == 1:
            yield name, list(zip(mine.values(), theirs.values(), strict=True))
        else:
            yield name, [(mine[rubric], theirs[rubric]) for rubric in mine if rubric in theirs]


def _shared_formulas(a: RunData, b: RunData) -> Iterable[str]:
    return a.set_scores & b.set_scores


def _formula(judged: RunData, name: str) -> str:
    return next(formula.words for formula in judged.formulas if formula.name == name)


def _computed_from(a: RunData, b: RunData, differing: Collection[str]) -> Mapping[str, set[str]]:
    """Scores of sets that both runs have, with the factors among these that they are computed from."""
    shared = set(_shared_formulas(a, b))
    parts = {formula.name: {key for _, key in formula.refs} & set(differing) for formula in a.formulas}
    return {name: keys for name, keys in parts.items() if name in shared and keys}


def _refusal(a: RunData, b: RunData, differing: Mapping[str, tuple[RubricFactor, RubricFactor]]) -> str:
    rubrics: dict[tuple[RubricFactor, RubricFactor], list[str]] = {}
    for name, (one, other) in differing.items():
        places = (replace(one, scale=None), replace(other, scale=None))
        rubrics.setdefault(places, []).append(name)
    parts = [
        f"{_listed(names)}: {a.run.name} asked by {one.title}, {b.run.name} by {other.title}"
        for (one, other), names in rubrics.items()
    ]
    scales = [
        f"{name} is {one.scale_words} in {a.run.name} and {other.scale_words} in {b.run.name}"
        for name, (one, other) in differing.items()
        if not one.is_on_scale_of(other)
    ]
    message = f"the runs asked by different rubrics. {'; '.join(parts)}"
    if scales:
        more = f" and {len(scales) - _LISTED:,} more" if len(scales) > _LISTED else ""
        message += f". Scales differ: {'; '.join(scales[:_LISTED])}{more}: these are never compared"
    if len(scales) < len(differing):
        message += f". {ACROSS} compares factors of the same scale"
    return message


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED:,} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more


def _without(judged: RunData, names: Collection[str]) -> RunData:
    if not names:
        return judged
    factors = [name for name in judged.scores.factor.present() if name not in names]
    return replace(judged, scores=judged.scores.where(factor=factors))
