"""Reports of `agree`: judges against people, what people reach among themselves, and what a judge can be made into.

Readers are given an estimate only with its 95 % interval; JSON has every figure, and why it has no interval.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from editjudge.errors import InputError, Option, UsageError, near_miss
from editjudge.ratings import Origin, Rating, ratings_columns, read_ratings
from editjudge.report.run_data import RunData
from editjudge.report.tables import (
    Cell,
    Figure,
    Table,
    between,
    clean,
    figure_text,
    noted,
)
from editjudge.report.words import plain, words
from editjudge.rubrics.files import SETS
from editjudge.rubrics.files import load as load_rubric
from editjudge.stats.agreement import OTHER_SCALE, Agreement, JudgeAgreement, agree
from editjudge.stats.calibration import (
    PoweredEstimate,
    ScaleCalibration,
    calibrate,
    powered_mean,
)
from editjudge.stats.ceiling import SHOWN_RATERS, Ceiling, FurtherRater
from editjudge.stats.columns import (
    Ends,
    Floats,
    Interval,
    Ratings,
    Scores,
    ends_of,
    item_means,
)
from editjudge.stats.summary import Aggregate, aggregate
from editjudge.store.ratings import count_ratings, ratings_of
from editjudge.store.store import Store

PEOPLE = "(a further rater)"
"""Stands among the judges: what one more person would reach against the mean of those who rated."""
ENDS = {"top": "highest", "floor": "lowest"}
FITTED = (
    "measured was fitted to people's quality ratings of ImagenHub's edits: on those pictures its agreement "
    "is in-sample and too good; docs/measured.md has held-out figures"
)
"""Nothing tells which pictures these are, so it is said wherever that judge is."""
_CONCLUSIONS = 4
"""Judges with a sentence each above the tables."""


@dataclass(frozen=True, eq=False)
class AgreementReport:
    """Everything that `agree` found."""

    factors: Agreement
    groups: Agreement | None
    """The same for the mean of each published group of factors, where people and judges have all of them."""
    with_guessed: Agreement | None
    """Agreement with the scores that the source made up, where there are any."""
    calibration: Mapping[str, Mapping[str, ScaleCalibration]] | None
    estimates: Mapping[str, Mapping[str, Mapping[str, PoweredEstimate]]] | None

    def as_json(self) -> dict[str, Any]:
        document: dict[str, Any] = plain(self.factors)
        if self.groups:
            document["groups"] = plain(self.groups)
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
            judge: _Joint.of(ratings, scores, factor, judge)
            for judge in scores.where(factor=factor).judge.present()
        }
        for factor in scores.factor.present()
        if (calibrating or estimating) and factor in ratings.factor.present()
    }
    return AgreementReport(
        agree(ratings, scores, scales=scales, continuous=continuous),
        agree(*grouped) if grouped else None,
        # Only its figures are shown beside the others, so its intervals need no precision.
        agree(ratings, with_guessed, scales=scales, draws=100)
        if with_guessed
        else None,
        {
            f: {j: joint.calibration() for j, joint in judges.items()}
            for f, judges in each.items()
        }
        if calibrating
        else None,
        {
            f: {
                j: joint.estimates(ends_of((scales or {}).get(f)))
                for j, joint in judges.items()
            }
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
        means = dict(
            zip(rated.item.labels, item_means(rated.item, rated.score), strict=True)
        )
        origin = dict(
            zip(part.item, zip(part.model, part.group, strict=True), strict=True)
        )
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
                self.judge[rows],
                self.human[rows],
                group=[self.group[i] for i in rows],
                ends=ends,
            )
        return estimates


def _grouped(ratings: Ratings, scores: Scores) -> tuple[Ratings, Scores] | None:
    """Ratings and scores of the published groups of factors, or None where no group is complete on both sides."""
    rated = ratings.factor.present()
    groups = [
        Aggregate(name, tuple(f.key for f in load_rubric(name).factors))
        for name in SETS["online"]
    ]
    # where people rated a group itself, judges are compared with that
    scored = scores.factor.present()
    groups = [
        one
        for one in groups
        if one.name not in rated
        and {*one.factors} <= {*rated}
        and {*one.factors} <= {*scored}
    ]
    if not groups:
        return None
    people = Scores.of(ratings.item, ratings.factor, ratings.score, judge=ratings.rater)
    names = [one.name for one in groups]
    means = aggregate(people, groups).where(factor=names)
    return Ratings.of(means.item, means.judge, means.factor, means.score), aggregate(
        scores, groups
    ).where(factor=names)


# --- tables ---------------------------------------------------------------------------------------------------


def tables(report: AgreementReport) -> list[Table]:
    judges = {
        judge.partition("@")[0]
        for by in report.factors.factors.values()
        for judge in by
    }
    notes = (FITTED,) if "measured" in judges else ()
    parts = [
        _agreement(
            report.factors,
            "Agreement with people's mean rating, one pair per item",
            notes,
        )
    ]
    parts += [_guesses(report)] if report.with_guessed else []
    parts += (
        [_agreement(report.groups, "The same for the mean of each group of factors")]
        if report.groups
        else []
    )
    parts += [
        *_errors(report.factors),
        _among_people(report.factors.humans),
        _raters(report.factors.humans),
    ]
    parts += [_calibrations(report.calibration)] if report.calibration else []
    parts += [_estimates(report.estimates)] if report.estimates else []
    return [*parts, *_halo(report.factors)]


def conclusions(report: AgreementReport) -> list[str]:
    """Return a sentence for each of a few judges: Spearman with the mean of people, factor by factor.

    Each figure stands with its number of edits and its interval. Where there is no interval, the reason stands instead.
    """
    judges: dict[str, list[str]] = {}
    for factor in report.factors.humans:
        for judge, one in report.factors.factors.get(factor, {}).items():
            ci = one.ci.get("spearman")
            if ci is not None:
                judges.setdefault(judge, []).append(_conclusion(factor, one, ci))
    lines = [
        f"{judge} and people's mean, Spearman [95 % CI]: {'; '.join(parts)}"
        for judge, parts in judges.items()
    ]
    # The lines of more judges would push the table, which compares them, off the screen.
    return [*(lines if len(lines) <= _CONCLUSIONS else []), *_silences(report)]


def _conclusion(factor: str, one: JudgeAgreement, ci: Interval) -> str:
    text = f"{factor} {figure_text(one.spearman, ci, digits=2)}, n = {one.n:,}"
    if ci.lo <= 0 <= ci.hi:
        text += ", no evidence of agreement"
    standing = one.against_further_rater
    if standing.verdict is None or one.further_rater is None:
        return text
    person = figure_text(
        one.further_rater.spearman, one.further_rater.ci.get("spearman"), digits=2
    )
    places = {
        "below": "below",
        "above": "above",
        "not told apart": "not told apart from",
    }
    return f"{text}, {places[standing.verdict]} a further rater ({person})"


def _silences(report: AgreementReport) -> list[str]:
    """Return why there are no figures, once for all factors and judges that it is true of."""
    about: dict[tuple[int, str], dict[str, None]] = {}
    for factor in report.factors.humans:
        for one in report.factors.factors.get(factor, {}).values():
            reason = one.ci_reason.get("spearman")
            if one.n and one.ci.get("spearman") is None and reason:
                about.setdefault((one.n, words(reason)), {})[factor] = None
    return [
        f"No correlation is shown for {', '.join(factors)}: n = {n:,}; {reason}. JSON has the bare figures."
        for (n, reason), factors in about.items()
    ]


def _estimate(
    value: float | None, ci: Interval | None, *, sign: bool = False
) -> Figure:
    """Return a figure with its interval, or an empty cell where there is none."""
    return Figure(None) if ci is None else Figure(value, ci, sign=sign)


def _agreement(agreement: Agreement, caption: str, more: tuple[str, ...] = ()) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for factor, human in agreement.humans.items():
        if human.further_rater.ci.get("spearman"):
            rows.append((factor, PEOPLE, *_further_cells(human.further_rater)))
        rows += [
            (factor, judge, *_correlations(one))
            for judge, one in agreement.factors.get(factor, {}).items()
        ]
    columns = ("factor", "judge", "n", "no score", "Spearman", "vs rater", "Pearson", "Kendall", "within model",
               "system", "bounds")  # fmt: skip
    notes = [*_about_further_rater(agreement.humans)]
    if unrated := [
        factor for factor in agreement.factors if factor not in agreement.humans
    ]:
        notes.append(f"nobody rated {', '.join(unrated)}")
    legend = {
        "no score": "rated items that the judge has no score of: it failed, abstained, or was not asked",
        "vs rater": f"Spearman minus that of {PEOPLE}, both over the items that the judge scored; it is told apart "
        "from a rater only where the interval excludes 0",
        "within model": "mean over editing models, where knowing the model does not help",
        "system": "over the means of models",
        "bounds": "Spearman with failed scores filled in to lower it most and to raise it most; others may reach "
        "further where JSON says that not every fill was tried",
    }
    several = any(
        one.within_model.models > 1
        for judges in agreement.factors.values()
        for one in judges.values()
    )
    table = Table.of(columns, rows, f"{caption}, 95 % CI", notes=(*more, *notes, *_notes(agreement)), stub=2,
                     spare=("Kendall", "Pearson", "system"), legend=legend)  # fmt: skip
    if not several:
        table = table.without("within model")
    return table.trimmed(
        "no score", "vs rater", "Pearson", "Kendall", "system", "bounds"
    )


def _further_cells(person: FurtherRater) -> tuple[Cell, ...]:
    spearman = _estimate(person.spearman, person.ci.get("spearman"))
    pearson = _estimate(person.pearson, person.ci.get("pearson"))
    return (person.items, None, spearman, None, pearson, None, None, None, None)


def _about_further_rater(humans: Mapping[str, Ceiling]) -> Iterable[str]:
    """Yield what the row is, and for which factors there is none."""
    numbers = {
        f"{one.further_rater.raters:.3g}"
        for one in humans.values()
        if one.further_rater.ci.get("spearman")
    }
    if numbers:
        raters = " or ".join(sorted(numbers))
        yield (
            f"{PEOPLE}: what one more person would reach against the mean of the {raters} who rated an item; an "
            "estimate from each rater against the others, which alone is of one rater less"
        )
    about: dict[str, list[str]] = {}
    for factor, one in humans.items():
        if one.further_rater.reason:
            about.setdefault(words(one.further_rater.reason), []).append(factor)
    for reason, factors in about.items():
        yield f"no row {PEOPLE} for {', '.join(factors)}: {reason}"


def _correlations(one: JudgeAgreement) -> tuple[Cell, ...]:
    within = one.within_model
    standing = one.against_further_rater
    figures = {
        name: _estimate(getattr(one, name), one.ci.get(name))
        for name in ("spearman", "pearson", "kendall")
    }
    bounded = one.failed and one.ci.get("spearman") is not None
    return (
        one.n,
        one.unscored or None,
        figures["spearman"],
        _estimate(standing.difference, standing.ci, sign=True),
        figures["pearson"],
        figures["kendall"],
        _estimate(within.spearman, within.ci.get("spearman")),
        _estimate(one.system.spearman, one.system.ci.get("spearman")),
        between(one.bounds, 2) if bounded else None,
    )


def _notes(agreement: Agreement) -> Iterable[str]:
    return noted({
        f"{factor} by {judge}": (
            *(words(note) for note in one.notes if note != OTHER_SCALE),
            *((f"no Spearman is shown: {words(why)}",) if (why := one.ci_reason.get("spearman")) and one.n else ()),
            *((f"{one.failed} failed scores could overturn this",) if one.overturnable else ()),
            *(map(words, one.within_model.notes) if one.within_model.models > 1 else ()),
        )
        for factor, judges in agreement.factors.items()
        if factor in agreement.humans
        for judge, one in judges.items()
    })  # fmt: skip


def _errors(agreement: Agreement) -> list[Table]:
    """How far off, where judge and people use the same scale; elsewhere that is not a question."""
    rows: list[tuple[Cell, ...]] = []
    reasons: dict[str, tuple[str, ...]] = {}
    for factor, judges in agreement.factors.items():
        for judge, one in judges.items():
            if one.n and OTHER_SCALE not in one.notes:
                rows.append((factor, judge, *_distances(one)))
                why = one.ci_reason.get("mae")
                reasons[f"{factor} by {judge}"] = (
                    (f"no MAE is shown: {words(why)}",) if why else ()
                )
    columns = (
        "factor",
        "judge",
        "n",
        "QWK",
        "MAE",
        "bias",
        "exact",
        "within 1",
        "at top",
        "at floor",
    )
    legend = {
        "QWK": "quadratic-weighted kappa",
        "MAE": "mean absolute error",
        "bias": "judge minus people",
        "exact": "share less than half a step of people's scale apart",
        **{
            f"at {end}": f"share of the judge's scores at its {word}"
            for end, word in ENDS.items()
        },
    }
    caption = "Distance from people, on their scale, 95 % CI"
    spare = ("at floor", "at top", "exact", "within 1")
    table = Table.of(
        columns,
        rows,
        caption,
        notes=tuple(noted(reasons)),
        stub=2,
        spare=spare,
        legend=legend,
    )
    return [table.trimmed("QWK")] if rows else []


def _distances(one: JudgeAgreement) -> tuple[Cell, ...]:
    return (
        one.n,
        _estimate(one.qwk, one.ci.get("qwk")),
        _estimate(one.mae, one.ci.get("mae")),
        _estimate(one.bias, one.ci.get("bias"), sign=True),
        _estimate(one.exact, one.ci.get("exact")),
        _estimate(one.within_one, one.ci.get("within_one")),
        one.top,
        one.floor,
    )


def _among_people(humans: Mapping[str, Ceiling]) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (
            factor,
            h.raters,
            h.items,
            h.shared,
            _estimate(h.alpha_interval, h.ci.get("alpha_interval")),
            _estimate(h.icc1, h.ci.get("icc1")),
            _estimate(h.loo_spearman, h.ci.get("loo_spearman")),
            h.top,
            h.floor,
        )
        for factor, h in humans.items()
    ]
    columns = (
        "factor",
        "raters",
        "items",
        "shared",
        "alpha",
        "ICC(1)",
        "one vs rest",
        "at top",
        "at floor",
    )
    notes = [
        f"{factor}: {words(note)}" for factor, h in humans.items() for note in h.notes
    ]
    legend = {
        "shared": "items that two or more people rated",
        "alpha": "Krippendorff's, interval: 1 is perfect agreement, 0 is chance",
        "ICC(1)": "the share of the spread of single ratings that is between items",
        "one vs rest": "Spearman of each rater with the mean of the others, averaged",
        **{
            f"at {end}": f"share of ratings at the {word} value given"
            for end, word in ENDS.items()
        },
    }
    caption = "People among themselves, 95 % CI"
    spare = ("at floor", "at top")
    table = Table.of(
        columns, rows, caption, notes=tuple(notes), spare=spare, legend=legend
    )
    return table.trimmed("alpha", "ICC(1)", "one vs rest")


def _raters(humans: Mapping[str, Ceiling]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    more = 0
    for factor, h in humans.items():
        ordered = sorted(
            h.rater_quality.items(), key=lambda pair: pair[1].spearman_with_rest or -2.0
        )
        more += max(0, len(ordered) - SHOWN_RATERS)
        for name, r in ordered[:SHOWN_RATERS]:
            with_rest = _estimate(r.spearman_with_rest, r.ci)
            flag = "straight-lines" if r.straight_lining else ""
            rows.append(
                (
                    factor,
                    name,
                    r.n,
                    r.shared,
                    r.mean,
                    r.sd,
                    r.commonest,
                    with_rest,
                    flag,
                )
            )
    columns = (
        "factor",
        "rater",
        "n",
        "shared",
        "mean",
        "sd",
        "commonest",
        "with rest",
        "",
    )
    notes = [f"{more:,} more raters, who agree better; JSON has all"] if more else []
    legend = {
        "shared": "items that somebody else rated, too",
        "commonest": "share of this rater's ratings that have the commonest value",
        "with rest": "Spearman with the mean of the others, 95 % CI",
    }
    table = Table.of(
        columns,
        rows,
        "Raters, least agreeing first",
        notes=tuple(notes),
        stub=2,
        legend=legend,
    )
    return table.trimmed("with rest", "")


def _guesses(report: AgreementReport) -> Table:
    """Show what the scores that the source made up would change."""
    rows: list[tuple[Cell, ...]] = []
    for factor, judges in (
        report.with_guessed.factors if report.with_guessed else {}
    ).items():
        for judge, other in judges.items():
            one = report.factors.factors[factor][judge]
            if other.n != one.n and one.ci.get("spearman") is not None:
                change = None
                if one.spearman is not None and other.spearman is not None:
                    change = other.spearman - one.spearman
                counts = one.n, other.n - one.n
                rows.append(
                    (
                        factor,
                        judge,
                        *counts,
                        one.spearman,
                        other.spearman,
                        Figure(change, sign=True),
                    )
                )
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
    columns = (
        "factor",
        "judge",
        "n",
        "images",
        "MAE raw",
        "MAE mapped",
        "MAE constant",
        "bias raw",
        "bias mapped",
    )
    notes = [
        f"{f} by {j}: {words(note)}"
        for f, judges in calibrations.items()
        for j, c in judges.items()
        for note in c.notes
    ]
    notes.append("mapped: a non-decreasing map onto people's scale, errors on source images that it has not seen; "
                 "one that does not beat the constant is of no use. JSON has the maps")  # fmt: skip
    return Table.of(
        columns,
        rows,
        "Calibration onto people's scale",
        notes=tuple(notes),
        stub=2,
        spare=("images",),
    )


def _estimates(
    estimates: Mapping[str, Mapping[str, Mapping[str, PoweredEstimate]]],
) -> Table:
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
    columns = (
        "factor",
        "judge",
        "model",
        "rated",
        "unrated",
        "people alone",
        "with the judge",
        "saved",
    )
    every = [
        estimate
        for judges in estimates.values()
        for models in judges.values()
        for estimate in models.values()
    ]
    reasons = {note: None for one in every for note in (*one.notes, one.ci_reason)}
    saved = "saved: ratings that people alone would have needed beyond those they gave, for as short an interval"
    caption = "People's mean, estimated from few ratings and many scores"
    table = Table.of(
        columns,
        rows,
        caption,
        notes=(*(words(note) for note in reasons if note), saved),
        stub=3,
        spare=("unrated",),
    )
    return table.folded("judge", "model") if rows else table


def _halo(agreement: Agreement) -> list[Table]:
    halo = agreement.halo
    rows = [("people", _estimate(halo.people, halo.people_ci))]
    rows += [
        (judge, _estimate(value, halo.judges_ci[judge]))
        for judge, value in halo.judges.items()
    ]
    caption = "Halo: mean Spearman between factors, 95 % CI; near 1, all factors are one impression"
    table = Table.of(("who", "between factors"), rows, caption).trimmed(
        "between factors"
    )
    return [table] if len(table.columns) > 1 else []


_USUAL = {"SC": "fidelity", "PQ": "quality"}
"""Names by which ImagenHub and its successors call semantic consistency and perceptual quality."""


def stored_agreement(
    judged: RunData, store: Store, mappings: Sequence[str]
) -> tuple[AgreementReport | None, str]:
    """Agreement with the ratings of the store on factors of the run; and a sentence on ratings of other factors."""
    factors = (*judged.scores.factor.present(), *judged.sums())
    ratings = ratings_columns(Rating(*row[:4]) for row in ratings_of(store, judged.run))
    ratings = renamed(ratings, mappings, factors)
    shared = [name for name in ratings.factor.present() if name in factors]
    others = [name for name in ratings.factor.present() if name not in factors]
    unmatched = ""
    if others:
        n = len(ratings.where(factor=others))
        unmatched = f"The store has {n:,} ratings of these edits under {', '.join(others)}, which no rubric of this run has"
        unmatched += (
            f". Map them with --as, such as {such_as(others, factors)}."
            if factors
            else "."
        )
    if not shared:
        return None, unmatched
    scores, _ = judged.with_aggregates(shared)
    scales = judged.all_scales()
    continuous = judged.continuous | {*judged.sums()}
    return agreed(
        ratings.where(factor=shared), scores, scales=scales, continuous=continuous
    ), unmatched


def renamed(
    ratings: Ratings, mappings: Sequence[str], factors: Sequence[str]
) -> Ratings:
    """Ratings under the judges' factor names, by `--as PEOPLE=FACTOR`. One rated factor may map to several."""
    pairs = [text.rpartition("=")[::2] for text in mappings]
    rated = ratings.factor.present()
    for people, factor in pairs:
        problem = ""
        if not people or not factor:
            problem = "expected PEOPLE=FACTOR, such as PQ=quality"
        elif people not in rated:
            problem = f'nobody rated "{people}"{near_miss(people, rated)}'
        elif factor not in factors:
            problem = f'judges have no "{factor}"{near_miss(factor, factors)}'
        if problem:
            mapping = Option("as", {people: factor}, "called")
            raise UsageError(f"{mapping}: {problem}", options=[mapping])
    pairs += [(name, name) for name in rated if name not in dict(pairs)]
    if twice := [
        name for name, n in Counter(factor for _, factor in pairs).items() if n > 1
    ]:
        raise UsageError(
            f"--as: two of people's factors cannot both be {twice[0]}",
            options=[Option("as", argument="called")],
        )
    parts = [(ratings.where(factor=people), factor) for people, factor in pairs]
    columns = [
        [x for part, _ in parts for x in getattr(part, name)]
        for name in ("item", "rater", "score")
    ]
    names = [factor for part, factor in parts for _ in range(len(part))]
    return (
        Ratings.of(columns[0], columns[1], names, columns[2]) if mappings else ratings
    )


