"""Edits for the demo: simulated editors recolour an object in each of two dozen photographs and drawn still lifes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import cv2
import numpy as np

from editjudge.edit import Edit
from editjudge.vision.probes import drawing
from editjudge.vision.probes.drawing import (
    COLOURS,
    Mask,
    Pixels,
    Region,
    feathered,
    grid,
    outline,
    read,
)

# --- drawn scenes -------------------------------------------------------------------------------------------

SHAPE = (384, 512)
"""Height and width of a drawn scene."""
_GROUNDS = {"grass": (58, 110, 34), "gravel": (62, 70, 8), "brick": (60, 50, 22)}
"""Public-domain photographs (CC0) of the ground, with the lightness, hue and chroma they are given."""
_HUES = (30.0, 60.0, 95.0, 145.0, 268.0, 315.0)
_SLOTS = (0.2, 0.5, 0.8)
"""Positions of the objects, as fractions of the width."""


def _ball(down: Pixels) -> Pixels:
    return np.sqrt(np.clip(1 - (2 * down - 1) ** 2, 0, 1))


def _egg(down: Pixels) -> Pixels:
    return _ball(down) * (0.8 + 0.25 * down)


def _vase(down: Pixels) -> Pixels:
    belly = np.sin(np.pi * np.clip(1.05 * down - 0.12, 0, 1)) ** 2
    radius: Pixels = 0.42 + 0.5 * belly + 0.12 * np.exp(-((down / 0.05) ** 2))
    return radius


def _bottle(down: Pixels) -> Pixels:
    shoulder = np.clip((down - 0.3) / 0.16, 0, 1)
    radius: Pixels = 0.34 + 0.6 * shoulder**2 * (3 - 2 * shoulder)
    return radius


SHAPES: Mapping[str, tuple[float, Callable[[Pixels], Pixels]]] = {
    "ball": (2.0, _ball),
    "egg": (2.6, _egg),
    "vase": (3.1, _vase),
    "bottle": (4.4, _bottle),
}
"""Surfaces of revolution. Each has a height, in radii, and a function that returns the radius, as a share of the
largest one. The function's argument is the distance from the top, as a share of the height."""


def still_life(number: int, seed: int = 0) -> tuple[Pixels, dict[str, Mask]]:
    """Draw a scene with three objects. Return the image, and a mask of the visible part of each object. The result
    depends only on number and seed."""
    height, width = SHAPE
    rng = np.random.default_rng([seed, number])
    light = float(rng.choice([-1, 1]) * rng.uniform(0.5, 1.0))
    horizon = height * float(rng.uniform(0.3, 0.42))
    image = _room(list(_GROUNDS)[number % len(_GROUNDS)], horizon, light, rng)
    names = rng.permutation(list(SHAPES))[: len(_SLOTS)]
    hues = rng.permutation(_HUES)
    slots = rng.permutation(_SLOTS)
    masks: dict[str, Mask] = {}
    for nearer, name in enumerate(names):
        x = width * (slots[nearer] + rng.uniform(-0.04, 0.04))
        foot = horizon + (height - horizon) * (0.5 + 0.18 * nearer)
        radius = rng.uniform(36, 44) * (0.85 + 0.12 * nearer)
        image = _shadows(image, x, foot, radius, light)
        normal, mask = _surface(name, x, foot, radius)
        towards = np.array([light, -0.75, 0.8])
        towards /= np.linalg.norm(towards)
        image = drawing.mix(image, drawing.shaded(normal, towards, hues[nearer]), mask)
        masks = {other: behind * (1 - mask) for other, behind in masks.items()}
        masks[str(name)] = mask
    soft = drawing.blurred(image, 0.7)  # like a lens
    grain = 0.012 * drawing.grain(soft.shape, number)
    photographed = np.clip(soft + grain, 0, 1).astype(np.float32)
    return photographed, {name: feathered(mask, 1.5) for name, mask in masks.items()}


