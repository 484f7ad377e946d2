"""Photographs included in scikit-image, regions in them, and operations on pixels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

from editjudge.errors import UsageError

Pixels: TypeAlias = NDArray[np.float32]
"""RGB from 0 to 1."""
Mask: TypeAlias = NDArray[np.float32]
"""Height x width x 1, from 0 to 1."""
Shape: TypeAlias = tuple[int, ...]
"""Height and width, optionally with channels."""

# --- regions ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Region:
    """An ellipse, with its centre and half axes as fractions of the image's width and height."""

    x: float
    y: float
    across: float
    down: float

    def within(self, crop: Region) -> Region:
        """Return the same region after a crop to the bounding box of another region."""
        width = 2 * crop.across
        height = 2 * crop.down
        return Region(
            (self.x - (crop.x - crop.across)) / width,
            (self.y - (crop.y - crop.down)) / height,
            self.across / width,
            self.down / height,
        )

    def grown(self, factor: float) -> Region:
        return replace(self, across=self.across * factor, down=self.down * factor)

    def drawn(self, shape: Shape, soft: float = 0.0) -> Mask:
        """Return a mask of the ellipse, feathered by `soft` pixels."""
        height, width = shape[:2]
        mask = np.zeros((height, width, 1), np.float32)
        centre = (round(self.x * width), round(self.y * height))
        axes = (round(self.across * width), round(self.down * height))
        cv2.ellipse(mask, centre, axes, 0, 0, 360, 1.0, -1, cv2.LINE_AA)
        return feathered(mask, soft) if soft else mask

    def coordinates(self, shape: Shape) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return each pixel's distance from the centre, to the right and down, in units of the half axes."""
        xs, ys = grid(shape)
        return (
            (xs / shape[1] - self.x) / self.across,
            (ys / shape[0] - self.y) / self.down,
        )


FULL = Region(0.5, 0.5, 0.5, 0.5)
"""Crop region that keeps the entire image."""


def grid(shape: Shape) -> tuple[Pixels, Pixels]:
    """Return the column and the row of each pixel."""
    ys, xs = np.mgrid[0 : shape[0], 0 : shape[1]].astype(np.float32)
    return xs, ys


def feathered(mask: Mask, soft: float) -> Mask:
    return cv2.GaussianBlur(mask, (0, 0), soft).astype(np.float32).reshape(mask.shape)


def grown(mask: Mask, margin: int) -> Mask:
    """Return the mask dilated by `margin` pixels and feathered."""
    around = cv2.dilate(mask, ellipse(2 * margin + 1)).astype(np.float32)
    return feathered(around.reshape(mask.shape), 2.0)


def ellipse(side: int) -> NDArray[Any]:
    """Return a round kernel for morphology."""
    return cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (side, side))


# --- colour and light ---------------------------------------------------------------------------------------

COLOURS = {"red": 30.0, "green": 145.0, "blue": 268.0, "purple": 315.0}
"""Hue angles in Lab, in degrees."""
_CHROMA = 42.0
_VARIED = 0.25
"""Share of an object's original chroma that is kept under a new colour, so that the colour varies naturally."""


def to_lab(image: Pixels) -> Pixels:
    return cv2.cvtColor(np.ascontiguousarray(image), cv2.COLOR_RGB2LAB).astype(
        np.float32
    )


def to_rgb(lab: NDArray[Any]) -> Pixels:
    return np.clip(
        cv2.cvtColor(lab.astype(np.float32), cv2.COLOR_LAB2RGB), 0, 1
    ).astype(np.float32)


def mix(below: Pixels, above: Pixels, share: Mask | float) -> Pixels:
    """Blend one image over another and clip the result. Where the share is 0, the lower image remains exactly as it
    was."""
    mixed = np.clip(below * (1 - share) + above * share, 0, 1)
    return np.where(share > 0, mixed, below).astype(np.float32)


def hue_direction(hue: float) -> Pixels:
    """Return the unit vector of a hue in the a-b plane of Lab."""
    angle = np.radians(hue)
    return np.array([np.cos(angle), np.sin(angle)], np.float32)


def colours_by_distance(image: Pixels, mask: Mask) -> list[str]:
    """Return the colours ordered by distance from the mean hue under a mask, nearest first."""
    a, b = to_lab(image)[mask[..., 0] > 0.5].mean(axis=0)[1:]
    mean = np.degrees(np.arctan2(b, a))
    return sorted(
        COLOURS, key=lambda name: abs((COLOURS[name] - mean + 180) % 360 - 180)
    )