def such_as(people: Sequence[str], factors: Sequence[str]) -> Option:
    """An example of --as that makes sense: the usual mapping, or the one that assumes least."""
    usual = [
        (name, ours)
        for name, ours in _USUAL.items()
        if name in people and ours in factors
    ]
    theirs, ours = (
        usual[0]
        if usual
        else (people[0], "overall" if "overall" in factors else factors[0])
    )
    return Option("as", {theirs: ours}, "called")


def run_agreement(
    judged: RunData,
    ratings: Ratings,
    mappings: Sequence[str] = (),
    *,
    calibrating: bool = False,
    estimating: bool = False,
) -> AgreementReport:
    """Judges of a run, loaded with `pairing`, against people's ratings of its edits."""
    sums = judged.sums()
    ratings = renamed(ratings, mappings, (*judged.scores.factor.present(), *sums))
    scores, _ = judged.with_aggregates(ratings.factor.present())
    check_common(ratings, scores, sums)
    return agreed(
        ratings,
        scores,
        scales=judged.all_scales(),
        continuous=judged.continuous | {*sums},
        calibrating=calibrating,
        estimating=estimating,
    )


def file_ratings(
    file: Path, judged: RunData | None
) -> tuple[Ratings, dict[str, Origin]]:
    """The ratings of a file. One that says what was rated is taken at its word: the id may be of another edit here."""
    contents = _contents(judged) if judged else {}
    rows = [
        (rating, origin)
        for _, rating, origin in read_ratings(file)
        if not rating.content
        or contents.get(rating.item, rating.content) == rating.content
    ]
    return ratings_columns(rating for rating, _ in rows), {
        rating.item: origin for rating, origin in rows if origin != Origin()
    }


