"""Agreement of judges with people, with clustered intervals. A judge is also compared with one additional human rater."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from math import comb

import numpy as np

from editjudge.stats.ceiling import (
    Ceiling,
    FurtherRater,
    Pairs,
    averaged,
    averaged_draws,
    carried,
    ceiling,
    correlation_draws,
    estimate,
    further_rater,
    intervals,
    one_against_rest,
    supported,
    why_none,
)
from editjudge.stats.columns import (
    Column,
    Ends,
    FailureBounds,
    Floats,
    Interval,
    Ints,
    Limits,
    Ratings,
    Reason,
    Scales,
    Scores,
    ends_of,
    item_means,
    number,
)
from editjudge.stats.inference import (
    DRAWS,
    difference_ends,
    few_groups,
    interval,
    mean_draws,
    mean_interval,
)

CORRELATIONS = ("spearman", "pearson", "kendall")
FEWEST_MODELS = 6
FEWEST_IMAGES = 20
SEPARATION = 10.0
"""Minimum numbers of models and of source images, and minimum ratio of the variance between models' means to their
sampling variance. Below any of them, the correlation over models has no interval."""
HALO_DRAWS = 400
"""Number of bootstrap draws for the halo. It is smaller than `DRAWS` because every draw computes the correlations of
all pairs of factors, often dozens."""
FILLS = 2_000_000
"""Maximum size (16 MB) of the table that lists every way to fill in the failed scores."""


OTHER_SCALE = Reason("other_scale")
"""Note that scores and ratings have different scales, so distances between them are meaningless."""


@dataclass(frozen=True)
class Level:
    """Correlations within editing models, or over the models' means."""

    models: int
    spearman: float | None = None
    pearson: float | None = None
    kendall: float | None = None
    ci: Mapping[str, Interval | None] = field(default_factory=dict)
    ci_reason: Mapping[str, Reason] = field(default_factory=dict)
    """Reasons why statistics have no interval."""
    notes: tuple[Reason, ...] = ()


@dataclass(frozen=True)
class Standing:
    """Difference between a judge's Spearman correlation and that of one additional rater, over the same items and
    draws."""

    difference: float | None
    ci: Interval | None
    ci_reason: Reason | None
    verdict: str | None = None
    """"below" or "above" if the interval excludes 0, "not told apart" if it includes 0, None if there is no interval."""


@dataclass(frozen=True)
class JudgeAgreement:
    """Agreement of one judge with people on one factor. It compares each item's mean score by the judge with its mean
    rating."""

    n: int
    """Items with a score and a rating."""
    unscored: int
    """Rated items without a score: the judgement failed, or the judge abstained."""
    failed: int
    """Failed or pending judgements of rated items, including repeats. `bounds` covers the scores they could have had."""
    unrated: int
    people: float | None
    """Mean Spearman correlation of each rater with the mean of the other raters, over the same `n` items."""
    further_rater: FurtherRater | None
    """Estimated agreement of an additional rater with the mean ratings of the same `n` items."""
    against_further_rater: Standing
    spearman: float | None
    pearson: float | None
    kendall: float | None
    """Kendall's tau-b."""
    qwk: float | None
    """Quadratic-weighted kappa. On item means it equals Lin's concordance."""
    mae: float | None
    bias: float | None
    """Mean score of the judge minus mean rating."""
    exact: float | None
    """Share of items whose score and rating differ by less than half a step of the people's scale."""
    within_one: float | None
    ci: Mapping[str, Interval | None]
    method: Mapping[str, str]
    """Method of each interval. For correlations it is `percentile`, the expanded bootstrap percentile over images."""
    ci_reason: Mapping[str, Reason]
    """Reasons why statistics have no interval."""
    bounds: FailureBounds | None
    """Lowest and highest Spearman correlation possible, whatever scores the failed judgements would have had."""
    bounds_exact: bool
    """Whether every way to fill in the failed scores was tried. If not, only the two ends of the scale were tried, and
    `bounds` may be too narrow."""
    bounds_reason: Reason | None
    mae_bounds: FailureBounds | None
    """Largest and smallest mean absolute error possible, whatever scores the failed judgements would have had."""
    overturnable: bool
    """Whether `bounds` reach beyond Spearman's interval, which means that the failures could change the conclusion."""
    corrected: float | None
    """Spearman corrected for attenuation: divided by the square root of the reliability of the mean rating."""
    within_model: Level
    """Mean correlation within each editing model, which a judge cannot raise by recognising the model."""
    system: Level
    """Correlation over the models' means, which shows whether the judge ranks models as people do."""
    top: float | None
    """Share of scores at the top of the scale."""
    floor: float | None
    notes: tuple[Reason, ...]


