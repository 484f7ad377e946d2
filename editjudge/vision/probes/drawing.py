"""Photographs that scikit-image carries, where in them things are, and operations on pixels."""

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

# --- operations on pixels -----------------------------------------------------------------------------------

COLOURS = {"red": 30.0, "green": 145.0, "blue": 268.0, "purple": 315.0}
"""Hue angle in Lab, degrees."""
_CHROMA = 42.0
_KEPT = 0.25
"""Share of a thing's own chroma that a new colour leaves, so that it stays varied."""


def mix(below: Picture, above: Picture, share: Mask | float) -> Picture:
    """Clipped; where the share is 0, exactly what was below."""
    return np.where(
        share > 0, np.clip(below * (1 - share) + above * share, 0, 1), below
    ).astype(np.float32)


def to_lab(picture: Picture) -> Picture:
    return cv2.cvtColor(np.ascontiguousarray(picture), cv2.COLOR_RGB2LAB).astype(
        np.float32
    )


def to_rgb(lab: Picture) -> Picture:
    return np.clip(
        cv2.cvtColor(lab.astype(np.float32), cv2.COLOR_LAB2RGB), 0, 1
    ).astype(np.float32)


def recoloured(picture: Picture, mask: Mask, hue: float) -> Picture:
    """In another colour, with its own shading and texture."""
    lab = to_lab(picture)
    new = _CHROMA * np.array(
        [np.cos(np.radians(hue)), np.sin(np.radians(hue))], np.float32
    )
    lab[..., 1:] = _KEPT * lab[..., 1:] + new
    return mix(picture, to_rgb(lab), mask)


def grown(mask: Mask, margin: int) -> Mask:
    """A mask with so many pixels around it, feathered."""
    kernel = cv2.getStructuringElement(
        cv2.MORPH_ELLIPSE, (2 * margin + 1, 2 * margin + 1)
    )
    around = cv2.dilate(mask, kernel).astype(np.float32).reshape(mask.shape)
    return feathered(around, 2.0)


def stained(
    picture: Picture, mask: Mask, hue: float, share: float, seed: int
) -> Picture:
    """With stains of a colour on so much of a place."""
    stain = np.clip((share - clouds(picture.shape, 22, seed)) * 60 + 0.5, 0, 1)
    return mix(
        picture, recoloured(picture, np.ones_like(mask), hue), 0.55 * stain * mask
    )


def shifted(
    picture: Picture, mask: Mask | float, by: tuple[float, float, float]
) -> Picture:
    """Moved by so much in Lab."""
    return mix(picture, to_rgb(to_lab(picture) + np.array(by, np.float32)), mask)


def turned(picture: Picture, degrees: float) -> Picture:
    """All hues rotated."""
    lab = to_lab(picture)
    angle = np.radians(degrees)
    turn = np.array(
        [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]], np.float32
    )
    lab[..., 1:] = lab[..., 1:] @ turn.T
    return to_rgb(lab)


def blurred(picture: Picture, sigma: float) -> Picture:
    return cv2.GaussianBlur(picture, (0, 0), sigma).astype(np.float32)


def compressed(picture: Picture, quality: int) -> Picture:
    done = cv2.imencode(
        ".jpg", levels(picture)[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, quality]
    )[1]
    return (np.asarray(cv2.imdecode(done, cv2.IMREAD_COLOR))[..., ::-1] / 255).astype(
        np.float32
    )


def lit(picture: Picture, stops: NDArray[np.float32]) -> Picture:
    """Light brighter by so many stops: a product in linear light, with a soft shoulder instead of clipped white."""
    linear = picture**2.2 * 2.0**stops
    shouldered = np.clip(
        np.where(linear > 0.8, 1 - 0.2 * np.exp((0.8 - linear) / 0.2), linear), 0, 1
    )
    return (shouldered ** (1 / 2.2)).astype(np.float32)


