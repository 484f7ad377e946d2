"""A known edit that a server asks its judges again and again, to notice when their answer moves beyond its noise.

An engine that scores wrongly without an error, for example after waking with a corrupt cache, is noticed by nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import math
import statistics
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field

from editjudge.edit import Edit
from editjudge.errors import EditjudgeError
from editjudge.rewards.queue import JudgingQueue, RequestBatch
from editjudge.rewards.requests import Refused
from editjudge.rubrics.model import Rubric

_log = logging.getLogger(__name__)

REFERENCE = 8
"""Number of answers at the start that later ones are compared with. They also show the noise."""
QUANTILE = 5.41
"""99.95 % quantile of Student's t with 7 degrees of freedom: one false alarm in a thousand answers of a steady judge."""
ROUNDING = 0.5 / 6
"""Half a point of seven, as a share of the scale, which is no alarm even of a judge without noise."""
_SIDE = 256


def known_edit() -> Edit:
    """Return the canary: a drawn scene whose circle was asked to be blue, and is."""
    return Edit(
        "canary",
        _scene((200, 60, 50)),
        _scene((50, 90, 200)),
        "Make the red circle blue.",
        edit_type="canary",
        group="canary",
    )


def _scene(colour: tuple[int, int, int]) -> bytes:
    from PIL import Image, ImageDraw

    image = Image.linear_gradient("L").resize((_SIDE, _SIDE)).convert("RGB")
    drawn = ImageDraw.Draw(image)
    drawn.rectangle((20, 150, 110, 230), fill=(210, 190, 90))
    drawn.polygon([(150, 240), (200, 150), (245, 240)], fill=(60, 150, 80))
    drawn.ellipse((120, 30, 210, 120), fill=colour)
    data = io.BytesIO()
    image.save(data, "PNG")
    return data.getvalue()


@dataclass
class Canary:
    """The answers to the known edit since the server started."""

    minutes: float
    questions: Mapping[str, Sequence[Rubric]]
    """Rubrics about which each judge is asked."""
    reference: list[dict[str, float]] = field(default_factory=list)
    """First answers: the score of each factor as a share of its scale."""
    asked: int = 0
    failed: int = 0
    deviation: float | None = None
    """Latest answer minus the mean of the first ones, as a share of the scale."""
    noise: float | None = None
    """Standard deviation of the first answers."""
    alarm: bool = False

    async def watch(self, queue: JudgingQueue) -> None:
        """Ask at the interval until cancelled. The first answers are asked in a row."""
        while True:
            if queue.edits < queue.terms.max_waiting:
                self.note(await self._ask(queue))
            if self.asked >= REFERENCE:
                await asyncio.sleep(60 * self.minutes)
            else:
                await asyncio.sleep(0)

    async def _ask(self, queue: JudgingQueue) -> dict[str, float] | None:
        """Return the scores of the known edit, or None if it could not be judged."""
        batch = RequestBatch([known_edit()], self.questions, fresh=True)
        try:
            with queue.admitted(0) as hold:
                queue.take(batch, hold)
            await batch.wait(queue.terms.deadline)
        except (EditjudgeError, Refused, OSError) as error:
            _log.warning("the canary could not be asked: %s", error)
            return None
        return self._shares(batch)

    def _shares(self, batch: RequestBatch) -> dict[str, float] | None:
        shares = {}
        rubrics = {rubric.name: rubric for rubric in batch.rubrics}
        for queued in batch.queued_for(0):
            if queued.failure():
                return None
            for judgement in queued.answers.values():
                for factor, score in (judgement.scores or {}).items():
                    scale = rubrics[judgement.rubric].factor(factor).scale
                    share = scale.share(score)
                    if share is not None:
                        name = f"{judgement.judge} {judgement.rubric} {factor}"
                        shares[name] = share
        return shares or None

    def note(self, answer: Mapping[str, float] | None) -> None:
        """Compare an answer with the first ones. A failure is counted, and moves nothing."""
        self.asked += 1
        if answer is None:
            self.failed += 1
            return
        if len(self.reference) < REFERENCE:
            self.reference.append(dict(answer))
            return
        common = set(answer).intersection(*self.reference)
        if not common:
            self.alarm = True
            _log.warning("canary: no factor has the score that it had before")
            return
        means = [statistics.fmean(each[name] for name in common) for each in self.reference]  # fmt: skip
        self.noise = statistics.stdev(means)
        now = statistics.fmean(answer[name] for name in common)
        self.deviation = now - statistics.fmean(means)
        limit = QUANTILE * self.noise * math.sqrt(1 + 1 / len(means))
        self.alarm = abs(self.deviation) > max(limit, ROUNDING)
        if self.alarm:
            _log.warning(
                "canary: the judge's answer to a known edit moved by %+.2f of the scale, with a noise of %.2f",
                self.deviation,
                self.noise,
            )

    def as_json(self) -> dict[str, object]:
        """Return the state as `/healthz` shows it."""
        return {
            "alarm": self.alarm,
            "asked": self.asked,
            "failed": self.failed,
            "deviation": self.deviation,
            "noise": self.noise,
        }

    def gauges(self) -> dict[str, tuple[str, float | None]]:
        """Return the metrics with their descriptions."""
        return {
            "canary_alarm": (
                "1 if the judge's answer to a known edit moved beyond its noise.",
                float(self.alarm),
            ),
            "canary_deviation": (
                "Latest answer to the known edit minus the first ones, as a share of the scale.",
                self.deviation,
            ),
            "canary_asked": ("Times that the known edit was asked.", self.asked),
            "canary_failed": ("Times that it was not judged.", self.failed),
        }


@contextlib.asynccontextmanager
async def watching(canary: Canary | None, queue: JudgingQueue) -> AsyncIterator[None]:
    """Ask the canary while the server runs."""
    if canary is None:
        yield
        return
    task = asyncio.create_task(canary.watch(queue))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
