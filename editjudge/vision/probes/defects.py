"""Single defects at four rising doses, each with the factor that must notice it.

Steps between doses should look equally large. Doses that are ratios (sizes, blur, noise, the JPEG quantiser, shares of
an image) are multiplied by a constant at each step. A constant is added to doses that are differences (colours in Lab,
angles, displacements).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import cv2
import numpy as np

from editjudge.vision.probes import drawing
from editjudge.vision.probes.drawing import (
    COLOURS,
    Mask,
    Photograph,
    Pixels,
    Region,
    Shape,
    photograph,
)

Base = Literal["recolour", "both", "add", "text"]
BASES: tuple[Base, ...] = ("recolour", "both", "add", "text")
WORDS = ("GARDEN", "SUMMER", "HARBOR", "WINTER", "MARKET", "SILVER", "BRIDGE", "ORANGE")
_LETTERS = "ABCDEFGHIJKLMNOPRSTUVWXYZ"
SOFT = 2.0
"""Width in pixels over which a defect inside the target fades out, so that it does not leave a seam."""


@dataclass(frozen=True)
class ProbeScene:
    """A photograph, the instructions about it, and its clean edits."""

    photograph: Photograph
    index: int
    seed: int

    @cached_property
    def image(self) -> Pixels:
        return drawing.read(self.photograph.file, self.photograph.crop)

    def outline(self, region: Region) -> Mask:
        return drawing.outline(self.photograph.file, region, self.photograph.crop)

    @cached_property
    def target(self) -> Mask:
        return self.outline(self.photograph.target)

    @cached_property
    def second(self) -> Mask:
        return self.outline(self.photograph.second)

    @cached_property
    def colours(self) -> tuple[str, str]:
        """Colours for the target and for the second object that clearly differ from their original colours."""
        turn = -1 - (self.seed + self.index) % 2
        first = drawing.colours_by_distance(self.image, self.target)[turn]
        others = drawing.colours_by_distance(self.image, self.second)
        others.remove(first)
        return first, others[turn]

    @property
    def sign_text(self) -> str:
        return WORDS[(self.index + self.seed) % len(WORDS)]

    @property
    def hue(self) -> float:
        return COLOURS[self.colours[0]]

    @property
    def number(self) -> int:
        """Seed for the noise. It is the same for every dose, so that doses differ in nothing else."""
        return 1000 * self.seed + self.index

    def instruction(self, base: Base) -> str:
        p = self.photograph
        first, second = self.colours
        return {
            "recolour": f"Make the {p.target_name} {first}.",
            "both": f"Make the {p.target_name} {first} and the {p.second_name} {second}.",
            "add": f"Add a {first} {p.ball_name}.",
            "text": f'Write "{self.sign_text}" on {p.surface}.',
        }[base]

    def clean(self, base: Base) -> Pixels:
        """Return the intended edit, which is local, feathered and plausible."""
        match base:
            case "recolour":
                return self.recoloured
            case "both":
                return self.both(1.0)
            case "add":
                return self.ball()
            case "text":
                return self.lettering(self.sign_text)

    @cached_property
    def recoloured(self) -> Pixels:
        return drawing.recoloured(self.image, self.target, self.hue)

    def both(self, share: float) -> Pixels:
        """Recolour the target fully, and the second object by this share."""
        hue = COLOURS[self.colours[1]]
        return drawing.recoloured(self.recoloured, share * self.second, hue)

    def ball(self, region: Region | None = None, slices: float = 0.0) -> Pixels:
        p = self.photograph
        return drawing.ball(p, self.image, region or p.ball, self.hue, slices)

    def lettering(self, text: str, warp: float = 0.0) -> Pixels:
        return drawing.lettering(self.image, self.photograph.lettering, text, warp)

    def region(self, clean: Pixels, margin: int = 0, soft: float = SOFT) -> Mask:
        """Return a mask of the area that the clean edit changed, dilated by `margin` pixels."""
        changed = np.abs(clean - self.image).max(axis=2) > 0.03
        kernel = drawing.ellipse(2 * margin + 5)
        mask = cv2.morphologyEx(changed.astype(np.float32), cv2.MORPH_CLOSE, kernel)
        if margin:
            mask = cv2.dilate(mask, kernel)
        full = mask[..., None].astype(np.float32)
        return drawing.feathered(full, soft) if soft else full


@dataclass(frozen=True)
class Defect:
    """A defect, the factors whose scores must fall with it, and the function that makes it."""

    name: str
    factors: tuple[str, ...]
    base: Base
    unit: str
    doses: tuple[float, ...]
    make: Callable[[ProbeScene, Pixels, float], Pixels]
    """Function that applies the defect. Its arguments are the scene, the clean edit and a dose."""
    also: tuple[str, ...] = ()
    """Factors that the rubric's definitions connect with the same defect. Their scores may fall or stay."""


