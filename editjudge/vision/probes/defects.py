"""One defect at a time, at four rising doses, each with the factor that must notice it.

Steps are meant to look equally large. Where the eye sees ratios (sizes, blur, noise, the quantiser of JPEG, the share
of a picture) doses grow by a factor; where it sees differences (colours in Lab, angles, displacements) by a sum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import cv2
import numpy as np

from editjudge.vision.probes import drawing as painting
from editjudge.vision.probes.drawing import (
    Mask,
    Photograph,
    Picture,
    Region,
    cut,
    feathered,
    load,
    photograph,
)

Base = Literal["recolour", "both", "add", "text"]
BASES: tuple[Base, ...] = ("recolour", "both", "add", "text")
WORDS = ("GARDEN", "SUMMER", "HARBOR", "WINTER", "MARKET", "SILVER", "BRIDGE", "ORANGE")
_LETTERS = "ABCDEFGHIJKLMNOPRSTUVWXYZ"
SOFT = 2.0
"""Pixels by which a defect inside the target fades out, so that it is no seam."""


@dataclass(frozen=True)
class ProbeScene:
    """A photograph, and what is asked of it."""

    photograph: Photograph
    index: int
    seed: int

    @cached_property
    def picture(self) -> Picture:
        return load(self.photograph)

    @cached_property
    def target(self) -> Mask:
        return cut(self.photograph, self.photograph.target.place)

    @cached_property
    def second(self) -> Mask:
        return cut(self.photograph, self.photograph.second.place)

    @cached_property
    def colours(self) -> tuple[str, str]:
        """For the target and for the second thing: colours that they plainly do not have."""
        turn = (self.seed + self.index) % 2
        names = []
        for mask in (self.target, self.second):
            a, b = painting.to_lab(self.picture)[mask[..., 0] > 0.5].mean(axis=0)[1:]
            own = np.degrees(np.arctan2(b, a))
            far = sorted(
                painting.COLOURS,
                key=lambda name: abs((painting.COLOURS[name] - own + 180) % 360 - 180),
            )
            names.append([name for name in far if name not in names][-1 - turn])
        return names[0], names[1]

    @cached_property
    def word(self) -> str:
        return WORDS[(self.index + self.seed) % len(WORDS)]

    @property
    def hue(self) -> float:
        return painting.COLOURS[self.colours[0]]

    def instruction(self, base: Base) -> str:
        p = self.photograph
        (first, other) = self.colours
        return {
            "recolour": f"Make the {p.target.name} {first}.",
            "both": f"Make the {p.target.name} {first} and the {p.second.name} {other}.",
            "add": f"Add a {first} {p.ball_name}.",
            "text": f'Write "{self.word}" on {p.surface}.',
        }[base]

    def clean(self, base: Base) -> Picture:
        """The edit as it should be: local, feathered, plausible."""
        if base == "recolour":
            return self._recoloured
        if base == "both":
            return self.partly_both(1.0)
        if base == "add":
            return painting.ball(
                self.photograph, self.picture, self.photograph.ball, self.hue
            )
        return painting.lettering(self.picture, self.photograph.lettering, self.word)

    @cached_property
    def _recoloured(self) -> Picture:
        return painting.recoloured(self.picture, self.target, self.hue)

    def partly_both(self, second: float) -> Picture:
        return painting.recoloured(
            self._recoloured, second * self.second, painting.COLOURS[self.colours[1]]
        )

    def region(self, clean: Picture, margin: int = 0, soft: float = SOFT) -> Mask:
        """Return what the clean edit changed, and so many pixels around it."""
        changed = (
            np.abs(clean - self.picture).max(axis=2, keepdims=True) > 0.03
        ).astype(np.float32)
        kernel = cv2.getStructuringElement(
            cv2.MORPH_ELLIPSE, (2 * margin + 5, 2 * margin + 5)
        )
        closed = cv2.morphologyEx(changed, cv2.MORPH_CLOSE, kernel)
        grown = (cv2.dilate(closed, kernel) if margin else closed)[..., None].astype(
            np.float32
        )
        return feathered(grown, soft) if soft else grown

    @property
    def number(self) -> int:
        """Seeds the noise: the same for every dose, so that doses differ in nothing else."""
        return 1000 * self.seed + self.index


@dataclass(frozen=True)
class Defect:
    """A defect: what it is, which factors must fall with it, and how it is done."""

    name: str
    factors: tuple[str, ...]
    base: Base
    unit: str
    doses: tuple[float, ...]
    make: Callable[[ProbeScene, Picture, float], Picture]
    """From the scene, its clean edit and a dose."""
    also: frozenset[str] = frozenset()
    """Factors that the same defect breaks by the rubric's own words: neither required to fall nor to stay."""


def _leak(scene: ProbeScene, clean: Picture, share: float) -> Picture:
    return painting.stained(
        clean, 1 - scene.region(clean, 6), scene.hue, share, scene.number
    )


