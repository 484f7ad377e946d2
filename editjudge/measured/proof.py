"""What can be proven about following the instruction; everything else is left to judges who understand it."""

from __future__ import annotations

from dataclasses import dataclass

from editjudge.measured.colours import asked_colour, missing_colour
from editjudge.measured.factor_verdict import FactorVerdict, abstain
from editjudge.measured.lettering import TextReading
from editjudge.measured.measures import Measures
from editjudge.measured.phrasing import may_stay
from editjudge.measured.sentences import percent, place

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
            {"alignment": self.alignment, "completeness": self.completeness}.get(factor, self.effect), self.words
        )


def prove(instruction: str, measures: Measures, reading: TextReading | None) -> Proof | None:
    """None where nothing is proven."""
    change = measures.change
    if change.nothing:
        if may_stay(instruction) or "scale" in measures.scene.framing:  # a crop may be what was asked for
            return None
        words = (
            "The instruction was not carried out: the edited picture shows no visible difference anywhere; "
            f"mean colour difference {measures.values['change.mean']:.1f}."
        )
        return Proof(1.0, 1.0, 1.0, words)
    where = f" ({place(change.region)}, {percent(change.share)} of the picture)" if change.region.any() else ""
    if reading is not None and reading.outcome is not None:
        part = "changed part" if where else "picture"
        degrees = _LETTERING[reading.outcome]
        scores = degrees[min(reading.degree, len(degrees) - 1)]
        return Proof(*scores, f"Read in the {part}{where}: {reading.words}.")
    if colour := missing_colour(instruction, measures.scene, change):
        name, share = colour
        words = (
            f"The instruction asks for {name}; in the changed area{where}, {percent(share)} of the pixels are {name}."
        )
        return Proof(2.0, 2.0, 1.0, words)
    return None


def why_not(instruction: str, reading: TextReading | None) -> FactorVerdict:
    """The abstention, with what was tried."""
    if reading is not None:
        return abstain(f"the text in the pictures does not decide it: {reading.words}")
    if name := asked_colour(instruction):
        return abstain(f"{name} occurs in the changed area; whether it is on the right object cannot be measured")
    return abstain(_UNPROVEN)