def _replaced(scene: ProbeScene, clean: Pixels, share: float) -> Pixels:
    """Replace the entity with the entity of the next photograph. Brightness and colour are matched, so that nothing
    else differs."""
    entity = scene.photograph.entity
    donor = ProbeScene(photograph(scene.index + 1, scene.seed), scene.index + 1, 0)
    rows, columns = _box(clean.shape, entity)
    there = drawing.to_lab(clean[rows, columns])
    other = cv2.resize(
        donor.image[_box(donor.image.shape, donor.photograph.entity)],
        there.shape[1::-1],
        interpolation=cv2.INTER_AREA,
    )
    lab = drawing.to_lab(other.astype(np.float32))
    normalised = (lab - lab.mean((0, 1))) / (lab.std((0, 1)) + 1e-3)
    layer = clean.copy()
    layer[rows, columns] = drawing.to_rgb(
        normalised * there.std((0, 1)) + there.mean((0, 1))
    )
    return drawing.mix(clean, layer, share * entity.drawn(clean.shape, SOFT + 1))


def _box(shape: Shape, region: Region) -> tuple[slice, slice]:
    """Return the rows and columns of a region, with room for the feather."""
    height, width = shape[:2]
    wide = region.across * 1.15
    tall = region.down * 1.15
    return (
        slice(
            max(0, round((region.y - tall) * height)),
            min(height, round((region.y + tall) * height)),
        ),
        slice(
            max(0, round((region.x - wide) * width)),
            min(width, round((region.x + wide) * width)),
        ),
    )


def _scaled(scene: ProbeScene, _: Pixels, factor: float) -> Pixels:
    """Enlarge the ball without moving it."""
    region = scene.photograph.ball.grown(factor)
    if scene.photograph.on_ground:
        height, width = scene.image.shape[:2]
        lift = (factor - 1) * scene.photograph.ball.across * width / height
        region = replace(region, y=region.y - lift)
    return scene.ball(region)


def _misplaced(scene: ProbeScene, _: Pixels, diameters: float) -> Pixels:
    """Move the ball towards the middle of the image, away from its natural position."""
    region = scene.photograph.ball
    height, width = scene.image.shape[:2]
    away = np.array([(0.5 - region.x) * width, (0.45 - region.y) * height])
    x, y = away / np.hypot(*away) * 2 * region.across * width * diameters
    return scene.ball(replace(region, x=region.x + x / width, y=region.y + y / height))


def _neighbour(scene: ProbeScene, clean: Pixels, share: float) -> Pixels:
    """Push the second object away from the target."""
    region = scene.photograph.second
    side = 1.0 if region.x > scene.photograph.target.x else -1.0
    return drawing.moved(clean, region, (2 * share * side, 0.0))


def _noisy(scene: ProbeScene, clean: Pixels, level: float) -> Pixels:
    noise = drawing.grain(clean.shape, scene.number) * level / 255
    return drawing.mix(clean, np.clip(clean + noise, 0, 1), scene.region(clean))


def _relit(scene: ProbeScene, clean: Pixels, stops: float) -> Pixels:
    right, down = scene.photograph.light
    ramp = drawing.slope(clean.shape, scene.photograph.target, (-right, -down))
    return drawing.mix(clean, drawing.lit(clean, stops * ramp), scene.region(clean))


def _off_target(scene: ProbeScene, _: Pixels, share: float) -> Pixels:
    rest = drawing.recoloured(scene.image, (1 - share) * scene.target, scene.hue)
    return drawing.recoloured(rest, share * scene.second, scene.hue)


def _misspelt(scene: ProbeScene, _: Pixels, letters: float) -> Pixels:
    rng = np.random.default_rng([scene.seed, scene.index, 2])
    spelling = list(scene.sign_text)
    others = [letter for letter in _LETTERS if letter not in scene.sign_text]
    for at in rng.permutation(len(spelling))[: int(letters)]:
        spelling[at] = rng.choice(others)
    return scene.lettering("".join(spelling))