@dataclass(frozen=True)
class Halo:
    """Mean Spearman correlation between factors. Near 1, all factors measure one overall impression."""

    people: float | None
    judges: Mapping[str, float | None]
    people_ci: Interval | None
    judges_ci: Mapping[str, Interval | None]


@dataclass(frozen=True)
class Agreement:
    factors: Mapping[str, Mapping[str, JudgeAgreement]]
    humans: Mapping[str, Ceiling]
    halo: Halo


def agree(
    ratings: Ratings,
    scores: Scores,
    *,
    scales: Scales | None = None,
    continuous: Container[str] = (),
    draws: int = DRAWS,
) -> Agreement:
    """Compare every judge with all raters, pooled, on every factor. An undefined statistic is None, with a note.

    Each scale in `scales` is ordered from worst to best. A factor in `continuous` may have scores between the values of
    its scale.
    """
    groups = dict(zip(scores.item, scores.group, strict=True))
    models = dict(zip(scores.item, scores.model, strict=True))
    people = {
        f: _People(ratings.where(factor=f), groups, draws)
        for f in ratings.factor.present()
    }
    factors = {
        f: {
            judge: _agreement(
                people.get(f),
                scores.where(factor=f, judge=judge),
                (groups, models),
                (scales or {}).get(f),
                stepped=f not in continuous,
                draws=draws,
            )
            for judge in scores.where(factor=f).judge.present()
        }
        for f in scores.factor.present()
    }
    humans = {f: rated.ceiling for f, rated in people.items()}
    return Agreement(factors, humans, _halos(ratings, scores, groups, draws))


class _People:
    """Ratings of one factor, and the agreement among people on all rated items or on those that a judge scored."""

    def __init__(self, ratings: Ratings, groups: Mapping[str, str], draws: int) -> None:
        self.ratings = ratings
        self.means = _means(ratings.item, ratings.score)
        self._groups = groups
        self._draws = draws
        self._further = further_rater(ratings, group=groups, draws=draws)
        self._parts: dict[frozenset[str], FurtherRater] = {}
        self.ceiling = ceiling(
            ratings, group=groups, draws=draws, further=self._further
        )

    def further_rater(self, items: Sequence[str]) -> FurtherRater:
        """Return the estimated agreement of an additional rater on these items. The estimate is cached, so judges that
        scored the same items share it."""
        if len(items) == len(self.means):
            return self._further
        scored = frozenset(items)
        if scored not in self._parts:
            self._parts[scored] = further_rater(
                self._of(scored), group=self._groups, draws=self._draws
            )
        return self._parts[scored]

    def one_against_rest(self, items: Sequence[str]) -> float | None:
        if len(items) == len(self.means):
            return self.ceiling.loo_spearman
        return one_against_rest(self._of(frozenset(items)))

    def _of(self, items: Container[str]) -> Ratings:
        wanted = np.array([label in items for label in self.ratings.item.labels], bool)
        return self.ratings.take(wanted[self.ratings.item.codes])


