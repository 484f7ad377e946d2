"""Lighting cases with known answers: photographs under another light, and photographs in which something else changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from PIL import Image

from bench.degenerate import jpeg

Pixels = Any
"""RGB, 0 to 1 in linear light unless it is said to be in levels of 255."""
Random = np.random.Generator

SIDE = 512
"""Longest side of the photographs."""
FOLDERS = ("imagenhub_text", "mixed_edits", "preference_pairs")
HALVES = ("develop", "report")


@dataclass(frozen=True)
class LightCase:
    kind: str
    photograph: str
    before: Pixels
    after: Pixels
    """Levels of 255, as `before`."""
    content: Pixels
    """`before` with the change of content alone."""
    preserved: bool
    """Whether only the light changed."""


# --- photographs ----------------------------------------------------------------------------------------------


def photographs(data: Path, half: str) -> dict[str, Path]:
    """Return the files of one half of all inputs by name; the turns of one photograph are one."""
    files: dict[str, Path] = {}
    for folder in FOLDERS:
        for line in (data / folder / "manifest.jsonl").read_text("utf-8").splitlines():
            file = data / folder / json.loads(line)["input"]
            name = "_".join(file.stem.split("_")[:2])
            files.setdefault(name, file)
    return {
        name: file
        for name, file in sorted(files.items())
        if hashlib.sha1(name.encode(), usedforsecurity=False).digest()[0] % 2
        == HALVES.index(half)
    }


def read(file: Path) -> Pixels:
    """Read a photograph in levels of 255."""
    with Image.open(file) as opened:
        image = np.asarray(opened.convert("RGB"))
    scale = min(1.0, SIDE / max(image.shape))
    size = (round(image.shape[1] * scale), round(image.shape[0] * scale))
    return cv2.resize(image, size, interpolation=cv2.INTER_AREA)


def linear(levels: Pixels) -> Pixels:
    return (levels.astype(np.float32) / 255) ** 2.2


def levels(image: Pixels) -> Pixels:
    encoded = np.clip(image, 0, 1) ** (1 / 2.2)
    return (encoded * 255 + 0.5).astype(np.uint8)


def grid(shape: tuple[int, ...]) -> tuple[Pixels, Pixels]:
    """Return the coordinates of each pixel, right and down, as shares of the longer side."""
    height, width = shape[:2]
    ys, xs = np.mgrid[:height, :width].astype(np.float32)
    longest = max(height, width)
    return xs[..., None] / longest, ys[..., None] / longest


def extent(shape: tuple[int, ...]) -> tuple[float, float]:
    longest = max(shape[:2])
    return shape[1] / longest, shape[0] / longest


def spot(shape: tuple[int, ...], rng: Random, size: float) -> Pixels:
    """Return a soft round weight, 1 in its middle."""
    x, y = grid(shape)
    across, down = extent(shape)
    centre = (rng.uniform(0.2, 0.8) * across, rng.uniform(0.2, 0.8) * down)
    return np.exp(-((x - centre[0]) ** 2 + (y - centre[1]) ** 2) / (2 * size**2))


def soft(mask: Pixels, sigma: float) -> Pixels:
    """Blur a mask by a share of the longer side."""
    blurred = cv2.GaussianBlur(mask, (0, 0), max(0.4, sigma * max(mask.shape)))
    return blurred.reshape(*mask.shape[:2], 1)


def ramp(shape: tuple[int, ...], rng: Random) -> Pixels:
    """Return a weight from 0 to 1 that rises in a random direction."""
    x, y = grid(shape)
    angle = rng.uniform(0, 2 * np.pi)
    along = x * np.cos(angle) + y * np.sin(angle)
    return (along - along.min()) / (along.max() - along.min())


def polygon(shape: tuple[int, ...], rng: Random, size: float, corners: int) -> Pixels:
    """Return a filled polygon around a random centre."""
    height, width = shape[:2]
    longest = max(height, width)
    angles = np.sort(rng.uniform(0, 2 * np.pi, corners))
    radii = rng.uniform(0.6, 1.2, corners) * size * longest
    centre = rng.uniform(0.25, 0.75, 2) * (width, height)
    points = centre + np.stack([np.cos(angles), np.sin(angles)], 1) * radii[:, None]
    mask = np.zeros((height, width, 1), np.float32)
    cv2.fillPoly(mask, [points.astype(np.int32)], 1.0, cv2.LINE_AA)
    return mask


def shade(rng: Random) -> Pixels:
    """Return the colour of light in a shadow: blue sky, more or less of it."""
    depth = rng.uniform(0.25, 0.6)
    return np.array([depth, depth * 1.04, depth * rng.uniform(1.05, 1.3)], np.float32)


# --- another light --------------------------------------------------------------------------------------------


def darker(image: Pixels, rng: Random) -> Pixels:
    return image * rng.uniform(0.3, 0.65)


def brighter(image: Pixels, rng: Random) -> Pixels:
    return image * rng.uniform(1.4, 2.4)


def warmer(image: Pixels, rng: Random) -> Pixels:
    return image * np.array([1.25, 1.0, rng.uniform(0.45, 0.75)])


def cooler(image: Pixels, rng: Random) -> Pixels:
    return image * np.array([rng.uniform(0.5, 0.8), 0.95, 1.25])


def night(image: Pixels, rng: Random) -> Pixels:
    depth = rng.uniform(0.08, 0.2)
    gray = image.mean(axis=-1, keepdims=True)
    dull = 0.6 * image + 0.4 * gray
    return dull * np.array([0.7, 0.85, 1.3]) * depth


def vignette(image: Pixels, rng: Random) -> Pixels:
    x, y = grid(image.shape)
    across, down = extent(image.shape)
    away = (x - across / 2) ** 2 + (y - down / 2) ** 2
    return image * np.exp(-away * rng.uniform(3, 7))


def side_light(image: Pixels, rng: Random) -> Pixels:
    return image * (0.35 + rng.uniform(1.0, 2.0) * ramp(image.shape, rng))


def spot_light(image: Pixels, rng: Random) -> Pixels:
    return image * (0.35 + rng.uniform(1.5, 3) * spot(image.shape, rng, 0.16))


def soft_shadow(image: Pixels, rng: Random) -> Pixels:
    mask = soft(polygon(image.shape, rng, 0.3, 7), 0.03)
    return image * (1 - mask * (1 - shade(rng)))


def hard_shadow(image: Pixels, rng: Random) -> Pixels:
    mask = soft(polygon(image.shape, rng, 0.3, 6), rng.uniform(0.001, 0.004))
    return image * (1 - mask * (1 - shade(rng)))


def dappled_shade(image: Pixels, rng: Random) -> Pixels:
    noise = rng.normal(size=image.shape[:2]).astype(np.float32)
    leaves = cv2.GaussianBlur(noise, (0, 0), rng.uniform(0.012, 0.03) * SIDE)
    edge = rng.uniform(0.05, 0.8)
    mask = 0.5 + 0.5 * np.tanh(leaves / leaves.std() / edge)
    return image * (1 - mask[..., None] * (1 - shade(rng)))


def blinds(image: Pixels, rng: Random) -> Pixels:
    x, y = grid(image.shape)
    angle = rng.uniform(-0.6, 0.6)
    along = np.sin((x * np.sin(angle) + y * np.cos(angle)) * rng.uniform(40, 80))
    mask = 1 / (1 + np.exp(-along * rng.uniform(3, 10)))
    return image * (1 - mask * (1 - shade(rng)))


def window_light(image: Pixels, rng: Random) -> Pixels:
    mask = soft(polygon(image.shape, rng, 0.25, 4), rng.uniform(0.002, 0.006))
    sun = np.array([1.0, 0.9, 0.7]) * rng.uniform(0.6, 1.4)
    return image * (0.8 + mask * sun)


def sun_glow(image: Pixels, rng: Random) -> Pixels:
    glow = 0.9 * spot(image.shape, rng, rng.uniform(0.1, 0.25))
    sun = np.array([1.0, rng.uniform(0.7, 0.9), rng.uniform(0.35, 0.7)])
    return image * 0.95 + glow * sun * rng.uniform(0.5, 1.0)


def lens_flare(image: Pixels, rng: Random) -> Pixels:
    lit = image + 0.8 * spot(image.shape, rng, 0.05) * np.array([1.0, 0.95, 0.85])
    for _ in range(4):
        colour = rng.uniform(0.1, 0.35, 3)
        ghost = soft(polygon(image.shape, rng, rng.uniform(0.03, 0.07), 9), 0.006)
        lit = lit + ghost * colour
    return lit


def beams(image: Pixels, rng: Random) -> Pixels:
    x, y = grid(image.shape)
    angle = np.arctan2(y + 0.2, x - rng.uniform(0.2, 0.8))
    rays = np.clip(np.sin(angle * rng.uniform(15, 30)), 0, 1) ** 2
    return image * 0.9 + rays * rng.uniform(0.08, 0.25) * np.array([1.0, 0.92, 0.75])


def gel(image: Pixels, rng: Random) -> Pixels:
    share = ramp(image.shape, rng)
    first = rng.uniform(0.5, 1.4, 3)
    second = rng.uniform(0.5, 1.4, 3)
    return image * (first * share + second * (1 - share))


def haze(image: Pixels, rng: Random) -> Pixels:
    share = rng.uniform(0.3, 0.6) * (0.5 + 0.5 * ramp(image.shape, rng))
    return image * (1 - share) + share * np.array([0.7, 0.72, 0.75])


def relief(image: Pixels, rng: Random) -> Pixels:
    """Light that grazes the surfaces: brighter on one side of each thing, darker on the other."""
    gray = image.mean(axis=-1).astype(np.float32)
    smooth = cv2.GaussianBlur(gray, (0, 0), 5.0)
    angle = rng.uniform(0, 2 * np.pi)
    across = cv2.Sobel(smooth, cv2.CV_32F, 1, 0) * np.cos(angle)
    down = cv2.Sobel(smooth, cv2.CV_32F, 0, 1) * np.sin(angle)
    facing = across + down
    stops = np.clip(facing / (np.abs(facing).mean() * 4), -1, 1)
    return image * 2 ** (rng.uniform(0.6, 1.0) * stops[..., None])


def rim_light(image: Pixels, rng: Random) -> Pixels:
    """A bright line inside one side of a shape, and darkness elsewhere."""
    shape = polygon(image.shape, rng, 0.25, 9)
    inner = np.roll(shape, (8, 10), (0, 1))
    rim = soft(np.clip(shape - inner, 0, 1), 0.004)
    return image * (0.6 + rng.uniform(1.5, 3.0) * rim)


def lamp(image: Pixels, rng: Random) -> Pixels:
    """A lamp that is switched on: a small white disc, its glow, and more light around it."""
    x, y = grid(image.shape)
    across, down = extent(image.shape)
    away = np.hypot(
        x - rng.uniform(0.2, 0.8) * across, y - rng.uniform(0.2, 0.6) * down
    )
    disc = np.clip((rng.uniform(0.015, 0.035) - away) * 300, 0, 1)
    glow = np.exp(-away / 0.05) * np.array([0.9, 0.7, 0.4])
    pool = image * (0.5 + 1.8 * np.exp(-(away**2) / 0.08))
    return pool + glow * 0.6 + disc


LIGHTS: dict[str, Callable[[Pixels, Random], Pixels]] = {
    call.__name__.replace("_", " "): call
    for call in (
        darker, brighter, warmer, cooler, night, vignette, side_light, spot_light, soft_shadow, hard_shadow,
        dappled_shade, blinds, window_light, sun_glow, lens_flare, beams, gel, haze, relief, rim_light, lamp,
    )
}  # fmt: skip


def relit(image: Pixels, kind: str, rng: Random) -> Pixels:
    """Apply a light to linear light, or to encoded levels as image editors do."""
    if rng.random() < 0.5:
        return LIGHTS[kind](image, rng)
    encoded = LIGHTS[kind](np.clip(image, 0, 1) ** (1 / 2.2), rng)
    return np.clip(encoded, 0, 1) ** 2.2


# --- another content ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spot:
    """A round part of an image, of irregular outline."""

    x: int
    y: int
    radius: int
    mask: Pixels
    """0 to 1, height x width x 1."""

    @property
    def box(self) -> tuple[slice, slice]:
        rows = slice(self.y - self.radius, self.y + self.radius)
        return rows, slice(self.x - self.radius, self.x + self.radius)


def blob(shape: tuple[int, ...], rng: Random, size: float) -> Spot:
    height, width = shape[:2]
    radius = round(size * max(height, width))
    x = int(rng.integers(radius + 1, width - radius - 1))
    y = int(rng.integers(radius + 1, height - radius - 1))
    angles = np.linspace(0, 2 * np.pi, 40, endpoint=False)
    wave = 0.1 * np.sin(angles * rng.integers(2, 5) + rng.uniform(0, 6))
    points = np.stack([np.cos(angles), np.sin(angles)], 1) * (0.85 + wave)[:, None]
    mask = np.zeros((height, width, 1), np.float32)
    outline = (points * radius + (x, y)).astype(np.int32)
    cv2.fillPoly(mask, [outline], 1.0, cv2.LINE_AA)
    return Spot(x, y, radius, soft(mask, 0.0015))


def within(image: Pixels, other: Pixels, place: Spot) -> Pixels:
    return image * (1 - place.mask) + other * place.mask


def added(image: Pixels, donor: Pixels, place: Spot, _rng: Random) -> Pixels:
    """A part of another photograph."""
    return within(image, donor, place)


def filled(image: Pixels, place: Spot) -> Pixels:
    hole = (place.mask[..., 0] > 0.02).astype(np.uint8)
    hole = cv2.dilate(hole, np.ones((5, 5), np.uint8))
    patched = cv2.inpaint(levels(image), hole, 5, cv2.INPAINT_TELEA)
    return np.where(hole[..., None] > 0, linear(patched), image)


def removed(image: Pixels, _donor: Pixels, place: Spot, _rng: Random) -> Pixels:
    """What was there is filled with its surroundings."""
    return filled(image, place)


def moved(image: Pixels, _donor: Pixels, place: Spot, _rng: Random) -> Pixels:
    height, width = image.shape[:2]
    by = round(place.radius * 1.6)
    right = by if place.x < width / 2 else -by
    down = by if place.y < height / 2 else -by
    shift = np.array([[1, 0, right], [0, 1, down]], np.float32)
    carried = cv2.warpAffine(image, shift, (width, height))
    mask = cv2.warpAffine(place.mask, shift, (width, height))[..., None]
    return filled(image, place) * (1 - mask) + carried * mask


def recoloured(image: Pixels, _donor: Pixels, place: Spot, rng: Random) -> Pixels:
    hsv = cv2.cvtColor(levels(image), cv2.COLOR_RGB2HSV).astype(np.float32)
    hsv[..., 0] = (hsv[..., 0] + rng.uniform(50, 130)) % 180
    hsv[..., 1] = np.clip(hsv[..., 1] * 1.2 + 60, 0, 255)
    turned = cv2.cvtColor(hsv.astype(np.uint8), cv2.COLOR_HSV2RGB)
    return within(image, linear(turned), place)


def retextured(image: Pixels, donor: Pixels, place: Spot, _rng: Random) -> Pixels:
    """Another photograph's texture in the colours that were there."""
    smooth = cv2.GaussianBlur(image, (0, 0), 8)
    detail = donor.mean(axis=-1, keepdims=True)
    low = cv2.GaussianBlur(detail, (0, 0), 8)[..., None]
    return within(image, smooth * np.clip(detail / (low + 0.01), 0.2, 3), place)


