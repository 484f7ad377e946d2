"""The factors that this judge scores, their verdicts, and the scores and reasons of factors that compare two images."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from editjudge.rubrics.scale import Scale

if (
    TYPE_CHECKING
):  # contradictions import the names of factors without the extra `measured`
    from editjudge.vision.measured.calibration import Calibration
    from editjudge.vision.measured.change import Change
    from editjudge.vision.measured.measures import Measures
    from editjudge.vision.measured.scene import Array

PRESERVED = ("unchanged_regions", "global_consistency", "identity_preservation")
"""Factors about preservation."""
LIGHTING = "Contextual_Preservation"
"""The factor for lighting edits. Its reason is a list of differences, each marked as allowed or not."""
MADE = ("texture_and_detail", "image_quality", "color_and_lighting", "seamlessness")
"""Factors about the quality of execution."""
MEASURED = (*PRESERVED, *MADE)
"""Factors that only need a comparison of images, without understanding their content."""
DONE = ("alignment", "completeness", "effect_score")
"""Factors about following the instruction."""
UNDERSTOOD = {
    "scale_realism": "whether an object has the right size cannot be measured without a ground truth",
    "spatial_relationship": "whether an object is in the right place cannot be measured without a ground truth",
    "plausibility": "whether the result is plausible cannot be measured: a judge must understand what it shows",
}
"""Factors that need understanding or a ground truth, with the reason for abstaining."""
TARGETED = ("alignment", "completeness", *UNDERSTOOD)
"""Factors that are decided by a ground truth."""

_LOOKS = frozenset({*MEASURED, LIGHTING})
SPOILT: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("flat", "near_flat", "noise"), _LOOKS | {*DONE}),
    # The instruction may have been followed in a tile, a thumbnail or the remaining part.
    **dict.fromkeys(("tile", "upscaled", "thumbnail", "partly_blank"), _LOOKS),
    # An image that is unrelated to the input may still be a good image.
    "unrelated": frozenset({*PRESERVED, LIGHTING}),
}
"""Factors that get the worst score for each kind of degenerate output. Other factors are not scored."""


@dataclass(frozen=True)
class FactorVerdict:
    """A score from 1 to 7, before it is converted to the rubric's scale, or None for an abstention."""

    score: float | None
    reason: str


def abstain(reason: str) -> FactorVerdict:
    return FactorVerdict(None, reason)


def unrounded(score: float, scale: Scale) -> float:
    """Convert a score from 1 to 7 to the same relative position on a scale, without rounding.

    Raises `ValueError` for a scale with an open end, which has no such position.
    """
    if scale.worst is None or scale.best is None:
        raise ValueError(f"no position on a scale with an open end: {scale.words}")
    return scale.worst + (score - 1) / 6 * (scale.best - scale.worst)


def on_scale(score: float, scale: Scale) -> float:
    """Return the legal score on the scale that is nearest to the result of `unrounded`. Of two equally near scores,
    return the worse one."""
    wanted = unrounded(score, scale)
    worst = scale.worst or 0
    return min(
        scale.steps or (wanted,),
        key=lambda value: (round(abs(value - wanted), 9), abs(value - worst)),
    )


def position(part: Array) -> str:
    """Describe the position of most of the area, for example as "lower left", "centre" or "whole picture"."""
    weight = part.astype(float)
    total = float(weight.sum())
    if total <= 0:
        return "nowhere"
    if weight.mean() > 0.7:
        return "whole picture"
    thirds = []
    for axis in (0, 1):
        along = weight.sum(axis=1 - axis)
        mean = float(along @ range(len(along)) / total / max(1, len(along) - 1))
        thirds.append(min(2, int(3 * mean)))
    row = ("upper", "middle", "lower")[thirds[0]]
    column = ("left", "centre", "right")[thirds[1]]
    return "centre" if thirds == [1, 1] else f"{row} {column}"


def percent(share: float) -> str:
    """Format a share as an integer percentage. It is 0 % only for nothing and 100 % only for everything."""
    if 0 < share < 0.01:
        return "under 1 %"
    if 0.99 < share < 1:
        return "over 99 %"
    return f"{share * 100:.0f} %"


