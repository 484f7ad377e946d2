"""The embedded judge. Needs the extra `measured`; whatever is heavy is imported when it measures."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any

from editjudge.edit import ImageSource
from editjudge.measured.contradictions import Contradiction, contradictions
from editjudge.measured.judge import Measured, changed_region, draw

__all__ = ["Contradiction", "Measured", "changed_region", "contradictions", "evidence_pictures", "missing"]

_NEEDED = {
    "numpy": "numpy",
    "scipy": "scipy",
    "cv2": "opencv-python-headless",
    "onnxruntime": "onnxruntime",
    "rapidocr": "rapidocr",
}


def missing() -> list[str]:
    """Distributions that the judge needs and that are not installed."""
    return [name for module, name in _NEEDED.items() if not _is_installed(module)]


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ValueError:  # another thread is importing it, and it has no spec yet
        return True


def evidence_pictures(
    before: ImageSource,
    edited: ImageSource,
    mask: ImageSource | None = None,
    evidence: Mapping[str, Any] | None = None,
) -> dict[str, bytes]:
    """PNGs by name: `change` over the edited picture, `boundary` of the edit, `lettering` where it was read.

    Made again from the pictures when they are looked at, so that a store need not keep them. For the reference
    rubric the first picture is the ground truth. Raises `ImageError` where a picture cannot be read.
    """
    return draw(before, edited, mask, evidence or {})
