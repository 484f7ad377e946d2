"""Proof of what was done: a requested colour that is missing, the ground truth, or no change at all."""

from __future__ import annotations

import re
from dataclasses import dataclass

import cv2
import numpy as np

from editjudge.vision.measured.calibration import Calibration
from editjudge.vision.measured.change import Change, find_change
from editjudge.vision.measured.factors import percent, place
from editjudge.vision.measured.lettering import TextReading
from editjudge.vision.measured.measures import Measures
from editjudge.vision.measured.phrasing import bare, first_match, may_stay
from editjudge.vision.measured.scene import Array, Scene, compose
from editjudge.vision.measured.verdict import FactorVerdict, abstain

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
    return (
        match[1]
        if match and match[1].islower() and len(named) == 1 and not quoted
        else None
    )


def share_of(name: str, lab: Array) -> float:
    """Share of pixels that could be called by the name."""
    light, a, b = (lab[..., k] for k in range(3))
    chroma = np.hypot(a, b)
    if name in _GRAYS:
        low, high = _GRAYS[name]
        return float(((light >= low) & (light <= high) & (chroma < 20)).mean())
    low, high = _HUES[name]
    hue = np.degrees(np.arctan2(b, a)) % 360
    inside = (
        (hue >= low) & (hue <= high) if low <= high else (hue >= low) | (hue <= high)
    )
    return float((inside & (chroma > 8)).mean())


def missing_colour(
    instruction: str, scene: Scene, change: Change
) -> tuple[str, float] | None:
    """The colour that was asked for and its share of what changed, where that proves it is not there."""
    name = asked_colour(instruction)
    changed = change.visible > 1
    if name is None or not changed.any():
        return None
    share = share_of(name, scene.after.lab[changed])
    gained = share_of(name, scene.after.lab) - share_of(name, scene.before.lab)
    return (name, share) if share < _LEAST and gained < _GAIN else None


# --- against a ground truth ---------------------------------------------------------------------------------

_BESIDE = 0.002
"""Share of the picture that differs beside the target where more was done than encoding it again."""


@dataclass(frozen=True)
class Target:
    """The intended change, from the input and the ground truth, and the change that was made."""

    wanted: Array
    """Pixels in which the ground truth differs from the input; 0 or 1."""
    made: Array
    """Pixels in which the edited image differs from the input."""
    agreement: float
    """1 where the edited picture is the ground truth in the wanted region, 0 where it is the input."""
    coverage: float
    """Share of the wanted region that came closer to the ground truth than to the input."""
    size: float
    """Area made over area wanted, in octaves."""
    offset: float
    """Distance of their centres, in parts of the picture's diagonal."""
    local: bool
    """Both changes have a place, so that sizes and places can be compared."""


def region_wanted(before: Array, truth: Array, mask: Array | None) -> Array | None:
    """Return where the edit belongs, as a mask in the frame of the ground truth."""
    if mask is not None:
        return mask
    change = find_change(compose(truth, before))
    return (change.region * 255).astype(np.uint8) if change.located else None


def find_target(
    before: Array, truth: Array, edited: Array, mask: Array | None
) -> Target | None:
    """None where the ground truth does not differ from the input. Change outside the mask is not the target."""
    wish = compose(before, truth, mask)
    deed = compose(before, edited, mask)
    wanted = find_change(wish)
    made = find_change(deed)
    if wanted.nothing or not wanted.inside.any():
        return None
    agreement, coverage = _progress(wish, deed, wanted.inside)
    regions = [change.inside.astype(np.uint8) for change in (wanted, made)]
    areas = [max(1.0, float(region.sum())) for region in regions]
    return Target(
        regions[0],
        regions[1],
        agreement,
        coverage,
        float(np.log2(areas[1] / areas[0])),
        _distance(regions[0], regions[1]),
        all(c.located and c.share < 0.5 for c in (wanted, made))
        and _compact(regions[1]) > 0.6 * _compact(regions[0]),
    )


def _progress(wish: Scene, deed: Scene, region: Array) -> tuple[float, float]:
    start, goal, end = (
        cv2.GaussianBlur(v.lab, (0, 0), 1.5)[region]
        for v in (wish.before, wish.after, deed.after)
    )
    whole = np.linalg.norm(goal - start, axis=-1)
    rest = np.linalg.norm(goal - end, axis=-1)
    gone = np.linalg.norm(end - start, axis=-1)
    agreement = 1 - float(rest.sum()) / max(1e-6, float(whole.sum()))
    return max(-1.0, agreement), float((rest < gone).mean())


def _compact(region: Array) -> float:
    """Share of its hull that a region fills: stains over the picture have neither a size nor a place."""
    if not region.any():
        return 0.0
    hull = cv2.convexHull(np.argwhere(region)[:, ::-1].astype(np.int32))
    return float(region.sum() / max(1.0, cv2.contourArea(hull)))


