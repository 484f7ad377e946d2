"""Operations on pixels that edits and their defects are made of: recolouring, lighting, balls, lettering, noise."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from editjudge.probes.photographs import Mask, Photograph, Picture, Region, feathered

COLOURS = {"red": 30.0, "green": 145.0, "blue": 268.0, "purple": 315.0}
"""Hue angle in Lab, degrees."""
_CHROMA = 42.0
_KEPT = 0.25
"""Share of a thing's own chroma that a new colour leaves, so that it stays varied."""


def mix(below: Picture, above: Picture, share: Mask | float) -> Picture:
    """Clipped; where the share is 0, exactly what was below."""
    return np.where(share > 0, np.clip(below * (1 - share) + above * share, 0, 1), below).astype(np.float32)


def to_lab(picture: Picture) -> Picture:
    return cv2.cvtColor(np.ascontiguousarray(picture), cv2.COLOR_RGB2LAB).astype(np.float32)


def to_rgb(lab: Picture) -> Picture:
    return np.clip(cv2.cvtColor(lab.astype(np.float32), cv2.COLOR_LAB2RGB), 0, 1).astype(np.float32)


def recoloured(picture: Picture, mask: Mask, hue: float) -> Picture:
    """In another colour, with its own shading and texture."""
    lab = to_lab(picture)
    new = _CHROMA * np.array([np.cos(np.radians(hue)), np.sin(np.radians(hue))], np.float32)
    lab[..., 1:] = _KEPT * lab[..., 1:] + new
    return mix(picture, to_rgb(lab), mask)


def grown(mask: Mask, margin: int) -> Mask:
    """A mask with so many pixels around it, feathered."""
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * margin + 1, 2 * margin + 1))
    around = cv2.dilate(mask, kernel).astype(np.float32).reshape(mask.shape)
    return feathered(around, 2.0)


def stained(picture: Picture, mask: Mask, hue: float, share: float, seed: int) -> Picture:
    """With stains of a colour on so much of a place."""
    stain = np.clip((share - clouds(picture.shape, 22, seed)) * 60 + 0.5, 0, 1)
    return mix(picture, recoloured(picture, np.ones_like(mask), hue), 0.55 * stain * mask)


def shifted(picture: Picture, mask: Mask | float, by: tuple[float, float, float]) -> Picture:
    """Moved by so much in Lab."""
    return mix(picture, to_rgb(to_lab(picture) + np.array(by, np.float32)), mask)


def turned(picture: Picture, degrees: float) -> Picture:
    """All hues rotated."""
    lab, angle = to_lab(picture), np.radians(degrees)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]], np.float32)
    lab[..., 1:] = lab[..., 1:] @ turn.T
    return to_rgb(lab)


def blurred(picture: Picture, sigma: float) -> Picture:
    return cv2.GaussianBlur(picture, (0, 0), sigma).astype(np.float32)


def compressed(picture: Picture, quality: int) -> Picture:
    done = cv2.imencode(".jpg", levels(picture)[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, quality])[1]
    return (np.asarray(cv2.imdecode(done, cv2.IMREAD_COLOR))[..., ::-1] / 255).astype(np.float32)


def lit(picture: Picture, stops: NDArray[np.float32]) -> Picture:
    """Light brighter by so many stops: a product in linear light, with a soft shoulder instead of clipped white."""
    linear = picture**2.2 * 2.0**stops
    shouldered = np.clip(np.where(linear > 0.8, 1 - 0.2 * np.exp((0.8 - linear) / 0.2), linear), 0, 1)
    return (shouldered ** (1 / 2.2)).astype(np.float32)


def slope(shape: tuple[int, ...], place: Region, towards: tuple[float, float]) -> NDArray[np.float32]:
    """From -1/2 to 1/2 over a place, rising in a direction."""
    height, width = shape[:2]
    ys, xs = np.mgrid[0:height, 0:width].astype(np.float32)
    along = ((xs / width - place.x) / place.across * towards[0] + (ys / height - place.y) / place.down * towards[1]) / 2
    sloped: NDArray[np.float32] = np.clip(along / np.hypot(*towards), -0.5, 0.5)[..., None]
    return sloped


def clouds(shape: tuple[int, ...], size: float, seed: int) -> NDArray[np.float32]:
    """Smooth noise in blobs of about this many pixels, as ranks from 0 to 1: a threshold is a share of the picture."""
    noise = np.random.default_rng(seed).normal(0, 1, shape[:2]).astype(np.float32)
    smooth = cv2.GaussianBlur(noise, (0, 0), size)
    ranks = np.empty(smooth.size, np.float32)
    ranks[np.argsort(smooth, axis=None)] = np.linspace(0, 1, smooth.size, dtype=np.float32)
    return ranks.reshape(*shape[:2], 1)


def grain(shape: tuple[int, ...], seed: int) -> NDArray[np.float32]:
    """Noise of standard deviation 1 with the softness of a sensor's."""
    noise = cv2.GaussianBlur(np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32), (0, 0), 0.6)
    even: NDArray[np.float32] = (noise / noise.std()).astype(np.float32)
    return even


