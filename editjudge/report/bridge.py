"""`bridge`: maps from one judge's scale of use to another's, kept in a file by which `compare --through` goes across."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    FiniteFloat,
    ValidationError,
    model_validator,
)

from editjudge.canonical import json_hash, read_json
from editjudge.errors import InputError, Option, UsageError, one_line
from editjudge.report.agreement import factors_of, file_ratings, renamed
from editjudge.report.answers import Answer, written
from editjudge.report.charts import LineChart, Point
from editjudge.report.run_data import SPEC, RunData, pair_runs, shared
from editjudge.report.selection import SameRubrics, deciding, primary_scores
from editjudge.report.tables import Cell, Figure, Table, counted
from editjudge.report.templating import render
from editjudge.report.words import plain, reason_text
from editjudge.stats import bridge as statistics
from editjudge.stats.bridge import BridgeLimits, EditPairs, FactorBridge, Knot
from editjudge.stats.columns import (
    Column,
    Floats,
    Interval,
    Ratings,
    Reason,
    Scores,
    ends_of,
    item_means,
)
from editjudge.stats.inference import AddedError

SideName = Literal["old", "new"]


# --- the file -------------------------------------------------------------------------------------------------


class _StoredPart(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class Side(_StoredPart):
    """The judge of one side of a bridge, and its questions."""

    run: str
    judges: dict[str, str | None]
    """Judges with the versions of their scores."""
    reported: dict[str, list[str]]
    """Models that the servers of the judges reported."""
    questions: dict[str, dict[str, str]]
    """For each score, its parts with the hashes of their rubrics: the factor itself, or the factors of a mean."""
    settings: dict[str, str] = {}
    answers: str = ""
    """Digest of the keys of all judgements."""

    @classmethod
    def of(cls, run: RunData, factors: Sequence[str]) -> Self:
        specs = run.scores.slices[SPEC].present()
        judges = list(run.run.spec.get("judges") or specs)
        return cls(
            run=run.run.name,
            judges={judge: run.version(judge) for judge in judges},
            reported={judge: [*run.reported(judge)] for judge in judges},
            questions={factor: _asked(run, factor) for factor in factors},
            settings=_settings(run),
            answers=json_hash(sorted(run.keys)),
        )


class BridgeFactor(_StoredPart):
    """Map of one factor, as the file has it."""

    comparable: bool
    why: str | None = None
    within: FiniteFloat | None = None
    map: list[Knot] = []
    model_error: FiniteFloat | None = None
    models: int = 0

    @model_validator(mode="after")
    def _check(self) -> Self:
        values = [value for k in self.map for value in (k.new, k.old, k.lo, k.hi)]
        if not np.isfinite(values).all():
            raise ValueError("a map has only finite numbers")
        seen = any(knot.n > 0 for knot in self.map)
        if self.comparable and (not seen or self.within is None):
            raise ValueError("a comparable factor has a map and its error")
        if any(a.new >= b.new or a.old > b.old for a, b in pairwise(self.map)):
            raise ValueError("a map rises")
        if not all(knot.lo <= knot.old <= knot.hi for knot in self.map):
            raise ValueError("the band of a map is around it")
        return self


def _both_sides(sides: dict[SideName, Side]) -> dict[SideName, Side]:
    if len(sides) < 2:
        raise ValueError("expected old and new")
    return sides


class BridgeFile(_StoredPart):
    """A bridge as it is stored."""

    factors: dict[str, BridgeFactor]
    sides: Annotated[dict[SideName, Side], AfterValidator(_both_sides)]


def _asked(run: RunData, factor: str) -> dict[str, str]:
    """Return the factors behind a score, each with the hash of its rubric."""
    if factor in run.questions:
        return {name: q.hash for name, q in run.questions[factor].items()}
    parts: Sequence[str] = ()
    if factor in run.sums:
        parts = run.sums[factor].factors
    asked = {
        f"{part} ({name})": question.hash
        for part in parts
        for name, question in run.questions[part].items()
    }
    for formula in run.formulas:
        if formula.name == factor:
            asked = {
                f"{key} ({rubric})": run.questions[key][rubric].hash
                for rubric, key in formula.refs
                if rubric in run.questions.get(key, {})
            }
            asked["formula"] = formula.words
    return asked


_NOT_SETTINGS = ("judges", "version", "repeats", "rubric ", "server model ")
"""Beginnings of provenance that is not a setting of the judging, or is compared by itself."""


def _settings(run: RunData) -> dict[str, str]:
    return {
        name: value
        for name, value in run.provenance.items()
        if not name.startswith(_NOT_SETTINGS) and "version of" not in name
    }


# --- making it ------------------------------------------------------------------------------------------------


def bridge(
    old: RunData,
    new: RunData,
    limits: BridgeLimits | None = None,
    *,
    ratings: Path | None = None,
    mappings: Sequence[str] = (),
) -> Answer:
    """Map the scores of a new judge to those of an old one, by runs of the same edits. Both must be loaded with
    `pairing`."""
    limits = limits or BridgeLimits()
    old = _with_tasks(deciding(old))
    new = _with_tasks(deciding(new))
    people = None
    if ratings:
        rated, _ = file_ratings(ratings, old)
        people = renamed(rated, mappings, factors_of(old))
    a, b, match = pair_runs(old, new, "edit")
    old = replace(old, scores=shared(a))
    new = replace(new, scores=shared(b))
    primary = primary_scores(old)[0]
    a = old.with_aggregates(primary)
    b = new.with_aggregates(primary)
    in_both = [f for f in a.factor.present() if f in b.factor.present()]
    if not in_both:
        raise InputError(
            f"no factor is in both runs: {old.run.name} has {', '.join(a.factor.present()) or 'none'}, "
            f"{new.run.name} {', '.join(b.factor.present()) or 'none'}",
            code="no_common_factor",
        )
    in_both.sort(key=lambda factor: factor not in primary)
    bridges = {
        factor: _factor_bridge(old, new, a, b, factor, limits, people)
        for factor in in_both
    }
    groups = len(a.group.present())
    document = {
        "old": old.run.name,
        "new": new.run.name,
        "n": match.matched,
        "groups": groups,
        "factors": {name: _as_json(each) for name, each in bridges.items()},
        "verdict": "; ".join(_verdict(bridges)),
        "limits": plain(limits),
        "sides": {
            "old": Side.of(old, in_both).model_dump(),
            "new": Side.of(new, in_both).model_dump(),
        },
        "edits": json_hash(sorted(a.pair.present())),
        **match.counts(),
        "pending": old.pending + new.pending,
    }
    lead = [*_verdict(bridges), *dict.fromkeys([*old.unjudged(), *new.unjudged()])]
    lead.append(
        f"{match.matched:,} edits of {counted(groups, 'source image')}; old: {_judged(old)}; new: {_judged(new)}"
    )
    lead += match.describe(old.run.name, new.run.name)
    return Answer(
        document,
        lead,
        [*_factor_tables(old, bridges, limits)],
        _map_table(old, bridges),
        conclusions=_verdict(bridges),
        charts=[_chart(old, name, each) for name, each in bridges.items() if each.map],
    )


def _with_tasks(run: RunData) -> RunData:
    """Return the run with its source images and instructions as a slice, since `pair` will be the edit."""
    scores = run.scores
    slices = {**scores.slices, "task": scores.pair}
    return replace(run, scores=replace(scores, slices=slices))


def _factor_bridge(
    old: RunData,
    new: RunData,
    a: Scores,
    b: Scores,
    factor: str,
    limits: BridgeLimits,
    people: Ratings | None,
) -> FactorBridge:
    a = a.where(factor=factor)
    b = b.where(factor=factor)
    pairs = EditPairs.of(a, b)
    reason = None
    if max(len(a.judge.present()), len(b.judge.present())) > 1:
        reason = Reason("bridge_several_rubrics")
    elif (factor in old.falling) != (factor in new.falling):
        reason = Reason("bridge_directions")
    if reason:
        return FactorBridge(False, reason, 0, 0, pairs.failed_old, pairs.failed_new)
    human = None
    if people is not None and factor in people.factor.present():
        human = _rated(people.where(factor=factor), a, pairs)
    return statistics.bridge(
        pairs,
        scale=ends_of(old.all_scales().get(factor)),
        new_scale=ends_of(new.all_scales().get(factor)),
        limits=limits,
        human=human,
    )


def _rated(ratings: Ratings, scores: Scores, pairs: EditPairs) -> Floats:
    """Return people's mean rating of each edit, or NaN if it has none."""
    edits = dict(zip(scores.item, scores.pair, strict=True))
    rows = ratings.take(ratings.item.among(edits))
    edit = Column.of(edits[item] for item in rows.item)
    means = dict(zip(edit.labels, item_means(edit, rows.score), strict=True))
    return np.array([means.get(label, np.nan) for label in pairs.edits], float)


