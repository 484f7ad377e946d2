"""`export --good`: a filter with a promise, chosen on the edits that people rated."""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import numpy as np

from editjudge.errors import Option, UsageError, did_you_mean
from editjudge.report.agreement import factors_of, file_ratings, renamed
from editjudge.report.run_data import RunData
from editjudge.running.sums import run_sums
from editjudge.running.where import Condition, scores_of
from editjudge.stats.columns import Column, item_means
from editjudge.stats.filtering import CutTest, shift_of_rated, tested_cuts
from editjudge.store.store import Store

_CUTS = 6
"""Maximum number of cuts to choose from. Each cut takes its share of the permitted error."""
_SHIFTS = 60
"""Number of cuts looked at in each direction; those that keep the same number of edits count once."""
_DIFFERS = 2.58
"""Standard errors from which rated and unrated edits count as different: p < .01."""

Figures = Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class RatedDifference:
    """A score whose mean over rated edits differs from that over unrated edits."""

    name: str
    difference: float

    @property
    def line(self) -> str:
        return (
            f"{self.name} is {self.difference:+.2g} on rated edits, against unrated ones, beyond chance: the promise holds "
            "for edits like the rated ones; rate a random sample of the run"
        )


@dataclass(frozen=True)
class Promise:
    """The outcome of choosing a cut: the rule and what it keeps, or why none is promised."""

    rule: str
    good: str
    kept: frozenset[str]
    of: int
    precision: float
    confidence: float
    rated: int
    ratings: str
    """Digest of the ratings file."""
    test: CutTest | None
    refused: str | None
    further: int | None
    """Number of further rated edits that would suffice if they were like the others; None if no number would."""
    differing: Sequence[RatedDifference]

    def as_json(self) -> dict[str, object]:
        return {
            **self.mark(),
            "kept": len(self.kept),
            "of": self.of,
            "rated": self.rated,
            "rated_kept": self.test.rated if self.test else None,
            "rated_good": self.test.good if self.test else None,
            "p": self.test.p if self.test else None,
            "refused": self.refused,
            "further_ratings": self.further,
            "differing": {each.name: each.difference for each in self.differing},
        }

    def mark(self) -> dict[str, object]:
        """Return what a manifest says about the filter that made it."""
        return {
            "rule": self.rule,
            "good": self.good,
            "precision_at_least": self.precision,
            "confidence": self.confidence,
            "ratings": self.ratings,
        }

    @property
    def lines(self) -> list[str]:
        lines = [each.line for each in self.differing]
        if self.refused is None:
            return [
                f"of the {len(self.kept):,} edits kept, at least {self.precision:.3g} are good by people's ratings "
                f"({self.good}), with confidence {self.confidence:.3g}; {len(self.kept) / max(self.of, 1):.0%} of "
                f"{self.of:,} kept by {self.rule}",
                *lines,
            ]
        what = {
            "too_few_ratings": "the ratings are too few",
            "precision_too_low": "no cut keeps a large enough share of good edits",
        }[self.refused]
        line = f"refused: {what} for a precision of {self.precision:.3g} at confidence {self.confidence:.3g}"
        if self.test:
            line += f"; closest: {self.rule}, {self.test.good} of {self.test.rated} rated edits good"
        if self.further is not None:
            line += (
                f"; about {self.further:,} further rated edits like these would suffice"
            )
        return [line, *lines]


def promise(
    store: Store,
    run: RunData,
    rule: str,
    good: str | None,
    file: Path,
    precision: float,
    confidence: float,
    mappings: Sequence[str] = (),
) -> Promise:
    """Choose the most lenient cut of a rule at which at least `precision` of the kept edits are good by people's
    ratings. `good` is a condition on ratings; by default it is the rule itself, read on people's ratings.
    """
    condition = Condition.parse(rule, run.run.name, Option("good"))
    condition.run_in(store)
    by_people = (
        Condition.parse(good, run.run.name, Option("people-good"))
        if good
        else condition
    )
    items = list(store.items(run.run))
    names = [item.item for item in items]
    scores = scores_of(store, run.run, names)
    rated = _rated(store, run, by_people, file, mappings)
    cuts = _Cuts(condition, [scores.get(name, {}) for name in names])
    is_good = np.array([bool(rated.get(name)) for name in names])
    is_rated = np.array([rated.get(name) is not None for name in names], dtype=bool)
    group = Column.of(item.group or item.item for item in items).compact().codes
    tests = tested_cuts(
        [keep & is_rated for keep in cuts.keeps], is_good, group, precision, confidence
    )
    number, refused = _chosen(tests, cuts)
    further = None
    if refused:
        times = [test.times for test in tests if test.times]
        refused = "too_few_ratings" if times else "precision_too_low"
        further = (min(times) - 1) * int(is_rated.sum()) or 1 if times else None
    keep = cuts.keeps[number]
    differing = []
    for name in condition.names:
        column = np.array([_mean(scores.get(item, {}), name) for item in names])
        shift = shift_of_rated(column, is_rated, group)
        if shift and abs(shift[1]) >= _DIFFERS:
            differing.append(RatedDifference(name, shift[0]))
    kept = [name for name, passes in zip(names, keep, strict=True) if passes]
    return Promise(
        rule=cuts.conditions[number].words,
        good=by_people.words,
        kept=frozenset() if refused else frozenset(kept),
        of=len(names),
        precision=precision,
        confidence=confidence,
        rated=int(is_rated.sum()),
        ratings=hashlib.sha256(file.read_bytes()).hexdigest(),
        test=tests[number],
        refused=refused,
        further=further,
        differing=differing,
    )


