"""The interface of judges, their options, and the unit of work that they receive."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from editjudge import plugins
from editjudge.edit import PAIR_ROLES, Edit
from editjudge.errors import EditjudgeError, did_you_mean
from editjudge.judgement import DONE, Exchange, Judgement, Status, Task
from editjudge.media.image import EncodedImage, ImageLimits
from editjudge.orders import ORDERS, SWAPPED, read_choice
from editjudge.redaction import redacted_settings
from editjudge.rubrics.model import Layout, Rubric
from editjudge.rubrics.prompt import Question, ask, layout_of
from editjudge.rubrics.verdict import UNSCORED, Failure, Remark, Verdict

T = TypeVar("T")

Load = Callable[[str], Awaitable[EncodedImage]]
"""Function that loads the edit's image with the given role, prepared for the judge."""
_MISSING = object()
METRICS = "metrics"
GGUF = "gguf:"
SERVERS = ("http", "https")
"""Plug-ins that ask a server, `http:URL`."""
SCHEMA_REQUEST = "schema_request"
"""Parameter that says how to request a schema from a server (`-J schema_request=json_object`). It is not part of any
task's key.
"""


def provider_of(spec: str) -> str | None:
    """Return the name of the plug-in in a spec of the form `NAME` or `NAME:REST`, or None if the spec does not name a
    plug-in.
    """
    name = spec.partition(":")[0]
    # A provider's model has a slash, so such specs are decided without searching for installed plug-ins.
    return name if "/" not in name and name in plugins.providers("judges") else None


def is_local(spec: str) -> bool:
    """Whether a judge sends nothing to a server. Plug-ins count as local."""
    return spec.startswith("replay:") or provider_of(spec) not in (None, *SERVERS)


class QuestionProblem(NamedTuple):
    """The reason why a question cannot be asked."""

    status: Status
    remark: Remark
    key_text: str
    """Description of the problem for the task's key. Unlike the remark's message, it must never change."""


