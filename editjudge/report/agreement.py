"""What `agree` says: judges against people, what people reach among themselves, and what a judge can be made into."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from editjudge.report.tables import Cell, Figure, Table, between, noted
from editjudge.rubrics.files import SETS
from editjudge.rubrics.files import load as load_rubric
from editjudge.stats.agreement import Agreement, JudgeAgreement, agree
from editjudge.stats.bootstrap import Ends
from editjudge.stats.calibration import PoweredEstimate, ScaleCalibration, calibrate, powered_mean
from editjudge.stats.ceiling import Ceiling
from editjudge.stats.columns import Floats, Ratings, Scores, ends_of, item_means
from editjudge.stats.statistic import plain
from editjudge.stats.summary import Aggregate, aggregate

PEOPLE = "(one person)"
"""Stands among the judges: each rater against the mean of the others."""
ENDS = {"top": "highest", "floor": "lowest"}
OTHER_SCALE = "scores lie outside"
"""How the note begins of scores that distances from ratings say nothing about; those rows are not shown."""
FITTED = (
    "measured was fitted to people's quality ratings of ImagenHub's edits: on those pictures its agreement "
    "is in-sample and too good; docs/measured.md has held-out figures"
)
"""Nothing tells which pictures these are, so it is said wherever that judge is."""
SHOWN_RATERS = 12
"""Raters of a factor that people are shown, those who agree least first; JSON has all."""

_CONCLUSIONS = 4
"""Judges with a sentence each above the tables."""


@dataclass(frozen=True, eq=False)
class AgreementReport:
    """Everything that `agree` found."""

    factors: Agreement
    groups: Agreement | None
    """The same for the mean of each published group of factors, where people and judges have all of them."""
    with_guessed: Agreement | None
    """As it would be with the scores that the source made up, where there are any."""
    calibration: Mapping[str, Mapping[str, ScaleCalibration]] | None
    estimates: Mapping[str, Mapping[str, Mapping[str, PoweredEstimate]]] | None

    def as_json(self) -> dict[str, Any]:
        document = self.factors.as_json()
        if self.groups:
            document["groups"] = self.groups.as_json()
        if self.with_guessed:
            document["with_guessed"] = plain(self.with_guessed.factors)
        if self.calibration is not None:
            document["calibration"] = plain(self.calibration)
        if self.estimates is not None:
            document["estimates"] = plain(self.estimates)
        return document


def agreed(
    ratings: Ratings,
    scores: Scores,
    *,
    with_guessed: Scores | None = None,
    scales: Mapping[str, Sequence[float]] | None = None,
    continuous: Container[str] = (),
    calibrating: bool = False,
    estimating: bool = False,
) -> AgreementReport:
    grouped = _grouped(ratings, scores)
    each = {
        factor: {
            judge: _Joint.of(ratings, scores, factor, judge) for judge in scores.where(factor=factor).judge.present()
        }
        for factor in scores.factor.present()
        if (calibrating or estimating) and factor in ratings.factor.present()
    }
    return AgreementReport(
        agree(ratings, scores, scales=scales, continuous=continuous),
        agree(*grouped) if grouped else None,
        # Only its figures are shown beside the others, so its intervals need no precision.
        agree(ratings, with_guessed, scales=scales, draws=100) if with_guessed else None,
        {f: {j: joint.calibration() for j, joint in judges.items()} for f, judges in each.items()}
        if calibrating
        else None,
        {
            f: {j: joint.estimates(ends_of((scales or {}).get(f))) for j, joint in judges.items()}
            for f, judges in each.items()
        }
        if estimating
        else None,
    )


@dataclass(frozen=True, eq=False)
class _Joint:
    """One factor of one judge: its mean score of every item, people's where they rated, model and source image."""

    judge: Floats
    human: Floats
    model: tuple[str, ...]
    group: tuple[str, ...]

    @classmethod
    def of(cls, ratings: Ratings, scores: Scores, factor: str, judge: str) -> _Joint:
        part = scores.where(factor=factor, judge=judge)
        item = part.item.compact()
        rated = ratings.where(factor=factor)
        means = dict(zip(rated.item.labels, item_means(rated.item, rated.score), strict=True))
        origin = dict(zip(part.item, zip(part.model, part.group, strict=True), strict=True))
        return cls(
            item_means(item, part.score),
            np.array([means.get(label, np.nan) for label in item.labels], dtype=float),
            tuple(origin[label][0] for label in item.labels),
            tuple(origin[label][1] for label in item.labels),
        )

    def calibration(self) -> ScaleCalibration:
        return calibrate(self.judge, self.human, group=self.group)

    def estimates(self, ends: Ends | None) -> dict[str, PoweredEstimate]:
        """`ends` of the scale of people and judge alike; none where ratings lie outside of it."""
        rated = self.human[np.isfinite(self.human)]
        if ends and len(rated) and not ends[0] <= rated.min() <= rated.max() <= ends[1]:
            ends = None
        estimates = {}
        for model in dict.fromkeys(self.model):
            rows = [i for i, name in enumerate(self.model) if name == model]
            estimates[model] = powered_mean(
                self.judge[rows], self.human[rows], group=[self.group[i] for i in rows], ends=ends
            )
        return estimates


