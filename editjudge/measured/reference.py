"""Against a ground truth: did the change that should have happened happen, and no other."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from editjudge.measured.calibration import Calibration
from editjudge.measured.change import find_change
from editjudge.measured.factor_verdict import FactorVerdict, abstain
from editjudge.measured.measures import Measures
from editjudge.measured.scene import Array, Scene, compose
from editjudge.measured.sentences import percent, place

_BESIDE = 0.002
"""Share of the picture that differs beside the target where more was done than encoding it again."""


@dataclass(frozen=True)
class Target:
    """What should have happened, from the input and the ground truth, and what did."""

    wanted: Array
    """Where the ground truth differs from the input; 0 or 1."""
    made: Array
    """Where the edited picture differs from the input."""
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
    """Where the edit belongs, as a mask in the frame of the ground truth."""
    if mask is not None:
        return mask
    change = find_change(compose(truth, before))
    return (change.region * 255).astype(np.uint8) if change.located else None


def find_target(before: Array, truth: Array, edited: Array, mask: Array | None) -> Target | None:
    """None where the ground truth does not differ from the input. Change outside the mask is not the target."""
    wish, deed = compose(before, truth, mask), compose(before, edited, mask)
    wanted, made = find_change(wish), find_change(deed)
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
        all(c.located and c.share < 0.5 for c in (wanted, made)) and _compact(regions[1]) > 0.6 * _compact(regions[0]),
    )


def _progress(wish: Scene, deed: Scene, region: Array) -> tuple[float, float]:
    start, goal, end = (cv2.GaussianBlur(v.lab, (0, 0), 1.5)[region] for v in (wish.before, wish.after, deed.after))
    whole, rest = np.linalg.norm(goal - start, axis=-1), np.linalg.norm(goal - end, axis=-1)
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


def judge_target(factor: str, target: Target | None, measures: Measures, calibration: Calibration) -> FactorVerdict:
    """The factors that only a ground truth can decide."""
    same = measures.change.nothing
    if same:
        mean = measures.values["change.mean"]
        words = (
            f"The edited picture matches the ground truth over the whole picture; mean difference {mean:.1f} Lab units."
        )
        return FactorVerdict(7.0, words)
    if target is None:
        return abstain("the input is absent or equals the ground truth, so the intended change is unknown")
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
        case "spatial_relationship" if target.coverage > 0.5 and measures.values.get("change.stray", 0.0) > _BESIDE:
            return abstain("what surrounds the target differs from the ground truth: its relative position is unknown")
        case "spatial_relationship" if target.local:
            away = percent(target.offset)
            words = (
                f"The changed area ({place(target.made)}) is {away} of the diagonal away from the ground truth's "
                f"({where})."
            )
        case _:
            return abstain("the edit differs from the ground truth; whether it is still right cannot be measured")
    return FactorVerdict(calibration.score(f"reference {factor}", values), words)
