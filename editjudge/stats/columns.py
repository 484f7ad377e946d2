"""Scores of judges and ratings of people as coded columns, one row a score; and the types that every figure uses."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from editjudge.errors import UsageError, near_miss

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]
Ends: TypeAlias = tuple[float, float]
"""The lowest and the highest value that can be."""

OK = "ok"
ABSTAINED = "abstained"
FAILED = "failed"
PENDING = "pending"
"""`failed` is a score missing from a file, which says no more; a store knows the kind of failure. A judgement that is
`pending` has not been answered yet: it counts as failed."""

Z = 1.959963984540054
"""The 97.5 % point of the normal distribution."""


class Interval(NamedTuple):
    """A confidence interval; 95 % unless its holder says otherwise."""

    lo: float
    hi: float


@dataclass(frozen=True)
class Reason:
    """Why a figure is missing, or what limits it: a code and its figures, which `report.words` puts into words."""

    code: str
    figures: tuple[tuple[str, object], ...] = ()

    @classmethod
    def of(cls, code: str, **figures: object) -> Reason:
        return cls(code, tuple(figures.items()))


class Limits(NamedTuple):
    """An interval and the method that made it, or the reason for none."""

    ci: Interval | None
    reason: Reason | None
    method: str | None = None


@dataclass(frozen=True)
class FailureBounds:
    """A figure if every judgement that failed had scored at an end of the scale: it lies between the two."""

    worst: float | None
    best: float | None

    def beyond(self, ci: Interval | None) -> bool:
        """Whether they reach outside an interval, or there is none to stay inside of."""
        if self.worst is None or self.best is None or ci is None:
            return True
        lowest, highest = sorted((self.worst, self.best))
        return lowest < ci.lo or highest > ci.hi


def number(value: float) -> float | None:
    """Return a float that JSON has, or None."""
    value = float(value)
    return value if math.isfinite(value) else None


@dataclass(frozen=True, eq=False)
class Column:
    """Names as small integers, in the order of their first appearance."""

    codes: NDArray[np.int32]
    labels: tuple[str, ...]

    @classmethod
    def of(cls, values: Iterable[object]) -> Column:
        index: dict[str, int] = {}
        # A dictionary is several times faster than sorting a million strings, and keeps their order.
        codes = np.fromiter(
            (index.setdefault(str(v), len(index)) for v in values), np.int32
        )
        return cls(codes, tuple(index))

    @classmethod
    def constant(cls, label: str, n: int) -> Column:
        return cls(np.zeros(n, np.int32), (label,))

    def __len__(self) -> int:
        return len(self.codes)

    def __iter__(self) -> Iterator[str]:
        return (self.labels[code] for code in self.codes)

    def take(self, rows: NDArray[Any]) -> Column:
        return Column(self.codes[rows], self.labels)

    def where(self, wanted: str | Sequence[str]) -> Mask:
        names = (wanted,) if isinstance(wanted, str) else tuple(wanted)
        for name in names:
            if name not in self.labels:
                raise UsageError(
                    f"no {name!r} among {list(self.labels)[:12]}{near_miss(name, self.labels)}"
                )
        return np.isin(self.codes, [self.labels.index(name) for name in names])

    def present(self) -> tuple[str, ...]:
        """The labels that occur, in order; after `take` some may not."""
        counts = np.bincount(self.codes, minlength=len(self.labels))
        return tuple(label for label, n in zip(self.labels, counts, strict=True) if n)

    def compact(self) -> Column:
        """The same column with codes for what occurs only."""
        used, codes = np.unique(self.codes, return_inverse=True)
        return Column(codes.astype(np.int32), tuple(self.labels[i] for i in used))


def numbers(values: Iterable[float | None]) -> Floats:
    """Floats with NaN for None; NaN never leaves this package, it only marks a missing score inside."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "fiu":
        return values.astype(np.float64, copy=False)
    return np.array(
        [np.nan if v is None else float(v) for v in values], dtype=np.float64
    )


def combinations(*columns: Column) -> tuple[Ints, list[tuple[str, ...]]]:
    """A code for each combination of labels that occurs, and the combinations."""
    shape = [len(column.labels) for column in columns]
    if not len(columns[0]):
        return np.zeros(0, np.int64), []
    key = np.ravel_multi_index([column.codes for column in columns], shape)
    if math.prod(shape) <= 4 * len(key):  # counting beats sorting
        used = np.flatnonzero(np.bincount(key))
        position = np.zeros(int(used[-1]) + 1, np.int64)
        position[used] = np.arange(len(used))
        codes = position[key]
    else:
        used, codes = np.unique(key, return_inverse=True)
    places = zip(*np.unravel_index(used, shape), strict=True)
    return codes, [
        tuple(c.labels[i] for c, i in zip(columns, row, strict=True)) for row in places
    ]