def recoloured(image: Pixels, mask: Mask, hue: float) -> Pixels:
    """Recolour the pixels under a mask, keeping their shading and texture."""
    lab = to_lab(image)
    lab[..., 1:] = _VARIED * lab[..., 1:] + _CHROMA * hue_direction(hue)
    return mix(image, to_rgb(lab), mask)


def stained(image: Pixels, mask: Mask, hue: float, share: float, seed: int) -> Pixels:
    """Stain a share of the pixels under a mask."""
    stain = np.clip((share - clouds(image.shape, 22, seed)) * 60 + 0.5, 0, 1)
    return mix(image, recoloured(image, np.ones_like(mask), hue), 0.55 * stain * mask)


def shifted(
    image: Pixels, mask: Mask | float, by: tuple[float, float, float]
) -> Pixels:
    """Shift the colours under a mask by a vector in Lab."""
    return mix(image, to_rgb(to_lab(image) + np.array(by, np.float32)), mask)


def turned(image: Pixels, degrees: float) -> Pixels:
    """Return the image with all hues rotated by `degrees`."""
    lab = to_lab(image)
    cosine = np.cos(np.radians(degrees))
    sine = np.sin(np.radians(degrees))
    lab[..., 1:] = (
        lab[..., 1:] @ np.array([[cosine, -sine], [sine, cosine]], np.float32).T
    )
    return to_rgb(lab)


def lit(image: Pixels, stops: Pixels) -> Pixels:
    """Brighten by this many stops, as a product in linear light. Highlights are compressed softly instead of clipped."""
    linear = image**2.2 * 2.0**stops
    shoulder = np.where(linear > 0.8, 1 - 0.2 * np.exp((0.8 - linear) / 0.2), linear)
    return (np.clip(shoulder, 0, 1) ** (1 / 2.2)).astype(np.float32)


def slope(shape: Shape, region: Region, towards: tuple[float, float]) -> Pixels:
    """Return a ramp from -1/2 to 1/2 over a region, rising in the direction `towards`."""
    x, y = region.coordinates(shape)
    along = (x * towards[0] + y * towards[1]) / 2
    ramp: Pixels = np.clip(along / np.hypot(*towards), -0.5, 0.5)[..., None]
    return ramp


# --- noise and damage ---------------------------------------------------------------------------------------


def clouds(shape: Shape, size: float, seed: int) -> Pixels:
    """Return smooth noise in blobs of about `size` pixels. Its values are ranks from 0 to 1, so a threshold selects
    that share of the image."""
    noise = np.random.default_rng(seed).normal(0, 1, shape[:2]).astype(np.float32)
    smooth = cv2.GaussianBlur(noise, (0, 0), size)
    ranks = np.empty(smooth.size, np.float32)
    ranks[np.argsort(smooth, axis=None)] = np.linspace(
        0, 1, smooth.size, dtype=np.float32
    )
    return ranks.reshape(*shape[:2], 1)


def grain(shape: Shape, seed: int) -> Pixels:
    """Return noise of standard deviation 1, as soft as sensor noise."""
    noise = np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32)
    soft = blurred(noise, 0.6)
    even: Pixels = (soft / soft.std()).astype(np.float32)
    return even


def blurred(image: Pixels, sigma: float) -> Pixels:
    return cv2.GaussianBlur(image, (0, 0), sigma).astype(np.float32)


def compressed(image: Pixels, quality: int) -> Pixels:
    """Return the image after JPEG compression at this quality."""
    encoded = cv2.imencode(
        ".jpg", levels(image)[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, quality]
    )[1]
    decoded = np.asarray(cv2.imdecode(encoded, cv2.IMREAD_COLOR))
    return (decoded[..., ::-1] / 255).astype(np.float32)


def resized(image: Pixels, width: int, height: int) -> Pixels:
    how = cv2.INTER_AREA if width < image.shape[1] else cv2.INTER_LINEAR
    return cv2.resize(image, (width, height), interpolation=how).astype(np.float32)


