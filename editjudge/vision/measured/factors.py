"""The factors that compare two images: scores from the calibration, reasons from the measures that decided."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from editjudge.vision.measured.calibration import Calibration
from editjudge.vision.measured.change import Change
from editjudge.vision.measured.measures import Measures
from editjudge.vision.measured.scene import Array
from editjudge.vision.measured.verdict import FactorVerdict, abstain

_ROWS = ("upper", "middle", "lower")
_COLUMNS = ("left", "centre", "right")


def place(part: Array) -> str:
    """Return where most of it is: "lower left", "centre", "whole picture"."""
    weight = np.asarray(part, np.float64)
    total = float(weight.sum())
    if total <= 0:
        return "nowhere"
    height, width = weight.shape
    if weight.mean() > 0.7:
        return "whole picture"
    y = float((weight.sum(axis=1) @ np.arange(height)) / total / max(1, height - 1))
    x = float((weight.sum(axis=0) @ np.arange(width)) / total / max(1, width - 1))
    row = _ROWS[min(2, int(3 * y))]
    column = _COLUMNS[min(2, int(3 * x))]
    if row == "middle":
        return "centre" if column == "centre" else f"middle {column}"
    return f"{row} {column}"


def percent(share: float) -> str:
    """Write a share in percent: whole numbers, but never 0 for something or 100 for not all."""
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


def score(factor: str, measures: Measures, calibration: Calibration) -> FactorVerdict:
    """A score for one of the measured factors; none where what decides it could not be measured."""
    if (
        factor == "identity_preservation"
        and measures.values["structure.recognisable"] < 0.01
    ):
        return abstain(
            "the picture shows no structure by which anything could be recognised"
        )
    decided = _FACTORS[factor]
    # It was measured that no place differs: the edit's own detail, light and rim are as they were.
    alike = (
        decided.local
        and not measures.change.region.any()
        and measures.values["change.visible share"] < _SPECKS
    )
    known = alike or any(name in measures.values for name in decided.deciding)
    # Where no place differs there is no edit that could be placed among others.
    rank = None if alike else calibration.rank(factor, measures)
    if not known and rank is None:
        return abstain(decided.missing)
    own, total = (
        calibration.score(factor, measures.values, place) for place in (None, rank)
    )
    if rank is not None and (total < own or not known) and calibration.learnt:
        name, measure, unit = decided.beside
        comparison = (
            f"{measures.values[measure]:.1f} {unit}"
            if measure in measures.values
            else "not comparable"
        )
        return FactorVerdict(
            total,
            f"A model fitted to {calibration.learnt.edits} rated edits ranks {percent(rank)} of them below this "
            f"picture in quality; {name}: {comparison}.",
        )
    return FactorVerdict(total, decided.sentence(measures))


def _unchanged(m: Measures) -> str:
    v = m.values
    change = m.change
    if change.nothing:
        return (
            "No visible difference anywhere, from the upper left to the lower right of the picture; "
            f"mean colour difference {v['change.mean']:.1f}."
        )
    if "change.visible outside" not in v:
        share = percent(change.share)
        return f"The visible change covers the whole picture, {share} of it as one region; nothing around it is left."
    stray = (change.visible > 1) & (change.outside > 0)
    shift = _shift(change)
    share = f"{percent(v['change.visible outside'])} of pixels" + (
        f" ({place(stray)})" if stray.any() else ""
    )
    if not change.region.any():
        left = f"no area visibly changed; mean colour difference {v['change.mean outside']:.1f}"
        words = (
            f"{share} visibly changed, scattered over the picture"
            if stray.any()
            else left
        )
        return (
            f"Apart from {shift}, {words}."
            if shift
            else f"In the whole picture, {words}."
        )
    if shift:
        return f"Outside the edit ({spot(change)}), {share} visibly changed beside {shift}."
    return (
        f"Outside the edit ({spot(change)} of the picture), {share} visibly changed; "
        f"mean colour difference there {v['change.mean outside']:.1f}."
    )


def _consistency(m: Measures) -> str:
    v = m.values
    layout = (
        f"the layouts of both pictures correlate at {v['style.layout']:.2f}"
        if "style.layout" in v
        else "the picture is too uniform to compare layouts"
    )
    return (
        f"The colours of the whole picture shifted by {v['change.tint']:.1f} Lab units, its palette by "
        f"{v['style.palette']:.1f}; {layout}."
    )


def _identity(m: Measures) -> str:
    v = m.values
    shift = _shift(m.change)
    lost = v.get("structure.lost outside")
    around = "an unknown share of" if lost is None else f"{percent(lost)} of"
    if not m.change.region.any():
        beside = f", apart from {shift}" if shift else ""
        return f"Local structure changed in {around} the picture; no single area stands out{beside}."
    if not v["trust.thing"]:
        return (
            f"Local structure changed in {around} the picture around the edit; what was to be added or removed "
            f"({spot(m.change)}) is not counted."
        )
    if "structure.lost inside" not in v:
        return (
            f"Local structure changed in {around} the picture around the edit; the edit itself ({spot(m.change)}) "
            "shows nothing recognisable."
        )
    return (
        f"Local structure changed in {percent(v['structure.lost inside'])} of the edit ({spot(m.change)}) and in "
        f"{around} the rest."
    )


def _texture(m: Measures) -> str:
    v = m.values
    if not m.change.region.any():
        return _nowhere(m.change, "fine detail")
    lost = v.get("texture.lost")
    noise = f"noise rose by {v['texture.noise']:.0f} levels"
    if lost is None:
        return f"Inside the edit ({spot(m.change)}), the input had no fine detail that could be lost; {noise}."
    return f"Inside the edit ({spot(m.change)}), fine detail fell by {lost:.1f} octaves more than around it; {noise}."


def _quality(m: Measures) -> str:
    v = m.values
    gains = {"noise": v.get("overall.noise"), "block edges": v.get("overall.blocks")}
    known = " and ".join(
        f"{max(0.0, gain):.1f} octaves of {name}"
        for name, gain in gains.items()
        if gain is not None
    )
    gained = f" and gained {known}" if known else ""
    return f"The whole picture lost {v['overall.blur']:.1f} octaves of fine detail{gained}."


def _light(m: Measures) -> str:
    v = m.values
    if not m.change.region.any():
        return _nowhere(m.change, "lighting")
    step = (
        f"; mean lightness changed by {v['light.light step']:.0f}"
        if "light.light step" in v
        else ""
    )
    return (
        f"Inside the edit ({spot(m.change)}), the light gradient differs from its surroundings by "
        f"{v['light.slope against']:.1f} stops{step}."
    )


def _seam(m: Measures) -> str:
    v = m.values
    if not m.change.region.any():
        return _nowhere(m.change, "boundary")
    return (
        f"Along the boundary of the edit ({spot(m.change)}), colours jump by {v['seam.step']:.1f} Lab units; "
        f"{percent(v['seam.sharp'])} of it is sharp."
    )


def _shift(change: Change) -> str:
    """Describe a shift of all colours; empty if there is none."""
    return f"a colour shift of {change.tint:.1f} units" if change.tint >= 0.05 else ""


def _nowhere(change: Change, what: str) -> str:
    """Say that no area differs, beside a shift of all colours."""
    beside = f", apart from {shift}," if (shift := _shift(change)) else ""
    return f"No area of the picture visibly differs{beside} so there is no edited {what} to compare."


def spot(change: Change) -> str:
    """Return where the edit is and how much of the image it covers."""
    return f"{place(change.region)}, {percent(change.share)}"


class _MeasuredFactor(NamedTuple):
    """A factor that needs no understanding, only a comparison."""

    sentence: Callable[[Measures], str]
    deciding: tuple[str, ...]
    """Measures of which at least one must have been taken."""
    missing: str
    """The reason for abstaining if none was."""
    local: bool = False
    """Whether it is about the edit itself: without a visible difference there is nothing of it that could be wrong."""
    beside: tuple[str, str, str] = ("", "", "")
    """The measure that is reported if the learnt part decided: its name in a sentence, its name, and its unit."""


_FACTORS = {
    "unchanged_regions": _MeasuredFactor(
        _unchanged,
        ("change.stray",),
        "the mask covers the whole picture: nothing outside it can be compared",
    ),
    "global_consistency": _MeasuredFactor(
        _consistency,
        ("style.tinted",),
        "the colours of the whole picture could not be compared",
    ),
    "identity_preservation": _MeasuredFactor(
        _identity,
        ("structure.lost inside", "structure.lost outside"),
        "neither the edit nor its surroundings show anything recognisable to compare",
    ),
    "texture_and_detail": _MeasuredFactor(
        _texture,
        ("texture.lost", "texture.noise"),
        "the edit shows nothing that was there before, so its detail has no counterpart in the input",
        local=True,
        beside=("lost detail", "texture.lost", "octaves"),
    ),
    "image_quality": _MeasuredFactor(
        _quality,
        ("overall.blur",),
        "the detail of the whole picture could not be compared",
        beside=("lost detail", "overall.blur", "octaves"),
    ),
    "color_and_lighting": _MeasuredFactor(
        _light,
        ("light.slope against",),
        "the edit shows too little of what was there before to separate its lighting from its surface",
        local=True,
        beside=("light gradient", "light.slope against", "stops"),
    ),
    "seamlessness": _MeasuredFactor(
        _seam,
        ("seam.step",),
        "the boundary of the edit is too short to look for a seam along it",
        local=True,
        beside=("jump at the boundary", "seam.step", "Lab units"),
    ),
}
MEASURED = tuple(_FACTORS)
_SPECKS = 0.001
"""Share of the picture that differs in specks when no more than re-encoding was done."""