def joined(*columns: Column) -> Column:
    """One column for several, such as a group and an instruction."""
    codes, names = combinations(*columns)
    return Column(codes.astype(np.int32), tuple(map("\x1f".join, names)))


class _Selectable:
    """Selecting rows of a dataclass whose fields are columns, arrays, or mappings of columns."""

    score: Floats

    def __len__(self) -> int:
        return len(self.score)

    def take(self, rows: NDArray[Any]) -> Self:
        changes: dict[str, Any] = {}
        for f in fields(self):  # type: ignore[arg-type]  # mixed into dataclasses only
            value = getattr(self, f.name)
            if isinstance(value, Column):
                changes[f.name] = value.take(rows)
            elif isinstance(value, np.ndarray):
                changes[f.name] = value[rows]
            else:
                changes[f.name] = {
                    name: column.take(rows) for name, column in value.items()
                }
        return replace(self, **changes)  # type: ignore[type-var]  # the same

    def where(self, **wanted: str | Sequence[str]) -> Self:
        """The rows with these labels: `scores.where(model="a", factor=["alignment", "completeness"])`."""
        keep: Mask | None = None
        for name, labels in wanted.items():
            mask = getattr(self, name).where(labels)
            keep = mask if keep is None else keep & mask
        return self if keep is None else self.take(keep)


@dataclass(frozen=True, eq=False)
class Scores(_Selectable):
    """Answers of judges: one row for each factor of each judgement, with a score or the reason for none."""

    item: Column
    factor: Column
    score: Floats
    """NaN wherever `status` is not ok."""
    status: Column
    judge: Column
    model: Column
    group: Column
    """The source image: what is drawn as a whole by every bootstrap."""
    pair: Column
    """The same edit of another model: source image and instruction."""
    repeat: NDArray[np.int32]
    answer: NDArray[np.uint64]
    """Which question was answered: equal for the same question about the same images; 0 where that is not known."""
    slices: Mapping[str, Column] = field(default_factory=dict)
    """Edit type and any other metadata, by name."""

    @classmethod
    def of(
        cls,
        item: Iterable[object],
        factor: Iterable[object],
        score: Iterable[float | None],
        *,
        judge: Iterable[object] | None = None,
        status: Iterable[object] | None = None,
        model: Iterable[object] | None = None,
        group: Iterable[object] | None = None,
        pair: Iterable[object] | None = None,
        repeat: Iterable[int] | None = None,
        answer: NDArray[np.uint64] | None = None,
        slices: Mapping[str, Iterable[object]] | None = None,
    ) -> Scores:
        values = numbers(score)
        items = _column(item)
        n = len(values)
        groups = items if group is None else _column(group)
        table = cls(
            item=items,
            factor=_column(factor),
            score=values,
            status=_column(
                np.where(np.isfinite(values), OK, FAILED) if status is None else status
            ),
            judge=Column.constant("", n) if judge is None else _column(judge),
            model=Column.constant("", n) if model is None else _column(model),
            group=groups,
            pair=groups if pair is None else _column(pair),
            repeat=np.zeros(n, np.int32)
            if repeat is None
            else np.fromiter(repeat, np.int32),
            answer=np.zeros(n, np.uint64) if answer is None else answer,
            slices={name: _column(values) for name, values in (slices or {}).items()},
        )
        _check_lengths(table, n)
        if bad := int(np.sum(table.ok != np.isfinite(values))):
            raise UsageError(
                f"{bad} rows have a score without status 'ok', or 'ok' without a score"
            )
        return table

    @classmethod
    def from_judgements(
        cls,
        rows: Iterable[Mapping[str, Any]],
        *,
        factors: Mapping[str, Sequence[str]] | None = None,
        slices: Sequence[str] = (),
    ) -> Scores:
        """Rows of a store or of `judgements.jsonl`, one line a factor.

        A failed judgement has no factors of its own: it counts for those in `factors[rubric]`, or else for
        all that any judgement of the same rubric scored or abstained from.
        """
        rows = list(rows)
        factors_of: dict[str, dict[str, None]] = {
            k: dict.fromkeys(v) for k, v in (factors or {}).items()
        }
        for row in rows:
            known = factors_of.setdefault(str(row.get("rubric", "")), {})
            if not (factors and str(row.get("rubric", "")) in factors):
                known.update(
                    dict.fromkeys(
                        [*(row.get("scores") or {}), *(row.get("abstained") or {})]
                    )
                )
        flat = [
            (row, factor, score, status)
            for row in rows
            for factor in factors_of[str(row.get("rubric", ""))]
            for score, status in [_factor_status(row, factor)]
        ]
        groups = [str(row.get("group") or row["item"]) for row, *_ in flat]
        return cls.of(
            item=[row["item"] for row, *_ in flat],
            factor=[factor for _, factor, *_ in flat],
            score=[score for *_, score, _ in flat],
            status=[status for *_, status in flat],
            judge=[row.get("judge", "") for row, *_ in flat],
            model=[row.get("model") or "" for row, *_ in flat],
            group=groups,
            pair=[
                f"{g}\x1f{row.get('instruction', '')}"
                for g, (row, *_) in zip(groups, flat, strict=True)
            ],
            repeat=[int(row.get("repeat") or 0) for row, *_ in flat],
            answer=np.array([answer_id(row.get("key")) for row, *_ in flat], np.uint64),
            slices={name: [row.get(name, "") for row, *_ in flat] for name in slices},
        )

    @property
    def ok(self) -> Mask:
        return self.having(OK)

    @property
    def failed(self) -> Mask:
        return ~(self.ok | self.having(ABSTAINED))

    def having(self, status: str) -> Mask:
        return np.array([label == status for label in self.status.labels] or [False])[
            self.status.codes
        ]


