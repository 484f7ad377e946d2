"""`agree`: agreement of judges with people and of people with each other, calibration, and estimates from few ratings.

Tables show an estimate only if it has a 95 % interval. JSON has every estimate, and the reason for a missing interval.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from editjudge.errors import InputError, Option, UsageError, did_you_mean, one_line
from editjudge.manifest import Columns
from editjudge.ratings import (
    Origin,
    origins_of,
    ratings_columns,
    read_ratings,
    read_scores,
)
from editjudge.report.answers import Answer
from editjudge.report.charts import Dot, DotChart
from editjudge.report.plan import planned_chances
from editjudge.report.run_data import SPEC, RunData
from editjudge.report.selection import panel_mean
from editjudge.report.tables import (
    Cell,
    Figure,
    Table,
    bounds_figure,
    counted,
    figure_text,
    merge_notes,
)
from editjudge.report.words import plain, reason_text
from editjudge.rubrics.files import SETS
from editjudge.rubrics.files import load as load_rubric
from editjudge.stats import agreement as statistics
from editjudge.stats.agreement import (
    OTHER_SCALE,
    Agreement,
    JudgeAgreement,
    Level,
)
from editjudge.stats.calibration import (
    PoweredEstimate,
    ScaleCalibration,
    calibrate,
    powered_mean,
)
from editjudge.stats.ceiling import SHOWN_RATERS, Ceiling, FurtherRater
from editjudge.stats.columns import (
    Floats,
    Interval,
    Ratings,
    Scores,
    ends_of,
    item_means,
    stacked,
)
from editjudge.stats.summary import Aggregate, aggregate
from editjudge.store.ratings import count_ratings, ratings_of
from editjudge.store.store import Store

T = TypeVar("T")
ByJudge = Mapping[str, Mapping[str, T]]
"""Results keyed by factor and judge."""

PEOPLE = "(a further rater)"
"""Name of a row in tables of judges: the expected agreement of one more person with the mean of the raters."""
ENDS = {"top": "highest", "floor": "lowest"}
FITTED = (
    "measured was fitted to people's quality ratings of ImagenHub's edits: on those images its agreement "
    "is in-sample and too good; `editjudge docs measured` has held-out figures"
)
"""Note on every result of the judge `measured`, since a run does not record whether its images are among the edits to
which the judge was fitted.
"""
_CONCLUSIONS = 4
"""Maximum number of judges that get a sentence above the tables."""


# --- the verb -------------------------------------------------------------------------------------------------


def agree(
    run: RunData,
    source: Path | Store,
    mappings: Sequence[str] = (),
    *,
    calibrating: bool = False,
    estimating: bool = False,
    plan: Path | None = None,
) -> Answer:
    """Compare a run's judges with people's ratings from a file or a store. The run must be loaded with `pairing`.

    `plan` is the file of `ratings plan` that says with which probability an edit was chosen to be rated.
    """
    if isinstance(source, Path):
        ratings, _ = file_ratings(source, run)
    else:
        ratings = _stored_ratings(source, run)
        if not len(ratings):
            raise _no_ratings(source, run)
    ratings = renamed(ratings, mappings, factors_of(run))
    scores = run.with_aggregates(ratings.factor.present())
    _check_common(ratings, scores, list(run.sums))
    _check_scored(ratings, scores, mappings, run.sums)
    chances = planned_chances(plan) if plan else None
    return _run_answer(run, ratings, scores, calibrating, estimating, chances)


def agree_files(
    ratings_file: Path,
    scores_file: Path,
    manifest: Path | None = None,
    mappings: Sequence[str] = (),
    *,
    columns: Columns = (),
    with_guessed: bool = False,
    calibrating: bool = False,
    estimating: bool = False,
) -> Answer:
    """Compare scores in one file with ratings in another."""
    ratings, origins = file_ratings(ratings_file, None)
    if manifest:
        origins = origins_of(manifest, columns)
    scores, guessed = read_scores(scores_file, origins)
    if with_guessed and guessed:
        scores = guessed
    counts = Counter(scores.status).most_common()
    statuses = ", ".join(f"{n:,} {status}" for status, n in counts)
    judges = counted(len(scores.judge.present()), "judge")
    lead = [f"{scores_file}: {len(scores):,} scores by {judges}: {statuses}"]
    if manifest is None and len(scores.group.present()) == len(scores.item.present()):
        lead.append(
            "every edit counts as a separate source image: if edits share one, intervals are too narrow; "
            "give --manifest"
        )
    if with_guessed and guessed:
        lead.append("guessed scores are included, as if the judge had given them")
    ratings = renamed(ratings, mappings, scores.factor.present())
    _check_common(ratings, scores, ())
    _check_scored(ratings, scores, mappings, {})
    return _answer(
        ratings,
        scores,
        {"of": "scores", "pending": 0},
        lead,
        with_guessed=None if with_guessed else guessed,
        calibrating=calibrating,
        estimating=estimating,
    )


def stored_agreement(
    run: RunData, store: Store, mappings: Sequence[str]
) -> tuple[Answer | None, str]:
    """Compare a run with the stored ratings of its factors.

    Also return a sentence about ratings of other factors.
    """
    factors = factors_of(run)
    ratings = renamed(_stored_ratings(store, run), mappings, factors)
    rated = ratings.factor.present()
    unmatched = ""
    if others := [name for name in rated if name not in factors]:
        n = len(ratings.where(factor=others))
        unmatched = f"The store has {n:,} ratings of these edits under {', '.join(others)}, which no rubric of this run has."
        if factors:
            unmatched += (
                f" Map them with --map-factor, such as {_such_as(others, factors)}."
            )
    common = [name for name in rated if name in factors]
    if not common:
        return None, unmatched
    ratings = ratings.where(factor=common)
    scores = run.with_aggregates(common)
    if mappings:
        _check_scored(ratings, scores, mappings, run.sums)
    return _run_answer(run, ratings, scores), unmatched


def _run_answer(
    run: RunData,
    ratings: Ratings,
    scores: Scores,
    calibrating: bool = False,
    estimating: bool = False,
    chances: Mapping[str, float] | None = None,
) -> Answer:
    return _answer(
        ratings,
        scores,
        {"of": run.of, "pending": run.pending},
        run.lead(),
        scales=run.all_scales(),
        continuous={*run.continuous, *run.sums},
        calibrating=calibrating,
        estimating=estimating,
        chances=chances,
    )


def _answer(
    ratings: Ratings,
    scores: Scores,
    about: Mapping[str, object],
    lead: Sequence[str],
    *,
    with_guessed: Scores | None = None,
    scales: Mapping[str, Sequence[float]] | None = None,
    continuous: Container[str] = (),
    calibrating: bool = False,
    estimating: bool = False,
    chances: Mapping[str, float] | None = None,
) -> Answer:
    scales = scales or {}
    agreement = statistics.agree(ratings, scores, scales=scales, continuous=continuous)
    document = plain(agreement)
    judges = {judge.partition("@")[0] for _, judge, _ in _cells(agreement.factors)}
    notes = [FITTED] if "measured" in judges else []
    caption = "Agreement with people's mean rating, one pair per item"
    tables = [_agreement_table(agreement, caption, notes)]
    if grouped := _grouped(ratings, scores):
        groups = statistics.agree(*grouped)
        document["groups"] = plain(groups)
        caption = "The same for the mean of each group of factors"
        tables.append(_agreement_table(groups, caption))
    if with_guessed:
        # These intervals are not shown, so a few draws are enough.
        other = statistics.agree(ratings, with_guessed, scales=scales, draws=100)
        document["with_guessed"] = plain(other.factors)
        tables.insert(1, _guesses(agreement.factors, other.factors))
    tables += _errors(agreement.factors)
    tables += [_among_people(agreement.humans), _raters(agreement.humans)]
    if calibrating:
        maps = _each_judge(ratings, scores, lambda _, joint: joint.calibration())
        document["calibration"] = plain(maps)
        tables += [_calibrations(maps)] if maps else []
    if estimating:
        several = SPEC in scores.slices and len(scores.slices[SPEC].present()) > 1
        proxies = stacked([scores, panel_mean(scores)]) if several else scores
        means = _each_judge(
            ratings,
            proxies,
            lambda factor, joint: joint.estimates(scales.get(factor), chances),
        )
        document["estimates"] = plain(means)
        tables += [_estimates(means)] if means else []
    results = conclusions(agreement)
    return Answer(
        {**document, **about},
        [*results, *lead],
        [*tables, *_halo(agreement)],
        conclusions=results,
        charts=_charts(agreement),
    )


# --- statistics -----------------------------------------------------------------------------------------------


class _Joint(NamedTuple):
    """Items of one factor and judge: the mean score, mean rating, model, source image and name of each."""

    judge: Floats
    human: Floats
    model: Sequence[str]
    group: Sequence[str]
    item: Sequence[str]

    def calibration(self) -> ScaleCalibration:
        return calibrate(self.judge, self.human, group=self.group)

    def estimates(
        self, scale: Sequence[float] | None, chances: Mapping[str, float] | None = None
    ) -> dict[str, PoweredEstimate]:
        """Return an estimate for each model. It is limited to the scale, unless some ratings are outside it. With
        `chances`, ratings of edits that have none are left out.
        """
        human = self.human
        planned = None
        if chances is not None:
            chance = np.array([chances.get(item, np.nan) for item in self.item])
            human = np.where(np.isnan(chance), np.nan, human)
            planned = np.where(np.isnan(chance), 1.0, chance)
        ends = ends_of(scale)
        rated = self.human[np.isfinite(self.human)]
        if ends and len(rated) and not ends[0] <= rated.min() <= rated.max() <= ends[1]:
            ends = None
        estimates = {}
        for model in dict.fromkeys(self.model):
            rows = [i for i, name in enumerate(self.model) if name == model]
            group = [self.group[i] for i in rows]
            estimates[model] = powered_mean(
                self.judge[rows],
                human[rows],
                group=group,
                ends=ends,
                probability=None if planned is None else planned[rows],
            )
        return estimates


def _each_judge(
    ratings: Ratings, scores: Scores, compute: Callable[[str, _Joint], T]
) -> ByJudge[T]:
    """Compute a result for each factor that people rated and each judge that scored it."""
    results: dict[str, dict[str, T]] = {}
    for factor in scores.factor.present():
        if factor not in ratings.factor.present():
            continue
        rated = ratings.where(factor=factor)
        means = item_means(rated.item, rated.score)
        human = dict(zip(rated.item.labels, means, strict=True))
        results[factor] = {}
        for judge in scores.where(factor=factor).judge.present():
            part = scores.where(factor=factor, judge=judge)
            item = part.item.compact()
            _, first = np.unique(item.codes, return_index=True)
            joint = _Joint(
                item_means(item, part.score),
                np.array([human.get(label, np.nan) for label in item.labels], float),
                list(part.model.take(first)),
                list(part.group.take(first)),
                item.labels,
            )
            results[factor][judge] = compute(factor, joint)
    return results


def _grouped(ratings: Ratings, scores: Scores) -> tuple[Ratings, Scores] | None:
    """Return ratings and scores of the published groups of factors. Return None if no group has all its factors in both
    the ratings and the scores."""
    rated = ratings.factor.present()
    common = {*rated} & {*scores.factor.present()}
    groups = []
    for name in SETS["online"]:
        factors = tuple(factor.key for factor in load_rubric(name).factors)
        # If people rated a group directly, judges are compared with these ratings.
        if name not in rated and {*factors} <= common:
            groups.append(Aggregate(name, factors))
    if not groups:
        return None
    names = [group.name for group in groups]
    people = Scores.of(ratings.item, ratings.factor, ratings.score, judge=ratings.rater)
    means = aggregate(people, groups).where(factor=names)
    return (
        Ratings.of(means.item, means.judge, means.factor, means.score),
        aggregate(scores, groups).where(factor=names),
    )


def _cells(by_judge: ByJudge[T]) -> Iterator[tuple[str, str, T]]:
    """Yield the factor, judge and result of every entry."""
    for factor, judges in by_judge.items():
        for judge, result in judges.items():
            yield factor, judge, result


# --- sentences ------------------------------------------------------------------------------------------------


def conclusions(agreement: Agreement) -> list[str]:
    """Return a sentence for each judge, up to a limit. It states the judge's Spearman correlation with people's mean on
    each factor.

    Each correlation is followed by its number of edits and its interval. If there is no interval the reason is given
    instead, once for all factors and judges that share it.
    """
    judges: dict[str, list[str]] = {}
    silences: dict[tuple[int, str], dict[str, None]] = {}
    for factor in agreement.humans:
        for judge, result in agreement.factors.get(factor, {}).items():
            ci = result.ci.get("spearman")
            reason = result.ci_reason.get("spearman")
            if ci is not None:
                judges.setdefault(judge, []).append(_conclusion(factor, result, ci))
            elif result.n and reason:
                silences.setdefault((result.n, reason_text(reason)), {})[factor] = None
    # Lines for more judges would push the table off the screen.
    if len(judges) > _CONCLUSIONS:
        judges = {}
    lines = [
        f"{judge} and people's mean, Spearman [95 % CI]: {'; '.join(parts)}"
        for judge, parts in judges.items()
    ]
    return lines + [
        f"No correlation is shown for {', '.join(factors)}: n = {n:,}; {reason}. JSON has the bare figures."
        for (n, reason), factors in silences.items()
    ]


def _conclusion(factor: str, result: JudgeAgreement, ci: Interval) -> str:
    text = f"{factor} {figure_text(result.spearman, ci, digits=2)}, n = {result.n:,}"
    if ci.lo <= 0 <= ci.hi:
        text += ", no evidence of agreement"
    verdict = result.against_further_rater.verdict
    person = result.further_rater
    if verdict is None or person is None:
        return text
    reached = figure_text(person.spearman, person.ci.get("spearman"), digits=2)
    preposition = " from" if verdict == "not told apart" else ""
    return f"{text}, {verdict}{preposition} a further rater ({reached})"


def _charts(agreement: Agreement) -> list[DotChart]:
    """Return the chart of correlations, or an empty list if no correlation has an interval."""
    people = ((f, PEOPLE, human.further_rater) for f, human in agreement.humans.items())
    dots = []
    judges = _cells(agreement.factors)
    rows: list[tuple[str, str, FurtherRater | JudgeAgreement]] = [*people, *judges]
    for factor, name, figures in rows:
        ci = figures.ci.get("spearman")
        if ci and figures.spearman is not None:
            dots.append(Dot(factor, name, figures.spearman, ci))
    if not dots:
        return []
    low = -0.25
    ticks = [0, 0.25, 0.5, 0.75, 1]
    if any(end < low for dot in dots for end in (dot.value, *(dot.ci or ()))):
        low = -1.0
        ticks = [-1, -0.5, 0, 0.5, 1]
    title = f"Spearman correlation with people's mean rating; {PEOPLE}: the expected correlation of one more person"
    return [DotChart(title, dots, low, 1.0, ticks)]


# --- tables ---------------------------------------------------------------------------------------------------


Figures = JudgeAgreement | Level | FurtherRater | Ceiling
"""Results with statistics and intervals; a statistic and its interval have the same name."""


def _figure(figures: Figures, name: str, *, sign: bool = False) -> Figure:
    """Return a statistic with its interval, or an empty cell if it has no interval."""
    return _estimate(getattr(figures, name), figures.ci.get(name), sign=sign)


def _estimate(
    value: float | None, ci: Interval | None, *, sign: bool = False
) -> Figure:
    return Figure(None) if ci is None else Figure(value, ci, sign=sign)


def _agreement_table(
    agreement: Agreement, caption: str, notes: Sequence[str] = ()
) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for factor, human in agreement.humans.items():
        person = human.further_rater
        if person.ci.get("spearman"):
            correlations = (
                _figure(person, "spearman"),
                None,
                _figure(person, "pearson"),
            )
            rest = (None, None, None, None)
            rows.append((factor, PEOPLE, person.items, None, *correlations, *rest))
        for judge, result in agreement.factors.get(factor, {}).items():
            standing = result.against_further_rater
            bounded = result.failed and result.ci.get("spearman") is not None
            rows.append(
                (
                    factor,
                    judge,
                    result.n,
                    result.unscored or None,
                    _figure(result, "spearman"),
                    _estimate(standing.difference, standing.ci, sign=True),
                    _figure(result, "pearson"),
                    _figure(result, "kendall"),
                    _figure(result.within_model, "spearman"),
                    _figure(result.system, "spearman"),
                    bounds_figure(result.bounds, 2) if bounded else None,
                )
            )
    columns = ("factor", "judge", "n", "no score", "Spearman", "vs rater", "Pearson", "Kendall", "within model",
               "system", "bounds")  # fmt: skip
    legend = {
        "no score": "rated items without a score of the judge: it failed, abstained, or was not asked",
        "vs rater": f"Spearman minus that of {PEOPLE}, both over the items that the judge scored; the judge "
        "differs from a rater only if the interval excludes 0",
        "within model": "mean over editing models, so that recognising the model does not help",
        "system": "over the means of models",
        "bounds": "Spearman with failed scores filled in to lower it most and to raise it most; if JSON says "
        "that not every fill was tried, the range may be wider",
    }
    table = Table.of(
        columns,
        rows,
        f"{caption}, 95 % CI",
        notes=[*notes, *_about_people(agreement), *_about_judges(agreement)],
        stub=2,
        spare=("Kendall", "Pearson", "system"),
        legend=legend,
    )
    if all(
        result.within_model.models < 2 for _, _, result in _cells(agreement.factors)
    ):
        table = table.without("within model")
    return table.trimmed(
        "no score", "vs rater", "Pearson", "Kendall", "system", "bounds"
    )


def _about_people(agreement: Agreement) -> Iterator[str]:
    """Yield notes on the row of one more person, on factors without this row, and on factors without ratings."""
    numbers = set()
    reasons: dict[str, list[str]] = {}
    for factor, human in agreement.humans.items():
        person = human.further_rater
        if person.ci.get("spearman"):
            numbers.add(f"{person.raters:.3g}")
        if person.reason:
            reasons.setdefault(reason_text(person.reason), []).append(factor)
    if numbers:
        raters = " or ".join(sorted(numbers))
        yield (
            f"{PEOPLE}: expected correlation of one more person with the mean of the {raters} who rated an item, "
            "extrapolated from that of each rater with the others"
        )
    for reason, factors in reasons.items():
        yield f"no row {PEOPLE} for {', '.join(factors)}: {reason}"
    unrated = [name for name in agreement.factors if name not in agreement.humans]
    if unrated:
        yield f"there are no ratings of {', '.join(unrated)}"


def _about_judges(agreement: Agreement) -> list[str]:
    about = {}
    for factor, judge, result in _cells(agreement.factors):
        if factor not in agreement.humans:
            continue
        lines = [reason_text(note) for note in result.notes if note != OTHER_SCALE]
        reason = result.ci_reason.get("spearman")
        if reason and result.n:
            lines.append(f"no Spearman is shown: {reason_text(reason)}")
        if result.overturnable:
            lines.append(f"{result.failed} failed scores could overturn this")
        if result.within_model.models > 1:
            lines += map(reason_text, result.within_model.notes)
        about[f"{factor} by {judge}"] = lines
    return merge_notes(about)


def _at_ends(of: str) -> dict[str, str]:
    return {f"at {end}": f"share of {of.format(name)}" for end, name in ENDS.items()}


def _errors(by_judge: ByJudge[JudgeAgreement]) -> list[Table]:
    """Return the table of each judge's error against human ratings, for judges that use the same scale as the raters."""
    rows: list[dict[str, Cell]] = []
    reasons: dict[str, list[str]] = {}
    for factor, judge, result in _cells(by_judge):
        if not result.n or OTHER_SCALE in result.notes:
            continue
        reason = result.ci_reason.get("mae")
        lines = [f"no MAE is shown: {reason_text(reason)}"] if reason else []
        reasons[f"{factor} by {judge}"] = lines
        rows.append(
            {
                "factor": factor,
                "judge": judge,
                "n": result.n,
                "QWK": _figure(result, "qwk"),
                "MAE": _figure(result, "mae"),
                "bias": _figure(result, "bias", sign=True),
                "exact": _figure(result, "exact"),
                "within 1": _figure(result, "within_one"),
                "at top": result.top,
                "at floor": result.floor,
            }
        )
    legend = {
        "QWK": "quadratic-weighted kappa",
        "MAE": "mean absolute error",
        "bias": "judge minus people",
        "exact": "share less than half a step of people's scale apart",
        **_at_ends("the judge's scores at its {}"),
    }
    table = Table.listing(
        rows,
        "Distance from people, on their scale, 95 % CI",
        notes=merge_notes(reasons),
        stub=2,
        spare=("at floor", "at top", "exact", "within 1"),
        legend=legend,
    )
    return [table.trimmed("QWK")] if rows else []


