"""The expression language for scores, conditions and filters: parsing, and conversion to readable text.

It has arithmetic, comparisons, `and`, `or`, `not` and the functions below, over these names::

    sc.quality        the factor `quality` of the rubric `sc`; sc["Over-editing"] if a key is not an identifier
    sc.*              all factors of `sc`;  *  all factors of the set
    quality           the factor of that name, or the only factor of the rubric of that name
    item.edit_type    a column of the manifest: == and != a text or a factor of words, `in ["add", "remove"]`,
                      `is given`, `is not given`; also given(item.hint)
    each.answer       a field of the element that a rubric with `for_each` is asked about, compared with its factor
    overall           a score that is defined before this one

A factor of several rubrics, all factors of a rubric, and a rubric with `for_each` are lists, which the functions that
reduce many values to one take as arguments.

The condition `when` of a rubric is written in a short form, in which every word is a column or a text::

    edit_type in [add, remove]         edit_type == add         tags.scene != "indoor light"
    not (edit_type == add and mask is given) or edit_type not in [style]

Values are compared as `editjudge.values` says. A column that an edit does not have does not equal any word, so only
`!=`, `not in` and `is not given` are true for it. `editjudge.rubrics.evaluation` computes the value of an expression.
"""

from __future__ import annotations

import ast
import functools
import io
import math
import operator
import re
import tokenize
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from editjudge.edit import IMAGE_ROLES, TEXT_ROLES
from editjudge.errors import RubricError, did_you_mean
from editjudge.rubrics.scale import FieldError, Scale
from editjudge.values import word_of

Ends = tuple[float, float]

REDUCTIONS = (
    "min", "max", "mean", "geomean", "sum", "product", "all", "any", "count", "full",
)  # fmt: skip
"""Functions that reduce many values to one. Factors that the judge was not asked about are ignored; all others must
have a value.
"""

FUNCTIONS = {
    **dict.fromkeys(REDUCTIONS, (1, None)),
    "sqrt": (1, 1),
    "abs": (1, 1),
    "power": (2, 2),
    "if": (3, 3),
    "applies": (1, None),
    "asked": (1, 1),
    "scored": (1, 1),
    "share": (1, 1),
    "number": (1, 2),
    "weights": (1, 1),
    "by": (2, 3),
    "factor": (2, 2),
    "given": (1, 1),
}
"""All functions, with their minimum and maximum number of arguments (None: no maximum)."""

_MAX_LENGTH = 2_000
_MAX_DEPTH = 30
_MAX_TERMS = 1_000
"""Limit on the size of one expression, including the scores that it refers to. The longest published formula has about
200 characters.
"""

_OPERATORS = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
_ARITHMETIC = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
_COMPARISONS = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
_WORDS = ("text", "column", "each")
_NOT_STORED = (*IMAGE_ROLES, *TEXT_ROLES, "group")
"""Manifest fields that a formula cannot use, since a run stores them in another form or not at all."""
_LEAST_WEIGHT = 1e-6
EVERY = "_every_"
_IF = "_if_"
"""Names that replace `*` and `if(`, so Python's parser can read an expression."""


@dataclass(frozen=True)
class Member:
    """A rubric and its factors, for use in expressions."""

    name: str
    factors: Mapping[str, Scale]
    for_each: bool = False
    """Whether the rubric's question is asked once for each element of a list, which gives its factors many values."""


Ref = tuple[str, str]
"""Name of a rubric and key of a factor."""