def _grouped(ratings: Ratings, scores: Scores) -> tuple[Ratings, Scores] | None:
    """Ratings and scores of the published groups of factors, or None where no group is complete on both sides."""
    rated = ratings.factor.present()
    groups = [Aggregate(name, tuple(f.key for f in load_rubric(name).factors)) for name in SETS["online"]]
    scored = scores.factor.present()  # where people rated a group itself, judges are compared with that
    groups = [
        one for one in groups if one.name not in rated and {*one.factors} <= {*rated} and {*one.factors} <= {*scored}
    ]
    if not groups:
        return None
    people = Scores.of(ratings.item, ratings.factor, ratings.score, judge=ratings.rater)
    names = [one.name for one in groups]
    means = aggregate(people, groups).where(factor=names)
    return Ratings.of(means.item, means.judge, means.factor, means.score), aggregate(scores, groups).where(factor=names)


# --- tables ---------------------------------------------------------------------------------------------------


def tables(report: AgreementReport) -> list[Table]:
    judges = {judge.partition("@")[0] for by in report.factors.factors.values() for judge in by}
    notes = (FITTED,) if "measured" in judges else ()
    parts = [_agreement(report.factors, "Agreement with people's mean rating, one pair per item", notes)]
    parts += [_guesses(report)] if report.with_guessed else []
    parts += [_agreement(report.groups, "The same for the mean of each group of factors")] if report.groups else []
    parts += [*_errors(report.factors), _ceilings(report.factors.humans), _treated(report.factors.humans)]
    parts += [_raters(report.factors.humans)]
    parts += [_calibrations(report.calibration)] if report.calibration else []
    parts += [_estimates(report.estimates)] if report.estimates else []
    return [*parts, _halo(report.factors)]


def conclusions(report: AgreementReport) -> list[str]:
    """A sentence for each of a few judges: Spearman with the mean of people, factor by factor, and of one person."""
    judges: dict[str, list[str]] = {}
    for factor, human in report.factors.humans.items():
        for judge, one in report.factors.factors.get(factor, {}).items():
            if one.spearman is not None:
                ci, person = one.ci.get("spearman"), one.people if one.unscored else human.loo_spearman
                words = f"{factor} {one.spearman:.2f}" + (f" [{ci.lo:.2f}, {ci.hi:.2f}]" if ci else "")
                words += "" if person is None else f" (one person {person:.2f})"
                judges.setdefault(judge, []).append(words + (", no evidence" if ci and ci.lo <= 0 <= ci.hi else ""))
    # The lines of more judges would push the table, which compares them, off the screen.
    sentences = [f"{judge} and people, Spearman: {'; '.join(words)}" for judge, words in judges.items()]
    return sentences if len(sentences) <= _CONCLUSIONS else []


