"""Proof that the instruction was or was not followed, based on a missing colour, the ground truth, or the lack of any
change."""

from __future__ import annotations

import re
from dataclasses import dataclass

import cv2
import numpy as np

from editjudge.vision.measured.calibration import Calibration
from editjudge.vision.measured.change import Change, find_change
from editjudge.vision.measured.factors import (
    DONE,
    FactorVerdict,
    abstain,
    percent,
    position,
)
from editjudge.vision.measured.lettering import TextReading
from editjudge.vision.measured.measures import Measures
from editjudge.vision.measured.phrasing import bare, first_match, may_stay
from editjudge.vision.measured.scene import Array, Scene, compose

# --- colours by name ----------------------------------------------------------------------------------------

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
"""Ranges of hue angles in Lab, in degrees. Margins are wide, so a hue outside a range would certainly not be called by
that name."""
_GRAYS = {"black": (0, 40), "white": (62, 101), "gray": (20, 90), "grey": (20, 90)}
"""Ranges of lightness for the names of colours with little chroma."""
COLOURS = (*_HUES, *_GRAYS)

_LEAST = 0.02
"""Share of the changed pixels below which a colour counts as absent. Highlights and edges alone have more."""

_GAIN = 0.001
"""Share of the image. If the colour spread by more than this, something received it, even if faintly."""


def named_colours(text: str) -> list[str]:
    return re.findall(rf"\b(?:{'|'.join(COLOURS)})\b", text.lower())


def asked_colour(instruction: str) -> str | None:
    """Return the only colour that an object should get. Return None if there is no such colour, if there are several,
    or if the instruction has any other request."""
    text, quoted = bare(re.sub(r" instead[.!]?$", "", instruction)) or ("", ())
    match = first_match("colour", text)
    if match is None or quoted or len(named_colours(text)) != 1:
        return None
    # "Red" may be a name, or a word to be written.
    return match[1] if match[1].islower() else None


def share_of(name: str, lab: Array) -> float:
    """Return the share of pixels whose colour could be called by this name."""
    light, a, b = (lab[..., k] for k in range(3))
    chroma = np.hypot(a, b)
    if name in _GRAYS:
        low, high = _GRAYS[name]
        return float(((light >= low) & (light <= high) & (chroma < 20)).mean())
    low, high = _HUES[name]
    hue = np.degrees(np.arctan2(b, a)) % 360
    above = hue >= low
    below = hue <= high
    inside = above & below if low <= high else above | below
    return float((inside & (chroma > 8)).mean())


def missing_colour(
    instruction: str, scene: Scene, change: Change
) -> tuple[str, float] | None:
    """Return the requested colour and its share of the changed pixels if the colour is proven to be absent. Otherwise
    return None."""
    name = asked_colour(instruction)
    changed = change.visible > 1
    if name is None or not changed.any():
        return None
    share = share_of(name, scene.after.lab[changed])
    gained = share_of(name, scene.after.lab) - share_of(name, scene.before.lab)
    return (name, share) if share < _LEAST and gained < _GAIN else None


# --- against a ground truth ---------------------------------------------------------------------------------

_BESIDE = 0.002
"""Share of the image, outside the target, above which a difference is more than re-encoding."""


@dataclass(frozen=True)
class Target:
    """The intended change (from the input to the ground truth) and the change that was made."""

    wanted: Array
    """Pixels at which the ground truth differs from the input; 0 or 1."""
    made: Array
    """Pixels at which the edited image differs from the input."""
    agreement: float
    """Agreement in the wanted region. It is 1 if the edited image equals the ground truth, 0 if it equals the input."""
    coverage: float
    """Share of the wanted region that is closer to the ground truth than to the input."""
    size: float
    """Changed area relative to the wanted area, in octaves."""
    offset: float
    """Distance between the centres of the two areas, as a share of the image's diagonal."""
    local: bool
    """Whether both changes are local, so that sizes and positions can be compared."""


def region_wanted(before: Array, truth: Array, mask: Array | None) -> Array | None:
    """Return the region of the intended edit, as a mask in the frame of the ground truth. Return None if the edit
    cannot be located.
    """
    if mask is not None:
        return mask
    change = find_change(compose(truth, before))
    return (change.region * 255).astype(np.uint8) if change.located else None


def find_target(
    before: Array, truth: Array, edited: Array, mask: Array | None
) -> Target | None:
    """Compare the intended and the actual change. Return None if the ground truth does not differ from the input.
    Changes outside the mask are not part of the target."""
    wish = compose(before, truth, mask)
    result = compose(before, edited, mask)
    changes = [find_change(wish), find_change(result)]
    wanted, made = (change.inside.astype(np.uint8) for change in changes)
    if changes[0].nothing or not wanted.any():
        return None
    start, goal, end = (
        cv2.GaussianBlur(view.lab, (0, 0), 1.5)[wanted > 0]
        for view in (wish.before, wish.after, result.after)
    )
    way = float(np.linalg.norm(goal - start, axis=-1).sum())
    rest = np.linalg.norm(goal - end, axis=-1)
    closer = rest < np.linalg.norm(end - start, axis=-1)
    offset = 1.0
    if made.any():
        apart = np.argwhere(wanted).mean(axis=0) - np.argwhere(made).mean(axis=0)
        offset = float(np.linalg.norm(apart) / np.hypot(*wanted.shape))
    located = all(change.located and change.share < 0.5 for change in changes)
    return Target(
        wanted,
        made,
        agreement=max(-1.0, 1 - float(rest.sum()) / max(1e-6, way)),
        coverage=float(closer.mean()),
        size=float(np.log2(max(1.0, made.sum()) / max(1.0, wanted.sum()))),
        offset=offset,
        local=located and _compact(made) > 0.6 * _compact(wanted),
    )