def slope(
    shape: tuple[int, ...], place: Region, towards: tuple[float, float]
) -> NDArray[np.float32]:
    """From -1/2 to 1/2 over a place, rising in a direction."""
    height, width = shape[:2]
    ys, xs = np.mgrid[0:height, 0:width].astype(np.float32)
    along = (
        (xs / width - place.x) / place.across * towards[0]
        + (ys / height - place.y) / place.down * towards[1]
    ) / 2
    sloped: NDArray[np.float32] = np.clip(along / np.hypot(*towards), -0.5, 0.5)[
        ..., None
    ]
    return sloped


def clouds(shape: tuple[int, ...], size: float, seed: int) -> NDArray[np.float32]:
    """Smooth noise in blobs of about this many pixels, as ranks from 0 to 1: a threshold is a share of the picture."""
    noise = np.random.default_rng(seed).normal(0, 1, shape[:2]).astype(np.float32)
    smooth = cv2.GaussianBlur(noise, (0, 0), size)
    ranks = np.empty(smooth.size, np.float32)
    ranks[np.argsort(smooth, axis=None)] = np.linspace(
        0, 1, smooth.size, dtype=np.float32
    )
    return ranks.reshape(*shape[:2], 1)


def grain(shape: tuple[int, ...], seed: int) -> NDArray[np.float32]:
    """Noise of standard deviation 1 with the softness of a sensor's."""
    noise = cv2.GaussianBlur(
        np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32), (0, 0), 0.6
    )
    even: NDArray[np.float32] = (noise / noise.std()).astype(np.float32)
    return even


def moved(picture: Picture, place: Region, by: tuple[float, float]) -> Picture:
    """A place pushed aside by shares of its half axes; its surroundings stretch and shrink, so that nothing tears."""
    height, width = picture.shape[:2]
    ys, xs = np.mgrid[0:height, 0:width].astype(np.float32)
    far = np.hypot(
        (xs / width - place.x) / place.across, (ys / height - place.y) / place.down
    )
    push = 0.5 + 0.5 * np.cos(np.pi * np.clip((far - 1) / 1.7, 0, 1))
    return cv2.remap(picture, xs - push * by[0] * place.across * width, ys - push * by[1] * place.down * height,
                     cv2.INTER_CUBIC, borderMode=cv2.BORDER_REFLECT).clip(0, 1).astype(np.float32)  # fmt: skip


def ball(
    one: Photograph, picture: Picture, place: Region, hue: float, slices: float = 0.0
) -> Picture:
    """A shaded ball; `slices` pulls it apart by so many of its diameters, which no ball survives in the air."""
    height, width = picture.shape[:2]
    radius = place.across * width
    ys, xs = np.mgrid[0:height, 0:width].astype(np.float32)
    band = np.floor((ys - place.y * height) / radius * 2.5) % 2 * 2 - 1
    x = (xs - place.x * width - band * slices * radius) / radius
    y = (ys - place.y * height) / radius
    inside = np.clip((1 - np.hypot(x, y)) * radius / 1.5 + 0.5, 0, 1)[..., None]
    light = np.array([one.light[0], one.light[1], 0.9]) / np.hypot(
        np.hypot(*one.light), 0.9
    )
    facing = np.clip(
        x * light[0]
        + y * light[1]
        + np.sqrt(np.clip(1 - x * x - y * y, 0, 1)) * light[2],
        0,
        1,
    )
    shade = (18 + 50 * facing + 25 * facing**30)[..., None]
    chroma = (0.35 + 0.65 * facing - 0.6 * facing**30)[..., None] * 1.3 * _CHROMA
    hues = chroma * np.array(
        [np.cos(np.radians(hue)), np.sin(np.radians(hue))], np.float32
    )
    texture = grain((height, width), 11)[..., None]
    painted = to_rgb(np.concatenate([shade + 1.2 * texture, hues], axis=2))
    below = picture
    if one.on_ground:
        shadow = Region(place.x - one.light[0] * 0.02, place.y + radius / height * 0.95, place.across * 1.1,
                       radius / height * 0.25)  # fmt: skip
        below = mix(
            picture, picture * 0.35, 0.8 * shadow.drawn(picture.shape, radius / 6 + 1)
        )
    return mix(below, painted, inside.astype(np.float32))