@dataclass(frozen=True)
class Term:
    """A node of an expression."""

    op: str
    parts: tuple[Term, ...] = ()
    value: float | str = 0.0
    """A number or a string. For `column`, `by`, `in` and `given` it is the column; for `factors`, their name in the
    expression.
    """
    refs: tuple[Ref, ...] = ()
    """Factors of a `factors` term."""
    scales: tuple[Scale, ...] = ()
    """Scales of the factors in `refs`."""
    cases: tuple[str, ...] = ()
    """Values of the column; for `by`, in the order of `parts`."""
    shape: tuple[str, ...] = ()
    """Rubric of each value of a list; empty for a single value. Lists of the same shape can be combined."""
    for_each: bool = False
    """Whether a factor has a value for each element of a list."""

    @property
    def choices(self) -> tuple[str, ...]:
        """The words that an answer can be; empty if the answer is a number."""
        return self.scales[0].choices if self.scales else ()

    @property
    def is_word(self) -> bool:
        return bool(self.choices) or self.op in _WORDS

    def walk(self) -> Iterator[Term]:
        """Yield this term and all terms below it."""
        yield self
        for part in self.parts:
            yield from part.walk()

    @functools.cached_property
    def has_answers(self) -> bool:
        """Whether the term depends on a judge's answer."""
        return any(term.refs for term in self.walk())

    @functools.cached_property
    def ends(self) -> Ends | None:
        """Lowest and highest value, or None if they are unknown."""
        match self.op:
            case "number":
                return float(self.value), float(self.value)
            case "factors":
                return _around([(scale.low, scale.high) for scale in self.scales])
            case "if":
                return _around([part.ends for part in self.parts[1:]])
            case "weights":
                return _around([pair.parts[0].ends for pair in self.parts])
            case "choice_number":
                return _around([part.ends for part in self.parts[1:]])
            case "text" | "column" | "each" | "weighted":
                return None
            case op if op not in _ENDS:
                return 0.0, 1.0
        parts = [part.ends for part in self.parts]
        return None if None in parts else _ENDS[self.op](self, *parts)

    def ends_of_sum(self, low: float, high: float) -> Ends | None:
        """Return the bounds of a sum whose values are between `low` and `high`, or None if the number of values is
        unknown. Some values may be missing, because no question requested them.
        """
        if any(term.for_each for term in self.walk()):
            return None
        most = 0
        for part in self.parts:
            if part.shape and part.op != "factors":
                return None
            most += len(part.refs) if part.op == "factors" else 1
        return min(low, low * most), max(high, high * most)

    def __str__(self) -> str:
        return _written(self)


def reduction(op: str, refs: Sequence[Ref]) -> Term:
    """Return a reduction of several factors, such as their `mean`, `min` or `geomean`."""
    shape = tuple(rubric for rubric, _ in refs)
    return Term(op, (Term("factors", refs=tuple(refs), shape=shape),))


def share(ref: Ref, scale: Scale) -> Term:
    """Return a term for a factor's score, rescaled to a range from 0 (worst) to 1 (best)."""
    return Term("share", (Term("factors", refs=(ref,), scales=(scale,)),))


def stricter(condition: Term, by: float) -> Term:
    """Return a condition whose comparisons with numbers are harder to meet by this much, or easier if it is negative."""
    if condition.op in ("and", "or"):
        parts = tuple(stricter(part, by) for part in condition.parts)
        return replace(condition, parts=parts)
    if condition.op == "not":
        return replace(condition, parts=(stricter(condition.parts[0], -by),))
    if condition.op not in (">", ">=", "<", "<="):
        return condition
    a, b = condition.parts
    by = by if condition.op in (">", ">=") else -by
    if b.op == "number":
        b = replace(b, value=float(b.value) + by)
    elif a.op == "number":
        a = replace(a, value=float(a.value) - by)
    else:
        b = Term("+", (b, Term("number", value=by)))
    return replace(condition, parts=(a, b))


def _around(ends: Sequence[tuple[float | None, float | None] | None]) -> Ends | None:
    lows, highs = zip(*(pair or (None, None) for pair in ends), strict=True)
    return None if None in (*lows, *highs) else (float(min(lows)), float(max(highs)))


def _corners(term: Term, a: Ends, b: Ends) -> Ends | None:
    if term.op == "/" and b[0] <= 0 <= b[1]:
        return None
    corners = [_OPERATORS[term.op](x, y) for x in a for y in b]
    return min(corners), max(corners)


def _of_shares(*parts: Ends) -> Ends | None:
    """Return the bounds of a product or power: 0 and 1 if all its parts are between 0 and 1, else None."""
    return (0.0, 1.0) if all(low >= 0 and high <= 1 for low, high in parts) else None


