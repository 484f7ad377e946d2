"""A set's published score: a formula over the factors of its rubrics, read strictly and said in words.

The language is arithmetic, comparisons, `and`, `or`, `not` and the functions below, over these names::

    sc.quality        the factor `quality` of the rubric `sc`; sc["Over-editing"] where a key is no plain word
    sc.*              all factors of `sc`;  *  all factors of the set
    quality           the factor of that name, or the only factor of the rubric of that name
    item.edit_type    a column of the manifest, to be compared with a text, or with a factor of words; given(item.hint)
    each.answer       of a rubric asked `for_each`: a field of the element, to be compared with its factor
    overall           a score that stands before this one

A factor of several rubrics, all factors of a rubric, and a rubric that is asked `for_each` are lists, which stand in
the functions that make one value of many. `Formula.words` says a formula to people, and `Term.ends` bounds its value;
`editjudge.rubrics.scoring` computes it.
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
from typing import Any, Literal

from editjudge.edit import IMAGE_ROLES, TEXT_ROLES
from editjudge.errors import RubricError, near_miss
from editjudge.rubrics.model import Scale
from editjudge.values import word_of

Ends = tuple[float, float]

REDUCTIONS = ("min", "max", "mean", "geomean", "sum", "all", "any", "count", "full")
"""One value of many. What was not asked is left out of them, and all that was asked must have a value."""

FUNCTIONS = {
    **dict.fromkeys(REDUCTIONS, (1, None)),
    "sqrt": (1, 1),
    "abs": (1, 1),
    "if": (3, 3),
    "applies": (1, None),
    "asked": (1, 1),
    "scored": (1, 1),
    "share": (1, 1),
    "weights": (1, 1),
    "by": (2, 3),
    "factor": (2, 2),
    "given": (1, 1),
}
"""Every function, with the least and the largest number of arguments."""
_KNOWN = ", ".join(f"{name}()" for name in FUNCTIONS)

_MAX_LENGTH, _MAX_DEPTH, _MAX_TERMS = 2_000, 30, 1_000
"""Bounds of one formula, the scores that it names included: the longest published one has some 200 characters."""

_OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
_ARITHMETIC = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
_COMPARISONS = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_WORDS = ("text", "column", "each")
_NOT_SEEN = (*IMAGE_ROLES, *TEXT_ROLES, "group")
"""Fields of a manifest that a formula cannot look at: it is computed from what a run keeps of columns."""
_LEAST_WEIGHT = 1e-6
_EVERY, _IF = "_every_", "_if_"
"""What `*` and `if(` become before Python's parser reads the formula."""


@dataclass(frozen=True)
class Member:
    """What a formula knows of one rubric of its set."""

    name: str
    factors: Mapping[str, Scale]
    for_each: bool = False
    """Asked once for each element of a list, so that each of its factors has many values."""


Ref = tuple[str, str]
"""A rubric's name and a factor's key."""


@dataclass(frozen=True)
class Label:
    """A value of an edit that a formula holds against a rubric's answer, and that must be one of its choices."""

    rubric: str
    field: str
    """A column of the manifest, or a field of an element."""
    choices: tuple[str, ...]
    of_element: bool


@dataclass(frozen=True)
class Term:
    """A part of a formula."""

    op: str
    parts: tuple[Term, ...] = ()
    value: float | str = 0.0
    """Of a number or a text; of `by`, `given` and a column its name; of factors, what the formula calls them."""
    refs: tuple[Ref, ...] = ()
    """Of `factors`: which."""
    scales: tuple[Scale, ...] = ()
    """Of `factors`: theirs."""
    cases: tuple[str, ...] = ()
    """Of `by`: the column's values, in the order of the parts."""
    shape: tuple[str, ...] = ()
    """Of a list, the rubric of each of its values; empty for a single value. Lists of one shape can be combined."""
    choices: tuple[str, ...] = ()
    """The words that it may be, where it is no number."""
    for_each: bool = False
    """Of `factors`: whether one of them has as many values as a list has elements."""

    @property
    def many(self) -> bool:
        return bool(self.shape)

    @property
    def is_word(self) -> bool:
        return bool(self.choices) or self.op in _WORDS

    def walk(self) -> Iterator[Term]:
        """This term and all that it is made of."""
        yield self
        for part in self.parts:
            yield from part.walk()

    @functools.cached_property
    def ends(self) -> Ends | None:
        """The lowest and the highest value, where they are known."""
        match self.op:
            case "number":
                return float(self.value), float(self.value)
            case "factors":
                return _around([(scale.low, scale.high) for scale in self.scales])
            case "if":
                return _around([part.ends for part in self.parts[1:]])
            case "weights":
                return _around([pair.parts[0].ends for pair in self.parts])
            case "text" | "column" | "each" | "weighted":
                return None
            case op if op not in _ENDS:
                return 0.0, 1.0
        parts = [part.ends for part in self.parts]
        return None if None in parts else _ENDS[self.op](self, *parts)

    def _times(self, low: float, high: float) -> Ends | None:
        """The ends of a sum of values between `low` and `high`, any of which may be left out as not asked."""
        most = sum(len(part.refs) if part.op == "factors" else math.inf if part.many else 1 for part in self.parts)
        unbounded = most == math.inf or any(term.for_each for term in self.walk())
        return None if unbounded else (min(low, low * most), max(high, high * most))