def _agreement(
    people: _People | None,
    scores: Scores,
    origin: tuple[Mapping[str, str], Mapping[str, str]],
    scale: Sequence[float] | None,
    *,
    stepped: bool,
    draws: int,
) -> JudgeAgreement:
    scored_means = _means(scores.item, scores.score)
    rated = people.means if people else {}
    ratings = people.ratings if people else None
    items = [item for item in scored_means if item in rated]
    group, model = (
        Column.of(names.get(item, item) for item in items) for names in origin
    )
    x, y = (
        np.array([means[item] for item in items]) for means in (scored_means, rated)
    )
    pairs = Pairs(x, y, group.codes.astype(np.int64), _step(ratings))
    figures = {name: number(value) for name, value in estimate(pairs).items()}
    limits = _intervals(pairs, ratings, ends_of(scale), draws=draws)
    further = people.further_rater(items) if people and items else None
    lost = Counter(scores.take(scores.failed).item)
    answered = Counter(scores.take(scores.ok).item)
    failed = sum(n for item, n in lost.items() if item in rated)
    missing = np.array(
        [rated[item] for item in rated if item in lost and item not in scored_means]
    )
    # If only some repeats of an item failed, they could have moved the item's mean.
    weight = np.array([lost[item] / (lost[item] + answered[item]) for item in items])
    bounds, exact, unknown = _bounds(pairs, missing, weight, scale)
    scored = scores.score[scores.ok]
    values = np.asarray(scale, dtype=float) if scale else scored
    return JudgeAgreement(
        n=len(items),
        unscored=len(rated) - len(items),
        failed=failed,
        unrated=len(scored_means) - len(items),
        people=people.one_against_rest(items) if people else None,
        further_rater=further,
        against_further_rater=standing(pairs, items, further, draws=draws),
        **figures,
        ci={name: each.ci for name, each in limits.items()},
        method={name: each.method for name, each in limits.items() if each.method},
        ci_reason={name: each.reason for name, each in limits.items() if each.reason},
        bounds=bounds,
        bounds_exact=exact and stepped and not weight.any(),
        bounds_reason=unknown,
        mae_bounds=_mae_bounds(pairs, missing, weight, scale),
        overturnable=failed > 0
        and (bounds is None or bounds.beyond(limits["spearman"].ci)),
        corrected=_corrected(figures["spearman"], people),
        within_model=_within_model(pairs, model, len(group.labels), draws=draws),
        system=over_models(pairs, model, len(group.labels), draws=draws),
        top=float(np.mean(scored == values.max())) if len(scored) else None,
        floor=float(np.mean(scored == values.min())) if len(scored) else None,
        notes=_notes(pairs, len(group.labels), ratings),
    )


def _intervals(
    pairs: Pairs, ratings: Ratings | None, ends: Ends | None, *, draws: int
) -> dict[str, Limits]:
    """Return the interval of each statistic. Shares and errors are means of values with known limits. The other
    statistics are bootstrapped."""
    drawn = ("spearman", "kendall", "pearson", "qwk")
    none = Limits(None, why_none([pairs]))
    limits = dict.fromkeys(drawn, none)
    groups = int(pairs.group.max(initial=-1)) + 1
    for name, ci in intervals([pairs], groups, drawn, draws=draws).items():
        limits[name] = Limits(ci, None, "percentile")
    rated = ratings.score if ratings is not None else np.zeros(0)
    # Distances are bounded only if people used the judge's scale.
    error_ends = None
    if ends and len(rated) and ends[0] <= rated.min() and rated.max() <= ends[1]:
        error_ends = (0.0, ends[1] - ends[0])
    off = pairs.x - pairs.y
    far = np.abs(off)
    means: dict[str, tuple[Floats, Ends | None]] = {
        "exact": ((far < pairs.step / 2 - 1e-9).astype(float), (0.0, 1.0)),
        "within_one": ((far <= pairs.step + 1e-9).astype(float), (0.0, 1.0)),
        "mae": (far, error_ends),
        "bias": (off, difference_ends(error_ends)),
    }
    for name, (values, scale) in means.items():
        limits[name] = mean_interval(values, pairs.group, scale, draws=draws)
    return limits


