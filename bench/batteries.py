"""Lighting and lettering edits with known answers, judged by `measured`: right, wrong and abstained, by kind.

    python -m bench.batteries lighting|lettering [--half report] [--each N] [--data ../shared/data] [--json]

Lighting: photographs of the data under 21 other lights, which must be allowed, and with 13 changes of content, small
and large, alone and under another light, which must not. Lettering: text drawn as requested, or with one fault.
Photographs and texts are in two halves: measures and bounds were chosen on `develop`, `report` is for figures. An
abstention is neither right nor wrong; a wrong answer is one given with confidence. `--real` judges the text edits of
the data instead, all of them as requested by a human designer.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np

from bench import lettering_cases, lighting_cases
from editjudge.media.image import decode
from editjudge.rubrics.files import load
from editjudge.vision.measured.assess import Subject, assess
from editjudge.vision.measured.calibration import load as load_calibration
from editjudge.vision.measured.change import find_change
from editjudge.vision.measured.relighting import judge_light
from editjudge.vision.measured.scene import compose

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
PASSED = 5
"""Alignment, of 7, from which the requested text is there and can be read."""
ANSWERS = ("right", "wrong", "abstained")
EACH = {"lighting": 16, "lettering": 6}
Row = tuple[str, bool, str, str]
"""Kind, whether the edit is good, the answer, and the reason that was stated."""


def judged(rubric: str, factor: str, subject: Subject) -> tuple[float | None, str]:
    result = assess(load(rubric), subject, load_calibration())
    score = result.scores.get(factor)
    reasons = result.abstained if score is None else result.justifications
    return score, reasons[factor]


def answer(passed: bool | None, good: bool) -> str:
    if passed is None:
        return "abstained"
    return "right" if passed == good else "wrong"


def lighting(data: Path, half: str, each: int) -> Iterator[Row]:
    for case in lighting_cases.cases(data, half, each):
        images = {"input": case.before, "edited": case.after}
        scene = compose(case.before, case.after)
        verdict = judge_light(images, scene, find_change(scene))
        passed = None if verdict.score is None else verdict.score > 1
        given = answer(passed, case.preserved)
        yield case.kind, case.preserved, given, verdict.reason


def lettering(data: Path, half: str, each: int) -> Iterator[Row]:
    for case in lettering_cases.cases(data, half, each):
        images = {"input": case.before, "edited": case.after}
        subject = Subject(images, case.instruction)
        score, reason = judged("fidelity", "alignment", subject)
        passed = None if score is None else score >= PASSED
        yield case.kind, case.as_asked, answer(passed, case.as_asked), reason


def real_lettering(data: Path) -> Iterator[Row]:
    folder = data / "text_edits"
    for line in (folder / "manifest.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        images = {
            role: np.asarray(decode((folder / row[role]).read_bytes()))
            for role in ("input", "edited")
        }
        subject = Subject(images, row["instruction"])
        score, reason = judged("fidelity", "alignment", subject)
        passed = None if score is None else score >= PASSED
        yield row["text_op"], True, answer(passed, True), reason


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("battery", choices=EACH)
    parser.add_argument("--half", choices=lighting_cases.HALVES, default="report")
    parser.add_argument("--each", type=int, help="cases of each kind")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--real", action="store_true", help="text edits of the data")
    parser.add_argument("--json", action="store_true", help="every case")
    options = parser.parse_args()
    needs_data = options.real or options.battery == "lighting"
    if needs_data and not options.data.is_dir():
        sys.exit(f"{options.data}: no such folder; name the data with --data FOLDER")
    cv2.setNumThreads(1)
    each = options.each or EACH[options.battery]
    draw = lighting if options.battery == "lighting" else lettering
    rows = real_lettering(options.data) if options.real else draw(options.data, options.half, each)  # fmt: skip
    tally: dict[tuple[bool, str], Counter[str]] = {}
    for kind, good, given, reason in rows:
        if options.json:
            fields = {"kind": kind, "good": good, "answer": given, "reason": reason}
            print(json.dumps(fields, ensure_ascii=False), flush=True)
        tally.setdefault((good, kind), Counter())[given] += 1
    show(tally, sys.stderr if options.json else sys.stdout)


def show(tally: dict[tuple[bool, str], Counter[str]], out: object) -> None:
    for good, title in ((True, "to be passed"), (False, "to be failed")):
        total: Counter[str] = Counter()
        for (is_good, kind), counts in tally.items():
            if is_good == good:
                total += counts
                _line(kind, counts, out)
        _line(f"all {title}", total, out)


def _line(name: str, counts: Counter[str], out: object) -> None:
    print(f"{name:32}", *(f"{counts[a]:4} {a}" for a in ANSWERS), file=out)  # type: ignore[call-overload]


if __name__ == "__main__":
    main()