def moved(image: Pixels, region: Region, by: tuple[float, float]) -> Pixels:
    """Push a region aside by fractions of its half axes. The surroundings stretch and shrink, so there is no break."""
    height, width = image.shape[:2]
    xs, ys = grid(image.shape)
    far = np.hypot(*region.coordinates(image.shape))
    push = 0.5 + 0.5 * np.cos(np.pi * np.clip((far - 1) / 1.7, 0, 1))
    pushed = cv2.remap(
        image,
        xs - push * by[0] * region.across * width,
        ys - push * by[1] * region.down * height,
        cv2.INTER_CUBIC,
        borderMode=cv2.BORDER_REFLECT,
    )
    return pushed.clip(0, 1).astype(np.float32)


# --- things -------------------------------------------------------------------------------------------------


def shaded(
    normal: tuple[Pixels, Pixels, Pixels], light: NDArray[Any], hue: float
) -> Pixels:
    """Paint a smooth surface from its normals and the direction of the light."""
    facing = np.clip(
        normal[0] * light[0] + normal[1] * light[1] + normal[2] * light[2], 0, 1
    )
    lightness = 18 + 50 * facing + 25 * facing**30 + 1.2 * grain(facing.shape, 11)
    chroma = (0.35 + 0.65 * facing - 0.6 * facing**30) * 1.3 * _CHROMA
    return to_rgb(
        np.concatenate(
            [lightness[..., None], chroma[..., None] * hue_direction(hue)], axis=2
        )
    )


def shadowed(image: Pixels, region: Region, soft: float) -> Pixels:
    return mix(image, image * 0.35, 0.8 * region.drawn(image.shape, soft))


def ball(
    photograph: Photograph,
    image: Pixels,
    region: Region,
    hue: float,
    slices: float = 0.0,
) -> Pixels:
    """Paint a shaded ball. `slices` makes it an impossible object, whose horizontal bands are shifted by this many
    diameters."""
    height, width = image.shape[:2]
    radius = region.across * width
    right, down = photograph.light
    xs, ys = grid(image.shape)
    band = np.floor((ys - region.y * height) / radius * 2.5) % 2 * 2 - 1
    x = (xs - region.x * width - band * slices * radius) / radius
    y = (ys - region.y * height) / radius
    inside = np.clip((1 - np.hypot(x, y)) * radius / 1.5 + 0.5, 0, 1)[..., None]
    light = np.array([right, down, 0.9]) / np.hypot(np.hypot(right, down), 0.9)
    z = np.sqrt(np.clip(1 - x * x - y * y, 0, 1))
    painted = shaded((x, y, z), light, hue)
    if photograph.on_ground:
        foot = Region(
            region.x - right * 0.02,
            region.y + radius / height * 0.95,
            region.across * 1.1,
            radius / height * 0.25,
        )
        image = shadowed(image, foot, radius / 6 + 1)
    return mix(image, painted, inside.astype(np.float32))


def lettering(image: Pixels, region: Region, text: str, warp: float = 0.0) -> Pixels:
    """Write text in the middle of a region, light on dark or dark on light. `warp` bends it, in units of the letters'
    height."""
    height, width = image.shape[:2]
    big = 4
    font = cv2.FONT_HERSHEY_DUPLEX
    ink = np.zeros((height * big, width * big), np.uint8)
    (wide, tall), _ = cv2.getTextSize(text, font, 1.0, 2)
    size = min(
        round(2 * region.across * width) * big / wide,
        round(2 * region.down * height) * big / tall,
    )
    corner = (
        round(region.x * width * big - wide * size / 2),
        round(region.y * height * big + tall * size / 2),
    )
    thickness = max(1, round(size * 2.2))
    cv2.putText(ink, text, corner, font, size, 255, thickness, cv2.LINE_AA)
    small = cv2.resize(ink, (width, height), interpolation=cv2.INTER_AREA)
    if warp:
        letter = tall * size / big
        at = [
            plane
            + 2
            * warp
            * letter
            * (2 * clouds(image.shape, letter / 3, seed)[..., 0] - 1)
            for seed, plane in enumerate(grid(image.shape), 20)
        ]
        small = cv2.remap(small, at[0], at[1], cv2.INTER_LINEAR)
    share = feathered((small / 255).astype(np.float32)[..., None], 0.6)
    dark = float(image[region.drawn(image.shape)[..., 0] > 0.5].mean()) < 0.5
    return mix(image, np.full_like(image, 0.95 if dark else 0.06), 0.92 * share)


