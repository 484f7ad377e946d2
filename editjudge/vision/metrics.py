"""The judge `metrics`, which compares an output with its input and its ground truth using published metrics (L1, PSNR,
SSIM ...).

Requires the extra `measured`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import cv2
import numpy as np

from editjudge.edit import Edit
from editjudge.errors import UsageError, did_you_mean
from editjudge.judgement import Judgement
from editjudge.judges.judge import Judge, Load, Options, Work
from editjudge.judges.workers import (
    READABLE,
    Measurer,
    WorkerPool,
    cores,
    is_large,
    opened,
)
from editjudge.media.image import EncodedImage
from editjudge.rubrics.model import Rubric
from editjudge.vision.checkpoints import CAPTIONS, KINDS, Checkpoint, likeness
from editjudge.vision.measured import network
from editjudge.vision.measured.scene import Array, fit

SPEC = "metrics"
VERSION = 1
"""Version of the numbers. It is increased when the same images would get different numbers."""
TRUTH = "_truth"
"""Suffix of metrics that compare with the ground truth. Metrics without it compare with the input."""

Value: TypeAlias = float | str
"""A number, or the reason why there is none."""


def open_metrics(_: str, options: Options, resources: AsyncExitStack) -> Metrics:
    """Open the judge `metrics`. It is closed together with `resources`."""
    judge = Metrics(options.extra)
    resources.callback(judge.close)
    return judge


class Metrics(Judge):
    """A judge that computes numbers from images alone. Rubrics with `computed_by: metrics` name the metrics."""

    spec = SPEC
    limits = READABLE
    further_images = ("input", "mask", "ground_truth")

    def __init__(
        self, extra: Mapping[str, Any] | None = None, workers: int | None = None
    ) -> None:
        for name in extra or {}:
            if name not in KINDS:
                raise UsageError(
                    f"-J {name}: the judge metrics takes {' and '.join(KINDS)}{did_you_mean(name, KINDS)}"
                )
        self._checkpoints = {
            kind: Checkpoint(kind, str(source))
            for kind, source in (extra or {}).items()
        }
        make = f"{__name__}:PairMeasurer"
        self._pool = WorkerPool(make, workers or cores())
        self._checkpoint_pool = self._pool
        if self._checkpoints:
            # A single thread, so that a checkpoint is loaded once and torch can use all cores.
            self._checkpoint_pool = WorkerPool(
                make, 1, {"checkpoints": self._checkpoints}
            )

    def capacity(self, questions: int) -> int:
        """Return the number of concurrent tasks. It is enough for all questions about two edits per worker; questions
        about one edit share a worker."""
        return 2 * self._pool.size * questions

    def close(self) -> None:
        for pool in {self._pool, self._checkpoint_pool}:
            pool.close()

    def identity(self, edit: Edit, rubric: Rubric, repeat: int) -> Mapping[str, Any]:
        identity = {"judge": SPEC, "version": VERSION, "network": network.DIGEST}
        if not self._checkpoints:
            return identity
        digests = {kind: c.digest for kind, c in self._checkpoints.items()}
        return identity | {"networks": digests, "captions": self._captions(edit)}

    def _captions(self, edit: Edit) -> dict[str, str]:
        return {
            name: str(edit.metadata[name])
            for name in CAPTIONS
            if self._checkpoints and edit.metadata.get(name) is not None
        }

    async def judge(self, work: Work, load: Load) -> Judgement:
        async def images() -> dict[str, EncodedImage]:
            return {role: await load(role) for role in work.digests}

        factors = [factor.key for factor in work.rubric.factors]
        kinds = {key.partition("_")[0] for key in factors}
        pool = self._checkpoint_pool if kinds & {*self._checkpoints} else self._pool
        values, evidence = await pool.ask(
            tuple(sorted(work.digests.items())),
            (factors, work.images, self._captions(work.edit)),
            images,
            large=is_large(work.sizes),
        )
        abstained = {name: v for name, v in values.items() if isinstance(v, str)}
        scores = {name: v for name, v in values.items() if name not in abstained}
        if not scores:
            return work.judgement("abstained", abstained=abstained, evidence=evidence)
        return work.judgement(
            "ok",
            scores=scores,
            justifications={},
            abstained=abstained,
            evidence=evidence,
        )


class PairMeasurer(Measurer):
    """Computes metrics inside a worker, and decodes the images of an edit only once."""

    def __init__(self, checkpoints: Mapping[str, Checkpoint] | None = None) -> None:
        cv2.setNumThreads(1)  # workers run in parallel, one for each core
        self._checkpoints = checkpoints or {}
        self.take(None)

    def take(self, edit: Mapping[str, EncodedImage] | None) -> None:
        self._images, self._broken = opened(edit or {})

    def answer(
        self, question: tuple[list[str], tuple[str, ...], Mapping[str, str]]
    ) -> tuple[dict[str, Value], dict[str, Any]]:
        """Return the number for each factor, or the reason why there is none. Also return how the images were resized."""
        factors, roles, captions = question
        for role in roles:
            if role in self._broken:
                raise self._broken[role]
        images = self._images
        pairs = {
            role: MetricPair(images[role], images["edited"], images.get("mask"))
            for role in ("input", "ground_truth")
            if role in images
        }
        values = likeness(factors, self._checkpoints, images, captions)
        for factor in factors:
            metric = factor.removesuffix(TRUTH)
            role = "input" if metric == factor else "ground_truth"
            if factor in values:
                continue
            if metric not in METRICS:
                values[factor] = f'no metric is called "{factor}"'
            elif role not in pairs:
                name = role.replace("_", " ")
                values[factor] = f"the edit has no {name} that can be read"
            else:
                values[factor] = pairs[role].value(metric)
        evidence = {
            f"{name} against the {role.replace('_', ' ')}": note
            for role, pair in pairs.items()
            for name, note in pair.notes.items()
        }
        return {factor: values[factor] for factor in factors}, evidence


# --- distances ------------------------------------------------------------------------------------------------

WINDOW = 11
SIGMA = 1.5
BORDER = WINDOW // 2
C1 = 0.01**2
C2 = 0.03**2
"""Constants of the SSIM paper, for pixels from 0 to 1."""
WEIGHTS = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)
"""Weights of the five scales of MS-SSIM (Wang, Simoncelli and Bovik, 2003)."""
LEAST_SIDE_MS = WINDOW * 2 ** (len(WEIGHTS) - 1)
"""Minimum side of an image for MS-SSIM: 176 pixels. A window then fits into the smallest scale."""


def unit(image: Array) -> Array:
    """Convert 8-bit channel values to numbers from 0 to 1."""
    scaled: Array = image.astype(np.float64) / 255
    return scaled


def mean(values: Array, where: Array | None = None) -> float:
    """Return the mean over the pixels of the region `where`, or over all pixels."""
    return float((values if where is None else values[where]).mean())


def psnr(error: float) -> float:
    """Return the PSNR in decibels for a mean squared error above 0. For an error of 0 it is undefined."""
    return -10 * math.log10(error)


def ssim_map(a: Array, b: Array) -> Array:
    """Return the local SSIM, averaged over channels, at every pixel that has a full window."""
    channels = [_similarity(a[..., n], b[..., n])[0] for n in range(a.shape[2])]
    local: Array = sum(map(_inner, channels)) / a.shape[2]
    return local


def ms_ssim(a: Array, b: Array) -> float:
    """Return MS-SSIM: contrast and structure at five scales, luminance at the last. Negative correlations count as 0."""
    value = 1.0
    for scale, weight in enumerate(WEIGHTS):
        last = scale == len(WEIGHTS) - 1
        means = []
        for n in range(a.shape[2]):
            full, contrast = _similarity(a[..., n], b[..., n])
            means.append(mean(full if last else _inner(contrast)))
        value *= min(1.0, max(0.0, sum(means) / len(means))) ** weight
        a = _halved(a)
        b = _halved(b)
    return value


def _similarity(a: Array, b: Array) -> tuple[Array, Array]:
    """Return the local SSIM of one channel, and its part without luminance. Computing one channel at a time takes a
    third of the memory."""
    mean_a = _blurred(a)
    mean_b = _blurred(b)
    product = mean_a * mean_b
    squares = mean_a**2 + mean_b**2
    shared = 2 * (_blurred(a * b) - product) + C2
    contrast = shared / (_blurred(a**2 + b**2) - squares + C2)
    return (2 * product + C1) / (squares + C1) * contrast, contrast


def _blurred(values: Array) -> Array:
    border = cv2.BORDER_REFLECT_101
    return cv2.GaussianBlur(values, (WINDOW, WINDOW), SIGMA, borderType=border)


def _inner(values: Array) -> Array:
    """Return the values except at the border, where a window would extend beyond the image."""
    return values[BORDER:-BORDER, BORDER:-BORDER]


def _halved(values: Array) -> Array:
    """Return the mean of each block of two by two pixels, without an odd last row or column."""
    height, width = (side // 2 * 2 for side in values.shape[:2])
    even = values[:height, :width]
    halved: Array = (
        even[::2, ::2] + even[1::2, ::2] + even[::2, 1::2] + even[1::2, 1::2]
    ) / 4
    return halved


SEEN = 512
"""Side in pixels of the network's input, the same as in the embedded judge."""
ASPECT = 0.02
"""Difference of aspect ratios above which an output counts as cropped or padded, so its pixels do not correspond."""
MOST_PIXELS = 2048 * 2048
"""Maximum number of pixels. Larger images are reduced. SSIM needs about 120 bytes per pixel, which is half a gigabyte
for each worker."""
_REGIONS = ("inside", "outside")
METRICS = (
    *(f"{metric}{region}" for metric in ("l1", "mse", "psnr", "ssim") for region in ("", "_inside", "_outside")),
    "ms_ssim",
    "perceptual_lite0",
    "feature_lite0",
)  # fmt: skip