def _tint(_: ProbeScene, clean: Picture, by: float) -> Picture:
    return painting.shifted(clean, 1.0, (0, 0.5 * by, 0.87 * by))


def _palette(_: ProbeScene, clean: Picture, degrees: float) -> Picture:
    return painting.turned(clean, degrees)


def _replaced(scene: ProbeScene, clean: Picture, share: float) -> Picture:
    """Replace the entity by that of the next photograph, matched in brightness and colour so that nothing else differs."""
    place = scene.photograph.entity
    donor = photograph(scene.index + 1, scene.seed)
    other = _patch(load(donor), donor.entity, _box(clean.shape, place))
    here = place.drawn(clean.shape, SOFT + 1)
    left, top, right, bottom = _box(clean.shape, place)
    own = painting.to_lab(clean[top:bottom, left:right])
    lab = painting.to_lab(other)
    lab = (lab - lab.mean((0, 1))) / (lab.std((0, 1)) + 1e-3) * own.std(
        (0, 1)
    ) + own.mean((0, 1))
    layer = clean.copy()
    layer[top:bottom, left:right] = painting.to_rgb(lab)
    return painting.mix(clean, layer, share * here)


def _box(shape: tuple[int, ...], place: Region) -> tuple[int, int, int, int]:
    """Left, top, right, bottom in pixels, with room for the feather."""
    height, width = shape[:2]
    wide = place.across * 1.15
    tall = place.down * 1.15
    left = max(0, round((place.x - wide) * width))
    right = min(width, round((place.x + wide) * width))
    return (
        left,
        max(0, round((place.y - tall) * height)),
        right,
        min(height, round((place.y + tall) * height)),
    )


def _patch(picture: Picture, place: Region, box: tuple[int, int, int, int]) -> Picture:
    left, top, right, bottom = _box(picture.shape, place)
    size = (box[2] - box[0], box[3] - box[1])
    return cv2.resize(
        picture[top:bottom, left:right], size, interpolation=cv2.INTER_AREA
    ).astype(np.float32)


def _smeared(scene: ProbeScene, clean: Picture, sigma: float) -> Picture:
    return painting.mix(clean, painting.blurred(clean, sigma), scene.region(clean))


def _noisy(scene: ProbeScene, clean: Picture, level: float) -> Picture:
    noise = painting.grain(clean.shape, scene.number) * level / 255
    return painting.mix(clean, np.clip(clean + noise, 0, 1), scene.region(clean))


def _relit(scene: ProbeScene, clean: Picture, stops: float) -> Picture:
    wrong = (-scene.photograph.light[0], -scene.photograph.light[1])
    ramp = painting.slope(clean.shape, scene.photograph.target.place, wrong)
    return painting.mix(clean, painting.lit(clean, stops * ramp), scene.region(clean))


def _seamed(scene: ProbeScene, clean: Picture, step: float) -> Picture:
    return painting.shifted(clean, scene.region(clean, 3, soft=0), (step, 0, 0))


def _off_colour(scene: ProbeScene, _: Picture, degrees: float) -> Picture:
    return painting.recoloured(scene.picture, scene.target, scene.hue + degrees)


def _off_target(scene: ProbeScene, _: Picture, share: float) -> Picture:
    done = painting.recoloured(scene.picture, (1 - share) * scene.target, scene.hue)
    return painting.recoloured(done, share * scene.second, scene.hue)


def _scaled(scene: ProbeScene, _: Picture, factor: float) -> Picture:
    """Grown from where it stands."""
    place = scene.photograph.ball
    (height, width) = scene.picture.shape[:2]
    lifted = (
        place.y - (factor - 1) * place.across * width / height
        if scene.photograph.on_ground
        else place.y
    )
    grown = Region(place.x, lifted, place.across * factor, place.down * factor)
    return painting.ball(scene.photograph, scene.picture, grown, scene.hue)


def _misplaced(scene: ProbeScene, _: Picture, diameters: float) -> Picture:
    """Towards the middle of the picture, where it does not belong."""
    place = scene.photograph.ball
    (height, width) = scene.picture.shape[:2]
    away = np.array([(0.5 - place.x) * width, (0.45 - place.y) * height])
    x, y = away / np.hypot(*away) * 2 * place.across * width * diameters
    there = Region(place.x + x / width, place.y + y / height, place.across, place.down)
    return painting.ball(scene.photograph, scene.picture, there, scene.hue)


def _neighbour(scene: ProbeScene, clean: Picture, share: float) -> Picture:
    place = scene.photograph.second.place
    # away from the target
    side = 1.0 if place.x > scene.photograph.target.place.x else -1.0
    return painting.moved(clean, place, (2 * share * side, 0.0))