def _as_json(each: FactorBridge) -> dict[str, object]:
    document: dict[str, object] = plain(each)
    document["why"] = document["reason"]
    document["reason"] = each.reason and each.reason.code
    return document


# --- words and tables -----------------------------------------------------------------------------------------


def _verdict(bridges: Mapping[str, FactorBridge]) -> list[str]:
    near = [
        f"{name} (within ±{each.within:.2f})"
        for name, each in bridges.items()
        if each.comparable
    ]
    far = [name for name, each in bridges.items() if not each.comparable]
    lines = []
    if near:
        lines.append(f"comparable through this bridge: {', '.join(near)}")
    if far:
        scores = ", ".join(far) if near else "any score"
        lines.append(f"not comparable on {scores}: start anew")
    return lines


def _judged(run: RunData) -> str:
    names = []
    for judge in run.run.spec.get("judges") or run.scores.slices[SPEC].present():
        reported = run.reported(judge)
        more = f" (the server ran {', '.join(reported)})" if reported else ""
        names.append(run.named([judge]) + more)
    return f"{run.run.name}, judged by {', '.join(names)}"


_SHOWN = ("bridge_ranks", "bridge_wide")
"""Reasons whose figures are columns of the table of scores."""
_LEGEND = {
    "within": "error on images that the map was not fitted to, which 90 % of edits do not exceed",
    "Spearman": "rank correlation of edits, with 95 % CI",
    "models": "rank correlation of the models' means",
    "same verdicts": "pairs of models about which both judges say the same: higher, lower or no evidence",
    "failed": "edits without a score of the old and of the new judge, because judging failed",
}


