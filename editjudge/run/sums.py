"""What the factors of a run add up to: means over a rubric's factors, and over all factors of one scale."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from editjudge.rubrics.files import SETS
from editjudge.rubrics.files import load as load_rubric
from editjudge.rubrics.model import Scale
from editjudge.store.records import RunRecord

if TYPE_CHECKING:
    from editjudge.store.shards import Shards
    from editjudge.store.store import Store

OVERALL = "overall"


@dataclass(frozen=True)
class RubricFactor:
    """The rubric that asks for a factor, and the scale that it asks for."""

    rubric: str
    hash: str
    scale: Scale | None = None
    """None where the store does not have the rubric."""

    @property
    def title(self) -> str:
        return f'"{self.rubric}" ({self.hash[:12]})'

    @property
    def scale_words(self) -> str:
        return self.scale.words if self.scale else "on an unknown scale"

    def is_on_scale_of(self, other: RubricFactor) -> bool:
        """Whether the same numbers mean the same, as far as the scale goes."""
        if self.scale is None or other.scale is None:
            return self.hash == other.hash
        return _comparable(self.scale) == _comparable(other.scale)


@dataclass(frozen=True)
class RunFactors:
    """What a run asked for, from the rubrics that were stored with it."""

    rubrics: Mapping[str, tuple[str, ...]]
    """The factors of each rubric that have numbers."""
    scales: Mapping[str, Scale]
    """By factor; none where two rubrics give it different scales."""
    computed: frozenset[str]
    """Factors that a program computes: figures of different kinds, which add up to nothing."""
    questions: Mapping[str, Mapping[str, RubricFactor]] = field(default_factory=dict)
    """How each factor was asked for, by factor and rubric."""

    @classmethod
    def of(cls, store: Store | Shards, run: RunRecord) -> RunFactors:
        hashes: dict[str, str] = run.spec.get("rubrics", {})
        if not hashes:
            rows = store.judgements(run, fields=("rubric", "rubric_hash"))
            hashes = {row["rubric"]: row["rubric_hash"] for row in rows if row["rubric_hash"]}
        stored = store.rubrics()
        rubrics: dict[str, tuple[str, ...]] = {}
        scales: dict[str, list[Scale]] = {}
        computed: set[str] = set()
        questions: dict[str, dict[str, RubricFactor]] = {}
        for name, rubric_hash in hashes.items():
            if rubric_hash not in stored:
                continue
            content = stored[rubric_hash]["content"]
            # Words have no mean: they are counted where pairs are, or become numbers in a set's formula.
            factors = [factor for factor in content["factors"] if not factor["scale"].get("choices")]
            rubrics[name] = tuple(factor["key"] for factor in factors)
            for factor in factors:
                scale = Scale.of(factor["scale"])
                scales.setdefault(factor["key"], []).append(scale)
                questions.setdefault(factor["key"], {})[name] = RubricFactor(name, rubric_hash, scale)
            computed.update(rubrics[name] if content.get("computed_by") else ())
        same = {factor: some[0] for factor, some in scales.items() if len(set(map(_comparable, some))) == 1}
        return cls(rubrics, same, frozenset(computed), questions)

    @property
    def legal(self) -> dict[str, tuple[float, ...]]:
        """Of each factor every score where they can be counted, or both ends where there are two."""
        return {factor: legal for factor, scale in self.scales.items() if (legal := _legal(scale))}

    @property
    def falling(self) -> frozenset[str]:
        return frozenset(factor for factor, scale in self.scales.items() if scale.direction == "down")


def _comparable(scale: Scale) -> tuple[object, ...]:
    """What makes two scales one to statistics, whatever their labels and the order of their values."""
    return scale.steps, scale.range, scale.direction, scale.choices


def _legal(scale: Scale) -> tuple[float, ...]:
    low, high = scale.low, scale.high
    return scale.steps or (() if low is None or high is None else (low, high))


@dataclass(frozen=True)
class Sums:
    """Groups of factors that have a mean."""

    groups: Mapping[str, tuple[str, ...]]
    """By name: the published groups and the run's own rubrics."""
    alike: tuple[str, ...]
    """All factors of the commonest scale of which higher is better: `overall` is their mean."""
    scale: tuple[float, ...] | None


def sums_of(
    factors: Iterable[str],
    rubrics: Mapping[str, tuple[str, ...]],
    scales: Mapping[str, tuple[float, ...]],
    falling: Container[str],
) -> Sums:
    have = list(factors)
    online = {name: tuple(factor.key for factor in load_rubric(name).factors) for name in SETS["online"]}
    own = {name: keys for name, keys in rubrics.items() if name not in SETS and name != "reference"}
    groups = {n: f for n, f in {**online, **own}.items() if len(f) > 1 and set(f) <= set(have) and n not in have}
    counts = Counter(scales[factor] for factor in have if factor in scales)
    scale = counts.most_common(1)[0][0] if counts else None
    return Sums(groups, tuple(f for f in have if scales.get(f) == scale and f not in falling), scale)


def run_sums(store: Store, run: RunRecord) -> dict[str, tuple[str, ...]]:
    """The means that a filter may name, and the factors of each."""
    known = RunFactors.of(store, run)
    left_out = set(known.computed)
    if run.spec.get("sets"):
        from editjudge.store.set_scores import scorer_of  # numpy, which only formulas need here

        scorer = scorer_of(run.spec, store.rubrics())
        # A set says itself what its factors add up to: a mean beside it would be a figure that nobody published.
        left_out |= {key for formula in (scorer.formulas if scorer else ()) for _, key in formula.refs}
    factors = dict.fromkeys(key for keys in known.rubrics.values() for key in keys if key not in left_out)
    sums = sums_of(factors, known.rubrics, known.legal, known.falling)
    if sums.scale is None or len(sums.alike) < 2:
        return {}
    return {n: f for n, f in sums.groups.items() if {*f} <= {*sums.alike}} | {OVERALL: sums.alike}
