"""The demo's edits: pretend editors that recolour one thing in each of two dozen photographs and drawn still lifes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from editjudge.edit import Edit
from editjudge.vision.probes import drawing as painting
from editjudge.vision.probes.drawing import (
    Mask,
    PhotoThing,
    Picture,
    Region,
    feathered,
    outline,
    read,
)

# --- drawn scenes -------------------------------------------------------------------------------------------

Floats = NDArray[np.float32]
WIDTH = 512
HEIGHT = 384
_GROUNDS = ("grass", "gravel", "brick")
"""Photographs that their authors gave to the public domain (CC0)."""
_HUES = (30.0, 60.0, 95.0, 145.0, 268.0, 315.0)
_CHROMA = 38.0
_SLOTS = (0.2, 0.5, 0.8)
"""Positions of the things, as shares of the width."""


def _round(down: Floats) -> Floats:
    return np.sqrt(np.clip(1 - (2 * down - 1) ** 2, 0, 1))


def _ovoid(down: Floats) -> Floats:
    return _round(down) * (0.8 + 0.25 * down)


def _vase(down: Floats) -> Floats:
    belly = np.sin(np.pi * np.clip(1.05 * down - 0.12, 0, 1)) ** 2
    rim = np.exp(-((down / 0.05) ** 2))
    radius: Floats = 0.42 + 0.5 * belly + 0.12 * rim
    return radius


def _bottle(down: Floats) -> Floats:
    shoulder = np.clip((down - 0.3) / 0.16, 0, 1)
    radius: Floats = 0.34 + 0.6 * shoulder**2 * (3 - 2 * shoulder)
    return radius


@dataclass(frozen=True)
class TurnedShape:
    """A surface of revolution."""

    tall: float
    """Height in radii."""
    radius: Callable[[Floats], Floats]
    """Radius at a share of the height from the top, as a share of the widest."""


SHAPES: Mapping[str, TurnedShape] = {
    "ball": TurnedShape(2.0, _round),
    "egg": TurnedShape(2.6, _ovoid),
    "vase": TurnedShape(3.1, _vase),
    "bottle": TurnedShape(4.4, _bottle),
}


@dataclass(frozen=True)
class PlacedThing:
    """A shape at its place, in pixels."""

    shape: TurnedShape
    x: float
    foot: float
    radius: float
    hue: float


@dataclass(frozen=True)
class StillLife:
    picture: Picture
    masks: Mapping[str, Mask]
    """Mask of the visible part of each thing."""


def still_life(number: int, seed: int = 0) -> StillLife:
    """Draw three things on one of the grounds: the same for the same number and seed."""
    rng = np.random.default_rng([seed, number])
    light = float(rng.choice([-1, 1]) * rng.uniform(0.5, 1.0))
    horizon = HEIGHT * float(rng.uniform(0.3, 0.42))
    picture = _room(_GROUNDS[number % len(_GROUNDS)], horizon, light, rng)
    names = rng.permutation(list(SHAPES))[: len(_SLOTS)]
    hues = rng.permutation(_HUES)
    slots = rng.permutation(_SLOTS)
    masks: dict[str, Mask] = {}
    for nearer, name in enumerate(names):
        x = WIDTH * (slots[nearer] + rng.uniform(-0.04, 0.04))
        foot = horizon + (HEIGHT - horizon) * (0.5 + 0.18 * nearer)
        radius = rng.uniform(36, 44) * (0.85 + 0.12 * nearer)
        thing = PlacedThing(SHAPES[name], x, foot, radius, hues[nearer])
        picture, mask = _placed(picture, thing, light)
        masks = {other: behind * (1 - mask) for other, behind in masks.items()}
        masks[str(name)] = mask
    soft = painting.blurred(picture, 0.7)  # as a lens would
    grain = 0.012 * painting.grain(soft.shape, number)
    photographed = np.clip(soft + grain, 0, 1).astype(np.float32)
    return StillLife(
        photographed, {name: feathered(mask, 1.5) for name, mask in masks.items()}
    )


def _room(name: str, horizon: float, light: float, rng: np.random.Generator) -> Picture:
    """Ground up to the horizon, above it a wall that is brighter towards the light."""
    down = np.arange(HEIGHT, dtype=np.float32)[:, None, None]
    right = np.linspace(-0.5, 0.5, WIDTH, dtype=np.float32)[None, :, None]
    hue = rng.uniform(0, 360)
    chroma = rng.uniform(3, 14)
    plaster = _colour(rng.uniform(55, 78), hue, chroma)
    spots = painting.clouds((HEIGHT, WIDTH), 18, int(rng.integers(1000))) - 0.5
    wall = plaster * (1.1 - 0.25 * down / HEIGHT + 0.05 * spots)
    nearness = (down - horizon) / (HEIGHT - horizon)
    ground = _ground(name, horizon, rng) * (0.75 + 0.35 * nearness)
    edge = np.clip((down - horizon) / 2 + 0.5, 0, 1)
    corner = 1 - 0.45 * np.exp(-np.abs(down - horizon) / 8)
    lit = (wall * (1 - edge) + ground * edge) * corner * (1 + 0.25 * light * right)
    room: Picture = np.clip(lit, 0, 1).astype(np.float32)
    return room


def _ground(name: str, horizon: float, rng: np.random.Generator) -> Picture:
    """A photograph of ground from above, coloured and laid down to the horizon."""
    grey = read(f"{name}.png").mean(axis=2)
    if name == "brick":
        grey = grey.T
    tiles = np.tile(grey, (2, 3))
    high, wide = tiles.shape
    near = 0.9 * high
    corners = np.array(
        [[0, 0], [wide, 0], [0.72 * wide, near], [0.28 * wide, near]], np.float32
    )
    trapezium = np.array(
        [[0, horizon], [WIDTH, horizon], [WIDTH, HEIGHT], [0, HEIGHT]], np.float32
    )
    twice = cv2.getPerspectiveTransform(corners, 2 * trapezium)
    large = cv2.warpPerspective(
        tiles, twice, (2 * WIDTH, 2 * HEIGHT), borderMode=cv2.BORDER_REFLECT
    )
    laid = cv2.resize(large, (WIDTH, HEIGHT), interpolation=cv2.INTER_AREA)[..., None]
    colours = {
        "grass": _colour(58, 110 + rng.uniform(-12, 15), 34),
        "gravel": _colour(62, 70 + rng.uniform(-40, 40), rng.uniform(4, 12)),
        "brick": _colour(60, 45 + rng.uniform(-10, 20), rng.uniform(14, 30)),
    }
    ground: Picture = np.clip(2 * laid * colours[name], 0, 1).astype(np.float32)
    return ground


def _colour(lightness: float, hue: float, chroma: float) -> Floats:
    angle = np.radians(hue)
    lab = np.array(
        [[[lightness, chroma * np.cos(angle), chroma * np.sin(angle)]]], np.float32
    )
    colour: Floats = painting.to_rgb(lab)[0, 0]
    return colour


def _placed(picture: Picture, thing: PlacedThing, light: float) -> tuple[Picture, Mask]:
    """The picture with the thing and its shadow in it, and where the thing is."""
    tall = thing.shape.tall * thing.radius
    ys, xs = np.mgrid[0:HEIGHT, 0:WIDTH].astype(np.float32)
    down = (ys - thing.foot) / tall + 1
    within = np.clip(down, 0, 1)
    radius = np.maximum(thing.shape.radius(within) * thing.radius, 1e-3)
    x = (xs - thing.x) / radius
    covered = np.clip((1 - np.abs(x)) * radius + 0.5, 0, 1)
    covered *= np.clip(down * tall + 0.5, 0, 1)
    covered *= np.clip((1 - down) * tall + 0.5, 0, 1)
    mask = covered[..., None].astype(np.float32)
    below = thing.shape.radius(np.clip(within + 0.01, 0, 1))
    above = thing.shape.radius(np.clip(within - 0.01, 0, 1))
    widening = (below - above) * thing.radius / (0.02 * tall)
    normals = np.stack([x, -widening, np.sqrt(np.clip(1 - x * x, 0, 1))], axis=-1)
    normals /= np.linalg.norm(normals, axis=-1, keepdims=True)
    painted = _shaded(normals.astype(np.float32), thing.hue, light)
    return painting.mix(_shadowed(picture, thing, light), painted, mask), mask


def _shaded(normals: Floats, hue: float, light: float) -> Picture:
    towards = np.array([light, -0.75, 0.8])
    towards /= np.linalg.norm(towards)
    halfway = towards + np.array([0.0, 0.0, 1.0])
    halfway /= np.linalg.norm(halfway)
    facing = np.clip(normals @ towards, 0, 1)
    gloss = np.clip(normals @ halfway, 0, 1) ** 40
    chroma = _CHROMA * (0.45 + 0.55 * facing) * (1 - 0.6 * gloss)
    lightness = 14 + 52 * facing + 22 * gloss + 1.5 * painting.grain(facing.shape, 3)
    angle = np.radians(hue)
    lab = np.stack([lightness, chroma * np.cos(angle), chroma * np.sin(angle)], axis=-1)
    return painting.to_rgb(lab)


def _shadowed(picture: Picture, thing: PlacedThing, light: float) -> Picture:
    """With the shadow that the thing casts, and the dark line under its foot."""
    radius = thing.radius
    foot = float(thing.shape.radius(np.array(0.97, np.float32))) * radius
    cast = _spot(
        thing.x - 0.9 * light * radius,
        thing.foot - 0.08 * radius,
        1.35 * radius,
        0.3 * radius,
    )
    contact = _spot(thing.x, thing.foot, 0.95 * foot, max(2.0, 0.08 * radius))
    dark = np.maximum(
        0.75 * feathered(cast, 0.13 * radius), 0.8 * feathered(contact, 2.5)
    )
    return painting.mix(picture, 0.3 * picture, dark)


def _spot(x: float, y: float, across: float, down: float) -> Mask:
    mask = np.zeros((HEIGHT, WIDTH, 1), np.float32)
    cv2.ellipse(
        mask, (round(x), round(y)), (round(across), round(down)), 0, 0, 360, 1.0, -1
    )
    return mask


# --- pretend editors ----------------------------------------------------------------------------------------

_PHOTOGRAPHED = {
    "astronaut.png": PhotoThing("suit", Region(0.37, 0.78, 0.46, 0.38)),
    "coffee.png": PhotoThing("coffee in the cup", Region(0.48, 0.37, 0.15, 0.14)),
    "chelsea.png": PhotoThing(
        "larger of the cat's eyes", Region(0.385, 0.395, 0.085, 0.115)
    ),
    "rocket.jpg": PhotoThing("rocket", Region(0.503, 0.64, 0.03, 0.33)),
    "motorcycle_left.png": PhotoThing(
        "box behind the front wheel", Region(0.85, 0.47, 0.065, 0.11)
    ),
    "camera.png": PhotoThing("sky", Region(0.5, 0.1, 0.8, 0.3)),
    "coins.png": PhotoThing(
        "coin in the upper right corner", Region(0.872, 0.145, 0.085, 0.105)
    ),
    "retina.jpg": PhotoThing("bright disc on the left", Region(0.17, 0.46, 0.06, 0.07)),
}
"""Photographs in scikit-image's wheel, and what is recoloured in each. Beside those of the probes: two that their
authors gave to the public domain (CC0), and the Brooklyn Museum's coins, without known restrictions."""
_DRAWN = 16
_SHADES = 9.0
"""Degrees by which an editor's idea of a colour differs from the name's."""
_SOFT = 1.2
"""Pixels by which the new colour fades out beyond a mask's own feather, so that it ends in no seam."""
_QUALITIES = (86, 97)
"""JPEG quality of what editors save."""