def _compact(region: Array) -> float:
    """Return the share of its convex hull that a region fills. It is low for scattered stains, which have no meaningful
    size or position."""
    if not region.any():
        return 0.0
    hull = cv2.convexHull(np.argwhere(region)[:, ::-1].astype(np.int32))
    return float(region.sum() / max(1.0, cv2.contourArea(hull)))


def judge_target(
    factor: str, target: Target | None, measures: Measures, calibration: Calibration
) -> FactorVerdict:
    """Score a factor that only a ground truth can decide."""
    if measures.change.nothing:
        mean = measures.values["change.mean"]
        return FactorVerdict(
            7.0,
            f"The edited picture matches the ground truth over the whole picture; mean difference {mean:.1f} Lab units.",
        )
    if target is None:
        return abstain(
            "the input is absent or equals the ground truth, so the intended change is unknown"
        )
    where = f"{position(target.wanted)}, {percent(float(target.wanted.mean()))}"
    values = {
        "target.agreement missing": 1 - target.agreement,
        "target.coverage missing": 1 - target.coverage,
        "target.size": abs(target.size),
        "target.offset": target.offset,
    }
    match factor:
        case "alignment":
            way = percent(max(0.0, target.agreement))
            sentence = f"Where the ground truth changes ({where}), the edit covers {way} of the way from the input to it."
        case "completeness":
            share = percent(target.coverage)
            sentence = f"Where the ground truth changes ({where}), {share} of pixels are closer to it than to the input."
        case "scale_realism" if target.local:
            times = f"{2**target.size:.2f} times as large as"
            sentence = f"The changed area ({position(target.made)}) is {times} in the ground truth ({where})."
        case "spatial_relationship" if (
            target.coverage > 0.5 and measures.values.get("change.stray", 0.0) > _BESIDE
        ):
            return abstain(
                "what surrounds the target differs from the ground truth: its relative position is unknown"
            )
        case "spatial_relationship" if target.local:
            away = percent(target.offset)
            sentence = (
                f"The changed area ({position(target.made)}) is {away} of the diagonal away from the ground truth's "
                f"({where})."
            )
        case _:
            return abstain(
                "the edit differs from the ground truth; whether it is still right cannot be measured"
            )
    return FactorVerdict(calibration.score(f"reference {factor}", values), sentence)


# --- following the instruction ------------------------------------------------------------------------------

_UNPROVEN = (
    "whether the instruction was followed cannot be measured: pixels only prove that nothing changed, that requested "
    "text is there or missing, or that a requested colour is missing"
)

# Scores by outcome of the lettering, from the smallest to the largest fault: alignment, completeness, and the effect
# score on 1 to 7 (5, 3, 1 on its own scale). One wrong letter is a smaller fault than two, and a slight distortion
# is a smaller one than half-readable letters.
_LETTERING = {
    "done": ((7.0, 7.0, 7.0),),
    "blurred": ((5.0, 6.0, 4.0), (4.0, 6.0, 4.0), (3.0, 6.0, 1.0)),
    "disturbed": ((4.0, 6.0, 4.0), (3.0, 6.0, 4.0)),
    "partial": ((3.0, 3.0, 1.0),),
    "misspelt": ((4.0, 4.0, 4.0), (3.0, 4.0, 1.0), (2.0, 4.0, 1.0)),
    "misplaced": ((3.0, 5.0, 1.0),),
    "undone": ((1.0, 1.0, 1.0),),
}


def prove(
    factor: str,
    instruction: str,
    measures: Measures,
    reading: TextReading | None = None,
) -> FactorVerdict:
    """Score how well the instruction was followed. If this cannot be proven, abstain with a reason that says what was
    tried."""
    change = measures.change
    where = ""
    if change.region.any():
        where = f" ({position(change.region)}, {percent(change.share)} of the picture)"
    written = reading is not None and reading.outcome in ("done", "blurred")
    if change.nothing and not written:
        # The instruction may ask for an unchanged or cropped image.
        if not may_stay(instruction) and "scale" not in measures.scene.framing:
            return FactorVerdict(
                1.0,
                "The instruction was not carried out: the edited picture shows no visible difference anywhere; "
                f"mean colour difference {measures.values['change.mean']:.1f}.",
            )
    elif reading is not None and reading.outcome is not None:
        degrees = _LETTERING[reading.outcome]
        scores = degrees[min(reading.degree, len(degrees) - 1)]
        part = "changed part" if where else "picture"
        return FactorVerdict(
            scores[DONE.index(factor)], f"Read in the {part}{where}: {reading.finding}."
        )
    elif missing := missing_colour(instruction, measures.scene, change):
        name, share = missing
        return FactorVerdict(
            1.0 if factor == "effect_score" else 2.0,
            f"The instruction asks for {name}; in the changed area{where}, {percent(share)} of the pixels are {name}.",
        )
    if reading is not None:
        return abstain(
            f"the text in the pictures does not decide it: {reading.finding}"
        )
    if colour := asked_colour(instruction):
        return abstain(
            f"{colour} occurs in the changed area; whether it is on the right object cannot be measured"
        )
    return abstain(_UNPROVEN)
