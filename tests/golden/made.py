"""Inputs of the golden results: pictures, manifests, recorded replies, ratings. Made of arithmetic and hashes alone.

Nothing here may depend on a library's version: pictures are PNG files without compression, written byte by byte, and
every choice comes from SHAKE-128 of its name."""

from __future__ import annotations

import csv
import hashlib
import json
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.int64]
"""Height x width x 3, from 0 to 255."""

FACTORS: Mapping[str, Sequence[str]] = {
    "preservation": (
        "unchanged_regions",
        "global_consistency",
        "identity_preservation",
    ),
    "quality": (
        "scale_realism",
        "spatial_relationship",
        "texture_and_detail",
        "image_quality",
        "color_and_lighting",
        "seamlessness",
    ),
    "fidelity": ("alignment", "completeness", "plausibility"),
}
"""Rubrics of the set `online`."""
MODELS = ("alder", "birch", "cedar")
SOURCES = 14
REPEATS = 2
LEVELS = {"alder": 52, "birch": 44, "cedar": 49}
"""Mean score of each model, in tenths."""
WORDS = "the gate on the left now has the colour that was asked for and its hinges are as before".split()

SET = """
name: garden
description: How well a garden was tended.
rubrics:
  - use: fidelity
    when: edit_type in [plant, prune] and not shaded == true
  - name: looks
    system: You have tended gardens for a living.
    task: Judge whether the edited image could be a photograph of a garden.
    images: [edited]
    scale: {range: [0, 10], step: 0.5}
    factors:
      - key: natural
        definition: Whether leaves, light and soil are those of a photograph.
        anchors: [{scores: [9.5, 10], when: [nothing gives it away]}]
      - key: tidy
        definition: Whether the beds are tidy.
        anchors: [{scores: [0], when: [weeds all over]}]
    answer: {form: scores}
    samples: 3
  - name: verdict
    after: looks
    task: Decide whether the picture may be hung in the shed.
    images: [input, edited]
    texts: [instruction]
    scale: {values: [0, 1]}
    factors:
      - key: hang
        definition: Whether it may be hung.
        anchors: [{scores: [1], when: [it may]}]
    answer: {form: scores}
score:
  craft: geomean(looks.*)
  overall: sqrt(min(fidelity.*) * craft) if asked(fidelity) else craft
  strict: {formula: overall * verdict, repeats: before, description: nothing for what may not be hung}
  waste: {formula: 10 - mean(looks.*), direction: down}
"""


# --- chance ---------------------------------------------------------------------------------------------------


def drawn(most: int, *name: object) -> int:
    """Return a whole number from 0 to below `most` that the name alone decides."""
    return int.from_bytes(hashlib.shake_128(repr(name).encode()).digest(8)) % most


def noise(height: int, width: int, *name: object) -> Pixels:
    """Return bytes of a hash as a picture."""
    data = hashlib.shake_128(repr(name).encode()).digest(height * width * 3)
    return np.frombuffer(data, np.uint8).reshape(height, width, 3).astype(np.int64)


# --- pictures -------------------------------------------------------------------------------------------------


def png(pixels: Pixels) -> bytes:
    """Encode a picture without compression, so that no version of zlib or Pillow has a say in its bytes."""
    height, width, _ = pixels.shape
    rows = np.zeros((height, 1 + width * 3), np.uint8)
    rows[:, 1:] = np.clip(pixels, 0, 255).reshape(height, -1)
    raw = rows.tobytes()
    starts = range(0, len(raw), 65_535)
    blocks = [raw[start : start + 65_535] for start in starts]
    stored = b"".join(
        struct.pack("<BHH", block is blocks[-1], len(block), len(block) ^ 0xFFFF)
        + block
        for block in blocks
    )
    data = b"\x78\x01" + stored + struct.pack(">I", zlib.adler32(raw))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", header)
        + _chunk(b"IDAT", data)
        + _chunk(b"IEND", b"")
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    return (
        struct.pack(">I", len(data))
        + kind
        + data
        + struct.pack(">I", zlib.crc32(kind + data))
    )


def speck(*name: object) -> bytes:
    """Return a picture of 8 x 8 pixels for whoever does not look at it."""
    return png(noise(8, 8, *name))