def _among_people(humans: Mapping[str, Ceiling]) -> Table:
    legend = {
        "shared": "items that two or more people rated",
        "alpha": "Krippendorff's, interval: 1 is perfect agreement, 0 is chance",
        "ICC(1)": "share of the variance of single ratings that is between items",
        "one vs rest": "Spearman of each rater with the mean of the others, averaged",
        **_at_ends("ratings at the {} value given"),
    }
    table = Table.listing(
        (
            {
                "factor": factor,
                "raters": human.raters,
                "items": human.items,
                "shared": human.shared,
                "alpha": _figure(human, "alpha_interval"),
                "ICC(1)": _figure(human, "icc1"),
                "one vs rest": _figure(human, "loo_spearman"),
                "at top": human.top,
                "at floor": human.floor,
            }
            for factor, human in humans.items()
        ),
        "People among themselves, 95 % CI",
        notes=(
            f"{f}: {reason_text(note)}"
            for f, human in humans.items()
            for note in human.notes
        ),
        spare=("at floor", "at top"),
        legend=legend,
    )
    return table.trimmed("alpha", "ICC(1)", "one vs rest")


def _raters(humans: Mapping[str, Ceiling]) -> Table:
    rows: list[dict[str, Cell]] = []
    left_out = 0
    for factor, human in humans.items():
        raters = human.rater_quality.items()
        ordered = sorted(raters, key=lambda pair: pair[1].spearman_with_rest or -2.0)
        left_out += max(0, len(ordered) - SHOWN_RATERS)
        rows += [
            {
                "factor": factor,
                "rater": name,
                "n": rater.n,
                "shared": rater.shared,
                "mean": rater.mean,
                "sd": rater.sd,
                "commonest": rater.commonest,
                "with rest": _estimate(rater.spearman_with_rest, rater.ci),
                "": "straight-lines" if rater.straight_lining else "",
            }
            for name, rater in ordered[:SHOWN_RATERS]
        ]
    more = f"{left_out:,} more raters, who agree better; JSON has all"
    legend = {
        "shared": "items that other people rated too",
        "commonest": "share of this rater's ratings that have the rater's most common value",
        "with rest": "Spearman with the mean of the others, 95 % CI",
    }
    table = Table.listing(
        rows,
        "Raters, least agreeing first",
        notes=[more] if left_out else [],
        stub=2,
        legend=legend,
    )
    return table.trimmed("with rest", "")