def _bounds(
    pairs: Pairs, missing: Floats, weight: Floats, scale: Sequence[float] | None
) -> tuple[FailureBounds | None, bool, Reason | None]:
    """Return bounds of the Spearman correlation over the possible scores of failed judgements.

    The bool says whether the bounds are exact. The reason is set if there are no bounds. `missing` holds the ratings of
    items without a score; `weight` is the share of each item's repeats that failed.
    """
    if len(missing) == 0 and not weight.any():
        value = number(estimate(pairs)["spearman"])
        return FailureBounds(value, value), True, None
    if not scale:
        return None, False, Reason("unknown_scale")
    worst, best, exact = spearman_bounds(pairs.x, pairs.y, missing, scale)
    if weight.any():
        # A correlation is raised or lowered most if the failed repeats of all items rated above a limit are put at one
        # end of the scale, and those of all other items at the other end.
        ends = (min(scale), max(scale))
        limits = np.unique(pairs.y)
        chosen = np.unique(np.linspace(0, len(limits) - 1, 16).astype(int))
        for limit, above in itertools.product(limits[chosen], (1, 0)):
            fill = np.where(pairs.y > limit, ends[above], ends[1 - above])
            values = (1 - weight) * pairs.x + weight * fill
            low, high, _ = spearman_bounds(values, pairs.y, missing, scale)
            worst = np.fmin(worst, low)
            best = np.fmax(best, high)
    return FailureBounds(number(worst), number(best)), exact, None