def _sliced(scene: ProbeScene, _: Picture, diameters: float) -> Picture:
    return painting.ball(
        scene.photograph, scene.picture, scene.photograph.ball, scene.hue, diameters
    )


def _misspelt(scene: ProbeScene, _: Picture, letters: float) -> Picture:
    rng = np.random.default_rng([scene.seed, scene.index, 2])
    word = list(scene.word)
    for at in rng.permutation(len(word))[: int(letters)]:
        word[at] = rng.choice(
            [letter for letter in _LETTERS if letter not in scene.word]
        )
    return painting.lettering(scene.picture, scene.photograph.lettering, "".join(word))


def _malformed(scene: ProbeScene, _: Picture, warp: float) -> Picture:
    return painting.lettering(
        scene.picture, scene.photograph.lettering, scene.word, warp
    )


def _blurred(_: ProbeScene, clean: Picture, sigma: float) -> Picture:
    return painting.blurred(clean, sigma)


def _compressed(_: ProbeScene, clean: Picture, quality: float) -> Picture:
    return painting.compressed(clean, round(quality))


_DONE = frozenset({"alignment", "completeness"})
FAMILIES = (
    Defect("leak", ("unchanged_regions",), "recolour", "share of the rest that is stained", (0.05, 0.1, 0.2, 0.4),
           _leak),
    Defect("tint", ("global_consistency",), "recolour", "colour difference over the whole picture", (5, 10, 15, 20),
           _tint, frozenset({"unchanged_regions", "color_and_lighting"})),
    Defect("palette", ("global_consistency",), "recolour", "degrees by which all hues turn", (25, 50, 75, 100),
           _palette, _DONE | {"unchanged_regions", "color_and_lighting"}),
    Defect("replaced", ("identity_preservation",), "recolour", "share of another individual", (0.25, 0.5, 0.75, 1.0),
           _replaced, _DONE | {"plausibility"}),
    Defect("scale", ("scale_realism",), "add", "times the right size", (1.3, 1.7, 2.2, 2.9),
           _scaled, frozenset({"plausibility", "spatial_relationship"})),
    Defect("misplaced", ("spatial_relationship",), "add", "diameters from where it belongs", (0.75, 1.5, 2.25, 3.0),
           _misplaced, _DONE | {"plausibility"}),
    Defect("neighbour", ("spatial_relationship",), "recolour", "of its width that a neighbour moved",
           (0.125, 0.25, 0.375, 0.5), _neighbour, frozenset({"unchanged_regions", "identity_preservation"})),
    Defect("smeared", ("texture_and_detail",), "recolour", "pixels of blur in the target", (1.0, 1.6, 2.5, 4.0),
           _smeared, frozenset({"image_quality"})),
    Defect("noisy", ("texture_and_detail",), "recolour", "levels of noise in the target", (8, 14, 24, 40),
           _noisy, frozenset({"image_quality"})),
    Defect("compressed", ("image_quality",), "recolour", "JPEG quality of the whole", (50, 25, 12, 6),
           _compressed, frozenset({"unchanged_regions", "texture_and_detail"})),
    Defect("blurred", ("image_quality",), "recolour", "pixels of blur of the whole", (0.8, 1.3, 2.0, 3.2),
           _blurred, frozenset({"unchanged_regions", "texture_and_detail"})),
    Defect("relit", ("color_and_lighting",), "recolour", "stops of light from the wrong side", (1, 2, 3, 4),
           _relit, frozenset({"plausibility"})),
    Defect("seamed", ("seamlessness",), "recolour", "step in lightness at a hard rim", (5, 10, 15, 20),
           _seamed, frozenset({"color_and_lighting"})),
    Defect("off_colour", ("alignment", "effect_score"), "recolour", "degrees from the hue that was asked for",
           (30, 60, 95, 140), _off_colour, frozenset({"completeness"})),
    Defect("off_target", ("alignment", "effect_score"), "recolour", "share of the edit on the wrong thing",
           (0.25, 0.5, 0.75, 1.0), _off_target, frozenset({"completeness", "unchanged_regions"})),
    Defect("left_out", ("completeness",), "both", "share of the second part that is missing", (0.25, 0.5, 0.75, 1.0),
           lambda scene, _, share: scene.partly_both(1 - share), frozenset({"alignment"})),
    Defect("misspelt", ("alignment", "effect_score"), "text", "letters that are wrong", (1, 2, 3, 4),
           _misspelt, frozenset({"completeness"})),
    Defect("malformed", ("alignment", "effect_score"), "text", "of its height by which lettering bends",
           (0.06, 0.12, 0.18, 0.24), _malformed, frozenset({"completeness", "plausibility", "texture_and_detail"})),
    Defect("composite", ("plausibility",), "add", "diameters by which slices hang apart", (0.2, 0.4, 0.6, 0.8),
           _sliced, _DONE | {"spatial_relationship", "scale_realism"}),
)  # fmt: skip
