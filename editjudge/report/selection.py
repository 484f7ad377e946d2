"""The scores that decide where several judges scored a run: the mean of the panel, or those of one judge."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from editjudge.errors import Option, UsageError, near_miss
from editjudge.report.run_data import SPEC, RunData, aggregates, common_judges
from editjudge.running.sums import RubricFactor
from editjudge.stats.columns import (
    ABSTAINED,
    OK,
    PENDING,
    Column,
    Floats,
    Ints,
    Mask,
    Scores,
    joined,
)

PANEL = "panel"


@dataclass(frozen=True)
class Choice:
    """Subject of a comparison: by default every score, decided by all judges of the run."""

    factors: Sequence[str] = ()
    """Only these factors and aggregates."""
    judge: str | None = None
    """The judge that decides; without it the panel's mean."""
    primary: Sequence[str] = ()
    guaranteed: bool = False
    """Whether intervals allow for any score that was not seen."""


EVERYTHING = Choice()


def deciding(judged: RunData, judge: str | None = None) -> RunData:
    """Return the run with the scores of one judge: the one named, the only one, or the panel's mean.

    A judge that scores a factor under two rubrics is `SPEC@RUBRIC` there; its `SPEC` names both.
    """
    scores = judged.scores
    specs = scores.slices[SPEC].present()
    if judge is not None:
        names = dict.fromkeys((*specs, *scores.judge.present()))
        if judge not in names:
            raise UsageError(
                f'the run has no judge "{judge}"{near_miss(judge, names)} It has {", ".join(names)}, and without '
                "--judge the mean of all of them decides",
                options=[Option("judge")],
            )
        is_spec = judge in specs
        return replace(
            judged,
            scores=scores.take(
                (scores.slices[SPEC] if is_spec else scores.judge).where(judge)
            ),
        )
    return replace(judged, scores=panel_mean(scores)) if len(specs) > 1 else judged


def deciding_both(
    a: RunData, b: RunData, judge: str | None = None
) -> tuple[RunData, RunData, dict[str, str]]:
    """Return two runs with the scores that decide, and what B calls each judge of A.

    Only judges that both runs have make up a panel.
    """
    judges = common_judges(a, b)
    if judge is None and len(judges) == 1:
        return a, b, judges
    a = deciding(replace(a, scores=a.scores.where(judge=list(judges))), judge)
    b = deciding(replace(b, scores=b.scores.where(judge=list(judges.values()))), judge)
    return a, b, common_judges(a, b)


def panel_mean(scores: Scores) -> Scores:
    """Return one score an edit, rubric, factor and repeat: the mean of all judges that score the factor at all.

    It exists only where each of them gave a score: a failure of one is a failure of the panel, an abstention an
    abstention. A mean over whoever answered would move with who did.
    """
    spec = scores.slices[SPEC].compact()
    unit = joined(
        scores.item, scores.factor, scores.slices["rubric"], Column.of(scores.repeat)
    )
    shape = (len(unit.labels), len(spec.labels))
    values = np.full(shape, np.nan)
    values[unit.codes, spec.codes] = scores.score
    status = np.full(shape, -1)
    status[unit.codes, spec.codes] = scores.status.codes
    answer = np.zeros(len(unit.labels), np.uint64)
    np.add.at(answer, unit.codes, scores.answer)
    first = np.full(len(unit.labels), len(scores))
    np.minimum.at(first, unit.codes, np.arange(len(scores)))
    row = scores.take(first)
    member = _members(scores, spec)[_questions(row).codes]
    asked_by_all = row.repeat <= _last_repeats(scores, spec, member)
    labels = _joint(status, member, scores.status.labels)
    mean = _mean(values, member)
    ok = np.array([label == OK for label in labels])
    panel = replace(
        row,
        score=np.where(ok, mean, np.nan),
        status=Column.of(labels),
        judge=_names(row),
        answer=answer,
        slices={**row.slices, SPEC: Column.constant(PANEL, len(row))},
    )
    return panel.take(asked_by_all)


