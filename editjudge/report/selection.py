"""Selection of scores: scores of one judge or of a panel, primary scores, and scores that are comparable between two
runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from editjudge.errors import Option, UsageError, did_you_mean
from editjudge.report.run_data import SPEC, RunData, check_name, common_judges
from editjudge.running.sums import RubricFactor
from editjudge.stats.columns import ABSTAINED, OK, PENDING, Column, Scores, joined
from editjudge.stats.summary import joint_status, side_by_side

PANEL = "panel"


@dataclass(frozen=True)
class Choice:
    """Scores that a comparison uses. By default, these are all scores, averaged over all judges of the run."""

    factors: Sequence[str] = ()
    """Factors and aggregates to compare; empty means all."""
    judge: str | None = None
    """Judge on whose scores the comparison is based; by default the panel's mean is used."""
    primary: Sequence[str] = ()
    guaranteed: bool = False
    """Whether intervals allow for scores anywhere on the scale, even if none was observed."""


EVERYTHING = Choice()


def deciding(run: RunData, judge: str | None = None) -> RunData:
    """Return the run with only the scores on which a comparison is based: those of the named judge, of the only judge,
    or the panel's mean.

    A judge that scores a factor under two rubrics is named `SPEC@RUBRIC`; `SPEC` selects both.
    """
    scores = run.scores
    specs = scores.slices[SPEC]
    if judge is None:
        is_panel = len(specs.present()) > 1
        return replace(run, scores=panel_mean(scores)) if is_panel else run
    names = dict.fromkeys((*specs.present(), *scores.judge.present()))
    if judge not in names:
        raise UsageError(
            f'the run has no judge "{judge}"{did_you_mean(judge, names)} It has {", ".join(names)}, and without '
            "--judge the mean of all of them decides",
            options=[Option("judge")],
            code="unknown_judge",
        )
    column = specs if judge in specs.present() else scores.judge
    return replace(run, scores=scores.take(column.where(judge)))


def deciding_both(
    a: RunData, b: RunData, judge: str | None = None
) -> tuple[RunData, RunData, dict[str, str]]:
    """Return two runs with only the scores on which a comparison is based, and the name in B of each judge in A.

    A panel consists of the judges that both runs have.
    """
    judges = common_judges(a, b)
    if judge is None and len(judges) == 1:
        return a, b, judges
    a = deciding(replace(a, scores=a.scores.where(judge=list(judges))), judge)
    b = deciding(replace(b, scores=b.scores.where(judge=list(judges.values()))), judge)
    return a, b, common_judges(a, b)


def panel_mean(scores: Scores) -> Scores:
    """Return one score per edit, rubric, factor and repeat: the mean of all judges that score the factor.

    If a judge has not given a score, the panel has none, and its status is that of the first failure or of an
    abstention. A mean over only some of the judges would depend on which ones answered. Repeats that were not requested
    from every judge are left out.
    """
    spec = scores.slices[SPEC].compact()
    rubric = scores.slices["rubric"]
    unit = joined(scores.item, scores.factor, rubric, Column.of(scores.repeat))
    row, values, statuses = side_by_side(
        scores, unit, spec.codes, len(spec.labels), PENDING
    )
    # A judge that abstains from a factor on every edit is not part of the panel for it.
    question = joined(scores.factor, rubric)
    takes_part = ~scores.status.among((ABSTAINED,))
    members = np.zeros((len(question.labels), len(spec.labels)), dtype=bool)
    members[question.codes[takes_part], spec.codes[takes_part]] = True
    _, first = np.unique(unit.codes, return_index=True)
    member = members[question.codes[first]]
    status = joint_status(np.where(member, statuses, OK))
    status[~member.any(axis=1)] = ABSTAINED
    total = np.where(member, values, 0.0).sum(axis=1)
    mean = total / np.maximum(member.sum(axis=1), 1)
    judges = zip(row.judge, row.slices[SPEC], strict=True)
    panel = replace(
        row,
        score=np.where(status == OK, mean, np.nan),
        status=Column.of(status),
        # Keep the `@RUBRIC` of judges that have one.
        judge=Column.of(f"{PANEL}{judge.removeprefix(name)}" for judge, name in judges),
        slices={**row.slices, SPEC: Column.constant(PANEL, len(row))},
    )
    last = np.zeros(len(spec.labels), np.int64)
    np.maximum.at(last, spec.codes, scores.repeat)
    last_of_all = np.where(member, last, np.iinfo(np.int64).max).min(axis=1)
    return panel.take(row.repeat <= last_of_all)


def primary_scores(
    run: RunData, chosen: Sequence[str] = ()
) -> tuple[Sequence[str], bool]:
    """Return the primary scores of a comparison, and whether they were declared before the run.

    They are the chosen scores. If none were chosen, they are the scores declared with the run; if none were declared,
    the scores of sets, or rubric means and `overall`. Holm's correction covers only primary scores.
    """
    declared = run.run.spec.get("primary") or ()
    for name in chosen:
        check_name(
            "score", name, {**dict.fromkeys(run.scores.factor.present()), **run.sums}
        )
    if chosen or declared:
        return chosen or declared, not chosen or {*chosen} == {*declared}
    if run.formulas:
        return [formula.name for formula in run.formulas], False
    means = [name for name, mean in run.sums.items() if mean.how == "mean"]
    alone = [factors[0] for factors in run.rubrics.values() if len(factors) == 1]
    means += [name for name in alone if name not in run.computed]
    return list(dict.fromkeys(means)), False