def _guesses(
    by_judge: ByJudge[JudgeAgreement], with_guessed: ByJudge[JudgeAgreement]
) -> Table:
    """Return the table that shows how agreement changes if guessed scores are included."""
    rows: list[dict[str, Cell]] = []
    for factor, judge, other in _cells(with_guessed):
        result = by_judge[factor][judge]
        if other.n == result.n or result.ci.get("spearman") is None:
            continue
        change = None
        if result.spearman is not None and other.spearman is not None:
            change = other.spearman - result.spearman
        rows.append(
            {
                "factor": factor,
                "judge": judge,
                "n": result.n,
                "guessed": other.n - result.n,
                "Spearman": result.spearman,
                "with guesses": other.spearman,
                "change": Figure(change, sign=True),
            }
        )
    caption = "Guessed scores, which all other tables leave out, and their effect"
    return Table.listing(rows, caption, stub=2)


def _calibrations(calibrations: ByJudge[ScaleCalibration]) -> Table:
    notes = [
        f"{factor} by {judge}: {reason_text(note)}"
        for factor, judge, calibration in _cells(calibrations)
        for note in calibration.notes
    ]
    notes.append(
        "mapped: error of a non-decreasing map onto people's scale, on source images that it was not fitted to; a map "
        "that does not beat the constant is useless. JSON has the maps"
    )
    return Table.listing(
        (
            {
                "factor": factor,
                "judge": judge,
                "n": calibration.n,
                "images": calibration.groups,
                "MAE raw": calibration.mae_raw,
                "MAE mapped": calibration.mae_calibrated,
                "MAE constant": calibration.mae_constant,
                "bias raw": Figure(calibration.bias_raw, sign=True),
                "bias mapped": Figure(calibration.bias_calibrated, sign=True),
            }
            for factor, judge, calibration in _cells(calibrations)
        ),
        "Calibration onto people's scale",
        notes=notes,
        stub=2,
        spare=("images",),
    )


