"""The factors that compare two pictures: scores from the calibration, reasons from the measures that decided."""

from __future__ import annotations

from collections.abc import Callable

from editjudge.measured.calibration import Calibration
from editjudge.measured.change import Change
from editjudge.measured.factor_verdict import FactorVerdict, abstain
from editjudge.measured.measures import Measures
from editjudge.measured.sentences import percent, place

Sentence = Callable[[Measures], str]


def score(factor: str, measures: Measures, calibration: Calibration) -> FactorVerdict:
    """A score for one of the measured factors; none where what decides it could not be measured."""
    if factor == "identity_preservation" and measures.values["structure.recognisable"] < 0.01:
        return abstain("the picture shows no structure by which anything could be recognised")
    deciding, missing = _DECIDING[factor]
    alike = _alike(factor, measures)
    known = alike or any(name in measures.values for name in deciding)
    # Where no place differs there is no edit that could be placed among others.
    rank = None if alike else calibration.rank(factor, measures)
    if not known and rank is None:
        return abstain(missing)
    own, total = (calibration.score(factor, measures.values, place) for place in (None, rank))
    if rank is not None and (total < own or not known) and calibration.learnt:
        return FactorVerdict(total, _placed(factor, rank, calibration.learnt.edits, measures))
    return FactorVerdict(total, _SENTENCES[factor](measures))


def _placed(factor: str, rank: float, edits: int, m: Measures) -> str:
    """Where the learnt part decided: what it is, and beside it the factor's own measure."""
    name, measure, unit = _OWN[factor]
    own = f"{name}: {m.values[measure]:.1f} {unit}" if measure in m.values else f"{name}: not comparable"
    return f"A model fitted to {edits} rated edits ranks {percent(rank)} of them below this picture in quality; {own}."


def _alike(factor: str, measures: Measures) -> bool:
    """Whether it was measured that no place differs, so that an edit's own detail, light and rim are as they were."""
    return factor in _LOCAL and not measures.change.region.any() and measures.values["change.visible share"] < _SPECKS


def _unchanged(m: Measures) -> str:
    v, change = m.values, m.change
    if change.nothing:
        return (
            "No visible difference anywhere, from the upper left to the lower right of the picture; "
            f"mean colour difference {v['change.mean']:.1f}."
        )
    if "change.visible outside" not in v:
        share = percent(change.share)
        return f"The visible change covers the whole picture, {share} of it as one region; nothing around it is left."
    stray, shift = (change.visible > 1) & (change.outside > 0), _shift(change)
    share = f"{percent(v['change.visible outside'])} of pixels" + (f" ({place(stray)})" if stray.any() else "")
    if not change.region.any():
        left = f"no area visibly changed; mean colour difference {v['change.mean outside']:.1f}"
        words = f"{share} visibly changed, scattered over the picture" if stray.any() else left
        return f"Apart from {shift}, {words}." if shift else f"In the whole picture, {words}."
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
    v, shift = m.values, _shift(m.change)
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
    lost, noise = v.get("texture.lost"), f"noise rose by {v['texture.noise']:.0f} levels"
    if lost is None:
        return f"Inside the edit ({spot(m.change)}), the input had no fine detail that could be lost; {noise}."
    return f"Inside the edit ({spot(m.change)}), fine detail fell by {lost:.1f} octaves more than around it; {noise}."


def _quality(m: Measures) -> str:
    v = m.values
    gains = {"noise": v.get("overall.noise"), "block edges": v.get("overall.blocks")}
    known = " and ".join(f"{max(0.0, gain):.1f} octaves of {name}" for name, gain in gains.items() if gain is not None)
    gained = f" and gained {known}" if known else ""
    return f"The whole picture lost {v['overall.blur']:.1f} octaves of fine detail{gained}."


def _light(m: Measures) -> str:
    v = m.values
    if not m.change.region.any():
        return _nowhere(m.change, "lighting")
    step = f"; mean lightness changed by {v['light.light step']:.0f}" if "light.light step" in v else ""
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
    """What happened to the whole picture alike; empty where nothing did."""
    return f"a colour shift of {change.tint:.1f} units" if change.tint >= 0.05 else ""


def _nowhere(change: Change, what: str) -> str:
    """Where it was measured that no area differs, beside what happened to the whole picture."""
    beside = f", apart from {shift}," if (shift := _shift(change)) else ""
    return f"No area of the picture visibly differs{beside} so there is no edited {what} to compare."


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
_OWN = {
    "texture_and_detail": ("lost detail", "texture.lost", "octaves"),
    "image_quality": ("lost detail", "overall.blur", "octaves"),
    "color_and_lighting": ("light gradient", "light.slope against", "stops"),
    "seamlessness": ("jump at the boundary", "seam.step", "Lab units"),
}
"""Factors with a learnt part, and the measure that is reported beside it."""
_LOCAL = frozenset({"texture_and_detail", "color_and_lighting", "seamlessness"})
"""Factors of the edit itself: without a visible difference there is nothing of it that could be wrong."""
_SPECKS = 0.001
"""Share of the picture that differs in specks when no more than re-encoding was done."""
_DECIDING: dict[str, tuple[tuple[str, ...], str]] = {
    "unchanged_regions": (("change.stray",), "the mask covers the whole picture: nothing outside it can be compared"),
    "global_consistency": (("style.tinted",), "the colours of the whole picture could not be compared"),
    "identity_preservation": (
        ("structure.lost inside", "structure.lost outside"),
        "neither the edit nor its surroundings show anything recognisable to compare",
    ),
    "texture_and_detail": (
        ("texture.lost", "texture.noise"),
        "the edit shows nothing that was there before, so its detail has no counterpart in the input",
    ),
    "image_quality": (("overall.blur",), "the detail of the whole picture could not be compared"),
    "color_and_lighting": (
        ("light.slope against",),
        "the edit shows too little of what was there before to separate its lighting from its surface",
    ),
    "seamlessness": (("seam.step",), "the boundary of the edit is too short to look for a seam along it"),
}
"""For each factor the measures of which at least one must have been taken, and what is said where none was."""
MEASURED = tuple(_SENTENCES)
"""Factors that need no understanding, only a comparison."""
