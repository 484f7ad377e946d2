"""The factors that compare two pictures: scores from the calibration, reasons from the measures that decided."""

from __future__ import annotations

from collections.abc import Callable

from editjudge.judges.measured.calibration import Calibration
from editjudge.judges.measured.change import Change
from editjudge.judges.measured.finding import Finding, abstain
from editjudge.judges.measured.measures import Measures
from editjudge.judges.measured.words import percent, place

Sentence = Callable[[Measures], str]


def score(factor: str, measures: Measures, calibration: Calibration) -> Finding:
    """A score for one of the measured factors."""
    if factor == "identity_preservation" and measures.values["structure.recognisable"] < 0.01:
        return abstain("the picture shows no structure by which anything could be recognised")
    return Finding(calibration.score(factor, measures.values), _SENTENCES[factor](measures))


def _unchanged(m: Measures) -> str:
    v, change = m.values, m.change
    if change.nothing:
        return (
            "No visible difference anywhere, from the upper left to the lower right of the picture; "
            f"mean colour difference {v['change.mean']:.1f}."
        )
    stray, shift = (change.visible > 1) & (change.outside > 0), _shift(change)
    share = percent(v["change.visible outside"]) + (f", mostly {place(stray)}," if stray.any() else "")
    if not change.region.any():
        aside = f"Beside a shift of {shift}, which is set aside," if shift else "Of the picture"
        left = f"no place visibly changed; mean colour difference {v['change.mean outside']:.1f}"
        return f"{aside} {f'{share} visibly changed, at no one place' if stray.any() else left}."
    if shift:
        return f"Outside the edit ({spot(change)}), {share} visibly changed beside a shift of {shift}."
    return (
        f"Outside the edit ({spot(change)} of the picture), {share} visibly changed; "
        f"mean colour difference there {v['change.mean outside']:.1f}."
    )


def _consistency(m: Measures) -> str:
    v = m.values
    return (
        f"All colours of the picture moved together by {v['change.tint']:.1f} units, its palette by "
        f"{v['style.palette']:.1f}; its layout correlates at {v['style.layout']:.2f}."
    )


def _identity(m: Measures) -> str:
    v, shift = m.values, _shift(m.change)
    if not m.change.region.any():
        beside = f", beside a shift of {shift}" if shift else ""
        lost = percent(v["structure.lost outside"])
        return f"Local structure is lost in {lost} of the picture; no place stands out as edited{beside}."
    if not v.get("trust.thing", 1.0):
        return (
            f"Local structure is lost in {percent(v['structure.lost outside'])} of the picture around the edit; what "
            f"was to be drawn or taken away ({spot(m.change)}) is not counted."
        )
    return (
        f"Local structure is lost in {percent(v['structure.lost inside'])} of the edit ({spot(m.change)}) and in "
        f"{percent(v['structure.lost outside'])} of the rest of the picture."
    )


def _texture(m: Measures) -> str:
    v = m.values
    if not m.change.region.any():
        return _nowhere(m.change, "detail there could be compared")
    return (
        f"Inside the edit ({spot(m.change)}) fine detail lost {v['texture.lost']:.1f} octaves more than around it and "
        f"gained {v['texture.noise']:.0f} levels of noise."
    )


def _quality(m: Measures) -> str:
    v = m.values
    return (
        f"The whole picture lost {v['overall.blur']:.1f} octaves of detail, gained {v['overall.noise']:.1f} of noise "
        f"and {max(0.0, v['overall.blocks']):.1f} of block edges."
    )


def _light(m: Measures) -> str:
    v = m.values
    if not m.change.region.any():
        return _nowhere(m.change, "light could clash there")
    return (
        f"Inside the edit ({spot(m.change)}) light slopes {v['light.slope against']:.1f} stops against its "
        f"surroundings; mean lightness there moved by {v['light.light step']:.0f}."
    )


def _seam(m: Measures) -> str:
    v = m.values
    if not m.change.region.any():
        return _nowhere(m.change, "rim could show a seam")
    return (
        f"Along the rim of the edit ({spot(m.change)}) colours step by {v['seam.step']:.1f} units; "
        f"{percent(v['seam.sharp'])} of it is sharp."
    )


def _shift(change: Change) -> str:
    """What happened to the whole picture alike; empty where nothing did."""
    return f"all colours by {change.tint:.1f} units" if change.tint >= 0.05 else ""


def _nowhere(change: Change, what: str) -> str:
    """Where there is no place to look at, with what was set aside: nothing was measured there, not a 0."""
    aside = f"; a shift of {shift} is set aside" if (shift := _shift(change)) else ""
    return f"No place stands out as edited, so that no {what}{aside}."


def spot(change: Change) -> str:
    """Where the edit is and how much of the picture it takes."""
    return f"{place(change.region)}, {percent(change.share)}"


_SENTENCES: dict[str, Sentence] = {
    "unchanged_regions": _unchanged,
    "global_consistency": _consistency,
    "identity_preservation": _identity,
    "texture_and_detail": _texture,
    "image_quality": _quality,
    "color_and_lighting": _light,
    "seamlessness": _seam,
}
MEASURED = tuple(_SENTENCES)
"""Factors that need no understanding, only a comparison."""
