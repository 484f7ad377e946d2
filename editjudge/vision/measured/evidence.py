"""Evidence of a score, for people and programs: numbers with names and units, and images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import cv2
import numpy as np

from editjudge.vision.measured.calibration import Calibration
from editjudge.vision.measured.factors import place
from editjudge.vision.measured.lettering import TextLine
from editjudge.vision.measured.measures import Measures, outline
from editjudge.vision.measured.scene import Array, shrink

_UNITS = {
    **dict.fromkeys(("change.share", "change.visible share", "overall.flat", "overall.clipped"),
                    "share of the picture"),
    **dict.fromkeys(("structure.lost inside", "structure.lost outside", "structure.lost"),
                    "share of recognisable structure"),
    **dict.fromkeys(("light.slope inside", "light.slope outside", "light.slope against"), "stops"),
    "change.visible outside": "share of what is outside the edit",
    "style.layout": "correlation",
    "style.drawing": "octaves",
    "style.turned": "degrees of hue",
    "texture.noise": "levels of 255",
    "seam.sharp": "share of the boundary",
    "seam.length": "pixels",
}  # fmt: skip
_FAMILY_UNITS = {
    **dict.fromkeys(("change", "style", "light"), "colour difference"),
    **dict.fromkeys(("overall", "texture"), "octaves"),
    "seam": "colour difference a pixel",
}
"""Units of the other measures of a family."""


def numbers(
    measures: Measures, calibration: Calibration, factors: Sequence[str]
) -> dict[str, Any]:
    """Every measure that has a unit, where the edit is, and the points that each factor lost to what."""
    values = {
        name: {"value": round(value, 4), "unit": unit}
        for name, value in measures.values.items()
        if (unit := _UNITS.get(name) or _FAMILY_UNITS.get(name.split(".")[0]))
    }
    points = {
        factor: {
            name: round(lost, 2)
            for name, lost in _points(factor, measures, calibration).items()
        }
        for factor in factors
        if factor in calibration.factors
    }
    change = measures.change
    return {
        "measures": values,
        "points": points,
        "region": {
            "from": "mask" if measures.scene.mask is not None else "change map",
            "place": place(change.region),
            "share": round(change.share, 4),
        },
        "nothing changed": change.nothing,
        "framing": dict(measures.scene.framing),
    }


def _points(
    factor: str, measures: Measures, calibration: Calibration
) -> dict[str, float]:
    taken = calibration.points(factor, measures.values)
    rank = calibration.rank(factor, measures)
    return (
        taken
        if rank is None or not calibration.learnt
        else taken | {"learnt": calibration.learnt.taken(factor, rank)}
    )


def lettering_evidence(
    before: Sequence[TextLine], after: Sequence[TextLine]
) -> dict[str, Any]:
    """Lines as they were read, with confidence and box (left, top, right, bottom as shares of the picture)."""
    return {
        name: [
            {
                "text": x.text,
                "confidence": round(x.confidence, 3),
                "box": [round(v, 4) for v in x.box],
            }
            for x in lines
        ]
        for name, lines in (("input", before), ("edited", after))
    }


def pictures(
    edited: Array, measures: Measures, lines: Sequence[Mapping[str, Any]] = ()
) -> dict[str, bytes]:
    """PNGs in the size of the measurement: the change over the edited picture, the rim, the boxes that were read."""
    height, width = measures.scene.shape
    canvas = cv2.resize(shrink(edited, max(height, width)), (width, height))[..., ::-1]
    drawn = {"change": _heat(canvas, measures), "boundary": _rim(canvas, measures)}
    if lines:
        drawn["lettering"] = _boxes(canvas, lines)
    return {
        name: cv2.imencode(".png", picture)[1].tobytes()
        for name, picture in drawn.items()
    }


def _heat(canvas: Array, measures: Measures) -> Array:
    # four times the visible threshold is drawn full
    strength = np.clip(measures.change.visible / 4, 0, 1)
    colour = cv2.applyColorMap((strength * 255).astype(np.uint8), cv2.COLORMAP_INFERNO)
    gray = cv2.cvtColor(cv2.cvtColor(canvas, cv2.COLOR_BGR2GRAY), cv2.COLOR_GRAY2BGR)
    share = np.clip(strength * 1.5, 0, 0.85)[..., None]
    mixed: Array = (gray * (1 - share) + colour * share).astype(np.uint8)
    return mixed


def _rim(canvas: Array, measures: Measures) -> Array:
    drawn = canvas.copy()
    rim = outline(measures.change.region, measures.scene.valid)
    drawn[cv2.dilate(rim.astype(np.uint8), np.ones((2, 2), np.uint8)) > 0] = (0, 0, 255)
    return drawn


def _boxes(canvas: Array, lines: Sequence[Mapping[str, Any]]) -> Array:
    drawn = canvas.copy()
    height, width = drawn.shape[:2]
    for line in lines:
        left, top, right, bottom = line["box"]
        corners = (
            (round(left * width), round(top * height)),
            (round(right * width), round(bottom * height)),
        )
        cv2.rectangle(drawn, *corners, (0, 200, 0), 1)
    return drawn