@dataclass(frozen=True)
class DemoSource:
    """An image, and what is asked of it."""

    name: str
    picture: Picture
    thing: str
    mask: Mask
    """Mask of the thing."""
    colour: str

    @property
    def instruction(self) -> str:
        return f"Make the {self.thing} {self.colour}."


def sources() -> Iterator[DemoSource]:
    """The photographs, then the drawn ones."""
    for number, (file, thing) in enumerate(_PHOTOGRAPHED.items()):
        yield _source(
            number,
            file.partition(".")[0],
            read(file),
            thing.name,
            outline(file, thing.place),
        )
    for number in range(_DRAWN):
        drawn = still_life(number)
        name, mask = list(drawn.masks.items())[-1]
        yield _source(number, f"still-life-{number + 1}", drawn.picture, name, mask)


def _source(
    number: int, name: str, picture: Picture, thing: str, mask: Mask
) -> DemoSource:
    """With one of the two colours that are farthest from the thing's own."""
    a, b = painting.to_lab(picture)[mask[..., 0] > 0.5].mean(axis=0)[1:]
    own = np.degrees(np.arctan2(b, a))
    far = sorted(
        painting.COLOURS,
        key=lambda colour: abs((painting.COLOURS[colour] - own + 180) % 360 - 180),
    )
    return DemoSource(
        name, picture, thing, feathered(mask, _SOFT), far[-1 - number % 2]
    )


