"""Outputs that are no edit, made of real inputs: what the judge, the audit, rewards and contradictions make of them.

    python bench/degenerate.py [--data ../shared/data] [--inputs 12] [--edits]

Makes every kind of such an output of inputs spread over the data, and prints one JSON document: by kind what it was
found to be, the mean score of each factor with how many were scored, what `audit` found, the rewards of a real `serve`
in both ways, and how many of the best and of the worst scores contradictions hold against. `--edits` looks at every
real edit instead and lists those that are found to be none, to be looked at one by one. Reads the data where it lies;
without it, says so and ends.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cv2
import httpx
import numpy as np
from PIL import Image

from editjudge.edit import Edit
from editjudge.manifest.audit import audit
from editjudge.rubrics.files import resolve
from editjudge.vision.contradictions import contradictions
from editjudge.vision.measured.assess import Subject, assess
from editjudge.vision.measured.calibration import load
from editjudge.vision.measured.degenerate import find_degenerate, glance

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
FOLDERS = (
    "imagenhub_text",
    "imagenhub_mask",
    "mixed_edits",
    "text_edits",
    "preference_pairs",
)
RUBRICS = ("preservation", "quality", "fidelity", "compliance", "lighting")
ASKED = "make the largest thing blue"
Picture = Any


def edits(data: Path) -> Iterator[Edit]:
    for folder in FOLDERS:
        for line in (data / folder / "manifest.jsonl").read_text("utf-8").splitlines():
            row = json.loads(line)
            for role in ("edited", "edited_a", "edited_b"):
                if row.get(role):
                    pictures = {
                        "input": data / folder / row["input"],
                        "edited": data / folder / row[role],
                    }
                    yield Edit(
                        f"{folder}/{row['id']}/{role}",
                        instruction=row["instruction"],
                        **pictures,
                    )


def saved(picture: Picture, kind: str = "PNG", **options: Any) -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(picture)).save(out, kind, **options)
    return out.getvalue()


def jpeg(picture: Picture, quality: int) -> Picture:
    return np.asarray(Image.open(io.BytesIO(saved(picture, "JPEG", quality=quality))))


def resized(
    picture: Picture, width: int, height: int, how: int = cv2.INTER_AREA
) -> Picture:
    return cv2.resize(picture, (width, height), interpolation=how)


def outputs(p: Picture, other: Picture, rng: np.random.Generator) -> dict[str, Picture]:
    height, width = p.shape[:2]
    y, x = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    noise = rng.integers(0, 256, p.shape, dtype=np.uint8)
    marked = cv2.putText(
        np.zeros_like(p),
        "PREVIEW",
        (9, height - 9),
        cv2.FONT_HERSHEY_SIMPLEX,
        1,
        (255, 255, 255),
        2,
    )
    small = resized(p, 32, max(1, 32 * height // width))
    return {
        "black": np.zeros_like(p),
        "white": np.full_like(p, 255),
        "grey": np.full_like(p, 128),
        "its mean colour": np.full_like(p, p.mean(axis=(0, 1)).astype(np.uint8)),
        "black, JPEG": jpeg(np.zeros_like(p), 60),
        "black, sensor noise": np.abs(rng.normal(3, 4, p.shape)).astype(np.uint8),
        "black, watermark": marked,
        "gradient": np.dstack([255 * x, 255 * y, 255 * (1 - x)]).astype(np.uint8),
        "checkerboard": np.repeat(
            ((y * 8).astype(int) + (x * 8).astype(int))[..., None] % 2 * 255, 3, 2
        ).astype(np.uint8),
        "noise": noise,
        "noise, JPEG": jpeg(noise, 60),
        "noise over 80 %": (0.2 * p + 0.8 * noise).astype(np.uint8),
        "another picture": resized(other, width, height),
        "2 x 2 tiles": np.tile(resized(p, width // 2, height // 2), (2, 2, 1)),
        "middle enlarged": resized(
            p[height // 4 : -height // 4, width // 4 : -width // 4],
            width,
            height,
            cv2.INTER_CUBIC,
        ),
        "32 pixels": resized(small, width, height, cv2.INTER_LINEAR),
        "32 pixels, blocks": resized(small, width, height, cv2.INTER_NEAREST),
        "lower 40 % grey": np.vstack(
            [p[: height * 3 // 5], np.full_like(p[height * 3 // 5 :], 128)]
        ),
        "24 pixels wide": resized(p, 24, max(16, 24 * height // width)),
        "the input": p,
        "the input, JPEG": jpeg(p, 85),
        "mirrored": p[:, ::-1],
        "upside down": p[::-1, ::-1],
    }


def measured(
    before: Picture, edited: Picture
) -> tuple[str, dict[str, float], int, int]:
    """What it is found to be, its scores, and how many of the best and of the worst scores are contradicted."""
    subject = Subject({"input": before, "edited": np.ascontiguousarray(edited)}, ASKED)
    scores: dict[str, float] = {}
    praised = blamed = 0
    for rubric in resolve(RUBRICS):
        found = assess(rubric, subject, load())
        scores |= found.scores
        scales = {factor.key: factor.scale for factor in rubric.factors}
        best, worst = (
            {key: getattr(scale, end) for key, scale in scales.items()}
            for end in ("best", "worst")
        )
        praised += len(contradictions(best, {}, found.evidence, scales))
        blamed += len(contradictions(worst, {}, found.evidence, scales))
    return (
        subject.degenerate.kind if subject.degenerate else "-",
        scores,
        praised,
        blamed,
    )


def rewards(
    made: list[tuple[str, Picture, Picture]], how: str, folder: Path
) -> dict[str, list[float | None]]:
    """Of a real server, by what was made."""
    command = [
        sys.executable,
        "-m",
        "editjudge",
        "serve",
        "--create",
        "--port",
        "0",
        "--json",
        "--rubric",
        "preservation",
        "--rubric",
        "quality",
        "--degenerate",
        how,
    ]
    server = subprocess.Popen(
        [*command, "--store", folder / f"{how}.db"], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    found: dict[str, list[float | None]] = {}
    try:
        url = next(line.split('"')[3] for line in server.stdout if '"url"' in line)
        for name, before, edited in made:
            sent = {
                role: base64.b64encode(saved(p)).decode()
                for role, p in (("input", before), ("edited", edited))
            }
            body = json.dumps({"edits": [{"instruction": ASKED, **sent}]}).encode()
            headers = {"content-type": "application/json"}
            answer = httpx.post(
                f"{url}v1/reward", content=body, headers=headers, timeout=120
            ).json()
            found.setdefault(name, []).append(answer["rewards"][0]["reward"])
    finally:
        server.terminate()
        server.wait(60)
    return found


def audited(
    made: list[tuple[str, Picture, Picture]], folder: Path
) -> dict[str, Counter[str]]:
    rows = []
    for n, (name, *pictures) in enumerate(made):
        names = [f"{n}-{role}.png" for role in ("input", "edited")]
        for path, picture in zip(names, pictures, strict=True):
            (folder / path).write_bytes(saved(picture))
        rows.append(
            {
                "id": f"{n}:{name}",
                "input": names[0],
                "edited": names[1],
                "instruction": ASKED,
            }
        )
    manifest = folder / "edits.jsonl"
    manifest.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    found: dict[str, Counter[str]] = {name: Counter() for name, *_ in made}
    for finding in audit(manifest).findings:
        found[finding.id.partition(":")[2]][finding.kind] += 1
    return found


def table(data: Path, count: int) -> dict[str, Any]:
    inputs = list(dict.fromkeys(edit.input for edit in edits(data)))
    chosen = [inputs[n] for n in np.linspace(0, len(inputs) - 1, count).astype(int)]
    pictures = [p for p in map(glance, chosen) if p is not None]
    rng = np.random.default_rng(0)
    pairs = zip(pictures, [*pictures[1:], pictures[0]], strict=True)
    made = [
        (name, p, edited)
        for p, other in pairs
        for name, edited in outputs(p, other, rng).items()
    ]
    kinds: dict[str, dict[str, Any]] = {}
    for name, before, edited in made:
        kind, scores, praised, blamed = measured(before, edited)
        row = kinds.setdefault(
            name,
            {
                "found": Counter(),
                "scores": {},
                "praise contradicted": 0,
                "blame contradicted": 0,
            },
        )
        row["found"][kind] += 1
        row["praise contradicted"] += praised
        row["blame contradicted"] += blamed
        for factor, score in scores.items():
            row["scores"].setdefault(factor, []).append(score)
    with tempfile.TemporaryDirectory() as folder:
        looked = audited(made, Path(folder))
        paid = {how: rewards(made, how, Path(folder)) for how in ("null", "worst")}
    for name, row in kinds.items():
        row["scores"] = {
            f: {"mean": round(float(np.mean(s)), 2), "n": len(s)}
            for f, s in row["scores"].items()
        }
        row |= {
            "audit": looked[name],
            "reward, null": paid["null"][name],
            "reward, worst": paid["worst"][name],
        }
    return {"inputs": len(pictures), "kinds": kinds}


def scan(data: Path) -> dict[str, Any]:
    pairs = {(edit.input, edit.edited): edit for edit in edits(data)}
    found = []
    look: Callable[[Any], Picture] = glance
    for (before, edited), edit in pairs.items():
        output = find_degenerate(look(before), look(edited), edit.instruction)
        if output is not None:
            found.append({"edit": edit.id, "kind": output.kind, "words": output.words})
    return {
        "edits": len(pairs),
        "kinds": Counter(one["kind"] for one in found),
        "found": found,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n", maxsplit=1)[0]
    )
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--inputs", type=int, default=12)
    parser.add_argument("--edits", action="store_true")
    given = parser.parse_args()
    if not given.data.is_dir():
        print(f"{given.data}: no such folder; nothing was looked at", file=sys.stderr)
        return
    print(
        json.dumps(
            scan(given.data) if given.edits else table(given.data, given.inputs),
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