def _factor_tables(
    run: RunData, bridges: Mapping[str, FactorBridge], limits: BridgeLimits
) -> Iterator[Table]:
    rows: list[dict[str, Cell]] = []
    for name, each in bridges.items():
        same = None if each.same_verdicts is None else each.same_verdicts
        text = "-" if same is None else f"{100 * same:.0f} % of {each.verdicts}"
        failed = each.failed_old + each.failed_new
        rows.append(
            {
                "score": run.label(name),
                "comparable": "yes" if each.comparable else "no",
                "edits": each.n,
                "failed": f"{each.failed_old}+{each.failed_new}" if failed else "",
                "within": Figure(each.within, digits=2),
                "of at most": Figure(each.limit, digits=2),
                "Spearman": Figure(each.spearman, each.spearman_ci, digits=2),
                "models": Figure(each.models_spearman, digits=2),
                "same verdicts": Figure(same, text=text),
            }
        )
    notes = [
        f"{name}: {reason_text(each.reason)}"
        for name, each in bridges.items()
        if each.reason and each.reason.code not in _SHOWN
    ]
    notes.append(
        f"comparable: 90 % of edits within {limits.within:g} of a point of a 7-point scale or the same share of another, "
        f"and Spearman at least {limits.min_spearman:g} at its lower limit"
    )
    yield Table.listing(
        rows,
        "From the new judge's scores to the old one's",
        notes=notes,
        stub=1,
        spare=("models", "same verdicts", "of at most"),
        legend=_LEGEND,
    ).trimmed("failed")
    yield from _people_table(run, bridges)


