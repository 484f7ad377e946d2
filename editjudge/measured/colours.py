"""Colours by name: whether a colour that was asked for is in what changed."""

from __future__ import annotations

import re

import numpy as np

from editjudge.measured.change import Change
from editjudge.measured.phrasing import bare, first_match
from editjudge.measured.scene import Array, Scene

_HUES = {
    "red": (345, 50),
    "orange": (35, 80),
    "yellow": (70, 115),
    "green": (100, 190),
    "blue": (215, 310),
    "purple": (285, 345),
    "violet": (280, 340),
    "pink": (320, 40),
    "brown": (25, 90),
    "cyan": (170, 245),
    "teal": (165, 240),
    "turquoise": (165, 240),
}
"""Hue angles in Lab, degrees, wide on both sides: only what nobody would call by the name is excluded."""
_GRAYS = {"black": (0, 40), "white": (62, 101), "gray": (20, 90), "grey": (20, 90)}
"""Lightness; their chroma is small."""
COLOURS = (*_HUES, *_GRAYS)

_LEAST = 0.02
"""Share of the changed pixels below which a colour is not there: highlights and rims alone are more."""

_GAIN = 0.001
"""Share of the picture: where the colour spread by more, it came to something, if only faintly."""


def asked_colour(instruction: str) -> str | None:
    """The one colour that something is to become; None where none or several are named, or anything else is asked."""
    text, quoted = bare(re.sub(r" instead[.!]?$", "", instruction)) or ("", ())
    named = re.findall(rf"\b(?:{'|'.join(COLOURS)})\b", text, re.IGNORECASE)
    match = first_match("colour", text)
    # "Red" may be a name or a word that is to be written.
    return match[1] if match and match[1].islower() and len(named) == 1 and not quoted else None


def share_of(name: str, lab: Array) -> float:
    """Share of pixels that could be called by the name."""
    light, a, b = (lab[..., k] for k in range(3))
    chroma = np.hypot(a, b)
    if name in _GRAYS:
        low, high = _GRAYS[name]
        return float(((light >= low) & (light <= high) & (chroma < 20)).mean())
    low, high = _HUES[name]
    hue = np.degrees(np.arctan2(b, a)) % 360
    inside = (hue >= low) & (hue <= high) if low <= high else (hue >= low) | (hue <= high)
    return float((inside & (chroma > 8)).mean())


def missing_colour(instruction: str, scene: Scene, change: Change) -> tuple[str, float] | None:
    """The colour that was asked for and its share of what changed, where that proves it is not there."""
    name = asked_colour(instruction)
    changed = change.visible > 1
    if name is None or not changed.any():
        return None
    share = share_of(name, scene.after.lab[changed])
    gained = share_of(name, scene.after.lab) - share_of(name, scene.before.lab)
    return (name, share) if share < _LEAST and gained < _GAIN else None