@dataclass(eq=False)
class MetricPair:
    """An output and a reference, compared at the size of the reference."""

    reference: Array
    edited: Array
    mask: Array | None = None
    """Mask that is white in the region of the requested edit."""
    notes: dict[str, str] = field(default_factory=dict)

    def value(self, name: str) -> Value:
        """Compute the metric with this name, which is one of `METRICS`. Return a reason if it cannot be computed."""
        height, width = self.reference.shape[:2]
        h, w = self.edited.shape[:2]
        if abs(w * height / (h * width) - 1) > ASPECT:
            return f"the shapes differ: {w} x {h} pixels against {width} x {height}; no pixel has a counterpart"
        metric, _, region = name.rpartition("_")
        where = None
        if region not in _REGIONS:
            metric = name
        elif self.inside is None:
            return "the edit has no mask"
        else:
            where = self.inside if region == "inside" else ~self.inside
            if not where.any():
                return f"nothing is {region} the mask"
        if metric.endswith("lite0"):
            return self._by_network(metric)
        a, b = self.pair
        match metric:
            case "l1":
                return mean(np.abs(a - b), where)
            case "ssim":
                return self._ssim(where)
            case "ms_ssim":
                if min(self.size) < LEAST_SIDE_MS:
                    return f"a side has fewer than {LEAST_SIDE_MS} pixels, which the five scales of MS-SSIM need"
                return ms_ssim(a, b)
        error = mean((a - b) ** 2, where)
        if metric == "mse":
            return error
        if not error:
            return "no pixel differs: PSNR is infinite, which is no number"
        return psnr(error)

    def _ssim(self, where: Array | None) -> Value:
        if min(self.size) < WINDOW:
            return f"a side has fewer than {WINDOW} pixels, the window of SSIM"
        inner = None if where is None else _inner(where)
        if inner is not None and not inner.any():
            return "no window of SSIM is centred in that region"
        # rounding can take equal images past 1
        return min(1.0, mean(self.local, inner))

    def _by_network(self, metric: str) -> Value:
        if metric == "perceptual_lite0":
            # LPIPS without its learned weights: squared distances of unit-length channels, averaged over patches and
            # layers
            far = []
            for layer in network.LAYERS:
                patches = (x[f"patches{layer}"] for x in self.seen)
                a, b = (x / (np.linalg.norm(x, axis=0) + 1e-6) for x in patches)
                far.append(float(((a - b) ** 2).sum(axis=0).mean()))
            return sum(far) / len(far)
        # One minus the cosine of the last layer's channel means, which are never negative.
        last = f"patches{network.LAYERS[-1]}"
        a, b = (x[last].mean(axis=(1, 2)) for x in self.seen)
        length = float(np.linalg.norm(a) * np.linalg.norm(b))
        if not length:
            return "the network finds no features in one of the images"
        return min(1.0, max(0.0, 1 - float(a @ b) / length))

    @cached_property
    def size(self) -> tuple[int, int]:
        """Height and width at which the images are compared."""
        height, width = self.reference.shape[:2]
        share = min(1.0, (MOST_PIXELS / (height * width)) ** 0.5)
        return max(1, int(height * share)), max(1, int(width * share))

    @cached_property
    def pair(self) -> tuple[Array, Array]:
        return self._fitted("reference", self.reference), self._fitted(
            "edited", self.edited
        )

    def _fitted(self, name: str, image: Array) -> Array:
        height, width = self.size
        h, w = image.shape[:2]
        if (h, w) != (height, width):
            how = "area" if h * w > height * width else "cubic"
            self.notes[f"{name} resized"] = (
                f"from {w} x {h} to {width} x {height} pixels, {how}"
            )
        return unit(fit(image, width, height))

    @cached_property
    def local(self) -> Array:
        """SSIM at every pixel that has a full window."""
        return ssim_map(*self.pair)

    @cached_property
    def inside(self) -> Array | None:
        if self.mask is None:
            return None
        height, width = self.size
        gray = self.mask.mean(axis=2, dtype=np.float32)
        full = cv2.resize(gray, (width, height), interpolation=cv2.INTER_NEAREST)
        inside: Array = full > 127
        return inside

    @cached_property
    def seen(self) -> tuple[Mapping[str, Array], Mapping[str, Array]]:
        """Outputs of EfficientNet-Lite0 for both images, keyed by layer."""
        reference, edited = (
            network.see(fit(x, SEEN, SEEN)) for x in (self.reference, self.edited)
        )
        return reference, edited