def lettering(picture: Picture, place: Region, text: str, warp: float = 0.0) -> Picture:
    """A word in the middle of a place, light on dark or dark on light; `warp` bends it by shares of its height."""
    height, width = picture.shape[:2]
    across = round(2 * place.across * width)
    down = round(2 * place.down * height)
    big = 4
    ink = np.zeros((height * big, width * big), np.uint8)
    (wide, tall), _ = cv2.getTextSize(text, cv2.FONT_HERSHEY_DUPLEX, 1.0, 2)
    size = min(across * big / wide, down * big / tall)
    corner = (
        round(place.x * width * big - wide * size / 2),
        round(place.y * height * big + tall * size / 2),
    )
    cv2.putText(
        ink,
        text,
        corner,
        cv2.FONT_HERSHEY_DUPLEX,
        size,
        255,
        max(1, round(size * 2.2)),
        cv2.LINE_AA,
    )
    small = cv2.resize(ink, (width, height), interpolation=cv2.INTER_AREA)
    if warp:
        letter = tall * size / big
        ys, xs = np.mgrid[0:height, 0:width].astype(np.float32)
        dx, dy = (
            2
            * warp
            * letter
            * (2 * clouds((height, width), letter / 3, 20 + k)[..., 0] - 1)
            for k in (0, 1)
        )
        small = cv2.remap(
            small,
            (xs + dx).astype(np.float32),
            (ys + dy).astype(np.float32),
            cv2.INTER_LINEAR,
        )
    share = feathered((small / 255).astype(np.float32)[..., None], 0.6)
    dark = float(picture[place.drawn(picture.shape)[..., 0] > 0.5].mean()) < 0.5
    return mix(picture, np.full_like(picture, 0.95 if dark else 0.06), 0.92 * share)


def arrow(picture: Picture, target: Region, light: tuple[float, float]) -> Picture:
    """The mark by which somebody shows from where light is to come."""
    height, width = picture.shape[:2]
    tip = np.array([target.x * width, target.y * height])
    tail = np.clip(
        tip + np.array(light) / np.hypot(*light) * 0.3 * height,
        8,
        [width - 8, height - 8],
    )
    marked = levels(picture)
    cv2.arrowedLine(marked, tail.astype(int).tolist(), tip.astype(int).tolist(), (255, 225, 0), 4, cv2.LINE_AA,
                    tipLength=0.25)  # fmt: skip
    return (marked / 255).astype(np.float32)


def levels(picture: Picture) -> NDArray[np.uint8]:
    return np.ascontiguousarray(np.round(picture * 255).astype(np.uint8))


def png(picture: Picture) -> bytes:
    """Run lengths alone compress photographs as well as anything fast does: a third less time, a tenth less data."""
    how = [
        cv2.IMWRITE_PNG_COMPRESSION,
        1,
        cv2.IMWRITE_PNG_STRATEGY,
        cv2.IMWRITE_PNG_STRATEGY_RLE,
    ]
    return bytes(cv2.imencode(".png", levels(picture)[..., ::-1], how)[1])