def _around(ends: Sequence[tuple[float | None, float | None] | None]) -> Ends | None:
    lows, highs = zip(*(one or (None, None) for one in ends), strict=True)
    return None if None in (*lows, *highs) else (float(min(lows)), float(max(highs)))


def _corners(term: Term, a: Ends, b: Ends) -> Ends | None:
    if term.op == "/" and b[0] <= 0 <= b[1]:
        return None
    corners = [_OPERATORS[term.op](x, y) for x in a for y in b]
    return min(corners), max(corners)


_ENDS: Mapping[str, Callable[..., Ends | None]] = {
    **dict.fromkeys(_OPERATORS, _corners),
    **dict.fromkeys(("by", "applies", "mean", "geomean", "min", "max"), lambda _, *parts: _around(parts)),
    "sum": lambda term, *parts: term._times(*(_around(parts) or ())),
    "count": lambda term, *_: term._times(0.0, 1.0),
    "neg": lambda _, part: (-part[1], -part[0]),
    "sqrt": lambda _, part: (math.sqrt(max(part[0], 0.0)), math.sqrt(max(part[1], 0.0))),
    "abs": lambda _, part: (0.0 if part[0] <= 0 <= part[1] else min(map(abs, part)), max(map(abs, part))),
}
"""The ends of a term by those of its parts; a term that is not listed is true or false, or a share."""


@dataclass(frozen=True)
class Formula:
    """One named score of a set."""

    name: str
    text: str
    term: Term
    repeats: Literal["after", "before"] = "after"
    """`before`: the mean of each factor over repeats and samples goes into the formula; `after`: the formula's value of
    each of them, and then their mean."""
    direction: Literal["up", "down"] = "up"
    description: str = ""

    @property
    def refs(self) -> frozenset[Ref]:
        return frozenset(ref for term in self.term.walk() for ref in term.refs)

    @property
    def columns(self) -> frozenset[str]:
        """The columns of the manifest that it looks at."""
        return frozenset(str(term.value) for term in self.term.walk() if term.op in ("column", "by", "given"))

    @property
    def element_fields(self) -> frozenset[Ref]:
        """Rubrics asked `for_each`, and the fields of their elements that it looks at."""
        return frozenset((a.refs[0][0], str(b.value)) for a, b in self._compared_pairs() if b.op == "each")

    @property
    def labels(self) -> tuple[Label, ...]:
        """Return the columns of edits that answers are compared with."""
        pairs = [(a, b) for a, b in self._compared_pairs() if b.op in ("each", "column") and a.choices]
        return tuple(
            dict.fromkeys(
                Label(rubric, str(b.value), a.choices, b.op == "each") for a, b in pairs for rubric, _ in a.refs
            )
        )

    def _compared_pairs(self) -> Iterator[tuple[Term, Term]]:
        for term in self.term.walk():
            if term.op in ("==", "!="):
                yield term.parts[0], term.parts[1]

    @property
    def words(self) -> str:
        """For the foot of a table: `overall = sqrt(min SC x min PQ)`."""
        mean = ", of the means over repeats" if self.repeats == "before" else ""
        return f"{self.name} = {_say(self.term)}{mean}"