def lettered(image: Pixels, _donor: Pixels, place: Spot, rng: Random) -> Pixels:
    text = "".join(rng.choice(list("AEGHKMNRSTUX"), 4))
    canvas = levels(image).copy()
    scale = place.radius / 38
    dark = bool(canvas[place.box].mean() > 127)
    colour = (20, 20, 20) if dark else (240, 240, 235)
    origin = (place.x - place.radius, place.y + place.radius // 3)
    thick = max(1, round(scale * 2.4))
    cv2.putText(canvas, text, origin, cv2.FONT_HERSHEY_DUPLEX, scale, colour, thick, cv2.LINE_AA)  # fmt: skip
    return linear(canvas)


def warped(image: Pixels, _donor: Pixels, place: Spot, rng: Random) -> Pixels:
    """A swirl, strongest in the middle."""
    height, width = image.shape[:2]
    ys, xs = np.mgrid[:height, :width].astype(np.float32)
    right = xs - place.x
    down = ys - place.y
    away = np.clip(1 - np.hypot(right, down) / place.radius, 0, 1)
    angle = rng.choice([-1, 1]) * rng.uniform(1.0, 2.0) * away
    across = place.x + right * np.cos(angle) - down * np.sin(angle)
    along = place.y + right * np.sin(angle) + down * np.cos(angle)
    return cv2.remap(
        image,
        across.astype(np.float32),
        along.astype(np.float32),
        cv2.INTER_LINEAR,
        borderMode=cv2.BORDER_REFLECT,
    )


def vanished(image: Pixels, _donor: Pixels, place: Spot, rng: Random) -> Pixels:
    """Removed, under a shadow that covers the place."""
    x, y = grid(image.shape)
    longest = max(image.shape)
    away = (x - place.x / longest) ** 2 + (y - place.y / longest) ** 2
    cover = np.exp(-away / (2 * (1.5 * place.radius / longest) ** 2))
    return filled(image, place) * (1 - rng.uniform(0.4, 0.65) * cover)


def patterned(image: Pixels, _donor: Pixels, place: Spot, rng: Random) -> Pixels:
    x, y = grid(image.shape)
    period = 2 * np.pi * max(image.shape) / place.radius * rng.uniform(2, 4) / 2
    stripes = (np.sin((x + rng.uniform(0, 1) * y) * period) > 0).astype(np.float32)
    paint = rng.uniform(0, 0.9, 3)
    return within(image, image * (1 - stripes) + paint * stripes, place)


def mirrored(image: Pixels, _donor: Pixels, place: Spot, _rng: Random) -> Pixels:
    turned = image.copy()
    turned[place.box] = image[place.box][:, ::-1]
    return within(image, turned, place)


def enlarged(image: Pixels, _donor: Pixels, place: Spot, rng: Random) -> Pixels:
    matrix = cv2.getRotationMatrix2D((place.x, place.y), 0, rng.uniform(1.35, 1.7))
    larger = cv2.warpAffine(
        image, matrix, image.shape[1::-1], borderMode=cv2.BORDER_REFLECT
    )
    return within(image, larger, place)


def painted(image: Pixels, _donor: Pixels, place: Spot, rng: Random) -> Pixels:
    """An even coat of paint with a little shading."""
    shading = image.mean(axis=-1, keepdims=True)
    smooth = cv2.GaussianBlur(shading, (0, 0), 12)[..., None]
    return within(
        image, rng.uniform(0.05, 0.9, 3) * (0.6 + 0.4 * smooth / smooth.max()), place
    )


def replaced_ground(image: Pixels, donor: Pixels, place: Spot, _rng: Random) -> Pixels:
    """Another background: everything but the part."""
    return donor * (1 - place.mask) + image * place.mask


CONTENTS: dict[str, Callable[[Pixels, Pixels, Spot, Random], Pixels]] = {
    call.__name__.replace("_", " "): call
    for call in (
        added, removed, moved, recoloured, retextured, lettered, warped, vanished, patterned, mirrored, enlarged,
        painted, replaced_ground,
    )
}  # fmt: skip
SIZES = {"small": 0.055, "large": 0.16}
"""Radius of the part, as a share of the longer side: 1 % and 8 % of the area."""
_DIFFERENT = 14.0
"""Mean difference in levels, over the part, from which a change of content is plain to see."""
_TRIES = 40


def content_change(
    kind: str, size: float, before: Pixels, donor: Pixels, rng: Random
) -> Pixels | None:
    """Change a part that has something to see, so that the change is visible; None if no part was."""
    image = linear(before)
    for _ in range(_TRIES):
        place = blob(before.shape, rng, size)
        after = CONTENTS[kind](image, donor, place, rng)
        apart = np.abs(levels(after).astype(np.float32) - before)[place.box]
        plain = before[place.box].astype(np.float32).std(axis=(0, 1)).mean() < 18
        if kind == "replaced ground":
            return after
        if not plain and apart.mean() >= _DIFFERENT:
            return after
    return None


# --- cases ----------------------------------------------------------------------------------------------------


def cases(data: Path, half: str, each: int, seed: int = 0) -> Iterator[LightCase]:
    """Yield the cases of one half of the photographs, `each` of every kind; the photographs rotate from kind to kind."""
    files = list(photographs(data, half).items())
    loaded: dict[str, Pixels] = {}

    def picked(number: int) -> tuple[str, Pixels]:
        name, file = files[number % len(files)]
        if name not in loaded:
            loaded[name] = read(file)
        return name, loaded[name]

    kinds = [
        *((kind, "", False) for kind in LIGHTS),
        *((kind, size, lit) for kind in CONTENTS for size in SIZES for lit in (False, True)
          if kind != "replaced ground" or size == "large"),
    ]  # fmt: skip
    for turn, (kind, size, lit) in enumerate(kinds):
        for index in range(each):
            rng = np.random.default_rng([seed, turn, index])
            name, before = picked(turn * 7 + index)
            if not size:
                after = relit(linear(before), kind, rng)
                yield LightCase(kind, name, before, _saved(after, index), before, True)
                continue
            height, width = before.shape[:2]
            other = picked(turn * 7 + index + 11)[1]
            donor = linear(cv2.resize(other, (width, height)))
            change = content_change(kind, SIZES[size], before, donor, rng)
            if change is None:
                continue
            content = levels(change)
            if lit:
                change = relit(change, str(rng.choice(list(LIGHTS))), rng)
            beside = ", relit" if lit else ""
            title = f"{kind}, {size}{beside}"
            yield LightCase(title, name, before, _saved(change, index), content, False)


def _saved(image: Pixels, index: int) -> Pixels:
    """Return levels of 255, every other one saved as JPEG."""
    return jpeg(levels(image), 90) if index % 2 else levels(image)