def arrow(image: Pixels, target: Region, light: tuple[float, float]) -> Pixels:
    """Draw an arrow that shows the direction of light, as users draw it."""
    height, width = image.shape[:2]
    tip = np.array([target.x * width, target.y * height])
    away = np.array(light) / np.hypot(*light) * 0.3 * height
    tail = np.clip(tip + away, 8, [width - 8, height - 8])
    start, end = (point.astype(int).tolist() for point in (tail, tip))
    marked = levels(image)
    cv2.arrowedLine(marked, start, end, (255, 225, 0), 4, cv2.LINE_AA, tipLength=0.25)
    return (marked / 255).astype(np.float32)


def levels(image: Pixels) -> NDArray[np.uint8]:
    return np.ascontiguousarray(np.round(image * 255).astype(np.uint8))


def png(image: Pixels) -> bytes:
    """Encode as PNG with run lengths only. For photographs this takes a third less time and a tenth less space than
    other fast settings."""
    strategy = (cv2.IMWRITE_PNG_STRATEGY, cv2.IMWRITE_PNG_STRATEGY_RLE)
    how = [cv2.IMWRITE_PNG_COMPRESSION, 1, *strategy]
    return bytes(cv2.imencode(".png", levels(image)[..., ::-1], how)[1])


# --- photographs --------------------------------------------------------------------------------------------

SIDE = 512
"""Pixels on the longer side. It is the same for all photographs, so doses in pixels mean the same in each."""
_JITTER = 0.05
"""Share of a side that a variation may crop away at each edge."""
_CUTTING = 360
"""Longer side in pixels at which objects are segmented. After feathering the result is as good as at full size, and
segmentation is several times faster."""
_LEAST = 0.3
"""Minimum share of its ellipse that a segmented object must fill. Otherwise the ellipse itself is used."""


@dataclass(frozen=True)
class Photograph:
    name: str
    file: str
    target_name: str
    target: Region
    """Object that is edited."""
    entity: Region
    """The individual that the target belongs to, such as a head or a cup."""
    second_name: str
    second: Region
    """Another object that an instruction names, or that an editor confuses with the target."""
    light: tuple[float, float]
    """Direction of the light: right and down are positive."""
    ball: Region
    """Position and size of a ball or balloon to add; only the half width of the region is used."""
    ball_name: str
    on_ground: bool
    lettering: Region
    """Free area for a word."""
    surface: str
    """Surface on which the word is written."""
    variation: int = 0
    crop: Region = FULL


_PHOTOGRAPHS = (
    Photograph(
        "astronaut", "astronaut.png",
        "woman's hair", Region(0.44, 0.115, 0.16, 0.115), Region(0.44, 0.19, 0.15, 0.18),
        "brown fuel tank of the model shuttle", Region(0.815, 0.13, 0.05, 0.15),
        (-0.6, -0.8), Region(0.655, 0.3, 0.05, 0.05), "balloon between the woman and the model shuttle", False,
        Region(0.76, 0.87, 0.16, 0.05), "the black helmet",
    ),
    Photograph(
        "coffee", "coffee.png",
        "cup", Region(0.485, 0.32, 0.21, 0.31), Region(0.485, 0.32, 0.2, 0.3),
        "spoon", Region(0.61, 0.68, 0.075, 0.15),
        (0.5, -0.85), Region(0.9, 0.66, 0.05, 0.05), "ball on the table to the right of the saucer", True,
        Region(0.84, 0.12, 0.14, 0.06), "the table",
    ),
    Photograph(
        "cat", "chelsea.png",
        "larger of the cat's eyes", Region(0.385, 0.395, 0.085, 0.115), Region(0.39, 0.39, 0.12, 0.17),
        "smaller of the cat's eyes", Region(0.71, 0.455, 0.065, 0.1),
        (0.4, -0.9), Region(0.92, 0.5, 0.055, 0.055), "ball in the background to the right of the cat", False,
        Region(0.83, 0.88, 0.14, 0.06), "the blanket",
    ),
    Photograph(
        "rocket", "rocket.jpg",
        "rocket", Region(0.503, 0.64, 0.03, 0.33), Region(0.503, 0.62, 0.045, 0.36),
        "lamp to the left of the rocket", Region(0.3, 0.925, 0.045, 0.065),
        (0.6, 0.8), Region(0.38, 0.25, 0.04, 0.04), "balloon in the sky to the left of the rocket", False,
        Region(0.72, 0.16, 0.17, 0.06), "the sky",
    ),
    Photograph(
        "motorcycle", "motorcycle_left.png",
        "rear wheel", Region(0.27, 0.63, 0.12, 0.2), Region(0.27, 0.63, 0.12, 0.2),
        "red box behind the front wheel", Region(0.85, 0.47, 0.065, 0.11),
        (0.2, -1.0), Region(0.09, 0.83, 0.05, 0.05), "ball on the floor in the lower left corner", True,
        Region(0.62, 0.9, 0.17, 0.05), "the floor",
    ),
)  # fmt: skip
"""Middlebury's motorcycle, NASA's astronaut, SpaceX's rocket, and the authors' cup and cat. All of these photographs
are free to use."""

