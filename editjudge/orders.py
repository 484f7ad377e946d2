"""Choices between two outputs that are shown in both orders, and the decision that follows from the two answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeAlias

from editjudge.errors import UsageError

Choice: TypeAlias = Literal["a", "b", "tie"]
CHOICES: tuple[Choice, ...] = ("a", "b", "tie")
Answer: TypeAlias = Literal["a", "b", "tie", "both_good", "both_bad"]
"""An answer, in the form in which it is stored. `both_good` and `both_bad` count as ties."""
_TIES: tuple[Answer, ...] = ("tie", "both_good", "both_bad")
SWAPPED: dict[Answer, Answer] = {"a": "b", "b": "a", **{tie: tie for tie in _TIES}}
"""Each answer with a and b exchanged, for a question that showed b first."""
_COUNTED: dict[str, Choice] = {"a": "a", "b": "b", **dict.fromkeys(_TIES, "tie")}
ORDERS = ("ab", "ba")
"""Orders in which the outputs of a pair are shown. Each order is a variant of the question."""

_SPELLINGS: dict[str, Answer] = {
    **dict.fromkeys(
        (
            "a",
            "a>b",
            "a is better",
            "image a",
            "output a",
            "edit a",
            "first",
            "1",
            "left",
        ),
        "a",
    ),
    **dict.fromkeys(
        (
            "b",
            "b>a",
            "b is better",
            "image b",
            "output b",
            "edit b",
            "second",
            "2",
            "right",
        ),
        "b",
    ),
    **dict.fromkeys(("tie", "equal", "same", "a=b", "draw"), "tie"),
    **dict.fromkeys(("both good", "a=b=good"), "both_good"),
    **dict.fromkeys(("both bad", "a=b=bad"), "both_bad"),
}


def read_choice(text: str) -> Answer | None:
    """Return the answer for a spelling that people or published judges use. Return None if the spelling is unknown."""
    return _SPELLINGS.get(text.strip().strip("[]").replace("_", " ").casefold())


def offers_tie(choices: Iterable[str]) -> bool:
    """Whether one of the choices between two outputs prefers neither of them."""
    return any(read_choice(choice) in _TIES for choice in choices)


class Decision(NamedTuple):
    """Outcome of a question that was asked in both orders."""

    verdict: Choice | None
    """The choice; None if one of the orders has no answer."""
    flipped: bool = False
    """Whether one order gives a and the other b, which means that the judge decided by position."""
    half: bool = False
    """Whether one order gives a tie and the other a or b."""


def decide(ab: str | None, ba: str | None) -> Decision:
    """Return the decision from the answers in both orders. a and b name the same outputs in both orders."""
    first = _choice(ab)
    second = _choice(ba)
    if first is None or second is None:
        return Decision(None)
    if first == second:
        return Decision(first)
    half = "tie" in (first, second)
    return Decision("tie", flipped=not half, half=half)


def majority(answers: Iterable[str | None]) -> Choice | None:
    """Return the most frequent choice over the repeats of one order. It is a tie if two are equally frequent, and None
    if there are no answers.
    """
    choices = [choice for answer in answers if (choice := _choice(answer)) is not None]
    if not choices:
        return None
    a, b, ties = (choices.count(choice) for choice in CHOICES)
    if a == b or ties >= max(a, b):
        return "tie"
    return "a" if a > b else "b"


def _choice(answer: str | None) -> Choice | None:
    """Return the choice for a stored answer, or None if there is no answer. `both_good` and `both_bad` count as a tie."""
    if answer is None:
        return None
    if answer in _COUNTED:
        return _COUNTED[answer]
    raise UsageError(
        "an answer is 'a', 'b' or 'tie', which 'both_good' and 'both_bad' count as, or None if there is none; "
        f"found {answer!r}",
        code="unknown_choice",
    )
