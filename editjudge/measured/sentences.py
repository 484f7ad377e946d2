"""Sentences from numbers: where in the picture, how much of it, and no more words than the rubric takes."""

from __future__ import annotations

import numpy as np

from editjudge.measured.scene import Array

_ROWS = ("upper", "middle", "lower")
_COLUMNS = ("left", "centre", "right")


def place(part: Array) -> str:
    """Where most of it lies: "lower left", "centre", "whole picture"."""
    weight = np.asarray(part, np.float64)
    total = float(weight.sum())
    if total <= 0:
        return "nowhere"
    height, width = weight.shape
    if weight.mean() > 0.7:
        return "whole picture"
    y = float((weight.sum(axis=1) @ np.arange(height)) / total / max(1, height - 1))
    x = float((weight.sum(axis=0) @ np.arange(width)) / total / max(1, width - 1))
    row, column = _ROWS[min(2, int(3 * y))], _COLUMNS[min(2, int(3 * x))]
    if row == "middle":
        return "centre" if column == "centre" else f"middle {column}"
    return f"{row} {column}"


def percent(share: float) -> str:
    """Of the picture: whole numbers, but never 0 for something or 100 for not all."""
    if 0 < share < 0.01:
        return "under 1 %"
    if 0.99 < share < 1:
        return "over 99 %"
    return f"{share * 100:.0f} %"


def bounded(sentence: str, limits: tuple[int, int] | None, filling: str) -> str:
    """The sentence within the rubric's word limits: lengthened by a true remark, or cut at a clause."""
    if limits is None:
        return sentence
    least, most = limits
    words = sentence.split()
    if len(words) < least:
        words = [*words[:-1], words[-1].rstrip(".") + ";", *filling.split()]
    if len(words) > most:
        words = words[:most]
        words[-1] = words[-1].rstrip(",;:.") + "."
    return " ".join(words)