# --- rubrics of two runs --------------------------------------------------------------------------------------

ACROSS = Option("across-rubrics", True)
_LISTED = 4
"""Maximum number of factors that a message names. Further ones are only counted."""


@dataclass(frozen=True)
class SameRubrics:
    """Two runs without the factors that cannot be compared, with notices about the remaining factors."""

    a: RunData
    b: RunData
    across: Sequence[str] = ()
    """Factors that are compared even though their rubrics differ."""
    left_out: Sequence[str] = ()
    """Factors that are not compared, because their scales or formulas differ."""

    def lead(self) -> list[str]:
        lines = []
        if self.across:
            runs = f"{self.a.run.name} and {self.b.run.name}"
            lines.append(
                f"{runs} asked by different rubrics; compared all the same: {', '.join(self.across)}"
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
    """Return both runs without the factors that cannot be compared. `factors` are the factors of interest, by default
    all.

    Raises `UsageError` if rubrics differ and `across_rubrics` is false, or if no factor has the same scale in both
    runs.
    """
    questions = _common_questions(a, b, factors)
    differing = {
        name: pair
        for name, pairs in questions.items()
        for pair in pairs
        if pair[0].hash != pair[1].hash
    }
    other_scale = {
        name: pair
        for name, pair in differing.items()
        if not pair[0].is_on_scale_of(pair[1])
    }
    if differing and not across_rubrics:
        raise UsageError(_refusal(a, b, differing, other_scale), options=[ACROSS])
    if other_scale and other_scale.keys() == questions.keys():
        raise UsageError(_refusal(a, b, other_scale, other_scale), options=[ACROSS])
    left_out = {*other_scale}
    across = {*differing}
    formulas = {formula.name: formula for formula in b.formulas}
    for formula in a.formulas:
        if formula.name in formulas:
            keys = {key for _, key in formula.refs}
            if keys & differing.keys():
                across.add(formula.name)
            if (
                formula.words != formulas[formula.name].words
                or keys & other_scale.keys()
            ):
                left_out.add(formula.name)
    return SameRubrics(
        _without(a, left_out),
        _without(b, left_out),
        sorted(across - left_out),
        sorted(left_out),
    )


def within_one_run(run: RunData) -> SameRubrics:
    """Return a run as both sides of a comparison of its rubrics. Factors whose scales differ between rubrics are left
    out."""
    left_out = []
    for name, questions in run.questions.items():
        first, *others = questions.values()
        if not all(first.is_on_scale_of(other) for other in others):
            left_out.append(name)
    run = _without(run, left_out)
    return SameRubrics(run, run, left_out=sorted(left_out))


def _common_questions(
    a: RunData, b: RunData, factors: Collection[str]
) -> dict[str, list[tuple[RubricFactor, RubricFactor]]]:
    """Return both runs' questions about each common factor. They are paired by rubric if a run has several rubrics."""
    names = [name for name in a.questions if name in b.questions]
    if {*factors} <= {*names}:
        names = [name for name in names if not factors or name in factors]
    questions = {}
    for name in names:
        ours = a.questions[name]
        theirs = b.questions[name]
        pairs = [(ours[rubric], theirs[rubric]) for rubric in ours if rubric in theirs]
        if len(ours) == len(theirs) == 1:
            pairs = list(zip(ours.values(), theirs.values(), strict=True))
        questions[name] = pairs
    return questions


def _refusal(
    a: RunData,
    b: RunData,
    differing: Mapping[str, tuple[RubricFactor, RubricFactor]],
    other_scale: Collection[str],
) -> str:
    rubrics: dict[str, list[str]] = {}
    for name, (first, other) in differing.items():
        runs = f"{a.run.name} asked by {first.title}, {b.run.name} by {other.title}"
        rubrics.setdefault(runs, []).append(name)
    parts = [f"{_listed(names, ', ')}: {runs}" for runs, names in rubrics.items()]
    scales = [
        f"{name} is {first.scale_words} in {a.run.name} and {other.scale_words} in {b.run.name}"
        for name, (first, other) in differing.items()
        if name in other_scale
    ]
    message = f"the runs asked by different rubrics. {'; '.join(parts)}"
    if scales:
        message += f". Scales differ: {_listed(scales, '; ')}: these are never compared"
    if len(scales) < len(differing):
        message += f". {ACROSS} compares factors of the same scale"
    return message


def _listed(parts: Sequence[str], separator: str) -> str:
    more = f" and {len(parts) - _LISTED:,} more" if len(parts) > _LISTED else ""
    return separator.join(parts[:_LISTED]) + more


def _without(run: RunData, names: Collection[str]) -> RunData:
    factors = [name for name in run.scores.factor.present() if name not in names]
    return replace(run, scores=run.scores.where(factor=factors)) if names else run