def _people_table(run: RunData, bridges: Mapping[str, FactorBridge]) -> Iterator[Table]:
    rows: list[dict[str, Cell]] = []
    for name, each in bridges.items():
        if each.people:
            rated = each.people
            rows.append(
                {
                    "score": run.label(name),
                    "rated edits": rated.n,
                    "old judge": Figure(rated.old, rated.old_ci, digits=2),
                    "new judge": Figure(rated.new, rated.new_ci, digits=2),
                    "new - old": Figure(
                        rated.difference, rated.difference_ci, sign=True, digits=2
                    ),
                }
            )
    if rows:
        yield Table.listing(
            rows, "Spearman with people's mean rating, on the same edits", stub=1
        )


def _map_table(run: RunData, bridges: Mapping[str, FactorBridge]) -> Table:
    return Table.listing(
        {
            "score": run.label(name),
            "new": knot.new,
            "old": Figure(knot.old, Interval(knot.lo, knot.hi)),
            "edits": knot.n,
        }
        for name, each in bridges.items()
        for knot in each.map
    )


def _chart(run: RunData, name: str, each: FactorBridge) -> LineChart:
    seen = [knot for knot in each.map if knot.n]
    points = [
        Point(
            round(knot.new, 2),
            knot.old,
            Interval(knot.lo, knot.hi),
            not each.comparable,
        )
        for knot in seen
    ]
    low = min(knot.lo for knot in seen)
    high = max(knot.hi for knot in seen)
    margin = (high - low) * 0.1 or 0.5
    return LineChart(run.label(name), points, low - margin, high + margin)


def bridge_text(answer: Answer, form: str) -> str:
    """Return a bridge as text in one of the report's formats."""
    title = f"From {answer['new']} to {answer['old']}"
    if form == "html":
        return render(
            "lines.html",
            kicker="bridge",
            title=title,
            heading="Scores",
            lead=answer.lead,
            tables=answer.tables,
            charts=answer.charts,
            charts_heading="Each score of the old judge over the new one's",
            note="Upright lines are the 95 % band of the map; hollow marks belong to scores that are not comparable.",
        )
    rows = answer.rows or Table.listing([])
    return written(form, title, answer.lead, answer.tables, rows, answer.document)


# --- going across ---------------------------------------------------------------------------------------------

THROUGH = Option("through")
_LISTED = 3
"""Maximum number of scores whose reason a message states."""


