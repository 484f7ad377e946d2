"""Images that visualise a measurement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import cv2
import numpy as np

from editjudge.vision.measured.measures import Measures
from editjudge.vision.measured.scene import Array, shrink


def draw(
    edited: Array, measures: Measures, lines: Sequence[Mapping[str, Any]] = ()
) -> dict[str, bytes]:
    """Return PNGs at the size at which images are measured, and not larger than the edited image: the change over the
    edited image, the contour of the edit, and the boxes of text."""
    height, width = measures.scene.shape
    canvas = cv2.resize(shrink(edited, max(height, width)), (width, height))[..., ::-1]
    strength = np.clip(measures.change.visible / 4, 0, 1)  # 1 at four times visible
    colour = cv2.applyColorMap((strength * 255).astype(np.uint8), cv2.COLORMAP_INFERNO)
    gray = cv2.cvtColor(cv2.cvtColor(canvas, cv2.COLOR_BGR2GRAY), cv2.COLOR_GRAY2BGR)
    share = np.clip(strength * 1.5, 0, 0.85)[..., None]
    heat = (gray * (1 - share) + colour * share).astype(np.uint8)
    # the contour of the edit, except along the border of the image
    region = measures.change.region
    kernel = np.ones((3, 3), np.uint8)
    border = cv2.BORDER_CONSTANT
    inner = cv2.erode(region, kernel, borderType=border, borderValue=1)
    rim = (region > 0) & (inner == 0) & (measures.scene.valid > 0)
    thick = cv2.dilate(rim.astype(np.uint8), np.ones((2, 2), np.uint8))
    boundary = canvas.copy()
    boundary[thick > 0] = (0, 0, 255)
    drawn = {"change": heat, "boundary": boundary}
    if lines:
        drawn["lettering"] = canvas.copy()
        for line in lines:
            left, top, right, bottom = line["box"]
            start = (round(left * width), round(top * height))
            end = (round(right * width), round(bottom * height))
            cv2.rectangle(drawn["lettering"], start, end, (0, 200, 0), 1)
    if width > edited.shape[1]:  # small images are measured enlarged
        size = (edited.shape[1], edited.shape[0])
        drawn = {
            name: cv2.resize(image, size, interpolation=cv2.INTER_AREA)
            for name, image in drawn.items()
        }
    return {
        name: cv2.imencode(".png", image)[1].tobytes() for name, image in drawn.items()
    }
