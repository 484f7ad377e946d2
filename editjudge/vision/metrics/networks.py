"""CLIP and DINO: likeness of pictures and texts by the weights of a checkpoint that the user has.

Checkpoints are folders, or names in the local Hugging Face cache, as transformers reads them; nothing is downloaded.
Pictures are prepared by Pillow from the checkpoint's own preprocessor_config.json: shorter side, crop, mean and
deviation. transformers' processors do the same, but the fast ones need torchvision.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from editjudge.errors import UsageError
from editjudge.vision.metrics.distances import Array

KINDS = ("clip", "dino")
CAPTIONS = ("source_caption", "target_caption")
"""Columns of a manifest that describe the input and the wanted result: an instruction describes neither."""


class Network:
    """A checkpoint, loaded when it is first used."""

    def __init__(self, kind: str, place: str) -> None:
        self.kind = kind
        self.folder = _folder(kind, place)
        read = {
            path.name: path for path in sorted(self.folder.iterdir()) if path.is_file()
        }
        if "config.json" not in read:
            raise UsageError(
                f"-J {kind}={place}: no config.json in {self.folder}; expected a transformers checkpoint"
            )
        digest = hashlib.sha256()
        for name, path in read.items():
            with path.open("rb") as file:
                digest.update(
                    f"{name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode()
                )
        self.digest = digest.hexdigest()
        """Digest of every file: other weights, or another preparation, give other numbers."""

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

    def see(self, picture: Array) -> Array:
        """The features of a picture, of length one."""
        import torch

        pixels = torch.from_numpy(prepare(picture, self._preparation)[None]).to(
            self._model.device
        )
        with torch.inference_mode():
            if self.kind == "clip":
                return _unit(self._model.get_image_features(pixel_values=pixels))
            # the class token, as DINO scores do
            return _unit(self._model(pixel_values=pixels).last_hidden_state[:, 0])

    def read(self, text: str) -> Array:
        """The features of a text, of length one; what is longer than the model takes is cut, as everywhere."""
        import torch

        tokens = self._tokenizer([text], truncation=True, return_tensors="pt").to(
            self._model.device
        )
        with torch.inference_mode():
            return _unit(self._model.get_text_features(**tokens))


def prepare(picture: Array, how: Mapping[str, Any]) -> Array:
    """Channels, rows, columns, as preprocessor_config.json says, with CLIP's values where it is silent."""
    from PIL import Image

    image = Image.fromarray(picture)
    size = how.get("size", {"shortest_edge": 224})
    size = {"shortest_edge": size} if isinstance(size, int) else size
    if "shortest_edge" in size:
        share = size["shortest_edge"] / min(image.size)
        target = tuple(
            max(size["shortest_edge"], int(side * share)) for side in image.size
        )
    else:
        target = (size["width"], size["height"])
    image = image.resize(target, Image.Resampling(how.get("resample", 3)))
    if how.get("do_center_crop", "shortest_edge" in size):
        crop = how.get("crop_size", 224)
        height, width = (
            (crop, crop) if isinstance(crop, int) else (crop["height"], crop["width"])
        )
        left = (image.width - width) // 2
        top = (image.height - height) // 2
        image = image.crop((left, top, left + width, top + height))
    mean = how.get("image_mean", _MEAN)
    deviation = how.get("image_std", _DEVIATION)
    values = (np.asarray(image, np.float32) / 255 - np.float32(mean)) / np.float32(
        deviation
    )
    return np.ascontiguousarray(values.transpose(2, 0, 1))


_MEAN = (0.48145466, 0.4578275, 0.40821073)
_DEVIATION = (0.26862954, 0.26130258, 0.27577711)
"""Mean and deviation of the images that CLIP was trained on."""


def _unit(features: Any) -> Array:
    # Newer versions of transformers wrap the features.
    values: Array = (
        getattr(features, "pooler_output", features).float().cpu().numpy()[0]
    )
    return values / max(float(np.linalg.norm(values)), 1e-12)


def _folder(kind: str, place: str) -> Path:
    try:
        import huggingface_hub
        import torch  # noqa: F401  (only whether it is there)
        import transformers  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"-J {kind}: {error.name} is not installed: pip install 'editjudge[clip]'"
        ) from None
    if Path(place).is_dir():
        return Path(place)
    try:
        return Path(huggingface_hub.snapshot_download(place, local_files_only=True))
    except (OSError, ValueError) as error:
        why = f"neither a folder nor a checkpoint in the local cache ({type(error).__name__}); nothing is downloaded"
        raise UsageError(f"-J {kind}={place}: {why}") from None


Value = float | str


def likeness(
    factors: list[str],
    networks: Mapping[str, Network],
    pictures: Mapping[str, Array],
    captions: Mapping[str, str],
) -> dict[str, Value]:
    """For each factor of `metrics_clip` its cosine, or the reason for none."""
    seen: dict[tuple[str, str], Array] = {}

    def see(kind: str, role: str) -> Array:
        if kind not in networks:
            raise _Lacking(f"no {kind.upper()} checkpoint was given: -J {kind}=FOLDER")
        if role not in pictures:
            raise _Lacking(f"the edit has no {role.replace('_', ' ')} that can be read")
        if (kind, role) not in seen:
            seen[kind, role] = networks[kind].see(pictures[role])
        return seen[kind, role]

    def read(column: str) -> Array:
        if not captions.get(column, "").strip():
            raise _Lacking(
                f"the manifest has no {column}: an instruction does not describe a picture"
            )
        return networks["clip"].read(captions[column])

    def direction() -> float:
        moved = see("clip", "edited") - see("clip", "input")
        wanted = read("target_caption") - read("source_caption")
        lengths = float(np.linalg.norm(moved)), float(np.linalg.norm(wanted))
        if min(lengths) < 1e-6:
            raise _Lacking(
                "the picture or the caption did not change: there is no direction"
            )
        return float(moved @ wanted) / (lengths[0] * lengths[1])

    known: dict[str, Callable[[], float]] = {
        "clip_image": lambda: float(see("clip", "edited") @ see("clip", "input")),
        "clip_text": lambda: float(see("clip", "edited") @ read("target_caption")),
        "clip_direction": direction,
        "dino_image": lambda: float(see("dino", "edited") @ see("dino", "input")),
        "clip_image_truth": lambda: float(
            see("clip", "edited") @ see("clip", "ground_truth")
        ),
        "dino_image_truth": lambda: float(
            see("dino", "edited") @ see("dino", "ground_truth")
        ),
    }
    values: dict[str, Value] = {}
    for factor in factors:
        if factor in known:
            try:
                values[factor] = min(1.0, max(-1.0, known[factor]()))
            except _Lacking as lacking:
                values[factor] = str(lacking)
    return values


class _Lacking(Exception):
    """Why a likeness cannot be computed."""