def _room(
    ground: str, horizon: float, light: float, rng: np.random.Generator
) -> Pixels:
    """Draw the ground up to the horizon, and above it a wall that is brighter towards the light."""
    height, width = SHAPE
    xs, ys = (plane[..., None] for plane in grid(SHAPE))
    plaster = _colour(rng.uniform(55, 78), rng.uniform(0, 360), rng.uniform(3, 14))
    spots = drawing.clouds(SHAPE, 18, int(rng.integers(1000))) - 0.5
    wall = plaster * (1.1 - 0.25 * ys / height + 0.05 * spots)
    nearness = (ys - horizon) / (height - horizon)
    floor = _floor(ground, horizon) * (0.75 + 0.35 * nearness)
    corner = 1 - 0.45 * np.exp(-np.abs(ys - horizon) / 8)
    brighter = 1 + 0.25 * light * (xs / width - 0.5)
    both = np.where(ys < horizon, wall, floor) * corner * brighter
    room: Pixels = np.clip(both, 0, 1).astype(np.float32)
    return room


def _floor(ground: str, horizon: float) -> Pixels:
    """Recolour a photograph of the ground from above, and project it up to the horizon."""
    height, width = SHAPE
    gray = read(f"{ground}.png").mean(axis=2)
    tiles = np.tile(gray.T if ground == "brick" else gray, (2, 3))
    high, wide = tiles.shape
    near = 0.9 * high
    corners = [[0, 0], [wide, 0], [0.72 * wide, near], [0.28 * wide, near]]
    trapezium = [[0, horizon], [width, horizon], [width, height], [0, height]]
    warp = cv2.getPerspectiveTransform(
        np.array(corners, np.float32), np.array(trapezium, np.float32)
    )
    # softened first, to avoid aliasing in the distance
    laid = cv2.warpPerspective(drawing.blurred(tiles, 1.5), warp, (width, height))
    coloured = 2 * laid[..., None] * _colour(*_GROUNDS[ground])
    floor: Pixels = np.clip(coloured, 0, 1).astype(np.float32)
    return floor


def _colour(lightness: float, hue: float, chroma: float) -> Pixels:
    lab = np.array([[[lightness, *chroma * drawing.hue_direction(hue)]]])
    colour: Pixels = drawing.to_rgb(lab)[0, 0]
    return colour


def _surface(
    name: str, x: float, foot: float, radius: float
) -> tuple[tuple[Pixels, Pixels, Pixels], Mask]:
    """Return the surface normal of an object at each pixel, and its mask."""
    tall, profile = SHAPES[name]
    tall *= radius
    xs, ys = grid(SHAPE)
    down = (ys - foot) / tall + 1
    within = np.clip(down, 0, 1)
    half = np.maximum(profile(within) * radius, 1e-3)
    right = (xs - x) / half
    covered = np.clip((1 - np.abs(right)) * half + 0.5, 0, 1)
    covered *= np.clip(down * tall + 0.5, 0, 1)
    covered *= np.clip((1 - down) * tall + 0.5, 0, 1)
    step = np.float32(0.01)
    below = profile(np.clip(within + step, 0, 1))
    above = profile(np.clip(within - step, 0, 1))
    up = -(below - above) * radius / (2 * step * tall)
    front = np.sqrt(np.clip(1 - right * right, 0, 1))
    length = np.sqrt(right**2 + up**2 + front**2)
    return (right / length, up / length, front / length), covered[..., None]


def _shadows(
    image: Pixels, x: float, foot: float, radius: float, light: float
) -> Pixels:
    """Draw the shadow that an object casts, and the dark contact line under it."""
    height, width = SHAPE
    across = radius / width
    down = radius / height
    cast = Region(
        x / width - 0.9 * light * across, foot / height, 1.35 * across, 0.3 * down
    )
    contact = Region(x / width, foot / height, 0.5 * across, 0.08 * down)
    return drawing.shadowed(drawing.shadowed(image, cast, 0.13 * radius), contact, 2.5)


