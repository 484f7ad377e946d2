"""Evaluation of expressions, either for one edit or for all edits of a run. The result is a number, or a code that says
why there is none.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from editjudge.edit import Edit
from editjudge.rubrics.expression import Ref, Term, parse_when
from editjudge.values import Number, compare, is_given, place_among, word_of

OK, NOT_ASKED, LEFT_OUT, ABSTAINED, UNDEFINED, FAILED = range(6)
"""Codes that say why a number is missing; if several apply, the highest is used. `LEFT_OUT` is an abstention inside
`applies`. `FAILED` and higher codes are kinds of failure that the caller defines.
"""

REASONS = ("ok", "not_asked", "abstained", "abstained", "undefined")
"""Names of the codes below `FAILED`."""

NO_ELEMENT = object()
"""Value of a field of an element that does not exist. An element without a label has None instead."""

Column = Any
"""Value of a column for one edit, or a sequence with a value for each edit."""


class Quantity(NamedTuple):
    """A value and its code, for one edit or for every edit of a run."""

    value: Number
    """The number; NaN if `code` is not OK. A choice is represented by its index."""
    code: Number


Cells = Sequence[Quantity]
"""Values of a term: a single one, or one for each element of a list."""


@dataclass(frozen=True)
class Arithmetic:
    """Operations that differ between single numbers and arrays."""

    where: Callable[[Number, Number, Number], Number]
    larger: Callable[[Number, Number], Number]
    smaller: Callable[[Number, Number], Number]
    is_finite: Callable[[Number], Number]
    nearest: Callable[[Number], Number]
    """Return the nearest integer."""
    sqrt: Callable[[Number], Number]
    log: Callable[[Number], Number]
    exp: Callable[[Number], Number]
    power: Callable[[Number, Number], Number]
    divide: Callable[[Number, Number], Number]
    total: Callable[[Sequence[Number]], Number]
    """Return the sum of the values. Published scores are equal to the last digit only if they are added in the same
    order.
    """
    each: Callable[[Callable[[object], object], Column], Number]
    """Apply a function to the value that each edit has in a column."""
    without_warnings: Callable[[], AbstractContextManager[object]] = nullcontext

    def cell(self, value: Number, code: Number = OK) -> Quantity:
        """Return a value with its code. A number that is not finite gets the code `UNDEFINED`."""
        undefined = (code == OK) & (self.is_finite(value) ^ True)
        code = self.where(undefined, UNDEFINED, code)
        return Quantity(self.where(code == OK, value * 1.0, math.nan), code)


def _or_nan(function: Callable[..., float]) -> Callable[..., float]:
    """Wrap a function so that it returns NaN instead of raising, as NumPy does."""

    def safe(*numbers: float) -> float:
        try:
            return function(*numbers)
        except (ArithmeticError, ValueError):
            return math.nan

    return safe


SINGLE = Arithmetic(
    where=lambda test, yes, no: yes if test else no,
    larger=max,
    smaller=min,
    is_finite=math.isfinite,
    nearest=round,
    sqrt=_or_nan(math.sqrt),
    log=_or_nan(math.log),
    exp=_or_nan(math.exp),
    power=_or_nan(math.pow),
    divide=_or_nan(operator.truediv),
    total=_or_nan(math.fsum),
    each=lambda function, value: function(value),
)
"""Arithmetic for one edit. A sum is rounded once, at the end."""


@functools.cache
def columns() -> Arithmetic:
    """Return the arithmetic for NumPy arrays. Sums are added from left to right, as in a loop."""
    import numpy as np

    return Arithmetic(
        where=np.where,
        larger=np.maximum,
        smaller=np.minimum,
        is_finite=np.isfinite,
        nearest=np.rint,
        sqrt=np.sqrt,
        log=np.log,
        exp=np.exp,
        power=np.power,
        divide=np.divide,
        total=lambda parts: functools.reduce(np.add, parts),
        each=lambda function, values: np.array([function(value) for value in values]),
        without_warnings=lambda: np.errstate(all="ignore"),
    )


@dataclass(frozen=True, eq=False)
class Rows:
    """Edits for which an expression is evaluated."""

    factors: Mapping[Ref, Cells]
    """Value of each factor, or its values for the elements of a list. A factor that is missing here was not part of a
    question.
    """
    columns: Mapping[str, Column] = field(default_factory=dict)
    """Values of the manifest's columns, keyed by column name."""
    elements: Mapping[Ref, Sequence[Column]] = field(default_factory=dict)
    """Labels of list elements, keyed by rubric and the element's field. There is a column for each position, with
    `NO_ELEMENT` for edits whose list is shorter.
    """
    absent: Column = None
    """Value of a column that does not exist."""
    arithmetic: Arithmetic = SINGLE

    def cell(self, value: Number, code: Number = OK) -> Quantity:
        return self.arithmetic.cell(value, code)

    def where(self, test: Number, yes: Number, no: Number) -> Number:
        return self.arithmetic.where(test, yes, no)

    def each(self, function: Callable[[object], object], values: Column) -> Number:
        """Apply a function to the value that each edit has in a column."""
        return self.arithmetic.each(function, values)

    def constant(self, value: object) -> Number:
        """Return the same value for each edit."""
        return self.each(lambda _: value, self.absent)

    def column(self, term: Term) -> Column:
        return self.columns.get(str(term.value), self.absent)

    def matches(self, name: str | float, options: Iterable[str]) -> Number:
        """Return, for each edit, whether a column has one of the values in `options`."""
        keys = {word_of(option) for option in options}
        values = self.columns.get(str(name), self.absent)
        return self.each(lambda value: word_of(value) in keys, values)


