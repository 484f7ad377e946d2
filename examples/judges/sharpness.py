"""A judge that is a pure function: how sharp the output is beside the input, on any rubric's scale.

cd examples/judges && editjudge run ../edits.jsonl --judge python:sharpness:score --rubric quality
"""

from __future__ import annotations

from typing import Any

from PIL import Image, ImageFilter, ImageStat


def score(*, images: dict[str, Image.Image], rubric: Any, **_: Any) -> dict[str, Any]:
    if "input" not in images:
        return {factor.key: None for factor in rubric.factors}  # abstain
    ratio = _detail(images["edited"]) / max(_detail(images["input"]), 1e-6)
    reason = f"the output has {ratio:.2f} times the detail of the input"
    answers = {}
    for factor in rubric.factors:
        steps = factor.scale.steps
        place = round(min(ratio, 1.0) * (len(steps) - 1))
        answers[factor.key] = {"score": steps[place], "reason": reason}
    return answers


score.version = 1  # raise it when the same images would get other scores


def _detail(image: Image.Image) -> float:
    edges = image.convert("L").filter(ImageFilter.FIND_EDGES)
    return ImageStat.Stat(edges).stddev[0]