def _questions(scores: Scores) -> Column:
    """A factor under its rubric; with the labels of the whole run, so that codes of parts agree."""
    rubric = scores.slices["rubric"]
    codes = scores.factor.codes.astype(np.int64) * len(rubric.labels) + rubric.codes
    labels = tuple(
        f"{factor}\x1f{name}"
        for factor in scores.factor.labels
        for name in rubric.labels
    )
    return Column(codes.astype(np.int32), labels)


def _members(scores: Scores, spec: Column) -> Mask:
    """Which judges score each question at all (questions x judges): those that do not abstain from every edit."""
    question = _questions(scores)
    takes_part = ~scores.status.among((ABSTAINED,))
    members = np.zeros((len(question.labels), len(spec.labels)), dtype=bool)
    members[question.codes[takes_part], spec.codes[takes_part]] = True
    return members


def _last_repeats(scores: Scores, spec: Column, member: Mask) -> Ints:
    """The last repeat that every member was asked for."""
    last = np.zeros(len(spec.labels), np.int64)
    np.maximum.at(last, spec.codes, scores.repeat)
    everywhere = np.iinfo(np.int64).max
    lowest: Ints = np.where(member, last[None, :], everywhere).min(axis=1)
    return lowest


def _mean(values: Floats, member: Mask) -> Floats:
    total = np.where(member, values, 0.0).sum(axis=1)
    count = member.sum(axis=1)
    mean: Floats = np.divide(
        total, count, out=np.full(len(total), np.nan), where=count > 0
    )
    return mean


def _joint(status: Ints, member: Mask, labels: tuple[str, ...]) -> list[str]:
    """The panel's status: the first failure of a member, else an abstention, else ok."""
    joint = []
    for codes, members in zip(status.tolist(), member.tolist(), strict=True):
        names = [
            labels[code] if code >= 0 else PENDING
            for code, is_member in zip(codes, members, strict=True)
            if is_member
        ]
        failures = [name for name in names if name not in (OK, ABSTAINED)]
        if failures:
            joint.append(failures[0])
        elif not names or ABSTAINED in names:
            joint.append(ABSTAINED)
        else:
            joint.append(OK)
    return joint


def _names(row: Scores) -> Column:
    """`panel`, or `panel@RUBRIC` where judges are told apart by rubric."""
    suffixes = (
        judge[len(spec) :]
        for judge, spec in zip(row.judge, row.slices[SPEC], strict=True)
    )
    return Column.of(f"{PANEL}{suffix}" for suffix in suffixes)


@dataclass(frozen=True)
class Primary:
    """The scores that a comparison is about; Holm's correction is over these alone."""

    names: tuple[str, ...]
    how: Literal["default", "declared", "chosen"] = "default"
    """`default`: a set's own scores, or rubric means and `overall`; `declared` before the run; `chosen` afterwards."""

    @classmethod
    def of(cls, judged: RunData, chosen: Sequence[str] = ()) -> Primary:
        """Choose what was asked for, else what was declared with the run, else the default."""
        scores = {
            one.name: one
            for judge in judged.scores.judge.present()
            for one in aggregates(judged, judge)
        }
        known = dict.fromkeys((*judged.scores.factor.present(), *scores))
        declared = tuple(judged.run.spec.get("primary") or ())
        if chosen:
            for name in chosen:
                if name not in known:
                    raise UsageError(
                        f"the run has no score {name!r}{near_miss(name, known)} It has {', '.join(known)}"
                    )
            return cls(
                tuple(chosen), "declared" if set(chosen) == set(declared) else "chosen"
            )
        if declared:
            return cls(declared, "declared")
        if judged.set_scores:
            return cls(tuple(formula.name for formula in judged.formulas))
        alone = [factors[0] for factors in judged.rubrics.values() if len(factors) == 1]
        means = [one.name for one in scores.values() if one.how == "mean"]
        return cls(
            tuple(
                dict.fromkeys(
                    (*means, *(name for name in alone if name not in judged.computed))
                )
            )
        )


