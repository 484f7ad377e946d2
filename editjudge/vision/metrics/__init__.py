"""The judge `metrics`: published metrics (L1, PSNR, SSIM ...) of an output against its input and its ground truth.

Needs the extra `measured`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, TypeAlias

from editjudge.edit import Edit
from editjudge.errors import UsageError, near_miss
from editjudge.judgement import Judgement
from editjudge.judges.judge import Judge, Load, Options, Work
from editjudge.media.image import EncodedImage
from editjudge.rubrics.model import Rubric
from editjudge.vision.workers import READABLE, WorkerPool, cores, is_large, opened

if TYPE_CHECKING:
    from editjudge.vision.metrics.networks import Network


SPEC = "metrics"
VERSION = 1
"""Raised whenever the same pictures would get other numbers."""
TRUTH = "_truth"
"""Ends the name of a metric against the ground truth; the others are against the input."""

_Values: TypeAlias = dict[str, float | str]
"""Each factor's number, or the reason for none."""


def open_metrics(_: str, options: Options, resources: AsyncExitStack) -> Metrics:
    """Open the judge `metrics` until `resources` are closed."""
    judge = Metrics(options.parameters.extra)
    resources.callback(judge.close)
    return judge


class Metrics(Judge):
    """Numbers from pictures alone. A rubric that it answers says `computed_by: metrics` and names its metrics."""

    spec = SPEC
    limits = READABLE
    further_images = ("input", "mask", "ground_truth")

    def __init__(
        self, extra: Mapping[str, Any] | None = None, workers: int | None = None
    ) -> None:
        from editjudge.vision.metrics.networks import CAPTIONS, KINDS, Network

        for name in extra or {}:
            if name not in KINDS:
                raise UsageError(
                    f"-J {name}: the judge metrics takes {' and '.join(KINDS)}{near_miss(name, KINDS)}"
                )
        self._networks = {
            kind: Network(kind, str(place)) for kind, place in (extra or {}).items()
        }
        self._captions = CAPTIONS if self._networks else ()
        make = "editjudge.vision.metrics:PairMeasurer"
        self._pool = WorkerPool(make, workers or cores())
        # One thread of this process: a checkpoint is loaded once, and torch uses all cores by itself.
        self._network_pool = (
            WorkerPool(make, 1, {"networks": self._networks})
            if self._networks
            else self._pool
        )

    def capacity(self, questions: int) -> int:
        """Return the tasks of two edits for each worker: the questions about an edit share a worker."""
        return 2 * self._pool.size * questions

    def close(self) -> None:
        for pool in {self._pool, self._network_pool}:
            pool.close()

    def identity(self, edit: Edit, rubric: Rubric, repeat: int) -> Mapping[str, Any]:
        from editjudge.vision.measured.network import DIGEST

        own = {kind: network.digest for kind, network in self._networks.items()}
        return {"judge": SPEC, "version": VERSION, "network": DIGEST} | (
            {"networks": own, "captions": self._captions_of(edit)} if own else {}
        )

    def _captions_of(self, edit: Edit) -> dict[str, str]:
        return {
            name: str(edit.metadata[name])
            for name in self._captions
            if edit.metadata.get(name) is not None
        }

    async def judge(self, work: Work, load: Load) -> Judgement:
        async def pictures() -> dict[str, EncodedImage]:
            return {role: await load(role) for role in work.digests}

        factors = [factor.key for factor in work.rubric.factors]
        pool = (
            self._network_pool
            if any(key.partition("_")[0] in self._networks for key in factors)
            else self._pool
        )
        question = (factors, work.images, self._captions_of(work.edit))
        key = tuple(sorted(work.digests.items()))
        values, evidence = await pool.ask(
            key, question, pictures, large=is_large(work.sizes)
        )
        return _judgement(work, values, evidence)


def _judgement(work: Work, values: _Values, evidence: Mapping[str, Any]) -> Judgement:
    scores = {
        factor: value for factor, value in values.items() if not isinstance(value, str)
    }
    abstained = {
        factor: value for factor, value in values.items() if isinstance(value, str)
    }
    if not scores:
        return work.judgement("abstained", abstained=abstained, evidence=evidence)
    return work.judgement(
        "ok", scores=scores, justifications={}, abstained=abstained, evidence=evidence
    )


class PairMeasurer:
    """Work of a worker: it opens the images of one edit once, and computes the metrics that rubrics name."""

    def __init__(self, networks: Mapping[str, Network] | None = None) -> None:
        import cv2

        cv2.setNumThreads(1)  # workers are the parallelism: two of them use two cores
        self._networks = networks or {}
        self.take(None)

    def take(self, edit: Mapping[str, EncodedImage] | None) -> None:
        self._pictures, self._broken = opened(edit or {})

    def answer(
        self, question: tuple[list[str], tuple[str, ...], Mapping[str, str]]
    ) -> tuple[_Values, dict[str, Any]]:
        from editjudge.vision.metrics.networks import likeness

        factors, images, captions = question
        for role in images:
            if role in self._broken:
                raise self._broken[role]
        known = likeness(factors, self._networks, self._pictures, captions)
        values, evidence = _values(
            [factor for factor in factors if factor not in known], self._pictures
        )
        return {factor: (known | values)[factor] for factor in factors}, evidence


def _values(
    factors: list[str], pictures: Mapping[str, Any]
) -> tuple[_Values, dict[str, Any]]:
    """Each factor's number or the reason for none, in the rubric's order, and what was done to the pictures."""
    from editjudge.vision.metrics.distances import METRICS, MetricPair

    values: _Values = dict.fromkeys(factors, "")
    evidence: dict[str, Any] = {}
    for role, name, ending in (
        ("input", "input", ""),
        ("ground_truth", "ground truth", TRUTH),
    ):
        named = {
            f: f.removesuffix(TRUTH)
            for f in factors
            if f.endswith(TRUTH) == bool(ending)
        }
        wanted = {
            factor: metric for factor, metric in named.items() if metric in METRICS
        }
        values |= {
            factor: f'no metric is called "{factor}"'
            for factor in named
            if factor not in wanted
        }
        if role not in pictures:
            values |= dict.fromkeys(wanted, f"the edit has no {name} that can be read")
            continue
        comparison = MetricPair(
            pictures[role], pictures["edited"], pictures.get("mask")
        )
        values |= comparison.values(wanted)
        evidence |= {
            f"{what} against the {name}": how for what, how in comparison.notes.items()
        }
    return values, evidence