def _estimates(estimates: ByJudge[Mapping[str, PoweredEstimate]]) -> Table:
    rows: list[dict[str, Cell]] = []
    notes: dict[str, None] = {}
    for factor, judge, models in _cells(estimates):
        for model, estimate in models.items():
            reasons = [
                *estimate.notes,
                *([estimate.ci_reason] if estimate.ci_reason else []),
            ]
            notes |= dict.fromkeys(map(reason_text, reasons))
            if estimate.scored_only:
                rows.append(
                    {
                        "factor": factor,
                        "judge": judge,
                        "model": model,
                        "rated": estimate.rated,
                        "unrated": estimate.scored_only,
                        "people alone": Figure(estimate.human_mean, estimate.human_ci),
                        "with the judge": Figure(estimate.mean, estimate.ci),
                        "saved": Figure(estimate.saved, digits=0),
                    }
                )
    saved = "saved: additional ratings that people alone would have needed for an interval this short"
    table = Table.listing(
        rows,
        "People's mean, estimated from few ratings and many scores",
        notes=[*notes, saved],
        stub=3,
        spare=("unrated",),
    )
    return table.folded("judge", "model")


def _halo(agreement: Agreement) -> list[Table]:
    halo = agreement.halo
    column = "between factors"
    people = {"people": (halo.people, halo.people_ci)}
    judges = {
        judge: (mean, halo.judges_ci[judge]) for judge, mean in halo.judges.items()
    }
    table = Table.listing(
        (
            {"who": name, column: _estimate(*figure)}
            for name, figure in (people | judges).items()
        ),
        "Halo: mean Spearman between factors, 95 % CI; near 1, all factors measure one impression",
    ).trimmed(column)
    return [table] if column in table.columns else []


