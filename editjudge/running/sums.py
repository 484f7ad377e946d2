"""Means of a run, either over a rubric's factors or over all factors with the same scale."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from editjudge.rubrics.files import SETS
from editjudge.rubrics.files import load as load_rubric
from editjudge.rubrics.scale import Scale
from editjudge.store.records import RunRecord

if TYPE_CHECKING:
    from editjudge.store.store import Store

OVERALL = "overall"
_UNGROUPED = (*SETS, "reference")
"""Rubrics whose factors belong to groups with other names."""


@dataclass(frozen=True)
class RubricFactor:
    """A factor as it is defined in one rubric."""

    rubric: str
    hash: str
    scale: Scale | None = None
    """Scale of the factor; None if the store does not have the rubric."""

    @property
    def title(self) -> str:
        return f'"{self.rubric}" ({self.hash[:12]})'

    @property
    def scale_words(self) -> str:
        return self.scale.words if self.scale else "on an unknown scale"

    def is_on_scale_of(self, other: RubricFactor) -> bool:
        """Whether two factors have the same scale, so their scores are comparable."""
        if self.scale is None or other.scale is None:
            return self.hash == other.hash
        return _comparable(self.scale) == _comparable(other.scale)


@dataclass(frozen=True)
class RunFactors:
    """Factors of a run, from the rubrics that are stored with it."""

    rubrics: Mapping[str, tuple[str, ...]]
    """Factors with numeric scores, keyed by rubric."""
    scales: Mapping[str, Scale]
    """Scales, keyed by factor. A factor that has different scales in two rubrics is left out."""
    computed: frozenset[str]
    """Factors that a program computes. They are different kinds of quantities, so they have no common mean."""
    questions: Mapping[str, Mapping[str, RubricFactor]] = field(default_factory=dict)
    """Questions about each factor, keyed by factor and rubric."""

    @classmethod
    def of(cls, store: Store, run: RunRecord) -> RunFactors:
        stored = store.questions_of(run)
        questions: dict[str, dict[str, RubricFactor]] = {}
        # Choices have no mean: they are counted in pairs, or converted to numbers by a set's formula.
        for name, factors in stored.scored.items():
            for factor in factors:
                questions.setdefault(factor.key, {})[name] = RubricFactor(
                    name, stored.rubrics[name].hash, factor.scale
                )
        scales = {}
        for key, by_rubric in questions.items():
            first, *others = (q.scale for q in by_rubric.values() if q.scale)
            if all(_comparable(other) == _comparable(first) for other in others):
                scales[key] = first
        rubrics = {name: tuple(f.key for f in fs) for name, fs in stored.scored.items()}
        return cls(rubrics, scales, stored.computed, questions)

    @property
    def legal(self) -> dict[str, tuple[float, ...]]:
        """For each factor, all its legal scores if they are countable, or else the two ends of its scale. Scales with
        an open end are left out.
        """
        legal: dict[str, tuple[float, ...]] = {}
        for factor, scale in self.scales.items():
            if scale.steps:
                legal[factor] = scale.steps
            elif scale.low is not None and scale.high is not None:
                legal[factor] = (scale.low, scale.high)
        return legal

    @property
    def falling(self) -> frozenset[str]:
        return frozenset(
            factor for factor, scale in self.scales.items() if scale.direction == "down"
        )


def _comparable(scale: Scale) -> tuple[object, ...]:
    """Return the properties that make two scales equal for statistics. Labels and the order of values are not among
    them.
    """
    return scale.steps, scale.range, scale.direction, scale.choices


@dataclass(frozen=True)
class Sums:
    """Groups of factors over which a mean is computed."""

    groups: Mapping[str, tuple[str, ...]]
    """The published groups and the run's own rubrics, keyed by name."""
    alike: tuple[str, ...]
    """All factors that have the most common scale and for which higher is better. `overall` is their mean."""
    scale: tuple[float, ...] | None


def sums_of(
    factors: Iterable[str],
    rubrics: Mapping[str, tuple[str, ...]],
    scales: Mapping[str, tuple[float, ...]],
    falling: Container[str],
) -> Sums:
    """Return the groups of these factors over which a mean is computed."""
    present = list(factors)
    candidates = {
        name: tuple(factor.key for factor in load_rubric(name).factors)
        for name in SETS["online"]
    }
    candidates |= {n: keys for n, keys in rubrics.items() if n not in _UNGROUPED}
    groups = {
        name: keys
        for name, keys in candidates.items()
        if len(keys) > 1 and {*keys} <= {*present} and name not in present
    }
    counts = Counter(scales[factor] for factor in present if factor in scales)
    scale = counts.most_common(1)[0][0] if counts else None
    alike = [f for f in present if f not in falling and scales.get(f) == scale]
    return Sums(groups, tuple(alike), scale)


def run_sums(store: Store, run: RunRecord) -> dict[str, tuple[str, ...]]:
    """Return the means that a filter may refer to, each with its factors."""
    run_factors = RunFactors.of(store, run)
    left_out = set(run_factors.computed)
    if run.spec.get("sets"):
        # Imports NumPy, which only scores of sets need here.
        from editjudge.store.scores import scorer_of

        scorer = scorer_of(run.spec, store.questions_of(run).rubrics)
        # A set defines its own scores. A mean of the same factors would be a score that was never published.
        for formula in scorer.formulas if scorer else ():
            left_out |= {key for _, key in formula.refs}
    factors = dict.fromkeys(
        key
        for keys in run_factors.rubrics.values()
        for key in keys
        if key not in left_out
    )
    sums = sums_of(factors, run_factors.rubrics, run_factors.legal, run_factors.falling)
    if sums.scale is None or len(sums.alike) < 2:
        return {}
    groups = {n: keys for n, keys in sums.groups.items() if {*keys} <= {*sums.alike}}
    return groups | {OVERALL: sums.alike}
