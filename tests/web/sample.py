"""A small run to look at: photographs that anybody may use, edited by simple means, judged by hand."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import skimage.data
from PIL import Image, ImageDraw, ImageEnhance, ImageFilter, ImageOps

from editjudge.judgement import Exchange, Judgement, Task, Usage
from editjudge.media.image import digest
from editjudge.rubrics.files import resolve
from editjudge.rubrics.model import Factor, Rubric
from editjudge.rubrics.verdict import Remark
from editjudge.store.ratings import add_ratings
from editjudge.store.records import Item
from editjudge.store.store import Store

MODELS = ("brush-2", "quill-xl")
JUDGES = ("openai/vision-1", "google/looker")
EDITS = (
    ("coffee", "recolor", "Make the cup blue"),
    ("chelsea", "style", "Turn the photograph into a black-and-white one"),
    (
        "astronaut",
        "background",
        "Make the background warmer, and leave the person as she is",
    ),
    ("rocket", "lighting", "Let the launch happen at dusk"),
    ("coffee", "remove", "Remove the spoon"),
    ("chelsea", "text", 'Write "CHELSEA" across the bottom'),
)
REASONS = (
    "Nothing of what was asked can be seen; the picture is as it was.",
    "Little of it is right: the change spills far beyond what was meant.",
    "Parts were changed that nobody asked for, and it shows.",
    "It is half done, and the rim of the edit can be seen.",
    "Mostly as asked; a close look finds small flaws.",
    "As asked, with one small flaw in the shadows.",
    "Exactly what was asked for, and everything else is untouched.",
)
SIZE = (480, 360)


def photograph(name: str) -> Image.Image:
    return ImageOps.fit(
        Image.fromarray(getattr(skimage.data, name)()).convert("RGB"), SIZE
    )


def edited(name: str, kind: str, model: str) -> Image.Image:
    picture = photograph(name)
    careless = model == "quill-xl"
    if kind == "recolor":
        blue = Image.merge("RGB", picture.split()[::-1])
        mask = Image.new("L", SIZE, 255 if careless else 0)
        ImageDraw.Draw(mask).ellipse((120, 60, 360, 290), fill=255)
        return Image.composite(blue, picture, mask.filter(ImageFilter.GaussianBlur(6)))
    if kind == "style":
        return (
            ImageOps.grayscale(picture).convert("RGB")
            if not careless
            else ImageEnhance.Color(picture).enhance(0.4)
        )
    if kind == "background":
        warm = np.clip(
            np.asarray(picture, np.float32) * (1.2, 1.0, 0.75), 0, 255
        ).astype(np.uint8)
        return Image.fromarray(warm)
    if kind == "lighting":
        return ImageEnhance.Brightness(picture).enhance(0.5 if not careless else 0.9)
    if kind == "remove":  # another size comes back, as it often does
        ImageDraw.Draw(picture).rectangle((330, 180, 470, 330), fill=(96, 60, 40))
        return picture.resize((360, 270)) if careless else picture
    ImageDraw.Draw(picture).text(
        (110, 300), "CHELSEA" if not careless else "CHELSAE", fill="white", font_size=56
    )
    return picture


def made(folder: Path) -> Path:
    """A store with two runs over one manifest, the second without the careless model's mistakes."""
    (folder / "img").mkdir(parents=True)
    items = list(_items(folder))
    (folder / "edits.jsonl").write_text(
        "".join(json.dumps({"id": item.item}) + "\n" for item in items)
    )
    place = folder / "editjudge.db"
    rubrics = resolve(["online"])
    with Store.open(place) as store:
        store.add_rubrics(rubrics)
        for name, shift in (("spring", 0), ("summer", 1)):
            spec = {
                "manifest": str(folder / "edits.jsonl"), "layout": "images-first", "judges": list(JUDGES),
                "rubrics": {rubric.name: rubric.hash for rubric in rubrics}, "name": name,
            }  # fmt: skip
            run = store.open_run(name, spec)
            store.add_items(run, items)
            found = [
                _judged(item, n, rubric, judge, shift)
                for n, item in enumerate(items)
                for rubric in rubrics
                for judge in JUDGES
            ]
            store.add_tasks(run, (task for task, _ in found))
            store.write([judgement for _, judgement in found])
            statuses: dict[str, int] = {}
            for _, judgement in found:
                statuses[judgement.status] = statuses.get(judgement.status, 0) + 1
            store.mark(run, "finished", {"statuses": statuses})
        against = next(
            j for _, j in found if j.status == "ok" and j.rubric == "preservation"
        )
        measured = dataclasses.replace(
            against,
            key="0" * 64,
            judge="measured",
            evidence={"measures": {"change.visible outside": {"value": 0.31}}},
        )
        store.append(
            run, [Task(items[0].item, "preservation", "measured", 0, measured.key)]
        )
        store.write([measured])
        add_ratings(
            store,
            [
                (items[0].item, rater, "alignment", score)
                for rater, score in (("Ada", 6), ("Grace", 2))
            ],
        )
    return place


