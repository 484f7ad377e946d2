"""The photographs that probes are made from: free ones inside scikit-image's wheel, and what is where in them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

from editjudge.errors import UsageError

Picture: TypeAlias = NDArray[np.float32]
"""RGB from 0 to 1."""
Mask: TypeAlias = NDArray[np.float32]
"""Height x width x 1, from 0 to 1."""

SIDE = 512
"""Pixels on the longer side, so that doses in pixels mean the same in every photograph."""
_JITTER = 0.05
"""Share of a side that a variation may crop away at each edge."""
_CUTTING = 360
"""Longer side in pixels at which things are cut out: as good as full size once feathered, and several times faster."""
_LEAST = 0.3
"""Share of its ellipse that a thing fills at least; where less is found, the ellipse itself is taken."""


@dataclass(frozen=True)
class Region:
    """An ellipse as shares of the picture: centre and half axes."""

    x: float
    y: float
    across: float
    down: float

    def within(self, crop: Region) -> Region:
        """The same place after cropping; a crop is the ellipse's bounding box, so to speak."""
        left, top, width, height = crop.x - crop.across, crop.y - crop.down, 2 * crop.across, 2 * crop.down
        return Region((self.x - left) / width, (self.y - top) / height, self.across / width, self.down / height)

    def grown(self, factor: float) -> Region:
        return Region(self.x, self.y, self.across * factor, self.down * factor)

    def drawn(self, shape: tuple[int, ...], soft: float = 0.0) -> Mask:
        height, width = shape[:2]
        mask = np.zeros((height, width), np.float32)
        middle, axes = (round(self.x * width), round(self.y * height)), (self.across * width, self.down * height)
        cv2.ellipse(mask, middle, (round(axes[0]), round(axes[1])), 0, 0, 360, 1.0, -1, cv2.LINE_AA)
        return feathered(mask[..., None], soft) if soft else mask[..., None]


FULL = Region(0.5, 0.5, 0.5, 0.5)
"""The crop that leaves everything."""


def feathered(mask: Mask, soft: float) -> Mask:
    return cv2.GaussianBlur(mask, (0, 0), soft).astype(np.float32).reshape(mask.shape)


@dataclass(frozen=True)
class PhotoThing:
    """Something in a photograph that an instruction can name."""

    name: str
    place: Region


@dataclass(frozen=True)
class Photograph:
    name: str
    file: str
    target: PhotoThing
    """What is edited."""
    entity: Region
    """The individual that the target belongs to: a head, a cup."""
    second: PhotoThing
    """The other thing that an instruction names, or an editor confuses with the target."""
    light: tuple[float, float]
    """From where the light comes: right and down are positive."""
    ball: Region
    """Where a ball or balloon could be, and how large; only its half width counts."""
    ball_name: str
    on_ground: bool
    lettering: Region
    """Room for a word."""
    surface: str
    """What the word is written on."""
    variation: int = 0
    crop: Region = FULL


_PHOTOGRAPHS = (
    Photograph(
        "astronaut", "astronaut.png",
        PhotoThing("woman's hair", Region(0.44, 0.115, 0.16, 0.115)), Region(0.44, 0.19, 0.15, 0.18),
        PhotoThing("brown fuel tank of the model shuttle", Region(0.815, 0.13, 0.05, 0.15)),
        (-0.6, -0.8), Region(0.655, 0.3, 0.05, 0.05), "balloon between the woman and the model shuttle", False,
        Region(0.76, 0.87, 0.16, 0.05), "the black helmet",
    ),
    Photograph(
        "coffee", "coffee.png",
        PhotoThing("cup", Region(0.485, 0.32, 0.21, 0.31)), Region(0.485, 0.32, 0.2, 0.3),
        PhotoThing("spoon", Region(0.61, 0.68, 0.075, 0.15)),
        (0.5, -0.85), Region(0.9, 0.66, 0.05, 0.05), "ball on the table to the right of the saucer", True,
        Region(0.84, 0.12, 0.14, 0.06), "the table",
    ),
    Photograph(
        "cat", "chelsea.png",
        PhotoThing("larger of the cat's eyes", Region(0.385, 0.395, 0.085, 0.115)), Region(0.39, 0.39, 0.12, 0.17),
        PhotoThing("smaller of the cat's eyes", Region(0.71, 0.455, 0.065, 0.1)),
        (0.4, -0.9), Region(0.92, 0.5, 0.055, 0.055), "ball in the background to the right of the cat", False,
        Region(0.83, 0.88, 0.14, 0.06), "the blanket",
    ),
    Photograph(
        "rocket", "rocket.jpg",
        PhotoThing("rocket", Region(0.503, 0.64, 0.03, 0.33)), Region(0.503, 0.62, 0.045, 0.36),
        PhotoThing("lamp to the left of the rocket", Region(0.3, 0.925, 0.045, 0.065)),
        (0.6, 0.8), Region(0.38, 0.25, 0.04, 0.04), "balloon in the sky to the left of the rocket", False,
        Region(0.72, 0.16, 0.17, 0.06), "the sky",
    ),
    Photograph(
        "motorcycle", "motorcycle_left.png",
        PhotoThing("rear wheel", Region(0.27, 0.63, 0.12, 0.2)), Region(0.27, 0.63, 0.12, 0.2),
        PhotoThing("red box behind the front wheel", Region(0.85, 0.47, 0.065, 0.11)),
        (0.2, -1.0), Region(0.09, 0.83, 0.05, 0.05), "ball on the floor in the lower left corner", True,
        Region(0.62, 0.9, 0.17, 0.05), "the floor",
    ),
)  # fmt: skip
"""Middlebury's motorcycle, NASA's astronaut, SpaceX's rocket, the authors' own cup and cat: all free to use."""

