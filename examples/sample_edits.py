"""Edits to try things on: `python examples/sample_edits.py FOLDER` draws them, and lists them in FOLDER/edits.jsonl.

Three pretend editors paint the ball in each: clean does what was asked, leaky also stains the wall, sloppy smears."""

from __future__ import annotations

import io
import json
import random
import sys
import tempfile
from pathlib import Path

from PIL import Image, ImageChops, ImageDraw, ImageFilter

GOLD = (200, 170, 60)
BLUE = (50, 80, 200)
STAIN = (160, 60, 120)


def scene(
    n: int, ball: tuple[int, int, int] = GOLD, stain: tuple[int, int, int] | None = None
) -> Image.Image:
    """A ball on a table, and a frame on the wall behind; `n` says what is where."""
    picture = Image.linear_gradient("L").rotate(180).convert("RGB")
    picture = Image.blend(
        picture, Image.new("RGB", picture.size, (150 - 9 * n, 160, 110 + 9 * n)), 0.6
    )
    draw = ImageDraw.Draw(picture)
    draw.rectangle((0, 170, 256, 256), fill=(120, 85 + 4 * n, 60))
    draw.rectangle(
        (20 + 9 * n, 20, 90 + 9 * n, 80),
        fill=stain or (210, 215, 220),
        outline=(70, 60, 50),
        width=5,
    )
    lit = Image.radial_gradient("L").resize((80, 80)).point(lambda far: 255 - far // 2)
    disc = (
        Image.radial_gradient("L").resize((80, 80)).point(lambda far: 255 * (far < 180))
    )
    shaded = ImageChops.multiply(Image.new("RGB", lit.size, ball), lit.convert("RGB"))
    picture.paste(shaded, (40 + 23 * n % 100, 125), disc)
    # as a lens would: no rim is as sharp as a drawn one
    picture = picture.filter(ImageFilter.GaussianBlur(1.5))
    grain = Image.frombytes(
        "L", picture.size, random.Random(n).randbytes(256 * 256)
    ).convert("RGB")
    return Image.blend(picture, grain, 0.08)


def sloppy(n: int) -> Image.Image:
    scene(n, BLUE).filter(ImageFilter.GaussianBlur(1.5)).save(
        file := io.BytesIO(), "JPEG", quality=12
    )
    return Image.open(file)


EDITORS = {
    "clean": lambda n: scene(n, BLUE),
    "leaky": lambda n: scene(n, BLUE, STAIN),
    "sloppy": sloppy,
}


def sample(folder: Path, pictures: int = 12) -> Path:
    """The manifest of `pictures` times three edits, all drawn into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for n in range(pictures):
        scene(n).save(folder / f"{n}.png")
        for model, edit in EDITORS.items():
            edit(n).save(folder / f"{n}-{model}.png")
            row = {
                "id": f"{n}-{model}",
                "input": f"{n}.png",
                "edited": f"{n}-{model}.png",
                "model": model,
            }
            rows.append(
                json.dumps({**row, "instruction": "Paint the ball blue."}) + "\n"
            )
    (folder / "edits.jsonl").write_text("".join(rows))
    return folder / "edits.jsonl"


if __name__ == "__main__":
    print(
        f"drew {sample(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()))}"
    )