NAMES = tuple(photograph.name for photograph in _PHOTOGRAPHS)


def photograph(index: int, seed: int = 0) -> Photograph:
    """Return a photograph by number. After the last one, the photographs are used again with other crops. With seed 0,
    the first round is uncropped."""
    original = _PHOTOGRAPHS[index % len(_PHOTOGRAPHS)]
    variation = index // len(_PHOTOGRAPHS)
    if seed == variation == 0:
        return original
    # Python floats, because NumPy's would convert every image to double precision.
    left, top, right, bottom = (
        np.random.default_rng([seed, index]).uniform(0, _JITTER, 4).tolist()
    )
    crop = Region(
        (1 + left - right) / 2,
        (1 + top - bottom) / 2,
        (1 - left - right) / 2,
        (1 - top - bottom) / 2,
    )
    return replace(
        original,
        target=original.target.within(crop),
        entity=original.entity.within(crop),
        second=original.second.within(crop),
        ball=original.ball.within(crop),
        lettering=original.lettering.within(crop),
        variation=variation,
        crop=crop,
    )


@lru_cache(maxsize=32)
def read(file: str, crop: Region = FULL) -> Pixels:
    """Read an image file from the installed scikit-image. Nothing is downloaded."""
    package = find_spec("skimage")
    if package is None or package.origin is None:
        raise UsageError(
            "probes are made from photographs of scikit-image: pip install 'editjudge[probes]'"
        )
    path = Path(package.origin).parent / "data" / file
    image = cv2.imread(str(path), cv2.IMREAD_COLOR)
    if image is None:
        raise UsageError(
            f"{path}: the photograph is missing; install scikit-image again"
        )
    height, width = image.shape[:2]
    left, right = (round((crop.x + side * crop.across) * width) for side in (-1, 1))
    top, bottom = (round((crop.y + side * crop.down) * height) for side in (-1, 1))
    image = image[top:bottom, left:right]
    factor = SIDE / max(image.shape[:2])
    how = cv2.INTER_AREA if factor < 1 else cv2.INTER_CUBIC
    image = cv2.resize(image, None, fx=factor, fy=factor, interpolation=how)
    return (image[..., ::-1] / 255).astype(np.float32)


@lru_cache(maxsize=64)
def outline(file: str, region: Region, crop: Region = FULL) -> Mask:
    """Return a feathered mask that follows the outline of the object in a region."""
    image = read(file, crop)
    factor = _CUTTING / max(image.shape[:2])
    small = cv2.resize(
        (image * 255).astype(np.uint8),
        None,
        fx=factor,
        fy=factor,
        interpolation=cv2.INTER_AREA,
    )
    rough = region.drawn(small.shape)[..., 0]
    labels = np.where(rough > 0.5, cv2.GC_PR_FGD, cv2.GC_BGD).astype(np.uint8)
    models: Any = (np.zeros((1, 65)), np.zeros((1, 65)))
    cv2.setRNGSeed(0)  # GrabCut's clustering starts at random
    cv2.grabCut(
        np.ascontiguousarray(small), labels, None, *models, 3, cv2.GC_INIT_WITH_MASK
    )  # type: ignore[call-overload]
    cut = np.isin(labels, (cv2.GC_FGD, cv2.GC_PR_FGD)).astype(np.float32)
    thing = cv2.morphologyEx(cut, cv2.MORPH_CLOSE, np.ones((5, 5), np.uint8))
    if thing.sum() <= _LEAST * rough.sum():
        thing = rough
    full = cv2.resize(thing, image.shape[1::-1], interpolation=cv2.INTER_CUBIC)
    return feathered(np.clip(full, 0, 1)[..., None].astype(np.float32), 1.5)
