"""Figures of the outputs by training step, with alarms when a policy begins to cheat its reward."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from editjudge.edit import Edit
from editjudge.errors import ImageError
from editjudge.media.image import decode

FIRST_STEPS = 3
"""Number of steps at the start that later ones are compared with."""
FEWEST = 8
"""Minimum number of groups (inputs with an instruction) on either side of a comparison."""
ALARMS = 0.05
"""Chance that a steady policy ever raises an alarm, over all figures and steps."""
MARGINS = {
    "unchanged": 0.1,
    "saturation": 0.03,
    "sharpness": 0.3,
    "grid": 0.1,
    "change": 0.03,
}
"""Smallest movement of each figure that is an alarm, so that a long training is not alarmed by what nobody sees."""
MOST_WAITING = 16
"""Maximum number of requests whose images wait to be measured. Further ones are left out."""
_SIDE = 256
_DETAIL = 512
_UNCHANGED = 0.004
"""Mean absolute difference, about one level of 255, up to which an output counts as unchanged."""

Image = NDArray[np.float32]


def figures_of(edit: Edit) -> dict[str, float] | None:
    """Return the figures of an output, or None if an image is missing or cannot be read.

    unchanged   1 if hardly a pixel differs from the input
    saturation  mean saturation, minus that of the input
    sharpness   logarithm of the edges' strength, relative to the input's
    grid        logarithm of the strength of edges on a grid of 8 or 16 pixels, relative to other edges
    change      mean absolute difference from the input
    """
    if not isinstance(edit.input, bytes) or not isinstance(edit.edited, bytes):
        return None
    try:
        before = decode(edit.input).convert("RGB")
        after = decode(edit.edited).convert("RGB")
    except ImageError:
        return None
    if min(*before.size, *after.size) < 2 * 16:
        return None
    small = [_pixels(image.resize((_SIDE, _SIDE))) for image in (before, after)]
    change = float(np.abs(small[1] - small[0]).mean())
    edges = [_edges(image) for image in small]
    return {
        "unchanged": float(change <= _UNCHANGED),
        "saturation": _saturation(small[1]) - _saturation(small[0]),
        "sharpness": math.log(edges[1] / edges[0]),
        "grid": _grid(_pixels(after.crop((0, 0, _DETAIL, _DETAIL)))),
        "change": change,
    }


def _pixels(image: object) -> Image:
    pixels: Image = np.asarray(image, np.float32) / np.float32(255)
    return pixels


def _saturation(pixels: Image) -> float:
    highest = pixels.max(axis=2)
    return float(((highest - pixels.min(axis=2)) / np.maximum(highest, 0.05)).mean())


def _edges(pixels: Image) -> float:
    gray = pixels.mean(axis=2)
    steps = np.abs(np.diff(gray, axis=0)).mean() + np.abs(np.diff(gray, axis=1)).mean()
    return float(steps) + 1e-3


def _grid(pixels: Image) -> float:
    """Return the logarithm of the strongest grid of either direction and period."""
    gray = pixels.mean(axis=2)
    strongest = 1.0
    for axis in (0, 1):
        lines = np.abs(np.diff(gray, axis=axis)).mean(axis=1 - axis) + 1e-4
        for period in (8, 16):
            whole = lines[: len(lines) // period * period].reshape(-1, period)
            # The median, so that the edge of one object is no grid.
            phases = np.median(whole, axis=0)
            strongest = max(strongest, float(phases.max() / np.median(phases)))
    return math.log(strongest)


@dataclass
class StepAlarm:
    """A movement of a figure away from the first steps."""

    figure: str
    step: float
    first: float
    now: float


@dataclass
class StepFigures:
    """Figures of the current step and of the first ones. A step ends when an edit of a later one arrives."""

    step: float | None = None
    alarms: dict[str, StepAlarm] = field(default_factory=dict)
    """First alarm of each figure."""
    late: int = 0
    """Number of edits that arrived after their step, and of those that were left out since too many were waiting."""
    _groups: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    """Figures of the current step, keyed by group."""
    _first: list[dict[str, float]] = field(default_factory=list)
    """Mean figures of each group of the first steps."""
    _ended: int = 0
    """Number of steps that have ended."""
    _waiting: int = 0
    _pool: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, "editjudge-steps")
    )

    def take(self, step: float, edits: Sequence[Edit]) -> None:
        """Measure the edits of a request in a thread, while the answer is on its way."""
        if self._waiting >= MOST_WAITING:
            self.late += len(edits)
            return
        self._waiting += 1
        self._pool.submit(self._measure, step, edits)

    def _measure(self, step: float, edits: Sequence[Edit]) -> None:
        try:
            for edit in edits:
                if figures := figures_of(edit):
                    self.note(step, _group(edit), figures)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def note(self, step: float, group: str, figures: dict[str, float]) -> None:
        """Add the figures of an output."""
        if self.step is not None and step < self.step:
            self.late += 1
            return
        if self.step is not None and step > self.step:
            self._end()
        self.step = step
        self._groups.setdefault(group, []).append(figures)

    def _end(self) -> None:
        means = [_means(figures) for figures in self._groups.values()]
        self._groups = {}
        self._ended += 1
        if self._ended <= FIRST_STEPS:
            self._first += means
            return
        if min(len(means), len(self._first)) < FEWEST:
            return
        # The errors of all tests add up to `ALARMS`, however long the training is.
        test = self._ended - FIRST_STEPS
        error = ALARMS / len(MARGINS) * 6 / (math.pi * test) ** 2
        for name, margin in MARGINS.items():
            first = np.array([each[name] for each in self._first])
            now = np.array([each[name] for each in means])
            moved = float(now.mean() - first.mean())
            if abs(moved) > max(margin, _limit(first, now, error)):
                alarm = StepAlarm(name, self.step or 0.0, first.mean(), now.mean())
                self.alarms.setdefault(name, alarm)

    def gauges(self) -> dict[str, tuple[str, float | None]]:
        """Return the metrics of the current step, with their descriptions."""
        if self.step is None:
            return {}
        gauges: dict[str, tuple[str, float | None]] = {
            "step": ("Training step of the latest edits.", self.step),
            "step_late_total": ("Edits that were not measured.", self.late),
        }
        groups = [_means(figures) for figures in list(self._groups.values())]
        for name in MARGINS:
            mean = math.fsum(each[name] for each in groups) / max(len(groups), 1)
            gauges[f"step_{name}"] = (f"Mean {name} of the outputs at this step.", mean)
            gauges[f"step_{name}_alarm"] = (
                f"1 if {name} has moved away from the first {FIRST_STEPS} steps.",
                float(name in self.alarms),
            )
        return gauges

    def as_json(self) -> dict[str, object]:
        """Return the step and its alarms as `/healthz` shows them."""
        return {
            "step": self.step,
            "alarms": {
                name: {"step": alarm.step, "first": float(alarm.first), "now": float(alarm.now)}
                for name, alarm in self.alarms.items()
            },
        }  # fmt: skip


def _limit(first: NDArray[np.float64], now: NDArray[np.float64], error: float) -> float:
    """Return the movement that a steady policy exceeds with this probability (Welch's test, with the fewer degrees of
    freedom of the two sides)."""
    from scipy.special import stdtrit

    variance = first.var(ddof=1) / len(first) + now.var(ddof=1) / len(now)
    quantile = stdtrit(min(len(first), len(now)) - 1, 1 - error / 2)
    return float(quantile * math.sqrt(variance))


def _means(figures: Sequence[dict[str, float]]) -> dict[str, float]:
    return {
        name: math.fsum(each[name] for each in figures) / len(figures)
        for name in MARGINS
    }


def _group(edit: Edit) -> str:
    if edit.group:
        return edit.group
    content = edit.instruction.encode() + (edit.input if isinstance(edit.input, bytes) else b"")  # fmt: skip
    return hashlib.sha256(content).hexdigest()
