"""Bridge from one judge's scale of use to another's: a monotone map with a band, and its error on held-out images."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from editjudge.stats.agreement import over_models
from editjudge.stats.calibration import Isotonic, fit
from editjudge.stats.ceiling import (
    UNDEFINED,
    Pairs,
    averaged_draws,
    carried,
    drawn_intervals,
    estimate,
    intervals,
)
from editjudge.stats.columns import (
    Column,
    Ends,
    Floats,
    Interval,
    Ints,
    Mask,
    Reason,
    Scores,
    Z,
    item_means,
    joined,
    number,
)
from editjudge.stats.inference import (
    ALPHA,
    DRAWS,
    FEWEST,
    AddedError,
    Clusters,
    difference_ends,
    folds_of,
    holm,
    infer,
    mean_interval,
)

SHARE = 0.9
"""Share of edits that a comparable factor maps within the limit."""
POINTS = 6.0
"""Distance between the ends of the scale from 1 to 7, on which the limit is stated."""
LEVELS = 20
"""Maximum number of different scores that are levels of their own. More, such as decimals, are put into bins."""
BINS = 12
SUPPORT = 5.0
"""Number of edits of average spread that are added to each level, so that a level with one or two edits is not thought
to be exact."""


@dataclass(frozen=True)
class BridgeLimits:
    """Limits of a comparable factor."""

    within: float = 0.75
    """Points of a 7-point scale within which 90 % of edits have to be mapped; on another scale the same share of it."""
    min_spearman: float = 0.6
    """Minimum of the lower limit of Spearman's correlation."""

    def on(self, ends: Ends) -> float:
        """Return `within` on the scale with these ends."""
        return self.within * (ends[1] - ends[0]) / POINTS


@dataclass(frozen=True, eq=False)
class EditPairs:
    """Mean scores of each edit by the old and by the new judge, NaN if it has none."""

    edits: tuple[str, ...]
    old: Floats
    new: Floats
    model: Column
    group: Column
    task: Column
    """Source image and instruction, by which edits of different models are compared."""
    failed_old: int = 0
    failed_new: int = 0
    """Edits without a score because their judgements failed."""

    @classmethod
    def of(cls, old: Scores, new: Scores) -> EditPairs:
        """Pair the scores of one factor by the column `pair`. The slice `task` of `old` identifies the tasks."""
        old_key = old.pair.compact()
        new_key = new.pair.compact()
        position = {label: code for code, label in enumerate(new_key.labels)}
        shared = [label in position for label in old_key.labels]
        edits = tuple(itertools.compress(old_key.labels, shared))
        first = np.zeros(len(old_key.labels), np.int64)
        first[old_key.codes[::-1]] = np.arange(len(old))[::-1]
        first = first[np.array(shared, bool)]
        here = np.flatnonzero(shared)
        there = np.array([position[label] for label in edits], np.int64)
        a = item_means(old_key, old.score)[here]
        b = item_means(new_key, new.score)[there]
        return cls(
            edits,
            a,
            b,
            old.model.take(first).compact(),
            old.group.take(first).compact(),
            old.slices["task"].take(first).compact(),
            int(np.sum(np.isnan(a) & _any(old_key, old.failed)[here])),
            int(np.sum(np.isnan(b) & _any(new_key, new.failed)[there])),
        )

    def take(self, rows: Mask) -> EditPairs:
        return EditPairs(
            tuple(itertools.compress(self.edits, rows)),
            self.old[rows],
            self.new[rows],
            self.model.take(rows).compact(),
            self.group.take(rows).compact(),
            self.task.take(rows).compact(),
            self.failed_old,
            self.failed_new,
        )

    def __len__(self) -> int:
        return len(self.edits)


def _any(key: Column, rows: Mask) -> Mask:
    return np.bincount(key.codes[rows], minlength=len(key.labels)) > 0


@dataclass(frozen=True)
class Knot:
    """A score of the new judge, and the mean score that the old judge gives to such edits, with its 95 % band."""

    new: float
    old: float
    lo: float
    hi: float
    n: int
    """Edits at this score; 0 at an end of the scale that the new judge did not use."""


@dataclass(frozen=True)
class WithPeople:
    """Spearman's correlation of both judges with people's mean ratings, over the same edits."""

    n: int
    old: float | None
    new: float | None
    difference: float | None
    """Correlation of the new judge minus that of the old one."""
    old_ci: Interval | None = None
    new_ci: Interval | None = None
    difference_ci: Interval | None = None