def formulas(scores: Mapping[str, str | Mapping[str, Any]], members: Sequence[Member]) -> list[Formula]:
    """The scores of a set, each over its factors and the scores before it; `RubricError` says which one is wrong."""
    known: list[Formula] = []
    for name, entry in scores.items():
        content = {"formula": entry} if isinstance(entry, str) else dict(entry)
        keys = ("formula", "repeats", "direction", "description")
        if "formula" not in content or content.keys() - {*keys}:
            raise RubricError(f"score {name}: expected a formula, or keys of {', '.join(keys)} with `formula`")
        text = str(content.pop("formula"))
        if content.get("repeats", "after") not in ("after", "before") or content.get("direction", "up") not in (
            "up",
            "down",
        ):
            raise RubricError(f"score {name}: repeats is `after` or `before`, direction `up` or `down`")
        if not re.fullmatch(r"[^\W\d]\w*", name) or name in FUNCTIONS or name == _EVERY:
            raise RubricError(f'score "{name}": a name is a word of letters, digits and _, and none of the functions')
        if any(name in member.factors for member in members):
            raise RubricError(f'score "{name}": a factor has that name; call the score otherwise')
        score = Formula(name, text, parse(text, members, known, f"score {name}"), **content)
        if score.repeats == "before" and any(part.choices for part in score.term.walk()):
            raise RubricError(f"score {name}: words have no mean, so repeats cannot come before the formula")
        known.append(score)
    return known


