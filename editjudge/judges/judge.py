"""The unit of work: a task with all that a judge needs to do it, and the protocol of those who do."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from editjudge.edit import PAIR_ROLES, Edit
from editjudge.judgement import Exchange, Judgement, Status, Task
from editjudge.media.cache import Encoded
from editjudge.media.image import ImageLimits
from editjudge.orders import ORDERS, SWAPPED, read_choice
from editjudge.rubrics.model import Rubric
from editjudge.rubrics.prompt import Layout, Question, ask
from editjudge.rubrics.verdict import Failure, Remark, Verdict

T = TypeVar("T")

Load = Callable[[str], Awaitable[Encoded]]
"""A picture of the edit by role, prepared for the judge that asks."""
METRICS = "metrics"


def is_local(spec: str) -> bool:
    """Whether nothing is sent to anybody."""
    return spec in ("measured", METRICS) or spec.startswith("replay:")


class Work(NamedTuple):
    """A task with all that a judge needs to do it."""

    task: Task
    edit: Edit
    rubric: Rubric
    digests: Mapping[str, str] = {}
    """Of the edit's pictures, by role."""
    recipes: Mapping[str, str] = {}
    """How each picture is prepared for this judge, by role."""
    sizes: Mapping[str, tuple[int, int]] = {}
    """Width and height of each picture, by role."""
    layout: Layout = "images-first"
    problem: tuple[Status, Remark] | None = None
    """Why no judge can be asked, where that is known beforehand."""

    @property
    def images(self) -> tuple[str, ...]:
        """The pictures of this edit that the rubric shows, by name: of a list, each of them."""
        return tuple(name for role in self.rubric.images for name in self.edit.picture_names(role))

    @property
    def name(self) -> str:
        """As a log names it."""
        return f"{self.task.item}, {self.task.rubric}, {self.task.judge}, repeat {self.task.repeat}"

    def question(self) -> Question:
        return ask(self.rubric, self.edit, self.digests, self.layout)

    @property
    def order(self) -> Literal["ab", "ba"] | None:
        """Of a pair: which output is shown first. The edit of this work has its outputs in that order."""
        return self.task.variant if self.task.variant in ORDERS else None  # type: ignore[return-value]  # one of the two

    def by_own_name(self, by_role: Mapping[str, T]) -> dict[str, T]:
        """By the roles of the manifest, whatever the order shown."""
        if self.order != "ba":
            return dict(by_role)
        turned = dict(zip(PAIR_ROLES, reversed(PAIR_ROLES), strict=True))
        return {turned.get(role, role): value for role, value in by_role.items()}

    def judgement(self, status: Status, **fields: Any) -> Judgement:
        """A judgement of this task with further fields; choices between two outputs are given as they were shown."""
        if self.order and (choices := fields.get("choices")):
            fields["choices"] = {factor: self._own_choice(choice) for factor, choice in choices.items()}
        return Judgement(
            key=self.task.key,
            status=status,
            judge=self.task.judge,
            rubric=self.task.rubric,
            rubric_hash=self.rubric.hash,
            repeat=self.task.repeat,
            prepared=self.by_own_name(self.recipes),
            order=self.order,
            created=time.time(),
            **fields,
        )

    def _own_choice(self, word: str) -> str:
        choice = read_choice(word)
        assert choice is not None, word  # noqa: S101  (a run takes no rubric with other words)
        return SWAPPED[choice] if self.order == "ba" else choice

    def verdict(self, outcome: Verdict | Failure, exchanges: Iterable[Exchange], **fields: Any) -> Judgement:
        """The judgement that the last reply decides."""
        fields["exchanges"] = tuple(exchanges)
        if isinstance(outcome, Failure):
            return self.judgement(outcome.status, reasons=outcome.reasons, **fields)
        answered = bool(outcome.scores or outcome.choices)
        silent = {key: f'the judge answered "{word}"' for key, word in outcome.abstained.items()}
        # A score may abstain from a mean over probabilities alone.
        fields["abstained"] = {**fields.get("abstained", {}), **silent}
        return self.judgement(
            "ok" if answered else "abstained",
            scores=outcome.scores if outcome.scores else None,
            choices=outcome.choices or None,
            justifications=outcome.justifications if answered else None,
            violations=outcome.violations,
            notes=outcome.notes,
            **fields,
        )


class JudgingFailed(Exception):
    """An unexpected exception of a judge, with fields of the judgement that are kept: replies that were paid for."""

    def __init__(self, error: Exception, **fields: Any) -> None:
        super().__init__(str(error))
        self.error, self.fields = error, fields


class Pacing(Protocol):
    """Who decides when a request may go out, and whether it goes out again."""

    def slot(self, *, has_reply: bool = False) -> AbstractAsyncContextManager[None]:
        """A place among those who may ask now. With a reply already, which only has to be checked, it comes first, also
        while a run stops."""
        ...

    async def persist(self, send: Callable[[], Awaitable[T]], tokens: int = 0) -> tuple[T, int]: ...


class Judge(Protocol):
    """Anybody who can say how good an edit is: the extension point for judges of one's own.

    A judge needs no base class. This one scores an edit by the size of its output:

        class SizeJudge:
            spec = "size"
            limits = ImageLimits(base64=False)  # files as they are, not base64

            def identity(self, edit, rubric, repeat):
                return {"judge": "size", "version": 1}  # raise the version to have everything judged anew

            async def judge(self, work, load):
                picture = await load("edited")
                score = 7 if min(picture.width, picture.height) >= 512 else 1
                reason = f"the output has {picture.width} x {picture.height} pixels"
                keys = [factor.key for factor in work.rubric.factors]
                reasons = dict.fromkeys(keys, reason)
                return work.judgement("ok", scores=dict.fromkeys(keys, score), justifications=reasons)

    `editjudge.run.feed.judged` asks it for one task, `editjudge.run.engine.Engine` for all tasks of a run. What it
    cannot judge is `work.judgement("abstained", abstained={factor: reason})`; an exception is the failure of this
    edit alone.
    """

    spec: str
    """As the user named it."""
    limits: ImageLimits | None
    """What pictures it takes; None where it is not sent any."""

    def identity(self, edit: Edit, rubric: Rubric, repeat: int) -> Mapping[str, Any]:
        """Everything about this judge that can change its answer; part of the task's key."""
        ...

    async def judge(self, work: Work, load: Load) -> Judgement: ...