_ENDS: Mapping[str, Callable[..., Ends | None]] = {
    **dict.fromkeys(_OPERATORS, _corners),
    **dict.fromkeys(
        ("by", "applies", "mean", "geomean", "min", "max"),
        lambda _, *parts: _around(parts),
    ),
    "sum": lambda term, *parts: term.ends_of_sum(*(_around(parts) or ())),
    "count": lambda term, *_: term.ends_of_sum(0.0, 1.0),
    "product": lambda _, *parts: _of_shares(*parts),
    "power": lambda _, base, exponent: _of_shares(base) if exponent[0] >= 0 else None,
    "neg": lambda _, part: (-part[1], -part[0]),
    "sqrt": lambda _, part: (
        math.sqrt(max(part[0], 0.0)),
        math.sqrt(max(part[1], 0.0)),
    ),
    "abs": lambda _, part: (
        0.0 if part[0] <= 0 <= part[1] else min(map(abs, part)),
        max(map(abs, part)),
    ),
}
"""Functions that compute the bounds of a term from the bounds of its parts. Terms not listed are between 0 and 1."""


def parse(
    text: str,
    members: Sequence[Member],
    scores: Mapping[str, Term] | None = None,
    where: str = "formula",
    means: Mapping[str, Term] | None = None,
) -> Term:
    """Parse an expression and check it against the factors of a set. It must have a single number for each edit.

    `scores` are the terms that the expression may refer to by name. `where` is the start of the message of a
    `RubricError`. `means` has the value of each rubric's name when it is used outside a function that takes factors;
    without `means` such a use is an error.
    """
    reader = _ExpressionReader(members, scores or {}, where, means=means or {})
    return _parse(text, _as_python, reader)


@functools.lru_cache(maxsize=256)
def parse_when(text: str) -> Term:
    """Parse the condition `when` of a rubric. Raise `FieldError` if it is invalid."""
    reader = _ExpressionReader((), {}, f"when {text!r:.120}", stored=False)
    try:
        return _parse(text, _condition_as_python, reader)
    except RubricError as error:
        such_as = "such as: edit_type in [add, remove] and mask is given"
        raise FieldError(f"{error}; {such_as}", "when", code=error.code) from None


def condition_columns(when: str) -> list[Term]:
    """Return the terms of a condition that refer to a column."""
    terms = parse_when(when).walk() if when else ()
    return [term for term in terms if term.op in ("column", "in", "given")]


def names_in(text: str, where: str) -> tuple[str, ...]:
    """Return the names of factors in a comparison, without checking that they exist. Raise `RubricError` if the text is
    not a comparison.
    """
    tree = _tree(text, _as_python, where)
    if not isinstance(tree, ast.Compare | ast.BoolOp | ast.UnaryOp):
        raise RubricError(f"{where}: expected a comparison", code="invalid_formula")
    names = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]
    return tuple(dict.fromkeys(n for n in names if n not in (*FUNCTIONS, _IF)))