# --- ratings and their names ----------------------------------------------------------------------------------

_USUAL = {"SC": "fidelity", "PQ": "quality"}
"""Names that ImagenHub and its successors use for semantic consistency and perceptual quality, with the names used
here."""


def factors_of(run: RunData) -> list[str]:
    """Return the factors of a run and its aggregates."""
    return [*run.scores.factor.present(), *run.sums]


def renamed(
    ratings: Ratings, mappings: Sequence[str], factors: Sequence[str]
) -> Ratings:
    """Rename the factors of ratings to the judges' factors, as given by `--map-factor PEOPLE=FACTOR`. One factor may
    map to several."""
    if not mappings:
        return ratings
    pairs = [_mapping(text) for text in mappings]
    rated = ratings.factor.present()
    for people, factor in pairs:
        problem = ""
        if people not in rated:
            problem = f'there are no ratings of "{people}"{did_you_mean(people, rated)}'
        elif factor not in factors:
            problem = f'judges have no "{factor}"{did_you_mean(factor, factors)}'
        if problem:
            mapping = Option("map-factor", {people: factor})
            raise UsageError(
                f"{mapping}: {problem}", options=[mapping], code="unknown_mapping"
            )
    pairs += [(name, name) for name in rated if name not in dict(pairs)]
    [(name, times)] = Counter(factor for _, factor in pairs).most_common(1)
    if times > 1:
        raise UsageError(
            f"--map-factor: two of people's factors cannot both be {name}",
            options=[Option("map-factor")],
        )
    rows = [
        (item, rater, factor, score)
        for people, factor in pairs
        for part in [ratings.where(factor=people)]
        for item, rater, score in zip(part.item, part.rater, part.score, strict=True)
    ]
    return Ratings.of(*zip(*rows, strict=True))