@dataclass(frozen=True)
class Bridge:
    """A stored bridge, by which the scores of a new judge are mapped to the old one's scale."""

    name: str
    file: BridgeFile

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a bridge that `editjudge bridge -o` wrote."""
        name = one_line(str(path))
        expected = (
            "expected a file that `editjudge bridge OLD NEW -o bridge.json` wrote"
        )
        try:
            return cls(name, BridgeFile.model_validate(read_json(path.read_bytes())))
        except OSError as error:
            raise UsageError(
                f"{name}: cannot be read: {error.strerror}; {expected}",
                code="unreadable_file",
                options=[THROUGH],
            ) from None
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise UsageError(
                f"{name}: {one_line(where)}: {one_line(first['msg'])}; {expected}",
                code="invalid_bridge",
                options=[THROUGH],
            ) from None
        except (ValueError, RecursionError):
            raise UsageError(
                f"{name}: not JSON; {expected}",
                code="invalid_bridge",
                options=[THROUGH],
            ) from None

    def sides(self, a: RunData, b: RunData) -> SameRubrics:
        """Return both runs with the judges that the bridge connects. Raise `UsageError` if it does not fit them."""
        is_turned = self._judged(a, "new") and self._judged(b, "old")
        if is_turned and not self._judged(a, "old"):
            raise self._unfit(
                f"it leads from {self._named('new')} to {self._named('old')}: name the run of the old judge first, "
                f"{b.run.name} {a.run.name}",
                "wrong_direction",
            )
        return SameRubrics(self._side(a, "old"), self._side(b, "new"))

    def _judged(self, run: RunData, side: SideName) -> bool:
        return {*self.file.sides[side].judges} <= {*run.scores.slices[SPEC].present()}

    def _side(self, run: RunData, name: SideName) -> RunData:
        side = self.file.sides[name]
        name_of_run = run.run.name
        specs = run.scores.slices[SPEC].present()
        versions = {judge: run.version(judge) for judge in specs}
        if not side.judges.items() <= versions.items():
            raise self._unfit(
                f"its {name} judge is {self._named(name)}, but {name_of_run} is judged by {run.named(specs)}",
                "other_judge",
            )
        for judge in side.judges:
            ran = run.reported(judge)
            if (
                ran
                and side.reported.get(judge)
                and not {*ran} <= {*side.reported[judge]}
            ):
                raise self._unfit(
                    f"the server of {judge} ran {', '.join(ran)} in {name_of_run}, but "
                    f"{', '.join(side.reported[judge])} when the bridge was made",
                    "other_model",
                )
        rows = run.scores.slices[SPEC].where([*side.judges])
        run = deciding(replace(run, scores=run.scores.take(rows)))
        for factor in run.scores.factor.present():
            asked = side.questions.get(factor)
            if asked is not None and asked != _asked(run, factor):
                here = ", ".join(
                    f"{n} {h[:12]}" for n, h in _asked(run, factor).items()
                )
                there = ", ".join(f"{n} {h[:12]}" for n, h in asked.items())
                raise self._unfit(
                    f"{name_of_run} asks for {factor} by another rubric ({here}) than the {name} side of the bridge "
                    f"({there})",
                    "other_rubric",
                )
        return run

    def _named(self, side: SideName) -> str:
        judges = self.file.sides[side].judges.items()
        return one_line(
            ", ".join(n if v is None else f"{n} (version {v})" for n, v in judges)
        )

    def _unfit(self, problem: str, code: str) -> UsageError:
        return UsageError(
            f"{self.name} does not fit these runs: {one_line(problem)}",
            code=code,
            options=[THROUGH],
        )

    def left_out(
        self, a: RunData, b: RunData, factors: Sequence[str], wanted: Collection[str]
    ) -> dict[str, str]:
        """Return the factors that cannot be mapped, with the reason. Raise `UsageError` if none can, or if a wanted one
        is not in the bridge."""
        reasons = {}
        runs: dict[SideName, RunData] = {"old": a, "new": b}
        for factor in factors:
            here = self.file.factors.get(factor)
            if here is None:
                reasons[factor] = reason_text(Reason("bridge_missing"))
            elif not here.comparable:
                reasons[factor] = here.why or "it is not comparable"
            elif any(
                _asked(run, factor) != self.file.sides[name].questions.get(factor)
                for name, run in runs.items()
            ):
                reasons[factor] = reason_text(Reason("bridge_other_mean"))
        missing = [f for f in wanted if f not in self.file.factors]
        if missing or len(reasons) == len(factors):
            which = missing or [*reasons]
            absent = reason_text(Reason("bridge_missing"))
            text = "; ".join(
                f"{name}: {reasons.get(name, absent)}" for name in which[:_LISTED]
            )
            if len(which) > _LISTED:
                text += f"; and {len(which) - _LISTED} more"
            raise self._unfit(f"no score can be compared: {text}", "not_comparable")
        return reasons

    def mapped(self, scores: Scores) -> Scores:
        """Return scores of the new judge on the old one's scale."""
        values = scores.score.copy()
        for factor in scores.factor.present():
            rows = scores.factor.where(factor)
            values[rows] = statistics.mapped(
                self.file.factors[factor].map, scores.score[rows]
            )
        return replace(scores, score=values)

    def errors(self, scores: Scores) -> dict[str, AddedError]:
        """Return the error of the map for the mean of each factor's scores, before they are mapped."""
        errors = {}
        for factor in scores.factor.present():
            here = self.file.factors[factor]
            errors[factor] = statistics.map_error(
                here.map,
                scores.where(factor=factor).score,
                here.model_error,
                here.models,
            )
        return errors

    def beyond(self, scores: Scores) -> int:
        """Return the number of scores that are lower or higher than every score in the bridge."""
        outside = 0
        for factor in scores.factor.present():
            seen = [knot.new for knot in self.file.factors[factor].map if knot.n]
            values = scores.where(factor=factor).score
            outside += int(np.sum((values < min(seen)) | (values > max(seen))))
        return outside