@dataclass(frozen=True)
class FactorBridge:
    """Bridge for one factor. Undefined figures are None."""

    comparable: bool
    reason: Reason | None
    """Reason why the factor is not comparable."""
    n: int
    """Edits that both judges scored."""
    groups: int
    failed_old: int
    failed_new: int
    within: float | None = None
    """Error, in points of the old scale, that 90 % of edits of held-out images do not exceed."""
    limit: float | None = None
    """Largest `within` of a comparable factor."""
    share: float | None = None
    """Share of edits of held-out images whose error is within the limit."""
    share_ci: Interval | None = None
    map: tuple[Knot, ...] = ()
    spearman: float | None = None
    spearman_ci: Interval | None = None
    models: int = 0
    models_spearman: float | None = None
    models_spearman_ci: Interval | None = None
    model_error: float | None = None
    """Standard deviation between models of the mean error on held-out images; None for a single model."""
    same_verdicts: float | None = None
    """Share of pairs of models about which both judges have the same verdict: higher, lower or no evidence."""
    verdicts: int = 0
    people: WithPeople | None = None


def bridge(
    pairs: EditPairs,
    *,
    scale: Ends | None,
    new_scale: Ends | None = None,
    limits: BridgeLimits | None = None,
    human: Floats | None = None,
    draws: int = DRAWS,
) -> FactorBridge:
    """Map the new judge's scores of one factor to the old judge's scale, and measure the error on held-out images.

    `scale` and `new_scale` are the ends of the scales. `human` is people's mean rating of each edit, NaN if it has
    none.
    """
    limits = limits or BridgeLimits()
    rows = np.isfinite(pairs.old) & np.isfinite(pairs.new)
    scored = pairs.take(rows)
    groups = len(scored.group.labels)
    counts = (len(scored), groups, scored.failed_old, scored.failed_new)
    if groups < FEWEST:
        few = Reason.of("bridge_few", edits=len(scored), images=groups, needed=FEWEST)
        return FactorBridge(False, few, *counts)
    group = scored.group.codes.astype(np.int64)
    errors = held_out_errors(scored, scale, new_scale)
    # The lowest error that at least 90 % of edits do not exceed, so that it agrees with `share`.
    within = float(np.quantile(np.abs(errors), SHARE, method="inverted_cdf"))
    limit = None if scale is None else limits.on(scale)
    near = np.abs(errors) <= (limit or 0.0) + 1e-9
    ranks = Pairs(scored.new, scored.old, group)
    spearman = number(estimate(ranks)["spearman"])
    ci = _spearman_interval(ranks, spearman, draws)
    models = over_models(ranks, scored.model, groups, draws=draws)
    same, verdicts = _same_verdicts(scored, scale, new_scale, draws)
    reason = _constant(scored) or _refusal(within, limit, ci, ranks, limits)
    return FactorBridge(
        reason is None,
        reason,
        *counts,
        within,
        limit,
        None if limit is None else float(near.mean()),
        None
        if limit is None
        else mean_interval(near.astype(float), group, (0.0, 1.0), draws=draws).ci,
        knots(scored, scale, new_scale),
        spearman,
        ci,
        models.models,
        models.spearman,
        models.ci.get("spearman"),
        between_models(errors, scored.model),
        same,
        verdicts,
        None if human is None else _with_people(scored, human[rows], draws),
    )


def _constant(pairs: EditPairs) -> Reason | None:
    for who, values in (("old judge", pairs.old), ("new judge", pairs.new)):
        if np.ptp(values) == 0:
            return Reason.of("constant_scores", who=who)
    return None


def _spearman_interval(
    ranks: Pairs, spearman: float | None, draws: int
) -> Interval | None:
    # The same ranks have the same correlation in every draw, from which no other interval could be computed.
    if spearman is not None and spearman > 1 - 1e-9 and carried([ranks]) >= FEWEST:
        return Interval(1.0, 1.0)
    groups = int(ranks.group.max()) + 1
    return intervals([ranks], groups, ("spearman",), draws=draws).get("spearman")


def _refusal(
    within: float,
    limit: float | None,
    ci: Interval | None,
    ranks: Pairs,
    limits: BridgeLimits,
) -> Reason | None:
    """Return the reason why a factor is not comparable, or None if it is."""
    if limit is None:
        return Reason("bridge_no_ends")
    if ci is None:
        carriers = carried([ranks])
        if carriers < FEWEST:
            few = math.floor(carriers)
            return Reason.of("bridge_few_carry", images=few, needed=FEWEST)
        return UNDEFINED
    if ci.lo < limits.min_spearman:
        return Reason.of("bridge_ranks", lowest=ci.lo, needed=limits.min_spearman)
    if within > limit + 1e-9:
        return Reason.of("bridge_wide", within=within, limit=limit)
    return None