def parse(text: str, members: Sequence[Member], known: Sequence[Formula] = (), where: str = "formula") -> Term:
    """The formula as a tree, checked against what the set has: one number for each edit."""
    if len(text) > _MAX_LENGTH:
        raise RubricError(f"{where}: longer than {_MAX_LENGTH:,} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's remarks on the code that this is not
            tree = ast.parse(_as_python(text), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError, tokenize.TokenError) as error:
        why = error.msg if isinstance(error, SyntaxError) else str(error.args[0] if error.args else error)
        raise RubricError(f"{where}: {text!r:.120} cannot be read: {why}") from None
    term = _FormulaParser(members, {one.name: one.term for one in known}, where).read(tree.body)
    if term.many:
        raise RubricError(f"{where}: has many values for one edit: put them into one of {', '.join(REDUCTIONS)}")
    if term.is_word:
        raise RubricError(f'{where}: is a word and no number: compare it with one, as in answer == "yes"')
    if sum(1 for _ in term.walk()) > _MAX_TERMS:
        raise RubricError(f"{where}: more than {_MAX_TERMS:,} terms, those of the scores that it names included")
    return term


def _as_python(text: str) -> str:
    """With names in the place of `*` and of `if(...)`, which are no Python."""
    # In parentheses a formula may go over several lines.
    tokens = list(tokenize.generate_tokens(io.StringIO(f"({text}\n)").readline))
    words: list[tuple[int, str]] = []
    for number, token in enumerate(tokens):
        before, after = tokens[number - 1].string if number else "", tokens[number + 1].string if token.string else ""
        kind, word = token.type, token.string
        if kind == tokenize.COMMENT:
            raise ValueError("a formula has no comments")
        if word == "*" and before in ("(", ",", "."):
            kind, word = tokenize.NAME, _EVERY
        elif word == "if" and after == "(" and not _ends_a_value(tokens[number - 1]):
            word = _IF
        words.append((kind, word))
    return tokenize.untokenize(words).strip()


def _ends_a_value(token: tokenize.TokenInfo) -> bool:
    if token.type == tokenize.NAME:
        return token.string not in ("and", "or", "not", "else", "if")
    return token.type in (tokenize.NUMBER, tokenize.STRING) or token.string in (")", "]", "}")


class _FormulaParser:
    """Python's syntax tree to terms: only what is listed here is taken."""

    def __init__(self, members: Sequence[Member], scores: Mapping[str, Term], where: str) -> None:
        self._members = {member.name: member for member in members}
        self._scores, self._where, self._depth = scores, where, 0

    def read(self, node: ast.expr) -> Term:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._wrong(f"nested more than {_MAX_DEPTH} deep")
        term = self._read(node)
        self._depth -= 1
        return term

    def _wrong(self, why: str) -> RubricError:
        return RubricError(f"{self._where}: {why}")

    def _read(self, node: ast.expr) -> Term:
        match node:
            case ast.Constant(value=bool() as truth):
                raise self._wrong(f"{truth} is no number; write 1 or 0")
            case ast.Constant(value=int() | float() as number) if abs(number) <= 1e9:
                return Term("number", value=float(number))
            case ast.Constant(value=str() as text):
                return Term("text", value=text)
            case ast.Name(id=name):
                return self._name(name)
            case (
                ast.Attribute(value=ast.Name(id=owner), attr=key)
                | ast.Subscript(value=ast.Name(id=owner), slice=ast.Constant(value=str() as key))
            ):
                if owner in ("item", "each") and owner not in self._members:
                    return Term("each", value=key) if owner == "each" else Term("column", value=self._column(key))
                return self._of(owner, key)
            case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _ARITHMETIC:
                return self._arithmetic(_ARITHMETIC[type(sign)], self._number(left), self._number(right))
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() | ast.Not() as sign, operand=operand):
                return self._signed(sign, self._number(operand))
            case ast.BoolOp(op=sign, values=values):
                return self._combined("and" if isinstance(sign, ast.And) else "or", *map(self._number, values))
            case ast.Compare(left=left, ops=signs, comparators=right):
                return self._compared([left, *right], [type(sign) for sign in signs])
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self._if(self._number(test), self.read(body), self.read(orelse))
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                return self._call("if" if name == _IF else name, args)
        raise self._wrong(f"{ast.unparse(node)[:80]!r} is not part of the language: use arithmetic, {_KNOWN}")

    def _number(self, node: ast.expr) -> Term:
        term = self.read(node)
        if term.is_word:
            raise self._wrong(f'{_say(term)} is a word and no number: compare it, as in answer == "yes"')
        return term

    # names

    def _column(self, name: str) -> str:
        if name in _NOT_SEEN:
            raise self._wrong(f'a formula cannot look at "{name}": name another column of the manifest')
        return name

    def _name(self, name: str) -> Term:
        if name in self._scores:
            return self._scores[name]
        if name == _EVERY:
            return self._factors([(m.name, key) for m in self._members.values() for key in m.factors], "all factors")
        refs = [(member.name, name) for member in self._members.values() if name in member.factors]
        if refs:
            return self._factors(refs, name)
        if (member := self._members.get(name)) and len(member.factors) == 1:
            return self._factors([(name, next(iter(member.factors)))], name)
        if member:
            raise self._wrong(f"{name} has {len(member.factors)} factors: name one, as in {name}.x, or write {name}.*")
        keys = [key for one in self._members.values() for key in one.factors]
        raise self._wrong(f'no factor is called "{name}"{near_miss(name, [*keys, *self._members, *self._scores])}')

    def _of(self, owner: str, key: str) -> Term:
        if owner not in self._members:
            raise self._wrong(f'no rubric of the set is called "{owner}"{near_miss(owner, self._members)}')
        factors = self._members[owner].factors
        if key in (_EVERY, "*"):
            return self._factors([(owner, one) for one in factors], owner)
        if key not in factors:
            raise self._wrong(f'{owner} has no factor "{key}"{near_miss(key, factors)} It has {", ".join(factors)}')
        return self._factors([(owner, key)], f"{owner}.{key}")

    def _factors(self, refs: Sequence[Ref], name: str) -> Term:
        scales = tuple(self._members[name].factors[key] for name, key in refs)
        choices = {scale.choices for scale in scales}
        if len(choices) > 1:
            raise self._wrong(f"{name}: its factors are numbers and words, or different words")
        for_each = any(self._members[owner].for_each for owner, _ in refs)
        shape = tuple(owner for owner, _ in refs) if len(refs) > 1 or for_each else ()
        return Term("factors", (), name, tuple(refs), scales, shape=shape, choices=choices.pop(), for_each=for_each)

    # operators

    def _arithmetic(self, sign: str, a: Term, b: Term) -> Term:
        if sign == "/" and b.op == "number" and not b.value:
            raise self._wrong("division by 0")
        return self._combined(sign, a, b)

    def _signed(self, sign: ast.unaryop, part: Term) -> Term:
        if isinstance(sign, ast.UAdd):
            return part
        if isinstance(sign, ast.USub) and part.op == "number":
            return replace(part, value=-float(part.value))
        return Term("not" if isinstance(sign, ast.Not) else "neg", (part,), shape=part.shape)

    def _combined(self, op: str, *parts: Term) -> Term:
        shapes = {part.shape for part in parts if part.many}
        if len(shapes) > 1:
            raise self._wrong(f"{_say_all(parts)} are lists of different things: reduce each of them first")
        return Term(op, parts, shape=shapes.pop() if shapes else ())

    def _compared(self, nodes: Sequence[ast.expr], signs: Sequence[type[ast.cmpop]]) -> Term:
        terms = [self.read(node) for node in nodes]
        pairs = []
        for a, sign, b in zip(terms, signs, terms[1:], strict=False):
            if sign not in _COMPARISONS:
                raise self._wrong(f"compare with one of {', '.join(_COMPARISONS.values())}")
            pairs.append(self._pair(a, _COMPARISONS[sign], b))
        return pairs[0] if len(pairs) == 1 else self._combined("and", *pairs)

    def _pair(self, a: Term, sign: str, b: Term) -> Term:
        if a.op in _WORDS and b.op != "text":
            a, b = b, a
        if a.is_word or b.is_word:
            self._check_words(a, sign, b)
        return self._combined(sign, a, b)

    def _check_words(self, a: Term, sign: str, b: Term) -> None:
        """A factor of words, or a column, against a text; a factor against a column or a field of its element."""
        if b.op == "text":
            if sign not in ("==", "!="):
                raise self._wrong("words are equal or not: compare them with == or !=")
            if a.op != "column" and not a.choices:
                raise self._wrong(f"{_say(a)} is a number and never {b.value!r}")
            if a.choices and b.value not in a.choices:
                choices = ", ".join(a.choices)
                raise self._wrong(f"{_say(a)} is never {b.value!r}{near_miss(str(b.value), a.choices)} It is {choices}")
        elif not a.choices or b.op not in ("column", "each") or sign not in ("==", "!="):
            raise self._wrong(f"{_say(a)} {sign} {_say(b)}: a word is compared with a text in quotation marks")
        elif b.op == "each" and not (len(a.refs) == 1 and self._members[a.refs[0][0]].for_each):
            raise self._wrong(f"{_say(b)}: {_say(a)} is not asked for each element of a list")

    # functions

    def _if(self, test: Term, yes: Term, no: Term) -> Term:
        if any(term.many for term in (test, yes, no)):
            raise self._wrong("the parts of an if are single values: reduce a list first")
        if yes.is_word or no.is_word:
            raise self._wrong("an if gives a number: compare words inside it")
        return Term("if", (test, yes, no))

    def _call(self, name: str, args: Sequence[ast.expr]) -> Term:
        if name not in FUNCTIONS:
            raise self._wrong(f'no function is called "{name}"{near_miss(name, FUNCTIONS)} There are {_KNOWN}')
        least, most = FUNCTIONS[name]
        if len(args) < least or (most is not None and len(args) > most):
            wanted = f"{least}" if least == most else f"{least} or more" if most is None else f"{least} to {most}"
            raise self._wrong(f"{name} takes {wanted} arguments, not {len(args)}")
        match name:
            case "factor":
                return self._of(*(self._text(arg, "factor") for arg in args))
            case "weights":
                return self._weights(args[0])
            case "by":
                return self._by(args)
            case "given":
                return self._given(args[0])
            case "if":
                return self._if(self._number(args[0]), self.read(args[1]), self.read(args[2]))
            case "asked" | "scored" | "full" | "share":
                return self._on_factors(name, [self._all_of(arg) for arg in args])
        parts = tuple(self._number(arg) for arg in args)
        if name in ("sqrt", "abs"):
            return Term(name, parts, shape=parts[0].shape)
        shape = tuple(one for part in parts for one in part.shape or ("",)) if name == "applies" else ()
        return Term(name, parts, shape=shape)

    def _all_of(self, node: ast.expr) -> Term:
        """Where factors are asked for, a rubric stands for all that it has."""
        if isinstance(node, ast.Name) and node.id in self._members and node.id not in self._scores:
            return self._of(node.id, _EVERY)
        return self.read(node)

    def _on_factors(self, name: str, parts: Sequence[Term]) -> Term:
        for part in parts:
            if part.op == "applies" and name == "full":
                self._on_factors(name, part.parts)
            elif part.op != "factors":
                raise self._wrong(f"{name}(...) takes factors, as in {name}(sc.quality), not {_say(part)}")
            elif name in ("full", "share") and any(s.worst is None or s.best is None for s in part.scales):
                raise self._wrong(f"{name}({_say(part)}): a scale that is open, or of words, has no best score")
        return Term(name, tuple(parts), shape=parts[0].shape if name == "share" else ())

    def _text(self, node: ast.expr, function: str) -> str:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        raise self._wrong(f'{function} takes names in quotation marks, as in {function}("sc", "Over-editing")')

    def _weights(self, node: ast.expr) -> Term:
        if not isinstance(node, ast.Dict) or not node.keys or None in node.keys:
            raise self._wrong("weights takes {factor: weight, ...}")
        parts = [self._number(key) for key in node.keys if key is not None]
        shares = [self.read(value) for value in node.values]
        if any(share.op != "number" or float(share.value) < _LEAST_WEIGHT for share in shares):
            raise self._wrong(f"a weight is a number above 0, at least {_LEAST_WEIGHT:g}")
        named = [part.refs for part in parts if part.op == "factors"]
        if len({*named}) < len(named):
            raise self._wrong("weights: the same factor stands there twice: give it one weight")
        if many := next((part for part in parts if part.many), None):
            raise self._wrong(f"weights: {_say(many)} has many values: reduce it first")
        return Term("weights", tuple(Term("weighted", pair) for pair in zip(parts, shares, strict=True)))

    def _by(self, args: Sequence[ast.expr]) -> Term:
        match args[0]:
            case ast.Name(id=column) | ast.Attribute(value=ast.Name(id="item"), attr=column):
                pass
            case _:
                raise self._wrong('by takes a column of the manifest first: by(edit_type, {"add": ..., "remove": ...})')
        if not isinstance(args[1], ast.Dict) or not args[1].keys:
            raise self._wrong('by takes {"value of the column": formula, ...} second')
        column = self._column(column)
        cases = [self._text(key, "by") for key in args[1].keys if key is not None]
        parts = [self._number(value) for value in [*args[1].values, *args[2:]]]
        if len(set(map(word_of, cases))) < len(args[1].values) or any(part.many for part in parts):
            raise self._wrong("by: each value of the column once, each with a formula of one value")
        return Term("by", tuple(parts), value=column, cases=tuple(cases))

    def _given(self, node: ast.expr) -> Term:
        column = self.read(node)
        if column.op != "column":
            raise self._wrong("given takes a column of the manifest, as in given(item.hint)")
        return Term("given", value=column.value)