def _mapping(text: str) -> tuple[str, str]:
    people, _, factor = text.rpartition("=")
    if not people or not factor:
        option = Option("map-factor", text)
        raise UsageError(
            f"{option}: expected PEOPLE=FACTOR, such as PQ=quality",
            options=[option],
            code="invalid_mapping",
        )
    return people, factor


def _such_as(people: Sequence[str], factors: Sequence[str]) -> Option:
    """Return an example of --map-factor. It is a usual mapping or, if there is none, a mapping to the overall score."""
    for name, factor in _USUAL.items():
        if name in people and factor in factors:
            return Option("map-factor", {name: factor})
    factor = "overall" if "overall" in factors else factors[0]
    return Option("map-factor", {people[0]: factor})


def file_ratings(file: Path, run: RunData | None) -> tuple[Ratings, dict[str, Origin]]:
    """Return the ratings in a file and the origins of its items. Ratings are left out if their id belongs to other
    content in the run."""
    edits = run.side.edits if run else {}
    contents = {item: content.key() for item, content in edits.items()}
    ratings = []
    origins = {}
    for _, rating, origin in read_ratings(file):
        content = rating.content
        if not content or contents.get(rating.item, content) == content:
            ratings.append(rating)
            if origin != Origin():
                origins[rating.item] = origin
    return ratings_columns(ratings), origins