# --- map ------------------------------------------------------------------------------------------------------


def _levels(x: Floats) -> tuple[Floats, Ints]:
    """Return the levels of the new judge's scores, and the level of each edit. If there are many different scores, a
    level is the mean of a bin."""
    used, codes = np.unique(x, return_inverse=True)
    if len(used) <= LEVELS:
        return used, codes
    edges = np.unique(np.quantile(x, np.arange(1, BINS) / BINS))
    codes = np.unique(np.searchsorted(edges, x, side="right"), return_inverse=True)[1]
    return np.bincount(codes, weights=x) / np.bincount(codes), codes


def held_out_errors(
    pairs: EditPairs, scale: Ends | None = None, new_scale: Ends | None = None
) -> Floats:
    """Return old score minus mapped score of each edit, by a map that was fitted to other source images."""
    errors = np.empty(len(pairs))
    fold = folds_of(pairs.group.codes)
    for k in range(int(fold.max()) + 1):
        test = fold == k
        mapping = knots(pairs.take(~test), scale, new_scale)
        errors[test] = pairs.old[test] - mapped(mapping, pairs.new[test])
    # Errors that differ from 0 only by rounding are set to 0.
    return np.round(errors, 9) + 0.0


def knots(
    pairs: EditPairs, scale: Ends | None = None, new_scale: Ends | None = None
) -> tuple[Knot, ...]:
    """Return the map with its 95 % band at every level.

    At each level, the error of a monotone map is at most that of the level's own mean (Lee, 1981), so the band has the
    width of the interval of that mean. Its spread is that of the level, combined with the spread of all levels, and its
    variance is inflated by the dependence within source images. A monotone map cannot be below the band of a lower
    level, nor above that of a higher one.
    """
    from scipy.special import stdtrit

    x, codes = _levels(pairs.new)
    values = fit(x[codes], pairs.old)(x)
    n = np.bincount(codes).astype(float)
    means = np.bincount(codes, weights=pairs.old) / n
    residuals = pairs.old - means[codes]
    squares = np.bincount(codes, weights=residuals**2)
    total = float(squares.sum())
    pooled = total / max(len(pairs) - len(x), 1)
    by_group = np.bincount(pairs.group.codes, weights=residuals)
    inflation = max(1.0, float(np.sum(by_group**2)) / total) if total > 0 else 1.0
    degrees = n - 1 + SUPPORT
    variance = (squares + SUPPORT * pooled) / degrees
    half = stdtrit(degrees, 0.975) * np.sqrt(variance * inflation / n)
    lo = np.maximum.accumulate(values - half)
    hi = np.minimum.accumulate((values + half)[::-1])[::-1]
    if scale:
        lo = np.maximum(lo, min(scale))
        hi = np.minimum(hi, max(scale))
    # A score outside the scale would otherwise be outside its band.
    lo = np.minimum(lo, values)
    hi = np.maximum(hi, values)
    rows = [
        Knot(float(at), float(value), float(low), float(high), int(count))
        for at, value, low, high, count in zip(x, values, lo, hi, n, strict=True)
    ]
    if not scale or not new_scale:
        return tuple(rows)
    spread = float(np.var(pairs.new))
    slope = 0.0
    if spread > 0:
        slope = max(0.0, float(np.cov(pairs.new, pairs.old, ddof=0)[0, 1]) / spread)
    return _to_the_ends(rows, slope, scale, new_scale)


def _to_the_ends(
    rows: Sequence[Knot], slope: float, scale: Ends, new_scale: Ends
) -> tuple[Knot, ...]:
    """Return the map continued to the ends of the new judge's scale, where no edit shows what the old judge would say:
    with the mean slope, and a band to the end of the scale."""
    first = rows[0]
    last = rows[-1]
    lowest, highest = scale
    before = []
    after = []
    if new_scale[0] < first.new:
        value = max(first.old - slope * (first.new - new_scale[0]), lowest)
        value = min(value, first.old)
        before = [Knot(new_scale[0], value, min(lowest, value), first.hi, 0)]
    if new_scale[1] > last.new:
        value = min(last.old + slope * (new_scale[1] - last.new), highest)
        value = max(value, last.old)
        after = [Knot(new_scale[1], value, last.lo, max(highest, value), 0)]
    return (*before, *rows, *after)


