"""Variance components of scores (edits, judges, repeats), and the number of edits or repeats needed for an interval of
a given width."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from editjudge.errors import UsageError
from editjudge.stats.columns import Codes, Floats, Reason, Scores, Z, joined


@dataclass(frozen=True)
class Noise:
    """Variance components of one factor, estimated from the mean squares of a random-effects analysis; all are at least 0."""

    factor: str
    edits: int
    judges: int
    repeats: float
    """Number of times that one judge scored an edit (harmonic mean)."""
    edit_variance: float | None
    """Variance between edits, which is the signal. With a single judge it includes the edit x judge interaction."""
    judge_variance: float | None
    """Variance between the judges' means; None with one judge."""
    interaction_variance: float | None
    """Variance of the edit x judge interaction, which arises if judges order the edits differently; None with one
    judge."""
    repeat_variance: float | None
    """Variance between repeats of the same question by one judge; None without repeats."""
    same_answer: float | None
    """Self-consistency: share of pairs of repeats with equal scores."""
    mean_gap: float | None
    """Mean absolute difference between two repeats of the same question."""
    notes: tuple[Reason, ...]

    @property
    def signal(self) -> float | None:
        """Variance of one judge's scores between edits, without noise between repeats."""
        if self.edit_variance is None:
            return None
        return self.edit_variance + (self.interaction_variance or 0.0)

    def reliability(self, repeats: int = 1) -> float | None:
        """Return the reliability of one judge's mean over this number of repeats, which is the share of variance that
        is not noise. Return None if it is unknown."""
        signal = self.signal
        if signal is None or self.repeat_variance is None:
            return None
        total = signal + self.repeat_variance / repeats
        return signal / total if total > 0 else None

    def needed_edits(self, width: float, repeats: int = 1) -> int | None:
        """Return the number of edits needed for a 95 % interval of this width, with this number of repeats per edit.
        Return None if the variance is unknown.
        """
        if self.signal is None:
            return None
        spread = self.signal + (self.repeat_variance or 0.0) / repeats
        return max(1, math.ceil(spread * (2 * Z / _positive(width)) ** 2 - 1e-9))

    def needed_repeats(self, width: float) -> int | None:
        """Return the number of repeats needed for an interval of this width with the present edits, or None if no
        number suffices."""
        if self.signal is None or self.repeat_variance is None:
            return None
        room = (_positive(width) / (2 * Z)) ** 2 * self.edits - self.signal
        if room <= 0:
            return None
        return max(1, math.ceil(self.repeat_variance / room - 1e-9))


def noise(scores: Scores) -> list[Noise]:
    """Return the noise of each factor in a run with several repeats or several judges."""
    ok = scores.take(scores.ok)
    return [_noise(factor, ok.where(factor=factor)) for factor in ok.factor.present()]


def _noise(factor: str, scores: Scores) -> Noise:
    item = scores.item.compact()
    judge = scores.judge.compact()
    cell = joined(scores.item, scores.judge).codes
    repeat, k = within_variance(cell, scores.score)
    table = crossed(item.codes, judge.codes, scores.score)
    n = len(item.labels)
    return Noise(
        factor,
        n,
        len(judge.labels),
        k,
        *_components(table, (repeat or 0.0) / k),
        repeat,
        *_self_consistency(scores.score, cell),
        _notes(n, table.shape, repeat),
    )


def _components(
    table: Floats, noise_of_mean: float
) -> tuple[float | None, float | None, float | None]:
    """Return the edit, judge and interaction variance, found by equating mean squares with their expectations. A
    variance that cannot be estimated is None.
    """
    n, j = table.shape
    if n < 2:
        return None, None, None
    if j < 2:
        return max(0.0, float(table.var(ddof=1)) - noise_of_mean), None, None
    ms_edit, ms_judge, ms_rest = mean_squares(table)
    return (
        max(0.0, (ms_edit - ms_rest) / j),
        max(0.0, (ms_judge - ms_rest) / n),
        max(0.0, ms_rest - noise_of_mean),
    )


def _self_consistency(score: Floats, cell: Codes) -> tuple[float | None, float | None]:
    """Return the share of pairs of repeats with equal scores, and the mean difference within pairs. Both are None if no
    edit was judged repeatedly.
    """
    order = np.lexsort((score, cell))
    codes = cell[order]
    values = score[order]
    m = np.bincount(codes)
    pairs = int(np.sum(m * (m - 1) // 2))
    if pairs == 0:
        return None, None
    # In a sorted cell of m values, the k-th counts 2k - m + 1 times in the sum of gaps.
    k = np.arange(len(codes)) - (np.cumsum(m) - m)[codes]
    gap = float(np.sum((2 * k - m[codes] + 1) * values))
    new = np.r_[True, (codes[1:] != codes[:-1]) | (values[1:] != values[:-1])]
    runs = np.bincount(np.cumsum(new) - 1)
    return float(np.sum(runs * (runs - 1) // 2)) / pairs, gap / pairs


def _notes(
    edits: int, table: tuple[int, ...], repeat: float | None
) -> tuple[Reason, ...]:
    notes = []
    if repeat is None:
        notes.append(Reason("no_repeats"))
    if table[1] < 2:
        notes.append(Reason("one_judge"))
    if table[0] < 2:
        notes.append(Reason("few_edits_of_all"))
    elif table[0] < edits:
        notes.append(Reason.of("edits_left_out", n=edits - table[0]))
    return tuple(notes)


def _positive(width: float) -> float:
    if width <= 0:
        raise UsageError(
            f"the width {width} is invalid: expected a positive number",
            code="bad_number",
        )
    return width


def within_variance(cell: Codes, x: Floats) -> tuple[float | None, float]:
    """Return the pooled variance within cells, or None if no cell has two values. Also return the harmonic mean of the
    cells' sizes."""
    counts = np.bincount(cell)
    if len(counts) == 0:
        return None, 1.0
    off = x - (np.bincount(cell, weights=x) / counts)[cell]
    freedom = int(np.sum(counts - 1))
    variance = float(np.sum(off**2)) / freedom if freedom else None
    return variance, len(counts) / float(np.sum(1 / counts))


def crossed(row: Codes, column: Codes, x: Floats) -> Floats:
    """Return the mean of every cell for the rows that have a value in every column."""
    if len(x) == 0:
        return np.empty((0, 0))
    shape = int(row.max()) + 1, int(column.max()) + 1
    key = row.astype(np.int64) * shape[1] + column
    counts = np.bincount(key, minlength=shape[0] * shape[1])
    sums = np.bincount(key, weights=x, minlength=len(counts))
    seen = counts.reshape(shape) > 0
    used = seen.any(axis=0)
    means: Floats = (sums / np.maximum(counts, 1)).reshape(shape)
    return means[seen[:, used].all(axis=1)][:, used]


def mean_squares(table: Floats) -> tuple[float, float, float]:
    """Return the mean squares of rows, columns and residuals of a table with at least two rows and columns."""
    (n, k) = table.shape
    grand = table.mean()
    rows = table.mean(1)
    columns = table.mean(0)
    rest = table - rows[:, None] - columns[None, :] + grand
    return (
        k * float(np.sum((rows - grand) ** 2)) / (n - 1),
        n * float(np.sum((columns - grand) ** 2)) / (k - 1),
        float(np.sum(rest**2)) / ((n - 1) * (k - 1)),
    )
