"""Pictures as training code has them, encoded without loss.

An encoded picture (bytes), a path, a PIL picture, or an array or tensor of one picture with 1, 3 or 4 channels:

- `uint8`, 0 to 255, or floating point, 0 to 1. Anything else is an error, also -1 to 1: nothing is guessed from
  values.
- height x width x channels or channels x height x width, whichever axis has 1, 3 or 4 entries. Where both have, an
  array of NumPy is height x width x channels and a tensor channels x height x width, as their libraries have it.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from editjudge.errors import InputError

_CHANNELS = {1: "L", 3: "RGB", 4: "RGBA"}
_ROUNDING = 1e-3
"""By which a float may leave 0 to 1: what decoders leave of rounding, less than a step of 8 bits."""


def encode(picture: Any, where: str = "a picture") -> bytes | Path | None:
    """The picture as a judge takes it; None stays None. Raises `InputError` that says `where`."""
    if picture is None or isinstance(picture, bytes | Path):
        return picture
    if isinstance(picture, str):
        return Path(picture)
    if hasattr(picture, "save") and hasattr(picture, "mode"):
        return _png(picture)
    from PIL import Image

    return _png(Image.fromarray(pixels(picture, where)))


def split(pictures: Any) -> Sequence[Any]:
    """One picture after the other, of a list or of a batch (N x ...)."""
    return [pictures[n] for n in range(len(pictures))]


def pixels(picture: Any, where: str = "a picture") -> Any:
    """A contiguous `uint8` array, height x width (x channels)."""
    import numpy as np

    is_tensor = hasattr(picture, "detach")
    if is_tensor:
        tensor = picture.detach()
        # NumPy has no bfloat16; half precision holds 8 bits of a value from 0 to 1.
        array = (tensor.float() if tensor.is_floating_point() else tensor).cpu().numpy()
    else:
        array = np.asarray(picture)
    if array.ndim == 2:
        array = array[..., None]
    if array.ndim != 3 or not array.size:
        raise InputError(f"{where}: expected one picture of two or three axes, not of the shape {array.shape}")
    first, last = array.shape[0] in _CHANNELS, array.shape[2] in _CHANNELS
    if not first and not last:
        raise InputError(f"{where}: no axis of the shape {array.shape} has 1, 3 or 4 channels")
    if first and (is_tensor or not last):
        array = array.transpose(1, 2, 0)
    if np.issubdtype(array.dtype, np.floating):
        low, high = float(array.min()), float(array.max())
        if not (low >= -_ROUNDING and high <= 1 + _ROUNDING):  # also where one is NaN
            raise InputError(f"{where}: floating point values go from 0 to 1, these from {low:g} to {high:g}")
        array = (array * 255).round().clip(0, 255).astype(np.uint8)
    elif array.dtype != np.uint8:
        raise InputError(f"{where}: expected uint8 or floating point values, not {array.dtype}")
    return np.ascontiguousarray(array[..., 0] if array.shape[2] == 1 else array)


def _png(picture: Any) -> bytes:
    data = io.BytesIO()
    # Fast rather than small: the picture is sent once, mostly to this machine.
    picture.save(data, "PNG", compress_level=1)
    return data.getvalue()
