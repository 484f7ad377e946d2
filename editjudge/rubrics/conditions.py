"""Of which edits a rubric is asked: `when`, a condition over the columns of a manifest.

    edit_type in [add, remove]         edit_type == add         tags.scene != "indoor light"
    ground_truth is given              explanation is not given
    not (edit_type == add and mask is given) or edit_type not in [style]

Words are compared to the letter. A column that an edit does not have is no word, so that only `!=`, `not in` and
`is not given` hold of it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

from editjudge.edit import Edit

_TOKEN = re.compile(r"""\s*(?:(==|!=|[\[\](),])|"([^"]*)"|'([^']*)'|([\w./+-]+)|(\S))""")
_MOST = 2_000
_DEPTH = 20
_KEYWORDS = ("and", "or", "not", "in", "is", "given")

Holds = Callable[[Edit], bool]


@functools.lru_cache(maxsize=256)
def parse_when(text: str) -> Holds:
    """The condition as a function of an edit. Raises `ValueError` that says where the text is wrong."""
    if len(text) > _MOST:
        raise ValueError(f"when: longer than {_MOST:,} characters")
    return _Parser(text).whole()


def applies(when: str, edit: Edit) -> bool:
    """Whether a condition holds of an edit; an empty one does of all."""
    return not when or parse_when(when)(edit)


class _Parser:
    """By descent: `or` binds less than `and`, `and` less than `not`."""

    def __init__(self, text: str) -> None:
        self._text, self._at, self._depth = text, 0, 0
        self._tokens: list[tuple[str, bool]] = []
        """Each with whether it was quoted, and so no keyword."""
        for sign, double, single, word, stray in _TOKEN.findall(text.strip()):
            if stray:
                raise self._error(f"found {stray!r}")
            quoted = not (sign or word)
            self._tokens.append((double or single if quoted else sign or word, quoted))

    def whole(self) -> Holds:
        condition = self._either()
        if self._at < len(self._tokens):
            raise self._error(f"found {self._tokens[self._at][0]!r} after the end of the condition")
        return condition

    def _either(self) -> Holds:
        some = [self._both()]
        while self._take("or"):
            some.append(self._both())
        return some[0] if len(some) == 1 else lambda edit: any(one(edit) for one in some)

    def _both(self) -> Holds:
        some = [self._one()]
        while self._take("and"):
            some.append(self._one())
        return some[0] if len(some) == 1 else lambda edit: all(one(edit) for one in some)

    def _one(self) -> Holds:
        self._depth += 1
        if self._depth > _DEPTH:
            raise self._error(f"nested more than {_DEPTH} deep")
        try:
            if self._take("not"):
                inner = self._one()
                return lambda edit: not inner(edit)
            if self._take("("):
                inner = self._either()
                self._need(")")
                return inner
            return self._test()
        finally:
            self._depth -= 1

    def _test(self) -> Holds:
        column = self._word("the name of a column")
        if not re.fullmatch(r"[^\W\d][\w.-]*", column):
            raise self._error(f"found {column!r}, expected the name of a column")
        if self._take("is"):
            negated = self._take("not")
            self._need("given")
            return lambda edit: edit.has(column) is not negated
        if self._take("=="):
            return self._among(column, {self._word("a value")}, negated=False)
        if self._take("!="):
            return self._among(column, {self._word("a value")}, negated=True)
        negated = self._take("not")
        self._need("in")
        self._need("[")
        values = {self._word("a value")}
        while self._take(","):
            values.add(self._word("a value"))
        self._need("]")
        return self._among(column, values, negated=negated)

    def _among(self, column: str, values: set[str], *, negated: bool) -> Holds:
        return lambda edit: (edit.has(column) and edit.text(column) in values) is not negated

    def _take(self, token: str) -> bool:
        if self._at < len(self._tokens) and self._tokens[self._at] == (token, False):
            self._at += 1
            return True
        return False

    def _need(self, token: str) -> None:
        if not self._take(token):
            raise self._error(f"found {self._here()}, expected {token!r}")

    def _word(self, what: str) -> str:
        if self._at < len(self._tokens):
            word, quoted = self._tokens[self._at]
            if quoted or (word not in _KEYWORDS and re.match(r"[\w./+-]", word)):
                self._at += 1
                return word
        raise self._error(f"found {self._here()}, expected {what}")

    def _here(self) -> str:
        return repr(self._tokens[self._at][0]) if self._at < len(self._tokens) else "the end"

    def _error(self, why: str) -> ValueError:
        return ValueError(f"when {self._text!r:.120}: {why}; such as: edit_type in [add, remove] and mask is given")