def _tree(text: str, as_python: Callable[[str], str], where: str) -> ast.expr:
    if len(text) > _MAX_LENGTH:
        raise RubricError(
            f"{where}: longer than {_MAX_LENGTH:,} characters", code="too_complex"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python warns about code, and this is none
            return ast.parse(as_python(text), mode="eval").body
    except ValueError as error:
        raise RubricError(f"{where}: {error}", code="invalid_formula") from None
    except (SyntaxError, RecursionError, MemoryError, tokenize.TokenError) as error:
        reason = str(error.args[0] if error.args else error)
        message = f"{where}: {text!r:.120} cannot be read: {reason}"
        raise RubricError(message, code="invalid_formula") from None


def _parse(
    text: str, as_python: Callable[[str], str], reader: _ExpressionReader
) -> Term:
    term = reader.read(_tree(text, as_python, reader.where))
    if term.shape:
        raise reader.error(
            f"has many values for one edit: put them into one of {', '.join(REDUCTIONS)}",
            "many_values",
        )
    if term.is_word:
        raise reader.error(
            'is a word, not a number: compare it with a word, as in answer == "yes"'
        )
    if sum(1 for _ in term.walk()) > _MAX_TERMS:
        raise reader.error(
            f"more than {_MAX_TERMS:,} terms, including those of the scores that it names",
            "too_complex",
        )
    return term


def _as_python(text: str) -> str:
    """Return an expression as Python, with `*` and `if(...)` replaced by names, and `^` by `**`."""
    # In parentheses, an expression may span several lines.
    tokens = list(tokenize.generate_tokens(io.StringIO(f"({text}\n)").readline))
    replaced: list[tuple[int, str]] = []
    for number, token in enumerate(tokens):
        before = tokens[number - 1]
        after = tokens[number + 1].string if token.string else ""
        if token.type == tokenize.COMMENT:
            raise ValueError("comments are not allowed")
        if token.string == "*" and before.string in ("(", ",", "."):
            replaced.append((tokenize.NAME, EVERY))
        elif token.string == "^":
            # It binds as tightly as it does on paper.
            replaced.append((tokenize.OP, "**"))
        elif token.string == "if" and after == "(" and not _ends_a_value(before):
            replaced.append((tokenize.NAME, _IF))
        else:
            replaced.append((token.type, token.string))
    return tokenize.untokenize(replaced).strip()


def _ends_a_value(token: tokenize.TokenInfo) -> bool:
    if token.type == tokenize.NAME:
        return token.string not in ("and", "or", "not", "else", "if")
    return token.type in (tokenize.NUMBER, tokenize.STRING) or token.string in list(
        ")]}"
    )


_TOKEN = re.compile(
    r"""\s*(?:(==|!=|<=|>=|[<>\[\](),])|"([^"]*)"|'([^']*)'|([\w./+-]+)|(\S))"""
)
_COUNT = "count"
"""Function of a condition: the number of images or elements of a list."""
_KEYWORDS = ("and", "or", "not", "in", "is", "given")
_AFTER_COLUMN = ("==", "!=", "in", "not", "is")


def _condition_as_python(text: str) -> str:
    """Return a condition as Python. A word before an operator becomes a column, and every other word becomes a string."""
    tokens = _TOKEN.findall(text.strip())
    written: list[str] = []
    after_word = False
    for number, (sign, double, single, bare, stray) in enumerate(tokens):
        token = sign or double or single or bare
        is_word = not sign and (bare not in _KEYWORDS or not bare)
        # Python would join two adjacent texts.
        if stray or (is_word and after_word):
            raise ValueError(
                f"found {stray or token!r}, expected a sign such as == or `in`"
            )
        following = "".join(tokens[number + 1]) if number + 1 < len(tokens) else ""
        if is_word and following in _AFTER_COLUMN:
            if not re.fullmatch(r"[^\W\d][\w.-]*", token):
                raise ValueError(f"found {token!r}, expected the name of a column")
            written.append(f"item[{token!r}]")
        else:
            written.append(repr(token) if is_word else token)
        if bare == _COUNT and following == "(":
            written[-1] = bare
            is_word = False
        after_word = is_word
    return " ".join(written)


class _ExpressionReader:
    """Converts a Python syntax tree to terms. Kinds of nodes that are not part of the language are refused."""

    def __init__(
        self,
        members: Sequence[Member],
        scores: Mapping[str, Term],
        where: str,
        *,
        means: Mapping[str, Term] = MappingProxyType({}),
        stored: bool = True,
    ) -> None:
        self._members = {member.name: member for member in members}
        self._scores = scores
        self._means = means
        self.where = where
        self._stored = stored
        """Whether columns must be stored by a run, as for formulas. A condition may use all columns of an edit."""
        self._depth = 0

    def error(self, message: str, code: str = "invalid_formula") -> RubricError:
        return RubricError(f"{self.where}: {message}", code=code)

    def read(self, node: ast.expr) -> Term:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self.error(f"nested more than {_MAX_DEPTH} deep")
        term = self._read(node)
        self._depth -= 1
        return term

    def _read(self, node: ast.expr) -> Term:
        match node:
            case ast.Constant(value=bool() as truth):
                raise self.error(f"{truth} is not a number; write 1 or 0")
            case ast.Constant(value=int() | float() as number) if abs(number) <= 1e9:
                return Term("number", value=float(number))
            case ast.Constant(value=str() as text):
                return Term("text", value=text)
            case ast.Name(id=name):
                return self._name(name)
            case (
                ast.Attribute(value=ast.Name(id=owner), attr=key)
                | ast.Subscript(
                    value=ast.Name(id=owner), slice=ast.Constant(value=str() as key)
                )
            ):
                return self._attribute(owner, key)
            case ast.Compare():
                return self._comparison(node)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self._if(test, body, orelse)
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                if name == _COUNT and not self._stored:
                    return self._length(args)
                return self._call("if" if name == _IF else name, args)
        return self._operation(node)

    def _operation(self, node: ast.expr) -> Term:
        match node:
            case ast.BinOp(left=left, op=sign, right=right) if (
                type(sign) in _ARITHMETIC
            ):
                parts = [self._number(left), self._number(right)]
                if isinstance(sign, ast.Div) and parts[1] == Term("number"):
                    raise self.error("division by 0")
                return self._combined(_ARITHMETIC[type(sign)], *parts)
            case ast.BinOp(left=left, op=ast.Pow(), right=right):
                return self._combined("power", self._number(left), self._number(right))
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self._number(operand)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self._combined("not", self._number(operand))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                part = self._number(operand)
                if part.op == "number":
                    return replace(part, value=-float(part.value))
                return self._combined("neg", part)
            case ast.BoolOp(op=sign, values=values):
                op = "and" if isinstance(sign, ast.And) else "or"
                return self._combined(op, *map(self._number, values))
        raise self.error(
            f"{ast.unparse(node)[:80]!r} is not part of the language: use arithmetic, {_KNOWN_FUNCTIONS}"
        )

    def _number(self, node: ast.expr) -> Term:
        term = self.read(node)
        if term.is_word:
            raise self.error(
                f'{term} is a word, not a number: compare it, as in answer == "yes"'
            )
        return term

    def _numbers(self, nodes: Iterable[ast.expr | None]) -> tuple[Term, ...]:
        return tuple(self._number(node) for node in nodes if node)

    # names

    def _column(self, name: str) -> Term:
        if self._stored and name in _NOT_STORED:
            raise self.error(
                f'a formula cannot use "{name}": name another column of the manifest',
                "column_in_formula",
            )
        return Term("column", value=name)

    def _name(self, name: str) -> Term:
        if name in self._scores:
            return self._scores[name]
        members = self._members.values()
        if name == EVERY:
            every = [(m.name, key) for m in members for key in m.factors]
            return self._factors(every, "all factors")
        if refs := [(m.name, name) for m in members if name in m.factors]:
            return self._factors(refs, name)
        if name in self._means:
            return self._means[name]
        member = self._members.get(name)
        if member and len(member.factors) == 1:
            return self._factors([(name, key) for key in member.factors], name)
        if member:
            raise self.error(
                f"{name} has {len(member.factors)} factors: name one, as in {name}.x, or write {name}.*"
            )
        keys = [key for m in members for key in m.factors]
        hint = did_you_mean(name, [*keys, *self._members, *self._scores])
        raise self.error(f'no factor is called "{name}"{hint}', "unknown_factor")

    def _attribute(self, owner: str, key: str) -> Term:
        if owner == "each" and owner not in self._members:
            return Term("each", value=key)
        if owner == "item" and owner not in self._members:
            return self._column(key)
        if owner not in self._members:
            hint = did_you_mean(owner, self._members)
            raise self.error(
                f'no rubric of the set is called "{owner}"{hint}', "unknown_rubric"
            )
        factors = self._members[owner].factors
        if key in (EVERY, "*"):
            return self._factors([(owner, name) for name in factors], owner)
        if key not in factors:
            hint = did_you_mean(key, factors)
            raise self.error(
                f'{owner} has no factor "{key}"{hint} It has {", ".join(factors)}'
            )
        return self._factors([(owner, key)], f"{owner}.{key}")

    def _factors(self, refs: Sequence[Ref], name: str) -> Term:
        scales = tuple(self._members[owner].factors[key] for owner, key in refs)
        if len({scale.choices for scale in scales}) > 1:
            raise self.error(
                f"{name}: its factors are numbers and words, or different words"
            )
        for_each = any(self._members[owner].for_each for owner, _ in refs)
        return Term(
            "factors",
            value=name,
            refs=tuple(refs),
            scales=scales,
            shape=tuple(owner for owner, _ in refs if len(refs) > 1 or for_each),
            for_each=for_each,
        )

    # operators

    def _combined(self, op: str, *parts: Term) -> Term:
        shapes = {part.shape for part in parts if part.shape}
        if len(shapes) > 1:
            raise self.error(
                f"{_listed(parts)} are lists of different things: reduce each of them first"
            )
        return Term(op, parts, shape=shapes.pop() if shapes else ())

    def _comparison(self, node: ast.Compare) -> Term:
        match node.ops, node.comparators:
            case [ast.In() | ast.NotIn() as sign], [right]:
                return self._among(node.left, right, isinstance(sign, ast.NotIn))
            case [ast.Is() | ast.IsNot() as sign], [ast.Name(id="given")]:
                term = self._is_given(node.left)
                return Term("not", (term,)) if isinstance(sign, ast.IsNot) else term
        terms = [self.read(part) for part in (node.left, *node.comparators)]
        pairs = []
        for a, operation, b in zip(terms, node.ops, terms[1:], strict=False):
            if type(operation) not in _COMPARISONS:
                signs = ", ".join(_COMPARISONS.values())
                raise self.error(f"compare with one of {signs}")
            pairs.append(self._pair(a, _COMPARISONS[type(operation)], b))
        return pairs[0] if len(pairs) == 1 else self._combined("and", *pairs)

    def _pair(self, a: Term, sign: str, b: Term) -> Term:
        if a.op in _WORDS and b.op != "text":
            a, b = b, a
        if a.op == "length" and b.op == "text" and str(b.value).isdecimal():
            b = Term("number", value=float(b.value))
        if a.is_word or b.is_word:
            self._check_words(a, sign, b)
        return self._combined(sign, a, b)

    def _check_words(self, a: Term, sign: str, b: Term) -> None:
        """Check a comparison with words. It may compare a factor or a column with a string, or a factor with a column
        or with a field of the factor's element.
        """
        if sign not in ("==", "!="):
            raise self.error("words can only be compared with == or !=")
        if b.op == "text":
            if a.op != "column" and not a.choices:
                raise self.error(f"{a} is a number and never {b.value!r}")
            if a.choices and b.value not in a.choices:
                hint = did_you_mean(str(b.value), a.choices)
                raise self.error(
                    f"{a} is never {b.value!r}{hint} It is {', '.join(a.choices)}"
                )
        elif not a.choices or b.op not in ("column", "each"):
            raise self.error(
                f"{a} {sign} {b}: a word is compared with a text in quotation marks"
            )
        elif b.op == "each" and not (
            len(a.refs) == 1 and self._members[a.refs[0][0]].for_each
        ):
            raise self.error(f"{b}: {a} is not asked for each element of a list")

    def _among(self, left: ast.expr, right: ast.expr, negated: bool) -> Term:
        column = self.read(left)
        match right:
            case ast.List(elts=[_, *_] as nodes) if column.op == "column":
                cases = tuple(self._text(node, "in") for node in nodes)
            case _:
                raise self.error(
                    f"found {ast.unparse(right)!r:.80} after {column}, expected a list of words in brackets"
                )
        term = Term("in", value=column.value, cases=cases)
        return Term("not", (term,)) if negated else term

    # functions

    def _if(self, test: ast.expr, yes: ast.expr, no: ast.expr) -> Term:
        parts = self._numbers([test, yes, no])
        if any(term.shape for term in parts):
            raise self.error(
                "the parts of an if are single values: reduce a list first"
            )
        return Term("if", parts)

    def _length(self, args: Sequence[ast.expr]) -> Term:
        """Return the number of images or elements in a column, in a condition."""
        if len(args) != 1:
            raise self.error("count takes one column, as in count(references)")
        return Term("length", value=f"{_COUNT}({self._text(args[0], _COUNT)})")

    def _call(self, name: str, args: Sequence[ast.expr]) -> Term:
        if name not in FUNCTIONS:
            raise self.error(
                f'no function is called "{name}"{did_you_mean(name, FUNCTIONS)} There are {_KNOWN_FUNCTIONS}'
            )
        least, most = FUNCTIONS[name]
        if not least <= len(args) <= (most or len(args)):
            raise self.error(f"{name} cannot take {len(args)} arguments")
        match name:
            case "factor":
                return self._attribute(*(self._text(arg, "factor") for arg in args))
            case "weights":
                return self._weights(args[0])
            case "number":
                return self._number_of_choice(*args)
            case "by":
                return self._by(args)
            case "given":
                return self._is_given(args[0])
            case "if":
                return self._if(*args)
            case "asked" | "scored" | "full" | "share":
                return self._on_factors(name, [self._all_factors(arg) for arg in args])
            case "sqrt" | "abs" | "power":
                return self._combined(name, *self._numbers(args))
        parts = self._numbers(args)
        if name in REDUCTIONS and parts[0] in self._means.values() and not parts[1:]:
            # The mean is one value already, so the factors are meant.
            parts = (self._all_factors(args[0]),)
        shape: list[str] = []
        for part in parts if name == "applies" else ():
            shape += part.shape or [""]
        return Term(name, parts, shape=tuple(shape))

    def _all_factors(self, node: ast.expr) -> Term:
        """Parse an argument. A rubric's name means all its factors."""
        if (
            isinstance(node, ast.Name)
            and node.id in self._members
            and node.id not in self._scores
        ):
            return self._attribute(node.id, EVERY)
        return self.read(node)

    def _on_factors(self, name: str, parts: Sequence[Term]) -> Term:
        for part in parts:
            if part.op == "applies" and name == "full":
                self._on_factors(name, part.parts)
            elif part.op != "factors":
                raise self.error(
                    f"{name}(...) takes factors, as in {name}(sc.quality), not {part}"
                )
            elif name in ("full", "share") and any(
                s.worst is None or s.best is None for s in part.scales
            ):
                raise self.error(
                    f"{name}({part}): a scale that is open, or of words, has no best score"
                )
        return Term(name, tuple(parts), shape=parts[0].shape if name == "share" else ())

    def _text(self, node: ast.expr, function: str) -> str:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        raise self.error(
            f'{function} takes names in quotation marks, as in {function}("sc", "Over-editing")'
        )

    def _weights(self, node: ast.expr) -> Term:
        if not isinstance(node, ast.Dict) or not node.keys or None in node.keys:
            raise self.error("weights takes {factor: weight, ...}")
        parts = self._numbers(node.keys)
        shares = self._numbers(node.values)
        if any(
            share.op != "number" or float(share.value) < _LEAST_WEIGHT
            for share in shares
        ):
            raise self.error(
                f"a weight is a number above 0, at least {_LEAST_WEIGHT:g}",
                "bad_weight",
            )
        named = [part.refs for part in parts if part.op == "factors"]
        if len({*named}) < len(named):
            raise self.error(
                "weights: a factor is listed twice: give it one weight", "two_weights"
            )
        if many := next((part for part in parts if part.shape), None):
            raise self.error(f"weights: {many} has many values: reduce it first")
        pairs = zip(parts, shares, strict=True)
        return Term("weights", tuple(Term("weighted", pair) for pair in pairs))

    def _number_of_choice(self, node: ast.expr, table: ast.expr | None = None) -> Term:
        factors = self.read(node)
        if factors.op != "factors" or not factors.choices:
            raise self.error(
                f"number({factors}): expected a factor of choices", "not_a_choice"
            )
        numbers = {choice: _number_in(choice) for choice in factors.choices}
        if table is not None:
            numbers = dict.fromkeys(factors.choices) | self._table(table)
        missing = [choice for choice, number in numbers.items() if number is None]
        if missing or len(numbers) > len(factors.choices):
            such_as = ", ".join(f'"{choice}": 1' for choice in factors.choices)
            stray = [choice for choice in numbers if choice not in factors.choices]
            problem = f"{stray[0]!r} is not one of the choices" if stray else ""
            problem = problem or f"{missing[0]!r} has no number"
            raise self.error(
                f"number({factors}): {problem}; expected a number for each choice, as in "
                f"number({factors}, {{{such_as}}})",
                "choice_without_number",
            )
        values = (
            Term("number", value=float(n)) for n in numbers.values() if n is not None
        )
        return Term("choice_number", (factors, *values), shape=factors.shape)

    def _table(self, node: ast.expr) -> dict[str, float | None]:
        """Return the numbers of a mapping `{"yes": 1, "no": 0}`."""
        if not isinstance(node, ast.Dict) or None in node.keys:
            raise self.error('number takes a factor and {"choice": number, ...}')
        texts = [self._text(key, "number") for key in node.keys if key]
        values = self._numbers(node.values)
        if any(value.op != "number" for value in values) or len({*texts}) < len(texts):
            raise self.error("number: each choice once, with a number")
        return {
            text: float(value.value) for text, value in zip(texts, values, strict=True)
        }

    def _by(self, args: Sequence[ast.expr]) -> Term:
        match args[:2]:
            case [
                ast.Name(id=name) | ast.Attribute(value=ast.Name(id="item"), attr=name),
                ast.Dict(keys=[_, *_] as keys, values=values),
            ]:
                column = self._column(name)
            case _:
                raise self.error(
                    'by takes a column and formulas: by(edit_type, {"add": ..., "remove": ...})'
                )
        cases = tuple(self._text(key, "by") for key in keys if key is not None)
        parts = self._numbers([*values, *args[2:]])
        if len({*map(word_of, cases)}) < len(values) or any(p.shape for p in parts):
            raise self.error(
                "by: each value of the column once, each with a formula of one value",
                "bad_cases",
            )
        return Term("by", parts, value=column.value, cases=cases)

    def _is_given(self, node: ast.expr) -> Term:
        column = self.read(node)
        if column.op != "column":
            raise self.error(
                "given takes a column of the manifest, as in given(item.hint)",
                "not_a_column",
            )
        return Term("given", value=column.value)


_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.])")