def _no_ratings(store: Store, run: RunData) -> UsageError:
    total = count_ratings(store)
    problem = "has no ratings"
    if total:
        problem = (
            f"none of its {total:,} ratings is of an edit of {one_line(run.run.name)}"
        )
    return UsageError(
        f"{one_line(store.name)}: {problem}: give --ratings, or import them with `ratings import FILE --run RUN`",
        code="no_ratings",
        options=[Option("ratings")],
    )


def _stored_ratings(store: Store, run: RunData) -> Ratings:
    """Return the store's ratings of the run's edits."""
    return ratings_columns(ratings_of(store, run.run))


def _check_common(ratings: Ratings, scores: Scores, sums: Sequence[str]) -> None:
    """Raise `InputError` if scores and ratings have no item or no factor in common."""
    for name in ("item", "factor"):
        scored = getattr(scores, name).present()
        rated = getattr(ratings, name).present()
        if {*scored} & {*rated}:
            continue
        message = f"judges have {_first_names(scored)}, people {_first_names(rated)}"
        options = []
        if name == "factor" and scored and rated:
            options = [_such_as(rated, (*scored, *sums))]
            message += f". Map people's names to judges', such as {options[0]}"
            if sums:
                message += f" (judges also have the aggregates {', '.join(sums)})"
        raise InputError(
            f"no {name} has both scores and ratings: {one_line(message)}",
            options=options,
            code="no_common_factor",
        )