def _items(folder: Path) -> Iterator[Item]:
    for model in MODELS:
        for number, (name, kind, instruction) in enumerate(EDITS):
            images: dict[str, Any] = {}
            for role, data in _jpegs(name, kind, model).items():
                path = folder / "img" / f"{model}-{number}-{role}.jpg"
                path.write_bytes(data)
                images[role] = {"source": str(path), "digest": digest(data)}
            yield Item(
                f"{model}/{number}",
                model,
                kind,
                f"{name}-{number}",
                instruction,
                "",
                images,
                {"seed": number},
            )


@functools.cache
def _jpegs(name: str, kind: str, model: str) -> dict[str, bytes]:
    pictures = {"input": photograph(name), "edited": edited(name, kind, model)}
    if kind == "recolor":
        pictures["ground_truth"] = edited(name, kind, MODELS[0])
    if (model, kind) == ("quill-xl", "lighting"):
        del pictures["edited"]  # it produced nothing
    found = {}
    for role, picture in pictures.items():
        picture.save(data := io.BytesIO(), "JPEG", quality=92)
        found[role] = data.getvalue()
    return found


def _judged(
    item: Item, number: int, rubric: Rubric, judge: str, shift: int
) -> tuple[Task, Judgement]:
    key = hashlib.sha256(
        f"{item.item} {rubric.name} {judge} {shift}".encode()
    ).hexdigest()
    task = Task(item.item, rubric.name, judge, 0, key)
    if "edited" not in item.images:
        why = (Remark("missing_output", "the editing model produced no picture"),)
        return task, Judgement(
            key, "missing_output", judge, rubric.name, rubric.hash, reasons=why
        )
    if (number, judge, rubric.name) == (3, JUDGES[1], "quality"):
        why = (Remark("no_json", "the reply holds no JSON object"),)
        said = (
            Exchange(
                "I'm sorry, but I can't judge this picture.",
                "refused",
                reasons=why,
                latency=0.8,
            ),
        )
        return task, Judgement(
            key, "refused", judge, rubric.name, rubric.hash, reasons=why, exchanges=said
        )
    scores = {
        factor.key: _score(item, number, factor, judge, shift)
        for factor in rubric.factors
    }
    words = {name: REASONS[score - 1] for name, score in scores.items()}
    reply = json.dumps(
        {
            name: {"score": scores[name], "justification": words[name]}
            for name in scores
        },
        indent=2,
    )
    remark = Remark(
        "justification_too_short",
        "the reason has 12 words; asked were 20 to 60",
        rubric.factors[0].key,
    )
    exchange = Exchange(
        reply,
        "ok",
        usage=Usage(1840, 212),
        model="vision-1-0914",
        request_id=f"req_{key[:8]}",
        latency=2.4,
    )
    return task, Judgement(
        key, "ok", judge, rubric.name, rubric.hash, scores=scores, justifications=words, exchanges=(exchange,),
        violations=(remark,) if number % 4 == 1 else (), schema_mode="enforced", prepared={"edited": "as-is"},
        cost=0.0061, created=1.79e9,
    )  # fmt: skip


def _score(item: Item, number: int, factor: Factor, judge: str, shift: int) -> int:
    seed = hashlib.sha256(f"{item.item} {factor.key}".encode()).digest()[0]
    level = (6 if item.model == MODELS[0] else 3 + shift) + seed % 3 - 1
    if judge == JUDGES[1] and number % 5 == 2:
        level -= 3
    return min(max(factor.scale.values), max(min(factor.scale.values), level))