class Work(NamedTuple):
    """A task, with everything that a judge needs to answer it."""

    task: Task
    edit: Edit
    rubric: Rubric
    digests: Mapping[str, str] = {}
    """Digests of the edit's images, keyed by role."""
    recipes: Mapping[str, str] = {}
    """How each image was prepared for this judge, keyed by role."""
    sizes: Mapping[str, tuple[int, int]] = {}
    """Width and height of each image, keyed by role."""
    layout: Layout | None = None
    """Layout of the question; by default the rubric's own."""
    problem: QuestionProblem | None = None
    """Reason why no judge can be asked, if it is known in advance."""

    @property
    def images(self) -> tuple[str, ...]:
        """Names of the edit's images that the rubric shows. Each image of a list has its own name."""
        return self.rubric.image_names(self.edit)

    @property
    def name(self) -> str:
        """Name of the task in logs."""
        return f"{self.task.item}, {self.task.rubric}, {self.task.judge}, repeat {self.task.repeat}"

    @property
    def is_exact(self) -> bool:
        """Whether the question is a published one and nothing else."""
        return layout_of(self.rubric, self.layout) == "exact"

    def question(self) -> Question:
        """Return this task's question."""
        return ask(self.rubric, self.edit, self.digests, self.layout)

    @property
    def order(self) -> Literal["ab", "ba"] | None:
        """Order in which this task shows the outputs of a pair; None if the edit is not a pair."""
        return self.task.variant if self.task.variant in ORDERS else None  # type: ignore[return-value]  # one of the two

    def by_own_name(self, by_role: Mapping[str, T]) -> dict[str, T]:
        """Return the values keyed by the manifest's roles, regardless of the order in which the outputs were shown."""
        if self.order != "ba":
            return dict(by_role)
        a, b = PAIR_ROLES
        swapped = {a: b, b: a}
        return {swapped.get(role, role): value for role, value in by_role.items()}

    def judgement(self, status: Status, **fields: Any) -> Judgement:
        """Return a judgement for this task with additional fields. Choices are passed in the order in which the outputs
        were shown, and translated to the manifest's order.
        """
        if self.order and (choices := fields.get("choices")):
            fields["choices"] = {
                factor: self._own_choice(choice) for factor, choice in choices.items()
            }
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

    def scored(
        self,
        values: Mapping[str, object],
        reasons: Mapping[str, str],
        **fields: Any,
    ) -> Judgement:
        """Return the judgement of a program that answered with a number for each factor, or None to abstain. A missing
        or unknown factor, and anything that is not a number of the scale, makes it `invalid`.
        """
        scales = {factor.key: factor.scale for factor in self.rubric.factors}
        problems: list[Remark] = []
        for name in sorted({*values} - {*scales}):
            message = f'the judge answered for "{name}", which the rubric does not ask for{did_you_mean(name, scales)}'
            problems.append(Remark("unknown_factor", message))
        scores: dict[str, float] = {}
        abstained: dict[str, str] = {}
        for key, scale in scales.items():
            value = values.get(key, _MISSING)
            if value is None:
                abstained[key] = reasons.get(key) or "the judge gave None"
                continue
            number = value
            if isinstance(value, float) and scale.values and value.is_integer():
                number = int(value)
            if value is _MISSING:
                message = "the judge gave neither a score nor None"
                problems.append(Remark("missing_factor", message, key))
            elif isinstance(value, bool) or not isinstance(number, int | float):
                message = f"the judge gave {value!r:.60}; expected a number or None"
                problems.append(Remark("not_a_number", message, key))
            elif not scale.has(number):
                message = f"the judge gave {value!r:.60}; expected {scale.words}"
                problems.append(Remark("score_out_of_scale", message, key))
            else:
                scores[key] = number
        if problems:
            return self.judgement("invalid", reasons=tuple(problems), **fields)
        if not scores:
            return self.judgement("abstained", abstained=abstained, **fields)
        justifications = {k: reasons[k] for k in scores if reasons.get(k)}
        return self.judgement(
            "ok",
            scores=scores,
            justifications=justifications,
            abstained=abstained,
            **fields,
        )

    def checked(self, judgement: Judgement) -> Judgement:
        """Return the judgement if it answers what the rubric asks for, else an `invalid` one.

        The contract has already checked replies in text. For a judge that computes scores, this is the only check.
        """
        if judgement.status not in DONE or not (problem := self._misfit(judgement)):
            return judgement
        return dataclasses.replace(
            judgement,
            status="invalid",
            scores=None,
            choices=None,
            expected={},
            mass={},
            abstained={},
            justifications=None,
            reasons=(*judgement.reasons, problem),
        )

    def _misfit(self, judgement: Judgement) -> Remark | None:
        scales = {factor.key: factor.scale for factor in self.rubric.factors}
        scores = judgement.scores or {}
        answered = {*scores, *(judgement.choices or {}), *judgement.abstained}
        if unknown := sorted(answered - scales.keys()):
            message = f'the judge answered for "{unknown[0]}", which the rubric does not ask for'
            return Remark("unknown_factor", message)
        for key, scale in scales.items():
            if judgement.status == "ok" and key not in answered:
                message = "the judge gave neither a score nor a reason to abstain"
                return Remark("missing_factor", message, key)
            if key in scores and not scale.has(scores[key]):
                message = f"the judge gave {scores[key]!r}; expected {scale.words}"
                return Remark("score_out_of_scale", message, key)
        return None

    def _own_choice(self, answer: str) -> str:
        choice = read_choice(answer)
        assert choice is not None, answer  # noqa: S101  (a run takes no rubric with other answers)
        return SWAPPED[choice] if self.order == "ba" else choice

    def verdict(
        self, outcome: Verdict | Failure, exchanges: Iterable[Exchange], **fields: Any
    ) -> Judgement:
        """Return the judgement that follows from the outcome of the last reply."""
        fields["exchanges"] = tuple(exchanges)
        if isinstance(outcome, Failure):
            return self.judgement(outcome.status, reasons=outcome.reasons, **fields)
        is_stage = not self.rubric.factors
        answered = bool(outcome.scores or outcome.choices or is_stage)
        notes = outcome.notes
        if self.rubric.answer.id_key and self.is_exact:
            notes = (*notes, _ID_UNCHECKED)
        silent = {
            key: f'the judge answered "{answer}"'
            for key, answer in outcome.abstained.items()
        }
        # A factor with a score may abstain from the expected score alone.
        fields["abstained"] = {**fields.get("abstained", {}), **silent}
        if outcome.unscored:
            unscored = {UNSCORED: dict(outcome.unscored)}
            fields["evidence"] = {**fields.get("evidence", {}), **unscored}
        return self.judgement(
            "ok" if answered else "abstained",
            scores=outcome.scores if outcome.scores or is_stage else None,
            choices=outcome.choices or None,
            justifications=outcome.justifications if answered else None,
            violations=outcome.violations,
            notes=notes,
            **fields,
        )


_ID_UNCHECKED = Remark(
    "id_unchecked",
    "the published question has no identifier, so the one in the answer was not checked",
)


class JudgingFailed(Exception):
    """Raised when a judge raises an unexpected exception. It carries fields that the judgement must keep, such as
    replies that were paid for.
    """

    def __init__(self, error: Exception, **fields: Any) -> None:
        super().__init__(str(error))
        self.error = error
        self.fields = fields


class QuestionWritten(EditjudgeError):
    """Raised when a task's next question was written to a file, so that the task stays pending."""


@dataclass(eq=False)
class JudgeServer:
    """One of several servers of a judge, any of which may answer any question."""

    url: str
    model: str | None = None
    """Model that its latest reply named."""


class Pacing(Protocol):
    """The pace of requests to a judge: when they are sent, and whether they are retried."""

    @property
    def window(self) -> int:
        """Maximum number of questions in flight."""
        ...

    def slot(self, *, has_reply: bool = False) -> AbstractAsyncContextManager[None]:
        """Wait for a free slot for a request.

        A task that already has its reply goes first. It is admitted even while the run is being stopped.
        """
        ...

    def spread(self, urls: Sequence[str]) -> None:
        """Divide the requests among several servers."""
        ...

    async def send_with_retries(
        self, send: Callable[..., Awaitable[T]], tokens: int = 0
    ) -> tuple[T, int]:
        """Return the result of `send` and the number of failed attempts before it. Raise `CallFailed` if it keeps
        failing. With several servers, the argument of `send` is the `JudgeServer` to ask.
        """
        ...

    def stop(self) -> None:
        """Send no further requests."""
        ...