def _agreement(agreement: Agreement, caption: str, more: tuple[str, ...] = ()) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for factor, human in agreement.humans.items():
        ci = human.ci.get("loo_spearman")
        loo = Figure(human.loo_spearman, ci)
        rows.append((factor, PEOPLE, human.items, None, loo, None, human.loo_pearson, None, None, None, None))
        rows += [(factor, judge, *_correlations(one)) for judge, one in agreement.factors.get(factor, {}).items()]
    columns = ("factor", "judge", "n", "no score", "Spearman", "ceiling", "Pearson", "Kendall", "within model",
               "system", "bounds")  # fmt: skip
    notes = [f"{PEOPLE}: each rater against the mean of the others, the ceiling that a judge is read against"]
    if unrated := [factor for factor in agreement.factors if factor not in agreement.humans]:
        notes.append(f"nobody rated {', '.join(unrated)}")
    legend = {
        "no score": "rated items that the judge has no score of: it failed, abstained, or was not asked",
        "ceiling": f"{PEOPLE} over only those items that the judge scored, where they are not all",
        "within model": "mean over editing models, where knowing the model does not help",
        "system": "over the means of models",
        "bounds": "Spearman with failed scores filled in to lower it most and to raise it most; others may reach "
        "further where --json says that not every fill was tried",
    }
    several = any(one.within_model.models > 1 for judges in agreement.factors.values() for one in judges.values())
    table = Table.of(columns, rows, f"{caption}, 95 % CI", notes=(*more, *notes, *_notes(agreement)), stub=2,
                     spare=("Kendall", "Pearson", "system"), legend=legend)  # fmt: skip
    return (table if several else table.without("within model")).trimmed("no score", "ceiling", "system", "bounds")


def _correlations(one: JudgeAgreement) -> tuple[Cell, ...]:
    within = one.within_model
    return (
        one.n, one.unscored or None, Figure(one.spearman, one.ci.get("spearman")),
        one.people if one.unscored else None, one.pearson, one.kendall,
        Figure(within.spearman, within.ci.get("spearman")), one.system.spearman,
        between(one.bounds, 2) if one.failed else None,
    )  # fmt: skip


def _notes(agreement: Agreement) -> Iterable[str]:
    return noted({
        f"{factor} by {judge}": (
            *(note for note in one.notes if not note.startswith(OTHER_SCALE)),
            *((f"no 95 % CI of Spearman: {why}",) if (why := one.ci_reason.get("spearman")) and one.n else ()),
            *((f"{one.failed} failed scores could overturn this",) if one.overturnable else ()),
            *(one.within_model.notes if one.within_model.models > 1 else ()),
        )
        for factor, judges in agreement.factors.items()
        if factor in agreement.humans
        for judge, one in judges.items()
    })  # fmt: skip


def _errors(agreement: Agreement) -> list[Table]:
    """How far off, where judge and people use the same scale; elsewhere that is not a question."""
    rows: list[tuple[Cell, ...]] = []
    for factor, judges in agreement.factors.items():
        for judge, one in judges.items():
            if one.n and not any(note.startswith(OTHER_SCALE) for note in one.notes):
                mae, bias = Figure(one.mae, one.ci.get("mae")), Figure(one.bias, one.ci.get("bias"), sign=True)
                rows.append((factor, judge, one.qwk, mae, bias, one.exact, one.within_one, one.top, one.floor))
    columns = ("factor", "judge", "QWK", "MAE", "bias", "exact", "within 1", "at top", "at floor")
    legend = {
        "QWK": "quadratic-weighted kappa",
        "MAE": "mean absolute error",
        "bias": "judge minus people",
        "exact": "share less than half a step of people's scale apart",
        **{f"at {end}": f"share of the judge's scores at its {word}" for end, word in ENDS.items()},
    }
    caption = "Distance from people, on their scale"
    return [Table.of(columns, rows, caption, stub=2, spare=("at floor", "exact"), legend=legend)] if rows else []


def _ceilings(humans: Mapping[str, Ceiling]) -> Table:
    rows = [
        (
            factor, h.raters, h.items, h.alpha_nominal, h.alpha_ordinal, h.alpha_interval, h.fleiss, h.icc1, h.icc2k,
            h.top, h.floor,
        )
        for factor, h in humans.items()
    ]  # fmt: skip
    columns = ("factor", "raters", "items", "a nominal", "a ordinal", "a interval", "Fleiss", "ICC(1)", "ICC(2,k)",
               "at top", "at floor")  # fmt: skip
    notes = [f"{factor}: {note}" for factor, h in humans.items() for note in h.notes]
    notes.append("a: Krippendorff's alpha")
    legend = {f"at {end}": f"share of ratings at the {word} value given" for end, word in ENDS.items()}
    spare = ("at floor", "at top")
    return Table.of(columns, rows, "People among themselves", notes=tuple(notes), spare=spare, legend=legend)