def mapped(knots: Sequence[Knot], scores: Floats) -> Floats:
    """Return scores of the new judge on the old judge's scale. A missing score stays NaN."""
    x = tuple(knot.new for knot in knots)
    return Isotonic(x, tuple(knot.old for knot in knots))(scores)


def map_error(
    knots: Sequence[Knot], scores: Floats, model_error: float | None, models: int
) -> AddedError:
    """Return the error of the mean of these scores after mapping.

    It has two parts: the error of the map, as if it had the same direction at all scores, and the difference between a
    new model and the mean of the models of the bridge.
    """
    x = [knot.new for knot in knots]
    half = [(knot.hi - knot.lo) / 2 for knot in knots]
    present = scores[np.isfinite(scores)]
    own = float(np.interp(present, x, half).mean()) / Z if len(present) else 0.0
    between = (model_error or 0.0) * math.sqrt(1 + 1 / max(models, 1))
    return AddedError(own, between, max(models - 1, 1))


def between_models(errors: Floats, model: Column) -> float | None:
    """Return the standard deviation between models of the mean error, or None for a single model."""
    models = len(model.labels)
    if models < 2:
        return None
    means = np.bincount(model.codes, weights=errors) / np.bincount(model.codes)
    return float(np.sqrt(np.sum(means**2) / (models - 1)))


# --- models and people ----------------------------------------------------------------------------------------


def _same_verdicts(
    pairs: EditPairs, scale: Ends | None, new_scale: Ends | None, draws: int
) -> tuple[float | None, int]:
    """Return the share of pairs of models about which both judges have the same verdict, and the number of pairs."""
    old = _directions(pairs, pairs.old, scale, draws)
    new = _directions(pairs, pairs.new, new_scale or scale, draws)
    decided = [
        (a, b) for a, b in zip(old, new, strict=True) if a is not None and b is not None
    ]
    if not decided:
        return None, 0
    return sum(a == b for a, b in decided) / len(decided), len(decided)


def _directions(
    pairs: EditPairs, scores: Floats, ends: Ends | None, draws: int
) -> list[int | None]:
    """Return, for each pair of models, 1 if the second is evidently higher, -1 if it is lower, 0 if neither is evident,
    and None if there is no test. P-values are Holm-corrected over all pairs."""
    cell = joined(pairs.model, pairs.task)
    _, first = np.unique(cell.codes, return_index=True)
    table = np.full((len(pairs.model.labels), len(pairs.task.labels)), np.nan)
    table[pairs.model.codes[first], pairs.task.codes[first]] = item_means(cell, scores)
    group = np.zeros(len(pairs.task.labels), np.int64)
    group[pairs.task.codes] = pairs.group.codes
    samples = []
    for a, b in itertools.combinations(range(len(table)), 2):
        gaps = np.round(table[b] - table[a], 12)
        both = np.isfinite(gaps)
        samples.append(Clusters.of(gaps[both], group[both], difference_ends(ends)))
    tests = infer(samples, draws=draws)
    ps = holm([test.p() if test else None for test in tests])
    return [
        None if p is None else int(np.sign(sample.mean)) * (p < ALPHA)
        for p, sample in zip(ps, samples, strict=True)
    ]


def _with_people(pairs: EditPairs, human: Floats, draws: int) -> WithPeople:
    rows = np.isfinite(human)
    rated = pairs.take(rows)
    groups = len(rated.group.labels)
    code = rated.group.codes.astype(np.int64)
    values = {}
    drawn = {}
    enough = []
    for name, scores in (("old", rated.old), ("new", rated.new)):
        strata = [Pairs(scores, human[rows], code)]
        values[name] = number(estimate(strata[0])["spearman"])
        enough.append(carried(strata))
        each = averaged_draws(strata, groups, ("spearman",), draws=draws)
        if "spearman" in each and enough[-1] >= FEWEST:
            drawn[name] = each["spearman"]
    old = values["old"]
    new = values["new"]
    difference = None if old is None or new is None else new - old
    if len(drawn) == 2:
        drawn["difference"] = drawn["new"] - drawn["old"]
    limits = drawn_intervals(drawn, min(enough))
    return WithPeople(
        int(rows.sum()),
        old,
        new,
        difference,
        limits.get("old"),
        limits.get("new"),
        limits.get("difference"),
    )