def spearman_bounds(
    x: Floats, y: Floats, missing: Floats, scale: Sequence[float]
) -> tuple[float, float, bool]:
    """Return the lowest and highest Spearman correlation between x and y over all possible scores of the `missing`
    items, and whether they are exact.

    `missing` holds the ratings of the items without a score. All ranks depend only on how many of these items get each
    value of the scale. For given counts, the correlation is largest if the items are in the order of their ratings, and
    smallest in the opposite order (rearrangement inequality). So only the counts are varied. If there are few
    combinations, all are tried. Otherwise only the splits between the two ends of the scale are tried, and other scores
    may give a correlation outside the returned range.
    """
    from scipy.stats import rankdata

    levels = np.unique(np.asarray(scale, dtype=float))
    # If not all scores are levels, they are means, which may be between two levels.
    on_levels = bool(np.all(np.isin(x, levels)))
    values, code = np.unique(np.r_[x, levels], return_inverse=True)
    splits = _splits(len(missing), len(levels), FILLS // len(values))
    exact = splits is not None and on_levels
    if splits is None:
        k = np.unique(
            np.linspace(0, len(missing), max(2, FILLS // len(values))).astype(np.int64)
        )
        splits = np.zeros((len(k), len(levels)), np.int64)
        splits[:, 0] = k
        splits[:, -1] = len(missing) - k
    rank = rankdata(np.r_[y, missing])
    rank -= rank.mean()
    n = len(x)
    level_codes = code[n:]
    scored = np.bincount(code[:n], minlength=len(values)).astype(float)
    counts = np.tile(scored, (len(splits), 1))
    counts[:, level_codes] += splits
    middle = np.cumsum(counts, axis=1) - counts / 2 - len(rank) / 2
    spread = (counts * middle**2).sum(axis=1) * float(rank @ rank)
    fixed = middle @ np.bincount(code[:n], weights=rank[:n], minlength=len(values))
    edges = np.concatenate(
        [np.zeros((len(splits), 1), np.int64), np.cumsum(splits, axis=1)], axis=1
    )
    ends = []
    for order, pick in ((-1, np.nanmin), (1, np.nanmax)):
        sums = np.r_[0.0, np.cumsum(np.sort(rank[n:])[::order])]
        moved = (middle[:, level_codes] * np.diff(sums[edges], axis=1)).sum(axis=1)
        varied = spread > 1e-12
        rho = (fixed + moved)[varied] / np.sqrt(spread[varied])
        ends.append(float(pick(rho)) if len(rho) else np.nan)
    return ends[0], ends[1], exact


def _splits(n: int, parts: int, most: int) -> Ints | None:
    """Return all ways to split n items into `parts` parts, or None if there are more than `most` ways."""
    if comb(n + parts - 1, parts - 1) > most:
        return None
    ways = list(itertools.combinations(range(n + parts - 1), parts - 1))
    bars = np.array(ways, dtype=np.int64).reshape(-1, parts - 1)
    return np.diff(bars, axis=1, prepend=-1, append=n + parts - 1) - 1


def _mae_bounds(
    pairs: Pairs, missing: Floats, weight: Floats, scale: Sequence[float] | None
) -> FailureBounds | None:
    if ((len(missing) or weight.any()) and not scale) or not len(missing) + len(pairs):
        return None
    values = np.asarray(scale or (0.0,), dtype=float)
    each = np.abs(values[:, None] - missing[None, :])
    # The mean of an item with failed repeats lies between these two.
    low, high = (
        (1 - weight) * pairs.x + weight * end for end in (values.min(), values.max())
    )
    far = np.maximum(np.abs(low - pairs.y), np.abs(high - pairs.y)).sum()
    near = np.abs(np.clip(pairs.y, low, high) - pairs.y).sum()
    n = len(pairs) + len(missing)
    worst, best = (
        float(end(each, axis=0).sum()) if len(missing) else 0.0
        for end in (np.max, np.min)
    )
    return FailureBounds(float(far + worst) / n, float(near + best) / n)


def standing(
    pairs: Pairs, items: Sequence[str], further: FurtherRater | None, *, draws: int
) -> Standing:
    """Compare the judge in these pairs with an additional rater of the same items."""
    spearman = number(estimate(pairs)["spearman"])
    if further is None or spearman is None:
        return Standing(None, None, Reason("no_spearman"))
    if further.spearman is None:
        return Standing(None, None, further.reason)
    difference = spearman - further.spearman
    # Group codes of the additional rater's draws, so that each draw has the same source images on both sides.
    group = np.array([further.group[item] for item in items], np.int64)
    same = Pairs(pairs.x, pairs.y, group, pairs.step)
    enough = min(carried([same]), further.carried)
    drawn = averaged_draws(
        [same], further.groups, supported(("spearman",), enough), draws=draws
    )
    if not further.drawn or not drawn:
        return Standing(difference, None, further.reason or why_none([same]))
    ci = interval(drawn["spearman"] - further.drawn["spearman"], int(enough))
    if ci is None:
        return Standing(difference, None, Reason("constant"))
    verdict = "not told apart"
    if ci.hi < 0 or ci.lo > 0:
        verdict = "below" if ci.hi < 0 else "above"
    return Standing(difference, ci, None, verdict)


def _means(item: Column, score: Floats) -> dict[str, float]:
    # Rounded so that equal means of repeats or raters remain ties whatever the order of summation.
    means = np.round(item_means(item, score), 12)
    return {
        label: float(m)
        for label, m in zip(item.labels, means, strict=True)
        if np.isfinite(m)
    }


def _step(ratings: Ratings | None) -> float:
    values = np.unique(ratings.score) if ratings is not None else np.zeros(0)
    return float(np.min(np.diff(values))) if len(values) > 1 else 1.0


def _corrected(spearman: float | None, people: _People | None) -> float | None:
    if spearman is None or people is None:
        return None
    human = people.ceiling
    if human.icc1 is None or human.icc1 <= 0:
        return None
    k = human.ratings / human.items
    reliability = k * human.icc1 / (1 + (k - 1) * human.icc1)
    return max(-1.0, min(1.0, spearman / float(np.sqrt(reliability))))


def _within_model(pairs: Pairs, model: Column, groups: int, *, draws: int) -> Level:
    strata = [pairs.take(model.codes == code) for code in range(len(model.labels))]
    flat = tuple(
        name
        for name, stratum in zip(model.labels, strata, strict=True)
        if np.isnan(estimate(stratum)["spearman"])
    )
    each = averaged(strata, CORRELATIONS)
    return Level(
        len(strata),
        number(each["spearman"]),
        number(each["pearson"]),
        number(each["kendall"]),
        ci=intervals(strata, groups, CORRELATIONS, draws=draws),
        notes=(Reason.of("flat_models", models=flat, of=len(strata)),) if flat else (),
    )


def over_models(pairs: Pairs, model: Column, groups: int, *, draws: int) -> Level:
    """Return the correlations over the models' means."""
    n = len(model.labels)
    if n < 3:
        return Level(n, notes=(Reason("few_models"),))
    columns = (pairs.x, pairs.y)
    sizes = np.bincount(model.codes)
    means = [(np.bincount(model.codes, weights=v) / sizes)[None] for v in columns]
    drawn = [
        mean_draws(v, model.codes, n, pairs.group, groups, draws=draws) for v in columns
    ]
    values = {name: number(r[0]) for name, r in correlation_draws(*means).items()}
    reason = _no_system_interval(means, drawn, groups)
    ci: dict[str, Interval | None] = dict.fromkeys(CORRELATIONS)
    if reason is None:
        for name, resampled in correlation_draws(*drawn).items():
            if values[name] is not None:
                ci[name] = interval(resampled, groups)
    missing = [name for name in CORRELATIONS if ci[name] is None]
    return Level(
        n,
        values["spearman"],
        values["pearson"],
        values["kendall"],
        ci=ci,
        ci_reason=dict.fromkeys(missing, reason or Reason("undefined_in_draws")),
        notes=() if n >= FEWEST_MODELS else (Reason.of("models_say_little", models=n),),
    )


def _no_system_interval(
    means: Sequence[Floats], drawn: Sequence[Floats], groups: int
) -> Reason | None:
    """Return the reason why the correlation over models has no interval, or None if it has one.

    Bootstrap draws add the sampling error of each model's mean a second time. They are biased unless this error is
    small compared with the differences between models.
    """
    n = means[0].shape[1]
    if n < FEWEST_MODELS or groups < FEWEST_IMAGES:
        return Reason.of(
            "few_models_or_images",
            models=n,
            images=groups,
            needed_models=FEWEST_MODELS,
            needed_images=FEWEST_IMAGES,
        )
    for name, mean, draw in zip(("scores", "ratings"), means, drawn, strict=True):
        if not np.isfinite(draw).all():
            return Reason("model_missing")
        between = float(np.var(mean, ddof=1))
        # Errors are relative to the mean of all models, because a shift of all models does not change a correlation.
        error = float(np.var(draw - draw.mean(axis=1, keepdims=True), axis=0).sum()) / (
            n - 1
        )
        if between < SEPARATION * error:
            return Reason.of("models_within_error", figures=name)
    return None


def _notes(pairs: Pairs, groups: int, ratings: Ratings | None) -> tuple[Reason, ...]:
    if len(pairs) == 0:
        return (Reason("nothing_in_common"),)
    few = few_groups(groups)
    notes = [few] if few else []
    for name, values in (("judge", pairs.x), ("people", pairs.y)):
        if np.ptp(values) == 0:
            notes.append(Reason.of("constant_scores", who=name))
    if ratings is not None and (
        pairs.x.min() < ratings.score.min() or pairs.x.max() > ratings.score.max()
    ):
        notes.append(OTHER_SCALE)
    return tuple(notes)


def _halos(
    ratings: Ratings, scores: Scores, groups: Mapping[str, str], draws: int
) -> Halo:
    def between(table: Ratings | Scores) -> tuple[float | None, Interval | None]:
        parts = {f: table.where(factor=f) for f in shared}
        means = {f: _means(rows.item, rows.score) for f, rows in parts.items()}
        strata, images = _factor_pairs(means, groups)
        limits = intervals(strata, images, ("spearman",), draws=min(draws, HALO_DRAWS))
        return halo(means), limits.get("spearman")

    # The same factors on both sides, so that the two can be compared.
    shared = [f for f in scores.factor.present() if f in ratings.factor.present()]
    people, people_ci = between(ratings)
    judges = {
        judge: between(scores.where(judge=judge)) for judge in scores.judge.present()
    }
    return Halo(
        people,
        {judge: value for judge, (value, _) in judges.items()},
        people_ci,
        {judge: ci for judge, (_, ci) in judges.items()},
    )


def halo(factors: Mapping[str, Mapping[str, float]]) -> float | None:
    """Return the mean Spearman correlation over all pairs of factors, or None if it is undefined. Each pair is compared
    on the items that have both factors."""
    strata, _ = _factor_pairs(factors, {})
    return number(averaged(strata, ("spearman",))["spearman"])


def _factor_pairs(
    factors: Mapping[str, Mapping[str, float]], groups: Mapping[str, str]
) -> tuple[list[Pairs], int]:
    """Return the values of each pair of factors on the items that have both, and the number of source images."""
    codes: dict[str, int] = {}
    strata = []
    for first, second in itertools.combinations(factors.values(), 2):
        both = [item for item in first if item in second]
        group = [codes.setdefault(groups.get(item, item), len(codes)) for item in both]
        x, y = (np.array([means[item] for item in both]) for means in (first, second))
        strata.append(Pairs(x, y, np.array(group, np.int64)))
    return strata, len(codes)
