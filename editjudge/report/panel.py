"""The scores that decide where several judges scored a run: the mean of the panel, or those of one judge."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from editjudge.errors import UsageError, near_miss
from editjudge.report.run_data import SPEC, RunData
from editjudge.stats.columns import ABSTAINED, OK, PENDING, Column, Floats, Ints, Mask, Scores, joined

PANEL = "panel"


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
                "--judge the mean of all of them decides"
            )
        is_spec = judge in specs
        return replace(judged, scores=scores.take((scores.slices[SPEC] if is_spec else scores.judge).where(judge)))
    return replace(judged, scores=panel_mean(scores)) if len(specs) > 1 else judged


def panel_mean(scores: Scores) -> Scores:
    """Return one score an edit, rubric, factor and repeat: the mean of all judges that score the factor at all.

    It exists only where each of them gave a score: a failure of one is a failure of the panel, an abstention an
    abstention. A mean over whoever answered would move with who did.
    """
    spec = scores.slices[SPEC].compact()
    unit = joined(scores.item, scores.factor, scores.slices["rubric"], Column.of(scores.repeat))
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
    labels = tuple(f"{factor}\x1f{name}" for factor in scores.factor.labels for name in rubric.labels)
    return Column(codes.astype(np.int32), labels)


def _members(scores: Scores, spec: Column) -> Mask:
    """Which judges score each question at all (questions x judges): those that do not abstain from every edit."""
    question = _questions(scores)
    takes_part = ~scores.having(ABSTAINED)
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
    mean: Floats = np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0)
    return mean


def _joint(status: Ints, member: Mask, labels: tuple[str, ...]) -> list[str]:
    """The panel's status: the first failure of a member, else an abstention, else ok."""
    joint = []
    for codes, members in zip(status.tolist(), member.tolist(), strict=True):
        names = [
            labels[code] if code >= 0 else PENDING for code, is_member in zip(codes, members, strict=True) if is_member
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
    suffixes = (judge[len(spec) :] for judge, spec in zip(row.judge, row.slices[SPEC], strict=True))
    return Column.of(f"{PANEL}{suffix}" for suffix in suffixes)