def column_rows(
    n: int,
    factors: Mapping[Ref, Cells],
    values: Mapping[str, Sequence[object]] | None = None,
    elements: Mapping[Ref, Sequence[Sequence[object]]] | None = None,
) -> Rows:
    """Return the rows of `n` edits, stored by column: each factor or value is an array with one entry for each edit."""
    return Rows(factors, values or {}, elements or {}, [None] * n, columns())


def applies(when: str, edit: Edit) -> bool:
    """Whether the condition of a rubric is true for an edit; an empty condition is always true."""
    if not when:
        return True
    term = parse_when(when)
    values: dict[str, object] = {}
    for part in term.walk():
        name = str(part.value)
        if part.op == "length":
            values[name] = _length(edit, name.removeprefix("count(").removesuffix(")"))
            continue
        value = edit.value(name)
        values[name] = _IMAGE if value is None and edit.has(name) else value
    return bool(evaluate(term, Rows({}, values)).value)


def _length(edit: Edit, name: str) -> int:
    """Return the number of images or elements that an edit has under a name."""
    images = [i for i in edit.image_names(name) if edit.image(i) is not None]
    return len(images or edit.listed(name) or ())


_IMAGE = object()
"""Value of a column that contains an image: it counts as given, and equals no string."""


def evaluate(term: Term, rows: Rows) -> Quantity:
    """Return the value of an expression. The expression must have a single value for each edit."""
    with rows.arithmetic.without_warnings():
        return values_of(term, rows)[0]


def quantity_for_edit(term: Term, scores: Mapping[Ref, float]) -> Quantity:
    """Return the value and its code for one edit with these scores. A missing score counts as an abstention."""
    factors = {
        ref: [Quantity(scores.get(ref, math.nan), OK if ref in scores else ABSTAINED)]
        for part in term.walk()
        for ref in part.refs
    }
    return evaluate(term, Rows(factors))


def value_for_edit(term: Term, scores: Mapping[Ref, float]) -> float | None:
    """Return the value for one edit with these scores, or None if a score that it needs is missing."""
    result = quantity_for_edit(term, scores)
    return float(result.value) if result.code == OK else None


def values_of(term: Term, rows: Rows) -> Cells:
    """Return the values of a term: a single one, or one for each element of a list."""
    if term.op in _SPECIAL:
        return _SPECIAL[term.op](term, rows)
    parts = [values_of(part, rows) for part in term.parts]
    if term.op not in _ELEMENTWISE:
        return [_reduced(term, parts, rows)]
    function = functools.partial(_ELEMENTWISE[term.op], rows.arithmetic)
    result = parts[0]
    if len(parts) == 1:
        return [rows.cell(function(cell.value), cell.code) for cell in result]
    for part in parts[1:]:
        result = _combined(function, result, part, rows)
    return result


_ELEMENTWISE: Mapping[str, Callable[..., Number]] = {
    "neg": lambda _, a: -a,
    "not": lambda _, a: a == 0,
    "sqrt": lambda arithmetic, a: arithmetic.sqrt(a),
    "abs": lambda _, a: abs(a),
    "+": lambda _, a, b: a + b,
    "-": lambda _, a, b: a - b,
    "*": lambda _, a, b: a * b,
    "/": lambda arithmetic, a, b: arithmetic.divide(a, b),
    "power": lambda arithmetic, a, b: arithmetic.power(a, b),
    "and": lambda _, a, b: (a != 0) & (b != 0),
    "or": lambda _, a, b: (a != 0) | (b != 0),
    **{
        sign: lambda _, a, b, sign=sign: compare(a, sign, b)
        for sign in ("==", "!=", "<", "<=", ">", ">=")
    },
}
"""Operations on each value of a list, or on corresponding values of two lists."""


