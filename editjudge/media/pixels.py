"""Pictures as Python code holds them: what a judge takes of each, encoded without loss.

A path, a `data:` URL, an encoded picture (bytes), a PIL picture, or an array or tensor of one picture
with 1, 3 or 4 channels:

- `uint8` from 0 to 255, `bool` (a mask), or floating point from 0 to 1. Anything else is an error, also -1 to 1:
  nothing is guessed from values.
- height x width, height x width x channels or channels x height x width, whichever axis has 1, 3 or 4 entries. Where
  both have, an array of NumPy is height x width x channels and a tensor channels x height x width, as their libraries
  have it.

A PIL picture, array or tensor is encoded as PNG, a PIL picture upright as its EXIF orientation says.
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from editjudge.errors import ImageError
from editjudge.media.image import from_data_url

EXPECTED = "expected a path, a data: URL or bytes, in Python also a PIL picture or an array"
_CHANNELS = {1: "L", 3: "RGB", 4: "RGBA"}
_IN_PNG = ("1", "L", "LA", "I;16", "P", "RGB", "RGBA")
_ROUNDING = 1e-3
"""By which a float may leave 0 to 1: what decoders leave of rounding, less than a step of 8 bits."""


def encode(picture: Any, where: str = "a picture") -> bytes | Path | None:
    """The picture as a judge takes it; None stays None. Raises `ImageError` that says `where`."""
    if picture is None or isinstance(picture, bytes):
        return picture
    if isinstance(picture, str | os.PathLike):
        text = os.fspath(picture)
        return from_data_url(text) if text.startswith("data:") else Path(text)
    if is_pil(picture):
        return _png(picture, where)
    if not (hasattr(picture, "__array__") or hasattr(picture, "detach")):
        raise ImageError(f"{where}: found {type(picture).__name__}, {EXPECTED}")
    from PIL import Image

    return _png(Image.fromarray(pixels(picture, where)), where)


def is_pil(value: Any) -> bool:
    return hasattr(value, "save") and hasattr(value, "mode")


def is_decoded(value: Any) -> bool:
    """Whether it is a PIL picture, an array or a tensor, and not a number of NumPy."""
    return is_pil(value) or (hasattr(value, "__array__") and getattr(value, "ndim", 0) >= 2)


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
        raise ImageError(f"{where}: expected one picture of two or three axes, not of the shape {array.shape}")
    first, last = array.shape[0] in _CHANNELS, array.shape[2] in _CHANNELS
    if not first and not last:
        raise ImageError(f"{where}: no axis of the shape {array.shape} has 1, 3 or 4 channels")
    if first and (is_tensor or not last):
        array = array.transpose(1, 2, 0)
    if np.issubdtype(array.dtype, np.floating):
        low, high = float(array.min()), float(array.max())
        if not (low >= -_ROUNDING and high <= 1 + _ROUNDING):  # also where one is NaN
            raise ImageError(
                f"{where}: found floating point values from {low:g} to {high:g}, expected 0 to 1; for 0 to 255 "
                "convert them with .astype('uint8')"
            )
        array = (array * 255).round().clip(0, 255).astype(np.uint8)
    elif array.dtype == np.bool_:
        array = array * np.uint8(255)
    elif array.dtype != np.uint8:
        raise ImageError(f"{where}: expected uint8, bool or floating point values, not {array.dtype}")
    return np.ascontiguousarray(array[..., 0] if array.shape[2] == 1 else array)


def _png(picture: Any, where: str) -> bytes:
    from PIL import ImageOps

    data = io.BytesIO()
    try:
        upright = ImageOps.exif_transpose(picture)
        # Of the modes that PNG lacks, CMYK, YCbCr, HSV and LAB are colours; 32-bit greys have no agreed range.
        if upright.mode not in _IN_PNG and upright.mode in ("I", "F"):
            raise ImageError(
                f"{where}: found the mode {upright.mode}, whose range is unknown; expected 8 bits a channel"
            )
        upright = upright if upright.mode in _IN_PNG else upright.convert("RGBA" if "a" in upright.mode else "RGB")
        # Fast rather than small: the picture is sent once, mostly to this machine.
        upright.save(data, "PNG", compress_level=1)
    except (OSError, ValueError, SyntaxError) as error:  # what Pillow raises of a file that it opened lazily
        raise ImageError(f"{where}: cannot be read: {error}") from None
    return data.getvalue()
