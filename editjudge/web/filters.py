"""Values as pages show them; escaping is the templates' own."""

from __future__ import annotations

import datetime
import json
import math
from typing import Any
from urllib.parse import quote

from editjudge.rubrics.model import Anchor, Factor

__all__ = ["day", "edit_url", "legend", "number", "pretty", "scale_ends", "score", "titled"]


def encodable(text: str) -> str:
    """Return text that has a UTF-8: half a surrogate pair, which a reply or an id may hold, has none."""
    return text.encode("utf-8", "backslashreplace").decode()


def edit_url(item: str, run: int, what: str = "edits") -> str:
    """The address of an edit of a run, whatever characters its id has."""
    if item in (".", ".."):  # browsers take these for folders, even percent-encoded
        return f"/runs/{run}/{what}/?item={item}"
    return f"/runs/{run}/{what}/{quote(item.encode('utf-8', 'surrogatepass'), safe='')}"


def day(seconds: float) -> str:
    """A time in minutes; an imported run may have one that no calendar has."""
    try:
        return datetime.datetime.fromtimestamp(seconds).astimezone().isoformat(" ", "minutes")[:16]
    except (OverflowError, OSError, ValueError):
        return "at an unknown time"


def number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def score(value: float | None) -> str:
    """A mean score; a whole number stays one."""
    if value is None or math.isnan(value):
        return "–"
    if float(value).is_integer():
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 1 else f"{value:.3g}"  # a mean of 1 to 7, or a share: .0123 is not .0


def titled(key: str) -> str:
    """A factor's key as a column's heading."""
    return key.replace("_", " ")


def legend(factor: Factor) -> tuple[dict[float, str], list[Anchor]]:
    """What each value means, and the anchors still to be told: a label that points to one says what it says."""
    words: dict[float, str] = dict(sorted(factor.scale.labels.items()))
    rest = list(factor.anchors)
    for anchor in factor.anchors:
        (value, *more), pointing = anchor.scores, f"as the anchor for {anchor.scores[0]} says"
        if not more and pointing in words.get(value, ""):
            words[value] = words[value].replace(pointing, " ".join(anchor.when))
            rest.remove(anchor)
    return {value: text.replace("the anchor for ", "") for value, text in words.items()}, rest


def scale_ends(factor: Factor) -> list[tuple[float, str]]:
    """The lowest and the highest score with their meaning in the rubric; nothing where neither has one."""
    labels, anchors = legend(factor)
    ends = []
    for value in factor.scale.steps[:1] + factor.scale.steps[-1:]:
        when = next((anchor.when for anchor in anchors if value in anchor.scores), ())
        ends.append((value, labels.get(value) or "; ".join(when)))
    return ends if any(words for _, words in ends) else []


def pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)
