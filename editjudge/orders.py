"""Two outputs shown in both orders: whose answer a word is, and what two answers come to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeAlias

from editjudge.errors import UsageError

Choice: TypeAlias = Literal["a", "b", "tie"]
CHOICES: tuple[Choice, ...] = ("a", "b", "tie")
Answer: TypeAlias = Literal["a", "b", "tie", "both_good", "both_bad"]
"""An answer as it is stored; `both_good` and `both_bad` count as ties."""
SWAPPED: dict[Answer, Answer] = {"a": "b", "b": "a", "tie": "tie", "both_good": "both_good", "both_bad": "both_bad"}
"""The answer in the item's own naming, where b was shown as the first output."""
_COUNTED: dict[str, Choice] = {"a": "a", "b": "b", "tie": "tie", "both_good": "tie", "both_bad": "tie"}
ORDERS = ("ab", "ba")
"""Which output of a pair is shown first: variants of its question."""

_SPELLINGS: dict[str, Answer] = {
    **dict.fromkeys(("a", "a>b", "a is better", "image a", "output a", "edit a", "first", "1", "left"), "a"),
    **dict.fromkeys(("b", "b>a", "b is better", "image b", "output b", "edit b", "second", "2", "right"), "b"),
    **dict.fromkeys(("tie", "equal", "same", "a=b", "draw"), "tie"),
    **dict.fromkeys(("both good", "a=b=good"), "both_good"),
    **dict.fromkeys(("both bad", "a=b=bad"), "both_bad"),
}


def read_choice(word: str) -> Answer | None:
    """Which of two outputs a word names, as people and published judges write it; None where that is unknown."""
    return _SPELLINGS.get(word.strip().strip("[]").replace("_", " ").casefold())


class Decision(NamedTuple):
    """What two answers to one question, in both orders, come to."""

    verdict: Choice | None
    """None where an order has no answer."""
    flipped: bool = False
    """One order says a, the other b: the judge goes by the place."""
    half: bool = False
    """One order says tie, the other a or b."""


def decide(ab: str | None, ba: str | None) -> Decision:
    """Both answers in the item's own naming, whatever the order that was shown."""
    first, second = _choice(ab), _choice(ba)
    if first is None or second is None:
        return Decision(None)
    if first == second:
        return Decision(first)
    half = "tie" in (first, second)
    return Decision("tie", flipped=not half, half=half)


def majority(answers: Iterable[str | None]) -> Choice | None:
    """One answer for several repeats of one order: of a and b the more frequent, a tie where neither is; None where no
    repeat was answered."""
    given = [choice for answer in answers if (choice := _choice(answer)) is not None]
    if not given:
        return None
    a, b, ties = (given.count(choice) for choice in CHOICES)
    return "tie" if a == b or ties >= max(a, b) else "a" if a > b else "b"


def _choice(answer: str | None) -> Choice | None:
    """Return the choice that a stored answer counts as; both_good and both_bad count as a tie."""
    if answer is None:
        return None
    if answer in _COUNTED:
        return _COUNTED[answer]
    raise UsageError(
        "an answer is 'a', 'b' or 'tie', which 'both_good' and 'both_bad' count as, or None where there is none; "
        f"found {answer!r}"
    )