# a formula in words

_LEVEL = {"if": 0, "or": 1, "and": 2, "not": 3, "+": 5, "-": 5, "*": 6, "/": 6, "neg": 7} | dict.fromkeys(
    _COMPARISONS.values(), 4
)


def _say(term: Term, least: int = 0) -> str:
    """In words; in parentheses where what stands around binds as strongly."""
    text = _phrase(term)
    return f"({text})" if _LEVEL.get(term.op, 9) < least else text


def _say_all(terms: Iterable[Term]) -> str:
    return ", ".join(map(_say, terms))


def _phrase(term: Term) -> str:
    if term.op in _PHRASES:
        return _PHRASES[term.op](*term.parts)
    if term.op in ("column", "factors", "each"):
        return str(term.value)
    if term.op == "given":
        return f"{term.value} is given"
    if term.op in ("number", "text"):
        return f'"{term.value}"' if isinstance(term.value, str) else f"{term.value:.10g}"
    if term.op == "by":
        cases = [f'{_say(part)} for "{case}"' for case, part in zip(term.cases, term.parts, strict=False)]
        rest = [f"{_say(term.parts[-1])} for others"] if len(term.parts) > len(term.cases) else []
        return f"by {term.value}: {', '.join([*cases, *rest])}"
    if term.op in _LEVEL:
        sign, level = {"*": "x", "==": "=", "!=": "is not"}.get(term.op, term.op), _LEVEL[term.op]
        # A term on the right that binds as strongly keeps its parentheses: a - (b - c).
        return f" {sign} ".join(_say(part, level + (number > 0)) for number, part in enumerate(term.parts))
    if len(term.parts) == 1 and term.parts[0].op == "factors" and term.op not in ("sqrt", "abs"):
        return f"{term.op} {_say(term.parts[0])}"
    return f"{term.op}({_say_all(term.parts)})"


_PHRASES: Mapping[str, Callable[..., str]] = {
    "neg": lambda part: f"-{_say(part, 7)}",
    "not": lambda part: f"not {_say(part, 3)}",
    "if": lambda test, yes, no: f"{_say(yes, 1)} if {_say(test, 1)}, else {_say(no)}",
    "asked": lambda part: f"{_say(part)} was asked",
    "scored": lambda part: f"{_say(part)} has a score",
    "full": lambda *parts: f"full marks in {_say_all(parts)}",
    "share": lambda part: f"{_say(part)} from 0 (worst) to 1 (best)",
    "applies": lambda *parts: f"{_say_all(parts)} where it applies",
    "weights": lambda *pairs: " + ".join(f"{_say(pair.parts[1])} x {_say(pair.parts[0], 6)}" for pair in pairs),
}
