"""The condition `when` of a rubric: which edits it is asked about, by the columns of a manifest.

    edit_type in [add, remove]         edit_type == add         tags.scene != "indoor light"
    ground_truth is given              explanation is not given
    not (edit_type == add and mask is given) or edit_type not in [style]

Values are compared as everywhere (`editjudge.values`): `hard == true` holds of JSON's true and of the text, `turn == 3`
of 3, 3.0 and "3", and other texts are compared to the letter. A column that an edit does not have equals no word, so
that only `!=`, `not in` and `is not given` hold of it. `is given` holds of neither null nor an empty text, list or
object, nor of `false`.
"""

from __future__ import annotations

import ast
import functools
import re
import warnings
from collections.abc import Callable, Iterator

from editjudge.edit import Edit
from editjudge.values import word_of

_TOKEN = re.compile(r"""\s*(?:(==|!=|[\[\](),])|"([^"]*)"|'([^']*)'|([\w./+-]+)|(\S))""")
_MAX_LENGTH, _MAX_DEPTH = 2_000, 20
_KEYWORDS = ("and", "or", "not", "in", "is", "given")

Holds = Callable[[Edit], bool]


@functools.lru_cache(maxsize=256)
def parse_when(text: str) -> Holds:
    """The condition as a function of an edit. Raises `ValueError` that says where the text is wrong."""
    if len(text) > _MAX_LENGTH:
        raise ValueError(f"when: longer than {_MAX_LENGTH:,} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's remarks on `"mask" is given`
            tree = ast.parse(" ".join(_as_python(text)), mode="eval")
        return _condition(tree.body, depth=1)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        why = f"cannot be read: {error.msg}" if isinstance(error, SyntaxError) else str(error)
        raise ValueError(f"when {text!r:.120}: {why}; {_SUCH_AS}") from None


_SUCH_AS = "such as: edit_type in [add, remove] and mask is given"


def applies(when: str, edit: Edit) -> bool:
    """Whether a condition holds of an edit; an empty one does of all."""
    return not when or parse_when(when)(edit)


def _as_python(text: str) -> Iterator[str]:
    """With every word in quotation marks, a condition is a Python expression."""
    after_word = False
    for sign, double, single, word, stray in _TOKEN.findall(text.strip()):
        token = sign or double or single or word
        is_word = not sign and (word not in _KEYWORDS or not word)
        # Python would read two texts side by side as one.
        if stray or (is_word and after_word):
            raise ValueError(f"found {stray or token!r}, expected a sign such as == or `in`")
        yield repr(token) if is_word else token
        after_word = is_word


def _condition(node: ast.expr, depth: int) -> Holds:
    if depth > _MAX_DEPTH:
        raise ValueError(f"nested more than {_MAX_DEPTH} deep")
    match node:
        case ast.BoolOp(op=op, values=values):
            parts = [_condition(value, depth + 1) for value in values]
            joined = all if isinstance(op, ast.And) else any
            return lambda edit: joined(part(edit) for part in parts)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = _condition(operand, depth + 1)
            return lambda edit: not inner(edit)
        case ast.Compare(left=ast.Constant(value=str() as column), ops=[op], comparators=[right]):
            if not re.fullmatch(r"[^\W\d][\w.-]*", column):
                raise ValueError(f"found {column!r}, expected the name of a column")
            return _comparison(column, op, right)
    raise ValueError(f"found {ast.unparse(node)!r:.80}, expected a column and what it is compared with")


def _comparison(column: str, op: ast.cmpop, right: ast.expr) -> Holds:
    negated = isinstance(op, ast.NotEq | ast.NotIn | ast.IsNot)
    match op, right:
        case ast.Is() | ast.IsNot(), ast.Name(id="given"):
            return lambda edit: edit.has(column) is not negated
        case ast.Eq() | ast.NotEq(), ast.Constant(value=str()):
            values = {right.value}
        case ast.In() | ast.NotIn(), ast.List(elts=[_, *_]) if all(isinstance(v, ast.Constant) for v in right.elts):
            values = {value.value for value in right.elts if isinstance(value, ast.Constant)}
        case _:
            expected = "`given`, a word, or a list of words in brackets"
            raise ValueError(f"found {ast.unparse(right)!r:.80} after {column}, expected {expected}")
    words = {word_of(value) for value in values}
    return lambda edit: (word_of(edit.value(column)) in words) is not negated
