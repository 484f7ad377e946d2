"""Judges against people: figures over one pair per item, with clustered intervals and the human ceiling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .answer import Answer, Interval, number, plain
from .bootstrap import DRAWS, group_notes, interval, mean_draws
from .ceiling import Ceiling, ceiling, one_against_rest
from .columns import Column, Floats, Ratings, Scores, item_means
from .concordance import Pairs, averaged, correlation_draws, estimate, intervals

CORRELATIONS = ("spearman", "pearson", "kendall")


@dataclass(frozen=True)
class Level(Answer):
    """Correlations that leave out part of what the pooled ones reward."""

    models: int
    spearman: float | None
    pearson: float | None
    kendall: float | None
    ci: Mapping[str, Interval]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class JudgeAgreement(Answer):
    """One judge on one factor: the mean of its ok scores over repeats against the mean of all ratings of an item."""

    n: int
    """Items with a score and a rating."""
    unscored: int
    """Rated items that the judge gave no score: they failed, or it abstained."""
    unrated: int
    people: float | None
    """One person against the others (mean Spearman) over the same `n` items: the ceiling of this very figure."""
    spearman: float | None
    pearson: float | None
    kendall: float | None
    """Tau-b."""
    qwk: float | None
    """Quadratic-weighted kappa (on means: Lin's concordance)."""
    mae: float | None
    bias: float | None
    """Judge minus people."""
    exact: float | None
    """The share of items less than half a step of the people's scale apart."""
    within_one: float | None
    ci: Mapping[str, Interval]
    corrected: float | None
    """Spearman over the square root of the reliability of the mean rating: against ratings without noise."""
    within_model: Level
    """Averaged over editing models, so that knowing which model made an edit does not help."""
    system: Level
    """Over the means of models: whether the judge ranks models as people do."""
    top: float | None
    """The share of scores at the top of the scale."""
    floor: float | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Halo(Answer):
    """Mean Spearman correlation between factors: near 1, all factors are one impression."""

    people: float | None
    judges: Mapping[str, float | None]


@dataclass(frozen=True)
class Agreement(Answer):
    factors: Mapping[str, Mapping[str, JudgeAgreement]]
    humans: Mapping[str, Ceiling]
    halo: Halo

    def as_json(self) -> dict[str, Any]:
        return {"factors": plain(self.factors), "humans": plain(self.humans), "halo": self.halo.as_json()}


def agree(
    ratings: Ratings,
    scores: Scores,
    *,
    scales: Mapping[str, Sequence[float]] | None = None,
    draws: int = DRAWS,
) -> Agreement:
    """Every judge on every factor. Pooled, nobody excluded, nothing rescaled; undefined is None with a note."""
    groups = dict(zip(scores.item, scores.group, strict=True))
    models = dict(zip(scores.item, scores.model, strict=True))
    humans = {f: ceiling(ratings.where(factor=f), group=groups, draws=draws) for f in ratings.factor.present()}
    factors = {
        f: {
            judge: _agreement(
                ratings.where(factor=f) if f in humans else None,
                scores.where(factor=f, judge=judge),
                (groups, models),
                humans.get(f),
                (scales or {}).get(f),
                draws=draws,
            )
            for judge in scores.where(factor=f).judge.present()
        }
        for f in scores.factor.present()
    }
    return Agreement(factors, humans, _halos(ratings, scores))


def _agreement(
    ratings: Ratings | None,
    scores: Scores,
    origin: tuple[Mapping[str, str], Mapping[str, str]],
    human: Ceiling | None,
    scale: Sequence[float] | None,
    *,
    draws: int,
) -> JudgeAgreement:
    judged, rated = _means(scores.item, scores.score), _means(ratings.item, ratings.score) if ratings else {}
    items = [item for item in judged if item in rated]
    group, model = (Column.of(names.get(item, item) for item in items) for names in origin)
    pairs = Pairs(
        np.array([judged[i] for i in items]),
        np.array([rated[i] for i in items]),
        group.codes.astype(np.int64),
        _step(ratings),
    )
    figures = {name: number(value) for name, value in estimate(pairs).items()}
    said = scores.score[scores.ok]
    low, high = (min(scale), max(scale)) if scale else (said.min(), said.max()) if len(said) else (0, 0)
    return JudgeAgreement(
        n=len(items),
        unscored=len(rated) - len(items),
        unrated=len(judged) - len(items),
        people=_people(ratings, rated, items, human),
        **figures,
        ci=intervals([pairs], len(group.labels), draws=draws),
        corrected=_corrected(figures["spearman"], human),
        within_model=_within_model(pairs, model, len(group.labels), draws=draws),
        system=_system(pairs, model, len(group.labels), draws=draws),
        top=float(np.mean(said == high)) if len(said) else None,
        floor=float(np.mean(said == low)) if len(said) else None,
        notes=_notes(pairs, len(group.labels), ratings),
    )


def _people(
    ratings: Ratings | None, rated: Mapping[str, float], items: Sequence[str], human: Ceiling | None
) -> float | None:
    if ratings is None or human is None or len(items) == len(rated):
        return human.loo_spearman if human else None
    scored = set(items)
    return one_against_rest(
        ratings.take(np.array([label in scored for label in ratings.item.labels])[ratings.item.codes])
    )


def _means(item: Column, score: Floats) -> dict[str, float]:
    # Rounded so that equal means of repeats or raters stay ties whatever the order of summing.
    means = np.round(item_means(item, score), 12)
    return {label: float(m) for label, m in zip(item.labels, means, strict=True) if np.isfinite(m)}


def _step(ratings: Ratings | None) -> float:
    values = np.unique(ratings.score) if ratings is not None else np.zeros(0)
    return float(np.min(np.diff(values))) if len(values) > 1 else 1.0


def _corrected(spearman: float | None, human: Ceiling | None) -> float | None:
    if spearman is None or human is None or human.icc1 is None or human.icc1 <= 0:
        return None
    k = human.ratings / human.items
    reliability = k * human.icc1 / (1 + (k - 1) * human.icc1)
    return max(-1.0, min(1.0, spearman / float(np.sqrt(reliability))))


def _within_model(pairs: Pairs, model: Column, groups: int, *, draws: int) -> Level:
    strata = [pairs.take(model.codes == code) for code in range(len(model.labels))]
    each = averaged(strata, CORRELATIONS) if strata else dict.fromkeys(CORRELATIONS, np.nan)
    ci = intervals(strata, groups, CORRELATIONS, draws=draws) if strata else {}
    flat = [name for name, part in zip(model.labels, strata, strict=True) if np.isnan(estimate(part)["spearman"])]
    some = f"{', '.join(flat[:3])}{f' and {len(flat) - 3} more' if len(flat) > 3 else ''}"
    notes = (f"undefined within {some} of {len(strata)} models: no spread in scores or ratings",) if flat else ()
    return Level(len(strata), **{name: number(each[name]) for name in CORRELATIONS}, ci=ci, notes=notes)


def _system(pairs: Pairs, model: Column, groups: int, *, draws: int) -> Level:
    n = len(model.labels)
    if n < 3:
        return Level(n, None, None, None, {}, ("fewer than three models: no correlation over models",))
    drawn = [mean_draws(v, model.codes, n, pairs.group, groups, draws=draws) for v in (pairs.x, pairs.y)]
    means = [(np.bincount(model.codes, weights=v) / np.bincount(model.codes))[None] for v in (pairs.x, pairs.y)]
    found = correlation_draws(means[0], means[1])
    spread = correlation_draws(*(np.where(np.isfinite(d), d, 0.0) for d in drawn))
    complete = np.isfinite(drawn[0]).all(axis=1)
    values = {name: number(found[name][0]) for name in CORRELATIONS}
    limits = {name: interval(np.where(complete, spread[name], np.nan), groups) for name in CORRELATIONS}
    ci = {name: one for name, one in limits.items() if one is not None and values[name] is not None}
    notes = () if n >= 6 else (f"only {n} models: a correlation over models says little",)
    return Level(n, **values, ci=ci, notes=notes)


def _notes(pairs: Pairs, groups: int, ratings: Ratings | None) -> tuple[str, ...]:
    if len(pairs) == 0:
        return ("no item has both a score and a rating",)
    notes = list(group_notes(groups))
    for name, values in (("judge", pairs.x), ("people", pairs.y)):
        if np.ptp(values) == 0:
            notes.append(f"the {name} gave every item the same score: correlations are undefined")
    if ratings is not None and (pairs.x.min() < ratings.score.min() or pairs.x.max() > ratings.score.max()):
        notes.append("scores lie outside the range of ratings: read kappa, MAE and bias only if scales are the same")
    return tuple(notes)


def _halos(ratings: Ratings, scores: Scores) -> Halo:
    def between(table: Ratings | Scores) -> float | None:
        parts = ((f, table.where(factor=f)) for f in table.factor.present())
        return halo({f: _means(part.item, part.score) for f, part in parts})

    # Over the same factors on both sides, or the two could not be compared.
    shared = [f for f in scores.factor.present() if f in ratings.factor.present()]
    judges = {judge: between(scores.where(judge=judge, factor=shared)) for judge in scores.judge.present()}
    return Halo(between(ratings.where(factor=shared)), judges)


def halo(factors: Mapping[str, Mapping[str, float]]) -> float | None:
    """The mean Spearman correlation over pairs of factors, each over the items that have both."""
    names, found = list(factors), []
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            both = [item for item in factors[first] if item in factors[second]]
            x, y = (np.array([factors[f][item] for item in both]) for f in (first, second))
            found.append(estimate(Pairs(x, y, np.arange(len(both))))["spearman"])
    good = [value for value in found if np.isfinite(value)]
    return float(np.mean(good)) if good else None