def _combined(
    function: Callable[[Number, Number], Number],
    left: Cells,
    right: Cells,
    rows: Rows,
) -> list[Quantity]:
    """Apply a function to corresponding values. A single value is combined with each value of a list."""
    width = max(len(left), len(right))
    pairs = zip(_widened(left, width), _widened(right, width), strict=True)
    return [
        rows.cell(function(a.value, b.value), rows.arithmetic.larger(a.code, b.code))
        for a, b in pairs
    ]


def _widened(values: Cells, width: int) -> Cells:
    return list(values) * width if len(values) == 1 else values


def _factors(term: Term, rows: Rows) -> Cells:
    return [cell for ref in term.refs for cell in _factor(ref, rows)]


def _factor(ref: Ref, rows: Rows) -> Cells:
    return rows.factors.get(ref) or [_not_asked(rows)]


def _not_asked(rows: Rows) -> Quantity:
    return Quantity(rows.constant(math.nan), rows.constant(NOT_ASKED))


def _chosen(test: Number, yes: Quantity, no: Quantity, rows: Rows) -> Quantity:
    where = rows.arithmetic.where
    return rows.cell(where(test, yes.value, no.value), where(test, yes.code, no.code))


def _if(term: Term, rows: Rows) -> Cells:
    test, yes, no = (evaluate(part, rows) for part in term.parts)
    chosen = _chosen(test.value != 0, yes, no, rows)
    code = rows.where(test.code != OK, test.code, chosen.code)
    return [rows.cell(chosen.value, code)]


def _by(term: Term, rows: Rows) -> Cells:
    rest = term.parts[len(term.cases) :]
    # An edit whose value is not among the cases counts as not asked for this score.
    result = evaluate(rest[0], rows) if rest else _not_asked(rows)
    for case, part in zip(term.cases, term.parts, strict=False):
        holds = rows.matches(term.value, [case])
        result = _chosen(holds, evaluate(part, rows), result, rows)
    return [result]


def _compared(term: Term, rows: Rows) -> Cells:
    left, right = term.parts
    if left.op == "column":
        same = rows.matches(left.value, [str(right.value)])
        return [rows.cell(same == (term.op == "=="))]
    if right.op in ("column", "each"):
        return _compared_with_labels(term, rows)
    if right.op == "text":  # indices of words among the choices are compared
        right = Term("number", value=float(left.choices.index(str(right.value))))
    function = functools.partial(_ELEMENTWISE[term.op], rows.arithmetic)
    return _combined(function, values_of(left, rows), values_of(right, rows), rows)


def _compared_with_labels(term: Term, rows: Rows) -> Cells:
    """Return whether each answer equals the label of its edit. An answer without a label counts as not asked, and a
    label that is not one of the choices gives `UNDEFINED`. If the question failed because the edit has no list, the
    result is that failure.
    """
    left, right = term.parts
    where = rows.arithmetic.where

    def index(label: object) -> float:
        position = None if label is NO_ELEMENT else place_among(label, left.choices)
        return math.nan if position is None else position

    def is_missing(label: object) -> bool:
        return label is not NO_ELEMENT and word_of(label) == ""

    cells = values_of(left, rows)
    if right.op == "each":
        missing = rows.constant(NO_ELEMENT)
        ref = left.refs[0][0], str(right.value)
        labels = [*rows.elements.get(ref, ()), *[missing] * len(cells)][: len(cells)]
    else:
        labels = [rows.column(right)] * len(cells)
    results = []
    for cell, label in zip(cells, labels, strict=True):
        position = rows.each(index, label)
        unlabelled = rows.each(is_missing, label)
        undefined = rows.arithmetic.larger(cell.code, UNDEFINED)
        code = where(position == position, cell.code, undefined)  # noqa: PLR0124  # NaN
        code = where(unlabelled | (cell.code == NOT_ASKED), NOT_ASKED, code)
        results.append(rows.cell((cell.value == position) == (term.op == "=="), code))
    return results


def _any(tests: Iterable[Number]) -> Number:
    return functools.reduce(operator.or_, tests)