def smeared(scene: ProbeScene, clean: Pixels, sigma: float) -> Pixels:
    return drawing.mix(clean, drawing.blurred(clean, sigma), scene.region(clean))


_DONE = ("alignment", "completeness")
_PLACED = ("alignment", "effect_score")
FAMILIES = (
    Defect("leak", ("unchanged_regions",), "recolour", "share of the rest that is stained", (0.05, 0.1, 0.2, 0.4),
           lambda scene, clean, share: drawing.stained(
               clean, 1 - scene.region(clean, 6), scene.hue, share, scene.number)),
    Defect("tint", ("global_consistency",), "recolour", "colour difference over the whole image", (5, 10, 15, 20),
           lambda _, clean, by: drawing.shifted(clean, 1.0, (0, 0.5 * by, 0.87 * by)),
           ("unchanged_regions", "color_and_lighting")),
    Defect("palette", ("global_consistency",), "recolour", "degrees by which all hues turn", (25, 50, 75, 100),
           lambda _, clean, degrees: drawing.turned(clean, degrees),
           (*_DONE, "unchanged_regions", "color_and_lighting")),
    Defect("replaced", ("identity_preservation",), "recolour", "share of another individual", (0.25, 0.5, 0.75, 1.0),
           _replaced, (*_DONE, "plausibility")),
    Defect("scale", ("scale_realism",), "add", "times the right size", (1.3, 1.7, 2.2, 2.9),
           _scaled, ("plausibility", "spatial_relationship")),
    Defect("misplaced", ("spatial_relationship",), "add", "diameters from where it belongs", (0.75, 1.5, 2.25, 3.0),
           _misplaced, (*_DONE, "plausibility")),
    Defect("neighbour", ("spatial_relationship",), "recolour", "of its width that a neighbour moved",
           (0.125, 0.25, 0.375, 0.5), _neighbour, ("unchanged_regions", "identity_preservation")),
    Defect("smeared", ("texture_and_detail",), "recolour", "pixels of blur in the target", (1.0, 1.6, 2.5, 4.0),
           smeared, ("image_quality",)),
    Defect("noisy", ("texture_and_detail",), "recolour", "levels of noise in the target", (8, 14, 24, 40),
           _noisy, ("image_quality",)),
    Defect("compressed", ("image_quality",), "recolour", "JPEG quality of the whole", (50, 25, 12, 6),
           lambda _, clean, quality: drawing.compressed(clean, round(quality)),
           ("unchanged_regions", "texture_and_detail")),
    Defect("blurred", ("image_quality",), "recolour", "pixels of blur of the whole", (0.8, 1.3, 2.0, 3.2),
           lambda _, clean, sigma: drawing.blurred(clean, sigma), ("unchanged_regions", "texture_and_detail")),
    Defect("relit", ("color_and_lighting",), "recolour", "stops of light from the wrong side", (1, 2, 3, 4),
           _relit, ("plausibility",)),
    Defect("seamed", ("seamlessness",), "recolour", "step in lightness at a hard rim", (5, 10, 15, 20),
           lambda scene, clean, step: drawing.shifted(clean, scene.region(clean, 3, soft=0), (step, 0, 0)),
           ("color_and_lighting",)),
    Defect("off_colour", _PLACED, "recolour", "degrees from the hue that was asked for", (30, 60, 95, 140),
           lambda scene, _, degrees: drawing.recoloured(scene.image, scene.target, scene.hue + degrees),
           ("completeness",)),
    Defect("off_target", _PLACED, "recolour", "share of the edit on the wrong thing", (0.25, 0.5, 0.75, 1.0),
           _off_target, ("completeness", "unchanged_regions")),
    Defect("left_out", ("completeness",), "both", "share of the second part that is missing", (0.25, 0.5, 0.75, 1.0),
           lambda scene, _, share: scene.both(1 - share), ("alignment",)),
    Defect("misspelt", _PLACED, "text", "letters that are wrong", (1, 2, 3, 4), _misspelt, ("completeness",)),
    Defect("malformed", _PLACED, "text", "of its height by which lettering bends", (0.06, 0.12, 0.18, 0.24),
           lambda scene, _, warp: scene.lettering(scene.sign_text, warp),
           ("completeness", "plausibility", "texture_and_detail")),
    Defect("composite", ("plausibility",), "add", "diameters by which slices hang apart", (0.2, 0.4, 0.6, 0.8),
           lambda scene, _, diameters: scene.ball(slices=diameters),
           (*_DONE, "spatial_relationship", "scale_realism")),
)  # fmt: skip
