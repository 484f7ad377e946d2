"""Narrow patterns for normalised instructions. Only a match of the entire sentence proves what it requests.

A quoted word is lettering in `add the text "X"` and a landmark in `the car in front of the "X" sign`; a colour is a
target in `make the car red` and a reference in `like the red one`. A pattern that searches its words anywhere in an
instruction cannot separate these, so every pattern here must match the instruction from its first word to its last.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

_QUOTES = re.compile(
    r"(?<!\w)'([^'\n]+(?:'\w[^'\n]*)*)'(?!\w)|\"([^\"\n]+)\"|“([^”\n]+)”|‘([^’\n]+)’|「([^」\n]+)」|『([^』\n]+)』"
    r"|«\s*([^»\n]+?)\s*»|„([^“”\n]+)[“”]|‹([^›\n]+)›|＂([^＂\n]+)＂|`([^`\n]+)`"
)
_POLITE = re.compile(
    r"^(?:(?:please|kindly|now|just|can you|could you|would you|i want you to|i would like you to)[ ,]+)+",
    re.IGNORECASE,
)
_KEEPING = re.compile(
    r"[,;.]? (?:and |while |but )?(?:keep|keeping|preserv(?:e|ing)|maintain(?:ing)?|retain(?:ing)?|without changing"
    r"|do not change|don't change)\b[^⟦⟧]*$",
    re.IGNORECASE,
)
"""End of an instruction that says what to keep, and therefore requests nothing new."""
_HEDGED = re.compile(
    r"\b(?:not|never|no|nor|without|except|excluding|excepting|besides|but|unless|until|if|whether|or|either|other|else"
    r"|apart|instead|rather|only|avoid|keep|leave|than|like|less|more|fewer|anything|something|nothing|any|most|some)\b"
    r"|n['’]t\b",
    re.IGNORECASE,
)
"""Words that negate, limit or compare the request. Nothing is concluded from a sentence that contains one."""


_FRAGMENT = re.compile(r"\{([A-Z_]+)\}")
"""Placeholder for a fragment in a pattern, such as {WHERE}."""


def bare(instruction: str) -> tuple[str, tuple[str, ...]] | None:
    """Return the instruction without polite phrases and with each quotation replaced by ⟦N⟧, and the quotations. Return
    None if the instruction hedges."""
    quoted: list[str] = []

    def mark(match: re.Match[str]) -> str:
        quoted.append(next(filter(None, match.groups())).strip())
        return f"⟦{len(quoted) - 1}⟧"

    if "⟦" in instruction:
        return None
    text = " ".join(_QUOTES.sub(mark, instruction).split())
    text = _KEEPING.sub("", _POLITE.sub("", text)).strip(" .!")
    return None if _HEDGED.search(text) else (text, tuple(quoted))


def quotations(instruction: str) -> list[str]:
    """Return the quotations in the instruction, which may be a few letters that it asks for."""
    return [quote.group() for quote in _QUOTES.finditer(instruction)]


def matches(name: str, instruction: str) -> bool:
    """Whether the entire instruction matches a phrasing with this name in `phrasings.yaml`."""
    text, quoted = bare(instruction) or ("", ())
    return not quoted and first_match(name, text) is not None


@cache
def _phrasings() -> Any:
    import yaml

    return yaml.safe_load(Path(__file__).with_name("phrasings.yaml").read_text("utf-8"))


@cache
def patterns(name: str) -> tuple[re.Pattern[str], ...]:
    """Return the phrasings with this dotted name, or an empty tuple if the file has none."""
    content = _phrasings()
    fragments = content["fragments"]
    for key in name.split("."):
        content = content.get(key, {})
    compiled = []
    for pattern in content:
        expanded = pattern
        while marks := _FRAGMENT.findall(expanded):
            for mark in marks:
                expanded = expanded.replace(f"{{{mark}}}", fragments[mark])
        compiled.append(re.compile(expanded, re.IGNORECASE))
    return tuple(compiled)


def mentions(name: str, text: str) -> bool:
    """Whether a phrasing with this name occurs anywhere in the text."""
    return any(pattern.search(text) for pattern in patterns(name))


def first_match(name: str, text: str) -> re.Match[str] | None:
    """Return the match of the first phrasing with this name that matches the entire text, or None."""
    return next(
        (match for pattern in patterns(name) if (match := pattern.fullmatch(text))),
        None,
    )


def may_stay(instruction: str) -> bool:
    """Whether the instruction may ask for an unchanged image."""
    wish = _KEEPING.sub("", instruction)
    return not wish.strip() or mentions("may_stay", wish)
