"""Fit the forest of `editjudge/vision/measured/blending.json`, by which blends of input and edit are told from edits.

    python -m bench.fit_blending [--data ../shared/data] [-o FILE]

Blends every real edit with its input at four shares, some of them saved as JPEG, resized, shifted, tinted or blurred
afterwards, and so a part of another photograph with the input. Real edits and pasted parts, treated alike, and inputs
with a part that was relit, tinted or blurred are the other side. The bound is chosen on predictions for photographs
that the trees were not fitted to, so that 1 % of the edits that people call at least partly done are called blends.
Prints the share of each kind that is called a blend.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import GroupKFold

from bench.fit_illumination import forest_of, write
from bench.fit_measured import photograph
from bench.hacks import DATA, edits, pictures
from editjudge.vision.measured.blending import FILE, NAMES, find_remains
from editjudge.vision.measured.scene import Array, fit

SHARES = (0.8, 0.6, 0.4, 0.25)
TREATED = (1.0, 0.6)
"""Shares of which a treated copy is fitted too."""
ALARMS = 0.01
"""Share of rated edits that may be called blends."""
WEIGHT = 3.0
"""Weight of edits and pastes, since there are fewer of these than of blends."""
FOLDS = 6


@dataclass(frozen=True)
class Case:
    photograph: str
    kind: str
    blend: bool
    rated: bool
    remains: Array

    @property
    def simulated(self) -> bool:
        """Whether the whole input was only treated otherwise, or a part of it."""
        return self.kind.startswith(("dimmed", "in few levels"))


def levels(image: Array) -> Array:
    return np.clip(image + 0.5, 0, 255).astype(np.uint8)


def treated(image: Array, rng: np.random.Generator) -> Array:
    """The same image after one of five harmless treatments."""
    height, width = image.shape[:2]
    match int(rng.integers(5)):
        case 0:
            quality = int(rng.integers(60, 96))
            subsampling = [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420]  # fmt: skip
            file = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality, *subsampling])[1]  # fmt: skip
            return np.asarray(cv2.imdecode(file, cv2.IMREAD_COLOR))
        case 1:
            scale = rng.uniform(0.5, 1.5)
            return fit(
                fit(image, round(width * scale), round(height * scale)), width, height
            )
        case 2:
            right, down = rng.integers(-2, 3, 2).tolist()
            return np.roll(image, (right, down), (0, 1))
        case 3:
            toned = (image - 128.0) * rng.uniform(0.92, 1.08) + 128
            return levels(toned + rng.uniform(-8, 8, 3))
    return cv2.GaussianBlur(image, (0, 0), rng.uniform(0.5, 1.2))


def some_part(before: Array, rng: np.random.Generator) -> Array:
    """1 in an ellipse with a soft rim, 0 elsewhere."""
    height, width = before.shape[:2]
    part = np.zeros((height, width), np.float32)
    across, down = rng.uniform(0.25, 0.75, 2) * (width, height)
    axes = rng.uniform(0.1, 0.35, 2) * (width, height)
    cv2.ellipse(part, (round(across), round(down)), (round(axes[0]), round(axes[1])), 0, 0, 360, 1.0, -1)  # fmt: skip
    return cv2.GaussianBlur(part, (0, 0), rng.uniform(1, 20))[..., None]


def dimmed(before: Array, part: Array, rng: np.random.Generator) -> Array:
    """The input with a part relit, tinted, hazy or blurred: contours at one share, and nothing drawn."""
    start = before.astype(np.float32)
    share = rng.uniform(0.35, 0.85)
    ends = (
        share * start,
        rng.uniform(0.2, 0.5) * start * rng.uniform(0.7, 1.3, 3),
        share * start + (1 - share) * rng.uniform(120, 255),
        share * start + (1 - share) * rng.uniform(0, 255, 3),
        cv2.GaussianBlur(start, (0, 0), rng.uniform(1.5, 5)),
        start[..., rng.permutation(3)] * rng.uniform(0.5, 1, 3),
    )
    return levels(start + (ends[int(rng.integers(len(ends)))] - start) * part)


def coarse(before: Array, rng: np.random.Generator) -> Array:
    """The input in two to four levels of each channel."""
    steps = int(rng.integers(1, 4))
    return levels(np.round(before / 255.0 * steps) / steps * 255)


def outputs(
    before: Array, edited: Array, other: Array, rng: np.random.Generator
) -> Iterator[tuple[str, bool, Array]]:
    start = before.astype(np.float32)
    height, width = before.shape[:2]
    end = fit(edited, width, height)
    for share in (1.0, *SHARES):
        output = end if share == 1 else levels(start + share * (end - start))
        yield f"{share:.0%} of the edit", share < 1, output
        if share in TREATED:
            yield f"{share:.0%}, treated", share < 1, treated(output, rng)
    part = some_part(before, rng)
    pasted = start + part * (fit(other, width, height) - start)
    for share in (1.0, 0.6, 0.4):
        yield f"{share:.0%} of a paste", share < 1, levels(start + share * (pasted - start))  # fmt: skip
    yield "dimmed", False, dimmed(before, part, rng)
    for _ in range(2):
        yield "dimmed all over", False, dimmed(before, np.ones_like(part), rng)
    yield "in few levels", False, coarse(before, rng)


def cases(data: Path) -> Iterator[Case]:
    other = None
    for number, edit in enumerate(edits(data)):
        images = pictures(data, edit)
        if other is None or number % 7 == 0:
            other = images["edited"]
        group = photograph(str(edit.get("group") or edit["input"]))
        rated = edit["folder"] != "mixed_edits"
        rng = np.random.default_rng(number)
        for kind, blend, output in outputs(
            images["input"], images["edited"], other, rng
        ):
            remains = find_remains(images["input"], output)
            yield Case(group, kind, blend, rated, remains)


def fitted(chosen: list[Case]) -> Any:
    model = HistGradientBoostingClassifier(
        max_iter=120,
        max_leaf_nodes=8,
        learning_rate=0.08,
        l2_regularization=5.0,
        early_stopping=False,
        random_state=0,
    )
    weights = [1.0 if case.blend or case.simulated else WEIGHT for case in chosen]
    rows = np.array([case.remains for case in chosen])
    return model.fit(rows, [case.blend for case in chosen], sample_weight=weights)


def unseen(found: list[Case]) -> Array:
    """The probability of each case when its photograph was not fitted."""
    chances = np.zeros(len(found))
    groups = [case.photograph for case in found]
    rows = np.array([case.remains for case in found])
    for train, test in GroupKFold(FOLDS).split(rows, groups=groups):
        forest = forest_of(fitted([found[n] for n in train]), NAMES)
        chances[test] = forest.probability(rows[test])
    return chances


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("-o", type=Path, default=FILE)
    options = parser.parse_args()
    cv2.setNumThreads(1)
    found = list(cases(options.data))
    chances = unseen(found)
    real = [case.rated and case.kind == "100% of the edit" for case in found]
    bound = float(np.quantile(chances[real], 1 - ALARMS))
    called = defaultdict(list)
    for case, chance in zip(found, chances, strict=True):
        called[f"{case.kind}{'' if case.rated else ', unrated'}"].append(chance > bound)
    shares = {kind: round(float(np.mean(those)), 3) for kind, those in called.items()}
    print(json.dumps({"cases": len(found), "bound": round(bound, 3), "called blends": shares}, indent=1))  # fmt: skip
    forest = forest_of(fitted(found), NAMES)
    write(replace(forest, allowed=bound, changed=bound), len(found), options.o)


if __name__ == "__main__":
    main()
