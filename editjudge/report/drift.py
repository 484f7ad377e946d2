"""`drift`: whether a judge's scores of the same edits changed, also where its server began to run another model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from editjudge.errors import UsageError
from editjudge.report.answers import Answer
from editjudge.report.comparison import (
    common_scales,
    difference_notes,
    difference_table,
)
from editjudge.report.run_data import REPORTED, RunData, pair_runs, shared
from editjudge.report.selection import same_rubrics
from editjudge.report.tables import Table, counted
from editjudge.report.words import changes, drift_verdict, plain
from editjudge.stats import compare as statistics
from editjudge.stats.columns import Scales, Scores
from editjudge.stats.compare import Drift, corrected_together


def drift(now: RunData, then: RunData, *, across_rubrics: bool = False) -> Answer:
    """Compare two runs of the same edits at different times. Both must be loaded with `pairing`."""
    same = same_rubrics(now, then, across_rubrics=across_rubrics)
    now = same.a
    then = same.b
    run = now.run.name
    against = then.run.name
    judges = _drifting_judges(now, then)
    after, before, match = pair_runs(now, then, "edit")
    scales = common_scales(now, then)
    sides = [
        _JudgedTwice(
            new if new == old else f"{new} (b) against {old} (a)",
            shared(before.where(judge=old)),
            shared(after.where(judge=new)),
        )
        for new, old in judges.items()
    ]
    drifts = corrected_together(
        [
            statistics.drift(
                side.before,
                side.after,
                provenance=(then.provenance, now.provenance),
                on="pair",
                scales=scales,
            )
            for side in sides
        ]
    )
    splits = _split(sides, scales)
    changed = changes(drifts[0])
    lead = [f"changed: {change}" for change in changed]
    lead = lead or ["no recorded setting of the judging changed"]
    lead += match.describe(run, against)
    repeated = len(now.keys & then.keys)
    if repeated:
        lead.append(
            f"{repeated:,} of {len(now.keys):,} judgements are the same stored answers in both runs: they were not "
            "asked again, so they show no drift"
        )
    lead += [
        f"{side.judge}: {drift_verdict(each)}"
        for side, each in zip(sides, drifts, strict=True)
    ]
    lead += _split_lead(sides, splits, against, run)
    document = {
        "run": run,
        "against": against,
        "changed": changed,
        "same_answers": repeated,
        "judgements": len(now.keys),
        "pending": now.pending + then.pending,
        "judges": plain(dict(zip(judges, drifts, strict=True))),
        "earlier_judges": judges,
        "by_reported_model": [split.as_json() for split in splits],
        **match.counts(),
        **same.as_json(),
    }
    tables = _tables(sides, drifts, against, run)
    tables += _split_tables(splits, against, run)
    return Answer(document, [*same.lead(), *lead], tables)


def _drifting_judges(now: RunData, then: RunData) -> dict[str, str]:
    """Return the judges that both runs have. If each run has a single judge, these two are matched even if their names
    differ."""
    judges = now.scores.judge.present()
    earlier = then.scores.judge.present()
    if len(judges) == len(earlier) == 1:
        return {judges[0]: earlier[0]}
    same = {judge: judge for judge in judges if judge in earlier}
    if not same:
        raise UsageError(
            f"no judge is in both runs: {', '.join(judges) or 'none'} now, {', '.join(earlier) or 'none'} then",
            code="no_common_judge",
        )
    return same


@dataclass(frozen=True)
class _JudgedTwice:
    """Scores of one judge at both times."""

    judge: str
    before: Scores
    after: Scores


@dataclass(frozen=True)
class _Split:
    """Drift of the edits for which the server reported one model then and one now."""

    judge: str
    then: str
    now: str
    edits: int
    drift: Drift

    def as_json(self) -> dict[str, object]:
        about = {"judge": self.judge, "then": self.then, "now": self.now}
        return {**about, "edits": self.edits, **plain(self.drift)}


def _reported(scores: Scores) -> dict[str, int]:
    """Return the number of edits for each model that the server reported."""
    column = scores.slices[REPORTED]
    return {
        model: len(scores.take(column.where(model)).item.present())
        for model in column.present()
        if model
    }


def _split(sides: Sequence[_JudgedTwice], scales: Scales) -> list[_Split]:
    """Return the drift of each judge for each pair of models that its server reported, if it changed within a run."""
    splits = []
    for side in sides:
        earlier = _reported(side.before)
        later = _reported(side.after)
        if max(len(earlier), len(later)) < 2:
            continue
        for then in earlier:
            before = side.before.take(side.before.slices[REPORTED].where(then))
            for now in later:
                after = side.after.take(side.after.slices[REPORTED].where(now))
                edits = {*before.pair.present()} & {*after.pair.present()}
                if edits:
                    found = statistics.drift(before, after, on="pair", scales=scales)
                    splits.append(_Split(side.judge, then, now, len(edits), found))
    corrected = corrected_together([split.drift for split in splits])
    return [
        _Split(split.judge, split.then, split.now, split.edits, each)
        for split, each in zip(splits, corrected, strict=True)
    ]


def _split_lead(
    sides: Sequence[_JudgedTwice], splits: Sequence[_Split], against: str, run: str
) -> Iterator[str]:
    for side in sides:
        for name, scores in ((against, side.before), (run, side.after)):
            models = _reported(scores)
            if len(models) > 1:
                counts = ", ".join(
                    f"{model} for {counted(n, 'edit')}" for model, n in models.items()
                )
                yield f"{side.judge}: the server changed its model within {name}: {counts}"
    for split in splits:
        yield (
            f"{split.judge}, {split.then} then and {split.now} now ({counted(split.edits, 'edit')}): "
            f"{drift_verdict(split.drift)}"
        )


def _correction(drifts: Sequence[Drift]) -> str:
    tests = sum(shift.p is not None for each in drifts for shift in each.shifts)
    return f"Holm-corrected over {tests} comparisons" if tests > 1 else ""


def _tables(
    sides: Sequence[_JudgedTwice], drifts: Sequence[Drift], against: str, run: str
) -> list[Table]:
    tables = []
    for side, each in zip(sides, drifts, strict=True):
        notes = difference_notes(each.shifts, _correction(drifts))
        notes += [f"{factor}: only {against} has it" for factor in each.only_then]
        notes += [f"{factor}: only {run} has it" for factor in each.only_now]
        caption = f"Shift from {against} (a) to {run} (b); judge {side.judge}"
        tables.append(difference_table(each.shifts, caption, notes))
    return tables


def _split_tables(splits: Sequence[_Split], against: str, run: str) -> list[Table]:
    correction = _correction([split.drift for split in splits])
    return [
        difference_table(
            split.drift.shifts,
            f"Edits for which the server of {split.judge} ran {split.then} in {against} (a) and {split.now} in {run} (b)",
            difference_notes(split.drift.shifts, correction),
        )
        for split in splits
    ]