def scene(size: int = 256) -> Pixels:
    """Draw a still life: a wall, a table, a disc, a box and a striped cloth, with grain."""
    y, x = np.mgrid[0:size, 0:size]
    wall = np.stack([150 + y // 8, 160 + x // 16, 175 - y // 8], axis=-1)
    table = np.stack([120 + x // 12, 85 + (x * 7 + y * 3) % 16, 60 + y // 16], axis=-1)
    picture = np.where((y > size * 5 // 8)[..., None], table, wall)
    picture[disc_at(size)] = (190, 60, 50)
    picture[box_at(size)] = (60, 110, 80)
    cloth = (
        (y > size * 3 // 4)
        & (x > size // 2)
        & (x < size * 15 // 16)
        & (y < size * 7 // 8)
    )
    stripes = np.where(((x // 6) % 2 == 0)[..., None], (230, 225, 210), (70, 80, 140))
    picture[cloth] = stripes[cloth]
    return np.clip(picture + noise(size, size, "grain") // 24 - 5, 0, 255)


def disc_at(size: int) -> npt.NDArray[np.bool_]:
    """Return where the disc of the scene is."""
    y, x = np.mgrid[0:size, 0:size]
    return np.asarray(
        (x - size * 3 // 10) ** 2 + (y - size * 11 // 20) ** 2 < (size * 3 // 20) ** 2
    )


def box_at(size: int) -> npt.NDArray[np.bool_]:
    """Return where the box of the scene is."""
    y, x = np.mgrid[0:size, 0:size]
    return np.asarray(
        (x > size * 3 // 5)
        & (x < size * 4 // 5)
        & (y > size * 3 // 8)
        & (y < size * 11 // 16)
    )


def blurred(picture: Pixels, by: int = 3) -> Pixels:
    """Return means over squares of 2 `by` + 1 pixels, in whole numbers."""
    padded = np.pad(picture, ((by, by), (by, by), (0, 0)), mode="edge")
    height, width, _ = picture.shape
    side = range(2 * by + 1)
    total = sum(padded[dy : dy + height, dx : dx + width] for dy in side for dx in side)
    return np.asarray(total) // (2 * by + 1) ** 2


def outputs() -> dict[str, Pixels]:
    """Return edits of the scene by what was done to it."""
    before = scene()
    size = len(before)
    recoloured = before.copy()
    recoloured[disc_at(size)] = recoloured[disc_at(size)][:, [2, 1, 0]]
    removed = before.copy()
    removed[box_at(size)] = np.roll(before, size * 3 // 10, axis=1)[box_at(size)]
    x = np.arange(size)[None, :, None]
    relit = before * (60 + 70 * x // size) // 100
    spoilt = blurred(recoloured)
    spoilt[: size // 6] = noise(size // 6, size, "spoilt")
    return {
        "recoloured": recoloured,
        "removed": removed,
        "relit": relit,
        "spoilt": spoilt,
        "flat": np.full_like(before, 12),
        "unchanged": before,
    }


INSTRUCTIONS = {
    "recoloured": "Make the red disc blue.",
    "removed": "Remove the green box.",
    "relit": "Let the light come from the right.",
    "spoilt": "Make the red disc blue.",
    "flat": "Remove the green box.",
    "unchanged": "Make the red disc blue.",
}


# --- files ----------------------------------------------------------------------------------------------------


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def read_rows(path: Path) -> list[Any]:
    """Read JSON lines."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def write_table(
    path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]
) -> None:
    """Write a CSV file with a header."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)


def write_all(folder: Path) -> None:
    """Write every input into a folder."""
    write_edits(folder)
    write_replies(folder)
    write_people(folder)
    write_garden(folder)
    write_pictures(folder)


# --- edits that recorded replies judge ------------------------------------------------------------------------


def item(model: str, number: int) -> str:
    """Return the id of an edit."""
    return f"{model}-{number:02}"


def write_edits(folder: Path) -> None:
    """Write three models' edits of fourteen pictures; an output is missing, and another cannot be read."""
    (folder / "small").mkdir()
    rows = []
    kinds = ("plant", "prune", "paint")
    for number in range(SOURCES):
        (folder / "small" / f"in-{number}.png").write_bytes(speck("in", number))
        for model in MODELS:
            name = f"small/{item(model, number)}.png"
            output: str | None = name
            if (model, number) == ("birch", 4):
                output = None
            elif (model, number) == ("cedar", 9):
                (folder / name).write_bytes(b"not a picture")
            else:
                (folder / name).write_bytes(speck("out", model, number))
            row = {
                "id": item(model, number),
                "input": f"small/in-{number}.png",
                "edited": output,
                "instruction": f"Tend to bed {number}.",
                "model": model,
                "edit_type": kinds[number % 3],
                "season": ("spring", "autumn")[number % 2],
                "shaded": number % 5 == 0,
            }
            rows.append(row)
    write_rows(folder / "edits.jsonl", rows)


def score(judge: str, model: str, number: int, factor: str, repeat: int) -> int:
    """Return a score from 1 to 7: of the model, the picture, the judge, and chance."""
    picture = drawn(25, "picture", number) - 12
    own = drawn(21, "edit", model, number, factor) - 10
    chance = drawn(13, judge, model, number, factor, repeat) - 6
    later = -6 if judge == "later" and model == "alder" else 0
    return min(7, max(1, (LEVELS[model] + picture + own + chance + later + 5) // 10))


def reply(
    rubric: str, scores: Mapping[str, int], identifier: str, words: int = 18
) -> str:
    """Return an answer that keeps the contract of a rubric of the set `online`."""
    reason = " ".join(WORDS[:words])
    entries = {
        factor: {"justification": reason, "score": value}
        for factor, value in scores.items()
    }
    return json.dumps({"image_id": identifier, "online_factor_results": entries})


def spoiled(good: str, kind: int) -> list[str]:
    """Return what a judge said in the place of a good answer; nothing for a line that was never recorded."""
    faults = {
        0: ["I'm sorry, but I can't help with that."],
        1: [good.replace('"score": ', '"score": 1')],
        2: [good[: len(good) // 2]],
        3: [],
        4: ["It looks fine to me.", good],
        5: [f"Here is my answer.\n```json\n{good}\n```\nI hope that it helps."],
        6: [good.replace("image_id", "picture_id")],
        7: [""],
    }
    return faults.get(kind, [good])


def write_replies(folder: Path) -> None:
    """Write what three judges said of every edit: the first, a second one, and the first at a later time."""
    for judge, of_how_many in (("first", 40), ("second", 60), ("later", 200)):
        rows = []
        for model in MODELS:
            for number in range(SOURCES):
                name = item(model, number)
                for rubric, factors in FACTORS.items():
                    for repeat in range(REPEATS):
                        scores = {
                            factor: score(judge, model, number, factor, repeat)
                            for factor in factors
                        }
                        words = (
                            4
                            if drawn(20, "short", judge, name, rubric, repeat) == 0
                            else 18
                        )
                        kind = drawn(of_how_many, "fault", judge, name, rubric, repeat)
                        said = spoiled(reply(rubric, scores, name, words), kind)
                        rows += [
                            {
                                "item": name,
                                "rubric": rubric,
                                "repeat": repeat,
                                "reply": text,
                            }
                            for text in said
                        ]
        write_rows(folder / f"{judge}.jsonl", rows)


# --- people ---------------------------------------------------------------------------------------------------

RATERS = ("ann", "ben", "cho")
RATED = {"wish": "alignment", "look": "image_quality", "seamlessness": "seamlessness"}
"""What people call a factor."""


def write_people(folder: Path) -> None:
    """Write ratings of single edits, preferences between two of them, and other people's scores."""
    ratings, scores, votes = [], [], []
    for number in range(SOURCES):
        for model in MODELS:
            name = item(model, number)
            for factor, meant in RATED.items():
                truth = sum(
                    score("first", model, number, meant, repeat)
                    for repeat in range(REPEATS)
                )
                for rater in RATERS:
                    if drawn(12, "left out", rater, name, factor):
                        rated = min(
                            5,
                            max(1, (truth * 5 + drawn(21, rater, name, factor)) // 14),
                        )
                        ratings.append((name, rater, factor, rated))
                for judge in ("elder", "minor"):
                    guessed = int(drawn(15, "guessed", judge, name, factor) == 0)
                    value = truth / 2 + drawn(41, judge, name, factor) / 10 - 2
                    scores.append((name, judge, factor, value, guessed))
        a, b = MODELS[number % 3], MODELS[(number + 1) % 3]
        said = ("A", "B", "tie", "A")[drawn(4, "prefers", number)]
        votes.append(
            (
                item(a, number),
                item(b, number),
                a,
                b,
                said,
                f"bed {number}",
                *_votes(number),
            )
        )
    write_table(folder / "ratings.csv", ("item", "rater", "factor", "score"), ratings)
    write_table(
        folder / "scores.csv", ("item", "judge", "factor", "score", "guessed"), scores
    )
    columns = (
        "a",
        "b",
        "model_a",
        "model_b",
        "preference",
        "group",
        "vote:elder",
        "vote:minor",
    )
    write_table(folder / "preferences.csv", columns, votes)


def _votes(number: int) -> list[str]:
    return [
        ("A", "B", "tie", "")[drawn(4, "votes", judge, number)]
        for judge in ("elder", "minor")
    ]


# --- a set of rubrics -----------------------------------------------------------------------------------------


def write_garden(folder: Path) -> None:
    """Write a set with formulas, and replies to it; some are missing or wrong."""
    (folder / "garden.yaml").write_text(SET, "utf-8")
    rows = []
    for model in MODELS:
        for number in range(SOURCES):
            name = item(model, number)
            for repeat in range(REPEATS):
                scores = {
                    factor: score("garden", model, number, factor, repeat)
                    for factor in FACTORS["fidelity"]
                }
                said = [("fidelity", repeat, reply("fidelity", scores, name))]
                for sample in range(3):
                    asked = repeat * 3 + sample
                    looks = {
                        key: drawn(13, key, name, asked) / 2 + 4
                        for key in ("natural", "tidy")
                    }
                    said.append(("looks", asked, json.dumps(looks)))
                said.append(
                    (
                        "verdict",
                        repeat,
                        json.dumps({"hang": int(drawn(4, "hang", name, repeat) > 0)}),
                    )
                )
                for rubric, asked, text in said:
                    found = spoiled(text, drawn(150, "garden", name, rubric, asked))
                    rows += [
                        {"item": name, "rubric": rubric, "repeat": asked, "reply": one}
                        for one in found
                    ]
    write_rows(folder / "garden.jsonl", rows)


# --- pairs ----------------------------------------------------------------------------------------------------


def write_pair_replies(
    folder: Path, name: str, pairs: Iterable[Mapping[str, Any]], repeats: int = 1
) -> None:
    """Write what a judge says of pairs: most by merit, some by place, some ties, and some without an answer."""
    rows = []
    for pair in pairs:
        for repeat in range(repeats):
            for order in ("ab", "ba"):
                said = _choice(pair, repeat, order)
                fault = drawn(30, "pair fault", pair["id"], repeat, order)
                place = {
                    "item": pair["id"],
                    "rubric": "preference",
                    "repeat": repeat,
                    "order": order,
                }
                rows += [
                    place | {"reply": text}
                    for text in spoiled(said, fault if fault in (0, 2, 3, 4) else 9)
                ]
    write_rows(folder / name, rows)


def _choice(pair: Mapping[str, Any], repeat: int, order: str) -> str:
    entries = {}
    for factor in ("instruction", "preservation", "quality", "overall"):
        merit = (
            LEVELS[pair["model_a"]]
            - LEVELS[pair["model_b"]]
            + drawn(25, "merit", pair["id"], factor)
            - 12
        )
        manner = drawn(8, "manner", pair["id"], factor, repeat)
        if manner == 0:
            choice = "a"
        elif manner == 1 or abs(merit) < 3:
            choice = "tie"
        else:
            choice = "a" if (merit > 0) == (order == "ab") else "b"
        entries[factor] = {"justification": " ".join(WORDS[:14]), "choice": choice}
    return json.dumps({"image_id": pair["id"], "preference_results": entries})


# --- pictures that are looked at ------------------------------------------------------------------------------


def write_pictures(folder: Path) -> None:
    """Write six edits of one scene of 256 pixels, with mask and truth where known, and two without an output."""
    (folder / "large").mkdir()
    before = scene()
    made = outputs()
    white = np.full_like(before, 255)
    mask = np.where(disc_at(len(before))[..., None], white, 0)
    for name, picture in {"before": before, "mask": mask, **made}.items():
        (folder / "large" / f"{name}.png").write_bytes(png(picture))
    rows = []
    for number, name in enumerate(made):
        row = {
            "id": name,
            "input": "large/before.png",
            "edited": f"large/{name}.png",
            "instruction": INSTRUCTIONS[name],
            "model": ("elm", "fir")[number % 2],
            "edit_type": "scene",
        }
        if name in ("recoloured", "spoilt"):
            row |= {"mask": "large/mask.png", "ground_truth": "large/recoloured.png"}
        rows.append(row)
    (folder / "large" / "broken.png").write_bytes(b"not a picture")
    for name in ("broken", "lost"):
        rows.append(rows[0] | {"id": name, "edited": f"large/{name}.png"})
    write_rows(folder / "scenes.jsonl", rows)
    few = [row for row in rows if row["id"] in ("recoloured", "spoilt", "unchanged")]
    write_rows(folder / "candidates.jsonl", few)
    pairs = [
        {
            "id": f"{a}|{b}",
            "input": "large/before.png",
            "edited_a": f"large/{a}.png",
            "edited_b": f"large/{b}.png",
            "instruction": "Make the red disc blue.",
            "model_a": "elm",
            "model_b": "fir",
        }
        for a, b in (("recoloured", "spoilt"), ("removed", "recoloured"))
    ]
    write_rows(folder / "scene_pairs.jsonl", pairs)
