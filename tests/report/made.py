"""A run with drawn pictures, verdicts, failures, evidence, contradictions and ratings: a store filled by hand."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFilter

from editjudge.judgement import Exchange, Judgement, Task
from editjudge.rubrics.files import resolve
from editjudge.rubrics.verdict import Remark
from editjudge.running.job import Job
from editjudge.store.ratings import add_ratings
from editjudge.store.records import Item
from editjudge.store.store import Store

JUDGES = ("openai/painter", "replay:critic.jsonl")
MODELS = {"clean": 6.2, "leaky": 4.6, "sloppy": 3.0}
KINDS = {
    "recolour": "make the house {}",
    "light": "light the house in {}",
    "sky": "make the sky behind it {}",
}
COLOURS = ("teal", "orange", "purple", "gold", "crimson", "navy")


@dataclass(frozen=True)
class Made:
    """What there is, and how it differs from what is usual."""

    edits: int = 6
    pictures: bool = True
    instruction: str = ""
    name: str = "houses"
    model: str = ""
    reply: str = "I would rather not say."
    files: dict[str, str] = field(default_factory=dict)
    """Other paths than the drawn ones, by role."""


def scene(colour: str, seed: int = 0, sloppy: int = 0) -> Image.Image:
    """A house under a sky, painted by us."""
    rng = random.Random(seed)
    image = Image.new("RGB", (360, 270))
    draw = ImageDraw.Draw(image)
    for y in range(270):
        share = y / 270
        draw.line(
            (0, y, 360, y),
            (int(110 + 90 * share), int(150 + 60 * share), int(205 - 30 * share)),
        )
    draw.rectangle((0, 190, 360, 270), (96, 128 + seed % 5 * 6, 74))
    for _ in range(60):
        x = rng.randrange(360)
        y = rng.randrange(195, 268)
        draw.line(
            (x, y, x + rng.randrange(-3, 4), y - rng.randrange(4, 10)), (70, 104, 56), 2
        )
    draw.ellipse((285, 24, 325, 64), (250, 236, 190))
    left = 90 + 12 * (seed % 6)
    draw.rectangle((left, 120, left + 130, 215), colour)
    draw.polygon([(left - 14, 120), (left + 65, 66), (left + 144, 120)], (112, 66, 52))
    draw.rectangle((left + 52, 165, left + 80, 215), (74, 52, 40))
    for x in (left + 14, left + 92):
        draw.rectangle((x, 140, x + 24, 164), (226, 232, 236), (60, 60, 60))
    image = image.filter(ImageFilter.GaussianBlur(0.6 + sloppy))
    return (
        image
        if not sloppy
        else Image.blend(image, Image.new("RGB", image.size, colour), 0.12 * sloppy)
    )


def made(folder: Path, spec: Made | None = None) -> Path:
    """A store in the folder, and the pictures beside it."""
    spec = spec or Made()
    folder.mkdir(exist_ok=True)
    rubrics = resolve(["preservation", "fidelity"])
    job = Job(
        folder / "edits.jsonl", ("preservation", "fidelity"), (*JUDGES, "measured")
    )
    rng = random.Random(5)
    with Store.open(folder / "s.db") as store:
        run = store.open_run(spec.name, job.spec(rubrics))
        store.add_rubrics(rubrics)
        items = list(_items(folder, spec))
        store.add_items(run, items)
        found = [
            (task, said)
            for item in items
            for task, said in _judgements(item, rubrics, rng, spec)
        ]
        store.add_tasks(run, [task for task, _ in found])
        store.write([judgement for _, judgement in found])
        rated = [i.item for i in items[: min(len(items), 60)]]
        add_ratings(store, [(item, who, "alignment", float(1 + (n * 3 + len(who)) % 7))
                            for n, item in enumerate(rated) for who in ("ann", "bo", "cem")])  # fmt: skip
        store.mark(run, "finished")
    return folder / "s.db"


def _items(folder: Path, spec: Made) -> Iterator[Item]:
    for n in range(spec.edits):
        kind = list(KINDS)[n % len(KINDS)]
        for m, model in enumerate(MODELS):
            name = f"{model}-{n}"
            images: dict[str, dict[str, str | None]] = {}
            for role in ("input", "edited") if spec.pictures else ():
                path = Path(
                    spec.files.get(role)
                    or folder / (f"in-{n}.png" if role == "input" else f"{name}.png")
                )
                if role not in spec.files:
                    scene(
                        "ivory" if role == "input" else COLOURS[n % 6],
                        n,
                        m if role == "edited" else 0,
                    ).save(path)
                known = (
                    hashlib.sha256(path.read_bytes()).hexdigest()
                    if role not in spec.files
                    else None
                )
                images[role] = {"source": str(path), "digest": known}
            words = spec.instruction or KINDS[kind].format(COLOURS[n % 6])
            yield Item(name, spec.model or model, kind, f"in-{n}", words, "", images)


def _judgements(
    item: Item, rubrics: Any, rng: random.Random, spec: Made
) -> Iterator[tuple[Task, Judgement]]:
    level = MODELS[item.item.split("-")[0]]
    for rubric in rubrics:
        for judge in (*JUDGES, "measured"):
            key = hashlib.sha256(
                json.dumps([item.item, rubric.hash, judge]).encode()
            ).hexdigest()
            task = Task(item.item, rubric.name, judge, 0, key)
            said: dict[str, Any] = {"key": key, "judge": judge, "rubric": rubric.name, "rubric_hash": rubric.hash,
                                    "created": 1.8e9, "prepared": {"input": "as-is", "edited": "as-is"}}  # fmt: skip
            keys = [factor.key for factor in rubric.factors]
            if judge == "measured" and rubric.name == "fidelity":
                yield (
                    task,
                    Judgement(
                        status="abstained",
                        abstained=dict.fromkeys(keys, "takes understanding"),
                        **said,
                    ),
                )
            elif judge == JUDGES[1] and rng.random() < 0.15:
                exchange = Exchange(spec.reply, "refused", model="critic-2")
                reasons = (Remark("refused", f"the model declined: {spec.reply}"),)
                yield (
                    task,
                    Judgement(
                        status="refused", reasons=reasons, exchanges=(exchange,), **said
                    ),
                )
            else:
                scores = {k: max(1, min(7, round(rng.gauss(level, 0.9)))) for k in keys}
                why = dict.fromkeys(
                    keys,
                    spec.instruction
                    or "The walls changed as asked; grass and sky stay, upper right.",
                )
                exchange = Exchange(
                    "{}", "ok", model="painter-2026-10" if judge == JUDGES[0] else None
                )
                if judge == "measured":
                    said["evidence"] = {
                        "measures": {"change.visible outside": {"value": 0.34}}
                    }
                yield (
                    task,
                    Judgement(
                        status="ok",
                        scores=scores,
                        justifications=why,
                        exchanges=(exchange,),
                        **said,
                    ),
                )
