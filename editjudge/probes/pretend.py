"""The demo's edits: pretend editors that recolour one thing in each of two dozen photographs and drawn still lifes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from editjudge.edit import Edit
from editjudge.probes import drawing as painting
from editjudge.probes.photographs import Mask, PhotoThing, Picture, Region, feathered, outline, read
from editjudge.probes.still_life import still_life

_PHOTOGRAPHED = {
    "astronaut.png": PhotoThing("suit", Region(0.37, 0.78, 0.46, 0.38)),
    "coffee.png": PhotoThing("coffee in the cup", Region(0.48, 0.37, 0.15, 0.14)),
    "chelsea.png": PhotoThing("larger of the cat's eyes", Region(0.385, 0.395, 0.085, 0.115)),
    "rocket.jpg": PhotoThing("rocket", Region(0.503, 0.64, 0.03, 0.33)),
    "motorcycle_left.png": PhotoThing("box behind the front wheel", Region(0.85, 0.47, 0.065, 0.11)),
    "camera.png": PhotoThing("sky", Region(0.5, 0.1, 0.8, 0.3)),
    "coins.png": PhotoThing("coin in the upper right corner", Region(0.872, 0.145, 0.085, 0.105)),
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
        yield _source(number, file.partition(".")[0], read(file), thing.name, outline(file, thing.place))
    for number in range(_DRAWN):
        drawn = still_life(number)
        name, mask = list(drawn.masks.items())[-1]
        yield _source(number, f"still-life-{number + 1}", drawn.picture, name, mask)


def _source(number: int, name: str, picture: Picture, thing: str, mask: Mask) -> DemoSource:
    """With one of the two colours that are farthest from the thing's own."""
    a, b = painting.to_lab(picture)[mask[..., 0] > 0.5].mean(axis=0)[1:]
    own = np.degrees(np.arctan2(b, a))
    far = sorted(painting.COLOURS, key=lambda colour: abs((painting.COLOURS[colour] - own + 180) % 360 - 180))
    return DemoSource(name, picture, thing, feathered(mask, _SOFT), far[-1 - number % 2])


def _edited(source: DemoSource, rng: np.random.Generator, most: float) -> Picture:
    """What was asked, in the editor's shade of the colour, and stains of it on at most this share of the rest."""
    hue = painting.COLOURS[source.colour] + rng.uniform(-_SHADES, _SHADES)
    done = painting.recoloured(source.picture, source.mask, hue)
    share = rng.uniform(most / 4, most)
    return painting.stained(done, 1 - painting.grown(source.mask, 6), hue, share, int(rng.integers(1000)))


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
        saved = painting.compressed(_edited(source, rng, most), int(rng.integers(*_QUALITIES)))
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
