"""Similarity of images and texts, computed by CLIP and DINO with the weights of a local checkpoint.

A checkpoint is a folder, or a name in the local Hugging Face cache, in the layout that transformers uses. Nothing is
downloaded. Images are prepared with Pillow as the checkpoint's preprocessor_config.json specifies: resized, cropped and
normalised. The processors of the transformers library do the same, but its fast ones need torchvision.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from editjudge.errors import UsageError
from editjudge.vision.measured.scene import Array

KINDS = ("clip", "dino")
CAPTIONS = ("source_caption", "target_caption")
"""Columns of a manifest that describe the input and the intended result. An instruction describes neither."""


class Checkpoint:
    """A checkpoint on disk, loaded on first use."""

    def __init__(self, kind: str, source: str) -> None:
        self.kind = kind
        self.folder = _folder(kind, source)
        files = {
            path.name: path for path in sorted(self.folder.iterdir()) if path.is_file()
        }
        if "config.json" not in files:
            raise UsageError(
                f"-J {kind}={source}: no config.json in {self.folder}; expected a transformers checkpoint"
            )
        digest = hashlib.sha256()
        for name, path in files.items():
            with path.open("rb") as file:
                content = hashlib.file_digest(file, "sha256").hexdigest()
            digest.update(f"{name} {content}\n".encode())
        self.digest = digest.hexdigest()
        """Digest of all files. Other weights or another preprocessing would give different numbers."""

    @cached_property
    def _model(self) -> Any:
        import torch
        import transformers

        model: Any = transformers.AutoModel.from_pretrained(
            self.folder, local_files_only=True
        )
        if self.kind == "clip" and not hasattr(model, "get_text_features"):
            raise UsageError(
                f"-J clip={self.folder}: a {type(model).__name__}, which has no features of texts"
            )
        return model.to("cuda" if torch.cuda.is_available() else "cpu").eval()

    @cached_property
    def _tokenizer(self) -> Any:
        import transformers

        return transformers.AutoTokenizer.from_pretrained(
            self.folder, local_files_only=True
        )

    @cached_property
    def _preparation(self) -> Mapping[str, Any]:
        path = self.folder / "preprocessor_config.json"
        prepared: dict[str, Any] = (
            json.loads(path.read_bytes()) if path.exists() else {}
        )
        return prepared

    def see(self, image: Array) -> Array:
        """Return the unit-length features of an image."""
        import torch

        pixels = torch.from_numpy(prepare(image, self._preparation)[None])
        on_device = pixels.to(self._model.device)
        with torch.inference_mode():
            if self.kind == "clip":
                return _unit(self._model.get_image_features(pixel_values=on_device))
            # the class token, as in DINO scores
            return _unit(self._model(pixel_values=on_device).last_hidden_state[:, 0])

    def read(self, text: str) -> Array:
        """Return the unit-length features of a text. A text that is too long for the model is truncated."""
        import torch

        tokens = self._tokenizer([text], truncation=True, return_tensors="pt")
        with torch.inference_mode():
            return _unit(self._model.get_text_features(**tokens.to(self._model.device)))


def prepare(image: Array, how: Mapping[str, Any]) -> Array:
    """Resize, crop and normalise an image as preprocessor_config.json specifies, with CLIP's values as defaults.

    Return an array of channels x rows x columns.
    """
    from PIL import Image

    resized = Image.fromarray(image)
    size = how.get("size", {"shortest_edge": 224})
    size = {"shortest_edge": size} if isinstance(size, int) else size
    if "shortest_edge" in size:
        shortest = size["shortest_edge"]
        share = shortest / min(resized.size)
        target = tuple(max(shortest, int(side * share)) for side in resized.size)
    else:
        target = (size["width"], size["height"])
    resized = resized.resize(target, Image.Resampling(how.get("resample", 3)))
    if how.get("do_center_crop", "shortest_edge" in size):
        crop = how.get("crop_size", 224)
        crop = {"height": crop, "width": crop} if isinstance(crop, int) else crop
        left = (resized.width - crop["width"]) // 2
        top = (resized.height - crop["height"]) // 2
        resized = resized.crop((left, top, left + crop["width"], top + crop["height"]))
    mean = np.float32(how.get("image_mean", _MEAN))
    deviation = np.float32(how.get("image_std", _DEVIATION))
    values = (np.asarray(resized, np.float32) / 255 - mean) / deviation
    return np.ascontiguousarray(values.transpose(2, 0, 1))


_MEAN = (0.48145466, 0.4578275, 0.40821073)
_DEVIATION = (0.26862954, 0.26130258, 0.27577711)
"""Mean and standard deviation of CLIP's training images."""


def _unit(features: Any) -> Array:
    # Newer versions of transformers wrap the features.
    values: Array = (
        getattr(features, "pooler_output", features).float().cpu().numpy()[0]
    )
    return values / max(float(np.linalg.norm(values)), 1e-12)


def _folder(kind: str, source: str) -> Path:
    try:
        import huggingface_hub
        import torch  # noqa: F401  (only whether it is there)
        import transformers  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"-J {kind}: {error.name} is not installed: pip install 'editjudge[clip]'"
        ) from None
    if Path(source).is_dir():
        return Path(source)
    try:
        return Path(huggingface_hub.snapshot_download(source, local_files_only=True))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"-J {kind}={source}: neither a folder nor a checkpoint in the local cache ({type(error).__name__}); "
            "nothing is downloaded"
        ) from None


_COMPARED = {
    "clip_image": ("clip", "input"),
    "clip_text": ("clip", "target_caption"),
    "clip_direction": ("clip", "target_caption"),
    "dino_image": ("dino", "input"),
    "clip_image_truth": ("clip", "ground_truth"),
    "dino_image_truth": ("dino", "ground_truth"),
}
"""Factors of `metrics_clip`, each with the kind of checkpoint and the image or caption that the output is compared
with."""


class _Lacking(Exception):
    """Raised with the reason why a similarity cannot be computed."""


def likeness(
    factors: Sequence[str],
    checkpoints: Mapping[str, Checkpoint],
    images: Mapping[str, Array],
    captions: Mapping[str, str],
) -> dict[str, float | str]:
    """Return the cosine similarity for each of these factors of `metrics_clip`, or the reason why there is none."""

    @cache
    def features(kind: str, name: str) -> Array:
        if kind not in checkpoints:
            raise _Lacking(f"no {kind.upper()} checkpoint was given: -J {kind}=FOLDER")
        if name in CAPTIONS:
            if not captions.get(name, "").strip():
                raise _Lacking(
                    f"the manifest has no {name}: an instruction does not describe an image"
                )
            return checkpoints[kind].read(captions[name])
        if name not in images:
            raise _Lacking(f"the edit has no {name.replace('_', ' ')} that can be read")
        return checkpoints[kind].see(images[name])

    def cosine(factor: str) -> float:
        kind, other = _COMPARED[factor]
        edited = features(kind, "edited")
        if factor != "clip_direction":
            return float(edited @ features(kind, other))
        moved = edited - features(kind, "input")
        wanted = features(kind, other) - features(kind, "source_caption")
        lengths = float(np.linalg.norm(moved)), float(np.linalg.norm(wanted))
        if min(lengths) < 1e-6:
            raise _Lacking(
                "the image or the caption did not change, so the change has no direction"
            )
        return float(moved @ wanted) / (lengths[0] * lengths[1])

    values: dict[str, float | str] = {}
    for factor in factors:
        if factor in _COMPARED:
            try:
                values[factor] = min(1.0, max(-1.0, cosine(factor)))
            except _Lacking as lacking:
                values[factor] = str(lacking)
    return values
