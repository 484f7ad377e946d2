"""The value of a formula, for all edits at once: a number, or the reason for none."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from editjudge.rubrics.formula import Ref, Term
from editjudge.values import compare, is_given, place_among, word_of

OK, NOT_ASKED, LEFT_OUT, ABSTAINED, UNDEFINED, FAILED = range(6)
"""Why a cell has no number; where several meet, the highest counts. `LEFT_OUT` is an abstention inside `applies`; codes
from `FAILED` on are the caller's own kinds of failure."""

REASONS = ("ok", "not_asked", "abstained", "abstained", "undefined")
"""What people call the codes below `FAILED`."""

NO_ELEMENT = object()
"""Stands for the field of an element that does not exist, which is something else than an element without a label."""

Floats = NDArray[np.float64]
Codes = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Cells:
    """A row for each edit, a column for each value that it has: one, or as many as a list is long."""

    values: Floats
    """NaN where `codes` is not OK; of a word, its place among the choices."""
    codes: Codes

    @classmethod
    def of(cls, values: Any, codes: Any) -> Cells:
        """From two arrays of edits, or of edits x values; a number that is not finite is undefined."""
        numbers = np.asarray(values, np.float64)
        states = np.asarray(codes, np.uint8)
        shape = (len(numbers), -1) if numbers.ndim == 1 else numbers.shape
        numbers = numbers.reshape(shape)
        states = states.reshape(shape)
        states = np.where((states == OK) & ~np.isfinite(numbers), np.uint8(UNDEFINED), states)
        return cls(np.where(states == OK, numbers, np.nan), states)

    @classmethod
    def absent(cls, n: int) -> Cells:
        """Of a rubric that nobody was asked."""
        return cls.of(np.full(n, np.nan), np.full(n, NOT_ASKED))


@dataclass(frozen=True, eq=False)
class Rows:
    """The edits that a formula is evaluated for."""

    n: int
    factors: Mapping[Ref, Cells]
    """A factor that is not there was not asked."""
    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Values of the manifest's columns, as the manifest has them."""
    elements: Mapping[Ref, NDArray[Any]] = field(default_factory=dict)
    """Of a rubric asked for each element of a list, by its name and a field of the elements: values, edits x places;
    `NO_ELEMENT` where the edit's list has no such place."""


def evaluate(term: Term, rows: Rows) -> Cells:
    """The formula's value for each edit."""
    if term.op in _SPECIAL:
        return _SPECIAL[term.op](term, rows)
    parts = [evaluate(part, rows) for part in term.parts]
    if term.op in _UNARY:
        return _checked(_UNARY[term.op], parts)
    if term.op not in _BINARY:
        return _reduced(term.op, _beside(parts), _answered(term, parts))
    result = parts[0]
    for part in parts[1:]:
        result = _checked(_BINARY[term.op], [result, part])
    return result


def _compare(sign: str, a: Floats, b: Floats) -> Any:
    return compare(a, sign, b)


def _answered(term: Term, parts: Sequence[Cells]) -> Any:
    """Of each column of the parts side by side, whether it comes of answers: a constant alone is nobody's score."""
    answers = [any(part.refs for part in whole.walk()) for whole in term.parts]
    widths = [cells.codes.shape[1] for cells in parts]
    return np.repeat(answers, widths) if any(answers) else np.ones(sum(widths), bool)


def something_asked(term: Term, rows: Rows) -> Any:
    """Whether each edit was asked for any factor that its value needs; cases and branches that do not apply to it need
    none."""
    match term.op:
        case "factors":
            return (_factors(term, rows).codes != NOT_ASKED).any(axis=1)
        case "by":
            column = _words(_column(str(term.value), rows))
            rest = term.parts[len(term.cases) :]
            result = something_asked(rest[0], rows) if rest else np.zeros(rows.n, bool)
            for case, part in zip(term.cases, term.parts, strict=False):
                result = np.where(column == word_of(case), something_asked(part, rows), result)
            return result
        case "if":
            test, yes, no = term.parts
            decided = evaluate(test, rows)
            undecided = decided.codes[:, 0] != OK
            for_yes = something_asked(yes, rows) & (undecided | (decided.values[:, 0] != 0))
            for_no = something_asked(no, rows) & (undecided | (decided.values[:, 0] == 0))
            return something_asked(test, rows) | for_yes | for_no
    asked_parts = [something_asked(part, rows) for part in term.parts]
    return np.logical_or.reduce(asked_parts) if asked_parts else np.zeros(rows.n, bool)


_UNARY: Mapping[str, Any] = {
    "neg": np.negative,
    "not": lambda a: (a == 0).astype(float),
    "sqrt": np.sqrt,
    "abs": np.abs,
}
_BINARY: Mapping[str, Any] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "and": lambda a, b: ((a != 0) & (b != 0)).astype(float),
    "or": lambda a, b: ((a != 0) | (b != 0)).astype(float),
    **{sign: functools.partial(_compare, sign) for sign in ("==", "!=", "<", "<=", ">", ">=")},
}