def _chosen(tests: Sequence[CutTest], cuts: _Cuts) -> tuple[int, str | None]:
    """Return the number of the most lenient cut that passed, or else of the one that was closest to it."""
    passed = [i for i, test in enumerate(tests) if test.passed]
    if passed:
        return max(passed, key=lambda i: int(cuts.keeps[i].sum())), None
    return min(range(len(tests)), key=lambda i: tests[i].p), "refused"


def _mean(figures: Figures, name: str) -> float:
    return fmean(figures[name]) if figures.get(name) else math.nan


class _Cuts:
    """Candidate cuts of a rule, from strict to lenient. They depend on judges' scores alone."""

    def __init__(self, condition: Condition, figures: Sequence[Figures]) -> None:
        rows = [tuple(_mean(row, name) for name in condition.names) for row in figures]
        values = [value for row in rows for value in row if not math.isnan(value)]
        span = max(values) - min(values) if values else 0.0
        by_count: dict[int, tuple[Condition, np.ndarray]] = {}
        digits = 2 if span >= 1 else 4
        steps = [span * n / _SHIFTS for n in range(-_SHIFTS, _SHIFTS + 1)]
        # The rule as it is written comes first, and then those that are close to it.
        for step in sorted(steps, key=abs):
            shifted = replace(condition, stricter=round(step, digits))
            keep = _kept(shifted, rows)
            if keep.any():
                by_count.setdefault(int(keep.sum()), (shifted, keep))
        if not by_count:
            by_count[0] = (condition, np.zeros(len(rows), dtype=bool))
        counts = sorted(by_count)
        picks = np.unique(np.linspace(0, len(counts) - 1, _CUTS).round().astype(int))
        chosen = [by_count[counts[i]] for i in picks]
        self.conditions = [condition for condition, _ in chosen]
        self.keeps = [keep for _, keep in chosen]


def _kept(condition: Condition, rows: Sequence[tuple[float, ...]]) -> np.ndarray:
    @functools.cache
    def passes(row: tuple[float, ...]) -> bool:
        present = {
            name: [value]
            for name, value in zip(condition.names, row, strict=True)
            if not math.isnan(value)
        }
        return bool(condition.holds(present))

    return np.array([passes(row) for row in rows], dtype=bool)


def _rated(
    store: Store,
    run: RunData,
    condition: Condition,
    file: Path,
    mappings: Sequence[str],
) -> dict[str, bool | None]:
    """Return whether each rated edit is good by the mean of its ratings; None if a rating that this needs is missing."""
    ratings, _ = file_ratings(file, run)
    ratings = renamed(ratings, mappings, factors_of(run))
    figures: dict[str, dict[str, list[float]]] = {}
    for factor in ratings.factor.present():
        rated = ratings.where(factor=factor)
        means = item_means(rated.item, rated.score)
        for item, mean in zip(rated.item.labels, means, strict=True):
            if not math.isnan(mean):
                figures.setdefault(item, {})[factor] = [float(mean)]
    sums = run_sums(store, run.run)
    for of_item in figures.values():
        for name, factors in sums.items():
            if name not in of_item and all(factor in of_item for factor in factors):
                of_item[name] = [fmean(of_item[factor][0] for factor in factors)]
    present = dict.fromkeys(name for of_item in figures.values() for name in of_item)
    for name in condition.names:
        if name not in present:
            option = Option("people-good")
            raise UsageError(
                f'{file}: people did not rate "{name}"{did_you_mean(name, present)} They rated '
                f"{', '.join(present) or 'nothing of this run'}: say what a good edit is by their ratings, such as "
                f'{option} "SC>=.5 and PQ>=.5", or map names with --map-factor',
                options=[option],
                code="unknown_rating",
            )
    return {item: condition.holds(of_item) for item, of_item in figures.items()}