def _check_scored(
    ratings: Ratings,
    scores: Scores,
    mappings: Sequence[str],
    sums: Mapping[str, Aggregate],
) -> None:
    """Raise `InputError` if no rated item has a score of a factor that the user mapped to, or of any factor."""
    scored = scores.take(np.flatnonzero(np.isfinite(scores.score)))
    common = {*ratings.factor.present()} & {*scores.factor.present()}
    unscored = [
        name
        for name in ratings.factor.present()
        if name in common
        and not {*scored.where(factor=name).item} & {*ratings.where(factor=name).item}
    ]
    people = {factor: name for name, factor in map(_mapping, mappings)}
    mapped = [name for name in unscored if name in people]
    if not mapped and len(unscored) < len(common):
        return
    name = (mapped or unscored)[0]
    message = f"no rated edit has a score of {name}"
    options = []
    if name not in sums:
        message += f" ({_statuses(scores, name)}): take a judge that scores it"
    else:
        parts = sums[name].factors
        silent = [part for part in parts if not len(scored.where(factor=part))]
        reasons = [f"{part} ({_statuses(scores, part)})" for part in silent]
        message += f", which needs all of its {len(parts)} factors"
        if reasons:
            message += f"; {len(silent)} have none: {', '.join(reasons)}"
        others = [part for part in parts if part not in silent]
        if others:
            options = [Option("map-factor", {people.get(name, name): others[0]})]
            message += (
                f". Compare one that has scores, such as {options[0]}, or take a judge that scores all: "
                "a mean of fewer factors is another score"
            )
    raise InputError(one_line(message), options=options, code="no_scores")


def _statuses(scores: Scores, factor: str) -> str:
    counts = Counter(scores.where(factor=factor).status).most_common()
    return ", ".join(f"{n:,} {status}" for status, n in counts)


def _first_names(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (" ..." if len(names) > 3 else "") or "none"