def _beside(parts: Sequence[Cells]) -> Cells:
    if len(parts) == 1:
        return parts[0]
    return Cells(np.concatenate([p.values for p in parts], axis=1), np.concatenate([p.codes for p in parts], axis=1))


def _checked(function: Any, parts: Sequence[Cells]) -> Cells:
    """The function's values; the highest code of its arguments; undefined where arithmetic gives no number."""
    codes = parts[0].codes if len(parts) == 1 else np.maximum(parts[0].codes, parts[1].codes)
    with np.errstate(all="ignore"):
        values = np.asarray(function(*(part.values for part in parts)), np.float64)
    return Cells.of(values, codes)


def _chosen(second: Any, yes: Cells, no: Cells) -> Cells:
    return Cells.of(np.where(second, no.values, yes.values), np.where(second, no.codes, yes.codes))


def _number(term: Term, rows: Rows) -> Cells:
    return Cells.of(np.full(rows.n, float(term.value)), np.zeros(rows.n))


def _factors(term: Term, rows: Rows) -> Cells:
    absent = Cells.absent(rows.n)
    return _beside([rows.factors.get(ref, absent) for ref in term.refs])


def _if(term: Term, rows: Rows) -> Cells:
    test, yes, no = (evaluate(part, rows) for part in term.parts)
    chosen = _chosen(test.values == 0, yes, no)
    return Cells.of(chosen.values, np.where(test.codes, test.codes, chosen.codes))


def _compared(term: Term, rows: Rows) -> Cells:
    left, right = term.parts
    if left.op == "column":
        same = _words(_column(str(left.value), rows)) == word_of(right.value)
        return Cells.of(same == (term.op == "=="), np.zeros(rows.n))
    if right.op in ("column", "each"):
        labels = _column(str(right.value), rows)[:, None]
        if right.op == "each":
            labels = rows.elements.get((left.refs[0][0], str(right.value)), labels[:, :0])
        return _held_against(term.op, left, evaluate(left, rows), labels)
    if right.op == "text":  # of words, their places among the choices are compared
        right = Term("number", value=float(left.choices.index(str(right.value))))
    return _checked(_BINARY[term.op], [evaluate(left, rows), evaluate(right, rows)])


def _held_against(sign: str, term: Term, cells: Cells, labels: NDArray[Any]) -> Cells:
    """Whether each answer is the edit's label. What has no label was not asked; with a label that is none of the
    choices there is no right answer. A question that failed for want of a list has no element, and stays a failure."""
    places = np.full(labels.shape, np.nan)
    unlabelled = np.zeros(labels.shape, bool)
    for at, label in np.ndenumerate(labels):
        if label is NO_ELEMENT:
            continue
        unlabelled[at] = word_of(label) == ""
        place = place_among(label, term.choices)
        places[at] = np.nan if place is None else place
    codes = np.where(np.isnan(places), np.maximum(cells.codes, UNDEFINED), cells.codes)
    codes = np.where(unlabelled | (cells.codes == NOT_ASKED), NOT_ASKED, codes)
    return Cells.of((cells.values == places) == (sign == "=="), codes)


def _column(name: str, rows: Rows) -> NDArray[Any]:
    values = np.empty(rows.n, dtype=object)  # filled one by one: NumPy would make a table of lists
    for at, value in enumerate(rows.columns.get(name, ())):
        values[at] = value
    return values


def _words(values: NDArray[Any]) -> NDArray[Any]:
    words = np.empty(values.shape, dtype=object)
    for at, value in np.ndenumerate(values):
        words[at] = word_of(value)
    return words


def _given(term: Term, rows: Rows) -> Cells:
    holds = [is_given(value) for value in _column(str(term.value), rows)]
    return Cells.of(np.array(holds, float), np.zeros(rows.n))


def _by(term: Term, rows: Rows) -> Cells:
    column = _words(_column(str(term.value), rows))
    rest = term.parts[len(term.cases) :]
    # An edit of a kind that the formula does not name was not asked for this score.
    result = evaluate(rest[0], rows) if rest else Cells.absent(rows.n)
    for case, part in zip(term.cases, term.parts, strict=False):
        result = _chosen((column != word_of(case))[:, None], evaluate(part, rows), result)
    return result


def _asked(term: Term, rows: Rows) -> Cells:
    cells = evaluate(term.parts[0], rows)
    return Cells.of((cells.codes != NOT_ASKED).any(axis=1), np.zeros(rows.n))


def _scored(term: Term, rows: Rows) -> Cells:
    """Whether there is a number: an abstention has none, of a failure it is not known."""
    cells = evaluate(term.parts[0], rows)
    codes = cells.codes.max(axis=1)
    return Cells.of((cells.codes == OK).any(axis=1), np.where(codes >= UNDEFINED, codes, OK))


def _applies(term: Term, rows: Rows) -> Cells:
    return _left_out(_beside([evaluate(part, rows) for part in term.parts]))


