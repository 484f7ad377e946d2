"""What doing less pays: rewards over preservation and quality of outputs made from an edit, beside the edit's own.

    python -m bench.hacks [--data ../shared/data] [--every 12] [--alarms]

From every twelfth real edit five outputs are made: the input with a tenth and with six tenths of the edit, with 15 % more
contrast, with a small sticker, and the input itself. Prints one JSON document: for each, how many have no reward, and by
how much the others pay more than the edit itself (mean, and mean with no reward counted as no gain). `--alarms` looks at
every edit that people call at least partly done, and lists those that the detector calls unchanged. Reads the data in
place; without it, says so and ends.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import cv2
import numpy as np

from editjudge.rubrics.files import resolve
from editjudge.vision.measured.assess import Subject, assess
from editjudge.vision.measured.calibration import load
from editjudge.vision.measured.degenerate import find_degenerate, glance
from editjudge.vision.measured.scene import fit

Picture = Any
DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
FOLDERS = ("imagenhub_text", "imagenhub_mask", "mixed_edits")
RUBRICS = resolve(["preservation", "quality"])


def edits(data: Path) -> Iterator[dict[str, Any]]:
    """Real edits with their folder, without those that people call not done."""
    for folder in FOLDERS:
        done: dict[str, list[float]] = defaultdict(list)
        ratings = data / folder / "ratings.csv"
        if ratings.exists():
            with ratings.open(encoding="utf-8") as file:
                for row in csv.DictReader(file):
                    if row["factor"] == "SC":
                        done[row["item"]].append(float(row["score"]))
        for line in (data / folder / "manifest.jsonl").read_text("utf-8").splitlines():
            edit = json.loads(line)
            if not done or any(done[edit["id"]]):
                yield edit | {"folder": folder}


def pictures(data: Path, edit: dict[str, Any]) -> dict[str, Picture]:
    roles = [role for role in ("input", "edited", "mask") if edit.get(role)]
    return {role: glance(data / edit["folder"] / edit[role]) for role in roles}


def hacks(before: Picture, edited: Picture, seed: int) -> Iterator[tuple[str, Picture]]:
    start = before.astype(np.float32)
    height, width = before.shape[:2]
    end = fit(edited, width, height).astype(np.float32)
    mean = start.mean(axis=(0, 1))
    for name, output in (
        ("input + 10 % of the edit", start + 0.1 * (end - start)),
        ("input + 60 % of the edit", start + 0.6 * (end - start)),
        ("input + 15 % contrast", (start - mean) * 1.15 + mean),
    ):
        yield name, np.clip(output + 0.5, 0, 255).astype(np.uint8)
    sticker = before.copy()
    radius = max(2, round(0.02 * max(height, width)))
    rng = np.random.default_rng(seed)
    at = [int(rng.integers(2 * radius, side - 2 * radius)) for side in (width, height)]
    cv2.circle(sticker, at, radius, (255, 220, 0), -1)
    cv2.circle(sticker, at, radius, (200, 30, 30), 2)
    yield "input + small sticker", sticker
    yield "the input", before


def reward(images: dict[str, Picture], instruction: str) -> float | None:
    """The mean of both rubrics' means, each score as a share of its scale; None for an output that is set aside."""
    subject = Subject(images, instruction)
    output = subject.degenerate
    if output and output.certain and (output.set_aside or output.kind == "unchanged"):
        return None
    means = []
    for rubric in RUBRICS:
        scores = assess(rubric, subject, load()).expected
        if not scores:
            return None
        means.append(fmean((score - 1) / 6 for score in scores.values()))
    return fmean(means)


def table(data: Path, every: int) -> dict[str, Any]:
    paid: dict[str, list[float]] = defaultdict(list)
    unpaid: Counter[str] = Counter()
    real: Counter[str] = Counter()
    for number, edit in enumerate(list(edits(data))[every // 2 :: every]):
        images = pictures(data, edit)
        usual = reward(images, edit["instruction"])
        real["edits"] += 1
        if usual is None:
            real["without a reward"] += 1
            continue
        for name, output in hacks(images["input"], images["edited"], number):
            other = reward(images | {"edited": output}, edit["instruction"])
            if other is None:
                unpaid[name] += 1
            else:
                paid[name].append(other - usual)
    names = sorted({*paid, *unpaid})
    return {
        "real edits": real,
        "hacks": {
            name: {
                "without a reward": unpaid[name],
                "with a reward": len(paid[name]),
                "mean gain of these": round(fmean(paid[name]), 3) if paid[name] else None,
                "mean gain of all": round(sum(paid[name]) / (len(paid[name]) + unpaid[name]), 3),
                "paid more than .05": sum(gain > 0.05 for gain in paid[name]),
            }
            for name in names
        },
    }  # fmt: skip


def alarms(data: Path) -> dict[str, Any]:
    real = list(edits(data))
    found = []
    for edit in real:
        images = pictures(data, edit)
        output = find_degenerate(images["input"], images["edited"], edit["instruction"])
        if output and output.kind == "unchanged":
            name = f"{edit['folder']}/{edit['id']}"
            found.append([name, edit["instruction"], output.words])
    return {"edits": len(real), "called unchanged": len(found), "these": found}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n", maxsplit=1)[0]
    )
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--every", type=int, default=12)
    parser.add_argument("--alarms", action="store_true")
    options = parser.parse_args()
    if not options.data.is_dir():
        print(f"{options.data}: no such folder; nothing was looked at", file=sys.stderr)
        return
    cv2.setNumThreads(1)
    result = alarms(options.data) if options.alarms else table(options.data, options.every)  # fmt: skip
    print(json.dumps(result, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