def _edited(source: DemoSource, rng: np.random.Generator, most: float) -> Picture:
    """Recolour as asked, in the editor's shade of the colour, with stains of it on at most this share of the rest."""
    hue = painting.COLOURS[source.colour] + rng.uniform(-_SHADES, _SHADES)
    done = painting.recoloured(source.picture, source.mask, hue)
    share = rng.uniform(most / 4, most)
    return painting.stained(
        done, 1 - painting.grown(source.mask, 6), hue, share, int(rng.integers(1000))
    )


EDITORS: Mapping[str, float] = {"neat": 0.03, "tidy": 0.03, "leaky": 0.35}
"""Share of the rest that an editor stains at most. `neat` and `tidy` differ in chance alone: they are equally good."""


def pretend(seed: int = 0) -> Iterator[Edit]:
    """All editors at the same instructions, image by image: the same for the same seed."""
    with ThreadPoolExecutor(2) as pool:  # OpenCV lets go of the interpreter
        for made in pool.map(lambda pair: _edits(seed, *pair), enumerate(sources())):
            yield from made


def _edits(seed: int, number: int, source: DemoSource) -> list[Edit]:
    before = painting.png(source.picture)
    made = []
    for editor, (model, most) in enumerate(EDITORS.items()):
        rng = np.random.default_rng([seed, number, editor])
        saved = painting.compressed(
            _edited(source, rng, most), int(rng.integers(*_QUALITIES))
        )
        edit = Edit(
            f"{source.name}-{model}",
            input=before,
            edited=painting.png(saved),
            instruction=source.instruction,
            edit_type="recolour",
            group=source.name,
            model=model,
        )
        made.append(edit)
    return made