# --- photographs --------------------------------------------------------------------------------------------

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
        left = crop.x - crop.across
        top = crop.y - crop.down
        width = 2 * crop.across
        height = 2 * crop.down
        return Region(
            (self.x - left) / width,
            (self.y - top) / height,
            self.across / width,
            self.down / height,
        )

    def grown(self, factor: float) -> Region:
        return Region(self.x, self.y, self.across * factor, self.down * factor)

    def drawn(self, shape: tuple[int, ...], soft: float = 0.0) -> Mask:
        height, width = shape[:2]
        mask = np.zeros((height, width), np.float32)
        middle = (round(self.x * width), round(self.y * height))
        axes = (self.across * width, self.down * height)
        cv2.ellipse(
            mask,
            middle,
            (round(axes[0]), round(axes[1])),
            0,
            0,
            360,
            1.0,
            -1,
            cv2.LINE_AA,
        )
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
    """Thing that is edited."""
    entity: Region
    """The individual that the target belongs to: a head, a cup."""
    second: PhotoThing
    """The other thing that an instruction names, or an editor confuses with the target."""
    light: tuple[float, float]
    """From where the light comes: right and down are positive."""
    ball: Region
    """Place and size of a possible ball or balloon; only its half width counts."""
    ball_name: str
    on_ground: bool
    lettering: Region
    """Room for a word."""
    surface: str
    """Surface that the word is written on."""
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
    one = _PHOTOGRAPHS[index % len(_PHOTOGRAPHS)]
    variation = index // len(_PHOTOGRAPHS)
    if seed == variation == 0:
        return one
    # Plain floats: NumPy's would widen every picture.
    left, top, right, bottom = (
        np.random.default_rng([seed, index]).uniform(0, _JITTER, 4).tolist()
    )
    crop = Region(
        (1 + left - right) / 2,
        (1 + top - bottom) / 2,
        (1 - left - right) / 2,
        (1 - top - bottom) / 2,
    )
    things = {name: PhotoThing(thing.name, thing.place.within(crop)) for name in ("target", "second")
              if (thing := getattr(one, name))}  # fmt: skip
    places = {
        name: getattr(one, name).within(crop)
        for name in ("entity", "ball", "lettering")
    }
    return Photograph(
        **{**vars(one), **things, **places, "variation": variation, "crop": crop}
    )


def load(one: Photograph) -> Picture:
    """Its pixels."""
    return read(one.file, one.crop)


@lru_cache(maxsize=32)
def read(file: str, crop: Region = FULL) -> Picture:
    """Return the pixels of a file from the installed package alone: nothing is fetched."""
    package = find_spec("skimage")
    if package is None or package.origin is None:
        raise UsageError(
            "probes are made from photographs of scikit-image: pip install 'editjudge[probes]'"
        )
    path = Path(package.origin).parent / "data" / file
    picture = cv2.imread(str(path), cv2.IMREAD_COLOR)
    if picture is None:
        raise UsageError(
            f"{path}: the photograph is missing; install scikit-image again"
        )
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
    small = cv2.resize(
        (picture * 255).astype(np.uint8),
        None,
        fx=factor,
        fy=factor,
        interpolation=cv2.INTER_AREA,
    )
    labels = np.where(
        place.drawn(small.shape)[..., 0] > 0.5, cv2.GC_PR_FGD, cv2.GC_BGD
    ).astype(np.uint8)
    models: Any = (np.zeros((1, 65)), np.zeros((1, 65)))
    cv2.setRNGSeed(0)  # the clustering inside starts at random
    cv2.grabCut(
        np.ascontiguousarray(small), labels, None, *models, 3, cv2.GC_INIT_WITH_MASK
    )  # type: ignore[call-overload]
    thing = np.isin(labels, (cv2.GC_FGD, cv2.GC_PR_FGD)).astype(np.float32)
    thing = cv2.morphologyEx(thing, cv2.MORPH_CLOSE, np.ones((5, 5), np.uint8)).astype(
        np.float32
    )
    ellipse = place.drawn(small.shape)[..., 0]
    thing = thing if thing.sum() > _LEAST * ellipse.sum() else ellipse
    full = cv2.resize(thing, picture.shape[1::-1], interpolation=cv2.INTER_CUBIC)[
        ..., None
    ]
    return feathered(np.clip(full, 0, 1), 1.5)


def cut(one: Photograph, place: Region) -> Mask:
    """The thing at a place of a photograph, as `outline` finds it."""
    return outline(one.file, place, one.crop)