ACROSS = Option("across-rubrics", True)
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
            lines.append(
                f"{names} asked by different rubrics; compared all the same: {', '.join(self.across)}"
            )
        if self.left_out:
            lines.append(
                f"not compared, since scale or formula differs: {', '.join(self.left_out)}"
            )
        return lines

    def as_json(self) -> dict[str, list[str]]:
        return {
            "across_rubrics": list(self.across),
            "other_scales": list(self.left_out),
        }


def same_rubrics(
    a: RunData,
    b: RunData,
    *,
    across_rubrics: bool = False,
    factors: Collection[str] = (),
) -> SameRubrics:
    """Return both runs as far as they can be paired; `factors` are those that will be compared, by default all.

    Raises `UsageError` that names the rubrics where they differ and `across_rubrics` is false, and where no factor has
    the same scale in both.
    """
    differing: dict[str, tuple[RubricFactor, RubricFactor]] = {}
    for name, pairs in _asked_by_both(a, b, factors):
        for one, other in pairs:
            if one.hash != other.hash:
                differing[name] = (one, other)
    formulas = {
        name
        for name in _shared_formulas(a, b)
        if _formula(a, name) != _formula(b, name)
    }
    computed = _computed_from(a, b, differing)
    if differing and not across_rubrics:
        raise UsageError(_refusal(a, b, differing), options=[ACROSS])
    other_scale = {
        name
        for name, (one, other) in differing.items()
        if not one.is_on_scale_of(other)
    }
    if other_scale and other_scale == {
        name for name, _ in _asked_by_both(a, b, factors)
    }:
        refused = {name: differing[name] for name in other_scale}
        raise UsageError(_refusal(a, b, refused), options=[ACROSS])
    affected = {name for name in computed if computed[name] & other_scale}
    left_out = other_scale | formulas | affected
    across = (differing.keys() | computed.keys()) - left_out
    return SameRubrics(
        _without(a, left_out),
        _without(b, left_out),
        tuple(sorted(across)),
        tuple(sorted(left_out)),
    )


def same_baseline(
    judged: RunData,
    before: RunData | None,
    *,
    across_rubrics: bool,
    max_drop: float | Mapping[str, float],
) -> SameRubrics | None:
    """Return the same for a run and its baseline, of which only the baseline lacks factors: limits hold without it."""
    if before is None:
        if across_rubrics:
            raise UsageError(
                f"{ACROSS} is about a baseline: name one with --baseline",
                options=[ACROSS, Option("baseline")],
            )
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


def _asked_by_both(
    a: RunData, b: RunData, factors: Collection[str]
) -> Iterator[tuple[str, list[tuple[RubricFactor, RubricFactor]]]]:
    """Each factor of both runs, with how each asked for it: by the rubric's name where a run has several."""
    wanted = (
        set(factors)
        if set(factors) <= a.questions.keys() & b.questions.keys()
        else set()
    )
    for name, mine in a.questions.items():
        theirs = b.questions.get(name, {})
        if not theirs or (wanted and name not in wanted):
            continue
        if len(mine) == len(theirs) == 1:
            yield name, list(zip(mine.values(), theirs.values(), strict=True))
        else:
            yield (
                name,
                [(mine[rubric], theirs[rubric]) for rubric in mine if rubric in theirs],
            )


def _shared_formulas(a: RunData, b: RunData) -> Iterable[str]:
    return a.set_scores & b.set_scores


def _formula(judged: RunData, name: str) -> str:
    return next(formula.words for formula in judged.formulas if formula.name == name)


def _computed_from(
    a: RunData, b: RunData, differing: Collection[str]
) -> Mapping[str, set[str]]:
    """Scores of sets that both runs have, with the factors among these that they are computed from."""
    shared = set(_shared_formulas(a, b))
    parts = {
        formula.name: {key for _, key in formula.refs} & set(differing)
        for formula in a.formulas
    }
    return {name: keys for name, keys in parts.items() if name in shared and keys}


def _refusal(
    a: RunData, b: RunData, differing: Mapping[str, tuple[RubricFactor, RubricFactor]]
) -> str:
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