@dataclass(frozen=True)
class Options:
    """Options that affect a judge's questions and answers. Options of the run, which are part of no task's key, are in
    `editjudge.running.job.RunOptions`.
    """

    temperature: float | None = None
    """Sampling parameter, like the next ones. None leaves it to the server."""
    seed: int | None = None
    max_tokens: int | None = None
    reasoning_effort: str | None = None
    extra: Mapping[str, object] = field(default_factory=dict)
    """Additional parameters, passed on unchanged (`-J key=value`)."""
    base_url: str | Sequence[str] | None = None
    """Address of the server, or of several servers of the same model."""
    schema: bool = True
    """Whether to request structured output if the server supports it."""
    strict: bool = False
    reasks: int = 2
    timeout: float = 300.0
    prices: Path | None = None
    read: Literal["text", "logprobs"] = "text"
    """`logprobs`: also compute the expected score under the token probabilities."""
    min_mass: float = 0.9
    """Minimum total probability of the legal scores for an expected score."""

    def parameters(self) -> dict[str, object]:
        """Return the sampling parameters in the form used in task keys and stored runs."""
        return {
            "temperature": self.temperature,
            "seed": self.seed,
            "max_tokens": self.max_tokens,
            "reasoning_effort": self.reasoning_effort,
            "extra": dict(self.extra),
        }

    def frozen(self) -> dict[str, object]:
        """Return the options to store with a run: everything that can change an answer, without secrets.

        Options added after 0.1 are left out if they have their default value, so the hashes of old runs stay the same.
        """
        extra = {n: v for n, v in self.extra.items() if n != SCHEMA_REQUEST}
        options: dict[str, object] = {
            "parameters": self.parameters() | {"extra": extra},
            "base_url": self.base_url,
            "schema": self.schema,
            "strict": self.strict,
            "reasks": self.reasks,
        }
        if self.read != "text":
            options |= {"read": self.read, "min_mass": self.min_mass}
        return redacted_settings(options)

    @property
    def base_urls(self) -> tuple[str | None, ...]:
        """Addresses of the servers. None is the provider's usual address."""
        if self.base_url is None or isinstance(self.base_url, str):
            return (self.base_url,)
        return tuple(dict.fromkeys(self.base_url)) or (None,)

    @property
    def mass_to_read(self) -> float | None:
        """Minimum total probability of the legal scores, or None if only the text is read."""
        return self.min_mass if self.read == "logprobs" else None


class Judge(Protocol):
    """Extension point for judges. Derive a class from it to answer questions about edits.

    For example, this judge scores an edit by the size of its output:

        class SizeJudge(Judge):
            spec = "size"
            limits = ImageLimits(base64=False)  # files as they are, not base64

            def identity(self, edit, rubric, repeat):
                return {"judge": "size", "version": 1}  # raise the version to have everything judged anew

            async def judge(self, work, load):
                image = await load("edited")
                is_large = min(image.width, image.height) >= 512
                reason = f"the output has {image.width} x {image.height} pixels"
                factors = {factor.key: factor.scale for factor in work.rubric.factors}
                scores = {key: scale.best if is_large else scale.worst for key, scale in factors.items()}
                return work.judgement("ok", scores=scores, justifications=dict.fromkeys(factors, reason))

    `editjudge.running.asker.judge_task` calls it for one task, `editjudge.running.engine.Engine` for all tasks of a
    run. `editjudge.media.image.decode(image.data)` returns the pixels: upright, in sRGB, on white. A judge that cannot
    judge an edit returns `work.judgement("abstained", abstained={factor: reason})`. An exception is a failure of this
    edit alone, and so is a factor that is missing, unknown, or outside its scale.
    """

    spec: str
    """Name that the user passed, such as `openai/gpt-6.1-terra`."""
    limits: ImageLimits | None
    """Limits of the images that the judge accepts; None if it receives no images."""
    further_images: tuple[str, ...] = ()
    """Roles of images that the judge uses if the edit has them, even if the rubric does not show them."""
    warnings: tuple[str, ...] = ()
    """Messages for the user at the start of a run."""

    def identity(self, edit: Edit, rubric: Rubric, repeat: int) -> Mapping[str, object]:
        """Return everything about this judge that can change its answer. It is part of the task's key."""
        ...

    async def judge(self, work: Work, load: Load) -> Judgement:
        """Judge one task and return the judgement."""
        ...

    def capacity(self, questions: int) -> int:
        """Return the number of tasks to work on at the same time, given the number of questions about each edit."""
        return 2

    def redacted(self, text: str) -> str:
        """Return a text without this judge's secrets."""
        return text

    def stop(self) -> None:
        """Start no further tasks, because the run is being stopped."""
        return
