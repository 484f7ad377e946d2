"""Pictures as arrays, for the judges that look at them in this process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from editjudge.errors import ImageError
from editjudge.media.cache import Encoded
from editjudge.media.image import ImageLimits, decode

READABLE = ImageLimits(formats=frozenset({"jpeg", "png", "webp", "gif", "bmp", "tiff", "heic"}), base64=False)
"""Whatever can be decoded, at its own size."""
_LARGE = 40_000_000
"""Pixels of one edit's pictures, from which on edits are measured one at a time, and let go when no more questions are
open about them: a pixel takes seven bytes while it is decoded, and three as long as it is kept."""


def opened(encoded: Mapping[str, Encoded]) -> tuple[dict[str, Any], dict[str, ImageError]]:
    """RGB arrays of 8 bits by role, and why the others cannot be read."""
    import numpy as np

    pictures, broken = {}, {}
    for role, one in encoded.items():
        try:
            pictures[role] = np.asarray(decode(one.data, name=f"the {role}"))
        except ImageError as error:
            broken[role] = error
    return pictures, broken


def is_large(sizes: Mapping[str, tuple[int, int]]) -> bool:
    """Whether pictures of these widths and heights take so much memory that only one edit is opened at a time."""
    return sum(width * height for width, height in sizes.values()) > _LARGE


def cores() -> int:
    """Cores that this process may use: those it was told to, as clusters tell their workers, or all it can."""
    if (threads := os.environ.get("OMP_NUM_THREADS", "")).isdecimal() and int(threads):
        return int(threads)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