def _all(tests: Iterable[Number]) -> Number:
    return functools.reduce(operator.and_, tests)


def _scored(term: Term, rows: Rows) -> Cells:
    """Return whether a term has a number. An abstention counts as false; a failure stays a failure."""
    cells = values_of(term.parts[0], rows)
    worst = functools.reduce(rows.arithmetic.larger, (cell.code for cell in cells))
    code = rows.where(worst >= UNDEFINED, worst, OK)
    return [rows.cell(_any(cell.code == OK for cell in cells), code)]


def _left_out(cell: Quantity, rows: Rows) -> Quantity:
    code = rows.where(cell.code == ABSTAINED, LEFT_OUT, cell.code)
    return rows.cell(cell.value, code)


def _share(term: Term, rows: Rows) -> Cells:
    factors = term.parts[0]
    shares: list[Quantity] = []
    for ref, scale in zip(factors.refs, factors.scales, strict=True):
        worst = float(scale.worst or 0)
        width = float(scale.best or 0) - worst
        shares += [
            rows.cell((cell.value - worst) / width, cell.code)
            for cell in _factor(ref, rows)
        ]
    return shares


def _choice_number(term: Term, rows: Rows) -> Cells:
    """Return the number of each choice. A choice is represented by its index."""
    factors, *numbers = term.parts
    results = []
    for cell in values_of(factors, rows):
        value: Number = math.nan
        for index, number in enumerate(numbers):
            value = rows.where(cell.value == index, float(number.value), value)
        results.append(rows.cell(value, cell.code))
    return results


def _full(term: Term, rows: Rows) -> Cells:
    full: list[Quantity] = []
    for part in term.parts:
        for factors in part.parts if part.op == "applies" else (part,):
            for ref, scale in zip(factors.refs, factors.scales, strict=True):
                best = float(scale.best or 0)
                for cell in _factor(ref, rows):
                    is_best = compare(cell.value, "==", best)
                    counted = _left_out(cell, rows) if part.op == "applies" else cell
                    full.append(rows.cell(is_best, counted.code))
    return [_reduced(Term("all"), [full], rows)]


def _weighted_mean(term: Term, rows: Rows) -> Cells:
    """Return the weighted mean over the factors that were requested from the judge. The weights are normalised to sum
    to 1.
    """
    arithmetic = rows.arithmetic
    cells = [evaluate(pair.parts[0], rows) for pair in term.parts]
    weights = [
        arithmetic.where(_skipped(cell.code), 0.0, float(pair.parts[1].value))
        for cell, pair in zip(cells, term.parts, strict=True)
    ]
    total = arithmetic.total(
        [
            weight * arithmetic.where(cell.code == OK, cell.value, 0.0)
            for cell, weight in zip(cells, weights, strict=True)
        ]
    )
    divisor = arithmetic.total(weights)
    # .3 + .5 + .2 counts as 1 in spite of rounding, since published sums are not divided.
    rounded = arithmetic.nearest(divisor)
    is_whole = (rounded > 0) & compare(divisor, "==", rounded)
    divisor = arithmetic.where(is_whole, rounded, divisor)
    code = _joint_code(cells, [True] * len(cells), arithmetic)
    return [rows.cell(arithmetic.divide(total, divisor), code)]


def _skipped(code: Number) -> Number:
    return (code == NOT_ASKED) | (code == LEFT_OUT)


def _joint_code(
    cells: Cells, answered: Sequence[bool], arithmetic: Arithmetic
) -> Number:
    """Return the worst code among the values that were requested from the judge. If none was requested, return the
    reason. `answered` marks the values that are answers, since constants alone do not make a score.
    """
    worst: Number = OK
    reason: Number = OK
    nothing: Number = True
    for cell, is_answer in zip(cells, answered, strict=True):
        skipped = _skipped(cell.code)
        worst = arithmetic.larger(worst, arithmetic.where(skipped, OK, cell.code))
        if is_answer:
            reason = arithmetic.larger(reason, cell.code)
            nothing = nothing & skipped
    return arithmetic.where(nothing, reason, worst)