def _distance(a: Array, b: Array) -> float:
    if not (a.any() and b.any()):
        return 1.0
    centres = [np.argwhere(region).mean(axis=0) for region in (a, b)]
    return float(np.linalg.norm(centres[0] - centres[1]) / np.hypot(*a.shape))


def judge_target(
    factor: str, target: Target | None, measures: Measures, calibration: Calibration
) -> FactorVerdict:
    """The factors that only a ground truth can decide."""
    same = measures.change.nothing
    if same:
        mean = measures.values["change.mean"]
        words = f"The edited picture matches the ground truth over the whole picture; mean difference {mean:.1f} Lab units."
        return FactorVerdict(7.0, words)
    if target is None:
        return abstain(
            "the input is absent or equals the ground truth, so the intended change is unknown"
        )
    where = f"{place(target.wanted)}, {percent(float(target.wanted.mean()))}"
    values = {
        "target.agreement missing": 1 - target.agreement,
        "target.coverage missing": 1 - target.coverage,
        "target.size": abs(target.size),
        "target.offset": target.offset,
    }
    match factor:
        case "alignment":
            way = percent(max(0.0, target.agreement))
            words = f"Where the ground truth changes ({where}), the edit covers {way} of the way from the input to it."
        case "completeness":
            share = percent(target.coverage)
            words = f"Where the ground truth changes ({where}), {share} of pixels are closer to it than to the input."
        case "scale_realism" if target.local:
            times = f"{2**target.size:.2f} times as large as"
            words = f"The changed area ({place(target.made)}) is {times} in the ground truth ({where})."
        case "spatial_relationship" if (
            target.coverage > 0.5 and measures.values.get("change.stray", 0.0) > _BESIDE
        ):
            return abstain(
                "what surrounds the target differs from the ground truth: its relative position is unknown"
            )
        case "spatial_relationship" if target.local:
            away = percent(target.offset)
            words = (
                f"The changed area ({place(target.made)}) is {away} of the diagonal away from the ground truth's "
                f"({where})."
            )
        case _:
            return abstain(
                "the edit differs from the ground truth; whether it is still right cannot be measured"
            )
    return FactorVerdict(calibration.score(f"reference {factor}", values), words)


# --- following the instruction ------------------------------------------------------------------------------

_UNPROVEN = (
    "whether the instruction was followed cannot be measured: pixels only prove that nothing changed, that requested "
    "text is there or missing, or that a requested colour is missing"
)

# By outcome of the lettering, from the least to the most of its fault: alignment, completeness, and the effect score on
# 1 to 7 (5, 3, 1 on its own scale). One wrong letter is less than two, and a slight bend less than letters half read.
_LETTERING = {
    "done": ((7.0, 7.0, 7.0),),
    "blurred": ((5.0, 6.0, 4.0), (4.0, 6.0, 4.0), (3.0, 6.0, 1.0)),
    "misspelt": ((4.0, 4.0, 4.0), (3.0, 4.0, 1.0), (2.0, 4.0, 1.0)),
    "misplaced": ((3.0, 5.0, 1.0),),
    "undone": ((1.0, 1.0, 1.0),),
}


@dataclass(frozen=True)
class Proof:
    """How well the instruction was followed, on 1 to 7, and what shows it."""

    alignment: float
    completeness: float
    effect: float
    words: str

    def finding(self, factor: str) -> FactorVerdict:
        return FactorVerdict(
            {"alignment": self.alignment, "completeness": self.completeness}.get(
                factor, self.effect
            ),
            self.words,
        )


def prove(
    instruction: str, measures: Measures, reading: TextReading | None
) -> Proof | None:
    """None where nothing is proven."""
    change = measures.change
    if change.nothing:
        # a crop may be what was asked for
        if may_stay(instruction) or "scale" in measures.scene.framing:
            return None
        words = (
            "The instruction was not carried out: the edited picture shows no visible difference anywhere; "
            f"mean colour difference {measures.values['change.mean']:.1f}."
        )
        return Proof(1.0, 1.0, 1.0, words)
    where = (
        f" ({place(change.region)}, {percent(change.share)} of the picture)"
        if change.region.any()
        else ""
    )
    if reading is not None and reading.outcome is not None:
        part = "changed part" if where else "picture"
        degrees = _LETTERING[reading.outcome]
        scores = degrees[min(reading.degree, len(degrees) - 1)]
        return Proof(*scores, f"Read in the {part}{where}: {reading.words}.")
    if colour := missing_colour(instruction, measures.scene, change):
        name, share = colour
        words = f"The instruction asks for {name}; in the changed area{where}, {percent(share)} of the pixels are {name}."
        return Proof(2.0, 2.0, 1.0, words)
    return None


def why_not(instruction: str, reading: TextReading | None) -> FactorVerdict:
    """The abstention, with what was tried."""
    if reading is not None:
        return abstain(f"the text in the pictures does not decide it: {reading.words}")
    if name := asked_colour(instruction):
        return abstain(
            f"{name} occurs in the changed area; whether it is on the right object cannot be measured"
        )
    return abstain(_UNPROVEN)