def bounded(sentence: str, limits: tuple[int, int] | None, filling: str) -> str:
    """Fit a sentence into the rubric's word limits, by adding a true remark or by cutting it at a clause."""
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


_SPECKS = 0.001
"""Share of the image in which specks differ if it was only re-encoded."""
_RECOGNISABLE = 0.01
"""Mean amount of structure below which nothing in the image is recognisable."""
_SHIFTED = 0.05
"""Minimum shift of all colours for the reason to mention it."""
_DRIFTED = 0.15
_EXPLAINED = 0.4
"""Share of the image that moved by a few pixels, and share of the differences that this explains. If both are reached,
drift cannot be distinguished from change. Of 142 edits by newer editors, 8 reach them, and each of these redraws the
entire image."""
_SHIFTED_MUCH = 0.25
"""Minimum share of the rest of the image with visibly shifted colours for a point to be lost, unless the instruction
asks for the shift."""


def score(factor: str, measures: Measures, calibration: Calibration) -> FactorVerdict:
    """Score one of the measured factors. Abstain if the measures that decide it are not available."""
    values = measures.values
    rule = _FACTORS[factor]
    if (
        factor == "identity_preservation"
        and values["structure.recognisable"] < _RECOGNISABLE
    ):
        return abstain(
            "the picture shows no structure by which anything could be recognised"
        )
    if factor in PRESERVED and (unknown := _unknown(factor, values)):
        return abstain(unknown)
    # If nothing differs, the detail, light and contour of the edit are unchanged, and it has no rank among other edits.
    unedited = not measures.change.region.any()
    specks = values["change.visible share"] < _SPECKS
    alike = bool(rule.edited) and unedited and specks
    measured = alike or any(name in values for name in rule.deciding)
    rank = None if alike else calibration.rank(factor, measures)
    if not measured and rank is None:
        return abstain(rule.missing)
    by_measures = calibration.score(factor, values)
    total = calibration.score(factor, values, rank)
    learnt = calibration.learnt
    if rank is None or learnt is None or (measured and total >= by_measures):
        if rule.edited and unedited:
            beside = f", apart from {shift}," if (shift := _shift(measures)) else ""
            return FactorVerdict(
                total,
                f"No area of the picture visibly differs{beside} so there is no edited {rule.edited} to compare.",
            )
        return FactorVerdict(total, rule.sentence(measures))
    name, measure, unit = rule.beside
    beside = f"{values[measure]:.1f} {unit}" if measure in values else "not comparable"
    return FactorVerdict(
        total,
        f"A model fitted to {learnt.edits} rated edits ranks {percent(rank)} of them below this "
        f"picture in quality; {name}: {beside}.",
    )


def _unknown(factor: str, values: Mapping[str, float]) -> str:
    """Return the reason why it is unknown what the edit should have preserved, or an empty string if it is known."""
    moved = values.get("drift.moved", 0.0)
    if (
        factor != "global_consistency"
        and moved >= _DRIFTED
        and values["drift.explained"] >= _EXPLAINED
    ):
        return (
            f"{percent(moved)} of the picture is found again a few pixels away: what was drawn anew in another place "
            "cannot be separated from what changed"
        )
    asked = values.get("trust.shift") == 0
    shifted = values.get("change.shifted", 0.0) >= _SHIFTED_MUCH
    if factor == "unchanged_regions" and asked and shifted:
        return "the colours of the whole picture moved, as the instruction asks: what should have stayed is unknown"
    return ""


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
    shift = _shift(m)
    if not shift and v.get("change.shifted", 0.0) >= _SHIFTED_MUCH:
        edit = f"the edit ({spot(change)})" if change.region.any() else "local changes"
        return (
            f"Beside {edit}, colours moved by {v['change.shift']:.1f} units, visibly over "
            f"{percent(v['change.shifted'])} of the rest; {percent(v['change.visible outside'])} changed by itself."
        )
    share = f"{percent(v['change.visible outside'])} of pixels"
    if stray.any():
        share += f" ({position(stray)})"
    mean = f"mean colour difference{{}} {v['change.mean outside']:.1f}"
    if change.region.any():
        if shift:
            return f"Outside the edit ({spot(change)}), {share} visibly changed beside {shift}."
        return f"Outside the edit ({spot(change)} of the picture), {share} visibly changed; {mean.format(' there')}."
    rest = f"no area visibly changed; {mean.format('')}"
    if stray.any():
        rest = f"{share} visibly changed, scattered over the picture"
    return f"Apart from {shift}, {rest}." if shift else f"In the whole picture, {rest}."