def _reduced(term: Term, parts: Sequence[Cells], rows: Rows) -> Quantity:
    """Reduce many values to one. If none of the factors among them was part of a question, there is no result, even if
    other values are constants.
    """
    arithmetic = rows.arithmetic
    cells = [cell for part in parts for cell in part]
    answered = [True] * len(cells)
    if any(part.has_answers for part in term.parts):
        widths = zip(term.parts, parts, strict=True)
        answered = [part.has_answers for part, values in widths for _ in values]
    code = _joint_code(cells, answered, arithmetic)
    present = [_skipped(cell.code) ^ True for cell in cells]
    count = functools.reduce(operator.add, (there * 1 for there in present))
    if term.op == "count":
        return rows.cell(count, arithmetic.where(count == 0, OK, code))
    empty, function = _REDUCTIONS[term.op]
    values = [
        arithmetic.where(there & (cell.code == OK), cell.value, empty)
        for there, cell in zip(present, cells, strict=True)
    ]
    return rows.cell(function(arithmetic, values, arithmetic.larger(count, 1)), code)


def _geomean(arithmetic: Arithmetic, values: Sequence[Number], count: Number) -> Number:
    product = functools.reduce(operator.mul, values)
    root = arithmetic.power(product, 1 / count)
    # The product of a long list may overflow or underflow when its root does not.
    logarithms = [arithmetic.log(value) for value in values]
    by_logarithms = arithmetic.exp(arithmetic.total(logarithms) / count)
    has_zero = _any(value == 0 for value in values)
    out_of_range = (arithmetic.is_finite(product) ^ True) | (product < _TINY)
    root = arithmetic.where(out_of_range & (has_zero ^ True), by_logarithms, root)
    return arithmetic.where(_any(value < 0 for value in values), math.nan, root)


_TINY = 2.0**-1022
"""Smallest normal float. Smaller numbers lose digits."""

_REDUCTIONS: Mapping[
    str, tuple[float, Callable[[Arithmetic, Sequence[Number], Number], Number]]
] = {
    "min": (math.inf, lambda a, values, _: functools.reduce(a.smaller, values)),
    "max": (-math.inf, lambda a, values, _: functools.reduce(a.larger, values)),
    "all": (1.0, lambda _, values, __: _all(value != 0 for value in values)),
    "any": (0.0, lambda _, values, __: _any(value != 0 for value in values)),
    "sum": (0.0, lambda a, values, _: a.total(values)),
    "product": (1.0, lambda _, values, __: functools.reduce(operator.mul, values)),
    "mean": (0.0, lambda a, values, count: a.total(values) / count),
    "geomean": (1.0, _geomean),
}
"""For each reduction, the neutral value that replaces missing values, and the function that computes the result from
all values and the number of those present.
"""

_SPECIAL: Mapping[str, Callable[[Term, Rows], Cells]] = {
    "number": lambda term, rows: [rows.cell(rows.constant(float(term.value)))],
    "factors": _factors,
    "if": _if,
    "by": _by,
    "in": lambda term, rows: [rows.cell(rows.matches(term.value, term.cases))],
    "length": lambda term, rows: [
        rows.cell(rows.each(lambda count: count, rows.column(term)))
    ],
    "given": lambda term, rows: [rows.cell(rows.each(is_given, rows.column(term)))],
    "asked": lambda term, rows: [rows.cell(was_asked(term.parts[0], rows))],
    "scored": _scored,
    "applies": lambda term, rows: [
        _left_out(cell, rows) for part in term.parts for cell in values_of(part, rows)
    ],
    "share": _share,
    "choice_number": _choice_number,
    "full": _full,
    "weights": _weighted_mean,
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">="), _compared),
}
"""Terms whose value depends on more than the values of their parts."""


def was_asked(term: Term, rows: Rows) -> Number:
    """Return, for each edit, whether the judge was asked about a factor on which the value depends. Cases and branches
    that do not apply are ignored.
    """
    match term.op:
        case "factors":
            return _any(cell.code != NOT_ASKED for cell in _factors(term, rows))
        case "by":
            rest = term.parts[len(term.cases) :]
            result = was_asked(rest[0], rows) if rest else rows.constant(False)
            for case, part in zip(term.cases, term.parts, strict=False):
                holds = rows.matches(term.value, [case])
                result = rows.where(holds, was_asked(part, rows), result)
            return result
        case "if":
            test, yes, no = term.parts
            decided = evaluate(test, rows)
            undecided = decided.code != OK
            for_yes = was_asked(yes, rows) & (undecided | (decided.value != 0))
            for_no = was_asked(no, rows) & (undecided | (decided.value == 0))
            return was_asked(test, rows) | for_yes | for_no
    asked_parts = (was_asked(part, rows) for part in term.parts)
    return functools.reduce(operator.or_, asked_parts, rows.constant(False))