def _treated(humans: Mapping[str, Ceiling]) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (factor, name.replace("_", " "), v.raters, v.alpha_interval, v.loo_spearman)
        for factor, h in humans.items()
        for name, v in h.variants.items()
    ]
    columns = ("factor", "ratings", "raters", "a interval", "one against the rest")
    return Table.of(columns, rows, "What treating the ratings does to the ceiling", stub=2)


def _raters(humans: Mapping[str, Ceiling]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    more = 0
    for factor, h in humans.items():
        ordered = sorted(h.rater_quality.items(), key=lambda pair: pair[1].spearman_with_rest or -2.0)
        more += max(0, len(ordered) - SHOWN_RATERS)
        rows += [
            (
                factor, name, r.n, r.mean, r.sd, r.commonest, r.spearman_with_rest, r.alpha_without,
                "straight-lines" if r.straight_lining else "",
            )
            for name, r in ordered[:SHOWN_RATERS]
        ]  # fmt: skip
    columns = ("factor", "rater", "n", "mean", "sd", "commonest", "with rest", "a without", "")
    notes = ["with rest: Spearman with the mean of the others; a without: interval alpha of the others"]
    notes += [f"{more:,} more raters, who agree better; --json has all"] if more else []
    return Table.of(columns, rows, "Raters, least agreeing first", notes=tuple(notes), stub=2).trimmed("")


def _guesses(report: AgreementReport) -> Table:
    """What the scores that the source made up would change."""
    rows: list[tuple[Cell, ...]] = []
    for factor, judges in (report.with_guessed.factors if report.with_guessed else {}).items():
        for judge, other in judges.items():
            one = report.factors.factors[factor][judge]
            if other.n != one.n:
                change = None
                if one.spearman is not None and other.spearman is not None:
                    change = other.spearman - one.spearman
                counts = one.n, other.n - one.n
                rows.append((factor, judge, *counts, one.spearman, other.spearman, Figure(change, sign=True)))
    columns = ("factor", "judge", "n", "guessed", "Spearman", "with guesses", "change")
    caption = "Guessed scores, which are left out of every other table, and what they would change"
    return Table.of(columns, rows, caption, stub=2)


def _calibrations(calibrations: Mapping[str, Mapping[str, ScaleCalibration]]) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (
            factor, judge, c.n, c.groups, c.mae_raw, c.mae_calibrated, c.mae_constant,
            Figure(c.bias_raw, sign=True), Figure(c.bias_calibrated, sign=True),
        )
        for factor, judges in calibrations.items()
        for judge, c in judges.items()
    ]  # fmt: skip
    columns = ("factor", "judge", "n", "images", "MAE raw", "MAE mapped", "MAE constant", "bias raw", "bias mapped")
    notes = [f"{f} by {j}: {note}" for f, judges in calibrations.items() for j, c in judges.items() for note in c.notes]
    notes.append("mapped: a non-decreasing map onto people's scale, errors on source images that it has not seen; "
                 "one that does not beat the constant is of no use. --json has the maps")  # fmt: skip
    return Table.of(columns, rows, "Calibration onto people's scale", notes=tuple(notes), stub=2, spare=("images",))


def _estimates(estimates: Mapping[str, Mapping[str, Mapping[str, PoweredEstimate]]]) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (
            factor, judge, model, p.rated, p.scored_only, Figure(p.human_mean, p.human_ci), Figure(p.mean, p.ci),
            Figure(p.saved, text=None if p.saved is None else f"{p.saved:.0f}"),
        )
        for factor, judges in estimates.items()
        for judge, models in judges.items()
        for model, p in models.items()
        if p.scored_only
    ]  # fmt: skip
    columns = ("factor", "judge", "model", "rated", "unrated", "people alone", "with the judge", "saved")
    reasons = dict.fromkeys(note for judges in estimates.values() for models in judges.values() for p in models.values()
                         for note in (*p.notes, *((p.ci_reason,) if p.ci_reason else ())))  # fmt: skip
    saved = "saved: ratings that people alone would have needed beyond those they gave, for as short an interval"
    caption = "People's mean, estimated from few ratings and many scores"
    table = Table.of(columns, rows, caption, notes=(*reasons, saved), stub=3, spare=("unrated",))
    return table.folded("judge", "model") if rows else table


def _halo(agreement: Agreement) -> Table:
    rows = [("people", agreement.halo.people), *agreement.halo.judges.items()]
    caption = "Halo: mean Spearman between factors; near 1, all factors are one impression"
    return Table.of(("who", "between factors"), rows, caption)