@dataclass(frozen=True, eq=False)
class Ratings(_Selectable):
    """Answers of people: one row for each rating."""

    item: Column
    rater: Column
    factor: Column
    score: Floats

    @classmethod
    def of(
        cls,
        item: Iterable[object],
        rater: Iterable[object],
        factor: Iterable[object],
        score: Iterable[float | None],
    ) -> Ratings:
        """Empty ratings are left out: a person who did not answer did not rate."""
        table = cls(_column(item), _column(rater), _column(factor), numbers(score))
        _check_lengths(table, len(table.score))
        return table.take(np.isfinite(table.score))


class FarEnds(tuple[float, ...]):
    """The ends of a scale that scores do not come near: an L1 of 1 is white against black.

    They bound what failed, and no interval: one that allowed for unseen scores there would be ten times as wide as what
    is known of pictures.
    """


def ends_of(scale: Sequence[float] | None) -> tuple[float, float] | None:
    """The lowest and the highest value of a scale that an interval allows for; None where there are none."""
    return (
        (float(min(scale)), float(max(scale)))
        if scale and not isinstance(scale, FarEnds)
        else None
    )


def worst_best(scale: Sequence[float] | None) -> tuple[float, float] | None:
    """The ends of a scale that is given from its worst value to its best one."""
    return (float(scale[0]), float(scale[-1])) if scale else None


def filled(scores: Scores, value: float) -> Scores:
    """Return the scores as if every failed judgement had given this score; one that abstained has none to give."""
    failed = scores.failed
    labels = (*scores.status.labels, OK)
    status = np.where(failed, len(labels) - 1, scores.status.codes).astype(np.int32)
    return replace(
        scores,
        score=np.where(failed, value, scores.score),
        status=Column(status, labels),
    )


def item_means(item: Column, score: Floats) -> Floats:
    """The mean of the finite scores of each item (by its code), NaN where it has none."""
    good = np.isfinite(score)
    counts = np.bincount(item.codes[good], minlength=len(item.labels))
    sums = np.bincount(
        item.codes[good], weights=score[good], minlength=len(item.labels)
    )
    means: Floats = np.divide(
        sums, counts, out=np.full(len(sums), np.nan), where=counts > 0
    )
    return means


def answer_id(key: object) -> int:
    """Return 64 bits of a task's key, which is a SHA-256 in hexadecimal; 0 for anything else."""
    try:
        return int(str(key)[:16], 16)
    except ValueError:
        return 0


def _column(values: Iterable[object]) -> Column:
    return values if isinstance(values, Column) else Column.of(values)


def _check_lengths(table: Scores | Ratings, n: int) -> None:
    for f in fields(table):
        value = getattr(table, f.name)
        columns = value.values() if isinstance(value, Mapping) else [value]
        for column in columns:
            if len(column) != n:
                raise UsageError(
                    f"column {f.name!r} has {len(column)} rows, 'score' has {n}"
                )


def _factor_status(row: Mapping[str, Any], factor: str) -> tuple[float | None, str]:
    if row["status"] not in (OK, ABSTAINED):
        return None, str(row["status"])
    score = (row.get("scores") or {}).get(factor)
    return (None, ABSTAINED) if score is None else (float(score), OK)