def _consistency(m: Measures) -> str:
    v = m.values
    layout = "the picture is too uniform to compare layouts"
    if "style.layout" in v:
        layout = f"the layouts of both pictures correlate at {v['style.layout']:.2f}"
    return (
        f"The colours of the whole picture shifted by {v['change.tint']:.1f} Lab units, its palette by "
        f"{v['style.palette']:.1f}; {layout}."
    )


def _identity(m: Measures) -> str:
    v = m.values
    share = v.get("structure.lost outside")
    lost = "an unknown share of" if share is None else f"{percent(share)} of"
    if not m.change.region.any():
        shift = _shift(m)
        beside = f", apart from {shift}" if shift else ""
        return f"Local structure changed in {lost} the picture; no single area stands out{beside}."
    around = f"Local structure changed in {lost} the picture around the edit;"
    edit = spot(m.change)
    if not v["trust.thing"]:
        return f"{around} what was to be added or removed ({edit}) is not counted."
    if "structure.lost inside" not in v:
        return f"{around} the edit itself ({edit}) shows nothing recognisable."
    inside = percent(v["structure.lost inside"])
    return f"Local structure changed in {inside} of the edit ({edit}) and in {lost} the rest."


def _texture(m: Measures) -> str:
    edit = f"Inside the edit ({spot(m.change)}),"
    noise = f"noise rose by {m.values['texture.noise']:.0f} levels"
    lost = m.values.get("texture.lost")
    if lost is None:
        return f"{edit} the input had no fine detail that could be lost; {noise}."
    return (
        f"{edit} fine detail fell by {lost:.1f} octaves more than around it; {noise}."
    )


def _quality(m: Measures) -> str:
    gains = [
        f"{max(0.0, m.values[measure]):.1f} octaves of {name}"
        for name, measure in (("noise", "overall.noise"), ("block edges", "overall.blocks"))
        if measure in m.values
    ]  # fmt: skip
    gained = f" and gained {' and '.join(gains)}" if gains else ""
    return f"The whole picture lost {m.values['overall.blur']:.1f} octaves of fine detail{gained}."


def _light(m: Measures) -> str:
    step = ""
    if "light.light step" in m.values:
        step = f"; mean lightness changed by {m.values['light.light step']:.0f}"
    return (
        f"Inside the edit ({spot(m.change)}), the light gradient differs from its surroundings by "
        f"{m.values['light.slope against']:.1f} stops{step}."
    )


def _seam(m: Measures) -> str:
    return (
        f"Along the boundary of the edit ({spot(m.change)}), lightness jumps by {m.values['seam.step']:.1f} units; "
        f"{percent(m.values['seam.sharp'])} of it is sharp."
    )


def _shift(m: Measures) -> str:
    """Describe a shift of all colours, or return an empty string if there is none."""
    tint = m.change.tint
    return f"a colour shift of {tint:.1f} units" if tint >= _SHIFTED else ""


def spot(change: Change) -> str:
    """Describe the position of the edit and its share of the image."""
    return f"{position(change.region)}, {percent(change.share)}"


class _MeasuredFactor(NamedTuple):
    """Rule that decides and explains one measured factor."""

    sentence: Callable[[Measures], str]
    deciding: tuple[str, ...]
    """Measures of which at least one must be available."""
    missing: str
    """Reason for abstaining if none is available."""
    edited: str = ""
    """Aspect of the edit that the factor is about. Without a visible difference, nothing can be wrong with it."""
    beside: tuple[str, str, str] = ("", "", "")
    """Measure to mention if the prediction from people's ratings decided the score: its name in a sentence, its key,
    and its unit."""


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
        "fine detail",
        ("lost detail", "texture.lost", "octaves"),
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
        "lighting",
        ("light gradient", "light.slope against", "stops"),
    ),
    "seamlessness": _MeasuredFactor(
        _seam,
        ("seam.step",),
        "the boundary of the edit is too short to look for a seam along it",
        "boundary",
        ("jump at the boundary", "seam.step", "units of lightness"),
    ),
}