def _number_in(choice: str) -> float | None:
    """Return the only number in the text of a choice, such as 4 in "4 - good". Return None if there is no such number."""
    numbers = _NUMBER.findall(choice)
    return float(numbers[0]) if len(numbers) == 1 else None


_KNOWN_FUNCTIONS = ", ".join(f"{name}()" for name in FUNCTIONS)


# --- expressions as readable text -----------------------------------------------------------------------------

_LEVEL = {
    "if": 0,
    "or": 1,
    "and": 2,
    "not": 3,
    "+": 5,
    "-": 5,
    "*": 6,
    "/": 6,
    "neg": 7,
} | dict.fromkeys(_COMPARISONS.values(), 4)
_SIGNS = {"*": "x", "==": "=", "!=": "is not"}


def _written(term: Term, least: int = 0) -> str:
    """Return a term as text, in parentheses if it binds less tightly than `least`."""
    text = _phrase(term)
    return f"({text})" if _LEVEL.get(term.op, 9) < least else text


def _listed(terms: Iterable[Term]) -> str:
    return ", ".join(map(_written, terms))


def _phrase(term: Term) -> str:
    if term.op in _PHRASES:
        return _PHRASES[term.op](*term.parts)
    match term.op:
        case "column" | "factors" | "each":
            return str(term.value)
        case "given":
            return f"{term.value} is given"
        case "in":
            return f"{term.value} in [{', '.join(term.cases)}]"
        case "text":
            return f'"{term.value}"'
        case "number":
            return f"{term.value:.10g}"
        case "by":
            phrases = [
                f'{part} for "{case}"'
                for case, part in zip(term.cases, term.parts, strict=False)
            ]
            rest = term.parts[len(term.cases) :]
            phrases += [f"{part} for others" for part in rest]
            return f"by {term.value}: {', '.join(phrases)}"
        case "choice_number":
            factors, *numbers = term.parts
            options = zip(factors.choices, numbers, strict=True)
            phrases = [f"{number} for {choice}" for choice, number in options]
            return f"number of {factors} ({', '.join(phrases)})"
        case op if op in _LEVEL:
            level = _LEVEL[op]
            # An equally strong term on the right side keeps its parentheses: a - (b - c).
            return f" {_SIGNS.get(op, op)} ".join(
                _written(part, level + (number > 0))
                for number, part in enumerate(term.parts)
            )
        case "sqrt" | "abs" | "power":
            return f"{term.op}({_listed(term.parts)})"
    if len(term.parts) == 1 and term.parts[0].op == "factors":
        return f"{term.op} {term.parts[0]}"
    return f"{term.op}({_listed(term.parts)})"


_PHRASES: Mapping[str, Callable[..., str]] = {
    "neg": lambda part: f"-{_written(part, 7)}",
    "not": lambda part: f"not {_written(part, 3)}",
    "if": lambda test, yes, no: f"{_written(yes, 1)} if {_written(test, 1)}, else {no}",
    "asked": lambda part: f"{part} was asked",
    "scored": lambda part: f"{part} has a score",
    "full": lambda *parts: f"full marks in {_listed(parts)}",
    "share": lambda part: f"{part} from 0 (worst) to 1 (best)",
    "applies": lambda *parts: f"{_listed(parts)} where it applies",
    "weights": lambda *pairs: " + ".join(
        f"{pair.parts[1]} x {_written(pair.parts[0], 6)}" for pair in pairs
    ),
}