# --- pretend editors ----------------------------------------------------------------------------------------

_PHOTOGRAPHED = {
    "astronaut.png": ("suit", Region(0.37, 0.78, 0.46, 0.38)),
    "coffee.png": ("coffee in the cup", Region(0.48, 0.37, 0.15, 0.14)),
    "chelsea.png": ("larger of the cat's eyes", Region(0.385, 0.395, 0.085, 0.115)),
    "rocket.jpg": ("rocket", Region(0.503, 0.64, 0.03, 0.33)),
    "motorcycle_left.png": (
        "box behind the front wheel",
        Region(0.85, 0.47, 0.065, 0.11),
    ),
    "camera.png": ("sky", Region(0.5, 0.1, 0.8, 0.3)),
    "coins.png": (
        "coin in the upper right corner",
        Region(0.872, 0.145, 0.085, 0.105),
    ),
    "retina.jpg": ("bright disc on the left", Region(0.17, 0.46, 0.06, 0.07)),
}
"""Photographs in scikit-image's wheel, each with the object that is recoloured.

These are used in addition to the photographs of the probes. Two are in the public domain (CC0); the Brooklyn Museum's
coins have no known restrictions.
"""
_DRAWN = 16
_SHADES = 9.0
"""Degrees by which the colour that an editor chooses differs from the nominal hue."""
_SOFT = 1.2
"""Width in pixels over which the new colour fades out beyond the feathered mask, so that there is no seam."""
_QUALITIES = (86, 97)
"""Range of JPEG qualities with which editors save."""


@dataclass(frozen=True)
class DemoSource:
    """An image, and the object in it to recolour."""

    name: str
    image: Pixels
    thing: str
    mask: Mask
    """Mask of the object."""


def sources() -> Iterator[DemoSource]:
    """Yield the photographs, then the drawn scenes."""
    for file, (thing, region) in _PHOTOGRAPHED.items():
        name = file.partition(".")[0]
        yield DemoSource(name, read(file), thing, outline(file, region))
    for number in range(_DRAWN):
        image, masks = still_life(number)
        nearest = list(masks)[-1]
        name = f"still-life-{number + 1}"
        yield DemoSource(name, image, nearest, masks[nearest])


EDITORS: Mapping[str, float] = {"neat": 0.03, "tidy": 0.03, "leaky": 0.35}
"""Maximum share of the rest of the image that each editor stains. `neat` and `tidy` are equally good, and differ only
by chance."""


def pretend(seed: int = 0) -> Iterator[Edit]:
    """Make and yield the edits of all editors for the same instructions, image by image. The result depends only on the
    seed.
    """
    with ThreadPoolExecutor(2) as pool:  # OpenCV releases the interpreter's lock
        for edits in pool.map(lambda pair: _edits(seed, *pair), enumerate(sources())):
            yield from edits


def _edits(seed: int, number: int, source: DemoSource) -> list[Edit]:
    before = drawing.png(source.image)
    mask = feathered(source.mask, _SOFT)
    # one of the two colours farthest from the object's colour
    colour = drawing.colours_by_distance(source.image, source.mask)[-1 - number % 2]
    edits = []
    for editor, (model, most) in enumerate(EDITORS.items()):
        rng = np.random.default_rng([seed, number, editor])
        hue = COLOURS[colour] + rng.uniform(-_SHADES, _SHADES)
        edited = drawing.stained(
            drawing.recoloured(source.image, mask, hue),
            1 - drawing.grown(mask, 6),
            hue,
            rng.uniform(most / 4, most),
            int(rng.integers(1000)),
        )
        edit = Edit(
            f"{source.name}-{model}",
            input=before,
            edited=drawing.png(
                drawing.compressed(edited, int(rng.integers(*_QUALITIES)))
            ),
            instruction=f"Make the {source.thing} {colour}.",
            edit_type="recolour",
            group=source.name,
            model=model,
        )
        edits.append(edit)
    return edits