def moved(picture: Picture, place: Region, by: tuple[float, float]) -> Picture:
    """A place pushed aside by shares of its half axes; its surroundings stretch and shrink, so that nothing tears."""
    height, width = picture.shape[:2]
    ys, xs = np.mgrid[0:height, 0:width].astype(np.float32)
    far = np.hypot((xs / width - place.x) / place.across, (ys / height - place.y) / place.down)
    push = 0.5 + 0.5 * np.cos(np.pi * np.clip((far - 1) / 1.7, 0, 1))
    return cv2.remap(picture, xs - push * by[0] * place.across * width, ys - push * by[1] * place.down * height,
                     cv2.INTER_CUBIC, borderMode=cv2.BORDER_REFLECT).clip(0, 1).astype(np.float32)  # fmt: skip


def ball(one: Photograph, picture: Picture, place: Region, hue: float, slices: float = 0.0) -> Picture:
    """A shaded ball; `slices` pulls it apart by so many of its diameters, which no ball survives in the air."""
    height, width = picture.shape[:2]
    radius = place.across * width
    ys, xs = np.mgrid[0:height, 0:width].astype(np.float32)
    band = np.floor((ys - place.y * height) / radius * 2.5) % 2 * 2 - 1
    x = (xs - place.x * width - band * slices * radius) / radius
    y = (ys - place.y * height) / radius
    inside = np.clip((1 - np.hypot(x, y)) * radius / 1.5 + 0.5, 0, 1)[..., None]
    light = np.array([one.light[0], one.light[1], 0.9]) / np.hypot(np.hypot(*one.light), 0.9)
    facing = np.clip(x * light[0] + y * light[1] + np.sqrt(np.clip(1 - x * x - y * y, 0, 1)) * light[2], 0, 1)
    shade = (18 + 50 * facing + 25 * facing**30)[..., None]
    chroma = (0.35 + 0.65 * facing - 0.6 * facing**30)[..., None] * 1.3 * _CHROMA
    hues = chroma * np.array([np.cos(np.radians(hue)), np.sin(np.radians(hue))], np.float32)
    texture = grain((height, width), 11)[..., None]
    painted = to_rgb(np.concatenate([shade + 1.2 * texture, hues], axis=2))
    below = picture
    if one.on_ground:
        shadow = Region(place.x - one.light[0] * 0.02, place.y + radius / height * 0.95, place.across * 1.1,
                       radius / height * 0.25)  # fmt: skip
        below = mix(picture, picture * 0.35, 0.8 * shadow.drawn(picture.shape, radius / 6 + 1))
    return mix(below, painted, inside.astype(np.float32))


def lettering(picture: Picture, place: Region, text: str, warp: float = 0.0) -> Picture:
    """A word in the middle of a place, light on dark or dark on light; `warp` bends it by shares of its height."""
    height, width = picture.shape[:2]
    across, down, big = round(2 * place.across * width), round(2 * place.down * height), 4
    ink = np.zeros((height * big, width * big), np.uint8)
    (wide, tall), _ = cv2.getTextSize(text, cv2.FONT_HERSHEY_DUPLEX, 1.0, 2)
    size = min(across * big / wide, down * big / tall)
    corner = (round(place.x * width * big - wide * size / 2), round(place.y * height * big + tall * size / 2))
    cv2.putText(ink, text, corner, cv2.FONT_HERSHEY_DUPLEX, size, 255, max(1, round(size * 2.2)), cv2.LINE_AA)
    small = cv2.resize(ink, (width, height), interpolation=cv2.INTER_AREA)
    if warp:
        letter = tall * size / big
        ys, xs = np.mgrid[0:height, 0:width].astype(np.float32)
        dx, dy = (2 * warp * letter * (2 * clouds((height, width), letter / 3, 20 + k)[..., 0] - 1) for k in (0, 1))
        small = cv2.remap(small, (xs + dx).astype(np.float32), (ys + dy).astype(np.float32), cv2.INTER_LINEAR)
    share = feathered((small / 255).astype(np.float32)[..., None], 0.6)
    dark = float(picture[place.drawn(picture.shape)[..., 0] > 0.5].mean()) < 0.5
    return mix(picture, np.full_like(picture, 0.95 if dark else 0.06), 0.92 * share)


def arrow(picture: Picture, target: Region, light: tuple[float, float]) -> Picture:
    """The mark by which somebody shows from where light is to come."""
    height, width = picture.shape[:2]
    tip = np.array([target.x * width, target.y * height])
    tail = np.clip(tip + np.array(light) / np.hypot(*light) * 0.3 * height, 8, [width - 8, height - 8])
    marked = levels(picture)
    cv2.arrowedLine(marked, tail.astype(int).tolist(), tip.astype(int).tolist(), (255, 225, 0), 4, cv2.LINE_AA,
                    tipLength=0.25)  # fmt: skip
    return (marked / 255).astype(np.float32)


def levels(picture: Picture) -> NDArray[np.uint8]:
    return np.ascontiguousarray(np.round(picture * 255).astype(np.uint8))


def png(picture: Picture) -> bytes:
    """Run lengths alone compress photographs as well as anything fast does: a third less time, a tenth less data."""
    how = [cv2.IMWRITE_PNG_COMPRESSION, 1, cv2.IMWRITE_PNG_STRATEGY, cv2.IMWRITE_PNG_STRATEGY_RLE]
    return bytes(cv2.imencode(".png", levels(picture)[..., ::-1], how)[1])
