"""The judge `metrics`: published metrics of an output against its input and its ground truth."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from editjudge.edit import Edit
from editjudge.errors import UsageError, near_miss
from editjudge.judgement import Judgement
from editjudge.judges.judge import Load, Work
from editjudge.judges.pixels import READABLE, cores, opened
from editjudge.media.image import ImageLimits
from editjudge.rubrics.model import Rubric

SPEC = "metrics"
VERSION = 1
"""Raised whenever the same pictures would get other numbers."""
TRUTH = "_truth"
"""Ends the name of a metric against the ground truth; the others are against the input."""


class Metrics:
    """Numbers from pictures alone. A rubric that it answers says `computed_by: metrics` and names its metrics."""

    spec = SPEC
    limits: ImageLimits | None = READABLE
    also = ("input", "mask", "ground_truth")
    """Pictures it looks at where the edit has them, whether or not the rubric shows them."""

    def __init__(self, extra: Mapping[str, Any] | None = None, workers: int | None = None) -> None:
        import cv2

        from editjudge.metrics.networks import CAPTIONS, KINDS, Network

        for name in extra or {}:
            if name not in KINDS:
                raise UsageError(f"-J {name}: the judge metrics takes {' and '.join(KINDS)}{near_miss(name, KINDS)}")
        self._networks = {kind: Network(kind, str(place)) for kind, place in (extra or {}).items()}
        self._captions = CAPTIONS if self._networks else ()
        cv2.setNumThreads(1)  # workers are the parallelism: two of them use two cores
        self._pool = ThreadPoolExecutor(workers or cores(), SPEC)

    def identity(self, edit: Edit, rubric: Rubric, repeat: int) -> Mapping[str, Any]:
        from editjudge.measured.network import DIGEST

        own = {kind: network.digest for kind, network in self._networks.items()}
        return {"judge": SPEC, "version": VERSION, "network": DIGEST} | (
            {"networks": own, "captions": self._captions_of(edit)} if own else {}
        )

    def _captions_of(self, edit: Edit) -> dict[str, str]:
        return {name: str(edit.metadata[name]) for name in self._captions if edit.metadata.get(name) is not None}

    async def judge(self, work: Work, load: Load) -> Judgement:
        encoded = {role: await load(role) for role in work.digests}
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._judged, work, encoded)

    def _judged(self, work: Work, encoded: Mapping[str, Any]) -> Judgement:
        from editjudge.metrics.networks import likeness

        pictures, broken = opened(encoded)
        for role in work.images:
            if role in broken:
                raise broken[role]
        factors = [factor.key for factor in work.rubric.factors]
        known = likeness(factors, self._networks, pictures, self._captions_of(work.edit))
        values, evidence = _values([factor for factor in factors if factor not in known], pictures)
        return _judgement(work, {factor: (known | values)[factor] for factor in factors}, evidence)


def _judgement(work: Work, values: Mapping[str, float | str], evidence: Mapping[str, Any]) -> Judgement:
    scores = {factor: value for factor, value in values.items() if not isinstance(value, str)}
    abstained = {factor: value for factor, value in values.items() if isinstance(value, str)}
    if not scores:
        return work.judgement("abstained", abstained=abstained, evidence=evidence)
    return work.judgement("ok", scores=scores, justifications={}, abstained=abstained, evidence=evidence)


def _values(factors: list[str], pictures: Mapping[str, Any]) -> tuple[dict[str, float | str], dict[str, Any]]:
    """Each factor's number or the reason for none, in the rubric's order, and what was done to the pictures."""
    from editjudge.metrics.comparison import METRICS, MetricPair

    values: dict[str, float | str] = dict.fromkeys(factors, "")
    evidence: dict[str, Any] = {}
    for role, name, ending in (("input", "input", ""), ("ground_truth", "ground truth", TRUTH)):
        named = {f: f.removesuffix(TRUTH) for f in factors if f.endswith(TRUTH) == bool(ending)}
        wanted = {factor: metric for factor, metric in named.items() if metric in METRICS}
        values |= {factor: f'no metric is called "{factor}"' for factor in named if factor not in wanted}
        if role not in pictures:
            values |= dict.fromkeys(wanted, f"the edit has no {name} that can be read")
            continue
        comparison = MetricPair(pictures[role], pictures["edited"], pictures.get("mask"))
        values |= comparison.values(wanted)
        evidence |= {f"{what} against the {name}": how for what, how in comparison.notes.items()}
    return values, evidence