def _left_out(cells: Cells) -> Cells:
    return Cells.of(cells.values, np.where(cells.codes == ABSTAINED, LEFT_OUT, cells.codes))


def _with_scales(term: Term, rows: Rows) -> list[tuple[Cells, float, float]]:
    """Each factor's cells, worst and best score."""
    ends = [(float(scale.worst or 0), float(scale.best or 0)) for scale in term.scales]
    absent = Cells.absent(rows.n)
    return [(rows.factors.get(ref, absent), *both) for ref, both in zip(term.refs, ends, strict=True)]


def _share(term: Term, rows: Rows) -> Cells:
    factors = _with_scales(term.parts[0], rows)
    return _beside([Cells.of((cells.values - worst) / (best - worst), cells.codes) for cells, worst, best in factors])


def _full(term: Term, rows: Rows) -> Cells:
    columns: list[Cells] = []
    for part in term.parts:
        for factors in part.parts if part.op == "applies" else (part,):
            full = [
                Cells.of(compare(cells.values, "==", best), cells.codes)
                for cells, _, best in _with_scales(factors, rows)
            ]
            columns += map(_left_out, full) if part.op == "applies" else full
    return _reduced("all", _beside(columns))


def _weighted(term: Term, rows: Rows) -> Cells:
    """The weighted mean; the weights of what was asked count as a whole."""
    cells = _beside([evaluate(pair.parts[0], rows) for pair in term.parts])
    there = ~_skipped(cells.codes)
    weights = np.where(there, [float(pair.parts[1].value) for pair in term.parts], 0.0)
    total, sums = _sum(weights * np.nan_to_num(cells.values)), _sum(weights)
    # .3 + .5 + .2 is 1, whatever binary fractions add up to: the published sums are not divided.
    whole = np.rint(sums)
    sums = np.where((whole > 0) & compare(sums, "==", whole), whole, sums)
    with np.errstate(all="ignore"):
        return Cells.of(total / sums, _joint(cells.codes))


def _skipped(codes: Codes) -> Any:
    return (codes == NOT_ASKED) | (codes == LEFT_OUT)


def _joint(codes: Codes, answered: Any = True) -> Any:
    """Of each row: the worst code of what was asked; where no answer was, why. `answered` marks columns of answers."""
    left_out = _skipped(codes)
    worst = np.where(left_out, OK, codes).max(axis=1)
    reason = np.where(answered, codes, OK).max(axis=1)
    return np.where((left_out | np.logical_not(answered)).all(axis=1), reason, worst)


def _reduced(op: str, cells: Cells, answered: Any = True) -> Cells:
    """One value of each row. Where none of its answers was asked for there is none, whatever constants stand there."""
    there = ~_skipped(cells.codes)
    count = there.sum(axis=1)
    joint = _joint(cells.codes, answered)
    if op == "count":
        return Cells.of(count, np.where(count == 0, OK, joint))
    empty, function = _REDUCTIONS[op]
    values = np.where(there & (cells.codes == OK), cells.values, empty)
    with np.errstate(all="ignore"):
        result = np.asarray(function(values, np.maximum(count, 1)), np.float64)
    return Cells.of(result, joint)


def _sum(values: Floats) -> Any:
    """From left to right, as a loop adds them."""
    return functools.reduce(np.add, values.T, np.zeros(len(values)))


def _geomean(values: Floats, count: Any) -> Any:
    product = np.prod(values, axis=1)
    plain = product ** (1 / count)
    # The product of a long list leaves the range of numbers, its root does not.
    by_logarithms = np.exp(np.log(values).sum(axis=1) / count)
    out_of_range = ~np.isfinite(product) | (product < np.finfo(float).tiny)
    roots = np.where(out_of_range, by_logarithms, plain)
    return np.where((values < 0).any(axis=1), np.nan, roots)


_REDUCTIONS: Mapping[str, tuple[float, Callable[[Floats, Any], Any]]] = {
    "min": (np.inf, lambda values, _: values.min(axis=1)),
    "max": (-np.inf, lambda values, _: values.max(axis=1)),
    "all": (1.0, lambda values, _: (values != 0).all(axis=1)),
    "any": (0.0, lambda values, _: (values != 0).any(axis=1)),
    "sum": (0.0, lambda values, _: _sum(values)),
    "mean": (0.0, lambda values, count: _sum(values) / count),
    "geomean": (1.0, _geomean),
}
"""What stands in the place of what was not asked, and the value of a row; the second argument counts what was asked."""

_SPECIAL: Mapping[str, Callable[[Term, Rows], Cells]] = {
    "number": _number,
    "factors": _factors,
    "if": _if,
    "by": _by,
    "given": _given,
    "asked": _asked,
    "scored": _scored,
    "applies": _applies,
    "share": _share,
    "full": _full,
    "weights": _weighted,
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">="), _compared),
}
"""Terms that look at more than the values of their parts."""