NAMES = tuple(photograph.name for photograph in _PHOTOGRAPHS)


def photograph(index: int, seed: int = 0) -> Photograph:
    """Any number of them: after the last come the first ones again, cropped otherwise. Seed 0 starts uncropped."""
    one, variation = _PHOTOGRAPHS[index % len(_PHOTOGRAPHS)], index // len(_PHOTOGRAPHS)
    if seed == variation == 0:
        return one
    # Plain floats: NumPy's would widen every picture.
    left, top, right, bottom = np.random.default_rng([seed, index]).uniform(0, _JITTER, 4).tolist()
    crop = Region((1 + left - right) / 2, (1 + top - bottom) / 2, (1 - left - right) / 2, (1 - top - bottom) / 2)
    things = {name: PhotoThing(thing.name, thing.place.within(crop)) for name in ("target", "second")
              if (thing := getattr(one, name))}  # fmt: skip
    places = {name: getattr(one, name).within(crop) for name in ("entity", "ball", "lettering")}
    return Photograph(**{**vars(one), **things, **places, "variation": variation, "crop": crop})


def load(one: Photograph) -> Picture:
    """Its pixels."""
    return read(one.file, one.crop)


@lru_cache(maxsize=32)
def read(file: str, crop: Region = FULL) -> Picture:
    """Return the pixels of a file from the installed package alone: nothing is fetched."""
    package = find_spec("skimage")
    if package is None or package.origin is None:
        raise UsageError("probes are made from photographs of scikit-image: pip install 'editjudge[probes]'")
    path = Path(package.origin).parent / "data" / file
    picture = cv2.imread(str(path), cv2.IMREAD_COLOR)
    if picture is None:
        raise UsageError(f"{path}: the photograph is missing; install scikit-image again")
    height, width = picture.shape[:2]
    left, right = (round((crop.x + side * crop.across) * width) for side in (-1, 1))
    top, bottom = (round((crop.y + side * crop.down) * height) for side in (-1, 1))
    picture = picture[top:bottom, left:right]
    factor = SIDE / max(picture.shape[:2])
    how = cv2.INTER_AREA if factor < 1 else cv2.INTER_CUBIC
    picture = cv2.resize(picture, None, fx=factor, fy=factor, interpolation=how)
    return (picture[..., ::-1] / 255).astype(np.float32)


@lru_cache(maxsize=64)
def outline(file: str, place: Region, crop: Region = FULL) -> Mask:
    """Return where the thing at a place is, along its own outline, feathered."""
    picture = read(file, crop)
    factor = _CUTTING / max(picture.shape[:2])
    small = cv2.resize((picture * 255).astype(np.uint8), None, fx=factor, fy=factor, interpolation=cv2.INTER_AREA)
    labels = np.where(place.drawn(small.shape)[..., 0] > 0.5, cv2.GC_PR_FGD, cv2.GC_BGD).astype(np.uint8)
    models: Any = (np.zeros((1, 65)), np.zeros((1, 65)))
    cv2.setRNGSeed(0)  # the clustering inside starts at random
    cv2.grabCut(np.ascontiguousarray(small), labels, None, *models, 3, cv2.GC_INIT_WITH_MASK)  # type: ignore[call-overload]
    thing = np.isin(labels, (cv2.GC_FGD, cv2.GC_PR_FGD)).astype(np.float32)
    thing = cv2.morphologyEx(thing, cv2.MORPH_CLOSE, np.ones((5, 5), np.uint8)).astype(np.float32)
    ellipse = place.drawn(small.shape)[..., 0]
    thing = thing if thing.sum() > _LEAST * ellipse.sum() else ellipse
    full = cv2.resize(thing, picture.shape[1::-1], interpolation=cv2.INTER_CUBIC)[..., None]
    return feathered(np.clip(full, 0, 1), 1.5)


def cut(one: Photograph, place: Region) -> Mask:
    """The thing at a place of a photograph, as `outline` finds it."""
    return outline(one.file, place, one.crop)