def stored_ratings(judged: RunData, store: Store) -> Ratings:
    """The store's ratings of the run's edits."""
    ratings = [
        Rating(*row[:4])
        for row in ratings_of(store, judged.run)
        if row.item in judged.side.edits
    ]
    if not ratings:
        total = count_ratings(store)
        name = clean(judged.run.name)
        what = (
            f"none of its {total:,} ratings is of an edit of {name}"
            if total
            else "has no ratings"
        )
        how = "give --ratings, or bring them in with `ratings import FILE --run RUN`"
        raise UsageError(
            f"{clean(store.place)}: {what}: {how}", options=[Option("ratings")]
        )
    return ratings_columns(ratings)


def _contents(judged: RunData) -> dict[str, str]:
    return {item: content.key() for item, content in judged.side.edits.items()}


def check_common(ratings: Ratings, scores: Scores, sums: Sequence[str]) -> None:
    """A file of other items, or factors with other names, is a mistake and not a result."""
    for name, scored, rated in (
        ("item", scores.item, ratings.item),
        ("factor", scores.factor, ratings.factor),
    ):
        mine = scored.present()
        theirs = rated.present()
        if not set(mine) & set(theirs):
            message = f"judges have {_some(mine)}, people {_some(theirs)}"
            options = []
            if name == "factor" and mine and theirs:
                others = (
                    f" (judges also have the sums {', '.join(sums)})" if sums else ""
                )
                options = [such_as(theirs, (*mine, *sums))]
                message += (
                    f". Map people's names to judges', such as {options[0]}{others}"
                )
            raise InputError(
                f"no {name} has both scores and ratings: {clean(message)}",
                options=options,
            )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (" ..." if len(names) > 3 else "") or "none"
